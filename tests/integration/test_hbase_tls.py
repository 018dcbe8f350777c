"""Client certificates: a TLS proxy that requires one, in front of a real gateway in HTTP mode."""

from __future__ import annotations

import select
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from tests.support.hbase_server import HBaseServer
from tests.support.hbase_tables import new_table
from tests.support.local_server import LocalServer, serving
from tests.support.tcp_proxy import refusing_port

HTTP = {"hbase.regionserver.thrift.http": "true"}
OPENSSL = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:localhost
"""

pytestmark = pytest.mark.together


class Authority:
    """The tests' own certificate authority, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._config = folder / "openssl.cnf"
        self._config.write_text(OPENSSL)
        self.certificate, self._key = self._make("authority", "authority")

    def issue(self, name: str) -> tuple[Path, Path]:
        """Issue a certificate; return its file and that of its key."""
        return self._make(name, "leaf", "-CA", str(self.certificate), "-CAkey", str(self._key))

    def _make(self, name: str, extensions: str, *signed: str) -> tuple[Path, Path]:
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
        files = ["-config", str(self._config), "-extensions", extensions, "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", "req", "-x509", *kind, *files, *signed], check=True, capture_output=True)
        return certificate, key


@dataclass(frozen=True)
class Certificates:
    trusted: Authority
    strange: Authority


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    return Certificates(Authority(folder / "trusted"), Authority(folder / "strange"))


class EndingTls(LocalServer):
    """A server that terminates TLS in front of a port of this machine."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__()
        self._target = port
        self._context = context

    def talk(self, connection: socket.socket) -> None:
        with (
            suppress(OSError),
            connection,
            self._context.wrap_socket(connection, server_side=True) as client,
            socket.create_connection(("127.0.0.1", self._target)) as server,
        ):
            _relay(client, server)


def _relay(client: ssl.SSLSocket, server: socket.socket) -> None:
    while True:
        ready = select.select([client, server], [], [])[0]
        if server in ready:
            data = server.recv(1 << 16)
            client.sendall(data)
        else:
            data = client.recv(1 << 16)
            while client.pending():
                data += client.recv(1 << 16)
            server.sendall(data)
        if not data:
            return


@pytest.fixture(scope="module", params=["thrift2", "thrift1"])
def http_port(request: pytest.FixtureRequest, own_hbase: HBaseServer) -> Iterator[int]:
    with own_hbase.gateway(request.param, settings=HTTP) as served:
        yield served.port


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2], ids=["tls1.3", "tls1.2"])
def port(request: pytest.FixtureRequest, http_port: int, certificates: Certificates) -> Iterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.trusted.certificate)
    context.load_cert_chain(*certificates.trusted.issue("gateway"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = request.param
    with serving(EndingTls(http_port, context)) as server:
        yield server.port


def place(port: int, certificates: Certificates, table: str, options: str = "") -> Address:
    ca = certificates.trusted.certificate
    return Address.parse(f"hbase+https://localhost:{port}/{table}?timeout=60s&ca={ca}{options}")


def complaint(address: Address) -> str:
    with pytest.raises(StoreUnavailableError) as refused:
        open_gateway(address)
    return str(refused.value)


def test_who_shows_the_right_certificate_reads_and_writes(
    port: int, certificates: Certificates, own_hbase: HBaseServer, tmp_path: Path
) -> None:
    cert, key = certificates.trusted.issue("client")
    both = tmp_path / "both.pem"
    both.write_text(cert.read_text() + key.read_text())
    row = b"\x01" * ROWKEY_BYTES
    with new_table(own_hbase, TableSettings()) as table:
        for options in (f"&cert={cert}&key={key}", f"&cert={both}"):
            with open_gateway(place(port, certificates, table, options)) as gateway:
                gateway.put_rows(np.frombuffer(row, np.uint8).reshape(1, ROWKEY_BYTES))
                assert gateway.scan([(row, row + b"\x00")]).tobytes() == row


def test_who_shows_no_certificate_is_told_the_option(port: int, certificates: Certificates) -> None:
    said = complaint(place(port, certificates, "t"))
    assert "if it requires a client certificate, set cert=FILE" in said


def test_who_shows_a_strange_certificate_is_told_which(port: int, certificates: Certificates) -> None:
    cert, key = certificates.strange.issue("client")
    said = complaint(place(port, certificates, "t", f"&cert={cert}&key={key}"))
    assert f"it does not accept the certificate in cert={cert}" in said


def test_a_server_by_a_strange_authority_is_not_believed(port: int, certificates: Certificates) -> None:
    cert, key = certificates.trusted.issue("client")
    address = Address.parse(
        f"hbase+https://localhost:{port}/t?ca={certificates.strange.certificate}&cert={cert}&key={key}"
    )
    assert "set ca=FILE to its CA certificate" in complaint(address)


def test_a_server_that_cuts_without_an_alert_may_want_a_certificate(certificates: Certificates) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificates.trusted.issue("gateway"))
    with refusing_port() as nobody, serving(EndingTls(nobody, context)) as server:  # closes after the handshake
        assert "if it requires a client certificate" in complaint(place(server.port, certificates, "t"))
