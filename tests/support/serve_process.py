"""`hsimhash serve` in a separate process on a free port, and a client for it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from uvicorn import Config, Server

from hsimhash.index import HSimIndex
from hsimhash.serve.app import ServeLimits, make_app
from hsimhash.serve.connections import TimedConnection
from tests.support.command_line import PATIENCE_S, own_process

JSON = "application/json"
LINES = "application/x-ndjson"


class Caller:
    """A persistent connection; `call` returns status and answer."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self._headers = dict(headers or {})
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self.answered: http.client.HTTPMessage

    def call(self, path: str, body: object = None, *, method: str | None = None) -> tuple[int, Any]:
        """Send a body as JSON, or a GET without one."""
        sent = None if body is None else json.dumps(body)
        status, answer = self.send(method or ("GET" if body is None else "POST"), path, sent, JSON)
        return status, json.loads(answer)

    def batch(self, path: str, bodies: Sequence[object]) -> list[Any]:
        """Send bodies as lines; return the answers."""
        lines = "".join(json.dumps(body) + "\n" for body in bodies)
        status, answer = self.send("POST", path, lines, LINES)
        assert status == 200, answer
        return [json.loads(line) for line in answer.splitlines()]

    def send(self, method: str, path: str, body: str | bytes | None, kind: str) -> tuple[int, bytes]:
        """Send anything; return status and answer."""
        self.connection.request(method, path, body, {**self._headers, "Content-Type": kind})
        response = self.connection.getresponse()
        self.answered = response.msg
        return response.status, response.read()


class Serving:
    """A running server; `stop` ends it by SIGTERM, and `told` then has its messages."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.told = process, b""
        self._callers: list[Caller] = []
        assert process.stderr is not None
        while not (found := re.search(rb" at http://[\w.:\[\]]+:(\d+)", self.told)):
            line = process.stderr.readline()
            assert line, self.told.decode()
            self.told += line
        self.port = int(found[1])

    def caller(self, **headers: str) -> Caller:
        """Return a new caller, whose connection is closed at the end."""
        self._callers.append(Caller(self.port, headers))
        return self._callers[-1]

    def close(self) -> None:
        """Close the callers' connections."""
        for caller in self._callers:
            caller.connection.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.told += self.process.communicate(timeout=PATIENCE_S)[1]
        return self.process.returncode


@contextmanager
def served_here(url: str, limits: ServeLimits, token: str | None = None, *names: str) -> Iterator[int]:
    """Serve an index in a thread of this process during the block, with the given limits; yield the port."""
    app = make_app(partial(HSimIndex.open, url), token, limits, names)
    given: Any = partial(TimedConnection, limits)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(Config(app, http=given, ws="none", lifespan="on", log_config=None, log_level="critical"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def served(url: str, *options: str) -> Iterator[Serving]:
    """Serve an index on a free port during the block, with one worker unless `options` say otherwise."""
    process = own_process("serve", "--store", url, "--listen", "127.0.0.1:0", "--workers", "1", *options)
    serving = None
    try:
        serving = Serving(process)
        assert serving.caller().call("/healthz")[0] == 200  # it waits for the first worker
        yield serving
    finally:
        if serving is not None:
            serving.close()
            serving.stop()
        with process:
            process.kill()
