"""Ctrl-C and SIGTERM: one answer to both, for as long as a block runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
