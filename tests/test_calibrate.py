"""Profiles and distances compared on a sample: the counts agree with brute force and with what queries find."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from hsimhash.calibrate import CalibrateOptions, Calibration, calibrate, calibration_page, job, results
from hsimhash.calibrate.edits import EDITS, plant
from hsimhash.calibrate.labels import NEAR, OPEN, UNLIKE, Truth, read_labels
from hsimhash.calibrate.options import DISTANCES
from hsimhash.calibrate.results import ComparedProfile
from hsimhash.calibrate.sample import draw_sample
from hsimhash.calibrate.sample_pairs import Differences, Way, compare_all
from hsimhash.calibrate.scores import SEEN, Curve, DistanceScore, FalsePairs, choose, expected, upper_end
from hsimhash.calibrate.shingles import KEPT, jaccard_indices, least_shingles
from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.fingerprint import DEFAULT_PROFILE, Profile, Signatures
from hsimhash.fingerprint.rarity import FIT_AUTO, FIT_OFF
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.layout import Layout
from hsimhash.load.fitting import fit_inputs
from hsimhash.pairs import find_pairs
from hsimhash.plan import cost as cost_of
from hsimhash.progress import UNWATCHED
from tests.support.effort import thorough
from tests.support.prices import LMDB_PRICES
from tests.test_dedup_fit import pages
from tests.test_dedup_fit import written as template_pages
from tests.test_dedup_report import HOSTILE, Page

WORDS = [
    a + b + c for a in ("ka", "to", "mi", "ru", "se") for b in ("la", "no", "vi", "pu") for c in ("r", "n", "st", "l")
]
HAN = (  # noqa: SIM905 (shorter than a list)
    "天气 城市 码头 电车 早晨 市场 渔民 工人 海湾 风景 冬天 铁轨 政府 计划 明年 学校 图书馆 学生 老师 音乐 "
    "河流 桥梁 火车 飞机 医院 医生 苹果 蔬菜 价格 经济 历史 文化 语言 文字 电脑 网络 程序 数据 安全 法律"
).split()
MENU = "home news weather letters archive contact privacy terms subscribe newsletter follow us crosswords jobs"
BOTH = Way(has_key=True, has_sketch=True)


def article(seed: int, words: int = 150) -> str:
    """Return a text of sentences with its own vocabulary."""
    chance = random.Random(seed)
    own = chance.sample(WORDS, 40)
    return " ".join(" ".join(chance.choices(own, k=12)).capitalize() + "." for _ in range(words // 12))


def chinese(seed: int) -> str:
    chance = random.Random(seed)
    own = chance.sample(HAN, 28)
    return "".join("".join(chance.choices(own, k=9)) + "。" for _ in range(20))


def edited(text: str, count: int, seed: int) -> str:
    chance, words = random.Random(seed), text.split()
    for at in chance.sample(range(len(words)), count):
        words[at] = chance.choice(WORDS)
    return " ".join(words)


@pytest.fixture(scope="module")
def corpus() -> dict[str, str]:
    """Return 80 articles, and copies of 20 of them with more and more words replaced; `near-N` is a copy of `N`."""
    texts = {str(number): article(number) for number in range(80)}
    return texts | {f"near-{number}": edited(texts[str(number)], 2 + number * 2, number) for number in range(20)}


def written(folder: Path, texts: Mapping[str, str], name: str = "pages.jsonl") -> str:
    path = folder / name
    path.write_text("".join(json.dumps({"id": doc_id, "text": text}) + "\n" for doc_id, text in texts.items()))
    return str(path)


def calibrated(path: str, **options: object) -> Calibration:
    return calibrate(find_inputs([path], InputOptions()), CalibrateOptions(**options))


LABELS = "one\tother\tsame\n0\t1\t0\n" + "".join(f"{n}\tnear-{n}\t1\n" for n in range(20))


@pytest.fixture(scope="module")
def labelled(corpus: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "labels.tsv").write_text(LABELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "FEW_LABELS", 20)
        return calibrated(written(folder, corpus), labels=folder / "labels.tsv")


def true_pairs() -> set[tuple[int, int]]:
    return {(number, 80 + number) for number in range(20)}


def shingles_of(text: str) -> set[tuple[str, ...]]:
    words = text.lower().replace(".", " .").split()
    stretches = " ".join(words).split(" .")
    found = [stretch.split() for stretch in stretches]
    return {tuple(one[at : at + 3]) for one in found for at in range(max(1, len(one) - 2)) if one}


def test_jaccard_is_exact_for_short_texts_and_close_for_long_ones() -> None:
    short = [article(1, 100), edited(article(1, 100), 5, 1), article(2, 100), ""]
    long = [article(3, 4_000), edited(article(3, 4_000), 200, 1)]
    assert len(shingles_of(long[0])) > KEPT
    for texts, error in ((short, 1e-9), (long, 0.1)):
        left, right = np.array(list(combinations(range(len(texts)), 2))).T
        found = jaccard_indices(least_shingles(texts), left, right)
        for one, i, j in zip(found, left, right, strict=True):
            some, others = shingles_of(texts[i]), shingles_of(texts[j])
            assert one == pytest.approx(len(some & others) / max(1, len(some | others)), abs=error)


def test_characters_of_scripts_without_spaces_are_shingled_and_traditional_ones_are_simplified() -> None:
    least = least_shingles(["汉字简体文本的测试", "漢字簡體文本的測試", "完全不同的一句话"])
    assert jaccard_indices(least, np.array([0, 0]), np.array([1, 2])).tolist() == [1.0, 0.0]


def random_signatures(count: int) -> Signatures:
    """Return signatures: many of them are near, alike or share a key, and some do not have a value."""
    rng = np.random.default_rng(7)

    def near(values: np.ndarray, bits: int) -> np.ndarray:
        flips = np.bitwise_or.reduce(np.uint64(1) << rng.integers(0, 64, (bits, count), np.uint64), axis=0)
        return rng.choice(values, count) ^ flips

    some = rng.integers(1, 1 << 63, 12, np.uint64)
    keys = rng.choice(np.append(some, np.uint64(0)), count)
    return Signatures(near(some, 12), near(some, 9), keys, rng.choice([0, 0, 1, 2], count).astype(np.uint8))


def test_every_pair_is_counted_and_near_ones_are_listed() -> None:
    signatures = random_signatures(700)
    pairs = compare_all(signatures, 1 << 20)
    has_value = np.flatnonzero(signatures.kinds != 2)
    left, right = (has_value[one] for one in np.triu_indices(len(has_value), 1))
    distance = np.bitwise_count(signatures.fingerprints[left] ^ signatures.fingerprints[right])
    assert pairs.distances.tolist() == np.bincount(distance, minlength=65).tolist()
    assert pairs.weight == 1
    met = Differences.between(signatures[left], signatures[right])
    is_found = (met.reach(BOTH) <= 16) | met.by_key(Way(True)) | (met.by_distance(Way()) <= 16)
    wanted = set(zip(left[is_found].tolist(), right[is_found].tolist(), strict=True))
    listed = set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    assert wanted <= listed
    assert len(listed) == len(pairs.left) < len(left)


def test_of_too_many_near_pairs_a_share_stands_for_all() -> None:
    signatures = random_signatures(700)
    every, some = compare_all(signatures, 1 << 20), compare_all(signatures, 5_000)
    assert len(some.left) <= 5_000
    assert some.weight > 1
    assert some.weight * len(some.left) == pytest.approx(len(every.left), rel=0.1)


@pytest.mark.parametrize("distance", [0, 3, 8])
def test_the_reach_of_a_pair_is_the_least_distance_that_finds_it(distance: int) -> None:
    signatures = random_signatures(300)
    signatures = signatures[np.flatnonzero(signatures.kinds != 2)]
    left, right = np.triu_indices(len(signatures), 1)
    met = Differences.between(signatures[left], signatures[right])
    for way, options in ((BOTH, {}), (Way(has_key=True), {"max_sketch": None})):
        found = find_pairs(signatures, max_distance=distance, **options)
        wanted = {
            (i, j) for block in found.expand() for i, j in zip(block.left.tolist(), block.right.tolist(), strict=True)
        }
        is_found = met.reach(way) <= distance
        assert set(zip(left[is_found].tolist(), right[is_found].tolist(), strict=True)) == wanted


@pytest.mark.parametrize(("seen", "exact"), [(0, 2.996), (1, 4.744), (5, 10.513), (20, 29.062)])
def test_the_upper_end_of_a_count_is_poissons(seen: int, exact: float) -> None:
    assert upper_end(seen) == pytest.approx(exact, rel=0.01)


def test_a_tail_goes_on_below_what_was_seen() -> None:
    histogram = np.zeros(65)
    histogram[12:40] = [round(10 * 3**step) for step in range(28)]
    seen = np.cumsum(histogram)
    found = expected(seen)
    assert found[12:].tolist() == seen[12:].tolist()
    assert (found <= np.append(found[1:], np.inf)).all()
    assert (found[:12] <= upper_end(0)).all()
    assert 0 < found[6] < SEEN * 2.0**-6
    assert expected(np.zeros(65)).tolist() == [upper_end(0)] * 65


def test_a_pair_that_was_seen_counts_whatever_the_tail_says() -> None:
    histogram = np.zeros(65)
    histogram[2], histogram[20:30] = 1, 1_000
    assert expected(np.cumsum(histogram))[2] == 1


def test_labels_have_a_header_or_none_and_bad_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text(
        "id1\tid2\tsame\tjaccard\na\tb\t1\t.9\nc\ta\t0\t.4\nlonely\n\na\td\tyes\nx\ty\t1\ny\tx\t0\nz\tz\t1\ne\tf\t1\r\n"
    )
    found = read_labels(path)
    assert found.pairs == {("a", "b"): True, ("a", "c"): False, ("e", "f"): True}
    assert [reason.removeprefix(f"{path}:").partition(":")[0] for reason in found.rejects] == ["4", "6", "8", "9"]
    path.write_text("a\tb\nc\td\n")
    assert read_labels(path).pairs == {("a", "b"): True, ("c", "d"): True}
    path.write_text("a\tb\t0\n")
    with pytest.raises(ValueError, match="does not contain any near pair"):
        read_labels(path)


def test_clusters_say_of_all_pairs_whether_they_are_near(tmp_path: Path) -> None:
    (tmp_path / "clusters.tsv").write_text("id\tcluster\tsource\na\t1\tx\nb\t1\tx\nc\t2\tx\nd\t1\tx\n")
    truth = Truth.of(read_labels(tmp_path / "clusters.tsv"), ["d", "other", "c", "b", "a"])
    assert sorted(zip(truth.left.tolist(), truth.right.tolist(), strict=True)) == [(0, 3), (0, 4), (3, 4)]
    said = truth.labelled(np.array([0, 3, 0, 1]), np.array([3, 2, 1, 4]))
    assert said.tolist() == [NEAR, UNLIKE, OPEN, OPEN]


def sample_of(path: str, wanted: Sequence[str] = (), sample: int = 20_000, **limits: int) -> tuple[str, ...]:
    inputs = find_inputs([path], InputOptions())
    return draw_sample(inputs, CalibrateOptions(sample=sample), wanted, UNWATCHED, **limits).doc_ids


def test_a_sample_is_by_chance_the_same_each_time_and_has_what_labels_name(tmp_path: Path) -> None:
    path = written(tmp_path, {str(number): f"text {number}" for number in range(1_000)})
    drawn = sample_of(path, sample=100)
    assert drawn == sample_of(path, sample=100)
    assert len(set(drawn)) == 100
    assert list(map(int, drawn)) == sorted(map(int, drawn))
    assert 300 < sum(map(int, drawn)) / 100 < 700
    named = ("3", "999", "500")
    assert set(named) <= set(sample_of(path, named, sample=10))
    assert 0 < len(sample_of(path, named, characters=200)) < 30


def test_records_that_are_none_are_counted_and_named(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": article(1), "b": article(2)})
    with Path(path).open("a") as file:
        file.write('{"id": "c"}\n{"id": "a", "text": "again"}\n')
    inputs = find_inputs([path], InputOptions())
    found = draw_sample(inputs, CalibrateOptions(), (), UNWATCHED)
    assert (found.doc_ids, found.rejected) == (("a", "b"), 1)
    assert found.reasons[0].startswith(f"{path}:3: ")


@pytest.mark.parametrize("text", [article(1), chinese(1)])
def test_every_edit_is_planted_and_always_the_same(text: str) -> None:
    texts = [text, article(2), chinese(2), "", "?!"]
    found = plant(texts, 5)
    assert found == plant(texts, 5)
    kinds = [kind for kind, original in zip(found.kinds, found.original, strict=True) if original == 0]
    assert kinds == list(EDITS)
    assert all(one.strip() and one != texts[at] for one, at in zip(found.texts, found.original, strict=True))
    assert set(plant(texts, 2).original) <= set(range(5))
    assert len(set(plant(texts, 2).original)) <= 2


def scored(found: Calibration) -> Iterator[tuple[str, Way, int, float, float]]:
    for curve in found.curves:
        for score in curve.scores:
            yield curve.profile, curve.way, score.distance, score.precision, score.recall


def test_scores_by_labels_are_those_of_brute_force(labelled: Calibration, corpus: dict[str, str]) -> None:
    texts, wanted = list(corpus.values()), true_pairs()
    left, right = np.triu_indices(len(texts), 1)
    tried, seen = {one.label: one.profile for one in labelled.compared}, 0
    for name, way, distance, precision, recall in scored(labelled):
        if way != Way() or distance % 4:
            continue
        values = tried[name].fingerprints(texts).values
        is_found = np.bitwise_count(values[left] ^ values[right]) <= distance
        found = set(zip(left[is_found].tolist(), right[is_found].tolist(), strict=True))
        assert recall == pytest.approx(len(found & wanted) / 20)
        assert precision == pytest.approx(len(found & wanted) / len(found) if found else 1)
        seen += 1
    assert seen == len(tried) * 5
    assert {curve.profile for curve in labelled.curves} == tried.keys() >= {"auto-2", "auto-1", "words-1"}


@pytest.mark.parametrize("are_clusters", [False, True])
@pytest.mark.parametrize("most_judged", [4, 100_000])
def test_every_label_counts_once_even_if_only_a_share_of_the_other_pairs_is_judged(
    corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_judged: int, are_clusters: bool
) -> None:
    monkeypatch.setattr(job, "NEAR_PAIRS", most_judged)
    path, labels, doc_ids, texts = written(tmp_path, corpus), tmp_path / "labels.tsv", [*corpus], [*corpus.values()]
    unlike = {(number, 80 + number) for number in range(12)}
    if are_clusters:  # all documents have labels, and only the last copies are near
        names = {doc_id: doc_id.removeprefix("near-") if at >= 92 else doc_id for at, doc_id in enumerate(doc_ids)}
        labels.write_text("id\tcluster\n" + "".join(f"{doc_id}\t{name}\n" for doc_id, name in names.items()))
        unlike = {pair for pair in combinations(range(100), 2) if pair not in true_pairs() or pair in unlike}
    else:
        labels.write_text("".join(f"{n}\tnear-{n}\t{int(n >= 12)}\n" for n in range(20)))
    found = calibrated(path, labels=labels, profiles=(DEFAULT_PROFILE, "auto-2", "auto-1", "words-1"))
    tried = {one.label: one.profile.signatures(texts) for one in found.compared}
    left, right = np.array(sorted(unlike)).T
    for curve in found.curves:
        signatures = tried[curve.profile]
        reach = Differences.between(signatures[left], signatures[right]).reach(curve.way)
        wrong = [int((reach <= bits).sum()) for bits in DISTANCES]
        assert wrong[-1]
        assert [score.wrong - score.false_pairs.drawn * (not are_clusters) for score in curve.scores] == wrong
        assert curve.scores[0].precision < 1 or not wrong[0]
        if are_clusters:  # every pair has a label
            assert {score.false_pairs.weight for score in curve.scores} == {1}
            assert {score.false_pairs.of for score in curve.scores} == {100 * 99 // 2 - 8}


def test_what_is_recommended_is_near_the_best_and_nearest_to_the_default_distance(labelled: Calibration) -> None:
    best = max(score.f1 for curve in labelled.curves for score in curve.scores)
    taken, default = labelled.choice, labelled.choice.default
    assert default
    assert taken.best_f1 == best
    assert taken.score.f1 >= max(best - 0.01, default[1].f1 + 0.01)
    for curve in labelled.curves:
        for score in curve.scores:
            if abs(score.distance - DEFAULT_DISTANCE) < abs(taken.score.distance - DEFAULT_DISTANCE):
                assert score.f1 < best - 0.01
    assert labelled.plans["lmdb"].cover.distance == taken.score.distance
    assert f"--distance {taken.score.distance}" in labelled.flags.create


def test_few_labels_leave_the_defaults(labelled: Calibration, corpus: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text(LABELS)
    found = calibrated(written(tmp_path, corpus), labels=tmp_path / "labels.tsv")
    assert not labelled.choice.is_default
    assert found.choice.is_default
    assert found.choice.score.distance == DEFAULT_DISTANCE
    assert found.caveats[0].startswith("The labels contain 20 near pairs, too few for a reliable choice")


def test_labelled_ids_that_the_inputs_do_not_have_are_counted_and_one_is_named(
    labelled: Calibration, corpus: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "labels.tsv").write_text(f"{LABELS}zebra.txt\tyak.txt\t1\n0\tyak.txt\t0\n")
    found = calibrated(written(tmp_path, corpus), labels=tmp_path / "labels.tsv")
    assert found.missing_ids == ("yak.txt", "zebra.txt")
    assert 'The inputs do not contain 2 of the labelled ids, such as "yak.txt"; their labels are' in found.caveats[-1]
    assert found.to_json()["missing_ids"] == 2
    assert not labelled.missing_ids


@thorough
def test_a_small_sample_leaves_the_defaults(tmp_path: Path) -> None:
    found = calibrated(written(tmp_path, {str(number): article(number) for number in range(40)}))
    assert found.choice.is_default
    assert found.flags.create == f"--profile {DEFAULT_PROFILE} --layout 4 --distance {DEFAULT_DISTANCE}"
    assert found.flags.query == ""


def score_of(distance: int, share: float, seen: float, of: int) -> DistanceScore:
    pairs = FalsePairs(seen, of, seen or 0.1)
    return DistanceScore.of(distance, share, 1_000, pairs.among(1_000)[0], pairs, 1_000)


def curve(shares: Mapping[int, float], profile: str = DEFAULT_PROFILE, way: Way = BOTH, *, of: int = 10**9) -> Curve:
    """Return a curve with these recalls by distance; other distances find nothing."""
    costs = (cost_of(Layout.named("4"), 1_000_000, bits, LMDB_PRICES) for bits in DISTANCES)
    scores = (score_of(bits, shares.get(bits, 0.0), 0, of) for bits in DISTANCES)
    return Curve(profile, way, tuple(scores), tuple(costs))


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("shares", "taken"),
    [
        ({6: 0.9, 8: 0.912}, 6),  # F1 .947, .954: not enough
        ({6: 0.9, 8: 0.95}, 8),
        ({0: 0.9, 3: 0.9, 6: 0.9}, 6),  # cheaper, but not better
        ({0: 0.89, 3: 0.9, 6: 0.895}, 6),
        ({0: 0.95, 2: 0.95, 6: 0.9}, 2),
        ({2: 0.95, 6: 0.9, 9: 0.94, 12: 0.95}, 9),
        ({6: 0.9, 7: 0.915, 9: 0.935}, 9),  # F1 .947, .956, .966: what is near the best must also be clearly better
    ],
)
def test_the_default_is_left_only_for_a_gain_and_no_further_than_needed(shares: dict[int, float], taken: int) -> None:
    found = choose([curve(shares)], DEFAULT_PROFILE)
    assert (found.score.distance, found.is_default) == (taken, taken == DEFAULT_DISTANCE)


def test_what_is_better_for_the_labels_must_not_be_worse_in_the_collection() -> None:
    one = curve({6: 0.9, 8: 0.95, 9: 0.95, 12: 0.96})
    for in_collection, taken in (({}, 8), ({8: 0.1, 9: 0.96, 12: 0.2}, 9), ({8: 0.1, 9: 0.1, 12: 0.1}, 6)):
        scores = (
            replace(score, collection_f1=in_collection.get(bits, score.f1)) for bits, score in enumerate(one.scores)
        )
        assert choose([replace(one, scores=tuple(scores))], DEFAULT_PROFILE).score.distance == taken


def test_at_the_same_distance_the_usual_way_of_a_query_comes_first_and_then_the_better_f1() -> None:
    curves = [
        curve({6: 0.5}),
        *(curve({6: share}, "auto-2", way) for share, way in ((0.96, Way(True)), (0.95, BOTH))),
        curve({6: 0.955}, "auto-1"),
    ]
    assert [choose(some, DEFAULT_PROFILE).curve for some in (curves[:3], curves)] == [curves[2], curves[3]]


def test_a_gain_that_the_sample_cannot_tell_is_none() -> None:
    shares = {6: 0.5, 12: 0.95}
    assert choose([curve(shares)], DEFAULT_PROFILE).score.distance == 12
    assert choose([curve(shares, of=1_000)], DEFAULT_PROFILE).is_default
    assert choose([curve(shares, of=0)], DEFAULT_PROFILE).is_default


@pytest.mark.parametrize(
    ("seen", "of", "words"),
    [
        (0, 1_765, "fewer than 850,000,000"),  # not what the extrapolated tail suggests
        (0, 10**9, "fewer than 1,500"),
        (2, 10**6, "about 1,000,000"),
        (0, 0, "unknown"),
    ],
)
def test_of_false_pairs_that_were_not_seen_only_a_bound_is_told(seen: float, of: int, words: str) -> None:
    assert FalsePairs(seen, of, seen or 1.0).in_words(1_000_000) == words


def test_it_is_said_that_labelled_pairs_are_left_out_of_the_expected_false_pairs() -> None:
    said = [FalsePairs(2.0, 10**6, 1.0, labelled=labelled).sentence(2_000) for labelled in (0.0, 1.0)]
    assert said == [
        f"Expect about 2 false pairs in 2,000 documents{more}." for more in ("", ", without labelled pairs")
    ]


@thorough
def test_without_labels_edits_are_planted_and_a_larger_collection_has_more_false_pairs(
    corpus: dict[str, str], tmp_path: Path
) -> None:
    path = written(tmp_path, corpus)
    usual = calibrated(path, profiles=("words-1",))
    assert (usual.documents, usual.own_documents) == (1_000_000, len(corpus))
    small, large = (calibrated(path, documents=documents, profiles=("auto-2",)) for documents in (100, 10**9))
    assert small.documents == 100
    assert small.wanted == sum(planted for _, planted in small.found_by_edit.values())
    assert small.found_by_edit["reformatted"] == (100, 100)
    for one, other in zip(small.curves[0].scores, large.curves[0].scores, strict=True):
        assert one.recall == pytest.approx(other.recall)
        assert one.precision >= other.precision
        # False pairs grow with the number of all pairs: ten times the documents have a hundred times as many.
        among = [one.false_pairs.among(documents)[0] for documents in (10_000, 100_000)]
        assert among[1] == pytest.approx(100 * among[0], rel=0.01)
    assert large.curves[0].scores[16].precision < 0.5


def test_with_labels_of_near_pairs_alone_the_default_distance_is_kept(
    corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "FEW_LABELS", 20)
    path, labels = written(tmp_path, corpus), tmp_path / "labels.tsv"
    for other in ("0\t1\t0\n", ""):
        labels.write_text(LABELS.replace("0\t1\t0\n", other))
        found = calibrated(path, labels=labels, profiles=("auto-2",))
        assert ("do not contain pairs that are not near" in " ".join(found.caveats)) == (not other)
        assert (found.choice.score.distance == DEFAULT_DISTANCE) >= (not other)


@pytest.mark.parametrize("negative", ["0\t1", "9\tnear-9"])
def test_labels_without_similar_pairs_to_keep_apart_are_called_so(
    corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, negative: str
) -> None:
    monkeypatch.setattr(results, "FEW_LABELS", 10)
    labels = tmp_path / "labels.tsv"
    labels.write_text(f"{negative}\t0\n" + "".join(f"{number}\tnear-{number}\t1\n" for number in range(10, 20)))
    found = calibrated(written(tmp_path, corpus), labels=labels, profiles=("auto-2",))
    is_easy = negative == "0\t1"
    assert any("No distance finds any pair labelled as not near" in one for one in found.caveats) == is_easy


def test_similar_pairs_that_no_label_covers_are_counted(corpus: dict[str, str], tmp_path: Path) -> None:
    path, labels = written(tmp_path, corpus), tmp_path / "labels.tsv"
    labels.write_text("".join(f"{number}\tnear-{number}\t{number % 2}\n" for number in range(8, 20)))
    found = calibrated(path, labels=labels, profiles=("auto-2",))
    signatures, (left, right) = Profile.named("auto-2").signatures([*corpus.values()]), np.triu_indices(100, 1)
    reach = Differences.between(signatures[left], signatures[right]).reach(found.choice.curve.way)
    is_similar = jaccard_indices(least_shingles([*corpus.values()]), left, right) >= 0.2
    is_open = is_similar & ~((right >= 88) & (right == left + 80))
    count = int((is_open & (reach <= found.choice.score.distance)).sum())
    assert count > 1
    assert found.to_json()["recommended"]["undecided"] == count
    told = f"The recommended settings also find {count} pairs of similar texts that no label covers. These pairs are"
    assert found.caveats[-1].startswith(told)
    assert told in Page(page_of(found)).text
    names = {doc_id: doc_id.removeprefix("near-") for doc_id in corpus}
    labels.write_text("id\tcluster\n" + "".join(f"{doc_id}\t{name}\n" for doc_id, name in names.items()))
    found = calibrated(path, labels=labels, profiles=("auto-2",))
    assert not any("no label covers" in one for one in found.caveats)


def test_pairs_that_somebody_chose_to_label_do_not_count_as_typical_of_a_collection(
    corpus: dict[str, str], tmp_path: Path
) -> None:
    path, labels = written(tmp_path, corpus), tmp_path / "labels.tsv"

    def compared(*refused: int) -> tuple[Curve, ...]:
        lines = [f"{number}\tnear-{number}\t{int(number >= 10)}\n" for number in (*refused, *range(10, 20))]
        labels.write_text("".join(lines))
        return calibrated(path, labels=labels, profiles=("auto-2",)).curves

    open_pairs, refused = compared(), compared(*range(10))
    for some, others in zip(open_pairs, refused, strict=True):
        assert others.scores[-1].wrong >= some.scores[-1].wrong + 8  # they do count in the sample
        for one, other in zip(some.scores, others.scores, strict=True):
            expected, most = other.false_pairs.among(1_000_000)
            assert (expected, most) == pytest.approx(one.false_pairs.among(1_000_000), rel=0.01)
            assert other.false_pairs.in_words(1_000_000) == one.false_pairs.in_words(1_000_000)


def test_a_profile_of_ones_own_is_compared_with_others(corpus: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("".join(f"{number}\tnear-{number}\n" for number in range(20)))
    own = replace(Profile.named("words-1"), name="mine-1", n=3)
    found = calibrated(written(tmp_path, corpus), labels=tmp_path / "labels.tsv", profiles=(own, "words-1", own))
    assert [curve.profile for curve in found.curves] == ["mine-1", "words-1"]
    # A changed word changes more of the longer shingles.
    recalls = [[score.recall for score in curve.scores] for curve in found.curves]
    assert all(mine <= other for mine, other in zip(*recalls, strict=True))
    assert recalls[0] != recalls[1]


def templated(folder: Path, *, is_labelled: bool) -> tuple[str, Path | None]:
    """Write 110 articles below a menu; or pages that are mostly template, 20 of them twice, with labels for all."""
    if not is_labelled:
        return written(folder, {str(number): f"{MENU} {article(number)}" for number in range(110)}), None
    labels = folder / "labels.tsv"
    names = {one["id"]: one["id"].removeprefix("copy").removeprefix("p") for one in pages(110, 20)}
    labels.write_text("id\tcluster\n" + "".join(f"{name}\t{cluster}\n" for name, cluster in names.items()))
    return template_pages(folder / "pages.jsonl", pages(110, 20)), labels


@pytest.mark.parametrize("is_labelled", [True, False])
def test_a_profile_by_rarity_is_compared_fitted_and_not(tmp_path: Path, is_labelled: bool) -> None:
    path, labels = templated(tmp_path, is_labelled=is_labelled)
    found = calibrated(path, labels=labels, profiles=("auto-3",))
    general = Profile.named("auto-3")
    fitted = general.fitted(fit_inputs(find_inputs([path], InputOptions()), InputOptions(), general).table)
    by_hand = calibrated(path, labels=labels, profiles=(fitted,))
    scores = {(one.profile, str(one.way)): one.scores for one in found.curves}
    assert {profile for profile, _ in scores} == {"auto-3 (fitted)", "auto-3 (not fitted)"}
    for one in by_hand.curves:
        assert one.profile == fitted.name
        assert scores["auto-3 (fitted)", str(one.way)] == one.scores
        assert scores["auto-3 (not fitted)", str(one.way)] != one.scores
    assert [one.profile for one in found.spreads] == ["auto-3 (fitted)", "auto-3 (not fitted)"]
    told = f"Word weights for auto-3 (fitted): {fitted.learnt}."
    assert told in calibration_page(found, inputs=[path], date="")
    assert found.to_json()["word_weights"] == {"auto-3 (fitted)": fitted.learnt._asdict()}
    if is_labelled:
        best = {one.profile: one.best.f1 for one in found.curves}
        assert best["auto-3 (fitted)"] > best["auto-3 (not fitted)"] + 0.5


def test_the_flags_of_a_profile_by_rarity_say_whether_it_was_fitted(labelled: Calibration) -> None:
    one = ComparedProfile(labelled.choice.curve.profile, Profile.named("auto-3"), "auto-3:cap=8")
    fitted, unfitted = (replace(labelled, compared=(one._replace(fit=how),)).flags for how in (FIT_AUTO, FIT_OFF))
    assert fitted.create.startswith("--profile auto-3:cap=8,rarity=own.rarity --layout ")
    assert (fitted.dedup, fitted.fit) == ("", "--profile auto-3:cap=8 --output own.rarity")
    assert unfitted.create.startswith("--profile auto-3:cap=8 --layout ")
    assert (unfitted.dedup, unfitted.fit) == ("--fit off", "")


@pytest.mark.parametrize(("texts", "names"), [(99, {"auto-3"}), (100, {"auto-3 (fitted)", "auto-3 (not fitted)"})])
def test_a_profile_that_would_not_be_fitted_to_so_few_texts_is_tried_once(
    tmp_path: Path, texts: int, names: set[str]
) -> None:
    path = written(tmp_path, {str(number): article(number) for number in range(texts)})
    assert {one.profile for one in calibrated(path, profiles=("auto-3",)).curves} == names


def test_pairs_to_look_at_are_within_the_distance_and_just_beyond(labelled: Calibration) -> None:
    most = labelled.choice.score.distance
    assert [one.bits for one in labelled.shown] == [bits for bits in range(most - 3, most + 4) if bits >= 0]
    assert [one.is_within for one in labelled.shown] == [one.bits <= most for one in labelled.shown]
    for distance in labelled.shown:
        for pair in distance.shown:
            assert pair.distance == distance.bits
            assert pair.comparison is not None


def page_of(found: Calibration, name: str = "pages.jsonl") -> str:
    return calibration_page(found, inputs=(name,), date="2026-11-23")


def test_the_page_shows_every_number_and_refers_to_nothing(labelled: Calibration) -> None:
    source = page_of(labelled)
    page = Page(source)
    for curve in labelled.curves:
        assert f"{curve.best.f1:.3f}" in page.text
    assert page.commands[1] == f"hsimhash create-table --store lmdb://index {labelled.flags.create}"
    assert len([tag for tag, _ in page.tags if tag == "svg"]) == 3 + len(labelled.spreads)
    assert len([tag for tag, _ in page.tags if tag == "tr"]) > len(labelled.curves) * len(DISTANCES)
    assert not {"script", "img", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not {"src", "href", "xlink:href"} & {name for _, fields in page.tags for name in fields}
    assert page_of(labelled) == source


def test_the_page_says_what_false_pairs_are_below_where_the_sample_has_none(labelled: Calibration) -> None:
    shown = re.findall(r'class="number false">((?:about|fewer than) [\d.,]+|unknown)</td>', page_of(labelled))
    seen = [score.false_pairs.seen for curve in labelled.curves for score in curve.scores]
    assert len(shown) == len(seen)
    assert {text.startswith("fewer than") for text, count in zip(shown, seen, strict=True) if not count} == {True}
    assert not any(text.startswith("fewer than") for text, count in zip(shown, seen, strict=True) if count)


def test_a_precision_that_the_sample_cannot_tell_is_not_claimed(labelled: Calibration) -> None:
    planted = replace(labelled, is_labelled=False)
    score = planted.choice.score
    seen, unseen = (
        replace(
            planted,
            choice=planted.choice._replace(
                score=replace(score, precision=0.25, false_pairs=replace(score.false_pairs, seen=count))
            ),
        )
        for count in (5.0, 0.0)
    )
    assert "precision 0.250" in Page(page_of(seen)).all_of("h1")[0]
    assert "precision" not in Page(page_of(unseen)).all_of("h1")[0]
    assert "The sample does not have any false pairs, so the precision is unknown" in Page(page_of(unseen)).text


def test_a_plot_is_no_wider_with_one_profile_than_with_many(labelled: Calibration) -> None:
    source = page_of(replace(labelled, spreads=labelled.spreads[:1]))
    assert re.search(r"svg \{[^}]*max-width: \d+rem", source)


def test_the_page_names_the_newest_input_if_it_is_known(labelled: Calibration) -> None:
    assert "newest input file 2026-11-23" in Page(page_of(labelled)).text
    assert "newest input" not in calibration_page(labelled, inputs=("-",), date="")


def test_the_lines_of_the_page_stay_within_their_plots(labelled: Calibration) -> None:
    drawn = [fields["points"] or "" for tag, fields in Page(page_of(labelled)).tags if tag == "polyline"]
    points = [tuple(map(float, point.split(","))) for line in drawn for point in line.split()]
    assert len(points) > 100
    assert all(0 <= x <= 300 and 0 <= y <= 150 and math.isfinite(y) for x, y in points)


def test_nothing_of_the_documents_becomes_markup(labelled: Calibration) -> None:
    hostile = replace(
        labelled,
        shown=tuple(
            replace(one, shown=tuple(replace(pair, left=HOSTILE, right=HOSTILE) for pair in one.shown))
            for one in labelled.shown
        ),
    )
    page = Page(page_of(hostile, HOSTILE))
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in Page(page_of(labelled)).tags}
    assert "alert" in page.text


def test_json_has_all_but_the_texts(labelled: Calibration) -> None:
    facts = json.loads(json.dumps(labelled.to_json()))
    assert facts["recommended"]["distance"] == labelled.choice.score.distance
    assert facts["near_pairs"] == 20
    assert [len(one["scores"]) for one in facts["curves"]] == [17] * len(labelled.curves)
    for one in facts["histograms"]:
        assert sum(one["near"]) == 20
        assert len(one["unrelated"]) == 65


def test_texts_without_a_fingerprint_are_no_pairs(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("a\tb\n")
    found = calibrated(written(tmp_path, {"a": "", "b": "?", "c": article(1)}), labels=tmp_path / "labels.tsv")
    assert found.choice.best_f1 == 0
    assert {score.recall for curve in found.curves for score in curve.scores} == {0}
    assert Page(page_of(found)).text
