"""`hsimhash apply`: write the documents that `dedup` kept, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from hsimhash import dedup as steps
from hsimhash.cli.closing_messages import apply_ending, changed, unread
from hsimhash.cli.console import is_for_people, say
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.output_files import JSON_LINES, refuse_existing, refuse_format, written
from hsimhash.cli.standard_streams import check_stdin
from hsimhash.dedup import Applied
from hsimhash.dedup.outputs import NAMES
from hsimhash.errors import plural
from hsimhash.inputs import Input, InputOptions, find_inputs
from hsimhash.inputs.files import COPIED_KINDS

# Options that apply had before it started to read their values from DIR. They are accepted for one more release if they
# agree with DIR.
_OLD_OPTIONS = {
    "--format": "format",
    "--id-field": "id_field",
    "--text-field": "text_field",
    "--fingerprint-format": "fingerprint_format",
    "--fingerprint-field": "fingerprint_field",
    "--features-field": "features_field",
}


def _old_options(command: Callable[..., object]) -> Callable[..., object]:
    for flag, name in _OLD_OPTIONS.items():
        command = click.option(flag, name, hidden=True)(command)
    return click.option("--field", "fields", hidden=True, multiple=True)(command)


@click.command("apply", cls=Command)
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option(
    "--from",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Output folder of 'hsimhash dedup'.",
)
@click.option(
    "--out", metavar="FILE", default="-", help="Write to FILE instead of stdout, compressed if it ends in .gz or .zst."
)
@click.option("--dropped", is_flag=True, help="Write the dropped documents instead of the kept ones.")
@click.option("--mark", type=click.Choice(["cluster"]), help="Write all documents, each marked with its cluster.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@_old_options
def apply_command(
    inputs: tuple[str, ...],
    folder: Path,
    out: str,
    mark: str | None,
    dropped: bool,
    overwrite: bool,
    fields: tuple[str, ...],
    **old: str | None,
) -> ExitCode:
    """Write the documents that 'hsimhash dedup' kept, unchanged and in input order.

    \b
    Example: hsimhash apply pages.jsonl.gz --from pages.dedup --out kept.jsonl.gz
             hsimhash apply pages.jsonl.gz --from pages.dedup --mark cluster | jq -r 'select(.kept) | .id'

    Pass the inputs of dedup again, in the same order. DIR records the options that dedup used to read them. If several
    records have the same id, apply writes only the first. Invalid records are left out, and the exit code is 7.

    For a folder of texts, apply writes the paths of the files, one per line. A dropped file is kept if it, or the file
    kept in its place, was modified or removed after dedup began. Tables and web archives cannot be copied line by line;
    for these, use the ids in keep.txt instead.

    With --mark cluster, JSON records get the fields "cluster" and "kept". Other records get two more columns: the
    cluster, and whether the record is kept (true or false). FILE appears only when it is complete.
    """
    if mark and dropped:
        raise click.UsageError("--mark cannot be combined with --dropped; pass only one of them")
    if not overwrite:
        refuse_existing(out, "--out")
    if "-" in inputs:
        check_stdin()
    reading = steps.reading_of_run(folder)
    _check_reading(reading, folder, old, fields)
    found = find_inputs(inputs, reading)
    _refuse_read(out, found, folder)
    _refuse_other_format(out, found)
    which: steps.Which = "all" if mark else "dropped" if dropped else "kept"
    with written(out) as write:
        count = steps.apply(found, folder, which, write, say)
    if out != "-" and is_for_people(as_json=False):
        apply_ending(count, out, reading, are_paths=any(one.kind == "files" for one in found))
    else:
        _report(count)
    return ExitCode.REJECTED_RECORDS if count.rejected else ExitCode.DONE


def _check_reading(reading: InputOptions, folder: Path, old: dict[str, str | None], fields: tuple[str, ...]) -> None:
    """Reject an option that contradicts what dedup used."""
    used = asdict(reading) | {"features_field": reading.text_field if reading.has_features else None}
    contradictions = [
        f"{flag} {old[name]}" for flag, name in _OLD_OPTIONS.items() if old[name] not in (None, "auto", used[name])
    ]
    if fields and {one.partition("=")[0] for one in fields} != set(reading.fields):
        contradictions.append(f"--field {fields[0]}")
    if contradictions:
        raise click.UsageError(
            f"{contradictions[0]} contradicts the options that 'hsimhash dedup' recorded in {folder}; omit it, because "
            f"apply reads the options from there"
        )


def _refuse_read(out: str, inputs: Sequence[Input], folder: Path) -> None:
    """Raise if the output is an input, is inside an input folder, or is a result of dedup. Links are followed."""
    path = Path(out)
    if out == "-" or (path.exists() and not path.is_file()):
        return
    results = [folder / name for name in NAMES if (folder / name).exists()]
    if any(one.reads(path) for one in inputs) or (path.exists() and any(path.samefile(result) for result in results)):
        raise click.BadParameter(f"{out} is an input; choose another file", param_hint="'--out'")


def _refuse_other_format(out: str, inputs: Sequence[Input]) -> None:
    """Raise if FILE's suffix stands for a format that no input has, because lines are copied unchanged."""
    suffixes = {"jsonl": JSON_LINES, "tsv": (".tsv",), "files": (".txt",)}
    if writes := [suffix for one in inputs if one.kind in COPIED_KINDS for suffix in suffixes[one.kind]]:
        refuse_format(out, "--out", list(dict.fromkeys(writes)))


def _report(count: Applied) -> None:
    say(f"wrote {plural(count.written, 'document')}, left out {count.left_out:,}")
    if count.repeated:
        say(f"left out {plural(count.repeated, 'record')} with a duplicate id")
    if count.changed:
        say(f"kept {changed(count)}")
    if count.missing:
        say(f"missing from the inputs: {plural(count.missing, 'document')} that dedup read")
    if count.rejected:
        say(f"left out {plural(count.rejected, 'invalid record')}{unread(count)}")
