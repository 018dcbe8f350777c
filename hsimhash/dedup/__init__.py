"""Deduplicate files: pairs, clusters, and which document of each to keep."""

from hsimhash.dedup.apply import Applied, ApplyOptions, apply
from hsimhash.dedup.job import dedup
from hsimhash.dedup.options import MAX_DISTANCE, DedupObserver, DedupOptions, DedupProgress, DedupSummary, Method

__all__ = [
    "MAX_DISTANCE",
    "Applied",
    "ApplyOptions",
    "DedupObserver",
    "DedupOptions",
    "DedupProgress",
    "DedupSummary",
    "Method",
    "apply",
    "dedup",
]
