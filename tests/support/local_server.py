"""A server on a free local port, the base of stand-ins and proxies: one thread per connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar


class LocalServer:
    """Listens as soon as it is created; `talk` handles one connection, in its own thread."""

    def __init__(self, *, backlog: int | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self.taken(taken)
            threading.Thread(target=self.talk, args=(taken,), daemon=True).start()

    def taken(self, connection: socket.socket) -> None:
        """Note a connection before its thread starts."""

    def talk(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def close(self) -> None:
        shut_down(self._listener)


Server = TypeVar("Server", bound=LocalServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Run a server during the block."""
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def shut_down(one: socket.socket) -> None:
    """Close a socket; wake every thread that waits on it."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
