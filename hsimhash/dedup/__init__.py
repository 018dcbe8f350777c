"""Deduplicate files: pairs, clusters, and which document of each to keep."""

from hsimhash.dedup.apply import Applied, ApplyOptions, apply
from hsimhash.dedup.job import dedup
from hsimhash.dedup.options import (
    MAX_DISTANCE,
    METHODS,
    DedupObserver,
    DedupOptions,
    DedupProgress,
    DedupSummary,
    Method,
)
from hsimhash.dedup.tables import TABLE_FORMATS

__all__ = [
    "MAX_DISTANCE",
    "METHODS",
    "TABLE_FORMATS",
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
