"""An add-on for Scrapy that drops or tags near-duplicate items.

It stands in the setting `ADDONS = {"hsimhash.contrib.scrapy.HSimHashAddon": 300}`. Others are `HSIMHASH_STORE`, the
index's URL (by default `lmdb://hsimhash-index`; it is made if it is not there), and:

- `HSIMHASH_ACTION`: `drop` near-duplicates (default), or `tag` them: `item["duplicate_of"]` is then the match.
- `HSIMHASH_ON_ERROR`: what becomes of an item when the store is away: `pass` it on as it is (default), `drop` it, or
  `close` the spider.
- `HSIMHASH_TEXT_FIELD` (`text`) and `HSIMHASH_ID_FIELD` (`url`). An item without a text gets the main text of its
  response there, one without an id the response's URL. Ids that are URLs are made canonical.

An item *claims*: it is new unless one near it is stored. The same page again, in a later crawl too, is no duplicate of
itself. Items that claim at the same time share a call. Stats: `hsimhash/new`, `hsimhash/duplicate`, `hsimhash/short`
(texts without a fingerprint, which pass), `hsimhash/error`, `hsimhash/calls`, `hsimhash/seconds`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from itemadapter import ItemAdapter, is_item
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from scrapy.http import Response, TextResponse
from scrapy.settings import BaseSettings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from w3lib.url import canonicalize_url, is_url

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError
from hsimhash.fingerprint import TOO_SHORT
from hsimhash.index import HSimIndex
from hsimhash.inputs.extraction import text_of_page
from hsimhash.rowkey import check_doc_id
from hsimhash.store.base import Claim

logger = logging.getLogger(__name__)

Asked = tuple[str, str]  # a text and an id
_CHOICES = {"HSIMHASH_ACTION": ("drop", "tag"), "HSIMHASH_ON_ERROR": ("pass", "drop", "close")}
_DEFAULTS = {"HSIMHASH_STORE": "lmdb://hsimhash-index", "HSIMHASH_TEXT_FIELD": "text", "HSIMHASH_ID_FIELD": "url"}
_TAG = "duplicate_of"


class HSimHashAddon:
    """Puts the pipeline and the middleware into a crawler's settings."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Set what nobody set; `ValueError` names a value that is none."""
        for name, value in {**_DEFAULTS, **{name: choices[0] for name, choices in _CHOICES.items()}}.items():
            settings.set(name, settings.get(name, value), "addon")
        for name, choices in _CHOICES.items():
            if settings[name] not in choices:
                raise ValueError(f"{name} = {settings[name]!r:.80}: it should be {' or '.join(choices)}")
        settings["ITEM_PIPELINES"][HSimHashPipeline] = 300
        settings["SPIDER_MIDDLEWARES"][ResponseTextMiddleware] = 300


class ResponseTextMiddleware:
    """Gives items that have no text or id those of their response."""

    def __init__(self, text_field: str, id_field: str) -> None:
        self._text_field, self._id_field = text_field, id_field

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ResponseTextMiddleware:
        """Return the middleware of a crawler."""
        return cls(crawler.settings["HSIMHASH_TEXT_FIELD"], crawler.settings["HSIMHASH_ID_FIELD"])

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        """Yield what the spider makes of a response."""
        return (self._completed(one, response) for one in result)

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield what the spider makes of a response."""
        async for one in result:
            yield self._completed(one, response)

    def _completed(self, one: Any, response: Response) -> Any:
        if is_item(one):
            fields = ItemAdapter(one)
            if not fields.get(self._id_field):
                fields[self._id_field] = response.url
            if not fields.get(self._text_field) and isinstance(response, TextResponse):
                fields[self._text_field] = text_of_page(response.text)
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

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> HSimHashPipeline:
        """Return the pipeline of a crawler."""
        return cls(crawler)

    def open_spider(self) -> None:
        """Open the index, or make it."""
        try:
            self._index = HSimIndex.open(self._url)
        except IndexNotFoundError:
            with suppress(IndexExistsError):  # another crawler was quicker
                HSimIndex.create(self._url).close()
            self._index = HSimIndex.open(self._url)
        self._index.profile.verify()

    def close_spider(self) -> None:
        """Close the index; no item is under way any more."""
        self._index.close()

    async def process_item(self, item: Any) -> Any:
        """Return an item, with a tag where it is a near-duplicate; raise `DropItem` where that is asked for."""
        fields = ItemAdapter(item)
        text, doc_id = fields.get(self._text_field), fields.get(self._id_field)
        if not (isinstance(text, str) and isinstance(doc_id, str)):
            raise ValueError(f"an item's {self._text_field} and {self._id_field} should be strings: {item!r:.200}")
        doc_id = canonicalize_url(doc_id) if is_url(doc_id) else doc_id
        check_doc_id(doc_id)  # here, for a call of many fails as a whole
        try:
            claim = await maybe_deferred_to_future(self._claimed((text, doc_id)))
        except HsimhashError as error:
            return self._away(item, error)
        if claim is None or claim.match is None:
            self._count("short" if claim is None else "new")
            return item
        self._count("duplicate")
        if not self._tags:
            match = claim.match
            told = f"{doc_id} is a near-duplicate of {match.doc_id}: {match.distance} bits differ"
            raise DropItem(told, log_level="INFO")
        fields[_TAG] = claim.match.to_json()
        return item

    def _away(self, item: Any, error: HsimhashError) -> Any:
        """Do with an item what the settings say where the store does not answer."""
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


def _claim(index: HSimIndex, asked: Sequence[Asked]) -> list[Claim | None]:
    """Return what becomes of texts and their ids, in the order given."""
    signatures = index.profile.signatures([text for text, _ in asked])
    places = [place for place, kind in enumerate(signatures.kinds.tolist()) if kind != TOO_SHORT]
    claims: list[Claim | None] = [None] * len(asked)
    for place, claim in zip(
        places, index.claim_many(signatures[places], [asked[place][1] for place in places]), strict=True
    ):
        claims[place] = claim
    return claims


def _tell(answers: Sequence[Deferred[Claim | None]], claims: Sequence[Claim | None]) -> None:
    for answer, claim in zip(answers, claims, strict=True):
        answer.callback(claim)


def _fail(answers: Sequence[Deferred[Claim | None]], failure: Failure) -> None:
    for answer in answers:
        answer.errback(failure)
