"""Documents in files, folders or on stdin → an index: in bulk, resumable, with near-duplicates left out or tagged."""

from hsimhash.load.ingest import IngestLimits, IngestObserver, IngestOptions, IngestProgress, check_options, ingest
from hsimhash.load.job import Summary, default_job
from hsimhash.load.relayout import relayout

__all__ = [
    "IngestLimits",
    "IngestObserver",
    "IngestOptions",
    "IngestProgress",
    "Summary",
    "check_options",
    "default_job",
    "ingest",
    "relayout",
]
