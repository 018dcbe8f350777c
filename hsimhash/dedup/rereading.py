"""Return the texts of documents, from memory if they are held there, else by reading the inputs again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hsimhash.dedup.documents import Collected
from hsimhash.fingerprint.bits import Int64s
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.lines import STDIN
from hsimhash.inputs.reader import texts_at

STDIN_NAME = "standard input"  # name in the report


def texts_again(
    documents: Collected, inputs: Sequence[Input], options: InputOptions, wanted: Int64s, missing: dict[int, str]
) -> Iterator[tuple[int, str]]:
    """Yield (number, text) for the `wanted` documents, which must be in ascending order.

    Documents whose record now has a different id or length are skipped. For each input that cannot be read again, its
    number and the reason are added to `missing`.
    """
    rows, names = documents.rows.at(wanted), documents.doc_ids.at(wanted)
    for at, one in enumerate(inputs):
        if one.is_stream or one.has_fingerprints:
            why = "can be read only once" if one.is_stream else "holds fingerprints, not texts"
            missing[at] = f"{STDIN_NAME if one.name == STDIN else one.name} {why}"
            continue
        here = np.flatnonzero(rows["input"] == at).tolist()
        places = dict(zip(rows["line"][here].tolist(), here, strict=True))
        held = documents.texts.at(at, sorted(places)) if places else None
        if held is not None:
            yield from ((int(wanted[places[line]]), text) for line, text in held)
            continue
        try:
            for line, doc_id, text in texts_at(one, options, sorted(places)) if places else ():
                place = places[line]
                if names[place] == doc_id and rows["length"][place] == len(text):
                    yield int(wanted[place]), text
        except OSError as error:
            missing[at] = f"{one.name} cannot be read again: {error.strerror}"
        except Exception:  # the job continues without these texts
            missing[at] = f"{one.name} cannot be read again"
