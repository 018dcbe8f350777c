"""A walk over a table: ranges of rows, each read by a worker process, and the results kept, so that any end resumes.

| file | what |
|---|---|
| `walk.json` | what is walked for, when it began, the ranges |
| `ranges.jsonl` | `[number, result]` of each range that is done; what a worker wrote besides is in files of its own |
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from hsimhash.errors import HsimhashError, StopAskedError
from hsimhash.files import AppendLog, file_errors, make_folder, write_json
from hsimhash.processes import Workers
from hsimhash.store.base import JOB_DEADLINE_S, Record
from hsimhash.store.facts import Progress
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.cells import SEGMENTS, TABLE_STOP, segment_key
from hsimhash.store.hbase.gateway import Gateway
from hsimhash.store.hbase.gateways import open_gateway
from hsimhash.store.hbase.survey import rows_about, segments_of

RANGE_ROWS = 1 << 18  # drawer rows of a range, about: it bounds the memory of a worker, and what a kill costs
AGE_S = 86_400.0  # what was read longer ago is read again
_WALK, _RANGES = "walk.json", "ranges.jsonl"

Bounds = tuple[bytes, bytes]  # rows, half-open


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A range that is read: its number, its bounds, the index's record, the folder for what is found.

    `seed` is the walk's own, a random number of 32 bits.
    """

    number: int
    bounds: Bounds
    record: Record
    folder: Path
    seed: int


class RangeWork(Protocol):
    """What is done with a range: a function of a module, which returns JSON values."""

    def __call__(self, gateway: Gateway, task: RangeTask) -> Any: ...


@dataclass(frozen=True, slots=True)
class Walk:
    """What is walked over, by how many workers; 1 is this process.

    Args:
        url: of the index.
        gateway: to its table.
        record: of the index.
        folder: for what is found; made where it is missing.
        workers: processes.
        range_rows: see `RANGE_ROWS`.
    """

    url: str
    gateway: Gateway
    record: Record
    folder: Path
    workers: int = 1
    range_rows: int = RANGE_ROWS

    def run(self, purpose: str, work: RangeWork, tell: Progress, stop: Callable[[], bool] | None = None) -> list[Any]:
        """Return the result of every range, in order.

        Args:
            purpose: what for; a walk for something else, or for another index, is begun anew.
            work: is done with each range.
            tell: is given how many ranges are done, of how many.
            stop: asks to end after the ranges that are under way, with `StopAskedError`.
        """
        with file_errors(self.folder):
            make_folder(self.folder)
            seed, bounds = self._begun(f"{purpose} of {self.url}")
            found, log = self._done(len(bounds))
            tasks = [
                RangeTask(number, one, self.record, self.folder, seed)
                for number, one in enumerate(bounds)
                if number not in found
            ]
            try:
                for number, result in self._results(work, tasks, stop or (lambda: False)):
                    found[number] = result
                    log.append([json.dumps([number, result])])
                    log.sync()
                    tell(len(found), len(bounds))
            except BrokenProcessPool as error:
                raise HsimhashError("a worker died, perhaps for want of memory; fewer --workers need less") from error
            finally:
                log.close()
        return [found[number] for number in range(len(bounds))]

    @property
    def seed(self) -> int:
        """The seed of the tasks of the walk that was begun."""
        return int(json.loads((self.folder / _WALK).read_text())["seed"])

    def _begun(self, purpose: str) -> tuple[int, list[Bounds]]:
        """Return the seed and the ranges of the walk that was begun in the folder, or of a new one."""
        path = self.folder / _WALK
        if path.exists():
            walk = json.loads(path.read_text())
            if walk["purpose"] == purpose and 0 <= time.time() - walk["began_s"] < AGE_S:
                return walk["seed"], [(bytes.fromhex(start), bytes.fromhex(stop)) for start, stop in walk["ranges"]]
        (self.folder / _RANGES).unlink(missing_ok=True)
        bounds = ranges_of_table(self.gateway, self.record, self.range_rows)
        ranges = [(start.hex(), stop.hex()) for start, stop in bounds]
        seed = secrets.randbits(32)
        write_json(path, {"purpose": purpose, "began_s": time.time(), "seed": seed, "ranges": ranges})
        return seed, bounds

    def _done(self, count: int) -> tuple[dict[int, Any], AppendLog]:
        path, found, size = self.folder / _RANGES, dict[int, Any](), 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            if not line.endswith(b"\n"):
                break
            number, result = json.loads(line)
            found[number], size = result, size + len(line)
        return {number: result for number, result in found.items() if number < count}, AppendLog(path, size)

    def _results(
        self, work: RangeWork, tasks: Sequence[RangeTask], stop: Callable[[], bool]
    ) -> Iterator[tuple[int, Any]]:
        """Yield what is found as it comes, with the numbers of the ranges."""
        if self.workers == 1 or len(tasks) < 2:
            for task in tasks:
                if stop():
                    raise StopAskedError("asked to end between two ranges")
                yield task.number, work(self.gateway, task)
            return
        with Workers(min(self.workers, len(tasks)), _prepare, self.url) as workers:
            futures = {workers.submit(_work, work, task): task.number for task in tasks}
            yield from ((futures[future], result) for future, result in done(futures, stop))


def done(futures: Sequence[Future[Any]] | dict[Future[Any], Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Yield futures and their results as these come; `StopAskedError` as soon as `stop` says so."""
    left = set(futures)
    while left:
        if stop():
            raise StopAskedError("asked to end while workers were at work")
        ended, left = wait(left, timeout=1, return_when=FIRST_COMPLETED)
        for future in ended:
            yield future, future.result()


_gateway: Gateway  # a worker's own


def _prepare(url: str) -> None:
    global _gateway
    _gateway = open_gateway(Address.parse(url), deadline_s=JOB_DEADLINE_S)


def _work(work: RangeWork, task: RangeTask) -> Any:
    return work(_gateway, task)


def ranges_of_table(gateway: Gateway, record: Record, rows: int = RANGE_ROWS) -> list[Bounds]:
    """Return ranges that cover the table, each within a region, with about so many drawer rows if these lie evenly."""
    regions = gateway.regions()
    wanted = -(-rows_about(gateway, record) // rows)
    found = []
    for region in regions:
        low, high = segments_of(region)
        parts = max(1, min(-(-wanted * (high - low) // SEGMENTS), high - low))
        cuts = [segment_key(low + (high - low) * number // parts) for number in range(1, parts)]
        edges = [region.start, *cuts, region.stop or TABLE_STOP]
        found += list(pairwise(edges))
    return found
