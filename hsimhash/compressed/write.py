"""Write compressed tables: sorted runs on disk, merged drawer by drawer with bounded memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hsimhash.compressed.files import DOCUMENTS, PERMUTED, Manifest, drawer_file, keep_profile
from hsimhash.errors import StopAskedError
from hsimhash.extras import arrow_needed
from hsimhash.files import make_folder, replace_file, sync_folder
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.rarity import FIT_OFF, Learnt
from hsimhash.inputs.files import Input, InputOptions, usual_workers
from hsimhash.inputs.reader import read_batches
from hsimhash.layout import Layout
from hsimhash.load.fitting import fitted_profile
from hsimhash.load.intake import Gathering, bytes_before, fingerprinted
from hsimhash.load.job import Counts
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import check_documents, last_occurrences
from hsimhash.store.runs import (
    Run,
    document_order,
    drawer_values,
    listing_ranges,
    permuted_of,
    resolve,
    segment_ranges,
    signatures_of,
    write_permuted,
)

RUNS = "runs"
ROWS = 1 << 20  # of a drawer, and of a row group
ROWS_OF_DOCUMENT = 8  # rows of a drawer that take the memory of one of the documents' table


@dataclass(frozen=True, slots=True)
class Written:
    """The result: counts of records, lists of rejected and short texts, the manifest, and what was learnt."""

    counts: Counts
    rejects: list[str]
    short: list[str]
    manifest: Manifest
    learnt: Learnt | None  # what the word weights were learnt from, as in `DedupSummary`


def write_tables(
    inputs: Sequence[Input],
    reading: InputOptions,
    folder: Path,
    *,
    layout: Layout,
    profile: Profile,
    fit: str = FIT_OFF,
    workers: int | None = None,
    observer: Observer = UNWATCHED,
    rows: int = ROWS,
) -> Written:
    """Write tables of all documents of the inputs, even if there are none; of repeated ids the last one counts.

    Args:
        inputs: as `ingest` takes them.
        reading: how they are read.
        folder: new or empty.
        layout: its drawers are the tables.
        profile: of texts.
        fit: how rare features are; see `fitted_profile`.
        workers: processes that fingerprint texts; by default one per core.
        observer: watches; if its `stop` asks to end, `StopAskedError` is raised and nothing is left.
        rows: of a drawer that are held at once, and as many documents that are sorted as one run.

    Raises:
        ValueError: pyarrow is missing, the folder is not empty, or `fit` names a file that is not a table.
        ProfileMismatchError: this process does not know a list of the profile.
    """
    arrow_needed("a compressed table")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; choose another folder")
    profile = fitted_profile(inputs, reading, profile, fit, workers=workers, observer=observer)
    make_folder(folder)
    try:
        version = keep_profile(profile, partial(_write_file, folder))
        runs, written = _read(inputs, reading, folder, profile, workers, observer, rows)
        if runs:
            resolve(runs, rows, lambda found: np.ones(len(found.runs), np.bool_))
        fingerprints = _write_drawers(runs, folder, layout, observer, rows)
        documents = _write_documents(runs, folder, rows // ROWS_OF_DOCUMENT)
        shutil.rmtree(folder / RUNS, ignore_errors=True)
        manifest = Manifest(layout.name, profile.name, documents, fingerprints, version=version)
        manifest.save(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_folder(folder)
    return Written(written.counts, written.rejects, written.short, manifest, profile.learnt)


def _write_file(folder: Path, name: str, content: bytes) -> None:
    with replace_file(folder / name) as file:
        file.write(content)


def _read(
    inputs: Sequence[Input],
    reading: InputOptions,
    folder: Path,
    profile: Profile,
    workers: int | None,
    observer: Observer,
    run_documents: int,
) -> tuple[list[Run], Gathering]:
    """Return sorted runs, and what of the records goes to the lists."""
    runs, counts, gathering, lists = list[Run](), Counts(), Gathering(), Gathering()
    if not all(one.has_fingerprints for one in inputs):
        profile.verify()

    def keep() -> None:
        nonlocal counts
        if gathering.doc_ids:
            runs.append(_run(folder / RUNS / f"run-{len(runs):06d}", gathering))
        counts = counts.sum(gathering.counts)
        lists.rejects.extend(gathering.rejects)
        lists.short.extend(gathering.short)

    workers = workers or usual_workers(inputs)
    batches = read_batches(inputs, reading.for_profile(profile), stop=observer.stop, workers=workers)
    for batch, made in fingerprinted(inputs, batches, profile, workers):
        if observer.stop():
            raise StopAskedError("asked to end while reading")
        gathering.take(inputs[batch.input], batch, made)
        observer.report("read", *bytes_before(inputs, batch.end), counts.documents + gathering.counts.documents)
        if len(gathering.doc_ids) >= run_documents:
            keep()
            gathering = Gathering()
    keep()
    lists.counts = counts
    return runs, lists


def _run(folder: Path, gathering: Gathering) -> Run:
    signatures, first_seen = gathering.columns()
    signatures, ids, times = check_documents(signatures, gathering.doc_ids, first_seen)
    last = last_occurrences(ids)
    Run.write(folder, signatures[last], [ids[place] for place in last], times[last], has_signatures=True)
    return Run(folder)


def _write_drawers(
    runs: list[Run],
    folder: Path,
    layout: Layout,
    observer: Observer,
    rows_at_once: int,
) -> int:
    """Write a table for each drawer; return how many rows each has."""
    for run in runs:
        write_permuted(run, layout.drawers, Keying.WHOLE)  # the kind does not matter: tables do not have key rows
    permuted = [permuted_of(run, layout.drawers) for run in runs]
    ranges = segment_ranges(runs, layout.drawers, rows_at_once * len(layout.drawers)) if runs else []
    rows = 0
    for number, drawer in enumerate(layout.drawers):
        rows = 0
        with drawer_file(folder, drawer.number).open("xb") as stream, drawer_writer(stream) as write:
            for low, high in ranges:
                if observer.stop():
                    raise StopAskedError("asked to end while writing")
                values = drawer_values([one[number] for one in permuted], drawer, low, high)
                rows += len(values)
                write(values)
        observer.report("write", number + 1, len(layout.drawers))
    return rows


@contextmanager
def drawer_writer(stream: BinaryIO) -> Iterator[Callable[[Uint64s], None]]:
    """Give a function that appends ascending, permuted numbers to a new table of a drawer."""
    pa, pq = arrow_needed("a compressed table")
    schema = pa.schema([pa.field(PERMUTED, pa.uint64(), nullable=False)])
    with pq.ParquetWriter(
        stream,
        schema,
        compression="none",  # nothing is left to compress
        use_dictionary=False,
        column_encoding={PERMUTED: "DELTA_BINARY_PACKED"},
        write_page_checksum=True,
    ) as writer:

        def write(values: Uint64s) -> None:
            if len(values):
                writer.write_table(pa.table([pa.array(values)], schema))

        yield write


def _write_documents(runs: list[Run], folder: Path, at_once: int) -> int:
    """Write the table of documents; return how many there are."""
    pa, pq = arrow_needed("a compressed table")
    names = ("fingerprint", "first_seen", "sketch", "key")
    types = (pa.uint64(), pa.int64(), pa.uint64(), pa.uint64())
    schema = pa.schema([("id", pa.string()), *zip(names, types, strict=True)])
    count = 0
    with (
        (folder / DOCUMENTS).open("xb") as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for ids, *columns in _documents(runs, at_once):
            nullable = [*columns[:2], *(np.ma.masked_equal(column, 0) for column in columns[2:])]
            arrays = [pa.array(column, kind) for column, kind in zip(nullable, types, strict=True)]
            writer.write_table(pa.table([pa.array([one.decode() for one in ids], pa.string()), *arrays], schema))
            count += len(ids)
    return count


def _documents(runs: list[Run], at_once: int) -> Iterator[tuple[Any, ...]]:
    """Yield ids, fingerprints, first seen, sketches and keys of what is kept, in order of fingerprint and id."""
    if not runs:
        return
    signed = [signatures_of(run.registers_by_place()) for run in runs]
    for low, high in listing_ranges(runs, at_once):
        ids, parts = list[bytes](), []
        for run, own in zip(runs, signed, strict=True):
            places = run.kept_within(low, high)
            ids += run.ids_at(places)
            names = (("fingerprints", np.uint64), ("first_seen", np.int64))
            parts.append([*(run.map(*one)[places] for one in names), own.sketches[places], own.keys[places]])
        fingerprints, first_seen, sketch, key = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = document_order(fingerprints, ids, key=bytes)
        if len(order):
            yield (
                [ids[place] for place in order.tolist()],
                *(one[order] for one in (fingerprints, first_seen, sketch, key)),
            )
