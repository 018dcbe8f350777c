"""Metrics of a server: wrap the application to count and time its requests."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hsimhash.metrics import Meters

LOOK_S = 1.0  # time between two counts of this process's open connections


class Watched:
    """Wraps an application and counts its requests by route and status, except for the path `skipped`.

    Args:
        app: Application to wrap.
        meters: Metrics to count in.
        routes: Paths of the application; any other path counts as `other`.
        skipped: Path that serves the metrics.
    """

    def __init__(self, app: ASGIApp, meters: Meters, routes: frozenset[str], skipped: str) -> None:
        self._app, self._meters, self._routes, self._skipped = app, meters, routes, skipped

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, and count the request."""
        if scope["type"] == "lifespan":
            looking = asyncio.create_task(self._look())
            try:
                await self._app(scope, receive, send)
            finally:
                looking.cancel()
                with suppress(asyncio.CancelledError):
                    await looking
        elif scope["path"] == self._skipped:
            await self._app(scope, receive, send)
        else:
            await self._count(scope, receive, send)

    async def _look(self) -> None:
        while True:
            self._meters.count_connections()
            await asyncio.sleep(LOOK_S)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        http, began_s = self._meters.http, time.perf_counter()
        route = scope["path"] if scope["path"] in self._routes else "other"

        async def answer(message: Message) -> None:
            # Count before sending: once a client has the response, the metrics already include it.
            if message["type"] == "http.response.start":
                http.requests.labels(route, str(message["status"])).inc()
                http.seconds.labels(route).observe(time.perf_counter() - began_s)
            await send(message)

        http.under_way.inc()
        try:
            await self._app(scope, receive, answer)
        finally:
            http.under_way.dec()
