"""A kind of store before an index is opened: URLs, defaults, prices, and special abilities.

A *backend* is all that the rest of hsimhash knows of a kind of store. `registry.py` finds the one for a URL. Each store
folder has its own in `backend.py`, which imports no client library, so commands ask a backend about a URL at no cost.
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

SERVER_JOBS = Path(".hsimhash", "jobs")  # in the working folder


@dataclass(frozen=True, slots=True)
class Opening:
    """Options for opening an index, beyond its URL; each backend uses those that apply to it.

    Args:
        deadline_s: how long a call is tried without an answer, unless the URL says.
        password: of the user, where the URL does not name a file with it.
    """

    deadline_s: float = DEADLINE_S
    password: str | None = None


class Instead(NamedTuple):
    """What to do if a kind of store cannot do something itself: an explanation, lines to run, and what to say then."""

    said: str
    lines: Sequence[str] = ()
    after: str = ""


class Backend(ABC):
    """A kind of store; stateless. See the module.

    `layout` and `distance` are how an index is made if nobody says; no distance: the layout's own. The defaults were
    measured at a million documents: five rows each instead of layout 10's eleven, and, within 6 bits instead of 3,
    twice as many near-duplicates found.
    """

    name: str  # in options and JSON
    title: str  # in sentences: an index on …
    schemes: Collection[str]
    example: str  # the URL of an index
    prices: Prices
    size_note = ""  # what `plan` says of the bytes that it estimates
    layout = "4"
    distance: int | None = DEFAULT_DISTANCE
    is_embedded = False  # in a folder or in this process: no server to wait for, and writers take turns
    is_lasting = True  # whether an index outlives the process
    shares_queries = False  # whether queries of many threads gain by sharing calls: measured, only across a network
    options: frozenset[str] = frozenset()  # of its URLs: which of deadline, exclusive, lock_timeout
    capabilities: frozenset[type] = frozenset()  # of `capabilities.py`, that its stores have
    # Flags of commands that only some kinds of stores have; commands refuse the others.
    flags: frozenset[str] = frozenset()

    @property
    def max_distance(self) -> int:
        """The default distance of queries on a new index, in bits."""
        return Layout.named(self.layout).max_distance if self.distance is None else self.distance

    @abstractmethod
    def parse(self, url: str) -> object:
        """Parse a URL; raise `ValueError`, with the remedy, if it is not one of this kind."""

    @abstractmethod
    def name_of(self, url: str) -> str:
        """Return the URL of the same store from any working folder, without options for talking to it."""

    def full_url(self, url: str) -> str:
        """Return the URL, with its options, as it is from any working folder."""
        return self.name_of(url) if self.is_embedded else url

    def refuse_writes(self, url: str) -> None:  # noqa: B027 (most kinds take writes)
        """Raise `StoreReadOnlyError`, with the remedy, if nobody can write to an index of this kind."""

    def jobs_of(self, url: str) -> Path:
        """Return the parent folder of an index's job folders, which need not exist; an embedded index has its own."""
        return SERVER_JOBS

    def is_own_file(self, url: str, path: Path) -> bool:
        """Whether a path leads to a file of the index itself."""
        return False

    @abstractmethod
    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> Store:
        """Create an empty index and open it; raise `IndexExistsError` if it exists.

        `ttl_s`, for backends with the flag `--ttl`: how long after it was last added a document is over.
        """

    @abstractmethod
    def open(self, url: str, opening: Opening) -> Store:
        """Open an index; raise `IndexNotFoundError` if it does not exist."""

    @abstractmethod
    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        """Delete an index, even a damaged one, and its own job folders; return whether that was done.

        Args:
            url: of the index.
            opening: how to open it.
            is_sure: answers a question that names what would be deleted.
            say: prints a message.

        Raises:
            IndexNotFoundError: it does not exist.
        """

    @abstractmethod
    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        """Check an index from the outside in.

        `check_record` and `check_read` of `checkup.py` are for every store; `doctor` prints settings by the former.

        Args:
            url: of the index.
            opening: how to open it.
            is_quick: only look whether it can be read.
            writes: also write something and delete it again, for backends with the flag `--write`.
            processes: also try the connections of so many, for backends with the flag `--load`.
        """

    def instead(self, capability: type, url: str, target: str = "") -> Instead | None:
        """Return a substitute for a capability that the stores lack; `target` is the destination, if there is one."""
        if capability is Collects:
            return Instead("a document's rows go with it, so nothing is left to collect")
        return None

    def creation_lines(self, url: str, record: Record) -> list[str]:
        """Return lines that create an empty index by the store's own tool, for `--print-commands`."""
        return []
