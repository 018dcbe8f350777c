"""Documents in files, folders or on stdin → an index: in bulk, resumable, with near-duplicates left out or tagged."""

from hsimhash.load.ingest import (
    IngestObserver,
    IngestOptions,
    IngestProgress,
    Summary,
    check_options,
    default_job,
    ingest,
)
from hsimhash.load.job import Counts

__all__ = [
    "Counts",
    "IngestObserver",
    "IngestOptions",
    "IngestProgress",
    "Summary",
    "check_options",
    "default_job",
    "ingest",
]
