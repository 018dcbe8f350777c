"""Deduplicate files: find pairs and clusters, and choose which document of each cluster to keep."""

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
