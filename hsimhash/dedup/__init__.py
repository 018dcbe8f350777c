"""Deduplicate files: pairs, clusters, and which document of each to keep."""

from hsimhash.dedup.apply import Applied, Which, apply, reading_of_run
from hsimhash.dedup.job import dedup
from hsimhash.dedup.options import DedupObserver, DedupOptions, DedupProgress, DedupSummary, Method

__all__ = [
    "Applied",
    "DedupObserver",
    "DedupOptions",
    "DedupProgress",
    "DedupSummary",
    "Method",
    "Which",
    "apply",
    "dedup",
    "reading_of_run",
]
