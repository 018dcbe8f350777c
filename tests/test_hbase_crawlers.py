"""How a crawler's process copes with gateways that hang, end, come back or lose their servers, tested on stand-ins."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from hsimhash.errors import StoreTimeoutError, StoreUnavailableError
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.store import Opening, Record, Store, open_store
from hsimhash.store.base import JOB_DEADLINE_S
from hsimhash.store.hbase.checkup import checks, load_checks
from hsimhash.store.hbase.gateway.address import Address, Endpoint
from hsimhash.store.hbase.gateway.balancing import Choice
from hsimhash.store.hbase.gateway.base import FOREVER_S, Change, Family, Table
from hsimhash.store.hbase.gateway.batches import scan_groups
from hsimhash.store.hbase.gateway.connection import THRIFT2, Call, Connection
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.pool import Pool
from hsimhash.store.hbase.gateway.thrift2 import SINGLE_SCANS, Thrift2Gateway
from hsimhash.store.hbase.rows.protocol import Times
from hsimhash.store.hbase.store import HBaseStore, record_ttl, ttl_difference
from hsimhash.store.reports import Region
from tests.support.effort import thorough
from tests.support.gateway_stand_in import StandIn, stand_in
from tests.support.hbase_model import Cluster, ModelGateway
from tests.support.local_server import LocalServer, serving
from tests.support.processes import forked, wait_until
from tests.support.tcp_proxy import proxied

LIMIT_S = 60.0  # within which an expected event must happen
SCANS = ["getScannerResults"]
RANGES = [(bytes([number]), bytes([number, 0])) for number in range(10)]


def ranges_of(numbers: Iterable[int]) -> list[tuple[bytes, bytes]]:
    return [(number.to_bytes(2), number.to_bytes(2) + b"\xff") for number in numbers]


BATCH = ranges_of(range(0, 10 * SINGLE_SCANS, 2))


@pytest.fixture
def gateway() -> Iterator[StandIn]:
    with stand_in() as one:
        yield one


@pytest.fixture
def two() -> Iterator[tuple[StandIn, StandIn]]:
    with stand_in() as one, stand_in() as other:
        yield one, other


def url_of(*gateways: StandIn, options: str = "") -> str:
    return f"hbase://{','.join(f'127.0.0.1:{one.port}' for one in gateways)}/t?{options or 'connections=8'}"


def opened(*gateways: StandIn, options: str = "") -> Thrift2Gateway:
    found = open_gateway(Address.parse(url_of(*gateways, options=options)))
    assert isinstance(found, Thrift2Gateway)
    return found


@pytest.fixture
def ours(gateway: StandIn) -> Iterator[Thrift2Gateway]:
    with opened(gateway) as one:
        yield one


@pytest.fixture
def store(gateway: StandIn) -> Iterator[Store]:
    with open_store(url_of(gateway)) as one:
        yield one


def pool_of(gateway: Thrift2Gateway) -> Pool:
    return gateway._caller.pool


def test_open_is_one_connection_and_two_calls(gateway: StandIn) -> None:
    open_store(url_of(gateway)).close()
    assert gateway.methods == ["getThriftServerType", "getMultiple"]
    assert gateway.accepted == 1


def test_open_ends_within_its_deadline_where_nothing_answers_the_read(gateway: StandIn) -> None:
    gateway.hung = {"getMultiple", "isTableDisabled"}
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="deadline of 3 s"):
        open_store(url_of(gateway, options="timeout=2s&deadline=3s"))
    assert time.monotonic() - began < LIMIT_S / 2


def test_open_goes_on_where_the_right_gateway_answers_late(gateway: StandIn) -> None:
    with proxied(gateway.port, lambda number: 3.0 if number == 1 else 0.0) as late:
        address = Address.parse(f"hbase://127.0.0.1:{late.port}/t?timeout=500ms")
        with open_gateway(address) as ours:
            ours.scan(RANGES)


def test_a_query_needs_five_connections_and_one_round(gateway: StandIn, ours: Thrift2Gateway) -> None:
    ours.scan(RANGES)
    assert gateway.methods.count("getScannerResults") == 10
    assert gateway.accepted == 5


def test_a_query_ends_when_its_time_is_over_and_says_how_far_it_came(gateway: StandIn, store: Store) -> None:
    gateway.hung = {"getScannerResults"}
    began = time.monotonic()
    with (
        pytest.raises(StoreTimeoutError, match="after reading 0 of 2 buckets with 0 rows, and 0 documents"),
        store.view(timeout_s=0.3) as view,
    ):
        view.scan([b"12345", b"67890"])
    assert 0.3 <= time.monotonic() - began < 5
    gateway.wake()
    with store.view(timeout_s=LIMIT_S) as view:
        assert len(view.scan([b"12345"])) == 0


def test_an_end_is_kept_however_fast_replies_come(store: Store) -> None:
    prefixes = iter(lambda: [b"12345"], None)  # endless
    with pytest.raises(StoreTimeoutError, match=r"after reading \d+ of \d+ buckets"), store.view(timeout_s=0.3) as view:
        deque(map(view.scan, prefixes), 0)


@thorough
def test_time_outs_hold_at_most_twice_the_connections(gateway: StandIn) -> None:
    with opened(gateway, options="connections=3&timeout=1s&deadline=3s") as ours:
        gateway.hung = {"getScannerResults"}
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                ours.scan(RANGES)
        with pytest.raises(
            StoreUnavailableError, match=rf"gateway \S+:{gateway.port}: .*\(in use: 0, waiting for overdue replies: 6"
        ):
            ours.scan(RANGES)
        assert gateway.busy == gateway.most_busy == 6
        gateway.wake()
        assert len(ours.scan(RANGES)) == 0
        wait_until(lambda: gateway.busy == 0)
        ours.scan(RANGES)
        assert len(pool_of(ours)._choice.overdue) == 0


def test_open_passes_over_a_gateway_that_hangs(two: tuple[StandIn, StandIn]) -> None:
    two[0].hung = {"*"}
    for _ in range(4):  # whichever gateway is drawn first
        began = time.monotonic()
        with opened(*two, options="timeout=20s"):
            assert time.monotonic() - began < 15


@thorough
def test_only_the_first_query_waits_for_a_gateway_that_hangs(two: tuple[StandIn, StandIn]) -> None:
    with opened(*two, options="timeout=12s") as ours:
        ours.scan(RANGES)
        assert {one.accepted for one in two} == {2, 3}
        two[0].hung = {"*"}
        ours.scan(RANGES)
        before = two[0].accepted
        for _ in range(20):
            began = time.monotonic()
            ours.scan(RANGES)
            assert time.monotonic() - began < 10
        assert two[0].accepted - before <= 1  # at most one more try, and no query waits for it


@thorough
def test_callers_with_little_time_leave_a_gateway_that_hangs_as_well(two: tuple[StandIn, StandIn]) -> None:
    prefixes, errors = [bytes([number]) * 5 for number in range(10)], 0
    with open_store(url_of(*two)) as store:
        for _ in range(3):
            store.scan(prefixes)
        two[0].hung = {"*"}
        for _ in range(20):
            try:
                with store.view(timeout_s=2) as view:
                    view.scan(prefixes)
            except StoreTimeoutError:
                errors += 1
    assert errors <= 5  # normally one; on a busy machine, other scans may also time out


@thorough
def test_a_gateway_that_works_again_is_tried_beside_the_calls_and_gets_its_share(two: tuple[StandIn, StandIn]) -> None:
    with opened(*two, options="timeout=6s") as ours:
        ours.scan(RANGES)
        two[0].hung = {"*"}
        ours.scan(RANGES)
        two[0].wake()
        before = two[0].accepted
        ours.scan(RANGES)
        assert two[0].accepted == before  # it is still resting
        wait_until(lambda: ours.scan(RANGES).shape == (0, 13) and held(ours, two[0]) >= 2)
        assert abs(held(ours, two[0]) - held(ours, two[1])) <= 1


def held(ours: Thrift2Gateway, gateway: StandIn) -> int:
    return sum(one.endpoint.port == gateway.port for one in pool_of(ours)._choice.connections)


def test_a_gateway_that_fails_rests_for_longer_and_longer() -> None:
    one, other = Endpoint("one", 1), Endpoint("other", 2)
    gateways = Choice([one, other])
    rests = []
    for _ in range(6):
        gateways.failed(one)
        standing = gateways._standings[one]
        rests.append(standing.rests_until_s - time.monotonic())
        gateways.failed(one)  # a call that was sent earlier
        assert gateways.next() == other
        assert gateways.to_try() is None
        standing.rests_until_s = 0.0
    assert [round(rest) for rest in rests] == [5, 10, 20, 40, 60, 60]
    assert gateways.to_try() == one
    assert gateways.to_try() is None  # only one connection at a time tries it
    gateways.answered(one)
    assert {gateways.next() for _ in range(100)} == {one, other}


def test_thrift2_behind_an_address_of_thrift1_is_named_in_the_same_words_by_all(gateway: StandIn) -> None:
    url = url_of(gateway).replace("hbase://", "hbase+thrift1://")
    told = f"127.0.0.1:{gateway.port}: it speaks Thrift2; use hbase:// instead of hbase+thrift1://"
    with pytest.raises(StoreUnavailableError) as refused:
        open_gateway(Address.parse(url))
    assert str(refused.value).endswith(told)
    assert [found.message for found in checks(url, writes=False) if found.status == "fail"] == [told]


def test_processes_begin_at_any_gateway(two: tuple[StandIn, StandIn]) -> None:
    for _ in range(40):
        opened(*two).close()
    assert min(one.accepted for one in two) >= 5  # fewer by chance only once in 10 million runs


@thorough
def test_forked_children_begin_at_any_gateway(two: tuple[StandIn, StandIn]) -> None:
    with opened(*two) as ours:
        ours.scan(RANGES[:1])
        for _ in range(40):
            with forked(lambda: ours.scan(RANGES[:1])):
                pass
        assert min(one.accepted for one in two) >= 5


def test_a_refusal_turns_batches_off_for_its_call_alone(
    gateway: StandIn, ours: Thrift2Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.refusals = SCANS * 2  # twice, because a call that is refused once is retried
    with caplog.at_level(logging.WARNING, "hsimhash"):
        ours.scan(BATCH)
    assert gateway.methods.count("getScannerResults") == 2 + len(BATCH)
    assert "one by one instead of in groups" in caplog.text
    gateway.methods.clear()
    ours.scan(BATCH)
    assert gateway.methods.count("getScannerResults") == 1


def test_a_gateway_that_passes_over_filters_is_asked_for_single_scans_from_then_on(
    gateway: StandIn, ours: Thrift2Gateway
) -> None:
    gateway.rows = [b"\x00\x00" + bytes(11), b"\x00\x01" + bytes(11)]  # the second is outside the ranges
    assert ours.scan(BATCH).tobytes() == gateway.rows[0]
    gateway.methods.clear()
    assert ours.scan(BATCH).tobytes() == gateway.rows[0]
    assert gateway.methods.count("getScannerResults") == len(BATCH)


def test_an_internal_error_without_a_reason_is_tried_once_more(gateway: StandIn, ours: Thrift2Gateway) -> None:
    gateway.refusals = ["getMultiple"]
    assert ours.get([(b"row", b"layout")], b"i") != [None]
    gateway.refusals = ["checkAndPut"]
    with pytest.raises(Exception, match="without giving a reason"):
        ours.change([Change(b"row", b"d", b"q", None, b"")])
    assert gateway.methods.count("checkAndPut") == 1


class Dripping(LocalServer):
    """Sends a reply byte by byte, without ever completing it."""

    def talk(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.sendall(b"\x80\x01\x00\x02\x00\x00\x27\x10")  # a reply whose name is 10,000 bytes long
            while True:
                time.sleep(0.05)
                connection.sendall(b"n")


def test_a_reply_that_drips_ends_with_its_time() -> None:
    with serving(Dripping()) as server:
        address = Address.parse(f"hbase://127.0.0.1:{server.port}/t")
        connection = Connection(address.gateways[0], address, None, timeout_s=LIMIT_S)
        began = time.monotonic()
        connection.send(Call(THRIFT2.THBaseService, "getThriftServerType", ()), 1.0)
        with pytest.raises(TimeoutError):
            connection.receive()
        assert time.monotonic() - began < LIMIT_S / 2
        connection.close()


@thorough
def test_a_pause_of_ours_between_calls_does_not_count_against_their_deadline(gateway: StandIn) -> None:
    with opened(gateway, options="timeout=10s&deadline=3s") as ours, ours.one_deadline():
        ours.scan(RANGES)
        time.sleep(3.2)  # the stall under test
        gateway.hung = {"getScannerResults"}
        threading.Timer(0.4, gateway.wake).start()
        assert len(ours.scan(RANGES)) == 0  # a deadline that included the stall would leave 0.1 s


def test_jobs_wait_longer_unless_the_url_says_otherwise(gateway: StandIn) -> None:
    for options, deadline_s in (("connections=8", JOB_DEADLINE_S), ("deadline=7s", 7.0)):
        with open_store(url_of(gateway, options=options), Opening(deadline_s=JOB_DEADLINE_S)) as store:
            assert isinstance(store, HBaseStore)
            assert isinstance(store.gateway, Thrift2Gateway)
            assert store.gateway._caller.deadline_s == deadline_s


def test_slow_queries_are_logged(gateway: StandIn, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with HSimIndex(store, Profile.named("auto-1"), slow_s=0.1) as index:
        gateway.hung = {"getScannerResults"}
        threading.Timer(0.3, gateway.wake).start()
        index.query(5)
    buckets = len(index.layout.drawers)
    assert re.search(r"slow query of hbase://.*: \d{3,} ms for fingerprint 0000000000000005", caplog.text)
    assert f"({buckets} of {buckets} buckets with 0 rows, and 0 documents)" in caplog.text


def test_a_reader_takes_the_ttl_from_the_record_and_an_old_record_is_asked_about_once() -> None:
    url, gateway, asked = "hbase://model/t", ModelGateway(Cluster()), list[int]()
    HBaseStore.create(url, gateway, Record(Layout.named("4"), {"name": "any"}))

    def ask() -> Times:
        asked.append(1)
        return Times(ttl_s=99)

    old = HBaseStore.open(url, gateway, ask_times=ask)
    assert not asked
    assert (old.times.ttl_s, old.times.ttl_s, len(asked)) == (99, 99, 1)
    for ttl_s, expected in ((86_400, 86_400), (0, None)):
        record_ttl(gateway, ttl_s)
        assert HBaseStore.open(url, gateway, ask_times=ask).times.ttl_s == expected
    assert len(asked) == 1


def test_the_ttl_of_a_table_is_compared_with_the_record() -> None:
    gateway, url = ModelGateway(Cluster()), "hbase://gw1/pages?auth=kerberos&deadline=5s"

    def table(*ttls: int) -> Table:
        return Table(tuple(Family(name, {"TTL": f"{ttl_s}"}, {}) for name, ttl_s in zip("fd", ttls, strict=False)), {})

    assert "is unlimited in the table, but missing in the record" in ttl_difference(url, gateway, table(FOREVER_S))
    record_ttl(gateway, 50)
    said = ttl_difference(url, gateway, table(60, 60))
    assert f"update the record: \"hsimhash create-table --store '{url}' --ttl 1min\"; " in said
    assert said.endswith(f"\"hsimhash create-table --store '{url}' --ttl 50s --dry-run\"")
    for same_or_unknown in (table(50, 50), table(), table(50, 60)):
        assert ttl_difference(url, gateway, same_or_unknown) == ""


@thorough
def test_the_doctor_opens_what_many_processes_would(gateway: StandIn) -> None:
    address = Address.parse(url_of(gateway, options="connections=4&timeout=8s"))
    assert next(load_checks(address, 20)).status == "ok"
    assert "opened 80 connections at once: all got a reply" in list(load_checks(address, 20))[1].message
    gateway.hung = {"*"}
    size, load = load_checks(address, 300)
    assert (size.status, load.status) == ("warn", "fail")
    assert "does not respond on connection 1 of" in load.message
    assert "-w 4000" in load.message


def regions(count: int, servers: int) -> list[Region]:
    starts = [b"", *(bytes([256 * number // count]) for number in range(1, count))]
    return [Region(start, b"", f"rs{number % servers}") for number, start in enumerate(starts)]


def test_a_batch_is_as_wide_as_there_are_servers_and_visits_them_in_turn() -> None:
    ranges = ranges_of(range(0, 1 << 16, 64))
    for count, servers in ((1, 1), (16, 2), (128, 8)):
        groups, width = scan_groups(ranges, regions(count, servers))
        assert width == 4 * servers
        assert sorted(one for group in groups for one in group) == ranges
        starts = [region.start for region in regions(count, servers)]
        of_server = [(bisect_right(starts, group[0][0]) - 1) % servers for group in groups]
        assert of_server == [number % servers for number in range(len(of_server))]
    assert scan_groups(ranges, []) == ([], 0)
    assert scan_groups(ranges, regions(256, 2))[0]
    assert not scan_groups(ranges[::2], regions(256, 2))[0]  # two ranges per region: single scans are faster
