"""Three public test suites whose files are wrapped in other formats before hsimhash reads them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.reader import read_batches
from tests.support import archives
from tests.support import plain_readings as plain

JSON_SUITE = re.compile(r"[yni]_.*\.json\Z")
WORDS = "some words that every document of this suite has in common"
# Python's names for the encodings that Python does not know by their names in the WHATWG table.
_CODECS = {
    "ibm866": "cp866",
    "iso-8859-8-i": "iso8859-8",
    "macintosh": "mac-roman",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac-cyrillic",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
}
_SAMPLES = (
    *(
        "你好世界",
        "漢字文化",
        "こんにちは",
        "안녕하세요",
        "Привет мир",
        "Καλημέρα κόσμε",
        "שלום",
        "مرحبا",
        "สวัสดีชาวโลก",
    ),
    *("Überraschung für Zoë", "Árvíztűrő tükörfúrógép", "Ħobż ġdid", "Jūras krasts", "Ŵyneb y dŵr", "Šių metų"),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to read a file, and the result that it must have."""

    path: Path
    options: tuple[str, ...] = ()
    records: int | None = None  # the least number of documents and rejects together; None: unknown
    verdict: str = ""  # "read": all records are documents; "reject": at least one is not; "": either
    made: tuple[str, ...] = ()  # how the file was made from the suite's file

    def wrong(self, code: int, documents: int, rejects: Sequence[str]) -> str:
        """Return how the result contradicts the verdict; empty if it does not."""
        if self.verdict == "read" and (code != 0 or documents != self.records):
            return f"valid, but {documents:,} of {self.records} records were read"
        if self.verdict == "reject" and code == 0 and not rejects:
            return "invalid, but nothing was rejected"
        return ""


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# JSONTestSuite: `y_` must be read, `n_` must be rejected, `i_` may be either.


def suite_trials(path: Path, scratch: Path) -> Iterator[Trial]:
    data = path.read_bytes()
    yield Trial(path, (), *_judged(data, path.name))
    for name in _text_fields(data):
        yield Trial(path, ("--text-field", name), *_judged(data, path.name, name))
    yield Trial(_written(scratch / "lines.jsonl", data), (), _lines(data), made=("as lines",))
    head, tail = b'{"id": "nested", "text": "%s", "more": ' % WORDS.encode(), b"}"
    nested = head + data + tail
    line = nested.replace(b"\n", b" ") + b"\n"
    yield Trial(_written(scratch / "line.jsonl", line), (), 1, _validity(line), made=("nested in a line",))
    before, after = (json.dumps({"id": name, "text": f"{WORDS} {name}"}).encode() for name in ("before", "after"))
    array = b"[" + b",\n".join((before, nested, after)) + b"]\n"
    validity = _validity(array)
    count = 3 if validity == "read" else 2
    yield Trial(_written(scratch / "array.json", array), (), count, validity, made=("nested in an array",))


def _judged(data: bytes, name: str, text_field: str = "text") -> tuple[int | None, str]:
    """Return how many records a file of the suite has, and its verdict on them as documents."""
    if _is_empty(data):
        return 0, ""
    values = plain.json_values(data) or []
    if name.startswith("y_") and values:
        is_each = all(isinstance(one, dict) and isinstance(one.get(text_field), str) for one in values)
        return len(values), "read" if is_each else ""
    return 1, "reject" if name.startswith("n_") else ""


def _is_empty(data: bytes) -> bool:
    """Whether a file does not have values: only blanks, or arrays without elements."""
    return not data.strip(b" \t\r\n[]\xef\xbb\xbf")


def _text_fields(data: bytes) -> list[str]:
    values = plain.json_values(data) or []
    fields = [name for one in values if isinstance(one, dict) for name, value in one.items() if isinstance(value, str)]
    return [name for name in dict.fromkeys(fields) if name.isprintable() and name][:2]


def _lines(data: bytes) -> int | None:
    if _is_empty(data):
        return 0
    if b"\0" in data or not data.isascii():
        return None
    is_whole = data.lstrip().startswith((b"[", b"{"))
    return None if is_whole else sum(bool(line.strip()) for line in data.split(b"\n"))


def _validity(data: bytes) -> str:
    """Return the verdict on a file made from one of the suite; empty if Python's JSON exceeds the standard."""
    try:
        plain.json_value(data.decode())
    except ValueError:
        return "reject"
    try:
        plain.json_value(data.decode(), strict=True)
    except ValueError:
        return ""
    return "read"


# The Big List of Naughty Strings.


def _strings(path: Path) -> list[str]:
    with suppress(ValueError):
        found = plain.json_value(path.read_text())
        if path.suffix == ".json" and isinstance(found, list) and all(isinstance(one, str) for one in found):
            return list(dict.fromkeys(found))
    return []


def is_naughty_strings(path: Path) -> bool:
    return len(_strings(path)) > 1


def naughty_trials(path: Path, scratch: Path) -> Iterator[Trial]:
    strings = _strings(path)
    records: dict[str, Callable[[int, str], dict[str, str]]] = {
        "texts": lambda n, one: {"id": str(n), "text": one},
        "ids": lambda n, one: {"id": one, "text": f"{WORDS} {n}"},
        "fragments": lambda n, one: {"id": str(n), "text": f"<p>{WORDS}<br>{one}</p>"},
        "fields": lambda n, one: {"id": str(n), "text": WORDS, one: one},
    }
    yield Trial(path, (), len(json.loads(path.read_bytes())))
    for name, make in records.items():
        lines = [json.dumps(make(n, one)) for n, one in enumerate(strings)]
        verdict = "" if name == "ids" else "read"
        made = _written(scratch / f"{name}.jsonl", "\n".join(lines).encode())
        yield Trial(made, (), len(strings), verdict, made=(f"as {name}",))
    cells = scratch / "cells.csv"
    with cells.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *enumerate(strings)])
    yield Trial(cells, (), len(strings), "read", made=("as cells",))
    for suffix, wrapped in ((".txt", "{}"), (".html", "<!doctype html><html><p>" + WORDS + "</p><p>{}</p></html>")):
        folder = scratch / f"contents{suffix}"
        folder.mkdir()
        for number, one in enumerate(strings):
            (folder / f"{number}{suffix}").write_text(wrapped.replace("{}", one))
        yield Trial(folder, (), len(strings), "read", made=(f"as the content of {suffix} files",))
    yield Trial(*_named_files(strings, scratch / "names"), made=("as file names",))


def _named_files(strings: Sequence[str], folder: Path) -> tuple[Path, tuple[str, ...], int]:
    """Make a file for each string that can be a file name; hidden files and Spark's own are not documents."""
    folder.mkdir()
    count = 0
    for one in strings:
        with suppress(OSError, ValueError):
            if one.strip(".") and "/" not in one:
                (folder / one).write_text(f"{WORDS} {count}")
                count += not one.startswith(".") and one != "_SUCCESS"
    return folder, (), count


# Labels of the WHATWG Encoding Standard.


def _labels(path: Path) -> dict[str, str]:
    """Return a mapping of labels to encodings."""
    with suppress(ValueError, KeyError, TypeError):
        groups = plain.json_value(path.read_text())
        encodings = [encoding for group in groups for encoding in group["encodings"]]
        return {label: one["name"].lower() for one in encodings for label in one["labels"]}
    return {}


def is_encoding_labels(path: Path) -> bool:
    return path.suffix == ".json" and bool(_labels(path))


def _sample(encoding: str) -> tuple[str, bytes] | None:
    """Return a text with non-ASCII letters that an encoding can represent, and its bytes."""
    for sample in _SAMPLES:
        with suppress(LookupError, UnicodeEncodeError):
            return sample, sample.encode(_CODECS.get(encoding, encoding))
    return None


def _spellings(label: str) -> tuple[str, ...]:
    return label, label.upper(), f" {label}\t"


def _labelled(path: Path) -> Iterator[tuple[str, str, bytes, str]]:
    """Yield the id of a page, the spelling of a label, the bytes of a text, and the text."""
    for label, encoding in _labels(path).items():
        if encoding.startswith("utf-16") or not (sample := _sample(encoding)):
            continue
        for number, spelling in enumerate(_spellings(label)):
            yield f"{label}-{number}".replace(":", "_"), spelling, sample[1], sample[0]


def label_trials(path: Path, scratch: Path) -> Iterator[Trial]:
    pages, records = scratch / "labels", []
    pages.mkdir()
    for name, spelling, data, _ in _labelled(path):
        body = b"<p>" + WORDS.encode() + b"</p><p>" + data + b"</p></html>"
        head = b"<!doctype html><html><head><meta charset='%s'><title>t</title></head>" % spelling.encode()
        (pages / f"{name}.html").write_bytes(head + body)
        kind = f"text/html; charset={spelling}"
        records.append(archives.response(f"http://example.org/{name}", b"<!doctype html><html>" + body, kind))
    yield Trial(pages, (), len(records), "read", made=("in meta tags",))
    made = _written(scratch / "labels.warc", b"".join(records))
    yield Trial(made, (), len(records), "read", made=("in HTTP headers",))


def label_faults(path: Path, scratch: Path) -> Iterator[str]:
    """Yield the labels whose pages, made by `label_trials`, were read with wrong letters."""
    wanted = {name: text for name, _, _, text in _labelled(path)}
    options = InputOptions(extract="none")
    for source in (scratch / "labels", scratch / "labels.warc"):
        texts: dict[str, str] = {}
        for batch in read_batches(find_inputs([str(source)], options), options, workers=1):
            texts.update(zip(batch.documents.doc_ids, batch.documents.texts, strict=True))
        for name, text in wanted.items():
            key = f"{name}.html" if source.is_dir() else f"http://example.org/{name}"
            if text not in texts.get(key, ""):
                yield f"{name} in {source.name}: read as {texts.get(key, 'nothing')[-80:]!r} instead of {text!r}"
