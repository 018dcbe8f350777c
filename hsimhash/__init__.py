"""hsimhash: find every near-duplicate of a document among billions.

A text becomes a 64-bit simhash *fingerprint*; an index returns every stored fingerprint within k bits of a query.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
        StoreTimeoutError,
        StoreUnavailableError,
        TextTooShortError,
    )
    from hsimhash.fingerprint import (
        Profile,
        Signature,
        Signatures,
        distance,
        distances,
        format_fingerprint,
        parse_fingerprint,
    )
    from hsimhash.index import HSimIndex
    from hsimhash.layout import Layout
    from hsimhash.pairs import Cluster, Duplicates, duplicates
    from hsimhash.store import CheckReport, Claim, Document, Match, Matches

__all__ = [
    "CheckReport",
    "Claim",
    "Cluster",
    "CorruptionError",
    "Document",
    "Duplicates",
    "FormatVersionError",
    "HSimIndex",
    "HsimhashError",
    "IndexExistsError",
    "IndexNotFoundError",
    "Layout",
    "LayoutMismatchError",
    "Match",
    "Matches",
    "Profile",
    "ProfileMismatchError",
    "Signature",
    "Signatures",
    "StoreBusyError",
    "StoreClosedError",
    "StoreTimeoutError",
    "StoreUnavailableError",
    "TextTooShortError",
    "distance",
    "distances",
    "duplicates",
    "format_fingerprint",
    "parse_fingerprint",
]

__version__ = "0.2.0"

if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name on first use: importing numpy is slow, and signal handlers must be installed first."""
        if name in __all__:
            for module in ("errors", "fingerprint", "layout", "store", "index", "pairs"):
                found = importlib.import_module(f"hsimhash.{module}")
                if hasattr(found, name):
                    globals()[name] = getattr(found, name)
                    return globals()[name]
        raise AttributeError(f"module 'hsimhash' has no attribute {name!r}")
