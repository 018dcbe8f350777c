"""HFiles on a real HBase: it loads and serves ours, and we read the files that it flushes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hsimhash import HSimIndex, Signatures
from hsimhash.files import replace_file
from hsimhash.hfile import BloomFilter, FileSettings, HFileWriter, KeyValue
from hsimhash.rowkey import PREFIX_BYTES, ROWKEY_BYTES, filed_rowkeys
from hsimhash.store.hbase.rows.cells import Register, listing_key, register_key
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.upkeep.audit import pages
from hsimhash.store.reports import Region
from tests.support.command_line import run
from tests.support.fingerprint_sets import random_fingerprints
from tests.support.hbase_server import HBaseServer
from tests.support.hbase_tables import new_table, table_url
from tests.support.hfile_reader import HFile

HFILE, LOAD = "org.apache.hadoop.hbase.io.hfile.HFile", "org.apache.hadoop.hbase.tool.BulkLoadHFilesTool"
STAMP, COUNT, ASKED = 1_700_000_000_000, 21_000, 2_000  # enough for more than 109,306 rows of one family in a region


def read(path: Path) -> list[KeyValue]:
    with HFile(path) as file:
        file.verify()
        return list(file.cells())


def newest(cells: list[KeyValue]) -> list[tuple[bytes, bytes, int, bytes]]:
    """Return the last version of each cell, in order."""
    last = {(cell.row, cell.qualifier): cell for cell in sorted(cells, key=lambda cell: cell.timestamp)}
    return sorted((cell.row, cell.qualifier, cell.timestamp, cell.value) for cell in last.values())


def staged(store: HBaseStore, signatures: Signatures, doc_ids: list[bytes], folder: Path) -> dict[str, int]:
    """Write a file per family and region: drawer rows and rows of keys, listings and registers; return their counts."""
    counts = dict[str, int]()
    drawers = sorted(filed_rowkeys(store.record.layout, signatures).view(f"V{ROWKEY_BYTES}").ravel().tolist())
    documents = []
    for doc_id, signature in zip(doc_ids, signatures, strict=True):
        value = Register().filed(signature, STAMP).to_bytes(has_signatures=True)
        documents += [
            KeyValue(*listing_key(signature.fingerprint, doc_id), STAMP, b""),
            KeyValue(*register_key(doc_id), STAMP, value),
        ]
    settings = {  # small blocks and leaves, for an index of several levels
        b"f": FileSettings("FAST_DIFF", BloomFilter(PREFIX_BYTES), block_bytes=4_096, index_bytes=8_192),
        b"d": FileSettings("NONE", BloomFilter(), block_bytes=4_096, index_bytes=8_192),
    }
    for number, region in enumerate(store.regions()):

        def is_mine(row: bytes, region: Region = region) -> bool:
            return region.start <= row and (not region.stop or row < region.stop)

        for family, one in settings.items():
            path = folder / family.decode() / f"region-{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as stream:
                file = HFileWriter(stream, family, one, within=(region.start, region.stop), created_ms=STAMP)
                if family == b"f":
                    mine = b"".join(filter(is_mine, drawers))
                    file.append_rows(np.frombuffer(mine, np.uint8).reshape(-1, ROWKEY_BYTES), STAMP)
                else:
                    its = (cell for cell in documents if is_mine(cell.row))
                    file.append_cells(sorted(its, key=lambda cell: (cell.row, cell.qualifier)))
                counts[str(path)] = file.finish().cells
    return counts


def test_hbase_loads_our_files_and_its_own_are_read(own_hbase: HBaseServer, tmp_path: Path) -> None:
    signatures = Signatures.of(*(random_fingerprints(np.random.default_rng(seed), COUNT) for seed in (1, 2, 3)))
    doc_ids = [f"https://example.org/{number}" for number in range(COUNT)]
    stage = tmp_path / "stage"
    with new_table(own_hbase) as name:
        url = table_url(own_hbase, name)
        made = run("create-table", "--store", url, "--layout", "10", "--regions", "2", "--profile", "auto-2")
        assert made.exit_code == 0
        with HSimIndex.open(url) as index:
            assert isinstance(index.store, HBaseStore)
            counts = staged(index.store, signatures, [doc_id.encode() for doc_id in doc_ids], stage)
            for path, chunks in ((stage / "f" / "region-0", 2), (stage / "d" / "region-0", 1)):
                printed = own_hbase.java(HFILE, "-m", "-v", "-k", "-f", f"file://{path}")
                assert f"Scanned kv count -> {counts[str(path)]}" in printed
                assert "numDataIndexLevels=2" in printed
                assert f"Number of chunks: {chunks}" in printed
            own_hbase.java(LOAD, f"file://{stage}", name)
            assert index.count() == COUNT
            assert index.check().problems == 0
            expected = [[doc_id] for doc_id in doc_ids[:ASKED]]
            some = signatures[:ASKED]
            answers = index.query_many(some.fingerprints ^ np.uint64(5))
            assert [[match.doc_id for match in matches] for matches in answers] == expected
            by_key = index.query_many(Signatures.of(~some.fingerprints, some.sketches, some.keys))
            assert [[match.doc_id for match in matches] for matches in by_key] == expected
            index.add_many(signatures[:100], [f"{doc_id}/again" for doc_id in doc_ids[:100]])
            index.remove(doc_ids[:10])
            cells = {
                family: sorted(
                    (cell.row, cell.qualifier, cell.timestamp, cell.value)
                    for page in pages(index.store.gateway, family)
                    for cell in page
                )
                for family in (b"f", b"d")
            }
        assert own_hbase.shell(f"flush '{name}'") == 0
        for family, expected in cells.items():
            files = [path for path in own_hbase.folder.rglob(f"{name}/*/{family.decode()}/*") if path.is_file()]
            assert len(files) > 3
            found = [cell for path in files for cell in read(path)]
            assert newest(found) == expected
