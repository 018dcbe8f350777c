"""Choose the gateway for the next connection.

A gateway that failed *rests*: while another gateway works, it is not used for some time, which gets longer with each
failure. After its rest, it is tried with a connection that no call waits for. Gateways that still owe replies to
abandoned calls rank last. Among the others, the next connection goes to the one with the fewest connections from this
process.
Ties are broken at random, so even the first connections of many processes are spread over all gateways.

A connection is counted for as long as something refers to it. If a signal interrupts a call before it returns its
connection, the connection is no longer counted once that call ends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import ref

from hsimhash.store.hbase.gateway.address import Endpoint
from hsimhash.store.hbase.gateway.connection import Connection

FIRST_REST_S, LONGEST_REST_S = 5.0, 60.0  # how long a failed gateway rests; doubles with each failure


T = TypeVar("T")


class Living(Generic[T]):
    """A collection that keeps items only as long as something else refers to them.

    Unlike in a `WeakSet`, the deletion of an item does not run Python code, which a signal could interrupt. Any thread
    may read it.
    """

    def __init__(self) -> None:
        self._references: list[ref[T]] = []

    def __iter__(self) -> Iterator[T]:
        return (thing for one in self._references if (thing := one()) is not None)

    def __len__(self) -> int:
        return len(self._references) - [one() for one in self._references].count(None)

    def add(self, thing: T) -> None:
        """Add an item."""
        self._references = [*map(ref, self), ref(thing)]

    def discard(self, thing: T) -> None:
        """Remove an item, if present."""
        self._references = [ref(one) for one in self if one is not thing]


@dataclass(slots=True)
class _Standing:
    connections: Living[Connection] = field(default_factory=Living)
    overdue: set[Connection] = field(default_factory=set)  # set aside because their replies are no longer needed
    failures: int = 0  # since it last responded
    rests_until_s: float = 0.0
    is_tried: bool = False  # whether a trial is in progress; no call waits for it


class Choice:
    """The state of each gateway, as seen by this process.

    Not thread-safe: callers hold the pool's lock around every call that changes something. `works` and `has_other` read
    single values, which may be slightly out of date.
    """

    def __init__(self, gateways: Sequence[Endpoint]) -> None:
        self._standings = {gateway: _Standing() for gateway in gateways}

    @property
    def connections(self) -> list[Connection]:
        """All connections that are idle, in use, or being opened."""
        return [connection for one in self._standings.values() for connection in one.connections]

    @property
    def overdue(self) -> list[Connection]:
        """All connections that are set aside."""
        return [connection for one in self._standings.values() for connection in one.overdue]

    def next(self) -> Endpoint:
        """Return the gateway for the next connection; if none works, the one whose rest ends first."""
        ranks = {
            gateway: (one.rests_until_s if one.failures else 0.0, len(one.overdue), len(one.connections))
            for gateway, one in self._standings.items()
        }
        least = min(ranks.values())
        ready = [gateway for gateway, rank in ranks.items() if rank == least]
        return secrets.choice(ready)  # not `random`: forked children would all draw the same gateway

    def works(self, gateway: Endpoint) -> bool:
        """Whether the gateway has not failed since its last reply and does not owe a reply."""
        one = self._standings[gateway]
        return not one.failures and not one.overdue

    def has_other(self, gateway: Endpoint) -> bool:
        """Whether another gateway works."""
        return any(self.works(other) for other in self._standings if other != gateway)

    def to_try(self) -> Endpoint | None:
        """Return a failed gateway whose rest is over, or None if there is none; record that its trial begins."""
        now = time.monotonic()
        for gateway, one in self._standings.items():
            if one.failures and not one.is_tried and now >= one.rests_until_s and self.has_other(gateway):
                one.is_tried = True
                return gateway
        return None

    def tried(self, gateway: Endpoint) -> None:
        """Record that the trial of a gateway has ended."""
        self._standings[gateway].is_tried = False

    def failed(self, gateway: Endpoint) -> None:
        """Let a gateway rest; a failure during its rest belongs to an earlier call and changes nothing."""
        one, now = self._standings[gateway], time.monotonic()
        if not one.failures or now >= one.rests_until_s:
            one.rests_until_s = now + min(FIRST_REST_S * 2**one.failures, LONGEST_REST_S)
            one.failures += 1

    def answered(self, gateway: Endpoint) -> None:
        """Record that a gateway works."""
        self._standings[gateway].failures = 0

    def opens(self, connection: Connection) -> None:
        """Count a new connection."""
        self._standings[connection.endpoint].connections.add(connection)

    def puts_aside(self, connection: Connection) -> None:
        """Count a connection as set aside."""
        one = self._standings[connection.endpoint]
        one.overdue.add(connection)
        one.connections.discard(connection)

    def closes(self, connection: Connection) -> None:
        """Stop counting a connection."""
        one = self._standings[connection.endpoint]
        one.connections.discard(connection)
        one.overdue.discard(connection)

    def is_crowded(self, gateway: Endpoint) -> bool:
        """Whether another working gateway has at least two fewer connections and is a better choice for a new one."""
        most = len(self._standings[gateway].connections) - 2
        return any(self.works(other) and len(one.connections) <= most for other, one in self._standings.items())
