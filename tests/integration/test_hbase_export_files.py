"""`export --from-hfiles`: the files of a snapshot say what the table said, and what they cannot say is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from hsimhash import HSimIndex
from hsimhash.hfile.blocks import message_field, message_fields
from hsimhash.store.hbase.files.snapshot import Snapshot
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Deletion
from hsimhash.store.hbase.rows.cells import register_key
from hsimhash.store.hbase.store import HBaseStore
from tests.support.command_line import run
from tests.support.fingerprint_sets import random_fingerprints
from tests.support.hbase_server import HBaseServer
from tests.support.hbase_tables import new_table, table_url

EXPORT = "org.apache.hadoop.hbase.snapshot.ExportSnapshot"
COUNT = 3_000


def shell(server: HBaseServer, *lines: str) -> None:
    assert server.shell("".join(f"{line}\n" for line in lines)) == 0


def exported(server: HBaseServer, snapshot: str, folder: Path) -> Path:
    """Return the folder that HBase's own program makes of a snapshot."""
    options = {
        "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",  # the program's own; the server has another
        "hadoop.tmp.dir": folder.with_name("hadoop"),
        "mapreduce.jobtracker.staging.root.dir": folder.with_name("hadoop"),
    }
    words = [f"-D{name}={value}" for name, value in options.items()]
    server.java(EXPORT, *words, "-no-checksum-verify", "-snapshot", snapshot, "-copy-to", f"file://{folder}")
    return folder


def lines(*words: object) -> list[str]:
    """Return the lines of an export, sorted."""
    result = run("export", *map(str, words))
    assert result.exit_code == 0, result.stderr
    return sorted(result.stdout.splitlines())


def fill(index: HSimIndex, server: HBaseServer, name: str) -> None:
    """Add, move, remove, delete and add again, so that several files of each region know of one document."""
    values = random_fingerprints(np.random.default_rng(3), COUNT)
    ids = [f"https://example.org/{number}" for number in range(COUNT)]
    index.add_many(values, ids, first_seen=7)
    shell(server, f"flush '{name}'")
    index.add_many(values[:500] ^ np.uint64(1), ids[:500])
    index.remove(ids[300:700])
    assert isinstance(index.store, HBaseStore)
    gone = [register_key(doc_id.encode()) for doc_id in ids[600:800]]
    found = index.store.gateway.get(gone, DOCUMENT_FAMILY)
    stamps = [cell.timestamp for cell in found if cell is not None]
    keys = zip(gone, stamps, strict=True)
    index.store.gateway.delete([Deletion(row, DOCUMENT_FAMILY, doc_id, stamp) for (row, doc_id), stamp in keys])
    shell(server, f"flush '{name}'")
    index.add_many(values[400:450], ids[400:450])
    index.add_many(values[790:810], ids[790:810])
    index.remove(ids[COUNT - 100 :])


def test_what_the_files_say_is_what_the_table_says(own_hbase: HBaseServer, tmp_path: Path) -> None:
    with new_table(own_hbase) as name, new_table(own_hbase) as clone:
        url = table_url(own_hbase, name)
        assert run("create-table", "--store", url, "--layout", "4", "--regions", "2").exit_code == 0
        with HSimIndex.open(url) as index:
            fill(index, own_hbase, name)
        loaded = tmp_path / "loaded.jsonl"
        loaded.write_text("".join(f'{{"id": "loaded/{n}", "fingerprint": "{n:016x}"}}\n' for n in range(300)))
        words = ("--fingerprint-field", "fingerprint", "--stage", tmp_path / "stage", "--job", tmp_path / "job")
        result = run("bulk-load", *map(str, (loaded, "--store", url, *words)), "--hbase-command", own_hbase.program())
        assert result.exit_code == 0, result.stderr
        with HSimIndex.open(url) as index:
            index.remove([f"loaded/{number}" for number in range(0, 300, 7)])
        shell(
            own_hbase,
            "compaction_switch false",
            f"split '{name}', \"\\x40\\x00\\x00\\x00\"",
            f"snapshot '{name}', '{name}-one'",
            f"clone_snapshot '{name}-one', '{clone}'",
            f"snapshot '{clone}', '{clone}-one'",
            "compaction_switch true",
        )
        live = lines("--store", url)
        assert len(live) > COUNT - 500
        one = exported(own_hbase, f"{name}-one", tmp_path / "one")
        assert lines("--from-hfiles", one) == live
        files = [path.name for path in one.rglob("d/*") if path.is_file() and path.suffix != ".crc"]
        assert any("_SeqId_" in file for file in files)
        assert len(Snapshot(str(one))._manifest.regions) == 3
        assert len({path.parent.parent for path in one.rglob("d/*")}) == 2  # two of the regions have their parent's
        # Files are named by links to another table, and as the cluster itself has them.
        assert lines("--from-hfiles", exported(own_hbase, f"{clone}-one", tmp_path / "two")) == live
        root = own_hbase.folder / "hbase" / ".hbase-snapshot"
        assert lines("--from-hfiles", root / f"{name}-one") == live
        assert lines("--from-hfiles", f"file://{one}") == live
        with_index(tmp_path, one, live)
        refusals(own_hbase, tmp_path, one, root)
        shell(own_hbase, f"delete_snapshot '{name}-one'", f"delete_snapshot '{clone}-one'")


def with_index(folder: Path, snapshot: Path, live: list[str]) -> None:
    """The documents of the files make an index again."""
    out = folder / "all.jsonl.gz"
    assert run("export", "--from-hfiles", str(snapshot), "--output", str(out)).exit_code == 0
    store = f"lmdb://{folder / 'index'}"
    words = ("--fingerprint-field", "fingerprint", "--store", store, "--layout", "4")
    assert run("ingest", str(out), *words).exit_code == 0
    assert lines("--store", store) == live


def refusals(server: HBaseServer, folder: Path, whole: Path, root: Path) -> None:
    """What is damaged, missing or of others is told, and nothing is written."""
    copy = folder / "copy"
    place = next(Path(".hbase-snapshot", path.name) for path in (whole / ".hbase-snapshot").glob("[!.]*"))
    kept = [path for path in whole.rglob("d/*") if path.is_file() and path.suffix != ".crc"]
    # A third of the way into a small file may be its Bloom filter, which nobody reads here.
    victim = max(kept, key=lambda path: path.stat().st_size).relative_to(whole)

    def told(code: int = 1) -> str:
        result = run("export", "--from-hfiles", str(copy), "--output", str(folder / "none.jsonl"))
        assert result.exit_code == code, result.stderr
        assert not (folder / "none.jsonl").exists()
        shutil.rmtree(copy)
        shutil.copytree(whole, copy)
        return result.stderr

    shutil.copytree(whole, copy)
    data = bytearray((copy / victim).read_bytes())
    data[len(data) // 3] ^= 4
    (copy / victim).write_bytes(data)
    assert f"{copy / victim}: at byte " in told()
    (copy / victim).write_bytes(data[:-1])
    assert "at byte" in told()
    (copy / victim).unlink()
    assert f"lacks {victim.relative_to('archive/data')}" in told()
    manifest = (copy / place / "data.manifest").read_bytes()
    (copy / place / "data.manifest").write_bytes(manifest[:-1])
    assert "data.manifest cannot be read" in told()
    (copy / place / "data.manifest").unlink()
    assert "no snapshot in" in told(5)
    shutil.copytree(copy / place, copy / place.with_name("again"))
    assert "has 2 snapshots; give the folder of one" in told(5)
    result = run("export", "--from-hfiles", str(copy), "--output", str(copy / "new.jsonl"))
    assert "lies in the snapshot itself" in result.stderr
    assert "leave one of them out" in run("export", "--from-hfiles", str(copy), "--store", "lmdb://x").stderr
    with new_table(server) as other:
        shell(server, f"create '{other}', 'd', 'f', 'i'", f"snapshot '{other}', '{other}-one'")
        result = run("export", "--from-hfiles", str(root / f"{other}-one"))
        assert result.exit_code == 5
        assert "its table has no record of one" in result.stderr
        shell(server, f"delete_snapshot '{other}-one'")


def test_what_had_expired_when_the_snapshot_was_taken_is_left_out(own_hbase: HBaseServer, tmp_path: Path) -> None:
    with new_table(own_hbase) as name:
        url = table_url(own_hbase, name)
        assert run("create-table", "--store", url, "--regions", "1", "--ttl", "1d").exit_code == 0
        with HSimIndex.open(url) as index:
            index.add_many([1, 2], ["a", "b"], first_seen=7)
        shell(own_hbase, f"flush '{name}'", f"snapshot '{name}', '{name}-one'")
        snapshot = exported(own_hbase, f"{name}-one", tmp_path / "one")
        assert lines("--from-hfiles", snapshot) == lines("--store", url)
        info = next(path for path in snapshot.rglob(".snapshotinfo"))
        fields = dict(message_fields(info.read_bytes()))
        fields[3] = int(fields[3]) + 2 * 86_400_000  # when it was taken
        info.write_bytes(b"".join(message_field(*field) for field in fields.items()))
        assert lines("--from-hfiles", snapshot) == []
        shell(own_hbase, f"delete_snapshot '{name}-one'")


@pytest.mark.parametrize("text", ["nowhere://snapshot", "/no/such/folder"])
def test_a_place_without_a_snapshot_is_told(text: str) -> None:
    result = run("export", "--from-hfiles", text)
    assert result.exit_code in (1, 5)
    assert text in result.stderr
