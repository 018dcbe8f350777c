"""`hsimhash export`: all documents of an index, such that `ingest` makes the same index of them."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import click

from hsimhash.cli.console import plural, say, staged_progress
from hsimhash.cli.options import Settings, open_index, with_settings
from hsimhash.cli.written import refuse_existing, written
from hsimhash.store import Document, is_own_file

PROGRESS_DOCUMENTS = 10_000  # between two steps of the progress bar


@click.command("export")
@click.option("--output", metavar="FILE", default="-", help="Packed where it ends in .gz or .zst; - is stdout.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option("--format", "form", type=click.Choice(["jsonl", "tsv"]), help="By the name of FILE; else jsonl.")
@with_settings("store")
def export_command(settings: Settings, output: str, overwrite: bool, form: str | None) -> None:
    """Write a line for each document, in order of fingerprint and id.

    jsonl: {"id", "fingerprint": 16 hex digits, "first_seen": ms since 1970}, also "sketch" and "key" where a document
    has them. tsv: id, a tab, fingerprint. FILE appears only once it is complete. 'hsimhash ingest' with
    --fingerprint-field fingerprint makes the same index of it. The tsv form leaves out sketches and keys, and each
    document of it is first seen anew.

    \b
    Example: hsimhash export --output pages.jsonl.gz --store lmdb://pages
    """
    if not overwrite:
        refuse_existing(output, "--output")
    if is_own_file(settings.store, Path(output)):
        raise click.UsageError(f"--output {output} is a file of the index {settings.store} itself; choose another name")
    line_of = _tsv_line if (form or _form_of(output)) == "tsv" else _json_line
    with open_index(settings, is_job=True) as index, staged_progress("export") as tell, written(output) as write:
        done = 0
        for done, document in enumerate(index.documents(), start=1):
            line = line_of(document)
            if done == 1 and line.startswith(codecs.BOM_UTF8):
                write(codecs.BOM_UTF8)  # a reader takes the first one of a file for no part of the id
            write(line)
            if done % PROGRESS_DOCUMENTS == 0:  # by the fingerprint: to count them first, HBase would read them all
                tell("export", document.fingerprint >> 32, 1 << 32, plural(done, "document"))
    say(f"exported {plural(done, 'document')}")


def _form_of(output: str) -> str:
    return "tsv" if Path(output.removesuffix(".gz").removesuffix(".zst")).suffix == ".tsv" else "jsonl"


def _json_line(document: Document) -> bytes:
    fields = {"id": document.doc_id, **document.signature.to_json(), "first_seen": document.first_seen}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _tsv_line(document: Document) -> bytes:
    return f"{document.doc_id}\t{document.fingerprint:016x}\n".encode()
