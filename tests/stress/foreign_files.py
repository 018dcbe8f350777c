"""Files of public test suites: `python -m tests.stress.foreign_files FOLDER…`.

`dedup` and `ingest` read every file in the folders, as it is and with the options that a user might pass. Each command
runs in a separate process with 30 s of CPU and 2 GiB of memory. A command must not crash or hang or silently lose a
record, and both must count the same documents. Three suites are recognised by their content: JSONTestSuite,
the Big List of Naughty Strings, and the labels of the WHATWG Encoding Standard. Their files are tried in more ways.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from hsimhash.cli import main as hsimhash
from hsimhash.inputs import FORMATS
from tests.stress.foreign_suites import (
    JSON_SUITE,
    Trial,
    is_encoding_labels,
    is_naughty_strings,
    label_faults,
    label_trials,
    naughty_trials,
    suite_trials,
)
from tests.support import plain_readings as plain
from tests.support.processes import fork
from tests.support.programs import SCRATCH, Outcome, print_conditions, print_outcomes, scratch_folder

CPU_S, MEMORY_BYTES, WALL_S = 30, 2 << 30, 300
TEXT_COLUMNS = 2  # columns of a file that are tried as its text
READ_CODES = (0, 7)
MISUSED = 2
KINDS = ("crash", "hang", "silent loss", "verdict", "disagreement")
# A reject with such a reason is a bug of ours that the reader caught.
_UNFORESEEN = re.compile(r"(?:unexpected )?(?!Arrow)[A-Z]\w*(?:Error|Exception)\b:")
_DAMAGE = re.compile(r"damaged|truncated|not closed|not be closed|not read|cannot be read|no Parquet|never closed")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int  # negative: the signal's number
    said: str
    cpu_s: float
    documents: int = 0  # documents read, not counting rejects
    repeated: int = 0  # skipped by `dedup` because an equal record with the same id came earlier
    rejects: Sequence[str] = ()  # reasons

    @property
    def records(self) -> int:
        return self.documents + self.repeated + len(self.rejects)


@dataclass
class Tally:
    """The results of a suite."""

    files: int = 0
    commands: int = 0
    documents: int = 0
    rejects: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    faults: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})


def limited() -> None:
    for limit, value in (
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_DATA, MEMORY_BYTES),  # not the address space: LMDB maps far more than it uses
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value + (limit == resource.RLIMIT_CPU)))


def run(arguments: Sequence[str], folder: Path) -> Ended:
    """Run a command in a separate process; its output goes to `folder`."""
    shown, told = folder / "shown", folder / "told"

    def work() -> None:
        for number, path in ((1, shown), (2, told)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        limited()
        hsimhash(arguments, prog_name="hsimhash")

    _, status, used = os.wait4(fork(work, limit_s=WALL_S), 0)
    ended = Ended(os.waitstatus_to_exitcode(status), told.read_text(errors="replace"), used.ru_utime + used.ru_stime)
    return _with_summary(ended, shown.read_text(errors="replace")) if ended.code in READ_CODES else ended


def _with_summary(ended: Ended, shown: str) -> Ended:
    summary = json.loads(shown)
    listed = summary.get("rejects") or (Path(summary["out"]) / "rejects.jsonl" if "out" in summary else None)
    rejects = []
    if listed and Path(listed).exists():
        rejects = [json.loads(line)["reason"] for line in Path(listed).read_text().split("\n") if line]
    is_dedup = "kept" in summary
    documents = summary["documents"] - (0 if is_dedup else summary["rejected"])
    repeated = summary["repeated"] if is_dedup else 0
    return Ended(ended.code, ended.said, ended.cpu_s, documents, repeated, rejects)


def fault_of(ended: Ended, trial: Trial) -> tuple[str, str] | None:
    """Return the kind of fault and what happened; None if all is right."""
    last = (ended.said.splitlines() or [""])[-1]
    if ended.code == -signal.SIGXCPU or ended.cpu_s > CPU_S or "Timeout (" in ended.said:
        return "hang", f"{ended.cpu_s:.0f} s of CPU"
    if ended.code < 0 or "Traceback" in ended.said or "this is a bug" in ended.said:
        return "crash", f"exit code {ended.code}: {last}"
    if unforeseen := [reason for reason in ended.rejects if _UNFORESEEN.match(reason)]:
        return "crash", f"caught: {unforeseen[0]}"
    if ended.code not in (*READ_CODES, MISUSED):
        return "crash", f"exit code {ended.code}: {last}"
    if ended.code == MISUSED and not last:
        return "crash", "refused without a message"
    if fault := _loss(ended, trial):
        return "silent loss", fault
    wrong = trial.wrong(ended.code, ended.documents, ended.rejects)
    return ("verdict", f"{wrong}: {[*ended.rejects, last][0]}") if wrong else None


def _loss(ended: Ended, trial: Trial) -> str:
    if ended.code == MISUSED or any(_DAMAGE.search(reason) for reason in ended.rejects):
        return ""
    if trial.records is None:
        is_silent = not ended.records and not ended.said and trial.path.stat().st_size > 0
        return "no document, no reject and no message" if is_silent else ""
    is_short = ended.records < trial.records
    return f"{ended.records:,} of {trial.records:,} records" if is_short else ""


def trials_of(path: Path, scratch: Path) -> Iterator[Trial]:
    """Yield the ways to read a file."""
    if JSON_SUITE.match(path.name):
        yield from suite_trials(path, scratch)
    elif is_naughty_strings(path):
        yield from naughty_trials(path, scratch)
    elif is_encoding_labels(path):
        yield from label_trials(path, scratch)
    else:
        yield from _usual_trials(path)


def _usual_trials(path: Path) -> Iterator[Trial]:
    data, name = path.read_bytes(), path.name.lower()
    packing = next((one for one in (".gz", ".zst") if name.endswith(one)), "")
    suffix, content = Path(name.removesuffix(packing)).suffix, plain.unpacked(data, packing)
    records, columns, formats = _counted(suffix, content, data)
    yield Trial(path, (), records)
    for one in formats:
        yield Trial(path, ("--format", one), records if one == formats[0] and suffix else None)
    for column in columns[:TEXT_COLUMNS]:
        yield Trial(path, ("--text-field", column), records)
    if formats == ("warc",):
        yield Trial(path, ("--extract", "none"), records)


def _counted(suffix: str, content: bytes | None, data: bytes) -> tuple[int | None, Sequence[str], tuple[str, ...]]:
    """Return how many records a file has, the columns that may hold its text, and the formats to try."""
    match suffix:
        case ".parquet":
            return (*_counted_parquet(data), ("parquet",))
        case ".csv" | ".tsv":
            rows = plain.csv_rows(content or b"", "," if suffix == ".csv" else "\t") if suffix == ".csv" else None
            return rows and len(rows) - 1, plain.first_line_columns(content or b""), ("csv", "lines")
        case ".json" | ".jsonl":
            values = plain.json_values(content or b"")
            fields = [name for value in values or () if isinstance(value, dict) for name in value]
            return values and len(values), list(dict.fromkeys(fields)), ("jsonl", "files")
        case ".warc" | ".wet" | ".arc":
            return sum(one.is_document for one in plain.archive_records(content or b"")), (), ("warc",)
    return None, (), ("lines", "files", "warc")


def _counted_parquet(data: bytes) -> tuple[int | None, Sequence[str]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        schema = file.schema_arrow
    except (pyarrow.ArrowException, OSError):
        return None, ()
    is_text = {name: str(schema.field(name).type) in ("string", "binary", "large_string") for name in set(schema.names)}
    return file.metadata.num_rows, sorted(is_text, key=lambda name: not is_text[name])


def try_file(path: Path, shown: str, scratch: Path, tally: Tally) -> None:
    """Try a file in every way, and count the results."""
    tally.files += 1
    for trial in trials_of(path, scratch):
        ends = {command: run(_arguments(command, trial, scratch), scratch) for command in ("dedup", "ingest")}
        shutil.rmtree(scratch / "job", ignore_errors=True)
        what = f"{shown} {' '.join((*trial.made, *trial.options))}".rstrip()
        for command, ended in ends.items():
            tally.commands += 1
            tally.documents += ended.documents
            tally.rejects += len(ended.rejects)
            tally.refused += ended.code == MISUSED
            tally.slowest_s = max(tally.slowest_s, ended.cpu_s)
            if fault := fault_of(ended, trial):
                _found(tally, fault[0], f"{command} {what}: {fault[1]}")
        one, other = ends.values()
        if (one.code in READ_CODES) != (other.code in READ_CODES) or one.records != other.records:
            _found(tally, "disagreement", f"{what}: dedup {one.records} records, ingest {other.records}")
    if is_encoding_labels(path):
        for fault in label_faults(path, scratch):
            _found(tally, "verdict", f"{shown} {fault}")


def _found(tally: Tally, kind: str, fault: str) -> None:
    tally.faults[kind].append(fault)
    print(f"FAIL  {kind}: {fault:.600}", flush=True)


def _arguments(command: str, trial: Trial, scratch: Path) -> list[str]:
    shutil.rmtree(scratch / "job", ignore_errors=True)
    where = ["--out", str(scratch / "job")] if command == "dedup" else ["--store", f"lmdb://{scratch / 'job'}"]
    return [command, str(trial.path), *where, "--quiet", *trial.options]


def warm_up(scratch: Path) -> None:
    """Run both commands in this process once, so that everything is imported before the trials."""
    path = scratch / "warm.csv"
    path.write_text("id,text\n1,<!doctype html><html><p>some words for a page</p></html>\n")
    for command in ("dedup", "ingest"):
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            hsimhash(_arguments(command, Trial(path), scratch), prog_name="hsimhash", standalone_mode=False)
    for name in ("pyarrow.parquet", "fastwarc.warc"):
        import_module(name)


def try_folder(folder: Path, scratch: Path) -> Tally:
    """Try all files of a suite."""
    warm_up(scratch)
    tally = Tally()
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else [folder]
    for path in paths:
        with scratch_folder(scratch) as own:
            try_file(path, str(path.relative_to(folder.parent)), own, tally)
    return tally


def outcomes_of(tallies: dict[str, Tally]) -> Iterator[Outcome]:
    files = sum(one.files for one in tallies.values())
    commands = sum(one.commands for one in tallies.values())
    for kind in KINDS:
        count = sum(len(one.faults[kind]) for one in tallies.values())
        yield Outcome(not count, f"{kind}: {count} in {commands:,} commands on {files:,} files (= 0)")


def print_table(tallies: dict[str, Tally]) -> None:
    heads = ("files", "commands", "documents", "rejects", "refused", "slowest s", *KINDS)
    print(f"{'suite':32} {' '.join(f'{head:>12}' for head in heads)}")
    for name, one in tallies.items():
        counts = (one.files, one.commands, one.documents, one.rejects, one.refused)
        found = Counter({kind: len(faults) for kind, faults in one.faults.items()})
        shown = [*(f"{count:,}" for count in counts), f"{one.slowest_s:.1f}", *(str(found[kind]) for kind in KINDS)]
        print(f"{name:32.32} {' '.join(f'{text:>12}' for text in shown)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", metavar="FOLDER", type=Path, nargs="+", help="files of a test suite")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="for files that are deleted again")
    given = parser.parse_args()
    print_conditions(
        "foreign files", packages=("pyarrow", "fastwarc", "trafilatura"), suites=len(given.folders), cpu_s=CPU_S,
        memory_mib=MEMORY_BYTES >> 20, formats=len(FORMATS),
    )  # fmt: skip
    tallies = {}
    for folder in given.folders:
        with scratch_folder(given.scratch) as scratch:
            tallies[folder.name] = try_folder(folder, scratch)
    print_table(tallies)
    return print_outcomes(outcomes_of(tallies))


if __name__ == "__main__":
    sys.exit(main())
