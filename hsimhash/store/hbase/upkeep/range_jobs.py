"""Jobs over a table: worker processes take ranges of rows, and results are kept, so that a job can resume.

| file | what |
|---|---|
| `walk.json` | the purpose of the job, when it began, the ranges |
| `ranges.jsonl` | `[number, result]` of each range that is done; what a worker wrote besides is in files of its own |
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from hsimhash.errors import OTHER_JOB, StoreUnavailableError
from hsimhash.files import AppendLog, file_errors, make_folder, write_json
from hsimhash.locks import lock_or_refuse
from hsimhash.processes import Workers, completed
from hsimhash.progress import Observer
from hsimhash.store.base import JOB_DEADLINE_S, Record
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Gateway
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.rows.cells import SEGMENTS, TABLE_STOP, segment_key
from hsimhash.store.hbase.rows.survey import rows_about, segments_of
from hsimhash.store.reports import Region

RANGE_ROWS = 1 << 18  # drawer rows of a range, about: it bounds the memory of a worker, and what a kill costs
AGE_S = 86_400.0  # what was read longer ago is read again
_WALK, _RANGES = "walk.json", "ranges.jsonl"

WALK = "walk"  # the folder of a walk, within that of its job
Bounds = tuple[bytes, bytes]  # rows, half-open


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A range to read: its number and bounds, the index's record, the folder for findings.

    `seed` is the job's own, a random number of 32 bits.
    """

    number: int
    bounds: Bounds
    record: Record
    folder: Path
    seed: int


class RangeWork(Protocol):
    """The work on a range: a module-level function that returns JSON values."""

    def __call__(self, gateway: Gateway, task: RangeTask) -> Any: ...


@dataclass(frozen=True, slots=True)
class RangeJob:
    """The ranges of a job, and how many workers take them; 1 is this process.

    Args:
        url: of the index.
        gateway: to its table.
        record: of the index.
        folder: for what is found, in a folder of its own; made where it is missing.
        workers: processes.
        range_rows: see `RANGE_ROWS`.
    """

    url: str
    gateway: Gateway
    record: Record
    folder: Path
    workers: int = 1
    range_rows: int = RANGE_ROWS

    def run(self, purpose: str, work: RangeWork, observer: Observer) -> list[Any]:
        """Run the job; return the result of every range, in order.

        Args:
            purpose: of the job; its first word is the stage that is reported. With another purpose, or for another
                index, a new job begins.
            work: called with each range.
            observer: receives the number of finished ranges, and of all.
        """
        with file_errors(self.folder):
            make_folder(self.folder)
            seed, bounds = self._begun(f"{purpose} of {self.url}")
            with ResultLog(self.folder / _RANGES) as log:
                tasks = [
                    RangeTask(number, one, self.record, self.folder, seed)
                    for number, one in enumerate(bounds)
                    if number not in log.results
                ]
                for number, result in self._results(work, tasks):
                    log.add(number, result)
                    observer.report(purpose.partition(" ")[0], len(log.results), len(bounds))
                return [log.results[number] for number in range(len(bounds))]

    @contextmanager
    def alone(self, doing: str) -> Iterator[None]:
        """Lock the folder against other jobs during the block; delete the findings if it ends without an error.

        Args:
            doing: what this job does, for the error of another one: "checks the index".
        """
        place = self.folder.parent
        with file_errors(place, advice=", or " + OTHER_JOB):
            make_folder(place)
            lock = lock_or_refuse(place / "lock", f"{doing} ({place})", "name another folder")
        with lock:
            yield
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def seed(self) -> int:
        """The seed of the job's tasks."""
        return int(json.loads((self.folder / _WALK).read_text())["seed"])

    def _begun(self, purpose: str) -> tuple[int, list[Bounds]]:
        """Return the seed and the ranges of the job in the folder, or of a new one."""
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

    def _results(self, work: RangeWork, tasks: Sequence[RangeTask]) -> Iterator[tuple[int, Any]]:
        """Yield what is found as it comes, with the numbers of the ranges."""
        if self.workers == 1 or len(tasks) < 2:
            yield from ((task.number, work(self.gateway, task)) for task in tasks)
            return
        with Workers(min(self.workers, len(tasks))) as workers:
            numbers = {workers.submit(_work, self.url, work, task): task.number for task in tasks}
            yield from ((numbers[future], future.result()) for future in completed(numbers))


class ResultLog(AbstractContextManager["ResultLog"]):
    """A file of `[number, result]`, one JSON line each; `results` has the earlier ones."""

    def __init__(self, path: Path) -> None:
        self.results, size = dict[int, Any](), 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            if not line.endswith(b"\n"):
                break
            number, result = json.loads(line)
            self.results[number], size = result, size + len(line)
        self._log = AppendLog(path, size)

    def add(self, number: int, result: Any) -> None:
        """Add a result; durable on return."""
        self.results[number] = result
        self._log.append([json.dumps([number, result])])
        self._log.sync()

    def __exit__(self, *exc_info: object) -> None:
        self._log.close()


@cache
def _gateway_to(url: str) -> Gateway:
    """Return a worker's own gateway."""
    return open_gateway(Address.parse(url), deadline_s=JOB_DEADLINE_S)


def _work(url: str, work: RangeWork, task: RangeTask) -> Any:
    return work(_gateway_to(url), task)


def whole_table(gateway: Gateway) -> list[Region]:
    """Return the regions of a table without gaps: each begins where the one before ends.

    Raises:
        StoreUnavailableError: there is a hole between two.
    """
    regions = gateway.regions()
    edges = [b"", *(one.stop for one in regions)], [*(one.start for one in regions), b""]
    for stop, start in zip(*edges, strict=True):
        if stop != start:
            raise StoreUnavailableError(
                f"the table has a hole: no region has the rows from {stop.hex() or 'its beginning'} to "
                f"{start.hex() or 'its end'}; wait for a split to end, or repair it (hbase hbck)"
            )
    return regions


def ranges_of_table(gateway: Gateway, record: Record, rows: int = RANGE_ROWS) -> list[Bounds]:
    """Return ranges that cover the table, each within one region, with about so many drawer rows if evenly spread."""
    regions = whole_table(gateway)
    wanted = -(-rows_about(gateway, record) // rows)
    found = []
    for region in regions:
        low, high = segments_of(region)
        parts = max(1, min(-(-wanted * (high - low) // SEGMENTS), high - low))
        cuts = [segment_key(low + (high - low) * number // parts) for number in range(1, parts)]
        edges = [region.start, *cuts, region.stop or TABLE_STOP]
        found += list(pairwise(edges))
    return found
