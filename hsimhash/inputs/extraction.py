"""Extract texts from pages in child processes with limits; only the page that exceeds them is rejected.

trafilatura and lxml take milliseconds for nearly every page. For a few pages they take minutes, use up all memory or
crash. So each process limits its own CPU time and memory for each page. If a page exceeds these limits, the process
dies and the page is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import cache, partial

from hsimhash.errors import Remedy
from hsimhash.inputs.files import InputOptions
from hsimhash.inputs.pages import content_in, page_text, prepare_main_texts, require_page_library
from hsimhash.processes import CallLimits, KillableWorkers, NoResult

PAGE_LIMITS = CallLimits(cpu_s=4.0, memory_bytes=300 << 20)


class PageTexts(AbstractContextManager["PageTexts"]):
    """Extracts texts from pages, in processes that start when the first page is submitted.

    Args:
        options: How inputs are read.
        workers: Number of processes.
        limits: CPU time and memory for each page.
    """

    def __init__(self, options: InputOptions, workers: int = 1, *, limits: CallLimits = PAGE_LIMITS) -> None:
        self._extract, self._has_fields = options.extract, bool(options.fields)
        self._needs_library = options.extract != "none"
        self._workers: KillableWorkers[str, str] = KillableWorkers(
            partial(page_text, extract=options.extract, has_fields=self._has_fields),
            workers,
            limits,
            prepare_main_texts if self._needs_library else None,
        )

    def submit(self, pages: Sequence[str]) -> Future[list[str | NoResult]]:
        """Extract the texts of pages, in order.

        Raises:
            ValueError: The library is missing; raised here or by the future.
        """
        if self._needs_library:
            require_page_library()
        return self._workers.submit(pages)

    def texts_of(self, values: Sequence[str]) -> list[str | NoResult]:
        """Return the text of each value, which may be a page, a fragment of HTML or plain text.

        Raises:
            ValueError: A value is a page, but the library is missing.
        """
        contents = [content_in(value, self._extract, has_fields=self._has_fields) for value in values]
        pages = [content.text for content in contents if content.is_page]
        found = iter(self.submit(pages).result() if pages else ())
        return [next(found) if content.is_page else content.text for content in contents]

    def text(self, page: str) -> str:
        """Extract the text of a page; raise `ValueError` with the reason if that fails."""
        (found,) = self.submit([page]).result()
        if isinstance(found, NoResult):
            raise ValueError(refusal(found))
        return found

    def __exit__(self, *exc_info: object) -> None:
        self._workers.close()


def refusal(found: NoResult) -> str:
    """Return why a page is rejected."""
    return f"main text not found {found.why}; use " + Remedy('extract="none"', "--extract none")


@cache
def _own_texts(extract: str, fields: tuple[str, ...]) -> PageTexts:
    return PageTexts(InputOptions(extract=extract, fields=fields))


def text_of_page(page: str, options: InputOptions | None = None) -> str:
    """Extract the text of a single page in a process that later calls reuse; thread-safe.

    Raises:
        ValueError: The page exceeds the limits, or the library is missing.
    """
    options = options or InputOptions()
    return _own_texts(options.extract, options.fields).text(page)
