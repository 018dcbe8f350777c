"""Words as jieba cuts them, compared with jieba itself."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from unittest import mock

import mmh3
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hsimhash.fingerprint import Profile, segment
from hsimhash.fingerprint.segment import IDF_SHA256, load_idf, vocabulary
from hsimhash.fingerprint.wordlists import WordLists, keep_list
from tests.support.effort import thorough
from tests.support.fingerprint_sets import read_documents
from tests.support.oracles import plain_vote

LINES = (Path(__file__).parent / "data" / "segmentation.txt").read_text(encoding="utf-8").splitlines()
FOLDERS = ("lctt-zh-revisions", "zh-laws", "zh-wiki-paragraphs")
TOP = 100


@pytest.fixture(scope="module")
def jieba(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba's own: invalid escapes, pkg_resources
        import jieba
        import jieba.analyse

        jieba.setLogLevel("ERROR")
        jieba.dt.tmp_dir = str(tmp_path_factory.mktemp("jieba"))  # else all users and processes share its cache
        jieba.initialize()
    return jieba


def cut_words(texts: list[str]) -> list[list[str]]:
    """Return each text's words as `jieba.lcut` does, but with a space for each rare Han character."""
    return [
        [part for word in segment._segmenter(None)[0].cut(one) for part in segment.split_compound(word)]
        for one in without_rare_han(texts)
    ]


def without_rare_han(words: list[str]) -> list[str]:
    return [segment._RARE_HAN.sub(" ", word) for word in words]


def differing(jieba: ModuleType, texts: list[str]) -> list[str]:
    """Return the texts whose words, weights or fingerprint differ from jieba's own."""
    profile = Profile.named(f"jieba-topn-1:top={TOP}")
    found = profile.fingerprints(texts).values.tolist()
    wrong = []
    for text, words, value in zip(texts, cut_words(texts), found, strict=True):
        tags = jieba.analyse.extract_tags(text, topK=TOP, withWeight=True)
        same = words == without_rare_han(jieba.lcut(text))
        same &= [(feature.text, feature.weight) for feature in profile.features(text)] == tags
        same &= value == plain_vote((mmh3.hash64(word, signed=False)[0], weight) for word, weight in tags)
        if not same:
            wrong.append(text)
    return wrong


def test_words_weights_and_fingerprints_equal_jiebas_on_our_own_text(jieba: ModuleType) -> None:
    assert differing(jieba, [*LINES, "\n".join(LINES), "", " ", "好", "\0中国\0人民", "\r\n\t"]) == []


def test_words_weights_and_fingerprints_equal_jiebas_on_every_fourth_document(
    jieba: ModuleType, labelled_data: Path
) -> None:
    paths = [labelled_data / folder / "docs.jsonl.gz" for folder in FOLDERS]
    texts = [document["text"][:600] for path in paths for document in read_documents(path)[::4]]
    assert len(texts) >= 500
    assert len(differing(jieba, texts)) <= 1 + len(texts) // 20_000  # 1 in 20,000 may differ


@given(st.lists(st.text(st.sampled_from("中国人民ab C++.%-&_9 \n，𠀀㐀"), max_size=30), max_size=6))
def test_a_batch_gives_the_words_of_its_texts(texts: list[str]) -> None:
    known = segment.vocabulary(WordLists(IDF_SHA256), 0)
    doc, number = segment.number_words("".join(f"{text}\0" for text in texts), known)
    found = [[known.words[i] for i in number[doc == index]] for index in range(len(texts))]
    features = [[w for w in words if len(w.strip()) > 1] for words in cut_words(texts)]
    assert found == [[w for w in words if w.lower() not in segment.STOP_WORDS] for words in features]


RUNS = ["我们的中国人", "", "中国人民的时候", "我们"]


@given(
    st.lists(st.text(st.sampled_from("中国人民我们的时候㐀〇々 \n\uf900𠀀𰀀"), max_size=30), max_size=6),
    st.booleans(),
    st.booleans(),
)
@example(runs=RUNS, has_words=True, has_stops=True)
@example(runs=RUNS, has_words=False, has_stops=False)
def test_words_cut_from_runs_of_han_characters_equal_the_numbered_words(
    runs: list[str], has_words: bool, has_stops: bool
) -> None:
    own, stops = keep_list("我们的\n国人\n".encode()), keep_list("中国\n时候\n".encode())
    lists = WordLists(IDF_SHA256, words=own if has_words else None, stops=stops if has_stops else None)
    known, joined = segment.vocabulary(lists, 0), "".join(f"{text}\0" for text in runs)
    doc, number = segment.number_words(joined, known)
    with mock.patch.object(segment, "_PART_CHARACTERS", 9):  # several parts
        found = segment.han_words(joined, lists)
    assert found.doc.tolist() == doc.tolist()
    assert list(map(found.text, range(len(found.doc)))) == [known.words[i] for i in number]


def test_words_with_the_same_hash_are_different_features() -> None:
    profile, text = Profile.named("auto-3:hash=crc32c"), "带分数，微缩，网页，指纹，比较。带分数"
    hashes = {feature.text: feature.hash for feature in profile.features(text)}
    assert hashes["带分数"] == hashes["微缩"]
    assert len(hashes) == 5
    found = profile.signature(text)
    assert (found.fingerprint, found.key) == (0x1158AEB9, 0x55335338451BB7FE)


def test_words_added_to_the_shared_segmenter_change_nothing() -> None:
    program = (
        "import rjieba; from tests.test_fingerprint_segment import Profile, cut_words\n"
        "rjieba.add_word('的识别近似', 1000000, 'n')\n"
        "Profile.named('zh-1').verify(); print(cut_words(['网页的识别近似'])[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['网页', '的', '识别', '近似']"


def test_the_idf_of_words_seen_before_the_first_look_is_that_of_words_seen_later() -> None:
    known, of = vocabulary(WordLists(IDF_SHA256), 11), load_idf(IDF_SHA256)
    before = [known[word] for word in ("图书馆", "unknown", "北京大学")]
    assert known.idf[before].tolist() == [of[0]["图书馆"], of[1], of[0]["北京大学"]]
    many = [known[f"word{number}"] for number in range(40_000)]  # more than fit the first arrays
    after = [known[word] for word in ("中国", "人民")]
    assert known.idf[before + after].tolist() == [
        *(of[0].get(word, of[1]) for word in ("图书馆", "unknown", "北京大学", "中国", "人民"))
    ]
    assert set(known.idf[many].tolist()) == {of[1]}


def test_the_idf_table_is_jiebas(jieba: ModuleType) -> None:
    loader = jieba.analyse.default_tfidf.idf_loader
    assert load_idf(IDF_SHA256) == (loader.idf_freq, loader.median_idf)


@thorough
def test_threads_and_a_memo_started_afresh_change_nothing() -> None:
    profile = Profile.named("zh-1")
    texts = [line[i:] * 3 for line in LINES for i in range(12)]
    expected = profile.fingerprints(texts).values.tolist()
    with ThreadPoolExecutor(8) as pool:
        rounds = [pool.submit(lambda: [profile.fingerprint(text) for text in texts]) for _ in range(8)]
        while not all(one.done() for one in rounds):
            segment._memo.clear()
    assert [one.result() for one in rounds] == [expected] * 8


def test_a_full_memo_is_started_afresh() -> None:
    kept = vocabulary(WordLists(IDF_SHA256), 7)
    for word in range(3):
        kept[f"word{word}"]
    assert vocabulary(WordLists(IDF_SHA256), 7) is kept
    assert vocabulary(WordLists(IDF_SHA256), 7, most_words=2) is not kept


@thorough
def test_a_fork_while_another_thread_fingerprints_does_not_hang() -> None:
    program = """
import sys, threading
from tests.support.processes import forked
from hsimhash.fingerprint import Profile
profile, stop = Profile.named("zh-1"), threading.Event()
text = sys.argv[1]
expected = profile.fingerprint(text)
def work():
    number = 0
    while not stop.is_set():
        profile.fingerprint("".join(chr(0x4E00 + (number := number + 7) % 20000) for _ in range(200)))
def compare():
    assert profile.fingerprint(text) == expected
threading.Thread(target=work).start()
try:
    for _ in range(20):
        with forked(compare):
            pass
finally:
    stop.set()
"""
    subprocess.run([sys.executable, "-c", program, "".join(LINES)], cwd=Path(__file__).parents[1], check=True)
