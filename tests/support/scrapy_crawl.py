"""Crawls in one process, each with its own class of items: `python -m tests.support.scrapy_crawl JSON`.

The JSON is a list of crawls (see `Crawl`); it prints what became of each item as a list of JSON objects. A reactor
runs only once per process, so tests start this program for each set of crawls.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import attrs
import pydantic
import scrapy
from itemadapter import ItemAdapter
from itemloaders import ItemLoader
from scrapy import signals
from scrapy.crawler import AsyncCrawlerProcess, Crawler, CrawlerProcess
from scrapy.exceptions import DropItem
from scrapy.http import Response

import hsimhash.contrib.scrapy as addon
from hsimhash.locks import WRITER_LOCK, HeldLock, wait_for_lock


class DeclaredItem(scrapy.Item):
    text, url, duplicate_of = scrapy.Field(), scrapy.Field(), scrapy.Field()


class BareItem(scrapy.Item):
    title = scrapy.Field()


@dataclass
class DeclaredData:
    text: str | None = None
    url: str | None = None
    duplicate_of: dict[str, Any] | None = None


@dataclass
class BareData:
    title: str = "data"


@dataclass(frozen=True)
class FrozenData:
    text: str = ""
    url: str = ""
    duplicate_of: dict[str, Any] | None = None


@dataclass(slots=True)
class SlotsData:
    text: str = field(init=False)  # never set
    url: str = field(init=False)
    duplicate_of: dict[str, Any] = field(init=False)


@attrs.define
class DeclaredAttrs:
    text: str = ""
    url: str = ""
    duplicate_of: dict[str, Any] | None = None


@attrs.define
class BareAttrs:
    title: str = "attrs"


@attrs.frozen
class FrozenAttrs:
    text: str = ""
    title: str = "attrs"


class DeclaredModel(pydantic.BaseModel):
    text: str = ""
    url: str = ""
    duplicate_of: dict[str, Any] | None = None


class BareModel(pydantic.BaseModel):
    title: str = "model"


class FrozenModel(pydantic.BaseModel, frozen=True):
    text: str = ""
    url: str = ""
    duplicate_of: dict[str, Any] | None = None


class StrictModel(pydantic.BaseModel, validate_assignment=True):
    text: list[str] = []
    url: str | None = None
    duplicate_of: str | None = None  # cannot hold a match


class Stubborn(dict[str, Any]):
    """A dict that rejects every assignment."""

    def __setitem__(self, name: str, value: Any) -> None:
        raise RuntimeError("read-only")


def paragraphs(response: Response) -> list[str]:
    found: list[str] = response.css("article p::text").getall()
    return found


def loaded(response: Response) -> Any:
    """Return a dict of lists, as an `ItemLoader` without output processors does."""
    loader = ItemLoader(item={})
    loader.add_value("text", paragraphs(response))
    loader.add_value("url", response.url)
    return loader.load_item()


CLASSES: dict[str, Callable[[Response], Any]] = {
    "dict": lambda _: {},
    "declared-dict": lambda _: {"text": "", "url": None},
    "declared-item": lambda _: DeclaredItem(),
    "bare-item": lambda _: BareItem(title="item"),
    "declared-data": lambda _: DeclaredData(),
    "bare-data": lambda _: BareData(),
    "frozen-data": lambda _: FrozenData(),
    "slots-data": lambda _: SlotsData(),
    "declared-attrs": lambda _: DeclaredAttrs(),
    "bare-attrs": lambda _: BareAttrs(),
    "frozen-attrs": lambda _: FrozenAttrs(),
    "declared-model": lambda _: DeclaredModel(),
    "bare-model": lambda _: BareModel(),
    "frozen-model": lambda _: FrozenModel(),
    "strict-model": lambda _: StrictModel(),
    "stubborn-dict": lambda _: Stubborn(text=""),
}
SHAPES: dict[str, Callable[[Response], Any]] = {
    "str": lambda response: {"text": " ".join(paragraphs(response)), "url": response.url},
    "list": lambda response: {"text": paragraphs(response), "url": response.url},
    "tuple": lambda response: DeclaredData(tuple(paragraphs(response)), response.url),  # type: ignore[arg-type]
    "loader": loaded,
    "none": lambda response: {"text": None, "url": response.url},
    "empty-list": lambda _: {"text": [], "url": []},
    "frozen-str": lambda response: FrozenData(" ".join(paragraphs(response)), response.url),
}
UNUSABLE: dict[str, Callable[[Response], Any]] = {
    "bytes": lambda response: {"text": response.body, "url": response.url},
    "selectors": lambda response: {"text": response.css("article p"), "url": response.url},
    "surrogate": lambda response: {"text": "word \ud800 " * 30, "url": response.url},
    "tab-in-id": lambda response: {"text": "word " * 30, "url": f"a\t{response.url}"},
    "dict-as-url": lambda response: {"text": "word " * 30, "url": {"href": response.url}},
    "no-item": lambda response: response.url,  # Scrapy passes it to the pipelines
}
FOR_ALL = {"LOG_LEVEL", "TWISTED_REACTOR", "TWISTED_REACTOR_ENABLED"}  # settings of the whole process
KINDS = {**CLASSES, **SHAPES, **UNUSABLE}
UNTAGGABLE = {
    *("bare-item", "bare-data", "frozen-data", "bare-attrs", "frozen-attrs", "bare-model", "frozen-model"),
    *("strict-model", "stubborn-dict", "frozen-str"),
}


@dataclass(frozen=True, slots=True)
class Crawl:
    """What one crawl does: it follows all links from `urls`, and yields an item for each page with an article."""

    urls: list[str]
    kind: str = "dict"
    settings: dict[str, Any] = field(default_factory=dict)
    callback: str = "parse"  # a method of `Pages`
    items: list[dict[str, Any]] = field(default_factory=list)  # to yield from each page instead
    before: str = ""  # what the pipeline before the add-on's does; see `Before`


class Pages(scrapy.Spider):
    """Yields a page's item before its links, so that an item that ended the callback would end the crawl."""

    name = "pages"
    crawl: Crawl

    async def start(self) -> AsyncIterator[Any]:
        if self.crawl.callback == "start":
            for item in self.crawl.items:
                yield item
        errback = self.errback if self.crawl.callback == "errback" else None
        for url in self.crawl.urls:
            yield scrapy.Request(url, self.callback, errback=errback)

    @property
    def callback(self) -> Callable[[Response], Any]:
        name = self.crawl.callback
        named: Callable[[Response], Any] = getattr(self, name if name.startswith("parse") else "parse")
        return named

    def parse(self, response: Response) -> Iterator[Any]:
        if self.crawl.items:
            yield from self.crawl.items
        elif response.css("article"):
            yield KINDS[self.crawl.kind](response)
        yield from response.follow_all(response.css("li a"), self.callback)

    async def parse_async(self, response: Response) -> AsyncIterator[Any]:
        for one in self.parse(response):
            yield one

    def parse_list(self, response: Response) -> list[Any]:
        return list(self.parse(response))

    async def parse_coroutine(self, response: Response) -> list[Any]:
        return list(self.parse(response))

    def errback(self, _: Any) -> Iterable[Any]:
        return self.crawl.items


class Before:
    """A pipeline before the add-on's: it replaces or drops items, or takes the index away.

    With `locked`, the index cannot be written to. With `locked for 3`, it can be again from the fourth item on, and
    the add-on tries again at once.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.items = 0
        self.lock: HeldLock | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Before:
        return cls(crawler)

    def process_item(self, item: Any) -> Any:
        assert isinstance(self.crawler.spider, Pages)
        before = self.crawler.spider.crawl.before
        index = self.crawler.get_item_pipeline(addon.HSimHashPipeline)._index
        folder = Path(index.url.removeprefix("lmdb://").partition("?")[0])
        if before == "away":
            index.close()
        if before == "dropped":
            shutil.rmtree(folder, ignore_errors=True)
        if before.startswith("locked"):
            self._lock(folder / WRITER_LOCK, before.removeprefix("locked for "))
        if before == "replace":
            return {**item, "title": "replaced"}
        if before == "drop":
            raise DropItem("not wanted")
        return item

    def _lock(self, path: Path, items: str) -> None:
        self.items += 1
        if items.isdigit():
            addon._RETRY_S = 0.0
        if self.items == 1:
            self.lock = wait_for_lock(path, 0)
        elif items.isdigit() and self.items == int(items) + 1 and self.lock is not None:
            self.lock.close()


class Replace:
    """A spider middleware near the engine that yields different objects than the spider did."""

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for one in result:
            yield dict(one) if isinstance(one, dict) else one


class Told:
    """What became of the items of a crawl."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.kept: list[Any] = []  # [URL of the response, item, match in its meta]
        self.dropped: list[str] = []
        self.failed: list[str] = []
        crawler.signals.connect(self.scraped, signals.item_scraped)
        crawler.signals.connect(self.drop, signals.item_dropped)
        crawler.signals.connect(self.fail, signals.item_error)

    def scraped(self, item: Any, response: Response | None) -> None:
        plain = ItemAdapter(item).asdict() if ItemAdapter.is_item(item) else item
        match = response.meta.get("duplicate_of") if isinstance(response, Response) else None
        self.kept.append([getattr(response, "url", None), plain, match])

    def drop(self, response: Response | None) -> None:
        self.dropped.append(getattr(response, "url", ""))

    def fail(self, response: Response | None) -> None:
        self.failed.append(getattr(response, "url", ""))

    @property
    def has_begun(self) -> bool:
        """Whether the crawl began, that is, was not refused."""
        with suppress(RuntimeError):  # Scrapy 2.19 raises it; older releases do not have stats then
            return self.crawler.stats is not None
        return False

    def to_json(self) -> dict[str, Any]:
        assert self.crawler.stats is not None
        stats = {name: value for name, value in self.crawler.stats.get_stats().items() if not hasattr(value, "year")}
        middleware = self.crawler.get_spider_middleware(addon.ItemResponseMiddleware)
        held = len(middleware._outputs) if middleware else None
        return {"kept": self.kept, "dropped": self.dropped, "failed": self.failed, "held": held, "stats": stats}


def main() -> None:
    crawls = [Crawl(**one) for one in json.loads(sys.argv[1])]
    threads = set[bool]()
    extract = addon.text_of_page

    def noted(page: str) -> str:
        threads.add(threading.current_thread() is threading.main_thread())
        return extract(page)

    addon.text_of_page = noted
    logging.getLogger("htmldate").setLevel(logging.INFO)
    for_all = {name: value for name, value in crawls[0].settings.items() if name in FOR_ALL}
    has_reactor = for_all.get("TWISTED_REACTOR_ENABLED", True)
    made = CrawlerProcess if has_reactor else AsyncCrawlerProcess
    process = made({"LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False, **for_all})
    told = []
    for one in crawls:
        settings = {
            "ADDONS": {"hsimhash.contrib.scrapy.HSimHashAddon": 300},
            "ITEM_PIPELINES": {Before: 100},
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            "DOWNLOAD_DELAY": 0,
            **one.settings,
        }
        if one.before == "middleware":
            settings["SPIDER_MIDDLEWARES"] = {Replace: 10}
        crawler = process.create_crawler(type("Pages", (Pages,), {"custom_settings": settings, "crawl": one}))
        process.crawl(crawler)
        told.append(Told(crawler))
    process.start()
    if not all(one.has_begun for one in told):
        return  # Scrapy has logged the reason
    levels = [logging.getLogger(name).level for name in ("trafilatura", "htmldate")]
    crawled = [{**one.to_json(), "levels": levels, "on_main": [*threads]} for one in told]
    print(json.dumps(crawled, default=repr))


if __name__ == "__main__":
    main()
