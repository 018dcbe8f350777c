"""The results of the built-in profiles, pinned forever: the vectors and the worked example in `schema/`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hsimhash.fingerprint import EXACT, TOO_SHORT, VOTED, Profile, format_fingerprint
from hsimhash.fingerprint.normalize import normalize, to_text

pytestmark = pytest.mark.every_case
SCHEMA = Path(__file__).parents[1] / "schema"
VECTORS = json.loads((SCHEMA / "vectors-fingerprint.json").read_text(encoding="utf-8"))
PAGE = (SCHEMA / "fingerprint.md").read_text(encoding="utf-8")
KINDS = {VOTED: "voted", EXACT: "exact", TOO_SHORT: "too short"}


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_fingerprints_never_change(name: str) -> None:
    texts = [vector["text"] for vector in VECTORS[name]]
    found = Profile.named(name).fingerprints(texts)
    assert [format_fingerprint(value) for value in found.values] == [vector["fingerprint"] for vector in VECTORS[name]]
    assert [KINDS[kind] for kind in found.kinds.tolist()] == [vector["kind"] for vector in VECTORS[name]]


@pytest.mark.parametrize("name", ["auto-2", "auto-3"])
def test_signatures_never_change(name: str) -> None:
    found = Profile.named(name).signatures([vector["text"] for vector in VECTORS[name]])
    assert list(map(format_fingerprint, found.sketches)) == [vector["sketch"] for vector in VECTORS[name]]
    assert list(map(format_fingerprint, found.keys)) == [vector["key"] for vector in VECTORS[name]]


def test_the_worked_example_of_the_page_is_what_the_code_gives() -> None:
    profile = Profile.named("auto-1")
    text, normalised = (json.loads(block) for block in re.findall(r"^```json\n(.*)\n```", PAGE, re.MULTILINE))
    assert to_text(normalize([text])) == normalised + "\0"

    rows = re.findall(r"^\| `(.+)` \| \d \| [\d.]* ?\| [\d,]+ \| ([\d,]+) \| `(\w{16})` \|", PAGE, re.MULTILINE)
    listed = [(feature, int(weight.replace(",", "")), int(hashed, 16)) for feature, weight, hashed in rows]
    assert listed == [(feature.text, feature.weight, feature.hash) for feature in profile.features(text)]

    lines = re.findall(r"^((?: +-?\d+){8})   (\w\w)$", PAGE, re.MULTILINE)
    sums = [int(number) for line, _ in lines for number in line.split()]
    assert sums == [sum(weight if hashed >> bit & 1 else -weight for _, weight, hashed in listed) for bit in range(64)]
    fingerprint = "".join(byte for _, byte in reversed(lines))
    assert f"`{fingerprint}`" in PAGE
    assert fingerprint == format_fingerprint(profile.fingerprint(text))
