"""A Scrapy add-on that drops or tags near-duplicate items.

Enable it with the setting `ADDONS = {"hsimhash.contrib.scrapy.HSimHashAddon": 300}`. It works with every class of item:
dicts, `scrapy.Item`, dataclasses, attrs and Pydantic classes, frozen or not.

Each item is compared by its text and stored under its id:

- The text is the item's `text` field: a string, or a list of strings as `getall()` and `ItemLoader` return it. If the
  field is missing or empty, the text comes from the response: the main text of an HTML page, otherwise the whole body.
  If a response has several items with different ids, only the first is compared by this text; the others pass.
- The id is the item's `url` field: a string, a whole number, a UUID, or a list with one string. If it is missing or
  empty, the id is the URL of the response. Ids that are URLs are made canonical: parameters are sorted, and fragments
  are removed.

The add-on does not add fields to items. It fills `text` and `url` only if the item has such a field without a value
(`None` or `""`) and the class allows it. Items from errbacks and from `start()` do not have a response, and neither do
objects that replaced an item in an earlier pipeline. These need both fields.

Items that are near-duplicates of a stored document are dropped or tagged; all other items are stored. Fetching a page
again, even in a later crawl, does not make it a duplicate of itself. Items that arrive at the same time share a call to
the index.

Settings:

- `HSIMHASH_STORE`: the index, by default `lmdb://hsimhash-index`. It is created if needed.
- `HSIMHASH_ACTION`: `drop` near-duplicates (default), or `tag` them: the match is then in `item["duplicate_of"]`. If an
  item cannot have such a field, the match is in `response.meta["duplicate_of"]`, and a warning names the class once.
- `HSIMHASH_ON_ERROR`: what to do with an item that cannot be compared, because the index cannot be reached or because
  its text or id cannot be used: `pass` it on (default), `drop` it, or drop it and `close` the spider. If a call fails
  because the index is unavailable, the log says so once, and other items are not compared until a call succeeds. One
  item is tried 30 s after each failure. With `close`, the index is not called again.
- `HSIMHASH_TEXT_FIELD` and `HSIMHASH_ID_FIELD`: other names for the fields `text` and `url`.
- `HSIMHASH_MAX_SKETCH`: keep items whose sketches differ in more than this many bits, 0 to 64; `off` ignores sketches.

An unknown setting that begins with `HSIMHASH_` ends the crawl.

Stats, each with the prefix `hsimhash/`:

- `new`: items that are not near-duplicates; they were stored now, or were already stored by an earlier crawl.
- `duplicate`: items that are near-duplicates of a stored document; they were dropped, or tagged.
- `short`: items that have no text to compare; they pass.
- `error`: items that could not be compared; the log gives the reasons.
- `calls`, `seconds`: calls to the index, and the seconds that they took.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from hsimhash.extras import install_command

try:
    import scrapy as _scrapy  # noqa: F401
except ImportError as error:
    raise ImportError(f"hsimhash.contrib.scrapy needs Scrapy: {install_command('scrapy')}", name=error.name) from error

from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from scrapy.http import HtmlResponse, Request, Response, TextResponse
from scrapy.settings import BaseSettings
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from w3lib.url import canonicalize_url, is_url

from hsimhash.errors import (
    ClaimBusyError,
    HsimhashError,
    IndexExistsError,
    IndexNotFoundError,
    LayoutMismatchError,
    StoreBusyError,
    StoreClosedError,
    StoreUnavailableError,
    plural,
)
from hsimhash.fingerprint.profile_grammar import nearest
from hsimhash.fingerprint.signature import MAX_SKETCH, max_sketch_in
from hsimhash.index import HSimIndex
from hsimhash.inputs.extraction import text_of_page
from hsimhash.inputs.field_values import doc_id_of, text_of
from hsimhash.inputs.pages import require_page_library
from hsimhash.rowkey import check_doc_id
from hsimhash.store import backend_of, check_url, url_of
from hsimhash.store.base import Claim, Match
from hsimhash.store.urls import masked

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
TextWithId = tuple[str, str]  # a text and an id
_Waiting = tuple[TextWithId, "Deferred[Claim | None]"]
_CHOICES = {"HSIMHASH_ACTION": ("drop", "tag"), "HSIMHASH_ON_ERROR": ("pass", "drop", "close")}
_DEFAULTS = {
    "HSIMHASH_STORE": "lmdb://hsimhash-index",
    "HSIMHASH_TEXT_FIELD": "text",
    "HSIMHASH_ID_FIELD": "url",
    "HSIMHASH_MAX_SKETCH": MAX_SKETCH,
}
# Settings that users may look for, and the create-table flags that have the same effect.
_OF_THE_INDEX = {
    "HSIMHASH_DISTANCE": "--distance",
    "HSIMHASH_MAX_DISTANCE": "--distance",
    "HSIMHASH_LAYOUT": "--layout",
    "HSIMHASH_PROFILE": "--profile",
}
_PREFIX = "HSIMHASH_"
_ADDONS = 'ADDONS = {"hsimhash.contrib.scrapy.HSimHashAddon": 300}'
_TAG = "duplicate_of"
_RETRY_S = 30.0  # during an outage, one item is tried this many seconds after the last call failed
_LOST = IndexNotFoundError, LayoutMismatchError  # the index was dropped or replaced
_OUTAGES = StoreUnavailableError, StoreBusyError, StoreClosedError, *_LOST  # no item can be compared, whatever it is
_CHATTY = ("charset_normalizer", "courlan", "htmldate", "justext", "trafilatura")  # log several lines for each page


class NearDuplicate(DropItem):
    """An item that is dropped because it is near a stored document."""


class NotCompared(DropItem):
    """An item that is dropped because it could not be compared."""


class _OutageError(Exception):
    """An item was not compared because of an outage, which is logged once."""


class _NothingToCompareError(Exception):
    """An item does not have a text of its own; the message has the reason."""


@contextmanager
def _log_the_end() -> Iterator[None]:
    """Log an error that ends the crawl: Scrapy logs it as a traceback, or below other errors that it causes."""
    try:
        yield
    except Exception as error:
        logger.error("the crawl ends: %s", error)
        raise


class HSimHashAddon:
    """Adds the pipeline and the middleware to a crawler's settings."""

    @_log_the_end()
    def update_settings(self, settings: BaseSettings) -> None:
        """Set defaults; raise `ValueError` for an unknown setting or an invalid value."""
        _refuse_unknown(settings)
        for name, value in {**_DEFAULTS, **{name: choices[0] for name, choices in _CHOICES.items()}}.items():
            settings.set(name, settings.get(name, value), "addon")
        for name, choices in _CHOICES.items():
            if settings[name] not in choices:
                known = f"{', '.join(choices[:-1])} or {choices[-1]}"
                raise ValueError(f"{name} must be {known}, got {settings[name]!r:.80}")
        for name in ("HSIMHASH_TEXT_FIELD", "HSIMHASH_ID_FIELD"):
            if not isinstance(settings[name], str) or not settings[name]:
                raise ValueError(f"{name} must be the name of a field, got {settings[name]!r:.80}")
        _check_store(settings["HSIMHASH_STORE"])
        _max_sketch(settings)
        settings.setdefault_in_component_priority_dict("ITEM_PIPELINES", HSimHashPipeline, 300)
        # It runs just before the pipelines, so it sees only the items that the other middlewares let through.
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", ItemResponseMiddleware, -1_000)

    @_log_the_end()
    def open_spider(self) -> None:
        """Raise `ValueError`: Scrapy calls this only if a project lists the add-on as a pipeline."""
        raise ValueError(f"HSimHashAddon is an add-on, not a pipeline: remove it from ITEM_PIPELINES and set {_ADDONS}")


class ItemResponseMiddleware:
    """Remembers the response of each item until a pipeline takes it; does not change items."""

    def __init__(self) -> None:
        self._outputs: WeakKeyDictionary[Response, _Output] = WeakKeyDictionary()  # only responses in progress

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ItemResponseMiddleware:
        """Return the middleware for a crawler."""
        made = cls()
        for signal in (signals.item_scraped, signals.item_dropped, signals.item_error):  # one per item
            crawler.signals.connect(made.end, signal)
        return made

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        """Pass on the spider's output for a response."""
        return (self._noted(one, response) for one in result)

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on the spider's output for a response."""
        async for one in result:
            yield self._noted(one, response)

    def take(self, item: Any) -> Response | None:
        """Return the response of an item and forget it; None if it is unknown."""
        for response, output in self._outputs.items():
            for place, one in enumerate(output.items):
                if one is item:
                    del output.items[place]
                    return response
        return None

    def end(self, response: Any) -> None:
        """Record that an item from a response is finished. After the last one, forget all items of the response."""
        output = self._outputs.get(response) if isinstance(response, Response) else None
        if output is not None:
            output.under_way -= 1
            if not output.under_way:
                del self._outputs[response]

    def _noted(self, one: Any, response: Response) -> Any:
        if one is not None and not isinstance(one, Request):
            output = self._outputs.setdefault(response, _Output())
            output.items.append(one)
            output.under_way += 1
        return one


@dataclass(slots=True)
class _Output:
    """The items of a response that no pipeline has taken, and the number of its items in progress."""

    items: list[Any] = field(default_factory=list)
    under_way: int = 0


@dataclass(slots=True)
class _Outage:
    """A time in which calls to the index fail."""

    retry_at: float  # monotonic, as `began`
    began: float
    items: int = 0  # that were not compared


class HSimHashPipeline:
    """Drops or tags items that are near a stored document, and stores all other items."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler, self._url = crawler, settings["HSIMHASH_STORE"]
        self._text_field, self._id_field = settings["HSIMHASH_TEXT_FIELD"], settings["HSIMHASH_ID_FIELD"]
        self._tags, self._on_error = settings["HSIMHASH_ACTION"] == "tag", settings["HSIMHASH_ON_ERROR"]
        self._max_sketch = _max_sketch(settings)
        self._waiting: list[_Waiting] = []
        self._is_calling = False
        self._outage: _Outage | None = None
        self._logged: set[object] = set()  # what was logged once: settings, classes of items
        self._described: WeakKeyDictionary[Response, str] = WeakKeyDictionary()  # the id that has a response's text
        self._named: WeakSet[Response] = WeakSet()  # responses whose URL is the id of an item
        self._written: WeakKeyDictionary[Response, dict[str, str]] = WeakKeyDictionary()  # items' ids by canonical id
        self._index: HSimIndex

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> HSimHashPipeline:
        """Return the pipeline for a crawler; raise `ValueError` without the add-on, which sets the defaults."""
        if any(crawler.settings.get(name) is None for name in (*_DEFAULTS, *_CHOICES)):
            raise ValueError(
                f"HSimHashPipeline works only with its add-on, which also keeps track of the response of each item; "
                f"set {_ADDONS}"
            )
        return cls(crawler)

    @_log_the_end()
    def open_spider(self) -> None:
        """Open or create the index; an error ends the crawl."""
        for name in _CHATTY:
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.WARNING)
        is_new = self._open_index()
        profile, bits = self._index.profile, self._index.distance
        logger.info(
            "%s index %s with profile %s: near-duplicates differ in at most %s%s%s",
            *("created" if is_new else "using", masked(self._index.url), profile.name, plural(bits, "bit")),
            ", or share a key" if profile.key else "",
            f"; their sketches differ in at most {self._max_sketch}"
            if profile.sketch and self._max_sketch is not None
            else "",
        )

    def _open_index(self) -> bool:
        """Open the index, and create it if needed; return whether it was created."""
        require_page_library(is_optional=False)
        is_new = False
        with suppress(IndexNotFoundError):
            self._index = HSimIndex.open(self._url)
        if not hasattr(self, "_index"):
            with suppress(IndexExistsError):  # another crawler created it first
                HSimIndex.create(self._url).close()
                is_new = True
            self._index = HSimIndex.open(self._url)
        profile = self._index.profile
        if profile.tokens == "features":
            raise ValueError(
                f"index {masked(self._url)} has profile {profile.name}, which does not read texts; use another index"
            )
        profile.verify()
        return is_new

    def close_spider(self) -> None:
        """Close the index; by now, all items are finished."""
        if self._outage is not None:
            logger.warning("the crawl ends during an outage: %s", self._outage_summary(self._outage))
        if hasattr(self, "_index"):  # False if opening it failed
            self._index.close()

    async def process_item(self, item: Any) -> Any:
        """Return an item, with a tag if it is a near-duplicate; raise `DropItem` to drop it."""
        middleware = self._crawler.get_spider_middleware(ItemResponseMiddleware)
        response = middleware.take(item) if middleware else None
        try:
            asked = await self._asked(ItemAdapter(item), response)
            claim = await self._claimed(asked)
            if claim is None:
                raise _NothingToCompareError(f"{asked[1]}: it has no main text, or a text without letters or digits")
        except _NothingToCompareError as reason:
            self._count("short")
            logger.info("an item is kept but not compared: %s", reason)
            return item
        except Exception as error:  # items may be of any class, and none may be lost
            return self._not_compared(item, error)
        if claim.match is None:
            self._count("new")
            return item
        self._count("duplicate")
        key = ", same key" if claim.match.found_by == "key" else ""
        bits = plural(claim.match.distance, "bit")
        alike = "" if claim.match.similarity is None else f", similarity {claim.match.similarity:.2f}"
        said = f"{asked[1]} is a near-duplicate of {claim.match.doc_id}: {bits} apart{alike}{key}"
        if not self._tags:
            raise NearDuplicate(said, log_level="INFO")
        logger.info("%s", said)
        self._tag(item, response, claim.match)
        return item

    async def _asked(self, fields: ItemAdapter, response: Response | None) -> TextWithId:
        """Return the text and the id of an item; raise an error if they cannot be used."""
        doc_id = self._id_of(fields, response)
        return await self._text_of(fields, response, doc_id), doc_id

    def _id_of(self, fields: ItemAdapter, response: Response | None) -> str:
        """Return the id of an item; raise an error if it cannot be used."""
        value = _value(fields, self._id_field)
        if value is None:
            if response is None:
                raise ValueError(
                    f'no value in "{self._id_field}", and the response is unknown: the item comes from an errback or '
                    "from start(), or an earlier pipeline replaced it"
                )
            self._warn_of_missing(fields, "HSIMHASH_ID_FIELD", self._id_field)
            if response in self._named:
                self._log_once(
                    "items that share an id",
                    "several items on the page %s have no value in %s, so the page's URL is the id of all of them, and "
                    "they are not compared with each other; set HSIMHASH_ID_FIELD to the name of a field with an id",
                    *(response.url, self._id_field),
                )
            self._named.add(response)
            value = _fill(fields, self._id_field, response.url)
        written = doc_id_of(value, self._id_field)
        doc_id = canonicalize_url(written) if is_url(written) else written
        check_doc_id(doc_id)  # checked here, because a call for several items fails as a whole
        if response is not None:
            self._warn_of_same(written, doc_id, response)
        return doc_id

    def _warn_of_same(self, written: str, doc_id: str, response: Response) -> None:
        """Warn once if another item of the response has a different id with the same canonical form."""
        other = self._written.setdefault(response, {}).setdefault(doc_id, written)
        if other != written:
            self._log_once(
                "items that share a canonical id",
                "items that share an id after it is made canonical are not compared with each other: %s and %s on the "
                "page %s become %s; set HSIMHASH_ID_FIELD to the name of a field whose values differ in more than the "
                "fragment",
                *(other, written, response.url, doc_id),
            )

    async def _text_of(self, fields: ItemAdapter, response: Response | None, doc_id: str) -> str:
        """Return the text of an item; raise an error if it cannot be used."""
        text = _value(fields, self._text_field)
        if text is None and response is not None and self._described.setdefault(response, doc_id) != doc_id:
            self._log_once(
                "items that share a text",
                "%s is kept but not compared: it has no value in %s, and the response's text was already used for "
                "another item on the page, %s; set HSIMHASH_TEXT_FIELD to the name of the field with the text",
                *(doc_id, self._text_field, self._described[response]),
            )
            raise _NothingToCompareError(
                f"{doc_id}: the response's text was already used for another item on the page, "
                f"{self._described[response]}"
            )
        if text is None:
            self._warn_of_missing(fields, "HSIMHASH_TEXT_FIELD", self._text_field)
            if response is not None and not isinstance(response, TextResponse):
                raise _NothingToCompareError(f"{doc_id}: its response is not text")
            page = "" if response is None else response.text
            if page and isinstance(response, HtmlResponse):
                page = await _in_thread(text_of_page, page)
            text = _fill(fields, self._text_field, page) if page else ""
        if isinstance(text, (list, tuple)):
            if others := [one for one in text if not isinstance(one, str)]:
                raise ValueError(
                    f'"{self._text_field}" must be a string or a list of strings, but has {others[0]!r:.80}'
                )
            text = "\n".join(text)
        return text_of(text, self._text_field)

    def _log_once(self, about: object, message: str, *given: object, level: int = logging.WARNING) -> None:
        """Log a message unless there was one about the same thing."""
        if about not in self._logged:
            self._logged.add(about)
            logger.log(level, message, *given)

    def _warn_of_missing(self, fields: ItemAdapter, setting: str, name: str) -> None:
        """Warn once if an item lacks the field named in the project's settings."""
        if name == _DEFAULTS[setting] or name in fields.field_names():
            return
        self._log_once(
            setting,
            "an item does not have the field %s (%s); its fields are %s; the %s of the response is used instead",
            *(name, setting, ", ".join(fields.field_names()) or "none"),
            "URL" if setting == "HSIMHASH_ID_FIELD" else "text",
        )

    def _tag(self, item: Any, response: Response | None, match: Match) -> None:
        """Put a match into an item, or, if it cannot have the field, into its response's `meta`."""
        try:
            ItemAdapter(item)[_TAG] = match.to_json()
        except Exception as error:  # its type depends on the item's class, which may also be frozen
            self._log_once(
                type(item),
                "near-duplicates of class %s are kept but not tagged (%s); add a writable field %s to the class, "
                "or read response.meta[%r]",
                *(type(item).__qualname__, error, _TAG, _TAG),
            )
            if response is not None and response.request is not None:
                response.meta[_TAG] = match.to_json()

    def _not_compared(self, item: Any, error: Exception) -> Any:
        """Handle an item that cannot be compared, as the settings specify."""
        self._count("error")
        if isinstance(error, _OutageError):
            logger.info("not compared: %s", error)
        else:
            logger.error("could not compare an item: %s; the item is %.200r", error, item)
        if self._on_error == "pass":
            return item
        if self._on_error == "close" and self._crawler.engine:  # not awaited, because it waits for this item
            is_of_store = isinstance(error, (_OutageError, HsimhashError))
            reason = "hsimhash_store_unavailable" if is_of_store else "hsimhash_not_compared"
            deferred_from_coro(self._crawler.engine.close_spider_async(reason=reason))
        raise NotCompared(f"not compared: {error}", log_level="DEBUG")  # the reason is already in the log

    async def _claimed(self, asked: TextWithId) -> Claim | None:
        """Claim a text under its id; return None if the text does not have a fingerprint."""
        if self._outage is not None and (self._is_calling or time.monotonic() < self._outage.retry_at):
            raise self._missed(self._outage, asked[1])
        answer: Deferred[Claim | None] = Deferred()
        self._waiting.append((asked, answer))
        if not self._is_calling:
            self._is_calling = True
            deferred_from_coro(self._call())
        return await maybe_deferred_to_future(answer)

    async def _call(self) -> None:
        """Claim all waiting texts in one call, then the texts that have arrived in the meantime."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            began = time.monotonic()
            try:
                claims = await _in_thread(_claim, self._index, [asked for asked, _ in batch], self._max_sketch)
            except Exception as error:  # reported to each waiting item
                self._fail(batch, error, began)
            else:
                self._end_outage()
                for (_, answer), claim in zip(batch, claims, strict=True):
                    answer.callback(claim)
            self._count("calls")
            self._count("seconds", time.monotonic() - began)
        self._is_calling = False

    def _fail(self, batch: list[_Waiting], error: Exception, began: float) -> None:
        """Report the error of a call to its items, and in an outage also to those that wait for the next call."""
        if isinstance(error, ClaimBusyError) or not isinstance(error, _OUTAGES):
            for _, answer in batch:
                answer.errback(error)
            return
        (_, doc_id), _ = batch[0]
        outage = self._outage_from(error, doc_id, began)
        failed, self._waiting = [*batch, *self._waiting], []
        for (_, doc_id), answer in failed:
            answer.errback(self._missed(outage, doc_id))

    def _outage_from(self, error: Exception, doc_id: str, began: float) -> _Outage:
        """Begin an outage, or continue it: no call is made for some seconds, or, if the spider is closed, at all."""
        is_closing = self._on_error == "close"
        retry_at = math.inf if is_closing else time.monotonic() + _RETRY_S
        if self._outage is not None:
            self._outage.retry_at = retry_at
            return self._outage
        self._outage = _Outage(retry_at, began)
        if is_closing:
            effect = "the spider closes, and its other items are dropped"
        else:
            is_lost = isinstance(error, _LOST)
            end = (
                "the crawl is restarted"
                if is_lost
                else f"a call succeeds ({_RETRY_S:g} s after each failure, one is tried)"
            )
            effect = (
                f"until {end}, items are {'dropped' if self._on_error == 'drop' else 'passed on'} without being "
                "compared; to end the crawl instead, set HSIMHASH_ON_ERROR to close"
            )
        logger.error("could not compare %s: %s; %s", doc_id, error, effect)
        return self._outage

    def _missed(self, outage: _Outage, doc_id: str) -> _OutageError:
        """Count an item that is not compared because of an outage; return its error."""
        outage.items += 1
        return _OutageError(f"{doc_id}: the index is unavailable")

    def _end_outage(self) -> None:
        """Record that a call succeeded."""
        if self._outage is not None:
            logger.info("the index is available again: %s", self._outage_summary(self._outage))
            self._outage = None

    def _outage_summary(self, outage: _Outage) -> str:
        seconds = time.monotonic() - outage.began
        return f"{plural(outage.items, 'item')} could not be compared in {seconds:.0f} s"

    def _count(self, name: str, by: float = 1) -> None:
        name = f"hsimhash/{name}"
        if self._crawler.stats is not None:
            self._crawler.stats.set_value(name, self._crawler.stats.get_value(name, 0) + by)


def _refuse_unknown(settings: BaseSettings) -> None:
    """Raise `ValueError` for an unknown setting with our prefix: a crawl with a misspelt one could drop items."""
    known = (*_DEFAULTS, *_CHOICES)
    for name in sorted(name for name in settings if name.startswith(_PREFIX) and name not in known):
        flag = _OF_THE_INDEX.get(name)
        remedy = (
            f"create the index with 'hsimhash create-table {flag}' before the crawl" if flag else nearest(name, known)
        )
        raise ValueError(f"unknown setting {name}; {remedy}")


def _check_store(place: str | os.PathLike[str]) -> None:
    """Raise `ValueError` or `StoreReadOnlyError` for a store that no crawl can use, even if it can be reached."""
    try:
        url = url_of(place)
        check_url(url)
    except (TypeError, ValueError) as error:
        what = "" if (shown := masked(str(place))) in str(error) else f" {shown!r}"
        raise ValueError(f"invalid HSIMHASH_STORE{what}: {error}") from None
    backend_of(url).refuse_writes(url)


def _max_sketch(settings: BaseSettings) -> int | None:
    """Return the limit for sketches, None for `off`; raise `ValueError` if it is not a number of bits."""
    value = settings["HSIMHASH_MAX_SKETCH"]
    try:
        return max_sketch_in("off" if value is False else str(value))
    except ValueError:
        raise ValueError(f"HSIMHASH_MAX_SKETCH must be a number of bits, 0 to 64, or off, got {value!r:.80}") from None


def _value(fields: ItemAdapter, name: str) -> Any:
    """Return a field's value, or the only element if it is a list of one; None if it is missing or empty."""
    value = _plain_value(fields, name)
    if isinstance(value, (list, tuple)) and len(value) < 2:
        value = value[0] if value else None
    return None if isinstance(value, str) and not value else value


def _plain_value(fields: ItemAdapter, name: str) -> Any:
    try:
        return fields[name]
    except (AttributeError, KeyError):  # AttributeError: a declared attribute that was never set
        return None


def _fill(fields: ItemAdapter, name: str, value: str) -> str:
    """Return a value; if the item has the field `name` and it is None or an empty string, set it to the value."""
    with suppress(Exception):  # the item is frozen, or requires another type
        if name in fields.field_names() and _plain_value(fields, name) in (None, ""):
            fields[name] = value
    return value


async def _in_thread(call: Callable[..., Result], *given: Any) -> Result:
    """Run `call` in another thread and return its result; works with any reactor, or without one."""
    if is_asyncio_available():
        return await asyncio.to_thread(call, *given)
    return await deferToThread(call, *given)


def _claim(index: HSimIndex, asked: Sequence[TextWithId], max_sketch: int | None) -> list[Claim | None]:
    """Claim texts under their ids; return the results in order."""
    texts, doc_ids = zip(*asked, strict=True)
    return index.claim_texts(texts, doc_ids, max_sketch=max_sketch)
