"""Abilities of some stores beyond `Store`. A command asks for a capability, not for a kind of store."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store.base import ViewInPart
from hsimhash.store.reports import CheckReport, CollectReport, Region, Survey, TableFacts
from hsimhash.store.runs import BulkLoad, StageOptions


@runtime_checkable
class AnswersInPart(Protocol):
    """Parts of the index lie on different servers, so that some may answer while others do not."""

    def view_in_part(self, *, timeout_s: float | None = None) -> AbstractContextManager[ViewInPart]:
        """Give a view for one query that leaves out what does not answer in time, and ends by then.

        Args:
            timeout_s: how long the block's reads may take together, in seconds; None: as long as the deadline.
        """


@runtime_checkable
class Collects(Protocol):
    """Moves and removals leave rows behind, which a log lists."""

    def collect(self, *, observer: Observer = UNWATCHED) -> CollectReport:
        """Delete leftovers of moves and removals, as their log lists them."""


@runtime_checkable
class Compacts(Protocol):
    """The storage keeps free space until it is rewritten."""

    def compact(self) -> tuple[int, int]:
        """Rewrite the storage without free space; return its bytes before and after.

        Raises:
            StoreBusyError: others have it open.
        """


@runtime_checkable
class BacksUp(Protocol):
    """The store can copy itself."""

    def backup(self, target: Path) -> None:
        """Write a copy of the index as it is now to the new folder `target`, while others read and write.

        `ValueError` where `target` lies within the index's own folder.
        """


@runtime_checkable
class LoadsInBulk(Protocol):
    """Many sorted documents are written faster than by `insert`; other stores get them by `insert`, in slices."""

    def bulk(self, folder: Path, step_documents: int | None = None) -> BulkLoad:
        """Return a bulk load with its runs in `folder`.

        A merge writes `step_documents` at once, which bounds memory, and what the next merge repeats after a kill.
        By default as many as suit the store.
        """


@runtime_checkable
class LoadsFiles(Protocol):
    """Servers can take over files that were written without them."""

    def staged(self, folder: Path, options: StageOptions) -> BulkLoad:
        """Return a bulk load by finished files, with its runs in `folder`."""


@runtime_checkable
class HasTable(Protocol):
    """The index is a table of regions on several servers."""

    def regions(self) -> list[Region]:
        """Return the regions of the table in order of start."""

    def table(self) -> TableFacts:
        """Return how the table is made."""

    def survey(self) -> Survey:
        """Count the drawer rows of every region, from samples in a large table."""


class Shard(NamedTuple):
    """The Kth of N shards of a job; K begins at 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def has(self, place: int) -> bool:
        """Whether it has the range, or the file, at a place."""
        return place % self.total == self.number - 1


@runtime_checkable
class WalksRanges(Protocol):
    """Several processes can walk the large index in ranges and resume; also in `check` and `count`."""

    def check_shard(
        self, shard: Shard, *, repair: bool, folder: Path, workers: int = 1, observer: Observer = UNWATCHED
    ) -> tuple[int, int]:
        """Read the ranges of a shard for a check; return how many ranges all shards have read, and of how many.

        A `check` with the same folder then compares what all have read; `repair` must be as it is there.
        """

    def expire(
        self, before: int, *, workers: int = 1, folder: Path | None = None, observer: Observer = UNWATCHED
    ) -> int:
        """Remove documents first seen before a time (ms since 1970), by worker processes; return how many there were.

        What they did is kept in `folder`, and a call for the same time with the same folder continues there; documents
        of a range that was interrupted are counted as far as they were left.
        """

    def check_sample(self, documents: int, seed: int, *, observer: Observer = UNWATCHED) -> CheckReport:
        """Check about `documents` documents and as many drawer rows, drawn by the seed; the report counts those."""


# What a store lacks without it, in refusals.
TITLES: dict[type, str] = {
    AnswersInPart: "partial answer",
    BacksUp: "backup",
    Collects: "log of what documents leave behind",
    Compacts: "compaction",
    HasTable: "regions",
    LoadsFiles: "bulk load by files",
    LoadsInBulk: "bulk load",
    WalksRanges: "walk by several processes",
}
