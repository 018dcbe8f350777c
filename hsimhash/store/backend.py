"""Kinds of stores: their URLs, defaults, read costs and capabilities, all known before an index is opened.

A *backend* is everything that the rest of hsimhash knows about a kind of store. `registry.py` finds the backend for a
URL. Each store folder defines its backend in `backend.py`, which does not import a client library, so using a backend
without opening an index is cheap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hsimhash.cover import DEFAULT_DISTANCE, Prices
from hsimhash.layout import Layout
from hsimhash.store.base import DEADLINE_S, Record, Store
from hsimhash.store.capabilities import Collects
from hsimhash.store.checkup import Check

SERVER_JOBS = Path(".hsimhash", "jobs")  # relative to the working folder


@dataclass(frozen=True, slots=True)
class Opening:
    """Options for opening an index, beyond its URL; each backend uses those that apply to it.

    Args:
        deadline_s: How long a call is retried if there is no reply, in seconds, unless the URL sets it.
        password: The user's password, unless the URL names a password file.
    """

    deadline_s: float = DEADLINE_S
    password: str | None = None


class Instead(NamedTuple):
    """What to do if a kind of store lacks a capability: an explanation, commands, and a message to print after them."""

    said: str
    lines: Sequence[str] = ()
    after: str = ""


class Backend(ABC):
    """A kind of store; stateless. See the module docstring.

    `layout` and `distance` are the defaults of a new index; a `distance` of None means the layout's own. The defaults
    come from measurements with a million documents: compared with layout 10, they take five rows per document instead
    of eleven, and find twice as many near-duplicates, within 6 bits instead of 3.
    """

    name: str  # in options and JSON
    title: str  # in sentences, after "an index on"
    schemes: Collection[str]
    example: str  # an example URL
    prices: Prices
    layout = "4"
    distance: int | None = DEFAULT_DISTANCE
    is_embedded = False  # in a folder or in this process: no server to wait for, and one writer at a time
    is_lasting = True  # whether an index outlives the process
    shares_queries = False  # whether sharing query calls makes threads faster; in measurements, only across a network
    options: frozenset[str] = frozenset()  # options allowed in its URLs: any of deadline, exclusive, lock_timeout
    capabilities: frozenset[type] = frozenset()  # protocols in `capabilities.py` that its stores implement
    # Command-line flags that only some kinds of stores support; commands reject them for all other kinds.
    flags: frozenset[str] = frozenset()

    @property
    def max_distance(self) -> int:
        """The default distance of queries on a new index, in bits."""
        return Layout.named(self.layout).max_distance if self.distance is None else self.distance

    def size_note(self, size: int) -> str:
        """Return a note for `plan` to print below its estimates; `size` is the estimated size in bytes."""
        return ""

    @abstractmethod
    def parse(self, url: str) -> object:
        """Parse a URL; raise `ValueError`, with the remedy, if it is not a URL of this kind."""

    @abstractmethod
    def name_of(self, url: str) -> str:
        """Return the store's URL in a form that is valid in any working folder, without connection options."""

    def full_url(self, url: str) -> str:
        """Return the URL, with its options, in a form that is valid in any working folder."""
        return self.name_of(url) if self.is_embedded else url

    def refuse_writes(self, url: str) -> None:  # noqa: B027 (most kinds accept writes)
        """Raise `StoreReadOnlyError`, with the remedy, if indexes of this kind cannot be written to."""

    def jobs_of(self, url: str) -> Path:
        """Return the parent of the index's job folders; it may not exist yet. An embedded index has its own parent."""
        return SERVER_JOBS

    def is_own_file(self, url: str, path: Path) -> bool:
        """Whether a path leads to a file that is part of the index."""
        return False

    @abstractmethod
    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> Store:
        """Create an empty index and open it; raise `IndexExistsError` if it exists.

        `ttl_s` is for backends with the flag `--ttl`: a document expires this many seconds after its last insert.
        """

    @abstractmethod
    def open(self, url: str, opening: Opening) -> Store:
        """Open an index; raise `IndexNotFoundError` if it does not exist."""

    @abstractmethod
    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        """Delete an index, even a damaged one, and its own job folders; return whether it was deleted.

        Args:
            url: URL of the index.
            opening: Options for opening it.
            is_sure: Called with a question that names what would be deleted; returns whether to delete it.
            say: Prints a message.

        Raises:
            IndexNotFoundError: The index does not exist.
        """

    @abstractmethod
    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        """Check an index step by step, from its folder or server to its data.

        `check_record`, `check_relayout` and `check_read` in `checkup.py` work for every store. `doctor` prints settings
        next to the result of `check_record`.

        Args:
            url: URL of the index.
            opening: Options for opening it.
            is_quick: Only check whether the index can be read.
            writes: Also write something and delete it again, for backends with the flag `--write`.
            processes: Also test the connections of this many processes, for backends with the flag `--load`.
        """

    def instead(self, capability: type, url: str, target: str = "") -> Instead | None:
        """Return a substitute for a capability that the stores lack; `target` is the destination, if there is one."""
        if capability is Collects:
            return Instead("removing a document also removes its rows, so nothing is left to collect")
        return None

    def creation_lines(self, url: str, record: Record) -> list[str]:
        """Return the commands that create an empty index with the store's own tool, for `--print-commands`."""
        return []
