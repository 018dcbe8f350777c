"""hsimhash: every near-duplicate of a document among billions.

A text becomes a 64-bit simhash *fingerprint*; an index returns every stored fingerprint within k bits of a query.
"""

from hsimhash.errors import (
    CorruptionError,
    FormatVersionError,
    HsimhashError,
    IndexExistsError,
    IndexNotFoundError,
    LayoutMismatchError,
    ProfileMismatchError,
    StoreBusyError,
    StoreClosedError,
    StoreUnavailableError,
    TextTooShortError,
)
from hsimhash.fingerprint import Profile, distance, distances, format_fingerprint, parse_fingerprint
from hsimhash.index import HSimIndex, Match
from hsimhash.layout import Layout
from hsimhash.store import CheckReport, Document

__all__ = [
    "CheckReport",
    "CorruptionError",
    "Document",
    "FormatVersionError",
    "HSimIndex",
    "HsimhashError",
    "IndexExistsError",
    "IndexNotFoundError",
    "Layout",
    "LayoutMismatchError",
    "Match",
    "Profile",
    "ProfileMismatchError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreUnavailableError",
    "TextTooShortError",
    "distance",
    "distances",
    "format_fingerprint",
    "parse_fingerprint",
]
