"""Making, describing and dropping a table on a real HBase, and the lines that do it in its shell."""

from __future__ import annotations

import uuid

import pytest

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.admin import Admin
from hsimhash.store.hbase.connect import open_gateway
from hsimhash.store.hbase.table import TABLE_ATTRIBUTES, TableSettings, families, new_table, shell_lines
from tests.support.hbase_server import Gateways, HBaseServer

SETTINGS = TableSettings(
    splits=(b"\x00\x01\x27\x5c", b"\x80\x00\x00\x00", b"\xff\x00\x00\x00"),
    ttl_s=86_400,
    compression="GZ",
    family_options=(("IN_MEMORY", "true"),),
)


def address(port: int, options: str = "") -> Address:
    return Address.parse(f"hbase://127.0.0.1:{port}/admin-{uuid.uuid4().hex}{options}")


def test_a_table_is_made_as_asked_described_and_dropped(hbase: Gateways) -> None:
    place = address(hbase.thrift2_port)
    with Admin(place) as admin:
        assert admin.table() is None
        admin.create_table(SETTINGS)
        found = admin.table()
        assert found is not None
        for wanted in families(SETTINGS):
            described = next(family for family in found.families if family.name == wanted.name)
            assert described.attributes.items() >= wanted.attributes.items()
            assert described.configuration == wanted.configuration
        assert found.attributes.items() >= TABLE_ATTRIBUTES.items()
        gateway = open_gateway(place)
        assert tuple(region.start for region in gateway.regions()) == (b"", *SETTINGS.splits)
        gateway.close()
        with pytest.raises(IndexExistsError, match="is there already"):
            admin.create_table(SETTINGS)
        admin.delete_table()
        assert not admin.exists()
        with pytest.raises(IndexNotFoundError, match=place.table):
            admin.delete_table()
        assert {"default", "hbase"} <= set(admin.namespaces())


def test_the_record_outlives_a_ttl() -> None:
    by_name = {family.name: family.attributes for family in families(SETTINGS)}
    assert [by_name[name].get("TTL") for name in "fdi"] == ["86400", "86400", None]


def test_a_missing_namespace_is_named(hbase: Gateways) -> None:
    place = Address.parse(f"hbase://127.0.0.1:{hbase.thrift2_port}/nowhere:t")
    with Admin(place) as admin, pytest.raises(HsimhashError, match="create_namespace 'nowhere'"):
        admin.create_table(SETTINGS)


def test_thrift1_makes_a_plain_table_only(hbase: Gateways) -> None:
    place = address(hbase.thrift1_port)
    with Admin(place) as admin:
        assert not admin.can_split
        with pytest.raises(HsimhashError, match="print-shell"):
            admin.create_table(SETTINGS)
        assert not admin.exists()
        admin.create_plain_table(TableSettings(ttl_s=100))
        assert admin.exists()
        with pytest.raises(IndexExistsError):
            admin.create_plain_table(TableSettings())
        found = admin.table()
        assert found is not None
        assert [family.name for family in found.families] == ["d", "f", "i"]
        assert (found.is_told, admin.ttl_s()) == (False, 100)
        admin.delete_table()
        assert not admin.exists()
        with pytest.raises(IndexNotFoundError):
            admin.delete_table()


def test_a_framed_gateway_is_refused(own_hbase: HBaseServer) -> None:
    with own_hbase.gateway("thrift2", "-f") as served, Admin(address(served.port, "?transport=framed")) as admin:
        with pytest.raises(HsimhashError, match="not framed"):
            admin.create_table(SETTINGS)
        assert not admin.exists()


def test_the_shells_lines_say_the_same() -> None:
    lines = shell_lines(new_table(Address.parse("hbase://gw/crawl:pages"), SETTINGS))
    assert lines[0] == "create_namespace 'crawl' rescue nil"
    assert lines[1].startswith("create 'crawl:pages', {NAME => 'f', VERSIONS => '1', ")
    assert "CONFIGURATION => {'RowPrefixBloomFilter.prefix_length' => '5'}" in lines[1]
    assert r"SPLITS => ['\x00\x01\x27\x5C', '\x80\x00\x00\x00', '\xFF\x00\x00\x00']" in lines[1]
    assert lines[1].count("TTL => '86400'") == 2
    assert lines[1].endswith("split_restriction.prefix_length' => '5'}")
    assert len(shell_lines(new_table(Address.parse("hbase://gw/pages"), TableSettings()))) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"compression": "zip"}, "'zip' is not one of NONE, GZ"),
        ({"ttl_s": 0}, "TTL of 0 s"),
        ({"splits": (b"b", b"a")}, "ascending"),
        ({"splits": (b"",)}, "not empty"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableSettings(**wrong)
