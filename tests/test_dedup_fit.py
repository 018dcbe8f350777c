"""`dedup` with a rarity table fitted to its inputs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.fit import Fit
from hsimhash.fingerprint.rarity import DEFAULT, GENERAL_SHA256, RarityTable, rarity_table
from hsimhash.inputs.files import InputOptions
from hsimhash.inputs.find import find_inputs
from hsimhash.inputs.reader import read_batches
from hsimhash.load.fitting import fit_inputs
from tests.support.command_line import on_terminal, run

TEMPLATE = (
    "welcome to the harbour gazette your daily source of news about ships and tides subscribe to our newsletter "
    "follow us on every channel read our privacy policy and terms of use contact the editors advertise with us "
    "weather forecast shipping register jobs crosswords letters archive about this site all rights reserved"
)
SYLLABLES = [a + b for a in ("ba", "do", "fu", "ki", "lo", "me", "na", "pi", "ra", "su") for b in ("len", "rit", "mos")]


def article(number: int, words: int = 24) -> list[str]:
    chosen = random.Random(number)
    return ["".join(chosen.choices(SYLLABLES, k=3)) for _ in range(words)]


def pages(count: int, copies: int) -> list[dict[str, str]]:
    """Return pages with the same template and a short article each; the first `copies` also with a word replaced."""
    found = []
    for number in range(count):
        found.append({"id": f"p{number}", "text": f"{TEMPLATE} {' '.join(article(number))} {TEMPLATE}"})
        if number < copies:
            changed = [*article(number)[:11], "lantern", *article(number)[12:]]
            found.append({"id": f"copy{number}", "text": f"{TEMPLATE} {' '.join(changed)} {TEMPLATE}"})
    return found


def written(path: Path, records: list[dict[str, str]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def deduplicated(source: str, out: Path, *options: str, profile: str = "auto-3") -> dict[str, Any]:
    result = run("dedup", source, "--out", str(out), "--profile", profile, "--overwrite", *options)
    assert result.exit_code == 0, result.stderr
    stats: dict[str, Any] = json.loads((out / "stats.json").read_text())
    return stats


def test_pages_of_a_template_are_told_apart_by_what_is_theirs(tmp_path: Path) -> None:
    source, out = written(tmp_path / "pages.jsonl", pages(300, 40)), tmp_path / "out"
    stats = deduplicated(source, out)
    assert (out / "drop.txt").read_text().split() == [f"copy{number}" for number in range(40)]
    assert stats["profile"].startswith("auto-3-rarity-")
    unfitted = deduplicated(source, out, "--fit", "off")
    assert unfitted["profile"] == "auto-3"
    assert unfitted["dropped"] > 250


def test_the_report_says_what_the_weights_were_learnt_from(tmp_path: Path) -> None:
    source, out = written(tmp_path / "pages.jsonl", pages(300, 0)), tmp_path / "out"
    result = run("dedup", source, "--out", str(out), "--profile", "auto-3", "--json")
    learnt = json.loads(result.stdout)["word_weights"]
    assert learnt == json.loads((out / "stats.json").read_text())["word_weights"]
    fitted = json.loads(run("fit", source, "--output", str(tmp_path / "own.rarity")).stdout)
    assert learnt["documents"] == fitted["sample"]
    # The template's 51 words and 52 word pairs, except a few that are common everywhere, such as "all" and "of the".
    assert 70 < learnt["common"] < 103
    told = (
        f"learnt from {fitted['sample']} documents; words and word pairs that are common there, but not in general "
        f"text: {learnt['common']}"
    )
    assert f"<dt>word weights</dt><dd>{told}</dd>" in (out / "report.html").read_text()
    shown = on_terminal("dedup", source, "--out", str(out), "--profile", "auto-3", "--overwrite")[1]
    assert f"Word weights: {told}." in shown.replace("\r\n", "\n")


@pytest.mark.parametrize(("profile", "is_told"), [("auto-3", True), ("auto-2", False)])
def test_the_report_says_that_the_weights_are_those_of_general_text(
    tmp_path: Path, profile: str, is_told: bool
) -> None:
    source, out = written(tmp_path / "pages.jsonl", pages(20, 0)), tmp_path / "out"
    stats = deduplicated(source, out, profile=profile)
    assert "word_weights" not in stats
    assert ("<dt>word weights</dt><dd>from general text</dd>" in (out / "report.html").read_text()) == is_told


def test_a_feature_is_common_if_it_weighs_less_than_half_of_a_rare_one_and_more_in_general_text() -> None:
    general = rarity_table(GENERAL_SHA256)
    tags = np.array([1, 2, 3, *general.tags[:-1][general.rarities[:-1] < general.default // 2][:2]], np.uint32)
    tags.sort()
    rarities = np.where(np.arange(5) == 1, DEFAULT // 2, DEFAULT // 2 - 1).astype(np.uint8)
    assert len(np.intersect1d(tags[:3], general.tags)) == 0
    table = RarityTable.of(tags, rarities, 777)
    learnt = Profile.named("auto-3").fitted(table).learnt
    assert learnt == (777, 2)
    assert Profile.named("auto-3").learnt is None
    assert Profile.named("auto-2").learnt is None


def test_the_table_of_fit_gives_what_dedup_fits_by_itself(tmp_path: Path) -> None:
    source, out, table = written(tmp_path / "pages.jsonl", pages(150, 20)), tmp_path / "out", tmp_path / "own.rarity"
    fitted = deduplicated(source, out)
    assert run("fit", source, "--output", str(table)).exit_code == 0
    given = deduplicated(source, out, "--fit", str(table))
    assert {**given, "options": {**given["options"], "fit": "auto"}, "run": None} == {**fitted, "run": None}


@pytest.mark.parametrize("kind", ["few", "fingerprints", "another profile", "a table"])
def test_what_cannot_be_fitted_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    source, out = written(tmp_path / "pages.jsonl", pages(60 if kind == "few" else 150, 9)), tmp_path / "out"
    profile = "auto-2" if kind == "another profile" else "auto-3"
    options = list[str]()
    if kind == "fingerprints":
        lines = [f"d{number}\t{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(150)]
        (tmp_path / "pages.tsv").write_text("\n".join(lines))
        source, options = str(tmp_path / "pages.tsv"), ["--format", "fingerprints"]
    if kind == "a table":
        fit = Fit(Profile.named("auto-3"))
        fit.add([page["text"] for page in pages(200, 0)])
        (tmp_path / "own.rarity").write_bytes(fit.table().content())
        profile = f"auto-3:rarity={tmp_path / 'own.rarity'}"
    found = deduplicated(source, out, *options, profile=profile)["profile"]
    assert found == Profile.named(profile).name


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("none.rarity", "none.rarity: No such file"),
        ("pages.jsonl", "pages.jsonl is not a rarity table: it does not begin"),
    ],
)
def test_a_wrong_table_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source = written(Path("pages.jsonl"), pages(9, 0))
    result = run("dedup", source, "--out", "out", "--profile", "auto-3", "--fit", table)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert not Path("out").exists()
    refused = run("dedup", source, "--out", "out", "--fit", "pages.jsonl")
    assert refused.exit_code == 2
    assert "pages.jsonl is not a rarity table" in refused.stderr


def test_a_table_is_fitted_to_the_texts_of_pages_and_fragments_as_they_are_compared(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for number in range(40):
        words = f"harbour ferry {number % 5} tide {number} " * 5
        (folder / f"{number}.txt").write_text(f"{words}<b>plain</b> & {number}")
        page = f"<html><head><title>t</title></head><body><p>{words}</p><p>moored {number}</p></body></html>"
        (folder / f"{number}.html").write_text(page)
    records = written(tmp_path / "some.jsonl", [{"id": str(n), "text": f"<p>a buoy {n % 7}<br>x"} for n in range(60)])
    reading, profile = InputOptions(), Profile.named("auto-3")
    inputs = find_inputs([str(folder), records], reading)
    fit = Fit(profile)
    for batch in read_batches(inputs, reading):
        fit.add(batch.documents.texts)
    table, read = fit_inputs(inputs, reading, profile)
    assert read == fit.read == 140
    assert table.content() == fit.table().content()
