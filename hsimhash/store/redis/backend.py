"""Indexes on Redis: keys with a common prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

from hsimhash.cover import Prices
from hsimhash.store.backend import Backend, Instead, Opening
from hsimhash.store.base import Record, Store
from hsimhash.store.capabilities import BacksUp, Collects, Compacts
from hsimhash.store.checkup import Check
from hsimhash.store.redis.address import REDIS_SCHEMES, RedisAddress
from hsimhash.store.urls import DEADLINE


def _operations() -> ModuleType:
    from hsimhash.store.redis import operations  # imported here, because it takes as long as opening an embedded index

    return operations


class _RedisBackend(Backend):
    name = "redis"
    title = "Redis"
    schemes = tuple(REDIS_SCHEMES)
    example = "redis://host:6379/0?prefix=name"
    # Derived from the differences between layouts 4 and 10 on Redis 7.0, with a million documents and one redis-py
    # client on loopback. Sizes are the memory that the server reports. A listing and a register take 127 bytes in
    # compact form. They take twice as much if one of the 65,536 shards has over 128 documents or an id over 56 bytes.
    prices = Prices(
        read_us=3,
        candidate_us=0.066,
        row_us=6,
        row_bytes=12,
        bucket_bytes=91,
        document_bytes=127,
        neighbour_us=3,
        swept_us=1.0,
        is_ordered=False,
    )
    shares_queries = True
    options = frozenset({DEADLINE})
    capabilities = frozenset({Collects})
    flags = frozenset({"--ttl"})

    def parse(self, url: str) -> RedisAddress:
        return RedisAddress.parse(url)

    def name_of(self, url: str) -> str:
        return RedisAddress.parse(url).index_url

    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> Store:
        made: Store = _operations().create_at(url, record, password=opening.password, ttl_s=ttl_s or 0)
        return made

    def open(self, url: str, opening: Opening) -> Store:
        given = {"deadline_s": opening.deadline_s, "password": opening.password}
        opened: Store = _operations().open_at(url, **given)
        return opened

    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        operations = _operations()
        operations.refuse_no_index(url, opening.password)
        if not is_sure(f"Delete the index {url} and everything in it?"):
            return False
        operations.drop_at(url, opening.password)
        return True

    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        from hsimhash.store.redis.checkup import checks

        return checks(url, is_quick=is_quick, password=opening.password)

    def instead(self, capability: type, url: str, target: str = "") -> Instead | None:
        if capability is Compacts:
            said = "Redis returns free memory automatically; to do it now, run this in redis-cli:"
            return Instead(said, ["MEMORY PURGE"])
        if capability is BacksUp:
            said = "Redis saves all keys to a file, which you can copy at any time; to save now, run this in redis-cli:"
            return Instead(said, ["BGSAVE"])
        return super().instead(capability, url, target)


BACKEND = _RedisBackend()
