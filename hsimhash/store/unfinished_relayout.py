"""The mark in an index that is the target of an unfinished relayout, so that other commands can warn about it."""

from __future__ import annotations

import numpy as np

from hsimhash.fingerprint.signature import Signatures
from hsimhash.store.base import Mark, Store

_TOKEN = "relayout"  # noqa: S105  (on disk: the mark's count is 1 until the relayout has finished, then 0)
UNFINISHED = "a relayout into this index has not finished, so documents are missing"
RUN_AGAIN = "run the same 'hsimhash relayout' command again until it finishes"


def mark_relayout(store: Store, *, is_finished: bool) -> None:
    """Record in the target of a relayout whether the relayout has finished; durable on return."""
    nothing = Signatures.of(np.empty(0, np.uint64))
    store.insert([], nothing, np.empty(0, np.int64), mark=Mark(_TOKEN, int(not is_finished)))


def has_unfinished_relayout(store: Store) -> bool:
    """Whether an index is the target of a relayout that has not finished."""
    return store.marked(_TOKEN) == 1
