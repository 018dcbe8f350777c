"""Exit codes, the code and message for each error, and handlers for Ctrl-C and SIGTERM."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from types import FrameType
from typing import TYPE_CHECKING

from hsimhash import errors

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

END_S = 2.0  # time for a command to end after an interrupt
AGAIN_S = 0.05  # a lost signal is sent again after this time, when other code is running


class ExitCode(IntEnum):
    """The exit codes of the process."""

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


_MISMATCHES = (
    errors.IndexNotFoundError,
    errors.IndexExistsError,
    errors.LayoutMismatchError,
    errors.ProfileMismatchError,
    errors.FormatVersionError,
)
_CODES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], ExitCode], ...] = (
    (errors.SettingsError, ExitCode.SETTINGS_INVALID),
    ((errors.StoreUnavailableError, errors.StoreBusyError, errors.InputUnavailableError), ExitCode.STORE_UNREACHABLE),
    (_MISMATCHES, ExitCode.MISMATCH),
    (errors.StoreReadOnlyError, ExitCode.MISUSED),
    (ValueError, ExitCode.MISUSED),  # what the package raises for invalid arguments
)


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code of an error."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ExitCode.FAILED)


def message_of(error: Exception) -> str:
    """Return an error as one line for the user."""
    if isinstance(error, OSError) and error.strerror:
        reason = errors.in_shell(error.strerror)
        text = f"{error.filename}: {reason}" if error.filename is not None else reason
        # A message that is not from the operating system already includes a remedy.
        if error.strerror == os.strerror(error.errno or 0) and (limit := _limit(error)):
            text += f"; {limit}"
    elif isinstance(error, MemoryError):
        text = f"out of memory; {errors.LIMITS[errno.ENOMEM]}"
    elif isinstance(error, RuntimeError) and "can't start new thread" in errors.in_shell(error):
        text = f"{errors.in_shell(error)}; {errors.MORE_PROCESSES}"
    elif isinstance(error, (errors.HsimhashError, ValueError, OSError)):
        text = errors.in_shell(error)
    else:
        text = (
            f"unexpected {type(error).__name__}: {errors.in_shell(error)}; this is a bug; "
            f"run 'hsimhash -v …' for a traceback"
        )
    if FileNotFoundError in (type(error), type(error.__cause__)) and _is_current_folder_gone():
        text += "; the current folder was deleted; change to an existing one"
    return " ".join(text.splitlines())


def _limit(error: OSError) -> str | None:
    """Return the remedy if an error means that a system limit was reached; otherwise return None."""
    if isinstance(error, BlockingIOError) and error.filename is None:  # from fork(); other calls name a file
        return errors.MORE_PROCESSES
    return errors.LIMITS.get(error.errno or 0)


def _is_current_folder_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 (only this call asks the operating system)
    except FileNotFoundError:
        return True
    return False


@contextmanager
def answering(answer: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM with `answer`. A signal that is ignored, as in a background job, stays ignored."""
    is_main = threading.current_thread() is threading.main_thread()  # other threads cannot set handlers
    before = {
        number: signal.signal(number, answer)
        for number in (signal.SIGINT, signal.SIGTERM)
        if is_main and signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Raise `KeyboardInterrupt`, and end the process `END_S` later if it is still waiting, such as for a dead server.

    Ending it is no worse than killing it: acknowledged writes are kept, and jobs can be resumed.
    """
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, END_S)
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    with suppress(OSError):
        os.write(2, b"hsimhash: interrupted\n")
    os._exit(ExitCode.INTERRUPTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGINT and SIGTERM, and raise it again if Python loses the exception.

    Python loses it if the signal arrives in a finaliser or a garbage collector callback, for example during imports.
    """
    before = sys.unraisablehook

    def hook(lost: UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)

    sys.unraisablehook = hook
    try:
        with answering(interrupt):
            yield
    finally:
        sys.unraisablehook = before
        signal.setitimer(signal.ITIMER_REAL, 0)
