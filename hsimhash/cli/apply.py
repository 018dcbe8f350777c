"""`hsimhash apply`: the documents that a `dedup` keeps, as they stand in its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hsimhash import dedup as steps
from hsimhash.cli.console import plural, say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import Settings, field_options, reading_of, utf8, with_settings
from hsimhash.cli.streams import check_stdin
from hsimhash.cli.written import refuse_existing, written
from hsimhash.dedup import Applied
from hsimhash.dedup.outputs import NAMES
from hsimhash.inputs import Input, find_inputs


@click.command("apply", short_help="Write the documents that a dedup keeps.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option(
    "--from", "folder", required=True, metavar="DIR", type=click.Path(path_type=Path), help="What dedup made."
)
@click.option("--out", metavar="FILE", default="-", help="Packed where it ends in .gz or .zst; - is stdout.")
@click.option("--mark", type=click.Choice(["cluster"]), help="Write all documents, each with its cluster.")
@click.option("--dropped", is_flag=True, help="Write the dropped documents instead.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@with_settings("format", "id_field", "text_field", "fingerprint_format")
@field_options
@click.option("--fingerprint-field", type=utf8, metavar="NAME", help="As it was given to dedup.")
def apply_command(
    settings: Settings,
    inputs: tuple[str, ...],
    folder: Path,
    out: str,
    mark: str | None,
    dropped: bool,
    overwrite: bool,
    fingerprint_field: str | None,
) -> ExitCode:
    """Write the records of each INPUT that are kept, as they stand and in their order.

    The INPUTs and how they are read must be those of the 'hsimhash dedup' that made DIR: a document that it does not
    know is an error. As there, the first record with an id counts and later ones are left out; so are records that are
    no documents, and the exit code is then 7. Of a folder of texts the paths of the files are written, one a
    line. Tables and web archives are refused: DIR has keep.txt with the ids.

    --mark cluster writes all documents: JSON gets the fields "cluster" and "kept", other lines two columns more, the
    cluster and true or false. FILE appears only once it is complete.

    \b
    Example: hsimhash apply pages.jsonl.gz --from pages.dedup --out kept.jsonl.gz
             hsimhash apply pages.jsonl.gz --from pages.dedup --mark cluster | jq -r 'select(.kept) | .id'
    """
    if mark and dropped:
        raise click.UsageError("--mark writes all documents, and --dropped some; leave one of them out")
    if not overwrite:
        refuse_existing(out, "--out")
    if "-" in inputs:
        check_stdin()
    reading = reading_of(settings, fingerprint_field)
    found = find_inputs(inputs, reading)
    _refuse_read(out, found, folder)
    options = steps.ApplyOptions("all" if mark else "dropped" if dropped else "kept", reading)
    with written(out) as write:
        count = steps.apply(found, folder, options, write, say)
    return _report(count)


def _refuse_read(out: str, inputs: Sequence[Input], folder: Path) -> None:
    """Raise where the output is an input, within one, or a result of dedup, be it through a link: it would be lost."""
    path = Path(out)
    if out == "-" or (path.exists() and not path.is_file()):
        return
    results = [folder / name for name in NAMES if (folder / name).exists()]
    if any(one.reads(path) for one in inputs) or (path.exists() and any(path.samefile(result) for result in results)):
        raise click.BadParameter(f"{out} is read to write it; choose another name", param_hint="'--out'")


def _report(count: Applied) -> ExitCode:
    say(f"wrote {plural(count.written, 'document')}, left out {count.left_out:,}")
    if count.repeated:
        say(f"left out {plural(count.repeated, 'record')} with an id seen before")
    if count.missing:
        say(f"the inputs lack {plural(count.missing, 'document')} that dedup read")
    if count.rejected:
        say(f"left out {plural(count.rejected, 'bad record')}")
    return ExitCode.REJECTED_RECORDS if count.rejected else ExitCode.DONE
