"""The benchmark of quality counts correctly, tested on a few texts whose pairs are known."""

from __future__ import annotations

import csv
import gzip
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from tests.bench.bench_quality import Row, best, cost, plot, table, write_csv
from tests.bench.quality_methods import Method, by_dedup, by_jaccard, shingles
from tests.support.labelled_pairs import Found, LabelledSet, Score, pairs_to_find, scores

FERRY = "The harbour ferry will not run on Sunday because divers have to look at the moorings, the harbour office said"
BREAD = "Mix the flour with warm water and salt, let the dough rest for an hour, then knead it twice and bake it"
RULES = (
    "Every member may bring two guests to the library if they sign the book at the door and leave all bags downstairs"
)
TEXTS = {"a": FERRY, "b": f"{FERRY} today", "c": BREAD, "d": f"{BREAD}, as always", "e": RULES, "f": RULES.upper()}
LABELS = {"a": "ferry", "b": "ferry", "c": "bread", "d": "bread"}  # e and f have none


@pytest.fixture
def given(tmp_path: Path) -> LabelledSet:
    """A set of six texts: two pairs to be found, and two texts with the same words that have no labels."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    with gzip.open(folder / "docs.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": name, "text": text, "lang": "en"}) + "\n" for name, text in TEXTS.items())
    rows = "".join(f"{name}\t{label}\n" for name, label in LABELS.items())
    (folder / "clusters.tsv").write_text(f"id\tcluster\n{rows}", encoding="utf-8")
    return LabelledSet.read(folder)


def found(*pairs: tuple[int, int], closeness: tuple[float, ...] | None = None) -> Found:
    return Found(np.array(pairs, np.int64).reshape(-1, 2), np.array(closeness or [0.0] * len(pairs)), 1.0)


def row(name: str, texts: int, **f1: dict[float, Score]) -> Row:
    return Row(name, texts, 4, f1, dict.fromkeys(f1, 2.0))


def test_every_pair_of_a_label_is_to_be_found_and_no_other() -> None:
    assert pairs_to_find(np.array([5, 5, 5, 7, 7, 9])) == 4
    assert pairs_to_find(np.array([], np.int64)) == 0


def test_a_text_without_a_label_belongs_to_no_pair(given: LabelledSet) -> None:
    assert pairs_to_find(given.labels) == 2
    assert scores(found((4, 5)), given.labels, [0.0])[0.0] == Score(1, 0, 2)


def test_a_pair_counts_once_in_either_order_and_a_text_with_itself_does_not() -> None:
    labels = np.array([1, 1, 2, 2, 3])
    assert scores(found((0, 1), (1, 0), (0, 1), (3, 3), (4, 2)), labels, [0.0])[0.0] == Score(2, 1, 2)


def test_a_cutoff_keeps_what_is_at_least_as_close_by_the_closest_of_repeated_pairs() -> None:
    near = found((0, 1), (1, 0), (2, 3), (0, 2), closeness=(0.2, 0.9, 0.5, 0.1))
    results = scores(near, np.array([1, 1, 2, 2]), [0.1, 0.5, 0.9, 1.0])
    assert results == {0.1: Score(3, 2, 2), 0.5: Score(2, 2, 2), 0.9: Score(1, 1, 2), 1.0: Score(0, 0, 2)}


def test_shares_are_of_what_was_found_and_of_what_was_to_be_found() -> None:
    score = Score(found=4, right=3, wanted=6)
    assert (score.precision, score.recall, score.f1) == (0.75, 0.5, pytest.approx(0.6))
    assert (Score(0, 0, 6).precision, Score(0, 0, 6).recall, Score(0, 0, 6).f1) == (1.0, 0.0, 0.0)


def test_the_cutoff_with_the_best_mean_is_chosen_for_a_family_not_for_each_set() -> None:
    perfect, none, half = Score(4, 4, 4), Score(0, 0, 4), Score(4, 2, 4)
    rows = [row("one", 10, m={1.0: perfect, 2.0: half}), row("two", 30, m={1.0: none, 2.0: perfect})]
    chosen = best("m", rows)
    assert (chosen.cutoff, chosen.mean("f1"), chosen.mean("recall")) == (2.0, 0.75, 0.75)
    assert cost("m", rows) == 100


def test_the_table_the_csv_and_the_plot_have_the_same_numbers(tmp_path: Path) -> None:
    families = {
        "0": [row("one", 10, m={-3.0: Score(4, 2, 4), -2.0: Score(4, 3, 4)})],
        "2": [row("two", 30, m={-3.0: Score(5, 4, 4), -2.0: Score(0, 0, 4)})],
    }
    lines = table(families, ["m"], "f1").splitlines()
    assert [line.split() for line in lines[2:3]] == [["two", "30", "4", ".889"]]
    assert lines[3].split() == ["mean", "of", "family", "0", "10", "4", ".750"]
    assert lines[-1] == "m: at 2 in family 0, 3 in family 2"
    write_csv(tmp_path / "all.csv", families, ["m"])
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        assert [(one["set"], one["precision"], one["recall"], one["f1"]) for one in csv.DictReader(file)] == [
            ("one", "0.7500", "0.7500", "0.7500"),
            ("two", "0.8000", "1.0000", "0.8889"),
        ]
    image = ET.fromstring(plot(families, [Method("m", by_jaccard)]))
    shown = [one.text for one in image.iter("{http://www.w3.org/2000/svg}text")]
    assert {".750", ".889", "100.0"} <= set(shown)


def test_exact_jaccard_is_of_rows_of_three_words(given: LabelledSet, tmp_path: Path) -> None:
    pairs = by_jaccard(given, tmp_path)
    words = len(FERRY.replace(",", "").split())
    index = dict(zip(map(tuple, pairs.pairs.tolist()), pairs.closeness.tolist(), strict=True))
    assert index[0, 1] == pytest.approx((words - 2) / (words - 1))
    assert index[4, 5] == 1
    assert set(index) == {(0, 1), (2, 3), (4, 5)}


def test_scripts_without_spaces_are_cut_into_rows_of_five_characters() -> None:
    assert shingles(["港务局表示，渡轮"]) == [{"港 务 局 表 示", "务 局 表 示 渡", "局 表 示 渡 轮"}]
    assert shingles(["one two", "", "a b c d"]) == [{"one two"}, set(), {"a b c", "b c d"}]


def test_own_pairs_are_those_of_the_command(given: LabelledSet, tmp_path: Path) -> None:
    results = scores(by_dedup((), given, tmp_path), given.labels, [0.0])
    assert results[0.0] == Score(3, 2, 2)
