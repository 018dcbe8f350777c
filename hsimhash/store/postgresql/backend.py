"""Indexes on PostgreSQL. Each index has three tables."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from types import ModuleType

from hsimhash.cover import Prices
from hsimhash.errors import HsimhashError
from hsimhash.extras import install_command
from hsimhash.store.backend import Backend, Instead, Opening
from hsimhash.store.base import Record, Store
from hsimhash.store.capabilities import BacksUp, Compacts, LoadsInBulk
from hsimhash.store.checkup import Check
from hsimhash.store.postgresql.address import POSTGRESQL_SCHEME, DatabaseAddress
from hsimhash.store.postgresql.codec import SUFFIXES, table_name
from hsimhash.store.urls import DEADLINE, LOCK_TIMEOUT


def _operations() -> ModuleType:
    try:
        from hsimhash.store.postgresql import operations
    except ModuleNotFoundError as error:
        raise HsimhashError(f"an index on PostgreSQL needs {error.name}: {install_command('postgresql')}") from error
    return operations


class _DatabaseBackend(Backend):
    name = "postgresql"
    title = "PostgreSQL"
    schemes = (POSTGRESQL_SCHEME,)
    example = "postgresql://user@host/database?table=pages"
    # Derived from the differences between layouts, distances and loads on PostgreSQL 15, with all data in memory and
    # one client on the same machine. The queries read 4 and 10 buckets with 61 and 0.2 candidates, and 52 and 731
    # buckets. The bulk loads wrote 1,000,000 documents into 4 and 10 drawers. Other queries were made
    # with and without a key; each part of a key is looked up in five indexes. Sizes were measured after those loads;
    # B-trees are a third larger if documents are inserted one by one.
    prices = Prices(
        read_us=7,
        candidate_us=0.2,
        row_us=1.1,
        row_bytes=31.5,
        bucket_bytes=0,
        document_bytes=314,
        neighbour_us=1.7,
        swept_us=0.4,
        part_us=12,
    )
    options = frozenset({DEADLINE, LOCK_TIMEOUT})
    capabilities = frozenset({LoadsInBulk})
    flags = frozenset({"--print-commands"})

    def parse(self, url: str) -> DatabaseAddress:
        return DatabaseAddress.parse(url)

    def name_of(self, url: str) -> str:
        return str(DatabaseAddress.parse(url))

    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> Store:
        made: Store = _operations().create_at(url, record)
        return made

    def open(self, url: str, opening: Opening) -> Store:
        opened: Store = _operations().open_at(url, deadline_s=opening.deadline_s)
        return opened

    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        operations = _operations()
        operations.refuse_no_index(url)
        if not is_sure(f"Drop the tables of {url} and everything in them?"):
            return False
        operations.drop_at(url)
        return True

    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        found: Iterator[Check] = _operations().checks(url, is_quick=is_quick)
        return found

    def instead(self, capability: type, url: str, target: str = "") -> Instead | None:
        address = DatabaseAddress.parse(url)
        if capability is Compacts:
            said = "PostgreSQL vacuums tables automatically; to do it now, while nothing uses them, run this in psql:"
            return Instead(said, [f"VACUUM FULL {', '.join(table_name(address, suffix) for suffix in SUFFIXES)};"])
        if capability is BacksUp:
            tables = " ".join(f"-t {shlex.quote(f'{address.full_table}{suffix}')}" for suffix in SUFFIXES)
            line = f"pg_dump -Fc {tables} -f {shlex.quote(target)} {shlex.quote(address.conninfo)}"
            return Instead("back up the tables with pg_dump:", [line])
        return super().instead(capability, url, target)

    def creation_lines(self, url: str, record: Record) -> list[str]:
        return [f"{statement};" for statement in ("BEGIN", *_operations().table_sql(url, record), "COMMIT")]


BACKEND = _DatabaseBackend()
