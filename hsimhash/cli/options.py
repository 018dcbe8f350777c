"""Shared code of the commands: flags for settings, opening an index, reading samples, asking for confirmation."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from hsimhash import metrics
from hsimhash.cli.arguments import is_file
from hsimhash.cli.console import print_line, say
from hsimhash.cli.standard_streams import check_stdin
from hsimhash.cover import DEFAULT_DISTANCE, MOST_DISTANCE
from hsimhash.durations import duration_in_words
from hsimhash.errors import HsimhashError, IndexNotFoundError, in_shell, plural
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Uint64s, formats_named, read_fingerprint, spoken
from hsimhash.fingerprint.rarity import FIT_AUTO
from hsimhash.fingerprint.recipe import FEATURES_PROFILE
from hsimhash.index import HSimIndex, opened_index
from hsimhash.inputs import Input, InputOptions, find_inputs
from hsimhash.inputs.fingerprint_format import decided_formats
from hsimhash.inputs.records import json_object
from hsimhash.layout import Layout
from hsimhash.settings import Loaded, Settings, address_in, load
from hsimhash.store import Document, Opening, Record, Store, backend_of, check_url, lacking, new_record, titles
from hsimhash.store.base import DEADLINE_S, JOB_DEADLINE_S
from hsimhash.store.capabilities import HasTable
from hsimhash.store.unfinished_relayout import RUN_AGAIN, UNFINISHED, has_unfinished_relayout
from hsimhash.store.urls import EXCLUSIVE, LOCK_TIMEOUT, masked, with_options

Function = Callable[..., object]
_OLD_DISTANCE, _OLD_EXCLUSIVE = "old_max_distance", "old_exclusive"
# What to do instead, by flag, if a store does not support the flag.
_REMEDIES = {"--ttl": "run 'hsimhash expire --before AGE --yes' once a day"}


def _renamed(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Record the value of a renamed option."""
    if value is not None:
        say(f"{param.opts[0]} is now --distance; the next release will not accept the old name")
        ctx.meta[_OLD_DISTANCE] = value


def _exclusive(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Record a flag that a URL option has replaced."""
    if value:
        ctx.meta[_OLD_EXCLUSIVE] = f"{param.opts[0]} is", EXCLUSIVE, "yes"


exclusive_option = click.option("--exclusive", is_flag=True, hidden=True, expose_value=False, callback=_exclusive)


def _distance_option(command: Function) -> Function:
    old = click.option("--max-distance", _OLD_DISTANCE, hidden=True, expose_value=False, callback=_renamed)
    new = click.option(
        "--distance",
        "max_distance",
        metavar="BITS",
        help=f"Match fingerprints that differ in at most BITS bits, 0 to {MOST_DISTANCE}. Default: the distance "
        f"of the index, or {DEFAULT_DISTANCE} without an index. Documents that share a key match at any distance.",
    )
    return new(old(command))


# Values are plain text here. `Settings` validates them, whether they come from flags, variables or files.
_FLAGS: dict[str, Callable[[Function], Function]] = {
    "store": click.option(
        "--store",
        metavar="URL",
        help="URL of the index: lmdb://relative/path, lmdb:///absolute/path, hbase://gateway:9091/namespace:table, "
        "postgresql://user@host/database?table=pages, redis://host:6379/0?prefix=name, or tables://folder (read-only). "
        "Default: lmdb://hsimhash-index.",
    ),
    "layout": click.option(
        "--layout",
        metavar="NAME",
        help="How the index arranges fingerprints: 4, 10, 16, 20, 28, or blocks/choice such as 13,13,13,13,12/2. "
        "'hsimhash plan' compares layouts.",
    ),
    "profile": click.option(
        "--profile",
        metavar="NAME",
        help="How to turn texts into fingerprints: auto-3, auto-2, zh-1 and others. To override parts of a profile, "
        "add them after a colon: words-1:n=3,hash=fnv-1a-64.",
    ),
    "max_distance": _distance_option,
    "max_sketch": click.option(
        "--max-sketch",
        metavar="BITS|off",
        help="Reject matches whose sketches differ in more than BITS bits, 0 to 64; off accepts all. Default: 20. "
        "For matches that only share a key, each bit of distance beyond 16 lowers this limit by one.",
    ),
    "workers": click.option("--workers", metavar="N", help="Number of worker processes. Default: one per core."),
    "lock_timeout_s": click.option("--lock-timeout", "lock_timeout_s", hidden=True),
    "on_duplicate": click.option(
        "--on-duplicate",
        metavar="add|skip|tag",
        help="What to do with a near-duplicate of an earlier document: add it; skip it and list its nearest match; or "
        "add it and list its nearest match (tag). Default: add.",
    ),
    "text_field": click.option(
        "--text-field", metavar="NAME", help="Field or column that holds the text. Default: text."
    ),
    "id_field": click.option(
        "--id-field",
        metavar="NAME",
        help="Field or column that holds the id. Default: id; records without it get the id FILE:LINE. For "
        "web archives: url (default) or record-id.",
    ),
    "format": click.option(
        "--format",
        metavar="auto|jsonl|tsv|fingerprints|files|lines|parquet|csv|warc",
        help="Format of the inputs. auto (default): detect it from the name; files: each file is one text; lines: each "
        "line is one text.",
    ),
    "extract": click.option(
        "--extract",
        metavar="auto|html|text|none",
        help="How to treat HTML. auto (default): use the main text of pages and the visible text of fragments; html: "
        "treat every value as HTML; text: treat no value as HTML; none: like auto, but use all visible text of pages.",
    ),
    "fingerprint_format": click.option(
        "--fingerprint-format",
        metavar="auto|hex|decimal|signed|binary",
        help="Number format of fingerprints. auto (default): detect it from the first fingerprints in each input.",
    ),
    "job": click.option("--job", metavar="DIR", help="Keep the job's checkpoint and lists in DIR."),
    "listen": click.option("--listen", metavar="HOST:PORT", help="Address to listen on. Default: 127.0.0.1:8343."),
    "allow_origin": click.option(
        "--allow-origin",
        metavar="ORIGIN[,…]",
        help="With a token: also accept requests from web pages at these origins, such as https://app.example.com.",
    ),
    "host": click.option(
        "--host", metavar="NAME[,…]", help="Without a token: also accept requests that use these host names."
    ),
    "token_file": click.option(
        "--token-file", metavar="FILE", help="Require the token in FILE, sent as Authorization: Bearer TOKEN."
    ),
    "slow_query_s": click.option(
        "--slow-query",
        "slow_query_s",
        metavar="SECONDS",
        help="Log queries that take longer than SECONDS, and what they read. Default: 1; 0 turns this off.",
    ),
}
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON even on a terminal.")
yes_option = click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask for confirmation.")


def utf8(value: str) -> str:
    """Decode an option or argument as UTF-8. Not for file names, which may contain any bytes.

    Python may have decoded the bytes with another encoding: LC_ALL=C with PYTHONUTF8=0 supports only ASCII.
    """
    try:
        return value.encode(errors="surrogateescape").decode()
    except UnicodeError as error:
        raise click.BadParameter(f"{value!r:.80} is not valid UTF-8") from error


def store_url(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001
    """Return the URL of a store in an option; if it is invalid, the message names the option and hides secrets."""
    try:
        check_url(value)
    except ValueError as error:
        shown = masked(value)
        reason = "must be UTF-8" if isinstance(error, UnicodeError) else in_shell(error)
        raise click.UsageError(f"{param.opts[0]}: {shown!r}: {reason.removeprefix(f'store {shown!r}: ')}") from None
    return value


fit_option = click.option(
    "--fit",
    type=utf8,
    default=FIT_AUTO,
    metavar="auto|off|TABLE",
    help="Word weights for profiles such as auto-3. auto (default): learn them from the inputs; off: use weights "
    "for general text; TABLE: use a table written by 'hsimhash fit'.",
)
fingerprint_field_option = click.option(
    "--fingerprint-field", type=utf8, metavar="NAME", help="Read fingerprints from this field instead of texts."
)

_FIELD_OPTIONS = (
    click.option(
        "--field",
        "fields",
        type=utf8,
        multiple=True,
        metavar="NAME=WEIGHT",
        help="Combine several text fields: pass each field with its weight, such as title=3. Repeatable. The profile "
        "records the fields, so queries use the same fields.",
    ),
    click.option(
        "--features-field",
        type=utf8,
        metavar="NAME",
        help='Read weighted features from this field instead of texts: {"cat": 0.9} or [["cat", 0.9]]. The default '
        "profile is then features-1.",
    ),
)
first_seen_field_option = click.option(
    "--first-seen-field",
    type=utf8,
    metavar="NAME",
    help="Field that holds the time a document was first seen, in ms since 1970 or ISO 8601. Default for inputs with "
    "fingerprints: first_seen.",
)


def metrics_option(command: Function) -> Function:
    """Add --metrics-port, which serves metrics while the command runs."""

    @click.option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Serve Prometheus metrics at /metrics while the command runs. Default host: 127.0.0.1.",
    )
    @functools.wraps(command)
    def run(*, metrics_port: str | None, **given: object) -> object:
        if metrics_port is None:
            return command(**given)
        try:
            host, port = address_in(metrics_port if ":" in metrics_port else f"127.0.0.1:{metrics_port}")
        except ValueError as error:
            raise click.BadParameter(f"{metrics_port!r}: {in_shell(error)}", param_hint="'--metrics-port'") from error
        with metrics.served(host, port) as chosen:
            say(f"metrics at http://{f'[{host}]' if ':' in host else host}:{chosen}/metrics")
            return command(**given)

    return run


def setting_flags(*keys: str) -> Callable[[Function], Function]:
    """Add the flags for these settings to a command. Without arguments, add the flags for all settings."""

    def decorate(command: Function) -> Function:
        for key in reversed(keys or tuple(_FLAGS)):
            command = _FLAGS[key](command)
        return command

    return decorate


# Settings for reading and fingerprinting INPUTs.
READING = ("format", "id_field", "text_field", "extract", "fingerprint_format", "workers")


def with_settings(*keys: str) -> Callable[[Function], Function]:
    """Add the flags for these settings to a command, and pass the loaded settings to it as `settings`."""

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def run(**given: object) -> object:
            flags = {key: given.pop(key) for key in keys}
            return command(settings=load_settings(flags).settings, **given)

        return setting_flags(*keys)(run)

    return decorate


def field_options(command: Function) -> Function:
    """Add the flags for fields and features, which change the profile in the settings."""

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
        raise click.UsageError(f"--field: {in_shell(error)}") from error
    return replace(settings, profile=profile, given=settings.given | {"profile"})


def _with_features(settings: Settings, features_field: str | None) -> Settings:
    """Return settings that read features from a field. Without --profile, they use the default profile for features."""
    if features_field is None:
        return settings
    name = settings.profile if "profile" in settings.given else FEATURES_PROFILE
    if Profile.named(name).tokens != "features":
        raise click.UsageError(
            f"profile {name} is for texts: --features-field needs a profile such as {FEATURES_PROFILE}"
        )
    return replace(settings, profile=name, text_field=features_field, given=settings.given | {"text_field"})


def load_settings(flags: dict[str, object]) -> Loaded:
    """Load the settings for this invocation. A flag is None if it was not passed."""
    context = click.get_current_context()
    given = {key: str(value) for key, value in flags.items() if value is not None}
    if "max_distance" in flags and _OLD_DISTANCE in context.meta:
        given.setdefault("max_distance", str(context.meta[_OLD_DISTANCE]))
    try:
        loaded = load(given, os.environ, context.find_root().params.get("config"))
    except ValueError as error:
        raise click.UsageError(in_shell(error)) from error
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    seconds = loaded.settings.lock_timeout_s
    locking = None if seconds is None else ("lock_timeout_s and --lock-timeout are", LOCK_TIMEOUT, f"{seconds:g}s")
    for old in filter(None, (locking, context.meta.get(_OLD_EXCLUSIVE))):
        loaded = replace(loaded, settings=_with_url_option(loaded.settings, *old))
    return loaded


def _with_url_option(settings: Settings, old: str, name: str, value: str) -> Settings:
    """Print a deprecation warning, and add an option to the URL of the index if its store supports the option."""
    say(f"{old} now {name}={value} in the URL of the index; the next release will not accept the old form")
    if name not in backend_of(settings.store).options:
        return settings
    return replace(settings, store=with_options(settings.store, {name: value}))


def open_index(settings: Settings, *, is_job: bool = False) -> HSimIndex:
    """Open the index named in the settings. A layout or profile that was set explicitly must match the index.

    Prints a warning if the index is incomplete because a relayout into it has not finished.

    Args:
        settings: Settings with the URL of the index.
        is_job: Whether the command may run for minutes. If so, it waits longer for a cluster that lost a server, and
            does not log slow batches of queries.
    """
    asked = settings.given
    index = opened_index(
        settings.store,
        Opening(JOB_DEADLINE_S if is_job else DEADLINE_S, settings.redis_password),
        layout=settings.layout if "layout" in asked else None,
        profile=settings.profile if "profile" in asked else None,
        slow_s=None if is_job else settings.slow_query_s,
        takes_any_rarity=True,
    )
    try:
        if has_unfinished_relayout(index.store):
            say(f"warning: {UNFINISHED}; {RUN_AGAIN}")
    except BaseException:
        index.close()
        raise
    return index


def stored(index: HSimIndex, doc_id: str) -> Document:
    """Return the document with this id; raise `HsimhashError` if the index does not have it."""
    document = index.get(doc_id)
    if document is None:
        hint = ""
        if is_file(doc_id):
            hint = "; to use the file with this name, pass it without --id"
        elif "://" in doc_id:
            hint = "; ids must match exactly, including http or https and a / at the end"
        raise HsimhashError(f"{index.url} does not have a document {doc_id!r}{hint}")
    return document


def create_index(settings: Settings, ttl_s: int | None = None, profile: Profile | None = None) -> None:
    """Create the index named in the settings, with the layout, profile and distance given there."""
    refuse_memory(settings)
    profile = profile or Profile.named(settings.profile)
    warn_of(profile)
    with HSimIndex.create(
        settings.store,
        layout=settings.layout,
        profile=profile,
        distance=settings.max_distance,
        password=settings.redis_password,
        ttl_s=ttl_s,
    ) as index:
        say_created(settings.store, index.store)


def say_created(url: str, store: Store) -> None:
    """Say what kind of index was created, and what kind of table on HBase."""
    say(f"created {url} {how_made(store.record)}")
    if isinstance(store, HasTable):
        with suppress(HsimhashError):  # the index has been created, so it does not matter if a server fails now
            made = store.describe()
            say(f"the table has {plural(int(made['regions']), 'region')}; {expiry_in_words(int(made['ttl_s']))}")


def expiry_in_words(ttl_s: int) -> str:
    """Say when the documents of a table expire; 0 means never."""
    return f"its documents expire after {duration_in_words(ttl_s)}" if ttl_s else "its documents do not expire"


def how_made(record: Record) -> str:
    """Describe an index in words that follow its URL in a message."""
    return (
        f"with layout {record.layout.name} and profile {record.profile['name']}; "
        f"queries match within {record.reach} bits"
    )


def wanted_record(settings: Settings, distance: int | None) -> Record:
    """Return the record that the settings require. An existing index may differ in settings that were not passed."""
    layout = None if settings.layout is None else Layout.parse(settings.layout)
    record = new_record(settings.store, Profile.named(settings.profile).to_json(), layout=layout, distance=distance)
    assumed = record.assumed if "profile" in settings.given else record.assumed | {"profile"}
    return replace(record, assumed=assumed)


def warn_of(profile: Profile) -> None:
    """Print the warning of a profile, if it has one."""
    if profile.warning:
        say(profile.warning)


def opening_of(settings: Settings) -> Opening:
    """Return the options for opening an index with these settings."""
    return Opening(password=settings.redis_password)


def refuse_flags(url: str, *given: str) -> None:
    """Raise `click.UsageError` if a flag is only for other kinds of stores."""
    for flag in given:
        if flag not in backend_of(url).flags:
            remedy = _REMEDIES.get(flag, "leave it out")
            raise click.UsageError(f"{flag} is for an index on {titles(flag)}, not for {masked(url)}; {remedy}")


def tell_instead(url: str, capability: type, target: str = "") -> bool:
    """Return whether the store at a URL lacks a capability; if so, print what to do instead."""
    backend = backend_of(url)
    if capability in backend.capabilities:
        return False
    instead = backend.instead(capability, url, target)
    if instead is None:
        raise click.UsageError(lacking(capability, url))
    say(instead.said)
    for line in instead.lines:
        print_line(line)
    if instead.after:
        say(instead.after)
    if instead.lines:
        say(f"these commands are only printed; hsimhash did not check whether {masked(url)} exists")
    return True


def refuse_memory(settings: Settings) -> None:
    """Reject an in-memory index, because it would be lost when the command ends."""
    if not backend_of(settings.store).is_lasting:
        raise click.UsageError(f"{settings.store} exists only during this command; use lmdb://…")


def reading_of(
    settings: Settings, fingerprint_field: str | None, first_seen_field: str | None = None, index_url: str | None = None
) -> InputOptions:
    """Return how to read inputs, with the profile of the index at `index_url` or, without one, that of the settings."""
    reading = InputOptions(
        settings.format,
        settings.id_field,
        settings.text_field,
        fingerprint_field,
        first_seen_field,
        settings.fingerprint_format,
        extract=settings.extract,
    )
    return reading.for_profile(_profile_for(settings, index_url))


def _profile_for(settings: Settings, index_url: str | None) -> Profile:
    if index_url is not None and "profile" not in settings.given:
        with suppress(IndexNotFoundError), HSimIndex.open(index_url, password=settings.redis_password) as index:
            return index.profile
    return Profile.named(settings.profile)


def inputs_of(names: Sequence[str], reading: InputOptions) -> list[Input]:
    """Find the inputs with these names, and print what was detected."""
    if "-" in names:
        check_stdin()
    found = find_inputs(names, reading)
    for one in found:
        if one.note:
            say(one.note)
    return found


def read_sample(path: Path, flag: str, fingerprint_format: str) -> Uint64s:
    """Return the fingerprints in a file with one per line: alone, after a tab, or in JSON lines.

    `flag` is the option for the file. JSON lines for texts that are too short have null, and are skipped.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        found = ((number, _sample_word(line.strip())) for number, line in enumerate(lines, start=1))
        words = [(number, word) for number, word in found if word]
    if not words:
        raise click.BadParameter(f"{path} contains no fingerprints", param_hint=f"'{flag}'")
    asked = formats_named(fingerprint_format)
    formats = decided_formats(str(path), asked, (word for _, word in words))
    if formats != asked:
        say(f"fingerprints in {path} are read as {spoken(formats)}")
    fingerprints = np.empty(len(words), np.uint64)
    for place, (number, word) in enumerate(words):
        try:
            fingerprints[place] = read_fingerprint(word, formats)
        except ValueError as error:
            raise click.BadParameter(f"{path}:{number}: {in_shell(error)}", param_hint=f"'{flag}'") from error
    return fingerprints


def _sample_word(line: str) -> str:
    """Return the fingerprint in a line of a sample as text; empty if it is null in a JSON object."""
    if line.startswith("{"):
        with suppress(ValueError, KeyError):
            value = json_object(line)["fingerprint"]
            return "" if value is None else str(value)
    return line.split("\t")[-1]


def confirm(question: str, *, is_confirmed: bool) -> bool:
    """Ask for confirmation before destroying something; without a terminal, require --yes."""
    if is_confirmed:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation (stdin is not a terminal); pass --yes")
    if click.confirm(question, err=True):
        return True
    say("nothing was changed")
    return False
