"""Custom word lists: read, weighted, fitted, sent to workers, and stored in an index."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hsimhash.errors import ProfileMismatchError
from hsimhash.fingerprint import Profile, wordlists
from hsimhash.fingerprint.stream import signature_stream
from hsimhash.fingerprint.vote import SCALE
from hsimhash.fingerprint.wordlists import IDF, STOPS, WORDS, read_list
from hsimhash.index import HSimIndex

AUTO = Profile.named("auto-2")
BY_WORDS = pytest.mark.parametrize("profile", [AUTO, Profile.named("auto-3")], ids=["idf", "rarity"])
CHINESE = "云计算平台的指纹比较两个网页，再统计不同的比特；爬虫把网页写入云计算平台。"
ENGLISH = "A crawler doesn't compare every page with every page, it looks up a few buckets of fingerprints instead."


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def weights(profile: Profile, text: str) -> dict[str, float]:
    return {feature.text: feature.weight / SCALE for feature in profile.features(text)}


@pytest.mark.parametrize(
    ("kind", "text", "content"),
    [
        (IDF, "網頁 7.5\nＰａｇｅ\t2\n\n页 3\npage 1.25\ndon't 4\n", "dont 4\npage 1.25\n网页 7.5\n页 3\n"),
        (WORDS, "\ufeff雲計算 12 n\r\n云平台 n\n指纹\n", "云平台\n云计算 12\n指纹\n"),
        (STOPS, "平台\n PAGE \npage\n", "page\n平台\n"),
    ],
)
def test_lists_are_read_as_the_profile_normalises_texts(kind: str, text: str, content: str, tmp_path: Path) -> None:
    assert read_list(kind, written(tmp_path / "list.txt", text), AUTO._normalized).decode() == content


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (IDF, "page 1\nword\n", r"line 2: 'word' is not a word and its idf, such as: word 7\.25"),
        (IDF, "page -1\n", "line 1: 'page -1' is not a word and its idf"),
        (IDF, "page nan\n", "line 1"),
        (
            WORDS,
            "云计算 many words\n",
            "line 1: '云计算 many words' is not a word, optionally followed by its frequency",
        ),
        (STOPS, "one\n\ntwo words\n", "line 3: 'two words' is not one word"),
        (STOPS, "one\n\u00ad\n", "line 2: .* is not one word"),
        (WORDS, "\n \n", "list.txt does not contain any words: each line of the list of words must be a word"),
    ],
)
def test_a_wrong_line_is_named(kind: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_list(kind, written(tmp_path / "list.txt", text), AUTO._normalized)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes("指纹\n".encode("gbk"))
    with pytest.raises(ValueError, match=r"list\.txt is not UTF-8"):
        read_list(STOPS, tmp_path / "list.txt", AUTO._normalized)


def test_an_own_table_weighs_words_of_every_script(tmp_path: Path) -> None:
    idf = written(tmp_path / "idf.txt", "网页 7.5\n指纹 2\npage 3\ncrawler 5\n")
    own = Profile.named("auto-2").with_lists(idf=idf, name="mine-1")
    uncapped = {**weights(own, CHINESE + ENGLISH)}
    assert uncapped["指纹"] == 2
    assert uncapped["crawler"] == 5
    assert uncapped["page"] == 6
    assert uncapped["buckets"] == 5  # the median
    assert "page it" not in uncapped


@BY_WORDS
def test_stop_words_of_ones_own_have_no_vote(profile: Profile, tmp_path: Path) -> None:
    stops = written(tmp_path / "stops.txt", "网页\nPage\n")
    assert "网页" in weights(profile, CHINESE)
    assert "网页" not in weights(profile.with_lists(stops=stops, name="mine-1"), CHINESE)


def test_stop_words_of_ones_own_are_not_in_an_own_table(tmp_path: Path) -> None:
    stops = written(tmp_path / "stops.txt", "网页\nPage\n")
    idf = written(tmp_path / "idf.txt", "网页 7.5\npage 3\ncrawler 5\n")
    assert weights(AUTO.with_lists(idf=idf, stops=stops, name="mine-2"), ENGLISH)["page"] == 0


@BY_WORDS
def test_the_segmenter_knows_words_of_ones_own(profile: Profile, tmp_path: Path) -> None:
    words = written(tmp_path / "words.txt", "雲計算平台 100 n\n")
    assert "云计算平台" not in weights(profile, CHINESE)
    assert "云计算平台" in weights(profile.with_lists(words=words, name="mine-1"), CHINESE)
    assert "云计算平台" not in weights(profile, CHINESE)


def test_lists_go_with_profiles_that_weigh_by_words(tmp_path: Path) -> None:
    stops = written(tmp_path / "stops.txt", "page\n")
    with pytest.raises(ValueError, match="word list works only with jieba's tokens"):
        Profile.named("words-1").with_lists(stops=stops, name="mine-1")


def test_the_profile_is_the_same_through_json_and_in_workers(tmp_path: Path) -> None:
    idf = written(tmp_path / "idf.txt", "网页 7.5\npage 3\n")
    own = AUTO.with_lists(idf=idf, words=written(tmp_path / "words.txt", "云计算平台\n"), name="mine-1")
    assert Profile.from_json(own.to_json()) == own
    assert own.to_json()["version"] == 3
    texts = [CHINESE, ENGLISH, CHINESE + ENGLISH]
    ((found, _),) = signature_stream(own, [texts], 2)
    assert found.fingerprints.tolist() == own.signatures(texts).fingerprints.tolist()
    assert found.fingerprints.tolist() != AUTO.signatures(texts).fingerprints.tolist()


ASK = """
import sys
from hsimhash import HSimIndex
with HSimIndex.open(sys.argv[1], slow_s=None) as index:
    print([match.doc_id for match in index.query(index.profile.signature(sys.argv[2]), max_distance=0)])
"""


def test_an_index_brings_its_lists_to_a_process_that_never_had_them(tmp_path: Path) -> None:
    idf, words = written(tmp_path / "idf.txt", "网页 7.5\npage 3\n"), written(tmp_path / "words.txt", "云计算平台\n")
    own = AUTO.with_lists(idf=idf, words=words, stops=written(tmp_path / "stops.txt", "比特\n"), name="mine-1")
    with HSimIndex.create(f"lmdb://{tmp_path / 'index'}", profile=own) as index:
        index.add(own.signature(CHINESE + ENGLISH), "page")
    shutil.copytree(tmp_path / "index", tmp_path / "copy")
    command = [sys.executable, "-c", ASK, f"lmdb://{tmp_path / 'copy'}", CHINESE + ENGLISH]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (told.stdout, told.stderr) == ("['page']\n", "")


def test_a_profile_whose_list_is_not_here_says_which(tmp_path: Path) -> None:
    own = AUTO.with_lists(words=written(tmp_path / "words.txt", "不在这里的词\n"), name="mine-1")
    assert own.words is not None
    wordlists._contents.pop(own.words)
    with pytest.raises(ProfileMismatchError, match=f"list of words with SHA-256 {own.words[:16]}… is not available"):
        own.fingerprint(CHINESE)


def test_a_profile_is_written_with_the_files_of_its_lists(tmp_path: Path) -> None:
    idf, words = written(tmp_path / "a.idf", "网页 7.5\npage 3\n"), written(tmp_path / "terms.txt", "云计算平台\n")
    named = Profile.named(f"auto-2:idf={idf},sketch=off,words={words}")
    own = replace(AUTO, name="mine-1", sketch=None, key=None).with_lists(idf=idf, words=words, name=named.name)
    assert named == own
    assert re.fullmatch("auto-2-sketch-off-idf-[0-9a-f]{8}-words-[0-9a-f]{8}", named.name)
    assert Profile.from_json(named.to_json()) == named


def test_a_profile_whose_file_is_wrong_is_refused_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"profile 'auto-2:stops=.*none\.txt: No such file"):
        Profile.named(f"auto-2:stops={tmp_path / 'none.txt'}")
    with pytest.raises(ValueError, match="line 1: 'two words' is not one word"):
        Profile.named(f"auto-2:stops={written(tmp_path / 'stops.txt', 'two words')}")
    with pytest.raises(ValueError, match=r"unknown option 'idff'; did you mean idf[?]"):
        Profile.named("auto-2:idff=a")


def test_a_list_is_read_again_once_its_file_has_changed(tmp_path: Path) -> None:
    stops = written(tmp_path / "stops.txt", "page\n")
    first = Profile.named(f"auto-2:stops={stops}")
    assert Profile.named(f"auto-2:stops={stops}") == first
    written(stops, "crawler\n")
    assert Profile.named(f"auto-2:stops={stops}").stops != first.stops
