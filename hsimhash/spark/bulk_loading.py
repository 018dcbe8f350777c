"""Load documents into an index on HBase as HFiles made by Spark tasks, as 'hsimhash bulk-load' does on one machine.

`store/hbase/files/load_steps.py` defines the steps. Their state is in the stage, so that another driver can continue:
it keeps completely staged data, and rebuilds everything else. Each load has its own folder in the stage, named after
its token. Tasks of a killed driver may still be running, but they can only write to that folder:

| folder | content |
|---|---|
| `documents` | the documents to write, after comparison with the table; as Parquet, so every read returns the same |
| `rows`, `registers` | HFiles, one per part of a region (`region_hfiles.py`) |
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hsimhash.fingerprint import Profile, Signatures
from hsimhash.index import opened_index
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import check_documents
from hsimhash.spark.columns import SIGNATURE, absolute_place, given_rows, last_rows, unsigned
from hsimhash.spark.executors import OnExecutors
from hsimhash.spark.records import RecordOptions, read_records
from hsimhash.spark.region_hfiles import FilePlan, cuts_of, region_parts, write_files
from hsimhash.spark.signatures import SHORT_KIND
from hsimhash.store import Opening, Record, StageOptions, backend_of, store_name
from hsimhash.store.base import JOB_DEADLINE_S
from hsimhash.store.capabilities import LoadsFiles
from hsimhash.store.hbase.files.load_steps import LoadState, LoadSteps, StateKeeper
from hsimhash.store.hbase.files.region_writer import REGISTERS, ROWS, StagedFile
from hsimhash.store.hbase.files.stage import Stage, open_stage
from hsimhash.store.hbase.files.table_comparison import ASKED_AT_ONCE, TableComparison
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.batches import slices
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.rows.protocol import SameIndex, Times, Writes
from hsimhash.store.hbase.store import HBaseStore

DOCUMENTS = "documents"
TASK_BYTES = 200 << 20  # approximate memory for the rows in a task
_DOCUMENTS = "id string, fingerprint bigint, sketch bigint, key bigint, first_seen bigint, changes bigint, is_news int"


@dataclass(frozen=True, slots=True)
class BulkLoadTotals:
    """Numbers of documents: given, new or changed, unchanged, invalid, and without a fingerprint.

    A document that is replaced by a later one with the same id is counted as unchanged.
    """

    documents: int
    added: int
    unchanged: int
    rejected: int = 0
    short: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


def bulk_load(
    documents: DataFrame,
    store: str,
    options: StageOptions,
    *,
    id: str = "id",
    profile: Profile | str | None = None,
    position: str | None = None,
    observer: Observer = UNWATCHED,
) -> BulkLoadTotals | None:
    """Load documents into an index on HBase as HFiles; the same call resumes after any interruption.

    Drawer rows and listings are loaded first, then registers. If an id is repeated, the document with the greatest
    position is used or, among equal positions, the one with the latest `first_seen`. Documents that are already in the
    table with the same values are skipped, and keep the time they were first seen.

    Args:
        documents: DataFrame with a column of ids, `fingerprint` and optionally `sketch`, `key` and `first_seen`, which
            is a timestamp or ms since 1970, by default now. Rows without an id or a fingerprint are skipped. The
            DataFrame is read several times, so cache it if it is costly to compute.
        id: Column of ids: strings or whole numbers.
        store: URL of the index; executors must be able to reach its gateways.
        options: Options for the stage, which the driver, the executors and the region servers must be able to open.
        profile: Profile that made the fingerprints, or its name. Default: the index's profile, without a check.
        position: Column that orders the documents.
        observer: Receives progress.

    Returns:
        The counts; None if the observer received commands to run elsewhere instead.

    Raises:
        ValueError: A column is missing or has the wrong type, or the store is not on HBase; nothing was done.
        IndexNotFoundError, ProfileMismatchError: The index does not exist or has a different profile; nothing was done.
        HsimhashError: The stage belongs to another load or cannot be written, and nothing was done. Or a step failed,
            and the message explains what the same call will do next.
    """
    if LoadsFiles not in backend_of(store).capabilities:
        raise ValueError(f"{store} is not on HBase, but a bulk load writes HBase files; pass an index on HBase")
    with opened_index(store, Opening(JOB_DEADLINE_S), profile=profile) as index:
        given = given_rows(documents, id, position, has_signatures=index.store.record.has_signatures)
        place = absolute_place(options.stage)
        stage = open_stage(place)
        stage.claim()
        count, job = _job_of(given, store)
        load = _Load(cast(HBaseStore, index.store), replace(options, stage=place), _InStage(stage, job))
        added = load.run(given, observer)
    return None if added is None else BulkLoadTotals(count, added, count - added)


def bulk_load_files(
    spark: SparkSession,
    inputs: Sequence[str],
    store: str,
    records: RecordOptions,
    options: StageOptions,
    observer: Observer = UNWATCHED,
) -> BulkLoadTotals | None:
    """Load the documents in files into an index on HBase; see `bulk_load`. If an id is repeated, the last one is used.

    Args:
        spark: The session.
        inputs: As for `read_documents`.
        store: URL of the index.
        records: How to read the files.
        options: As for `bulk_load`.
        observer: Receives progress.
    """
    read = read_records(spark, inputs, records)
    valid = read.where("reason is null")
    totals = bulk_load(valid, store, options, profile=records.profile, position="place", observer=observer)
    if totals is None:
        return None
    rejected, short = read.where("reason is not null").count(), valid.where(F.col("kind") == SHORT_KIND).count()
    return replace(totals, documents=totals.documents + rejected + short, rejected=rejected, short=short)


def _job_of(given: DataFrame, store: str) -> tuple[int, str]:
    """Return the number of documents, and a name that identifies their load by a checksum and the index."""
    number = F.xxhash64("id", *SIGNATURE, "first_seen").cast("decimal(38,0)")
    count, total = given.agg(F.count("*"), F.sum(number)).first()
    return count, f"{count:,} documents on Spark, {int(total or 0) % (1 << 64):016x}, into {store_name(store)}"


class _InStage(StateKeeper):
    """Keeps the state in the stage's manifest; the output of HBase's program goes to a local temporary folder."""

    def __init__(self, stage: Stage, job: str) -> None:
        self.job = job
        self._stage = stage
        folder = f"hsimhash-{os.getuid()}-{hashlib.sha256(stage.url.encode()).hexdigest()[:16]}"
        self.log = Path(tempfile.gettempdir(), folder, "load.log")
        self.log.parent.mkdir(exist_ok=True)

    def read(self) -> LoadState | None:
        fields = (self._stage.manifest() or {}).get("state")
        return None if fields is None else LoadState.of(fields)

    def write(self, state: LoadState) -> None:
        self._stage.write_manifest({**(self._stage.manifest() or {}), **self.cleared(state)})

    def cleared(self, state: LoadState) -> dict[str, object]:
        if not (state.token or state.is_repeated):
            return {}
        return {"token": state.token, "job": self.job, "state": asdict(state)}

    def folder(self, token: str) -> str:
        return f"{token}/" if token else ""


class _Load:
    """One call of `bulk_load`."""

    def __init__(self, store: HBaseStore, options: StageOptions, keeper: StateKeeper) -> None:
        self._record, self._options, self._keeper = store.record, options, keeper
        self._address, self._ttl_s = Address.parse(store.url), store.times.ttl_s
        self._steps = LoadSteps(store.gateway, store.record, self._address, options, keeper)

    def run(self, given: DataFrame, observer: Observer) -> int | None:
        """Run the remaining steps; return the number of new or changed documents."""
        self._steps.verify_stage()
        state = self._steps.read()
        if state is None or state.stage not in (ROWS, REGISTERS, "end"):
            state = self._staged(given, self._steps.begin(state), observer)
        files = [StagedFile(*file.values()) for file in (self._steps.stage.manifest() or {}).get("files", [])]
        loaded = self._steps.load_all(state, files, observer)
        if loaded is None:
            return None
        self._steps.end(loaded)
        return loaded.added

    def _staged(self, given: DataFrame, state: LoadState, observer: Observer) -> LoadState:
        """Write the documents of the load in `state`, then their HFiles."""
        folder, spark, steps = self._keeper.folder(state.token), given.sparkSession, self._steps
        place = f"{steps.stage.url}/{folder}{DOCUMENTS}"
        task = _Comparing(str(self._address), self._record, self._ttl_s, state, has_documents=steps.has_documents())
        if task.has_documents:
            observer.say("comparing with the table")
        rows = last_rows(given, state.stamp)
        rows.mapInArrow(OnExecutors(partial(_compared, task)), _DOCUMENTS).write.parquet(place)
        kept = spark.read.parquet(place)
        count, added = kept.agg(F.count("*"), F.sum("is_news")).first()
        state = replace(state, stage=ROWS, kept=count, added=added or 0)
        observer.say("writing files")
        part_bytes = self._options.part_bytes or TASK_BYTES
        parts = region_parts(state.region_rows(), cuts_of(kept, self._record, part_bytes), folder)
        files = write_files(kept, FilePlan(parts, self._record, steps.form(state), self._options.stage), part_bytes)
        steps.verify_files(state, files)
        steps.verify_begun(state)
        steps.write_manifest(state, files)
        return state


@dataclass(frozen=True, slots=True)
class _Comparing:
    """The values that every task needs to compare documents with the table."""

    address: str
    record: Record
    ttl_s: float | None
    state: LoadState
    has_documents: bool


def _compared(task: _Comparing, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the documents to write, with the change counts of their registers."""
    is_needed = task.has_documents
    with (
        open_gateway(Address.parse(task.address), deadline_s=JOB_DEADLINE_S) if is_needed else nullcontext() as gateway
    ):
        comparison = None
        if gateway is not None:
            times = Times(ttl_s=task.ttl_s)
            same = SameIndex(task.address, gateway, task.record, times)
            writes = Writes(gateway, task.record, times, same)
            comparison = TableComparison(writes, task.state.stamp, is_repeated=task.state.is_repeated)
        for batch in batches:
            for part in slices(batch.num_rows, ASKED_AT_ONCE):
                yield _kept(batch.slice(part.start, part.stop - part.start), comparison)


def _kept(batch: pa.RecordBatch, comparison: TableComparison | None) -> pa.RecordBatch:
    """Return the documents of a batch that must be written; without a comparison, all of them, as new documents."""
    signatures, ids, first_seen = check_documents(
        Signatures.of(*(unsigned(batch.column(name)) for name in SIGNATURE)),
        batch.column("id").to_pylist(),
        batch.column("first_seen").to_numpy(),
    )
    count, columns = len(ids), [batch.column(name) for name in ("id", *SIGNATURE)]
    names = ["id", *SIGNATURE, "first_seen", "changes", "is_news"]
    if comparison is None:
        new = [pa.array(first_seen), pa.array(np.ones(count, np.int64)), pa.array(np.ones(count, np.int32))]
        return pa.RecordBatch.from_arrays([*columns, *new], names)
    effects = comparison.of(ids, signatures, first_seen.tolist())
    columns += [
        pa.array([one.register.first_seen for one in effects], pa.int64()),
        pa.array([one.register.changes % (1 << 32) for one in effects], pa.int64()),
        pa.array([int(one.is_news) for one in effects], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, names).filter(pa.array([one.is_written for one in effects], pa.bool_()))
