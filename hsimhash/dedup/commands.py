"""Build the commands that the report suggests: the same run with a different distance or without keys, and `apply`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from hsimhash.cover import MOST_DISTANCE
from hsimhash.dedup.options import DedupOptions
from hsimhash.dedup.report import DedupCommands, Retry
from hsimhash.dedup.summary import BEYOND_BITS, smaller_distance
from hsimhash.fingerprint import DEFAULT_PROFILE, Profile
from hsimhash.fingerprint.profile_grammar import with_option
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.inputs.files import Input

COMMAND_CHARS = 4_000  # longest command that is suggested; nobody reads a longer one before running it

_KEPT = {"jsonl": "kept.jsonl", "tsv": "kept.tsv", "files": "kept.txt"}  # what `apply` can copy


def next_commands(
    inputs: Sequence[Input], out: Path, options: DedupOptions, *, profile: str, url: str | None
) -> DedupCommands:
    """Return the commands to run next: with the index at `url` or, if that is None, with the profile."""
    bits, names = options.max_distance, _names(inputs)
    more, fewer = min(bits + BEYOND_BITS, MOST_DISTANCE), smaller_distance(bits)
    is_known = names is not None and (url is not None or _can_be_named(profile))

    def retry(distance: int, profile: str = profile) -> Retry:
        words = ["hsimhash", "dedup", *(names or ()), "--out", str(out), "--distance", str(distance)]
        made_by = ["--against", url] if url else ["--profile", profile] if profile != DEFAULT_PROFILE else []
        words += [*made_by, *options.reading.flags, *_option_words(options), "--overwrite"]
        change = f"--distance {distance}" if distance != bits else shlex.join(made_by)
        return Retry(distance, _pasteable(words) if is_known else "", change)

    has_keys = is_known and url is None and Profile.named(profile).key is not None
    return DedupCommands(
        more=retry(more) if more > bits else None,
        fewer=retry(fewer) if fewer < bits else None,
        without_keys=retry(bits, with_option(profile, "key=off")) if has_keys else None,
        apply=_pasteable(_apply_words(inputs, out)),
        dropped=_pasteable(_dropped_words(inputs, out)),
        has_short_url=any(one.remote is not None and one.remote.url != one.name for one in inputs),
    )


def _option_words(options: DedupOptions) -> list[str]:
    usual = DedupOptions()
    words = []
    if options.max_sketch != MAX_SKETCH:
        words += ["--max-sketch", "off" if options.max_sketch is None else str(options.max_sketch)]
    if options.clusters != usual.clusters:
        words += ["--clusters", options.clusters]
    if options.max_cluster_size is not None:
        words += ["--max-cluster-size", str(options.max_cluster_size)]
    if list(options.keep) != list(usual.keep):
        words += [word for policy in options.keep for word in ("--keep", str(policy))]
    if options.table_format != usual.table_format:
        words += ["--table-format", options.table_format]
    words += ["--fit", options.fit] if options.fit != usual.fit else []
    return [*words, *(["--pairs", options.pairs] if options.pairs != usual.pairs else [])]


def _apply_words(inputs: Sequence[Input], out: Path) -> list[str]:
    """Return the command that copies the kept documents; empty if `apply` cannot copy these inputs."""
    names, kinds = _names(inputs), {one.kind for one in inputs}
    if names is None or not kinds <= _KEPT.keys():
        return []
    kept = _KEPT[kinds.pop()] if len(kinds) == 1 else "kept.txt"
    return ["hsimhash", "apply", *names, "--from", str(out), "--out", kept]


def _dropped_words(inputs: Sequence[Input], out: Path) -> list[str]:
    """Return the command that lists the dropped files; empty if some inputs do not have one text in each file."""
    names = _names(inputs)
    if names is None or {one.kind for one in inputs} != {"files"}:
        return []
    return ["hsimhash", "apply", *names, "--from", str(out), "--dropped", "--out", "dropped.txt"]


def _names(inputs: Sequence[Input]) -> list[str] | None:
    """Return the inputs as arguments of a command; None if one of them was a stream, which cannot be read again."""
    if any(one.is_stream for one in inputs):
        return None
    names = dict.fromkeys(one.folder or one.name for one in inputs)  # record files in a folder are inputs too
    return [f"./{name}" if name.startswith("-") else name for name in names]


def _can_be_named(profile: str) -> bool:
    """Return whether a profile can be made from its name alone; a profile with word lists needs their files."""
    try:
        Profile.named(profile)
    except ValueError:
        return False
    return True


def _pasteable(words: Sequence[str]) -> str:
    """Return words as a shell command; empty if it is too long or has characters that a page cannot show."""
    line = shlex.join(words)
    return line if len(line) <= COMMAND_CHARS and line.isprintable() else ""
