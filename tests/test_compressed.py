"""Compressed tables: what is written comes back, and what is near is found, by brute force's measure."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hsimhash import CorruptionError, FormatVersionError, IndexNotFoundError
from hsimhash.compressed import CompressedTables, write_tables
from hsimhash.errors import StopAskedError
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.layout import Layout
from hsimhash.progress import Observer
from tests.support.command_line import run, run_apart
from tests.support.fingerprint_sets import Numbers, half_near
from tests.test_dedup_fit import pages, written

pytestmark = pytest.mark.usefixtures("in_empty_folder")
STORED, QUERIES = 6_000, 600
SMALL = 300  # rows that are held at once


@pytest.fixture
def stored() -> Numbers:
    """Fingerprints of which many are equal, and some lie at the ends of the numbers."""
    rng = np.random.default_rng(8)
    values = rng.integers(0, 2**64, STORED, np.uint64)
    values[:400] = values[400]
    values[400:500] = np.repeat(values[500:505], 20)
    values[-4:] = 0, 2**64 - 1, 1, 2**63
    return rng.permutation(values)


def write_lines(name: str, values: Numbers) -> Path:
    path = Path(name)
    path.write_text("".join(f"doc-{place:05d}\t{value:016x}\n" for place, value in enumerate(values.tolist())))
    return path


def made(values: Numbers, layout: str) -> CompressedTables:
    reading = InputOptions("fingerprints")
    inputs = find_inputs([str(write_lines("given.tsv", values))], reading)
    profile = Profile.named("auto-2")
    write_tables(inputs, reading, Path("tables"), layout=Layout.parse(layout), profile=profile, rows=SMALL)
    return CompressedTables(Path("tables"))


@pytest.mark.parametrize("layout", ["4", "10", "16", "20", "28", "13,13,13,13,12/4", "32,32/1"])
def test_what_is_near_is_found_and_nothing_else(stored: Numbers, layout: str) -> None:
    tables = made(stored, layout)
    k = tables.layout.max_distance
    asked = np.concatenate([half_near(np.random.default_rng(9), stored, QUERIES, k), stored[:50], stored[-50:]])
    distinct = np.unique(stored)
    for distance in {k, k // 2, 0}:
        found = tables.match(asked, distance)
        bits = np.bitwise_count(asked[:, None] ^ distinct[None, :])
        query, place = np.nonzero(bits <= distance)
        expected = sorted(zip(query.tolist(), bits[query, place].tolist(), distinct[place].tolist(), strict=True))
        columns = (one.tolist() for one in (found.queries, found.distances, found.fingerprints))
        assert list(zip(*columns, strict=True)) == expected


def test_tables_are_sorted_and_small_and_documents_are_all_there(stored: Numbers) -> None:
    tables = made(stored, "10")
    manifest = tables.manifest
    assert (manifest.documents, manifest.fingerprints) == (STORED, len(np.unique(stored)))
    for drawer in tables.layout.drawers:
        values = pq.read_table(Path("tables", f"drawer-{drawer.number:03d}.parquet"))["permuted"].to_numpy()
        assert (values[1:] > values[:-1]).all()
        assert np.array_equal(np.sort(drawer.restore(values)), np.unique(stored))
    documents = [one for group in tables.documents(stored).values() for one in group]
    assert sorted((one.doc_id, one.fingerprint) for one in documents) == [
        (f"doc-{place:05d}", value) for place, value in enumerate(stored.tolist())
    ]
    assert {path.name for path in Path("tables").iterdir()} == {
        "tables.json",
        "documents.parquet",
        *(f"drawer-{number:03d}.parquet" for number in range(1, 11)),
    }


def test_the_commands(stored: Numbers) -> None:
    more = "again\t0000000000000005\nagain\t0000000000000007\nbad\n"
    with gzip.open("given.tsv.gz", "wt") as file:
        file.write(write_lines("given.tsv", stored).read_text() + more)
    result = run("tables", "write", "given.tsv.gz", "--format", "fingerprints", "--out", "out", "--layout", "4")
    assert result.exit_code == 7, result.stderr
    summary = json.loads(result.stdout)
    assert (summary["documents"], summary["rejected"]) == (STORED + 1, 1)
    assert summary["bytes"] == sum(path.stat().st_size for path in Path("out").glob("*.parquet"))
    assert "1 record rejected, see out/rejects.jsonl" in result.stderr
    assert len(Path("out", "rejects.jsonl").read_text().splitlines()) == 1
    Path("asked.tsv").write_text("one\t000000000000000f\nnone\t00000000ffff0000\nno number\n")
    result = run("tables", "match", "asked.tsv", "--format", "fingerprints", "--tables", "out", "--distance", "2")
    assert result.exit_code == 7
    assert "asked.tsv:3" in result.stderr
    one, none = map(json.loads, result.stdout.splitlines())
    assert [(match["distance"], match["id"]) for match in one["matches"]] == [(1, "again")]
    assert (none["id"], none["matches"]) == ("none", [])


def test_texts_are_fingerprinted_by_the_tables_profile() -> None:
    text = "The quick brown fox jumps over the lazy dog near the river bank on a sunny day in June. " * 3
    records = [{"id": "a", "text": text}, {"id": "b", "text": ""}]
    Path("pages.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    result = run("tables", "write", "pages.jsonl", "--out", "out", "--profile", "words-1")
    assert json.loads(result.stdout)["short"] == 1
    assert Path("out", "short.jsonl").exists()
    result = run("tables", "match", "pages.jsonl", "--tables", "out", "--output", "near.jsonl.gz")
    assert result.exit_code == 0, result.stderr
    (line,) = gzip.decompress(Path("near.jsonl.gz").read_bytes()).splitlines()
    assert [match["id"] for match in json.loads(line)["matches"]] == ["a"]


@pytest.mark.parametrize("given", ["", "\n", "no fingerprint\n"])
def test_of_no_document_the_tables_are_empty(given: str) -> None:
    Path("given.tsv").write_text(given)
    result = run("tables", "write", "given.tsv", "--format", "fingerprints", "--out", "out")
    assert result.exit_code == (7 if given.strip() else 0), result.stderr
    summary = json.loads(result.stdout)
    assert (summary["documents"], summary["fingerprints"]) == (0, 0)
    Path("asked.tsv").write_text("one\t000000000000000f\n")
    result = run("tables", "match", "asked.tsv", "--format", "fingerprints", "--tables", "out")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["matches"] == []
    assert not Path("out", "runs").exists()


def test_what_cannot_be_is_refused(stored: Numbers) -> None:
    tables = made(stored, "10")
    with pytest.raises(ValueError, match="distance 4 is beyond the 3 bits of layout 10"):
        tables.match(stored, 4)
    path = write_lines("given.tsv", stored)
    for words, message in (
        (("write", str(path), "--out", "tables"), "tables is not empty"),
        (("match", str(path), "--tables", "nowhere"), "no tables in nowhere"),
        (("write", "nothing.tsv", "--out", "new"), "nothing.tsv"),
    ):
        result = run("tables", *words, "--format", "fingerprints")
        assert result.exit_code != 0
        assert message in result.stderr
    assert not Path("new").exists()


def test_damage_is_told(stored: Numbers) -> None:
    tables = made(stored, "10")
    path = Path("tables", "drawer-002.parquet")
    whole = path.read_bytes()
    flipped = whole[:900] + bytes([whole[900] ^ 1]) + whole[901:]
    for damaged in (whole[:-9], b"", flipped, Path("tables", "documents.parquet").read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=r"drawer-002.parquet .*write the tables again"):
            tables.match(stored[:10])
    path.unlink()
    with pytest.raises(CorruptionError, match=r"drawer-002.parquet .*write the tables again"):
        tables.match(stored[:10])
    for text, error in (("{", CorruptionError), ('{"version": 9}', FormatVersionError), ("{}", CorruptionError)):
        Path("tables", "tables.json").write_text(text)
        with pytest.raises(error):
            CompressedTables(Path("tables"))
    Path("tables", "tables.json").unlink()
    with pytest.raises(IndexNotFoundError):
        CompressedTables(Path("tables"))


def test_nothing_is_left_where_it_was_asked_to_end(stored: Numbers) -> None:
    reading = InputOptions("fingerprints")
    inputs = find_inputs([str(write_lines("given.tsv", stored))], reading)
    layout, profile, asked = Layout.parse("10"), Profile.named("auto-2"), list[int]()

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 30

    with pytest.raises(StopAskedError):
        write_tables(inputs, reading, Path("out"), layout=layout, profile=profile, rows=SMALL, observer=Observer(stop))
    assert not Path("out").exists()


@pytest.fixture
def lists() -> dict[str, str]:
    """Profiles with lists of one's own, and one whose keys have parts, by what they have."""
    records = pages(150, 30)
    written(Path("pages.jsonl"), records)
    assert run("fit", "pages.jsonl", "--output", "own.rarity").exit_code == 0
    Path("stops.txt").write_text("privacy\npolicy\n")
    Path("own.idf").write_text("harbour 9.5\nferry 2.25\n")
    return {
        "keys in parts": "auto-3",
        "rarity": "auto-3:rarity=own.rarity",
        "rarity and stops": "auto-3:rarity=own.rarity,stops=stops.txt",
        "idf": "auto-2:idf=own.idf",
    }


@pytest.mark.parametrize("kind", ["keys in parts", "rarity", "rarity and stops", "idf"])
def test_tables_answer_as_an_index_of_the_same_profile_does(lists: dict[str, str], kind: str) -> None:
    profile = lists[kind]
    options = ["--layout", "10", "--profile", profile, "--fit", "off"]
    result = run("tables", "write", "pages.jsonl", "--out", "out", *options)
    assert result.exit_code == 0, result.stderr
    with HSimIndex.create("lmdb://index", profile=profile, layout="10") as index:
        index.add_texts([one["text"] for one in pages(150, 30)], [one["id"] for one in pages(150, 30)])
        stored = {one.doc_id: one for one in index.documents()}
        found = pq.read_table("out/documents.parquet").to_pylist()
        assert {(one["id"], one["fingerprint"], one["sketch"] or 0, one["key"] or 0) for one in found} == {
            (one.doc_id, one.fingerprint, one.sketch, one.key) for one in stored.values()
        }
        expected = {
            doc_id: sorted((match.distance, match.doc_id) for match in index.query(one.fingerprint, max_distance=3))
            for doc_id, one in stored.items()
        }
    for path in Path().glob("*.rarity"), Path().glob("*.txt"), Path().glob("*.idf"):
        for one in path:
            one.unlink()
    answers = run_apart("tables", "match", "pages.jsonl", "--tables", "out")  # a process that knows no list
    assert answers.returncode == 0, answers.stderr
    assert {
        one["id"]: sorted((match["distance"], match["id"]) for match in one["matches"])
        for one in map(json.loads, answers.stdout.splitlines())
    } == expected
    assert sum(map(len, expected.values())) > len(expected)


def test_a_profile_that_only_its_maker_knows_is_kept() -> None:
    profile = replace(Profile.named("words-1"), name="mine-1", n=3)
    texts = {one["id"]: one["text"] for one in pages(20, 0)}
    inputs = find_inputs([written(Path("pages.jsonl"), pages(20, 0))], InputOptions())
    write_tables(inputs, InputOptions(), Path("out"), layout=Layout.parse("10"), profile=profile)
    tables = CompressedTables(Path("out"))
    assert tables.profile == profile
    assert sorted(pq.read_table("out/documents.parquet")["fingerprint"].to_pylist()) == sorted(
        profile.fingerprints(texts.values()).values.tolist()
    )


@pytest.mark.parametrize("damage", ["missing", "cut off", "another"])
@pytest.mark.parametrize("what", ["list", "profile"])
def test_a_list_or_a_profile_that_is_damaged_is_told(lists: dict[str, str], what: str, damage: str) -> None:
    run("tables", "write", "pages.jsonl", "--out", "out", "--profile", lists["rarity"])
    (path,) = Path("out").glob("list-*" if what == "list" else "profile.json")
    content = path.read_bytes()
    path.write_bytes(content[:-20] if damage == "cut off" else b"{}\n")
    if damage == "missing":
        path.unlink()
    result = run_apart("tables", "match", "pages.jsonl", "--tables", "out")
    assert result.returncode == 1
    assert result.stdout == b""
    told = result.stderr.decode()
    assert path.name in told
    assert "write the tables again" in told


def test_tables_of_a_known_profile_are_as_earlier_releases_read_them() -> None:
    written(Path("pages.jsonl"), pages(20, 0))
    for profile, version in (("auto-2", 1), ("auto-3", 1), ("words-1:n=3", 1), ("auto-2:stops=stops.txt", 2)):
        Path("stops.txt").write_text("policy\n")
        folder = Path(f"out-{profile[:7]}-{version}")
        assert run("tables", "write", "pages.jsonl", "--out", str(folder), "--profile", profile).exit_code == 0
        assert json.loads((folder / "tables.json").read_text())["version"] == version
        assert (folder / "profile.json").exists() == (version == 2)


def kept_in(folder: str) -> Profile:
    return CompressedTables(Path(folder)).profile


def test_new_tables_keep_the_word_weights_that_fit_would_write(lists: dict[str, str]) -> None:
    learnt = {
        name: json.loads(run("tables", "write", "pages.jsonl", "--out", name, *options).stdout).get("word_weights")
        for name, options in {"auto": (), "off": ("--fit", "off"), "given": ("--fit", "own.rarity")}.items()
    }
    assert learnt["auto"] == learnt["given"] != learnt["off"] is None
    assert learnt["auto"]["documents"] == 180
    assert kept_in("auto") == kept_in("given") == Profile.named(lists["rarity"])
    assert kept_in("off") == Profile.named("auto-3")


@pytest.mark.parametrize("kind", ["few", "a stream", "another profile", "a table"])
def test_tables_that_cannot_be_fitted_have_the_profile_that_was_asked_for(lists: dict[str, str], kind: str) -> None:
    source = written(Path("given.jsonl"), pages(60 if kind == "few" else 140, 0))
    given = Path(source).read_text() if kind == "a stream" else ""
    profile = {"another profile": "auto-2", "a table": lists["rarity"]}.get(kind, "auto-3")
    result = run("tables", "write", "-" if given else source, "--out", "out", "--profile", profile, given=given)
    assert result.exit_code == 0, result.stderr
    assert kept_in("out") == Profile.named(profile)


def test_wrong_weights_and_places_are_refused_before_anything_is_read(lists: dict[str, str]) -> None:
    Path("full").mkdir()
    Path("full", "mine").touch()
    for words, reason in (
        (("new", "--fit", "none.rarity"), "none.rarity: No such file"),
        (("new", "--fit", "stops.txt"), "stops.txt is not a rarity table"),
        (("new", "--profile", "auto-2", "--fit", "own.rarity"), "a rarity table goes with weights=rarity"),
        (("full",), "full is not empty"),
    ):
        result = run("tables", "write", "pages.jsonl", "--out", *words)
        assert result.exit_code == 2
        assert reason in result.stderr
    assert not Path("new").exists()
    assert [path.name for path in Path("full").iterdir()] == ["mine"]


def test_nothing_is_left_where_it_was_asked_to_end_while_fitting() -> None:
    names = [written(Path(f"{number}.jsonl"), pages(150, 0)) for number in range(3)]  # a batch each
    inputs, profile = find_inputs(names, InputOptions()), Profile.named("auto-3")
    stages, layout = list[str](), Layout.parse("10")
    observer = Observer(lambda: bool(stages), lambda one: stages.append(one.stage))
    with pytest.raises(StopAskedError):
        write_tables(inputs, InputOptions(), Path("out"), layout=layout, profile=profile, fit="auto", observer=observer)
    assert stages == ["fit"]
    assert not Path("out").exists()
