"""Write tables in bounded memory: documents become sorted runs on disk, and the runs become the files of parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from hsimhash.errors import IndexExistsError, Remedy, StopAskedError
from hsimhash.files import file_errors, make_folder, replace_file, sync_folder
from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.locks import WRITER_LOCK, lock_or_refuse
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import last_occurrences
from hsimhash.store.base import Document, Record
from hsimhash.store.base_files.base_build import build_base
from hsimhash.store.runs import Run, permuted_of, resolve, write_permuted
from hsimhash.store.tables.documents_build import build_documents
from hsimhash.store.tables.folder import MANIFEST, RUNS, Manifest, TablesPart, new_part_name, own_files, remove_files

RUN_DOCUMENTS = 1_000_000  # documents sorted in memory as one run
AT_ONCE_DOCUMENTS = 200_000  # documents merged at a time
_OTHER_FOLDER = Remedy("choose another folder, or pass overwrite=True", "choose another folder, or add --overwrite")


@dataclass(frozen=True, slots=True)
class TablesOptions:
    """Options for writing tables.

    Args:
        is_packed: Whether to write 5 to 6 bytes per drawer row instead of 8; queries are then slower.
        overwrite: Whether to replace tables in the folder. Processes that have opened them can still read them.
        run_documents: Number of documents sorted in memory; tests pass fewer.
    """

    is_packed: bool = False
    overwrite: bool = False
    run_documents: int = RUN_DOCUMENTS


def write_tables(
    folder: Path,
    record: Record,
    documents: Iterable[Document],
    options: TablesOptions | None = None,
    observer: Observer = UNWATCHED,
) -> Manifest:
    """Write documents as tables with one part; durable on return. If an id repeats, its last document is kept.

    Args:
        folder: A new or empty folder, or one with tables to replace.
        record: Record of the index that the documents come from.
        documents: Documents in any order.
        options: See `TablesOptions`.
        observer: Receives the progress of the second half of the work. If its `stop` returns true, the files are
            deleted and `StopAskedError` is raised.

    Raises:
        IndexExistsError: The folder is not empty.
        StoreUnavailableError: The folder cannot be written to.
    """
    options = options or TablesOptions()
    with new_tables(folder, overwrite=options.overwrite) as finish:
        runs = list[Run]()
        rows = iter(documents)
        while batch := list(islice(rows, options.run_documents)):
            runs.append(run_of(folder / RUNS / f"run-{len(runs):06d}", record, batch))
            if observer.stop():
                raise StopAskedError("stopped while reading documents")
        manifest = Manifest(
            record, (write_part(folder / new_part_name(), runs, record, observer, is_packed=options.is_packed),)
        )
        finish(manifest)
    return manifest


@contextmanager
def new_tables(folder: Path, *, overwrite: bool) -> Iterator[Callable[[Manifest], None]]:
    """Return a function that puts a manifest into effect, once the block has written the parts to the folder.

    If the block fails, its files are deleted; after a kill, the next call deletes them.
    """
    with file_errors(folder, advice=", and run the same command again"):
        made = make_folder(folder)
        try:
            with lock_or_refuse(folder / WRITER_LOCK, f"is writing tables to {folder}", _OTHER_FOLDER):
                try:
                    kept = _refuse_other_files(folder, overwrite=overwrite)
                    _clear(folder, kept)
                    with _cleared_on_error(folder, kept):
                        yield lambda manifest: _finish(folder, manifest)
                finally:
                    (folder / WRITER_LOCK).unlink(missing_ok=True)
        except BaseException:
            for one in made:
                if not any(one.iterdir()):
                    one.rmdir()
            raise


@contextmanager
def _cleared_on_error(folder: Path, kept: Iterable[str]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _clear(folder, kept)
        raise


def _refuse_other_files(folder: Path, *, overwrite: bool) -> set[str]:
    """Raise `IndexExistsError` for other files, and for tables that must not be replaced; return all file names."""
    names = {path.name for path in folder.iterdir()} - {WRITER_LOCK, RUNS}
    others = names - {path.name for path in own_files(folder)} - {MANIFEST, f"{MANIFEST}.new"}
    if others:
        raise IndexExistsError(f"{folder} contains other files, such as {min(others)}; choose another folder")
    if MANIFEST not in names:
        return set()
    if not overwrite:
        raise IndexExistsError(f"{folder} already contains tables; " + _OTHER_FOLDER)
    return names


def _clear(folder: Path, kept: Iterable[str]) -> None:
    """Delete the files of an unfinished write."""
    shutil.rmtree(folder / RUNS, ignore_errors=True)
    remove_files(folder, kept)


def _finish(folder: Path, manifest: Manifest) -> None:
    for name, content in manifest.contents().items():
        with replace_file(folder / name) as file:
            file.write(content)
    remove_files(folder, manifest.files)
    shutil.rmtree(folder / RUNS, ignore_errors=True)
    sync_folder(folder)


def run_of(folder: Path, record: Record, documents: Sequence[Document]) -> Run:
    """Write documents as a run; if an id repeats, its last document is kept."""
    doc_ids, fingerprints, first_seen, sketches, keys = zip(*documents, strict=True)
    signatures = Signatures.of(*(np.array(one, np.uint64) for one in (fingerprints, sketches, keys)))
    return sorted_run(folder, record, [one.encode() for one in doc_ids], signatures, np.array(first_seen, np.int64))


def sorted_run(folder: Path, record: Record, ids: list[bytes], signatures: Signatures, first_seen: Int64s) -> Run:
    """Write documents, given as columns, as a run; if an id repeats, its last document is kept."""
    last, signatures = last_occurrences(ids), record.stored(signatures)
    if len(last) < len(ids):
        ids, signatures, first_seen = [ids[place] for place in last], signatures[last], first_seen[last]
    Run.write(folder, signatures, ids, first_seen, has_signatures=record.has_signatures)
    return Run(folder)


def write_part(
    path: Path, runs: Sequence[Run], record: Record, observer: Observer = UNWATCHED, *, is_packed: bool = False
) -> TablesPart:
    """Write a part of tables from runs; durable on return.

    Args:
        path: Path of the files without their suffixes.
        runs: Runs of documents, to which files are added; if an id repeats, its last document is kept.
        record: Record of the tables.
        observer: Receives the progress, and can stop the write.
        is_packed: Whether the base is packed.
    """
    drawers = record.layout.drawers
    if runs:
        resolve(runs, AT_ONCE_DOCUMENTS, lambda found: np.ones(len(found.runs), np.bool_))
    for run in runs:
        write_permuted(run, drawers, record.keying)
    rows: int = sum(permuted_of(run, drawers).shape[1] for run in runs)
    total, done = rows * len(drawers) + sum(run.size for run in runs), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        observer.report("write", min(done, total), total)
        if observer.stop():
            raise StopAskedError("stopped while writing tables")

    base = build_base(path.with_suffix(".rows"), record.layout, runs, advance=advance, is_packed=is_packed)
    documents = build_documents(path.with_suffix(".docs"), runs, base.rows, AT_ONCE_DOCUMENTS, advance)
    return TablesPart(base, documents)
