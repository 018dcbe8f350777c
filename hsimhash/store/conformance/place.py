"""Where the tests create stores of one kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hsimhash.store.base import Record, Store
from hsimhash.store.registry import create_store, open_store


@dataclass(frozen=True)
class StorePlace:
    """Where stores of one kind are created, each at a new URL.

    Args:
        url: Returns a URL at which nothing exists.
        create: Creates an empty index at a URL.
        open: Opens the index at a URL.
        settle: Waits until the leftovers of earlier documents can be collected, and collects them.
        expire: Makes documents expire, if the store supports a TTL.
        is_quick: Whether to leave out slow tests.
    """

    url: Callable[[], str]
    create: Callable[[str, Record], Store] = create_store
    open: Callable[[str], Store] = open_store
    settle: Callable[[Store], object] = lambda _: None
    expire: Callable[[Store, Sequence[bytes]], object] | None = None
    is_quick: bool = False
