"""Bulk loads via HFiles, which worker processes write from sorted runs, region by region.

The load consists of the steps in `load_steps.py`, and two more between *begin* and *rows*:

- *resolve*: of several documents with the same id, the last one is kept. Documents that the table already has are left
  out. A document that the table has with a different signature gets the next state of its register, and an entry in the
  log of orphans (`table_comparison.py`).
- *files*: worker processes prepare the runs and write each region's files (`run_writer.py`).

Next to the runs, `staged.json` stores the progress, and `files.jsonl` lists the regions whose files are finished. A
killed load resumes with the step that it had begun, and with the regions whose files are missing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hsimhash.errors import Remedy, StopAskedError, StoreUnavailableError
from hsimhash.files import file_errors, write_json
from hsimhash.fingerprint.bits import Bools, sorted_distinct
from hsimhash.processes import Workers, completed
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store.hbase.files.load_steps import LoadState, LoadSteps, StateKeeper
from hsimhash.store.hbase.files.region_writer import ROWS, StagedFile
from hsimhash.store.hbase.files.run_writer import (
    KNOWN,
    FilesJob,
    cut_runs,
    needed_bytes,
    sort_registers,
    sort_rows,
    write_region,
)
from hsimhash.store.hbase.files.table_comparison import ASKED_AT_ONCE, TableComparison
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.batches import slices
from hsimhash.store.hbase.rows.protocol import Writes
from hsimhash.store.hbase.upkeep.range_jobs import ResultLog
from hsimhash.store.runs import BulkLoad, Found, StageOptions, resolve, signatures_of

RESOLVED_AT_ONCE = 200_000  # documents
PART_BYTES = 50 << 20  # approximate memory for each part that a worker assembles
_STATE, _FILES, _LOG = "staged.json", "files.jsonl", "load.log"


class _InJobFolder(StateKeeper):
    """Stores the state in a file next to the runs."""

    def __init__(self, folder: Path) -> None:
        self.job = str(folder.absolute())
        self.log = folder.with_name(_LOG)
        self._path = folder / _STATE

    def read(self) -> LoadState | None:
        return LoadState.of(json.loads(self._path.read_text())) if self._path.exists() else None

    def write(self, state: LoadState) -> None:
        write_json(self._path, asdict(state))

    def cleared(self, state: LoadState) -> dict[str, object]:
        return {}

    def folder(self, token: str) -> str:
        return ""


class StagedLoad(BulkLoad):
    """A bulk load via HFiles; see `BulkLoad` and the module.

    Args:
        writes: Writes to the table.
        address: Address of the table.
        folder: Folder with the runs. The log of HBase's load program is next to it.
        options: Options of the stage; see `StageOptions`.
    """

    def __init__(self, writes: Writes, address: Address, folder: Path, options: StageOptions) -> None:
        super().__init__(folder, has_signatures=writes.record.has_signatures)
        self._writes, self._record, self._options = writes, writes.record, options
        self._steps = LoadSteps(writes.gateway, writes.record, address, options, _InJobFolder(folder))
        with file_errors(folder):
            self._steps.verify_stage()

    def expect(self, documents: int, id_bytes: int) -> None:
        """Check the free space as `BulkLoad.expect` does: on this machine for the runs, in the stage for the files."""
        stage, (runs, files) = self._steps.stage, needed_bytes(documents, id_bytes, self._record)
        if stage.is_on_disk_of(self.folder):
            runs += files
        for place, free, needed in (
            (self.folder, shutil.disk_usage(self.folder).free, runs),
            (stage.url, stage.free_bytes(), files),
        ):
            if free is not None and free < needed:
                raise StoreUnavailableError(
                    f"{place} has {free >> 20:,} MiB free, but about {documents:,} documents need {needed >> 20:,} "
                    f"MiB; free some space, or "
                    + Remedy("pass another job folder or stage", "choose another --job or --stage")
                )

    def merge(self, observer: Observer = UNWATCHED) -> int | None:
        """Write all files and load them; see `BulkLoad.merge`. Also returns None if operators must load them."""
        if not self._runs:
            return 0
        try:
            with file_errors(self.folder):
                return self._work(observer)
        except StopAskedError:
            return None

    def _work(self, observer: Observer) -> int | None:
        steps, state = self._steps, self._steps.read()
        if state is None or state.stage == "begin" or state.runs != self.runs:
            (self.folder / _FILES).unlink(missing_ok=True)
            state = steps.begin(state, runs=self.runs)
        if state.stage == "resolve":
            state = steps.save(replace(self._resolve(state, observer), stage="files"))
        if state.stage == "files":
            self._write_files(state, observer)
            steps.verify_files(state, self._files())
            steps.write_manifest(state, self._files())
            state = steps.save(replace(state, stage=ROWS))
        loaded = steps.load_all(state, self._files(), observer)
        if loaded is None:
            return None
        steps.end(loaded)
        return loaded.added

    def _forget_merge(self) -> None:
        state = self._steps.read()
        if state is not None:
            self._steps.give_up(state)

    def delete(self) -> None:
        """Remove the runs; abandon a load in progress."""
        with file_errors(self.folder):
            self._forget_merge()
            self._steps.release_stage()
        super().delete()

    # What is loaded.

    def _resolve(self, state: LoadState, observer: Observer) -> LoadState:
        """Record which documents each run keeps, and what the table stores for them; return the state with counts."""
        for run in self._runs:
            (run.folder / "known").unlink(missing_ok=True)
        if not self._steps.has_documents():
            kept = resolve(self._runs, RESOLVED_AT_ONCE, lambda found: np.ones(len(found.runs), np.bool_))
            return replace(state, kept=kept, added=kept)
        observer.say("comparing with the table")
        known = [np.memmap(run.folder / "known", KNOWN, "w+", shape=run.size) for run in self._runs]
        comparison, added = TableComparison(self._writes, state.stamp, is_repeated=state.is_repeated), 0

        def changes(found: Found) -> Bools:
            nonlocal added
            is_change = np.ones(len(found.runs), np.bool_)
            for part in slices(len(found.runs), ASKED_AT_ONCE):
                if observer.stop():
                    raise StopAskedError("stopped while comparing with the table")
                is_change[part], news = self._compare(found.part(part), known, comparison)
                added += news
            return is_change

        kept = resolve(self._runs, RESOLVED_AT_ONCE, changes)
        for array in known:
            array.flush()
        return replace(state, kept=kept, added=added)

    def _compare(
        self, found: Found, known: Sequence[np.memmap[Any, Any]], comparison: TableComparison
    ) -> tuple[list[bool], int]:
        """Return whether each document must be written, and how many of those to write are new or changed."""
        ids = [b""] * len(found.runs)
        for number in sorted_distinct(found.runs).tolist():
            own = np.flatnonzero(found.runs == number)
            for place, doc_id in zip(own.tolist(), self._runs[number].ids_at(found.places[own]), strict=True):
                ids[place] = doc_id
        first_seen = found.registers["first_seen"].tolist()
        outcomes = comparison.of(ids, signatures_of(found.registers), first_seen)
        for one, number, place in zip(outcomes, found.runs.tolist(), found.places.tolist(), strict=True):
            if one.is_written and one.is_known:
                known[number][place] = one.register.first_seen, one.register.changes % (1 << 32)
        return [one.is_written for one in outcomes], sum(one.is_written and one.is_news for one in outcomes)

    # Files.

    def _write_files(self, state: LoadState, observer: Observer) -> None:
        folders, documents = tuple(run.folder for run in self._runs), sum(run.size for run in self._runs)
        job = FilesJob(folders, self._record, self._options.stage, self._steps.form(state))
        regions = state.region_rows()
        with ResultLog(self.folder / _FILES) as log, Workers(self._options.workers) as workers:
            left = [number for number in range(len(regions)) if number not in log.results]
            if left:
                observer.say("sorting")
                sorting = [workers.submit(sort_rows, folder, self._record) for folder in folders]
                sorting += [workers.submit(sort_registers, folder) for folder in folders]
                for one in completed(sorting, observer.stop):
                    one.result()
            cuts = cut_runs(self._runs, self._record, self._options.part_bytes or PART_BYTES)
            numbers = {workers.submit(write_region, job, regions[number], cuts): number for number in left}
            for future in completed(numbers, observer.stop):
                log.add(numbers[future], future.result())
                observer.report("write", documents * len(log.results) // len(regions), documents)

    def _files(self) -> list[StagedFile]:
        with ResultLog(self.folder / _FILES) as log:
            return [StagedFile(*file) for number in sorted(log.results) for file in log.results[number]]
