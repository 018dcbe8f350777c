"""A bulk load by HFiles: sorted runs become finished files, region by region, that HBase's own program loads.

1. *begin*: the stage is claimed, and a cell beside the record says so; its time, a server's, is the timestamp of all
   cells of the load. So what others change later stays. From then on nothing so young is collected (`protocol.py`).
2. *resolve*: of an id that occurs in several documents the last counts. What the table has already is left out, and
   what it has otherwise gets the register that follows, and an entry in the log of orphans, as young as the load.
3. *files*: worker processes prepare the runs and write the regions' files (`region_files.py`).
4. *rows*: drawer rows and listings are loaded. 5. *registers*: then the registers. So the invariant of `protocol.py`
   holds at every moment. After each load the first and the last cell of all files are looked up in the table.

`staged.json` beside the runs says how far it came, `files.jsonl` which regions have their files; the stage's manifest
says whose it is, `{}` nobody's, and what is there. What was killed continues with the step that was begun, and with the
regions that lack files. To load a file twice changes nothing: its cells are the same.
"""

from __future__ import annotations

import json
import shlex
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hsimhash.errors import HsimhashError, StopAskedError, StoreUnavailableError
from hsimhash.files import file_errors, write_json
from hsimhash.fingerprint.bits import Bools
from hsimhash.processes import Workers, completed
from hsimhash.store.facts import Progress
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.batches import slices
from hsimhash.store.hbase.cells import TABLE_START, TABLE_STOP, Register, register_key
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY
from hsimhash.store.hbase.load_tool import load_words, only_one, run_load
from hsimhash.store.hbase.protocol import Writes, begin_load, end_load, loads_begun
from hsimhash.store.hbase.region_files import (
    KNOWN,
    REGISTERS,
    ROWS,
    FilesJob,
    StagedFile,
    cut_runs,
    file_settings,
    needed_bytes,
    sort_registers,
    sort_rows,
    write_region,
)
from hsimhash.store.hbase.stage import MANIFEST, open_stage
from hsimhash.store.hbase.table import described
from hsimhash.store.hbase.walk import ResultLog, whole_table
from hsimhash.store.runs import BulkLoad, Found, StageOptions, resolve, signatures_of

RESOLVED_AT_ONCE = 200_000  # documents
ASKED_AT_ONCE = 5_000  # registers of known documents
_STATE, _FILES, _LOG = "staged.json", "files.jsonl", "load.log"


@dataclass(frozen=True, slots=True)
class _LoadState:
    """How far a load came.

    Attributes:
        token: of the cell that says that it is under way.
        stage: the next thing to do: "begin", "resolve", "files", "rows", "registers", "end".
        runs: how many there were as it began.
        stamp: when it began, in ms since 1970.
        regions: start and stop, as hexadecimal digits.
        kept: how many documents are written; `added`: how many of them are new or changed.
        is_begun: the program that loads what `stage` names may have been run.
        is_told: others were told to run it.
        is_repeated: registers of an earlier try may be in the table, and their rows gone.
    """

    token: str
    stage: str = "begin"
    runs: int = 0
    stamp: int = 0
    regions: tuple[tuple[str, str], ...] = ()
    kept: int = 0
    added: int = 0
    is_begun: bool = False
    is_told: bool = False
    is_repeated: bool = False


class StagedLoad(BulkLoad):
    """A bulk load by HFiles; see `BulkLoad` and the module's text.

    Args:
        writes: to the table.
        address: of the table.
        folder: of the runs; what HBase's program says stands beside it.
        options: see there.
    """

    def __init__(self, writes: Writes, address: Address, folder: Path, options: StageOptions) -> None:
        super().__init__(folder, has_signatures=writes.record.has_signatures)
        self._writes, self._gateway, self._record = writes, writes.gateway, writes.record
        self._address, self._options = address, options
        self._stage = open_stage(options.stage)
        self._state_path = folder / _STATE
        with file_errors(folder):
            self._verify_stage()

    def expect(self, documents: int, id_bytes: int) -> None:
        """See `BulkLoad.expect`; the runs are here, the files in the stage."""
        runs, files = needed_bytes(documents, id_bytes, len(self._record.layout.drawers))
        if self._stage.is_on_disk_of(self.folder):
            runs += files
        for place, free, needed in (
            (self.folder, shutil.disk_usage(self.folder).free, runs),
            (self._stage.url, self._stage.free_bytes(), files),
        ):
            if free is not None and free < needed:
                raise StoreUnavailableError(
                    f"{place} has {free >> 20:,} MiB free; about {documents:,} documents take {needed >> 20:,}; free "
                    f"the disk, or choose another --job or --stage"
                )

    def merge(self, *, progress: Progress | None = None, stop: Callable[[], bool] | None = None) -> int | None:
        """Write all files, and have them loaded; see `BulkLoad.merge`. None too where the commands were only told."""
        if not self._runs:
            return 0
        try:
            with file_errors(self.folder):
                return self._work(progress or (lambda *_: None), stop or (lambda: False))
        except StopAskedError:
            return None

    def _work(self, tell: Progress, stop: Callable[[], bool]) -> int | None:
        state = self._read_state()
        if state is None or state.stage == "begin" or state.runs != self.runs:
            state = self._begin(state)
        if state.stage == "resolve":
            state = self._save(replace(self._resolve(state, stop), stage="files"))
        if state.stage == "files":
            self._write_files(state, tell, stop)
            self._write_manifest(state)
            state = self._save(replace(state, stage=ROWS))
        for stage, following in ((ROWS, REGISTERS), (REGISTERS, "end")):
            if state.stage == stage:
                if not self._load(state, stop):
                    return None
                state = self._save(replace(state, stage=following, is_begun=False))
        end_load(self._gateway, state.token)
        self._clear_stage()
        return state.added

    # How far it came, and whose the stage is.

    def _read_state(self) -> _LoadState | None:
        if not self._state_path.exists():
            return None
        fields = json.loads(self._state_path.read_text())
        return _LoadState(**{**fields, "regions": tuple(map(tuple, fields["regions"]))})

    def _save(self, state: _LoadState) -> _LoadState:
        write_json(self._state_path, asdict(state))
        return state

    def _verify_stage(self) -> None:
        """Give up a load of this folder whose runs are gone; `HsimhashError` where the stage is not to be used."""
        manifest, state = self._stage.manifest(), self._read_state()
        if manifest is None:
            if not self._stage.is_empty():
                raise HsimhashError(
                    f"stage {self._stage.url} has files that are no stage of hsimhash; choose another --stage"
                )
            self._stage.write_manifest({})  # so that a folder that cannot be written is known now
        elif manifest and manifest.get("job") != self._job:
            raise HsimhashError(
                f"stage {self._stage.url} has the stage of another load, for {manifest.get('table')} with layout "
                f"{manifest.get('layout')} and profile {manifest.get('profile')}, by the job {manifest.get('job')}; "
                f"finish that load, or choose another --stage, or delete this one"
            )
        elif manifest and (state is None or state.token != manifest["token"]):
            end_load(self._gateway, str(manifest["token"]))
            self._clear_stage()

    @property
    def _job(self) -> str:
        return str(self.folder.absolute())

    def _begin(self, before: _LoadState | None) -> _LoadState:
        """Begin a load, whose token is known here and in the stage before the table knows it."""
        self._verify_stage()
        if before is not None:
            before = self._give_up(before)
        state = self._save(_LoadState(uuid.uuid4().hex, is_repeated=before is not None and before.is_repeated))
        (self.folder / _FILES).unlink(missing_ok=True)
        self._clear_stage()
        self._write_manifest(state)
        regions = tuple((one.start.hex(), one.stop.hex()) for one in whole_table(self._gateway))
        stamp = begin_load(self._gateway, state.token)
        return self._save(replace(state, stage="resolve", runs=self.runs, stamp=stamp, regions=regions))

    def _give_up(self, state: _LoadState) -> _LoadState:
        """Forget a load, but whether its registers may be in the table."""
        end_load(self._gateway, state.token)
        is_repeated = state.is_repeated or state.is_told or (state.stage == REGISTERS and state.is_begun)
        self._clear_stage()
        return self._save(_LoadState("", is_repeated=is_repeated))

    def _forget_merge(self) -> None:
        state = self._read_state()
        if state is not None:
            self._give_up(state)

    def _clear_stage(self) -> None:
        """Delete all files of the stage, and let it be nobody's; unless another job has it by now."""
        manifest = self._stage.manifest()
        if manifest and manifest.get("job") != self._job:
            return
        for name in (ROWS, REGISTERS):
            self._stage.delete(name)
        self._stage.write_manifest({})

    def delete(self) -> None:
        """Remove the runs; a load that was begun is given up."""
        with file_errors(self.folder):
            self._forget_merge()
            if not self._stage.manifest():
                self._stage.delete(MANIFEST)
        super().delete()

    # What is loaded.

    def _resolve(self, state: _LoadState, stop: Callable[[], bool]) -> _LoadState:
        """Write what each run keeps, and what the table knows of it; return the state with how many documents."""
        for run in self._runs:
            (run.folder / "known").unlink(missing_ok=True)
        if self._options.is_first or not self._gateway.rows(TABLE_START, TABLE_STOP, DOCUMENT_FAMILY, limit=1):
            kept = resolve(self._runs, RESOLVED_AT_ONCE, lambda found: np.ones(len(found.runs), np.bool_))
            return replace(state, kept=kept, added=kept)
        self._options.say("comparing with the table")
        known = [np.memmap(run.folder / "known", KNOWN, "w+", shape=run.size) for run in self._runs]
        added = 0

        def changes(found: Found) -> Bools:
            nonlocal added
            is_change = np.ones(len(found.runs), np.bool_)
            for part in slices(len(found.runs), ASKED_AT_ONCE):
                if stop():
                    raise StopAskedError("asked to end while comparing with the table")
                is_change[part], news = self._compare(found.part(part), known, state)
                added += news
            return is_change

        kept = resolve(self._runs, RESOLVED_AT_ONCE, changes)
        for array in known:
            array.flush()
        return replace(state, kept=kept, added=added)

    def _compare(self, found: Found, known: Sequence[np.memmap[Any, Any]], state: _LoadState) -> tuple[list[bool], int]:
        """Tell of each document whether it is written, and how many of them are new or changed."""
        ids = [b""] * len(found.runs)
        for number in np.unique(found.runs).tolist():
            own = np.flatnonzero(found.runs == number)
            for place, doc_id in zip(own.tolist(), self._runs[number].ids_at(found.places[own]), strict=True):
                ids[place] = doc_id
        cells = self._gateway.get([register_key(doc_id) for doc_id in ids], DOCUMENT_FAMILY)
        documents = zip(
            cells,
            signatures_of(found.registers),
            found.registers["first_seen"].tolist(),
            found.runs.tolist(),
            found.places.tolist(),
            strict=True,
        )
        written, added, moves = [], 0, []
        for cell, signature, first_seen, number, place in documents:
            register = Register() if cell is None else Register.from_bytes(cell.value)
            is_news = register.signature != signature
            # What was written since the load began wins.
            is_written = cell is None or (
                cell.timestamp < state.stamp
                and (is_news or state.is_repeated or self._is_old(cell.timestamp, state.stamp))
            )
            if cell is not None and is_written:
                after = register.filed(signature, first_seen)
                known[number][place] = after.first_seen, after.changes % (1 << 32)
                moves.append((cell.qualifier, register.signature, signature))
            written.append(is_written)
            added += is_written and is_news
        self._gateway.put(self._writes.orphan_puts(moves))
        return written, added

    def _is_old(self, timestamp: int, now: int) -> bool:
        """Whether rows may go before their register: with a TTL they are written again."""
        ttl_s = self._writes.times.ttl_s
        return ttl_s is not None and now - timestamp > ttl_s * 1_000 / 2

    # Files.

    def _write_files(self, state: _LoadState, tell: Progress, stop: Callable[[], bool]) -> None:
        folders, documents = tuple(run.folder for run in self._runs), sum(run.size for run in self._runs)
        settings = file_settings(described(self._gateway))
        job = FilesJob(folders, self._record, self._options.stage, state.stamp, settings, self._options.limits)
        regions = [(bytes.fromhex(start), bytes.fromhex(stop)) for start, stop in state.regions]
        with ResultLog(self.folder / _FILES) as log, Workers(self._options.workers) as workers:
            left = [number for number in range(len(regions)) if number not in log.results]
            if left:
                self._options.say("sorting")
                sorting = [workers.submit(sort_rows, folder, self._record) for folder in folders]
                sorting += [workers.submit(sort_registers, folder) for folder in folders]
                for one in completed(sorting, stop):
                    one.result()
            cuts = cut_runs(self._runs, self._record, job.limits)
            numbers = {workers.submit(write_region, job, number, regions[number], cuts): number for number in left}
            for future in completed(numbers, stop):
                log.add(numbers[future], future.result())
                tell(documents * len(log.results) // len(regions), documents)
        registers = sum(file.cells for file in self._files() if file.name.startswith(REGISTERS))
        if registers != state.kept:
            raise HsimhashError(
                f"{registers:,} registers were written of {state.kept:,} documents; this is a bug, nothing was loaded"
            )

    def _files(self) -> list[StagedFile]:
        with ResultLog(self.folder / _FILES) as log:
            return [StagedFile(*file) for number in sorted(log.results) for file in log.results[number]]

    def _write_manifest(self, state: _LoadState) -> None:
        files = self._files()
        self._stage.write_manifest(
            {
                "version": 1,
                "token": state.token,
                "job": self._job,
                "table": str(self._address),
                "layout": self._record.layout.name,
                "profile": self._record.profile["name"],
                "documents": state.kept,
                "stamp": state.stamp,
                "regions": state.regions,
                "rows": sum(file.cells for file in files),
                "bytes": sum(file.size for file in files),
                "files": [file._asdict() for file in files],
            }
        )

    # Loading.

    def _load(self, state: _LoadState, stop: Callable[[], bool]) -> bool:
        """Load the files of a folder of the stage; return whether that was done, and not left to others."""
        log = self.folder.with_name(_LOG)
        with only_one(self.folder.parent, log, stop) as lock:
            if stop():
                raise StopAskedError("asked to end before files are loaded")
            self._verify_begun(state)
            files = self._files_in(state.stage)
            self._verify_sizes(state, files)
            is_there = any(self._stage.size(file.name) is not None for file in files)
            if is_there and self._options.tell_commands and not (state.is_told and self._has_all(files, state.stamp)):
                self._save(replace(state, is_told=True))
                if state.stage == ROWS and self._has_all(self._files_in(REGISTERS), state.stamp):
                    self._options.say("the registers are loaded, but not the rows: run the first line now")
                self._options.tell_commands(self._commands(*(ROWS, REGISTERS)[state.stage == REGISTERS :]))
                return False
            if is_there and not self._options.tell_commands:
                self._save(replace(state, is_begun=True))
                self._options.say(f"loading {state.stage}")
                run_load(self._words(state.stage), log, lock)
                self._verify_begun(state)
                is_there = any(self._stage.size(file.name) is not None for file in files)
            if not self._has_all(files, state.stamp):
                if is_there:
                    raise HsimhashError(
                        f"HBase's program to load files ended without an error, but not all of {self._stage.url}/"
                        f"{state.stage} is in the table; see {log}, correct --hbase-command, and run the same command "
                        f"again"
                    )
                self._give_up(replace(state, is_begun=True))
                raise HsimhashError(
                    f"the files in {self._stage.url}/{state.stage} are gone, but not all that they held is in the "
                    f"table; the same command stages it again"
                )
        return True

    def _files_in(self, stage: str) -> list[StagedFile]:
        return [file for file in self._files() if file.name.startswith(f"{stage}/")]

    def _words(self, name: str) -> list[str]:
        return load_words(self._options.command, f"{self._stage.url}/{name}", self._address)

    def _commands(self, *names: str) -> list[str]:
        """Return lines for a shell, of which each runs only if the one before succeeded."""
        lines = [shlex.join(self._words(name)) for name in names]
        return [*(f"{line} &&" for line in lines[:-1]), lines[-1]]

    def _verify_begun(self, state: _LoadState) -> None:
        """Raise `HsimhashError` where collection no longer waits for this load: its rows may be gone."""
        manifest = self._stage.manifest() or {}
        if manifest.get("token") != state.token:
            raise HsimhashError(
                f"another load took stage {self._stage.url} (job {manifest.get('job')}); choose another --stage, with "
                f"--fresh"
            )
        if loads_begun(self._gateway).get(state.token) != state.stamp:
            self._give_up(replace(state, is_begun=True))
            raise HsimhashError(
                f"stage {self._stage.url} is older than the index's last collection, which did not wait for it any "
                f"more; the same command stages it again"
            )

    def _verify_sizes(self, state: _LoadState, files: Sequence[StagedFile]) -> None:
        """Raise `HsimhashError` where a file has not as many bytes as were written, or is missing before any load."""
        for file in files:
            size = self._stage.size(file.name)
            if size != file.size and not (size is None and (state.is_begun or state.is_told)):
                found = "is missing" if size is None else f"has {size:,} bytes instead of {file.size:,}"
                self._give_up(state)
                raise HsimhashError(f"{self._stage.url}/{file.name} {found}; the same command stages it again")

    def _has_all(self, files: Sequence[StagedFile], stamp: int) -> bool:
        """Whether the first and the last cell of each file are in the table, as the load or a later write has them."""
        for family in {file.family for file in files}:
            keys = [key for file in files if file.family == family for key in file.ends()]
            for part in slices(len(keys), ASKED_AT_ONCE):
                cells = self._gateway.get(keys[part], family)
                if not all(cell is not None and cell.timestamp >= stamp for cell in cells):
                    return False
        return True
