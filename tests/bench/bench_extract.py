"""Articles within sites' menus and footers: `python -m tests.bench.bench_extract [--data DIR]`.

Each article stands on pages of several sites, made by templates. Recall and precision of the pairs of pages of the same
article within k bits, by their main texts and by all their text; and what taking either costs. Then as many pages as a
web archive and as Parquet: both must make the same index.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hsimhash.fingerprint import TOO_SHORT, Profile
from hsimhash.index import HSimIndex
from hsimhash.inputs.pages import page_texts
from tests.support.archives import PACK, response
from tests.support.command_line import run
from tests.support.fingerprint_sets import read_documents
from tests.support.programs import data_file, options, print_bar, print_conditions, scratch_folder
from tests.support.web_pages import Article, Site

TEXTS = {"zh": "zh-wiki-paragraphs", "en": "plag-articles"}
ARTICLES = 200  # of each language
COPIES = 3  # pages of each, on sites of their own
SITES = 30
ARTICLE_CHARACTERS = 700  # at least: Chinese paragraphs are put together until they have so many
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
    """Return pages, and of which article each is."""
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
        texts = page_texts(pages, extract)
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
    compare(given.data, given.scratch)


if __name__ == "__main__":
    main()
