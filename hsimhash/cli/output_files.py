"""Write output files: a file appears only when it is complete, and its name determines the compression."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

import click

from hsimhash.cli.console import say
from hsimhash.cli.standard_streams import writing_stdout
from hsimhash.files import copy_owner, naming, replace_file, sync_folder

JSON_LINES = (".jsonl", ".ndjson", ".json")
PACKED_OUTPUTS = (".gz", ".zst")
# Suffixes from which programs infer the format of a file.
_PROMISING = (
    *(*JSON_LINES, ".tsv", ".csv", ".parquet", ".arrow", ".feather", ".orc", ".avro", ".xlsx", ".warc", ".wet"),
    *(".html", ".htm", ".xml", ".yaml", ".pickle", ".npy", ".npz", ".db", ".sqlite", ".bz2", ".xz", ".lz4", ".zip"),
)


def format_of(output: str) -> str:
    """Return the suffix of a file name in lower case, without a compression suffix; empty for stdout."""
    name = output.lower()
    packing = next((one for one in PACKED_OUTPUTS if name.endswith(one)), "")
    return "" if output == "-" else Path(name.removesuffix(packing)).suffix


def refuse_format(output: str, option: str, writes: Sequence[str]) -> None:
    """Raise if the suffix of `output`, the value of `option`, stands for a format that is not in `writes`."""
    if (suffix := format_of(output)) in _PROMISING and suffix not in writes and not _is_pipe(output):
        raise click.BadParameter(
            f"cannot write {suffix} to {output}: expected a name that ends in {', '.join(writes)}",
            param_hint=f"'{option}'",
        )


def refuse_existing(output: str, option: str) -> None:
    """Raise if `output`, the value of `option`, is an existing file."""
    if output != "-" and Path(output).is_file():
        raise click.BadParameter(f"{output} already exists; pass --overwrite to replace it", param_hint=f"'{option}'")


@contextmanager
def written(output: str) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that writes to `output`, compressed if it ends in .gz or .zst. Otherwise like `complete`."""
    suffix = "" if output == "-" or _is_pipe(output) else Path(os.path.realpath(output)).suffix
    with complete(output) as stream, _packed(stream, suffix) as write:
        yield write


@contextmanager
def complete(output: str) -> Iterator[BinaryIO]:
    """Yield a stream for `output`. A file gets its name only if the block ends without an error."""
    if output == "-":
        with writing_stdout():
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()  # before success is reported
    elif _is_pipe(output):
        with naming(output), Path(output).open("wb") as stream:
            yield stream
    else:
        path = Path(os.path.realpath(output))
        # Not the process id: ids are reused, and processes in two containers can have the same one.
        part = path.with_name(f".{path.name}.{token_hex(4)}")
        with naming(output), _naming_part(part, output):
            part.touch(0o600 if path.exists() else 0o666, exist_ok=False)  # private until it becomes `path`
            with replace_file(path, part, _put) as stream:
                yield stream


def _put(part: Path, path: Path) -> None:
    """Rename a complete file to `path`. If `path` has other links or an owner to keep, overwrite it."""
    with _keeping(part):
        if not path.exists() or (path.stat().st_nlink == 1 and copy_owner(path, part)):
            part.replace(path)
        else:
            with part.open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())
            part.unlink()
    with suppress(PermissionError):  # a folder that is writable but cannot be listed
        sync_folder(path.parent)


@contextmanager
def _keeping(part: Path) -> Iterator[None]:
    """If the block fails, report where the complete content is, because the target file may be truncated."""
    kept = f"the complete content is in {part}"
    try:
        with naming(part, kept):
            yield
    except OSError:
        raise
    except BaseException:  # Ctrl-C, whose message does not name the part
        say(kept)
        raise


@contextmanager
def _naming_part(part: Path, output: str) -> Iterator[None]:
    """In errors that name the part, replace its name with that of the output."""
    try:
        yield
    except OSError as error:
        if error.filename == str(part):
            error.filename = output
        raise


def _is_pipe(output: str) -> bool:
    """Whether the output is a pipe or device, which cannot be replaced and may be reachable only through this link."""
    return Path(output).exists() and not Path(output).is_file()


@contextmanager
def _packed(stream: BinaryIO, suffix: str) -> Iterator[Callable[[bytes], object]]:
    if suffix == ".gz":
        with gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as packed:
            yield packed.write
    elif suffix == ".zst":
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as packed:
            yield packed.write
    else:
        yield stream.write
