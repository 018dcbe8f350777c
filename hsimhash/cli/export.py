"""`hsimhash export`: all documents of an index, such that `ingest` makes the same index of them."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import click

from hsimhash.cli.console import plural, say, staged_progress
from hsimhash.cli.exits import naming
from hsimhash.cli.options import open_index, with_settings
from hsimhash.store import Document

if TYPE_CHECKING:
    from hsimhash.settings import Settings

PROGRESS_DOCUMENTS = 10_000  # between two steps of the progress bar


class Sink(Protocol):
    """Where bytes can be written: a file, packed or not."""

    def write(self, data: bytes, /) -> object:
        """Write all of `data`."""


@click.command()
@click.option("--output", metavar="FILE", default="-", help="Packed where it ends in .gz or .zst; - is stdout.")
@click.option("--overwrite", is_flag=True, help="Replace FILE where it is there already.")
@click.option("--format", "form", type=click.Choice(["jsonl", "tsv"]), help="By the name of FILE; else jsonl.")
@with_settings("store")
def export(settings: Settings, output: str, overwrite: bool, form: str | None) -> None:
    """Write a line for each document, in order of fingerprint and id.

    jsonl: {"id", "fingerprint": 16 hex digits, "first_seen": ms since 1970}. tsv: id, a tab, fingerprint. FILE appears
    only once it is complete. 'hsimhash ingest' with --fingerprint-field fingerprint makes an index of it; so does one
    of the tsv form, but every document is then first seen anew.

    \b
    Example: hsimhash export --output pages.jsonl.gz --store lmdb://pages
    """
    if output != "-" and Path(output).is_file() and not overwrite:
        raise click.BadParameter(f"{output} is there already; --overwrite replaces it", param_hint="'--output'")
    line_of = _tsv_line if (form or _form_of(output)) == "tsv" else _json_line
    with open_index(settings) as index, staged_progress("export") as tell, _written(output) as stream:
        done = 0
        for done, document in enumerate(index.documents(), start=1):
            stream.write(line_of(document))
            if done % PROGRESS_DOCUMENTS == 0:  # by the fingerprint: to count them first, HBase would read them all
                tell("export", document.fingerprint >> 32, 1 << 32, plural(done, "document"))
    say(f"exported {plural(done, 'document')}")


def _form_of(output: str) -> str:
    return "tsv" if Path(output.removesuffix(".gz").removesuffix(".zst")).suffix == ".tsv" else "jsonl"


def _json_line(document: Document) -> bytes:
    fields = {"id": document.doc_id, "fingerprint": f"{document.fingerprint:016x}", "first_seen": document.first_seen}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _tsv_line(document: Document) -> bytes:
    return f"{document.doc_id}\t{document.fingerprint:016x}\n".encode()


@contextmanager
def _written(output: str) -> Iterator[Sink]:
    """Give a stream for `output`; a file takes its name only when the block ends without an error."""
    path = Path(os.path.realpath(output))
    if output == "-":
        with naming("standard output"):
            yield sys.stdout.buffer
    elif path.exists() and not path.is_file():  # a pipe or a device: nothing to rename
        with naming(output), path.open("wb") as stream:
            yield stream
    else:
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with naming(output), part.open("xb") as stream:
                with _packed(stream, path.suffix) as packed:
                    yield packed
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _packed(stream: BinaryIO, suffix: str) -> Iterator[Sink]:
    if suffix == ".gz":
        with gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as packed:
            yield packed
    elif suffix == ".zst":
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as packed:
            yield packed
    else:
        yield stream
