import json
import re
from collections import Counter
from itertools import combinations

from hsimhash import sample

DOCUMENTS = [json.loads(line) for line in sample.documents().read_text("utf-8").splitlines()]
TEXTS = {document["id"]: document["text"] for document in DOCUMENTS}
TRUTH = sample.truth()


def is_chinese(text: str) -> bool:
    return bool(re.search(r"[\u4e00-\u9fff]", text))


def family(doc_id: str) -> str:
    return doc_id.partition("/")[0]


def test_each_document_has_an_id_of_its_own_and_a_text() -> None:
    assert all(set(document) == {"id", "text"} for document in DOCUMENTS)
    assert len(TEXTS) == len(DOCUMENTS)
    assert sum(text == "" for text in TEXTS.values()) == 1


def test_there_are_300_to_400_documents_and_about_half_are_chinese() -> None:
    assert 300 <= len(DOCUMENTS) <= 400
    assert 0.45 <= sum(map(is_chinese, TEXTS.values())) / len(TEXTS) <= 0.55


def test_texts_are_short_articles() -> None:
    articles = {doc_id: text for doc_id, text in TEXTS.items() if "-short-" not in doc_id and text}
    for doc_id, text in articles.items():
        at_least, at_most = (180, 600) if is_chinese(text) else (400, 1_200)
        assert at_least <= len(text) <= at_most, doc_id


def test_truth_lists_all_pairs_of_a_family_once_in_order_and_no_other() -> None:
    listed = [(first, second) for first, second, _ in TRUTH]
    expected = [pair for pair in combinations(TEXTS, 2) if family(pair[0]) == family(pair[1])]
    assert len(set(listed)) == len(listed)
    assert set(listed) == set(expected)


def test_every_kind_is_known_and_well_represented() -> None:
    kinds = Counter(kind for _, _, kind in TRUTH)
    assert set(kinds) == set(sample.PAIR_KINDS)
    assert min(kinds.values()) >= 30


def test_a_copy_has_the_kind_that_its_id_tells() -> None:
    for first, second, kind in TRUTH:
        if "/" not in first:
            assert second.removeprefix(f"{first}/").rstrip("0123456789") == kind


def test_exactly_the_exact_pairs_have_equal_texts() -> None:
    equal = {pair for pair in combinations(TEXTS, 2) if TEXTS[pair[0]] == TEXTS[pair[1]]}
    assert equal == {(first, second) for first, second, kind in TRUTH if kind == "exact"}


def test_reformatting_keeps_every_letter_and_digit() -> None:
    for first, second, kind in TRUTH:
        if kind == "reformat":
            kept = [
                [c for c in TEXTS[doc_id] if "\u4e00" <= c <= "\u9fff" or (c.isascii() and c.isalpha())]
                for doc_id in (first, second)
            ]
            assert kept[0] == kept[1], second
