"""A bulk load by HFiles: sorted runs become finished files, region by region, that HBase's own program loads.

1. *begin*: a cell beside the record says so; its time, a server's, is the timestamp of all cells of the load. So what
   others write meanwhile wins. From then on nothing so young is collected (`protocol.py`).
2. *resolve*: of an id that occurs in several documents the last counts. What the table has already is left out, and
   what it has otherwise gets the register that follows.
3. *files*: worker processes prepare the runs and write the regions' files (`region_files.py`).
4. *rows*: drawer rows and listings are loaded. 5. *registers*: then the registers. So the invariant of `protocol.py`
   holds at every moment. After each load the first and the last row of all files are looked up in the table.

`staged.json` beside the runs says how far it came, `files.jsonl` which regions have their files; the stage's manifest
is for people and other programs. What was killed continues with the stage that was begun, and with the regions that
lack files. To load a file twice changes nothing: its cells are the same.
"""

from __future__ import annotations

import json
import shlex
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hsimhash.errors import HsimhashError, StopAskedError, StoreUnavailableError
from hsimhash.files import AppendLog, file_errors, write_json
from hsimhash.fingerprint.bits import Bools
from hsimhash.processes import Workers
from hsimhash.store.facts import Progress
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.batches import slices
from hsimhash.store.hbase.cells import TABLE_START, TABLE_STOP, Register, register_key
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY
from hsimhash.store.hbase.load_tool import load_words, run_load
from hsimhash.store.hbase.protocol import Writes, begin_load, end_load, loads_begun
from hsimhash.store.hbase.region_files import (
    KNOWN,
    REGISTERS,
    ROWS,
    FilesJob,
    StagedFile,
    cuts,
    file_settings,
    needed_bytes,
    sort_registers,
    sort_rows,
    write_region,
)
from hsimhash.store.hbase.stage import MANIFEST, open_stage
from hsimhash.store.hbase.table import described
from hsimhash.store.runs import BulkLoad, Found, StageOptions, resolve, signatures_of

T = TypeVar("T")

RESOLVED_AT_ONCE = 200_000  # documents
ASKED_AT_ONCE = 5_000  # registers of known documents
_ONE_DISK_BYTES = 1 << 24  # two places whose free bytes differ by less lie on one disk
_STATE, _FILES, _LOG = "staged.json", "files.jsonl", "load.log"


@dataclass(frozen=True, slots=True)
class _LoadState:
    """How far a load came: `stage` is the next thing to do; `is_begun`, whether its program may have been run.

    `is_told`: others were told to run the programs. `added`: how many documents are new or changed, once it is known.
    """

    runs: int
    stamp: int
    regions: tuple[tuple[str, str], ...]  # start and stop, as hexadecimal digits
    stage: str = "resolve"
    added: int = 0
    is_begun: bool = False
    is_told: bool = False
    token: str = field(default_factory=lambda: uuid.uuid4().hex)


class StagedLoad(BulkLoad):
    """A bulk load by HFiles; see `BulkLoad` and the module's text.

    Args:
        writes: to the table.
        address: of the table.
        folder: of the runs.
        options: see there.
    """

    def __init__(self, writes: Writes, address: Address, folder: Path, options: StageOptions) -> None:
        super().__init__(folder, has_signatures=writes.record.has_signatures)
        self._writes, self._gateway, self._record = writes, writes.gateway, writes.record
        self._address, self._options = address, options
        self._stage = open_stage(options.stage)
        self._state_path = folder / _STATE
        self._verify_stage(self._read_state())

    def expect(self, documents: int, id_bytes: int) -> None:
        """See `BulkLoad.expect`; the runs are here, the files in the stage."""
        runs, files = needed_bytes(documents, id_bytes, len(self._record.layout.drawers))
        here, there = shutil.disk_usage(self.folder).free, self._stage.free_bytes()
        is_one_disk = there is not None and abs(here - there) < _ONE_DISK_BYTES
        for place, free, needed in (
            (self.folder, here, runs + files if is_one_disk else runs),
            (self._stage.url, there, files),
        ):
            if free is not None and free < needed:
                raise StoreUnavailableError(
                    f"{place} has {free >> 20:,} MiB free; about {documents:,} documents take {needed >> 20:,}; free "
                    f"the disk, or choose another --job or --stage"
                )

    def merge(self, *, progress: Progress | None = None, stop: Callable[[], bool] | None = None) -> int | None:
        """Write all files, and have them loaded; see `BulkLoad.merge`. None too where the commands were only told."""
        tell = progress or (lambda *_: None)
        try:
            with file_errors(self.folder):
                return self._work(tell, stop or (lambda: False))
        except StopAskedError:
            return None

    def _work(self, tell: Progress, stop: Callable[[], bool]) -> int | None:
        state = self._read_state()
        if state is None or state.runs != self.runs:
            state = self._begin(state)
        if state.stage == "resolve":
            state = self._save(replace(state, stage="files", added=self._resolve(state)))
        if state.stage == "files":
            files = self._write_files(state, tell, stop)
            self._write_manifest(state, files)
            state = self._save(replace(state, stage=ROWS))
        for stage, following in ((ROWS, REGISTERS), (REGISTERS, "end")):
            if state.stage == stage:
                if not self._load(state, stop):
                    return None
                state = self._save(replace(state, stage=following, is_begun=False))
        end_load(self._gateway, state.token, state.stamp)
        self._delete_files()
        return state.added

    # How far it came.

    def _read_state(self) -> _LoadState | None:
        if not self._state_path.exists():
            return None
        fields = json.loads(self._state_path.read_text())
        return _LoadState(**{**fields, "regions": tuple(map(tuple, fields["regions"]))})

    def _save(self, state: _LoadState) -> _LoadState:
        write_json(self._state_path, asdict(state))
        return state

    def _verify_stage(self, state: _LoadState | None) -> None:
        """Raise `HsimhashError` where the stage has files that are not this load's, or cannot be written."""
        stage = self._stage
        with file_errors(self.folder):
            manifest = stage.manifest()
        token = manifest.get("token") if manifest is not None else None
        if not stage.is_empty() and (manifest is None or (manifest["files"] and token != (state and state.token))):
            whose = "files that are no stage of hsimhash"
            if manifest is not None:
                whose = (
                    f"the stage of another load, of {manifest['documents']:,} documents for {manifest['table']} with "
                    f"layout {manifest['layout']} and profile {manifest['profile']}"
                )
            raise HsimhashError(
                f"stage {stage.url} has {whose}; finish that load, or choose another --stage, or delete this one"
            )
        if manifest is None:
            stage.write_manifest({"token": "", "files": []})  # so that a folder that cannot be written is known now

    def _begin(self, before: _LoadState | None) -> _LoadState:
        if before is not None:
            self._forget(before)
        token = uuid.uuid4().hex
        regions = tuple((one.start.hex(), one.stop.hex()) for one in self._gateway.regions())
        return self._save(_LoadState(self.runs, begin_load(self._gateway, token), regions, token=token))

    def _forget(self, state: _LoadState) -> None:
        end_load(self._gateway, state.token, state.stamp)
        self._forget_merge()

    def _forget_merge(self) -> None:
        for name in (_STATE, _FILES):
            (self.folder / name).unlink(missing_ok=True)
        self._delete_files()

    def _delete_files(self) -> None:
        for name in (ROWS, REGISTERS):
            self._stage.delete(name)
        self._stage.write_manifest({"token": "", "files": []})

    def delete(self) -> None:
        """Remove the runs; a load that was begun is forgotten."""
        state = self._read_state()
        if state is not None:
            end_load(self._gateway, state.token, state.stamp)
        self._stage.delete(MANIFEST)
        super().delete()

    # What is loaded.

    def _resolve(self, state: _LoadState) -> int:
        """Write what each run keeps, and what the table knows of it; return how many documents are new or changed."""
        self._options.say("comparing with the table")
        for run in self._runs:
            (run.folder / "known").unlink(missing_ok=True)
        if self._options.is_first or not self._gateway.rows(TABLE_START, TABLE_STOP, DOCUMENT_FAMILY, limit=1):
            return resolve(self._runs, RESOLVED_AT_ONCE, lambda found: np.ones(len(found.runs), np.bool_))
        known = [np.memmap(run.folder / "known", KNOWN, "w+", shape=run.size) for run in self._runs]
        added = 0

        def changes(found: Found) -> Bools:
            nonlocal added
            is_change = np.ones(len(found.runs), np.bool_)
            for part in slices(len(found.runs), ASKED_AT_ONCE):
                is_change[part], news = self._compare(found, part, known, state)
                added += news
            return is_change

        resolve(self._runs, RESOLVED_AT_ONCE, changes)
        for array in known:
            array.flush()
        return added

    def _compare(
        self, found: Found, part: slice, known: Sequence[np.memmap[Any, Any]], state: _LoadState
    ) -> tuple[list[bool], int]:
        """Tell of each document whether it is written, and how many of them are new or changed."""
        numbers, places = found.runs[part].tolist(), found.places[part].tolist()
        ids = [b""] * len(numbers)
        for number in set(numbers):
            own = np.flatnonzero(found.runs[part] == number)
            for place, doc_id in zip(own.tolist(), self._runs[number].ids_at(found.places[part][own]), strict=True):
                ids[place] = doc_id
        cells = self._gateway.get([register_key(doc_id) for doc_id in ids], DOCUMENT_FAMILY)
        registers = found.registers[part]
        signatures, seen = signatures_of(registers), registers["first_seen"].tolist()
        written, added = [], 0
        for cell, signature, first_seen, number, place in zip(cells, signatures, seen, numbers, places, strict=True):
            register = Register() if cell is None else Register.from_bytes(cell.value)
            is_news = register.signature != signature
            # What was written since the load began wins.
            is_written = cell is None or (
                cell.timestamp < state.stamp and (is_news or self._is_old(cell.timestamp, state))
            )
            if cell is not None and is_written:
                after = register.filed(signature, first_seen)
                known[number][place] = after.first_seen, after.changes % (1 << 32)
            written.append(is_written)
            added += is_written and is_news
        return written, added

    def _is_old(self, timestamp: int, state: _LoadState) -> bool:
        """Whether rows may go before their register: with a TTL they are written again."""
        ttl_s = self._writes.times.ttl_s
        return ttl_s is not None and state.stamp - timestamp > ttl_s * 1_000 / 2

    # Files.

    def _write_files(self, state: _LoadState, tell: Progress, stop: Callable[[], bool]) -> list[StagedFile]:
        table = described(self._gateway)
        folders = tuple(run.folder for run in self._runs)
        settings = file_settings(table.families if table else ())
        job = FilesJob(folders, self._record, self._options.stage, state.stamp, settings, self._options.limits)
        documents = sum(run.size for run in self._runs)
        found, log = self._staged()
        regions = [(bytes.fromhex(start), bytes.fromhex(stop)) for start, stop in state.regions]
        left = [number for number in range(len(regions)) if number not in found]
        try:
            with Workers(self._options.workers) as workers:
                self._options.say("sorting")
                sorting = [workers.submit(sort_rows, folder, self._record) for folder in folders]
                sorting += [workers.submit(sort_registers, folder) for folder in folders]
                for _ in _done(sorting, stop):
                    pass
                cut = cuts(self._runs, self._record, job.limits)
                tasks = [workers.submit(_numbered, number, job, regions[number], cut) for number in left]
                for number, files in _done(tasks, stop):
                    found[number] = files
                    log.append([json.dumps([number, files])])
                    log.sync()
                    tell(documents * len(found) // len(regions), documents)
        except BrokenProcessPool as error:
            raise HsimhashError("a worker died, perhaps for want of memory; allow less with --memory") from error
        finally:
            log.close()
        return [file for number in sorted(found) for file in found[number]]

    def _staged(self) -> tuple[dict[int, list[StagedFile]], AppendLog]:
        """Return the files of the regions that have theirs, and the log to which others are added."""
        path, found, size = self.folder / _FILES, dict[int, list[StagedFile]](), 0
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                number, files = json.loads(line)
                found[number], size = [StagedFile(*file) for file in files], size + len(line)
        return found, AppendLog(path, size)

    def _write_manifest(self, state: _LoadState, files: Sequence[StagedFile]) -> None:
        self._stage.write_manifest(
            {
                "version": 1,
                "token": state.token,
                "table": str(self._address),
                "layout": self._record.layout.name,
                "profile": self._record.profile["name"],
                "documents": state.added,
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
        self._verify_begun(state)
        files = self._files_of(state.stage)
        there = [file for file in files if self._stage.size(file.name) is not None]
        self._verify_sizes(state, files)
        if there and self._options.tell_commands and not (state.is_told and self._has_all(files)):
            self._save(replace(state, is_told=True))
            folders = (ROWS, REGISTERS) if state.stage == ROWS else (REGISTERS,)
            self._options.tell_commands(
                [
                    shlex.join(load_words(self._options.command, f"{self._stage.url}/{name}", self._address))
                    for name in folders
                ]
            )
            return False
        if there and not self._options.tell_commands:
            self._save(replace(state, is_begun=True))
            self._options.say(f"loading {state.stage}")
            words = load_words(self._options.command, f"{self._stage.url}/{state.stage}", self._address)
            run_load(words, self.folder / _LOG, stop)
            self._verify_begun(state)
        if not self._has_all(files):
            self._forget(state)
            raise HsimhashError(
                f"the files in {self._stage.url}/{state.stage} are gone, but not all that they held is in the table; "
                f"the same command stages it again"
            )
        return True

    def _verify_begun(self, state: _LoadState) -> None:
        """Raise `HsimhashError` where collection no longer waits for this load: its rows may be gone."""
        if loads_begun(self._gateway).get(state.token) != state.stamp:
            self._forget_merge()
            raise HsimhashError(
                f"stage {self._stage.url} is older than the index's last collection, which did not wait for it any "
                f"more; the same command stages it again"
            )

    def _files_of(self, stage: str) -> list[StagedFile]:
        found, log = self._staged()
        log.close()
        return [file for files in found.values() for file in files if file.name.startswith(f"{stage}/")]

    def _verify_sizes(self, state: _LoadState, files: Sequence[StagedFile]) -> None:
        """Raise `HsimhashError` where a file has not as many bytes as were written, or is missing before any load."""
        for file in files:
            size = self._stage.size(file.name)
            if size != file.size and not (size is None and (state.is_begun or state.is_told)):
                found = "is missing" if size is None else f"has {size:,} bytes instead of {file.size:,}"
                self._forget(state)
                raise HsimhashError(f"{self._stage.url}/{file.name} {found}; the same command stages it again")

    def _has_all(self, files: Sequence[StagedFile]) -> bool:
        """Whether the first and the last row of each file are in the table."""
        for family in (b"f", b"d"):
            rows = [bytes.fromhex(row) for file in files if f"/{family.decode()}/" in file.name for row in file[-2:]]
            for part in slices(len(rows), 1_000):
                if not all(self._gateway.cells_of(rows[part], family, limit=1)):
                    return False
        return True


def _numbered(number: int, job: FilesJob, region: tuple[bytes, bytes], cut: Any) -> tuple[int, list[StagedFile]]:
    return number, write_region(job, number, region, cut)


def _done(tasks: Sequence[Future[T]], stop: Callable[[], bool]) -> Iterator[T]:
    """Yield results as they come; `StopAskedError` as soon as `stop` says so."""
    left = set(tasks)
    while left:
        if stop():
            raise StopAskedError("asked to end between two regions")
        done, left = wait(left, timeout=1, return_when=FIRST_COMPLETED)
        for task in done:
            yield task.result()
