"""Lines of decimal numbers: what is accepted, what is refused with its line, and how lists are written."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.errors import HsimhashError
from hsimhash.pairs.simhash_cpp_format import (
    LINE_LIMIT_BYTES,
    READ_BYTES,
    WRITE_MEMBERS,
    Numbers,
    list_lines,
    read_numbers,
)

FINGERPRINTS = st.integers(0, 2**64 - 1)
MAX = b"18446744073709551615"


class Trickle(io.RawIOBase):
    """A stream that returns at most `size` bytes per read."""

    def __init__(self, data: bytes, size: int) -> None:
        self._rest, self._size = data, size

    def read(self, size: int = -1) -> bytes:
        part, self._rest = self._rest[: self._size], self._rest[self._size :]
        return part


def read(data: bytes) -> Numbers:
    return read_numbers(io.BytesIO(data))


@given(st.lists(FINGERPRINTS), st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.integers(1, 50))
def test_numbers_are_read_as_they_stand(values: list[int], newline: bytes, is_ended: bool, size: int) -> None:
    data = newline.join(str(value).encode() for value in values) + newline * is_ended * bool(values)
    numbers = read_numbers(Trickle(data, size))
    assert numbers.values.tolist() == values
    assert numbers.values.dtype == np.uint64
    assert (numbers.blank_lines, numbers.first_blank) == (0, 0)


@pytest.mark.parametrize(
    ("line", "value"),
    [(b"  7", 7), (b"+7", 7), (b"\t +7 ", 7), (b"007", 7), (b"0" * 100 + b"7", 7), (MAX, 2**64 - 1), (b"\v\f7", 7)],
)
def test_blanks_zeros_and_plus_are_no_junk(line: bytes, value: int) -> None:
    assert read(b"5\n" + line + b"\n6").values.tolist() == [5, value, 6]


@pytest.mark.parametrize(
    "line",
    [
        *(b"1 foo", b"foo", b"-1", b"18446744073709551616", b"99" + MAX, b"0xff", b"1.0", b"+", b"++1", b"+ 1"),
        *(b"1 2", b"\0", b"1\0", b"\xff", "１".encode(), b"7\r8", b"9" * 4_000, b"1_0"),
    ],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b""])
def test_junk_is_an_error_that_names_the_line(line: bytes, newline: bytes) -> None:
    with pytest.raises(HsimhashError, match=r"^line 4: '.*' is not an unsigned decimal number below 2\*\*64; correct"):
        read(b"1\n\n3\n" + line + newline)


@pytest.mark.parametrize("line", [b" " * LINE_LIMIT_BYTES + b"1", b"1" + b" " * LINE_LIMIT_BYTES, b"9" * 5_000])
@pytest.mark.parametrize("before", [b"", b"7\n"])
def test_a_line_too_long_to_be_a_number_is_refused_as_such(line: bytes, before: bytes) -> None:
    with pytest.raises(
        HsimhashError, match=r"' is in a line of more than 4,096 bytes, which is longer than any number;"
    ):
        read(before + line)


def test_lines_are_counted_across_blocks() -> None:
    lines = READ_BYTES // 2 + 10
    with pytest.raises(HsimhashError, match=f"^line {lines + 1}: 'foo'"):
        read(b"1\n" * lines + b"foo\n")


def test_a_line_without_end_is_not_held_and_shown_cut_short() -> None:
    class Endless(io.RawIOBase):
        reads = 0

        def read(self, size: int = -1) -> bytes:
            self.reads += 1
            return b"1" * (LINE_LIMIT_BYTES // 2)

    stream = Endless()
    with pytest.raises(HsimhashError, match=r"^line 1: '1{80}'"):
        read_numbers(stream)
    assert stream.reads == 3


@given(
    st.lists(st.sampled_from(["", " ", "\t\r", "0", "7", str(2**64 - 1), "00"]) | FINGERPRINTS.map(str)),
    st.integers(1, 30),
)
def test_blank_lines_anywhere_are_skipped_and_counted(lines: list[str], size: int) -> None:
    numbers = read_numbers(Trickle("".join(f"{line}\n" for line in lines).encode(), size))
    blank = [number for number, line in enumerate(lines, start=1) if not line.strip()]
    assert numbers.values.tolist() == [int(line) for line in lines if line.strip()]
    assert (numbers.blank_lines, numbers.first_blank) == (len(blank), min(blank, default=0))


@given(st.lists(st.lists(FINGERPRINTS | st.integers(0, 10**5), min_size=1)))
def test_lists_are_written_as_json_arrays(lists: list[list[int]]) -> None:
    values = np.array([value for one in lists for value in one], np.uint64)
    starts = np.array([at == 0 for one in lists for at in range(len(one))], np.bool_)
    assert b"".join(list_lines(values, starts)).decode() == "".join(f"{one}\n" for one in lists)


def test_lists_go_on_from_block_to_block_and_every_length_of_number_is_right() -> None:
    powers = [10**digits + add for digits in range(20) for add in (-1, 0, 1)]
    values = np.array(powers * (3 * WRITE_MEMBERS // len(powers)), np.uint64)
    starts = np.arange(len(values)) % 7 == 0
    lists = [values[at : at + 7].tolist() for at in range(0, len(values), 7)]
    assert b"".join(list_lines(values, starts)).decode() == "".join(f"{one}\n" for one in lists)
