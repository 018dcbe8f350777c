"""All errors that hsimhash defines. Invalid arguments raise `ValueError` or `TypeError` instead.

    HsimhashError
    ├── IndexExistsError
    ├── IndexNotFoundError
    ├── LayoutMismatchError
    ├── ProfileMismatchError
    ├── FormatVersionError
    ├── CorruptionError
    ├── InputUnavailableError       is_retryable
    ├── SettingsError
    ├── StoreBusyError              is_retryable
    │   └── ClaimBusyError
    ├── StoreClosedError
    ├── StoreReadOnlyError
    ├── StoreUnavailableError       is_retryable
    │   ├── LostRightError
    │   └── StoreTimeoutError
    └── TextTooShortError
    StopAskedError

A message names the problem, the value and the remedy. If the remedy is a call in Python and a command or flag in the
shell, the message ends with a `Remedy`, which has both wordings.
"""

from __future__ import annotations

import difflib
import errno
import shlex
from collections.abc import Iterable
from typing import ClassVar


class Remedy(str):
    """A remedy in two wordings: a call for Python, a command or flag for the command line.

    As a `str`, it is the wording for Python. `plain text + remedy` and `remedy + plain text` are remedies too, so the
    message of any exception can end with a remedy. An f-string keeps only the wording for Python.

    Args:
        python: Wording for Python callers.
        shell: Wording for users of the command line.
    """

    shell: str

    def __new__(cls, python: str, shell: str) -> Remedy:
        """Return a remedy; see the class."""
        remedy = super().__new__(cls, python)
        remedy.shell = shell
        return remedy

    def __add__(self, after: str) -> Remedy:
        return Remedy(super().__add__(after), self.shell + in_shell(after))

    def __radd__(self, before: str) -> Remedy:
        return Remedy(str.__add__(before, self), in_shell(before) + self.shell)

    def __reduce__(self) -> tuple[object, ...]:
        return Remedy, (str(self), self.shell)


def most_like(word: str, known: Iterable[str]) -> str:
    """Return the known word most similar to `word`, for a message."""
    return difflib.get_close_matches(word, list(known), n=1, cutoff=0)[0]


def in_shell(said: object) -> str:
    """Return the text of an error or a message, in the wording for the command line."""
    if isinstance(said, BaseException):
        said = said.args[0] if said.args and isinstance(said.args[0], Remedy) else str(said)
    return said.shell if isinstance(said, Remedy) else str(said)


def plural(count: int, noun: str) -> str:
    """Return `1 document`, `2,000 documents`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def create_one(url: str) -> Remedy:
    """Return the remedy to show if there is no index at a URL."""
    creates = "ingest INPUT" if url.startswith("lmdb://") else "create-table"  # ingest also learns word weights
    command = quoted(f"hsimhash {creates} --store {shlex.quote(url)}")
    return Remedy(
        f'check the URL, or create one with HSimIndex.create("{url}")', f"check the URL, or create one with {command}"
    )


def diagnose(url: str) -> str:
    """Return the remedy to diagnose the index at a URL, which must not contain secrets."""
    command = quoted(f"hsimhash doctor --store {shlex.quote(url)}")
    return f"run {command}"


def quoted(command: str) -> str:
    """Return a command in quotation marks that do not occur in it."""
    quote = '"' if "'" in command else "'"
    return f"{quote}{command}{quote}"


REPAIR = Remedy("repair it with index.check(repair=True)", "repair it with 'hsimhash check --repair'")
START_OVER = Remedy("pass fresh=True to start over", "start over with --fresh")
OTHER_JOB = Remedy("pass another job folder", "choose another folder with --job")
OTHER_STAGE = Remedy("pass another stage", "choose another folder with --stage")
WAIT_LONGER = "set a longer lock_timeout= in the URL"

# What to do when the operating system reports a limit, by error number.
LIMITS = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some disk space, or request a larger quota",
    errno.EFBIG: "raise the limit on file size with 'ulimit -f'",
    errno.EROFS: "mount it writable",
    errno.EMFILE: "raise the limit on open files with 'ulimit -n'",
    errno.ENFILE: "raise the system's limit on open files with 'sysctl fs.file-max'",
    errno.ENOMEM: "raise the limit on memory with 'ulimit -v', or the container's limit",
}
MORE_PROCESSES = "raise the limit on processes and threads with 'ulimit -u', or the container's limit"


class HsimhashError(Exception):
    """Base class of all hsimhash errors. If `is_retryable`, the same call may succeed later."""

    is_retryable: ClassVar[bool] = False


class IndexExistsError(HsimhashError):
    """The index already exists; nothing was changed."""


class IndexNotFoundError(HsimhashError):
    """The index does not exist."""


class LayoutMismatchError(HsimhashError):
    """The index was created with a different layout; nothing was read or written."""


class ProfileMismatchError(HsimhashError):
    """The index was created with a different profile, or a profile no longer produces the expected fingerprints."""


class FormatVersionError(HsimhashError):
    """The index has a format version that this release does not support."""


class CorruptionError(HsimhashError):
    """Stored bytes are invalid."""


class InputUnavailableError(HsimhashError):
    """A remote input cannot be read at the moment. The inputs before it were read."""

    is_retryable = True


class SettingsError(HsimhashError):
    """The settings file or an environment variable has an unknown key or an invalid value."""


class StoreBusyError(HsimhashError):
    """Another process is writing."""

    is_retryable = True


class ClaimBusyError(StoreBusyError):
    """Another process is claiming a document near one of the claimed documents."""


class StoreClosedError(HsimhashError):
    """The store is closed."""


class StoreReadOnlyError(HsimhashError):
    """The store is read-only; nothing was written."""


class StoreUnavailableError(HsimhashError):
    """The store cannot be reached or cannot accept the write; retry once the problem is fixed."""

    is_retryable = True


class LostRightError(StoreUnavailableError):
    """The write lock or the view of one state was lost, so other processes may have written in the meantime."""


class StoreTimeoutError(StoreUnavailableError):
    """The caller's time limit passed before the answer was complete; the message reports the progress."""


class TextTooShortError(HsimhashError):
    """The text is too short to have features, so it does not have a fingerprint."""


class StopAskedError(Exception):
    """The caller's `stop` ended the call; nothing was written."""
