"""A TCP proxy that delays some of a server's replies, or requests to it; and a port without a server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count

from tests.support.local_server import LocalServer, serving

Delay = Callable[[int], float]  # takes a reply's number, counted over all connections; returns seconds
Pass = Callable[[bytes], None]  # takes a part of a request; passed on when this returns, even if the client is gone


class Proxy(LocalServer):
    """Passes bytes on both ways; delays each reply as `delay` says, and each request until `let_pass` returns."""

    def __init__(self, port: int, delay: Delay, let_pass: Pass = lambda _: None) -> None:
        super().__init__()
        self._target = port
        self._delay = delay
        self._let_pass = let_pass
        self._numbers = count(1)
        self._closing = threading.Event()
        self.connections = 0

    def taken(self, connection: socket.socket) -> None:
        self.connections += 1
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def talk(self, connection: socket.socket) -> None:
        asked = threading.Event()
        with suppress(OSError), connection, socket.create_connection(("127.0.0.1", self._target)) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._answers, args=(server, connection, asked), daemon=True)
            back.start()
            with suppress(OSError):
                while data := connection.recv(1 << 16):
                    asked.set()
                    self._let_pass(data)
                    server.sendall(data)
            with suppress(OSError):
                server.shutdown(socket.SHUT_WR)  # the last request is still answered
            back.join()

    def _answers(self, server: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if asked.is_set():
                    asked.clear()
                    self._closing.wait(self._delay(next(self._numbers)))
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closing.set()
        super().close()


def proxied(port: int, delay: Delay, let_pass: Pass = lambda _: None) -> AbstractContextManager[Proxy]:
    """Run a proxy in front of a local port."""
    return serving(Proxy(port, delay, let_pass))


@contextmanager
def refusing_port() -> Iterator[int]:
    """A local port that refuses connections: it is bound, so that no other program can listen on it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
