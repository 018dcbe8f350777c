"""Times and durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds_of(value: object) -> float | None:
    """Return an ISO 8601 time as ms since 1970, None where it is none; one without a zone is UTC."""
    try:
        time = datetime.fromisoformat(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        return None
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) / timedelta(milliseconds=1)
