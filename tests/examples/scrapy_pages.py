"""A crawl that drops near-duplicates: `python tests/examples/scrapy_pages.py`, with `pip install 'hsimhash[scrapy]'`.

Serves 500 pages on this machine, crawls them, and prints what the add-on counted; with --json also the kept pages, as
one line. 200 of the pages are a copy of another page with one word changed and a different menu.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

PAGES, COPIES, SEED = 500, 200, 5
SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in ("a", "e", "i", "o", "u", "ar", "en", "il")]


def texts() -> dict[str, str]:
    """Return the pages' texts by path: /0 to /299 differ, /copy/0 is nearly the same as /0, and so on."""
    rng = random.Random(SEED)
    words = ["".join(rng.choices(SYLLABLES, k=3)) for _ in range(20_000)]
    found = {}
    for number in range(PAGES - COPIES):
        chosen = rng.sample(words, 200)
        found[f"/{number}"] = sentences(chosen)
        if number < COPIES:
            found[f"/copy/{number}"] = sentences([*chosen[:100], rng.choice(words), *chosen[101:]])
    return found


def sentences(words: list[str]) -> str:
    return " ".join(" ".join(words[start : start + 20]).capitalize() + "." for start in range(0, len(words), 20))


class Site(BaseHTTPRequestHandler):
    """The pages, and a list of them at /."""

    pages = texts()

    def do_GET(self) -> None:
        text = self.pages.get(self.path)
        if text is None:
            links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in self.pages)
            page = f"<html><body><ul>{links}</ul></body></html>"
        else:
            menu = "<nav>copies home about</nav>" if "copy" in self.path else "<nav>home news help</nav>"
            page = f"<html><body>{menu}<article><p>{text}</p></article></body></html>"
        body = page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not log anything."""


class Pages(scrapy.Spider):
    name = "pages"
    kept: list[dict[str, Any]] = []

    def parse(self, response: Response) -> Iterator[Any]:
        links = response.css("li a::attr(href)").getall()
        yield from response.follow_all(links, self.parse)
        if not links:
            yield {"url": response.url}  # the add-on compares the page's main text and does not add it to the item


class Keep:
    """A pipeline after the add-on's: it gets the items that the add-on lets pass."""

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        Pages.kept.append(item)
        return item


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="lmdb://example-index")
    parser.add_argument("--action", default="drop", help="drop or tag")
    parser.add_argument("--port", type=int, default=0, help="of the pages; the same again for the same ids")
    parser.add_argument("--json", action="store_true", help="print what was kept too, as one line of JSON")
    given = parser.parse_args()
    with ThreadingHTTPServer(("127.0.0.1", given.port), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        crawl = CrawlerProcess(
            {
                "ADDONS": {"hsimhash.contrib.scrapy.HSimHashAddon": 300},
                "HSIMHASH_STORE": given.store,
                "HSIMHASH_ACTION": given.action,
                "ITEM_PIPELINES": {Keep: 900},
                "LOG_LEVEL": "WARNING",
                "TELNETCONSOLE_ENABLED": False,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
                "DOWNLOAD_DELAY": 0,
            }
        )
        crawler = crawl.create_crawler(Pages)
        crawl.crawl(crawler, start_urls=[f"http://127.0.0.1:{server.server_port}/"])
        crawl.start()
        server.shutdown()
    assert crawler.stats is not None
    counts = {name: value for name, value in crawler.stats.get_stats().items() if name.startswith("hsimhash/")}
    kept = sorted(item["url"] for item in Pages.kept)
    tagged = {item["url"]: item["duplicate_of"]["id"] for item in Pages.kept if "duplicate_of" in item}
    if given.json:
        print(json.dumps({"port": server.server_port, "kept": kept, "tagged": tagged, **counts}))
    else:
        new, found = counts.get("hsimhash/new", 0), counts.get("hsimhash/duplicate", 0)
        print(f"{len(Site.pages)} pages: {new} new, {found} near-duplicates; {len(kept)} kept, {len(tagged)} tagged")
        print(
            f"the index is {given.store}; run again with --port {server.server_port}, and every page meets itself alone"
        )


if __name__ == "__main__":
    main()
