"""The checks that `hsimhash doctor` runs. A check passes, warns, or fails with a remedy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from hsimhash.errors import HsimhashError, in_shell
from hsimhash.store.base import Record, Store
from hsimhash.store.unfinished_relayout import RUN_AGAIN, UNFINISHED, has_unfinished_relayout

QUERY = 0x5851F42D4C957F2D  # arbitrary; most likely nothing is near it
READS = 5  # number of timed round trips; their median is reported


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check. For a failure, `error` is what a command would raise, if that is known."""

    name: str
    status: Literal["ok", "warn", "fail"]
    message: str
    error: HsimhashError | None = None
    record: Record | None = None  # the record that the check read

    @classmethod
    def failed(cls, name: str, error: HsimhashError) -> Check:
        """Return a check that failed with an error."""
        return cls(name, "fail", in_shell(error), error)


def check_record(record: Record) -> Check:
    """Report the record's layout and profile."""
    return Check("record", "ok", f"layout {record.layout.name}, profile {record.profile.get('name')}", record=record)


def check_relayout(store: Store) -> Iterator[Check]:
    """Warn if a relayout into the index has not finished."""
    if has_unfinished_relayout(store):
        yield Check("relayout", "warn", f"{UNFINISHED}; {RUN_AGAIN}")


def check_read(store: Store) -> Check:
    """Time the scans of one query, which most likely finds nothing."""
    prefixes = store.record.layout.prefixes(QUERY)
    try:
        milliseconds = median_ms(lambda: store.scan(prefixes))
    except HsimhashError as error:
        return Check.failed("read", error)
    return Check("read", "ok", f"the {len(prefixes)} scans of a query take {milliseconds:.2f} ms (median of {READS})")


def median_ms(call: Callable[[], object]) -> float:
    """Return the median duration of a call in milliseconds, after one untimed call."""
    call()
    times = []
    for _ in range(READS):
        began = time.perf_counter()
        call()
        times.append(1_000 * (time.perf_counter() - began))
    return sorted(times)[READS // 2]
