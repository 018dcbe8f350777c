"""The `hsimhash` program: imports a command on first use, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import io
import sys
import traceback
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from hsimhash import __version__
from hsimhash.cli.console import log_to_stderr, print_line, send
from hsimhash.cli.exit_codes import ExitCode, exit_code_of, interruptible, message_of
from hsimhash.cli.help import help_command
from hsimhash.cli.standard_streams import drop_stdout, flush_or_drop

TASKS = {  # module and summary of each command, by help section; the help does not import the commands
    "Start here": {
        "demo": ("demo", "Show what hsimhash finds in a small sample."),
        "dedup": ("dedup", "Find near-duplicates in files, and choose which to keep."),
        "apply": ("apply", "Write the documents that dedup keeps."),
        "ingest": ("ingest", "Add documents to an index."),
        "query": ("query", "Find documents in an index that are near a text or another document."),
    },
    "Tune": {
        "calibrate": ("calibrate", "Find the profile and distance that suit your texts."),
        "plan": ("plan", "Estimate the size and speed of an index."),
        "explain": ("explain", "Show how two documents differ, or what a query reads."),
        "fingerprint": ("fingerprint", "Print the fingerprints of texts and files."),
        "fit": ("fit", "Learn word weights from your own texts."),
    },
    "Serve": {
        "serve": ("serve", "Answer queries and add documents over HTTP."),
    },
    "Operate": {
        "create-table": ("tables", "Create an empty index."),
        "drop-table": ("tables", "Delete an index and everything in it."),
        "describe": ("describe", "Show how an index was created and what it holds."),
        "status": ("describe", "Count the rows in an index, by region on HBase."),
        "doctor": ("doctor", "Diagnose an index that fails or is slow."),
        "check": ("upkeep", "Check an index for problems, and repair them."),
        "collect": ("upkeep", "Delete leftovers of moved and removed documents."),
        "compact": ("upkeep", "Reclaim unused space in an index."),
        "backup": ("upkeep", "Copy an index while it is in use."),
        "remove": ("removal", "Remove documents by id."),
        "expire": ("removal", "Remove documents older than a date."),
        "export": ("export", "Write the ids and fingerprints of all documents."),
        "relayout": ("relayout", "Copy an index to another store or layout."),
        "settings": ("settings", "Show the settings and where they come from."),
        "completion": ("completion", "Set up Tab completion in your shell."),
    },
    "Large jobs": {
        "bulk-load": ("bulk_load", "Load documents into HBase as HFiles."),
        "spark": ("spark", "Run dedup, fingerprinting and loading on Spark."),
    },
    "Compatibility": {
        "find-all": ("find_all", "Find all near pairs in a list of fingerprints, as simhash-cpp does."),
        "find-clusters": ("find_all", "Find all clusters in a list of fingerprints, as simhash-cpp does."),
        "import-redis": ("import_redis", "Import fingerprints from sets in Redis."),
    },
}
_WORDS = "hsimhash.words"
COMMANDS = {name: entry for commands in TASKS.values() for name, entry in commands.items()}


class Program(click.Group):
    """The group of all commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002, D102
        if cmd_name == help_command.name:
            return help_command
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"hsimhash.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002, D102
        for title, commands in TASKS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that start with the word, without importing the commands."""
        named = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command, and keep all words for `_without_passwords`."""
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run a command. Its return value is the exit code; None means success. SIGTERM ends it like Ctrl-C."""
        code = ExitCode.DONE
        try:
            with interruptible():
                _write_utf8()
                code = super().invoke(ctx) or ExitCode.DONE
                send()
        except BrokenPipeError:  # the reader, such as `head`, has exited
            drop_stdout()
        except (KeyboardInterrupt, click.Abort) as error:
            # If Ctrl-C arrived during an exec(), for example in a dataclass, CPython would end with SIGINT and ignore
            # the exit code. Another exec() prevents that.
            exec("")  # noqa: S102
            click.echo(": ".join(["hsimhash: interrupted", *map(str, error.args)]), err=True)
            code = ExitCode.INTERRUPTED
        except click.ClickException as error:
            said = error.format_message()
            if said == (shown := _without_passwords(said, ctx)):
                raise
            raise click.UsageError(shown, getattr(error, "ctx", None)) from None
        except click.exceptions.Exit:
            raise
        except Exception as error:
            if ctx.params["verbose"]:
                traceback.print_exception(error)
            click.echo(f"hsimhash: error: {message_of(error)}", err=True)
            code = exit_code_of(error)
            flush_or_drop()
        ctx.exit(code)


def _without_passwords(text: str, ctx: click.Context) -> str:
    """Remove passwords from an error message of click, which may quote a misplaced URL."""
    from hsimhash.store.urls import masked, may_be_url  # imported here because only errors need it

    for word in ctx.meta[_WORDS]:
        for url in (word, word.partition("=")[2]):
            if may_be_url(url):
                text = text.replace(url, masked(url)).replace(repr(url)[1:-1], masked(url))
    return text


def _write_utf8() -> None:
    """Write UTF-8 to pipes and files, whatever the locale, and escape characters that a terminal cannot show."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")


def _show_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if not is_wanted or context.resilient_parsing:
        return
    from hsimhash.native_package import signer_name

    print_line(f"hsimhash, version {__version__}")
    print_line(f"fingerprints are made by {signer_name()}")
    send()
    context.exit()


@click.group(
    cls=Program,
    commands={name: click.Command(name) for name in COMMANDS},  # only the names, so that click can suggest the nearest
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    subcommand_metavar="COMMAND …",
)
@click.option("-v", "--verbose", count=True, help="Log to stderr; -vv logs more. Errors include a traceback.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Read settings from FILE.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main(verbose: int, config: Path | None) -> None:  # noqa: ARG001 (a command reads it from the context)
    """Find near-duplicate documents. Start with: hsimhash dedup DIR --out RESULT

    \b
    Example: hsimhash dedup pages.jsonl.gz --out pages.dedup
             hsimhash ingest pages.jsonl.gz --store lmdb://pages
             hsimhash query page.html --store lmdb://pages

    Run 'hsimhash help COMMAND' for details and examples.

    Results go to stdout; progress and messages go to stderr. "-" reads from stdin.

    Exit codes: 0 success, 1 failure, 2 usage error, 3 invalid settings, 4 store unreachable, 5 missing index or wrong
    layout or profile, 6 problems found by check or doctor, 7 done, but some records were rejected, 8 nothing found
    (query --exit-code), 130 interrupted.
    """  # noqa: D415 (the first line ends with a command)
    if verbose:
        log_to_stderr(verbose)
