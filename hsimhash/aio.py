"""`AsyncHSimIndex`: an index for asyncio. Concurrent tasks share calls to the store instead of using a thread each.

async with await AsyncHSimIndex.open("hbase://gw1:9091/crawl:pages") as index:
    matches = await index.query(fingerprint)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from hsimhash.call_sharing import MOST_CALLS, Asked, Callers, SharedCall
from hsimhash.errors import StoreClosedError
from hsimhash.fingerprint.signature import MAX_SKETCH, Signature
from hsimhash.index import HSimIndex, QueryOptions
from hsimhash.store import Claim, Matches

P = ParamSpec("P")
T = TypeVar("T")

MAX_PENDING = 1_000


def _in_thread(
    method: Callable[Concatenate[HSimIndex, P], T],
) -> Callable[Concatenate[AsyncHSimIndex, P], Coroutine[Any, Any, T]]:
    """Return an `AsyncHSimIndex` method that runs a method of `HSimIndex` in a thread."""

    @wraps(method)
    async def awaited(self: AsyncHSimIndex, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(partial(method, self.index, *args, **kwargs))

    return awaited


class AsyncHSimIndex(AbstractAsyncContextManager["AsyncHSimIndex"]):
    """The methods of `HSimIndex` as coroutines, for one event loop.

    Cancelling a task does not affect other tasks. Documents that the task was writing may or may not be stored.

    Args:
        index: Index to use; it is closed together with this object.
        max_pending: Maximum number of running and waiting calls. Further calls wait.
    """

    def __init__(self, index: HSimIndex, *, max_pending: int = MAX_PENDING) -> None:
        if max_pending < 1:
            raise ValueError(f"max_pending must be at least 1, got {max_pending}")
        self.index = index
        self._max_pending = max_pending
        self._places = asyncio.Semaphore(max_pending)
        self._threads = ThreadPoolExecutor(MOST_CALLS, "hsimhash-aio")
        self._pending: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    @classmethod
    async def open(
        cls, url: str | os.PathLike[str], *, max_pending: int = MAX_PENDING, **options: Any
    ) -> AsyncHSimIndex:
        """Open the index at `url`. Takes the options and raises the errors of `HSimIndex.open`."""
        return cls(await asyncio.to_thread(partial(HSimIndex.open, url, **options)), max_pending=max_pending)

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to open the index in another process; see `HSimIndex`."""
        return partial(AsyncHSimIndex, max_pending=self._max_pending), (self.index,)

    async def query(
        self,
        signature: Signature | int,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        limit: int | None = None,
        exclude: str | None = None,
        timeout: float | None = None,
        partial: bool = False,
    ) -> Matches:
        """See `HSimIndex.query`. You can also limit its time with `asyncio.timeout`.

        Queries with `timeout` or `partial` do not share calls with other tasks.
        """
        if partial or timeout is not None:
            return await self._run(
                lambda: self.index.query(
                    signature,
                    max_distance=max_distance,
                    max_sketch=max_sketch,
                    limit=limit,
                    exclude=exclude,
                    timeout=timeout,
                    partial=partial,
                )
            )
        call = self.index.query_call(
            signature, max_distance=max_distance, max_sketch=max_sketch, limit=limit, exclude=exclude
        )
        return await self._share(self.index.queries, call)

    async def add(self, signature: Signature | int, doc_id: str, *, first_seen: int | None = None) -> None:
        """See `HSimIndex.add`."""
        await self._share(self.index.adds, self.index.add_call(signature, doc_id, first_seen=first_seen))

    async def claim(
        self,
        signature: Signature | int,
        doc_id: str,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        first_seen: int | None = None,
    ) -> Claim:
        """See `HSimIndex.claim`."""
        call = self.index.claim_call(
            signature, doc_id, max_distance=max_distance, max_sketch=max_sketch, first_seen=first_seen
        )
        return await self._share(self.index.claims, call)

    async def add_text(self, text: str, doc_id: str, *, first_seen: int | None = None) -> None:
        """See `HSimIndex.add_text`."""
        await self.add(await self._signature(text), doc_id, first_seen=first_seen)

    async def query_text(self, text: str, *, exclude: str | None = None, **options: Unpack[QueryOptions]) -> Matches:
        """See `HSimIndex.query_text`."""
        return await self.query(await self._signature(text), exclude=exclude, **options)

    async def claim_text(
        self,
        text: str,
        doc_id: str,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        first_seen: int | None = None,
    ) -> Claim:
        """See `HSimIndex.claim_text`."""
        signature = await self._signature(text)
        return await self.claim(
            signature, doc_id, max_distance=max_distance, max_sketch=max_sketch, first_seen=first_seen
        )

    add_texts = _in_thread(HSimIndex.add_texts)
    query_texts = _in_thread(HSimIndex.query_texts)
    claim_texts = _in_thread(HSimIndex.claim_texts)
    remove = _in_thread(HSimIndex.remove)
    get = _in_thread(HSimIndex.get)

    async def _signature(self, text: str) -> Signature:
        """Compute the signature of a text in a thread, because a long text takes milliseconds."""
        return await self._run(partial(self.index.profile.signature, text))

    async def close(self) -> None:
        """Close the store. Calls in progress finish first; waiting calls raise `StoreClosedError`."""
        self._is_closed = True
        await asyncio.to_thread(self.index.close)
        if self._pending:
            await asyncio.wait(self._pending)
        self._threads.shutdown(wait=False)

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _share(self, callers: Callers, call: SharedCall[Any, T]) -> T:
        """Ask a question in a call that other tasks may share, and return the answer."""
        async with self._places:
            self._check_open()
            loop = asyncio.get_running_loop()
            future: asyncio.Future[T] = self._noted(loop.create_future())

            timers: list[asyncio.TimerHandle] = []

            def wake() -> None:  # may be called in any thread
                with suppress(RuntimeError):  # the loop has ended, so no task is waiting
                    loop.call_soon_threadsafe(look)

            def look() -> None:
                while timers:
                    timers.pop().cancel()
                if asked.is_over:
                    _settle(future, asked)
                elif not future.done():
                    timers.append(loop.call_later(callers.look_s(asked), look))
                    if callers.has_turn:
                        with suppress(RuntimeError):  # the thread pool was shut down
                            self._threads.submit(callers.serve)

            asked = Asked(call, wake)
            callers.gather(asked)
            look()
            try:
                return await future
            finally:
                callers.withdraw(asked)
                while timers:
                    timers.pop().cancel()

    async def _run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result."""
        async with self._places:
            self._check_open()
            return await self._noted(asyncio.get_running_loop().run_in_executor(self._threads, work))

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self.index.url} was closed; open it again")

    def _noted(self, future: asyncio.Future[T]) -> asyncio.Future[T]:
        """Return the future after adding it to those that `close` waits for."""
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future


def _settle(future: asyncio.Future[Any], asked: Asked[Any, Any]) -> None:
    asked.pass_on()
    if future.done():
        return  # cancelled
    if asked.error is None:
        future.set_result(asked.answer)
    else:
        future.set_exception(asked.error)
