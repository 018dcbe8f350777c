"""Tables: read-only indexes in folders. `tables://relative/path`, `tables:///absolute/path`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hsimhash.cover import Prices
from hsimhash.errors import HsimhashError
from hsimhash.store.backend import Backend, Instead, Opening
from hsimhash.store.base import Record, Store
from hsimhash.store.capabilities import BacksUp, Compacts
from hsimhash.store.checkup import Check, check_read, check_record
from hsimhash.store.lmdb.backend import BACKEND as EMBEDDED
from hsimhash.store.tables.folder import MANIFEST, Manifest, own_files, read_only, remove_files
from hsimhash.store.tables.store import TablesStore
from hsimhash.store.urls import folder_in


class _TablesBackend(Backend):
    name, title = "tables", "tables, read-only"
    schemes = ("tables",)
    example = "tables://relative/path"
    # Sizes are those that `bench_tables` prints for documents with sketches and keys. Times are those of a base.
    prices: Prices = replace(EMBEDDED.prices, row_bytes=8.5, document_bytes=78)
    is_embedded = True

    def parse(self, url: str) -> Path:
        return folder_in(url, url.removeprefix("tables://"))

    def name_of(self, url: str) -> str:
        return f"tables://{os.path.abspath(self.parse(url))}"  # noqa: PTH100 (does not resolve links)

    def refuse_writes(self, url: str) -> None:
        raise read_only(url)

    def is_own_file(self, url: str, path: Path) -> bool:
        return path.resolve().parent == self.parse(url).resolve()

    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> Store:
        raise read_only(url)

    def open(self, url: str, opening: Opening) -> TablesStore:
        return TablesStore(url, self.parse(url))

    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        folder = self.parse(url)
        if not (folder / MANIFEST).exists() and not own_files(folder):
            Manifest.load(folder)  # raises an error, because there are no tables
        if not is_sure(f"Delete the tables in {folder}?"):
            return False
        (folder / MANIFEST).unlink(missing_ok=True)  # first, because without this file there are no tables
        remove_files(folder)
        with suppress(OSError):
            folder.rmdir()
        if folder.is_dir():
            say(f"{folder} has files that are not part of the tables; they were kept")
        return True

    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        try:
            store = self.open(url, opening)
        except HsimhashError as error:
            yield Check.failed("tables", error)
            return
        with store:
            facts = store.describe()
            yield Check("tables", "ok", f"parts: {facts['parts']}, {int(facts['file_bytes']) >> 20:,} MiB, read-only")
            yield check_record(store.record)
            yield check_read(store)

    def instead(self, capability: type, url: str, target: str = "") -> Instead | None:
        folder = self.parse(url)
        if capability is BacksUp:
            return Instead("tables never change; copy the folder:", [f"cp -r {folder} {target or 'COPY'}"])
        if capability is Compacts:
            return Instead("tables never change, so there is nothing to compact")
        return super().instead(capability, url, target)


BACKEND = _TablesBackend()
