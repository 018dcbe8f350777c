"""How far a job is, and who watches it: one form for all jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hsimhash import metrics


class Progress(NamedTuple):
    """How far a job is.

    Attributes:
        stage: what it does now, such as `read`.
        done: how much of the stage is done, in bytes, rows or steps.
        total: of how much; 0: unknown.
        documents: how many the job has read so far; 0 where it does not count them.
    """

    stage: str
    done: int = 0
    total: int = 0
    documents: int = 0


@dataclass(frozen=True, slots=True)
class Observer:
    """Watches a job, which may call all of these often.

    Args:
        stop: returns whether to end soon. A job that cannot be interrupted does not call it.
        progress: is given how far the job is.
        say: is given messages for the user.
    """

    stop: Callable[[], bool] = lambda: False
    progress: Callable[[Progress], object] = lambda _: None
    say: Callable[[str], object] = lambda _: None

    def report(self, stage: str, done: int = 0, total: int = 0, documents: int = 0) -> None:
        """Pass on how far the job is; see `Progress`."""
        if documents:
            metrics.current.documents.set(documents)
        self.progress(Progress(stage, done, total, documents))


UNWATCHED = Observer()
