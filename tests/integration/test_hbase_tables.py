"""Tables on a real HBase: created, described, dropped; disabled, with other regions, or with a missing codec."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import happybase
import pytest
from thriftpy2.rpc import make_client

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError, StoreTimeoutError
from hsimhash.index import HSimIndex
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.connection import THRIFT2
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import make_table
from tests.support.command_line import run
from tests.support.hbase_server import Gateways, HBaseServer


def test_a_disabled_table_is_named_and_so_is_the_remedy(hbase: Gateways, stores: tuple[str, str]) -> None:
    assert run("create-table", "--store", stores[0], "--layout", "4").exit_code == 0
    name = Address.parse(stores[0]).table
    with closing(happybase.Connection(hbase.host, hbase.thrift1_port, timeout=60_000)) as plain:
        plain.disable_table(name)
    for store in stores:
        for command in (["status"], ["query", "--id", "a"], ["create-table", "--layout", "4"]):
            result = run(*command, "--store", store)
            assert result.exit_code == 4, result.stderr
            assert f"is disabled; enable it in hbase shell: enable 'default:{name}'" in result.stderr
        for command in (["doctor"], ["doctor", "--quick"]):
            result = run(*command, "--store", f"{store}?timeout=10s")  # 5 s is too short on a busy machine
            assert result.exit_code == 4
            assert f"enable it in hbase shell: enable 'default:{name}'" in result.stdout
        assert "+ create record" not in run("create-table", "--layout", "4", "--dry-run", "--store", store).stdout
    with closing(happybase.Connection(hbase.host, hbase.thrift1_port, timeout=60_000)) as plain:
        plain.enable_table(name)
    assert run("status", "--store", stores[0]).exit_code == 0


def test_calls_wait_for_a_table_that_is_disabled_under_them(hbase: Gateways, stores: tuple[str, str]) -> None:
    assert run("create-table", "--store", stores[0], "--layout", "4", "--regions", "3").exit_code == 0
    name = Address.parse(stores[0]).table
    with (
        closing(happybase.Connection(hbase.host, hbase.thrift1_port, timeout=60_000)) as plain,
        HSimIndex.open(f"{stores[0]}?deadline=120s") as index,
        ThreadPoolExecutor(1) as beside,
    ):
        index.add(7, "seven")
        plain.disable_table(name)
        for _ in range(5):
            with pytest.raises(StoreTimeoutError):
                index.query(7, timeout=0.5)
            found = index.query(7, timeout=0.5, partial=True)
            assert not found
            assert found.missing
        waiting = beside.submit(index.add, 6, "six")
        plain.enable_table(name)
        waiting.result()
        assert {match.doc_id for match in index.query(7)} == {"seven", "six"}


def test_a_table_that_is_there_keeps_its_regions(stores: tuple[str, str], tmp_path: Path) -> None:
    sample = tmp_path / "sample.tsv"
    sample.write_text("".join(f"{number * 0x0123456789ABCDEF % 2**64:016x}\n" for number in range(100)))
    assert run("create-table", "--store", stores[0], "--layout", "4", "--regions", "3").exit_code == 0
    for store in stores:
        for options in (["--regions", "5"], ["--regions", "3", "--splits-from", str(sample)]):
            result = run("create-table", "--store", store, "--layout", "4", *options)
            assert result.exit_code == 0
            assert "keeps its 3 regions" in result.stderr
        for silent in ([], ["--regions", "3"]):
            assert "keeps its" not in run("create-table", "--store", store, "--layout", "4", *silent).stderr
    told = run("create-table", "--store", stores[1], "--layout", "4", "--compression", "GZ")
    assert told.exit_code == 0
    assert "--compression and --family-option apply only to a new table" in told.stderr


def test_regions_are_the_tables_and_count_once_with_their_replicas(hbase: Gateways, stores: tuple[str, str]) -> None:
    splits = [b"\x00\x01\x27\x5c", b"\xff\x00\x00\x00"]
    name = Address.parse(stores[0]).table.encode()
    client = make_client(THRIFT2.THBaseService, hbase.host, hbase.thrift2_port, timeout=60_000)
    descriptor = THRIFT2.TTableDescriptor(
        tableName=THRIFT2.TTableName(ns=b"default", qualifier=name),
        columns=[THRIFT2.TColumnFamilyDescriptor(name=family) for family in (b"f", b"d", b"i")],
        attributes={b"REGION_REPLICATION": b"2"},
    )
    client.createTable(descriptor, splits)
    told = client.getAllRegionLocations(name)
    client.close()
    assert len(told) == 6
    for store in stores:
        with open_gateway(Address.parse(store)) as gateway:
            found = gateway.regions()
        assert [(region.start, region.stop) for region in found] == list(itertools.pairwise([b"", *splits, b""]))
        assert all(int(region.server.rpartition(":")[2]) for region in found)


def test_a_codec_that_is_not_installed_is_explained(stores: tuple[str, str]) -> None:
    for store, options in ((stores[0], []), (stores[1], ["--allow-plain"])):
        result = run("create-table", "--store", store, "--layout", "4", "--compression", "lzo", *options)
        assert result.exit_code == 1
        assert "the servers cannot use compression LZO (" in result.stderr
        assert "install its codec" in result.stderr
        assert "CompressionTest file:///tmp/x lzo'; GZ does not need a codec" in result.stderr
        assert "sanity" not in result.stderr
    assert run("create-table", "--store", stores[0], "--layout", "4", "--compression", "gz").exit_code == 0


def test_what_is_there_is_not_made_again_and_what_is_gone_not_deleted(stores: tuple[str, str]) -> None:
    for store in stores:
        with open_gateway(Address.parse(store)) as gateway:
            assert gateway.table() is None
            make_table(gateway, TableSettings(ttl_s=100), is_plain_allowed=True)
            found = gateway.table()
            assert found is not None
            assert found.ttl_s == 100
            with pytest.raises(IndexExistsError, match="already exists"):
                make_table(gateway, TableSettings(), is_plain_allowed=True)
            gateway.delete_table()
            with pytest.raises(IndexNotFoundError, match=Address.parse(store).table):
                gateway.delete_table()


def test_a_framed_gateway_makes_no_table(own_hbase: HBaseServer) -> None:
    with own_hbase.gateway("thrift2", "-f") as served:
        place = Address.parse(f"hbase://127.0.0.1:{served.port}/framed?transport=framed")
        with open_gateway(place) as framed:
            with pytest.raises(HsimhashError, match="other than framed"):
                make_table(framed, TableSettings())
            assert not framed.exists()
