"""An index on a Redis Cluster: sixteen parts of an index, each in one slot, so that every write stays one step.

The keys of a part have a *tag* of their own, `pages:{3}:record`, and a cluster keeps all keys with one tag on one
server. A document is in the part that its id says, with all its rows: so scripts keep what they keep on one server
(`scripts.py`), and a server that takes over from another lacks at most the last writes, never one half of them. Were
the rows of a document on several servers, one that lost the last second could lack what a register on another counts
on, whatever the order in which they were written. Queries ask all parts.

The tags lie evenly among the cluster's slots, so that its servers have equal numbers of parts.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from hashlib import sha1
from itertools import count
from typing import TYPE_CHECKING, Any

from hsimhash.errors import StoreClosedError
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.session import RedisSession, pool_of

if TYPE_CHECKING:
    import redis

PARTS = 16  # on disk: never change
_SLOTS = 1 << 14
_MOST_HOPS = 5  # from server to server, each of which says that the next one has the slot
_MOVING = "Script attempted to access a non local key"  # while its slot goes to another server

Node = tuple[str, int]


def tag_of(part: int) -> str:
    """Return the tag of a part's keys: the least number whose slot is in the part's sixteenth of the slots."""
    return next(tag for tag in map(str, count()) if crc_hqx(tag.encode(), 0) % _SLOTS * PARTS // _SLOTS == part)


def part_of(doc_id: bytes) -> int:
    """Return the number of the part that has a document."""
    return sha1(doc_id, usedforsecurity=False).digest()[-1] % PARTS


def sessions_of(address: RedisAddress, deadline_s: float, password: str | None = None) -> list[RedisSession]:
    """Return a session with the server of an address; of a cluster one for each part, in order."""
    if not address.is_cluster:
        return [RedisSession(address, deadline_s, pool_of(address, password))]
    servers = ClusterServers(address, password)
    return [PartSession(address, deadline_s, servers, part) for part in range(PARTS)]


class ClusterServers:
    """The servers of a cluster that were met, with connections to each."""

    def __init__(self, address: RedisAddress, password: str | None) -> None:
        self._address, self._password = address, password
        self._pools: dict[Node, redis.ConnectionPool] = {}
        for node in address.hosts:
            self.pool(node)

    def pool(self, node: Node) -> redis.ConnectionPool:
        """Return the connections to a server."""
        if node not in self._pools:
            self._pools.setdefault(node, pool_of(self._address, self._password, node))
        return self._pools[node]

    def after(self, node: Node) -> Node:
        """Return another server, to be asked instead of one that does not answer."""
        known = list(self._pools)
        return known[(known.index(node) + 1) % len(known)]

    def close(self) -> None:
        """Give up the connections; harmless when repeated."""
        for pool in list(self._pools.values()):
            pool.disconnect()


class PartSession(RedisSession):
    """Calls to the server that has a part's slot; which one that is, the servers themselves say."""

    def __init__(self, address: RedisAddress, deadline_s: float, servers: ClusterServers, part: int) -> None:
        self.node = address.hosts[part % len(address.hosts)]
        super().__init__(address, deadline_s, servers.pool(self.node))
        self.prefix = f"{self.prefix}:{{{tag_of(part)}}}"
        self._servers = servers
        self._is_found = False  # whether the node is known to have the slot

    @property
    def place(self) -> str:
        return f"{self.node[0]}:{self.node[1]}"

    def _exchange(self, command: Sequence[bytes | str | int], until_s: float) -> Any:
        errors = self._library.exceptions
        if self._pool is None:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        try:
            if not self._is_found:
                self._find(until_s)
            return self._talk(self._servers.pool(self.node), command, until_s)
        except errors.AskError as error:  # the slot is moving, and what is asked for has moved
            return self._talk(self._servers.pool(self._named_by(error)), command, until_s, is_asking=True)
        except errors.MovedError:
            self._is_found = False
            raise
        except (errors.ConnectionError, errors.TimeoutError, OSError):
            self._is_found, self.node = False, self._servers.after(self.node)
            raise

    def _find(self, until_s: float) -> None:
        """Go to the server that has the slot: a command without a key, such as TIME, would be answered by any."""
        errors = self._library.exceptions
        for _ in range(_MOST_HOPS):
            try:
                self._talk(self._servers.pool(self.node), ("EXISTS", f"{self.prefix}:record"), until_s)
            except errors.MovedError as error:
                self.node = self._named_by(error)
                continue
            except errors.AskError:
                pass
            self._is_found, self._behind_ms = True, None
            return
        raise errors.ConnectionError("its servers do not agree which of them has a slot")

    def _named_by(self, error: Any) -> Node:
        """Return the server that an answer names; one that does not know its own name leaves it out."""
        return error.host or self.node[0], error.port

    def _is_passing(self, error: Exception) -> bool:
        errors = self._library.exceptions
        if isinstance(error, (errors.MovedError, errors.ClusterDownError)) or _MOVING in str(error):
            self._is_found = False
            return True
        return super()._is_passing(error)

    def close(self) -> None:
        super().close()
        self._servers.close()
