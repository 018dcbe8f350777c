"""A fingerprint as a number and its written forms: no word is read as a number other than the one written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint import distance, distances, format_fingerprint, parse_fingerprint
from hsimhash.fingerprint.bits import ALL_FORMATS, Formats, formats_named, narrow, read_fingerprint, sorted_distinct
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.reader import read_batches
from tests.support.effort import tries

FINGERPRINTS = st.integers(0, 2**64 - 1)
SIXTEEN_DIGITS = st.integers(10**15, 10**16 - 1)
SIXTEEN_LIKE_DIGITS = SIXTEEN_DIGITS.map(lambda number: int(str(number), 16))  # no letters in hexadecimal
TAKEN = "1291587514616409"  # 16 digits without a letter
LARGE_VALUES = int(os.environ.get("FORMAT_VALUES", "20000"))  # in each written form; a million in `make stress`


def signed(fp: int) -> int:
    return fp - 2**64 if fp >= 2**63 else fp


@given(FINGERPRINTS | SIXTEEN_DIGITS)
@example(0)
@example(2**63)
@example(2**64 - 1)
def test_each_format_reads_what_it_writes(fp: int) -> None:
    printed = format_fingerprint(fp)
    assert printed == f"{fp:016x}"
    written = (
        ("hex", printed),
        ("hex", printed.upper()),
        ("decimal", str(fp)),
        ("signed", str(signed(fp))),
        ("binary", f"{fp:064b}"),
    )
    for name, word in written:
        assert parse_fingerprint(word, format=name) == parse_fingerprint(f" {word}\n", format=name) == fp
    assert parse_fingerprint(f"0x{fp:x}") == fp


@given(FINGERPRINTS | SIXTEEN_DIGITS)
def test_a_word_alone_is_read_right_or_refused_as_ambiguous(fp: int) -> None:
    for word in (f"{fp:016x}", f"{fp:016X}", str(fp), str(signed(fp)), f"{fp:064b}"):
        if len(word) == 16 and word.isdecimal() and word[0] != "0":
            with pytest.raises(ValueError, match=f"ambiguous fingerprint '{word}'.*0x.*format="):
                parse_fingerprint(word)
        else:
            assert parse_fingerprint(word) == fp


@pytest.mark.parametrize("text", ["", "0x", str(2**64), "0x1" + "0" * 16, "abc", "12 34", "1" * 15 + "g", "１２３"])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not a fingerprint: ") as raised:
        parse_fingerprint(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("12", "hex"),
        ("abc", "hex"),
        ("-1", "hex"),
        ("0x1f", "decimal"),
        ("00000000000000ff", "decimal"),
        ("0000000000000012", "decimal"),
        ("-1", "decimal"),
        (str(2**63), "signed"),
        (str(-(2**63) - 1), "signed"),
        ("0123456789abcdef", "signed"),
    ],
)
def test_what_contradicts_the_format_is_refused_with_the_remedy(text: str, name: str) -> None:
    message = f"not a fingerprint: '{text}'; expected .*; or choose another format with format="
    with pytest.raises(ValueError, match=message):
        parse_fingerprint(text, format=name)


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"unknown fingerprint format 'octal'; use one of auto, hex, decimal, signed, binary"
    ):
        parse_fingerprint("7", format="octal")


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ([TAKEN], ("hex", "decimal", "signed")),
        ([TAKEN, "12345678901234567"], ("decimal", "signed")),
        ([TAKEN, "0123456789abcdef", "12345678901234567"], ("hex",)),
        ([TAKEN, "0x12"], ("hex",)),
        (["0123456789012345"], ("hex",)),
        (["12", "-3"], ("signed",)),
        (["12", str(2**63)], ("decimal",)),
        (["nonsense", "", "-", "1" * 21], ALL_FORMATS),
        (["12", "0123456789abcdef", "-3"], ("signed",)),
        ([5, 6], ALL_FORMATS),
        ([5, 2**63], ("hex", "decimal", "binary")),
        ([-5], ("signed",)),
        ([2**64], ALL_FORMATS),
    ],
)
def test_words_rule_formats_out(written: list[str | int], left: Formats) -> None:
    assert narrow(ALL_FORMATS, written) == left


@given(st.integers(-(2**63), 2**64 - 1))
def test_a_number_is_a_number_in_every_format_that_has_it(number: int) -> None:
    for name in ALL_FORMATS:
        least, limit = (-(2**63), 2**63) if name == "signed" else (0, 2**64)
        if least <= number < limit:
            assert read_fingerprint(number, formats_named(name)) == number % 2**64
        else:
            with pytest.raises(ValueError, match="not a fingerprint"):
                read_fingerprint(number, formats_named(name))


# Files and streams of fingerprints.

WORDS: dict[str, Callable[[int], str]] = {
    "hex": "{:016x}".format,
    "capitals": "{:016X}".format,
    "0x": hex,
    "decimal": str,
    "signed": lambda fp: str(signed(fp)),
}
LINES: dict[str, Callable[[int, str], str]] = {
    "tsv": lambda number, word: f"{number}\t{word}\n",
    "strings": lambda number, word: f'{{"id": {number}, "fingerprint": "{word}"}}\n',
    "numbers": lambda number, word: f'{{"id": {number}, "fingerprint": {word}}}\n',
}
ways = pytest.mark.parametrize(
    ("form", "way"), [one for one in product(LINES, WORDS) if one[0] != "numbers" or one[1] in ("decimal", "signed")]
)


def refused(name: str, form: str, way: str, values: Sequence[int], block_bytes: int) -> int:
    """Read values from a file or a stream; return how many were refused. The others must be right."""
    options = InputOptions("fingerprints" if form == "tsv" else "jsonl", fingerprint_field="fingerprint")
    data = "".join(LINES[form](number, WORDS[way](value)) for number, value in enumerate(values)).encode()
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as stream:
        if name:
            Path(name).write_bytes(data)
        else:
            stream.write(data)
        stream.close()
        try:
            inputs = find_inputs([name or f"/dev/fd/{reading}"], options)
        except ValueError:
            return len(values)
        batches = read_batches(inputs, options, block_bytes=block_bytes)
        documents = [batch.documents for batch in batches]
    found = [pair for one in documents for pair in zip(one.doc_ids, one.signatures.fingerprints.tolist(), strict=True)]
    assert [(doc_id, value) for doc_id, value in found if values[int(doc_id)] != value] == []
    rejects = sum(len(one.rejects) for one in documents)
    assert len(found) + rejects == len(values)
    return rejects


@ways
@given(st.lists(FINGERPRINTS | SIXTEEN_DIGITS | SIXTEEN_LIKE_DIGITS, min_size=1, max_size=20), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=tries(50, 15))
def test_no_value_in_a_file_or_stream_is_read_as_another(
    form: str, way: str, tmp_path: Path, values: list[int], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["", str(tmp_path / f"in.{'tsv' if form == 'tsv' else 'jsonl'}")]))
    refused(name, form, way, values, data.draw(st.sampled_from([10, 60, 1_000, 256 << 10])))  # cuts a stream anywhere


@ways
def test_of_a_large_file_no_value_is_refused(form: str, way: str, tmp_path: Path) -> None:
    values = np.random.default_rng(12).integers(0, 2**64, LARGE_VALUES, np.uint64).tolist()
    assert refused(str(tmp_path / f"in.{'tsv' if form == 'tsv' else 'jsonl'}"), form, way, values, 256 << 10) == 0


# As a number.


@given(FINGERPRINTS, st.lists(FINGERPRINTS, max_size=20))
def test_distances_count_the_bits_that_differ(query: int, others: list[int]) -> None:
    expected = [bin(query ^ other).count("1") for other in others]
    assert distances(query, np.array(others, np.uint64)).tolist() == expected
    assert [distance(query, other) for other in others] == expected


def test_numpys_whole_numbers_are_taken() -> None:
    assert format_fingerprint(np.uint64(255)) == format_fingerprint(np.int16(255)) == f"{255:016x}"


@pytest.mark.parametrize(
    ("fp", "error", "reason"),
    [
        *((fp, TypeError, f"an int, got {type(fp).__name__}") for fp in (0.9, "255", None, True, np.float64(3))),
        *((fp, ValueError, "must be 0 to") for fp in (-1, 2**64)),
    ],
)
def test_what_is_no_fingerprint_is_refused(fp: object, error: type[Exception], reason: str) -> None:
    for call in (format_fingerprint, partial(distance, 0), lambda fp: distances(fp, np.zeros(1, np.uint64))):
        with pytest.raises(error, match=reason):
            call(fp)


@pytest.mark.parametrize("values", [[], [3], [[3], [1], [3]], [5, 1, 5, 2, 1]])
def test_distinct_values_are_those_of_numpy(values: list[object]) -> None:
    given = np.array(values, np.int64)
    assert sorted_distinct(given).tolist() == np.unique(given).tolist()
