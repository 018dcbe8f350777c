"""Small files of every format, and mutations specific to each; the random numbers determine both."""

from __future__ import annotations

import codecs
import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from tests.stress.fuzz_records import Maker
from tests.support import archives

JSON_FORMS = ("jsonl", "array", "objects", "signatures", "fragments")
SUFFIXES = {
    **dict.fromkeys(JSON_FORMS, ".jsonl"),
    "array": ".json",
    "objects": ".json",
    "tsv": ".tsv",
    "fingerprints": ".tsv",
    "lines": ".txt",
    "text": ".txt",
    "csv": ".csv",
    "parquet": ".parquet",
    "warc": ".warc",
    "wet": ".wet",
    "page": ".html",
}
BINARY = ("parquet", "warc", "wet")
PARQUET_SEEDS = 16
_WORDS = (
    "harbour ferry Sunday divers moorings",
    "近似重复的网页非常普遍",
    "Fähre für Überfahrt",
    "паром не ходит",
    "x",
    "",
)
_PIECES = (
    "<p>{}</p>",
    "{}<br>\n",
    "<b>{}</b> &amp; &nbsp;",
    "<!-- {} -->",
    "<table><tr><td>{}</table>",
    "&lt;{}&#x41;",
)


# Seeds.


def seed_of(form: str, rng: random.Random) -> bytes:
    """Return a small valid file in a form."""
    return _SEEDS[form](form, rng)


def words(rng: random.Random) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randrange(4)))


class _SmallMaker(Maker):
    """Makes short records, which take a tenth of the time."""

    def _characters(self, count: int, *, is_id: bool = False) -> str:
        return super()._characters(min(count, 6), is_id=is_id)


def _records(form: str, rng: random.Random) -> list[bytes]:
    maker = _SmallMaker({"array": "jsonl", "objects": "jsonl"}.get(form, form), rng)
    kinds = rng.choices([maker.good, maker.known_bad], [9, 1], k=rng.randrange(6))
    lines = [kind() for kind in kinds]
    return [line for line in lines if len(line) < 10_000]  # `fuzz_records` tries the long ones


def _lines(form: str, rng: random.Random) -> bytes:
    lines = _records(form, rng)
    return b"".join(line + b"\n" for line in lines)


def _objects(rng: random.Random) -> list[dict[str, object]]:
    def one(number: int) -> dict[str, object]:
        record: dict[str, object] = {"id": rng.choice([f"d{number}", number, float(number)]), "text": words(rng)}
        if rng.random() < 0.3:
            record["more"] = rng.choice([[1, {"a": [None]}], {"a": {"b": "]}"}}, '"', "\\", "a\nb", 1e300, True])
        if rng.random() < 0.1:
            del record["id"]
        return record

    return [one(number) for number in range(rng.randrange(5))]


def _json(form: str, rng: random.Random) -> bytes:
    indent, is_ascii = rng.choice([None, None, 0, 2]), rng.random() < 0.5
    if form == "array":
        return json.dumps(_objects(rng), indent=indent, ensure_ascii=is_ascii).encode()
    between = rng.choice(["\n", "\n\n", " ", ",\n", ""])
    return between.join(json.dumps(one, indent=2, ensure_ascii=is_ascii) for one in _objects(rng)).encode()


def _fragments(_: str, rng: random.Random) -> bytes:
    def text() -> str:
        return "".join(rng.choice(_PIECES).format(words(rng)) for _ in range(rng.randrange(1, 4)))

    return b"".join(json.dumps({"id": n, "text": text()}).encode() + b"\n" for n in range(rng.randrange(1, 3)))


def _text(_: str, rng: random.Random) -> bytes:
    return "\n".join(words(rng) for _ in range(rng.randrange(5))).encode()


def _csv(_: str, rng: random.Random) -> bytes:
    names = rng.choice([["id", "text"], ["text", "id"], ["id", "text", "more"], ["text"]])
    out = io.StringIO()
    writer = csv.writer(
        out,
        lineterminator=rng.choice(["\n", "\r\n"]),
        quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    )
    writer.writerow(names)
    for number in range(rng.randrange(6)):
        cells = {
            "id": f"d{number}",
            "text": words(rng),
            "more": rng.choice(["", "a,b", 'say "hi"', "two\nlines", "\t"]),
        }
        writer.writerow([cells[name] for name in names])
    return out.getvalue().encode()


@cache
def _parquet_seeds() -> Sequence[bytes]:
    import pyarrow as arrow
    from pyarrow import parquet

    rng, made = random.Random(35), []
    for number in range(PARQUET_SEEDS):
        count = rng.randrange(7)
        columns: dict[str, object] = {
            "id": rng.choice([[f"d{n}" for n in range(count)], list(range(count))]),
            "text": arrow.array(
                [rng.choice([words(rng), None]) if number % 3 == 0 else words(rng) for _ in range(count)],
                arrow.string(),
            ),
            "more": [{"a": [n, None]} for n in range(count)] if number % 2 else [float(n) for n in range(count)],
        }
        out = io.BytesIO()
        parquet.write_table(
            arrow.table(columns),
            out,
            compression=rng.choice(["none", "snappy", "zstd", "gzip"]),
            row_group_size=rng.choice([2, 100]),
            use_dictionary=rng.random() < 0.5,
            data_page_version=rng.choice(["1.0", "2.0"]),
            write_page_checksum=rng.random() < 0.3,
        )
        made.append(out.getvalue())
    return made


def _parquet(_: str, rng: random.Random) -> bytes:
    return rng.choice(_parquet_seeds())


def _page(_: str, rng: random.Random) -> bytes:
    body = "".join(rng.choice(_PIECES).format(words(rng)) for _ in range(rng.randrange(4)))
    charset = rng.choice(["utf-8", "gb2312", "windows-1252", "shift_jis", "x-user-defined", "nonsense", ""])
    head = f"<meta charset='{charset}'>" if charset else ""
    page = f"<!doctype html><html><head>{head}<title>t</title></head><body><article>{body}</article></body></html>"
    return page.encode(rng.choice(["utf-8", "gb18030"]), "replace")


def _archive(form: str, rng: random.Random) -> bytes:
    return b"".join(archive_record(form, rng, number) for number in range(rng.randrange(4)))


def archive_record(form: str, rng: random.Random, number: int) -> bytes:
    """Return a record of an archive: usually a document."""
    url, text = f"http://e.org/{number}", words(rng)
    if form == "wet":
        return archives.conversion(url, text)
    match rng.randrange(8):
        case 0:
            return archives.record("warcinfo", url, "application/warc-fields", b"software: none\r\n")
        case 1:
            return archives.response(url, text.encode(), "text/plain", rng.choice(["404 Not Found", "200"]))
        case 2:
            return archives.response(url, _page("page", rng))
        case 3:
            return archives.response(url, text.encode(), "text/plain", excess=rng.choice([-1, 1, 100]))
    return archives.response(url, text.encode(), "text/plain; charset=utf-8")


_SEEDS: dict[str, Callable[[str, random.Random], bytes]] = {
    **dict.fromkeys(("jsonl", "signatures", "tsv", "fingerprints"), _lines),
    **dict.fromkeys(("array", "objects"), _json),
    **dict.fromkeys(("lines", "text"), _text),
    **dict.fromkeys(("warc", "wet"), _archive),
    "fragments": _fragments,
    "csv": _csv,
    "parquet": _parquet,
    "page": _page,
}


# Mutations.

_TOKENS = (
    b"\n",
    b"\r",
    b"\r\n",
    b"\0",
    b"\t",
    b" ",
    b"\xff",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    codecs.BOM_UTF8,
    b"\x1a",
    b"\xed\xa0\x80",
)
_JSON_MARKS = (
    rb'{ } [ ] : , " \ \" \u \ud800 \u0000 // [[ ]] {} [] }{ ][ },{ }, ] [{ null true NaN -Infinity 1e400 -0 1.0'
)
_JSON_TOKENS = [
    *_JSON_MARKS.split(),
    *(b'"id":', b'"text":', b'"text": "a"', b'{"id": "n", "text": "new"}', b'{"a":', b"1" * 5_000, b'"\n"', b"\\\n"),
]
_TAGS = (
    b"< > </ /> <!-- --> <!--> <script> </script> <style> <textarea> <title> <![CDATA[ ]]> <svg> <math> <template> <p>",
    b"</p> <table> <td> <b> <a <div> </div> <html> </html> <plaintext> <?xml <?php <!doctype <frameset> <noscript>",
    b"&#0; &#1; &#12; &#xD800; &#xFFFF; &#99999999; &amp &nbsp; &notit; <select> <meta",
)
_HTML_TOKENS = [
    *b" ".join(_TAGS).split(),
    *(b"<meta charset=utf-16>", b'<meta charset="x', b" a=" * 50, b"\x01", b"\x0c", b"\xef\xbf\xbe"),
]
_WARC_TOKENS = (
    *(b"WARC/1.0\r\n", b"WARC/1.1\r\n", b"WARC/", b"\r\n\r\n", b"HTTP/1.1 200\r\n", b"ffffffff\r\n", b"5\r\n"),
    *(b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 9999999999\r\n", b"content-length:0\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n", b": x\r\n"),
    *(b"WARC-Type: response\r\n", b"WARC-Type: conversion\r\n", b"WARC-Target-URI: \r\n"),
    *(b"Content-Type: text/html\r\n", b"Content-Type: text/html; charset=hex\r\n", b"Content-Type: text/plain\r\n"),
)
_FORM_TOKENS: dict[str, Sequence[bytes]] = {
    **dict.fromkeys(JSON_FORMS, _JSON_TOKENS),
    "fragments": [*_JSON_TOKENS, *_HTML_TOKENS],
    "tsv": (b"\t\t", b"id\t", b"\t0123456789abcdef", b"\\t"),
    "fingerprints": (b"\t\t", b"0x", b"\t0123456789abcdef", b"-1", b"1" * 20, b"\xd9\xa1"),
    "lines": (b"\n\n", b"WARC/1.0", b"{}", b"PAR1"),
    "text": (b"\n\n", b"WARC/1.0", b"{}\n", b"PAR1", b"\xff\xfe", b"\xfe\xff"),
    "csv": (b'"', b'""', b'","', b",", b";", b'"\n', b'\n"', b"id,text\n", b'\\"', b"'", b"\r\r\n"),
    "parquet": (b"PAR1", b"PARE", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\x80" * 9, b"\x15", b"\x2c", b"\x19"),
    "page": _HTML_TOKENS,
    "warc": [*_WARC_TOKENS, *_HTML_TOKENS],
    "wet": _WARC_TOKENS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Place:
    """A mutation's random numbers, and the tokens of its form."""

    rng: random.Random
    form: str

    def token(self) -> bytes:
        special = _FORM_TOKENS[self.form]
        return self.rng.choice(special if self.rng.random() < 0.7 else _TOKENS)

    def span(self, size: int) -> slice:
        at = self.rng.randrange(size + 1)
        return slice(at, at + self.rng.choice([1, 1, 2, 8, 40, 400]))


def _flip(data: bytearray, place: _Place) -> None:
    if data:
        data[place.rng.randrange(len(data))] ^= 1 << place.rng.randrange(8)


def _set(data: bytearray, place: _Place) -> None:
    span = place.span(len(data))
    data[span] = place.rng.randbytes(len(data[span]))


def _cut(data: bytearray, place: _Place) -> None:
    del data[place.span(len(data))]


def _double(data: bytearray, place: _Place) -> None:
    span = place.span(len(data))
    data[span.start : span.start] = data[span] * place.rng.choice([1, 1, 2, 30])


def _insert(data: bytearray, place: _Place) -> None:
    at = place.rng.randrange(len(data) + 1)
    data[at:at] = place.token()


def _insert_at_seam(data: bytearray, place: _Place) -> None:
    """Insert a token next to an existing one."""
    at = data.find(place.token(), place.rng.randrange(len(data) + 1))
    data[max(at, 0) : max(at, 0)] = place.token()


def _replace(data: bytearray, place: _Place) -> None:
    data[place.span(len(data))] = place.token()


def _exchange_tokens(data: bytearray, place: _Place) -> None:
    old, new = place.token(), place.token()
    data[:] = data.replace(old, new, place.rng.choice([1, 1, -1]) if len(data) < 5_000 else 1)


def _repeat(data: bytearray, place: _Place) -> None:
    at = place.rng.randrange(len(data) + 1)
    token = place.token()
    data[at:at] = token * (place.rng.choice([2, 10, 100, 2_000]) if len(token) < 100 else 2)


def _change_line_ends(data: bytearray, place: _Place) -> None:
    data[:] = data.replace(b"\n", place.rng.choice([b"\r\n", b"\r", b"\n\n", b"", b"\n \n", b"\r\r\n"]))


def _swap(data: bytearray, place: _Place) -> None:
    first, second = sorted(place.rng.randrange(len(data) + 1) for _ in range(2))
    third = place.rng.randrange(second, len(data) + 1)
    data[:] = data[:first] + data[second:third] + data[first:second] + data[third:]


def _swap_lines(data: bytearray, place: _Place) -> None:
    lines = data.split(b"\n")
    place.rng.shuffle(lines)
    data[:] = b"\n".join(lines)


def _truncate(data: bytearray, place: _Place) -> None:
    del data[place.rng.randrange(len(data) + 1) :]


def _wrap(data: bytearray, place: _Place) -> None:
    before, after = place.rng.choice(
        [(b"[", b"]"), (b'{"a":', b"}"), (b'"', b'"'), (b"<div>", b"</div>"), (b"\n", b"")]
    )
    times = place.rng.choice([1, 1, 3, 200])
    data[:] = before * times + data + after * place.rng.choice([times, times, times - 1])


def _begin(data: bytearray, place: _Place) -> None:
    data[:0] = place.rng.choice([codecs.BOM_UTF8, b"\n", b" ", b"\0", b"\xff\xfe", b"\xfe\xff", b"[", b"{", b"#"])


def _splice(data: bytearray, place: _Place) -> None:
    """Insert a file in a random form."""
    at = place.rng.choice([0, len(data), place.rng.randrange(len(data) + 1)])
    data[at:at] = seed_of(place.rng.choice(list(SUFFIXES)), place.rng)


def _damage_footer(data: bytearray, place: _Place) -> None:
    """Change the last bytes: the length of a footer, a checksum, a last line end."""
    if len(data) > 12:
        data[-place.rng.randrange(1, 300) :][:1] = place.rng.randbytes(1)
        at = len(data) - place.rng.randrange(1, min(300, len(data)))
        data[at] = place.rng.randrange(256)


_MUTATIONS: Sequence[Callable[[bytearray, _Place], None]] = (
    *(_flip, _set, _cut, _double, _insert, _insert, _insert_at_seam, _insert_at_seam, _replace, _exchange_tokens),
    *(_repeat, _change_line_ends, _swap, _swap_lines, _truncate, _wrap, _begin, _splice, _damage_footer),
)
_BYTE_MUTATIONS = (_flip, _flip, _set, _cut, _double, _truncate, _begin, _damage_footer)


def mutated(data: bytes, form: str, rng: random.Random) -> bytes:
    """Return a file with up to six mutations."""
    changed, place = bytearray(data), _Place(rng, form)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 6])):
        rng.choice(_MUTATIONS)(changed, place)
    return bytes(changed)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return a packed file with one mutation."""
    changed = bytearray(data)
    rng.choice(_BYTE_MUTATIONS)(changed, _Place(rng, "parquet"))
    return bytes(changed)
