"""The folder of results: all of them appear at the end, one after the other, `stats.json` last.

| file | what |
|---|---|
| `pairs` | left id, right id, distance: near documents |
| `clusters` | id, cluster, kept, kept id, distance to it, size, diameter: every document |
| `matches` | id, old id, distance, first seen: near documents of a stored index |
| `keep.txt`, `drop.txt` | ids, one a line |
| `rejects.jsonl`, `short.jsonl` | records that are no documents; texts with too few features, or none |
| `report.html` | for people |
| `stats.json` | counts, options, times; it is there only when everything else is |
| `.dedup.lock` | held by the process at work; a folder that has one without a holder was left unfinished |
| `.dedup.new/` | what that process writes |

Tables are `.parquet` or `.jsonl`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hsimhash.errors import HsimhashError, StoreBusyError
from hsimhash.files import file_errors, make_folder, sync_file, sync_folder
from hsimhash.locks import HeldLock, holder_of, take_lock

STATS, REPORT = "stats.json", "report.html"
KEEP, DROP = "keep.txt", "drop.txt"
REJECTS, SHORT = "rejects.jsonl", "short.jsonl"
TABLES = ("pairs", "clusters", "matches")
SUFFIXES = (".parquet", ".jsonl")
_LOCK, _NEW = ".dedup.lock", ".dedup.new"
NAMES = (
    *(f"{table}{suffix}" for table in TABLES for suffix in SUFFIXES),
    *(KEEP, DROP, REJECTS, SHORT, REPORT, STATS),
)
output_errors = partial(
    file_errors, kind=HsimhashError, advice=" or choose another folder, and run the same command again"
)


class OutputFolder:
    """The folder while a process works in it; `new` is where it writes. Made by `begin`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.new = path / _NEW
        self._lock: HeldLock | None = None
        self._is_half_done = False

    @classmethod
    @contextmanager
    def begin(cls, path: Path, *, overwrite: bool) -> Iterator[OutputFolder]:
        """Take the folder, made if there is none; what an unfinished run left is deleted.

        Raises:
            ValueError: there are results, or other files of their names, and `overwrite` is false.
            StoreBusyError: another process works in it.
            HsimhashError: it cannot be made or written.
        """
        folder = cls(path)
        with output_errors(path):
            folder._take(overwrite=overwrite)
        try:
            yield folder
        finally:
            folder._leave()

    def _take(self, *, overwrite: bool) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is no folder; choose another name for the results")
        is_unfinished = (self.path / _LOCK).exists()
        if not overwrite and not is_unfinished:
            self._refuse_results(NAMES)
        make_folder(self.path)
        self._lock = take_lock(self.path / _LOCK)
        if self._lock is None:
            raise StoreBusyError(
                f"process {holder_of(self.path / _LOCK)} works in {self.path}; wait for it to end, or choose another "
                f"folder"
            )
        try:
            if not overwrite:
                self._refuse_results((STATS,))
            self._clear(has_parts=is_unfinished and not (self.path / STATS).exists())
        except BaseException:
            self._leave()
            raise

    def _clear(self, *, has_parts: bool) -> None:
        """Delete what an unfinished run left; `has_parts` of results that it was giving their names."""
        for name in NAMES if has_parts else ():
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.new, ignore_errors=True)
        self.new.mkdir()

    def _leave(self) -> None:
        shutil.rmtree(self.new, ignore_errors=True)
        if not self._is_half_done:
            (self.path / _LOCK).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def _refuse_results(self, names: Sequence[str]) -> None:
        found = [name for name in names if (self.path / name).exists()]
        if found:
            raise ValueError(f"{self.path / found[-1]} is there already; --overwrite replaces it and what is with it")

    def finish(self) -> None:
        """Give all that is in `new` its name."""
        with output_errors(self.path):
            made = [name for name in NAMES if (self.new / name).exists()]
            for name in made:
                sync_file(self.new / name)
            self._is_half_done = True
            (self.path / STATS).unlink(missing_ok=True)
            sync_folder(self.path)
            for name in NAMES:
                if name in made:
                    (self.new / name).replace(self.path / name)
                else:
                    (self.path / name).unlink(missing_ok=True)
                if name == REPORT:
                    sync_folder(self.path)  # before the mark of completion
            sync_folder(self.path)
            self._is_half_done = False


def table_in(folder: Path, table: str) -> Path:
    """Return the path of a table of results; `ValueError` where there are no complete results."""
    if not (folder / STATS).is_file():
        raise ValueError(f"{folder} has no {STATS}: no results of 'hsimhash dedup', or it did not finish; run it again")
    found = [path for suffix in SUFFIXES if (path := folder / f"{table}{suffix}").is_file()]
    if not found:
        raise ValueError(f"{folder} has no table {table}{' or '.join(SUFFIXES)}; run 'hsimhash dedup' again")
    return found[0]
