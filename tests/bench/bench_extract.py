"""Articles surrounded by sites' menus and footers: `python -m tests.bench.bench_extract [--data DIR]`.

Each article appears on pages of several sites, made from templates. Measures recall and precision of pairs of pages
with the same article within k bits, by their main texts and by all their text, and the cost of each. Then does the same
on page styles that the extraction was not tuned for, and compares with plain trafilatura. Finally ingests the same
pages from a web archive and from Parquet; both must make the same index.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import trafilatura
from numpy.typing import NDArray

from hsimhash.fingerprint import TOO_SHORT, Profile
from hsimhash.index import HSimIndex
from hsimhash.inputs.pages import page_text
from tests.support.archives import PACK, response
from tests.support.command_line import run
from tests.support.fingerprint_sets import read_documents
from tests.support.programs import data_file, options, print_bar, print_conditions, scratch_folder
from tests.support.site_styles import STYLES, styled_page
from tests.support.web_pages import Article, Site

TEXTS = {"zh": "zh-wiki-paragraphs", "en": "plag-articles"}
ARTICLES = 200  # per language
COPIES = 3  # pages per article, each on its own site
SITES = 30
ARTICLE_CHARACTERS = 700  # at least; Chinese paragraphs are joined until they have this many
STYLED = 60  # articles per language, on every page style
VISITS = 2  # between them a site's menu, notices, teasers, dates and counts change
ARCHIVED = 5_000
K = 3
PROFILE = "auto-2"
SEED = 2026


def title_of(text: str, language: str) -> str:
    """Return the beginning of a text, in whole words."""
    return text[:24] if language == "zh" else " ".join(text.split()[:8])


def articles(data: Path, language: str) -> list[Article]:
    """Return unrelated articles of the labelled data."""
    made, held, folder = list[Article](), "", data / TEXTS[language]
    pairs = (folder / "pairs.tsv").read_text().split() if language == "en" else ()  # near-duplicates among them
    for document in read_documents(folder / "docs.jsonl.gz"):
        if document["id"] in pairs:
            continue
        held += document["text"].strip() + (" " if language == "en" else "")
        if len(held) >= ARTICLE_CHARACTERS:
            made.append(Article(language, title_of(held, language), held))
            held = ""
    return made[:ARTICLES]


def pages_of(found: Sequence[Article], copies: int) -> tuple[list[str], list[int]]:
    """Return pages, and the number of each page's article."""
    chosen, language = random.Random(SEED), found[0].language
    teasers = [one.text[at : at + 60] for one in found for at in (100, 300)]
    sites = [Site(number, language, teasers) for number in range(SITES)]
    pages, owners = [], []
    for owner, article in enumerate(found):
        for site in chosen.sample(sites, copies):
            pages.append(site.page(article, owner))
            owners.append(owner)
    return pages, owners


def score(texts: Sequence[str], owners: Sequence[int]) -> tuple[float, float]:
    """Return recall and precision of the pairs within K bits."""
    signatures = Profile.named(PROFILE).signatures(texts)
    fingerprints, is_there = signatures.fingerprints, signatures.kinds != TOO_SHORT
    near = np.bitwise_count(fingerprints[:, None] ^ fingerprints[None, :]) <= K
    near &= np.triu(is_there[:, None] & is_there[None, :], 1)
    is_same = np.triu(np.array(owners)[:, None] == np.array(owners)[None, :], 1)
    right, found, wanted = (int(np.count_nonzero(one)) for one in (near & is_same, near, is_same))
    return right / wanted, right / found if found else 1.0


def measure(data: Path, language: str) -> None:
    pages, owners = pages_of(articles(data, language), COPIES)
    for extract in ("auto", "none"):
        began = time.process_time()
        texts = [page_text(page, extract) for page in pages]
        seconds = time.process_time() - began
        recall, precision = score(texts, owners)
        print(
            f"{language}  --extract {extract}: recall {recall:.3f}, precision {precision:.3f} at k = {K}; "
            f"{len(pages) / seconds:,.0f} pages/s of one core, {sum(not text for text in texts)} without a text"
        )
        name = f"{language}, recall at k = {K}, --extract {extract}"
        print_bar(name, recall, **({"at_least": 0.85} if extract == "auto" else {"at_most": 0.3}))
        if extract == "auto":
            print_bar(f"{language}, precision at k = {K}, --extract auto", precision, at_least=0.99)


@dataclass(frozen=True, slots=True)
class Found:
    """The shares of pairs that are found within K bits, by page style; the last one is overall.

    Attributes:
        elsewhere: pairs of the same article on the site of this style and on one of another style.
        redone: pairs of the same article on this site before and after its redesign.
        false: pairs of different articles on this site.
    """

    elsewhere: list[float]
    redone: list[float]
    false: list[float]


def found_among(texts: Sequence[str]) -> Found:
    """Return the shares found among pages' texts, which are ordered by style, visit and article."""
    signatures = Profile.named(PROFILE).signatures(texts)
    shape = len(STYLES), VISITS, len(texts) // len(STYLES) // VISITS
    fingerprints = signatures.fingerprints.reshape(shape)
    is_there = (signatures.kinds != TOO_SHORT).reshape(shape)

    def near(one: tuple[object, ...], other: tuple[object, ...]) -> NDArray[np.bool_]:
        within = np.bitwise_count(fingerprints[one] ^ fingerprints[other]) <= K
        return np.asarray(within & is_there[one] & is_there[other])

    number = range(len(STYLES))
    elsewhere = [float(np.mean([near((one, 0), (other, 0)) for other in number if other != one])) for one in number]
    redone = [float(np.mean(near((one, 0), (one, 1)))) for one in number]
    is_other = ~np.eye(shape[2], dtype=bool)
    pairs = [near((one, slice(None), None, slice(None)), (one, slice(None), slice(None), None)) for one in number]
    false = [float(np.mean(one[:, is_other])) for one in pairs]
    return Found(*([*shares, float(np.mean(shares))] for shares in (elsewhere, redone, false)))


def measure_styles(data: Path, language: str) -> None:
    """Print a table of the shares found on the held-out page styles."""
    every = articles(data, language)
    chosen, teasers = every[:STYLED], [one.text[at : at + 60] for one in every for at in (100, 300)]
    pages = [
        styled_page(style, article, number, visit, teasers)
        for style in STYLES
        for visit in range(VISITS)
        for number, article in enumerate(chosen)
    ]
    ways = {
        "auto": [page_text(page, "auto") for page in pages],
        "none": [page_text(page, "none") for page in pages],
        "plain trafilatura": [trafilatura.extract(page) or "" for page in pages],
    }
    found = {way: found_among(texts) for way, texts in ways.items()}
    print(f"{language}, held-out page styles; of each way: recall on other sites, on the redone site, false pairs")
    print(" " * 12 + "".join(f"{way:^25}" for way in ways))
    for at, style in enumerate([*STYLES, "overall"]):
        shares = "".join(
            f"  {one.elsewhere[at]:.3f}  {one.redone[at]:.3f}  {one.false[at]:.5f}" for one in found.values()
        )
        print(f"{style:12}{shares}")


def compare(data: Path, scratch: Path) -> None:
    """Ingest the same pages from a web archive and from Parquet."""
    pages = [page for language in TEXTS for page in pages_of(articles(data, language), COPIES * 5)[0]][:ARCHIVED]
    urls = [f"https://site.example/{number}" for number in range(len(pages))]
    with scratch_folder(scratch) as folder:
        coded = [response(url, page.encode()) for url, page in zip(urls, pages, strict=True)]
        (folder / "crawl.warc.gz").write_bytes(b"".join(map(PACK[".gz"], coded)))
        pq.write_table(pa.table({"url": urls, "html": pages}), folder / "crawl.parquet", row_group_size=500)
        kept = []
        for name in ("crawl.warc.gz", "crawl.parquet"):
            url = f"lmdb://{folder / name}.index"
            began = time.perf_counter()
            result = run(
                *("ingest", str(folder / name), "--store", url, "--quiet", "--id-field", "url", "--text-field", "html")
            )
            seconds = time.perf_counter() - began
            counts = json.loads(result.stdout)
            print(f"{name}: {counts['documents']:,} documents, {len(pages) / seconds:,.0f} pages/s with all processes")
            with HSimIndex.open(url) as index:
                kept.append({one.doc_id: one.signature for one in index.documents()})
        assert len(kept[0]) == len(pages)
        print_bar("documents that differ between the two indexes", len(kept[0].items() ^ kept[1].items()), at_most=0)


def main() -> None:
    """Measure, and print the bars."""
    given = options(__doc__, has_data=True)
    if None in [data_file(given.data, f"{name}/docs.jsonl.gz") for name in TEXTS.values()]:
        return
    print_conditions(
        "Pages with their main texts taken, and without",
        packages=("trafilatura", "lxml", "fastwarc", "pyarrow"),
        **{"articles": ARTICLES, "copies": COPIES, "sites": SITES, "k": K, "profile": PROFILE, "seed": SEED},
    )
    for language in TEXTS:
        measure(given.data, language)
    for language in TEXTS:
        measure_styles(given.data, language)
    compare(given.data, given.scratch)


if __name__ == "__main__":
    main()
