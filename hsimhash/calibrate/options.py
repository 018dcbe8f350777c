"""Options of a calibration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hsimhash.cover import MOST_DISTANCE
from hsimhash.fingerprint import Profile
from hsimhash.inputs.files import InputOptions

SAMPLED = 20_000  # documents to compare, unless set
PLANNED = 1_000_000  # minimum size of a collection, unless set
DISTANCES = range(MOST_DISTANCE + 1)  # that are compared: all that a query may ask for


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """Options of a calibration.

    Args:
        profiles: those to compare, or their names; none: those that fit the scripts of the texts.
        labels: the file that says which documents are near; None: edits are planted.
        documents: how many the planned collection has; None: as many as the inputs, and at least PLANNED.
        reading: how the inputs are read.
        workers: processes that fingerprint; None: as for other jobs.
        sample: documents to compare; documents that labels name may be more.
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
