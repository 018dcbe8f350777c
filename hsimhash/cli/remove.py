"""`hsimhash remove`: take documents out of an index."""

from __future__ import annotations

from collections.abc import Iterator

import click

from hsimhash.cli.console import plural, print_json, say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.lines import Lines
from hsimhash.cli.options import confirm, json_option, open_index, utf8, with_settings, yes_option
from hsimhash.settings import Settings


@click.command("remove")
@click.argument("doc_ids", type=utf8, metavar="[ID…|-]", nargs=-1)
@click.option("--file", "path", metavar="FILE", help="A file with one id a line; - is stdin.")
@with_settings("store", "lock_timeout_s")
@yes_option
@json_option
def remove_command(
    settings: Settings, doc_ids: tuple[str, ...], path: str | None, is_confirmed: bool, as_json: bool
) -> ExitCode:
    """Remove documents by ID, and tell how many there were and how many were unknown.

    Ids may come from a file or, with -, from stdin, one a line. A line that is no id is told on stderr, the rest goes
    on, and the exit code is 7. What was removed before an interruption stays removed; the same command again does the
    rest.

    \b
    Example: hsimhash remove https://example.org/a --store lmdb://pages
             hsimhash remove --file gone.txt --yes --store lmdb://pages
    """
    if bool(doc_ids) == (path is not None) or ("-" in doc_ids and len(doc_ids) > 1):
        raise click.UsageError("give ids, or --file, or - for ids on stdin")
    lines = Lines(path or "-") if path is not None or doc_ids == ("-",) else None
    what = f"the documents named in {lines.name}" if lines else plural(len(doc_ids), "document")
    removed = unknown = 0
    with open_index(settings) as index:
        if not confirm(f"Remove {what} from {settings.store}?", is_confirmed=is_confirmed):
            return ExitCode.FAILED
        batches: Iterator[list[str]] = lines.doc_ids() if lines else iter([list(doc_ids)])
        for batch in batches:
            known = index.remove(batch)
            removed += known
            unknown += len(set(batch)) - known
    if as_json:
        print_json({"removed": removed, "unknown": unknown})
    else:
        say(f"removed {plural(removed, 'document')}, {unknown:,} unknown")
    return ExitCode.REJECTED_RECORDS if lines and lines.rejected else ExitCode.DONE
