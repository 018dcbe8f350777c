"""Exact answers on a real HBase, and regions of similar size: `python -m tests.stress.hbase_exactness`.

Queries are made as in `exactness.py`, by fingerprint and by signature, single and in batches, through Thrift2; fewer of
them through Thrift1. Then tables with sixteen regions are filled with the fingerprints of pieces of real texts, and the
rows of each region are counted on the server.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsimhash import HSimIndex, Layout
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.features import TOO_SHORT
from hsimhash.rowkey import encode, splits
from hsimhash.store.base import Store
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.urls import with_options
from tests.stress.exactness import SEED, Given, Way, check_all_signatures, check_layout, profile_of
from tests.support.command_line import PROGRAM
from tests.support.fingerprint_sets import Numbers, read_documents
from tests.support.hbase_server import Gateways, serving
from tests.support.hbase_tables import new_table, table_url, thrift1_url
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder, seconds

LAYOUTS = ("4", "10", "20", "20,44/1", "32,32/2")
STORED, QUERIES, THRIFT1_SHARE = 200_000, 2_000, 0.1
MOST_BATCH_S = 60  # estimated by prices; fewer queries are run if they read over 2,500 buckets
SIGNED, SIGNED_QUERIES = 50_000, 2_000
WRITERS, BATCH = 2, 1_000

PROFILE, REGIONS_LAYOUT = "auto-1", "10"
REGIONS, SAMPLE = 16, 5_000
PIECES, PIECE_CHARACTERS = 100_000, 250
UNIFORM_BAR, SAMPLED_BAR = 2.2, 1.25  # limits for the fullest region's rows, relative to the mean
COUNTED_ROWS = 10_000  # rows counted per call


@contextmanager
def filled(server: Gateways, layout: str, fingerprints: Given, *options: object) -> Iterator[str]:
    """Make a table with sixteen regions, fill it, and yield its name. Each document's id is its position."""
    with new_table(server) as name:
        url = table_url(server, name)
        create = ["create-table", "--store", url, "--layout", layout, "--profile", profile_of(fingerprints)]
        create += ["--regions", str(REGIONS)]
        subprocess.run([*PROGRAM, *map(str, [*create, *options])], check=True, capture_output=True)
        with HSimIndex.open(with_options(url, {"exclusive": "yes"})) as index, ThreadPoolExecutor(WRITERS) as pool:

            def add(start: int) -> None:
                part = fingerprints[start : start + BATCH]
                index.add_many(part, [str(number) for number in range(start, start + len(part))], first_seen=0)

            took_s = seconds(lambda: list(pool.map(add, range(0, len(fingerprints), BATCH))))
        print(f"{len(fingerprints):,} documents in layout {layout}: {took_s:.0f} s", flush=True)
        yield name


@contextmanager
def both_gateways(
    server: Gateways, layout: str, fingerprints: Given, *, thrift1_share: float = THRIFT1_SHARE
) -> Iterator[list[Way]]:
    """Yield an index on HBase through Thrift2 and, for fewer queries, through Thrift1."""
    with (
        filled(server, layout, fingerprints) as table,
        HSimIndex.open(table_url(server, table)) as two,
        HSimIndex.open(thrift1_url(server, table)) as one,
    ):
        yield [("Thrift2", two, 1.0), ("Thrift1", one, thrift1_share)]


# Regions.


def pieces(data: Path) -> list[str]:
    """Return the pieces of the labelled texts, each once."""
    documents = (document for path in sorted(data.glob("*/*docs.jsonl.gz")) for document in read_documents(path))
    return list(
        dict.fromkeys(
            document["text"][start : start + PIECE_CHARACTERS]
            for document in documents
            for start in range(0, len(document["text"]), PIECE_CHARACTERS)
        )
    )


def real_fingerprints(data: Path, count: int) -> Numbers:
    """Return up to `count` distinct fingerprints of pieces, drawn from all texts, in random order."""
    texts = pieces(data)
    rng = np.random.default_rng(SEED)
    found = Profile.named(PROFILE).fingerprints([texts[place] for place in rng.permutation(len(texts))[: 2 * count]])
    distinct = np.unique(found.values[found.kinds != TOO_SHORT])
    return rng.permutation(distinct)[:count]


def rows_by_region(layout: Layout, fingerprints: Numbers, cuts: Sequence[bytes]) -> NDArray[np.int64]:
    """Return how many drawer rows each region gets."""
    segments = np.ascontiguousarray(encode(layout, fingerprints)[:, :, :4]).view(">u4").ravel()
    borders = np.array([int.from_bytes(cut, "big") for cut in cuts], np.uint64)
    return np.bincount(np.searchsorted(borders, segments, side="right"), minlength=len(cuts) + 1)


def counted_by_region(store: Store) -> NDArray[np.int64]:
    """Return how many drawer rows each region of a table has."""
    assert isinstance(store, HBaseStore)
    counts = []
    for region in store.gateway.regions():
        count, start = 0, region.start
        while rows := store.gateway.rows(start, region.stop or b"\xff" * 14, DRAWER_FAMILY, limit=COUNTED_ROWS):
            count, start = count + len(rows), rows[-1][0].row + b"\x00"
        counts.append(count)
    return np.array(counts)


def check_regions(server: Gateways, fingerprints: Numbers, *, sample: Numbers | None, scratch: Path) -> Outcome:
    """Fill a table; judge whether the fullest region meets its bar and the server's counts equal the computed ones."""
    given: list[object] = []
    if sample is not None:
        path = scratch / "sample.txt"
        path.write_text("".join(f"{value:016x}\n" for value in sample.tolist()))
        given = ["--splits-from", path]
    layout = Layout.named(REGIONS_LAYOUT)
    expected = rows_by_region(layout, fingerprints, splits(layout, REGIONS, sample=sample))
    with (
        filled(server, REGIONS_LAYOUT, fingerprints, *given) as table,
        HSimIndex.open(table_url(server, table)) as index,
    ):
        found = counted_by_region(index.store)
    fullest, bar = found.max() / found.mean(), UNIFORM_BAR if sample is None else SAMPLED_BAR
    differing = int((found != expected).sum()) if len(found) == len(expected) else len(found)
    return Outcome(
        bool(fullest <= bar and not differing),
        f"{len(found)} regions, {'uniform splits' if sample is None else f'splits from a sample of {len(sample):,}'}, "
        f"{len(fingerprints):,} fingerprints: the fullest has {fullest:.2f} × the mean (≤ {bar}), the emptiest "
        f"{found.min() / found.mean():.2f}; {differing} have other rows than computed",
    )


def check_real_regions(server: Gateways, data: Path, scratch: Path, *, count: int = PIECES) -> list[Outcome]:
    """Fill tables with the fingerprints of real texts, with regions split without and with a sample of them."""
    fingerprints = real_fingerprints(data, count)
    drawn = np.random.default_rng(SEED).choice(fingerprints, min(SAMPLE, count // 4), replace=False)
    return [check_regions(server, fingerprints, sample=sample, scratch=scratch) for sample in (None, drawn)]


def outcomes(server: Gateways, data: Path | None, scratch: Path) -> Iterator[Outcome]:
    for name in LAYOUTS:
        filled_both = partial(both_gateways, server)
        yield from check_layout(name, filled_both, STORED, QUERIES, most_batch_s=MOST_BATCH_S)
    yield from check_all_signatures(partial(both_gateways, server), SIGNED, SIGNED_QUERIES)
    if data is None:
        print("SKIP  regions: no labelled data; set HSIMHASH_DATA or give --data")
    else:
        yield from check_real_regions(server, data, scratch)


def main() -> int:
    given = options(__doc__, has_data=True)
    print_conditions("exactness on HBase", packages=["thriftpy2"], seed=SEED, stored=STORED, queries=QUERIES)
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase") as server:
        return print_outcomes(outcomes(server.gateways, given.data, folder))


if __name__ == "__main__":
    sys.exit(main())
