"""Jobs over a table: worker processes take ranges of rows, and results are kept so that a job can resume.

| file | contents |
|---|---|
| `walk.json` | the job's purpose, when it began, its ranges and the number of shards |
| `ranges.jsonl` | `[number, result]` of each finished range; a worker's other output is in separate files |
| `ranges-3.jsonl` | the results of the third shard |

A shard is every Nth range. Several machines can each read one shard, using a folder that all of them can access. A job
without a shard then reads the remaining ranges, and continues with the findings of all shards.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from hsimhash.errors import OTHER_JOB, HsimhashError, StoreBusyError, StoreUnavailableError
from hsimhash.files import AppendLog, file_errors, make_folder, write_json
from hsimhash.locks import HeldLock, holder_of, lock_or_refuse, wait_for_lock
from hsimhash.processes import Workers, completed
from hsimhash.progress import Observer
from hsimhash.store.base import JOB_DEADLINE_S, Record
from hsimhash.store.capabilities import Shard
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Gateway
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.rows.cells import SEGMENTS, TABLE_STOP, segment_key
from hsimhash.store.hbase.rows.survey import rows_about, segments_of
from hsimhash.store.reports import Region

RANGE_ROWS = 1 << 18  # approximate drawer rows in a range; bounds a worker's memory, and the work lost if it is killed
AGE_S = 86_400.0  # a job that began longer ago starts over
CLOCKS_S = 1_200.0  # maximum difference between the clocks of two machines
_WALK, _RANGES, _SHARD_RANGES = "walk.json", "ranges.jsonl", "ranges-*.jsonl"
_JOIN_S = 60.0  # how long a shard waits while other shards begin

WALK = "walk"  # a walk's folder, inside the job's folder
Bounds = tuple[bytes, bytes]  # half-open range of rows


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A range to read: its number and bounds, the index record, and the folder for findings.

    `seed` is a random 32-bit number, the same for all tasks of a job.
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
    """A job over all ranges of a table.

    Args:
        url: URL of the index.
        gateway: Gateway to its table.
        record: Index record.
        folder: Folder for findings, created if missing. Its parent is the job's own folder, which contains the locks.
        workers: Number of processes; with 1, this process does the work.
        range_rows: See `RANGE_ROWS`.
    """

    url: str
    gateway: Gateway
    record: Record
    folder: Path
    workers: int = 1
    range_rows: int = RANGE_ROWS

    def run(self, purpose: str, work: RangeWork, observer: Observer) -> list[Any]:
        """Run the job, inside an `alone` block; return the result of every range, in order.

        Args:
            purpose: Purpose of the job; its first word is reported as the stage. A different purpose or index starts a
                new job.
            work: Called with each range.
            observer: Receives the number of finished ranges and the total.
        """
        with file_errors(self.folder):
            walk = self._begun(purpose, None)
            results = self._read(walk, None, work, partial(observer.report, purpose.partition(" ")[0]))
        return [results[number] for number in range(len(results))]

    def run_shard(self, shard: Shard, purpose: str, work: RangeWork, observer: Observer) -> tuple[int, int]:
        """Read a shard's ranges; return how many ranges all shards have read so far, and the total.

        Raises:
            StoreBusyError: Another process is reading this shard, or running the whole job.
            HsimhashError: The job has a different number of shards.
        """
        place = self.folder.parent
        with ExitStack() as held, file_errors(place, advice=", or " + OTHER_JOB):
            make_folder(place)
            with self._only_for_now():
                doing = f"is reading shard {shard} ({place})"
                held.enter_context(lock_or_refuse(self._lock_of(shard), doing, "read another shard"))
                walk = self._begun(purpose, shard)
            self._read(walk, shard, work, partial(observer.report, purpose.partition(" ")[0]))
            return len(self._logged()), len(walk["ranges"])  # other shards may have read more ranges by now

    @contextmanager
    def alone(self, doing: str) -> Iterator[None]:
        """Lock the folder against other jobs during the block; if it succeeds, delete the findings at the end.

        Args:
            doing: What this job does, for another job's error message, such as "is checking the index".
        """
        place = self.folder.parent
        with ExitStack() as held:
            with file_errors(place, advice=", or " + OTHER_JOB):
                make_folder(place)
                held.enter_context(lock_or_refuse(place / "lock", f"{doing} ({place})", "use another folder"))
                for path in self._shard_locks():
                    held.enter_context(lock_or_refuse(path, f"is reading a shard ({path})", "use another folder"))
            yield
            # First, so that no job resumes with partial findings after a kill.
            (self.folder / _WALK).unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)
            for path in self._shard_locks():
                path.unlink(missing_ok=True)

    def _only_for_now(self) -> HeldLock:
        """Lock the folder while a shard begins; other shards wait."""
        path = self.folder.parent / "lock"
        try:
            return wait_for_lock(path, _JOIN_S)
        except StoreBusyError as error:
            raise StoreBusyError(
                f"process {holder_of(path)} is working on the whole job ({path.parent}); wait for it to end, or use "
                f"another folder"
            ) from error

    def _lock_of(self, shard: Shard) -> Path:
        return self.folder.parent / f"shard-{shard.number}.lock"

    def _shard_locks(self) -> list[Path]:
        return sorted(self.folder.parent.glob("shard-*.lock"))

    @property
    def seed(self) -> int:
        """The seed of the job's tasks."""
        return int(json.loads((self.folder / _WALK).read_text())["seed"])

    def _begun(self, purpose: str, shard: Shard | None) -> dict[str, Any]:
        """Return the job recorded in the folder, or record a new one."""
        make_folder(self.folder)
        path, purpose = self.folder / _WALK, f"{purpose} of {self.record.identity.hex() or self.url}"
        begun = json.loads(path.read_text()) if path.exists() else {}
        walk = dict(begun)
        if walk.get("purpose") != purpose or not -CLOCKS_S <= time.time() - walk["began_s"] < AGE_S:
            self._discard(shard)
            ranges = [
                (start.hex(), stop.hex()) for start, stop in ranges_of_table(self.gateway, self.record, self.range_rows)
            ]
            walk = {"purpose": purpose, "began_s": time.time(), "seed": secrets.randbits(32), "ranges": ranges}
        if shard is not None and walk.setdefault("shards", shard.total) != shard.total:
            raise HsimhashError(
                f"the job in {self.folder.parent} has {walk['shards']} shards, not {shard.total}; use a total of "
                f"{walk['shards']} shards, or another folder"
            )
        if walk != begun:
            write_json(path, walk)
        return walk

    def _discard(self, shard: Shard | None) -> None:
        """Delete an earlier job's findings; raise `StoreBusyError` if one of its shards is still being read."""
        if shard is not None:  # a job without a shard already has all locks
            for path in set(self._shard_locks()) - {self._lock_of(shard)}:
                lock_or_refuse(path, f"is reading a shard of another job ({path})", "use another folder").close()
        for path in self._logs():
            path.unlink()

    def _logs(self) -> list[Path]:
        return [one for one in (self.folder / _RANGES, *sorted(self.folder.glob(_SHARD_RANGES))) if one.exists()]

    def _read(
        self, walk: dict[str, Any], shard: Shard | None, work: RangeWork, report: Callable[[int, int], None]
    ) -> dict[int, Any]:
        """Read the remaining ranges of a shard or of the whole job; return their results, and those in any log."""
        bounds = [(bytes.fromhex(start), bytes.fromhex(stop)) for start, stop in walk["ranges"]]
        own = _RANGES if shard is None else _SHARD_RANGES.replace("*", str(shard.number))
        mine = [number for number in range(len(bounds)) if shard is None or shard.has(number)]
        results = self._logged()
        tasks = [
            RangeTask(number, bounds[number], self.record, self.folder, walk["seed"])
            for number in mine
            if number not in results
        ]
        report(len(mine) - len(tasks), len(mine))
        with ResultLog(self.folder / own) as log:
            for done, (number, result) in enumerate(self._results(work, tasks), start=len(mine) - len(tasks) + 1):
                log.add(number, result)
                results[number] = result
                report(done, len(mine))
        return results

    def _logged(self) -> dict[int, Any]:
        return {number: result for path in self._logs() for number, result in results_in(path)[0].items()}

    def _results(self, work: RangeWork, tasks: Sequence[RangeTask]) -> Iterator[tuple[int, Any]]:
        """Yield range numbers and results as they become available."""
        if self.workers == 1 or len(tasks) < 2:
            yield from ((task.number, work(self.gateway, task)) for task in tasks)
            return
        with Workers(min(self.workers, len(tasks))) as workers:
            numbers = {workers.submit(_work, self.url, work, task): task.number for task in tasks}
            yield from ((numbers[future], future.result()) for future in completed(numbers))


class ResultLog(AbstractContextManager["ResultLog"]):
    """A file with one JSON line `[number, result]` per result; `results` includes the results of earlier runs."""

    def __init__(self, path: Path) -> None:
        self.results, size = results_in(path)
        self._log = AppendLog(path, size)

    def add(self, number: int, result: Any) -> None:
        """Add a result; durable on return."""
        self.results[number] = result
        self._log.append([json.dumps([number, result])])
        self._log.sync()

    def __exit__(self, *exc_info: object) -> None:
        self._log.close()


def results_in(path: Path) -> tuple[dict[int, Any], int]:
    """Return the results in a `ResultLog`'s file, and the size of its complete lines in bytes."""
    results, size = dict[int, Any](), 0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if not line.endswith(b"\n"):
            break
        number, result = json.loads(line)
        results[number], size = result, size + len(line)
    return results, size


@cache
def _gateway_to(url: str) -> Gateway:
    """Return this worker process's gateway, which is opened on the first call."""
    return open_gateway(Address.parse(url), deadline_s=JOB_DEADLINE_S)


def _work(url: str, work: RangeWork, task: RangeTask) -> Any:
    return work(_gateway_to(url), task)


def whole_table(gateway: Gateway) -> list[Region]:
    """Return a table's regions, each of which begins where the previous one ends.

    Raises:
        StoreUnavailableError: There is a hole between two regions.
    """
    regions = gateway.regions()
    edges = [b"", *(one.stop for one in regions)], [*(one.start for one in regions), b""]
    for stop, start in zip(*edges, strict=True):
        if stop != start:
            raise StoreUnavailableError(
                f"the table has a hole: no region contains the rows from {stop.hex() or 'its beginning'} to "
                f"{start.hex() or 'its end'}; wait for any split to finish, or repair the table with 'hbase hbck'"
            )
    return regions


def ranges_of_table(gateway: Gateway, record: Record, rows: int = RANGE_ROWS) -> list[Bounds]:
    """Return ranges that cover the table, each within one region and with about `rows` drawer rows if spread evenly."""
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
