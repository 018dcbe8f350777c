"""Write output files: a file appears when it is complete, and is compressed if its name says so."""

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
# Ends of names that promise a format which a program would read by them.
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
    """Raise if the suffix of `output`, passed with `option`, is of a format that is not among `writes`."""
    if (suffix := format_of(output)) in _PROMISING and suffix not in writes and not _is_pipe(output):
        raise click.BadParameter(
            f"cannot write {suffix} to {output}: expected a name that ends in {', '.join(writes)}",
            param_hint=f"'{option}'",
        )


def refuse_existing(output: str, option: str) -> None:
    """Raise if `output`, passed with `option`, is an existing file."""
    if output != "-" and Path(output).is_file():
        raise click.BadParameter(f"{output} already exists; --overwrite replaces it", param_hint=f"'{option}'")


@contextmanager
def written(output: str) -> Iterator[Callable[[bytes], object]]:
    """Give a stream that writes to `output`, compressed if the name says so; otherwise like `complete`."""
    suffix = "" if output == "-" or _is_pipe(output) else Path(os.path.realpath(output)).suffix
    with complete(output) as stream, _packed(stream, suffix) as write:
        yield write


@contextmanager
def complete(output: str) -> Iterator[BinaryIO]:
    """Give a stream for `output`; a file gets its name only if the block ends without an error."""
    if output == "-":
        with writing_stdout():
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()  # before anybody says that it is written
    elif _is_pipe(output):
        with naming(output), Path(output).open("wb") as stream:
            yield stream
    else:
        path = Path(os.path.realpath(output))
        part = path.with_name(f".{path.name}.{token_hex(4)}")  # a process number comes again, in containers at once
        with naming(output), _naming_part(part, output):
            part.touch(0o600 if path.exists() else 0o666, exist_ok=False)  # nobody else reads it before it is `path`
            with replace_file(path, part, _put) as stream:
                yield stream


def _put(part: Path, path: Path) -> None:
    """Give a complete file its name; or its content to the file that has the name, where that must stay the same."""
    with _keeping(part):
        if not path.exists() or (path.stat().st_nlink == 1 and copy_owner(path, part)):
            part.replace(path)
        else:
            with part.open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())
            part.unlink()
    with suppress(PermissionError):  # a folder that may be written but not listed
        sync_folder(path.parent)


@contextmanager
def _keeping(part: Path) -> Iterator[None]:
    """Say where the complete part is when the block fails: the file that it was to be may be truncated by then."""
    kept = f"the complete content is in {part}"
    try:
        with naming(part, kept):
            yield
    except OSError:
        raise
    except BaseException:  # Ctrl-C, whose message is not ours
        say(kept)
        raise


@contextmanager
def _naming_part(part: Path, output: str) -> Iterator[None]:
    """Give errors that name the part the name of the file that it was to be."""
    try:
        yield
    except OSError as error:
        if error.filename == str(part):
            error.filename = output
        raise


def _is_pipe(output: str) -> bool:
    """Whether it is a pipe or a device, which cannot be renamed, and may have no path but this link."""
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
