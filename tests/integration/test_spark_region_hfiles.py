"""How a bulk load's rows are cut into parts of regions: each row is in one file, always with the same bytes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hsimhash import Profile
from hsimhash.fingerprint import Signatures
from hsimhash.layout import Layout
from hsimhash.rowkey import listing_rowkeys, register_rowkey
from hsimhash.spark.region_hfiles import FilePlan, _blocks, _written, region_parts
from hsimhash.store import Record
from hsimhash.store.conformance.random_calls import packed_key
from hsimhash.store.hbase.files.region_writer import Cuts, FileForm, RegionRows, file_settings, register_ranges
from hsimhash.store.runs import ranges_of
from tests.support.fingerprint_sets import random_fingerprints
from tests.support.hfile_reader import HFile

EDGES = [b"", b"\x20", b"\x40\x00\x00\x00\x03", b"\x80\x00\x00\x00", b"\xc0\x01\x02\x03\x02" + bytes(8) + b"\x01", b""]
COUNT = 900


def documents(rng: np.random.Generator) -> pa.Table:
    """Documents, some of which share a fingerprint or a key; a third do not have a sketch and key."""
    values = random_fingerprints(rng, COUNT)
    values[::7] = 0xC00102030405060708 & (1 << 64) - 1
    keys = random_fingerprints(rng, COUNT) * (np.arange(COUNT) % 3 > 0)
    keys[1::9] = keys[1]
    keys[2::9] = packed_key([1, 2, 3, 4, 5])
    columns = [values.view(np.int64), keys.view(np.int64), keys.view(np.int64)]
    ids = [f"https://例.org/{number}" for number in range(COUNT)]
    ones = np.ones(COUNT, np.int64)
    names = ["id", "fingerprint", "sketch", "key", "first_seen", "changes"]
    return pa.Table.from_arrays([pa.array(one) for one in (ids, *columns, 7 * ones, ones)], names)


def plan(stage: Path, values: Signatures, profile: str) -> FilePlan:
    record = Record(Layout.named("10"), Profile.named(profile).to_json())
    segments = record.layout.segments(values.fingerprints).astype(np.uint64).ravel()
    cuts = Cuts(ranges_of(segments, 7), ranges_of(values.fingerprints >> np.uint64(32), 3), register_ranges(COUNT, 200))
    regions = [RegionRows(number, start, stop) for number, (start, stop) in enumerate(pairwise(EDGES))]
    return FilePlan(
        region_parts(regions, cuts, "token/"), record, FileForm(file_settings(None), 1_000, 1 << 30), str(stage)
    )


def files_of(planned: FilePlan, blocks: list[pa.RecordBatch]) -> list[str]:
    """Write all parts; return a line about each file."""
    return [line for batch in _written(planned, blocks) for line in batch.column("file").to_pylist()]


@pytest.mark.parametrize(("seed", "profile"), [(0, "auto-2"), (1, "auto-2"), (2, "auto-3")])
def test_every_row_is_in_one_file_whatever_the_order_of_the_blocks(tmp_path: Path, seed: int, profile: str) -> None:
    rng = np.random.default_rng(seed)
    table = documents(rng)
    columns = [table.column(name).to_numpy().view(np.uint64) for name in ("fingerprint", "sketch", "key")]
    signatures, ids = Signatures.of(*columns), [one.encode() for one in table.column("id").to_pylist()]
    planned = plan(tmp_path / "one", signatures, profile)
    blocks = list(_blocks(planned, 250, table.to_batches(max_chunksize=100)))
    files = files_of(planned, blocks)
    found: dict[str, list[tuple[bytes, bytes]]] = {"rows/f": [], "rows/d": [], "registers/d": []}
    for path in sorted((tmp_path / "one" / "token").rglob("region-*")):
        with HFile(path) as file:
            cells = [(cell.row, cell.qualifier) for cell in file.cells()]
        found[str(path.parent.relative_to(tmp_path / "one" / "token"))] += cells
    drawers = planned.record.filed_rowkeys(signatures)
    assert found["rows/f"] == sorted({(row.tobytes(), b"") for row in drawers})
    listed = listing_rowkeys(signatures.fingerprints)
    assert found["rows/d"] == sorted((row.tobytes(), doc_id) for row, doc_id in zip(listed, ids, strict=True))
    assert found["registers/d"] == sorted((register_rowkey(doc_id), doc_id) for doc_id in ids)
    again = plan(tmp_path / "other", signatures, profile)
    assert sorted(files_of(again, blocks[::-1])) == sorted(files)
    assert not list(tmp_path.rglob("_*"))
