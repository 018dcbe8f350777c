"""A server on a free port of this machine, as stand-ins and proxies are: a thread talks on each connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar


class LocalServer:
    """Listens from its making on; `talk` is what is done on a connection, in a thread of its own."""

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
        """Note a connection, before its thread begins."""

    def talk(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def close(self) -> None:
        shut_down(self._listener)


Server = TypeVar("Server", bound=LocalServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Let a server serve during the block."""
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def shut_down(one: socket.socket) -> None:
    """Close a socket; who waits on it, in whatever thread, is woken."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
