"""Kerberos on a real HBase: the tests' own MIT KDC, a secure server, and gateways that require tickets."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import make_table
from tests.support.hbase_server import QUICK_JVM, Gateway, HBaseServer, free_ports, or_skip

PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
REALM = "TEST.LOCAL"
SERVICE = f"hbase/localhost@{REALM}"
CORE_SITE = """<configuration>
  <property><name>hadoop.security.authentication</name><value>kerberos</value></property>
</configuration>
"""
KRB5_CONF = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
KDC_CONF = """[realms]
 {realm} = {{
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
 }}
"""

pytestmark = pytest.mark.together


@dataclass(frozen=True)
class Realm:
    folder: Path
    environment: dict[str, str]

    def run(self, *words: str | Path) -> None:
        subprocess.run(words, env=self.environment, check=True, capture_output=True)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """A KDC with the services of localhost and the user alice, whose ticket this process uses."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or importlib.util.find_spec("gssapi") is None:
        pytest.skip(f"no Kerberos here: {', '.join(missing or ['the gssapi library'])}")
    folder, port = tmp_path_factory.mktemp("realm"), free_ports(1)[0]
    (folder / "krb5.conf").write_text(KRB5_CONF.format(realm=REALM, port=port))
    given = Path(os.environ.get("KRB5_KDC_PROFILE", os.devnull)).read_text()  # for example the folder of the plug-ins
    (folder / "kdc.conf").write_text(KDC_CONF.format(realm=REALM, port=port, folder=folder) + given)
    own = {"KRB5_CONFIG": "krb5.conf", "KRB5_KDC_PROFILE": "kdc.conf", "KRB5CCNAME": "tickets"}
    variables = {name: str(folder / file) for name, file in own.items()}
    made = Realm(folder, {**os.environ, **variables})
    made.run("kdb5_util", "create", "-s", "-P", "secret", "-r", REALM)
    for principals, keytab in ((("hbase/localhost", "HTTP/localhost"), "services"), (("alice",), "alice")):
        for principal in principals:
            made.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            made.run("kadmin.local", "-q", f"ktadd -k {folder / keytab} {principal}")
    with subprocess.Popen(
        ["krb5kdc", "-n"], env=made.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as kdc:
        assert kdc.stdout
        assert "starting" in kdc.stdout.readline()
        try:
            made.run("kinit", "-kt", folder / "alice", "alice")
            with pytest.MonkeyPatch.context() as patch:
                for name, value in variables.items():
                    patch.setenv(name, value)
                yield made
        finally:
            kdc.terminate()


@pytest.fixture(scope="module")
def secure(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseServer]:
    """A server whose parts authenticate each other by Kerberos; its first gateways do not require a ticket."""
    settings = {"hadoop.security.authentication": "kerberos", "hbase.security.authentication": "kerberos"}
    for part in ("master", "regionserver", "thrift"):
        settings[f"hbase.{part}.kerberos.principal"] = SERVICE
        settings[f"hbase.{part}.keytab.file"] = str(realm.folder / "services")
    server = SecureServer.planned(tmp_path_factory.mktemp("secure") / "hbase", settings)
    server.secure(realm, settings)
    with or_skip():
        server.prepare()
    server.start()
    yield server
    server.kill()  # a clean shutdown would need a ticket


class SecureServer(HBaseServer):
    settings: dict[str, str]

    def secure(self, realm: Realm, settings: dict[str, str]) -> None:
        self.settings = settings
        self._environment["HBASE_JVM"] = f"{QUICK_JVM} -Djava.security.krb5.conf={realm.folder / 'krb5.conf'}"
        for name in ("master", "thrift1", "thrift2"):
            self.know(name)

    def know(self, name: str) -> None:
        # Hadoop's own security code reads only core-site.xml.
        (self.folder / "conf" / name).mkdir(parents=True)
        (self.folder / "conf" / name / "core-site.xml").write_text(CORE_SITE)


def started(server: SecureServer, idl: str, settings: dict[str, str]) -> Gateway:
    port = free_ports(1)[0]
    gateway = Gateway(f"{idl}-{port}", port)
    server.know(gateway.name)
    server.start_gateway(gateway.name, settings=server.settings | settings)
    return gateway


def use(url: str, server: HBaseServer) -> None:
    row = b"\x01" * ROWKEY_BYTES
    rows = np.frombuffer(b"".join(number.to_bytes(ROWKEY_BYTES) for number in range(20_000)), np.uint8)
    address = Address.parse(url)
    with open_gateway(Address.parse(f"hbase://localhost:{server.thrift2_port}/{address.table}?timeout=60s")) as gateway:
        make_table(gateway, TableSettings())
    gateway = open_gateway(address)
    gateway.put_rows(rows.reshape(-1, ROWKEY_BYTES))  # many frames to the gateway; the scan below returns many
    assert len(gateway.scan([(b"\x00" * ROWKEY_BYTES, row)])) == 20_000
    assert gateway.holds([row, bytes(ROWKEY_BYTES)]) == [False, True]
    gateway.close()


@pytest.mark.parametrize(("idl", "qop"), [("thrift2", "auth"), ("thrift1", "auth-int"), ("thrift2", "auth-conf")])
def test_sasl_in_each_layer(secure: SecureServer, idl: str, qop: str) -> None:
    gateway = started(secure, idl, {"hbase.thrift.security.qop": qop})
    place = f"hbase://localhost:{gateway.port}/t-{uuid.uuid4().hex}?timeout=60s"
    use(f"{place}&auth=kerberos&qop={qop}", secure)
    with pytest.raises(StoreUnavailableError, match=r"requires Kerberos; use hbase://.*auth=kerberos"):
        open_gateway(Address.parse(place.replace("60s", "2s")))
    with pytest.raises(StoreUnavailableError, match="nosuch@localhost"):
        open_gateway(Address.parse(f"{place}&auth=kerberos&service=nosuch"))


@pytest.mark.parametrize("idl", ["thrift2", "thrift1"])
def test_http_with_negotiate(secure: SecureServer, idl: str, realm: Realm) -> None:
    own = {"principal": f"HTTP/localhost@{REALM}", "keytab.file": str(realm.folder / "services")}
    spnego = {f"hbase.thrift.spnego.{name}": value for name, value in own.items()}
    gateway = started(secure, idl, {"hbase.regionserver.thrift.http": "true", **spnego})
    place = f"hbase+http://localhost:{gateway.port}/t-{uuid.uuid4().hex}?timeout=60s"
    use(f"{place}&auth=kerberos", secure)
    with pytest.raises(StoreUnavailableError, match="requires authentication"):
        open_gateway(Address.parse(place))


def test_who_has_no_ticket_is_told_to_get_one(
    secure: SecureServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gateway = started(secure, "thrift2", {"hbase.thrift.security.qop": "auth"})
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "none"))
    with pytest.raises(StoreUnavailableError, match=r"no valid Kerberos ticket .*get one with 'kinit'"):
        open_gateway(Address.parse(f"hbase://localhost:{gateway.port}/t?auth=kerberos"))
