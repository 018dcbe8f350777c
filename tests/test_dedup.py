"""Documents in files → pairs, clusters, lists, numbers: compared with a plain implementation, in every mode."""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash.dedup import DedupOptions, DedupSummary, dedup, held_texts
from hsimhash.dedup.documents import Listener, collect
from hsimhash.dedup.grouping import ROWS_AT_ONCE, match_stored
from hsimhash.dedup.report import CLUSTERS_LISTED, NOTICES_SHOWN
from hsimhash.dedup.report_texts import Texts
from hsimhash.fingerprint import Profile, Signature
from hsimhash.fingerprint.signature import similarity
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.reader import HELD_BYTES, HeldBatches
from hsimhash.pairs import find_pairs
from hsimhash.pairs.keep_policies import Policy
from hsimhash.progress import UNWATCHED, Observer, Progress
from tests.support.effort import thorough, tries
from tests.support.oracles import are_near, crowds, plain_components, plain_stars, signed

PROFILE = Profile.named("auto-1")
TEXT = "Near-duplicate pages are common on the web, and a search engine has to find {} of them quickly and cheaply. "
LONG = (
    "The committee met on {} to hear what the surveyors had found along the northern shore: two wrecks, an old harbour "
    "wall, and the remains of a mill that nobody had looked for. Its report will be printed in the spring."
)


def run(
    folder: Path,
    *inputs: Path,
    against: HSimIndex | Profile = PROFILE,
    said: list[str] | None = None,
    progress: Callable[[Progress], object] = lambda progress: None,
    reading: Mapping[str, str] | None = None,
    **options: object,
) -> DedupSummary:
    read = InputOptions(**(reading or {}))
    observer = Observer(progress=progress, say=(said if said is not None else []).append)
    found = find_inputs([str(path) for path in inputs], read)
    chosen = DedupOptions(reading=read, **{"table_format": "jsonl", "workers": 1, "max_distance": 3, **options})
    return dedup(found, folder, chosen, against=against, observer=observer)


def table(folder: Path, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").split("\n")[:-1]]


def rows(folder: Path, name: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table(folder, name)]


def ids(folder: Path, name: str) -> list[str]:
    return (folder / f"{name}.txt").read_text("utf-8").split("\n")[:-1]


def stats(folder: Path) -> dict[str, object]:
    return json.loads((folder / "stats.json").read_text("utf-8"))


def contents(folder: Path) -> dict[str, object]:
    """Return all results except what may differ between runs: times, and the folder's name in the report's commands."""
    found: dict[str, object] = {path.name: path.read_bytes() for path in folder.glob("[!.]*")}
    found["report.html"] = (folder / "report.html").read_text("utf-8").replace(str(folder), "DIR")
    found["stats.json"] = {name: value for name, value in stats(folder).items() if name != "run"}
    return found


def fingerprints(path: Path, values: Sequence[int], names: Sequence[str] | None = None) -> Path:
    chosen = names or [f"d{number}" for number in range(len(values))]
    path.write_text("".join(f"{name}\t{value:016x}\n" for name, value in zip(chosen, values, strict=True)))
    return path


def pages(path: Path, texts: Sequence[str], **fields: Sequence[object]) -> Path:
    records = [
        {"id": f"p{number}", "text": text, **{name: values[number] for name, values in fields.items()}}
        for number, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# Compared with a plain implementation.


def plain_pairs(values: Sequence[int], k: int) -> list[tuple[str, str, int]]:
    return [
        (f"d{left}", f"d{right}", bits)
        for left, right in combinations(range(len(values)), 2)
        if (bits := (values[left] ^ values[right]).bit_count()) <= k
    ]


@settings(max_examples=tries(60, 15))
@given(
    crowds(25, bits=6),
    st.integers(0, 3),
    st.sampled_from(["star", "components"]),
    st.sampled_from(["first", "last"]),
    st.sampled_from(["kept", "all", "none"]),
)
def test_pairs_and_clusters_are_those_of_the_plain_way(
    values: list[int], k: int, method: str, keep: str, pairs: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        source, folder = fingerprints(Path(name) / "in.tsv", values), Path(name) / "out"
        reading = {"format": "fingerprints", "fingerprint_format": "hex"}  # a few values may all look like decimals
        run(folder, source, max_distance=k, clusters=method, keep=[Policy(keep)], pairs=pairs, reading=reading)
        order = list(range(len(values)))[:: 1 if keep == "first" else -1]
        kept = (plain_stars if method == "star" else plain_components)(values, order, k)
        members = {its: [one for one, other in enumerate(kept) if other == its] for its in kept}
        if pairs == "none":
            assert not (folder / "pairs.jsonl").exists()
        elif pairs == "all":
            assert sorted(rows(folder, "pairs")) == sorted(plain_pairs(values, k))
        else:
            assert rows(folder, "pairs") == [
                (f"d{its}", f"d{number}", (values[its] ^ values[number]).bit_count())
                for number, its in enumerate(kept)
                if its != number
            ]
        assert rows(folder, "clusters") == [
            (
                f"d{number}",
                min(f"d{one}" for one in members[kept[number]]),
                kept[number] == number,
                f"d{kept[number]}",
                (value ^ values[kept[number]]).bit_count(),
                len(members[kept[number]]),
                max((values[a] ^ values[b]).bit_count() for a in members[kept[number]] for b in members[kept[number]]),
            )
            for number, value in enumerate(values)
        ]
        assert ids(folder, "keep") == [f"d{number}" for number in range(len(values)) if kept[number] == number]
        assert ids(folder, "drop") == [f"d{number}" for number in range(len(values)) if kept[number] != number]


def records(path: Path, signatures: Sequence[Signature]) -> Path:
    lines = [
        {"id": f"d{number}", "fingerprint": f"{one.fingerprint:016x}"}
        | {name: f"{value:016x}" for name, value in (("sketch", one.sketch), ("key", one.key)) if one.sketch or one.key}
        for number, one in enumerate(signatures)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@settings(max_examples=tries(60, 15))
@given(
    signed(crowds(20, least=1, bits=6)),
    st.integers(0, 3),
    st.sampled_from([None, 0, 6, 16]),
    st.sampled_from([("star", plain_stars), ("components", plain_components)]),
    st.sampled_from(["kept", "all"]),
)
def test_pairs_and_clusters_of_signatures_are_those_of_the_plain_way(
    signatures: list[Signature],
    k: int,
    most: int | None,
    method: tuple[str, Callable[..., list[int]]],
    pairs: str,
) -> None:
    signatures = [*signatures, Signature(0, 0, 1)]  # otherwise there may be no sketch and no key
    near = [
        (left, right)
        for left, right in combinations(range(len(signatures)), 2)
        if are_near(signatures[left], signatures[right], k, most)
    ]
    kept = method[1](signatures, range(len(signatures)), k, most)
    listed = near if pairs == "all" else [(its, one) for one, its in enumerate(kept) if its != one]
    with tempfile.TemporaryDirectory() as name:
        source, folder = records(Path(name) / "in.jsonl", signatures), Path(name) / "out"
        reading = {"fingerprint_field": "fingerprint"}
        run(folder, source, max_distance=k, max_sketch=most, clusters=method[0], pairs=pairs, reading=reading)
        expected = []
        for left, right in listed:
            one, other = signatures[left], signatures[right]
            bits = (one.fingerprint ^ other.fingerprint).bit_count()
            found_by = "distance" if bits <= k else "key"
            if tuple(sorted((left, right))) not in near:
                found_by = "chain"
            expected.append((f"d{left}", f"d{right}", bits, similarity(one.sketch, other.sketch), found_by))
        assert sorted(rows(folder, "pairs"), key=repr) == sorted(expected, key=repr)
        assert [row[3] for row in rows(folder, "clusters")] == [f"d{number}" for number in kept]
        # Equal documents are counted once, as the first of them, whichever pairs are listed.
        firsts, found = [signatures.index(one) for one in signatures], stats(folder)
        assert found["equal"] == sum(first != one for one, first in enumerate(firsts))
        if pairs == "all":
            counted = [(left, right) for left, right in near if firsts[right] == right and firsts[left] == left]
            wider = find_pairs(signatures, max_distance=k, max_sketch=None)
            assert found["pairs"] + found["unconfirmed"] == len(wider.left) + found["equal"]
            assert found["pairs"] == len(counted) + found["equal"]
        else:
            assert found["by_key"] == sum(row[4] == "key" for row in expected)
            assert found["pairs"] == sum(row[4] != "chain" for row in expected)


def test_all_pairs_lists_equal_documents_with_each_other(out: Path, tmp_path: Path) -> None:
    run(out, fingerprints(tmp_path / "in.tsv", [7, 7, 5, 7]), pairs="all")
    expected = {("d0", "d1", 0), ("d0", "d3", 0), ("d1", "d3", 0), ("d0", "d2", 1), ("d1", "d2", 1), ("d2", "d3", 1)}
    assert set(rows(out, "pairs")) == expected
    assert len(rows(out, "pairs")) == len(expected)


def test_how_many_pairs_there_are_about_is_said_before_all_are_listed(out: Path, tmp_path: Path) -> None:
    source, said = (
        fingerprints(tmp_path / "in.tsv", [1 << bit for bit in range(40)] * 8 + list(range(300))),
        list[str](),
    )
    run(out, source, pairs="all", said=said)
    (about,) = re.findall("about ([0-9,]+) near pairs", "".join(said))
    distinct = find_pairs([1 << bit for bit in range(40)] + list(range(300)), max_distance=3)
    assert abs(int(about.replace(",", "")) - len(distinct.left)) < len(distinct.left) / 4
    said.clear()
    run(tmp_path / "kept", source, said=said)
    assert not said


def test_a_component_that_is_too_large_is_cut_into_stars(out: Path, tmp_path: Path) -> None:
    chain = [0, 0b111, 0b111111, 0b111111111]
    source = fingerprints(tmp_path / "in.tsv", [*chain, 2**64 - 1, 2**64 - 1])
    summary = run(out, source, clusters="components", max_cluster_size=3)
    assert summary.totals.split == 1
    assert ids(out, "keep") == ["d0", "d2", "d4"]


# Determinism.


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    words = ["".join(rng.choice(list("abcdefgh"), 6)) for _ in range(400)]
    texts = [" ".join(rng.choice(words, 60)) for _ in range(150)]
    texts += [f"{text} {words[0]}" for text in texts[:100]] + texts[:20] + ["!", "two words", ""]
    path = pages(tmp_path / "crowd.jsonl", texts, date=[f"2026-01-{1 + n % 28:02d}" for n in range(len(texts))])
    with path.open("a") as file:
        file.write('nonsense\n{"id": "p3", "text": "another text with the id of an earlier one"}\n')
    return path


@pytest.mark.parametrize("form", ["jsonl", pytest.param("parquet", marks=thorough)])
def test_results_depend_on_neither_workers_nor_memory(form: str, crowd: Path, tmp_path: Path) -> None:
    variants: list[dict[str, object]] = [{}, {"workers": 2}, {"memory_bytes": 1 << 16}, {"workers": 3}]
    for number, variant in enumerate(variants):
        run(tmp_path / str(number), crowd, table_format=form, **variant)
    first, *others = [contents(tmp_path / str(number)) for number in range(len(variants))]
    assert {"rejects.jsonl", "short.jsonl", "report.html", f"pairs.{form}"} < first.keys()
    assert others == [first] * len(others)


@pytest.mark.parametrize("profile", ["auto-1", "auto-2"])
def test_parquet_holds_what_json_lines_do(profile: str, crowd: Path, tmp_path: Path) -> None:
    fingerprints(tmp_path / "plain.tsv", [5, 5])  # without a sketch
    with HSimIndex.create(f"memory://{tmp_path}", profile=profile) as index:
        text = json.loads(crowd.read_text().partition("\n")[0])["text"]
        index.add(index.profile.signature(text), "old", first_seen=5)
        for form in ("jsonl", "parquet"):
            run(tmp_path / form, crowd, tmp_path / "plain.tsv", table_format=form, against=index)
    found = {(row.get("similarity"), row.get("found_by")) for row in table(tmp_path / "jsonl", "pairs")}
    assert (found == {(None, None)}) == (profile == "auto-1")
    assert (found > {(1.0, "distance"), (None, "distance")}) == (profile == "auto-2")
    for name in ("pairs", "clusters", "matches"):
        read = pq.read_table(tmp_path / "parquet" / f"{name}.parquet")
        assert read.to_pylist() == table(tmp_path / "jsonl", name) != []


# What is kept.


def test_of_near_ones_the_policies_choose_in_their_order(out: Path, tmp_path: Path) -> None:
    dates = ["2026-01-02", "2026-01-03T00:00:00Z", None, "2026-01-03"]
    source = pages(tmp_path / "in.jsonl", [LONG.format("Monday")] * 4, date=dates, score=[1, 2, 9, 3])
    run(out, source, keep=[Policy.parse("newest:date"), Policy.parse("highest:score")])
    assert ids(out, "keep") == ["p3"]


def test_the_longest_is_kept(out: Path, tmp_path: Path) -> None:
    source = pages(tmp_path / "in.jsonl", [TEXT, f"{TEXT}  ", f" {TEXT}"])
    run(out, source, keep=[Policy.parse("longest")])
    assert ids(out, "keep") == ["p1"]


def test_a_field_that_no_record_has_is_said(out: Path, tmp_path: Path) -> None:
    said: list[str] = []
    run(out, pages(tmp_path / "in.jsonl", [TEXT, TEXT]), keep=[Policy.parse("newest:dat")], said=said)
    assert said == ['keep newest:dat has no effect: no document has a comparable field "dat"']


def test_values_of_a_field_that_cannot_be_compared_are_counted(out: Path, tmp_path: Path) -> None:
    said: list[str] = []
    dates = ["2024-01-02", "Fri, 05 Jan 2024", None, 10**400, "03.01.2024"]
    run(out, pages(tmp_path / "in.jsonl", [TEXT] * 5, date=dates), keep=[Policy.parse("newest:date")], said=said)
    assert ids(out, "keep") == ["p0"]
    assert said == [
        'keep newest:date: documents whose "date" is neither a number nor an ISO 8601 time come last: 3, starting with '
        "'p1'"
    ]


# Records that are not documents, or are not compared.


def test_short_texts_are_kept_and_listed(out: Path, tmp_path: Path) -> None:
    run(out, pages(tmp_path / "in.jsonl", ["!", " \n", "a word", TEXT]))
    assert ids(out, "keep") == ["p0", "p1", "p2", "p3"]
    assert [(row["id"], row["line"], row["indexed"], row["why"]) for row in table(out, "short")] == [
        ("p0", 1, False, "nothing to fingerprint"),
        ("p1", 2, False, "the text is empty"),
        ("p2", 3, True, "too few features for a vote: it matches only identical texts"),
    ]
    assert (stats(out)["short"], stats(out)["exact"]) == (2, 1)


def test_a_second_record_with_an_id_is_a_repeat_or_a_reject_that_names_the_first(out: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.tsv"
    lines = [{"id": "x", "text": TEXT}, {"id": "y", "text": LONG}, {"id": "x", "text": TEXT}, {"id": "x", "text": LONG}]
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    second.write_text(f"y\t{LONG}.\nz\t{TEXT}\nx\t{TEXT}\n")
    summary = run(out, first, second)
    assert (summary.totals.documents, summary.totals.repeated, summary.totals.rejected) == (3, 2, 2)
    reason = "id already used at {}, with a different text or fingerprint; the first is kept"
    assert [(row["file"], row["line"], row["reason"]) for row in table(out, "rejects")] == [
        (str(first), 4, reason.format(f"{first}:1")),
        (str(second), 1, reason.format(f"{first}:2")),
    ]
    assert ids(out, "keep") == ["x", "y"]
    assert ids(out, "drop") == ["z"]


@settings(max_examples=tries(40, 10))
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans()), max_size=12), min_size=1, max_size=5
    )
)
def test_repeats_and_rejects_within_and_across_batches_are_those_of_a_dict(
    batches: list[list[tuple[int, int, bool]]],
) -> None:
    first: dict[str, tuple[int, str]] = {}
    rejected, repeated = [], 0
    with tempfile.TemporaryDirectory() as name:
        sources = [Path(name) / f"{number}.tsv" for number in range(len(batches))]
        for source, batch in zip(sources, batches, strict=True):
            lines = []
            for line, (number, value, is_bad) in enumerate(batch, start=1):
                lines.append("nonsense" if is_bad else f"d{number}\t{value:016x}")
                if is_bad:
                    rejected.append((str(source), line, "1 columns: expected an id, a tab and a fingerprint"))
                    continue
                known, where = first.setdefault(f"d{number}", (value, f"{source}:{line}"))
                repeated += where != f"{source}:{line}" and known == value
                if known != value:
                    how = "with a different text or fingerprint; the first is kept"
                    rejected.append((str(source), line, f"id already used at {where}, {how}"))
            source.write_text("".join(f"{line}\n" for line in lines))
        out = Path(name) / "out"
        summary = run(out, *sources, reading={"format": "fingerprints", "fingerprint_format": "hex"})
        found = table(out, "rejects") if (out / "rejects.jsonl").exists() else []
        assert [(row["file"], row["line"], row["reason"]) for row in found] == rejected
        assert summary.totals.repeated == repeated
        assert [row[0] for row in rows(out, "clusters")] == list(first)


def test_nothing_but_results_is_left_in_the_folder(out: Path, tmp_path: Path) -> None:
    run(out, pages(tmp_path / "in.jsonl", [TEXT] * 3, date=[1, 2, 3]), keep=[Policy.parse("newest:date")])
    assert {path.name for path in out.iterdir()} == {
        *("pairs.jsonl", "clusters.jsonl", "keep.txt", "drop.txt", "report.html", "stats.json")
    }


def test_a_second_record_with_another_sketch_or_key_is_another_text(out: Path, tmp_path: Path) -> None:
    source = records(
        tmp_path / "in.jsonl", [Signature(7, 3, 5), Signature(7, 3, 5), Signature(7, 1, 5), Signature(7, 3)]
    )
    source.write_text(re.sub(r'"d\d"', '"x"', source.read_text()))
    summary = run(out, source, reading={"fingerprint_field": "fingerprint"})
    assert (summary.totals.documents, summary.totals.repeated, summary.totals.rejected) == (1, 1, 2)
    assert [row["line"] for row in table(out, "rejects")] == [3, 4]


def test_a_page_in_another_frame_is_found_by_its_key_and_shown(out: Path, tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(400)]
    heavy = "zebra quartz fjord sphinx glyph waltz " * 12
    texts = [f"{heavy} {' '.join(words[:60])}", f"{heavy} {' '.join(words[200:260])}"]
    run(out, pages(tmp_path / "in.jsonl", texts), against=Profile.named("auto-2"), max_sketch=None)
    assert [row[4] for row in rows(out, "pairs")] == ["key"]
    report = (out / "report.html").read_text("utf-8")
    assert ">shared key</span>" in report
    assert stats(out)["examples"][-1]["left"] == "p0"
    checked = {"max_sketch": 0, "pairs": "all"}
    run(tmp_path / "checked", pages(tmp_path / "in.jsonl", texts), against=Profile.named("auto-2"), **checked)
    assert [stats(tmp_path / "checked")[name] for name in ("pairs", "unconfirmed")] == [0, 1]


def test_two_short_texts_of_one_id_are_not_taken_for_the_same(out: Path, tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("x\t!\nx\t?\n")
    assert run(out, tmp_path / "in.tsv").totals.rejected == 1
    assert "in.tsv:1, and both texts are too short to compare; the first" in str(table(out, "rejects")[0]["reason"])


def test_the_place_of_a_fingerprint_is_known_among_unusual_lines(out: Path, tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text(f"a\t{1:016x}\n\nb\t0x2\nnonsense\nc\t{3:016x}\nc\t{4:016x}\nb\t{5:016x}\n")
    run(out, tmp_path / "in.tsv", reading={"format": "fingerprints"})
    found = [(row["line"], row["reason"].partition(",")[0]) for row in table(out, "rejects")]
    assert found[1:] == [
        (6, f"id already used at {tmp_path / 'in.tsv'}:5"),
        (7, f"id already used at {tmp_path / 'in.tsv'}:3"),
    ]
    assert found[0][0] == 4


def test_files_of_one_name_in_two_folders_are_two_documents(out: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "page.txt").write_text(LONG)
    totals = run(out, tmp_path / "one", tmp_path / "two").totals
    assert (totals.documents, totals.dropped) == (2, 1)
    assert (out / "drop.txt").read_text() == f"{tmp_path}/two/page.txt\n"


def test_what_comes_before_damage_is_used_and_the_damage_said(out: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    source = fingerprints(tmp_path / "in.tsv", rng.integers(0, 2**64, 50_000, np.uint64).tolist())
    packed = gzip.compress(source.read_bytes())
    (tmp_path / "in.tsv.gz").write_bytes(packed[: len(packed) // 2])
    said: list[str] = []
    summary = run(out, tmp_path / "in.tsv.gz", said=said)
    assert summary.totals.rejected == 1
    assert 0 < summary.totals.documents < 50_000
    assert "truncated" in said[0]


# Against a stored index.


@pytest.fixture
def index(tmp_path: Path) -> Iterator[HSimIndex]:
    with HSimIndex.create(f"memory://{tmp_path}") as index:
        yield index


def test_documents_near_a_stored_one_give_way_to_the_nearest(out: Path, tmp_path: Path, index: HSimIndex) -> None:
    index.add_many([0b1110000, 0b0010000], ["old-far", "old-near"], first_seen=[5, 6])
    run(out, fingerprints(tmp_path / "in.tsv", [0, 2**64 - 1, 2**64 - 1]), against=index)
    assert rows(out, "matches") == [("d0", "old-near", 1, 6)]
    assert rows(out, "clusters") == [
        ("d0", "d0", False, "old-near", 1, 2, 1),
        ("d1", "d1", True, "d1", 0, 2, 0),
        ("d2", "d1", False, "d1", 0, 2, 0),
    ]
    assert (stats(out)["matched"], stats(out)["dropped"]) == (1, 2)


@pytest.mark.parametrize("method", ["star", "components"])
def test_what_is_near_a_matched_document_alone_is_kept(
    method: str, out: Path, tmp_path: Path, index: HSimIndex
) -> None:
    index.add(0b111, "old")
    run(out, fingerprints(tmp_path / "in.tsv", [0, 0b111000]), against=index, clusters=method, pairs="all")
    assert rows(out, "pairs") == [("d0", "d1", 3)]
    assert ids(out, "keep") == ["d1"]
    assert rows(out, "clusters")[0][3] == "old"


def test_documents_of_the_batch_that_are_stored_already_do_not_drop_each_other(
    out: Path, tmp_path: Path, index: HSimIndex
) -> None:
    index.add_many([7, 7, 7 << 30], ["d0", "d1", "old"])
    run(out, fingerprints(tmp_path / "in.tsv", [7, 7, 7 << 20, 7 << 30]), against=index)
    assert [row[:3] for row in rows(out, "matches")] == [("d3", "old", 0)]
    assert ids(out, "keep") == ["d0", "d2"]


@pytest.mark.parametrize("method", ["star", "components"])
@pytest.mark.parametrize("keep", ["first", "last"])
def test_a_document_that_is_stored_already_is_kept_rather_than_a_new_one(
    method: str, keep: str, out: Path, tmp_path: Path, index: HSimIndex
) -> None:
    index.add_many([7, 7 << 20], ["d1", "d4"])
    source = fingerprints(tmp_path / "in.tsv", [7, 7, 7, 7 << 20, 7 << 20, 7 << 20, 1 << 60, 1 << 60])
    run(out, source, against=index, clusters=method, keep=(Policy.parse(keep),))
    assert ids(out, "keep") == ["d1", "d4", {"first": "d6", "last": "d7"}[keep]]


def test_matches_are_those_of_a_query_for_each_document(out: Path, tmp_path: Path, index: HSimIndex) -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 2**64, 3000, np.uint64)
    index.add_many(values ^ np.uint64(1) << rng.integers(0, 64, 3000, np.uint64), [f"old{n}" for n in range(3000)])
    batch = [*values[:1500].tolist(), *values[:700].tolist(), *rng.integers(0, 2**64, 500, np.uint64).tolist()]
    run(out, fingerprints(tmp_path / "in.tsv", batch), against=index, max_distance=2, pairs="all")
    queried = index.query_many(batch, max_distance=2)
    found = [(f"d{n}", match.doc_id, match.distance) for n, matches in enumerate(queried) for match in matches]
    assert sorted(row[:3] for row in rows(out, "matches")) == sorted(found)
    assert [row[3] for row in rows(out, "clusters") if not row[2]] == [ones[0].doc_id for ones in queried if ones]


@settings(max_examples=tries(40, 10))
@given(
    signed(crowds(12, bits=6)),
    signed(crowds(12, bits=6)),
    st.sampled_from([None, 0, 6]),
    st.sampled_from(["kept", "all"]),
)
def test_matches_of_signatures_are_those_of_a_query_for_each_document(
    stored: list[Signature], signatures: list[Signature], most: int | None, pairs: str
) -> None:
    signatures = [*signatures, Signature(0, 0, 1)]
    with tempfile.TemporaryDirectory() as name, HSimIndex.create(f"memory://{name}", profile="auto-2") as index:
        index.add_many(stored, [f"old{number}" for number in range(len(stored))], first_seen=5)
        source, folder = records(Path(name) / "in.jsonl", signatures), Path(name) / "out"
        reading = {"fingerprint_field": "fingerprint"}
        run(folder, source, against=index, max_sketch=most, pairs=pairs, reading=reading)
        queried = index.query_many(signatures, max_distance=3, max_sketch=most)
        assert sorted(rows(folder, "matches"), key=repr) == sorted(
            (
                (f"d{number}", match.doc_id, match.distance, 5, match.similarity, match.found_by)
                for number, matches in enumerate(queried)
                for match in (matches if pairs == "all" else matches[:1])
            ),
            key=repr,
        )
        nearest = [row[3] for row in rows(folder, "clusters") if str(row[3]).startswith("old")]
        assert nearest == [matches[0].doc_id for matches in queried if matches]


def test_matches_of_many_equal_documents_are_written_in_bounded_portions(tmp_path: Path, index: HSimIndex) -> None:
    index.add_many([7] * 500, [f"old{number}" for number in range(500)])
    found = find_inputs([str(fingerprints(tmp_path / "in.tsv", [7] * 400))], InputOptions())
    documents = collect(
        found, DedupOptions(workers=1), PROFILE, tmp_path, Listener(list, list, UNWATCHED), HeldBatches()
    )
    sizes: list[int] = []
    match_stored(index, documents, DedupOptions(pairs="all"), lambda rows: sizes.append(len(rows[0])), lambda *_: None)
    assert sum(sizes) == 400 * 500
    assert max(sizes) < ROWS_AT_ONCE + 500


def test_the_nearest_of_many_matches_is_found_behind_the_batch_s_own_documents(
    out: Path, tmp_path: Path, index: HSimIndex
) -> None:
    own = [f"d{number}" for number in range(30)]
    index.add_many([7] * 30, own)
    index.add_many([6, 5], ["old-a", "old-b"])
    run(out, fingerprints(tmp_path / "in.tsv", [7] * 30), against=index)
    assert [row[:3] for row in rows(out, "matches")] == [(doc_id, "old-a", 1) for doc_id in own]


def test_a_greater_distance_than_queries_can_have_is_refused(out: Path, tmp_path: Path, index: HSimIndex) -> None:
    source = fingerprints(tmp_path / "in.tsv", [1])
    with pytest.raises(ValueError, match=r"max_distance must be 0 to 16 with layout .*, got 17"):
        run(out, source, against=index, max_distance=17)
    with pytest.raises(ValueError, match=r"max_distance must be 0 to 16 bits, got 17"):
        run(out, source, max_distance=17)
    assert not out.exists()


# The report's texts, from a second pass over the inputs.


def near_texts(path: Path, form: str) -> Path:
    texts = [LONG.format(day) for day in ("Monday", "Monday", "Tuesday")]
    if form == "folder":
        path.mkdir()
        for number, text in enumerate(texts):
            (path / f"{number}.txt").write_text(text)
        return path
    if form == "tsv":
        lines = [f"{number}\t{text}\r\n" for number, text in enumerate(texts)]
    else:
        lines = [json.dumps({"id": f"{number}", "text": text}) + "\n" for number, text in enumerate(texts)]
    data = "".join(lines).encode("utf-8-sig")
    named = path.with_name(f"{path.name}.{form}")
    named.write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
    return named


@pytest.mark.parametrize("held_bytes", [HELD_BYTES, 0])
@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "tsv", "folder"])
def test_the_report_shows_texts_of_every_kind_of_input(
    form: str, held_bytes: int, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_texts, "HELD_BYTES", held_bytes)
    run(out, fingerprints(tmp_path / "before.tsv", [5]), near_texts(tmp_path / "in", form), max_distance=3)
    assert stats(out)["dropped"] != 0
    report = (out / "report.html").read_text("utf-8")
    assert "Monday" in report
    assert "before.tsv holds fingerprints, not texts" in report
    assert "cannot be read again" not in report


def test_progress_counts_each_pair_of_the_report(out: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    run(out, near_texts(tmp_path / "in", "jsonl"), progress=lambda progress: stages.append(progress.stage))
    assert stages.count("write") > (out / "report.html").read_text("utf-8").count("of words equal <span") > 0


@thorough
def test_progress_tells_how_far_the_search_for_pairs_is(out: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def note(progress: Progress) -> None:
        if progress.stage == "find":
            told.append((progress.done, progress.total))

    run(out, fingerprints(tmp_path / "in.tsv", list(range(0, 1 << 40, 1 << 28))), progress=note)
    assert told[0] == (0, 0)
    assert told[1:] == sorted(told[1:])
    assert told[-1][0] == told[-1][1] > 1


@pytest.mark.parametrize("held_bytes", [HELD_BYTES, 0])
def test_a_report_of_inputs_that_changed_meanwhile_has_only_texts_that_were_held(
    held_bytes: int, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_texts, "HELD_BYTES", held_bytes)
    source = near_texts(tmp_path / "in", "jsonl")

    def forget(progress: Progress) -> None:
        if progress.stage == "find":
            source.unlink(missing_ok=True)

    run(out, source, progress=forget)
    report = (out / "report.html").read_text("utf-8")
    assert ("Monday" in report) == (held_bytes > 0)
    assert ("in.jsonl cannot be read again: No such file or directory" in report) == (held_bytes == 0)


def test_the_report_stays_small_and_the_warnings_are_in_the_numbers_too(out: Path, tmp_path: Path) -> None:
    run(out, fingerprints(tmp_path / "in.tsv", [9] * 5000 + list(range(1 << 20, 1 << 40, 1 << 28))))
    assert (out / "report.html").stat().st_size < 100_000
    titles = [warning["title"] for warning in stats(out)["warnings"]]
    assert titles == ["Giant cluster"] * NOTICES_SHOWN + ["Hot fingerprint"]
    assert "Hot fingerprint" in (out / "report.html").read_text("utf-8")


def test_pairs_are_compared_up_to_a_budget_of_characters(tmp_path: Path) -> None:
    with Texts(tmp_path, compared_chars=5) as texts:
        for number in range(3):
            texts.add(number, f"text {number}\nmore", is_compared=number < 2)
        shown = ((0, 2), (0, 1), (0, 1), (1, 0))  # a repeated pair is not compared again
        pairs = [texts.pair((left, "a"), (right, "b"), 1) for left, right in shown]
        assert [pair.comparison is not None for pair in pairs] == [False, True, True, False]
        assert "stopped comparing pairs" in texts.note
        assert texts.first_lines == {0: "text 0", 1: "text 1", 2: "text 2"}


def test_a_giant_cluster_and_a_hot_fingerprint_are_not_hidden_by_larger_ones_of_equal_documents(
    out: Path, tmp_path: Path
) -> None:
    templates = [number << 40 for number in range(128)]
    not_found, logins = [(1 << 63) + 0x55] * 300, [(3 << 62) + 0xAA] * 200
    larger = [0xFF00 + sum(15 << 16 + 4 * bit for bit in range(5) if number >> bit & 1) for number in range(25)] * 140
    run(out, fingerprints(tmp_path / "in.tsv", [*not_found, *logins, *larger, *templates]), clusters="components")
    details = [(warning["title"], warning["detail"]) for warning in stats(out)["warnings"]]
    assert [title for title, _ in details] == ["Giant cluster"] + ["Hot fingerprint"] * 3
    assert "128 of 4,128 documents (3.1%) are in the cluster of 'd4000'; some are 7 bits apart" in details[0][1]
    assert "8000000000000055" in details[1][1]
    assert "c0000000000000aa" in details[2][1]
    assert "<h3><bdi>d4000</bdi>" in (out / "report.html").read_text("utf-8")


def test_a_hot_fingerprint_is_counted_whatever_its_sketches(out: Path, tmp_path: Path) -> None:
    source = records(tmp_path / "in.jsonl", [Signature(9, 1 + number % 7, 5) for number in range(150)])
    run(out, source, reading={"fingerprint_field": "fingerprint"})
    assert "150 of 150 documents" in str(stats(out)["warnings"])


def test_a_cluster_has_the_name_of_its_kept_document_in_the_report(out: Path, tmp_path: Path) -> None:
    run(out, fingerprints(tmp_path / "in.tsv", [7, 7, 5], ["kept", "a-smaller-id", "third"]))
    report = (out / "report.html").read_text("utf-8")
    assert "<h3><bdi>kept</bdi>" in report
    assert rows(out, "clusters")[0][1] == "a-smaller-id"


def test_the_numbers_tell_what_a_greater_distance_would_add_with_examples(out: Path, tmp_path: Path) -> None:
    values = [0, 0b1111, 1 << 60 | 0b11111, 2**64 - 1, 2**64 - 1]
    run(out, fingerprints(tmp_path / "in.tsv", values))
    found = stats(out)
    assert found["beyond"] == {"pairs": {"4": 1, "5": 0, "6": 1}, "compared": 4, "fingerprints": 4}
    assert [tuple(example.values()) for example in found["examples"]] == [
        ("d3", "d4", 0, None),
        ("d1", "d2", 2, None),
        ("d0", "d1", 4, None),
        ("d0", "d2", 6, None),
    ]


def test_the_numbers_tell_the_share_of_equal_words_of_examples(out: Path, tmp_path: Path) -> None:
    text = " ".join(map(str, range(100)))
    run(out, pages(tmp_path / "in.jsonl", [text, f"{text} end"]))
    (example,) = stats(out)["examples"]
    assert example["equal_words"] == 0.995


def test_clusters_are_listed_with_their_first_lines_up_to_a_bound(out: Path, tmp_path: Path) -> None:
    texts = [f"  \nHeading  of {number}\n{number} {LONG} {number * 31}" for number in range(CLUSTERS_LISTED + 20)]
    twice = [text for text in texts for _ in range(2)]
    run(out, pages(tmp_path / "in.jsonl", twice), max_distance=0)
    report = (out / "report.html").read_text("utf-8")
    clusters = int(str(stats(out)["clusters"]))
    assert clusters > CLUSTERS_LISTED
    assert len(re.findall(">Heading of [0-9]+<", report)) == CLUSTERS_LISTED
    assert f"{clusters - CLUSTERS_LISTED:,} more clusters are in clusters.jsonl" in report
