"""`hsimhash export`: all documents of an index, such that `ingest` makes the same index of them."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from hsimhash.cli.console import plural, say, staged_progress
from hsimhash.cli.options import Settings, open_index, utf8, with_settings
from hsimhash.cli.shards import SHARD_FORMATS, export_shards, json_line, tsv_line
from hsimhash.cli.written import refuse_existing, written
from hsimhash.rowkey import SEGMENT_BYTES, register_rowkey
from hsimhash.store import Document, is_hbase, is_own_file
from hsimhash.store.hbase.snapshot import Snapshot

MOST_SHARDS = 10_000
PROGRESS_DOCUMENTS = 10_000  # between two steps of the progress bar


@click.command("export")
@click.option("--output", metavar="FILE", default="-", help="Packed where it ends in .gz or .zst; - is stdout.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--format",
    "form",
    type=click.Choice(SHARD_FORMATS),
    help="By the name of FILE; else jsonl. The packed ones and parquet are for --shards.",
)
@click.option(
    "--shards",
    type=click.IntRange(min=1, max=MOST_SHARDS),
    metavar="N",
    help="On HBase: write N files into the folder FILE, by several processes.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes of --shards; by default one per core."
)
@click.option(
    "--from-hfiles", "snapshot", type=utf8, metavar="DIR", help="Read a snapshot that HBase's ExportSnapshot wrote."
)
@with_settings("store")
def export_command(
    settings: Settings,
    output: str,
    overwrite: bool,
    form: str | None,
    shards: int | None,
    workers: int | None,
    snapshot: str | None,
) -> None:
    """Write a line for each document, in order of fingerprint and id.

    jsonl: {"id", "fingerprint": 16 hex digits, "first_seen": ms since 1970}, also "sketch" and "key" where a document
    has them. tsv: id, a tab, fingerprint. FILE appears only once it is complete. 'hsimhash ingest' with
    --fingerprint-field fingerprint makes the same index of it. The tsv form leaves out sketches and keys, and each
    document of it is first seen anew.

    With --shards every file has documents of its own, in any order, and appears once it is complete; the same command
    writes those that are missing after any end. parquet: the fields of jsonl, numbers as numbers.

    With --from-hfiles no cluster is needed: the files of a snapshot are read, without compression, the documents in any
    order. DIR has .hbase-snapshot and archive; a path, or a URL such as hdfs://…

    \b
    Example: hsimhash export --output pages.jsonl.gz --store lmdb://pages
             hsimhash export --shards 64 --format parquet --output pages.parts --store hbase://gw1:9091/pages
             hsimhash export --from-hfiles /backups/pages-2026-01-31 --output pages.jsonl.gz
    """
    if shards is not None:
        if snapshot is not None:
            raise click.UsageError("--shards is for an index on HBase; leave it out, or --from-hfiles")
        _export_shards(settings, output, shards, form or "jsonl", workers, overwrite=overwrite)
        return
    _refuse_mixed(output, form, workers, overwrite=overwrite)
    suffix = Path(output.removesuffix(".gz").removesuffix(".zst")).suffix
    line_of = tsv_line if (form or suffix.removeprefix(".")) == "tsv" else json_line
    if snapshot is not None:
        _refuse_in_snapshot(output, snapshot)
        _export_lines(Snapshot(snapshot).documents(), output, line_of, _place_of_register)
        return
    if is_own_file(settings.store, Path(output)):
        raise click.UsageError(f"--output {output} is a file of the index {settings.store} itself; choose another name")
    with open_index(settings, is_job=True) as index:
        # By the fingerprint: to count them first, HBase would read them all.
        _export_lines(index.documents(), output, line_of, lambda document: document.fingerprint >> 32)


def _refuse_mixed(output: str, form: str | None, workers: int | None, *, overwrite: bool) -> None:
    """Refuse what does not go with one file of lines."""
    if workers is not None:
        raise click.UsageError("--workers is for --shards; leave it out")
    if form not in (None, "jsonl", "tsv"):
        raise click.UsageError(f"--format {form} is for --shards; a name that ends in .gz or .zst packs FILE")
    if not overwrite:
        refuse_existing(output, "--output")


def _refuse_in_snapshot(output: str, snapshot: str) -> None:
    """Refuse options that name an index, and a file, beside --from-hfiles."""
    if click.get_current_context().get_parameter_source("store") == ParameterSource.COMMANDLINE:
        raise click.UsageError("--from-hfiles reads files, --store an index; leave one of them out")
    if output != "-" and Path(output).resolve().is_relative_to(Path(snapshot).resolve()):
        raise click.UsageError(f"--output {output} lies in the snapshot itself; choose another folder")


def _export_lines(
    documents: Iterable[Document], output: str, line_of: Callable[[Document], bytes], place: Callable[[Document], int]
) -> None:
    """Write documents, which come in order of a place below 2**32."""
    with staged_progress("export") as tell, written(output) as write:
        done = 0
        for done, document in enumerate(documents, start=1):
            line = line_of(document)
            if done == 1 and line.startswith(codecs.BOM_UTF8):
                write(codecs.BOM_UTF8)  # a reader takes the first one of a file for no part of the id
            write(line)
            if done % PROGRESS_DOCUMENTS == 0:
                tell("export", place(document), 1 << 32, plural(done, "document"))
    say(f"exported {plural(done, 'document')}")


def _place_of_register(document: Document) -> int:
    return int.from_bytes(register_rowkey(document.doc_id.encode())[:SEGMENT_BYTES], "big")


def _export_shards(
    settings: Settings, output: str, count: int, form: str, workers: int | None, *, overwrite: bool
) -> None:
    if not is_hbase(settings.store):
        raise click.UsageError(f"--shards is for an index on HBase, and {settings.store} is not; leave it out")
    if output == "-":
        raise click.UsageError("--shards writes files; name their folder with --output")
    if overwrite:
        raise click.UsageError("--shards writes over nothing; choose another --output, or delete that folder")
    with open_index(settings):  # what is wrong with it is said once
        pass
    with staged_progress("export") as tell:
        done = export_shards(settings.store, Path(output), count, form, workers, partial(tell, "export"))
    say(f"exported {plural(done, 'document')}")
