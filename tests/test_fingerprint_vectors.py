"""The fingerprints of the built-in profiles, pinned for ever: `schema/vectors-fingerprint.json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hsimhash.fingerprint import EXACT, TOO_SHORT, VOTED, Profile, format_fingerprint

VECTORS = json.loads((Path(__file__).parents[1] / "schema" / "vectors-fingerprint.json").read_text(encoding="utf-8"))
KINDS = {VOTED: "voted", EXACT: "exact", TOO_SHORT: "too short"}


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_fingerprints_never_change(name: str) -> None:
    texts = [vector["text"] for vector in VECTORS[name]]
    found = Profile.named(name).fingerprints(texts)
    assert [format_fingerprint(value) for value in found.values] == [vector["fingerprint"] for vector in VECTORS[name]]
    assert [KINDS[kind] for kind in found.kinds.tolist()] == [vector["kind"] for vector in VECTORS[name]]
