"""The checks of `hsimhash doctor`: each is ok, a warning, or a failure with its remedy."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hsimhash.errors import HsimhashError, in_shell
from hsimhash.locks import WRITER_LOCK, writer_of
from hsimhash.store.base import Record, Store
from hsimhash.store.lmdb.files import DATA
from hsimhash.store.lmdb.store import LmdbStore

QUERY = 0x5851F42D4C957F2D  # any one; most likely nothing is near it
READS = 5  # of a round trip, whose median counts
_SPARE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check; a failure has the error that a command would end with, if there was one."""

    name: str
    status: Literal["ok", "warn", "fail"]
    message: str
    error: HsimhashError | None = None
    record: Record | None = None  # what the check of the record read

    @classmethod
    def failed(cls, name: str, error: HsimhashError) -> Check:
        """Return the finding that an error is."""
        return cls(name, "fail", in_shell(error), error)


def check_record(record: Record) -> Check:
    """Return what the record says."""
    return Check("record", "ok", f"layout {record.layout.name}, profile {record.profile.get('name')}", record=record)


def check_read(store: Store) -> Check:
    """Time the scans of one query, which finds nothing most likely."""
    prefixes = store.record.layout.prefixes(QUERY)
    try:
        milliseconds = median_ms(lambda: store.scan(prefixes))
    except HsimhashError as error:
        return Check.failed("read", error)
    return Check("read", "ok", f"the {len(prefixes)} scans of a query: {milliseconds:.2f} ms (median of {READS})")


def median_ms(call: Callable[[], object]) -> float:
    """Return how many milliseconds a call takes, once it has been made."""
    call()
    times = []
    for _ in range(READS):
        began = time.perf_counter()
        call()
        times.append(1_000 * (time.perf_counter() - began))
    return statistics.median(times)


def embedded_checks(url: str, folder: Path) -> Iterator[Check]:
    """Look at an embedded index: its folder, record, locks and disk."""
    try:
        store = LmdbStore(url, folder)
    except HsimhashError as error:
        yield Check.failed("index", error)
        return
    with store:
        yield _check_folder(store.session.path)
        yield check_record(store.record)
        yield check_read(store)
        yield _check_writer(store.session.path)
        yield _check_disk(store.session.path, store.session.file_bytes())


def _check_folder(folder: Path) -> Check:
    """Look for what a write needs; opening the store reports what a read lacks."""
    data = (folder / DATA).resolve()
    refused = [path for path in (folder, data, folder / WRITER_LOCK) if path.exists() and not os.access(path, os.W_OK)]
    if not refused:
        return Check("folder", "ok", f"{folder} and its files can be written")
    names = ", ".join(map(str, refused))
    return Check("folder", "warn", f"this user cannot write {names}: queries work, ingest does not; see owner and mode")


def _check_writer(folder: Path) -> Check:
    holder = writer_of(folder / WRITER_LOCK)
    if holder is None:
        return Check("writer", "ok", "nobody is writing")
    return Check("writer", "ok", f"process {holder} is writing; others that write wait for it")


def _check_disk(folder: Path, file_bytes: int) -> Check:
    free = shutil.disk_usage(folder).free
    if free > max(file_bytes, _SPARE_BYTES):
        return Check("disk", "ok", f"{free >> 20:,} MiB are free, {file_bytes >> 20:,} MiB in use")
    return Check(
        "disk", "warn", f"only {free >> 20:,} MiB are free: 'hsimhash compact' needs {file_bytes >> 20:,}; make room"
    )
