"""Stores, where indexes keep their rows. A URL identifies a store, and each kind of store has a `Backend`."""

from __future__ import annotations

from hsimhash.store.backend import Backend, Instead, Opening
from hsimhash.store.base import Claim, Document, Mark, Match, Matches, Record, Store
from hsimhash.store.registry import (
    backend_of,
    backends,
    capable,
    check_url,
    create_store,
    default_backend,
    lacking,
    new_record,
    open_store,
    store_name,
    titles,
)
from hsimhash.store.reports import CheckReport, CollectReport
from hsimhash.store.runs import BulkLoad, StageOptions
from hsimhash.store.urls import url_of

__all__ = [
    "Backend",
    "BulkLoad",
    "CheckReport",
    "Claim",
    "CollectReport",
    "Document",
    "Instead",
    "Mark",
    "Match",
    "Matches",
    "Opening",
    "Record",
    "StageOptions",
    "Store",
    "backend_of",
    "backends",
    "capable",
    "check_url",
    "create_store",
    "default_backend",
    "lacking",
    "new_record",
    "open_store",
    "store_name",
    "titles",
    "url_of",
]
