"""Comparing layouts: the published numbers, the skew of a sample, the recommendation."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from hsimhash import HSimIndex, Signatures
from hsimhash.cover import Prices
from hsimhash.fingerprint.keys import COUNT_SHIFT, TAGS
from hsimhash.layout import Layout
from hsimhash.plan import cost, layouts_for, layouts_of, outgrown, recommend
from hsimhash.store.lmdb.backend import BACKEND
from hsimhash.store.lmdb.files import BaseLimits
from tests.support.command_line import run
from tests.support.effort import thorough
from tests.support.fingerprint_sets import random_fingerprints
from tests.support.prices import HBASE_PRICES, LMDB_PRICES

stores = pytest.mark.parametrize("prices", [LMDB_PRICES, HBASE_PRICES], ids=["lmdb", "hbase"])


@pytest.mark.parametrize(("distance", "names"), [(3, {"4", "10", "16", "20"}), (6, {"28"}), (0, {"64/1"})])
def test_layouts_compared_find_exactly_the_distance(distance: int, names: set[str]) -> None:
    found = layouts_for(distance)
    assert {layout.max_distance for layout in found} == {distance}
    assert names <= {layout.name for layout in found}
    assert len({layout.name for layout in found}) == len(found)


def test_a_distance_beyond_every_layout_is_refused() -> None:
    assert max(layout.max_distance for layout in layouts_for(60)) == 60
    with pytest.raises(ValueError, match="no layout"):
        layouts_for(64)


@stores
@pytest.mark.parametrize(
    ("documents", "name"), [(10**6, "4"), (10**7, "4"), (10**8, "10"), (10**9, "10"), (10**11, "20")]
)
def test_more_documents_ask_for_more_drawers(documents: int, name: str, prices: Prices) -> None:
    best, reason = recommend([cost(layout, documents, 3, prices) for layout in layouts_of(3)])
    assert best.layout.name == name
    assert "candidates" in reason


def test_a_bucket_of_a_region_server_costs_more_than_one_of_a_mapped_file() -> None:
    def drawers(prices: Prices) -> str:
        return recommend([cost(layout, 10**10, 3, prices) for layout in layouts_of(3)])[0].layout.name

    assert (drawers(LMDB_PRICES), drawers(HBASE_PRICES)) == ("10", "20")


@stores
@pytest.mark.parametrize("documents", [50_000, 200_000, 400_000, 8_388_608])
def test_84_drawers_are_not_recommended_where_28_take_less_than_three_times_as_long(
    documents: int, prices: Prices
) -> None:
    costs = {len(layout.drawers): cost(layout, documents, 6, prices) for layout in layouts_for(6)}
    assert costs[28].time_us < 3 * costs[84].time_us
    assert recommend(list(costs.values()))[0] is not costs[84]
    assert recommend([costs[28], costs[84]])[0] is costs[28]


@pytest.mark.parametrize(
    ("drawers", "documents", "measured_us"),
    [(28, 150_000, 18), (28, 600_000, 18), (84, 150_000, 61), (84, 600_000, 70)],
)
def test_a_query_takes_about_what_was_measured(drawers: int, documents: int, measured_us: float) -> None:
    (found,) = (cost(layout, documents, 6, LMDB_PRICES) for layout in layouts_for(6) if len(layout.drawers) == drawers)
    assert measured_us / 2 < found.time_us - drawers * LMDB_PRICES.row_us < measured_us * 2


@thorough
def test_layouts_are_compared_beyond_their_own_distance() -> None:
    names = [layout.name for layout in layouts_of(6)]
    assert {"4", "10", "16", "20", "28"} < set(names)
    assert len(names) == len(set(names))
    assert {layout.max_distance for layout in layouts_of(20)} == {20}
    for prices in (LMDB_PRICES, HBASE_PRICES):
        costs = {layout.name: cost(layout, 10**6, 6, prices) for layout in layouts_of(6)}
        assert costs["4"].cover.bucket_count > len(costs["4"].layout.drawers)
        assert recommend(list(costs.values()))[0] is costs["4"]  # 52 reads, but a seventh of the rows of 28 drawers


def test_the_size_on_hbase_counts_both_families() -> None:
    assert cost(Layout.named("10"), 10**6, 3, HBASE_PRICES).bytes == 10**6 * (10 * 16.5 + 2 * (35 + 30))


@pytest.mark.parametrize("distance", [1, 3, 5])
@pytest.mark.parametrize("name", ["4", "10"])
def test_a_uniform_sample_tells_what_the_formula_tells(name: str, distance: int) -> None:
    layout = Layout.named(name)
    sample = np.random.default_rng(1).integers(0, 2**64, 100_000, np.uint64)
    plain, sampled = (cost(layout, 10**9, distance, LMDB_PRICES, sample=one) for one in (None, sample))
    assert sampled.candidates == pytest.approx(plain.candidates, rel=0.25)
    assert sampled.time_us == pytest.approx(plain.time_us, rel=0.25)
    assert sampled.candidates_p99 is not None
    assert sampled.candidates_p99 < 3 * plain.candidates
    assert sampled.hottest_bucket is not None
    assert sampled.hottest_bucket < 10 * layout.candidates(10**9)


def test_sketches_and_keys_cost_a_row_and_16_bytes_a_document() -> None:
    for layout in map(Layout.named, ("4", "10")):
        plain, signed = (cost(layout, 1_000, 3, LMDB_PRICES, key_rows=one) for one in (0, 1))
        assert signed.rows - plain.rows == 1_000
        row_bytes = LMDB_PRICES.row_bytes + LMDB_PRICES.bucket_bytes
        assert signed.bytes - plain.bytes == pytest.approx(1_000 * (row_bytes + 16), abs=1)
        assert signed.reads - plain.reads == 1
        assert signed.time_us > plain.time_us


@pytest.mark.parametrize(("distance", "read_us"), [(3, HBASE_PRICES.read_us), (6, HBASE_PRICES.neighbour_us)])
def test_a_part_of_a_key_takes_what_another_bucket_takes_and_the_store_s_own_price(
    distance: int, read_us: float
) -> None:
    prices = replace(HBASE_PRICES, part_us=9)
    plain, signed = (cost(Layout.named("10"), 1_000, distance, prices, key_rows=rows) for rows in (0, 5))
    assert signed.time_us - plain.time_us == pytest.approx(5 * (read_us + 9 + prices.row_us))


@thorough
@pytest.mark.parametrize("layout", ["4", "10", "8,8,8,8,8,8,8,8/1"])  # buckets of 1 to 78 rows
def test_the_bytes_of_an_index_are_about_those_planned(tmp_path: Path, layout: str) -> None:
    count = 20_000
    values, sketches, keys = (random_fingerprints(np.random.default_rng(seed), count) for seed in (1, 2, 3))
    signatures = Signatures.of(values, sketches, keys >> np.uint64(4) | np.uint64(TAGS << COUNT_SHIFT))
    with (
        patch.object(BACKEND, "limits", BaseLimits(documents=1)),
        HSimIndex.create(f"lmdb://{tmp_path / 'index'}", layout=layout, profile="auto-3") as index,
    ):
        bulk = index.bulk(tmp_path / "runs")
        bulk.add_run(signatures, [f"{number:035}" for number in range(count)], 0)
        bulk.merge()
        planned = cost(index.store.record.layout, count, 1, LMDB_PRICES, key_rows=5)
        facts = index.describe()
        assert facts["drawer_rows"] == pytest.approx(planned.rows, rel=1e-3)  # a few keys have two equal tags
        assert facts["file_bytes"] == pytest.approx(planned.bytes, rel=0.25)


@thorough
def test_a_layout_is_outgrown_where_another_one_is_recommended() -> None:
    costs = [cost(layout, 10**6, 6, LMDB_PRICES) for layout in layouts_of(6)]
    found = outgrown(costs)
    assert found is not None
    documents, layout = found
    assert recommend(costs)[0].layout.name == "4"
    assert layout.name == "10"
    before, after = (
        recommend([cost(one, count, 6, LMDB_PRICES) for one in layouts_of(6)])[0].layout.name
        for count in (documents // 2, documents)
    )
    assert (before, after) == ("4", "10")


def test_a_layout_is_outgrown_later_or_earlier_if_the_sample_is_skewed() -> None:
    sample = random_fingerprints(np.random.default_rng(3), 20_000)
    sample[:4_000] = sample[:4_000] >> np.uint64(18) | sample[0] >> np.uint64(46) << np.uint64(46)  # share 18 bits

    def best(documents: int) -> str:
        costs = [cost(one, documents, 3, HBASE_PRICES, sample=sample) for one in layouts_of(3)]
        return recommend(costs)[0].layout.name

    found = outgrown([cost(one, 50_000, 3, HBASE_PRICES, sample=sample) for one in layouts_of(3)])
    assert found is not None
    documents, layout = found
    assert best(documents // 2) == best(50_000) != best(documents) == layout.name
    assert found != outgrown([cost(one, 50_000, 3, HBASE_PRICES) for one in layouts_of(3)])


def test_a_skewed_sample_shows_its_hot_bucket() -> None:
    sample = np.arange(1_000, dtype=np.uint64)  # three of the drawers have them all in one bucket
    skewed = cost(Layout.named("4"), 10_000, 3, LMDB_PRICES, sample=sample)
    assert skewed.hottest_bucket == 10_000
    assert skewed.candidates_p99 is not None
    assert skewed.candidates_p99 > 29_000


def test_the_command_prints_a_table_and_a_recommendation() -> None:
    for store, distance in (("lmdb", 6), ("hbase", 3)):
        result = run("plan", "--documents", "100000000", "--store", store)
        assert result.exit_code == 0
        assert f"recommended: create-table --layout 10 --distance {distance}: " in result.stdout
        assert "1,500,000,000" in result.stdout
        assert ("for one replica" in result.stdout) == (store == "hbase")
        assert ("at least 4 in total" in result.stdout) == (store == "hbase")
    assert "at least 37 in total" in run("plan", "--documents", "1e9", "--store", "hbase").stdout


@thorough
def test_the_command_reads_a_sample(tmp_path: Path) -> None:
    sample = tmp_path / "sample.tsv"
    sample.write_text("a\t0123456789abcdef\n\nb\t0x1\nfedcba9876543210\n")
    result = run("plan", "--documents", "1000", "--sample", str(sample), "--json")
    facts = json.loads(result.stdout)
    assert [facts[store]["recommended"] for store in ("lmdb", "hbase")] == ["10,9,9,9,9,9,9/1", "4"]
    assert [facts[store]["distance"] for store in ("lmdb", "hbase")] == [6, 3]
    assert facts["lmdb"]["layouts"][0]["hottest_bucket"] > 0
    assert "has only 3 fingerprints" in " ".join(result.stderr.split())
    sample.write_text("".join(f"{number:016x}\n" for number in range(10_000)))
    assert "has only" not in run("plan", "--documents", "1000", "--sample", str(sample)).stderr


def test_a_distance_that_no_layout_finds_is_misuse() -> None:
    result = run("plan", "--documents", "5", "--distance", "64")
    assert result.exit_code == 2
    assert "no layout" in result.stderr


def test_a_sample_may_be_the_output_of_fingerprint(tmp_path: Path) -> None:
    sample, plain = tmp_path / "sample.jsonl", tmp_path / "sample.txt"
    texts = [f"{number} {'some words of this text ' * 5}" for number in range(20)]
    pages = "".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate([*texts, "!"]))
    sample.write_text(run("fingerprint", "-", given=pages.encode()).stdout)
    lines = [json.loads(line)["fingerprint"] for line in sample.read_text().splitlines()]
    plain.write_text("\n".join(filter(None, lines)))
    asked = ("plan", "--documents", "5", "--json", "--sample")
    assert lines[-1] is None
    assert run(*asked, str(sample)).stdout == run(*asked, str(plain)).stdout != ""


def test_a_bad_sample_names_file_and_line(tmp_path: Path) -> None:
    sample = tmp_path / "sample.txt"
    sample.write_text("0123456789abcdef\nxyz\n")
    result = run("plan", "--documents", "5", "--sample", str(sample))
    assert result.exit_code == 2
    assert "sample.txt:2" in " ".join(result.stderr.split()).replace(" ", "")
