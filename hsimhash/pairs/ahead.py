"""An iterator that works ahead of its reader, in a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import Generic, TypeVar

Item = TypeVar("Item")

LOOKAHEAD = 4  # items that wait for the reader


class Ahead(Generic[Item]):
    """The items of a generator, made in a thread of its own, which ends with `close` or with the last item.

    An error in the thread is raised where the items are read.
    """

    def __init__(self, source: Generator[Item]) -> None:
        self._source = source
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_done = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for item in self._source:
                if not self._hand_on(item):
                    break
            self._source.close()
        except BaseException as error:  # raised again by the reader
            self._error = error
        with self._changed:
            self._is_done = True
            self._changed.notify_all()

    def _hand_on(self, item: Item) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._items) < LOOKAHEAD)
            self._items.append(item)
            self._changed.notify_all()
            return not self._is_closed

    def __iter__(self) -> Iterator[Item]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_done)
                if not self._items:
                    break
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread, at its next item."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()


def in_order(sources: Iterable[Generator[Item]], threads: int) -> Generator[Item]:
    """Yield the items of all sources, in order, while up to `threads` of them work; none outlives this generator.

    One at a time works in the reader's own thread.
    """
    if threads == 1:
        for source in sources:
            yield from source
        return
    waiting: deque[Ahead[Item]] = deque()
    with ExitStack() as stack:
        for source in sources:
            ahead = Ahead(source)
            stack.callback(ahead.close)
            waiting.append(ahead)
            if len(waiting) == threads:
                yield from waiting.popleft()
        while waiting:
            yield from waiting.popleft()
