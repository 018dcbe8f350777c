"""Both gateways against a real HBase: every method, and every fault of a network or a gateway."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from hsimhash.errors import CorruptionError, IndexNotFoundError, StoreClosedError, StoreUnavailableError
from hsimhash.rowkey import ROWKEY_BYTES, bucket_range
from hsimhash.store.hbase.gateway import thrift2
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Change, Deletion, Gateway, Put
from hsimhash.store.hbase.gateway.batches import PAGE_ROWS
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.gateway.thrift1 import Thrift1Gateway
from hsimhash.store.hbase.gateway.thrift2 import SINGLE_SCANS, Thrift2Gateway
from tests.support.hbase_server import Gateways, HBaseServer
from tests.support.hbase_tables import PATIENCE, new_table
from tests.support.processes import forked
from tests.support.tcp_proxy import proxied, refusing_port

SPLITS = tuple(bytes([first, 0, 0, 0]) for first in (64, 128, 192))
ANSWER = "timeout=10s"  # a working gateway answers sooner; one that gets the wrong protocol may never answer
ROW = b"rrrr\x00ffffffff"
_rows = count()


@pytest.fixture(scope="module")
def table(hbase: Gateways) -> Iterator[str]:
    """The name of a table with four regions, to which each test of this module adds its own rows."""
    with new_table(hbase, TableSettings(splits=SPLITS)) as name:
        yield name


@pytest.fixture(params=["thrift2", "thrift1"])
def port(request: pytest.FixtureRequest, hbase: Gateways) -> int:
    return hbase.thrift2_port if request.param == "thrift2" else hbase.thrift1_port


def opened(port: int | str, table: str, options: str = PATIENCE) -> Gateway:
    hosts = port if isinstance(port, str) else f"127.0.0.1:{port}"
    return open_gateway(Address.parse(f"hbase://{hosts}/{table}?{options}"))


@pytest.fixture
def gateway(port: int, table: str) -> Iterator[Gateway]:
    with opened(port, table) as one:
        yield one


def new_row() -> bytes:
    """A row in a random region that no other test uses."""
    number = next(_rows)
    return bytes([number * 37 % 256]) + b"\xffrow" + number.to_bytes(8, "big")


def drawer_rows(prefix: bytes, count: int) -> list[bytes]:
    return [prefix + number.to_bytes(8, "big") for number in range(count)]


def put_rows(gateway: Gateway, rows: list[bytes]) -> None:
    gateway.put_rows(np.frombuffer(b"".join(rows), np.uint8).reshape(-1, ROWKEY_BYTES))


def scanned(gateway: Gateway, ranges: list[tuple[bytes, bytes]]) -> list[bytes]:
    found = gateway.scan(ranges)
    assert found.dtype == np.uint8
    return sorted(row.tobytes() for row in found)


def test_scan_returns_the_rows_within_the_ranges(gateway: Gateway) -> None:
    prefixes = [bytes([first, 1, 2, 3, 4]) for first in (0, 63, 64, 200, 255)]
    rows = [row for prefix in prefixes for row in drawer_rows(prefix, 3)]
    edges = [prefix + b"\xff" * 8 for prefix in prefixes]
    put_rows(gateway, rows + edges)
    assert scanned(gateway, [bucket_range(prefix) for prefix in prefixes]) == sorted(rows + edges)
    assert scanned(gateway, [bucket_range(prefixes[1])] * 2) == [*rows[3:6], edges[1]]
    assert scanned(gateway, [(rows[4], rows[5])]) == [rows[4]]
    assert scanned(gateway, []) == []
    assert gateway.scan([(b"\x09", b"\x09")]).shape == (0, 13)


def test_a_bucket_larger_than_a_page_comes_whole(gateway: Gateway) -> None:
    for prefix, size in ((b"pageA", PAGE_ROWS), (b"pageB", 2 * PAGE_ROWS + 5)):
        rows = [*drawer_rows(prefix, size - 1), prefix + b"\xff" * 8]
        put_rows(gateway, rows)
        assert scanned(gateway, [bucket_range(prefix)]) == rows


def test_a_range_across_all_regions_comes_whole(gateway: Gateway, table: str) -> None:
    rows = [bytes([first]) + b"acrs" + bytes(8) for first in range(256)]
    put_rows(gateway, rows)
    found = [row for row in scanned(gateway, [(b"", b"\xff" * 14)]) if row[1:5] == b"acrs"]
    assert found == rows
    wide = [(bytes([first]), bytes([first + 3])) for first in range(0, 240, 4)]  # 60 ranges, some across regions
    assert len(wide) > SINGLE_SCANS
    expected = [row for row in rows if any(start <= row < stop for start, stop in wide)]
    assert [row for row in scanned(gateway, wide) if row[1:5] == b"acrs"] == expected


def test_a_batch_of_ranges_equals_single_scans(gateway: Gateway) -> None:
    rng = np.random.default_rng(7)
    prefixes = [rng.bytes(5) for _ in range(3_000)]
    rows = [prefix + rng.bytes(8) for prefix in prefixes[::3] for _ in range(4)]
    put_rows(gateway, rows)
    crowded = drawer_rows(prefixes[0], PAGE_ROWS + 7)  # the first page of its region's filter scan ends inside it
    put_rows(gateway, crowded)
    batch = scanned(gateway, [bucket_range(prefix) for prefix in prefixes])
    assert batch == sorted({*rows, *crowded})
    some = prefixes[:60:3]
    singles = scanned(gateway, [bucket_range(prefix) for prefix in some])
    assert singles == [row for row in batch if row[:5] in some]


def test_a_stale_list_of_regions_changes_nothing(hbase: Gateways, table: str) -> None:
    with opened(hbase.thrift2_port, table) as gateway:
        assert isinstance(gateway, Thrift2Gateway)
        prefixes = [bytes([first]) + b"stal" for first in range(0, 250, 5)]
        rows = [prefix + bytes(8) for prefix in prefixes]
        put_rows(gateway, rows)
        ranges = [bucket_range(prefix) for prefix in prefixes]
        assert scanned(gateway, ranges) == rows
        true_regions = gateway._regions
        for wrong in (true_regions[:1], true_regions[:1] + true_regions[2:]):
            gateway._regions = wrong
            assert scanned(gateway, ranges) == rows


def test_a_gateway_that_refuses_a_filter_is_asked_range_by_range(
    hbase: Gateways, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift2, "row_ranges", lambda _: b"\x0a\x01x\x12\x00")  # an unknown filter
    rows = [bytes([first]) + b"fltr" + bytes(8) for first in range(0, 250, 2)]
    ranges = [(row, row + b"\x00") for row in rows[::2]]
    assert len(ranges) > SINGLE_SCANS
    with opened(hbase.thrift2_port, table) as gateway:
        put_rows(gateway, rows)
        for _ in range(2):
            assert scanned(gateway, ranges) == rows[::2]


def test_which_rows_there_are_is_told_one_by_one(gateway: Gateway) -> None:
    rows = [bytes([first]) + b"held" + bytes(8) for first in range(0, 250, 2)]
    absent = [row[:-1] + b"\x01" for row in rows]
    put_rows(gateway, rows)
    mixed = [row for pair in zip(absent, rows, strict=True) for row in pair]
    assert gateway.holds(mixed) == [False, True] * len(rows)
    assert gateway.holds([rows[0], absent[0], rows[0]]) == [True, False, True]
    assert gateway.holds([]) == []


def test_a_row_of_100_000_cells_is_read_in_pages(gateway: Gateway) -> None:
    row, next_row = new_row(), new_row()
    row, next_row = row[:1] + b"wide1" + row[6:], row[:1] + b"wide2" + next_row[6:]
    ids = sorted([b"%06d" % number for number in range(100_000)] + ["ü'%é".encode(), b"'", b"''x", b"\xf0\x9f\x98\x80"])
    gateway.put([Put(row, b"d", doc_id, b"") for doc_id in ids] + [Put(next_row, b"d", b"only", b"v")])
    assert [cell.qualifier for cell in gateway.cells(row, b"d", limit=3)] == ids[:3]
    for after in (0, 1, 50_000, 99_998, len(ids) - 2, len(ids) - 1):
        found = gateway.cells(row, b"d", after=ids[after], limit=5)
        assert [cell.qualifier for cell in found] == ids[after + 1 : after + 6]
    assert [cell.qualifier for cell in gateway.cells(row, b"d", after=b"05", limit=2_500)] == [
        doc_id for doc_id in ids if doc_id > b"05"
    ][:2_500]
    assert [[cell.qualifier for cell in cells] for cells in gateway.cells_of([next_row, row], b"d", limit=2)] == [
        [b"only"],
        ids[:2],
    ]
    pages = gateway.rows(row, next_row + b"\x00", b"d", limit=10, columns=4)
    assert [[cell.qualifier for cell in cells] for cells in pages] == [ids[:4], [b"only"]]
    every = gateway.cells(row, b"d", limit=len(ids) + 1)
    assert [cell.qualifier for cell in every] == ids


def test_rows_come_in_order_up_to_the_limit_and_of_one_family(gateway: Gateway) -> None:
    rows = [bytes([first]) + b"\xeerow" + bytes(8) for first in range(0, 256, 8)]
    gateway.put([Put(row, b"d", b"q%d" % column, row) for row in rows for column in range(3)])
    gateway.put([Put(rows[0][:1] + b"\xeerow" + b"\x01" * 8, b"i", b"q", b"")])
    for limit in (1, 7, 31, 32, 33):
        found = list(gateway.rows(b"", b"\xff" * 14, b"d", limit=10_000, columns=2))
        own = [cells for cells in found if cells[0].row in rows]
        assert [cells[0].row for cells in own] == rows
        assert all([cell.qualifier for cell in cells] == [b"q0", b"q1"] for cells in own)
        start = rows[0]
        few = gateway.rows(start, b"\xff" * 14, b"d", limit=limit, columns=1)
        assert few == [cells[:1] for cells in found if cells[0].row >= start][:limit]
    assert gateway.rows(rows[0], rows[0], b"d", limit=5) == []


def test_cells_come_as_arrays_where_every_row_is_a_rowkey(gateway: Gateway) -> None:
    rows = [bytes([first]) + b"\xddarr" + bytes(8) for first in range(0, 256, 8)]
    mark = b"\x0b\0\1\0\0\0\1d\x0b\0\2"  # the bytes with which a gateway begins a cell
    gateway.put([Put(row, b"d", b"q%d" % column, row[:column]) for row in rows for column in range(3)])
    cells = [cell for one in gateway.rows(rows[3], rows[9], b"d", limit=1_000, columns=2) for cell in one]
    found = gateway.columns(rows[3], rows[9], b"d", limit=1_000, columns=2)
    if found is not None:  # always None with Thrift1
        assert [found.cell(place) for place in range(len(found.rows))] == cells
    gateway.put([Put(rows[4][:-1], b"d", b"cut short", b"")])
    assert gateway.columns(rows[3], rows[9], b"d", limit=1_000, columns=2) is None
    marked = rows[12][:-1] + b"\1"
    gateway.put([Put(marked, b"d", mark, mark)])
    assert gateway.columns(rows[12], rows[13], b"d", limit=1_000, columns=2) is None
    assert [cell.value for (cell,) in gateway.rows(marked, marked + b"\0", b"d", limit=9)] == [mark]


def test_drawer_rows_are_told_from_other_rows_of_their_family(gateway: Gateway) -> None:
    named, cut, whole = (new_row() for _ in range(3))  # the rows stay in the table for the other gateway's test
    put_rows(gateway, [named, cut, whole])
    for row in (named, cut, whole):
        found = gateway.drawer_rows(row, row + b"\0")
        assert found is not None
        assert found.tobytes() == row
    nothing = gateway.drawer_rows(whole, whole)
    assert nothing is not None
    assert len(nothing) == 0
    gateway.put([Put(named, b"f", b"q", b""), Put(cut[:-1], b"f", b"", b"")])
    assert gateway.drawer_rows(named, named + b"\0") is None
    assert gateway.drawer_rows(cut[:-1], cut + b"\0") is None
    (cell,) = gateway.get([(cut[:-1], b"")], b"f")
    assert cell is not None
    gateway.delete([Deletion(cell.row, b"f", b"", cell.timestamp)])  # so that no other test reads it


def test_get_returns_each_cell_or_none(gateway: Gateway) -> None:
    rows = [new_row() for _ in range(100)]
    gateway.put([Put(row, b"d", b"q:%d" % number, b"%d" % number) for number, row in enumerate(rows)])
    before_ms = 1000 * (time.time() - 3600)
    keys = [(row, b"q:%d" % number) for number, row in enumerate(rows)]
    found = gateway.get([*keys, (rows[0], b"other"), (new_row(), b"q:0"), keys[0]], b"d")
    assert [(cell.row, cell.qualifier) for cell in found[:100] if cell] == keys
    assert [cell.value for cell in found[:100] if cell] == [b"%d" % number for number in range(100)]
    assert all(cell.timestamp > before_ms for cell in found[:100] if cell)
    assert found[100:] == [None, None, found[0]]
    assert gateway.get([], b"d") == []
    assert gateway.cells_of([rows[1], new_row()], b"d", limit=9) == [[found[1]], []]
    assert gateway.get(keys[:1], b"i") == [None]


def test_threads_that_count_on_one_cell_lose_nothing(gateway: Gateway) -> None:
    row = new_row()

    def count_up(_: int) -> None:
        done = 0
        while done < 20:
            held = gateway.get([(row, b"n")], b"d")[0]
            value = int(held.value) if held else 0
            done += gateway.change([Change(row, b"d", b"n", held and held.value, b"%d" % (value + 1))]) == [True]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count_up, range(8)))
    held = gateway.get([(row, b"n")], b"d")[0]
    assert held is not None
    assert held.value == b"160"


def test_large_puts_are_cut_to_what_a_gateway_takes(gateway: Gateway) -> None:
    row, ids = new_row(), [b"%04d" % number + b"x" * 2044 for number in range(2_000)]
    gateway.put([Put(row, b"d", doc_id, b"v" * 100) for doc_id in ids])
    assert [cell.qualifier for cell in gateway.cells(row, b"d", limit=5_000)] == ids


def test_a_missing_table_or_family_is_named_at_once(port: int, table: str) -> None:
    with opened(port, "no-such-table") as missing:
        calls: list[Callable[[Gateway], object]] = [
            lambda gateway: gateway.scan([(b"a", b"b")]),
            lambda gateway: gateway.scan([(bytes([n]), bytes([n, 0])) for n in range(60)]),
            lambda gateway: gateway.rows(b"a", b"b", b"d", limit=1),
            lambda gateway: gateway.cells(b"a", b"d", limit=1),
            lambda gateway: gateway.get([(b"a", b"b")], b"d"),
            lambda gateway: gateway.put([Put(b"a", b"d", b"q", b"")]),
            lambda gateway: gateway.change([Change(b"a", b"d", b"q", None, b"")]),
            lambda gateway: gateway.delete([Deletion(b"a", b"d", b"q", 1)]),
        ]
        for call in calls:
            with pytest.raises(IndexNotFoundError, match="no-such-table"):
                call(missing)
    with opened(port, table) as gateway, pytest.raises(CorruptionError, match="column family"):
        gateway.put([Put(b"a", b"nofamily", b"q", b"")])


def test_a_closed_gateway_refuses(gateway: Gateway) -> None:
    gateway.close()
    gateway.close()
    with pytest.raises(StoreClosedError):
        gateway.scan([(b"a", b"b")])


def test_a_forked_child_has_connections_of_its_own(gateway: Gateway) -> None:
    rows = drawer_rows(b"forkd", 50)
    put_rows(gateway, rows)
    ranges = [(row, row + b"\x00") for row in rows[:10]]

    def read() -> None:
        for _ in range(20):
            assert scanned(gateway, ranges) == rows[:10]

    with forked(read):
        read()


def test_a_long_batch_lets_others_in(hbase: Gateways, table: str) -> None:
    row = new_row()
    with opened(hbase.thrift1_port, table, f"connections=2&{PATIENCE}") as gateway:
        put_rows(gateway, [row])
        batch = [(number.to_bytes(3, "big"), number.to_bytes(3, "big") + b"\x00") for number in range(0, 9_000, 3)]
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(gateway.scan, batch)
            answers = 0
            while not long.done() and answers < 5:
                assert scanned(gateway, [(row, row + b"\x00")]) == [row]
                answers += 1
            assert answers == 5
            assert not long.done()
            long.result()


def test_a_change_whose_reply_is_late_is_unknown_and_not_sent_again(port: int, table: str) -> None:
    row = new_row()
    is_slow = False
    with (
        proxied(port, lambda _: 600.0 if is_slow else 0.0) as proxy,
        opened(proxy.port, table, "timeout=10s&deadline=60s") as gateway,
    ):
        assert gateway.change([Change(row, b"d", b"q", None, b"0")]) == [True]
        is_slow = True
        assert gateway.change([Change(row, b"d", b"q", b"0", b"1")]) == [None]
        is_slow = False
        held = gateway.get([(row, b"q")], b"d")[0]
        assert held is not None
        assert held.value == b"1"


@pytest.mark.parametrize("idl", ["thrift2", "thrift1"])
def test_a_gateway_that_is_killed_and_comes_back(own_hbase: HBaseServer, table: str, idl: str) -> None:
    row = new_row()
    with own_hbase.gateway(idl) as served:
        patient = opened(served.port, table, PATIENCE)
        put_rows(patient, [row])
        gateway = opened(served.port, table, "timeout=5s&deadline=2s")
        own_hbase.kill_gateway(served.name)
        begin = time.monotonic()
        with pytest.raises(StoreUnavailableError, match=rf"deadline of 2 s.*127\.0\.0\.1:{served.port}.*refused"):
            gateway.scan([(row, row + b"\x00")])
        assert time.monotonic() - begin < 60  # far below the 120 s of `patient`
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(scanned, patient, [(row, row + b"\x00")])
            own_hbase.start_gateway(served.name)
            assert waiting.result() == [row]
        assert scanned(patient, [(row, row + b"\x00")]) == [row]
        gateway.close()
        patient.close()


def test_of_two_gateways_one_is_enough(own_hbase: HBaseServer, table: str) -> None:
    row = new_row()
    with own_hbase.gateway("thrift2") as served:
        both = f"127.0.0.1:{served.port},127.0.0.1:{own_hbase.thrift2_port}"
        with opened(both, table) as gateway:
            ranges = [(row, row + b"\x00"), *((bytes([first]), bytes([first, 0])) for first in range(9))]
            put_rows(gateway, [row])
            assert scanned(gateway, ranges) == [row]
            own_hbase.kill_gateway(served.name)
            for _ in range(20):
                assert scanned(gateway, ranges) == [row]
        with opened(both, table) as late:
            assert scanned(late, ranges) == [row]


def test_the_gateway_is_asked_which_it_is(hbase: Gateways, table: str) -> None:
    for port, kind in ((hbase.thrift1_port, Thrift1Gateway), (hbase.thrift2_port, Thrift2Gateway)):
        with opened(port, table) as gateway:
            assert type(gateway) is kind


@pytest.mark.parametrize(
    ("idl", "flags", "options"),
    [
        ("thrift2", ("-f",), "transport=framed"),
        ("thrift2", ("-f", "-c"), "transport=framed&protocol=compact"),
        ("thrift1", ("-c",), "protocol=compact"),
    ],
)
def test_other_transports_and_protocols(
    own_hbase: HBaseServer, table: str, idl: str, flags: tuple[str, ...], options: str
) -> None:
    row = new_row()
    with own_hbase.gateway(idl, *flags) as served:
        with pytest.raises(StoreUnavailableError) as refused:
            opened(served.port, table, ANSWER)
        assert f"a Thrift{idl[-1]} gateway" in str(refused.value)
        advised = str(refused.value).partition("; use ")[2].split("&timeout")[0]
        assert advised == f"hbase://127.0.0.1:{served.port}/default:{table}?{options}"
        with opened(served.port, table, f"{options}&{PATIENCE}") as gateway:
            put_rows(gateway, [row])
            assert scanned(gateway, [(row, row + b"\x00")]) == [row]
            ranges = [(bytes([first]), bytes([first, 0])) for first in range(250)]
            assert scanned(gateway, [*ranges, (row, row + b"\x00")]) == [row]


HTTP = {"hbase.regionserver.thrift.http": "true"}


@pytest.mark.parametrize("idl", ["thrift2", "thrift1"])
def test_http_mode(own_hbase: HBaseServer, table: str, idl: str) -> None:
    with own_hbase.gateway(idl, settings=HTTP) as served:
        with pytest.raises(StoreUnavailableError, match=rf"over HTTP; use hbase\+http://127\.0\.0\.1:{served.port}/"):
            opened(served.port, table, ANSWER)
        use_over_http(f"hbase+http://127.0.0.1:{served.port}/{table}?{PATIENCE}")


def use_over_http(url: str) -> None:
    rows = [new_row() for _ in range(30)]
    with open_gateway(Address.parse(url)) as gateway:
        put_rows(gateway, rows)
        assert scanned(gateway, [(row, row + b"\x00") for row in rows]) == sorted(rows)
        with pytest.raises(CorruptionError, match="column family"):
            gateway.put([Put(b"a", b"nofamily", b"q", b"")])
        assert gateway.change([Change(row, b"d", b"q", None, b"1") for row in rows]) == [True] * len(rows)


@pytest.fixture
def keystore(tmp_path: Path) -> tuple[Path, Path]:
    """A gateway's key store, with the password `secret`, and its certificate."""
    store, certificate = tmp_path / "store.p12", tmp_path / "gateway.pem"
    key = ["keytool", "-keystore", str(store), "-storetype", "PKCS12", "-storepass", "secret", "-alias", "gateway"]
    names = ["-dname", "CN=localhost", "-ext", "san=dns:localhost,ip:127.0.0.1"]
    subprocess.run([*key, "-genkeypair", "-keyalg", "EC", *names], check=True, capture_output=True)
    subprocess.run([*key, "-exportcert", "-rfc", "-file", str(certificate)], check=True, capture_output=True)
    return store, certificate


def test_http_mode_with_tls(own_hbase: HBaseServer, table: str, keystore: tuple[Path, Path]) -> None:
    store, certificate = keystore
    tls = {
        "hbase.thrift.ssl.enabled": "true",
        "hbase.thrift.ssl.keystore.store": str(store),
        "hbase.thrift.ssl.keystore.type": "pkcs12",
        "hbase.thrift.ssl.keystore.password": "secret",
        "hbase.thrift.ssl.keystore.keypassword": "secret",
    }
    with own_hbase.gateway("thrift2", settings=HTTP | tls) as served:
        use_over_http(f"hbase+https://localhost:{served.port}/{table}?ca={certificate}&{PATIENCE}")
        with pytest.raises(StoreUnavailableError, match="set ca=FILE to its CA certificate"):
            open_gateway(Address.parse(f"hbase+https://localhost:{served.port}/{table}"))
        with pytest.raises(StoreUnavailableError, match=r"requires TLS; use hbase\+https://"):
            opened(served.port, table, ANSWER)


def test_wrong_ports_are_named(own_hbase: HBaseServer, table: str) -> None:
    ports = own_hbase.environment()
    for name, message in (
        ("HBASE_ZOOKEEPER_PORT", "is ZooKeeper; use the port of a Thrift gateway"),
        ("HBASE_MASTER_PORT", "HBase's own RPC on this port; use the port of a Thrift gateway"),
        ("HBASE_REGIONSERVER_PORT", "HBase's own RPC on this port; use the port of a Thrift gateway"),
    ):
        with pytest.raises(StoreUnavailableError, match=message):
            opened(int(ports[name]), table, ANSWER)
    with pytest.raises(StoreUnavailableError, match="does not resolve"):
        opened("no-such-host.invalid:9091", table)
    with (
        refusing_port() as port,
        pytest.raises(StoreUnavailableError, match=rf"nothing is listening at 127\.0\.0\.1:{port}"),
    ):
        opened(port, table)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(StoreUnavailableError, match=r"no reply within 0\.3 s"),
    ):
        opened(silent.getsockname()[1], table, "timeout=300ms")
