"""Exit codes, which error ends in which, and what the user reads of it."""

from __future__ import annotations

import os
from enum import IntEnum

from hsimhash import errors


class ExitCode(IntEnum):
    """What the process says at its end."""

    DONE = 0
    FAILED = 1
    MISUSED = 2
    SETTINGS_INVALID = 3
    STORE_UNREACHABLE = 4
    MISMATCH = 5
    PROBLEMS_FOUND = 6
    REJECTED_RECORDS = 7
    NOTHING_FOUND = 8
    INTERRUPTED = 130


_CODES: tuple[tuple[type[Exception], ExitCode], ...] = (
    (errors.StoreUnavailableError, ExitCode.STORE_UNREACHABLE),
    (errors.StoreBusyError, ExitCode.STORE_UNREACHABLE),
    (errors.IndexNotFoundError, ExitCode.MISMATCH),
    (errors.IndexExistsError, ExitCode.MISMATCH),
    (errors.LayoutMismatchError, ExitCode.MISMATCH),
    (errors.ProfileMismatchError, ExitCode.MISMATCH),
    (errors.FormatVersionError, ExitCode.MISMATCH),
    (ValueError, ExitCode.MISUSED),  # the package's word for a wrong argument
)


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code that an error ends in."""
    from hsimhash.settings import SettingsError  # here: it would slow down every --help

    codes = ((SettingsError, ExitCode.SETTINGS_INVALID), *_CODES)
    return next((code for kind, code in codes if isinstance(error, kind)), ExitCode.FAILED)


def message_of(error: Exception) -> str:
    """Return an error as one line for the user."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    elif isinstance(error, (errors.HsimhashError, ValueError, OSError)):
        text = str(error)
    else:
        text = f"unexpected {type(error).__name__}: {error}; this is a bug, 'hsimhash -v …' shows where"
    if _is_current_folder_gone() and FileNotFoundError in (type(error), type(error.__cause__)):
        text += "; the current folder was deleted: change to one that is there"
    return " ".join(text.splitlines())


def _is_current_folder_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 (nothing else asks the system)
    except FileNotFoundError:
        return True
    return False
