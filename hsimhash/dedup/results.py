"""Write the results: tables, lists of ids, the report and, last, the statistics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path

import numpy as np

from hsimhash import __version__
from hsimhash.dedup.commands import next_commands
from hsimhash.dedup.grouping import pairs_found_by
from hsimhash.dedup.options import DedupOptions, shown_path
from hsimhash.dedup.outputs import DROP, KEEP, REJECTS, REPORT, STATS
from hsimhash.dedup.report import ReportData, ShownPair, write_report
from hsimhash.dedup.report_texts import Texts, date_of
from hsimhash.dedup.rereading import STDIN_NAME
from hsimhash.dedup.summary import Outcome
from hsimhash.dedup.tables import BLOCK_ROWS, ColumnKind, ColumnValues, Form, open_table
from hsimhash.errors import plural
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.rarity import learnt_json
from hsimhash.fingerprint.recipe import BY_RARITY
from hsimhash.fingerprint.signature import similarities
from hsimhash.inputs.files import Input, usual_workers
from hsimhash.inputs.lines import STDIN
from hsimhash.pairs import PairBlock

REJECTS_SHOWN = 10  # rejected records that the report names
PAIR_COLUMNS: tuple[tuple[str, ColumnKind], ...] = (("left", "text"), ("right", "text"), ("distance", "bits"))
CLUSTER_COLUMNS: tuple[tuple[str, ColumnKind], ...] = (
    ("id", "text"),
    ("cluster", "text"),
    ("kept", "truth"),
    ("kept_id", "text"),
    ("distance", "bits"),
    ("size", "number"),
    ("diameter", "bits"),
)
MATCH_COLUMNS: tuple[tuple[str, ColumnKind], ...] = (
    ("id", "text"),
    ("old_id", "text"),
    ("distance", "bits"),
    ("first_seen", "number"),
)
# Additional columns in the tables of pairs and matches if documents have sketches or keys.
SIGNATURE_COLUMNS: tuple[tuple[str, ColumnKind], ...] = (("similarity", "share"), ("found_by", "text"))


@dataclass(frozen=True, eq=False)
class Results:
    """Writes the results of a run. `url` is the index that documents were compared with; `out` is the final folder."""

    outcome: Outcome
    inputs: Sequence[Input]
    options: DedupOptions
    url: str | None
    profile: Profile  # the fitted profile
    asked: str  # name of the requested profile
    out: Path

    def write_tables(self, folder: Path, form: Form) -> None:
        """Write the pairs, the clusters, and the lists of ids."""
        documents = self.outcome.documents
        columns = (*PAIR_COLUMNS, *(SIGNATURE_COLUMNS if documents.has_signatures else ()))
        if self.options.pairs != "none":
            with open_table(folder / f"pairs.{form}", form, columns) as table:
                for block in self._all_pairs() if self.options.pairs == "all" else self._kept_pairs():
                    table.write(self._pair_rows(block))
        self._write_clusters(folder, form)

    def _all_pairs(self) -> Iterator[PairBlock]:
        among = self.outcome.documents.comparable
        for block in self.outcome.pairs.expand():
            for start in range(0, len(block.left), BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                yield PairBlock(among[block.left[part]], among[block.right[part]], block.distance[part])

    def _kept_pairs(self) -> Iterator[PairBlock]:
        """Yield each dropped document with the document kept for it, in order, unless a stored document is kept."""
        grouping = self.outcome.grouping
        for start in range(0, len(grouping.kept), BLOCK_ROWS):
            kept = grouping.kept[start : start + BLOCK_ROWS]
            dropped = np.flatnonzero((kept != np.arange(start, start + len(kept))) & (kept < len(grouping.kept)))
            yield PairBlock(kept[dropped], dropped + start, grouping.distance[dropped + start])

    def _write_clusters(self, folder: Path, form: Form) -> None:
        """For each document, write a row to the table of clusters, and its id to one of the lists."""
        doc_ids, grouping = self.outcome.documents.doc_ids, self.outcome.grouping
        with (
            open_table(folder / f"clusters.{form}", form, CLUSTER_COLUMNS) as table,
            (folder / KEEP).open("x", encoding="utf-8", newline="\n") as keep,
            (folder / DROP).open("x", encoding="utf-8", newline="\n") as drop,
        ):
            for start in range(0, len(doc_ids), BLOCK_ROWS):
                own = doc_ids.within(start, min(start + BLOCK_ROWS, len(doc_ids)))
                is_kept = grouping.is_kept(start, start + len(own))
                table.write(self._cluster_rows(start, own))
                keep.write(_lines(compress(own, is_kept.tolist())))
                drop.write(_lines(compress(own, (~is_kept).tolist())))

    def _pair_rows(self, block: PairBlock) -> tuple[ColumnValues, ...]:
        documents = self.outcome.documents
        left, right = block.left, block.right
        columns = documents.doc_ids.at(left), documents.doc_ids.at(right), block.distance
        if not documents.has_signatures:
            return columns
        similarity = similarities(documents.sketches[left], documents.sketches[right])
        found_by = pairs_found_by(documents, left, right, self.options, self.outcome.looked.refused)
        return (*columns, similarity, found_by.tolist())

    def _cluster_rows(self, start: int, own: Sequence[str]) -> tuple[ColumnValues, ...]:
        grouping, stop = self.outcome.grouping, start + len(own)
        part = slice(start, stop)
        return (
            own,
            self._named(grouping.cluster[part], start, own),
            grouping.is_kept(start, stop),
            self._named(grouping.kept[part], start, own),
            grouping.distance[part],
            grouping.size[part],
            grouping.diameter[part],
        )

    def _named(self, numbers: Int64s, start: int, own: Sequence[str]) -> list[str]:
        """Return the ids with the given numbers. Most of these are start, start + 1, …, and `own` has their ids."""
        others = np.flatnonzero(numbers != np.arange(start, start + len(own)))
        names = list(own)
        for place, name in zip(others.tolist(), self.outcome.names(numbers[others]), strict=True):
            names[place] = name
        return names

    def write_report(self, folder: Path, form: Form, tell: Callable[[], object]) -> Sequence[ShownPair]:
        """Write the report; return the pairs that it shows outside clusters. `tell` is called for each pair."""
        data = self._report_data(folder, f"clusters.{form}", tell)
        with (folder / REPORT).open("x", encoding="utf-8", newline="\n") as file:
            write_report(file, data)
        return [*(pair for distance in data.distances for pair in distance.shown), *data.keyed]

    def _report_data(self, folder: Path, clusters_file: str, tell: Callable[[], object]) -> ReportData:
        outcome = self.outcome
        with Texts(folder, tell=tell) as texts:
            texts.read(
                outcome.documents,
                self.inputs,
                self.options.reading,
                compared=outcome.compared_numbers,
                listed=outcome.listed_numbers,
            )
            clusters, distances = outcome.shown_clusters(texts), outcome.sampled_distances(texts)
            keyed = outcome.sampled_keyed(texts)
            return ReportData(
                inputs=tuple(dict.fromkeys(_given_name(one) for one in self.inputs)),
                newest_input=date_of(self.inputs),
                settings=self._settings(),
                totals=outcome.totals,
                cluster_sizes=outcome.cluster_sizes,
                distances=distances,
                sampled=(outcome.beyond.sampled, outcome.beyond.distinct),
                keyed=keyed,
                left_out=outcome.left_out,
                rejected=_first_rejects(folder),
                notices=outcome.notices,
                clusters=clusters,
                listed=outcome.listed_clusters(texts),
                clusters_file=clusters_file,
                commands=next_commands(self.inputs, self.out, self.options, profile=self.asked, url=self.url),
                texts_missing=texts.note,
            )

    def _settings(self) -> tuple[tuple[str, str], ...]:
        most = self.options.max_sketch
        sketches = "not compared" if most is None else f"up to {plural(most, 'bit')} apart"
        learnt = str(self.profile.learnt or "from general text")
        return (
            ("distance", f"up to {plural(self.options.max_distance, 'bit')}"),
            *([("sketches", sketches)] if self.outcome.documents.has_signatures else []),
            ("clusters", self.options.clusters),
            ("pairs", self.options.pairs),
            ("keep", ", ".join(map(str, self.options.keep))),
            ("profile", self.profile.name),
            *([("word weights", learnt)] if self.profile.weights == BY_RARITY else []),
            *([("against", self.url)] if self.url else []),
        )

    def write_stats(self, folder: Path, shown: Sequence[ShownPair], run: Mapping[str, object]) -> None:
        """Write `stats.json`; values that may differ between runs are under `run`."""
        beyond = self.outcome.beyond
        workers = self.options.workers or usual_workers(self.inputs)
        stats = {
            **self.outcome.totals.to_json(),
            "cluster_sizes": self.outcome.cluster_sizes,
            "distances": self.outcome.distances,
            **({"key_distances": self.outcome.key_distances} if self.outcome.documents.has_signatures else {}),
            "beyond": {"pairs": beyond.pairs, "compared": beyond.sampled, "fingerprints": beyond.distinct},
            "examples": [
                {"left": one.left, "right": one.right, "distance": one.distance, "equal_words": one.equal_words}
                for one in shown
            ],
            "warnings": [{"title": notice.title, "detail": notice.detail} for notice in self.outcome.notices],
            "inputs": [shown_path(one.name) for one in self.inputs],
            "read_as": [_read_as(one) for one in self.inputs],
            "profile": self.profile.name,
            **learnt_json(self.profile.learnt),
            "against": self.url,
            "options": self.options.to_json(),
            "versions": {"hsimhash": __version__, "numpy": np.__version__},
            "run": {**run, "workers": workers, "memory_bytes": self.options.memory_bytes},
        }
        with (folder / STATS).open("x", encoding="utf-8") as file:
            json.dump(stats, file, ensure_ascii=False, indent=1)
            file.write("\n")


def _first_rejects(folder: Path) -> tuple[str, ...]:
    """Return where the first rejected records are: a file in a folder of texts, or a file and a line."""
    if not (folder / REJECTS).exists():
        return ()
    with (folder / REJECTS).open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in islice(lines, REJECTS_SHOWN)]
    return tuple(one["file"] + (f":{one['line']}" if one["record"] else "") for one in found)


def _given_name(one: Input) -> str:
    """Return the name that the user passed, for messages; for a file of records in a folder, the folder's name."""
    return STDIN_NAME if one.name == STDIN else shown_path(one.folder or one.name)


def _read_as(one: Input) -> dict[str, str]:
    """Return the detected formats of an input, so that the same records can be read again under a different name."""
    found = {"format": "fingerprints" if one.has_fingerprints and one.kind == "tsv" else one.kind}
    return found | ({"fingerprint_format": one.formats[0]} if len(one.formats) == 1 else {})


def _lines(doc_ids: Iterable[str]) -> str:
    return "\n".join([*doc_ids, ""])
