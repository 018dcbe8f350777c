"""Pages, tables and web archives through the commands: the same documents make the same index."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hsimhash import load
from hsimhash.extras import install_command
from hsimhash.fingerprint import Signature
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.files import EXTRACTS
from hsimhash.load import IngestLimits, IngestOptions
from hsimhash.progress import Observer, Progress
from tests.support.archives import PACK, response
from tests.support.command_line import make_index, run
from tests.support.effort import thorough
from tests.support.web_pages import Article, Site

FIELDS = ("--id-field", "url", "--text-field", "html")


def article(number: int) -> Article:
    """Return an article with its own vocabulary."""
    words = [f"{'ptkbdgslmrfvnz'[number * 7 % 14]}a{number * 31 + at * 17:x}o" for at in range(180)]
    sentences = [" ".join(words[at : at + 12]).capitalize() + "." for at in range(0, len(words), 12)]
    return Article("en", " ".join(words[:5]), " ".join(sentences))


def pages(count: int) -> dict[str, str]:
    """Return pages by URL: each article on two sites."""
    teasers = [article(number).text[:60] for number in range(1_000, 1_040)]
    sites = [Site(number, "en", teasers) for number in (0, 4)]
    return {
        f"https://{at}.example/{n}": site.page(article(n), n) for n in range(count) for at, site in enumerate(sites)
    }


def as_archive(path: Path, found: dict[str, str]) -> Path:
    path = path / "crawl.warc.gz"
    path.write_bytes(b"".join(PACK[".gz"](response(url, page.encode())) for url, page in found.items()))
    return path


def as_parquet(path: Path, found: dict[str, str]) -> Path:
    table = pa.table({"html": list(found.values()), "url": list(found)})
    pq.write_table(table, path / "crawl.parquet", row_group_size=7)
    return path / "crawl.parquet"


def as_csv(path: Path, found: dict[str, str]) -> Path:
    with (path / "crawl.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("url", "html"), *found.items()])
    return path / "crawl.csv"


FORMS: dict[str, Callable[[Path, dict[str, str]], Path]] = {"warc": as_archive, "parquet": as_parquet, "csv": as_csv}


def held(url: str) -> dict[str, Signature]:
    with HSimIndex.open(url) as index:
        return {one.doc_id: one.signature for one in index.documents()}


@thorough
def test_whatever_pages_come_in_they_make_the_same_index(tmp_path: Path) -> None:
    found, kept = pages(12), []
    for form, write in FORMS.items():
        url = f"lmdb://{tmp_path / form}"
        result = run(
            "ingest", str(write(tmp_path, found)), "--store", url, *FIELDS, "--workers", "2" if form == "warc" else "1"
        )
        assert result.exit_code == 0
        kept.append(held(url))
    assert kept[0] == kept[1] == kept[2]
    assert kept[0].keys() == found.keys()


def test_the_same_article_on_two_sites_is_a_near_duplicate_by_its_main_text_alone(tmp_path: Path) -> None:
    path, near = as_archive(tmp_path, pages(10)), {}
    for extract in ("auto", "none"):
        url = f"lmdb://{tmp_path / extract}"
        arguments = ("--store", url, "--on-duplicate", "skip", "--distance", "3", "--profile", "auto-1")
        result = run("ingest", str(path), "--extract", extract, *arguments)
        near[extract] = json.loads(result.stdout)["duplicates"]
    assert near == {"auto": 10, "none": 0}


@pytest.mark.parametrize("extract", EXTRACTS)
def test_a_page_on_stdin_is_read_as_the_same_page_in_a_file(extract: str, tmp_path: Path) -> None:
    page = next(iter(pages(1).values()))
    (tmp_path / "page.html").write_text(page)
    line = json.dumps({"text": page})
    fingerprint = run("fingerprint", str(tmp_path / "page.html"), "--extract", extract).stdout.strip()
    assert json.loads(run("fingerprint", "-", "--extract", extract, given=line).stdout)["fingerprint"] == fingerprint
    url = make_index(tmp_path, {"page": int(fingerprint, 16)}, profile="auto-3")
    found = json.loads(run("query", "-", "--extract", extract, "--distance", "0", "--store", url, given=line).stdout)
    assert [match["id"] for match in found["matches"]] == ["page"]


@pytest.mark.parametrize("form", FORMS)
def test_an_ingest_that_was_stopped_goes_on_where_it_was(form: str, tmp_path: Path) -> None:
    found = pages(12)
    path, url = FORMS[form](tmp_path, found), f"lmdb://{tmp_path / 'index'}"
    HSimIndex.create(url).close()
    reading = InputOptions(id_field="url", text_field="html")
    limits = IngestLimits(gathered_documents=1, block_bytes=4_096)
    options = IngestOptions("tag", reading=reading, workers=1, limits=limits)
    counts = []
    with HSimIndex.open(url) as index:
        for _ in found:
            seen = list[Progress]()
            observer = Observer(stop=lambda seen=seen: len(seen) > 3, progress=seen.append)
            summary = load.ingest(index, find_inputs([str(path)], reading), options, observer)
            counts.append(summary.counts.documents)
            if summary.is_complete:
                break
        assert index.count() == len(found)
    assert len(counts) > 3
    assert counts == sorted(counts)
    assert counts[-1] == len(found), "a call began anew"
    assert held(url).keys() == found.keys()


def test_pages_are_files_of_folders_and_inputs_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = next(iter(pages(1).values()))
    for name in ("site/a.html", "site/deep/b.HTM", "site/c.txt", "one.html"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(page)
    assert run("ingest", "site", "one.html", "--store", "lmdb://index").exit_code == 0
    found = held("lmdb://index")
    assert found.keys() == {"site/a.html", "site/deep/b.HTM", "site/c.txt", "one.html"}
    assert len(set(found.values())) == 1  # each is recognised by its content


def test_what_cannot_be_read_is_listed_and_the_rest_is_indexed(tmp_path: Path) -> None:
    good, empty = pages(2), "<html><body><script>load()</script></body></html>"
    parts = [response(url, page.encode()) for url, page in good.items()]
    parts[1] = response("https://cut.example/", b"<p>text</p>", excess=99)
    odd = response("https://odd.example/", b"\x1f\x8btext", "text/html\r\nContent-Encoding: gzip")
    none = response("https://none.example/", empty.encode())
    path = tmp_path / "crawl.warc"
    path.write_bytes(b"".join([*parts, odd, none]))
    result = run("ingest", str(path), "--store", f"lmdb://{tmp_path / 'index'}", "--job", str(tmp_path / "job"))
    assert result.exit_code == 7
    counts = json.loads(result.stdout)
    assert [counts[name] for name in ("documents", "added", "rejected", "short")] == [6, 3, 2, 1]
    rejects = [json.loads(line) for line in (tmp_path / "job" / "rejects.jsonl").read_text().splitlines()]
    assert [(one["file"], one["line"]) for one in rejects] == [(str(path), 2), (str(path), 5)]
    assert f"record at byte {len(parts[0]):,}" in rejects[0]["reason"]
    (short,) = [json.loads(line) for line in (tmp_path / "job" / "short.jsonl").read_text().splitlines()]
    assert (short["id"], short["why"]) == ("https://none.example/", "no text was found in the page")


@pytest.mark.parametrize(
    ("form", "module", "extra"),
    [("warc", "fastwarc.warc", "warc"), ("parquet", "pyarrow.parquet", "parquet"), ("csv", "trafilatura", "html")],
)
def test_a_missing_library_is_an_error_that_names_the_extra(
    form: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = FORMS[form](tmp_path, pages(1))
    monkeypatch.setitem(sys.modules, module, None)
    result = run("ingest", str(path), "--store", f"lmdb://{tmp_path / 'index'}", *FIELDS)
    assert result.exit_code == 2
    assert install_command(extra) in result.stderr


def test_dedup_compares_main_texts_and_shows_them(tmp_path: Path) -> None:
    path, out = as_archive(tmp_path, pages(5)), tmp_path / "out"
    result = run("dedup", str(path), "--out", str(out))
    assert result.exit_code == 0
    assert len((out / "keep.txt").read_text().splitlines()) == 5
    page = (out / "report.html").read_text()
    assert article(0).text[:40] in page
    assert "cookies" not in page
    refused = run("apply", str(path), "--from", str(out), "--out", str(tmp_path / "kept"))
    assert refused.exit_code == 2
    assert "keep.txt lists the ids" in refused.stderr
    assert not (tmp_path / "kept").exists()


def test_apply_names_the_pages_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, page in enumerate(pages(1).values()):
        Path(f"{number}.html").write_text(page)
    assert run("dedup", "0.html", "1.html", "--out", "out").exit_code == 0
    assert run("apply", "0.html", "1.html", "--from", "out").stdout == "0.html\n"
