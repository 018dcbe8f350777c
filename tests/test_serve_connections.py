"""Slow, large and numerous requests to a real server, and requests of HTTP clients in other languages."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from hsimhash.index import HSimIndex
from hsimhash.serve.app import ServeLimits
from tests.support.command_line import PATIENCE_S, make_index
from tests.support.processes import wait_until
from tests.support.serve_process import JSON, LINES, Caller, served_here

pytestmark = [pytest.mark.together, pytest.mark.every_case]

BODY = b'{"fingerprint": "0000000000000003", "limit": 1}'
CROWD = 60_000
TIMES = ServeLimits(head_s=0.3, body_s=0.6, stalled_s=0.3)
LIMITS = replace(TIMES, head_bytes=2_000, value_bytes=19_500, body_bytes=20_000, bodies_bytes=50_000)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index with a, b, 中文, far, and a crowd."""
    url = make_index(tmp_path_factory.mktemp("serve"))
    with HSimIndex.open(url) as index:
        index.add_many([0xFFFF << 40] * CROWD, [f"crowd {number}" for number in range(CROWD)])
    return url


@pytest.fixture(scope="module")
def strict(url: str) -> Iterator[int]:
    """The port of a server with small limits."""
    with served_here(url, LIMITS) as port:
        yield port


@pytest.fixture(scope="module")
def usual(url: str) -> Iterator[int]:
    """The port of a server with the usual limits."""
    with served_here(url, ServeLimits()) as port:
        yield port


def connected(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(sent)
    return connection


def received(connection: socket.socket) -> bytes:
    """Return what arrives until the server closes the connection."""
    parts = []
    with connection:
        try:
            while part := connection.recv(65_536):
                parts.append(part)
        except ConnectionResetError:
            pass
    return b"".join(parts)


def head(*lines: str, length: int = len(BODY), version: str = "1.1") -> bytes:
    given = ("Host: localhost", f"Content-Type: {JSON}", f"Content-Length: {length}", *lines)
    return "\r\n".join((f"POST /query HTTP/{version}", *given, "", "")).encode()


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"G", b"POST /query HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_head_that_does_not_end_in_time_ends_the_connection(strict: int, sent: bytes) -> None:
    assert received(connected(strict, sent)) == b""


def test_a_second_head_has_the_same_time(strict: int) -> None:
    connection = connected(strict, head() + BODY)
    assert b" 200 " in connection.recv(65_536).partition(b"\r\n")[0]
    connection.sendall(b"POST /qu")
    assert received(connection) == b""


def was_cut(connection: socket.socket, part: bytes) -> bool:
    """Send the same bytes again and again; return whether the server closed the connection."""
    began_s = time.monotonic()
    with connection:
        while time.monotonic() < began_s + PATIENCE_S:
            try:
                connection.sendall(part)
            except OSError:
                return True
    return False


def test_a_head_that_trickles_has_no_more_time(url: str) -> None:
    with served_here(url, replace(LIMITS, head_bytes=1 << 40)) as port:
        assert was_cut(connected(port, b"GET / HTTP/1.1\r\n"), b"X: y\r\n")


def test_a_head_that_is_too_long_ends_the_connection(usual: int) -> None:
    assert was_cut(connected(usual, b"GET / HTTP/1.1\r\nX: "), b"y" * 100_000)


def test_a_body_that_does_not_end_in_time_is_refused(strict: int) -> None:
    answer = received(connected(strict, head() + BODY[:-1]))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within" in answer


def test_bodies_together_are_bounded_and_room_comes_back(strict: int) -> None:
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(strict, head(length=19_000) + b" " * 18_000)) for _ in range(3)]
        answers = [one.recv(65_536) for one in waiting]
    assert sorted(answer.split()[1] for answer in answers) == [b"408", b"408", b"503"]
    assert b"Retry-After: 1" in b"".join(answers).replace(b"retry-after", b"Retry-After")
    assert b" 200 " in received(connected(strict, head("Connection: close") + BODY))


@pytest.mark.parametrize(("kind", "most"), [(JSON, 19_500), (LINES, 20_000)])
def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(strict: int, kind: str, most: int) -> None:
    sent = head("Expect: 100-continue", length=most + 1).replace(JSON.encode(), kind.encode())
    with connected(strict, sent) as connection:
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_an_answer_that_nobody_takes_ends_the_connection(strict: int) -> None:
    body = b'{"fingerprint": "00ffff0000000000"}'
    connection = connected(strict, head(length=len(body)) + body)
    assert connection.recv(1).startswith(b"H")
    time.sleep(3 * LIMITS.stalled_s)  # without reading, which would take the answer
    assert len(received(connection)) < CROWD * 100


def test_a_large_answer_comes_whole_while_others_are_answered(usual: int) -> None:
    asking, watching = Caller(usual), Caller(usual)
    sent: list[int] = []
    body = '{"fingerprint": "00ffff0000000000"}'
    thread = threading.Thread(target=lambda: sent.extend((asking.send("POST", "/query", body, JSON)[0],)))
    answered = 0
    thread.start()
    while thread.is_alive():
        assert watching.call("/healthz")[0] == 200
        answered += 1
    thread.join()
    assert sent == [200]
    assert answered >= 10
    answer = asking.call("/query", json.loads(body))[1]
    assert {match["id"] for match in answer["matches"]} == {f"crowd {number}" for number in range(CROWD)}
    assert asking.answered["Content-Length"]
    lines = asking.batch("/query", [json.loads(body), {"fingerprint": "zz"}, json.loads(body)])
    assert [lines[0], lines[2]] == [answer, answer]
    assert lines[1]["line"] == 2
    for one in (asking, watching):
        one.connection.close()


CHUNKED = "\r\n".join(
    ("POST /query HTTP/1.1", "host: localhost", f"content-type: {JSON}", "transfer-encoding: chunked", "", "")
).encode()
CLIENTS = {
    "curl": head("User-Agent: curl/8.5.0", "Accept: */*") + BODY,
    "curl, a large body": head("Expect: 100-continue") + BODY,
    "Go": head("User-Agent: Go-http-client/1.1", "Accept-Encoding: gzip") + BODY,
    "Java": head("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAA")
    + BODY,
    "node": CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    "chunks of a byte": CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n",
    ".NET": head(length=len(BODY) + 3) + b"\xef\xbb\xbf" + BODY,
    "HTTP/1.0": head(version="1.0") + BODY,
    "a line break before": b"\r\n" + head() + BODY,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_clients_send_is_answered_again_and_again(usual: int, client: str) -> None:
    with connected(usual) as connection:
        for _ in range(1 if client == "HTTP/1.0" else 3):
            connection.sendall(CLIENTS[client])
            answer = b""
            while b'"matches"' not in answer:
                part = connection.recv(65_536)
                assert part, answer
                answer += part
            assert b"HTTP/1.1 200 " in answer


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=utf-8", 200),
        ("Application/JSON;charset=UTF-8", 200),
        (f"{LINES}; charset=utf-8", 200),
        ("text/json", 415),
    ],
)
def test_types_may_have_parameters(usual: int, kind: str, status: int) -> None:
    caller = Caller(usual)
    assert caller.send("POST", "/query", BODY, kind)[0] == status
    caller.connection.close()


def test_a_compressed_body_is_refused_by_name(usual: int) -> None:
    caller = Caller(usual, {"Content-Encoding": "gzip"})
    status, answer = caller.send("POST", "/query", BODY, JSON)
    assert (status, b"unsupported content encoding 'gzip'" in answer) == (415, True)
    caller.connection.close()


def test_slow_callers_are_all_let_go(strict: int) -> None:
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(strict, b"POST ")) for _ in range(200)]

        def is_closed(connection: socket.socket) -> bool:
            connection.setblocking(False)
            try:
                return connection.recv(1) == b""
            except BlockingIOError:
                return False

        wait_until(lambda: all(map(is_closed, waiting)))
