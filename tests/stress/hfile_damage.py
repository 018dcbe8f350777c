"""Damaged HFiles: `python -m tests.stress.hfile_damage [--trials 10000]`.

Every trial truncates a file, flips bits of it, or overwrites, moves or repeats a part of it, and then reads the file.
The reader must either return all cells unchanged, because some bytes do not matter, or return those up to some point
and then raise `CorruptionError` with the file and an offset. Files: our writer's, plain and FAST_DIFF, with leaves of
the index; and one that HBase 2.6 flushed, with its checksums, write numbers and delete markers
(`tests/data/flushed.hfile`).
"""

from __future__ import annotations

import io
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from hsimhash.errors import CorruptionError
from hsimhash.hfile import BloomFilter, FileSettings, HFileWriter, KeyValue
from hsimhash.hfile.blocks import TRAILER_BYTES
from hsimhash.hfile.cells import Encoding
from tests.support.hfile_reader import HFile
from tests.support.programs import Outcome, options, print_conditions, print_outcomes

SEED, TRIALS = 7, 10_000
FLUSHED = Path(__file__).parents[1] / "data" / "flushed.hfile"
CELLS = 150
TRAILER_USED = 150  # approximate number of bytes in the trailer that are not zero
PAGE = 512


def written(encoding: Encoding, draw: random.Random) -> bytes:
    """Return a file from our writer, with several blocks, leaves and a Bloom filter."""
    cells = sorted(
        {(draw.randbytes(13), b"https://example.org/" + draw.randbytes(draw.randrange(20))) for _ in range(CELLS)}
    )
    stream = io.BytesIO()
    file = HFileWriter(stream, b"d", FileSettings(encoding, BloomFilter(), block_bytes=1_024, index_bytes=200))
    file.append_cells(
        [KeyValue(row, name, draw.choice([5, 1 << 40]), draw.randbytes(draw.choice([0, 36]))) for row, name in cells]
    )
    file.finish()
    return stream.getvalue()


def cut(data: bytearray, draw: random.Random) -> None:
    """Truncate the file."""
    del data[draw.randrange(len(data)) :]


def flip(data: bytearray, draw: random.Random) -> None:
    """Flip one bit, often in the trailer, which does not have a checksum."""
    at = draw.randrange(len(data)) if draw.randrange(2) else len(data) - TRAILER_BYTES + draw.randrange(TRAILER_USED)
    data[at] ^= 1 << draw.randrange(8)


def flip_several(data: bytearray, draw: random.Random) -> None:
    """Flip up to eight bits near each other."""
    at = draw.randrange(len(data))
    for _ in range(draw.randrange(2, 9)):
        data[min(at + draw.randrange(64), len(data) - 1)] ^= 1 << draw.randrange(8)


def overwrite(data: bytearray, draw: random.Random) -> None:
    """Overwrite a part with zeros or random bytes."""
    at, size = draw.randrange(len(data)), draw.randrange(1, PAGE)
    part = data[at : at + size]
    data[at : at + size] = bytes(len(part)) if draw.randrange(2) else draw.randbytes(len(part))


def move(data: bytearray, draw: random.Random) -> None:
    """Swap two pages, drop one, or repeat one."""
    one, other = (PAGE * draw.randrange(len(data) // PAGE) for _ in range(2))
    kind = draw.randrange(3)
    if kind == 0:
        data[one : one + PAGE], data[other : other + PAGE] = data[other : other + PAGE], data[one : one + PAGE]
    elif kind == 1:
        del data[one : one + PAGE]
    else:
        data[one:one] = data[one : one + PAGE]


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (cut, flip, flip_several, overwrite, move)


def read(data: bytes) -> tuple[list[KeyValue], str | None]:
    """Return the cells of a file, and the error message if it is damaged."""
    cells = list[KeyValue]()
    try:
        with HFile("the file", io.BytesIO(data)) as file:
            for cell in file.cells():
                cells.append(cell)
    except CorruptionError as error:
        return cells, str(error)
    return cells, None


def verdict(data: bytes, right: Sequence[KeyValue]) -> str:
    """Return "told" or "as it was"; otherwise what went wrong while a damaged file was read."""
    try:
        cells, said = read(data)
    except Exception as error:  # any other exception is a fault
        return f"{type(error).__name__}: {error}"
    if said is None:
        is_right = cells == right
        return "as it was" if is_right else f"{len(cells)} cells came, of them {len(set(cells) - set(right))} others"
    if not said.startswith("the file: at byte "):
        return f"no file and offset: {said}"
    return "told" if cells == right[: len(cells)] else f"wrong cells before: {said}"


def run(trials: int, seed: int) -> list[Outcome]:
    """Run that many trials over all kinds of files; return the outcome for each kind."""
    draw, outcomes = random.Random(seed), list[Outcome]()
    files = {"ours, NONE": written("NONE", draw), "ours, FAST_DIFF": written("FAST_DIFF", draw)}
    files["HBase's"] = FLUSHED.read_bytes()
    for number, (name, data) in enumerate(files.items()):
        right, _ = read(data)
        found = Counter[str]()
        for trial in range(number, trials, len(files)):
            damage = DAMAGES[trial // len(files) % len(DAMAGES)]
            damaged = bytearray(data)
            damage(damaged, draw)
            said = verdict(bytes(damaged), right)
            found[said if said in ("told", "as it was") else f"{damage.__name__}: {said}"] += 1
        good = found.pop("told", 0), found.pop("as it was", 0)  # many bytes of the trailer do not matter
        text = f"{name}, {len(right)} cells, {len(data):,} bytes: damage was told {good[0]:,} times"
        shown = "".join(f"\n      {one}" for one in islice(found, 5))
        outcomes.append(
            Outcome(
                not found and good[0] > good[1], f"{text}, harmless {good[1]:,} times, {found.total()} faults{shown}"
            )
        )
    return outcomes


def main() -> int:
    given = options(__doc__, trials=(TRIALS, "how many files to damage"), seed=(SEED, "of the files and the damage"))
    print_conditions("damaged HFiles", packages=("google-crc32c",), seed=given.seed, trials=given.trials)
    return print_outcomes(run(given.trials, given.seed))


if __name__ == "__main__":
    sys.exit(main())
