"""Layouts: cut 64 bits into blocks, and make a drawer for each choice of blocks.

Cut the 64 bits into `b` blocks. Two fingerprints that differ in at most `b - c` bits agree in at least `c` blocks
(pigeonhole principle). So keep a copy of every fingerprint for each choice of `c` blocks (a *drawer*), filed under the
bits of those blocks (its *segment*). A query that reads one bucket in every drawer misses nothing within `b - c` bits.

A nested layout cuts the bits outside the chosen blocks again, and also chooses among those blocks. Its segments are
longer for the same number of drawers. It is complete for the smaller of the two distances.

Source: Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling", WWW 2007, section 3.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FINGERPRINT_BITS = 64
SEGMENT_BITS = 32  # bits of a segment that the rowkey keeps
_FLAG_BITS = 8
_WIDE = SEGMENT_BITS + _FLAG_BITS  # bits of a prefix
MAX_DRAWERS = 253  # flags 1 to 253; 0, 254 and 255 mark other rows

_TEXT_FORM = re.compile(r"(\d+(?:,\d+)*)/(\d+)")


@dataclass(frozen=True, slots=True)
class _BitRun:
    """A run of `width` adjacent bits, at `source` in one word and `target` in another, counted from the lowest bit."""

    source: int
    target: int
    width: int

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1


def _runs(positions: Sequence[int], target_bits: int) -> tuple[_BitRun, ...]:
    """Return the moves that bring the bits at `positions` (0 is the highest) to the top of a word of `target_bits`."""
    runs: list[_BitRun] = []
    start = 0
    for end in range(1, len(positions) + 1):
        if end == len(positions) or positions[end] != positions[end - 1] + 1:
            runs.append(_BitRun(FINGERPRINT_BITS - 1 - positions[end - 1], target_bits - end, end - start))
            start = end
    return tuple(runs)


@dataclass(frozen=True)
class Drawer:
    """A copy of all fingerprints, filed by one choice of blocks.

    Args:
        number: Number from 1 to 253, the flag of its rowkeys.
        positions: Positions of its segment's bits, in order, at most 32; 0 is the fingerprint's highest bit.
    """

    number: int
    positions: tuple[int, ...]

    @cached_property
    def _to_segment(self) -> tuple[_BitRun, ...]:
        return _runs(self.positions, SEGMENT_BITS)

    @cached_property
    def _to_permuted(self) -> tuple[_BitRun, ...]:
        rest = [position for position in range(FINGERPRINT_BITS) if position not in self.positions]
        return _runs([*self.positions, *rest], FINGERPRINT_BITS)

    @cached_property
    def _from_permuted(self) -> tuple[_BitRun, ...]:
        return tuple(_BitRun(run.target, run.source, run.width) for run in self._to_permuted)

    @property
    def moves(self) -> list[tuple[int, int, int]]:
        """The moves from fingerprint to segment, as (shift right, mask, shift left). Combine their results with `|`."""
        return [(run.source, run.mask, run.target) for run in self._to_segment]

    @property
    def segment_bits(self) -> int:
        """The number of bits in the segment, 1 to 32. The remaining bits of its 4 bytes are zero."""
        return len(self.positions)

    def segment(self, fingerprint: int) -> int:
        """Return the segment of one fingerprint: left-justified in 32 bits, unsigned."""
        segment = 0
        for run in self._to_segment:
            segment |= (fingerprint >> run.source & run.mask) << run.target
        return segment

    def segments(self, fingerprints: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Return the segments of fingerprints of any shape, in the same shape."""
        return _move(fingerprints, self._to_segment).astype(np.uint32)

    def permute(self, fingerprints: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the fingerprints with the segment's bits moved to the top. The other bits follow in order.

        Sorted permuted values are in order of (segment, fingerprint): within a bucket, the segment's bits are the same.
        """
        return _move(fingerprints, self._to_permuted)

    def permute_one(self, fingerprint: int) -> int:
        """Permute one fingerprint as `permute` does, in a fifth of the time that numpy takes."""
        permuted = 0
        for run in self._to_permuted:
            permuted |= (fingerprint >> run.source & run.mask) << run.target
        return permuted

    def restore(self, permuted: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Undo `permute`."""
        return _move(permuted, self._from_permuted)

    def restore_one(self, permuted: int) -> int:
        """Undo `permute_one`."""
        fingerprint = 0
        for run in self._from_permuted:
            fingerprint |= (permuted >> run.source & run.mask) << run.target
        return fingerprint


def _move(words: NDArray[np.uint64], runs: tuple[_BitRun, ...]) -> NDArray[np.uint64]:
    moved = np.zeros_like(words, dtype=np.uint64)
    for run in runs:
        moved |= (words >> np.uint64(run.source) & np.uint64(run.mask)) << np.uint64(run.target)
    return moved


@dataclass(frozen=True, slots=True)
class Cut:
    """The widths of adjacent blocks, starting at the highest bit, and the number of blocks that a drawer chooses."""

    blocks: tuple[int, ...]
    choose: int

    @property
    def max_distance(self) -> int:
        """The greatest number of flipped bits that always leaves `choose` blocks unchanged."""
        return len(self.blocks) - self.choose

    @property
    def choices(self) -> int:
        """The number of ways to choose."""
        return math.comb(len(self.blocks), self.choose)

    def chosen(self, bits: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the bits of each choice of blocks, with the choices in lexicographic order."""
        ends = list(itertools.accumulate(self.blocks))
        blocks = [tuple(bits[end - width : end]) for width, end in zip(self.blocks, ends, strict=True)]
        return [sum(choice, ()) for choice in itertools.combinations(blocks, self.choose)]

    def check(self, bits: int) -> None:
        """Raise `ValueError` unless the cut fits a word of `bits` bits."""
        if min(self.blocks, default=0) < 1 or sum(self.blocks) != bits:
            raise ValueError(f"blocks {self} must have at least 1 bit each and sum to {bits}, got {sum(self.blocks)}")
        if self.choose < 1:
            raise ValueError(f"layout {self} must choose at least 1 block")
        if self.max_distance < 0:
            raise ValueError(
                f"layout {self} cannot choose {self.choose} of {len(self.blocks)} blocks: its distance would be "
                f"k = {self.max_distance}; choose fewer blocks"
            )

    def __str__(self) -> str:
        return f"{','.join(map(str, self.blocks))}/{self.choose}"


@dataclass(frozen=True)
class Layout:
    """Blocks and choices that define the drawers; see the module docstring.

    Args:
        outer: Cut of the 64 bits.
        inner: For a nested layout, the cut of the bits outside the chosen blocks, which keep their order.

    Raises:
        ValueError: The layout cannot be stored or finds nothing; the message gives the reason.
    """

    outer: Cut
    inner: Cut | None = None

    def __post_init__(self) -> None:
        self.outer.check(FINGERPRINT_BITS)
        drawers = self.outer.choices * (self.inner.choices if self.inner else 1)
        if drawers > MAX_DRAWERS:
            raise ValueError(
                f"layout {self.text_form} has {drawers} drawers, but rowkeys support at most {MAX_DRAWERS}; "
                f"use fewer blocks"
            )
        _ = self.drawers  # raises if the inner cut does not fit the bits that the outer cut leaves

    @cached_property
    def max_distance(self) -> int:
        """The greatest distance k, in bits, at which no match is missed."""
        return min(cut.max_distance for cut in (self.outer, self.inner) if cut)

    @cached_property
    def drawers(self) -> tuple[Drawer, ...]:
        """The drawers, in order of their numbers."""
        bits = range(FINGERPRINT_BITS)
        choices = self.outer.chosen(bits)
        if self.inner is not None:
            rests = [[bit for bit in bits if bit not in first] for first in choices]
            for rest in rests:
                self.inner.check(len(rest))
            choices = [
                first + second for first, rest in zip(choices, rests, strict=True) for second in self.inner.chosen(rest)
            ]
        return tuple(Drawer(number, choice[:SEGMENT_BITS]) for number, choice in enumerate(choices, start=1))

    @cached_property
    def _steps(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Each drawer's number and (shift right, mask) pairs; single queries spend most of their time on these.

        The shifts apply to a fingerprint that was first shifted left far enough to make all of them right shifts.
        """
        return [
            (
                drawer.number,
                [
                    (SEGMENT_BITS + run.source - run.target, run.mask << run.target + _FLAG_BITS)
                    for run in drawer._to_segment
                ],
            )
            for drawer in self.drawers
        ]

    @classmethod
    def named(cls, name: str) -> Layout:
        """Return the named layout: `4`, `10`, `16`, `20` or `28`."""
        if name not in _NAMED:
            raise ValueError(
                f"unknown layout {name!r}: expected {', '.join(_NAMED)}, or blocks/choice such as 13,13,13,13,12/2"
            )
        return cls(*_NAMED[name])

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Parse the name or text form of a layout: `10`, `13,13,13,13,12/2`, `16,16,16,16/1+12,12,12,12/1`."""
        if "/" not in text:
            return cls.named(text)
        cuts = []
        for part in text.split("+"):
            match = _TEXT_FORM.fullmatch(part.strip())
            if match is None:
                raise ValueError(f"layout {text!r}: expected blocks/choice such as 13,13,13,13,12/2, got {part!r}")
            cuts.append(Cut(tuple(map(int, match[1].split(","))), int(match[2])))
        if len(cuts) > 2:
            raise ValueError(f"layout {text!r}: expected one or two cuts, got {len(cuts)}")
        return cls(*cuts)

    @classmethod
    def even(cls, blocks: int, choose: int) -> Layout:
        """Return the layout with `blocks` blocks whose widths differ by at most one bit, the wider blocks first."""
        if not 1 <= blocks <= FINGERPRINT_BITS:
            raise ValueError(f"a layout must have 1 to {FINGERPRINT_BITS} blocks, got {blocks}")
        width, wider = divmod(FINGERPRINT_BITS, blocks)
        return cls(Cut((width + 1,) * wider + (width,) * (blocks - wider), choose))

    @property
    def name(self) -> str:
        """The layout's name, or its text form if it does not have one."""
        return next((name for name, layout in _NAMED.items() if layout == (self.outer, self.inner)), self.text_form)

    @property
    def text_form(self) -> str:
        """The layout as text for `parse`: its cuts as blocks/choice."""
        return f"{self.outer}+{self.inner}" if self.inner else str(self.outer)

    def candidates(self, documents: int) -> float:
        """Return how many rows a query reads on average in an index of `documents` uniform fingerprints."""
        return sum(documents / 2.0**drawer.segment_bits for drawer in self.drawers)

    def prefixes(self, fingerprint: int) -> list[bytes]:
        """Return the 5-byte prefixes (segment, flag) of a fingerprint's buckets, one per drawer, in order."""
        wide, prefixes = fingerprint << _WIDE, []
        for prefix, runs in self._steps:
            for shift, mask in runs:
                prefix |= wide >> shift & mask
            prefixes.append(prefix.to_bytes(5, "big"))
        return prefixes

    def segments(self, fingerprints: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Return the segments of fingerprints of shape (n,): shape (n, drawers), uint32."""
        return np.stack([drawer.segments(fingerprints) for drawer in self.drawers], axis=-1)

    def prefix_array(self, fingerprints: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Return the prefixes of fingerprints of shape (n,): shape (n, drawers, 5), uint8."""
        prefixes = np.empty((len(fingerprints), len(self.drawers), 5), np.uint8)
        prefixes[:, :, :4] = self.segments(fingerprints).astype(">u4").view(np.uint8).reshape(-1, len(self.drawers), 4)
        prefixes[:, :, 4] = np.arange(1, len(self.drawers) + 1, dtype=np.uint8)
        return prefixes

    def to_json(self) -> dict[str, object]:
        """Return the layout as JSON values: name, blocks, choose, and inner if it is nested."""
        fields: dict[str, object] = {"name": self.name, "blocks": list(self.outer.blocks), "choose": self.outer.choose}
        if self.inner:
            fields["inner"] = {"blocks": list(self.inner.blocks), "choose": self.inner.choose}
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Layout:
        """Return the layout that `to_json` wrote; raise `ValueError` for missing, unknown or contradictory fields."""
        unknown = set(fields) - {"name", "blocks", "choose", "inner"}
        if unknown:
            raise ValueError(f"layout has unknown fields {sorted(unknown)}")
        inner = fields.get("inner")
        layout = cls(_cut_from_json(fields), _cut_from_json(inner) if inner is not None else None)
        if fields.get("name", layout.name) != layout.name:
            raise ValueError(f"layout is named {fields['name']!r}, but has the blocks of {layout.name!r}")
        return layout


def _cut_from_json(fields: object) -> Cut:
    if isinstance(fields, Mapping):
        blocks, choose = fields.get("blocks"), fields.get("choose")
        if isinstance(blocks, list) and all(type(block) is int for block in blocks) and type(choose) is int:
            return Cut(tuple(blocks), choose)
    raise ValueError(f'layout must have "blocks", a list of integers, and "choose", an integer; got {fields!r}')


_NAMED: dict[str, tuple[Cut, Cut | None]] = {  # on disk: never reuse a name
    "4": (Cut((16, 16, 16, 16), 1), None),
    "10": (Cut((13, 13, 13, 13, 12), 2), None),
    "16": (Cut((16, 16, 16, 16), 1), Cut((12, 12, 12, 12), 1)),
    "20": (Cut((11, 11, 11, 11, 10, 10), 3), None),
    "28": (Cut((8,) * 8, 2), None),
}
LAYOUT_NAMES = tuple(_NAMED)
