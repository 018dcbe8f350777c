"""A Scrapy add-on that drops or tags near-duplicate items.

Enable it with the setting `ADDONS = {"hsimhash.contrib.scrapy.HSimHashAddon": 300}`. It works with every kind of item:
dicts, `scrapy.Item`, dataclasses, attrs and Pydantic classes.

Each item is compared by its text, under its id:

- The text is the item's field `text`. If the item does not have one, it is the text of the response: the main text of
  an HTML page, otherwise the whole body. For that, yield one item per page.
- The id is the item's field `url`. If the item does not have one, it is the URL of the response. Ids that are URLs are
  made canonical.

The add-on does not add fields to items. It fills `text` and `url` only where the item has such a field and left it
empty: `{"text": ""}`, or a declared field without a value. If a pipeline before the add-on replaces an item by another
object, that object must have both itself.

Items that are near-duplicates of a stored one are dropped or tagged; the others are stored. Fetching a page again, in a
later crawl too, does not make it a duplicate of itself. Items that arrive at the same time share a call to the index.

Settings:

- `HSIMHASH_STORE`: the index, by default `lmdb://hsimhash-index`. It is created if needed. Redis is refused when the
  crawl starts, because it cannot decide between crawlers that find the same page at once.
- `HSIMHASH_ACTION`: `drop` near-duplicates (default), or `tag` them: the match is then in `item["duplicate_of"]`, or
  in `response.meta["duplicate_of"]` if the item cannot have such a field.
- `HSIMHASH_ON_ERROR`: what to do with an item while the index cannot be reached: `pass` it on (default), `drop` it, or
  `close` the spider.
- `HSIMHASH_TEXT_FIELD` and `HSIMHASH_ID_FIELD`: other names for the fields `text` and `url`.

Stats: `hsimhash/new`, `hsimhash/duplicate`, `hsimhash/short` (no text, or a text too short to compare; the item
passes), `hsimhash/error`, `hsimhash/calls`, `hsimhash/seconds`. An item whose text or id cannot be used passes, and is
logged as an error.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

try:
    import scrapy as _scrapy  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hsimhash.contrib.scrapy needs Scrapy: pip install 'hsimhash[scrapy]'", name=error.name
    ) from error

from itemadapter import ItemAdapter, is_item
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.settings import BaseSettings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from w3lib.url import canonicalize_url, is_url

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError
from hsimhash.index import HSimIndex
from hsimhash.inputs.extraction import text_of_page
from hsimhash.inputs.pages import require_page_library
from hsimhash.rowkey import check_doc_id
from hsimhash.store.base import Claim, Match
from hsimhash.store.kinds import check_url, kind_of, url_of

logger = logging.getLogger(__name__)

Asked = tuple[str, str]  # a text and an id
_CHOICES = {"HSIMHASH_ACTION": ("drop", "tag"), "HSIMHASH_ON_ERROR": ("pass", "drop", "close")}
_DEFAULTS = {"HSIMHASH_STORE": "lmdb://hsimhash-index", "HSIMHASH_TEXT_FIELD": "text", "HSIMHASH_ID_FIELD": "url"}
_TAG = "duplicate_of"
_CHATTY = ("charset_normalizer", "courlan", "htmldate", "justext", "trafilatura")  # log several lines for each page


class HSimHashAddon:
    """Puts the pipeline and the middleware into a crawler's settings."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Set what nobody has set; raise `ValueError` for a setting with an unknown value."""
        for name, value in {**_DEFAULTS, **{name: choices[0] for name, choices in _CHOICES.items()}}.items():
            settings.set(name, settings.get(name, value), "addon")
        for name, choices in _CHOICES.items():
            if settings[name] not in choices:
                raise ValueError(f"{name} must be {' or '.join(choices)}, got {settings[name]!r:.80}")
        _check_store(settings["HSIMHASH_STORE"])
        settings["ITEM_PIPELINES"][HSimHashPipeline] = 300
        settings["SPIDER_MIDDLEWARES"][ItemResponseMiddleware] = 300


class ItemResponseMiddleware:
    """Remembers the response that each item came from, until a pipeline takes it."""

    def __init__(self) -> None:
        self._items: WeakKeyDictionary[Response, list[Any]] = WeakKeyDictionary()  # few: those that Scrapy works on

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ItemResponseMiddleware:
        """Return the middleware of a crawler."""
        made = cls()
        for signal in (signals.item_dropped, signals.item_error):  # perhaps by an earlier pipeline
            crawler.signals.connect(made.take, signal)
        return made

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        """Yield what the spider makes of a response."""
        return (self._noted(one, response) for one in result)

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield what the spider makes of a response."""
        async for one in result:
            yield self._noted(one, response)

    def take(self, item: Any) -> Response | None:
        """Return the response of an item and forget it; None if it is not known."""
        for response, items in self._items.items():
            for place, one in enumerate(items):
                if one is item:
                    del items[place]
                    return response
        return None

    def _noted(self, one: Any, response: Response) -> Any:
        if is_item(one):
            self._items.setdefault(response, []).append(one)
        return one


class HSimHashPipeline:
    """Drops or tags items near to what is stored, and stores the others."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler, self._url = crawler, settings["HSIMHASH_STORE"]
        self._text_field, self._id_field = settings["HSIMHASH_TEXT_FIELD"], settings["HSIMHASH_ID_FIELD"]
        self._tags, self._on_error = settings["HSIMHASH_ACTION"] == "tag", settings["HSIMHASH_ON_ERROR"]
        self._waiting: list[tuple[Asked, Deferred[Claim | None]]] = []
        self._is_calling = False
        self._index: HSimIndex

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> HSimHashPipeline:
        """Return the pipeline of a crawler."""
        return cls(crawler)

    def open_spider(self) -> None:
        """Open the index, or create it; raise an error, which ends the crawl, if it cannot be used."""
        for name in _CHATTY:
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.WARNING)
        require_page_library()
        with suppress(IndexNotFoundError):
            self._index = HSimIndex.open(self._url)
        if not hasattr(self, "_index"):
            with suppress(IndexExistsError):  # another crawler was quicker
                HSimIndex.create(self._url).close()
            self._index = HSimIndex.open(self._url)
        self._index.profile.verify()

    def close_spider(self) -> None:
        """Close the index; no item is under way any more."""
        if hasattr(self, "_index"):  # else it could not be opened
            self._index.close()

    async def process_item(self, item: Any) -> Any:
        """Return an item, with a tag if it is a near-duplicate; raise `DropItem` to drop it."""
        middleware = self._crawler.get_spider_middleware(ItemResponseMiddleware)
        response = middleware.take(item) if middleware else None
        try:
            asked = await self._asked(ItemAdapter(item), response)
            claim = await maybe_deferred_to_future(self._claimed(asked))
        except HsimhashError as error:
            return self._away(item, error)
        except (TypeError, ValueError) as error:
            self._count("error")
            logger.error("an item was not compared: %s, in %.200r", error, item)
            return item
        if claim is None or claim.match is None:
            self._count("short" if claim is None else "new")
            return item
        self._count("duplicate")
        said = f"{asked[1]} is a near-duplicate of {claim.match.doc_id}: {claim.match.distance} bits differ"
        if not self._tags:
            raise DropItem(said, log_level="INFO")
        self._tag(item, response, claim.match, said)
        return item

    async def _asked(self, fields: ItemAdapter, response: Response | None) -> Asked:
        """Return the text and the id of an item; `ValueError` or `TypeError` if they cannot be used."""
        doc_id = fields.get(self._id_field)
        if not doc_id:
            if response is None:
                raise ValueError(
                    f"no field {self._id_field!r}, and an earlier pipeline replaced what the spider yielded"
                )
            doc_id = _fill(fields, self._id_field, response.url)
        text = fields.get(self._text_field)
        if not text and isinstance(response, TextResponse):
            page = response.text
            if isinstance(response, HtmlResponse):
                page = await maybe_deferred_to_future(deferToThread(text_of_page, page))
            text = _fill(fields, self._text_field, page)
        text, doc_id = _as_str(self._text_field, text or ""), _as_str(self._id_field, doc_id)
        doc_id = canonicalize_url(doc_id) if is_url(doc_id) else doc_id
        check_doc_id(doc_id)  # here, because a call for several items fails as a whole
        return text, doc_id

    def _tag(self, item: Any, response: Response | None, match: Match, said: str) -> None:
        """Put a match into an item, or, if it cannot have the field, into its response's `meta`."""
        try:
            ItemAdapter(item)[_TAG] = match.to_json()
        except (AttributeError, KeyError, TypeError, ValueError):  # of the classes that items can be, and frozen ones
            logger.info("%s (%s has no field %r)", said, type(item).__name__, _TAG)
            if response is not None and response.request is not None:
                response.meta[_TAG] = match.to_json()

    def _away(self, item: Any, error: HsimhashError) -> Any:
        """Do with an item what the settings say for an index that does not answer."""
        self._count("error")
        logger.error("an item was not compared: %s", error)
        if self._on_error == "pass":
            return item
        if self._on_error == "close" and self._crawler.engine:  # nothing waits for it: it waits for this item
            deferred_from_coro(self._crawler.engine.close_spider_async(reason="hsimhash_store_away"))
        raise DropItem(f"the index does not answer: {error}")

    def _claimed(self, asked: Asked) -> Deferred[Claim | None]:
        """Return what becomes of a text and its id: None where the text has no fingerprint."""
        answer: Deferred[Claim | None] = Deferred()
        self._waiting.append((asked, answer))
        if not self._is_calling:
            self._call()
        return answer

    def _call(self) -> None:
        """Ask for all that wait; while that lasts, others gather."""
        batch, self._waiting = self._waiting, []
        self._is_calling = bool(batch)
        if batch:
            began, answers = time.monotonic(), [answer for _, answer in batch]
            call = deferToThread(_claim, self._index, [asked for asked, _ in batch])
            call.addBoth(partial(self._called, began)).addCallbacks(partial(_tell, answers), partial(_fail, answers))

    def _called(self, began: float, result: Any) -> Any:
        """Note that a call has ended, and begin the next."""
        self._count("calls")
        self._count("seconds", time.monotonic() - began)
        self._call()
        return result

    def _count(self, name: str, by: float = 1) -> None:
        name = f"hsimhash/{name}"
        if self._crawler.stats is not None:
            self._crawler.stats.set_value(name, self._crawler.stats.get_value(name, 0) + by)


def _check_store(place: str | os.PathLike[str]) -> None:
    """Raise `ValueError` for a store that a crawl cannot use, whether or not it can be reached."""
    try:
        check_url(url := url_of(place))
    except (TypeError, ValueError) as error:
        raise ValueError(f"HSIMHASH_STORE does not name an index: {error}") from None
    if not kind_of(url).can_claim:
        raise ValueError(
            "HSIMHASH_STORE is on Redis, where two crawlers that find the same page at once could both keep it; "
            "use lmdb://, hbase:// or postgresql://"
        )


def _as_str(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"field {name!r} must be a str, got {value!r:.80}")
    return value


def _fill(fields: ItemAdapter, name: str, value: str) -> str:
    """Return a value, and put it into the field of that name if the item has one."""
    if name in fields.field_names():
        with suppress(AttributeError, TypeError, ValueError):  # the item is frozen, or wants another type
            fields[name] = value
    return value


def _claim(index: HSimIndex, asked: Sequence[Asked]) -> list[Claim | None]:
    """Return what becomes of texts and their ids, in the order given."""
    texts, doc_ids = zip(*asked, strict=True)
    return index.claim_texts(texts, doc_ids)


def _tell(answers: Sequence[Deferred[Claim | None]], claims: Sequence[Claim | None]) -> None:
    for answer, claim in zip(answers, claims, strict=True):
        answer.callback(claim)


def _fail(answers: Sequence[Deferred[Claim | None]], failure: Failure) -> None:
    for answer in answers:
        answer.errback(failure)
