"""The Scrapy add-on: real crawls of real pages, each in its own process because a reactor runs only once."""

from __future__ import annotations

import gc
import json
import logging
import re
import signal
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler as ScrapyCrawler
from scrapy.http import Request, Response
from scrapy.settings import Settings, default_settings

from hsimhash.contrib.scrapy import HSimHashAddon, HSimHashPipeline, ItemResponseMiddleware
from hsimhash.index import HSimIndex
from hsimhash.inputs.extraction import text_of_page
from tests.stress.scrapy_items import CALLBACKS, REACTORS, crawled, crawls_of, group, site, verdict
from tests.support.effort import thorough, tries
from tests.support.processes import wait_until
from tests.support.programs import faults
from tests.support.scrapy_crawl import CLASSES, KINDS, UNTAGGABLE, Crawl

EXAMPLE = Path(__file__).parent / "examples" / "scrapy_pages.py"
CRAWL_S = 280
PAGE = "data:text/html,<p>page</p>"
TEXT = " ".join(f"word{number} here" for number in range(60))
PAGES = tries(40, 10)


def ran(*command: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, *command], cwd=EXAMPLE.parents[1], capture_output=True, text=True, timeout=CRAWL_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout), done.stderr


def crawl_of_items(
    store: str | Path, items: Sequence[Mapping[str, Any]], before: str = "", callback: str = "parse", **settings: str
) -> tuple[dict[str, Any], str]:
    """Crawl a page that yields these items; return the kept items, the stats, and the log."""
    given = {"HSIMHASH_STORE": str(store), **settings}
    (told,), log = crawled(
        [Crawl([PAGE], settings=given, items=list(map(dict, items)), before=before, callback=callback)]
    )
    return {"kept": [item for _, item, _ in told["kept"]], **told["stats"]}, log


@thorough
def test_the_example_drops_all_planted_near_duplicates_and_no_other_page(tmp_path: Path) -> None:
    store = f"lmdb://{tmp_path}/index"
    crawl, told = ran(str(EXAMPLE), "--json", "--store", store)
    assert (crawl["hsimhash/new"], crawl["hsimhash/duplicate"]) == (300, 200)
    assert sorted(map(group, crawl["kept"])) == sorted(map(str, range(300)))  # exactly one of each group
    assert crawl["hsimhash/calls"] < 500  # items share calls
    assert "Warning" not in told
    assert "Traceback" not in told

    again, _ = ran(str(EXAMPLE), "--json", "--store", store, "--port", str(crawl["port"]), "--action", "tag")
    assert len(again["kept"]) == 500
    assert set(again["kept"]) - set(again["tagged"]) == set(crawl["kept"])  # a page is not a duplicate of itself
    assert all(group(one) == group(other) for one, other in again["tagged"].items())


@thorough
def test_ids_are_canonical_urls_or_what_a_field_says(tmp_path: Path) -> None:
    store = f"lmdb://{tmp_path}/index"
    names = {"https://example.org/a?b=2&a=1#part": TEXT, "own id": TEXT, "without letters": "…"}
    crawl, _ = crawl_of_items(
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


UNUSABLE_TEXT = {"url": "https://example.org/a", "text": {"not": "a text"}}


@pytest.mark.parametrize("before", ["away", ""])
@pytest.mark.parametrize(("action", "kept"), [("pass", 1), ("drop", 0), pytest.param("close", 0, marks=thorough)])
def test_what_becomes_of_an_item_that_cannot_be_compared(action: str, kept: int, before: str, tmp_path: Path) -> None:
    item = {"url": "https://example.org/a", "text": TEXT} if before else UNUSABLE_TEXT
    crawl, _ = crawl_of_items(f"lmdb://{tmp_path}/index", [item], before, HSIMHASH_ON_ERROR=action)
    assert crawl["kept"] == [item] * kept
    closed = "hsimhash_store_unavailable" if before else "hsimhash_not_compared"
    assert crawl["finish_reason"] == (closed if action == "close" else "finished")
    assert crawl["hsimhash/error"] == 1


def crawl_while_locked(folder: Path, pages: int, before: str = "locked", **settings: str) -> tuple[dict[str, Any], str]:
    """Crawl pages while the index is locked, so that each call fails after half a second; return the crawl, the log."""
    HSimIndex.create(folder).close()
    given = {"HSIMHASH_STORE": f"lmdb://{folder}?lock_timeout=500ms", "LOG_LEVEL": "INFO", **settings}
    with site(pages) as (first, _):
        (told,), log = crawled([Crawl([first], settings=given, before=before)])
    return told, log


@pytest.mark.parametrize(("action", "kept"), [("pass", PAGES), ("drop", 0)])
def test_an_outage_is_waited_for_and_logged_once(action: str, kept: int, tmp_path: Path) -> None:
    told, log = crawl_while_locked(tmp_path / "index", PAGES, HSIMHASH_ON_ERROR=action)
    stats = told["stats"]
    assert (stats["hsimhash/error"], len(told["kept"])) == (PAGES, kept)
    assert stats["hsimhash/calls"] <= 1 + stats["elapsed_time_seconds"] // 30
    assert log.count("] ERROR: ") == 1
    verb = {"pass": "passed on", "drop": "dropped"}[action]
    assert (
        f"until a call succeeds (30 s after each failure, one is tried), items are {verb} without being compared" in log
    )
    assert f"the crawl ends during an outage: {PAGES} items could not be compared in" in log
    assert "Dropped" not in log


def test_a_crawl_that_closes_because_of_an_outage_does_not_call_the_store_again(tmp_path: Path) -> None:
    told, log = crawl_while_locked(tmp_path / "index", PAGES, HSIMHASH_ON_ERROR="close")
    stats = told["stats"]
    assert stats["finish_reason"] == "hsimhash_store_unavailable"
    assert (stats["hsimhash/calls"], told["kept"]) == (1, [])
    assert stats["hsimhash/error"] == len(told["dropped"]) > 1  # of pages that were fetched meanwhile
    assert log.count("] ERROR: ") == log.count("the spider closes, and its other items are dropped") == 1
    assert "Dropped" not in log


def test_an_outage_ends_when_a_call_succeeds(tmp_path: Path) -> None:
    HSimIndex.create(tmp_path / "index").close()
    items = [{"url": f"https://example.org/{number}", "text": TEXT.replace("w", str(number))} for number in range(6)]
    crawl, log = crawl_of_items(
        f"lmdb://{tmp_path}/index?lock_timeout=100ms", items, "locked for 3", LOG_LEVEL="INFO", CONCURRENT_ITEMS="1"
    )
    assert (crawl["hsimhash/error"], crawl["hsimhash/new"], crawl["hsimhash/calls"]) == (3, 3, 6)
    assert log.count("] ERROR: ") == 1
    assert log.count("the index is available again: 3 items could not be compared in ") == 1
    assert "during an outage" not in log


def test_an_index_that_is_dropped_during_the_crawl_is_explained_once(tmp_path: Path) -> None:
    items = [{"url": f"https://example.org/{number}", "text": TEXT} for number in range(3)]
    crawl, log = crawl_of_items(tmp_path / "index", items, "dropped", LOG_LEVEL="WARNING")
    assert (crawl["hsimhash/error"], len(crawl["kept"])) == (3, 3)
    assert log.count("until the crawl is restarted, items are passed on without being compared") == 1
    assert log.count("] ERROR: ") == 1
    crawl, _ = crawl_of_items(tmp_path / "other", items, "dropped", HSIMHASH_ON_ERROR="drop")
    assert crawl["item_dropped_reasons_count/NotCompared"] == 3


def test_items_that_share_an_id_are_pointed_out_and_those_without_a_text_get_the_right_reason(tmp_path: Path) -> None:
    _, log = crawl_of_items(tmp_path / "ids", [{"name": number, "text": TEXT} for number in range(3)], LOG_LEVEL="INFO")
    assert log.count("set HSIMHASH_ID_FIELD to the name of a field with an id") == 1
    items = [{"url": f"https://example.org/{number}"} for number in range(3)]
    crawl, log = crawl_of_items(tmp_path / "texts", items, LOG_LEVEL="INFO")
    assert (crawl["hsimhash/short"], log.count("kept but not compared: https://example.org/")) == (2, 2)
    assert log.count(", the response's text was already used") == 0
    assert log.count(": the response's text was already used for another item on the page, https://example.org/") == 2
    assert "its text is missing" not in log
    _, log = crawl_of_items(tmp_path / "ids", [{"text": TEXT}], LOG_LEVEL="INFO")
    assert "HSIMHASH_ID_FIELD" not in log


def test_items_of_a_page_whose_ids_have_the_same_canonical_form_are_pointed_out_once(tmp_path: Path) -> None:
    items = [{"url": f"https://example.org/list#post{number}", "text": f"{TEXT} {number}"} for number in range(3)]
    _, log = crawl_of_items(tmp_path / "index", items, LOG_LEVEL="WARNING")
    assert log.count("items that share an id after it is made canonical") == 1
    assert "become https://example.org/list; set HSIMHASH_ID_FIELD to the name of a field whose values differ" in log
    items = [{"url": "https://example.org/list#post0", "text": TEXT}] * 2
    _, log = crawl_of_items(tmp_path / "index", items, LOG_LEVEL="WARNING")
    assert "items that share an id" not in log


def test_a_near_duplicate_that_is_tagged_is_logged(tmp_path: Path) -> None:
    items = [{"url": f"https://example.org/{number}", "text": TEXT} for number in range(2)]
    crawl, log = crawl_of_items(tmp_path / "index", items, LOG_LEVEL="INFO", HSIMHASH_ACTION="tag")
    assert len(crawl["kept"]) == 2
    assert log.count("is a near-duplicate of https://example.org/") == 1


WRONG_FIELDS = {"HSIMHASH_TEXT_FIELD": "boddy", "HSIMHASH_ID_FIELD": "link"}


def test_a_field_that_no_item_has_is_named_once(tmp_path: Path) -> None:
    items = [{"url": f"https://example.org/{number}", "body": TEXT} for number in range(3)]
    _, log = crawl_of_items(tmp_path / "index", items, LOG_LEVEL="WARNING", **WRONG_FIELDS)
    for name, setting, used in ("boddy", "HSIMHASH_TEXT_FIELD", "text"), ("link", "HSIMHASH_ID_FIELD", "URL"):
        said = (
            f"an item does not have the field {name} ({setting}); its fields are url, body; the {used} of the response"
        )
        assert log.count(said) == 1
    _, log = crawl_of_items(
        tmp_path / "index", [{"title": "page"}], LOG_LEVEL="WARNING"
    )  # default names refer to the response
    assert "an item has no field" not in log


def crawler_of(**settings: object) -> ScrapyCrawler:
    crawler = ScrapyCrawler(Spider, settings)
    HSimHashAddon().update_settings(crawler.settings)
    return crawler


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"HSIMHASH_ACTON": "tag"}, "unknown setting HSIMHASH_ACTON; did you mean HSIMHASH_ACTION? available: HSIM"),
        ({"HSIMHASH_STROE": "x"}, "unknown setting HSIMHASH_STROE; did you mean HSIMHASH_STORE? available: HSIM"),
        (
            {"HSIMHASH_DISTANCE": 1},
            "unknown setting HSIMHASH_DISTANCE; create the index with 'hsimhash create-table --distance' before the "
            "crawl",
        ),
        ({"HSIMHASH_TEXT_FIELD": ""}, "HSIMHASH_TEXT_FIELD must be the name of a field, got ''"),
        ({"HSIMHASH_ID_FIELD": ["url"]}, "HSIMHASH_ID_FIELD must be the name of a field, got ['url']"),
    ],
)
@pytest.mark.every_case
def test_an_unknown_setting_and_an_invalid_field_name_end_the_crawl(
    given: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        HSimHashAddon().update_settings(Settings({"HSIMHASH_ACTION": "tag", "OTHER": 1, **given}))
    (said,) = caplog.messages
    assert said.startswith(f"the crawl ends: {reason}")


def test_only_one_item_of_a_page_is_compared_by_the_text_of_the_page(tmp_path: Path) -> None:
    page = f"data:text/html,<p>{TEXT}</p>"
    items = [{"url": f"https://example.org/{number}", "name": f"product {number}"} for number in range(5)]
    given = {"HSIMHASH_STORE": f"lmdb://{tmp_path}/index", "HSIMHASH_ON_ERROR": "drop", "LOG_LEVEL": "WARNING"}
    (told,), log = crawled([Crawl([page], settings=given, items=items)])
    assert sorted(item["url"] for _, item, _ in told["kept"]) == [item["url"] for item in items]
    assert (told["stats"]["hsimhash/new"], told["stats"]["hsimhash/short"]) == (1, 4)
    assert log.count("set HSIMHASH_TEXT_FIELD to the name of the field with the text") == 1


def test_the_start_line_says_what_counts_as_a_near_duplicate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    HSimIndex.create(f"lmdb://{tmp_path}/no-key", profile="auto-3:key=off").close()
    for place, words in (
        ("new", "created index .*differ in at most 6 bits, or share a key; their sketches differ in at most 20"),
        ("new", "using index .*differ in at most 6 bits, or share a key; their sketches differ in at most 20"),
        ("no-key", "using index .*differ in at most 6 bits; their sketches differ in at most 20"),
    ):
        pipeline = HSimHashPipeline(crawler_of(HSIMHASH_STORE=f"lmdb://{tmp_path}/{place}"))
        pipeline.open_spider()
        pipeline.close_spider()
        assert re.fullmatch(words, caplog.messages[-1])


@pytest.mark.parametrize(
    ("value", "bits"), [("off", None), (False, None), (3, 3), ("3", 3), (True, ""), (2.5, ""), ("-1", ""), (65, "")]
)
@pytest.mark.every_case
def test_the_limit_for_sketches_is_a_number_or_off(value: object, bits: int | str | None) -> None:
    if bits == "":
        with pytest.raises(ValueError, match="HSIMHASH_MAX_SKETCH must be a number of bits, 0 to 64, or off"):
            crawler_of(HSIMHASH_MAX_SKETCH=value)
    else:
        assert HSimHashPipeline(crawler_of(HSIMHASH_MAX_SKETCH=value))._max_sketch == bits


def test_an_index_of_features_is_refused(tmp_path: Path) -> None:
    HSimIndex.create(f"lmdb://{tmp_path}/index", profile="features-1").close()
    pipeline = HSimHashPipeline(crawler_of(HSIMHASH_STORE=f"lmdb://{tmp_path}/index"))
    with pytest.raises(ValueError, match="has profile features-1, which does not read texts"):
        pipeline.open_spider()
    pipeline.close_spider()


@pytest.mark.parametrize(("bits", "kept"), [("0", 2), ("off", 1)])
def test_items_whose_sketches_differ_more_are_kept(bits: str, kept: int, tmp_path: Path) -> None:
    texts = TEXT, TEXT.replace("word7 ", "another ")
    items = [{"url": f"https://example.org/{number}", "text": text} for number, text in enumerate(texts)]
    crawl, _ = crawl_of_items(f"lmdb://{tmp_path}/index", items, HSIMHASH_MAX_SKETCH=bits)
    assert len(crawl["kept"]) == kept


@pytest.mark.parametrize("settings", [{}, {"HSIMHASH_STORE": "lmdb://x"}, {"HSIMHASH_TEXT_FIELD": "body"}])
def test_the_pipeline_without_the_add_on_is_refused(settings: dict[str, str]) -> None:
    crawler = ScrapyCrawler(Spider, settings)
    with pytest.raises(ValueError, match=r"works only with its add-on.*ADDONS = "):
        HSimHashPipeline.from_crawler(crawler)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"HSIMHASH_ACTON": "tag"}, r"unknown setting HSIMHASH_ACTON; did you mean HSIMHASH_ACTION\? available: "),
        ({"HSIMHASH_ACTION": "lose"}, "HSIMHASH_ACTION must be drop or tag, got 'lose'"),
        ({"HSIMHASH_ON_ERROR": "stop"}, "HSIMHASH_ON_ERROR must be pass, drop or close, got 'stop'"),
        ({"HSIMHASH_STORE": "ldmb://pages"}, "invalid HSIMHASH_STORE 'ldmb://pages': did you mean lmdb://?"),
        ({"HSIMHASH_STORE": "pages"}, "invalid HSIMHASH_STORE: for a folder, use ./pages or lmdb://"),
        ({"HSIMHASH_STORE": "lmdb:///dev/null/index"}, "index /dev/null/index: Not a directory"),
        ({"HSIMHASH_STORE": "tables://pages"}, "tables://pages is read-only"),
        (
            {"ITEM_PIPELINES": {"hsimhash.contrib.scrapy.HSimHashAddon": 300}},
            "HSimHashAddon is an add-on, not a pipeline: remove it from ITEM_PIPELINES",
        ),
        ({"HSIMHASH_MAX_SKETCH": "65"}, "HSIMHASH_MAX_SKETCH must be a number of bits, 0 to 64, or off, got '65'"),
        (
            {"HSIMHASH_STORE": "redis://127.0.0.1:1/0?prefix=a&ttl=5", "HSIMHASH_ON_ERROR": "pass"},
            "invalid HSIMHASH_STORE: ",
        ),
    ],
)
def test_what_cannot_work_is_refused_once_when_the_crawl_starts(settings: dict[str, Any], reason: str) -> None:
    items = [{"url": f"https://example.org/{number}", "text": TEXT} for number in range(5)]
    given = json.dumps([asdict(Crawl([PAGE], settings=settings, items=items))])
    command = [sys.executable, "-m", "tests.support.scrapy_crawl", given]
    done = subprocess.run(command, cwd=EXAMPLE.parents[2], capture_output=True, text=True, timeout=CRAWL_S, check=False)
    assert re.search(reason, done.stderr.strip().splitlines()[-1])
    assert done.stderr.count("[hsimhash.contrib.scrapy] ERROR: the crawl ends: ") == 1
    assert "not compared" not in done.stderr
    assert not done.stdout or json.loads(done.stdout)[0]["kept"] == []


@thorough
@pytest.mark.parametrize("action", ["drop", "tag"])
def test_items_of_every_kind_are_accounted_for_and_duplicates_are_right(action: str, tmp_path: Path) -> None:
    with site(PAGES) as (first, urls):
        crawls = crawls_of(KINDS, first, tmp_path, action, LOG_LEVEL="INFO")  # all spiders run in one process
        told, log = crawled(crawls)
    assert faults(verdict(one.kind, action, ended, urls) for one, ended in zip(crawls, told, strict=True)) == []
    assert told[0]["on_main"] == [False]  # pages are not extracted in the reactor's thread
    assert told[0]["levels"] == [logging.WARNING, logging.INFO]  # the second one is the user's own
    assert not re.search(r"\[(trafilatura|courlan|htmldate|justext)", log)
    warned = re.findall(r"near-duplicates of class \S+ are kept but not tagged", log)
    assert len(warned) == (len(UNTAGGABLE) if action == "tag" else 0)  # once per crawl
    if action == "tag":
        assert "BareItem are kept but not tagged (" in log
        assert "add a writable field duplicate_of to the class" in log


def test_a_lost_item_a_page_not_fetched_and_a_wrong_match_are_seen() -> None:
    urls = ["http://a/1", "http://a/copy/1", "http://a/2"]
    kept: list[Any] = [[urls[0], {}, None], [urls[1], {"duplicate_of": {"id": urls[0]}}, None], [urls[2], {}, None]]
    stats = {"response_received_count": 3, "hsimhash/new": 2, "hsimhash/duplicate": 1}
    told: dict[str, Any] = {"kept": kept, "dropped": [], "failed": [], "held": 0, "stats": stats}
    assert verdict("dict", "tag", told, urls).is_right
    for wrong in (
        {"kept": kept[:2]},
        {"failed": [urls[0]]},
        {"held": 1},
        {"stats": {**stats, "response_received_count": 2}},
        {"stats": {**stats, "hsimhash/error": 1}},
        {"kept": [kept[0], [urls[1], {"duplicate_of": {"id": urls[2]}}, None], kept[2]]},
        {"kept": [kept[0], [urls[1], {}, {"id": urls[0]}], kept[2]]},
    ):
        assert not verdict("dict", "tag", {**told, **wrong}, urls).is_right, wrong


@thorough
@pytest.mark.parametrize("kind", CLASSES)
def test_only_empty_fields_that_an_item_has_are_filled(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<article><p>{TEXT}.</p></article>")
    url = (tmp_path / "a.html").as_uri()
    (told,), _ = crawled([Crawl([url], kind, {"HSIMHASH_STORE": f"lmdb://{tmp_path}/index"})])
    ((_, item, _),) = told["kept"]
    if kind.startswith(("declared", "slots")):
        assert (item["text"], item["url"]) == (f"{TEXT}.", url)
    else:
        plain = {"dict": {}, "bare-item": {"title": "item"}, "bare-data": {"title": "data"}}
        plain |= {"bare-attrs": {"title": "attrs"}, "frozen-attrs": {"text": "", "title": "attrs"}}
        plain |= {"bare-model": {"title": "model"}, "stubborn-dict": {"text": ""}}
        plain["strict-model"] = {"text": [], "url": url, "duplicate_of": None}
        assert item == plain.get(kind, {"text": "", "url": "", "duplicate_of": None})


@thorough
@pytest.mark.parametrize("reactor", REACTORS, ids=["asyncio", "select"])
def test_every_form_of_callback_works_on_every_reactor(reactor: dict[str, Any], tmp_path: Path) -> None:
    with site(PAGES) as (first, urls):
        crawls = [
            Crawl([first], "dict", {"HSIMHASH_STORE": f"lmdb://{tmp_path}/{callback}", **reactor}, callback)
            for callback in CALLBACKS
        ]
        told, _ = crawled(crawls)
    assert faults(verdict("dict", "drop", ended, urls) for ended in told) == []


@thorough
@pytest.mark.skipif(not hasattr(default_settings, "TWISTED_REACTOR_ENABLED"), reason="Scrapy before 2.15")
def test_a_crawl_without_a_reactor_works(tmp_path: Path) -> None:
    items = [{"url": "https://example.org/a", "text": TEXT}, {"url": "https://example.org/b", "text": TEXT}]
    without = {"HSIMHASH_STORE": f"lmdb://{tmp_path}/index", "TWISTED_REACTOR_ENABLED": False}
    page = f"data:text/html,<article><p>{TEXT.replace('word', 'other')}.</p></article>"
    for given, counts in (({"items": items}, [1, 1, 0]), ({"kind": "dict"}, [1, 0, 0])):
        (told,), _ = crawled([Crawl([page], settings=without, **given)])
        assert [told["stats"].get(f"hsimhash/{name}", 0) for name in ("new", "duplicate", "error")] == counts


@thorough
def test_spiders_of_a_process_share_an_index(tmp_path: Path) -> None:
    with site(PAGES) as (first, urls):
        told, _ = crawled([Crawl([first], settings={"HSIMHASH_STORE": f"lmdb://{tmp_path}/index"})] * 2)
    assert faults(verdict("dict", "drop", ended, urls) for ended in told) == []
    assert [sorted(url for url, _, _ in ended["kept"]) for ended in told] == [stored_in(tmp_path / "index")] * 2


def test_the_log_says_how_alike_a_dropped_item_and_the_stored_one_are(tmp_path: Path) -> None:
    edited = TEXT.replace("word59", "other")
    items = [{"url": "https://example.org/a", "text": TEXT}, {"url": "https://example.org/b", "text": edited}]
    told, log = crawl_of_items(tmp_path / "index", items, LOG_LEVEL="INFO")
    assert len(told["kept"]) == 1
    said = re.search(r"is a near-duplicate of https://example\.org/[ab]: (.*)", log)
    assert said, log
    assert re.match(r"(1 bit|\d+ bits) apart, similarity [01]\.\d\d", said[1])


def stored_in(folder: Path) -> list[str]:
    with HSimIndex.open(folder) as index:
        return sorted(document.doc_id for document in index.documents())


@thorough
def test_a_crawl_that_is_paused_and_resumed_handles_each_page_once(tmp_path: Path) -> None:
    settings = {"JOBDIR": str(tmp_path / "job"), "HSIMHASH_STORE": f"lmdb://{tmp_path}/index"}
    slow = {"DOWNLOAD_DELAY": 0.2, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    HSimIndex.create(tmp_path / "index").close()
    with site(30) as (first, urls), HSimIndex.open(tmp_path / "index") as index:
        given = json.dumps([asdict(Crawl([first], settings={**settings, **slow}))])
        command = [sys.executable, "-m", "tests.support.scrapy_crawl", given]
        paused = subprocess.Popen(command, cwd=EXAMPLE.parents[2], stdout=subprocess.PIPE)
        wait_until(lambda: index.count() >= 3, paused)
        paused.send_signal(signal.SIGINT)
        before = json.loads(paused.communicate(timeout=CRAWL_S)[0])[0]
        (after,), _ = crawled([Crawl([first], settings=settings)])
    assert (before["stats"]["finish_reason"], after["stats"]["finish_reason"]) == ("shutdown", "finished")
    parts = [[*(url for url, _, _ in told["kept"]), *told["dropped"]] for told in (before, after)]
    assert all(parts)
    assert sorted([*parts[0], *parts[1]]) == sorted(urls)
    kept = [group(url) for told in (before, after) for url, _, _ in told["kept"]]
    assert Counter(kept) == Counter(set(map(group, urls)))


@thorough
@pytest.mark.parametrize("callback", ["start", "errback"])
def test_items_without_a_response_are_compared_by_their_own_fields(callback: str, tmp_path: Path) -> None:
    items = [{"url": "https://example.org/a", "text": TEXT}, {"url": "https://example.org/b", "text": TEXT}, {}]
    crawl = Crawl(
        ["http://127.0.0.1:1/"],
        settings={"HSIMHASH_STORE": f"lmdb://{tmp_path}/index", "HSIMHASH_ACTION": "tag", "RETRY_ENABLED": False},
        items=items,
        callback=callback,
    )
    (told,), log = crawled([crawl])
    assert [url for url, _, _ in told["kept"]] == [None] * 3
    assert [told["stats"][f"hsimhash/{name}"] for name in ("new", "duplicate", "error")] == [1, 1, 1]
    assert "the response is unknown: the item comes from an errback or from start()" in log


@thorough
def test_only_html_is_read_as_html(tmp_path: Path) -> None:
    body = f"<p>{TEXT}</p> a < b and <br> stays <article>"
    for name in ("a.html", "b.txt"):
        (tmp_path / name).write_text(body)
    urls = [(tmp_path / name).as_uri() for name in ("a.html", "b.txt")]
    crawled([Crawl(urls, "dict", {"HSIMHASH_STORE": f"lmdb://{tmp_path}/index", "HSIMHASH_ACTION": "tag"})])
    with HSimIndex.open(tmp_path / "index") as index:
        html, text = (index.profile.signature(one) for one in (text_of_page(body), body))
        assert html != text
        stored = {document.doc_id: document.fingerprint for document in index.documents()}
    assert set(stored.items()) <= {(urls[0], html.fingerprint), (urls[1], text.fingerprint)}
    assert stored


def test_an_item_that_cannot_be_used_passes_with_an_error_that_names_the_field(tmp_path: Path) -> None:
    items = [
        {"url": "https://example.org/a", "text": {"not": "a text"}},
        {"url": "https://example.org/b", "text": ["a", 5]},
        {"url": "https://example.org/c", "text": "lone \ud800"},
        {"url": True, "text": TEXT},
        {"url": ["https://example.org/d", "https://example.org/e"], "text": TEXT},
        {"url": "a\nb", "text": TEXT},
        {"url": "c" * 3_000, "text": TEXT},
    ]
    good = [{"url": 0, "text": TEXT}, {"url": ["https://example.org/good"], "text": [TEXT, "and more"]}]
    crawl, log = crawl_of_items(tmp_path / "index", [*items, *good], HSIMHASH_ACTION="tag")
    untagged = [{name: value for name, value in item.items() if name != "duplicate_of"} for item in crawl["kept"]]
    assert sorted(map(str, untagged)) == sorted(map(str, [*items, *good]))
    assert (crawl["hsimhash/error"], crawl["hsimhash/new"], crawl["hsimhash/duplicate"]) == (len(items), 1, 1)
    for reason in (
        '"text" must be a string',
        "lone surrogate",
        '"url" must be a string or a whole',
        "control char",
        "2048",
    ):
        assert reason in log


@thorough
@pytest.mark.parametrize("before", ["replace", "drop", "middleware"])
def test_an_earlier_pipeline_or_middleware_may_replace_or_drop_items(before: str, tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [{"url": "https://example.org/own", "text": TEXT}, {}]
    crawl = Crawl([PAGE], settings={"HSIMHASH_STORE": f"lmdb://{tmp_path}/index"}, items=items, before=before)
    (told,), log = crawled([crawl])
    kept = [item for _, item, _ in told["kept"]]
    assert told["held"] == 0
    counts = [told["stats"].get(f"hsimhash/{name}", 0) for name in ("new", "short", "error")]
    if before == "drop":
        assert (kept, counts) == ([], [0, 0, 0])
    elif before == "replace":
        replaced = [{**item, "title": "replaced"} for item in items]
        assert sorted(map(str, kept)) == sorted(map(str, replaced))
        assert counts == [1, 0, 1]
        assert "or an earlier pipeline replaced it" in log
    else:
        assert sorted(map(str, kept)) == sorted(map(str, items))
        assert counts == [2, 0, 0]


def test_the_pipeline_keeps_the_place_that_the_project_gave_it() -> None:
    settings = Settings({"ITEM_PIPELINES": {"hsimhash.contrib.scrapy.HSimHashPipeline": 850}})
    HSimHashAddon().update_settings(settings)
    assert settings.getdict("ITEM_PIPELINES") == {"hsimhash.contrib.scrapy.HSimHashPipeline": 850}


def test_a_response_is_held_only_as_long_as_scrapy_works_on_it() -> None:
    middleware = ItemResponseMiddleware()
    responses = [Response(f"https://example.org/{number}") for number in range(2)]
    made = [
        list(middleware.process_spider_output(one, [{}, Request("https://example.org/a"), {}])) for one in responses
    ]
    assert middleware.take(made[1][2]) is responses[1]
    assert middleware.take(made[1][2]) is None
    assert middleware.take(made[1][1]) is None
    assert middleware.take({}) is None
    held = [weakref.ref(one) for one in responses]
    responses.clear()
    gc.collect()
    assert [one() for one in held] == [None, None]
    assert middleware.take(made[0][0]) is None


def test_an_item_that_holds_its_response_and_is_replaced_is_not_held_when_it_has_ended() -> None:
    middleware, response = ItemResponseMiddleware(), Response("https://example.org/a")
    made = list(middleware.process_spider_output(response, [{"response": response}] * 2))
    middleware.end(response)
    assert middleware.take(made[1]) is response
    middleware.end(response)
    held = weakref.ref(response)
    del response, made
    gc.collect()
    assert held() is None
