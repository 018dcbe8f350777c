"""The results as they are written: tables, lists of ids, the report, and at last the numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsimhash.dedup.options import DedupOptions, shown
from hsimhash.dedup.outputs import DROP, KEEP, REPORT, STATS
from hsimhash.dedup.report import write_report
from hsimhash.dedup.report_data import Notice, ReportCluster, ReportData
from hsimhash.dedup.summary import Outcome, date_of, read_texts
from hsimhash.dedup.tables import BLOCK_ROWS, Column, Form, Kind, open_table
from hsimhash.load.inputs import Input
from hsimhash.load.intake import usual_workers
from hsimhash.pairs import PairBlock, Pairs

PAIR_COLUMNS: tuple[tuple[str, Kind], ...] = (("left", "text"), ("right", "text"), ("distance", "bits"))
CLUSTER_COLUMNS: tuple[tuple[str, Kind], ...] = (
    ("id", "text"),
    ("cluster", "text"),
    ("kept", "truth"),
    ("kept_id", "text"),
    ("distance", "bits"),
    ("size", "number"),
    ("diameter", "bits"),
)
MATCH_COLUMNS: tuple[tuple[str, Kind], ...] = (
    ("id", "text"),
    ("old_id", "text"),
    ("distance", "bits"),
    ("first_seen", "number"),
)


@dataclass(frozen=True, eq=False)
class Results:
    """What is written of an outcome; `url` is the index that was compared with."""

    outcome: Outcome
    inputs: Sequence[Input]
    options: DedupOptions
    url: str | None
    profile: str

    def write_tables(self, folder: Path, form: Form) -> None:
        """Write the pairs, the clusters, and the lists of ids."""
        documents, is_kept = self.outcome.documents, self.outcome.grouping.is_kept
        with open_table(folder / f"pairs.{form}", form, PAIR_COLUMNS) as table:
            for block in self._pair_blocks():
                left, right = (_picked(documents.doc_ids, documents.comparable[numbers]) for numbers in block[:2])
                table.write((left, right, block.distance))
        with open_table(folder / f"clusters.{form}", form, CLUSTER_COLUMNS) as table:
            for start in range(0, len(documents.doc_ids), BLOCK_ROWS):
                table.write(self._cluster_rows(slice(start, start + BLOCK_ROWS)))
        _write_ids(folder / KEEP, documents.doc_ids, is_kept)
        _write_ids(folder / DROP, documents.doc_ids, ~is_kept)

    def _pair_blocks(self) -> Iterator[PairBlock]:
        pairs = self.outcome.pairs
        return pairs.expand() if self.options.all_pairs else _blocks(pairs)

    def _cluster_rows(self, part: slice) -> tuple[Column, ...]:
        outcome, grouping = self.outcome, self.outcome.grouping
        return (
            outcome.documents.doc_ids[part],
            _picked(outcome.names, grouping.cluster[part]),
            grouping.is_kept[part],
            _picked(outcome.names, grouping.kept[part]),
            grouping.distance[part],
            grouping.size[part],
            grouping.diameter[part],
        )

    @cached_property
    def _shown(self) -> tuple[tuple[ReportCluster, ...], str]:
        """The largest clusters, and why texts of them are missing."""
        texts, missing = read_texts(self.outcome, self.inputs, self.options.reading)
        return self.outcome.largest_clusters(texts), missing

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """What deserves a warning."""
        return self.outcome.notices(next(iter(self._shown[0]), None))

    def write_report(self, folder: Path, form: Form) -> None:
        """Write the report."""
        clusters, missing = self._shown
        data = ReportData(
            inputs=tuple(shown(one.name) for one in self.inputs),
            date=date_of(self.inputs),
            settings=self._settings(),
            totals=self.outcome.totals,
            cluster_sizes=self.outcome.cluster_sizes,
            distances=self.outcome.distances,
            notices=self.notices,
            clusters=clusters,
            clusters_file=f"clusters.{form}",
            texts_missing=missing,
        )
        with (folder / REPORT).open("x", encoding="utf-8", newline="\n") as file:
            write_report(file, data)

    def _settings(self) -> tuple[tuple[str, str], ...]:
        return (
            ("distance", f"up to {self.options.max_distance} bits"),
            ("clusters", self.options.clusters),
            ("keep", ", ".join(map(str, self.options.keep))),
            ("profile", self.profile),
            *([("against", self.url)] if self.url else []),
        )

    def write_stats(self, folder: Path, seconds: Mapping[str, float]) -> None:
        """Write the numbers; what differs from one run to the next is under `run`."""
        workers = self.options.workers or usual_workers(self.inputs)
        stats = {
            **self.outcome.counts,
            "cluster_sizes": self.outcome.cluster_sizes,
            "distances": self.outcome.distances,
            "warnings": [{"title": notice.title, "detail": notice.detail} for notice in self.notices],
            "inputs": [shown(one.name) for one in self.inputs],
            "profile": self.profile,
            "against": self.url,
            "options": self.options.to_json(),
            "versions": {name: version(name) for name in ("hsimhash", "numpy")},
            "run": {"seconds": seconds, "workers": workers, "memory_bytes": self.options.memory_bytes},
        }
        with (folder / STATS).open("x", encoding="utf-8") as file:
            json.dump(stats, file, ensure_ascii=False, indent=1)
            file.write("\n")


def _blocks(pairs: Pairs) -> Iterator[PairBlock]:
    """Yield the pairs, and each equal document's with the first, in order."""
    equal = np.flatnonzero(pairs.groups != np.arange(len(pairs.groups)))
    left = np.concatenate([pairs.left, pairs.groups[equal]])
    right = np.concatenate([pairs.right, equal])
    distance = np.concatenate([pairs.distance, np.zeros(len(equal), np.uint8)])
    order = np.lexsort((right, left))
    for start in range(0, len(order), BLOCK_ROWS):
        part = order[start : start + BLOCK_ROWS]
        yield PairBlock(left[part], right[part], distance[part])


def _picked(doc_ids: Sequence[str], numbers: NDArray[np.int64]) -> list[str]:
    return [doc_ids[number] for number in numbers.tolist()]


def _write_ids(path: Path, doc_ids: Sequence[str], is_listed: NDArray[np.bool_]) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{doc_id}\n" for doc_id in compress(doc_ids, is_listed.tolist()))
