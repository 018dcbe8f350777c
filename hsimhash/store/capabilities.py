"""Capabilities that only some stores have, beyond `Store`. Commands test for a capability, not for a kind of store."""

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
    """The parts of the index are on different servers, so some parts may respond while others do not."""

    def view_in_part(self, *, timeout_s: float | None = None) -> AbstractContextManager[ViewInPart]:
        """Return a view for one query that skips parts that do not respond within the time limit.

        Args:
            timeout_s: Total time that the block's reads may take, in seconds; None: the index's deadline.
        """


@runtime_checkable
class Collects(Protocol):
    """Moves and removals leave rows behind, which are logged."""

    def collect(self, *, observer: Observer = UNWATCHED) -> CollectReport:
        """Delete the logged leftovers of moves and removals."""


@runtime_checkable
class Compacts(Protocol):
    """The storage keeps free space until it is rewritten."""

    def compact(self) -> tuple[int, int]:
        """Rewrite the storage without free space; return its size in bytes before and after.

        Raises:
            StoreBusyError: Other processes have it open.
        """


@runtime_checkable
class BacksUp(Protocol):
    """The store can copy itself."""

    def backup(self, target: Path) -> None:
        """Write a copy of the index's current state to the new folder `target`, even while others read and write.

        Raises:
            ValueError: `target` is inside the index's own folder.
        """


@runtime_checkable
class LoadsInBulk(Protocol):
    """The store writes many sorted documents faster than `insert` does; other stores insert them in slices."""

    def bulk(self, folder: Path, step_documents: int | None = None) -> BulkLoad:
        """Return a bulk load with its runs in `folder`.

        A merge writes `step_documents` documents at a time, which limits memory use and the work that is repeated after
        a kill. The default depends on the store.
        """


@runtime_checkable
class LoadsFiles(Protocol):
    """hsimhash can write files that the servers load directly."""

    def staged(self, folder: Path, options: StageOptions) -> BulkLoad:
        """Return a bulk load that writes files for the servers to load, with its runs in `folder`."""


@runtime_checkable
class HasTable(Protocol):
    """The index is a table of regions on several servers."""

    def regions(self) -> list[Region]:
        """Return the regions of the table, ordered by start key."""

    def table(self) -> TableFacts:
        """Return the regions and settings of the table."""

    def survey(self) -> Survey:
        """Count the drawer rows of every region; large tables are sampled."""


class Shard(NamedTuple):
    """One shard of a job that has `total` shards; `number` counts from 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def has(self, place: int) -> bool:
        """Whether range or file number `place`, counted from 0, belongs to this shard."""
        return place % self.total == self.number - 1


@runtime_checkable
class WalksRanges(Protocol):
    """Several processes can walk a large index range by range, and resume; `check` and `count` use this too."""

    def check_shard(
        self, shard: Shard, *, repair: bool, folder: Path, workers: int = 1, observer: Observer = UNWATCHED
    ) -> tuple[int, int]:
        """Read a shard's ranges for a check; return how many ranges all shards have read so far, and the total.

        A `check` with the same folder and the same `repair` then compares what all shards have read.
        """

    def expire(
        self, before: int, *, workers: int = 1, folder: Path | None = None, observer: Observer = UNWATCHED
    ) -> int:
        """Use worker processes to remove documents first seen before a time (ms since 1970); return their number.

        Progress is kept in `folder`, and another call with the same time and folder resumes it. If a range was
        interrupted, only the documents that remained in it are counted.
        """

    def check_sample(self, documents: int, seed: int, *, observer: Observer = UNWATCHED) -> CheckReport:
        """Check about `documents` documents and as many drawer rows, chosen by the seed, and count only those."""


# The name of each capability in messages about stores that do not support it.
TITLES: dict[type, str] = {
    AnswersInPart: "partial answers",
    BacksUp: "backups",
    Collects: "collecting leftover rows",
    Compacts: "compaction",
    HasTable: "regions",
    LoadsFiles: "bulk loads from files",
    LoadsInBulk: "bulk loads",
    WalksRanges: "multi-process walks",
}
