"""The report page of a calibration: one self-contained file without scripts, with plots in SVG.

It uses the same style and components as the dedup report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hsimhash.calibrate.labels import UNRELATED
from hsimhash.calibrate.options import DISTANCES
from hsimhash.calibrate.results import Calibration, Spread
from hsimhash.dedup.report import page_environment
from hsimhash.layout import FINGERPRINT_BITS

_WIDTH, _HEIGHT = 300.0, 150.0  # size of a plot without its axes
_COLOURS = 8  # number of line colours; further lines repeat them, dashed
_DECADES = {0: "1", 2: "100", 4: "10k", 6: "1M", 8: "100M", 10: "10G"}  # marks on a logarithmic axis


class _Mark(NamedTuple):
    """A mark on an axis: its position and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a plot: its points in SVG syntax, and the number of its colour."""

    label: str
    points: str
    colour: int
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class _Plot:
    """The values of a plot, for the template."""

    title: str
    lines: Sequence[_Line]
    across: Sequence[_Mark]  # in bits
    up: Sequence[_Mark]
    chosen: float | None  # position of the recommended distance
    is_filled: bool = False


def calibration_page(found: Calibration, *, inputs: Sequence[str], date: str) -> str:
    """Return the page as HTML; the same calibration yields the same page.

    Args:
        found: Calibration to show.
        inputs: Names of the inputs, as the user passed them.
        date: Date to show on the page.
    """
    page = page_environment("calibrate").get_template("calibrate.html.jinja")
    return page.render(
        found=found,
        choice=found.choice,
        inputs=inputs,
        date=date,
        quality=_quality(found),
        spreads=[_spread_plot(one, found) for one in found.spreads],
        unrelated=UNRELATED,
    )


def _quality(found: Calibration) -> list[_Plot]:
    """Return plots of F1, precision and recall by distance, with a line for each profile and way."""

    def plot(title: str, name: str) -> _Plot:
        lines = [
            _line(
                f"{curve.profile}, {curve.way}", [getattr(score, name) for score in curve.scores], DISTANCES[-1], number
            )
            for number, curve in enumerate(found.curves)
        ]
        marks = [_Mark(_HEIGHT * (1 - share), f"{share:g}") for share in (0, 0.25, 0.5, 0.75, 1)]
        return _Plot(title, lines, _bits(DISTANCES[-1], 4), marks, _across(found.choice.score.distance, DISTANCES[-1]))

    return [plot("F1", "f1"), plot("Precision", "precision"), plot("Recall", "recall")]


def _spread_plot(spread: Spread, found: Calibration) -> _Plot:
    """Return a plot of the number of near and unrelated pairs at each distance, on a logarithmic scale."""
    decades = max(1, math.ceil(math.log10(max(spread.near.max(), spread.unrelated.max()) + 1)))
    lines = [
        _line(label, [math.log10(max(1.0, count)) / decades for count in counts.tolist()], FINGERPRINT_BITS, number)
        for number, (label, counts) in enumerate((("unrelated pairs", spread.unrelated), ("near pairs", spread.near)))
    ]
    marks = [_Mark(_HEIGHT * (1 - power / decades), name) for power, name in _DECADES.items() if power <= decades]
    is_chosen = spread.profile == found.choice.curve.profile
    chosen = _across(found.choice.score.distance, FINGERPRINT_BITS) if is_chosen else None
    return _Plot(spread.profile, lines, _bits(FINGERPRINT_BITS, 16), marks, chosen, is_filled=True)


def _line(label: str, heights: Iterable[float], bits: int, number: int) -> _Line:
    points = (f"{_across(at, bits):.1f},{_HEIGHT * (1 - height):.1f}" for at, height in enumerate(heights))
    return _Line(label, " ".join(points), number % _COLOURS, number >= _COLOURS)


def _across(bits: int, most: int) -> float:
    return _WIDTH * bits / most


def _bits(most: int, step: int) -> list[_Mark]:
    return [_Mark(_across(bits, most), str(bits)) for bits in range(0, most + 1, step)]
