"""Deduplicate files: pairs, clusters, and which document of each to keep."""

from hsimhash.dedup.apply import Applied, Which, apply, reading_of_run
from hsimhash.dedup.job import dedup
from hsimhash.dedup.options import DedupOptions, DedupSummary, Method

__all__ = [
    "Applied",
    "DedupOptions",
    "DedupSummary",
    "Method",
    "Which",
    "apply",
    "dedup",
    "reading_of_run",
]
