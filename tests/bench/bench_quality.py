"""The quality and cost of finding near-duplicates: `python -m tests.bench.bench_quality [--data DIR]`.

Every method gets the same texts, 23 sets in three families, and returns pairs. A pair is right if both texts have the
same label; all pairs with the same label are to be found. Our own methods are `hsimhash dedup`; text-dedup and
datatrove run with their defaults; MinHash is datasketch's, with the shingles of exact Jaccard. A method with a range of
cutoffs gets the one with the best mean F1 for the family, which cannot be known without labels.

`--score precision` or `recall` prints these instead of F1; `--csv` writes all three. `--plot` draws the means.
"""

from __future__ import annotations

import csv
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from tests.bench.quality_methods import METHODS, PEERS, Method
from tests.support.labelled_pairs import LabelledSet, Score, scores
from tests.support.programs import data_file, options, print_bar, print_conditions, scratch_folder

FAMILIES = {
    "0": ("debian-install-guide", "lctt-zh-revisions", "licence-texts", "zh-laws", "zh-script-variants"),
    "2": (),  # all sets of the folder family2
    "3": (),
}
COUNTS, SHARES = ("found", "right", "wanted"), ("precision", "recall", "f1")
SHADES = ("#1b4965", "#5fa8d3", "#bee9e8"), ("#7f4f24", "#dda15e", "#f1dca7")  # of our bars and the others; by family


@dataclass(frozen=True, slots=True)
class Row:
    """The results of all methods on a set: for each, its scores by cutoff and its CPU time."""

    name: str
    texts: int
    wanted: int
    scores: Mapping[str, Mapping[float, Score]]
    cpu_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """A method's result in a family: the chosen cutoff, and each set's score with it."""

    cutoff: float
    scores: Sequence[Score]

    def mean(self, score: str) -> float:
        """Return the mean of "f1", "precision" or "recall" over the sets."""
        return mean(getattr(one, score) for one in self.scores)


def folders(data: Path, family: str) -> list[Path]:
    """Return the folders of a family's sets."""
    if FAMILIES[family]:
        return [data / name for name in FAMILIES[family]]
    return sorted(path.parent for path in (data / f"family{family}").glob("*/docs.jsonl.gz"))


def measure(folder: Path, methods: Sequence[Method], scratch: Path) -> Row:
    """Let each method find the pairs of a set."""
    given = LabelledSet.read(folder)
    found = {}
    with scratch_folder(scratch) as work:
        for method in methods:
            pairs = method.find(given, work)
            found[method.name] = scores(pairs, given.labels, method.cutoffs), pairs.cpu_s
    wanted = next(iter(found[methods[0].name][0].values())).wanted
    print(f"measured {given.name}", file=sys.stderr, flush=True)
    return Row(
        given.name,
        len(given.texts),
        wanted,
        {name: one for name, (one, _) in found.items()},
        {name: cpu_s for name, (_, cpu_s) in found.items()},
    )


def best(method: str, rows: Sequence[Row]) -> Result:
    """Choose the cutoff with the best mean F1 over the sets of a family; of equally good ones, the strictest."""
    results = [Result(one, [row.scores[method][one] for row in rows]) for one in rows[0].scores[method]]
    return max(results, key=lambda result: (result.mean("f1"), result.cutoff))


def cost(method: str, rows: Sequence[Row]) -> float:
    """Return the CPU seconds per 1,000 texts."""
    return 1_000 * sum(row.cpu_s[method] for row in rows) / sum(row.texts for row in rows)


def table(families: Mapping[str, Sequence[Row]], names: Sequence[str], score: str) -> str:
    """Return a line for each set, then the families' means, the costs, and the chosen cutoffs."""
    heads = [textwrap.wrap(name, 9) for name in names]
    widths = [max(5, *map(len, head)) + 1 for head in heads]

    def line(name: str, counts: Sequence[int], cells: Sequence[str]) -> str:
        first = f"{name:23}" + "".join(f"{one:{width},}" for one, width in zip(counts, (6, 8), strict=False))
        return f"{first:37}" + "".join(f"{one:>{width}}" for one, width in zip(cells, widths, strict=True))

    lines = [line("", (), [head[at] if at < len(head) else "" for head in heads]) for at in range(max(map(len, heads)))]
    lines[-1] = f"{'set':24}{'texts':>5}{'pairs':>8}{lines[-1][37:]}"
    chosen = {family: {name: best(name, rows) for name in names} for family, rows in families.items()}
    for family, rows in families.items():
        for at, row in enumerate(rows):
            cells = [short(getattr(chosen[family][name].scores[at], score)) for name in names]
            lines.append(line(row.name, (row.texts, row.wanted), cells))
    for family, rows in families.items():
        counts = sum(row.texts for row in rows), sum(row.wanted for row in rows)
        lines.append(
            line(f"mean of family {family}", counts, [short(chosen[family][name].mean(score)) for name in names])
        )
    every = [row for rows in families.values() for row in rows]
    lines.append(line("CPU s for 1,000 texts", (), [f"{cost(name, every):.1f}" for name in names]))
    ranged = [name for name in names if len(every[0].scores[name]) > 1]
    for name in ranged:
        cutoffs = ", ".join(f"{abs(chosen[family][name].cutoff):g} in family {family}" for family in families)
        lines.append(f"{name}: at {cutoffs}")
    return "\n".join(lines)


def short(share: float) -> str:
    """Format a share between 0 and 1 with three digits."""
    return f"{share:.3f}".removeprefix("0")


def write_csv(path: Path, families: Mapping[str, Sequence[Row]], names: Sequence[str]) -> None:
    """Write a line for each set and method."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["family", "set", "texts", "method", "cutoff", *COUNTS, *SHARES, "cpu_s"])
        for family, rows in families.items():
            for name in names:
                chosen = best(name, rows)
                for row, one in zip(rows, chosen.scores, strict=True):
                    counts = (getattr(one, count) for count in COUNTS)
                    shares = (f"{getattr(one, share):.4f}" for share in SHARES)
                    took = f"{row.cpu_s[name]:.2f}"
                    lines.writerow([family, row.name, row.texts, name, chosen.cutoff, *counts, *shares, took])


def plot(families: Mapping[str, Sequence[Row]], methods: Sequence[Method]) -> str:
    """Return an SVG image: mean F1 by method and family, next to the CPU time."""
    every = [row for rows in families.values() for row in rows]
    costs = [cost(method.name, every) for method in methods]
    bar, left, wide, right = 9, 190, 360, 640
    high = len(families) * bar + 9
    bottom = 40 + len(methods) * high
    marks = []
    for at in range(0, 11, 2):
        x = left + wide * at / 10
        marks.append(
            f'<path d="M{x:.0f} 34V{bottom}" stroke="#ddd"/><text x="{x:.0f}" y="{bottom + 14}">{at / 10:g}</text>'
        )
    for at, (method, one) in enumerate(zip(methods, costs, strict=True)):
        top, shades = 40 + at * high, SHADES[not method.is_own]
        middle = top + len(families) * bar / 2 + 4
        marks.append(f'<text x="{left - 8}" y="{middle:.0f}" class="name">{method.name}</text>')
        for number, (rows, shade) in enumerate(zip(families.values(), shades, strict=False)):
            f1, y = best(method.name, rows).mean("f1"), top + number * bar
            marks.append(f'<rect x="{left}" y="{y}" width="{wide * f1:.1f}" height="{bar - 1}" fill="{shade}"/>')
            marks.append(f'<text x="{left + wide * f1 + 14:.0f}" y="{y + 8}" class="value">{short(f1)}</text>')
        width = 150 * one / max(costs)
        marks.append(f'<rect x="{right}" y="{top + bar}" width="{width:.1f}" height="{bar}" fill="{shades[0]}"/>')
        marks.append(f'<text x="{right + width + 14:.0f}" y="{middle:.0f}">{one:.1f}</text>')
    shown = ", ".join(families)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 830 {bottom + 24}" font-family="sans-serif" '
        'font-size="11" text-anchor="middle"><style>.name{text-anchor:end}.value{font-size:8px}'
        '.title{text-anchor:start;font-weight:bold}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{left}" y="22" class="title">Mean F1; from the top: families {shown}</text>'
        f'<text x="{right}" y="22" class="title">CPU seconds for 1,000 texts</text>' + "\n".join(marks) + "</svg>\n"
    )


def main() -> None:
    """Measure, and print the table and the bars."""
    given = options(
        __doc__,
        has_data=True,
        score=("f1", "what the table shows: f1, precision or recall"),
        csv=("", "a file for all numbers"),
        plot=("", "a file for an SVG image"),
    )
    needed = [f"{name}/docs.jsonl.gz" for name in FAMILIES["0"]] + ["family2/SOURCE.md", "family3/SOURCE.md"]
    if None in [data_file(given.data, name) for name in needed]:
        return
    methods = [one for one in METHODS if one.name not in ("text-dedup", "datatrove") or PEERS.exists()]
    if len(methods) < len(METHODS):
        print("SKIP  text-dedup, datatrove: 'make .venv/.datatrove' installs them")
    packages = ("simhash", "datasketch")
    print_conditions("Near-duplicates found", packages=packages, methods=len(methods), families=len(FAMILIES))
    where = {family: folders(given.data, family) for family in FAMILIES}
    every = sorted(
        (one for some in where.values() for one in some), key=lambda one: -(one / "docs.jsonl.gz").stat().st_size
    )
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        tasks = {folder: pool.submit(measure, folder, methods, given.scratch) for folder in every}
        families = {family: [tasks[folder].result() for folder in some] for family, some in where.items()}
    names = [one.name for one in methods]
    print(f"\n{given.score} of the pairs with the same label\n{table(families, names, given.score)}\n")
    if given.csv:
        write_csv(Path(given.csv), families, names)
    if given.plot:
        Path(given.plot).write_text(plot(families, methods), encoding="utf-8")
    fitted, peers = names[0], [one.name for one in methods if not one.is_own]
    for family, rows in families.items():
        others = max(best(name, rows).mean("f1") for name in peers)
        ahead = best(fitted, rows).mean("f1") - others
        print_bar(f"{fitted}, family {family}, mean F1 ahead of the best peer", ahead, at_least=0)


if __name__ == "__main__":
    main()
