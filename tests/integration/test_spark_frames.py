"""DataFrames in, DataFrames out: the same answers as on one machine, the documented columns, and misuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hsimhash import Profile
from hsimhash.dedup import DedupOptions
from hsimhash.dedup import dedup as dedup_on_one_machine
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.spark import clusters, dedup, fingerprints, pairs, write_tables
from hsimhash.store.tables.folder import MANIFEST
from tests.support.spark_session import QUICK, local_spark, need_java
from tests.test_readme import TOP, doc

pytestmark = pytest.mark.together
NOTEBOOK = TOP / "docs" / "spark.ipynb"
LONG = "The tide table in the harbour office is printed twice a year and nobody trusts it, says the crew of the ferry. "


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    need_java()
    with local_spark(partitions=1, **QUICK) as session:
        yield session


@pytest.fixture(scope="module")
def few(spark: SparkSession) -> DataFrame:
    """Four rows, two of them near each other; awkward names, and ids that are not strings."""
    rows = [(10, "x", LONG * 9, 1.5), (9, "y", LONG * 9 + "!", 2.5), (3, "z", None, 1.0), (4, "z", "short", 1.0)]
    return spark.createDataFrame(rows, "`the id` smallint, other string, `the.body` string, score double")


def documents() -> list[dict[str, object]]:
    """Near and equal documents, short ones and pages, in the order of their positions."""
    rng = np.random.default_rng(11)
    words = np.array([f"word{number}" for number in range(2_000)])
    bases = [rng.choice(words, 100) for _ in range(20)]
    found: list[dict[str, object]] = []
    for place in range(200):
        text = bases[rng.integers(len(bases))].copy()
        text[rng.integers(0, 100, rng.integers(0, 4))] = rng.choice(words)
        body = " ".join(text)
        if place % 20 == 0:
            body = (
                f"<!DOCTYPE html><html><body><nav>Menu {place}</nav><article><p>{LONG * 6}</p></article></body></html>"
            )
        if place % 50 == 1:
            body = "?"
        found.append({"url": f"https://x/{rng.integers(10**8)}", "place": place, "body": body, "more": [place, None]})
    return found


def test_dedup_adds_the_answer_of_one_machine_to_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    given = documents()
    path = tmp_path / "given.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in given))
    reading = InputOptions(id_field="url", text_field="body")
    options = DedupOptions(reading=reading, table_format="parquet", fit="off")
    profile = Profile.named(DEFAULT_PROFILE)
    dedup_on_one_machine(find_inputs([str(path)], reading), tmp_path / "one", options, against=profile)
    known = pq.read_table(tmp_path / "one" / "clusters.parquet").to_pylist()
    expected = {row["id"]: (row["cluster"], row["kept"]) for row in known}
    assert len(set(expected.values())) > 1
    assert len(expected) == len(given)
    frame = spark.createDataFrame(
        [tuple(one.values()) for one in given], "url string, place int, body string, more array<int>"
    )
    found = dedup(frame.repartition(3), text="body", id="url", position="place")
    assert found.columns == [*frame.columns, "cluster", "keep"]
    rows = sorted(found.collect(), key=lambda row: row.place)
    assert [row.asDict() for row in rows] == [
        {**one, "cluster": expected[str(one["url"])][0], "keep": expected[str(one["url"])][1]} for one in given
    ]


def test_a_pages_main_text_counts(spark: SparkSession) -> None:
    page = f"<!DOCTYPE html><html><body><nav>Menu</nav><article><p>{LONG * 6}</p></article></body></html>"
    frame = spark.createDataFrame([("page", page), ("text", (LONG * 6).strip())], "id string, text string")
    one, other = fingerprints(frame).select("fingerprint").collect()
    assert one == other


def test_a_profiles_fields_name_the_columns(spark: SparkSession) -> None:
    profile = Profile.named("words-1:fields=title^3+body")
    frame = spark.createDataFrame([("a", ["Tides", "Boats"], LONG)], "id string, title array<string>, body string")
    (row,) = fingerprints(frame, profile=profile).collect()
    assert row.asDict().keys() == {"id", "fingerprint", "sketch", "key", "kind"}
    assert row.fingerprint & (1 << 64) - 1 == profile.fingerprint(f"Tides\nBoats\x1f{LONG}")
    with pytest.raises(ValueError, match=r"no column 'title'; pass the column of texts .* the columns are id"):
        fingerprints(frame.drop("title"), profile=profile)


def jobs_of(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_wrong_use_is_refused_before_any_job(spark: SparkSession, few: DataFrame) -> None:
    named = {"text": "the.body", "id": "the id"}
    signed = fingerprints(few, text="the.body")
    columns = "the id smallint, other string, the.body string, score double"
    renamed = signed.withColumnRenamed("the id", "kept")
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: fingerprints(few), f"no column 'text'; pass the column of texts .* with text=; .* {columns}"),
        (lambda: fingerprints(few, text="score"), "column 'score' is double: expected texts .* text="),
        (lambda: fingerprints(signed, text="other"), "already exist: 'fingerprint', 'sketch', 'key', 'kind'"),
        (lambda: dedup(few, text="the.body"), f"no column 'id'; pass the column of ids .* with id=; .* {columns}"),
        (lambda: dedup(few, text="the.body", id="score"), "column 'score' is double: expected ids .* id="),
        (lambda: dedup(few.withColumn("Keep", F.lit(1)), **named), "adds already exist: 'Keep'; drop"),
        (lambda: dedup(few, **named, position="n"), "no column 'n'; .* position="),
        (lambda: dedup(few, **named, profile="auto-9"), "unknown profile 'auto-9'"),
        (lambda: pairs(signed, id="the id", profile="auto-9"), "unknown profile 'auto-9'"),
        (lambda: clusters(signed, id="the id", profile="auto-9"), "unknown profile 'auto-9'"),
        (lambda: dedup(few, **named, max_distance=64), "max_distance must be 0 to 16 bits, got 64"),
        (lambda: dedup(pd.DataFrame({"id": [1]})), r"got pandas\..*DataFrame; .* spark.createDataFrame"),
        (lambda: pairs(few, id="the id"), rf"no column 'fingerprint'; add it with fingerprints\(\); .* {columns}"),
        (lambda: clusters(signed), "no column 'id'; .* id="),
        (lambda: clusters(renamed, id="kept"), "already exist: 'kept'"),
        (lambda: write_tables(signed, "nowhere"), "no column 'id'; .* id="),
    ]
    before = jobs_of(spark)
    for call, message in wrong:
        with pytest.raises((ValueError, TypeError), match=message):
            call()
    assert jobs_of(spark) == before


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", None], r"column 'id' is null in 1 of the rows: .* dropna\(subset=\['id'\]\)"),
        (["b", "a", "b", "a"], r"column 'id' has the value 'a' in 2 of the rows: .* dropDuplicates\(\['id'\]\)"),
    ],
)
def test_ids_must_be_there_and_differ(spark: SparkSession, ids: list[str | None], message: str) -> None:
    frame = spark.createDataFrame([(one, LONG) for one in ids], "id string, text string")
    with pytest.raises(ValueError, match=message):
        dedup(frame)


def test_the_columns_are_those_of_the_page(few: DataFrame) -> None:
    signed = fingerprints(few, text="the.body")
    results = {
        "fingerprints": (signed, few.columns),
        "pairs": (pairs(signed, id="the id"), []),
        "clusters": (clusters(signed, id="the id"), ["the id"]),
        "dedup": (dedup(few, text="the.body", id="the id"), few.columns),
    }
    rows = dict(re.findall(r"^\| `(\w+)\(df\b[^|]*\| ([^|]*) \|$", doc("guide/spark.md"), re.MULTILINE))
    assert rows.keys() == results.keys()
    for name, (found, given) in results.items():
        added = [one for one in found.schema.fields if one.name not in given]
        shown = [f"{one.name} {one.dataType.simpleString()}".removesuffix(" smallint") for one in added]
        assert [one for one in re.findall(r"`([^`]+)`", rows[name]) if one != "df"] == shown, name
    kept = {row["the id"]: (row.cluster, row.keep) for row in results["dedup"][0].collect()}
    assert kept == {9: (9, True), 10: (9, False), 3: (3, True), 4: (4, True)}  # in numerical order: 9 before 10
    assert [(row.left, row.right) for row in results["pairs"][0].collect()] == [(9, 10)]


def test_no_documents_have_no_answer(few: DataFrame) -> None:
    none = few.where("false")
    assert dedup(none, text="the.body", id="the id").collect() == []
    assert pairs(fingerprints(none, text="the.body"), id="the id").collect() == []


def test_the_notebook_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in cells:
        exec("".join(cell["source"]), names)  # as a kernel does: cell by cell, in one namespace
    kept, near = names["kept"], names["near"]
    assert isinstance(kept, DataFrame)
    assert isinstance(near, DataFrame)
    assert sorted(row.url for row in kept.collect()) == ["/bus", "/ferry", "/渡轮"]
    assert [(row.query, row.id) for row in near.collect()] == [("/ferry/today", "/ferry")]
    assert (tmp_path / "pages.tables" / MANIFEST).exists()
