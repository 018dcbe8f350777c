"""Fuzzed inputs: `python -m tests.stress.fuzz_inputs [--inputs 1000000]`.

Small files of every format are mutated, packed, encoded and put into folders, and then read. An input may only be
refused by an error with one of our messages. Reading an accepted input must not raise or take more than 5 s of CPU.
Documents and rejects together are the records that the plainest reading finds, with the same ids and texts. Resuming at
any position returns the same documents, and so does reading some lines again.

The seed and the number determine each input: `--only NUMBER` tries one again and keeps its file.
"""

from __future__ import annotations

import codecs
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import Signature
from hsimhash.inputs import Input, InputOptions, find_inputs
from hsimhash.inputs.reader import Batch, read_batches, texts_at
from hsimhash.processes import end_prepared
from tests.stress.fuzz_seeds import BINARY, JSON_FORMS, SUFFIXES, damaged, mutated, seed_of
from tests.stress.fuzz_truths import Content, Judgement, Question, Truth, truth_of
from tests.support import plain_readings as plain
from tests.support.archives import PACK
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

INPUTS, SEED = 1_000_000, 35
CPU_S, MEMORY_BYTES = 5, 2 << 30
PIPE_BYTES = 30_000  # fits into a pipe's buffer, even in UTF-16
MOST_FAULTS = 1_000  # after this many the program ends
SHOWN = 3  # faults printed per kind
SHARES = {
    **{"jsonl": 14, "array": 14, "objects": 8, "signatures": 8, "fragments": 3, "tsv": 8, "fingerprints": 8},
    **{"lines": 6, "text": 6, "csv": 16, "parquet": 4, "warc": 3, "wet": 3, "page": 1, "folder": 4, "stream": 3},
}
_SHARE_EXTRACTED = 0.02  # share of inputs whose texts are extracted from HTML
_SHARE_AGAIN = 0.2  # share of inputs that are resumed at some position, with some lines read again
_UNFORESEEN = re.compile(r"(?:unexpected )?(?!Arrow)[A-Z]\w*(?:Error|Exception)\b:")

_DAMAGED_ROWS = re.compile(
    r"rows [0-9,]+ to [0-9,]+ (?:are damaged|cannot be read)"
)  # pyarrow may read them, with different values
_PARTICULAR = re.compile(r"[0-9]+|/\S+|['\"{(].*")  # specific to one input, not to a kind of fault

Found = dict[tuple[int, int], list[Content | Judgement]]  # by input and line


@dataclass(frozen=True, slots=True)
class Made:
    """A fuzzed file."""

    name: str
    data: bytes
    form: str
    content: bytes | None  # unpacked and in UTF-8; None if it is damaged

    def question(self, label: str, *, needs_id: bool, in_folder: bool) -> Question | None:
        if self.content is None:
            return None
        return Question(self.form, self.content, label, needs_id=needs_id, in_folder=in_folder)


def make_file(form: str, rng: random.Random, stem: str = "in") -> Made:
    """Make a file of a form, perhaps in UTF-16, perhaps packed, and perhaps then damaged."""
    data: bytes | None = mutated(seed_of(form, rng), form, rng)
    assert data is not None
    written, content = data, data
    if form not in BINARY and form != "page":
        written, content = _encoded(data, rng)
    packing = rng.choices(["", ".gz", ".zst"], [8, 1, 1])[0] if form != "parquet" else ""
    packed = PACK[packing](written)
    if packing and rng.random() < 0.3:
        packed = damaged(packed, rng)
        content = content if plain.unpacked(packed, packing) == written else None
    return Made(f"{stem}{SUFFIXES[form]}{packing}", packed, form, content)


def _encoded(data: bytes, rng: random.Random) -> tuple[bytes, bytes | None]:
    """Return a text's bytes in some encoding, and what must be read; None if its first bytes are ambiguous."""
    if b"\0" in data[:4] or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data, None
    if rng.random() < 0.1 and not data.startswith(codecs.BOM_UTF8):
        with suppress(UnicodeDecodeError):
            encoding, mark = rng.choice([("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")])
            return mark + data.decode().encode(encoding), data
    return data, data


# What is found.


def reading_of(form: str, rng: random.Random) -> InputOptions:
    """Return options for reading a form; they rarely extract, which takes a hundred times as long."""
    id_field, extract = rng.choice([None, None, "id"]), "auto" if rng.random() < _SHARE_EXTRACTED else "text"
    match form:
        case "signatures":
            return InputOptions(id_field=id_field, fingerprint_field="fingerprint", fingerprint_format="hex")
        case "fingerprints":
            return InputOptions(format="fingerprints", fingerprint_format="hex")
        case "tsv" | "lines":
            return InputOptions(format=form, extract=extract)
        case "page" | "warc" | "wet" | "text":
            return InputOptions(extract=rng.choice([extract, "none", "html"]) if extract == "auto" else extract)
    return InputOptions(id_field=id_field, extract=extract)


def found_in(batches: Sequence[Batch], inputs: Sequence[Input]) -> Found:
    """Return what was read; for a file in a folder, the line is its position among the folder's files."""
    found: Found = {}
    texts = [one.documents_in() if one.kind == "files" else () for one in inputs]
    numbers = [{path: number for number, (_, path) in enumerate(pairs, start=1)} for pairs in texts]
    for batch in batches:
        documents = batch.documents
        pages = documents.is_page or [False] * len(documents.doc_ids)
        values: Sequence[str | Signature] = documents.texts or list(documents.signatures)
        for line, doc_id, value, is_page in zip(documents.lines, documents.doc_ids, values, pages, strict=True):
            content: Content | Judgement = Judgement.DOCUMENT if is_page else (doc_id, value)
            found.setdefault((batch.input, line), []).append(content)
        for reject in documents.rejects:
            line = numbers[batch.input].get(reject.path, reject.line)
            found.setdefault((batch.input, line), []).append(Judgement.REJECT)
    return found


def compared(number: int, truth: Truth, found: Found, *, is_whole: bool, extract: str = "text") -> Iterator[str]:
    """Yield each difference between what was read and the plainest reading.

    `is_whole`: whether `truth` has all records. `extract`: how the input was read; extraction from HTML changes texts.
    """
    lines = {line: one for (place, line), one in found.items() if place == number}
    for line, wanted in truth:
        given = lines.pop(line, [])
        if len(given) != 1:
            yield f"record {line} came {len(given)} times"
        elif not _fits(wanted, given[0], extract):
            yield f"record {line} is {given[0]!r:.200} instead of {wanted!r:.200}"
    if is_whole and lines:
        yield f"records came that are not there: {lines!r:.200}"


def _fits(wanted: Content | Judgement, given: Content | Judgement, extract: str) -> bool:
    if wanted == Judgement.EITHER or wanted == given:
        return True
    if given == Judgement.DOCUMENT and extract != "text":
        return True  # a page is decoded by its charset, while a text must be UTF-8
    if extract == "text" or isinstance(wanted, Judgement) or not isinstance(wanted[1], str):
        return False
    is_same = isinstance(given, tuple) and given[0] == wanted[0]
    return is_same and (extract == "html" or any(mark in wanted[1] for mark in "<&"))


# Checks.


@dataclass
class Checked:
    """An input that is read in every way."""

    path: Path
    files: Sequence[Made]
    reading: InputOptions
    rng: random.Random
    inputs: Sequence[Input] = ()
    refused: str = ""
    batches: list[Batch] = field(default_factory=list)

    def faults(self) -> Iterator[str]:
        """Read the input; yield what is wrong."""
        try:
            self.inputs = find_inputs([str(self.path)], self.reading)
        except (ValueError, HsimhashError) as error:
            self.refused = str(error)
        if self.refused:
            yield from self._refusal()
            return
        block_bytes = self.rng.choice([1, 16, 64, 1_000, 256 << 10])
        try:
            for batch in read_batches(self.inputs, self.reading, workers=1, block_bytes=block_bytes):
                self.batches.append(batch)
        except ValueError as error:
            is_late = any(len(batch.documents.doc_ids) for batch in self.batches)
            if is_late or not self.inputs[0].is_stream or "no field" not in str(error):
                yield f"read_batches raised {error!r}"
            self.refused = str(error)
            return
        yield from (f"unforeseen: {reason}" for reason in self.reasons() if _UNFORESEEN.match(reason) or not reason)
        found = found_in(self.batches, self.inputs)
        for number, truth, is_whole in self._truths():
            yield from compared(number, truth, found, is_whole=is_whole, extract=self.reading.extract)
        if self.rng.random() < _SHARE_AGAIN and not self.inputs[0].is_stream:
            yield from self._again(block_bytes, found)

    def reasons(self) -> list[str]:
        """Return why records were rejected."""
        return [reject.reason for batch in self.batches for reject in batch.documents.rejects]

    def _refusal(self) -> Iterator[str]:
        """Yield a fault if an input was refused although its first records are documents."""
        if _UNFORESEEN.match(self.refused) or not self.refused.strip():
            yield f"refused with {self.refused!r}"
        if len(self.files) == 1 and self.files[0].form not in ("text", "page", "csv"):
            one = self.files[0]
            question = one.question(str(self.path), needs_id=self.reading.id_field is not None, in_folder=False)
            truth = truth_of(question) if question else None
            if truth and any(isinstance(content, tuple) for _, content in truth[:16]):
                yield f"refused although it has documents: {self.refused}"

    def _truths(self) -> Iterator[tuple[int, Truth, bool]]:
        """Yield each input's number, what its records must be, and whether those are all of its records."""
        by_path = {str(self.path / one.name) if self.path.is_dir() else str(self.path): one for one in self.files}
        for number, one in enumerate(self.inputs):
            if one.kind == "files" and self.path.is_dir():
                yield number, self._texts(one), True
                continue
            made = by_path[one.name]
            question = made.question(
                one.label, needs_id=self.reading.id_field is not None, in_folder=self.path.is_dir()
            )
            if one.problem or question is None or (made.form == "tsv" and one.has_fingerprints):
                continue
            truth = truth_of(question)
            is_told = made.form == "parquet" and any(_DAMAGED_ROWS.match(reason) for reason in self.reasons())
            if truth is not None and not is_told:
                yield number, truth, made.form not in ("warc", "wet")

    def _texts(self, one: Input) -> Truth:
        truth = Truth()
        files = sorted(
            (file for file in self.files if file.form in ("text", "page", "lines")), key=lambda file: file.name
        )
        for number, file in enumerate(files, start=1):
            question = file.question(file.name, needs_id=False, in_folder=True)
            form = truth_of(question) if question and file.form == "text" else None
            truth.append((number, form[0][1] if form else Judgement.EITHER))
        return truth

    def _again(self, block_bytes: int, found: Found) -> Iterator[str]:
        at = self.rng.randrange(len(self.batches))
        rest = list(read_batches(self.inputs, self.reading, self.batches[at].end, workers=1, block_bytes=block_bytes))
        one, other = found_in(self.batches[at + 1 :], self.inputs), found_in(rest, self.inputs)
        if one != other:
            different = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))[:3]
            shown = {key: (one.get(key), other.get(key)) for key in different}
            yield f"reading on from {self.batches[at].end} gave other records: {shown!r:.400}"
        for number, read in enumerate(self.inputs):
            wanted = {
                line: contents[0]
                for (place, line), contents in found.items()
                if place == number and isinstance(contents[0], tuple) and isinstance(contents[0][1], str)
            }
            looked = (
                {line: (doc_id, text) for line, doc_id, text in texts_at(read, self.reading, sorted(wanted))}
                if wanted
                else {}
            )
            if looked != wanted:
                yield f"a second look at {read.label} saw other texts: {looked!r:.200} instead of {wanted!r:.200}"


def prepare(seed: int, number: int, folder: Path) -> Checked:
    """Make the input with a number."""
    rng = random.Random(f"{seed} {number}")
    form = rng.choices(list(SHARES), list(SHARES.values()))[0]
    if form == "stream":
        return _stream(rng)
    if form != "folder":
        made = make_file(form, rng)
        path = folder / made.name
        path.write_bytes(made.data)
        return Checked(path, [made], reading_of(form, rng), rng)
    whole = folder / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    forms = rng.choices(
        [*JSON_FORMS[:3], "tsv", "csv", "text", "lines", "page", "warc"], [3] * 3 + [1, 2, 4, 2, 0.5, 0.5], k=3
    )
    files = [make_file(one, rng, f"part-{place}") for place, one in enumerate(forms)]
    for made in files:
        (whole / made.name).write_bytes(made.data)
    return Checked(whole, files, reading_of("jsonl", rng), rng)


def _stream(rng: random.Random) -> Checked:
    """Make a pipe that contains JSON; `try_one` closes it."""
    data = mutated(seed_of(rng.choice(JSON_FORMS[:3]), rng), "jsonl", rng)[:PIPE_BYTES]
    written, content = _encoded(data, rng)
    reading, writing = os.pipe()
    os.write(writing, written)
    os.close(writing)
    return Checked(Path(f"/dev/fd/{reading}"), [Made("pipe", written, "jsonl", content)], reading_of("jsonl", rng), rng)


def try_one(seed: int, number: int, folder: Path, counts: Counter[str]) -> list[str]:
    """Try one input; return what is wrong."""
    one = prepare(seed, number, folder)
    what = "folder" if one.path.is_dir() else "stream" if one.files[0].name == "pipe" else one.files[0].form
    try:
        found = list(one.faults())
    except Exception as error:  # any is a fault
        place = error.__traceback__
        while place and place.tb_next:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else "?"
        found = [f"raised {type(error).__name__} at {where}: {error}"]
    counts[f"{what}"] += 1
    counts["refused"] += bool(one.refused)
    counts["documents"] += sum(len(batch.documents.doc_ids) for batch in one.batches)
    counts["rejects"] += sum(len(batch.documents.rejects) for batch in one.batches)
    if what == "stream":
        os.close(int(one.path.name))
    elif what != "folder":
        one.path.unlink()
    return [f"{what}: {fault}" for fault in found]


# Workers.


def work(seed: int, numbers: range, at: Any, folder: Path) -> None:
    """Try inputs one after the other; note what is wrong with each."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the signal ends the process, even inside a regular expression
    counts: Counter[str] = Counter()
    with (folder / "faults").open("a") as told:
        for number in numbers:
            at.value = number
            signal.setitimer(signal.ITIMER_PROF, CPU_S)
            for fault in try_one(seed, number, folder, counts):
                told.write(json.dumps([number, fault]) + "\n")
                told.flush()
            if number % 1_000 < numbers.step or number + numbers.step >= numbers.stop:
                (folder / f"counts-{os.getpid()}").write_text(json.dumps(counts))
    signal.setitimer(signal.ITIMER_PROF, 0)
    end_prepared()  # their CPU time counts too


@dataclass
class Worker:
    """A process and the inputs that it still has to try; it is restarted after an input that ends it."""

    seed: int
    numbers: range
    folder: Path
    at: Any = field(default_factory=lambda: multiprocessing.get_context("fork").Value("q", 0, lock=False))
    process: Any = None

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        given = (self.seed, self.numbers, self.at, self.folder)
        self.process = multiprocessing.get_context("fork").Process(target=work, args=given)
        self.process.start()

    def ended(self) -> str:
        """Return why the process ended before its last input, and skip the input that ended it; empty if it is done."""
        self.process.join()
        code = self.process.exitcode
        if code == 0:
            return ""
        self.numbers = range(self.at.value + self.numbers.step, self.numbers.stop, self.numbers.step)
        kind = f"more than {CPU_S} s of CPU" if code == -signal.SIGPROF else f"the process ended with {code}"
        (self.folder / "faults").open("a").write(json.dumps([self.at.value, kind]) + "\n")
        return kind

    def faults(self) -> list[tuple[int, str]]:
        with suppress(FileNotFoundError):
            return [tuple(json.loads(line)) for line in (self.folder / "faults").read_text().splitlines()]
        return []


def run(inputs: int, seed: int, folder: Path, show: Callable[[int, str], None]) -> Counter[str]:
    """Try that many inputs in one process per core; return counts."""
    count = os.cpu_count() or 1
    workers = [Worker(seed, range(first, inputs, count), folder / str(first)) for first in range(count)]
    running, shown = list(workers), set[tuple[int, str]]()
    for one in running:
        one.start()
    while running:
        wait([one.process.sentinel for one in running], timeout=1.0)
        for one in [one for one in running if not one.process.is_alive()]:
            if one.ended() and len(shown) < MOST_FAULTS:
                one.start()
            else:
                running.remove(one)
        for fault in sorted({fault for one in workers for fault in one.faults()} - shown):
            shown.add(fault)
            show(*fault)
        if len(shown) >= MOST_FAULTS:
            for one in running:
                one.process.kill()
                one.process.join()
            break
    counts = sum((Counter(json.loads(path.read_text())) for path in folder.glob("*/counts-*")), Counter[str]())
    counts["faults"] = len(shown)
    return counts


def try_only(seed: int, number: int, folder: Path) -> int:
    """Try one input again, and keep its file."""
    folder.mkdir(parents=True, exist_ok=True)
    one = prepare(seed, number, folder)
    print(f"input {number} with seed {seed}: {one.path}\nread with {one.reading}", flush=True)
    faults = list(one.faults())
    print("refused: " + one.refused if one.refused else f"{len(one.batches)} batches")
    return print_outcomes([Outcome(False, fault) for fault in faults] or [Outcome(True, "nothing is wrong")])


def main() -> int:
    given = options(
        __doc__,
        inputs=(INPUTS, "how many to try"),
        seed=(SEED, "of the inputs"),
        only=(-1, "the number of one input to try again; its file stays in the scratch folder"),
    )
    if given.only >= 0:
        return try_only(given.seed, given.only, given.scratch)
    print_conditions("fuzzed inputs", packages=("pyarrow", "fastwarc"), inputs=given.inputs, seed=given.seed)

    kinds = Counter[str]()

    def show(number: int, fault: str) -> None:
        kind = _PARTICULAR.sub("", fault)[:80]
        kinds[kind] += 1
        if kinds[kind] <= SHOWN:
            print(f"FAIL  --seed {given.seed} --only {number}: {fault:.600}", flush=True)

    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    with scratch_folder(given.scratch) as folder:
        counts = run(given.inputs, given.seed, folder, show)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime
    tried = sum(counts[form] for form in SHARES)
    for kind, count in kinds.items():
        print(f"{count:6,} faults such as: {kind}")
    print(", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))
    print(f"{cpu_s:,.0f} s of CPU, {tried / max(cpu_s, 0.01):,.0f} inputs per second of CPU")
    return print_outcomes(
        [Outcome(not counts["faults"], f"{given.inputs:,} fuzzed inputs: {counts['faults']} faults (= 0)")]
    )


if __name__ == "__main__":
    sys.exit(main())
