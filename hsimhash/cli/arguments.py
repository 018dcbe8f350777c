"""Interpret TEXT, FILE, FP and ID arguments, with the same rules for every command.

1. An argument that is a file path means the text in that file.
2. Any other argument is a text, a fingerprint or a document id, depending on the command. It cannot be a text if it is
   a folder path, or looks like the path of a missing file.
3. The options --text, --file and --id are explicit, so rule 1 does not apply to their values.

Files are read as `hsimhash ingest` reads them: compressed files are unpacked, and a page (.html, .htm) is reduced to
its main text. The file - is stdin. `hsimhash remove` takes only ids as arguments, because it must not guess what to
delete.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Literal, NamedTuple

import click

from hsimhash.cli.standard_streams import check_stdin
from hsimhash.errors import HsimhashError, in_shell
from hsimhash.files import naming
from hsimhash.fingerprint.bits import parse_fingerprint
from hsimhash.inputs.extraction import text_of_page
from hsimhash.inputs.files import InputOptions, is_page_name, kind_by_name
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, STDIN, DamagedInputError, open_input, packing_of, unpacked_whole
from hsimhash.inputs.reader import content_of_file

_TEXT_SUFFIXES = (".txt", ".md")
ArgumentKind = Literal["text", "file", "id", "fingerprint", "unclear"]  # unclear: `explain` checks whether it is an id


class Named(NamedTuple):
    """A document named on the command line."""

    kind: ArgumentKind
    value: str


def understood(words: Iterable[str], otherwise: ArgumentKind) -> list[Named]:
    """Interpret the arguments of a command that takes texts, fingerprints or ids."""
    return [_understood(word, otherwise) for word in words]


def _understood(word: str, otherwise: ArgumentKind) -> Named:
    if word == STDIN or is_file(word):
        return Named("file", word)
    if otherwise == "text":
        refuse_missing_file(word)
    return Named(otherwise, word)


def is_file(word: str) -> bool:
    """Whether a word is the path of a file or pipe."""
    return os.path.exists(word) and not os.path.isdir(word)  # noqa: PTH110, PTH112 (it can be any text)


def refuse_missing_file(word: str) -> None:
    """Reject an argument that would be taken as a text but is a folder, or looks like the path of a missing file."""
    if os.path.isdir(word):  # noqa: PTH112 (it can be any text)
        raise click.UsageError(f"{word!r:.200} is a folder; to use the argument itself as the text, pass --text")
    folder, name = os.path.split(word)
    is_name = not any(one.isspace() for one in name) and "://" not in word
    has_suffix = kind_by_name(name) or is_page_name(name) or packing_of(name) or name.endswith(_TEXT_SUFFIXES)
    if is_name and (has_suffix or (folder and os.path.isdir(folder))):  # noqa: PTH112 (it can be any text)
        raise click.UsageError(f"no such file: {word!r:.200}; to use the argument itself as the text, pass --text")


def by_options(*, texts: Sequence[str] = (), paths: Sequence[str] = (), doc_ids: Sequence[str] = ()) -> list[Named]:
    """Interpret the values of --text, --file and --id."""
    return [
        *(Named("text", one) for one in texts),
        *(Named("file", one) for one in paths),
        *(Named("id", one) for one in doc_ids),
    ]


def refuse_records(words: Iterable[str]) -> None:
    """Reject an argument that is a file of many documents, because using it as one text is probably a mistake."""
    for word in words:
        if kind_by_name(word) and is_file(word):
            raise click.UsageError(
                f"{word} contains many documents, not one text; pass - and send its records to stdin, or pass --file "
                f"to use the whole file as one text"
            )


def fingerprint_in(word: str, form: str) -> int:
    """Parse an argument that is not a file as a fingerprint; raise `click.UsageError` if it is invalid or ambiguous."""
    try:
        return parse_fingerprint(word, format=form)
    except ValueError as error:
        told = in_shell(error)
        if os.path.isdir(word):  # noqa: PTH112 (it can be any text)
            told = f"{word!r:.80} is a folder: pass its files"
        elif told.startswith("not a fingerprint"):
            told = (
                f"{word!r:.80} is neither a file nor a fingerprint: pass --text for a text, or --id for a document in "
                f"the index"
            )
        raise click.UsageError(told) from error


def read_text(path: str, extract: str = "auto") -> str:
    """Return the text of a file, or of stdin for `-`.

    Raises:
        HsimhashError: The text is not UTF-8, too long, or damaged.
        OSError: The file cannot be read.
    """
    if path == STDIN:
        check_stdin()
    name = "stdin" if path == STDIN else path
    try:
        with naming(name), nullcontext(sys.stdin.buffer) if path == STDIN else open_input(path) as file:
            data = unpacked_whole(file, packing_of(path))
        if len(data) > RECORD_LIMIT_BYTES:
            raise HsimhashError(f"{name} is too large: a document can be at most {RECORD_LIMIT_BYTES >> 20} MiB")
        content = content_of_file(path, data, extract)
        return text_of_page(content.text, InputOptions(extract=extract)) if content.is_page else content.text
    except (ValueError, DamagedInputError) as error:
        raise HsimhashError(f"{name}: {in_shell(error)}") from error
