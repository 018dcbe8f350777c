"""No document is dropped by key alone if it shares less than half of its shingles with the one kept instead."""

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hsimhash import duplicates
from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.dedup import DedupOptions, held_texts
from hsimhash.dedup import dedup as dedup_files
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.signature import MAX_SKETCH, are_alike
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.progress import Observer, Progress
from tests.support.archives import PACK, conversion
from tests.support.command_line import run, run_apart

pytestmark = pytest.mark.every_case
PROFILE = Profile.named("auto-3")
LEAST = 0.5


@pytest.fixture(params=[held_texts.HELD_BYTES, 0], ids=["held", "read again"], autouse=True)
def _held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_texts, "HELD_BYTES", request.param)


def words(rng: random.Random, many: int) -> list[str]:
    def syllable() -> str:
        return rng.choice("bcdfghklmnprstvz") + rng.choice("aeiou")

    return ["".join(syllable() for _ in range(rng.randint(2, 4))) for _ in range(many)]


def containment(some: str, other: str) -> float:
    """Return the share of one text's distinct three-word sequences that the other text also has."""
    rows = [{tuple(text.split()[at : at + 3]) for at in range(len(text.split()) - 2)} for text in (some, other)]
    return len(rows[0] & rows[1]) / len(rows[0])


def pairs_by_key(common: int, more: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of a text and a longer one that begins with it; only a key and similar sketches make them near."""
    for seed in count():
        rng = random.Random(f"{common} {more} {seed}")
        shared, rest = words(rng, common), words(rng, more)
        texts = " ".join(shared), " ".join([*shared, *rest])
        found = PROFILE.signatures(texts)
        distance = np.bitwise_count(found.fingerprints[:1] ^ found.fingerprints[1:])
        alike = are_alike(found.sketches[:1], found.sketches[1:], MAX_SKETCH, distance)
        if distance > DEFAULT_DISTANCE and alike and found.keying.shared(found.keys[:1], found.keys[1:]):
            yield texts


@functools.cache
def documents() -> dict[str, str]:
    """Return ids and texts: three pairs that share less than half of the longer text, and three that share more."""
    few, much = islice(pairs_by_key(80, 110), 3), islice(pairs_by_key(80, 40), 3)
    found = {}
    for name, pairs in (("few", few), ("much", much)):
        for number, (text, longer) in enumerate(pairs):
            found |= {f"{name}-{number}-a": text, f"{name}-{number}-b": longer}
    return found


DROPPED = ["much-0-b", "much-1-b", "much-2-b"]


def as_files(folder: Path) -> list[Path]:
    (folder / "texts").mkdir()
    for name, text in documents().items():
        (folder / "texts" / name).write_text(text)
    return [folder / "texts"]


def as_json(folder: Path) -> list[Path]:
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in documents().items()]
    (folder / "one.jsonl").write_text("".join(lines[::2]))
    (folder / "other.jsonl.gz").write_bytes(gzip.compress("".join(lines[1::2]).encode()))
    return [folder / "one.jsonl", folder / "other.jsonl.gz"]


def as_tsv(folder: Path) -> list[Path]:
    (folder / "in.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in documents().items()))
    return [folder / "in.tsv"]


def as_table(folder: Path) -> list[Path]:
    rows = [{"id": name, "text": text} for name, text in documents().items()]
    pq.write_table(pa.Table.from_pylist(rows), folder / "in.parquet", row_group_size=5)
    return [folder / "in.parquet"]


def as_archive(folder: Path) -> list[Path]:
    records = [conversion(name, text) for name, text in documents().items()]
    (folder / "crawl.warc.gz").write_bytes(b"".join(map(PACK[".gz"], records)))
    return [folder / "crawl.warc.gz"]


def dedup(inputs: Sequence[Path], out: Path, *options: str) -> tuple[list[str], str]:
    """Run `hsimhash dedup`; return the dropped ids and the messages."""
    fixed = ("--table-format", "jsonl", "--fit", "off", *(() if "--keep" in options else ("--keep", "shortest-id")))
    result = run("dedup", *map(str, inputs), "--out", str(out), *fixed, *options)
    assert result.exit_code == 0, result.stderr
    return dropped_in(out), result.stderr


def dropped_in(out: Path) -> list[str]:
    return (out / "drop.txt").read_text().split("\n")[:-1]


def table(out: Path) -> list[dict[str, object]]:
    return list(map(json.loads, (out / "pairs.jsonl").read_text().splitlines()))


def test_the_documents_are_what_they_are_said_to_be() -> None:
    texts = documents()
    shares = {name: containment(texts[f"{name[:-1]}b"], texts[name]) for name in texts if name.endswith("a")}
    assert all((share < LEAST) == name.startswith("few") for name, share in shares.items())


@pytest.mark.parametrize("kind", [as_files, as_json, as_tsv, as_table, as_archive])
def test_what_shares_less_than_half_is_kept_whatever_the_input(
    kind: Callable[[Path], list[Path]], tmp_path: Path
) -> None:
    dropped, said = dedup(kind(tmp_path), tmp_path / "out")
    assert sorted(dropped) == DROPPED
    assert [row["found_by"] for row in table(tmp_path / "out")] == ["key"] * 3
    assert "not compared" not in said


@pytest.mark.parametrize("clusters", ["star", "components"])
@pytest.mark.parametrize("pairs", ["kept", "none", "all"])
@pytest.mark.parametrize("workers", ["1", "3"])
def test_tables_and_lists_agree(clusters: str, pairs: str, workers: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    dropped, _ = dedup(as_json(tmp_path), out, "--clusters", clusters, "--pairs", pairs, "--workers", workers)
    assert sorted(dropped) == DROPPED
    if pairs != "none":  # all of them are near according to their signatures
        listed = DROPPED if pairs == "kept" else [name for name in documents() if name.endswith("b")]
        assert sorted((row["right"], row["found_by"]) for row in table(out)) == [(name, "key") for name in listed]
    rows = list(map(json.loads, (out / "clusters.jsonl").read_text().splitlines()))
    assert sorted(row["id"] for row in rows if row["size"] > 1) == sorted(
        n for n in documents() if n.startswith("much")
    )
    stats = json.loads((out / "stats.json").read_text())
    assert (stats["dropped"], stats["clusters"]) == (3, 3)
    assert stats["by_key"] == stats["pairs"] == (6 if pairs == "all" else 3)
    assert pairs == "all" or "few-" not in (out / "report.html").read_text()


def test_the_longer_text_may_be_kept_for_the_one_that_it_holds(tmp_path: Path) -> None:
    dropped, _ = dedup(as_json(tmp_path), tmp_path / "out", "--keep", "longest")
    assert sorted(dropped) == sorted(name for name in documents() if name.endswith("a"))


def test_a_stream_is_decided_by_sketches_and_says_so(tmp_path: Path) -> None:
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in documents().items()]
    out = tmp_path / "out"
    done = run_apart("dedup", "-", "--out", str(out), "--table-format", "jsonl", given="".join(lines).encode())
    assert sorted(dropped_in(out)) == sorted(name for name in documents() if name.endswith("b"))
    assert b"Texts not compared: 6 of 12 documents (50.0%) were dropped by their key" in done.stderr
    assert b"standard input can be read only once" in done.stderr
    assert {row["found_by"] for row in table(out)} == {"key"}


def test_texts_that_changed_since_are_decided_by_sketches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_texts, "HELD_BYTES", 0)
    path, *_ = as_tsv(tmp_path)

    def progress(now: Progress) -> None:
        if now.stage == "cluster":
            path.write_text(path.read_text().replace(" ", "  "))

    options, said = DedupOptions(table_format="jsonl", fit="off", workers=1), list[str]()
    observer = Observer(progress=progress, say=said.append)
    summary = dedup_files(
        find_inputs([str(path)], InputOptions()), tmp_path / "out", options, against=PROFILE, observer=observer
    )
    assert summary.totals.dropped == 6
    (notice,) = summary.notices
    assert f"{path} has changed since it was read" in notice.detail


def test_signatures_without_texts_are_decided_by_sketches(tmp_path: Path) -> None:
    signed = [{"id": name, **PROFILE.signature(text).to_json()} for name, text in documents().items()]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in signed))
    dropped, said = dedup([tmp_path / "in.jsonl"], tmp_path / "out", "--fingerprint-field", "fingerprint")
    assert len(dropped) == 6
    assert "in.jsonl holds fingerprints, not texts" in said


def test_without_a_limit_for_sketches_texts_are_not_compared_either(tmp_path: Path) -> None:
    dropped, said = dedup(as_json(tmp_path), tmp_path / "out", "--max-sketch", "off")
    assert sorted(dropped) == sorted(name for name in documents() if name.endswith("b"))
    assert "not compared" not in said


def test_texts_in_memory_are_decided_alike() -> None:
    texts = documents()
    assert sorted(duplicates(list(texts.values()), ids=list(texts), fit="off").drop) == DROPPED
