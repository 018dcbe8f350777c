"""Where the stores of the contract are made."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hsimhash.store import Record, Store, create_store, open_store
from hsimhash.store.hbase.store import HBaseStore
from tests.support.hbase_model import DAY_MS, Cluster, ModelGateway

_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """Where stores of one kind are made: each at the URL of a new place."""

    url: Callable[[], str]
    create: Callable[[str, Record], Store] = create_store
    open: Callable[[str], Store] = open_store
    settle: Callable[[Store], object] = lambda store: None  # wait until nothing is left over, and collect it
    expire: Callable[[Store, Sequence[bytes]], object] | None = None  # let documents pass their TTL, if there is one
    has_claims: bool = True


def model_place() -> Place:
    clusters: defaultdict[str, Cluster] = defaultdict(Cluster)

    def settle(store: Store) -> None:
        clusters[store.url].advance(DAY_MS)
        assert store.check(repair=True).is_sound

    return Place(
        lambda: f"hbase://model/{next(_numbers)}",
        lambda url, record: HBaseStore.create(url, ModelGateway(clusters[url]), record),
        lambda url: HBaseStore.open(url, ModelGateway(clusters[url])),
        settle,
    )
