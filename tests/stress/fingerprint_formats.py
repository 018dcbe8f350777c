"""Fingerprints in every way to write them: `python -m tests.stress.fingerprint_formats [--fingerprints 1000000]`.

Each way is a file of random fingerprints. Then come small files and streams with values that were chosen to be
ambiguous: 16 digits and no letter, in hexadecimal or in decimal. A value may be refused, with its file or alone as a
bad record; none may be read as another number. Of the large files none may be refused at all.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.batch import Position
from hsimhash.inputs.records import DocumentReader
from tests.bench.conditions import add_scratch_option, print_conditions, scratch_folder

SEED = 12
FINGERPRINTS = 1_000_000  # of each way to write them
SMALL_INPUTS = 4_000  # files and streams of a few ambiguous values
BLOCK_BYTES = 256 << 10
WAYS: dict[str, Callable[[int], str]] = {
    "hex": "{:016x}".format,
    "capitals": "{:016X}".format,
    "0x": hex,
    "decimal": str,
    "signed": lambda value: str(signed(value)),
}
FORMS: dict[str, Callable[[int, str], str]] = {
    "tsv": lambda number, word: f"{number}\t{word}\n",
    "strings": lambda number, word: f'{{"id": {number}, "fingerprint": "{word}"}}\n',
    "numbers": lambda number, word: f'{{"id": {number}, "fingerprint": {word}}}\n',
}


@dataclass(slots=True)
class Tally:
    """How many values were read right, refused, read wrong."""

    right: int = 0
    refused: int = 0
    wrong: int = 0

    def add(self, other: Tally) -> None:
        self.right += other.right
        self.refused += other.refused
        self.wrong += other.wrong

    def __str__(self) -> str:
        return f"{self.right:11,} right {self.refused:9,} refused {self.wrong:4,} wrong"


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def cases() -> Iterator[tuple[str, str]]:
    """Yield each form with each way that it has."""
    for form in FORMS:
        yield from ((form, way) for way in WAYS if form != "numbers" or way in ("decimal", "signed"))


def lines(form: str, way: str, values: Sequence[int]) -> str:
    line, word = FORMS[form], WAYS[way]
    return "".join(line(number, word(value)) for number, value in enumerate(values))


def read(name: str, form: str, values: Sequence[int], block_bytes: int = BLOCK_BYTES) -> Tally:
    """Read a file or a stream, and compare with what was written."""
    options = InputOptions("jsonl" if form != "tsv" else "fingerprints", fingerprint_field="fingerprint")
    try:
        inputs = find_inputs([name], options)
    except ValueError:
        return Tally(refused=len(values))
    truth, tally = np.array(values, np.uint64), Tally()
    for batch in DocumentReader(inputs, options, lambda: False, block_bytes).batches(Position()):
        documents = batch.documents
        right = int(np.count_nonzero(truth[list(map(int, documents.doc_ids))] == documents.fingerprints))
        tally.add(Tally(right, len(documents.rejects), len(documents.doc_ids) - right))
    lost = len(values) - tally.right - tally.refused - tally.wrong
    return Tally(tally.right, tally.refused, tally.wrong + lost)


def ambiguous(rng: random.Random) -> int:
    """Return a value that has 16 digits and no letter, in hexadecimal or in decimal; now and then any other."""
    kind = rng.choice(["hex", "hex", "decimal", "decimal", "any"])
    if kind == "any":
        return rng.getrandbits(64)
    number = str(rng.randrange(10**15, 10**16))
    return int(number, 16 if kind == "hex" else 10)


def small_inputs(folder: Path, form: str, way: str, count: int, rng: random.Random) -> Tally:
    """Read small files and streams; streams come in blocks that cut them anywhere."""
    tally = Tally()
    for number in range(count):
        values = [ambiguous(rng) for _ in range(rng.choice([1, 1, 2, 3, 20]))]
        text = lines(form, way, values).encode()
        if number % 2:
            path = folder / f"small.{'tsv' if form == 'tsv' else 'jsonl'}"
            path.write_bytes(text)
            tally.add(read(str(path), form, values))
        else:
            reading, writing = os.pipe()
            os.write(writing, text)
            os.close(writing)
            tally.add(read(f"/dev/fd/{reading}", form, values, rng.choice([10, 60, 1_000])))
            os.close(reading)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fingerprints", type=int, default=FINGERPRINTS, help="of each way to write them")
    parser.add_argument("--small", type=int, default=SMALL_INPUTS, help="small files and streams")
    parser.add_argument("--seed", type=int, default=SEED)
    add_scratch_option(parser)
    arguments = parser.parse_args()
    print_conditions("fingerprints as they are written", fingerprints=arguments.fingerprints, seed=arguments.seed)
    rng = random.Random(arguments.seed)
    values = [rng.getrandbits(64) for _ in range(arguments.fingerprints)]
    large, small = Tally(), Tally()
    with scratch_folder(arguments.scratch) as folder:
        for form, way in cases():
            path = folder / f"{form}-{way}.{'tsv' if form == 'tsv' else 'jsonl'}"
            path.write_text(lines(form, way, values), encoding="ascii")
            tally = read(str(path), form, values)
            path.unlink()
            print(f"{form:8} {way:9} {tally}")
            large.add(tally)
            small.add(small_inputs(folder, form, way, arguments.small // len(list(cases())), rng))
    print(f"small inputs       {small}")
    is_right = not large.refused and not large.wrong and not small.wrong
    wrong = large.refused + large.wrong + small.wrong
    print(f"{'PASS' if is_right else 'FAIL'}  {large.right + small.right:,} fingerprints: {wrong} read wrong (= 0)")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
