"""Write the files of each region from sorted runs, in the worker processes of a bulk load.

Before that, each run is *prepared*: the drawer rows of its kept documents are sorted by drawer (`write_permuted`), and
their registers are sorted in the table's row order and written to the file `table_registers`, as entries of type
`TABLE_REGISTER`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hsimhash.rowkey import ROWKEY_BYTES, listing_rowkeys, register_numbers, register_rowkeys
from hsimhash.store.base import Record
from hsimhash.store.hbase.files.region_writer import (
    DOCUMENT_BYTES,
    REGISTERS,
    ROW_BYTES,
    ROWS,
    SIGNED_VALUE,
    Cuts,
    FileForm,
    Portion,
    RegionRows,
    Segments,
    StagedFile,
    register_ranges,
    register_values,
)
from hsimhash.store.hbase.files.stage import Stage, open_stage
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY
from hsimhash.store.runs import (
    Run,
    document_order,
    drawer_rows,
    listing_ranges,
    segment_ranges,
    write_array,
    write_permuted,
)

TABLE_REGISTER = np.dtype(
    [
        ("segment", ">u4"),
        ("rest", ">u8"),  # rest of the row, after the flag
        *SIGNED_VALUE.descr,
        ("place", "u4"),  # index in the run
    ]
)
KNOWN = np.dtype([("first_seen", "i8"), ("changes", "u4")])  # new values for a document that the table already has


@dataclass(frozen=True, slots=True)
class FilesJob:
    """The values that every worker needs: the runs' folders, the record, the stage, the form of the files."""

    runs: tuple[Path, ...]
    record: Record
    stage: str
    form: FileForm


def needed_bytes(documents: int, id_bytes: int, record: Record) -> tuple[int, int]:
    """Estimate the sizes of the runs and the files, in bytes, for documents with keys and distinct ids."""
    drawers, key_rows = len(record.layout.drawers), record.keying.most_parts
    run_bytes = 8 * drawers + ROWKEY_BYTES * key_rows + 137 + id_bytes
    return documents * run_bytes, documents * (17 * (drawers + key_rows) + 120 + 2 * id_bytes)


# Preparing runs.


def sort_rows(folder: Path, record: Record) -> None:
    """Sort the drawer rows of a run's kept documents."""
    write_permuted(Run(folder), record.layout.drawers, record.keying)


def sort_registers(folder: Path) -> None:
    """Sort the registers of a run's kept documents in the table's row order."""
    run = Run(folder)
    kept = np.flatnonzero(run.read("keep", np.bool_, 0, run.size))
    by_place = run.registers_by_place()
    found = np.zeros(len(kept), TABLE_REGISTER)
    found["place"] = kept
    for name in set(run.register.names or ()) & set(TABLE_REGISTER.names or ()):
        found[name] = by_place[name][kept]
    found["changes"] = 1
    if (folder / "known").exists():
        known = run.read("known", KNOWN, 0, run.size)[kept]
        is_known = known["changes"] > 0
        for name in ("first_seen", "changes"):
            found[name][is_known] = known[name][is_known]
    found["segment"], found["rest"] = register_numbers(run.ids_at(kept))
    order = np.lexsort((found["rest"].astype(np.uint64), found["segment"].astype(np.uint32)))
    write_array(folder / "table_registers", found[order])


def cut_runs(runs: Sequence[Run], record: Record, part_bytes: int) -> Cuts:
    """Return where to cut prepared runs, so that a part takes about `part_bytes` bytes of memory."""
    at_once = part_bytes // DOCUMENT_BYTES
    return Cuts(
        segment_ranges(list(runs), record.layout.drawers, part_bytes // ROW_BYTES),
        listing_ranges(runs, at_once),
        register_ranges(sum(run.size for run in runs), at_once),
    )


# Writing regions.


def write_region(job: FilesJob, region: RegionRows, cuts: Cuts) -> list[StagedFile]:
    """Write the files of a region; return the non-empty ones."""
    return _Region(job, region).write(cuts)


class _Region:
    def __init__(self, job: FilesJob, region: RegionRows) -> None:
        self.job, self.region = job, region
        self.runs = [Run(folder) for folder in job.runs]
        self.stage: Stage = open_stage(job.stage)

    def write(self, cuts: Cuts) -> list[StagedFile]:
        """Write all files and return them."""
        parts = (
            (ROWS, DRAWER_FAMILY, map(self._drawers, self.region.within(cuts.drawers))),
            (ROWS, DOCUMENT_FAMILY, map(self._listings, self.region.within(cuts.listings))),
            (REGISTERS, DOCUMENT_FAMILY, map(self._registers, self.region.within(cuts.registers))),
        )
        return [file for folder, family, portions in parts for file in self._files(folder, family, portions)]

    def _files(self, folder: str, family: bytes, portions: Iterable[Portion]) -> Iterator[StagedFile]:
        name = f"{folder}/{family.decode()}/region-{self.region.number:05d}"
        filled = (portion for portion in portions if len(portion.rows))
        return self.job.form.write(self.stage, name, self.region, filled)

    def _drawers(self, segments: Segments) -> Portion:
        rows = drawer_rows(self.runs, self.job.record.layout.drawers, *segments)
        return Portion(rows[self.region.clip(rows)])

    def _listings(self, segments: Segments) -> Portion:
        fingerprints, ids = [], list[bytes]()
        for run in self.runs:
            places = run.kept_within(*segments)
            fingerprints.append(run.map("fingerprints", np.uint64)[places])
            ids += run.ids_at(places)
        found = np.concatenate(fingerprints)
        order = document_order(found, ids, key=bytes)
        rows = listing_rowkeys(found[order])
        within = self.region.clip(rows)
        return Portion(rows[within], [ids[place] for place in order[within].tolist()])

    def _registers(self, segments: Segments) -> Portion:
        parts, ids = [], list[bytes]()
        for run in self.runs:
            path = run.folder / "table_registers"
            if not path.stat().st_size:
                continue
            column = np.memmap(path, TABLE_REGISTER, "r")["segment"]
            start, stop = (bisect_left(column, edge, key=int) for edge in segments)
            part = run.read("table_registers", TABLE_REGISTER, start, stop)
            parts.append(part)
            ids += run.ids_at(part["place"].astype(np.int64))
        found = np.concatenate([np.empty(0, TABLE_REGISTER), *parts], dtype=TABLE_REGISTER)
        segment, rest = found["segment"].astype(np.uint64), found["rest"].astype(np.uint64)
        order = np.lexsort((rest, segment))
        rows = register_rowkeys(segment, rest)[order]
        within = self.region.clip(rows)
        order = order[within]
        values = register_values(found[order], has_signatures=self.job.record.has_signatures)
        return Portion(rows[within], [ids[place] for place in order.tolist()], values)
