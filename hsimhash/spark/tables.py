"""Write tables, a read-only index, in many tasks: each task writes one part, and the hash of an id selects its part."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import Profile, Signatures
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.layout import Layout
from hsimhash.rowkey import check_documents
from hsimhash.spark.columns import (
    SIGNATURE,
    absolute_place,
    gathered,
    given_rows,
    last_rows,
    materialized,
    unsigned,
)
from hsimhash.spark.executors import OnExecutors
from hsimhash.store import Record, new_record
from hsimhash.store.base_files.base_format import BaseName
from hsimhash.store.hbase.files.stage import Stage, open_stage
from hsimhash.store.runs import Run
from hsimhash.store.tables.documents_file import DocumentsName
from hsimhash.store.tables.folder import Manifest, TablesPart
from hsimhash.store.tables.write import RUN_DOCUMENTS, sorted_run, write_part

PART_DOCUMENTS = 4_000_000  # approximate number of documents in a part, which one task writes


@dataclass(frozen=True, slots=True)
class _PartTask:
    """The values that every task needs."""

    place: str
    record: Record
    is_packed: bool
    run_documents: int


def write_tables(
    documents: DataFrame,
    folder: str,
    *,
    id: str = "id",
    layout: Layout | str | None = None,
    profile: Profile | str = DEFAULT_PROFILE,
    compress: bool = False,
    part_documents: int = PART_DOCUMENTS,
) -> Manifest:
    """Write documents as tables, a read-only index that `HSimIndex.open` opens as `tables://…`. Runs Spark jobs.

    Example:
        write_tables(fingerprints(pages, text="body"), "hdfs:///pages.tables", id="url")

    Args:
        documents: DataFrame with a column of ids, `fingerprint` and optionally `sketch`, `key` and `first_seen`, which
            is a timestamp or ms since 1970, by default now. Rows without an id or a fingerprint are skipped.
        folder: New or empty folder: a path that all executors share, or a URL that fsspec supports.
        id: Column of ids: strings or whole numbers. If an id is repeated, the document with the latest `first_seen` is
            used.
        layout: Layout of the index. Default: the same as for other new indexes.
        profile: Profile that made the fingerprints, as for `fingerprints`. Its lists are stored with the tables.
        compress: Whether to write fewer bytes; queries then take longer.
        part_documents: Approximate number of documents that a task writes. A task needs space for two parts in its
            temporary folder, and about 500 MB of memory.

    Raises:
        ValueError: A column is missing or has the wrong type, or there is no such profile.
        HsimhashError: The folder is not empty.
    """
    made = Profile.named(profile) if isinstance(profile, str) else profile
    parsed = Layout.parse(layout) if isinstance(layout, str) else layout
    record = new_record(f"tables://{folder}", made.to_json(), layout=parsed)
    given = given_rows(documents, id, None, has_signatures=record.has_signatures)
    check_new_tables(folder)
    place = absolute_place(folder)
    rows = materialized(last_rows(given, time.time_ns() // 1_000_000))
    count = rows.count()
    task = _PartTask(place, record, compress, min(part_documents, RUN_DOCUMENTS))
    parts = rows.repartition(max(1, -(-count // part_documents)), "id")
    found = parts.mapInArrow(OnExecutors(partial(_written, task)), "part string").collect()
    manifest = Manifest(record, tuple(_part_of(row.part) for row in sorted(found)))
    if manifest.documents != count:
        raise HsimhashError(f"{folder} has {manifest.documents:,} of {count:,} documents; delete it, and try again")
    stage = open_stage(place)
    for name, content in manifest.contents().items():
        with stage.writing(name) as stream:
            stream.write(content)
    return manifest


def check_new_tables(folder: str) -> None:
    """Raise `HsimhashError` if the folder for new tables is not empty."""
    if not open_stage(absolute_place(folder)).is_empty():
        raise HsimhashError(f"{folder} is not empty; choose another folder")


def _part_of(text: str) -> TablesPart:
    fields = json.loads(text)
    return TablesPart(BaseName(**fields["rows"]), DocumentsName(*fields["documents"]))


def _written(task: _PartTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a task's documents as a part, if it has any; yield the part's entry for the manifest."""
    context = TaskContext.get()
    number, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
    with tempfile.TemporaryDirectory(prefix="hsimhash-") as temporary:
        folder, runs = Path(temporary), list[Run]()
        for table in gathered(batches, task.run_documents):
            columns = [unsigned(table.column(name)) for name in SIGNATURE]
            ids, first_seen = table.column("id").to_pylist(), table.column("first_seen").to_numpy()
            signatures, packed, times = check_documents(Signatures.of(*columns), ids, first_seen)
            runs.append(sorted_run(folder / str(len(runs)), task.record, packed, signatures, times))
        if not runs:
            return
        part = write_part(folder / f"part-{number:016x}", runs, task.record, is_packed=task.is_packed)
        stage = open_stage(task.place)
        for name in (part.rows.file, part.documents.file):
            _copy(folder / name, stage, str(attempt))
    yield pa.RecordBatch.from_pydict({"part": [json.dumps({"rows": asdict(part.rows), "documents": part.documents})]})


def _copy(path: Path, stage: Stage, attempt: str) -> None:
    with path.open("rb") as source, stage.writing(path.name, attempt) as target:
        shutil.copyfileobj(source, target, 1 << 22)
