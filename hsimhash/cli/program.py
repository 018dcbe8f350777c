"""`hsimhash`: its commands, each imported when used, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import io
import sys
import traceback
from pathlib import Path

import click

from hsimhash.cli.console import log_to_stderr, send
from hsimhash.cli.exits import ExitCode, exit_code_of, interruptible, message_of
from hsimhash.cli.streams import drop_stdout, flush_or_drop

COMMANDS = {  # in the order of the help, which imports none of them; each is `NAME_command` in the module named here
    "demo": ("demo", "Index a small sample corpus and show its near-duplicates."),
    "plan": ("plan", "Compare layouts for a number of documents."),
    "calibrate": ("calibrate", "Compare profiles and distances on your own texts."),
    "create-table": ("tables", "Make an empty index."),
    "drop-table": ("tables", "Delete an index and everything in it."),
    "ingest": ("ingest", "Add documents from files: fingerprint, check, load."),
    "bulk-load": ("bulk_load", "Load documents into HBase by finished files, many times as fast."),
    "import-redis": ("import_redis", "Add fingerprints from sets on a Redis, one for each segment."),
    "relayout": ("relayout", "Bring an index's documents into one with another layout."),
    "query": ("query", "Find the documents near a fingerprint, a document or a text."),
    "serve": ("serve", "Answer queries and take documents over HTTP, as JSON."),
    "match-sql": ("match_sql", "Print the statements that find near-duplicates in a table of your own."),
    "distance": ("fingerprint", "Show which bits differ between two fingerprints."),
    "find-all": ("find", "Find all pairs in a list of fingerprints, as simhash-cpp does."),
    "find-clusters": ("find", "Find all clusters in a list of fingerprints, as simhash-cpp does."),
    "dedup": ("dedup", "Find near-duplicates within files, and which to keep."),
    "tables": ("compressed", "Write documents as compressed tables; match millions of queries against them."),
    "spark": ("spark", "The jobs of many documents on Spark: dedup, fingerprints, matches, bulk loads."),
    "apply": ("apply", "Write the documents that dedup keeps."),
    "fit-idf": ("fit_idf", "Make an idf table of your own texts."),
    "fingerprint": ("fingerprint", "Print the fingerprints of texts, or what weighs how much in them."),
    "describe": ("facts", "Show how an index was made and what is in it."),
    "status": ("facts", "Show how many rows there are, and in which regions."),
    "explain": ("explain", "Show what a query reads, or how two documents differ."),
    "doctor": ("doctor", "Find out why an index cannot be reached, or is slow."),
    "check": ("upkeep", "Look for problems in an index, and repair them."),
    "collect": ("upkeep", "Delete what moves and removals left behind; on HBase hourly."),
    "compact": ("upkeep", "Rewrite an index without free space."),
    "backup": ("upkeep", "Copy an index to a new folder, while it is used."),
    "remove": ("removal", "Remove documents by id."),
    "expire": ("removal", "Remove the documents first seen before a date."),
    "export": ("export", "Write all documents' ids and fingerprints as lines."),
    "settings": ("settings", "Show the settings and where they came from."),
}


class Program(click.Group):
    """The group of all commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002, D102
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"hsimhash.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002, D102
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> None:
        """Run a command; its return value is the exit code, None for done. SIGTERM ends it as Ctrl-C does."""
        code = ExitCode.DONE
        try:
            with interruptible():
                _write_utf8()
                code = super().invoke(ctx) or ExitCode.DONE
                send()
        except BrokenPipeError:  # the reader, such as `head`, has what it wanted
            drop_stdout()
        except (KeyboardInterrupt, click.Abort):
            # Else CPython ends by SIGINT, whatever the exit code, if Ctrl-C fell into an exec(), such as a dataclass's.
            exec("")  # noqa: S102
            click.echo("hsimhash: interrupted", err=True)
            code = ExitCode.INTERRUPTED
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            if ctx.params["verbose"]:
                traceback.print_exception(error)
            click.echo(f"hsimhash: error: {message_of(error)}", err=True)
            code = exit_code_of(error)
            flush_or_drop()
        ctx.exit(code)


def _write_utf8() -> None:
    """Write UTF-8 into pipes and files, whatever the locale, and escape the characters that a terminal lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")


@click.group(
    cls=Program,
    commands={name: click.Command(name) for name in COMMANDS},  # their names alone, for hints at what was meant
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option("-v", "--verbose", count=True, help="Log to stderr; twice: in detail. Errors come with their traceback.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="The settings file.")
@click.version_option(package_name="hsimhash")
def main(verbose: int, config: Path | None) -> None:  # noqa: ARG001 (a command reads it from the context)
    """Find every near-duplicate of a document: fingerprints in, all documents within a few bits out.

    Results go to stdout, all other words to stderr; - is stdin. 'hsimhash COMMAND --help' shows an example.

    \b
    Example: hsimhash create-table --store lmdb://pages
             hsimhash ingest pages.jsonl.gz --store lmdb://pages
             hsimhash query --id https://example.org/a --store lmdb://pages

    Exit codes: 0 done, 1 failed, 2 misused, 3 settings invalid, 4 store unreachable, 5 index, layout or profile
    mismatch, 6 check found problems, 7 done with rejected records, 8 nothing found (query --exit-code),
    130 interrupted.
    """
    if verbose:
        log_to_stderr(verbose)
