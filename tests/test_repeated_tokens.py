"""A token repeated in one copy of a text, such as leftover markup or a site's name, does not hide the other copy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import hsimhash
from hsimhash import sample
from hsimhash.calibrate.edits import sentences
from hsimhash.fingerprint.fit import LEAST_DOCUMENTS
from tests.support.effort import tries

MARKUP = ("<p>", "<br/>", "&nbsp;", "[ad]", "* * *")
NAMES = ("Harbour News", "Новости порта", "港口新闻", "Harbour Daily News Online", "http://example.org/news?page=1")
COUNTS = (5, 20, 100, 500)
PLACES = 4  # where a token is repeated in a text
_NEWS = json.loads(Path(__file__).with_name("data").joinpath("ferry.json").read_text(encoding="utf-8"))
IN_EIGHTEEN_LANGUAGES = [*_NEWS["unspaced"].values(), *_NEWS["spaced"].values()]  # 77 to 334 characters
_SAMPLE = map(json.loads, sample.documents().read_text("utf-8").splitlines())
ORIGINALS = [one["text"] for one in _SAMPLE if "/" not in one["id"] and len(one["text"]) > 220]
# Chinese texts of 250 to 311 characters, and English ones of 380: in shorter texts, a name can hide a copy.
SHORT = [text[:380] if text.isascii() else text for text in ORIGINALS if text.isascii() or len(text) >= 250]


def repeated(text: str, token: str, count: int) -> str:
    """Return the text with a token inserted `count` times between words, or between characters if it has no spaces."""
    gap = " " if " " in text else ""
    units = text.split(gap) if gap else list(text)
    for place in reversed(range(PLACES)):
        here = count // PLACES + (place < count % PLACES)
        at = (place + 1) * len(units) // PLACES
        units[at:at] = [token] * here
    return gap.join(units)


def between_sentences(text: str, token: str, count: int) -> str:
    """Return the text with a token inserted `count` times after sentences, spread evenly over them."""
    parts = sentences(text, "en" if text.isascii() else "zh")
    ends = range(count, count * len(parts) + 1, count)
    times = [end // len(parts) - (end - count) // len(parts) for end in ends]
    return "".join(part + f" {token} " * here for part, here in zip(parts, times, strict=True))


def share_found(
    texts: Sequence[str], token: str, count: int, place: Callable[[str, str, int], str] = repeated, **options: Any
) -> float:
    """Return the share of texts for which `duplicates` finds the copy in which a token is repeated."""
    found = hsimhash.duplicates([*texts, *(place(text, token, count) for text in texts)], **options)
    kept = {member: cluster.kept for cluster in found for member in cluster.members}
    return sum(at in kept and kept[at] == kept.get(at + len(texts)) for at in range(len(texts))) / len(texts)


def test_markup_hides_no_copy_in_any_script() -> None:
    ways = [(token, count) for token in MARKUP for count in COUNTS[: tries(len(COUNTS), 1)]]
    assert fmean(share_found(IN_EIGHTEEN_LANGUAGES, *way) for way in ways) >= 0.95
    assert fmean(share_found(IN_EIGHTEEN_LANGUAGES, *way, profile="auto-2") for way in ways) < 0.25


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_site_hides_no_copy_where_weights_are_fitted(name: str) -> None:
    assert len(ORIGINALS) > LEAST_DOCUMENTS
    counts = COUNTS[: tries(len(COUNTS), 1)]
    assert fmean(share_found(ORIGINALS, name, count) for count in counts) >= 0.95
    assert fmean(share_found(ORIGINALS, name, count, profile="auto-2") for count in counts) < 0.25


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_site_between_sentences_hides_no_copy_where_weights_are_of_general_text(name: str) -> None:
    counts = COUNTS[: tries(len(COUNTS), 2)]
    found = [share_found(SHORT, name, count, between_sentences, fit="off") for count in counts]
    assert min(found) >= 0.95
