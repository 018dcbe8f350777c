"""The add-on for Scrapy: real crawls of real pages, each in a process of its own, for a reactor runs once."""

from __future__ import annotations

import gc
import json
import logging
import random
import re
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scrapy.http import Response

from hsimhash.contrib.scrapy import ItemResponseMiddleware
from hsimhash.index import HSimIndex
from hsimhash.inputs.extraction import text_of_page
from tests.support.effort import thorough

EXAMPLE = Path(__file__).parent / "examples" / "scrapy_pages.py"
CRAWL_S = 280
CRAWL = """
import json, logging, sys, threading
from dataclasses import dataclass

import attrs
import pydantic
import scrapy
import hsimhash.contrib.scrapy as addon
from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.crawler import CrawlerProcess
from hsimhash.contrib.scrapy import HSimHashPipeline

class DeclaredItem(scrapy.Item):
    text, url, duplicate_of = scrapy.Field(), scrapy.Field(), scrapy.Field()

class BareItem(scrapy.Item):
    title = scrapy.Field()

@dataclass
class DeclaredData:
    text: str | None = None
    url: str | None = None
    duplicate_of: dict | None = None

@dataclass
class BareData:
    title: str = "data"

@attrs.define
class DeclaredAttrs:
    text: str = ""
    url: str = ""
    duplicate_of: dict | None = None

@attrs.frozen
class FrozenAttrs:
    text: str = ""
    title: str = "attrs"

class DeclaredModel(pydantic.BaseModel):
    text: str = ""
    url: str = ""
    duplicate_of: dict | None = None

class BareModel(pydantic.BaseModel):
    title: str = "model"

KINDS = {
    "empty-dict": dict,
    "declared-dict": lambda: {"text": "", "url": None},
    "declared-item": DeclaredItem,
    "bare-item": BareItem,
    "declared-data": DeclaredData,
    "bare-data": BareData,
    "declared-attrs": DeclaredAttrs,
    "frozen-attrs": FrozenAttrs,
    "declared-model": DeclaredModel,
    "bare-model": BareModel,
}

class Pages(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        if ITEMS:
            yield from ITEMS
        else:
            yield KINDS[response.url.rpartition("/")[2].rpartition(".")[0].rpartition("-")[0]]()

class Before:
    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_item(self, item):
        if BEFORE == "away":
            self.crawler.get_item_pipeline(HSimHashPipeline)._index.close()
        if BEFORE == "replace":
            return {**item, "title": "replaced"}
        if BEFORE == "drop":
            raise scrapy.exceptions.DropItem("not wanted")
        return item

class Keep:
    def process_item(self, item):
        kept.append(ItemAdapter(item).asdict())
        return item

def scraped(item, response):
    metas.append([response.url, response.meta.get("duplicate_of")])

def extract(page):
    threads.add(threading.current_thread() is threading.main_thread())
    return plain_extract(page)

URLS, ITEMS, BEFORE, SETTINGS = json.loads(sys.argv[1])
kept, metas, threads = [], [], set()
plain_extract, addon.text_of_page = addon.text_of_page, extract
logging.getLogger("htmldate").setLevel(logging.INFO)
process = CrawlerProcess({
    "ADDONS": {"hsimhash.contrib.scrapy.HSimHashAddon": 300},
    "ITEM_PIPELINES": {Before: 100, Keep: 900},
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
    **SETTINGS,
})
crawler = process.create_crawler(Pages)
process.crawl(crawler, start_urls=URLS)
crawler.signals.connect(scraped, signals.item_scraped)
process.start()
stats = crawler.stats.get_stats()
counts = {name: stats[name] for name in stats if name.startswith("hsimhash/")}
levels = [logging.getLogger(name).level for name in ("trafilatura", "htmldate")]
print(json.dumps({
    "kept": kept, "metas": metas, "reason": stats.get("finish_reason"), "levels": levels, "on_main": [*threads],
    **counts
}))
"""
KINDS = [
    *("empty-dict", "declared-dict", "declared-item", "bare-item", "declared-data", "bare-data", "declared-attrs"),
    *("frozen-attrs", "declared-model", "bare-model"),
]
PAGE = "data:text/html,<p>page</p>"
TEXT = " ".join(f"word{number} here" for number in range(60))


def ran(*command: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, *command], cwd=EXAMPLE.parents[1], capture_output=True, text=True, timeout=CRAWL_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout), done.stderr


def told_by_crawl(
    store: str | Path,
    urls: Sequence[str] = (PAGE,),
    items: Sequence[Mapping[str, object]] = (),
    before: str = "",
    **settings: str,
) -> tuple[dict[str, Any], str]:
    given = {"HSIMHASH_STORE": str(store), **settings}
    return ran("-c", CRAWL, json.dumps([urls, items, before, given]))


def crawled(
    store: str | Path, items: Sequence[Mapping[str, object]], before: str = "", **settings: str
) -> dict[str, Any]:
    return told_by_crawl(store, items=items, before=before, **settings)[0]


def pages_of_each_kind(folder: Path) -> list[str]:
    """Write two near pages for each kind of item; return their URLs."""
    rng = random.Random(5)
    urls = []
    for kind in KINDS:
        words = [f"{kind}{rng.randrange(10**6)} and" for _ in range(80)]
        for place, menu in enumerate(("home news", "about")):
            text = ". ".join(" ".join(words[start : start + 10]).capitalize() for start in range(0, 80, 10))
            path = folder / f"{kind}-{place}.html"
            path.write_text(f"<html><body><nav>{menu}</nav><article><p>{text}.</p></article></body></html>")
            urls.append(path.as_uri())
    return urls


def group(url: str) -> str:
    return url.rpartition("/")[2]


@thorough
def test_the_example_drops_all_planted_near_duplicates_and_no_other_page(tmp_path: Path) -> None:
    store = f"lmdb://{tmp_path}/index"
    crawl, told = ran(str(EXAMPLE), "--json", "--store", store)
    assert (crawl["hsimhash/new"], crawl["hsimhash/duplicate"]) == (300, 200)
    assert sorted(map(group, crawl["kept"])) == sorted(map(str, range(300)))  # one of each group, and those alone
    assert crawl["hsimhash/calls"] < 500  # items share calls
    assert "Warning" not in told
    assert "Traceback" not in told

    again, _ = ran(str(EXAMPLE), "--json", "--store", store, "--port", str(crawl["port"]), "--action", "tag")
    assert len(again["kept"]) == 500
    assert set(again["kept"]) - set(again["tagged"]) == set(crawl["kept"])  # a page is no duplicate of itself
    assert all(group(one) == group(other) for one, other in again["tagged"].items())


@thorough
def test_ids_are_canonical_urls_or_what_a_field_says(tmp_path: Path) -> None:
    store = f"lmdb://{tmp_path}/index"
    names = {"https://example.org/a?b=2&a=1#part": TEXT, "own id": TEXT, "without letters": "…"}
    crawl = crawled(
        store,
        [{"name": name, "body": body} for name, body in names.items()],
        HSIMHASH_ID_FIELD="name",
        HSIMHASH_TEXT_FIELD="body",
        HSIMHASH_ACTION="tag",
    )
    with HSimIndex.open(store) as index:
        (stored,) = [document.doc_id for document in index.documents()]
    assert stored in ("https://example.org/a?a=1&b=2", "own id")
    tags = [item["duplicate_of"]["id"] for item in crawl["kept"] if "duplicate_of" in item]
    assert tags == [stored]
    assert len(crawl["kept"]) == 3
    assert crawl["hsimhash/short"] == 1


@pytest.mark.parametrize(
    ("action", "kept", "reason"),
    [("pass", 1, "finished"), ("drop", 0, "finished"), ("close", 0, "hsimhash_store_away")],
)
def test_what_becomes_of_an_item_when_the_store_is_away(action: str, kept: int, reason: str, tmp_path: Path) -> None:
    item = {"url": "https://example.org/a", "text": "some words that are long enough to be fingerprinted at all"}
    crawl = crawled(f"lmdb://{tmp_path}/index", [item], "away", HSIMHASH_ON_ERROR=action)
    assert crawl["kept"] == [item] * kept
    assert (crawl["reason"], crawl["hsimhash/error"]) == (reason, 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"HSIMHASH_ACTION": "lose"}, "HSIMHASH_ACTION must be drop or tag, got 'lose'"),
        ({"HSIMHASH_STORE": "pages"}, "HSIMHASH_STORE does not name an index: for a folder, use ./pages or lmdb://"),
        ({"HSIMHASH_STORE": "redis://127.0.0.1:1/0?prefix=a"}, "HSIMHASH_STORE is on Redis, .*; use lmdb://, hbase"),
        ({"HSIMHASH_STORE": "lmdb:///dev/null/index"}, "index /dev/null/index: Not a directory"),
    ],
)
def test_what_cannot_work_is_refused_once_when_the_crawl_starts(settings: dict[str, str], reason: str) -> None:
    items = [{"url": f"https://example.org/{number}", "text": TEXT} for number in range(5)]
    given = json.dumps([[PAGE], items, "", settings])
    done = subprocess.run([sys.executable, "-c", CRAWL, given], capture_output=True, text=True, timeout=CRAWL_S)
    assert re.search(reason, done.stderr.strip().splitlines()[-1])
    assert "not compared" not in done.stderr
    assert "item_scraped" not in done.stdout
    assert not done.stdout or json.loads(done.stdout)["kept"] == []


def test_items_of_every_kind_are_dropped_and_otherwise_stay_as_they_are(tmp_path: Path) -> None:
    urls = pages_of_each_kind(tmp_path)
    crawl, told = told_by_crawl(tmp_path / "index", urls, HSIMHASH_ACTION="drop", LOG_LEVEL="DEBUG")
    assert (crawl["hsimhash/new"], crawl["hsimhash/duplicate"]) == (len(KINDS), len(KINDS))
    assert "hsimhash/error" not in crawl
    filled = [item for item in crawl["kept"] if "url" in item]
    assert len(filled) == len([kind for kind in KINDS if kind.startswith("declared")])
    assert all(len(item["text"]) > 500 and item["url"].startswith("file://") for item in filled)
    others = [item for item in crawl["kept"] if "url" not in item]
    bare = [{}, {}, {"title": "data"}, {"text": "", "title": "attrs"}, {"title": "model"}]
    assert sorted(map(str, others)) == sorted(map(str, bare))
    assert crawl["on_main"] == [False]  # pages are not extracted in the reactor's thread
    assert crawl["levels"] == [logging.WARNING, logging.INFO]  # the second one is the user's own
    assert not re.search(r"\[(trafilatura|courlan|htmldate|justext)", told)


@thorough
def test_items_of_every_kind_are_tagged_in_the_item_or_its_response(tmp_path: Path) -> None:
    urls = pages_of_each_kind(tmp_path)
    crawl, told = told_by_crawl(tmp_path / "index", urls, HSIMHASH_ACTION="tag", LOG_LEVEL="INFO")
    assert len(crawl["kept"]) == len(urls)
    assert crawl["hsimhash/duplicate"] == len(KINDS)
    in_items = [item["duplicate_of"] for item in crawl["kept"] if item.get("duplicate_of")]
    in_responses = {url: tag for url, tag in crawl["metas"] if tag}
    without = {kind for kind in KINDS if kind.startswith(("bare", "frozen"))}
    assert {group(url).rpartition("-")[0] for url in in_responses} == without
    assert len(in_items) == len(KINDS) - len(without)
    assert all(
        group(tag["id"]).rpartition("-")[0] == group(url).rpartition("-")[0] for url, tag in in_responses.items()
    )
    assert "bits differ (BareItem has no field 'duplicate_of')" in told


@thorough
def test_only_html_is_read_as_html(tmp_path: Path) -> None:
    body = f"<p>{TEXT}</p> a < b and <br> stays"
    for name in ("empty-dict-0.html", "empty-dict-1.txt"):
        (tmp_path / name).write_text(body)
    urls = [(tmp_path / name).as_uri() for name in ("empty-dict-0.html", "empty-dict-1.txt")]
    told_by_crawl(tmp_path / "index", urls, HSIMHASH_ACTION="tag")
    with HSimIndex.open(tmp_path / "index") as index:
        html, text = (index.profile.signature(one) for one in (text_of_page(body), body))
        assert html != text
        stored = {document.doc_id: document.fingerprint for document in index.documents()}
    assert set(stored.items()) <= {(urls[0], html.fingerprint), (urls[1], text.fingerprint)}
    assert stored


@thorough
def test_an_item_that_cannot_be_used_passes_with_an_error_that_names_the_field(tmp_path: Path) -> None:
    items = [
        {"url": "https://example.org/a", "text": ["a", "list"]},
        {"url": 5, "text": TEXT},
        {"url": "a\nb", "text": TEXT},
        {"url": "c" * 3_000, "text": TEXT},
        {"url": "https://example.org/good", "text": TEXT},
    ]
    crawl, told = told_by_crawl(tmp_path / "index", items=items)
    assert sorted(map(str, crawl["kept"])) == sorted(map(str, items))
    assert (crawl["hsimhash/error"], crawl["hsimhash/new"]) == (4, 1)
    for reason in ("field 'text' must be a str, got", "field 'url' must be a str, got 5", "control characters", "2048"):
        assert reason in told


@thorough
@pytest.mark.parametrize("before", ["replace", "drop"])
def test_an_earlier_pipeline_may_replace_or_drop_items(before: str, tmp_path: Path) -> None:
    items = [{"url": "https://example.org/own", "text": TEXT}, {}]
    crawl, told = told_by_crawl(tmp_path / "index", items=items, before=before)
    if before == "drop":
        assert crawl["kept"] == []
        assert "hsimhash/new" not in crawl
    else:
        replaced = [{**item, "title": "replaced"} for item in items]
        assert sorted(map(str, crawl["kept"])) == sorted(map(str, replaced))
        assert (crawl["hsimhash/new"], crawl["hsimhash/error"]) == (1, 1)
        assert "no field 'url', and an earlier pipeline replaced" in told


def test_a_response_is_held_only_as_long_as_scrapy_works_on_it() -> None:
    middleware = ItemResponseMiddleware()
    responses = [Response(f"https://example.org/{number}") for number in range(2)]
    made = [list(middleware.process_spider_output(one, [{}, {}])) for one in responses]
    assert middleware.take(made[1][1]) is responses[1]
    assert middleware.take(made[1][1]) is None
    assert middleware.take({}) is None
    held = [weakref.ref(one) for one in responses]
    responses.clear()
    gc.collect()
    assert [one() for one in held] == [None, None]
    assert middleware.take(made[0][0]) is None
