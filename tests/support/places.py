"""Where the contract tests make their stores."""

from __future__ import annotations

import itertools
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.store import Document, Record, Store, create_store, open_store
from hsimhash.store.base import Mark, View
from hsimhash.store.conformance.place import StorePlace
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import create_at, make_table
from hsimhash.store.hbase.rows.protocol import Times
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.lmdb.compaction import make_base
from hsimhash.store.lmdb.files import BaseLimits
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.redis.rows import RedisLimits
from hsimhash.store.redis.store import RedisStore
from hsimhash.store.reports import SAMPLED_DOCUMENTS, CheckReport, CrowdedFingerprint
from hsimhash.store.tables.folder import RUNS, Manifest, new_part_name
from hsimhash.store.tables.store import TablesStore
from hsimhash.store.tables.write import new_tables, run_of, write_part
from tests.support.effort import IS_THOROUGH
from tests.support.hbase_model import DAY_MS, Cluster, ModelGateway
from tests.support.hbase_server import Gateways
from tests.support.hbase_tables import new_table, table_url
from tests.support.redis_server import RedisServer

_numbers = itertools.count()
_exporting = threading.Lock()


def model_place() -> StorePlace:
    clusters: defaultdict[str, Cluster] = defaultdict(Cluster)

    def settle(store: Store) -> None:
        clusters[store.url].advance(DAY_MS)
        assert store.check(repair=True).is_sound

    return StorePlace(
        lambda: f"hbase://model/{next(_numbers)}",
        lambda url, record: HBaseStore.create(url, ModelGateway(clusters[url]), record),
        lambda url: HBaseStore.open(url, ModelGateway(clusters[url])),
        settle,
        is_quick=not IS_THOROUGH,
    )


@contextmanager
def hbase_place(hbase: Gateways, *, is_first: bool) -> Iterator[StorePlace]:
    """Yield a place of new tables, which are dropped at the end. Thrift2 creates them because Thrift1 cannot."""

    def new_url() -> str:
        name = tables.enter_context(new_table(hbase))
        thrift1 = f"hbase+thrift1://{hbase.host}:{hbase.thrift1_port}/{name}"
        return thrift1 if is_first else f"hbase://{hbase.host}:{hbase.thrift2_port}/{name}"

    def create(store_url: str, record: Record) -> Store:
        with open_gateway(Address.parse(table_url(hbase, Address.parse(store_url).table))) as gateway:
            if is_first and not gateway.exists():
                make_table(gateway, TableSettings())
        return create_at(store_url, record, TableSettings())

    def settle(store: Store) -> None:
        assert isinstance(store, HBaseStore)
        store.times = Times(settled_s=0, forgotten_s=0)
        assert store.check(repair=True).is_sound

    with ExitStack() as tables:
        yield StorePlace(new_url, create, open_store, settle, is_quick=not IS_THOROUGH)


def redis_place(server: RedisServer, ttl_s: int | None) -> StorePlace:
    def settle(store: Store) -> None:
        """Collect leftovers at once, as if no query took longer than 0 s."""
        assert isinstance(store, RedisStore)
        limits = RedisLimits(left_s=0)
        settled = RedisStore(store.session, store.record, limits=limits, ttl_s=store.rows.ttl_ms // 1_000)
        assert settled.check(repair=True).is_sound

    def expire(store: Store, doc_ids: Sequence[bytes]) -> None:
        """Set the expiry of registers to 1970."""
        assert isinstance(store, RedisStore)
        for doc_id in doc_ids:
            key = store.keys.register(doc_id)
            value = store.session.call("HGET", key, doc_id)
            store.session.call("HSET", key, doc_id, value[:-8] + bytes(8))

    return StorePlace(
        lambda: server.url(f"place-{next(_numbers)}"),
        partial(create_store, ttl_s=ttl_s),
        open_store,
        settle,
        expire=expire if ttl_s else None,
        is_quick=not IS_THOROUGH,
    )


class BasedStore(LmdbStore):
    """An embedded store that makes a base of all rows at every other write; the other writes leave rows in its top."""

    writes = 0

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        count = super().insert(doc_ids, signatures, first_seen, mark=mark)
        self.writes += 1
        if self.writes % 2:
            make_base(self.session)
        return count


def write_parts(folder: Path, record: Record, documents: Iterable[Document], parts: int, *, is_packed: bool) -> None:
    """Write documents as tables of several parts, some of which may be empty."""
    several: list[list[Document]] = [[] for _ in range(parts)]
    for document in documents:
        several[zlib.crc32(document.doc_id.encode()) % parts].append(document)
    with new_tables(folder, overwrite=True) as finish:
        written = []
        for number, its in enumerate(several):
            halves = [half for half in (its[::2], its[1::2]) if half]
            runs = [run_of(folder / RUNS / f"{number}-{place}", record, half) for place, half in enumerate(halves)]
            written.append(write_part(folder / new_part_name(), runs, record, is_packed=is_packed))
        finish(Manifest(record, tuple(written)))


class ExportedStore(LmdbStore):
    """An embedded store that reads from tables, into which its contents are exported whenever they have changed."""

    parts, is_packed = 1, False
    _exported: tuple[tuple[str, int], TablesStore] | None = None

    def tables(self) -> TablesStore:
        """Return tables with the index's current contents."""
        with _exporting:
            now = self.session.last_transaction()
            if self._exported is None or self._exported[0] != now:
                folder = self.session.path.with_name(f"tables-{next(_numbers)}")
                documents = itertools.chain.from_iterable(super().walk())
                write_parts(folder, self.record, documents, self.parts, is_packed=self.is_packed)
                self._exported = now, TablesStore(f"tables://{folder}", folder)
            return self._exported[1]

    def view(self, *, timeout_s: float | None = None) -> AbstractContextManager[View]:  # type: ignore[override]
        return self.tables().view(timeout_s=timeout_s)

    def walk(self) -> Iterator[list[Document]]:
        return self.tables().walk()

    def check(self, **options: Any) -> CheckReport:
        return self.tables().check()

    def describe(self) -> dict[str, str | int]:
        return self.tables().describe()

    def crowds(self, *, sampled: int = SAMPLED_DOCUMENTS) -> tuple[CrowdedFingerprint, ...]:
        return self.tables().crowds(sampled=sampled)


def exported_place(folder: Path, *, parts: int, is_packed: bool) -> StorePlace:
    """Return a place of embedded stores that are read as tables."""
    numbers = itertools.count()
    kind = type("OfSomeParts", (ExportedStore,), {"parts": parts, "is_packed": is_packed})

    def path_of(url: str) -> Path:
        return Path(url.removeprefix("lmdb://"))

    return StorePlace(
        lambda: f"lmdb://{folder / str(next(numbers))}",
        create=lambda url, record: kind.create(url, path_of(url), record),
        open=lambda url: kind(url, path_of(url)),
        is_quick=not IS_THOROUGH,
    )


def based_place(folder: Path) -> StorePlace:
    """Return a place of embedded stores that have a base even when they are small."""
    numbers, limits = itertools.count(), BaseLimits(documents=1)

    def path_of(url: str) -> Path:
        return Path(url.removeprefix("lmdb://"))

    return StorePlace(
        lambda: f"lmdb://{folder / str(next(numbers))}",
        create=lambda url, record: BasedStore.create(url, path_of(url), record, limits=limits),
        open=lambda url: BasedStore(url, path_of(url), limits=limits),
        settle=lambda store: cast(LmdbStore, store).compact(),
        is_quick=not IS_THOROUGH,
    )
