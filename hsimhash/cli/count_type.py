"""Parse counts as people write them: 50M, 1e8, 2.5B, 10_000."""

from __future__ import annotations

import re
from decimal import Decimal

import click

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_COUNT = re.compile(r"(\d[\d_,]*(?:\.\d+)?)(?:e\+?(\d{1,2}))?([KMBGT]?)", re.ASCII | re.IGNORECASE)


def count_in(text: str) -> Decimal | None:
    """Parse a count; return None if the text is not one."""
    match = _COUNT.fullmatch(text)
    if match is None:
        return None
    number, exponent, unit = match.groups()
    return Decimal(re.sub("[_,]", "", number)).scaleb(int(exponent or 0)) * _UNITS[unit.upper()]


class Count(click.ParamType[int | float]):
    """A count of documents or records.

    Args:
        least: Smallest count.
        most: Largest count; None allows any.
        is_whole: Whether the count is a whole number, an `int`. Otherwise it is a `float` above `least`.
    """

    name = "count"

    def __init__(self, least: int = 1, most: int | None = None, *, is_whole: bool = True) -> None:
        self._least, self._most, self._is_whole = least, most, is_whole

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        """Return the number. A default value is already a number."""
        found = count_in(str(value))
        if self._is_whole:
            is_valid = found is not None and found == found.to_integral_value() and found >= self._least
        else:
            is_valid = found is not None and found > self._least
        if found is None or not is_valid or (self._most is not None and found > self._most):
            self.fail(
                f"{value!r} is not a valid count: {self._expected()}, such as 10_000, 50M, 2.5B or 1e8", param, ctx
            )
        return int(found) if self._is_whole else float(found)

    def _expected(self) -> str:
        if not self._is_whole:
            return f"expected a number above {self._least}"
        most = "" if self._most is None else f" to {self._most:,}"
        return f"expected a whole number from {self._least}{most}" if most else f"expected at least {self._least}"
