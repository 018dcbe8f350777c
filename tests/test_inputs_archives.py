"""Web archives: every page and text is returned, damage is reported, and reading can resume at any place."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
import zstandard

from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES
from hsimhash.inputs.reader import Batch, Position, read_batches, texts_at
from tests.support.archives import PACK, conversion, record, response
from tests.support.effort import thorough

TEXT = "The quick brown fox jumps over the lazy dog, number {}, while the crew of the ship looks on. "


def page(number: int) -> bytes:
    return f"<html><body><p>{(TEXT.format(number) * 6).strip()}</p></body></html>".encode()


def records(count: int) -> list[bytes]:
    return [response(f"http://x/{number}", page(number)) for number in range(count)]


def batches_of(path: Path, start: Position | None = None, **options: object) -> list[Batch]:
    reading = InputOptions(**options)  # type: ignore[arg-type]
    inputs = find_inputs([str(path)], reading)
    return list(read_batches(inputs, reading, start, block_bytes=1, workers=1))


def contents(batches: list[Batch]) -> tuple[list[str], list[tuple[int, str]]]:
    ids = [doc_id for batch in batches for doc_id in batch.documents.doc_ids]
    return ids, [(reject.line, reject.reason) for batch in batches for reject in batch.documents.rejects]


def read(path: Path, **options: object) -> tuple[list[str], list[tuple[int, str]]]:
    return contents(batches_of(path, **options))


def archive(path: Path, parts: list[bytes], packing: str = "") -> Path:
    path = path / f"crawl.warc{packing}"
    path.write_bytes(b"".join(map(PACK[packing], parts)))
    return path


@pytest.mark.parametrize("packing", [pytest.param(one, marks=thorough) if one else one for one in PACK])
def test_pages_and_texts_with_status_200_are_documents_and_no_other_record_is(packing: str, tmp_path: Path) -> None:
    parts = [
        record("warcinfo", "", "application/warc-fields", b"software: own\r\n\r\n"),
        record("request", "http://x/0", "application/http; msgtype=request", b"GET / HTTP/1.1\r\n\r\n"),
        response("http://x/0", page(0)),
        response("http://x/1", page(1), status="404 Not Found"),
        response("http://x/2", b"\x89PNG", "image/png"),
        response("http://x/3", "一二三".encode(), "text/plain"),
        response("http://x/4", page(4), "application/xhtml+xml"),
        conversion("http://x/5", "text of a page"),
        record("metadata", "http://x/0", "text/plain", b"fetchTimeMs: 5"),
    ]
    batches = batches_of(archive(tmp_path, parts, packing))
    texts = {i: text for one in batches for i, text in zip(one.documents.doc_ids, one.documents.texts, strict=True)}
    assert texts == {
        "http://x/0": (TEXT.format(0) * 6).strip(),
        "http://x/3": "一二三",
        "http://x/4": (TEXT.format(4) * 6).strip(),
        "http://x/5": "text of a page",
    }
    assert contents(batches)[1] == []


def test_a_page_without_a_media_type_is_a_page_and_nothing_else_is(tmp_path: Path) -> None:
    bodies = [page(0), b"<!-- a comment --> <!doctype html><p>Hello</p>", b"\x89PNG", b"words"]
    parts = [response(f"http://x/{number}", body, "") for number, body in enumerate(bodies)]
    parts += [record("response", "dns:x", "", b"20260102030405 x. 60 IN A 192.0.2.1")]
    parts += [response("http://x/6", page(6)).replace(b"Content-Type: application/http; msgtype=response\r\n", b"")]
    assert read(archive(tmp_path, parts)) == ([f"http://x/{number}" for number in (0, 1, 6)], [])


@pytest.mark.parametrize("packing", [".bz2", ".xz"])
def test_a_packed_archive_is_read_on_behind_damage_from_any_place(packing: str, tmp_path: Path) -> None:
    pack = {".bz2": bz2.compress, ".xz": lzma.compress}[packing]
    members = [pack(part) for part in records(4)]
    members[1] = members[1][:40] + bytes(40) + members[1][80:]
    path = tmp_path / f"crawl.warc{packing}"
    path.write_bytes(b"".join(members))
    batches = batches_of(path)
    ids, ((_, reason),) = contents(batches)
    assert ids == ["http://x/0", "http://x/2", "http://x/3"]
    assert "damaged or truncated near byte" in reason
    for number, batch in enumerate(batches):
        assert contents(batches_of(path, batch.end)) == contents(batches[number + 1 :])


@pytest.mark.parametrize("name", ["old.arc", "old.arc.gz"])
def test_an_arc_archive_is_refused_with_what_to_do(name: str, tmp_path: Path) -> None:
    data = b"filedesc://old.arc 0.0.0.0 20010203040506 text/plain 76\n1 0 Alexa\nURL IP-address\n\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    for path in (tmp_path / name, tmp_path):
        ids, ((line, reason),) = read(path)
        assert (ids, line) == ([], 1)
        assert "convert it: warcio recompress" in reason


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/plain; charset=gb2312", "镕基".encode("gb18030"), "镕基"),
        ("text/plain; charset=ISO-8859-1", "“x”".encode("cp1252"), "“x”"),
        ("text/plain", "汉字".encode("gb18030"), "汉字"),
        ("text/plain", "né à".encode("latin-1"), "né à"),
        ("text/plain; charset=gbk", "\ufeff汉".encode(), "汉"),
        ("text/plain; charset=utf-8", b"a\xffb", "a\ufffdb"),
        ("text/plain; charset=", "汉".encode(), "汉"),
    ],
)
def test_texts_are_read_by_the_charset_that_came_with_them(
    content_type: str, body: bytes, expected: str, tmp_path: Path
) -> None:
    batches = batches_of(archive(tmp_path, [response("http://x/", body, content_type)]))
    assert [text for batch in batches for text in batch.documents.texts] == [expected]


def test_a_page_may_name_its_own_charset(tmp_path: Path) -> None:
    body = f"<html><head><meta charset='GBK'></head><body><p>{'汉字很好看。' * 60}</p></body></html>".encode("gbk")
    batches = batches_of(archive(tmp_path, [response("http://x/", body, "text/html")]))
    assert [text for batch in batches for text in batch.documents.texts] == ["汉字很好看。" * 60]


def test_a_charset_that_no_browser_knows_is_passed_over(tmp_path: Path) -> None:
    odd = response("http://x/1", page(1), "text/html; charset=klingon")
    assert read(archive(tmp_path, [odd])) == (["http://x/1"], [])


def test_a_body_that_is_too_large_is_rejected_with_its_place(tmp_path: Path) -> None:
    first = response("http://x/0", page(0))
    bomb = response("http://x/1", gzip.compress(bytes(100 << 20)), "text/plain\r\nContent-Encoding: gzip")
    ids, rejects = read(archive(tmp_path, [first, bomb, response("http://x/2", page(2))]))
    assert ids == ["http://x/0", "http://x/2"]
    assert rejects == [(2, f"longer than 16 MiB (record at byte {len(first):,})")]


def chunked(body: bytes, size: int = 100) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x;ext=1\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def deflated(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "Content-Encoding: gzip": gzip.compress,
    "Content-Encoding: X-GZIP": gzip.compress,
    "Content-Encoding: deflate": zlib.compress,
    "content-encoding:deflate": deflated,
    "Content-Encoding: br": brotli.compress,
    "Content-Encoding: zstd": zstandard.ZstdCompressor().compress,
    "Content-Encoding: gzip, br": lambda body: brotli.compress(gzip.compress(body)),
    "Transfer-Encoding: chunked": chunked,
    "Transfer-Encoding: chunked\r\nContent-Encoding: gzip": lambda body: chunked(gzip.compress(body)),
    "Content-Encoding: identity": bytes,
    "Content-Encoding: utf-8": bytes,
}


@pytest.mark.parametrize("coding", CODINGS)
def test_a_packed_body_is_unpacked(coding: str, tmp_path: Path) -> None:
    part = response("http://x/0", CODINGS[coding](page(0)), f"text/html\r\n{coding}")
    batches = batches_of(archive(tmp_path, [part]))
    assert batches[0].documents.texts == [(TEXT.format(0) * 6).strip()]


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_that_the_crawler_has_unpacked_is_taken_as_it_is(coding: str, tmp_path: Path) -> None:
    batches = batches_of(archive(tmp_path, [response("http://x/0", page(0), f"text/html\r\n{coding}")]))
    assert batches[0].documents.texts == [(TEXT.format(0) * 6).strip()]


@pytest.mark.parametrize("coding", [coding for coding, pack in CODINGS.items() if pack is not bytes])
def test_a_damaged_body_is_a_reject_and_no_empty_text(coding: str, tmp_path: Path) -> None:
    body = CODINGS[coding](page(0) * 20)
    cut = response("http://x/0", body[: len(body) // 2], f"text/html\r\n{coding}")
    ids, ((line, reason),) = read(archive(tmp_path, [cut, response("http://x/1", page(1))]))
    assert ids == ["http://x/1"]
    assert line == 1
    assert re.match("its (chunked body is|body cannot be decompressed)", reason)


@pytest.mark.parametrize("field", ["\r\n a", "a;", " "], ids=["lines", "parts", "blanks"])
def test_a_head_of_up_to_a_mebibyte_is_read(field: str, tmp_path: Path) -> None:
    fields = [f"text/html; charset={field * (size // len(field))};" for size in (1_000_000, 1_100_000)]
    odd = [response(f"http://x/{at}", page(at), one) for at, one in enumerate(fields)]
    ids, ((line, reason),) = read(archive(tmp_path, [*odd, response("http://x/2", page(2))]))
    assert ids == ["http://x/0", "http://x/2"]
    assert (line, reason.partition(" (")[0]) == (2, "its HTTP headers are longer than 1 MiB")


def test_a_body_that_is_packed_again_and_again_is_a_reject(tmp_path: Path) -> None:
    body, parts = page(1), list[bytes]()
    for count in range(1, 7):
        body = gzip.compress(body)
        coding = ", ".join(["utf-8", *["gzip"] * count])
        parts.append(response(f"http://x/{count}", body, f"text/html\r\nContent-Encoding: {coding}"))
    ids, ((line, reason),) = read(archive(tmp_path, parts))
    assert ids == [f"http://x/{count}" for count in range(1, 6)]
    assert (line, reason.partition(" (")[0]) == (6, "its Content-Encoding has 6 codings: expected at most 5")


def test_heads_whose_lines_end_in_a_newline_alone_are_read(tmp_path: Path) -> None:
    part = response("http://x/0", page(0), "text/html; charset=EUC-JP\r\nContent-Encoding: gzip")
    head, end, rest = part.partition(b"HTTP/1.1")
    http, _, body = rest.partition(b"\r\n\r\n")
    short = end + http.replace(b"\r\n", b"\n") + b"\n\n" + body.removesuffix(b"\r\n\r\n")
    fixed = re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(short), head)
    assert read(archive(tmp_path, [fixed + short + b"\r\n\r\n"])) == (["http://x/0"], [])


def test_an_answer_without_a_status_is_a_reject(tmp_path: Path) -> None:
    odd = record("response", "http://x/0", "application/http; msgtype=response", b"<html>no head</html>")
    name = record("response", "dns:x", "text/dns", b"20260102030405\nx. 1 IN A 1.2.3.4\n")
    ids, rejects = read(archive(tmp_path, [odd, name, response("http://x/1", page(1))]))
    assert ids == ["http://x/1"]
    assert rejects == [(1, "its HTTP response does not have a status line (record at byte 0)")]


def test_resources_with_an_address_are_documents_and_notes_about_pages_are_not(tmp_path: Path) -> None:
    parts = [
        record("resource", "http://x/0", "text/html; charset=gbk", page(0)),
        record("resource", "file:///tmp/1.txt", "text/plain", page(1)),
        record("resource", "urn:text:http://x/2", "text/plain", page(2)),
        record("resource", "http://x/3", "image/png", page(3)),
        record("revisit", "http://x/4", "application/http; msgtype=response", b"HTTP/1.1 200 OK\r\n\r\n"),
        record("metadata", "http://x/5", "text/html", page(5)),
    ]
    assert read(archive(tmp_path, parts)) == (["http://x/0", "file:///tmp/1.txt"], [])


@pytest.mark.parametrize("is_packed", [False, True])
def test_members_packed_by_a_dictionary_are_read(is_packed: bool, tmp_path: Path) -> None:
    samples = [part + bytes(str(number), "ascii") * 9 for number, part in enumerate(records(200))]
    dictionary = zstandard.train_dictionary(2_000, samples)
    content = dictionary.as_bytes()
    written = zstandard.ZstdCompressor().compress(content) if is_packed else content
    packer = zstandard.ZstdCompressor(dict_data=dictionary)
    frame = b"\x5d\x2a\x4d\x18" + len(written).to_bytes(4, "little") + written
    path = tmp_path / "crawl.warc.zst"
    path.write_bytes(frame + b"".join(map(packer.compress, records(9))))
    batches = batches_of(path)
    assert contents(batches) == ([f"http://x/{number}" for number in range(9)], [])
    assert contents(batches_of(path, batches[4].end))[0] == [f"http://x/{number}" for number in range(5, 9)]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.warc", b"filedesc://x.arc 0.0.0.0 20260102030405 text/plain 70\n1 0 x\n", "an ARC archive, not WARC"),
        ("a.warc.gz", PACK[".gz"](b"filedesc://x.arc 0.0.0.0 20260102030405 text/plain 70\n"), "an ARC archive"),
        ("a.warc", PACK[".gz"](b"WARC/1.0"), "compressed with gzip; give it a name that ends in .gz"),
        ("a.warc", PACK[".zst"](b"WARC/1.0"), "compressed with zstd; give it a name that ends in .zst"),
        ("a.warc", b"\x04\x22\x4d\x18" + bytes(40), "compressed with LZ4"),
    ],
)
def test_what_else_a_file_is_is_told_with_the_way_out(name: str, data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    ids, ((_, found),) = read(tmp_path / name)
    assert not ids
    assert f"not a WARC record: it is {reason}" in found


@pytest.mark.parametrize(("field", "expected"), [("url", "http://x/0"), ("record-id", "urn:uuid:http://x/0")])
def test_the_id_is_the_url_or_the_records_own(field: str, expected: str, tmp_path: Path) -> None:
    path = archive(tmp_path, records(1))
    assert read(path, id_field=field)[0] == [expected]
    with pytest.raises(ValueError, match=r"id_field must be id or url or record-id, got .page."):
        read(path, id_field="page")


def test_the_date_may_be_first_seen_and_a_field(tmp_path: Path) -> None:
    reading = InputOptions(first_seen_field="date")
    inputs = find_inputs([str(archive(tmp_path, records(1)))], reading)
    (batch, *_) = read_batches(inputs, reading, fields=("date",), workers=1)
    assert batch.documents.first_seen == [1_767_323_045_000]
    assert batch.documents.fields["date"] == ["2026-01-02T03:04:05Z"]


# Damage.


@pytest.mark.parametrize("packing", [".gz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_behind_a_damaged_member_all_others_are_read(packing: str, damage: str, tmp_path: Path) -> None:
    for victim in range(6):
        parts = [PACK[packing](part) for part in records(6)]
        whole, half = parts[victim], len(parts[victim]) // 2
        cut = whole[:-20] if damage == "cut" else whole[:half] + bytes([whole[half] ^ 255]) + whole[half + 1 :]
        path = tmp_path / f"crawl.warc{packing}"
        path.write_bytes(b"".join([*parts[:victim], cut, *parts[victim + 1 :]]))
        ids, rejects = read(path)
        assert ids == [f"http://x/{number}" for number in range(6) if number != victim]
        assert rejects
        assert rejects[0][0] == victim + 1
        assert "damaged or truncated near byte" in rejects[0][1]


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("excess", [-500, -4, -1, 1, 4, 700, 20_000, 2 * RECORD_LIMIT_BYTES])
def test_a_record_of_a_wrong_length_is_rejected_and_all_others_are_read(
    packing: str, excess: int, tmp_path: Path
) -> None:
    parts = records(6)
    parts[2] = response("http://x/2", page(2), excess=excess)
    ids, rejects = read(archive(tmp_path, parts, packing))
    assert ids == [f"http://x/{number}" for number in (0, 1, 3, 4, 5)]
    ((line, reason),) = rejects
    assert line == 3
    assert "Content-Length is wrong" in reason
    assert f"record at byte {len(parts[0]) + len(parts[1]):,}" in reason


@pytest.mark.parametrize("packing", PACK)
def test_no_cut_goes_unnoticed_wherever_it_is(packing: str, tmp_path: Path) -> None:
    parts = [PACK[packing](part) for part in records(2)]
    whole, path = b"".join(parts), tmp_path / f"crawl.warc{packing}"
    first = len(parts[0])
    for end in [*range(1, first - 4, 37), first - 5, first + 1, len(whole) - 5]:
        path.write_bytes(whole[:end])
        ids, rejects = read(path)
        assert ids == ["http://x/0", "http://x/1"][: len(ids)]
        assert len(ids) >= (end > first)
        assert len(rejects) == 1, f"cut after {end} of {len(whole)} bytes"


def test_what_is_no_archive_is_one_reject(tmp_path: Path) -> None:
    path = tmp_path / "crawl.warc"
    path.write_bytes(b"something else\n" * 100_000)
    assert read(path) == ([], [(1, "not a WARC record (record at byte 0)")])


def test_a_large_record_of_another_kind_is_passed_over(tmp_path: Path) -> None:
    film = response("http://x/film", bytes(RECORD_LIMIT_BYTES + 1), "video/mp4")
    large = response("http://x/large", b"a" * (RECORD_LIMIT_BYTES + 1), "text/plain")
    ids, rejects = read(archive(tmp_path, [film, large, *records(1)]))
    assert ids == ["http://x/0"]
    assert [(line, reason.partition(" (")[0]) for line, reason in rejects] == [(2, "longer than 16 MiB")]


@pytest.mark.parametrize("packing", PACK)
def test_any_place_is_one_to_go_on_from(packing: str, tmp_path: Path) -> None:
    parts = records(8)
    parts[2] = response("http://x/2", page(2), excess=40)
    packed = [PACK[packing](part) for part in parts]
    if packing:
        packed[5] = packed[5][:-9]
    path = tmp_path / f"crawl.warc{packing}"
    path.write_bytes(b"".join(packed))
    batches = batches_of(path)
    whole = contents(batches)
    assert len(whole[0]) == (6 if packing else 7)
    for number, batch in enumerate(batches, start=1):
        before, rest = contents(batches[:number]), contents(batches_of(path, batch.end))
        assert (before[0] + rest[0], before[1] + rest[1]) == whole


def test_all_records_may_be_one_member(tmp_path: Path) -> None:
    path = tmp_path / "crawl.warc.gz"
    path.write_bytes(gzip.compress(b"".join(records(30))))
    assert read(path)[0] == [f"http://x/{number}" for number in range(30)]


def test_a_second_look_finds_the_texts_again(tmp_path: Path) -> None:
    path = archive(tmp_path, records(9), ".gz")
    (one,) = find_inputs([str(path)], InputOptions())
    found = list(texts_at(one, InputOptions(), [2, 7]))
    assert found == [(n, f"http://x/{n - 1}", (TEXT.format(n - 1) * 6).strip()) for n in (2, 7)]


def test_a_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="is a stream, but format warc needs a file"):
        find_inputs(["-"], InputOptions("warc"))


_LONG = b"WARC/1.0\r\nContent-Length: 9999999999\r\n\r\nx\r\n\r\n"  # which is examined again from its beginning


@pytest.mark.parametrize("packing", [".gz", ".zst"])
@pytest.mark.parametrize("place", ["before", "between", "behind", "twice"])
@pytest.mark.parametrize("is_long", [False, True])
def test_damage_without_bytes_is_reported_once_and_any_place_is_one_to_go_on_from(
    is_long: bool, place: str, packing: str, tmp_path: Path
) -> None:
    first, second = (PACK[packing](part) for part in records(2))
    damage = b"\xff" + PACK[packing](_LONG if is_long else b"")
    path = tmp_path / f"crawl.warc{packing}"
    path.write_bytes(
        {
            "before": damage + first + second,
            "between": first + damage + second,
            "behind": first + second + damage[:9],
            "twice": damage + damage + first + second,
        }[place]
    )
    batches = batches_of(path)
    ids, rejects = contents(batches)
    assert ids == ["http://x/0", "http://x/1"]
    assert 0 < len(rejects) <= 4
    for number, batch in enumerate(batches, start=1):
        assert contents(batches_of(path, batch.end)) == contents(batches[number:])
