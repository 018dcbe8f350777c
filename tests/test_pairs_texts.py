"""`duplicates`: compared with brute force and with `hsimhash dedup`, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hsimhash
from hsimhash import Profile, sample
from hsimhash.fingerprint import DEFAULT_PROFILE, TOO_SHORT
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.pairs import find_pairs
from tests.support.command_line import run
from tests.support.oracles import plain_stars

FIRST = "The quick brown fox jumps over the lazy dog while the other animals of the forest watch from afar. " * 3
NEAR = FIRST.replace("quick", "swift", 1)
OTHER = "Quarterly revenue rose to four hundred million, driven by demand for industrial pumps in Asia. " * 3
ZH = "近似重复的网页在互联网上非常普遍，搜索引擎需要快速识别它们，并把每个文档的特征词加权求和。" * 2

bases = st.sampled_from([FIRST, OTHER, ZH])
edits = st.tuples(bases, st.integers(0, 40), st.sampled_from(["", "pumps", "森林", "fox fox"]))
texts_to_compare = st.lists(
    st.sampled_from(["", "..."]) | edits.map(lambda one: one[0][: 3 * one[1]] + one[2] + one[0][3 * one[1] :]),
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(texts_to_compare, st.sampled_from(["first", "last", "longest"]), st.integers(0, 8))
def test_clusters_and_pairs_are_those_of_brute_force(texts: list[str], keep: Any, distance: int) -> None:
    signatures = Profile.named(DEFAULT_PROFILE).signatures(texts)
    long = [place for place, kind in enumerate(signatures.kinds) if kind != TOO_SHORT]
    values = [signatures.at(place) for place in long]
    order = {
        "first": range(len(long)),
        "last": range(len(long))[::-1],
        "longest": sorted(range(len(long)), key=lambda at: -len(texts[long[at]])),
    }[keep]
    kept = plain_stars(values, order, distance, MAX_SKETCH, signatures.keying)
    expected = {long[at]: long[centre] for at, centre in enumerate(kept)}

    found = hsimhash.duplicates(texts, distance=distance, keep=keep)

    assert found.drop == [place for place, centre in expected.items() if place != centre]
    assert found.keep == [place for place in range(len(texts)) if expected.get(place, place) == place]
    assert found.too_short == [place for place in range(len(texts)) if place not in expected]
    assert {member: cluster.kept for cluster in found for member in cluster.members} == {
        place: centre for place, centre in expected.items() if list(expected.values()).count(centre) > 1
    }
    for cluster in found:
        pairs = [(min(one, cluster.kept), max(one, cluster.kept)) for one in cluster.dropped]
        assert [(pair.left, pair.right) for pair in cluster.pairs] == pairs
        for pair in cluster.pairs:
            a, b = signatures.at(pair.left), signatures.at(pair.right)
            assert pair.distance == hsimhash.distance(a.fingerprint, b.fingerprint)
            assert pair.found_by == ("distance" if pair.distance <= distance else "key")
            assert (pair.similarity is None) == (0 in (a.sketch, b.sketch))


@settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts_to_compare.filter(bool), st.sampled_from(["first", "last", "longest"]))
def test_the_result_is_that_of_the_command(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], keep: Any
) -> None:
    compare_with_command(tmp_path_factory.mktemp("dedup"), {f"d{at:02}": one for at, one in enumerate(texts)}, keep)


def test_the_result_is_that_of_the_command_on_the_sample(tmp_path: Path) -> None:
    records = map(json.loads, sample.documents().read_text("utf-8").splitlines())
    compare_with_command(tmp_path, {record["id"]: record["text"] for record in records}, "first")


def compare_with_command(folder: Path, documents: dict[str, str], keep: Any) -> None:
    source, out = folder / "in.jsonl", folder / "out"
    source.write_text("".join(json.dumps({"id": one, "text": text}) + "\n" for one, text in documents.items()))
    result = run(
        *("dedup", str(source), "--out", str(out), "--max-distance", "6", "--keep", keep, "--keep", "first"),
        *("--table-format", "jsonl", "--workers", "1"),
    )
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in (out / "clusters.jsonl").read_text("utf-8").splitlines()]
    pairs = [json.loads(line) for line in (out / "pairs.jsonl").read_text("utf-8").splitlines()]

    found = hsimhash.duplicates(documents.values(), ids=list(documents), keep=keep)

    assert found.keep == (out / "keep.txt").read_text("utf-8").splitlines()
    assert found.drop == (out / "drop.txt").read_text("utf-8").splitlines()
    assert {one: cluster.kept for cluster in found for one in cluster.members} == {
        row["id"]: row["kept_id"] for row in rows if row["size"] > 1
    }
    assert {
        (frozenset((one.left, one.right)), one.distance, one.found_by) for cluster in found for one in cluster.pairs
    } == {(frozenset((one["left"], one["right"])), one["distance"], one["found_by"]) for one in pairs}


def test_a_column_of_a_data_frame_is_deduplicated_by_position_or_by_id() -> None:
    frame = pd.DataFrame({"url": ["a", "b", "c", "d"], "text": [FIRST, "...", NEAR, OTHER]}, index=[7, 7, 8, 9])
    found = hsimhash.duplicates(frame["text"])
    assert list(frame.iloc[found.keep]["url"]) == ["a", "b", "d"]
    named = hsimhash.duplicates(frame["text"], ids=frame["url"], keep="last")
    assert (named.keep, named.drop, named.too_short) == (["b", "c", "d"], ["a"], ["b"])
    (cluster,) = named
    assert (cluster.kept, cluster.members, cluster.dropped) == ("c", ("a", "c"), ("a",))
    assert named[0] is named.clusters[0]
    numbered = hsimhash.duplicates(frame["text"], ids=np.arange(10, 14))
    assert repr(numbered.drop) == "[12]"  # printed as a plain number


def test_the_results_print_what_they_are() -> None:
    found = hsimhash.duplicates([FIRST, "...", NEAR, OTHER, FIRST])
    assert repr(found) == "<Duplicates: 5 texts, 3 to keep, 2 to drop, 1 cluster, 1 too short to compare>"
    bits = found[0].pairs[0].distance
    assert repr(found[0]) == f"<Cluster: keep 0, members (0, 2, 4), differing in 0 to {bits} bits>"
    assert found[0].pairs[1] == hsimhash.pairs.Pair(0, 4, 0, 1.0, "distance")
    many = hsimhash.duplicates([FIRST] * 1_000)
    assert len(repr(many[0])) < 120
    assert len(many[0].pairs) == 999


def test_no_texts_have_no_duplicates() -> None:
    for texts in ([], ["..."], ["", ""]):
        found = hsimhash.duplicates(texts)
        assert not found
        assert (found.keep, found.drop) == (list(range(len(texts))), [])


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ({"texts": FIRST}, TypeError, "texts must be a list or another iterable, got a single str"),
        ({"texts": [FIRST, None]}, TypeError, r"texts\[1\] must be a str, got None; drop missing texts first"),
        ({"texts": pd.DataFrame({"text": [FIRST]})}, TypeError, "pass one column"),
        ({"ids": ["a"]}, ValueError, "ids must have one value for each of the 2 texts, got 1"),
        ({"ids": ["a", "a"]}, ValueError, r"ids must be distinct, but ids\[0\] and ids\[1\] are both 'a'"),
        ({"ids": ["a", ["b"]]}, TypeError, r"ids\[1\] must be a hashable value, got \['b'\]"),
        ({"ids": pd.Series(["a", float("nan")])}, TypeError, r"ids\[1\] must be a hashable value, got nan"),
        ({"ids": "ab"}, TypeError, "ids must be a list or another iterable, got a single str"),
        ({"distance": -1}, ValueError, "distance must be at least 0, got -1"),
        ({"distance": 64}, ValueError, "distance 64"),
        ({"distance": True}, TypeError, "distance must be an int, got bool"),
        ({"distance": 3.0}, TypeError, "distance must be an int, got float"),
        ({"keep": "newest"}, ValueError, "keep must be one of 'first', 'last', 'longest', got 'newest'"),
        ({"profile": "auto-9"}, ValueError, "auto-9"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], error: type[Exception], reason: str) -> None:
    texts = arguments.pop("texts", [FIRST, OTHER])
    with pytest.raises(error, match=reason):
        hsimhash.duplicates(texts, **arguments)


def test_pairs_of_equal_inputs_say_that_they_are_equal() -> None:
    found = find_pairs([5, 9, 5, 4])
    assert repr(found) == (
        "<Pairs of 4 inputs: 3 near pairs of distinct inputs, 1 equal to an earlier input; left=[0 0 1] right=[1 3 3] "
        "distance=[2 1 3] groups=[0 1 0 3]>"
    )
    assert found.repeats.tolist() == [2]
    assert [tuple(row) for row in zip(*(column.tolist() for column in found.brief()), strict=True)] == [
        (0, 1, 2),
        (0, 2, 0),
        (0, 3, 1),
        (1, 3, 3),
    ]
