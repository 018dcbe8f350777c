"""Deduplicate files: pairs, clusters, and which document of each to keep."""

from hsimhash.dedup.apply import Applied, Which, apply, reading_of_run
from hsimhash.dedup.job import dedup
from hsimhash.dedup.options import DedupOptions, DedupSummary, Method, PairsListed

__all__ = [
    "Applied",
    "DedupOptions",
    "DedupSummary",
    "Method",
    "PairsListed",
    "Which",
    "apply",
    "dedup",
    "reading_of_run",
]
