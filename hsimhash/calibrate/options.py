"""Options of a calibration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hsimhash.cover import MOST_DISTANCE
from hsimhash.fingerprint import Profile
from hsimhash.inputs.files import InputOptions

SAMPLED = 20_000  # number of documents to compare, by default
DISTANCES = range(MOST_DISTANCE + 1)  # distances to compare: all that a query may use
PLANNED = (
    1_000_000  # minimum size of the planned collection without labels; in a small one, any distance would look safe
)


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """Options of a calibration.

    Args:
        profiles: Profiles to compare, or their names; by default those that suit the scripts of the texts.
        labels: File that lists which documents are near; None: plant edits instead.
        documents: Number of documents in the planned collection; None: the number in the inputs, and without labels, at
            least PLANNED.
        reading: How to read the inputs.
        workers: Number of processes that make fingerprints; None: the same as for other jobs.
        sample: Number of documents to compare. All labelled documents are compared, even if there are more.
    """

    profiles: tuple[Profile | str, ...] = ()
    labels: Path | None = None
    documents: int | None = None
    reading: InputOptions = field(default_factory=InputOptions)
    workers: int | None = None
    sample: int = SAMPLED

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")
        if self.documents is not None and self.documents < 2:
            raise ValueError(f"documents must be at least 2, got {self.documents}")
        if self.sample < 2:
            raise ValueError(f"sample must be at least 2, got {self.sample}")
