"""Make `hsimhash/fingerprint/english.npz`, a fixed table of the weights of English words.

Run `python schema/make_word_table.py FOLDER hsimhash/fingerprint/english.npz`. FOLDER must contain checkouts of these
sources, each named after its repository (`peps`, `book`, …). Reading the mailing lists needs pyarrow. The texts are cut
into passages of 100 words. For each of the five kinds of text, the script computes the share of passages that contain a
word. The word's share is the mean of these five, so that no kind dominates because of its size, and its idf is
-ln(share). Words in fewer than three passages are left out. Weights are scaled so that a word in running text weighs on
average as much as a pair of words in `auto-1`, which is 4.21 times its idf. 114,005 passages (documentation 21,094,
news 16,400, encyclopaedic 8,353, mailing lists 44,499, fiction 23,659) gave 58,762 words. Fingerprints in stored
indexes depend on this table, so a new table needs a new name.

| kind | repository, commit | licence |
|---|---|---|
| documentation | python/peps, ba4deeb7 | public domain |
| documentation | rust-lang/book, 91754488 | MIT or Apache 2.0 |
| news | GSA/digitalgov.gov, 49795832 | public domain |
| encyclopaedic | factbook/factbook.json, 8662a8b1 | public domain |
| mailing lists | r-mailing-lists/data, 95bebefe | MIT |
| fiction | standardebooks, eleven books listed in `_BOOKS`, at their newest commit on 2026-11-22 | CC0 |

| array | dtype | meaning |
|---|---|---|
| `words` | uint8 | UTF-8, each word followed by a line feed, ascending |
| `weights` | uint32 | the weight of one occurrence of each word, in units of 1/4096 |
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hsimhash.fingerprint import tokens
from hsimhash.fingerprint.normalize import SPACED, classify, normalize, to_text
from hsimhash.fingerprint.profile import split_batch
from hsimhash.fingerprint.recipe import Recipe

PASSAGE_WORDS, LEAST_WORDS = 100, 50
LEAST_PASSAGES = 3

_MARKUP = re.compile(r"<[^>]*>|\{\{.*?\}\}|\]\([^)]*\)|https?://\S+|^---\n.*?\n---\n", re.DOTALL)
_WORD = re.compile("[a-z][0-9a-z]{0,19}|[0-9]{1,4}")
_BOOKS = (
    "arthur-conan-doyle_the-adventures-of-sherlock-holmes",
    "bram-stoker_dracula",
    "charles-dickens_bleak-house",
    "f-scott-fitzgerald_the-great-gatsby",
    "fyodor-dostoevsky_the-brothers-karamazov_constance-garnett",
    "george-eliot_middlemarch",
    "h-g-wells_the-war-of-the-worlds",
    "herman-melville_moby-dick",
    "jane-austen_pride-and-prejudice",
    "leo-tolstoy_war-and-peace_louise-maude_aylmer-maude",
    "p-g-wodehouse_love-among-the-chickens",
)


def marked_up(folder: Path, pattern: str) -> Iterator[str]:
    """Yield the texts of files in Markdown, reStructuredText or HTML."""
    for path in sorted(folder.glob(pattern)):
        yield html.unescape(_MARKUP.sub(" ", path.read_text(encoding="utf-8", errors="replace")))


def factbook(folder: Path) -> Iterator[str]:
    """Yield each country's texts."""

    def texts(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for one in value.values():
                yield from texts(one)
        elif isinstance(value, str):
            yield html.unescape(_MARKUP.sub(" ", value))

    for path in sorted(folder.glob("*/*.json")):
        yield "\n".join(texts(json.loads(path.read_bytes())))


def messages(folder: Path) -> Iterator[str]:
    """Yield the messages, without quoted lines."""
    import pyarrow.parquet

    for path in sorted(folder.glob("data/messages/*.parquet")):
        for body in pyarrow.parquet.read_table(path, columns=["body"]).column("body").to_pylist():
            yield "\n".join(line for line in body.splitlines() if not line.lstrip().startswith(">"))


def kinds(folder: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield each kind of text with its texts."""
    yield "documentation", marked_up(folder / "peps", "peps/pep-*.rst")
    yield "documentation", marked_up(folder / "book", "src/*.md")
    yield "news", marked_up(folder / "digitalgov.gov", "content/**/*.md")
    yield "encyclopaedic", factbook(folder / "factbook.json")
    yield "mailing lists", messages(folder / "data")
    for book in _BOOKS:
        yield "fiction", marked_up(folder / book, "src/epub/text/*.xhtml")


def words_of(texts: list[str]) -> Iterator[list[str]]:
    """Yield the words of each text, cut as a profile cuts them."""
    for batch in split_batch(texts):
        codes = normalize(batch)
        codes, classes = tokens.drop_apostrophes(codes, classify(codes))
        spaced = np.where((classes == SPACED) | (codes == 0), codes, ord(" "))
        yield from (text.split() for text in to_text(spaced).split("\0")[:-1])


def main(folder: Path, target: Path) -> None:
    """Write the table."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    passages: dict[str, int] = defaultdict(int)
    occurred: dict[str, int] = defaultdict(int)
    for kind, texts in kinds(folder):
        for words in words_of(list(texts)):
            for start in range(0, len(words), PASSAGE_WORDS):
                passage = words[start : start + PASSAGE_WORDS]
                if len(passage) < LEAST_WORDS:
                    continue
                passages[kind] += 1
                for word in passage:
                    occurred[word] += 1
                for word in set(passage):
                    found[kind][word] += 1
    table = {}
    for word in sorted(set().union(*found.values())):
        counts = {kind: own.get(word, 0) for kind, own in found.items()}
        if _WORD.fullmatch(word) and sum(counts.values()) >= LEAST_PASSAGES:
            table[word] = -np.log(np.mean([count / passages[kind] for kind, count in counts.items()]))
    mean = sum(occurred[word] * idf for word, idf in table.items()) / sum(occurred[word] for word in table)
    weights = np.rint(np.array(list(table.values())) / mean * Recipe("words").word_unit).astype(np.uint32)
    np.savez_compressed(
        target, words=np.frombuffer("".join(f"{word}\n" for word in table).encode(), np.uint8), weights=weights
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
