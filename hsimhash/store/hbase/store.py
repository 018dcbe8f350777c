"""The store on HBase: buckets, listings, registers and the record in the cells of one table, through a `Gateway`.

`rows/cells.py` defines the cells, `rows/protocol.py` the order in which they are written, and `upkeep/` finds and
removes leftovers.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from secrets import randbits, token_hex
from tempfile import TemporaryDirectory
from typing import Any

from hsimhash.durations import ttl_in_words
from hsimhash.errors import (
    CorruptionError,
    IndexExistsError,
    IndexNotFoundError,
    StoreClosedError,
    StoreTimeoutError,
    create_one,
    quoted,
)
from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import (
    DOCUMENTS_FLAG,
    PREFIX_BYTES,
    RECORD_ROWKEY,
    last_occurrences,
)
from hsimhash.store.base import (
    DISTANCE_PART,
    IDENTITY_PART,
    RECORD_PARTS,
    Claims,
    Document,
    Mark,
    Record,
    Store,
    View,
    ViewInPart,
)
from hsimhash.store.capabilities import Shard
from hsimhash.store.hbase.bulk import TableLoad
from hsimhash.store.hbase.files.local_load import StagedLoad
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import (
    DOCUMENT_FAMILY,
    DRAWER_FAMILY,
    FOREVER_S,
    RECORD_FAMILY,
    Change,
    Gateway,
    Put,
    Table,
)
from hsimhash.store.hbase.gateway.batches import slices
from hsimhash.store.hbase.gateway.info_port import server_loads
from hsimhash.store.hbase.gateway.table import Step, TableSettings, compared, described, missing_families
from hsimhash.store.hbase.rows.cells import (
    SEGMENTS,
    TABLE_START,
    TABLE_STOP,
    is_listing,
    record_from,
    segment_key,
)
from hsimhash.store.hbase.rows.claims import TableClaims
from hsimhash.store.hbase.rows.protocol import BATCH_DOCUMENTS, SameIndex, Times, Writes
from hsimhash.store.hbase.rows.survey import crowds, rows_about, survey
from hsimhash.store.hbase.rows.view import HBaseView, HBaseViewInPart
from hsimhash.store.hbase.upkeep.audit import Audit, pages, sampled_pages
from hsimhash.store.hbase.upkeep.collect import Collection
from hsimhash.store.hbase.upkeep.full_check import FullCheck, survey_range, survey_to_files, surveyed_in
from hsimhash.store.hbase.upkeep.range_jobs import RANGE_ROWS, WALK, RangeJob, RangeTask, RangeWork
from hsimhash.store.hbase.upkeep.registers import count_range, documents_in, expire_range
from hsimhash.store.reports import (
    SAMPLED_DOCUMENTS,
    CheckReport,
    CollectReport,
    CrowdedFingerprint,
    Region,
    Survey,
    TableFacts,
)
from hsimhash.store.runs import BulkLoad, StageOptions

CREATE_TRIES = 3  # attempts to write a part of the record
TTL = b"ttl"  # qualifier of a cell next to the record's parts: the table's TTL in seconds, 0 for none

_log = logging.getLogger("hsimhash.store")


class HBaseStore(Store):
    """The index in the table of `gateway`; see the module and `Store`.

    Args:
        url: `hbase://…`, for messages.
        gateway: Gateway to the table, closed with the store.
        record: The table's index record; see `create` and `open`.
        ask_times: Returns the time limits; called when they are first needed.
        exclusive: Whether no other process writes this store's documents, so that new registers can be written faster.
    """

    is_atomic = False

    def __init__(
        self,
        url: str,
        gateway: Gateway,
        record: Record,
        *,
        ask_times: Callable[[], Times] = Times,
        exclusive: bool = False,
    ) -> None:
        self.url = url
        self.record = record
        self.exclusive = exclusive
        self._ask_times = ask_times
        self._open_gateway: Gateway | None = gateway

    @cached_property
    def times(self) -> Times:
        """The time limits of writes."""
        return self._ask_times()

    @classmethod
    def create(cls, url: str, gateway: Gateway, record: Record) -> HBaseStore:
        """Write the record into a table; raise `IndexExistsError` if it already has one."""
        values, found = {IDENTITY_PART: token_hex(16).encode(), **record.to_parts()}, _record_cells(gateway)
        if all(part in found for part in RECORD_PARTS):
            raise IndexExistsError(f"an index already exists at {url}; open it, or choose another table")
        for name, piece in record.list_parts().items():  # the name of a piece identifies its contents
            gateway.put([Put(RECORD_ROWKEY, RECORD_FAMILY, name, piece)])
        # Write each part only if it is missing, so that of two concurrent creations, one finds the other's part.
        for part in values:
            for _ in range(CREATE_TRIES):
                if part not in found:
                    gateway.change([Change(RECORD_ROWKEY, RECORD_FAMILY, part, None, values[part])])
                    found = _record_cells(gateway)
            if part not in found:
                raise CorruptionError(
                    f"the cell i:{part.decode()} in row {RECORD_ROWKEY.hex()} was written {CREATE_TRIES} times and is "
                    f"still missing: a delete marker's timestamp is ahead of the servers' clocks, or the servers do "
                    f"not respond; correct the clocks and run a major compaction, or drop the table"
                )
            if part != IDENTITY_PART and found[part] != values[part]:
                raise IndexExistsError(
                    f"another index is being created at {url}, or its creation was interrupted: its {part.decode()} "
                    f"differs; if no process is creating it, delete it with 'hsimhash drop-table'"
                )
        record = replace(record, identity=found[IDENTITY_PART])
        return cls(url, gateway, record, ask_times=partial(Times, ttl_s=_ttl_in(found) or None))

    @classmethod
    def open(
        cls, url: str, gateway: Gateway, *, ask_times: Callable[[], Times] = Times, exclusive: bool = False
    ) -> HBaseStore:
        """Open the index in a table with one read; raise `IndexNotFoundError` if the table does not have a record.

        Args:
            url: `hbase://…`, for messages.
            gateway: Gateway to the table.
            ask_times: Returns the time limits if the record lacks a TTL, as records written by release 0.1.0 do.
            exclusive: See `HBaseStore`.
        """
        try:
            found = _record_cells(gateway)
            is_missing = not found.keys() - {TTL}
            is_foreign = is_missing and has_rows_of_others(gateway)
        except IndexNotFoundError as error:
            raise IndexNotFoundError(f"no index at {url}: there is no such table; " + create_one(url)) from error
        except CorruptionError as error:  # the table lacks the record's column family
            raise IndexNotFoundError(
                f"no index at {url}: the table lacks the column families of an index; choose another table name"
            ) from error
        if is_foreign:
            raise IndexNotFoundError(
                f"no index at {url}: the table has rows, but does not have an index record; choose another table name"
            )
        if is_missing:
            raise IndexNotFoundError(
                f"no index at {url}: the table does not have an index record (layout and profile); " + create_one(url)
            )
        ttl_s = _ttl_in(found)
        if ttl_s is not None:
            ask_times = partial(Times, ttl_s=ttl_s or None)
        record = record_from(found, url).learn_lists(partial(_record_cell, gateway), url)
        return cls(url, gateway, record, ask_times=ask_times, exclusive=exclusive)

    @property
    def gateway(self) -> Gateway:
        """The gateway to the table; raise `StoreClosedError` after `close`."""
        if self._open_gateway is None:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        return self._open_gateway

    @cached_property
    def _same(self) -> SameIndex:
        return SameIndex(self.url, self.gateway, self.record, self.times)

    def _writes(self) -> Writes:
        return Writes(self.gateway, self.record, self.times, self._same, exclusive=self.exclusive)

    @contextmanager
    def _acknowledged(self) -> Iterator[Writes]:
        """Yield a `Writes` for one call; at its end, raise if the index is no longer the one that was opened."""
        with self.gateway.one_deadline():
            yield self._writes()
            self._same.check()

    @contextmanager
    def view(self, *, timeout_s: float | None = None) -> Iterator[View]:
        view = HBaseView(self.gateway, self.record)
        with self.gateway.ending(timeout_s):
            try:
                self._same.check_unless_recent()
                yield view
            except StoreTimeoutError as error:
                raise StoreTimeoutError(
                    f"a query on {self.url} timed out after reading {view}: {error}; allow more time, or set a limit"
                ) from error

    @contextmanager
    def view_in_part(self, *, timeout_s: float | None = None) -> Iterator[ViewInPart]:
        view = HBaseViewInPart(self.gateway, self.record)
        with self.gateway.ending_in_part(timeout_s):
            view.is_certain = self._same.check_in_part()
            yield view

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        signatures, last = self.record.stored(signatures), last_occurrences(doc_ids)
        with self._acknowledged() as writes:
            added = sum(
                writes.add({doc_ids[place]: (signatures.at(place), int(first_seen[place])) for place in last[part]})
                for part in slices(len(last), BATCH_DOCUMENTS)
            )
            if mark is not None:
                writes.set_mark(mark)
        return added

    def claim(self, claims: Claims) -> None:
        with self._acknowledged() as writes:
            writes.exclusive = False
            TableClaims(writes, claims).run()

    def marked(self, token: str) -> int:
        return self._writes().marked(token)

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        distinct = list(dict.fromkeys(doc_ids))
        with self._acknowledged() as writes:
            return sum(writes.remove(distinct[part], before=before) for part in slices(len(distinct), BATCH_DOCUMENTS))

    def count(self, *, before: int | None = None, workers: int = 1, observer: Observer = UNWATCHED) -> int:
        return self._sum("count", partial(count_range, before=before), workers, observer)

    def expire(
        self, before: int, *, workers: int = 1, folder: Path | None = None, observer: Observer = UNWATCHED
    ) -> int:
        work = partial(expire_range, url=self.url, before=before, times=self.times)
        return self._sum(f"expire before {before}", work, workers, observer, folder)

    def _sum(self, purpose: str, work: RangeWork, workers: int, observer: Observer, folder: Path | None = None) -> int:
        """Return the sum of the work's results over all ranges; without a folder, progress is not saved."""
        is_small = workers == 1 or rows_about(self.gateway, self.record) <= RANGE_ROWS  # faster than starting workers
        if folder is None and is_small:
            return int(work(self.gateway, RangeTask(0, (TABLE_START, TABLE_STOP), self.record, Path(), 0)))
        if folder is None:
            with TemporaryDirectory(prefix="hsimhash-walk-") as own:
                return self._sum(purpose, work, workers, observer, Path(own))
        job = RangeJob(self.url, self.gateway, self.record, folder / WALK, 1 if is_small else workers)
        with job.alone(f"is running '{purpose}'"):
            return sum(job.run(purpose, work, observer))

    def walk(self) -> Iterator[list[Document]]:
        # Listings are in fingerprint order: a row begins with the first four bytes of its fingerprint.
        for page in pages(self.gateway, DOCUMENT_FAMILY, flag=DOCUMENTS_FLAG):
            listings = [cell for cell in page if is_listing(cell.row)]
            found = zip(self.lookup([cell.qualifier for cell in listings]), listings, strict=True)
            yield [
                document
                for document, cell in found
                if document is not None and document.fingerprint == int.from_bytes(cell.row[PREFIX_BYTES:], "big")
            ]

    def registered(self, shard: int, shards: int) -> Iterator[list[Document]]:
        low, high = (number * SEGMENTS // shards for number in (shard, shard + 1))
        bounds = segment_key(low) if low else TABLE_START, segment_key(high)
        return documents_in(self.gateway, bounds)

    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        if folder is None and rows_about(self.gateway, self.record) <= RANGE_ROWS:
            task = RangeTask(0, (TABLE_START, TABLE_STOP), self.record, Path(), randbits(32))
            ranges = [survey_range(self.gateway, task, self._removed_before(repair=repair))]
            observer.report("check", 1, 1)
            return self._judge(FullCheck(self.gateway, self.record, task.seed, ranges), repair=repair)
        if folder is None:
            with TemporaryDirectory(prefix="hsimhash-check-") as own:
                return self.check(repair=repair, observer=observer, workers=workers, folder=Path(own))
        job = RangeJob(self.url, self.gateway, self.record, folder / WALK, workers)
        with job.alone("is checking the index"):
            results = job.run(*self._survey(repair=repair), observer)
            full_check = FullCheck(self.gateway, self.record, job.seed, surveyed_in(job.folder, results))
            return self._judge(full_check, repair=repair)

    def check_shard(
        self, shard: Shard, *, repair: bool, folder: Path, workers: int = 1, observer: Observer = UNWATCHED
    ) -> tuple[int, int]:
        job = RangeJob(self.url, self.gateway, self.record, folder / WALK, workers)
        return job.run_shard(shard, *self._survey(repair=repair), observer)

    def _survey(self, *, repair: bool) -> tuple[str, RangeWork]:
        """Return the purpose of a check's walk, and the work for each range."""
        purpose = "check --repair" if repair else "check"
        return purpose, partial(survey_to_files, removed_before=self._removed_before(repair=repair))

    def _removed_before(self, *, repair: bool) -> int:
        """Return the time in ms since 1970 before which a removed document's register is always suspect."""
        return round((self.times.wall_clock() - self.times.forgotten_s / 2) * 1_000) if repair else -1

    def _judge(self, full_check: FullCheck, *, repair: bool) -> CheckReport:
        """Examine the suspects of a full check; return the report."""
        report = self._audit(repair=repair, pages=full_check.suspects).run()
        if repair and full_check.hours:
            self._collection(hours=full_check.hours).collect()
        report.documents, report.drawer_rows = full_check.documents, full_check.drawer_rows
        return report

    def check_sample(self, documents: int, seed: int, *, observer: Observer = UNWATCHED) -> CheckReport:
        sampled = partial(sampled_pages, self.gateway, documents, seed)
        return self._audit(observer=observer, pages=sampled, is_sample=True).run()

    def collect(self, *, observer: Observer = UNWATCHED) -> CollectReport:
        return self._collection(observer=observer).collect()

    def _audit(self, **given: Any) -> Audit:
        return Audit(self.gateway, self.record, self.times, **given)

    def _collection(self, **given: Any) -> Collection:
        return Collection(self.gateway, self.record, self.times, **given)

    def regions(self) -> list[Region]:
        return self.gateway.regions()

    def table(self) -> TableFacts:
        table, regions = described(self.gateway), tuple(self.regions())
        if table is None or not table.is_complete:
            return TableFacts(regions)
        families = {family.name: family.attributes | family.configuration for family in table.families}
        steps = compared_by_record(self.gateway, Address.parse(self.url), table)
        deviations = [step.text for step in steps if step.sign != "="]
        if said := ttl_difference(self.url, self.gateway, table):
            deviations.append(f"TTL {said}")
        return TableFacts(regions, families, tuple(deviations))

    def survey(self) -> Survey:
        found = survey(self.gateway, self.record)
        loads = server_loads(Address.parse(self.url), (one.region for one in found.regions))
        return replace(found, servers=loads)

    def crowds(self, *, sampled: int = SAMPLED_DOCUMENTS) -> tuple[CrowdedFingerprint, ...]:
        return crowds(self.gateway, sampled)

    def describe(self) -> dict[str, str | int]:
        regions = self.regions()
        servers = {region.server for region in regions} - {""}
        return {"regions": len(regions), "servers": len(servers), "ttl_s": int(self.times.ttl_s or 0)}

    def bulk(self, folder: Path, step_documents: int | None = None) -> BulkLoad:
        return TableLoad(self._writes(), folder, step_documents)

    def staged(self, folder: Path, options: StageOptions) -> BulkLoad:
        return StagedLoad(self._writes(), Address.parse(self.url), folder, options)

    def close(self) -> None:
        gateway, self._open_gateway = self._open_gateway, None
        if gateway is not None:
            gateway.close()


def recorded_ttl_s(gateway: Gateway) -> int | None:
    """Return the record's TTL in seconds (0: never); None if it lacks one, as in release 0.1.0."""
    return _ttl_in(_record_cells(gateway))


def _ttl_in(found: Mapping[bytes, bytes]) -> int | None:
    value = found.get(TTL)
    if value is not None and not value.isdigit():
        raise CorruptionError(
            f"the record's ttl must be in seconds, got {value!r}; run 'hsimhash create-table' to rewrite it"
        )
    return None if value is None else int(value)


def record_ttl(gateway: Gateway, ttl_s: int) -> int | None:
    """Write the table's TTL in seconds (0: never) into the record, unless it is already there.

    Returns:
        The TTL that it replaced; None if the record had the same. One that is missing or damaged counts as 0.
    """
    value, old = b"%d" % ttl_s, _record_cells(gateway).get(TTL)
    if old != value:
        gateway.put([Put(RECORD_ROWKEY, RECORD_FAMILY, TTL, value)])
    old_s = int(old) if old is not None and old.isdigit() else 0
    return None if old_s == ttl_s else old_s


def compared_by_record(
    gateway: Gateway, address: Address, table: Table, wanted: TableSettings | None = None
) -> list[Step]:
    """Compare a table with `wanted`, by default with what `create-table` sets.

    If `wanted` lacks a TTL and the table's families have different ones, the record's TTL is the expected one.
    """
    wanted = wanted or TableSettings()
    if wanted.ttl_s is None and not table.has_one_ttl and RECORD_FAMILY.decode() not in missing_families(table):
        recorded_s = recorded_ttl_s(gateway)
        if recorded_s is not None:
            wanted = replace(wanted, ttl_s=recorded_s or FOREVER_S)
    return compared(address, table, wanted)


def ttl_difference(url: str, gateway: Gateway, table: Table) -> str:
    """Say how the table's TTL differs from the record's, which determines when re-added documents are rewritten."""
    recorded_s = recorded_ttl_s(gateway)
    if not table.has_one_ttl or table.ttl_s in (None, recorded_s):
        return ""
    own, recorded = map(ttl_in_words, (table.ttl_s, recorded_s))
    store = shlex.quote(url)
    flag = f" --ttl {own}" if table.ttl_s else ""
    update = quoted(f"hsimhash create-table --store {store}{flag}")
    said = f"is {own} in the table, but {recorded} in the record; if the table is right, update the record: {update}"
    if not recorded_s:
        return said
    plan = quoted(f"hsimhash create-table --store {store} --ttl {recorded} --dry-run")
    return f"{said}; if the record is right, this prints how to alter the table: {plan}"


def has_rows_of_others(gateway: Gateway) -> bool:
    """Whether the table has rows of drawers or documents, but no part of a record."""
    # An index gets its record before its rows, so the rows must be read first.
    has_rows = any(gateway.rows(TABLE_START, TABLE_STOP, one, limit=1) for one in (DRAWER_FAMILY, DOCUMENT_FAMILY))
    return has_rows and not has_record(gateway)


def has_record(gateway: Gateway) -> bool:
    """Whether the table has at least a part of a record."""
    return bool(_record_cells(gateway))


def _record_cell(gateway: Gateway, name: bytes) -> bytes | None:
    (cell,) = gateway.get([(RECORD_ROWKEY, name)], RECORD_FAMILY)
    return cell and cell.value


def _record_cells(gateway: Gateway) -> dict[bytes, bytes]:
    names = (DISTANCE_PART, *RECORD_PARTS, IDENTITY_PART, TTL)
    cells = gateway.get([(RECORD_ROWKEY, name) for name in names], RECORD_FAMILY)
    return {cell.qualifier: cell.value for cell in cells if cell is not None}
