"""Tests that every store must pass, including stores in other packages.

A pytest module imports all tests, and defines a fixture that determines where they create stores:

    from hsimhash.store.conformance import *

    @pytest.fixture
    def place(tmp_path):
        numbers = itertools.count()
        return StorePlace(lambda: f"sqlite://{tmp_path / str(next(numbers))}")

The tests need pytest, which hsimhash itself does not require.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(f"{__name__}.claims", f"{__name__}.contract", f"{__name__}.random_calls")

from hsimhash.store.conformance.claims import *  # noqa: E402, F403
from hsimhash.store.conformance.contract import *  # noqa: E402, F403
from hsimhash.store.conformance.place import StorePlace as StorePlace  # noqa: E402
