"""Ctrl-C and SIGTERM: one answer to both, for as long as a block runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S = 0.05


@contextmanager
def answering(answer: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Let `answer` handle both; what is ignored, as in a shell's background job, stays so. Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, answer)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let both raise `KeyboardInterrupt`; again, where the first one was lost.

    It is lost where the signal meets a finaliser or a callback of the garbage collector, as there are in imports.
    """
    before, was_lost = sys.unraisablehook, False

    def hook(lost: UnraisableHookArgs) -> None:
        nonlocal was_lost
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        was_lost = True
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)  # by when other code runs

    sys.unraisablehook = hook
    try:
        with answering(signal.default_int_handler):
            yield
    finally:
        sys.unraisablehook = before
        if was_lost:
            signal.setitimer(signal.ITIMER_REAL, 0)
