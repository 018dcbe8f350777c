"""A few hundred short documents in Chinese and English, with the known near-duplicates among them.

`documents.jsonl`: one `{"id", "text"}` per line, UTF-8. The id of a copy names its original and the kind of change, as
in `zh-metro/edit`. Some documents look like duplicates but are not: texts from one template with different facts,
articles that share a footer, two reports of one event, very short texts, and an empty text.

`truth.tsv`: `id1<TAB>id2<TAB>kind` for every pair in a family of copies, in the order of the documents.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

PAIR_KINDS = {
    "exact": "the same text",
    "reformat": "different line breaks or punctuation",
    "edit": "a word or two changed",
    "repost": "a line added before or after",
    "sentence": "a sentence added or removed",
    "mixed": "two copies, changed in different ways",
}


def documents() -> Path:
    """Return the path of the documents."""
    return _file("documents.jsonl")


def truth() -> list[tuple[str, str, str]]:
    """Return every true near-duplicate pair: two ids, and the kind, a key of `PAIR_KINDS`."""
    lines = _file("truth.tsv").read_text("utf-8").splitlines()
    return [(first, second, kind) for first, second, kind in (line.split("\t") for line in lines)]


def _file(name: str) -> Path:
    return Path(str(files("hsimhash.sample") / name))
