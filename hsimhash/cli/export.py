"""`hsimhash export`: write all documents in an index in a format that `ingest` reads, or as tables."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import click

from hsimhash.cli.console import say, watching
from hsimhash.cli.export_shards import SHARD_FORMATS, export_shards, json_line, tsv_line, write_parquet
from hsimhash.cli.help import Command
from hsimhash.cli.jobs import MOST_SHARDS, shard_option
from hsimhash.cli.options import open_index, refuse_flags, with_settings
from hsimhash.cli.output_files import JSON_LINES, format_of, refuse_existing, refuse_format, written
from hsimhash.errors import plural
from hsimhash.settings import Settings
from hsimhash.store import Document, backend_of
from hsimhash.store.capabilities import Shard

PROGRESS_DOCUMENTS = 10_000  # between two updates of the progress bar


@click.command("export", cls=Command)
@click.option(
    "--output",
    metavar="FILE",
    default="-",
    help="Write to FILE instead of stdout, compressed if it ends in .gz or .zst.",
)
@click.option("--to", "target", metavar="URL", help="Instead of lines, write a read-only index to tables://FOLDER.")
@click.option("--compress", is_flag=True, help="With --to: use less space. Queries take longer.")
@click.option("--overwrite", is_flag=True, help="Replace FILE, or the tables that --to names, if they exist.")
@click.option(
    "--format",
    "form",
    type=click.Choice(SHARD_FORMATS),
    help="Output format. Default: detected from the name of FILE, or jsonl. Compressed formats are only for --shards.",
)
@click.option(
    "--shards",
    type=click.IntRange(min=1, max=MOST_SHARDS),
    metavar="N",
    help="HBase: write N files into the folder FILE, using several processes.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes for --shards. Default: one per core.",
)
@shard_option("write every Nth file of --shards, starting at the Kth; other machines write the other files.")
@with_settings("store")
def export_command(
    settings: Settings,
    output: str,
    target: str | None,
    compress: bool,
    overwrite: bool,
    form: str | None,
    shards: int | None,
    workers: int | None,
    shard: Shard | None,
) -> None:
    """Write the ids and fingerprints of all documents, in order of fingerprint and id.

    \b
    Example: hsimhash export --output pages.jsonl.gz --store lmdb://pages
             hsimhash export --output pages.parquet --store lmdb://pages
             hsimhash export --to tables://pages.tables --store lmdb://pages
             hsimhash export --shards 64 --format parquet --output pages.parts --store hbase://gw1:9091/pages

    jsonl has a JSON object per line: "id", "fingerprint" (16 hex digits), "first_seen" (ms since 1970), and "sketch"
    and "key" if a document has them. parquet has the same columns, with fingerprint and first_seen as numbers. tsv has
    the id, a tab and the fingerprint, without sketches, keys and first_seen. 'hsimhash ingest --fingerprint-field
    fingerprint' recreates the index from jsonl or parquet. FILE appears only when it is complete.

    With --to, export writes an index that never changes. You can copy its folder, or serve it from a read-only disk;
    --store tables://FOLDER answers the same queries as the original. The folder must be new or empty, or contain tables
    that --overwrite replaces. Processes that already have the old tables open keep using them. With --compress, a row
    takes 5 to 6 bytes instead of 8. An interrupted export leaves nothing behind.

    With --shards, the documents are spread over N files in any order. Each file appears when it is complete; run the
    same command again to write the missing files. To share the work between 16 machines that can reach the same folder,
    add --shard 1/16 on the first, --shard 2/16 on the second, and so on.
    """
    if target is not None:
        others = {
            "--output": output != "-",
            "--format": form,
            "--shards": shards,
            "--workers": workers,
            "--shard": shard,
        }
        _refuse_with_target([name for name, given in others.items() if given])
        _export_tables(settings, target, is_packed=compress, overwrite=overwrite)
        return
    if compress:
        raise click.UsageError("--compress is only for --to; FILE is compressed if its name ends in .gz or .zst")
    if shards is not None:
        _export_shards(settings, output, shards, form or "jsonl", workers, shard, overwrite=overwrite)
        return
    if shard is not None:
        raise click.UsageError("--shard needs --shards; pass --shards N, or leave --shard out")
    form = _form(output, form)
    _refuse_mixed(output, form, workers, overwrite=overwrite)
    if backend_of(settings.store).is_own_file(settings.store, Path(output)):
        raise click.UsageError(f"--output {output} is a file in the index {settings.store} itself; choose another file")
    with open_index(settings, is_job=True) as index:
        # The fingerprint shows the progress: counting the documents first would make HBase read all of them.
        _export(index.documents(), output, form, lambda document: document.fingerprint >> 32)


def _refuse_with_target(given: Sequence[str]) -> None:
    if given:
        raise click.UsageError(f"{given[0]} cannot be combined with --to; leave one of them out")


def _export_tables(settings: Settings, target: str, *, is_packed: bool, overwrite: bool) -> None:
    with open_index(settings, is_job=True) as index, watching("export") as observer:
        done = index.write_tables(target, compress=is_packed, overwrite=overwrite, observer=observer)
    url = target if target.startswith("tables://") else f"tables://{target}"
    say(f"exported {plural(done, 'document')}; query them with --store {url}")


def _form(output: str, form: str | None) -> str:
    """Return the format of a single file; reject a format that does not match its name."""
    suffixes = {"jsonl": JSON_LINES, "tsv": (".tsv",), "parquet": (".parquet",)}
    if form is None:
        refuse_format(output, "--output", [one for of_form in suffixes.values() for one in of_form])
        return next((name for name, own in suffixes.items() if format_of(output) in own), "jsonl")
    if form in suffixes:
        refuse_format(output, "--output", suffixes[form])
    return form


def _refuse_mixed(output: str, form: str | None, workers: int | None, *, overwrite: bool) -> None:
    """Reject options that do not apply to a single file of lines."""
    if workers is not None:
        raise click.UsageError("--workers is only for --shards; leave it out")
    if form not in ("jsonl", "tsv", "parquet"):
        raise click.UsageError(
            f"--format {form} is only for --shards; FILE is compressed if its name ends in .gz or .zst"
        )
    if form == "parquet" and output.endswith((".gz", ".zst")):
        raise click.UsageError(f"--output {output}: Parquet is already compressed; choose a name that ends in .parquet")
    if not overwrite:
        refuse_existing(output, "--output")


def _export(documents: Iterable[Document], output: str, form: str, place: Callable[[Document], int]) -> None:
    """Write documents. `place` returns the progress at a document, a number below 2**32 that never decreases."""
    with watching("export") as observer:

        def watched() -> Iterator[Document]:
            for number, document in enumerate(documents, start=1):
                yield document
                if number % PROGRESS_DOCUMENTS == 0:
                    observer.report("export", place(document), 1 << 32, number)

        if form == "parquet":
            done = write_parquet(output, _batched(watched(), PROGRESS_DOCUMENTS))
        else:
            done = _write_lines(watched(), output, tsv_line if form == "tsv" else json_line)
    say(f"exported {plural(done, 'document')}")


def _write_lines(documents: Iterable[Document], output: str, line_of: Callable[[Document], bytes]) -> int:
    done = 0
    with written(output) as write:
        for done, document in enumerate(documents, start=1):
            line = line_of(document)
            if done == 1 and line.startswith(codecs.BOM_UTF8):
                write(codecs.BOM_UTF8)  # readers drop the first byte order mark; this keeps the one in the id
            write(line)
    return done


def _batched(documents: Iterator[Document], size: int) -> Iterator[list[Document]]:
    while batch := list(islice(documents, size)):
        yield batch


def _export_shards(
    settings: Settings,
    output: str,
    count: int,
    form: str,
    workers: int | None,
    shard: Shard | None,
    *,
    overwrite: bool,
) -> None:
    refuse_flags(settings.store, "--shards")
    if output == "-":
        raise click.UsageError("--shards cannot write to stdout; pass a folder with --output")
    if overwrite:
        raise click.UsageError(
            "--shards cannot be combined with --overwrite; choose another folder, or delete this one first"
        )
    with open_index(settings):  # reports problems once, not in every process
        pass
    with watching("export") as observer:
        done = export_shards(settings.store, Path(output), count, form, workers, observer, shard)
    say(f"exported {plural(done, 'document')}")
