"""What the commands share of options: the settings' flags, the index that the settings name, samples, questions."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from hsimhash import metrics
from hsimhash.cli.console import say
from hsimhash.cli.streams import check_stdin
from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Uint64s, formats_named, read_fingerprint, spoken
from hsimhash.fingerprint.recipe import FEATURES_PROFILE
from hsimhash.index import HSimIndex
from hsimhash.inputs import Input, InputOptions, find_inputs
from hsimhash.inputs.files import decided_formats
from hsimhash.layout import Layout
from hsimhash.store import Document, Record, new_record
from hsimhash.store.base import DEADLINE_S, JOB_DEADLINE_S

if TYPE_CHECKING:
    from hsimhash.settings import Loaded
    from hsimhash.settings import Settings as Settings
else:
    Settings = object  # a name for the commands' annotations: with pydantic a --help would take twice as long

Function = Callable[..., object]

# Their values are plain text here: `Settings` alone knows what is allowed, for flags, variables and files.
_FLAGS: dict[str, Callable[[Function], Function]] = {
    "store": click.option(
        "--store",
        metavar="URL",
        help="The index: lmdb://relative/path, lmdb:///absolute/path, hbase://gateway:9091/namespace:table, "
        "postgresql://user@host/database?table=pages, or redis://host:6379/0?prefix=name.",
    ),
    "layout": click.option("--layout", metavar="NAME", help="4, 10, 16, 20, 28, or blocks/choice: 13,13,13,13,12/2."),
    "profile": click.option(
        "--profile",
        metavar="NAME",
        help="What decides a text's fingerprint: auto-2, auto-1, zh-1, …; with other parts words-1:n=3,hash=fnv-1a-64.",
    ),
    "max_distance": click.option(
        "--distance",
        "--max-distance",
        "max_distance",
        metavar="BITS",
        help="How many bits may differ: 0 to 16; by default the index's own. Equal keys match at any distance.",
    ),
    "max_sketch": click.option(
        "--max-sketch",
        metavar="BITS|off",
        help="In how many bits sketches may differ, where both documents have one: 0 to 64, by default 16; in two "
        "fewer where only the keys are equal.",
    ),
    "workers": click.option(
        "--workers", metavar="N", help="Processes that fingerprint, or serve; by default one per core."
    ),
    "lock_timeout_s": click.option(
        "--lock-timeout", "lock_timeout_s", metavar="SECONDS", help="How long to wait for another process that writes."
    ),
    "on_duplicate": click.option(
        "--on-duplicate",
        metavar="add|skip|tag",
        help="Near-duplicates of documents that came before: add them too; skip them; or add them and list each one's "
        "nearest match (--tags).",
    ),
    "text_field": click.option("--text-field", metavar="NAME", help="The JSON field, or the column, with the text."),
    "id_field": click.option(
        "--id-field",
        metavar="NAME",
        help="The JSON field, or the column, with the id; of web archives url (by default) or record-id.",
    ),
    "format": click.option(
        "--format",
        metavar="auto|jsonl|tsv|fingerprints|files|parquet|csv|warc",
        help="What the inputs are; auto: by their names.",
    ),
    "extract": click.option(
        "--extract",
        metavar="auto|html|text|none",
        help="How to read HTML. auto: the main text of whole pages, the text of fragments; html: every value is HTML; "
        "text: none is; none: all visible text of pages.",
    ),
    "fingerprint_format": click.option(
        "--fingerprint-format",
        metavar="auto|hex|decimal|signed|binary",
        help="How fingerprints are written; auto: the first ones of an input decide.",
    ),
    "job": click.option("--job", metavar="DIR", help="The folder for the job's checkpoint and lists."),
    "listen": click.option("--listen", metavar="HOST:PORT", help="Where callers come; by default 127.0.0.1:8343."),
    "token_file": click.option(
        "--token-file", metavar="FILE", help="A file with a token, which callers send as Authorization: Bearer …"
    ),
    "slow_query_s": click.option(
        "--slow-query",
        "slow_query_s",
        metavar="SECONDS",
        help="Log queries that take longer, with what they read, as warnings; by default 1; 0: none.",
    ),
}
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask.")


def utf8(value: str) -> str:
    """Return the value of an option or argument that must be UTF-8; the name of a file need not be."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter(f"{value!r:.80} is not UTF-8; give it in UTF-8") from error
    return value


fingerprint_field_option = click.option(
    "--fingerprint-field", type=utf8, metavar="NAME", help="The JSON field with a fingerprint, read instead of a text."
)

_FIELD_OPTIONS = (
    click.option(
        "--field",
        "fields",
        type=utf8,
        multiple=True,
        metavar="NAME=WEIGHT",
        help="A JSON field of documents of several texts, and what its features weigh: title=3; may be repeated. The "
        "profile keeps them, so an index is asked with the same.",
    ),
    click.option(
        "--features-field",
        type=utf8,
        metavar="NAME",
        help='The JSON field with features and weights, read instead of a text: {"cat": 0.9} or [["cat", 0.9]]. By '
        "default with profile features-1.",
    ),
)
first_seen_field_option = click.option(
    "--first-seen-field",
    type=utf8,
    metavar="NAME",
    help="The JSON field with ms since 1970 or an ISO 8601 time; with fingerprints it is first_seen by default.",
)


def metrics_option(command: Function) -> Function:
    """Give a command the flag for numbers to watch, which are served while it runs."""

    @click.option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="While it runs, serve numbers for Prometheus there, at /metrics; by default to this machine alone.",
    )
    @functools.wraps(command)
    def run(*, metrics_port: str | None, **given: object) -> object:
        if metrics_port is None:
            return command(**given)
        from hsimhash.settings import address_in

        try:
            host, port = address_in(metrics_port if ":" in metrics_port else f"127.0.0.1:{metrics_port}")
        except ValueError as error:
            raise click.BadParameter(f"{metrics_port!r}: {error}", param_hint="'--metrics-port'") from error
        with metrics.served(host, port) as chosen:
            say(f"numbers at http://{f'[{host}]' if ':' in host else host}:{chosen}/metrics")
            return command(**given)

    return run


def setting_flags(*keys: str) -> Callable[[Function], Function]:
    """Give a command the flags of these settings, all of them where none is named."""

    def decorate(command: Function) -> Function:
        for key in reversed(keys or tuple(_FLAGS)):
            command = _FLAGS[key](command)
        return command

    return decorate


# Which settings say how documents are read and fingerprinted, for commands that load INPUTs.
READING = ("format", "id_field", "text_field", "extract", "fingerprint_format", "workers")


def with_settings(*keys: str) -> Callable[[Function], Function]:
    """Give a command the flags of these settings, and the settings as its argument `settings`."""

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def run(**given: object) -> object:
            flags = {key: given.pop(key) for key in keys}
            return command(settings=load_settings(flags).settings, **given)

        return setting_flags(*keys)(run)

    return decorate


def field_options(command: Function) -> Function:
    """Give a command the flags for fields and for features, which change the settings' profile."""

    @functools.wraps(command)
    def run(*, settings: Settings, fields: Sequence[str], features_field: str | None, **given: object) -> object:
        return command(settings=_with_features(_with_fields(settings, fields), features_field), **given)

    return functools.reduce(lambda decorated, option: option(decorated), reversed(_FIELD_OPTIONS), run)


def _with_fields(settings: Settings, fields: Sequence[str]) -> Settings:
    """Return the settings with these fields in the profile."""
    if not fields:
        return settings
    base, _, written = settings.profile.partition(":")
    weights = "+".join(fields).replace("=", "^")
    profile = f"{base}:fields={weights}{',' if written else ''}{written}"
    try:
        Profile.named(profile)
    except ValueError as error:
        raise click.UsageError(f"--field: {error}") from error
    return settings.model_copy(update={"profile": profile})


def _with_features(settings: Settings, features_field: str | None) -> Settings:
    """Return the settings that read features from a field; a profile that nobody set becomes one that takes them."""
    if features_field is None:
        return settings
    name = settings.profile if "profile" in settings.model_fields_set else FEATURES_PROFILE
    if Profile.named(name).tokens != "features":
        raise click.UsageError(f"profile {name} takes texts; --features-field goes with one such as {FEATURES_PROFILE}")
    values = settings.model_dump() | {"profile": name, "text_field": features_field}
    return type(settings).model_construct(settings.model_fields_set | {"text_field"}, **values)


def load_settings(flags: dict[str, object]) -> Loaded:
    """Return the settings for this invocation; a flag that is None was not given."""
    from hsimhash import settings

    given = {key: str(value) for key, value in flags.items() if value is not None}
    try:
        return settings.load(given, os.environ, click.get_current_context().find_root().params.get("config"))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def open_index(settings: Settings, *, exclusive: bool = False, is_job: bool = False) -> HSimIndex:
    """Open the index that the settings name; a layout or profile that somebody set must be the index's own.

    Args:
        settings: which.
        exclusive: see `HSimIndex.open`.
        is_job: the command works for minutes, and waits as long for a cluster that lost a server; no batch of its
            queries is logged as slow.
    """
    asked = settings.model_fields_set
    return HSimIndex.open(
        settings.store,
        layout=settings.layout if "layout" in asked else None,
        profile=settings.profile if "profile" in asked else None,
        lock_timeout_s=settings.lock_timeout_s,
        exclusive=exclusive,
        deadline_s=JOB_DEADLINE_S if is_job else DEADLINE_S,
        password=password_of(settings),
        slow_s=None if is_job else settings.slow_query_s,
    )


def password_of(settings: Settings) -> str | None:
    """Return the password for the store on Redis, if the settings have one; it goes to no other server."""
    return None if settings.redis_password is None else settings.redis_password.get_secret_value()


def stored(index: HSimIndex, doc_id: str) -> Document:
    """Return a document of the index; raise where it has none of this id."""
    document = index.get(doc_id)
    if document is None:
        raise HsimhashError(f"{index.url} has no document {doc_id!r}")
    return document


def create_index(settings: Settings, distance: int | None = None, ttl_s: int | None = None) -> None:
    """Make the index that the settings name, with their layout and profile; queries ask for `distance` by default."""
    refuse_memory(settings)
    warn_of(Profile.named(settings.profile))
    with HSimIndex.create(
        settings.store,
        layout=settings.layout,
        profile=settings.profile,
        distance=distance,
        lock_timeout_s=settings.lock_timeout_s,
        password=password_of(settings),
        ttl_s=ttl_s,
    ) as index:
        say(f"made {settings.store} {how_made(index.store.record)}")


def how_made(record: Record) -> str:
    """Return what is said of an index that was made."""
    return f"with layout {record.layout.name} and profile {record.profile['name']}; queries reach {record.reach} bits"


def wanted_record(settings: Settings, distance: int | None) -> Record:
    """Return how the settings want an index to be made; what nobody set may be otherwise where there is one."""
    layout = None if settings.layout is None else Layout.parse(settings.layout)
    record = new_record(settings.store, Profile.named(settings.profile).to_json(), layout=layout, distance=distance)
    assumed = record.assumed if "profile" in settings.model_fields_set else record.assumed | {"profile"}
    return replace(record, assumed=assumed)


def warn_of(profile: Profile) -> None:
    """Say what who chooses the profile must know."""
    if profile.warning:
        say(profile.warning)


def refuse_memory(settings: Settings) -> None:
    """Refuse an index in memory, which ends with the command."""
    if settings.store.startswith("memory:"):
        raise click.UsageError(f"nothing would remain of {settings.store} after this command; use lmdb://…")


def reading_of(settings: Settings, fingerprint_field: str | None, first_seen_field: str | None = None) -> InputOptions:
    """Return how inputs are read that are fingerprinted by the settings' profile; an index may have another."""
    reading = InputOptions(
        settings.format,
        settings.id_field,
        settings.text_field,
        fingerprint_field,
        first_seen_field,
        settings.fingerprint_format,
        extract=settings.extract,
    )
    return reading.for_profile(Profile.named(settings.profile))


def inputs_of(names: Sequence[str], reading: InputOptions) -> list[Input]:
    """Return the inputs of these names, and say what was found out about them."""
    if "-" in names:
        check_stdin()
    found = find_inputs(names, reading)
    for one in found:
        if one.note:
            say(one.note)
    return found


def read_sample(path: Path, flag: str, fingerprint_format: str) -> Uint64s:
    """Return the fingerprints of a file, one a line, alone or behind a tab; `flag` named the file."""
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        words = [(number, line.strip().split("\t")[-1]) for number, line in enumerate(lines, start=1) if line.strip()]
    if not words:
        raise click.BadParameter(f"{path} has no fingerprint", param_hint=f"'{flag}'")
    asked = formats_named(fingerprint_format)
    formats = decided_formats(str(path), asked, (word for _, word in words))
    if formats != asked:
        say(f"fingerprints of {path} are read as {spoken(formats)}")
    found = np.empty(len(words), np.uint64)
    for place, (number, word) in enumerate(words):
        try:
            found[place] = read_fingerprint(word, formats)
        except ValueError as error:
            raise click.BadParameter(f"{path}:{number}: {error}", param_hint=f"'{flag}'") from error
    return found


def confirm(question: str, *, is_confirmed: bool) -> bool:
    """Ask before something is destroyed; where nobody can be asked, refuse without --yes."""
    if is_confirmed:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation (stdin is not a terminal); pass --yes")
    if click.confirm(question, err=True):
        return True
    say("nothing was changed")
    return False
