"""Jobs on a real local Spark return the same answers as without Spark."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hsimhash import HSimIndex, Profile
from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.dedup import DedupOptions, Method, PairsListed, dedup
from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import TOO_SHORT
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.rarity import FIT_AUTO, FIT_OFF
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.reader import read_batches
from hsimhash.load.fitting import fit_inputs
from hsimhash.pairs import PairBlock, find_pairs
from hsimhash.pairs.clusters import components, linked
from hsimhash.pairs.keep_policies import Policy
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.spark import (
    PairLimits,
    RecordOptions,
    SparkDedupOptions,
    clusters,
    dedup_files,
    fingerprints,
    pairs,
    read_documents,
    single_task,
    write_tables,
)
from hsimhash.spark.columns import grouped_evenly, partition_keys
from hsimhash.spark.components import component_roots
from hsimhash.spark.fitting import fit_files, fitted_to_files
from hsimhash.spark.near_pairs import PAIR_LIMITS
from hsimhash.store.conformance.random_calls import packed_key
from tests.support.command_line import PROGRAM
from tests.support.effort import tries
from tests.support.fingerprint_sets import (
    Numbers,
    crowded_signatures,
    half_near,
    near_and_equal,
    page_ids,
    random_fingerprints,
    write_signatures,
)
from tests.support.spark_session import QUICK, local_spark, need_java
from tests.test_dedup_fit import pages, written
from tests.test_readme import blocks, doc, run

pytestmark = pytest.mark.together
SMALL = PairLimits(part=2_000, spread=5_000, sample=3_000, given_fingerprints=1_000, given_ids=500)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    need_java()
    with local_spark(**QUICK) as session:
        yield session


def frame(spark: SparkSession, path: Path, values: Numbers, ids: Sequence[str] | None = None) -> DataFrame:
    """A DataFrame of fingerprints in a file of several row groups."""
    ids = page_ids(0, len(values)) if ids is None else ids
    pq.write_table(
        pa.table({"id": ids, "fingerprint": values.view(np.int64)}), path, row_group_size=len(values) // 3 + 1
    )
    return spark.read.parquet(str(path))


@pytest.mark.parametrize("k", [3, 6])
def test_pairs_are_those_of_find_pairs(spark: SparkSession, tmp_path: Path, k: int) -> None:
    values = near_and_equal(np.random.default_rng(k), 9_000, near=1 / 3, equal=1 / 3, most=6)
    given = frame(spark, tmp_path / "given.parquet", values)
    ids = page_ids(0, len(values))
    known = find_pairs(values, max_distance=k)
    expected = {
        (ids[a], ids[b], d)
        for a, b, d in zip(known.left.tolist(), known.right.tolist(), known.distance.tolist(), strict=True)
    } | {(ids[first], ids[place], 0) for place, first in enumerate(known.groups.tolist()) if first != place}
    found = [tuple(row) for row in pairs(given, max_distance=k, limits=SMALL).collect()]
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_fingerprints_are_the_profiles(spark: SparkSession) -> None:
    texts = [
        "",
        "the quick brown fox jumps over the lazy dog " * 9,
        "今天天气很好，我们一起去公园散步。" * 9,
        None,
        "one",
    ]
    given = spark.createDataFrame(
        [(number, text, "x") for number, text in enumerate(texts)], "n int, text string, more string"
    )
    found = {row.n: row for row in fingerprints(given).collect()}
    made = Profile.named(DEFAULT_PROFILE).signatures([text or "" for text in texts])
    for place, one in enumerate(made):
        row = found[place]
        assert row.more == "x"
        if made.kinds[place] == TOO_SHORT:
            assert (row.kind, row.fingerprint) == ("short", None)
        else:
            bits = tuple((value or 0) & (1 << 64) - 1 for value in (row.fingerprint, row.sketch, row.key))
            assert bits == tuple(one)


@pytest.mark.parametrize("name", ["1e0ng-1", "words-1:n=3,hash=fnv-1a-64,tie=one"])
def test_a_profile_with_other_parts_reaches_the_executors(spark: SparkSession, name: str) -> None:
    text = "the quick brown fox jumps over the lazy dog and " * 9
    (row,) = fingerprints(spark.createDataFrame([("a", text)], "id string, text string"), profile=name).collect()
    assert row.fingerprint & (1 << 64) - 1 == Profile.named(name).fingerprint(text)


def test_fields_and_given_features_are_those_of_one_machine(spark: SparkSession, tmp_path: Path) -> None:
    text = "the tide table in the harbour office is printed twice a year [see below] and nobody trusts it"
    documents: list[dict[str, object]] = [
        {"id": "a", "title": "Tides", "headings": ["Morning", "Evening"], "body": text},
        {"id": "b", "title": "[Boats]", "headings": None, "body": text.upper(), "tags": [["sea", 0.5], ["boat", 2]]},
        {"id": "c", "tags": {"sea": 0.5, "boat": 2}},
        {"id": "d", "tags": "boat"},
        {"id": "e"},
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    for name, options in (
        ("words-1:fields=title^3+headings^2+body", InputOptions()),
        ("features-1", InputOptions(text_field="tags")),
    ):
        profile = Profile.named(name)
        read = read_documents(spark, [str(path)], RecordOptions(profile, text_field=options.text_field))
        found = {row.id: row.fingerprint & (1 << 64) - 1 for row in read.documents.collect()}
        options = options.for_profile(profile)
        batches = read_batches(find_inputs([str(path)], options), options)
        expected = {
            doc_id: profile.fingerprint(content)
            for batch in batches
            for doc_id, content in zip(batch.documents.doc_ids, batch.documents.texts, strict=True)
        }
        assert found == expected
        assert read.rejects.count() == len(documents) - len(expected)


def test_html_is_read_as_on_one_machine(spark: SparkSession, tmp_path: Path) -> None:
    text = "The tide table in the harbour office is printed twice a year and nobody trusts it, says the crew. " * 6
    parts = "".join(f"<p>{one}.</p>" for one in text.split(". "))
    page = f"<!DOCTYPE html><html><body><article>{parts}</article></body></html>"
    values = {"plain": text, "fragment": f"&nbsp;{parts}", "page": page, "comparison": f"a < b && c > d {text}"}
    path, options = tmp_path / "in.jsonl", InputOptions()
    path.write_text("".join(json.dumps({"id": name, "text": value}) + "\n" for name, value in values.items()))
    read = read_documents(spark, [str(path)], RecordOptions())
    found = {row.id: (row.fingerprint & (1 << 64) - 1, row.length) for row in read.documents.collect()}
    profile = Profile.named(DEFAULT_PROFILE)
    (batch, *_) = read_batches(find_inputs([str(path)], options), options, workers=1)
    pairs = zip(batch.documents.doc_ids, batch.documents.texts, strict=True)
    assert found == {doc_id: (profile.fingerprint(content), len(content)) for doc_id, content in pairs}
    assert found["plain"][0] == found["fragment"][0] == found["page"][0]


def records(path: Path) -> Path:
    """Write documents: near and equal ones, two thirds of them a crowd; short ones, repeats, and bad records."""
    rng = np.random.default_rng(7)
    words = np.array([f"word{number}" for number in range(2_000)])
    bases = [rng.choice(words, 100) for _ in range(60)]
    lines = []
    for number in range(900):
        text = bases[0 if number % 3 else rng.integers(len(bases))].copy()
        text[rng.integers(0, 100, rng.integers(0, 4))] = rng.choice(words)
        scheme = "https" if rng.random() < 0.5 else "http"
        record: dict[str, object] = {"id": f"{scheme}://x/{rng.integers(10**8)}", "text": " ".join(text)}
        if rng.random() < 0.8:
            record |= {"date": f"20{rng.integers(10, 26)}-03-0{rng.integers(1, 9)}", "score": float(rng.random())}
        lines.append(json.dumps(record))
        if number % 60 == 0:
            lines += [
                json.dumps({"id": f"short{number}", "text": "?"}),
                json.dumps({"id": "same", "text": "one two " * 9}),
            ]
        if number % 150 == 0:
            lines += ["{broken", json.dumps({"id": "same", "text": "another " * 9}), json.dumps({"text": "no id"})]
    path.write_text("\n".join(lines) + "\n")
    return path


def table(path: Path) -> list[tuple[str, ...]]:
    read = pq.read_table(path)
    return sorted(tuple(repr(row[name]) for name in sorted(read.column_names)) for row in read.to_pylist())


def test_json_lines_are_rejected_as_on_one_machine(spark: SparkSession, tmp_path: Path) -> None:
    given, text = tmp_path / "given.jsonl", "one two three four five six seven eight " * 3
    texts = [text, "", None, 7, 1.5, True, [text], {"a": text}, "\ud800", "\n<p>" + text]
    ids = ["a", "", None, 5, 2**70, 1.5, 2.0, True, ["a"], {"a": 1}, "\ud800", "x" * 3_000, "line\nbreak"]
    records = [{"id": f"text{number}", "text": value} for number, value in enumerate(texts)]
    records += [{"id": value, "text": text} for value in ids] + [{"text": text}, {"id": "none"}, {}]
    lines = [json.dumps(record).encode() for record in records]
    lines += [b"{broken", b"[1]", b"3", b'"x"', b"null", b"", b"  ", b'{"id": "u", "text": "\xff"}']
    lines += [b"[" * 20_000, b'{"id": "long", "text": "%s"}' % (b"x " * (8 << 20)), b'{"id": 1%s}' % (b"0" * 5_000)]
    given.write_bytes(b"\n".join(lines))
    reading = InputOptions(id_field="id")
    known, rejected = list[str](), list[str]()
    for batch in read_batches(find_inputs([str(given)], reading), reading, workers=1):
        known += batch.documents.doc_ids
        rejected += [one.reason for one in batch.documents.rejects]
    read = read_documents(spark, [str(given)], RecordOptions())
    assert sorted(row.id for row in read.documents.collect()) == sorted(known)
    assert sorted(row.reason for row in read.rejects.collect()) == sorted(rejected)


@pytest.mark.parametrize("at_once", [0, PAIR_LIMITS.single_task], ids=["many-tasks", "one-task"])
@pytest.mark.parametrize(
    ("name", "keep", "method", "most"),
    [
        ("auto-2", ("first",), "star", None),
        ("auto-2", ("newest:date", "longest", "https"), "components", None),
        ("auto-3", ("newest:date", "longest", "https"), "star", None),
        ("auto-3", ("highest:score", "last"), "components", 4),
    ][:: tries(1, 3)],
)
def test_dedup_gives_the_answers_of_one_machine(
    spark: SparkSession, tmp_path: Path, name: str, keep: tuple[str, ...], method: str, most: int | None, at_once: int
) -> None:
    given, policies = records(tmp_path / "given.jsonl"), tuple(map(Policy.parse, keep))
    one, many = tmp_path / "one", tmp_path / "many"
    reading = InputOptions(id_field="id")  # on Spark a record without an id is a reject
    options = DedupOptions(
        clusters=method, max_cluster_size=most, keep=policies, reading=reading, table_format="parquet"
    )  # type: ignore[arg-type]
    profile = Profile.named(name)
    known = dedup(find_inputs([str(given)], reading), one, options, against=profile)
    limits = replace(PAIR_LIMITS, single_task=at_once)
    asked = SparkDedupOptions(clusters=method, max_cluster_size=most, limits=limits)
    totals, learnt = dedup_files(spark, [str(given)], str(many), RecordOptions(profile, keep=policies), asked)
    assert table(many / "pairs") == table(one / "pairs.parquet")
    assert table(many / "clusters") == table(one / "clusters.parquet")
    assert [row for (row,) in table(many / "keep")] == sorted(map(repr, (one / "keep.txt").read_text().split()))
    expected = known.totals.to_json()
    assert totals.to_json() == {name: count for name, count in expected.items() if name != "unconfirmed"}
    assert learnt == known.learnt
    assert (learnt is not None) == (name == "auto-3")
    (stats,) = pq.read_table(many / "stats").to_pylist()
    assert stats["dropped"] == known.totals.dropped
    told = json.loads((one / "stats.json").read_text())
    assert (stats["profile"], stats["word_weights"]) == (told["profile"], told.get("word_weights"))


@pytest.mark.parametrize("at_once", [0, PAIR_LIMITS.single_task], ids=["many-tasks", "one-task"])
@pytest.mark.parametrize(
    ("listed", "method", "keying"),
    [(*how, keying) for how in (("kept", "star"), ("all", "components")) for keying in Keying][:: tries(1, 3)],
)
def test_documents_that_share_keys_are_found_as_on_one_machine(
    spark: SparkSession, tmp_path: Path, listed: PairsListed, method: Method, keying: Keying, at_once: int
) -> None:
    given, one, many = tmp_path / "given.jsonl", tmp_path / "one", tmp_path / "many"
    signatures = crowded_signatures(np.random.default_rng(10), 1_400, keying)
    write_signatures(given, page_ids(0, len(signatures)), signatures)
    profile = Profile.named("auto-2" if keying is Keying.WHOLE else "auto-3")
    reading = InputOptions("jsonl", fingerprint_field="fingerprint", has_signatures=True)
    asked = DedupOptions(clusters=method, pairs=listed, reading=reading, table_format="parquet")
    known = dedup(find_inputs([str(given)], reading), one, asked, against=profile).totals.to_json()
    options = SparkDedupOptions(clusters=method, pairs=listed, limits=replace(PAIR_LIMITS, single_task=at_once))
    records = RecordOptions(profile, fingerprint_field="fingerprint")
    totals, _ = dedup_files(spark, [str(given)], str(many), records, options)
    for name in ("pairs", "clusters"):
        assert table(many / name) == table(one / f"{name}.parquet")
    assert totals.to_json() == {name: count for name, count in known.items() if name != "unconfirmed"}
    assert totals.by_key


@pytest.mark.parametrize("keying", Keying)
def test_pairs_and_clusters_share_keys_as_their_profile_says(
    spark: SparkSession, tmp_path: Path, keying: Keying
) -> None:
    signatures = crowded_signatures(np.random.default_rng(12), 300, keying)
    ids, given = page_ids(0, len(signatures)), tmp_path / "given.parquet"
    columns = {"fingerprint": signatures.fingerprints, "sketch": signatures.sketches, "key": signatures.keys}
    pq.write_table(pa.table({"id": ids, **{name: one.view(np.int64) for name, one in columns.items()}}), given)
    profile = "auto-2" if keying is Keying.WHOLE else Profile.named("auto-3")
    known = find_pairs(signatures, max_distance=DEFAULT_DISTANCE)
    found = pairs(spark.read.parquet(str(given)), profile=profile, limits=SMALL).collect()
    expected = [(ids[left], ids[right]) for left, right, _ in zip(*known.brief(), strict=True)]
    assert sorted((row.left, row.right) for row in found) == sorted(expected)
    assert {row.found_by for row in found} == {"distance", "key"}
    rows = clusters(spark.read.parquet(str(given)), profile=profile, method="components", limits=SMALL).collect()
    joined = components(signatures.fingerprints, known, np.arange(len(ids)))
    assert {row.id: row.kept_id for row in rows} == {ids[n]: ids[kept] for n, kept in enumerate(joined.kept.tolist())}


@pytest.mark.parametrize(("count", "sample"), [(200, 40), (200, None), (21_000, None)])
def test_a_table_is_fitted_to_the_sample_of_one_machine(
    spark: SparkSession, tmp_path: Path, count: int, sample: int | None
) -> None:
    given, again = records(tmp_path / "given.jsonl"), tmp_path / "again.parquet"
    texts = [f"harbour ferry {number % 5} tide {number} " * 5 for number in range(count)]
    texts += [*texts[:50], "", "<p>a fragment <b>of a page</b> with a ferry"]
    pq.write_table(pa.table({"id": page_ids(0, len(texts)), "text": texts}), again, row_group_size=count // 7)
    profile, reading = Profile.named("auto-3"), InputOptions(id_field="id")
    names = [str(given), str(again)]
    known = fit_inputs(find_inputs(names, reading), reading, profile, sample=sample)
    found = fit_files(spark, names, RecordOptions(profile), sample)
    assert found is not None
    assert found.content() == known.table.content()
    assert known.read > 2 * known.table.documents or (count, sample) == (200, None)


def test_fit_is_off_a_table_or_automatic_where_there_is_something_to_learn(spark: SparkSession, tmp_path: Path) -> None:
    given, few = records(tmp_path / "given.jsonl"), tmp_path / "few.jsonl"
    few.write_text("".join(given.read_text().splitlines(keepends=True)[:90]))
    own = tmp_path / "own.rarity"
    plain = Profile.named("auto-3")
    table = fit_files(spark, [str(few)], RecordOptions(plain))
    assert table is not None
    own.write_bytes(table.content())

    def name_of(path: Path, fit: str, asked: RecordOptions) -> str:
        return fitted_to_files(spark, [str(path)], asked, fit, UNWATCHED).name

    records_3 = RecordOptions(plain)
    assert name_of(given, FIT_OFF, records_3) == name_of(few, FIT_AUTO, records_3) == "auto-3"
    assert name_of(given, str(own), records_3) == plain.fitted(table).name
    assert name_of(given, FIT_AUTO, records_3) not in ("auto-3", plain.fitted(table).name)
    assert name_of(given, FIT_AUTO, RecordOptions(Profile.named("auto-2"))) == "auto-2"
    with_fingerprints = RecordOptions(plain, fingerprint_field="fingerprint")
    assert name_of(given, FIT_AUTO, with_fingerprints) == "auto-3"
    with pytest.raises(ValueError, match=r"none\.rarity: No such file"):
        name_of(given, "none.rarity", records_3)


@pytest.mark.parametrize(
    ("listed", "field"),
    [(listed, field) for listed in ("all", "none") for field in (None, "fingerprint")][:: tries(1, 3)],
)
def test_one_task_writes_the_tables_of_many(
    spark: SparkSession, tmp_path: Path, listed: PairsListed, field: str | None
) -> None:
    given, profile = records(tmp_path / "given.jsonl"), Profile.named("auto-2" if field is None else "auto-1")
    if field is not None:
        values = near_and_equal(np.random.default_rng(6), 900, near=1 / 3, equal=1 / 3, most=4)
        lines = (json.dumps({"id": f"{n * 7 % 900}", field: f"{one:016x}"}) for n, one in enumerate(values.tolist()))
        given.write_text("\n".join(lines))
    summaries = []
    for at_once in (0, PAIR_LIMITS.single_task):
        options = SparkDedupOptions(pairs=listed, limits=replace(PAIR_LIMITS, single_task=at_once))
        reading = RecordOptions(profile, fingerprint_field=field)
        summaries.append(dedup_files(spark, [str(given)], str(tmp_path / f"{at_once}"), reading, options))
    many, one = tmp_path / "0", tmp_path / f"{PAIR_LIMITS.single_task}"
    names = {path.name for path in many.iterdir()}
    assert names == {path.name for path in one.iterdir()}
    for name in names:
        assert table(many / name) == table(one / name)
        assert spark.read.parquet(str(many / name)).dtypes == spark.read.parquet(str(one / name)).dtypes
    assert summaries[0] == summaries[1]
    assert summaries[0].totals.dropped


def test_listing_all_pairs_of_a_crowd_warns_of_their_number(spark: SparkSession, tmp_path: Path) -> None:
    said = list[str]()
    rng = np.random.default_rng(8)
    columns = {name: rng.integers(1, 1 << 59, 300) for name in ("fingerprint", "sketch", "key")}
    shared = {"auto-2": [7, 7], "auto-3": [packed_key([1, 2, 3, 4, 5]), packed_key([2, 3, 4, 6, 7])]}
    for name, listed in (("auto-3", "all"), *(("auto-2", one) for one in get_args(PairsListed))):
        given, run = tmp_path / f"{name}.parquet", f"{name} {listed}"
        columns["key"][:40], columns["key"][40:100] = shared[name]
        pq.write_table(pa.table({"id": page_ids(0, 300), **columns}), given)
        options = SparkDedupOptions(pairs=listed, limits=replace(PAIR_LIMITS, single_task=0))
        reading = RecordOptions(Profile.named(name), fingerprint_field="fingerprint")
        observer = Observer(say=lambda text, run=run: said.append(f"{run}: {text}"))  # type: ignore[misc]
        dedup_files(spark, [str(given)], str(tmp_path / run), reading, options, observer=observer)
    assert [text.split(" of")[0] for text in said] == ["auto-3 all: up to 4,950 pairs", "auto-2 all: up to 4,950 pairs"]


def test_one_task_sends_its_rows_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    values = near_and_equal(np.random.default_rng(9), 500, near=1 / 3, equal=1 / 3, most=4).view(np.int64)
    ids, rank = page_ids(0, 500), np.arange(500, dtype=np.int32)
    rows = pa.table({"id": ids, "fingerprint": values, "sketch": values, "key": values >> 40, "rank": rank})

    def found() -> list[pa.RecordBatch]:
        return list(single_task._clustered(DedupOptions(pairs="all"), Keying.WHOLE, rows.to_batches(max_chunksize=60)))

    whole = found()
    monkeypatch.setattr(single_task, "_BATCH", 37)
    parts = found()
    assert max(part.num_rows for part in parts) == 37
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches(whole).combine_chunks()


@pytest.mark.parametrize(("name", "most"), [("auto-2", 15), ("auto-3", 19)])  # auto-3 is fitted
def test_few_documents_take_few_jobs(spark: SparkSession, tmp_path: Path, name: str, most: int) -> None:
    given, tracker = records(tmp_path / "given.jsonl"), spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    reading = RecordOptions(Profile.named(name))
    dedup_files(spark, [str(given)], str(tmp_path / "out"), reading, SparkDedupOptions())
    assert 5 < len(set(tracker.getJobIdsForGroup()) - before) <= most


def test_long_chains_are_one_component(spark: SparkSession) -> None:
    rng = np.random.default_rng(3)
    names = rng.permutation(600)
    left, right = names[:-1].copy(), names[1:].copy()
    whole = np.arange(599) % 200 != 199  # three chains of 200
    left, right = left[whole], right[whole]
    low, high = np.minimum(left, right), np.maximum(left, right)
    root = linked([PairBlock(low, high, np.ones(len(low), np.uint8))], 600)
    edges = spark.createDataFrame(list(zip(low.tolist(), high.tolist(), strict=True)), "low bigint, high bigint")
    for at_once in (20, 1 << 20):
        found = {row.number: row.root for row in component_roots(edges.repartition(7), at_once).collect()}
        assert found == dict(enumerate(root.tolist()))


@pytest.mark.parametrize("is_packed", [False, True])
def test_tables_of_many_tasks_answer_as_an_index_of_the_same_documents(
    spark: SparkSession, tmp_path: Path, is_packed: bool
) -> None:
    rng = np.random.default_rng(4)
    values = near_and_equal(rng, 3_000, near=1 / 3, equal=1 / 3, most=6)
    stored = frame(spark, tmp_path / "stored.parquet", values).withColumn("first_seen", F.lit(5).cast("bigint"))
    queries, folder = half_near(rng, values, 400, 3), tmp_path / "tables"
    manifest = write_tables(stored, str(folder), layout="10", profile="auto-2", compress=is_packed, part_documents=900)
    assert (manifest.documents, len(manifest.parts)) == (3_000, 4)
    with (
        HSimIndex.create(tmp_path / "index", layout="10", profile="auto-2") as index,
        HSimIndex.open(f"tables://{folder}") as tables,
    ):
        index.add_many(values, page_ids(0, len(values)), first_seen=5)
        assert list(tables.documents()) == list(index.documents())
        assert tables.query_many(queries) == index.query_many(queries)
        assert sum(map(len, tables.query_many(queries))) > 1_000
        assert tables.check().is_sound
    with pytest.raises(HsimhashError, match="is not empty"):
        write_tables(stored, str(folder))


def test_tables_of_no_documents_are_empty(spark: SparkSession, tmp_path: Path) -> None:
    stored = frame(spark, tmp_path / "none.parquet", np.empty(0, np.uint64))
    assert write_tables(stored, str(tmp_path / "tables")).documents == 0
    with HSimIndex.open(f"tables://{tmp_path}/tables") as tables:
        assert (tables.query(5), tables.count(), list(tables.documents())) == ([], 0, [])
        assert tables.query_many([5, 6]) == [[], []]
        assert tables.check().is_sound
        assert tables.store.describe()["parts"] == 0


def test_tables_keep_a_fitted_profile(tmp_path: Path) -> None:
    need_java()
    given = written(tmp_path / "pages.jsonl", pages(150, 30))
    stops = tmp_path / "stops.txt"
    stops.write_text("privacy\npolicy\n")
    profile = ("--profile", f"auto-3:stops={stops}")

    def made(*words: str) -> str:
        done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    index, spread = f"lmdb://{tmp_path}/index", str(tmp_path / "many")
    made("ingest", given, "--store", index, *profile)
    assert json.loads(made("spark", "tables", given, "--out", spread, *profile))["word_weights"]["documents"] == 180
    stops.unlink()
    with HSimIndex.open(index) as one, HSimIndex.open(f"tables://{spread}") as other:
        assert one.store.record == other.store.record
        documents = list(one.documents())
        assert [document._replace(first_seen=0) for document in other.documents()] == [
            document._replace(first_seen=0) for document in documents
        ]
        asked = [document.signature for document in documents]
        found = [
            [[(match.doc_id, match.distance) for match in matches] for matches in tables.query_many(asked)]
            for tables in (one, other)
        ]
    assert found[0] == found[1]
    assert sum(map(len, found[0])) > 180


def test_rows_with_a_key_go_to_its_partition(spark: SparkSession) -> None:
    keys = partition_keys(50)
    rows = spark.createDataFrame([(key, place) for place, key in enumerate(keys)], "key int, place int")
    found = rows.repartition(50, "key").select("place", F.spark_partition_id().alias("partition")).collect()
    assert [(row.place, row.partition) for row in sorted(found)] == [(place, place) for place in range(50)]


@pytest.mark.parametrize("large", [0, 1, 10])
def test_tasks_have_about_as_many_rows_and_groups_whole(spark: SparkSession, large: int) -> None:
    sizes = [1_000 + group for group in range(large)] + [1 + group % 7 for group in range(600)]
    rows = [(group << 40, place) for group, size in enumerate(sizes) for place in range(size)]
    given = spark.createDataFrame(rows, "name bigint, place int").repartition(3)
    found = grouped_evenly(given, "name").withColumn("task", F.spark_partition_id())
    tasks = found.groupBy("name").agg(F.countDistinct("task").alias("tasks"), F.count("*").alias("rows")).collect()
    assert sorted((row.name, row.tasks, row.rows) for row in tasks) == [
        (n << 40, 1, one) for n, one in enumerate(sizes)
    ]
    loads = [row["count"] for row in found.groupBy("task").count().collect()]
    assert max(loads) < 3 * np.median(loads)


def test_unsigned_numbers_and_digits_are_the_same_bits(spark: SparkSession) -> None:
    values = random_fingerprints(np.random.default_rng(8), 400)
    values[200:] = values[:200] ^ np.uint64(1 << 63)
    ids = page_ids(0, len(values))
    expected = {(ids[place], ids[place + 200], 1) for place in range(200)}
    for kind, shown in (("decimal(20,0)", Decimal), ("string", "{:016x}".format), ("bigint", lambda one: one)):
        given = values.view(np.int64).tolist() if kind == "bigint" else values.tolist()
        rows = [(doc_id, shown(one)) for doc_id, one in zip(ids, given, strict=True)]
        found = pairs(spark.createDataFrame(rows, f"id string, fingerprint {kind}"), limits=SMALL).collect()
        assert {tuple(row) for row in found} == expected


def test_results_do_not_replace_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    given = records(tmp_path / "given.jsonl")
    with pytest.raises(ValueError, match="or one is inside the other"):
        dedup_files(spark, [str(given)], str(tmp_path), RecordOptions(), SparkDedupOptions(), overwrite=True)
    assert given.exists()


def test_what_is_wrong_is_said(spark: SparkSession, tmp_path: Path) -> None:
    given = frame(spark, tmp_path / "given.parquet", random_fingerprints(np.random.default_rng(1), 10))
    with pytest.raises(ValueError, match=r"no column 'fingerprint'; add .* the columns are id string, fp bigint"):
        pairs(given.withColumnRenamed("fingerprint", "fp"))
    with pytest.raises(ValueError, match="column 'fingerprint' is double"):
        pairs(given.withColumn("fingerprint", F.lit(1.5)))
    with pytest.raises(ValueError, match="no column 'when'"):
        pairs(given, position="when")
    with pytest.raises(ValueError, match="max_distance must be 0 to 16 bits, got 64"):
        pairs(given, max_distance=64)
    with pytest.raises(ValueError, match="unknown format 'csv'"):
        RecordOptions(format="csv")


def test_the_command_runs_and_names_what_is_wrong(tmp_path: Path) -> None:
    need_java()
    given = records(tmp_path / "given.jsonl")

    def dedup(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*PROGRAM, "spark", "dedup", str(given), "--out", str(tmp_path / "out"), *words]
        environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    done = dedup()
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout)["rejected"] == 18
    assert "18 records rejected, see" in done.stderr
    assert "[Stage" not in done.stderr  # Spark's own progress bars
    again = dedup()
    assert again.returncode == 2
    assert "already has results or other files" in again.stderr
    unfitted = dedup("--overwrite", "--fit", "none.rarity")
    assert unfitted.returncode == 2
    assert "none.rarity: No such file" in unfitted.stderr
    assert (tmp_path / "out" / "stats").exists()
    quiet = dedup("--overwrite", "--text-field", "body", "--quiet")
    assert quiet.returncode == 7  # a record without a text is a reject
    assert "hsimhash: reading" not in quiet.stderr


def test_the_quick_start_runs(tmp_path: Path) -> None:
    need_java()
    documents = next(block for block in blocks("sh") if "> pages.jsonl" in block).partition("hsimhash ")[0]
    (block,) = (one for one in blocks("bash", doc("guide/spark.md")) if "hsimhash spark dedup" in one)
    commands = [line for line in block.splitlines() if not line.startswith("pip install")]
    assert json.loads(run(["bash", "-euc", "\n".join([documents, *commands])], tmp_path))["dropped"] == 1


@pytest.mark.parametrize("distance", [-1, 17])
def test_a_distance_at_which_most_pairs_are_unrelated_is_refused(distance: int) -> None:
    with pytest.raises(ValueError, match=rf"max_distance must be 0 to 16 bits, got {distance}: at greater distances"):
        SparkDedupOptions(max_distance=distance)
