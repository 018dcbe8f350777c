"""Manage the results folder: all files appear at the end, one after another, with `stats.json` last.

| file | content |
|---|---|
| `pairs` | left id, right id, distance: a kept document and a document dropped for it; or all near pairs |
| `clusters` | id, cluster, kept, kept id, distance to it, size, diameter: a row for every document |
| `matches` | id, old id, distance, first seen: near documents in a stored index |
| `keep.txt`, `drop.txt` | ids, one per line |
| `rejects.jsonl`, `short.jsonl` | invalid records; texts with too few features or none at all |
| `report.html` | a report for human readers |
| `stats.json` | counts, options, times; appears after everything else |
| `.dedup.new/` | lock and files of a running process, or the files of an unfinished run if the lock is free |

Tables are `.parquet` or `.jsonl`. If documents have sketches or keys, the tables of pairs and matches also have the
similarity (null if a sketch is missing) and how the pair was found: `distance`, `key`, or `chain` if only other
documents connect the two.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hsimhash.errors import HsimhashError, Remedy
from hsimhash.files import file_errors, make_folder, sync_file, sync_folder
from hsimhash.locks import HeldLock, lock_or_refuse

STATS, REPORT = "stats.json", "report.html"
KEEP, DROP = "keep.txt", "drop.txt"
REJECTS, SHORT = "rejects.jsonl", "short.jsonl"
TABLES = ("pairs", "clusters", "matches")
DEDUP_AGAIN = Remedy("call dedup again", "run 'hsimhash dedup' again")
SUFFIXES = (".parquet", ".jsonl")
_NEW, _LOCK = ".dedup.new", "lock"
NAMES = (
    *(f"{table}{suffix}" for table in TABLES for suffix in SUFFIXES),
    *(KEEP, DROP, REJECTS, SHORT, REPORT, STATS),
)
output_errors = partial(
    file_errors, kind=HsimhashError, advice=" or choose another folder, and run the same command again"
)


@contextmanager
def output_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Provide a temporary folder for results; if the block ends without an error, move them to `path`.

    `path` is created if needed; files of an unfinished run are deleted.

    Raises:
        ValueError: `path` has results, or other files with the same names, and `overwrite` is false.
        StoreBusyError: Another process is working in the folder.
        HsimhashError: The folder cannot be created or written.
    """
    new = path / _NEW
    with output_errors(path):
        lock = _locked(path, new, overwrite=overwrite)
    with lock:
        try:
            yield new
            made = [name for name in NAMES if (new / name).exists()]
            with output_errors(path):
                for name in made:
                    sync_file(new / name)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        with output_errors(path):
            _give_names(path, new, made)  # if it fails, `new` remains to mark incomplete results
        shutil.rmtree(new, ignore_errors=True)


def _locked(path: Path, new: Path, *, overwrite: bool) -> HeldLock:
    """Lock the folder, and delete the files of an unfinished run."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is not a folder; choose another name for the results")
    is_unfinished = new.exists()
    _refuse_results(path, () if overwrite else (STATS,) if is_unfinished else NAMES)
    make_folder(path)
    new.mkdir(exist_ok=True)
    lock = lock_or_refuse(new / _LOCK, f"is working in {path}", "choose another folder")
    try:
        _refuse_results(path, () if overwrite else (STATS,))  # another run may have finished in the meantime
        for name in NAMES if is_unfinished and not (path / STATS).exists() else ():
            (path / name).unlink(missing_ok=True)
        for left in new.iterdir():
            if left.name != _LOCK:
                left.unlink()
    except BaseException:
        lock.close()
        raise
    return lock


def _give_names(path: Path, new: Path, made: Sequence[str]) -> None:
    (path / STATS).unlink(missing_ok=True)
    sync_folder(path)
    for name in NAMES:
        if name == STATS:
            sync_folder(path)  # everything else must be durable before the file that marks completion
        if name in made:
            (new / name).replace(path / name)
        else:
            (path / name).unlink(missing_ok=True)
    sync_folder(path)


def _refuse_results(path: Path, names: Sequence[str]) -> None:
    found = [name for name in names if (path / name).exists()]
    if found:
        raise ValueError(
            f"{path / found[-1]} already exists; "
            + Remedy(
                "pass overwrite=True to replace it and the other results",
                "use --overwrite to replace it and the other results",
            )
        )


def table_in(folder: Path, table: str) -> Path:
    """Return the path of a table of results; raise `ValueError` if the results are not complete."""
    if not (folder / STATS).is_file():
        raise ValueError(f"{folder} does not contain complete dedup results: {STATS} is missing; " + DEDUP_AGAIN)
    found = [path for suffix in SUFFIXES if (path := folder / f"{table}{suffix}").is_file()]
    if not found:
        raise ValueError(f"{folder} does not contain {table}{' or '.join(SUFFIXES)}; " + DEDUP_AGAIN)
    return found[0]
