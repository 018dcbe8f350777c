"""Rarity tables: fitting, the stored form, and profiles that weight features by them."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.errors import ProfileMismatchError
from hsimhash.fingerprint import Profile, wordlists
from hsimhash.fingerprint.features import signature_batch
from hsimhash.fingerprint.fit import MOST_ALIKE, Fit, text_hash
from hsimhash.fingerprint.long_texts import long_signature
from hsimhash.fingerprint.rarity import DEFAULT, MOST_FEATURES, SCALE, RarityTable
from hsimhash.fingerprint.sketch import shingle_hashes
from hsimhash.fingerprint.stream import signature_stream
from hsimhash.index import HSimIndex
from tests.support.command_line import lines_of, run

AUTO3 = Profile.named("auto-3")
WORDS = (
    *("harbour", "ferry", "tide", "buoy", "crane", "pilot", "anchor", "quay"),
    *("mooring", "gull", "lantern", "rope", "cargo", "deck", "keel", "mast"),
)
KINDS = (*WORDS, "the"), ("潜水员", "检查", "系泊", "设备", "渡轮", "星期日"), ("กขค", "งจฉ", "ชซฌ")
MIXED = (
    "潜水员检查了系泊设备，渡轮星期日停航。",
    "The ferry doesn't run on Sunday; the pilot said so.",
    "Паром не ходит по воскресеньям, сказал лоцман.",
    "フェリーは日曜日に運航しません。",
    "เรือข้ามฟากไม่ให้บริการในวันอาทิตย์",
)

ASK = """
import sys
from hsimhash import HSimIndex
with HSimIndex.open(sys.argv[1], slow_s=None) as index:
    print(index.query_text(sys.argv[2])[0].distance)
"""

hashes = st.lists(st.integers(0, (1 << 64) - 1), unique=True, max_size=12)


def pages(count: int, seed: int = 1) -> list[str]:
    chosen = random.Random(seed)
    return [f"page {one} of the harbour: {' '.join(chosen.choices(WORDS, k=12))}" for one in range(count)]


def fitted(texts: list[str], profile: Profile = AUTO3, *, sample: int | None = None, workers: int = 1) -> RarityTable:
    fit = Fit(profile, sample)
    fit.add(texts)
    return fit.table(workers=workers)


def rarity_of(table: RarityTable, word: str) -> int:
    (found,) = (one for one in AUTO3.features(word) if one.text == word)
    return int(table.find(np.array([found.hash], np.uint64))[0])


def own(tmp_path: Path, texts: list[str]) -> Profile:
    path = tmp_path / "own.rarity"
    path.write_bytes(fitted(texts).content())
    return Profile.named(f"auto-3:rarity={path}")


@given(st.lists(hashes, max_size=20), st.lists(st.integers(0, (1 << 64) - 1), max_size=20))
def test_a_table_gives_each_feature_what_its_count_says(documents: list[list[int]], others: list[int]) -> None:
    table = RarityTable.fitted([np.array(one, np.uint64) for one in documents])
    counts = Counter(one >> 32 for document in documents for one in document)
    asked = [one for document in documents for one in document] + others
    n = len(documents)
    expected = [
        max(1, round(SCALE * math.log((n + 1) / min(counts[one >> 32], n)) / math.log(n + 1)))
        if counts[one >> 32] > 1
        else DEFAULT
        for one in asked
    ]
    assert table.find(np.array(asked, np.uint64)).tolist() == expected
    again = RarityTable.read(table.content())
    assert again.find(np.array(asked, np.uint64)).tolist() == expected
    assert (again.documents, again.content()) == (n, table.content())


def test_a_large_table_keeps_the_most_common_features_in_two_megabytes() -> None:
    common = np.arange(1, 300_000, dtype=np.uint64) << np.uint64(40)
    rare = (np.arange(1, 300_000, dtype=np.uint64) << np.uint64(40)) + np.uint64(1 << 36)
    table = RarityTable.fitted([common, common, np.append(common, rare), rare])
    assert len(table) == MOST_FEATURES
    assert len(table.content()) <= 2_000_000
    assert (table.find(common) == table.find(common[:1])).all()
    assert (table.find(rare) == DEFAULT).any()


@pytest.mark.parametrize("harm", [b"", b"hsimhash rarity 1\n", b"cut", b"cut early", b"counted wrong", b"not base64"])
def test_a_damaged_table_is_refused_and_named(tmp_path: Path, harm: bytes) -> None:
    content = fitted(pages(20)).content()
    damaged = {
        b"cut": content[: len(content) - 9],
        b"cut early": content[: content.index(b"\n") + 5],  # only three bytes of the first numbers are left
        b"counted wrong": content[:100] + b"AQAB" + content[104:],
        b"not base64": content[:300] + b"***" + content[303:],
    }.get(harm, harm)
    (tmp_path / "own.rarity").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"own\.rarity is not a rarity table: it "):
        Profile.named(f"auto-3:rarity={tmp_path / 'own.rarity'}")


@pytest.mark.parametrize(("count", "sample", "most"), [(700, 300, 300), (700, None, 700), (30_000, None, 3_004)])
def test_a_sample_does_not_depend_on_order_batches_or_workers(count: int, sample: int | None, most: int) -> None:
    texts = pages(count) + pages(40)
    table = fitted(texts, sample=sample)
    random.Random(2).shuffle(texts)
    fit = Fit(AUTO3, sample)
    for at in range(0, len(texts), 7):
        fit.add(texts[at : at + 7])
    assert fit.read == len(texts)
    assert fit.table(workers=2).content() == table.content()
    ahead = Fit(AUTO3, sample)
    ahead.take_all(((text_hash(text), text, "") for text in texts), workers=2)
    assert ahead.table().content() == table.content()
    assert 0.9 * most <= table.documents <= 1.1 * most


@pytest.mark.parametrize("sample", [None, 10, 3_000])
@pytest.mark.parametrize("count", [0, 9, 2_500, 45_000, 230_000])
def test_the_texts_with_the_least_hashes_are_chosen(count: int, sample: int | None) -> None:
    texts = [f"page {one * one % 1_000_003}" for one in range(count)]
    fit = Fit(AUTO3, sample)
    for at in range(0, count, 1_000):
        fit.add(texts[at : at + 1_000])
    hashes = sorted(set(map(text_hash, texts)))
    size = sample or min(20_000, max(2_000, sum(one < 2**64 // 10 for one in hashes)))
    assert [hashed for hashed, _, _ in fit.chosen()] == hashes[:size]
    assert {text_hash(text) for _, text, _ in fit.chosen()} == set(hashes[:size])
    wanted = fit.wanted([f"another {one}" for one in range(1_000)])
    assert count < 45_000 or len(wanted) < 200


def test_copies_count_once_and_a_crowd_counts_little() -> None:
    texts = pages(100)
    assert fitted(texts * 3).content() == fitted(texts).content()
    offer = "unbeatable chandlery discount voucher expires midnight today only"
    crowd = [f"{offer} " * 3 + f"visitor number{one}" for one in range(400)]
    table = fitted(texts + crowd)
    assert 100 + MOST_ALIKE <= table.documents < 100 + 3 * MOST_ALIKE
    assert rarity_of(table, "harbour") < SCALE // 4 < rarity_of(table, "voucher")


def test_a_table_of_nothing_and_a_profile_without_rarity_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to learn from 1 documents: no word occurs in two of them"):
        fitted(pages(1))
    with pytest.raises(ValueError, match="profile auto-2 does not weight features by rarity; use auto-3"):
        Fit(Profile.named("auto-2"))


def test_words_vote_once_by_their_rarity_and_pairs_are_for_the_key_alone(tmp_path: Path) -> None:
    profile = own(tmp_path, pages(50))
    found = {one.text: one.weight for one in profile.features("The harbour, the harbour: a mooring 潜水员 检查")}
    assert found["mooring"] > found["harbour"] == found["the"] > 0
    assert found["潜水员"] == 2 * DEFAULT
    assert found["a"] == 3  # as in general text
    assert not any(" " in text for text in found)
    one, other = (profile.signature(f"harbour ferry tide {text}") for text in ("buoy crane", "crane buoy"))
    assert (one.fingerprint, one.key == other.key) == (other.fingerprint, False)


def weights_by_definition(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the weights of features of one kind in the vote, as schema/profiles.md specifies."""
    alike = Counter(counts.values())

    def weight(feature: str, count: int) -> int:
        (alone,) = AUTO3.features(feature)
        is_name = alike[count] > 1 and 32 * count >= len(counts)
        is_name = count >= 4 and (is_name or 5 * count >= len(counts))
        return max(int(alone.weight) // 4, 1) if is_name else int(alone.weight)

    return {feature: weight(feature, count) for feature, count in counts.items()}


@given(*(st.dictionaries(st.sampled_from(some), st.integers(1, 9)) for some in KINDS), st.integers(0, 300))
def test_a_name_that_repeats_votes_with_a_quarter_of_its_weight(
    words: dict[str, int], chinese: dict[str, int], rows: dict[str, int], others: int
) -> None:
    kinds = words | {f"w{number}": 1 for number in range(others)}, chinese, rows
    text = "，".join(feature for kind in kinds for feature, count in kind.items() for _ in range(count))
    found = {one.text: one.weight for one in AUTO3.features(text)}
    assert found == {name: weight for kind in kinds for name, weight in weights_by_definition(kind).items()}
    whole = signature_batch(AUTO3, [text], has_sketches=True)
    assert long_signature(AUTO3, text, has_sketches=True, window=100).at(0) == whole.at(0)


def test_a_pair_has_the_hash_of_a_row_of_two_words() -> None:
    first, second = (one.hash for word in ("harbour", "ferry") for one in AUTO3.features(word))
    units = np.array([first, second], np.uint64)
    pair = shingle_hashes(units, np.array([0]), np.array([2]))
    table = RarityTable.fitted([np.append(units, pair)] * 2)
    assert fitted(["harbour ferry", "a harbour ferry"]).find(pair) == table.find(pair) < DEFAULT


@pytest.mark.parametrize("times", [5, 50, 500])
@pytest.mark.parametrize("token", ["<p>", "&nbsp;", "Harbour Gazette ", "水印 "])
def test_a_token_that_repeats_moves_few_bits(token: str, times: int) -> None:
    chosen = random.Random(times)
    words = [f"{one}{chosen.randrange(40)}" for one in WORDS for _ in range(12)]
    pieces = np.array_split(words, times)
    repeated = f" {token} ".join(" ".join(piece) for piece in pieces)
    distance = AUTO3.fingerprint(" ".join(words)) ^ AUTO3.fingerprint(repeated)
    assert distance.bit_count() <= 6


@pytest.mark.parametrize("options", ["", ",fields=title^3+body", ",sketch=off"])
@pytest.mark.parametrize("window", [3, 40, 1_000])
def test_a_long_text_is_signed_as_a_whole_one(tmp_path: Path, options: str, window: int) -> None:
    path = tmp_path / "own.rarity"
    path.write_bytes(fitted([*MIXED, *pages(30)]).content())
    profile = Profile.named(f"auto-3:rarity={path}{options}")
    chosen = random.Random(window)
    for size in (1, 2, 5, 40):
        text = "\x1f".join(" ".join(chosen.choices([*MIXED, *WORDS, "don't", "12:30"], k=size)) for _ in range(2))
        whole = signature_batch(profile, [text], has_sketches=True)
        assert long_signature(profile, text, has_sketches=True, window=window).at(0) == whole.at(0)


def test_a_profile_with_a_table_is_the_same_in_workers_in_json_and_in_another_process(tmp_path: Path) -> None:
    profile = own(tmp_path, pages(50))
    assert Profile.from_json(profile.to_json()) == profile
    assert profile.to_json()["version"] == 5
    ((signed, _),) = signature_stream(profile, [list(MIXED)], 2)
    assert list(signed) == list(profile.signatures(MIXED))
    assert list(signed) != list(AUTO3.signatures(MIXED))
    with HSimIndex.create(f"lmdb://{tmp_path / 'index'}", profile=profile) as index:
        index.add(profile.signature(MIXED[1]), "ferry")
    shutil.copytree(tmp_path / "index", tmp_path / "copy")
    (tmp_path / "own.rarity").unlink()
    told = subprocess.run(
        [sys.executable, "-c", ASK, f"lmdb://{tmp_path / 'copy'}", MIXED[1]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.stdout, told.stderr) == ("0\n", "")


def test_a_profile_whose_table_is_not_here_says_so(tmp_path: Path) -> None:
    profile = own(tmp_path, pages(23))
    assert profile.rarity is not None
    wordlists._contents.pop(profile.rarity)
    with pytest.raises(
        ProfileMismatchError, match=f"rarity table with SHA-256 {profile.rarity[:16]}… is not available"
    ):
        profile.fingerprint(MIXED[1])


@pytest.mark.parametrize("name", ["auto-2:rarity={}", "words-1:rarity={}", "auto-3:english=english-1", "auto-3:idf={}"])
def test_what_does_not_go_with_rarity_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "own.rarity"
    path.write_bytes(b"harbour 7\n" if "idf" in name else fitted(pages(9)).content())
    with pytest.raises(ValueError, match=r"requires"):
        Profile.named(name.format(path))


@pytest.mark.parametrize("name", ["auto-2", "words-1:n=3"])
def test_a_table_is_refused_by_the_name_that_the_profile_was_given(tmp_path: Path, name: str) -> None:
    path, profile = tmp_path / "own.rarity", Profile.named(name)
    path.write_bytes(fitted(pages(9)).content())
    told = f"profile {profile.name} cannot use {path}: a rarity table requires weights=rarity; use auto-3"
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        profile.with_lists(rarity=path)


def test_fit_writes_a_table_of_good_records_and_names_the_others(tmp_path: Path) -> None:
    source, table = tmp_path / "pages.jsonl", tmp_path / "pages.rarity"
    lines = [json.dumps({"id": str(at), "text": text}) for at, text in enumerate(pages(12))]
    source.write_text("\n".join([*lines[:5], '{"id": "no text"}', *lines[5:]]))
    result = run("fit", str(source), "--output", str(table), "--profile", "auto-3")
    assert result.exit_code == 7
    assert f"{source}:6: " in result.stderr
    assert "learnt from only 12 documents" in result.stderr
    content = fitted(pages(12)).content()
    assert table.read_bytes() == content
    (told,) = lines_of(result.stdout)
    assert (told["documents"], told["sample"], told["rejected"]) == (12, 12, 1)
    assert told["features"] == len(RarityTable.read(content))
    assert "already exists" in run("fit", str(source), "--output", str(table), "--profile", "auto-3").stderr


def test_of_many_rejected_records_fit_shows_a_few_and_counts_the_others(tmp_path: Path) -> None:
    source, table = tmp_path / "pages.jsonl", tmp_path / "pages.rarity"
    lines = [json.dumps({"id": str(at), "text": text}) for at, text in enumerate(pages(12))]
    source.write_text("\n".join(lines + ['{"id": "no text"}'] * 1_234))
    result = run("fit", str(source), "--output", str(table))
    assert result.exit_code == 7
    assert result.stderr.count(f"{source}:") == 10
    assert "and 1,224 more rejected records" in result.stderr
    assert json.loads(result.stdout)["rejected"] == 1_234


def test_fit_refuses_fingerprints_and_profiles_without_rarity(tmp_path: Path) -> None:
    source, output = tmp_path / "pages.tsv", str(tmp_path / "t.rarity")
    source.write_text("0123456789abcdef\ta\n" * 2)
    options = ("--output", output, "--profile", "auto-3")
    given = run("fit", str(source), "--format", "fingerprints", *options)
    assert "contains fingerprints: expected texts" in given.stderr
    refused = run("fit", str(source), "--output", output, "--profile", "words-1")
    assert "does not weight features by rarity; use auto-3" in refused.stderr
    assert not Path(output).exists()
