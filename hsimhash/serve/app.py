"""The ASGI application: routes, tokens, limits, and JSON errors whose status shows whether the client is at fault."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TypeVar

from anyio import CapacityLimiter, get_cancelled_exc_class, move_on_after, to_thread
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hsimhash import metrics
from hsimhash.errors import HsimhashError, StoreReadOnlyError
from hsimhash.extras import install_command
from hsimhash.index import HSimIndex
from hsimhash.serve.calls import CALLS, QUERY, SHORTEN, Bodies, Json, PostCall
from hsimhash.serve.cross_site import why_refused
from hsimhash.serve.openapi import JSON, LINES, METRICS, METRICS_TYPE, openapi
from hsimhash.serve.page import FORM, FormAnswer, FrontPage, IndexFacts, QueryForm, base_of
from hsimhash.serve.request_metrics import Watched
from hsimhash.store.base import View, with_view

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """Limits on what clients can send, and how long they can take."""

    value_bytes: int = 2 << 20  # one JSON value (a body, or a line of a batch); parsing it blocks all other requests
    form_bytes: int = 256 << 10  # the form on the page; its escapes take four times as long to parse
    body_bytes: int = 16 << 20
    bodies_bytes: int = 256 << 20  # all bodies together, in each process
    head_bytes: int = 64 << 10
    head_s: float = 20.0  # from the start of a connection or request to the end of the headers
    body_s: float = 60.0  # from the end of the headers to the end of the body
    stalled_s: float = 60.0  # maximum time in which a client reads nothing of a response
    batch_lines: int = 10_000
    threads: int = 64  # concurrent calls that wait for a store or make fingerprints, per process
    query_s: float = 30.0  # all queries in a call together
    ready_s: float = 2.0  # time for a reachable store to answer
    retry_after_s: int = 1


SERVE_LIMITS = ServeLimits()
_FOR_ALL = ("/healthz", "/readyz", METRICS)  # public, and allowed under any host name
_SMALL_BYTES = 16 << 10  # bodies up to this size are parsed at once, without delaying other calls
_PART_BYTES = 256 << 10  # size of the parts of a large response
_MATCHES_AT_ONCE = 1_000  # number of matches written as JSON before other threads can run
_BOM = b"\xef\xbb\xbf"
# Each type is listed: an exception that is handled only as `Exception` is also logged with its traceback.
_ANSWERED: tuple[type[Exception], ...] = (HTTPException, ClientDisconnect, ValueError, HsimhashError, Exception)


def make_app(
    opened: Callable[[], HSimIndex],
    token: str | None = None,
    limits: ServeLimits = SERVE_LIMITS,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
) -> ASGIApp:
    """Return the application. It opens its index at start-up, and closes it after the last call.

    If metrics are on (`hsimhash.metrics.enable`), it also counts requests, and GET /metrics returns all metrics.

    Args:
        opened: Function that opens the index.
        token: Token that callers must send as `Authorization: Bearer …`, except for /healthz, /readyz and /metrics.
            None: no token is needed.
        limits: Limits for clients.
        hosts: Host names of the server, apart from `localhost` and IP addresses. With a token, any name is accepted.
        origins: Origins of web pages on other sites that can call the server with the token.
    """
    app = _Service(opened, token, limits).app()
    guarded = _guarded(app, None if token else frozenset(hosts), frozenset(origins))
    if origins:
        guarded = CORSMiddleware(
            guarded, [*origins], ["GET", "POST"], ["Authorization"], expose_headers=["Retry-After"]
        )
    if not isinstance(metrics.current, metrics.Meters):
        return guarded
    routes = frozenset(route.path for route in app.routes if isinstance(route, Route))
    return Watched(guarded, metrics.current, routes, METRICS)


def _guarded(app: ASGIApp, hosts: Collection[str] | None, origins: Collection[str]) -> ASGIApp:
    """Return an application that rejects requests from pages on other sites; see `why_refused`."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        is_asked = scope["type"] == "http" and scope["path"] not in _FOR_ALL
        if is_asked and (why := why_refused(Headers(scope=scope), hosts, origins)):
            await _error(403, why)(scope, receive, send)
            return
        await app(scope, receive, send)

    return guarded


class _Service:
    def __init__(self, opened: Callable[[], HSimIndex], token: str | None, limits: ServeLimits) -> None:
        self._opened, self._limits = opened, limits
        self._token = token
        self._held_bytes = 0  # held by request bodies
        self._has_metrics = isinstance(metrics.current, metrics.Meters)
        self._page = FrontPage(CALLS, has_token=token is not None, has_metrics=self._has_metrics)

    def app(self) -> Starlette:
        """Return the application."""
        app = Starlette(
            routes=[
                *(Route(f"/{call.name}", partial(self._post, call), methods=["POST"]) for call in CALLS),
                Route("/", self._front_page),
                Route("/", self._try_query, methods=["POST"]),
                Route("/docs", self._docs),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/openapi.json", self._openapi),
                *([Route(METRICS, self._metrics)] if self._has_metrics else []),
            ],
            exception_handlers=dict.fromkeys(_ANSWERED, self._refused),
            lifespan=self._lifespan,
        )
        app.router.redirect_slashes = False  # an unknown path is rejected, with or without a slash at the end
        return app

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._threads = CapacityLimiter(self._limits.threads)
        with self._opened() as self._index:
            self._index.profile.verify()
            has_token = self._token is not None
            self._description = to_json(openapi(CALLS, self._index, has_token=has_token, has_metrics=self._has_metrics))
            yield

    async def _post(self, call: PostCall, request: Request) -> Response:
        self._check_token(request)
        kind = _kind_of(request)
        if kind not in (JSON, LINES):
            raise HTTPException(415, f"unsupported content type {kind!r:.80}: send {JSON}, or {LINES} for a batch")
        most = self._limits.body_bytes if kind == LINES else self._limits.value_bytes
        async with self._body_of(request, most) as body:
            if kind == LINES:
                return await self._apart(
                    lambda: self._answered(self._bodies_of(call, _lines_of(body, self._limits)), kind)
                )
            if len(body) > _SMALL_BYTES or b'"text"' in body:  # a text may be a whole web page
                return await self._apart(lambda: self._answered(self._bodies_of(call, [(1, body)]), kind))
            bodies = self._bodies_of(call, [(1, body)])
            answer = bodies.quick_answer()
            return _answer(answer) if answer else await self._apart(lambda: self._answered(bodies, kind))

    def _answered(self, bodies: Bodies, kind: str) -> Response:
        """Return the response to `bodies`. Call this in a thread, because it can take a long time."""
        answers = bodies.answers()
        if kind == LINES:
            return _in_parts((piece for answer in answers for piece in (*_pieces(answer), b"\n")), LINES)
        if "error" in answers[0]:
            return _error(409 if bodies.is_unfit else 400, str(answers[0]["error"]))
        return _in_parts(_pieces(answers[0]), JSON)

    @asynccontextmanager
    async def _body_of(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """Read a body of at most `most` bytes. Its bytes are counted as held during the block."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise HTTPException(415, f"unsupported content encoding {encoding!r:.80}: send the body uncompressed")
        parts, size = list[bytes](), 0
        try:
            self._hold(0, int(request.headers.get("content-length", "0")), most)
            with move_on_after(self._limits.body_s) as waiting:
                async for part in request.stream():
                    parts.append(part)
                    size += len(part)
                    self._hold(len(part), size, most)
            if waiting.cancelled_caught:
                raise HTTPException(408, f"the body did not arrive within {self._limits.body_s:g} s")
            yield b"".join(parts).removeprefix(_BOM)
        finally:
            self._held_bytes -= size

    def _hold(self, more: int, size: int, most: int) -> None:
        """Count the bytes of a body. Reject it if it is too large, or if all bodies together are."""
        self._held_bytes += more
        if size > most:
            remedy = "split it" if most == self._limits.body_bytes else f"send many documents as {LINES}; {SHORTEN}"
            raise HTTPException(413, f"body too large: expected at most {most:,} bytes; {remedy}")
        if self._held_bytes > self._limits.bodies_bytes:
            raise self._later("too many large requests at once: send this request again later")

    def _bodies_of(self, call: PostCall, lines: list[tuple[int, bytes]]) -> Bodies:
        return Bodies(self._index, call, lines, self._limits.query_s, self._limits.value_bytes)

    async def _apart(self, work: Callable[[], T]) -> T:
        """Run `work`, which waits or takes a long time, in a thread."""
        try:
            return await to_thread.run_sync(work, limiter=self._threads)
        except get_cancelled_exc_class():  # the server is stopping and no longer waits for its calls
            raise self._later("the server is stopping: send this request again") from None

    def _later(self, why: str) -> HTTPException:
        return HTTPException(503, why, {"Retry-After": str(self._limits.retry_after_s)})

    def _has_right(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        return self._token is None or (
            scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode())
        )

    def _check_token(self, request: Request) -> None:
        if not self._has_right(request.headers.get("authorization", "")):
            wanted = {"WWW-Authenticate": "Bearer"}
            raise HTTPException(401, "missing or wrong token: send the header Authorization: Bearer TOKEN", wanted)

    async def _docs(self, _: Request) -> Response:
        return RedirectResponse("/")

    async def _front_page(self, request: Request) -> Response:
        has_right = self._has_right(request.headers.get("authorization", ""))
        return self._page.response(_base_of(request), await self._facts() if has_right else None)

    async def _try_query(self, request: Request) -> Response:
        """Respond to the form on the page."""
        if _kind_of(request) != FORM:
            raise HTTPException(415, f"POST / accepts only the form on its page: send JSON to POST /{QUERY.name}")
        async with self._body_of(request, self._limits.form_bytes) as body:
            form = await self._apart(lambda: QueryForm.parse(body))
        if not self._has_right(f"Bearer {form.token}"):
            return self._page.response(_base_of(request), None, form, FormAnswer(error="Missing or wrong token."), 401)
        found, status = await self._found(form)
        return self._page.response(_base_of(request), await self._facts(), form, found, status)

    async def _found(self, form: QueryForm) -> tuple[FormAnswer, int]:
        """Return the answer to a form, or its error, and the response status."""
        try:
            (answer,) = await self._apart(lambda: self._bodies_of(QUERY, [(1, to_json(form.query))]).answers())
        except ValueError as error:
            return FormAnswer(error=str(error)), 400
        except HsimhashError as error:
            return FormAnswer(error=str(error)), 503 if error.is_retryable else 500
        return (FormAnswer(error=str(answer["error"])), 400) if "error" in answer else (FormAnswer(answer), 200)

    async def _facts(self) -> IndexFacts:
        index = self._index
        try:
            count = await self._apart(partial(self._within, lambda view: view.estimate()))
            documents = f"{'' if index.backend.is_embedded else 'about '}{count:,}"
        except HsimhashError:
            documents = "unknown"
        return IndexFacts(index.url, index.profile.name, index.distance, documents)

    def _within(self, work: Callable[[View], T]) -> T:
        """Run `work` on a view of the store, within the time in which a reachable store answers."""
        return with_view(self._index.store, work, timeout_s=self._limits.ready_s)

    async def _healthz(self, _: Request) -> Response:
        return _answer({"is_alive": True})

    async def _readyz(self, _: Request) -> Response:
        try:
            await self._apart(partial(self._within, lambda view: view.scan(self._index.layout.prefixes(0)[:1])))
        except HsimhashError as error:
            raise self._later(str(error)) from None
        return _answer({"is_ready": True})

    async def _metrics(self, _: Request) -> Response:
        # Do not use the threads for calls: all of them may be busy just when an operator is looking for the cause.
        return Response(await to_thread.run_sync(metrics.exposition), headers={"Content-Type": METRICS_TYPE})

    async def _openapi(self, request: Request) -> Response:
        self._check_token(request)
        return Response(self._description, media_type=JSON)

    async def _refused(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            if error.status_code in (404, 405):
                what = "not found" if error.status_code == 404 else "method not allowed"
                lacks_metrics = request.url.path == METRICS and not self._has_metrics
                remedy = install_command("metrics") if lacks_metrics else "GET / lists the endpoints"
                shown = f"{what}: {request.method} {request.url.path}; {remedy}"
                return _error(error.status_code, shown, error.headers)
            return _error(error.status_code, error.detail, error.headers)
        if isinstance(error, StoreReadOnlyError):
            return _error(403, str(error))
        if isinstance(error, HsimhashError):
            again = {"Retry-After": str(self._limits.retry_after_s)}
            return _error(503, str(error), again) if error.is_retryable else _error(500, str(error))
        if isinstance(error, ValueError):
            return _error(400, str(error))
        if isinstance(error, ClientDisconnect):
            return _error(400, "the connection was closed before the end of the body")
        return _error(500, f"unexpected {type(error).__name__}: this is a bug; the server's log has the traceback")


def _kind_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _base_of(request: Request) -> str:
    return base_of(request.url.scheme, request.headers.get("host", ""))


def _lines_of(body: bytes, limits: ServeLimits) -> list[tuple[int, bytes]]:
    """Return the lines of a batch that are not blank, with their numbers."""
    lines = list[tuple[int, bytes]]()
    for number, line in enumerate(BytesIO(body), start=1):  # splitting all lines at once would block other requests
        if line.strip():
            lines.append((number, line))
        if len(lines) > limits.batch_lines:
            raise HTTPException(413, f"too many lines: expected at most {limits.batch_lines:,}; split the batch")
    return lines


def _pieces(answer: Json) -> Iterator[bytes]:
    """Yield an answer as JSON. A long list of matches is split, so that other threads can run between the pieces."""
    matches = answer.get("matches")
    if not isinstance(matches, list) or len(matches) <= _MATCHES_AT_ONCE:
        yield to_json(answer)
        return
    # Matches are the last field, so they go before the last two bytes of an answer without matches.
    yield to_json({**answer, "matches": []})[:-2]
    for start in range(0, len(matches), _MATCHES_AT_ONCE):
        yield b"," * bool(start) + to_json(matches[start : start + _MATCHES_AT_ONCE])[1:-1]
    yield b"]}"


def _in_parts(pieces: Iterable[bytes], kind: str) -> Response:
    """Return a response that sends a large answer in parts, each after the caller has read the previous ones."""
    parts, part = [], bytearray()
    for piece in pieces:
        part += piece
        if len(part) >= _PART_BYTES:
            parts.append(bytes(part))
            part = bytearray()
    parts.append(bytes(part))
    if len(parts) == 1:
        return Response(parts[0], media_type=kind)
    length = {"Content-Length": str(sum(map(len, parts)))}
    return StreamingResponse(_each(parts), headers=length, media_type=kind)


async def _each(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
        await asyncio.sleep(0)


def _answer(answer: Json) -> Response:
    return _error(400, str(answer["error"])) if "error" in answer else Response(to_json(answer), media_type=JSON)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json({"error": message}), status, headers, JSON)
