"""How a table differs from what it should be, and the shell lines that correct it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import FOREVER_S, Table
from hsimhash.store.hbase.gateway.table import TABLE_ATTRIBUTES, TableSettings, compared, families, shell_lines

PLACE = Address.parse("hbase://gw/pages")
FOREVER = {"TTL": str(FOREVER_S)}


def made(settings: TableSettings, **changed: dict[str, str]) -> Table:
    """Return the table that a cluster makes from settings, with the families' attributes changed."""
    found = [
        replace(family, attributes=FOREVER | family.attributes | changed.get(family.name, {}))
        for family in families(settings)
    ]
    return Table(tuple(found), dict(TABLE_ATTRIBUTES))


def lines(table: Table, settings: TableSettings) -> list[str]:
    return shell_lines(compared(PLACE, table, settings))


def differing(table: Table, settings: TableSettings) -> list[str]:
    return [step.text for step in compared(PLACE, table, settings) if step.sign != "="]


@pytest.mark.parametrize("made_with", [TableSettings(), TableSettings(ttl_s=86_400, compression="GZ")])
def test_what_create_table_makes_differs_in_nothing(made_with: TableSettings) -> None:
    for asked in (made_with, TableSettings()):
        assert differing(made(made_with), asked) == []


def test_a_setting_that_differs_is_named_and_altered() -> None:
    table = made(TableSettings(), f={"BLOOMFILTER": "ROW"}, d={"VERSIONS": "3"})
    assert differing(table, TableSettings()) == [
        "family f: BLOOMFILTER is ROW, expected ROWPREFIX_FIXED_LENGTH",
        "family d: VERSIONS is 3, expected 1",
    ]
    assert lines(table, TableSettings()) == [
        "alter 'default:pages', {NAME => 'f', BLOOMFILTER => 'ROWPREFIX_FIXED_LENGTH'}",
        "alter 'default:pages', {NAME => 'd', VERSIONS => '1'}",
    ]


def test_settings_that_keep_deleted_or_expired_cells_differ_from_those_of_a_new_table() -> None:
    safe = {"KEEP_DELETED_CELLS": "FALSE", "MIN_VERSIONS": "0"}
    assert differing(made(TableSettings(), d=safe, f=safe), TableSettings()) == []
    table = made(TableSettings(), d=safe | {"KEEP_DELETED_CELLS": "TTL"}, f=safe | {"MIN_VERSIONS": "1"})
    assert differing(table, TableSettings(ttl_s=None)) == [
        "family f: MIN_VERSIONS is 1, expected 0",
        "family d: KEEP_DELETED_CELLS is TTL, expected FALSE",
    ]
    assert lines(table, TableSettings())[0] == "alter 'default:pages', {NAME => 'f', MIN_VERSIONS => '0'}"


def test_the_prefix_of_the_bloom_filter_and_the_tables_attributes_count() -> None:
    table = made(TableSettings())
    plain = Table(tuple(replace(family, configuration={}) for family in table.families), {})
    first, second = lines(plain, TableSettings())
    bloom = "CONFIGURATION => {'RowPrefixBloomFilter.prefix_length' => '5'}"
    assert second == f"alter 'default:pages', {{NAME => 'f', {bloom}}}"
    assert first.startswith("alter 'default:pages', METADATA => {'hbase.regionserver.region.split_restriction.type'")


def test_a_missing_family_is_added_whole() -> None:
    table = made(TableSettings())
    without = replace(table, families=tuple(family for family in table.families if family.name != "i"))
    assert differing(without, TableSettings()) == ["family i: it is missing"]
    (line,) = lines(without, TableSettings())
    assert "NAME => 'i'" in line
    assert "BLOCKSIZE" in line


def test_the_record_never_expires_and_drawers_live_as_long_as_documents() -> None:
    table = made(TableSettings(ttl_s=100), i={"TTL": "100"}, f={"TTL": "50"})
    assert differing(table, TableSettings()) == [
        "family f: TTL is 50s, expected 100s",
        "family i: TTL is 100s, expected unlimited",
    ]


def test_a_ttl_and_a_compression_count_where_they_are_asked_for() -> None:
    asked = TableSettings(ttl_s=100, compression="GZ")
    found = {told.partition(" is ")[0] for told in differing(made(TableSettings()), asked)}
    assert found == {"family f: TTL", "family d: TTL", *(f"family {name}: COMPRESSION" for name in "fdi")}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"compression": "zip"}, "compression must be one of NONE, GZ, .*, got 'zip'"),
        ({"ttl_s": 0}, "TTL must be .* got 0"),
        ({"splits": (b"b", b"a")}, "ascending"),
        ({"splits": (b"",)}, "not empty"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableSettings(**wrong)
