"""How much a test tries: `make test` takes a share of it, THOROUGH=1 all of it, as CI does."""

from __future__ import annotations

import os

IS_THOROUGH = os.environ.get("THOROUGH") == "1"


def tries(thorough: int, quick: int) -> int:
    """Return how many examples, schedules or kills a test tries."""
    return thorough if IS_THOROUGH else quick
