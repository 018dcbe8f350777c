"""The tests' own PostgreSQL: on a free port, in a temporary folder, ended by its pid."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.hbase_server import do_without, free_ports
from tests.support.processes import wait_until

USER = "postgres"  # the superuser in the database, whichever user runs the server


def program_folder() -> Path | None:
    """Return the folder of the newest PostgreSQL's programs; None if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    return found[-1] if found else Path(on_path).parent if on_path else None


def runs_as() -> str | None:
    """Return the user to run the server as, because it refuses root; None for this user."""
    if os.geteuid() != 0:
        return None
    return next(name for name in ("postgres", "nobody") if name in {one.pw_name for one in pwd.getpwall()})


class PostgresqlServer:
    """One server, which may be killed and started again."""

    def __init__(self, folder: Path, bin_folder: Path, settings: Sequence[str] = ()) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.programs = bin_folder
        self._settings = settings
        self._as = runs_as()
        if self._as is not None:
            shutil.chown(folder, self._as)
        folder.chmod(0o755)
        self._run("initdb", "-D", str(self.data), "-E", "UTF8", "--locale=C", "-A", "trust", "-U", USER, "-N")

    @property
    def conninfo(self) -> str:
        """libpq's connection string for the server's own database, as its superuser."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, table: str, options: str = "") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres?table={table}{options}"

    def install(self, name: str, source: Path) -> None:
        """Put a file into the server's folder, readable only by the server."""
        path = self.data / name
        shutil.copyfile(source, path)
        path.chmod(0o600)
        if self._as is not None:
            shutil.chown(path, self._as)

    def _run(self, *command: str) -> None:
        subprocess.run(
            [self.programs / command[0], *command[1:]], user=self._as, cwd=self.folder, check=True, capture_output=True
        )

    def start(self) -> None:
        """Start the server; return when it answers."""
        given = ["-k", str(self.folder), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1", *self._settings]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", str(self.data), *given],
                user=self._as,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        asked = [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        wait_until(lambda: subprocess.run(asked, check=False).returncode == 0, self.process)

    def children(self) -> list[int]:
        """Return the pids of the server's own processes."""
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self) -> None:
        """Kill the server and all its processes: they do not flush anything or notify clients."""
        self.process.send_signal(signal.SIGSTOP)  # so that it cannot start more of them
        children = self.children()
        for pid in (self.process.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not any(map(_holds_files, children)))  # a new server needs what they hold
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """End the server."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def _holds_files(pid: int) -> bool:
    """Return whether a process has open files: one that has ended does not, even before it is waited for."""
    try:
        return any(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@contextmanager
def postgresql_serving(settings: Sequence[str] = ()) -> Iterator[PostgresqlServer]:
    """Yield a server that runs during the block; skip the test if it is missing, unless REQUIRE_SERVERS is set."""
    bin_folder = program_folder()
    if bin_folder is None:
        do_without("PostgreSQL is not installed here (apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="hsimhash-postgresql-", ignore_cleanup_errors=True) as folder:
        server = PostgresqlServer(Path(folder), bin_folder, settings)
        server.start()
        try:
            yield server
        finally:
            if server.process.poll() is None:
                server.stop()
