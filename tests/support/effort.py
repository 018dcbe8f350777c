"""How much a test tries: `make test` runs some of the cases; THOROUGH=1 runs all of them."""

from __future__ import annotations

import os
from itertools import groupby

import pytest

IS_THOROUGH = os.environ.get("THOROUGH") == "1"
thorough = pytest.mark.skipif(not IS_THOROUGH, reason="takes long: THOROUGH=1 runs it")


def cases_left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the cases of parametrized tests that only a thorough run tries: all except the first and the last."""
    left_out = set[pytest.Item]()
    for _, same in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        cases = list(same)
        if not cases[0].get_closest_marker("every_case"):
            left_out.update(cases[1:-1])
    return set() if IS_THOROUGH else left_out


def tries(thorough: int, quick: int) -> int:
    """Return how many examples, schedules or kills a test tries."""
    return thorough if IS_THOROUGH else quick
