"""Crawls with every kind of item: `python -m tests.stress.scrapy_items [--pages 500]`.

A local site has groups of near pages, with one or two pages per group. For each kind of item in
`tests/support/scrapy_crawl.py`, one crawl drops near-duplicates and one tags them. Every page must be fetched, every
item must be accounted for, and in each group all but one must be found to be duplicates. The kinds take turns with the
forms of callbacks and with the reactors.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from http.server import ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

from tests.examples.scrapy_pages import Site, texts
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.scrapy_crawl import KINDS, UNTAGGABLE, UNUSABLE, Crawl

PAGES = 500
LINKS = 4  # per page, each the only link to its target: a page that loses its links loses all pages behind them
CRAWL_S = 200
CALLBACKS = ("parse", "parse_async", "parse_list", "parse_coroutine")
REACTORS: tuple[dict[str, Any], ...] = ({}, {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"})


class Server(ThreadingHTTPServer):
    """Accepts connections of many crawls at once; with a shorter queue some would time out only after minutes."""

    request_queue_size = 1_024


@contextmanager
def site(pages: int) -> Iterator[tuple[str, list[str]]]:
    """Serve that many pages; yield the URL of the first one, which leads to all others, and the URLs of all."""
    shown = dict(islice(texts().items(), pages))
    paths = list(shown)

    class Tree(Site):
        """Pages that form a tree: each is linked from only one other page."""

        def do_GET(self) -> None:  # noqa: N802 (a name of http.server)
            place = paths.index(self.path)
            below = paths[LINKS * place + 1 : LINKS * place + 1 + LINKS]
            links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in below)
            article = "".join(f"<p>{part}.</p>" for part in shown[self.path].split(".") if part.strip())
            body = f"<html><body><nav><ul>{links}</ul></nav><article>{article}</article></body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with Server(("127.0.0.1", 0), Tree) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        yield base + paths[0], [base + path for path in paths]
        server.shutdown()


def crawled(crawls: Sequence[Crawl]) -> tuple[list[dict[str, Any]], str]:
    """Run crawls in one process; return what became of the items of each, and the log."""
    command = [sys.executable, "-m", "tests.support.scrapy_crawl", json.dumps([asdict(one) for one in crawls])]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=CRAWL_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout), done.stderr


def crawls_of(kinds: Iterable[str], url: str, folder: Path, action: str, **settings: object) -> list[Crawl]:
    """Return a crawl for each kind of item, with its own index; callbacks take turns."""
    return [
        Crawl(
            [url],
            kind,
            {"HSIMHASH_STORE": f"lmdb://{folder}/{kind}-{action}", "HSIMHASH_ACTION": action, **settings},
            CALLBACKS[place % len(CALLBACKS)],
        )
        for place, kind in enumerate(kinds)
    ]


def group(url: str) -> str:
    return url.rpartition("/")[2]


def verdict(kind: str, action: str, told: dict[str, Any], urls: Sequence[str]) -> Outcome:
    """Judge whether every item of a crawl was accounted for, and the right ones were duplicates."""
    kept, stats = [url for url, _, _ in told["kept"]], told["stats"]
    faults = []
    if Counter([*kept, *told["dropped"]]) != Counter(urls) or told["failed"]:
        faults.append(f"{len(kept)} kept, {len(told['dropped'])} dropped, {len(told['failed'])} failed")
    if stats.get("response_received_count") != len(urls) or "spider_exceptions/count" in stats:
        faults.append(f"{stats.get('response_received_count')} pages fetched, or an error in the spider")
    if told["held"]:
        faults.append(f"{told['held']} responses are still held")
    counts = [stats.get(f"hsimhash/{name}", 0) for name in ("new", "duplicate", "error", "short")]
    groups = len(set(map(group, urls)))
    compared = [groups, len(urls) - groups, 0, 0]
    if counts != ([0, 0, len(urls), 0] if kind in UNUSABLE else compared):
        faults.append(f"counted {counts}")
    if kind not in UNUSABLE:
        unmatched = kept if action == "drop" else [url for url, item, meta in told["kept"] if not _match(item, meta)]
        if Counter(map(group, unmatched)) != Counter(set(map(group, urls))):
            faults.append(f"{len(unmatched)} items without a match, of {groups} groups")
        faults += _wrong_tags(kind, told["kept"])
    return Outcome(not faults, f"{kind}, {action}: {len(urls)} items accounted for; {'; '.join(faults) or counts}")


def _match(item: Any, meta: Any) -> Any:
    return item.get("duplicate_of") or meta


def _wrong_tags(kind: str, kept: Iterable[Any]) -> list[str]:
    tagged = [(url, item, meta) for url, item, meta in kept if _match(item, meta)]
    wrong = [url for url, item, meta in tagged if group(_match(item, meta)["id"]) != group(url)]
    misplaced = [url for url, _, meta in tagged if bool(meta) != (kind in UNTAGGABLE)]
    return [f"{len(wrong)} wrong and {len(misplaced)} misplaced matches"] if wrong or misplaced else []


def check(folder: Path, pages: int) -> Iterator[Outcome]:
    """Crawl once for each kind of item and action; yield what became of the items."""
    with site(pages) as (first, urls):
        for action in ("drop", "tag"):
            for place, crawl in enumerate(crawls_of(KINDS, first, folder, action)):
                crawl.settings.update(REACTORS[place % len(REACTORS)])
                (told,), _ = crawled([crawl])
                yield verdict(crawl.kind, action, told, urls)


def main() -> int:
    given = options(__doc__ or "", pages=(PAGES, "pages of the site"))
    print_conditions("crawls with every kind of item", packages=("scrapy",), pages=given.pages)
    with scratch_folder(given.scratch) as folder:
        return print_outcomes(check(folder, given.pages))


if __name__ == "__main__":
    sys.exit(main())
