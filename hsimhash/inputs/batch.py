"""What reading gives: documents in columns, and the records that are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Formats
from hsimhash.inputs.lines import PREVIEW_BYTES, Place

NO_FINGERPRINTS: NDArray[np.uint64] = np.empty(0, np.uint64)
NO_FINGERPRINTS.setflags(write=False)


class BadRecordError(ValueError):
    """A record is no document; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that is no document; `preview` is its beginning, as printable text; `path`: its file in a folder."""

    line: int
    reason: str
    preview: str
    path: str = ""

    @classmethod
    def of(cls, line: int, reason: object, record: bytes, path: str = "") -> Reject:
        """Describe a bad record; of `record` the beginning is kept."""
        text = record[:PREVIEW_BYTES].decode("utf-8", "backslashreplace").rstrip("\r\n")
        preview = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
        return cls(line, str(reason), preview, path)


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents in the order of their records: ids, and texts or else fingerprints.

    Args:
        doc_ids: checked.
        texts: one for each id, or none at all.
        fingerprints: uint64, one for each id, or none at all.
        lines: where the texts stand, from 1.
        first_seen: ms since 1970 for each id, None for now; or none at all: now for every one.
        rejects: the records between them that are no documents.
        damage: why the input ends here, before its end.
        fields: what else was asked for of JSON records: by name one value for each id, None where there is none.
        formats: which the input's fingerprints may have, as far as it was read.
        note: what was found out about the input here, for the user.
    """

    doc_ids: Sequence[str] = ()
    texts: Sequence[str] = ()
    fingerprints: NDArray[np.uint64] = field(default_factory=lambda: NO_FINGERPRINTS)
    lines: Sequence[int] = ()
    first_seen: Sequence[int | None] = ()
    rejects: Sequence[Reject] = ()
    damage: str = ""
    fields: Mapping[str, Sequence[object]] = field(default_factory=dict)
    formats: Formats = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the inputs.

    Args:
        input: the number of the input, from 0.
        place: where in it.
        formats: of a stream, which its fingerprints may have by what came before; none: as at its beginning.
    """

    input: int = 0
    place: Place = field(default_factory=Place)
    formats: Formats = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents that follow each other in one input, and the position behind them; none where a stream is silent."""

    input: int
    documents: Documents
    end: Position
