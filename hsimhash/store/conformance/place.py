"""Where the tests make stores of one kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hsimhash.store.base import Record, Store
from hsimhash.store.registry import create_store, open_store


@dataclass(frozen=True)
class StorePlace:
    """Where stores of one kind are made: each at the URL of a new place.

    Args:
        url: returns a URL where nothing is.
        create: makes an empty index there.
        open: opens it.
        settle: waits until nothing is left over of what documents were, and collects it.
        expire: lets documents pass their TTL, if there is one.
        is_quick: leave out what takes long.
    """

    url: Callable[[], str]
    create: Callable[[str, Record], Store] = create_store
    open: Callable[[str], Store] = open_store
    settle: Callable[[Store], object] = lambda _: None
    expire: Callable[[Store, Sequence[bytes]], object] | None = None
    is_quick: bool = False
