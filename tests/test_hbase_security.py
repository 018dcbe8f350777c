"""Kerberos without a KDC: SASL frames with a scripted peer; certificate files that cannot be used."""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from thriftpy2.transport import TTransportException

from hsimhash.errors import HsimhashError, StoreUnavailableError
from hsimhash.extras import install_command
from hsimhash.store.hbase.gateway import connection
from hsimhash.store.hbase.gateway.address import Address, Endpoint
from hsimhash.store.hbase.gateway.connection import tls_context
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.sasl import LAYERS, KerberosError, SaslSocket, Status, check_proof, proof
from tests.support.command_line import run
from tests.support.local_server import LocalServer, serving

LIMIT = 1_000  # maximum bytes of a sealed frame that the scripted gateway accepts
AUTH, INTEGRITY, SECRECY = LAYERS.values()


class Script:
    """A security context for either side: two tokens each way, and seals that can be told apart."""

    def __init__(self) -> None:
        self.tokens: list[bytes | None] = []

    @property
    def is_complete(self) -> bool:
        return len(self.tokens) == 2

    def step(self, token: bytes | None = None) -> bytes:
        self.tokens.append(token)
        return b"" if self.is_complete else b"first"

    def wrap(self, data: bytes, *, is_secret: bool) -> bytes:
        return (b"hidden" + bytes(byte ^ 0x55 for byte in data)) if is_secret else b"signed" + data

    def unwrap(self, data: bytes, *, is_secret: bool) -> bytes:
        assert data.startswith(b"hidden" if is_secret else b"signed")
        return bytes(byte ^ 0x55 for byte in data[6:]) if is_secret else data[6:]

    def largest(self, size: int, *, is_secret: bool) -> int:
        return size - 6


class Peer:
    """The gateway's end of a connection."""

    def __init__(self, taken: socket.socket) -> None:
        self._file = taken.makefile("rwb")
        self.seals = Script()
        self.layer = 0
        self.frames: list[bytes] = []

    def say(self, status: int, message: bytes = b"") -> None:
        self._file.write(struct.pack(">BI", status, len(message)) + message)
        self._file.flush()

    def hear(self) -> tuple[int, bytes]:
        status, length = struct.unpack(">BI", self._file.read(5))
        return status, self._file.read(length)

    def greet(self) -> None:
        assert self.hear() == (Status.START, b"GSSAPI")
        assert self.hear() == (Status.OK, b"first")
        self.say(Status.OK, b"second")
        assert self.hear() == (Status.OK, b"")

    def agree(self, offered: int) -> None:
        self.greet()
        self.say(Status.OK, self.seals.wrap(bytes([offered]) + LIMIT.to_bytes(3), is_secret=False))
        status, message = self.hear()
        answer = self.seals.unwrap(message, is_secret=False)
        assert status == Status.OK
        self.layer = answer[0]
        assert answer[1:] == (b"\x00" * 3 if self.layer == AUTH else b"\xff" * 3)
        self.say(Status.COMPLETE)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self.frames.append(self._file.read(int.from_bytes(self._file.read(4))))
            data += self._opened(self.frames[-1])
        return data

    def _opened(self, frame: bytes) -> bytes:
        return frame if self.layer == AUTH else self.seals.unwrap(frame, is_secret=self.layer == SECRECY)

    def send(self, data: bytes) -> None:
        sealed = data if self.layer == AUTH else self.seals.wrap(data, is_secret=self.layer == SECRECY)
        self._file.write(len(sealed).to_bytes(4) + sealed)
        self._file.flush()


@contextmanager
def gateway(behave: Callable[[Peer], None]) -> Iterator[connection._Socket]:
    """Run a gateway for one connection, and connect to it."""
    failures: list[BaseException] = []

    def serve() -> None:
        with listener.accept()[0] as taken:
            try:
                behave(Peer(taken))
            except BaseException as error:  # reported below
                failures.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        plain = connection._Socket(Endpoint("127.0.0.1", listener.getsockname()[1]), connection._Due(10.0))
        try:
            yield plain
        finally:
            plain.close()
            thread.join()
    assert not failures


def told(behave: Callable[[Peer], None], qop: str = "") -> str:
    with gateway(behave) as plain, pytest.raises(KerberosError) as refused:
        SaslSocket(plain, Script(), qop)
    return str(refused.value)


def read(wire: SaslSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += wire.read(size - len(data))
    return data


@pytest.mark.parametrize("qop", LAYERS)
def test_messages_of_any_size_pass_both_ways_in_each_layer(qop: str) -> None:
    asked, answered = b"question " * 40_000, b"answer " * 40_000

    def behave(peer: Peer) -> None:
        peer.agree(LAYERS[qop])
        assert peer.receive(len(asked)) == asked
        for start, stop in ((0, 1), (1, 100_000), (100_000, len(answered))):
            peer.send(answered[start:stop])
        assert peer.receive(3) == b"bye"
        assert peer.layer == LAYERS[qop]
        assert (max(map(len, peer.frames)) <= LIMIT) == (qop != "auth")
        assert any(b"question" in frame for frame in peer.frames) == (qop != "auth-conf")

    with gateway(behave) as plain:
        wire = SaslSocket(plain, Script(), qop)
        wire.write(asked[:10])
        wire.write(asked[10:])
        wire.flush()
        assert read(wire, len(answered)) == answered
        wire.write(b"bye")
        wire.flush()


@pytest.mark.parametrize(("offered", "taken"), [(AUTH | SECRECY, SECRECY), (AUTH | INTEGRITY, INTEGRITY), (AUTH, AUTH)])
def test_the_strongest_layer_that_is_offered_is_taken(offered: int, taken: int) -> None:
    def behave(peer: Peer) -> None:
        peer.agree(offered)
        assert peer.layer == taken

    with gateway(behave) as plain:
        SaslSocket(plain, Script())


def test_a_layer_that_is_not_offered_is_refused_with_those_that_are() -> None:
    def behave(peer: Peer) -> None:
        peer.greet()
        peer.say(Status.OK, peer.seals.wrap(bytes([AUTH | INTEGRITY]) + LIMIT.to_bytes(3), is_secret=False))

    assert "offers qop=auth or auth-int, but the URL has qop=auth-conf" in told(behave, "auth-conf")


@pytest.mark.parametrize("status", [Status.BAD, Status.ERROR])
def test_the_gateways_own_words_are_repeated(status: Status) -> None:
    def behave(peer: Peer) -> None:
        assert peer.hear() == (Status.START, b"GSSAPI")
        assert peer.hear() == (Status.OK, b"first")
        peer.say(status, b"GSS initiate failed")

    assert told(behave) == "the gateway rejected the negotiation: GSS initiate failed; see the gateway's log"


@pytest.mark.parametrize(
    ("status", "message"),
    [(0x80, "does not speak SASL"), (Status.COMPLETE, "expected status OK, got COMPLETE")],
)
def test_who_skips_the_proof_is_not_believed(status: int, message: str) -> None:
    def behave(peer: Peer) -> None:
        peer.hear()
        peer.hear()
        peer.say(status)

    assert message in told(behave)


def test_an_offer_of_another_size_is_refused() -> None:
    def behave(peer: Peer) -> None:
        peer.greet()
        peer.say(Status.OK, peer.seals.wrap(b"\x01", is_secret=False))

    assert "expected 4 bytes, got 1" in told(behave)


def test_a_gateway_that_leaves_amid_the_negotiation_is_noticed() -> None:
    with gateway(Peer.greet) as plain, pytest.raises(TTransportException, match="the gateway closed the connection"):
        SaslSocket(plain, Script())


@pytest.mark.parametrize(("scheme", "is_warned"), [("hbase+http", True), ("hbase+https", False), ("hbase", False)])
def test_who_asks_in_the_clear_is_warned(caplog: pytest.LogCaptureFixture, scheme: str, is_warned: bool) -> None:
    with pytest.raises(StoreUnavailableError):
        open_gateway(Address.parse(f"{scheme}://127.0.0.1:1/t?auth=kerberos&timeout=1s"))
    assert ("requests and responses are unencrypted" in caplog.text) is is_warned


def test_an_http_reply_must_prove_the_gateway() -> None:
    for answer in (None, "Negotiate", "Basic Zmlyc3Q="):
        script = Script()
        assert proof(script) == {"Authorization": "Negotiate Zmlyc3Q="}
        with pytest.raises(KerberosError, match="did not authenticate itself"):
            check_proof(script, answer)
    with pytest.raises(KerberosError, match="sent an invalid token"):
        check_proof(script, "Negotiate =!")
    script = Script()
    proof(script)
    check_proof(script, "Negotiate c2Vjb25k")
    assert script.tokens == [None, b"second"]


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = run("status", "--store", f"hbase://127.0.0.1:{port}/t?auth=kerberos")
    assert result.exit_code == 4
    assert install_command("kerberos") in result.stderr


class WantsKerberos(LocalServer):
    """Behaves like HBase's gateway: takes the first byte for a status, and rejects the mechanism as unknown."""

    def talk(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            data = connection.recv(5)
            if data[:1] == b"\x01":
                answer = b"Unsupported mechanism type " + connection.recv(int.from_bytes(data[1:]))
                connection.sendall(struct.pack(">BI", Status.BAD, len(answer)) + answer)


def test_a_gateway_that_wants_kerberos_is_recognized() -> None:
    with serving(WantsKerberos()) as server:
        place = f"hbase://127.0.0.1:{server.port}"
        with pytest.raises(StoreUnavailableError) as refused:
            open_gateway(Address.parse(f"{place}/t"))
    assert f"use {place}/default:t?auth=kerberos" in str(refused.value)


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    none, wrong = tmp_path / "none.pem", tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for options, message in (
        (f"ca={none}", rf"ca={none} must be a PEM file with certificates \(No such file"),
        (f"ca={wrong}", f"ca={wrong} must be a PEM file with certificates"),
        (f"cert={none}", f"cert={none} is not a PEM certificate with its key"),
        (f"cert={wrong}&key={none}", f"cert={wrong} and key={none} are not a PEM certificate with its key"),
    ):
        with pytest.raises(HsimhashError, match=message):
            tls_context(Address.parse(f"hbase+https://gw/t?{options}"))
