"""Copy an embedded index to a new data file, with a new base if it is large, and replace the old files."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import lmdb
import numpy as np

from hsimhash.files import put_in_place, sync_file, sync_folder
from hsimhash.rowkey import KEY_FLAG, SEGMENT_BYTES, fingerprints_of, key_rowkeys
from hsimhash.store.base import Record
from hsimhash.store.base_files.base_build import build_base
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.base_files.base_format import BaseName
from hsimhash.store.lmdb.codec import BASE_PART, FORMAT_PART, PACKED_ROWKEY, marked_format, rows_in, verify_order
from hsimhash.store.lmdb.files import (
    DATA,
    FILED,
    ROWS_AT_ONCE,
    BaseLimits,
    bases,
    deleted_on_error,
    lmdb_lock,
    made_files,
    new_base,
    new_data_file,
    open_databases,
    open_lmdb,
    remove_bases,
    verify_pages,
)
from hsimhash.store.lmdb.session import LmdbView, Session
from hsimhash.store.runs import REGISTER, SIGNED_REGISTER, FiledRows, distinct_of, signatures_of

FILED_DOCUMENTS = 1_000_000  # documents whose rows are sorted in memory at a time


def copy_rows(
    transaction: lmdb.Transaction, databases: Mapping[str, object], target: Path, base: BaseName | None = None
) -> None:
    """Copy all rows that a transaction reads to the new data file `target`, in order and with full pages.

    LMDB's own compacting copy is not used: in lmdb 3.0.0 (LMDB 0.9.36), it crashes the process (SIGSEGV) if a bucket is
    so large that its rows have their own pages.

    Args:
        transaction: Transaction that reads the rows.
        databases: Databases of the index, by name.
        target: The new file.
        base: Base that contains all drawer rows; the copy's record names this base, and drawer rows are not copied.
            None: copy the drawer rows.
    """
    verify_pages(transaction, *databases.values())
    with deleted_on_error(target):
        with closing(open_lmdb(target, has_lock=False, is_durable=False)) as copy:
            copies = open_databases(copy, create=True)
            for name, database in databases.items():
                if name != "drawers" or base is None:
                    _copy_database(transaction, database, copy, copies[name])
            if base is not None:
                _name_base(copy, copies["record"], base)
        sync_file(target)


def _copy_database(transaction: lmdb.Transaction, database: object, copy: lmdb.Environment, to: object) -> None:
    rows = transaction.cursor(database).iternext()
    while batch := list(itertools.islice(rows, ROWS_AT_ONCE)):
        with copy.begin(write=True) as writing:
            verify_order(writing.cursor(to).putmulti(batch, append=True))


def _name_base(copy: lmdb.Environment, record: object, base: BaseName) -> None:
    with copy.begin(write=True, db=record) as writing:
        is_marked = writing.get(BASE_PART) is not None
        writing.put(BASE_PART, base.to_json())
        if not is_marked:
            writing.put(FORMAT_PART, marked_format(writing.get(FORMAT_PART)))


def copied_base(base: Base, folder: Path) -> Path:
    """Copy a base to a folder and return the copy's path; durable on return. On the same disk, the copy is a hard link.

    Raises:
        DamagedBaseError: The base is damaged.
    """
    base.blocks.verify_all()
    copy = folder / base.name.file
    try:
        os.link(base.path, copy)
    except OSError:  # another disk, a disk without hard links, or the base has just been replaced
        with copy.open("wb") as file:
            file.write(base.content)
        sync_file(copy)
    sync_folder(folder)
    return copy


def rewrite(folder: Path, record: Record, limits: BaseLimits) -> tuple[int, int]:
    """Rewrite the data file and base of an index that nobody has open; return their size before and after, in bytes."""
    data, new = folder / DATA, new_data_file(folder)
    before = _bytes(folder)
    for left in made_files(folder):
        if left.resolve() != data.resolve():
            left.unlink(missing_ok=True)
    with closing(open_lmdb(data.resolve(), is_read_only=True, has_lock=False)) as env:
        databases = open_databases(env, create=False)
        with env.begin() as transaction:
            named = transaction.get(BASE_PART, db=databases["record"])
            remove_bases(folder, BaseName.from_json(named).file if named is not None else "")
            base = None
            if named is not None or transaction.stat(databases["register"])["entries"] >= limits.documents:
                verify_pages(transaction, databases["register"])
                with filed_registers(transaction, databases["register"], record, folder / FILED) as filed:
                    base = build_base(new_base(folder), record.layout, filed, like=folder / DATA)
            copy_rows(transaction, databases, new, base)
    lmdb_lock(data).unlink(missing_ok=True)  # before the replacement: it refers to the old file's transactions
    put_in_place(new, data)
    remove_bases(folder, base.file if base is not None else "")
    for left in made_files(folder):
        left.unlink(missing_ok=True)
    return before, _bytes(folder)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / DATA, *bases(folder)))


def make_base(session: Session) -> None:
    """Build a base with the rows that the registers require, in place of the current base and LMDB's drawer rows."""
    folder, record = session.path, session.record
    with session.writing():
        remove_bases(folder, session.environment.base_file())
        with (
            LmdbView(session) as view,
            filed_registers(view.transaction, view.databases["register"], record, folder / FILED) as filed,
        ):
            name = build_base(new_base(folder), record.layout, filed, like=folder / DATA)
        with session.write() as transaction:
            session.environment.name_base(transaction, name)
        remove_bases(folder, name.file)


@contextmanager
def filed_registers(
    transaction: lmdb.Transaction, register: object, record: Record, folder: Path
) -> Iterator[list[FiledRows]]:
    """Return the drawer rows that registers require, in files that are deleted at the end of the block."""
    shutil.rmtree(folder, ignore_errors=True)
    kind, rows = SIGNED_REGISTER if record.has_signatures else REGISTER, transaction.cursor(register).iternext()
    filed = list[FiledRows]()
    try:
        while batch := list(itertools.islice(rows, FILED_DOCUMENTS)):
            registers = rows_in(b"".join(itertools.chain.from_iterable(batch)), kind)
            signatures = record.stored(signatures_of(registers))
            keyed = key_rowkeys(signatures) if record.has_signatures else None
            place = folder / str(len(filed))
            filed.append(FiledRows.sort(place, signatures.fingerprints, keyed, record.layout.drawers))
        yield filed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def filed_top(transaction: lmdb.Transaction, top: object, record: Record, folder: Path) -> Iterator[list[FiledRows]]:
    """Return LMDB's drawer rows, with each fingerprint in all drawers, in files that are deleted after the block."""
    shutil.rmtree(folder, ignore_errors=True)
    rows, parts, keyed = transaction.cursor(top).iternext(), [np.empty(0, np.uint64)], list[np.ndarray]()
    while batch := list(itertools.islice(rows, FILED_DOCUMENTS)):
        packed = rows_in(b"".join(itertools.chain.from_iterable(batch)), PACKED_ROWKEY)
        is_key = (packed[:, SEGMENT_BYTES] == KEY_FLAG) & record.has_signatures
        keyed.append(packed[is_key])
        parts = [distinct_of([*parts, np.sort(fingerprints_of(packed[~is_key]))])]
    try:
        if not (len(parts[0]) or any(map(len, keyed))):
            yield []
            return
        key_rows = np.concatenate(keyed) if record.has_signatures else None
        yield [FiledRows.sort(folder, parts[0], key_rows, record.layout.drawers)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
