"""`schema/vectors.json` pins rowkeys, prefixes and splits forever; other implementations test against it too."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsimhash import rowkey
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signature, as_signatures
from hsimhash.layout import LAYOUT_NAMES, Layout

pytestmark = pytest.mark.every_case
SCHEMA = Path(__file__).parents[1] / "schema"
VECTORS: dict[str, Any] = json.loads((SCHEMA / "vectors.json").read_text())


def test_every_named_layout_has_vectors() -> None:
    assert [layout["layout"]["name"] for layout in VECTORS["layouts"]] == list(LAYOUT_NAMES)


@pytest.mark.parametrize("vectors", VECTORS["layouts"], ids=lambda vectors: vectors["layout"]["name"])
def test_layout_gives_the_pinned_rowkeys_and_splits(vectors: dict[str, Any]) -> None:
    layout = Layout.from_json(vectors["layout"])
    assert [drawer.segment_bits for drawer in layout.drawers] == vectors["segment_bits"]
    assert layout.max_distance == vectors["max_distance"]
    for fingerprint, expected in vectors["rowkeys"].items():
        value = int(fingerprint, 16)
        rows = rowkey.encode(layout, np.array([value], np.uint64))[0]
        assert [row.tobytes().hex() for row in rows] == expected
        assert [prefix.hex() for prefix in layout.prefixes(value)] == [row[:10] for row in expected]
    for regions, expected in vectors["splits"].items():
        assert [key.hex() for key in rowkey.splits(layout, int(regions))] == expected


def test_document_register_and_record_rowkeys_are_the_pinned_ones() -> None:
    for fingerprint, expected in VECTORS["documents_rowkeys"].items():
        assert rowkey.documents_rowkey(int(fingerprint, 16)).hex() == expected
    for doc_id, expected in VECTORS["register_rowkeys"].items():
        assert rowkey.register_rowkey(doc_id.encode()).hex() == expected
    assert rowkey.RECORD_ROWKEY.hex() == VECTORS["record_rowkey"]


def test_rows_of_the_key_drawer_are_the_pinned_ones() -> None:
    for named, expected in VECTORS["key_rowkeys"].items():
        key, fingerprint = (int(number, 16) for number in named.split())
        (row,) = rowkey.key_rowkeys(as_signatures([Signature(fingerprint, 0, key)]))
        assert row.tobytes().hex() == expected
        assert rowkey.key_prefix(key).hex() == expected[:10]


def test_parts_of_keys_and_their_rows_are_the_pinned_ones() -> None:
    for named, expected in VECTORS["key_parts"].items():
        key, fingerprint = (int(number, 16) for number in named.split())
        assert [f"{part:016x}" for part in Keying.IN_PARTS.parts_of(key)] == [one[:16] for one in expected]
        signatures = replace(as_signatures([Signature(fingerprint, 0, key)]), keying=Keying.IN_PARTS)
        rows = [row.tobytes().hex() for row in rowkey.key_rowkeys(signatures)]
        assert rows == sorted(one[17:] for one in expected)


def test_rows_of_the_log_of_orphans_are_the_pinned_ones() -> None:
    for named, expected in VECTORS["orphans_rowkeys"].items():
        hour, fingerprint = named.split()
        assert rowkey.orphans_rowkey(int(hour), int(fingerprint, 16)).hex() == expected


def test_bucket_ranges_are_the_pinned_ones() -> None:
    for prefix, expected in VECTORS["bucket_ranges"].items():
        assert [edge.hex() for edge in rowkey.bucket_range(bytes.fromhex(prefix))] == expected


def test_the_worked_example_of_the_page_is_what_the_code_gives() -> None:
    page = (SCHEMA / "rowkey.md").read_text(encoding="utf-8")
    fingerprint = 0x43BD250265AC2FC7
    shown = {row.replace(" ", "") for row in re.findall(r"`(\w{8} \w\w \w{16})`", page)}
    drawers = {name: rowkey.encode(Layout.named(name), np.array([fingerprint], np.uint64))[0] for name in ("4", "10")}
    seventh = drawers["10"][6].tobytes()
    assert shown == {
        *(row.tobytes().hex() for row in drawers["4"]),
        seventh.hex(),
        rowkey.documents_rowkey(fingerprint).hex(),
        f"{rowkey.key_prefix(0x5BE0CD19137E2179).hex()}{fingerprint:016x}",
        *(f"{one.hex()}{fingerprint:016x}" for one in rowkey.key_prefixes(Keying.IN_PARTS, 0x5EBF30BEC9327ACC)),
    }
    start, stop = rowkey.bucket_range(seventh[: rowkey.PREFIX_BYTES])
    assert f"from `{start.hex()}` to" in page
    assert f"`{stop.hex()}`" in page
    _, _, _, _, _, sixth, other, *_ = Layout.named("10").prefixes(fingerprint ^ 1)
    assert f"bucket `{other.hex()}`" in page
    assert f"prefix `{sixth.hex()}`" in page
    assert sixth == drawers["10"][5].tobytes()[: rowkey.PREFIX_BYTES]
