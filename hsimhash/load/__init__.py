"""Load documents from files, folders or stdin into an index, in bulk or with a decision on each; resumable."""

from hsimhash.load.ingest import IngestLimits, IngestOptions, check_options, ingest
from hsimhash.load.job import Summary, default_job
from hsimhash.load.relayout import relayout

__all__ = [
    "IngestLimits",
    "IngestOptions",
    "Summary",
    "check_options",
    "default_job",
    "ingest",
    "relayout",
]
