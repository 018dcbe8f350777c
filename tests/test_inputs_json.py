"""JSON in any framing: arrays, multi-line objects or lines; each value is returned once, wherever reads end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.json_values import framing_of, value_blocks
from hsimhash.inputs.lines import BLOCK_BYTES, RECORD_LIMIT_BYTES, Block, Place
from tests.support.effort import thorough, tries
from tests.test_inputs import batches_of, contents, read

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('ab"\\\n[]{},:二 ')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
records = st.lists(st.dictionaries(st.text(max_size=3), values, max_size=3), max_size=6)
indents = st.sampled_from([None, 0, 1])
heads = st.sampled_from([b"", b" \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf \r\n\t"])  # before an array


def blocks_of_values(data: bytes, size: int, start: Place | None = None) -> list[Block]:
    start = start or Place()
    pieces = [data[at : at + size] for at in range(start.offset, len(data), size)]
    source = iter([*pieces, b""])
    return list(value_blocks(lambda: next(source), framing_of(data), start, lambda: 0))


def some_of(blocks: list[Block]) -> list[Block]:
    """Return up to eight of the blocks, evenly spread, because resuming after each of hundreds takes minutes."""
    return blocks[:: 1 + len(blocks) // 8]


def values_in(blocks: list[Block]) -> list[object]:
    return [json.loads(line) for block in blocks for line in block.lines()]


@given(records, indents, st.integers(1, 40), heads)
def test_an_array_gives_its_values_however_it_is_read(
    given: list[object], indent: int | None, size: int, head: bytes
) -> None:
    data = head + json.dumps(given, indent=indent).encode()
    assert values_in(blocks_of_values(data, size)) == given


@given(records, indents, st.integers(1, 40), heads)
def test_any_place_in_an_array_is_one_to_go_on_from(
    given: list[object], indent: int | None, size: int, head: bytes
) -> None:
    data = head + json.dumps(given, indent=indent).encode()
    for block in some_of(blocks_of_values(data, size)):
        assert values_in(blocks_of_values(data, 7, block.end)) == given[block.end.line :]


@given(st.lists(st.dictionaries(st.text(max_size=3), values, min_size=1, max_size=3), min_size=1), st.integers(1, 40))
def test_objects_over_several_lines_are_read(given: list[object], size: int) -> None:
    data = "\n".join(json.dumps(one, indent=1) for one in given).encode()
    assert framing_of(data) == "objects"
    assert values_in(blocks_of_values(data, size)) == given


@pytest.mark.parametrize(
    ("data", "framing"),
    [
        (b"", "lines"),
        (b'{"a": 1}\n{"a": 2}\n', "lines"),
        (b'{"a": "x\n{"a": 2}\n', "lines"),  # the first record is damaged
        (b'{"a":\n', "lines"),
        (b"\xef\xbb\xbf \n[", "array"),
        (b'{\n"a": 1\n}', "objects"),
        (b'{"a":\n1}', "objects"),
        (b'{"a": 1}{"a": 2}', "objects"),
        (b'{"a": 1} \t{"a":\n2}', "objects"),
        (b'{"a": 1},\r\n{"a": 2}\n', "objects"),
        (b'{"a": 1} x {"a": 2}\n{"a": 3}', "lines"),
        (b'{"a": 1}}{"a": 2}\n{"a": 3}', "lines"),
        (b'{\n  "a": "the beginning of a long text', "objects"),
        (b'{ \r\n\r\n\t"a": {', "objects"),
        (b'{"a": {\n{"a": 2}\n', "lines"),
        (b'{"a": [\n[1], ', "lines"),
        (b'[INFO] started\n{"a": 1}\n{"a": 2}\n', "lines"),
        (b'[]\n\n{"a": 1}\n', "lines"),
        (b'[{"a": 1},\n{"a": 2}]', "array"),
        (b'[{"a":\n{}}]', "array"),
        (b"[\n{}]", "array"),
        (b"words", "lines"),
    ],
)
def test_the_first_bytes_tell_the_framing(data: bytes, framing: str) -> None:
    assert framing_of(data) == framing


@pytest.mark.parametrize("separator", [b"", b" ", b",", b" , \r\n"])
@given(given=st.lists(st.dictionaries(st.text(max_size=3), values), min_size=2), size=st.integers(1, 40))
def test_objects_joined_by_anything_are_read(separator: bytes, given: list[object], size: int) -> None:
    data = separator.join(json.dumps(one).encode() for one in given)
    assert values_in(blocks_of_values(data, size)) == given


@given(st.lists(st.dictionaries(st.text(max_size=3), values), min_size=2, max_size=6), st.data(), st.integers(1, 40))
def test_a_stray_bracket_behind_a_record_of_an_array_costs_none(
    given: list[object], data: st.DataObject, size: int
) -> None:
    values = [json.dumps(one).encode() for one in given]
    values[data.draw(st.integers(0, len(values) - 2))] += b"]"
    array = b"[\n" + b",\n".join(values) + b"\n]\n"
    blocks = blocks_of_values(array, size)
    assert not any(block.damage for block in blocks)
    for block in some_of(blocks):
        assert values_in(blocks_of_values(array, 7, block.end)) == given[block.end.line :]
    assert values_in(blocks) == given


@given(st.lists(st.text(st.sampled_from('ab,"二'), max_size=8), min_size=3, max_size=9), st.data())
def test_a_stray_quote_costs_the_record_of_its_line_alone(texts: list[str], data: st.DataObject) -> None:
    lines = [json.dumps({"id": n, "text": text}).encode() for n, text in enumerate(texts)]
    at = data.draw(st.integers(0, len(texts) - 1))
    place = data.draw(st.integers(1, len(lines[at]) - 1))
    damaged = lines[at][:place] + b'"' + lines[at][place:]
    array = b"[\n" + b",\n".join([*lines[:at], damaged, *lines[at + 1 :]]) + b"\n]\n"
    found = [line for block in blocks_of_values(array, 11) for line in block.lines()]
    assert set(lines) - {lines[at]} <= set(found)


@settings(max_examples=tries(100, 5))
@pytest.mark.parametrize("is_array", [True, False])
@given(
    given=st.lists(st.dictionaries(st.text(max_size=3), values, min_size=1), min_size=3, max_size=6),
    data=st.data(),
    size=st.integers(1, 40),
)
def test_a_missing_bracket_costs_the_record_of_its_line_alone(
    is_array: bool, given: list[object], data: st.DataObject, size: int
) -> None:
    indent, at = data.draw(st.sampled_from([None, 0, 2]), label="indent"), data.draw(st.integers(1, len(given) - 2))
    values = [json.dumps(one, indent=indent).encode() for one in given]
    values[at] = values[at].removesuffix(b"}")
    found = b"[\n" + b",\n".join(values) + b"\n]" if is_array else b"\n".join([b'{"a":\n1}', *values])
    blocks = blocks_of_values(found, size)
    lines = [line for block in blocks for line in block.lines()]
    whole = [b'{"a": 1}', *values][is_array:]
    assert len(lines) == len(whole)
    bad = at + (not is_array)
    for number in {*range(len(whole))} - {bad}:
        assert json.loads(lines[number]) == json.loads(whole[number])
    assert not any(block.damage for block in blocks)
    for block in some_of(blocks):
        rest = [line for one in blocks_of_values(found, 7, block.end) for line in one.lines()]
        assert rest == lines[block.end.line :]


def test_an_array_that_is_cut_off_is_told_and_what_came_before_is_kept(tmp_path: Path) -> None:
    data = json.dumps([{"id": n, "text": f"t {n}"} for n in range(9)]).encode()
    path = tmp_path / "in.json"
    for size in range(2, len(data)):
        path.write_bytes(data[:size])
        pairs, rejects = read(path)
        assert pairs == [(str(n), f"t {n}") for n in range(len(pairs))]
        assert rejects[-1][1] == "the JSON array is not closed; the file may be truncated"
        assert [reason.split(" at ")[0] for _, reason in rejects[:-1]] in ([], ["invalid JSON"])


def test_objects_over_several_lines_are_known_by_the_beginning_of_a_large_one(tmp_path: Path) -> None:
    given = [{"id": "a", "html": "x" * BLOCK_BYTES, "text": "b"}, {"id": "c", "text": "d"}]
    (tmp_path / "in.json").write_text("\n".join(json.dumps(one, indent=1) for one in given))
    assert read(tmp_path / "in.json") == ([("a", "b"), ("c", "d")], [])


def test_a_value_over_the_limit_is_a_reject_and_the_others_are_read(tmp_path: Path) -> None:
    long = {"id": "long", "text": "x" * RECORD_LIMIT_BYTES}
    (tmp_path / "in.json").write_text(json.dumps([{"id": "a", "text": "b"}, long, {"id": "c", "text": "d"}]))
    assert read(tmp_path / "in.json") == ([("a", "b"), ("c", "d")], [(2, "longer than 16 MiB")])


def test_hostile_nesting_is_one_reject(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_bytes(b"[" + b"[" * 3_000_000)
    assert [line for line, _ in read(tmp_path / "in.json")[1]] == [1, 2]


def test_a_batch_of_an_array_is_as_large_as_one_of_lines(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps([{"id": n, "text": "some words " * 9} for n in range(3_000)]))
    batches = batches_of(tmp_path / "in.json", block_bytes=1 << 14)
    assert max(len(batch.documents.doc_ids) for batch in batches) < 200
    assert len(contents(batches)[0]) == 3_000


@pytest.mark.parametrize("value", ["[],", "{},", '{"a":1},', "0.5,", '"ab",', "[[]],"])
def test_a_record_whose_values_would_fill_the_memory_is_a_reject(value: str, tmp_path: Path) -> None:
    hostile = f'{{"id": "a", "text": "b", "more": [{value * ((15 << 20) // len(value))}1]}}\n'
    (tmp_path / "in.jsonl").write_text(hostile + '{"id": "c", "text": "d"}\n')
    pairs, ((line, reason),) = read(tmp_path / "in.jsonl")
    assert (pairs, line) == ([("c", "d")], 1)
    assert "need more than 192 MiB of memory" in reason


def test_a_long_text_full_of_brackets_is_a_text(tmp_path: Path) -> None:
    text = '{["\\,' * 2_000_000
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "a", "text": text}) + "\n")
    assert read(tmp_path / "in.jsonl") == ([("a", text)], [])


@thorough
@given(st.lists(records, min_size=1, max_size=4), indents, st.integers(1, 40), st.sampled_from([b"", b"\n", b",\n"]))
def test_arrays_that_were_joined_are_read_from_any_place(
    given: list[list[object]], indent: int | None, size: int, between: bytes
) -> None:
    data = between.join(json.dumps(one, indent=indent).encode() for one in given)
    expected = [value for one in given for value in one]
    blocks = blocks_of_values(data, size)
    assert values_in(blocks) == expected
    for block in some_of(blocks):
        assert values_in(blocks_of_values(data, 7, block.end)) == expected[block.end.line :]


@pytest.mark.parametrize("block_bytes", [1, 5, 1_000])
@pytest.mark.parametrize(
    ("data", "lines", "reasons"),
    [
        (b'[{"text": "a"}] {"text": "b"}', ["1", "2"], ["the JSON array is not closed"]),
        (b'[{"text": "a"}] "text"', ["1"], ["unexpected data after the end of the JSON array"]),
        (b'[]] {"text": "b"}', [], ["unexpected data after the end of the JSON array"]),
        (b'[{"text": "a"}, {"text": "b"}', ["1", "2"], ["the JSON array is not closed"]),
        (b'[{"text": "a"}, ', ["1"], ["the JSON array is not closed"]),
        (b'[{"text": "a"}, {"te', ["1"], ["invalid JSON", "the JSON array is not closed"]),
        (b'[{"text": "a"}, {"te\\', ["1"], ["invalid JSON", "the JSON array is not closed"]),
        (b'{\n"text": "a"} {"te', ["1"], ["invalid JSON"]),
        (b'{\n"text": "a"} {"te\\', ["1"], ["invalid JSON"]),
        (b"[,]", [], ["invalid JSON"]),
        (b"[\f]", [], ["invalid JSON"]),
        (b'\x0b\n{"text": "a"}', ["2"], ["invalid JSON"]),
        (b'[ ,{"text": "a"},]', ["2"], ["invalid JSON"]),
    ],
)
def test_the_end_of_damaged_json_is_reported_once_however_it_is_read(
    data: bytes, lines: list[str], reasons: list[str], block_bytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(data)
    batches = batches_of(path, block_bytes=block_bytes)
    pairs, rejects = contents(batches)
    assert [doc_id.rpartition(":")[2] for doc_id, _ in pairs] == lines
    assert all(reason.startswith(start) for (_, reason), start in zip(rejects, reasons, strict=True))
    for number, batch in enumerate(batches):
        assert contents(batches_of(path, start=batch.end)) == contents(batches[number + 1 :])


def test_a_record_that_needs_too_much_memory_tells_nothing_about_the_fields_of_others(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    hostile = '{"id": "a", "text": "b", "more": [' + "{}," * 1_000_000 + "1]}\n"
    path.write_text(hostile + '{"id": "c", "body": "d"}\n' * 16)
    with pytest.raises(ValueError, match='no field "text"; the fields are id, body'):
        find_inputs([str(path)], InputOptions())
