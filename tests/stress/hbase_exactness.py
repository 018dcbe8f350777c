"""No match missed, none invented, on a real HBase; and regions of like size: `python -m tests.stress.hbase_exactness`.

Queries lie as in `exactness.py`, single and in batches, through Thrift2; fewer of them through Thrift1. Then tables of
sixteen regions are filled with the fingerprints of real texts, cut into pieces; the rows of each region are counted
on the server.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsimhash import HSimIndex, Layout
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.features import TOO_SHORT
from hsimhash.rowkey import encode, splits
from hsimhash.store.base import Store
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.gateway import DRAWER_FAMILY
from hsimhash.store.hbase.operations import open_gateway, open_hbase_store
from hsimhash.store.hbase.store import HBaseStore
from tests.bench.conditions import add_data_option, add_scratch_option, print_conditions, scratch_folder
from tests.stress.exactness import (
    SEED,
    Outcome,
    answered,
    brute_force,
    compared,
    misplaced,
    planted,
    print_outcome,
    stored_fingerprints,
)
from tests.support.command_line import PROGRAM
from tests.support.fingerprint_sets import Numbers
from tests.support.hbase_server import Gateways, serving

LAYOUTS = ("4", "10", "20")
STORED, QUERIES, THRIFT1_QUERIES = 200_000, 2_000, 200
WRITERS, BATCH = 2, 1_000
PATIENCE = "timeout=60s&deadline=180s"

PROFILE, REGIONS_LAYOUT = "auto-1", "10"
REGIONS, SAMPLE = 16, 5_000
PIECES, PIECE_CHARACTERS = 100_000, 250
UNIFORM_BAR, SAMPLED_BAR = 2.2, 1.25  # fullest region, in means
COUNTED_ROWS = 10_000  # by one call


@contextmanager
def filled(server: Gateways, layout: str, fingerprints: Numbers, *options: object) -> Iterator[str]:
    """Make a table of sixteen regions and fill it; give its name. Documents' ids are the fingerprints' positions."""
    name = f"exactness-{uuid.uuid4().hex}"
    url = f"hbase://{server.host}:{server.thrift2_port}/{name}?{PATIENCE}"
    create = ["create-table", "--store", url, "--layout", layout, "--profile", PROFILE, "--regions", REGIONS, *options]
    subprocess.run([*PROGRAM, *map(str, create)], check=True, capture_output=True)
    with open_hbase_store(url, exclusive=True) as store:
        began = time.monotonic()
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda start: _insert(store, fingerprints, start), range(0, len(fingerprints), BATCH)))
        print(f"{len(fingerprints):,} fingerprints in layout {layout}: {time.monotonic() - began:.0f} s", flush=True)
    yield name
    with open_gateway(Address.parse(url)) as gateway:
        gateway.delete_table()


def _insert(store: Store, fingerprints: Numbers, start: int) -> None:
    part = fingerprints[start : start + BATCH]
    ids = [str(number).encode() for number in range(start, start + len(part))]
    store.insert(ids, part, np.zeros(len(part), np.int64))


def check_layout(
    server: Gateways, name: str, *, stored: int = STORED, queries: int = QUERIES, thrift1_queries: int = THRIFT1_QUERIES
) -> dict[str, Outcome]:
    """Compare an index of a layout with brute force; by the way of asking, what comparing found."""
    layout = Layout.named(name)
    rng = np.random.default_rng(SEED)
    fingerprints = stored_fingerprints(rng, stored)
    plan = planted(rng, layout, fingerprints, queries)
    right = brute_force(fingerprints, plan.queries, layout.max_distance)
    if wrong := misplaced(plan, right, layout.max_distance):
        raise AssertionError(f"{wrong} queries of layout {name} are not where they were planted")
    fewer = plan.queries[rng.permutation(len(plan.queries))[:thrift1_queries]]
    right_of_fewer = brute_force(fingerprints, fewer, layout.max_distance)
    outcomes: dict[str, Outcome] = {}
    with filled(server, name, fingerprints) as table:
        for thrift, port, asked, expected in (
            ("Thrift2", server.thrift2_port, plan.queries, right),
            ("Thrift1", server.thrift1_port, fewer, right_of_fewer),
        ):
            with HSimIndex.open(f"hbase://{server.host}:{port}/{table}?{PATIENCE}") as index:
                batch = answered(index.query_many(asked))
                single = answered([index.query(query) for query in asked.tolist()])
            outcomes[f"layout {name}, {thrift}, {len(asked):,} in batches"] = compared(expected, batch)
            outcomes[f"layout {name}, {thrift}, {len(asked):,} single"] = compared(expected, single)
    for way, outcome in outcomes.items():
        print_outcome(way, outcome)
    return outcomes


# Regions.


def pieces(data: Path) -> Iterator[str]:
    """Yield the labelled texts in pieces, every text once."""
    seen: set[str] = set()
    for path in sorted(data.glob("*/*docs.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                text = json.loads(line)["text"]
                for start in range(0, len(text), PIECE_CHARACTERS):
                    piece = text[start : start + PIECE_CHARACTERS]
                    if piece not in seen:
                        seen.add(piece)
                        yield piece


def real_fingerprints(data: Path, count: int) -> Numbers:
    """Return up to so many distinct fingerprints of pieces, drawn from all texts, in an order that tells nothing."""
    texts = list(pieces(data))
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


def check_regions(server: Gateways, fingerprints: Numbers, *, sample: Numbers | None, scratch: Path) -> bool:
    """Fill a table; return whether the fullest region keeps to its bar, and the server counts what was computed."""
    options: list[object] = []
    if sample is not None:
        path = scratch / "sample.txt"
        path.write_text("".join(f"{value:016x}\n" for value in sample.tolist()))
        options = ["--splits-from", path]
    layout = Layout.named(REGIONS_LAYOUT)
    expected = rows_by_region(layout, fingerprints, splits(layout, REGIONS, sample=sample))
    with (
        filled(server, REGIONS_LAYOUT, fingerprints, *options) as table,
        HSimIndex.open(f"hbase://{server.host}:{server.thrift2_port}/{table}?{PATIENCE}") as index,
    ):
        found = counted_by_region(index.store)
    fullest, bar = found.max() / found.mean(), UNIFORM_BAR if sample is None else SAMPLED_BAR
    differing = int((found != expected).sum()) if len(found) == len(expected) else len(found)
    is_right = bool(fullest <= bar and not differing)
    print(
        f"{'PASS' if is_right else 'FAIL'}  {len(found)} regions, "
        f"{'uniform splits' if sample is None else f'splits from a sample of {len(sample):,}'}, {len(fingerprints):,} "
        f"fingerprints: the fullest has {fullest:.2f} × the mean (≤ {bar}), the emptiest "
        f"{found.min() / found.mean():.2f}; {differing} have other rows than computed",
        flush=True,
    )
    return is_right


def check_real_regions(server: Gateways, data: Path, scratch: Path, *, count: int = PIECES) -> bool:
    """Fill tables with the fingerprints of real texts, split without and with a sample of them."""
    fingerprints = real_fingerprints(data, count)
    sample = np.random.default_rng(SEED).choice(fingerprints, min(SAMPLE, count // 4), replace=False)
    is_uniform = check_regions(server, fingerprints, sample=None, scratch=scratch)
    return check_regions(server, fingerprints, sample=sample, scratch=scratch) and is_uniform


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_data_option(parser)
    add_scratch_option(parser)
    arguments = parser.parse_args()
    print_conditions("exactness on HBase", packages=["thriftpy2"], seed=SEED, stored=STORED, queries=QUERIES)
    with scratch_folder(arguments.scratch) as folder, serving(folder / "hbase") as server:
        outcomes = [outcome for name in LAYOUTS for outcome in check_layout(server.gateways, name).values()]
        is_exact = all(outcome.is_exact for outcome in outcomes)
        if arguments.data is None:
            print("SKIP  regions: no labelled data; set HSIMHASH_DATA or give --data")
            return 0 if is_exact else 1
        return 0 if check_real_regions(server.gateways, arguments.data, folder) and is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
