"""The ASGI application: bodies, tokens and limits; our errors as JSON with a status that says who can help."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hsimhash import metrics
from hsimhash.errors import HsimhashError
from hsimhash.index import HSimIndex
from hsimhash.serve.calls import CALLS, Bodies, Json, PostCall
from hsimhash.serve.openapi import JSON, LINES, METRICS, METRICS_TYPE, openapi
from hsimhash.serve.watch import Watched

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """What one caller may take of a server."""

    body_bytes: int = 16 << 20
    batch_lines: int = 10_000
    threads: int = 64  # calls that wait for a store or make fingerprints at once, in each process
    query_s: float = 30.0  # for all queries of a call
    ready_s: float = 2.0  # in which a store that is there answers
    retry_after_s: int = 1


SERVE_LIMITS = ServeLimits()
# Each by itself, for any other exception is logged too, with its traceback.
_ANSWERED: tuple[type[Exception], ...] = (HTTPException, ClientDisconnect, ValueError, HsimhashError, Exception)


def make_app(opened: Callable[[], HSimIndex], token: str | None = None, limits: ServeLimits = SERVE_LIMITS) -> ASGIApp:
    """Return the application; it opens its index when it starts, and closes it when it has answered the last call.

    Where numbers are counted (`hsimhash.metrics.enable`), requests are too, and GET /metrics shows all.

    Args:
        opened: opens the index.
        token: what callers must send as `Authorization: Bearer …`, but for /healthz, /readyz and /metrics; None:
            nothing.
        limits: what one caller may take.
    """
    app = _Service(opened, token, limits).app()
    if metrics.current is None:
        return app
    routes = frozenset(route.path for route in app.routes if isinstance(route, Route))
    return Watched(app, metrics.current, routes, METRICS)


class _Service:
    def __init__(self, opened: Callable[[], HSimIndex], token: str | None, limits: ServeLimits) -> None:
        self._opened, self._limits = opened, limits
        self._wanted = None if token is None else f"Bearer {token}".encode()
        self._has_metrics = metrics.current is not None
        self._page = to_json(openapi(CALLS, has_token=token is not None, has_metrics=self._has_metrics))

    def app(self) -> Starlette:
        """Return the application."""
        app = Starlette(
            routes=[
                *(Route(f"/{call.name}", partial(self._post, call), methods=["POST"]) for call in CALLS),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/openapi.json", self._openapi),
                *([Route(METRICS, self._metrics)] if self._has_metrics else []),
            ],
            exception_handlers=dict.fromkeys(_ANSWERED, self._refused),
            lifespan=self._lifespan,
        )
        app.router.redirect_slashes = False  # a path that is not there is refused, whatever its end
        return app

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._threads = CapacityLimiter(self._limits.threads)
        with self._opened() as self._index:
            self._index.profile.verify()
            yield

    async def _post(self, call: PostCall, request: Request) -> Response:
        self._check_token(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (JSON, LINES):
            raise HTTPException(415, f"the content type is {kind!r:.80}; send {JSON}, or {LINES} for a batch")
        body = await self._body_of(request)
        if kind == LINES:
            answers = await self._apart(lambda: self._bodies_of(call, _lines_of(body, self._limits)).answers())
            return Response(b"".join([to_json(answer) + b"\n" for answer in answers]), media_type=LINES)
        bodies = self._bodies_of(call, [(1, body)])
        (answer,) = bodies.answers() if bodies.is_quick else await self._apart(bodies.answers)
        return _answer(answer) if "error" not in answer else _error(400, str(answer["error"]))

    async def _body_of(self, request: Request) -> bytes:
        parts, size, most = [], 0, self._limits.body_bytes
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > most:
                raise HTTPException(413, f"a body has at most {most:,} bytes; send several")
        return b"".join(parts)

    def _bodies_of(self, call: PostCall, lines: list[tuple[int, bytes]]) -> Bodies:
        return Bodies(self._index, call, lines, self._limits.query_s)

    async def _apart(self, work: Callable[[], T]) -> T:
        """Do what waits or takes long in a thread, beside other calls."""
        return await to_thread.run_sync(work, limiter=self._threads)

    def _check_token(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if self._wanted is not None and not hmac.compare_digest(given, self._wanted):
            wanted = {"WWW-Authenticate": "Bearer"}
            raise HTTPException(401, "the bearer token is missing or wrong: send Authorization: Bearer …", wanted)

    async def _healthz(self, _: Request) -> Response:
        return _answer({"is_alive": True})

    async def _readyz(self, _: Request) -> Response:
        await self._apart(partial(self._index.query, 0, limit=1, timeout=self._limits.ready_s))
        return _answer({"is_ready": True})

    async def _metrics(self, _: Request) -> Response:
        # In no thread of the calls: they may all be taken when somebody looks why.
        return Response(await to_thread.run_sync(metrics.exposition), headers={"Content-Type": METRICS_TYPE})

    async def _openapi(self, request: Request) -> Response:
        self._check_token(request)
        return Response(self._page, media_type=JSON)

    async def _refused(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            if error.status_code in (404, 405):
                shown = f"{request.method} {request.url.path}"
                return _error(
                    error.status_code, f"there is no {shown}; GET /openapi.json tells what there is", error.headers
                )
            return _error(error.status_code, error.detail, error.headers)
        if isinstance(error, HsimhashError):
            again = {"Retry-After": str(self._limits.retry_after_s)}
            return _error(503, str(error), again) if error.is_retryable else _error(500, str(error))
        if isinstance(error, ValueError):
            return _error(400, str(error))
        if isinstance(error, ClientDisconnect):
            return _error(400, "the caller went away before the end of the body")
        return _error(500, f"unexpected {type(error).__name__}; this is a bug, and the server's log shows where")


def _lines_of(body: bytes, limits: ServeLimits) -> list[tuple[int, bytes]]:
    """Return the lines of a batch that are not blank, with their numbers."""
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), start=1) if line.strip()]
    if len(lines) > limits.batch_lines:
        raise HTTPException(413, f"a batch has at most {limits.batch_lines:,} lines, not {len(lines):,}; send several")
    return lines


def _answer(answer: Json) -> Response:
    return Response(to_json(answer), media_type=JSON)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json({"error": message}), status, headers, JSON)
