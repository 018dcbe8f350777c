"""Making, describing and dropping a table on a real HBase, and the lines that do it in its shell."""

from __future__ import annotations

import uuid

import pytest

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.operations import make_table, open_gateway
from hsimhash.store.hbase.table import TABLE_ATTRIBUTES, TableSettings, families
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
    with open_gateway(place) as gateway:
        assert gateway.table() is None
        make_table(gateway, SETTINGS)
        found = gateway.table()
        assert found is not None
        for wanted in families(SETTINGS):
            described = next(family for family in found.families if family.name == wanted.name)
            assert described.attributes.items() >= wanted.attributes.items()
            assert described.configuration == wanted.configuration
        assert found.attributes.items() >= TABLE_ATTRIBUTES.items()
        assert found.ttl_s == SETTINGS.ttl_s
        assert tuple(region.start for region in gateway.regions()) == (b"", *SETTINGS.splits)
        with pytest.raises(IndexExistsError, match="is there already"):
            make_table(gateway, SETTINGS)
        gateway.delete_table()
        assert not gateway.exists()
        with pytest.raises(IndexNotFoundError, match=place.table):
            gateway.delete_table()
        assert {"default", "hbase"} <= set(gateway.namespaces())


def test_a_missing_namespace_is_named(hbase: Gateways) -> None:
    place = Address.parse(f"hbase://127.0.0.1:{hbase.thrift2_port}/nowhere:t")
    with open_gateway(place) as gateway, pytest.raises(HsimhashError, match="create_namespace 'nowhere'"):
        make_table(gateway, SETTINGS)


def test_thrift1_makes_a_plain_table_only(hbase: Gateways) -> None:
    with open_gateway(address(hbase.thrift1_port)) as gateway:
        with pytest.raises(HsimhashError, match=r"print-shell.*--allow-plain"):
            make_table(gateway, SETTINGS)
        assert not gateway.exists()
        make_table(gateway, TableSettings(ttl_s=100), is_plain_allowed=True)
        assert gateway.exists()
        with pytest.raises(IndexExistsError):
            make_table(gateway, TableSettings(), is_plain_allowed=True)
        found = gateway.table()
        assert found is not None
        assert [family.name for family in found.families] == ["d", "f", "i"]
        assert (found.is_told, found.ttl_s) == (False, 100)
        gateway.delete_table()
        assert not gateway.exists()
        with pytest.raises(IndexNotFoundError):
            gateway.delete_table()


def test_a_framed_gateway_is_refused(own_hbase: HBaseServer) -> None:
    with (
        own_hbase.gateway("thrift2", "-f") as served,
        open_gateway(address(served.port, "?transport=framed")) as framed,
    ):
        with pytest.raises(HsimhashError, match="not framed"):
            make_table(framed, SETTINGS)
        assert not framed.exists()
