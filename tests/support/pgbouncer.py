"""pgbouncer in front of the tests' own PostgreSQL: on a free port, in a temporary folder, ended by its pid."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.hbase_server import free_ports
from tests.support.postgresql_server import USER, PostgresqlServer, runs_as
from tests.support.processes import wait_until


@contextmanager
def pgbouncer_serving(server: PostgresqlServer, pool_mode: str) -> Iterator[int]:
    """Yield the port of a pooler that runs during the block; skip the test if pgbouncer is not installed."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed here (apt-get install pgbouncer)")
    with tempfile.TemporaryDirectory(prefix="hsimhash-pgbouncer-") as folder:
        (port,) = free_ports(1)
        users, settings = Path(folder) / "users", Path(folder) / "settings.ini"
        users.write_text(f'"{USER}" ""\n')
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {users}\n"
            f"pool_mode = {pool_mode}\ndefault_pool_size = 3\nserver_login_retry = 1\n"
        )
        owner = runs_as()
        for path in (folder, users, settings):
            if owner is not None:
                shutil.chown(path, owner)
        process = subprocess.Popen([program, "-q", settings], user=owner, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: _listens(port), process)
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
