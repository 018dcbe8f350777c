"""The steps of a bulk load via HFiles, for all code that writes them: state, stage, and loading.

1. *begin*: the load claims the stage, and records its start in a cell next to the index record. All of the load's cells
   get the timestamp that the server gave this cell, so that later changes by other writers take precedence. Until the
   load ends, cells with this timestamp or a later one are not collected (`protocol.py`).
2. Files are written: by `local_load.py` from sorted runs, or by `hsimhash/spark/bulk_loading.py` on Spark.
3. *rows*: drawer rows and listings are loaded.
4. *registers*: the registers are loaded after the rows, so that the invariant in `protocol.py` always holds. After each
   of the last two steps, the first and the last cell of every file are looked up in the table.

The stage's manifest records its owner and contents; `{}` means no owner. A killed load continues with the step that it
had begun. Loading a file twice changes nothing, because its cells are the same.
"""

from __future__ import annotations

import shlex
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hsimhash.errors import OTHER_STAGE, HsimhashError, Remedy, StopAskedError
from hsimhash.progress import Observer
from hsimhash.store.base import Record
from hsimhash.store.hbase.files.load_tool import load_words, only_one, run_load
from hsimhash.store.hbase.files.region_writer import REGISTERS, ROWS, FileForm, RegionRows, StagedFile, file_settings
from hsimhash.store.hbase.files.stage import MANIFEST, Stage, open_stage
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Gateway
from hsimhash.store.hbase.gateway.batches import slices
from hsimhash.store.hbase.gateway.table import described
from hsimhash.store.hbase.rows.cells import TABLE_START, TABLE_STOP
from hsimhash.store.hbase.rows.protocol import begin_load, end_load, loads_begun
from hsimhash.store.hbase.upkeep.range_jobs import whole_table
from hsimhash.store.runs import StageOptions

FILE_BYTES = 10 << 30  # approximate file size; HBase splits a larger region (hbase.hregion.max.filesize)
ENDS_AT_ONCE = 5_000  # first and last cells of files to look up in one call


@dataclass(frozen=True, slots=True)
class LoadState:
    """The state of a load.

    Attributes:
        token: Token of the cell that marks the load as in progress.
        stage: Next step: "begin", "resolve", "files", "rows", "registers" or "end".
        runs: Number of runs when it began, if it has runs.
        stamp: Time at which it began, in ms since 1970.
        regions: Start and stop of each region, as hexadecimal digits.
        kept: Number of documents to write.
        added: Number of these that are new or changed.
        is_begun: Whether the program that loads the files of `stage` may have been run.
        is_told: Whether operators were given the commands to run it.
        is_repeated: Whether registers of an earlier attempt may be in the table without their rows.
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

    @classmethod
    def of(cls, fields: dict[str, Any]) -> LoadState:
        """Return the state from the JSON values of `asdict`."""
        return cls(**{**fields, "regions": tuple(map(tuple, fields["regions"]))})

    def region_rows(self) -> list[RegionRows]:
        """Return the regions with their numbers and rows."""
        pairs = enumerate(self.regions)
        return [RegionRows(number, bytes.fromhex(start), bytes.fromhex(stop)) for number, (start, stop) in pairs]


class StateKeeper(ABC):
    """Stores the state of a load.

    Attributes:
        job: Name of the load's owner in the stage's manifest.
        log: File for the output of HBase's program. A lock in the same folder keeps two such programs from running at
            once.
    """

    job: str
    log: Path

    @abstractmethod
    def read(self) -> LoadState | None:
        """Return the last written state, or None if there is none."""

    @abstractmethod
    def write(self, state: LoadState) -> None:
        """Write a state; durable on return."""

    @abstractmethod
    def cleared(self, state: LoadState) -> dict[str, object]:
        """Return the manifest for a stage whose files have been deleted, given the load's state."""

    @abstractmethod
    def folder(self, token: str) -> str:
        """Return the stage's folder for the load's files: "", or a name that ends in a slash."""


class LoadSteps:
    """The steps of one load; see the module.

    Args:
        gateway: Gateway to the table.
        record: Index record.
        address: Address of the table.
        options: Options of the stage; see `StageOptions`.
        keeper: Storage for the load's state.
    """

    def __init__(
        self, gateway: Gateway, record: Record, address: Address, options: StageOptions, keeper: StateKeeper
    ) -> None:
        self.stage: Stage = open_stage(options.stage)
        self._gateway, self._record = gateway, record
        self._address, self._options, self._keeper = address, options, keeper

    # The load's progress, and the stage's owner.

    def read(self) -> LoadState | None:
        """Return the saved state."""
        return self._keeper.read()

    def save(self, state: LoadState) -> LoadState:
        """Save a state and return it."""
        self._keeper.write(state)
        return state

    def verify_stage(self) -> None:
        """Abandon a load of this job whose state is lost; raise `HsimhashError` if the stage cannot be used."""
        self.stage.claim()
        manifest, state = self.stage.manifest() or {}, self.read()
        if manifest and manifest.get("job") != self._keeper.job:
            raise HsimhashError(
                f"stage {self.stage.url} belongs to another load, for {manifest.get('table')} (layout "
                f"{manifest.get('layout')}, profile {manifest.get('profile')}, job {manifest.get('job')}); "
                f"finish that load, delete the stage, or " + OTHER_STAGE
            )
        if manifest and (state is None or state.token != manifest["token"]):
            end_load(self._gateway, str(manifest["token"]))
            self._clear_stage()

    def begin(self, before: LoadState | None, *, runs: int = 0) -> LoadState:
        """Begin a load; store its token in the state and in the stage before the table has it."""
        self.verify_stage()
        if before is not None:
            before = self.give_up(before)
        state = self.save(LoadState(uuid.uuid4().hex, is_repeated=before is not None and before.is_repeated))
        self._clear_stage(state)
        self.write_manifest(state)
        regions = tuple((one.start.hex(), one.stop.hex()) for one in whole_table(self._gateway))
        stamp = begin_load(self._gateway, state.token)
        return self.save(replace(state, stage="resolve", runs=runs, stamp=stamp, regions=regions))

    def give_up(self, state: LoadState) -> LoadState:
        """Abandon a load; return and save a state that only records whether its registers may be in the table."""
        end_load(self._gateway, state.token)
        is_repeated = state.is_repeated or state.is_told or (state.stage == REGISTERS and state.is_begun)
        forgotten = LoadState("", is_repeated=is_repeated)
        self._clear_stage(forgotten)
        return self.save(forgotten)

    def end(self, state: LoadState) -> None:
        """Record that everything is loaded, and release the stage."""
        end_load(self._gateway, state.token)
        self._clear_stage()

    def release_stage(self) -> None:
        """Delete the manifest of a stage without an owner."""
        if not self.stage.manifest():
            self.stage.delete(MANIFEST)

    def _clear_stage(self, state: LoadState | None = None) -> None:
        """Delete all files in the stage unless another job owns it; without a state, also release it."""
        manifest = self.stage.manifest() or {}
        if manifest and manifest.get("job") != self._keeper.job:
            return
        own = self._keeper.folder(str(manifest.get("token", "")))
        for name in (ROWS, REGISTERS, own.rstrip("/")):
            if name:
                self.stage.delete(name)
        self.stage.write_manifest({} if state is None else self._keeper.cleared(state))

    def write_manifest(self, state: LoadState, files: Sequence[StagedFile] = ()) -> None:
        """Record the stage's owner and contents in its manifest."""
        self.stage.write_manifest(
            {
                "version": 1,
                "token": state.token,
                "job": self._keeper.job,
                "table": str(self._address),
                "layout": self._record.layout.name,
                "profile": self._record.profile["name"],
                "documents": state.kept,
                "stamp": state.stamp,
                "regions": state.regions,
                "rows": sum(file.cells for file in files),
                "bytes": sum(file.size for file in files),
                "files": [file._asdict() for file in files],
                "state": asdict(state),
            }
        )

    # For the code that writes files.

    def has_documents(self) -> bool:
        """Whether the table may already have some of the documents."""
        is_there = self._gateway.rows(TABLE_START, TABLE_STOP, DOCUMENT_FAMILY, limit=1)
        return bool(is_there) and not self._options.is_first

    def form(self, state: LoadState) -> FileForm:
        """Return the form of the files, according to the table's settings."""
        return FileForm(file_settings(described(self._gateway)), state.stamp, FILE_BYTES)

    def verify_files(self, state: LoadState, files: Sequence[StagedFile]) -> None:
        """Raise `HsimhashError` unless each of the documents to write has a register in the files."""
        registers = sum(file.cells for file in self._files_in(REGISTERS, state, files))
        if registers != state.kept:
            raise HsimhashError(
                f"{registers:,} registers were written for {state.kept:,} documents: this is a bug; nothing was loaded"
            )

    # Loading.

    def load_all(self, state: LoadState, files: Sequence[StagedFile], observer: Observer) -> LoadState | None:
        """Load all complete files in the stage; return the final state, or None if operators must load the files.

        Raises:
            StopAskedError: The observer requested a stop.
            HsimhashError: The stage or the load has changed, or HBase's program failed. The message describes what
                running the same command again will do.
        """
        for stage, following in ((ROWS, REGISTERS), (REGISTERS, "end")):
            if state.stage == stage:
                if not self._load(state, files, observer):
                    return None
                state = self.save(replace(state, stage=following, is_begun=False))
        return state

    def _load(self, state: LoadState, all_files: Sequence[StagedFile], observer: Observer) -> bool:
        """Load the stage's files for the current step; return False if operators must load them."""
        log, files = self._keeper.log, self._files_in(state.stage, state, all_files)
        with only_one(log.parent, log, observer.stop) as lock:
            if observer.stop():
                raise StopAskedError("stopped before the files were loaded")
            self.verify_begun(state)
            self._verify_sizes(state, files)
            is_there = self._is_any_there(files)
            if is_there and self._options.tell_commands and not (state.is_told and self._has_all(files, state.stamp)):
                self.save(replace(state, is_told=True))
                if state.stage == ROWS and self._has_all(self._files_in(REGISTERS, state, all_files), state.stamp):
                    observer.say("the registers are loaded, but the rows are not: run the first command now")
                self._options.tell_commands(self._commands(state))
                return False
            if is_there and not self._options.tell_commands:
                state = self.save(replace(state, is_begun=True))
                observer.say(f"loading {state.stage}")
                run_load(self._words(state, state.stage), log, lock)
                self.verify_begun(state)
                is_there = self._is_any_there(files)
            if not self._has_all(files, state.stamp):
                self._refuse(state, is_there=is_there)
        return True

    def _refuse(self, state: LoadState, *, is_there: bool) -> None:
        """Raise `HsimhashError` because cells are missing from the table; abandon a load whose files are gone."""
        if is_there:
            raise HsimhashError(
                f"HBase's load program exited without an error, but not all of {self._place(state)} is in the "
                f"table; see {self._keeper.log}, and try again with another "
                + Remedy("command in StageOptions", "--hbase-command")
            )
        self.give_up(replace(state, is_begun=True))
        raise HsimhashError(
            f"the files in {self._place(state)} are gone, but not all of their cells are in the table; run the same "
            f"command to stage them again"
        )

    def _files_in(self, name: str, state: LoadState, files: Sequence[StagedFile]) -> list[StagedFile]:
        return [file for file in files if file.name.startswith(f"{self._keeper.folder(state.token)}{name}/")]

    def _is_any_there(self, files: Sequence[StagedFile]) -> bool:
        return any(self.stage.size(file.name) is not None for file in files)

    def _place(self, state: LoadState, name: str = "") -> str:
        return f"{self.stage.url}/{self._keeper.folder(state.token)}{name or state.stage}"

    def _words(self, state: LoadState, name: str) -> list[str]:
        return load_words(self._options.command, self._place(state, name), self._address)

    def _commands(self, state: LoadState) -> list[str]:
        """Return shell lines, each of which runs only if the previous one succeeds."""
        names = (ROWS, REGISTERS)[state.stage == REGISTERS :]
        lines = [shlex.join(self._words(state, name)) for name in names]
        return [*(f"{line} &&" for line in lines[:-1]), lines[-1]]

    def verify_begun(self, state: LoadState) -> None:
        """Raise `HsimhashError` if collection no longer waits for this load, so that its rows may be gone."""
        manifest = self.stage.manifest() or {}
        if manifest.get("token") != state.token:
            raise HsimhashError(
                f"another load has claimed stage {self.stage.url} (job {manifest.get('job')}); "
                + Remedy("pass another stage and fresh=True", "choose another --stage and add --fresh")
            )
        if loads_begun(self._gateway).get(state.token) != state.stamp:
            self.give_up(replace(state, is_begun=True))
            raise HsimhashError(
                f"stage {self.stage.url} is too old: collection stopped waiting for it and may have deleted its rows; "
                f"run the same command to stage it again"
            )

    def _verify_sizes(self, state: LoadState, files: Sequence[StagedFile]) -> None:
        """Raise `HsimhashError` if a file does not have the size that was written, or is missing before loading."""
        for file in files:
            size = self.stage.size(file.name)
            if size != file.size and not (size is None and (state.is_begun or state.is_told)):
                found = "is missing" if size is None else f"has {size:,} bytes instead of {file.size:,}"
                self.give_up(state)
                raise HsimhashError(f"{self.stage.url}/{file.name} {found}; run the same command to stage it again")

    def _has_all(self, files: Sequence[StagedFile], stamp: int) -> bool:
        """Whether the first and last cells of all files are in the table, from this load or from a later write."""
        for family in {file.family for file in files}:
            keys = [key for file in files if file.family == family for key in file.ends()]
            for part in slices(len(keys), ENDS_AT_ONCE):
                cells = self._gateway.get(keys[part], family)
                if not all(cell is not None and cell.timestamp >= stamp for cell in cells):
                    return False
        return True
