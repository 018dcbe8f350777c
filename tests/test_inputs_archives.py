"""Web archives: every page and text of them comes out, what is damaged is named, and any place is one to go on from."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES
from hsimhash.inputs.reader import Batch, Position, read_batches, texts_at
from tests.support.archives import PACK, conversion, record, response

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


@pytest.mark.parametrize("packing", PACK)
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


def test_an_unknown_charset_and_a_bad_body_are_rejected_with_their_places(tmp_path: Path) -> None:
    good, odd = response("http://x/0", page(0)), response("http://x/1", page(1), "text/html; charset=klingon")
    long = response("http://x/2", b"x" * (RECORD_LIMIT_BYTES - 400), "text/plain")
    ids, rejects = read(archive(tmp_path, [good, odd, good.replace(b"x/0", b"x/3"), long]))
    assert ids[:2] == ["http://x/0", "http://x/3"]
    assert rejects == [(2, f"unknown charset 'klingon' (record at byte {len(good):,})")]


def test_a_packed_body_is_unpacked(tmp_path: Path) -> None:
    body = gzip.compress(page(0))
    part = response("http://x/0", body, "text/html\r\nContent-Encoding: gzip")
    batches = batches_of(archive(tmp_path, [part]))
    assert batches[0].documents.texts == [(TEXT.format(0) * 6).strip()]


@pytest.mark.parametrize(("field", "expected"), [("url", "http://x/0"), ("record-id", "urn:uuid:http://x/0")])
def test_the_id_is_the_url_or_the_records_own(field: str, expected: str, tmp_path: Path) -> None:
    path = archive(tmp_path, records(1))
    assert read(path, id_field=field)[0] == [expected]
    with pytest.raises(ValueError, match=r"--id-field must be id or url or record-id, got .page."):
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
        assert "damaged or cut off about byte" in rejects[0][1]


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
    assert read(path) == ([], [(1, "no WARC record (record at byte 0)")])


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
    with pytest.raises(ValueError, match="is a stream, and --format warc needs a file"):
        find_inputs(["-"], InputOptions("warc"))


_LONG = b"WARC/1.0\r\nContent-Length: 9999999999\r\n\r\nx\r\n\r\n"  # which is looked at again from its beginning


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
