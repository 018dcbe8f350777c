"""The `hsimhash doctor` checks for an embedded index: folder, record, locks, free pages, base, disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hsimhash.errors import HsimhashError
from hsimhash.locks import WRITER_LOCK, writer_of
from hsimhash.store.checkup import Check, check_read, check_record, check_relayout
from hsimhash.store.lmdb.files import DATA
from hsimhash.store.lmdb.store import LmdbStore

_SPARE_BYTES = 1 << 30
_TOP_SHARE = 0.2
# A file that exceeds both limits causes a warning. A write needs far fewer free pages to copy those it changes.
_FREE_SHARE, _FREE_BYTES = 0.7, 1 << 26


def checks(url: str, folder: Path) -> Iterator[Check]:
    """Check an embedded index: folder, record, locks, free pages, base, disk."""
    try:
        store = LmdbStore(url, folder)
    except HsimhashError as error:
        yield Check.failed("index", error)
        return
    with store:
        yield _check_folder(store.session.path)
        yield check_record(store.record)
        yield from check_relayout(store)
        yield check_read(store)
        yield _check_writer(store.session.path)
        yield _check_file(store.free_bytes(), store.session.file_bytes())
        yield from _check_base(store)
        yield _check_disk(store.session.path, store.total_bytes())


def _check_folder(folder: Path) -> Check:
    """Check that this user can write; opening the store already checked that the user can read."""
    data = (folder / DATA).resolve()
    refused = [path for path in (folder, data, folder / WRITER_LOCK) if path.exists() and not os.access(path, os.W_OK)]
    if not refused:
        return Check("folder", "ok", f"{folder} and its files are writable")
    names = ", ".join(map(str, refused))
    said = f"this user can query the index, but cannot write to {names}; check the owner and mode"
    return Check("folder", "warn", said)


def _check_writer(folder: Path) -> Check:
    holder = writer_of(folder / WRITER_LOCK)
    if holder is None:
        return Check("writer", "ok", "no process is writing")
    return Check("writer", "ok", f"process {holder} is writing; other writers wait for it")


def _check_file(free: int, file_bytes: int) -> Check:
    said = f"{free / file_bytes:.0%} of its {file_bytes / (1 << 20):,.1f} MiB are free pages"
    if free <= max(_FREE_BYTES, _FREE_SHARE * file_bytes):
        return Check("file", "ok", f"{said}, which later writes reuse")
    return Check("file", "warn", f"{said}: run 'hsimhash compact' while no process has the index open")


def _check_base(store: LmdbStore) -> Iterator[Check]:
    try:
        share = store.top_share()
    except HsimhashError as error:
        yield Check.failed("base", error)
        return
    if not share:
        return
    said = f"{share:.0%} of the drawer rows are newer than the base"
    if share <= _TOP_SHARE:
        yield Check("base", "ok", said)
        return
    yield Check(
        "base", "warn", f"{said}, and queries read both: run 'hsimhash compact' while no process has the index open"
    )


def _check_disk(folder: Path, file_bytes: int) -> Check:
    free = shutil.disk_usage(folder).free
    if free > max(file_bytes, _SPARE_BYTES):
        return Check("disk", "ok", f"{free >> 20:,} MiB are free, {file_bytes >> 20:,} MiB in use")
    return Check("disk", "warn", f"only {free >> 20:,} MiB are free: 'hsimhash compact' needs {file_bytes >> 20:,} MiB")
