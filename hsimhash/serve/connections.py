"""Extensions to uvicorn: deadlines for slow clients, and support for requests that offer an upgrade."""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hsimhash.serve.app import ServeLimits


class TimedConnection(HttpToolsProtocol):
    """A connection that closes if its client is too slow. The application sets the deadlines for bodies.

    Args:
        limits: Deadlines, and the maximum size of headers.
        given: Arguments that uvicorn passes to each connection.
    """

    def __init__(self, limits: ServeLimits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._head_timer: TimerHandle | None = None
        self._stalled_timer: TimerHandle | None = None
        self._in_head, self._head_size = False, 0

    def connection_made(self, transport: BaseTransport) -> None:
        """Set a deadline for the headers of the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn narrows asyncio's type
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; abort the connection if the headers of a request are too long."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > self._limits.head_bytes:
                self.transport.abort()
        is_idle = self.cycle is None or self.cycle.response_complete
        if (self._in_head or is_idle) and self._head_timer is None:
            self._await_head()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Parse the headers again without `Upgrade`, then the remaining bytes.

        The parser drops the body of a request with an `Upgrade` header. Java's HTTP client offers HTTP/2 in its first
        request, which may have a body.
        """
        kept = [(name, value) for name, value in self.headers if name != b"upgrade"]
        if len(kept) == len(self.headers):
            self.send_400_response("CONNECT is not supported.")
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version), *map(b": ".join, kept), b"", b""]
        self.data_received(b"\r\n".join(lines) + rest)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.head_s, self.transport.close)

    def on_message_begin(self) -> None:
        """Start counting the bytes of the headers."""
        super().on_message_begin()
        self._in_head, self._head_size = True, 0

    def on_headers_complete(self) -> None:
        """Cancel the deadline for the headers, unless they will be parsed again."""
        if self.parser.should_upgrade():
            return
        self._in_head = False
        _cancel(self._head_timer)
        self._head_timer = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Finish the request, unless its headers will be parsed again."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def pause_writing(self) -> None:
        """Set a deadline for a client that reads more slowly than the server writes."""
        super().pause_writing()
        self._stalled_timer = self._stalled_timer or self.loop.call_later(self._limits.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the deadline after the client has read."""
        _cancel(self._stalled_timer)
        self._stalled_timer = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines."""
        _cancel(self._head_timer)
        _cancel(self._stalled_timer)
        super().connection_lost(exc)


def _cancel(timer: TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
