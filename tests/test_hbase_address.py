"""The URL of an index on HBase, and the filters and errors that can be tested without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.store.hbase.gateway.address import Address, Endpoint, Options
from hsimhash.store.hbase.gateway.base import Put
from hsimhash.store.hbase.gateway.batches import (
    PUT_BYTES,
    PUT_ROWS,
    columns_after,
    merged,
    put_batches,
    row_ranges,
    share,
    slices,
)

GW = Endpoint("gw", 9091)


def at(*gateways: Endpoint, **options: object) -> Address:
    return Address("hbase", gateways, "default", "t", Options(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("hbase://gw/t", at(GW)),
        ("hbase+thrift1://gw/t", Address("hbase+thrift1", (Endpoint("gw", 9090),), "default", "t")),
        ("hbase://a,b:1/t", at(Endpoint("a", 1), Endpoint("b", 1))),
        ("hbase://a:2,b/t", at(Endpoint("a", 2), Endpoint("b", 9091))),
        ("hbase://[::1],[fe80::2]:7/t", at(Endpoint("::1", 7), Endpoint("fe80::2", 7))),
        ("hbase://gw/crawl:pages.v2-1", Address("hbase", (GW,), "crawl", "pages.v2-1")),
        (
            "hbase://gw/t?transport=framed&protocol=compact&timeout=500ms&deadline=1.5m&connections=4&exclusive=yes&info_port=1",
            at(
                GW,
                transport="framed",
                protocol="compact",
                timeout_s=0.5,
                deadline_s=90.0,
                connections=4,
                info_port=1,
                exclusive=True,
            ),
        ),
        (
            "hbase+https://gw:443/t?ca=/etc/ca.pem&cert=/c.pem&key=/k.pem&path=/thrift",
            Address(
                "hbase+https",
                (Endpoint("gw", 443),),
                "default",
                "t",
                Options(path="/thrift", ca="/etc/ca.pem", cert="/c.pem", key="/k.pem"),
            ),
        ),
        (
            "hbase://gw/t?auth=kerberos&service=thrift&qop=auth-conf&protocol=compact",
            at(GW, protocol="compact", auth="kerberos", service="thrift", qop="auth-conf"),
        ),
    ],
)
def test_an_address_is_read_and_written(url: str, address: Address) -> None:
    assert Address.parse(url) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("lmdb://x", "not an HBase URL"),
        ("hbase:gw/t", "not an HBase URL"),
        ("hbase://gw", "invalid table name ''"),
        ("hbase://gw/", "invalid table name ''"),
        ("hbase://gw/a:b:c", "invalid table name 'a:b:c'"),
        ("hbase://gw/-t", "invalid table name '-t'"),
        ("hbase:///t", "invalid host ''"),
        ("hbase://a,,b/t", "invalid host ''"),
        ("hbase://::1/t", "invalid host '::1'"),
        ("hbase://gw:0/t", "port must be 1 to 65535, got 0"),
        ("hbase://gw:65536/t", "got 65536"),
        ("hbase://gw:x/t", "invalid host 'gw:x'"),
        ("hbase://gw/t#x", "must not have a user or a fragment"),
        ("hbase://gw/t?timeot=5s", "unknown option timeot; did you mean timeout"),
        ("hbase://gw/t?timeout=5s&timeout=6s", "given twice"),
        ("hbase://gw/t?timeout", "name=value"),
        ("hbase://gw/t?timeout=0s", "invalid timeout=0s"),
        ("hbase://gw/t?deadline=-1", "invalid deadline=-1"),
        ("hbase://gw/t?connections=0", "connections= must be 1 to 999, got 0"),
        ("hbase://gw/t?info_port=65536", "info_port= must be 1 to 65535, got 65536"),
        ("hbase://gw/t?info_port=-1", "info_port= must be 1 to 65535, got -1"),
        ("hbase://gw/t?transport=http", "transport= must be one of buffered, framed, got http"),
        ("hbase://gw/t?path=", "option path is empty"),
        ("hbase://gw/t?ca=/x", "require hbase"),
        ("hbase+https://gw/t?key=/x", "requires cert="),
        ("hbase+https://gw/t?transport=framed", "transport= and protocol= do not apply to HTTP"),
        ("hbase://gw/t?auth=plain", "auth= must be one of kerberos, got plain"),
        ("hbase://gw/t?auth=kerberos&qop=privacy", "qop= must be one of auth, auth-int, auth-conf, got privacy"),
        ("hbase://gw/t?qop=auth", "require auth=kerberos"),
        ("hbase+https://gw/t?service=HTTP", "require auth=kerberos"),
        ("hbase://gw/t?auth=kerberos&transport=framed", "auth=kerberos cannot be combined with transport=framed"),
        ("hbase+https://gw/t?auth=kerberos&qop=auth", "qop= does not apply to HTTP"),
        ("hbase://gw/t?auth=kerberos&service=hbase/gw@A.ORG", "service= must be the first part of a principal"),
    ],
)
def test_what_is_wrong_with_a_url_is_named(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Address.parse(url)


def test_a_password_in_a_url_is_not_repeated() -> None:
    for url in ("hbase://user:secret@gw/t", "redis://user:secret@gw/t"):
        with pytest.raises(ValueError, match="hbase") as refused:
            Address.parse(url)
        assert "secret" not in str(refused.value)


def test_the_ticket_is_for_the_service_that_hbase_names_unless_the_url_names_another() -> None:
    for url, service in (("hbase://gw/t", "hbase"), ("hbase+https://gw/t", "HTTP"), ("hbase+http://gw/t", "HTTP")):
        assert Address.parse(f"{url}?auth=kerberos").service == service
        assert Address.parse(f"{url}?auth=kerberos&service=thrift").service == "thrift"


rows = st.binary(min_size=1, max_size=3)


@given(st.lists(st.tuples(rows, rows)), rows)
def test_merged_ranges_cover_the_same_rows(ranges: list[tuple[bytes, bytes]], row: bytes) -> None:
    disjoint = merged(ranges)
    assert any(start <= row < stop for start, stop in disjoint) == any(start <= row < stop for start, stop in ranges)
    edges = [edge for one in disjoint for edge in one]
    assert edges == sorted(set(edges))


def test_the_filter_bytes_are_protobufs() -> None:
    name = b"org.apache.hadoop.hbase.filter.MultiRowRangeFilter"
    body = b"\x0a\x0a\x0a\x01a\x10\x01\x1a\x01b\x20\x00"
    assert row_ranges([(b"a", b"b")]) == b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(body)]) + body
    long = row_ranges([(b"a" * 200, b"b")])
    assert b"\x0a\xc8\x01" + b"a" * 200 in long  # 200 as a varint


def test_quotes_in_a_filter_are_doubled() -> None:
    assert columns_after(b"it's") == b"ColumnRangeFilter ('it''s', false, '', false)"


@given(st.lists(st.integers(0, PUT_BYTES + 10), max_size=8), st.integers(0, 5_000))
def test_batches_hold_every_put_once_in_order_and_fit_a_call(sizes: list[int], small: int) -> None:
    puts = [Put(b"r", b"f", b"q", bytes(size)) for size in sizes] + [Put(b"s", b"f", b"", b"")] * small
    batches = list(put_batches(puts))
    assert [put for batch in batches for put in batch] == puts
    assert all(len(batch) == 1 or sum(len(put.value) for put in batch) <= PUT_BYTES for batch in batches)
    assert all(0 < len(batch) <= 2_000 for batch in batches)


@given(st.integers(0, 50_000), st.integers(1, 8))
def test_shares_keep_all_workers_busy_until_the_end(count: int, workers: int) -> None:
    size = share(count, PUT_ROWS, workers)
    runs = slices(count, size)
    assert 0 < size <= PUT_ROWS
    assert len(runs) % workers == 0 or size == 100
