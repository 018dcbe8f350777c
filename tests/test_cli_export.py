"""`hsimhash export`."""

import errno
import gzip
import io
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from hsimhash import Signature
from hsimhash.cli.exit_codes import message_of
from hsimhash.cli.export_shards import PLAN, ExportFile
from hsimhash.cli.export_shards import _begin as begin
from hsimhash.cli.output_files import complete
from tests.support.command_line import DOCUMENTS, ids_in, lines_of, make_index, run
from tests.support.processes import forked

TIMES = [1_000, 2_000, 3_000, 4_000]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return make_index(tmp_path, first_seen=TIMES)


def expected() -> list[dict[str, object]]:
    documents = zip(DOCUMENTS.items(), TIMES, strict=True)
    return [{"id": name, "fingerprint": f"{value:016x}", "first_seen": seen} for (name, value), seen in documents]


def test_every_document_is_a_line_in_order_of_fingerprint(url: str) -> None:
    result = run("export", "--store", url)
    assert result.exit_code == 0
    assert lines_of(result.stdout) == expected()
    assert "中文" in result.stdout
    assert "exported 4 documents" in result.stderr


def test_tsv_is_id_and_fingerprint(url: str, tmp_path: Path) -> None:
    lines = "".join(f"{name}\t{value:016x}\n" for name, value in DOCUMENTS.items())
    assert run("export", "--format", "tsv", "--store", url).stdout == lines
    assert run("export", "--output", str(tmp_path / "all.tsv.gz"), "--store", url).exit_code == 0
    assert gzip.decompress((tmp_path / "all.tsv.gz").read_bytes()).decode() == lines


def test_file_is_packed_by_its_name_and_the_same_each_time(url: str, tmp_path: Path) -> None:
    unpack = {
        "all.jsonl": bytes,
        "all.jsonl.gz": gzip.decompress,
        "all.jsonl.zst": lambda data: zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(),
    }
    for name, unpacked in unpack.items():
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir(exist_ok=True)
            result = run("export", "--output", str(tmp_path / folder / name), "--store", url)
            assert (result.exit_code, result.stdout) == (0, "")
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        assert lines_of(unpacked((tmp_path / "one" / name).read_bytes()).decode()) == expected()
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == sorted(unpack)


def test_parquet_has_what_an_ingest_needs_for_the_same_index(tmp_path: Path) -> None:
    held = {"a": Signature(1, 2, 3), "b": Signature(4), "中": Signature(2**64 - 1, 2**64 - 1, 0)}
    url, path = make_index(tmp_path, held, profile="auto-2", first_seen=[1, 2, 3]), str(tmp_path / "all.parquet")
    assert run("export", "--output", path, "--store", url).exit_code == 0
    assert pq.read_table(path).to_pylist()[0] == {
        **{"id": "a", "fingerprint": 1, "first_seen": 1},
        **{"sketch": f"{2:016x}", "key": f"{3:016x}"},
    }
    back = f"lmdb://{tmp_path / 'back'}"
    assert run("ingest", path, "--fingerprint-field", "fingerprint", "--store", back).exit_code == 0
    assert run("export", "--store", back).stdout == run("export", "--store", url).stdout


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".html", ".CSV.gz", ".xlsx", ".zip", ".arrow"])
@pytest.mark.parametrize(
    ("command", "writes"),
    [
        (("export", "--output"), (".jsonl", ".tsv", ".parquet")),
        (("export", "--format", "tsv", "--output"), (".tsv",)),
        (("apply", "in.jsonl", "--from", "out", "--out"), (".jsonl",)),
        (("calibrate", "in.jsonl", "--report"), (".html",)),
        (("fit", "in.jsonl", "--output"), (".rarity",)),
        (("ingest", "in.jsonl", "--on-duplicate", "tag", "--tags"), (".jsonl",)),
    ],
)
def test_a_name_that_promises_another_format_is_refused_and_written_nothing(
    command: tuple[str, ...], writes: tuple[str, ...], suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suffix in writes:
        return
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"id": "a", "text": "one text"}\n')
    if command[0] == "apply":
        assert run("dedup", "in.jsonl", "--out", "out").exit_code == 0
    refused = run(*command, f"new{suffix}")
    assert refused.exit_code == 2
    assert f"new{suffix}: expected a name that ends in {writes[0]}" in refused.stderr
    assert not Path(f"new{suffix}").exists()


def test_empty_index_gives_an_empty_file(tmp_path: Path) -> None:
    url = make_index(tmp_path, {})
    assert run("export", "--output", str(tmp_path / "all.jsonl"), "--store", url).exit_code == 0
    assert (tmp_path / "all.jsonl").read_bytes() == b""


def test_file_that_is_there_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("old")
    (tmp_path / "link").symlink_to("all.jsonl")
    for name in ("all.jsonl", "link"):
        result = run("export", "--output", str(tmp_path / name), "--store", url)
        assert (result.exit_code, (tmp_path / "all.jsonl").read_text()) == (2, "old")
        assert f"{tmp_path / name} already exists; pass --overwrite to replace it" in result.stderr


def test_file_is_replaced_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    output = tmp_path / "all.jsonl"
    output.write_text("old")
    assert run("export", "--output", str(output), "--overwrite", "--store", "lmdb://gone").exit_code == 5
    assert output.read_text() == "old"
    assert run("export", "--output", str(output), "--overwrite", "--store", url).exit_code == 0
    assert lines_of(output.read_text()) == expected()


def test_link_keeps_pointing_at_the_file(url: str, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("all.jsonl")
    assert run("export", "--output", str(tmp_path / "latest"), "--store", url).exit_code == 0
    assert (tmp_path / "latest").is_symlink()
    assert lines_of((tmp_path / "all.jsonl").read_text()) == expected()


def test_pipe_is_written_and_not_replaced(url: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    assert run("export", "--output", str(tmp_path / "pipe"), "--store", url).exit_code == 0
    reader.join()
    assert lines_of(read[0]) == expected()
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_file_written_over_keeps_mode_and_owner(umask: int, url: str, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        for mode in (0o600, 0o664):
            path = tmp_path / f"all-{mode:o}.jsonl"
            path.write_text("old")
            path.chmod(mode)
            if os.geteuid() == 0:
                os.chown(path, 65_534, 65_534)
            owner = (path.stat().st_uid, path.stat().st_gid)
            assert run("export", "--output", str(path), "--overwrite", "--store", url).exit_code == 0
            assert lines_of(path.read_text()) == expected()
            assert path.stat().st_mode & 0o7777 == mode
            assert (path.stat().st_uid, path.stat().st_gid) == owner
        assert run("export", "--output", str(tmp_path / "new.jsonl"), "--store", url).exit_code == 0
        assert (tmp_path / "new.jsonl").stat().st_mode & 0o7777 == 0o666 & ~umask
    finally:
        os.umask(before)


def test_a_file_with_several_names_is_written_over_under_all_of_them(url: str, tmp_path: Path) -> None:
    path, other = tmp_path / "all.jsonl", tmp_path / "other"
    path.write_text("old " * 1_000)
    other.hardlink_to(path)
    assert run("export", "--output", str(path), "--overwrite", "--store", url).exit_code == 0
    assert path.samefile(other)
    assert lines_of(other.read_text()) == expected()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["all.jsonl", "index", "other"]


def several_names(folder: Path) -> Path:
    (folder / "all.txt").write_text("old")
    (folder / "other").hardlink_to(folder / "all.txt")
    return folder / "all.txt"


def write_whole(path: Path, content: bytes, then: Callable[[], None] = lambda: None) -> None:
    with complete(str(path)) as stream:
        stream.write(content)
        stream.flush()
        then()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def files_bounded_later() -> Iterator[Callable[[], None]]:
    """Yield a function that stops files from growing beyond 1,000 bytes from then on, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_complete_part_that_cannot_be_copied_is_kept_and_named(tmp_path: Path) -> None:
    path, content = several_names(tmp_path), b"new" * 10_000
    with pytest.raises(OSError, match="File too large") as caught, files_bounded_later() as bound:
        write_whole(path, content, then=bound)
    (part,) = tmp_path.glob(".all.txt.*")
    assert part.read_bytes() == content
    assert message_of(caught.value) == f"{path}: File too large; the complete content is in {part}"


def test_a_complete_part_is_kept_and_named_when_its_copy_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = several_names(tmp_path)
    monkeypatch.setattr(shutil, "copyfileobj", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new")
    (part,) = tmp_path.glob(".all.txt.*")
    assert part.read_bytes() == b"new"
    assert str(part) in capsys.readouterr().err


def test_an_incomplete_part_is_deleted(tmp_path: Path) -> None:
    path = several_names(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new", then=interrupt)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["all.txt", "other"]
    assert path.read_text() == "old"


def test_another_users_file_stays_theirs_where_it_may_be_written(url: str, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o777)
    path = place / "all.txt"
    path.write_text("old")
    path.chmod(0o666)

    def write_as_another() -> None:
        os.setuid(65_534)
        with complete(str(path)) as stream:
            stream.write(b"new")

    with forked(write_as_another):
        pass
    assert path.read_text() == "new"
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (0, 0o666)


def test_an_id_that_begins_with_a_byte_order_mark_comes_back(tmp_path: Path) -> None:
    documents = {"\ufeffa": 1, "\ufeffb": 2, "中文": 2**64 - 1}
    url, copy = make_index(tmp_path, documents), f"lmdb://{tmp_path / 'copy'}"
    export = str(tmp_path / "all.tsv")
    assert run("export", "--output", export, "--store", url).exit_code == 0
    assert run("ingest", export, "--store", copy).exit_code == 0
    assert ids_in(copy) == sorted(documents)
    assert run("export", "--format", "tsv", "--store", copy).stdout == Path(export).read_text()


def test_the_index_is_not_written_over_by_its_export(url: str, tmp_path: Path) -> None:
    done = run("export", "--output", str(tmp_path / "index" / "data.mdb"), "--overwrite", "--store", url)
    assert done.exit_code == 2
    assert "is a file in the index" in done.stderr
    assert ids_in(url)


@pytest.mark.parametrize("has_links", [True, False])
def test_files_are_noted_once_whatever_the_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    folder = tmp_path / "parts"
    for _ in range(2):
        begin(ExportFile("hbase://gw1/pages", 0, 5, folder, "jsonl"))
    assert [path.name for path in folder.iterdir()] == [PLAN]
    with pytest.raises(ValueError, match="contains files from another export"):
        begin(ExportFile("hbase://gw1/pages", 0, 6, folder, "jsonl"))


# Tables.


@pytest.fixture
def tables(url: str, tmp_path: Path) -> str:
    made = f"tables://{tmp_path}/tables"
    written = run("export", "--to", made, "--store", url)
    assert (written.exit_code, written.stdout) == (0, "")
    assert f"exported 4 documents; query them with --store {made}" in written.stderr
    return made


@pytest.mark.every_case
@pytest.mark.parametrize("words", [(), ("--compress",)])
def test_tables_answer_the_commands_that_read_as_the_index_does(
    url: str, tables: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert run("export", "--to", tables, "--overwrite", *words, "--store", url).exit_code == 0
    given = "".join(f'{{"id": "{number}", "fingerprint": "{value:016x}"}}\n' for number, value in enumerate([0, 5, 7]))
    (tmp_path / "new.jsonl").write_text(given)
    commands = [
        ("export",),
        ("query", "0000000000000005"),
        ("query", "--id", next(iter(DOCUMENTS))),
        ("describe",),
        ("check",),
        ("dedup", str(tmp_path / "new.jsonl"), "--fingerprint-field", "fingerprint", "--json", "--out", "found"),
    ]
    for command in commands[:3]:
        answers = [run(*command, "--store", store) for store in (url, tables)]
        assert answers[0].exit_code == answers[1].exit_code == 0
        assert answers[0].stdout == answers[1].stdout != ""
    for command in commands[3:5]:
        assert run(*command, "--store", tables).exit_code == 0
    summaries = []
    for name, store in (("a", url), ("b", tables)):
        words = (*commands[5][:-1], str(tmp_path / name))
        done = run(*words, "--against", store)
        assert done.exit_code == 0, done.stderr
        summaries.append((tmp_path / name / "drop.txt").read_text())
    assert summaries[0] == summaries[1]
    doctor = run("doctor", "--store", tables)
    assert doctor.exit_code == 0
    assert "read-only" in doctor.stdout


@pytest.mark.every_case
@pytest.mark.parametrize(
    "command",
    [
        ("ingest", "in.jsonl"),
        ("ingest", "in.jsonl", "--job", "job"),
        ("ingest", "in.jsonl", "--on-duplicate", "skip"),
        ("remove", "a", "--yes"),
        ("expire", "--before", "2026-01-01", "--yes"),
        ("check", "--repair"),
        ("create-table",),
    ],
)
def test_a_write_to_tables_is_refused_with_what_to_do(
    command: tuple[str, ...], tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"id": "a", "text": "one text"}\n')
    before = {path.name: path.read_bytes() for path in Path("tables").iterdir()}
    refused = run(*command, "--store", tables)
    assert refused.exit_code == 2, refused.stderr
    assert "is read-only" in refused.stderr
    assert "hsimhash export --to" in refused.stderr
    assert {path.name: path.read_bytes() for path in Path("tables").iterdir()} == before


def test_a_relayout_to_tables_is_refused_and_one_from_them_is_done(url: str, tables: str, tmp_path: Path) -> None:
    refused = run("relayout", "--store", url, "--to", f"tables://{tmp_path}/others", "--to-layout", "10")
    assert refused.exit_code == 2
    assert "is read-only" in refused.stderr
    made = f"lmdb://{tmp_path}/again"
    assert run("relayout", "--store", tables, "--to", made, "--to-layout", "10").exit_code == 0
    assert run("export", "--store", made).stdout == run("export", "--store", url).stdout


def test_what_only_other_stores_do_is_said_of_tables(tables: str, tmp_path: Path) -> None:
    copied = run("backup", "copy", "--store", tables)
    assert (copied.exit_code, copied.stdout) == (2, f"cp -r {tmp_path}/tables copy\n")
    assert run("compact", "--store", tables).exit_code == 2
    assert run("drop-table", "--yes", "--store", tables).exit_code == 0
    assert not (tmp_path / "tables").exists()
    missing = run("query", "0000000000000005", "--store", tables)
    assert missing.exit_code == 5
    assert "no tables in" in missing.stderr


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "lmdb://other"), "relayout"),
        (
            ("--to", "tables://~nobody-has-this-name/x"),
            "unknown home folder in tables://~nobody-has-this-name/x; write the full path",
        ),
        (("--to", "tables://other", "--output", "x.jsonl"), "--output cannot be combined with --to"),
        (("--to", "tables://other", "--format", "tsv"), "--format cannot be combined with --to"),
        (("--compress",), "--compress is only for --to"),
    ],
)
def test_options_that_do_not_go_with_tables_are_refused(url: str, words: tuple[str, ...], said: str) -> None:
    refused = run("export", *words, "--store", url)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_damaged_tables_are_named_and_never_answered_from(tables: str, tmp_path: Path) -> None:
    (path,) = (tmp_path / "tables").glob("*.rows")
    content = bytearray(path.read_bytes())
    content[4_100] ^= 1
    path.write_bytes(content)
    for command in (("check",), ("query", "0000000000000005", "--distance", "16")):
        failed = run(*command, "--store", tables)
        assert failed.exit_code == (6 if command == ("check",) else 1)
        assert path.name in failed.stderr
        assert "copy the folder again" in failed.stderr
