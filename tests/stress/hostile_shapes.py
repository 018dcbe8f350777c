"""Hostile records: `python -m tests.stress.hostile_shapes [--only SHAPE] [--carrier CARRIER]`.

Each input has one hostile record between two ordinary ones. It is read and signed in a separate process, by one
worker. The ordinary records must become documents. The hostile one must become a document within 5 s of CPU and 300 MiB
of memory, or a reject with a reason, also in bounded time and memory. Both limits exclude what the same carrier takes
for an ordinary record. Memory is that of the process that grows most.

The first carrier of each kind of content tries all shapes; the others try those that were worst in the first, and those
that matter to their own format.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import Profile
from hsimhash.inputs import find_inputs
from hsimhash.inputs.reader import read_batches
from hsimhash.load.intake import fingerprinted
from hsimhash.processes import end_prepared
from tests.stress.hostile_carriers import CARRIERS, NAMES, SHAPES, Carrier
from tests.stress.hostile_texts import Shape, repeated
from tests.support.processes import children_of, fork
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

PROFILE = "auto-2"
SIZE_MIB = 16
CPU_S, MEMORY_MIB = 5.0, 300.0  # limits for a document
# For a reject. A page that exceeds its memory is retried once if the same process has read other pages before it.
REJECT_CPU_S, REJECT_MEMORY_MIB = 2 * CPU_S + 3.0, 450.0
# A page of Parquet is read whole, or rejected whole if it unpacks to thousands of times its size.
PAGE_MEMORY_MIB = 900.0
_OF_ONE_RECORD = ("page", "fragment", "text")  # others may contain several records, or an answer that is not a document
HANG_S = 60  # CPU seconds
WALL_S = 300.0
MOST_BYTES = 4 << 30
WORST = 10  # shapes by CPU, and as many by memory, which a kind's other carriers try
LOOK_S = 0.01
OVER_LIMIT = "over the limit"
FRAMED = (
    OVER_LIMIT, "only NUL", "only '\"'", "only '\\\\'", "only ','", "only '\\n'", "only '\\r'", "only '\\t'",
    "only ' '", "only line separator", "only emoji", "only byte order mark", "CRLF", "quotes", "backslash quote",
    "quote line", "surrogates", "bytes at random", "Latin-1", "half a character", "one emoji after ASCII", "prose",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trial:
    """A shape in a carrier; without a shape, an ordinary record, whose cost is that of the carrier."""

    carrier: str
    shape: str = ""

    @property
    def made(self) -> Shape | None:
        """The function that makes the content; None for an ordinary record."""
        if self.shape == OVER_LIMIT:
            return repeated("some words, ")
        return SHAPES[CARRIERS[self.carrier].content][self.shape] if self.shape else None


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of all processes, and the memory growth of the main process and of its largest child."""

    cpu_s: float = 0.0
    own_mib: float = 0.0
    child_mib: float = 0.0

    def beyond(self, other: Cost) -> Cost:
        return Cost(self.cpu_s - other.cpu_s, self.own_mib - other.own_mib, max(0.0, self.child_mib - other.child_mib))

    @property
    def mib(self) -> float:
        """The growth of the process that grew most."""
        return max(self.own_mib, self.child_mib)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trial ended."""

    cost: Cost
    documents: Sequence[str] = ()  # names of records that are documents, or texts too short for one
    rejects: Sequence[str] = ()  # reasons
    fault: str = ""  # why there is no result


@dataclass(slots=True)
class Running:
    """A trial whose process is running."""

    trial: Trial
    folder: Path
    pid: int
    peaks: dict[int, float] = field(default_factory=dict)  # MiB, by process

    def look(self) -> None:
        if self.begun_mib() is None:  # the process that makes the input is also a child
            return
        for pid in _descendants(self.pid):
            self.peaks[pid] = max(self.peaks.get(pid, 0.0), _memory_mib(pid, "VmHWM"))

    def begun_mib(self) -> float | None:
        """Return the memory of the process after its input was made; None before that."""
        begun = self.folder / "begun"
        return float(begun.read_text()) if begun.exists() else None

    def child_mib(self) -> float:
        """Return the growth of the child that grew most; each was forked with the memory the process began with."""
        return max(0.0, max(self.peaks.values(), default=0.0) - (self.begun_mib() or 0.0))


def _descendants(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _descendants(child)


def _memory_mib(pid: int | str, what: str) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) / 1_024
    return 0.0


def start(trial: Trial, size: int, folder: Path) -> Running:
    """Start the process of a trial."""
    folder.mkdir()

    def work() -> None:
        faulthandler.cancel_dump_traceback_later()  # a fork does not have its thread, and would wait for it
        signal.alarm(int(WALL_S))
        with (folder / "told").open("wb") as told:
            os.dup2(told.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (HANG_S, HANG_S + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        carrier = CARRIERS[trial.carrier]
        (folder / "in").mkdir()
        maker = fork(lambda: _write(carrier, trial, size, folder), limit_s=WALL_S)
        if os.waitpid(maker, 0)[1]:
            raise RuntimeError("the input could not be made")
        begun_mib = _memory_mib("self", "VmRSS")
        (folder / "begun.new").write_text(str(begun_mib))
        (folder / "begun.new").rename(folder / "begun")
        path = folder / "in" / carrier.file if "{}" not in carrier.file else folder / "in"
        before = _cpu_s()
        result = _read(path, carrier)
        end_prepared()
        cost = {"cpu_s": _cpu_s() - before, "own_mib": _memory_mib("self", "VmHWM") - begun_mib}
        (folder / "result").write_text(json.dumps([cost, *result]))

    return Running(trial, folder, fork(work, limit_s=WALL_S))


def _write(carrier: Carrier, trial: Trial, size: int, folder: Path) -> None:
    is_over = trial.shape == OVER_LIMIT
    carrier.write(folder / "in", trial.made, 16 * size if is_over else size)


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _read(path: Path, carrier: Carrier) -> tuple[list[str], list[str], str]:
    """Return the names of documents, the reasons for rejects, and why the whole input was refused, if it was."""
    names, reasons = list[str](), list[str]()
    try:
        inputs = find_inputs([str(path)], carrier.options)
        batches = read_batches(inputs, carrier.options, workers=1)
        for batch, _ in fingerprinted(inputs, batches, Profile.named(PROFILE), 1):
            names += map(_name_of, batch.documents.doc_ids)
            reasons += (reject.reason for reject in batch.documents.rejects)
    except (ValueError, HsimhashError) as error:
        return names, reasons, f"refused: {error}"
    return names, reasons, ""


def _name_of(doc_id: str) -> str:
    """Return the name of a record from its id: a path or URL that ends with the name, or a position."""
    number = doc_id.rpartition(":")[2]
    return NAMES[int(number) - 1] if number in ("1", "2", "3") else doc_id.rpartition("/")[2].partition(".")[0]


def finish(running: Running, status: int, used: resource.struct_rusage) -> Ended:
    """Return the result of a trial whose process has ended."""
    code = os.waitstatus_to_exitcode(status)
    result = running.folder / "result"
    child_mib = running.child_mib()
    if code or not result.exists():
        told = (running.folder / "told").read_text(errors="replace").strip().splitlines()
        how = "hung" if code == -signal.SIGXCPU else f"ended with {code}: {(told or [''])[-1]}"
        return Ended(Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1_024, child_mib), fault=how)
    cost, names, reasons, fault = json.loads(result.read_text())
    return Ended(Cost(**cost, child_mib=child_mib), names, reasons, fault)


def run(trials: Sequence[Trial], size: int, folder: Path, lanes: int, tell: Callable[[Trial, Ended], None]) -> None:
    """Run trials, `lanes` of them at a time."""
    waiting, running, number = list(reversed(trials)), list[Running](), 0
    while waiting or running:
        while waiting and len(running) < lanes:
            number += 1
            running.append(start(waiting.pop(), size, folder / str(number)))
        for one in list(running):
            one.look()
            pid, status, used = os.wait4(one.pid, os.WNOHANG)
            if pid:
                running.remove(one)
                tell(one.trial, finish(one, status, used))
                _clear(one.folder)
        time.sleep(LOOK_S)


def _clear(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


# What must hold.


def fault_of(trial: Trial, ended: Ended, base: Cost) -> str:
    """Return what is wrong with how a trial ended; empty if all is right."""
    carrier, cost = CARRIERS[trial.carrier], ended.cost.beyond(base)
    if ended.fault:
        return ended.fault
    first, middle, last = (ended.documents.count(name) for name in NAMES)
    is_page = trial.shape == OVER_LIMIT and carrier.file.endswith(".parquet") and bool(ended.rejects)
    is_excused = carrier.may_lose_last and ended.rejects
    if not is_page and (first != 1 or (last != 1 and not is_excused)):
        return f"of the ordinary records, the first came {first} times and the last {last} times"
    is_blank = carrier.skips_blank and trial.made is not None and not trial.made(1_000).strip()
    if carrier.content in _OF_ONE_RECORD and middle + len(ended.rejects) != 1 - is_blank:
        return f"the hostile record came {middle} times, with {len(ended.rejects)} rejects"
    if not all(ended.rejects):
        return "a reject has no reason"
    most_s, most_mib = (REJECT_CPU_S, REJECT_MEMORY_MIB) if ended.rejects else (CPU_S, MEMORY_MIB)
    most_mib = PAGE_MEMORY_MIB if is_page else most_mib
    if cost.cpu_s > most_s:
        return f"{cost.cpu_s:.1f} s of CPU"
    return f"{cost.mib:.0f} MiB" if cost.mib > most_mib else ""


@dataclass(slots=True)
class Found:
    """The results of the shapes that a carrier tried."""

    base: Cost
    ended: dict[str, Ended] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def costs(self) -> dict[str, Cost]:
        return {shape: one.cost.beyond(self.base) for shape, one in self.ended.items()}

    def worst(self) -> list[str]:
        """Return the shapes that took the most CPU or memory."""
        costs = self.costs()
        by_cpu = sorted(costs, key=lambda shape: -costs[shape].cpu_s)[:WORST]
        return list(dict.fromkeys([*by_cpu, *sorted(costs, key=lambda shape: -costs[shape].mib)[:WORST]]))

    def line(self) -> str:
        """Return the worst costs among documents and among rejects."""
        costs, parts = self.costs(), list[str]()
        for is_reject, what in ((False, "documents"), (True, "rejects")):
            shapes = [shape for shape, one in self.ended.items() if bool(one.rejects) == is_reject]
            if shapes:
                slowest = max(shapes, key=lambda shape: costs[shape].cpu_s)
                largest = max(shapes, key=lambda shape: costs[shape].mib)
                parts.append(
                    f"{len(shapes):,} {what}: {costs[slowest].cpu_s:.1f} s ({slowest}), "
                    f"{costs[largest].mib:.0f} MiB ({largest})"
                )
        return "; ".join(parts)


def try_carrier(name: str, shapes: Sequence[str], size: int, folder: Path) -> Found:
    """Try shapes in a carrier; if a shape misses a bar, retry it once with nothing else running."""
    base: list[Ended] = []
    run([Trial(name)], size, folder, 1, lambda _, ended: base.append(ended))
    found = Found(base[0].cost)
    if base[0].fault or base[0].rejects:
        found.faults["ordinary"] = base[0].fault or base[0].rejects[0]

    def take(trial: Trial, ended: Ended) -> None:
        found.ended[trial.shape] = ended
        found.faults.pop(trial.shape, None)
        if fault := fault_of(trial, ended, found.base):
            found.faults[trial.shape] = fault

    run([Trial(name, shape) for shape in shapes], size, folder, os.cpu_count() or 1, take)
    run([Trial(name, shape) for shape in found.faults if shape in shapes], size, folder, 1, take)
    return found


def shapes_for(name: str, worst: Mapping[str, Sequence[str]], only: str) -> list[str]:
    """Return which shapes a carrier tries; `worst` has the worst shapes of each kind of content."""
    content = CARRIERS[name].content
    every = [*SHAPES[content], OVER_LIMIT]
    if only:
        return [shape for shape in every if shape == only]
    chosen = {*worst[content], *FRAMED} if content in worst else every
    return [shape for shape in every if shape in chosen]


def warm_up() -> None:
    """Load in this process what all trials need, so that it does not count towards a trial."""
    Profile.named(PROFILE).signatures(["The harbour ferry. 港务局表示，渡轮星期日停航。"])
    for module in ("pyarrow.parquet", "pyarrow.compute", "fastwarc.warc", "fastwarc.stream_io"):
        import_module(module)
    gc.collect()
    gc.freeze()


def main() -> int:
    given = options(
        __doc__,
        size=(SIZE_MIB, "MiB of a record"),
        only=("", "a shape"),
        carrier=("", "a carrier; by default all of them"),
    )
    print_conditions(
        "hostile shapes", packages=("pyarrow", "fastwarc", "lxml", "trafilatura"), mib=given.size,
        carriers=len(CARRIERS), shapes=sum(map(len, SHAPES.values())), profile=PROFILE,
    )  # fmt: skip
    warm_up()
    outcomes, worst = list[Outcome](), dict[str, Sequence[str]]()
    for name in CARRIERS:
        shapes = shapes_for(name, worst, given.only)
        if given.carrier not in ("", name) or not shapes:
            continue
        with scratch_folder(given.scratch) as folder:
            found = try_carrier(name, shapes, given.size << 20, folder)
        worst.setdefault(CARRIERS[name].content, found.worst())
        print(f"{name:30} {found.line()}", flush=True)
        for shape, fault in found.faults.items():
            reason = next(iter(found.ended[shape].rejects), "") if shape in found.ended else ""
            outcomes.append(
                Outcome(False, f"{name}, {shape}: {fault}" + (f" (reject: {reason:.100})" if reason else ""))
            )
            print(outcomes[-1], flush=True)
    return print_outcomes([Outcome(not outcomes, f"{len(outcomes)} of the bars are broken (= 0)")])


if __name__ == "__main__":
    sys.exit(main())
