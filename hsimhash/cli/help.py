"""Help: `hsimhash help COMMAND`, and options in groups, with the common ones first."""

from __future__ import annotations

import click

from hsimhash.cli.console import print_line

FEW = 8  # up to this many options are not grouped
_OTHER_NAMES = {"--from": "--store", "--port": "--listen", "--url": "--store"}  # names that other programs use

# The groups of options in long help texts, by parameter name. Options without a group come last.
_GROUPS = {
    "Index": ("store", "target", "layout", "to_layout"),
    "Results": (
        *("out", "output", "form_of_output", "report", "tags", "as_json", "limit", "exclude", "tells_by_exit_code"),
        *("table_format", "pairs", "overwrite"),
    ),
    "Inputs": (
        *("doc_ids", "texts", "paths", "format", "form", "id_field", "text_field", "fields", "extract"),
        *("fingerprint_field", "fingerprint_format", "features_field", "first_seen_field"),
    ),
    "What counts as a duplicate": (
        *("max_distance", "distance", "profile", "profiles", "on_duplicate", "keep", "clusters", "max_cluster_size"),
        *("against", "max_sketch", "claim"),
    ),
    "Comparison": ("labels", "is_planted", "documents", "sample"),
    "HBase": (
        *("stage", "first_load", "regions", "splits_from", "compression", "family_options", "is_dry_run"),
        *("is_plain_allowed", "print_commands", "hbase_command", "shards"),
    ),
    "Spark": ("master", "driver_memory"),
}
_REST, _HELP_ALONE = "Advanced", "Help"


class Command(click.Command):
    """A command whose help shows its options in groups if there are many."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; say what a missing option is for, and suggest our name for one that other programs have."""
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            option = error.param
            if not isinstance(option, click.Option):
                raise
            name = f"{option.opts[0]} {option.make_metavar(ctx)}"
            raise click.MissingParameter(option.help, ctx=error.ctx, param=option, param_hint=repr(name)) from None
        except click.NoSuchOption as error:
            own = _OTHER_NAMES.get(error.option_name)
            if own is None or not any(own in one.opts for one in self.get_params(ctx)):
                hidden = {name for one in self.get_params(ctx) if getattr(one, "hidden", False) for name in one.opts}
                similar = [name for name in error.possibilities or () if name not in hidden]
                raise click.NoSuchOption(error.option_name, possibilities=similar or None, ctx=error.ctx) from None
            message = f"No such option {error.option_name!r}. Did you mean {own!r}?"
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        records = {one.name: record for one in options if (record := one.get_help_record(ctx))}
        if len(records) <= FEW:
            super().format_options(ctx, formatter)
            return
        for title, names in _GROUPS.items():
            rows = [records.pop(name) for name in names if name in records]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        with formatter.section(_REST if len(records) > 1 else _HELP_ALONE):
            formatter.write_dl(list(records.values()))


class Group(click.Group):
    """A group whose commands are of the class `Command`."""

    command_class = Command


@click.command("help", cls=Command)
@click.argument("words", metavar="[COMMAND…]", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command.

    \b
    Example: hsimhash help dedup
             hsimhash help settings show
    """
    root = ctx.find_root()
    shown, command = root, root.command
    for word in words:
        found = command.get_command(shown, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"no such command: {' '.join(words)!r:.80}; 'hsimhash --help' lists them", ctx=root)
        command = found
        shown = click.Context(command, parent=shown, info_name=word)
        shown.terminal_width, shown.max_content_width = root.terminal_width, root.max_content_width
    print_line(command.get_help(shown))
