"""What TEXT, FILE, FP and ID arguments mean: one rule for all commands."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from hsimhash import HSimIndex, Profile
from hsimhash.fingerprint import format_fingerprint
from tests.support.command_line import make_index, run
from tests.test_calibrate import article, edited

PROFILE = ("--profile", "auto-2")
TEXT = article(1)
PAGE = f"<!doctype html><html><head><title>x</title></head><body><article><p>{TEXT}</p></article></body></html>"
FILES: dict[str, bytes] = {  # all with the same text
    "notes.txt": TEXT.encode(),
    "notes": b"\xef\xbb\xbf" + TEXT.encode(),
    "notes.txt.gz": gzip.compress(TEXT.encode(), mtime=0),
    "notes.txt.zst": zstandard.compress(TEXT.encode()),
    "page.html": PAGE.encode(),
    "page.htm.gz": gzip.compress(PAGE.encode(), mtime=0),
}

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"lmdb://{tmp_path / 'texts'}"
    with HSimIndex.create(made, profile="auto-2") as index:
        index.add(index.profile.signature(TEXT), "a")
        index.add(index.profile.signature(edited(TEXT, 2, 1)), "b")
    return made


def fingerprint_of(text: str) -> str:
    return format_fingerprint(Profile.named("auto-2").fingerprint(text))


def fingerprinted(word: str, url: str) -> str:
    return run("fingerprint", word, *PROFILE).stdout.strip()


def queried(word: str, url: str) -> str:
    return str(json.loads(run("query", word, "--store", url).stdout)["fingerprint"])


def explained(word: str, url: str) -> str:
    return str(json.loads(run("explain", word, "--store", url, "--json").stdout)["fingerprint"])


def explained_beside(word: str, url: str) -> str:
    return str(json.loads(run("explain", word, "a", "--store", url, "--json").stdout)["a"]["fingerprint"])


def beside_a_fingerprint(word: str, url: str) -> str:
    return str(json.loads(run("explain", word, "0x1", "--json", *PROFILE).stdout)["a"]["fingerprint"])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", [fingerprinted, queried, explained, explained_beside, beside_a_fingerprint])
def test_an_argument_that_is_a_file_stands_for_its_text(
    command: Callable[[str, str], str], name: str, url: str
) -> None:
    Path(name).write_bytes(FILES[name])
    assert command(name, url) == fingerprint_of(TEXT)


def test_an_option_says_what_its_value_is(url: str) -> None:
    Path("a").write_text(article(2))
    assert run("fingerprint", "--text", "a", *PROFILE).stdout.strip() == fingerprint_of("a")
    assert run("fingerprint", "--file", "a", "a", *PROFILE).stdout.split() == [fingerprint_of(article(2))] * 2
    assert json.loads(run("query", "--id", "a", "--store", url).stdout)["fingerprint"] == fingerprint_of(TEXT)
    assert json.loads(run("query", "a", "--store", url).stdout)["fingerprint"] == fingerprint_of(article(2))
    facts = json.loads(run("explain", "--id", "a", "--text", TEXT, "--store", url, "--json").stdout)
    assert (facts["distance"], {facts[side]["name"][:4] for side in "ab"}) == (0, {"id a", "text"})


@pytest.mark.parametrize("command", ["query", "explain"])
def test_a_text_where_a_fingerprint_is_expected_names_the_remedy(command: str, url: str) -> None:
    refused = run(command, "some text", "--store", url)
    assert refused.exit_code == 2
    assert "'some text' is neither a file nor a fingerprint: " in refused.stderr
    assert "pass --text for a text, or --id" in refused.stderr
    assert "'.' is a folder: pass its files" in run(command, ".", "--store", url).stderr


@pytest.mark.parametrize("command", ["fingerprint", "query", "explain"])
def test_a_file_of_many_documents_is_not_taken_for_a_text(command: str, url: str) -> None:
    for name in ("pages.jsonl", "pages.tsv.gz", "pages.parquet"):
        Path(name).write_bytes(b"x")
        refused = run(command, name, *(PROFILE if command == "fingerprint" else ("--store", url)))
        assert refused.exit_code == 2
        assert f"{name} contains many documents, not one text" in refused.stderr


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("latin", b"caf\xe9", "latin: not UTF-8"),
        ("cut.gz", gzip.compress(TEXT.encode(), mtime=0)[:40], "cut.gz: damaged or truncated"),
        (
            "bomb.gz",
            gzip.compress(b"x" * ((16 << 20) + 1), mtime=0),
            "bomb.gz is too large: a document can be at most 16 MiB",
        ),
        ("long", b"x" * ((16 << 20) + 1), "long is too large"),
    ],
)
def test_a_file_that_is_no_text_is_named(name: str, content: bytes, reason: str) -> None:
    Path(name).write_bytes(content)
    for words in ((name,), ("--file", name)):
        failed = run("fingerprint", *words)
        assert failed.exit_code == 1
        assert reason in failed.stderr


def test_remove_takes_only_ids_and_hints_at_a_file(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    Path("gone.txt").write_text("a\nb\n")
    result = run("remove", "gone.txt", "--yes", "--store", url)
    assert "removed 0 documents from lmdb://" in result.stderr
    assert "'gone.txt' is a file; to remove the ids in it, pass it with --file" in result.stderr
