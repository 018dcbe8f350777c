"""A real Redis for the tests: a separate server on a free port, in a folder, ended by its pid."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.hbase_server import do_without, free_ports

PROGRAM = "redis-server"
START_S = 60.0
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
QUICK = ("--appendonly", "no", "--save", "")


class RedisServer:
    """A server in a folder; calling `start` after a kill continues with what it kept."""

    def __init__(self, folder: Path, options: Sequence[str | int] = QUICK, port: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.options = folder, tuple(map(str, options))
        self.port = port if port is not None else free_ports(1)[0]
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, prefix: str = "pages", *, database: int = 0, options: str = "") -> str:
        return f"redis://127.0.0.1:{self.port}/{database}?prefix={prefix}{options}"

    def start(self) -> None:
        command = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not self.is_answering():
            ended = self.process.poll()
            assert ended is None, f"redis-server ended with {ended}: {(self.folder / 'log').read_text()[-2000:]}"
            assert time.monotonic() < deadline, "redis-server did not answer"
            time.sleep(0.02)

    def is_answering(self) -> bool:
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), "ping"], capture_output=True, check=False, timeout=START_S
        )
        return done.stdout.startswith((b"PONG", b"NOAUTH"))

    def kill(self) -> None:
        """End it as a machine failure would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)  # does nothing if it has already ended
            self.process.wait(START_S)
            self.process = None


@contextmanager
def redis_running(folder: Path, options: Sequence[str | int] = QUICK) -> Iterator[RedisServer]:
    """Yield a server that runs during the block."""
    if shutil.which(PROGRAM) is None:
        do_without(f"{PROGRAM} is not installed here (apt-get install redis-server)")
    server = RedisServer(folder, options)
    try:
        server.start()
        yield server
    finally:
        server.kill()
