"""A job's progress, and its observer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hsimhash import metrics


class Progress(NamedTuple):
    """Progress of a job.

    Attributes:
        stage: Current stage, such as `read`.
        done: How much of the stage is done, in bytes, rows or steps.
        total: How much there is to do; 0 if unknown.
        documents: Number of documents read so far; 0 if the job does not count them.
    """

    stage: str
    done: int = 0
    total: int = 0
    documents: int = 0


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes a job, which may call all of these functions often.

    Args:
        stop: Returns whether the job should end soon. A job that cannot be interrupted does not call it.
        progress: Receives the progress of the job.
        say: Receives messages for the user.
    """

    stop: Callable[[], bool] = lambda: False
    progress: Callable[[Progress], object] = lambda _: None
    say: Callable[[str], object] = lambda _: None

    def report(self, stage: str, done: int = 0, total: int = 0, documents: int = 0) -> None:
        """Report the progress of the job; see `Progress`."""
        if documents:
            metrics.current.documents.set(documents)
        self.progress(Progress(stage, done, total, documents))


UNWATCHED = Observer()
