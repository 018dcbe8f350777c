"""The contract of every store, on LMDB with a base in even the smallest index."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsimhash.store.conformance import *  # noqa: F403  (its tests)
from hsimhash.store.conformance import StorePlace
from tests.support.places import based_place


@pytest.fixture
def place(tmp_path: Path) -> StorePlace:
    return based_place(tmp_path)
