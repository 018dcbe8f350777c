"""The add-on for Scrapy: real crawls of real pages, each in a process of its own, for a reactor runs once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hsimhash.index import HSimIndex
from tests.support.effort import thorough

EXAMPLE = Path(__file__).parent / "examples" / "scrapy_pages.py"
CRAWL_S = 280
CRAWL = """
import json, sys
import scrapy
from scrapy.crawler import CrawlerProcess
from hsimhash.contrib.scrapy import HSimHashPipeline

class Pages(scrapy.Spider):
    name = "pages"
    start_urls = ["data:text/html,<p>page</p>"]

    def parse(self, response):
        yield from ITEMS

class Away:
    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_item(self, item):
        if IS_AWAY:
            self.crawler.get_item_pipeline(HSimHashPipeline)._index.close()
        return item

class Keep:
    def process_item(self, item):
        kept.append(item)
        return item

ITEMS, IS_AWAY, SETTINGS = json.loads(sys.argv[1])
kept = []
process = CrawlerProcess({
    "ADDONS": {"hsimhash.contrib.scrapy.HSimHashAddon": 300},
    "ITEM_PIPELINES": {Away: 100, Keep: 900},
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
    **SETTINGS,
})
crawler = process.create_crawler(Pages)
process.crawl(crawler)
process.start()
stats = crawler.stats.get_stats()
counts = {name: stats[name] for name in stats if name.startswith("hsimhash/")}
print(json.dumps({"kept": kept, "reason": stats.get("finish_reason"), **counts}))
"""


def ran(*command: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, *command], cwd=EXAMPLE.parents[1], capture_output=True, text=True, timeout=CRAWL_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout), done.stderr


def crawled(store: str, items: list[dict[str, str]], *, is_away: bool = False, **settings: str) -> dict[str, Any]:
    return ran("-c", CRAWL, json.dumps([items, is_away, {"HSIMHASH_STORE": store, **settings}]))[0]


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


def test_ids_are_canonical_urls_or_what_a_field_says(tmp_path: Path) -> None:
    store = f"lmdb://{tmp_path}/index"
    text = " ".join(f"word{number} here" for number in range(60))
    names = {"https://example.org/a?b=2&a=1#part": text, "own id": text, "without letters": "…"}
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
    crawl = crawled(f"lmdb://{tmp_path}/index", [item], is_away=True, HSIMHASH_ON_ERROR=action)
    assert crawl["kept"] == [item] * kept
    assert (crawl["reason"], crawl["hsimhash/error"]) == (reason, 1)


def test_a_wrong_setting_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="HSIMHASH_ACTION = 'lose': it should be drop or tag"):
        crawled(f"lmdb://{tmp_path}/index", [], HSIMHASH_ACTION="lose")
