"""Reports of real runs: their numbers are those of stats.json, and their commands run when pasted."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from random import Random

import pytest

from hsimhash.dedup.commands import COMMAND_CHARS
from hsimhash.dedup.report import CLUSTERS_SHOWN
from tests.support.command_line import make_index, run, run_apart
from tests.support.effort import thorough
from tests.support.http_files import serving_files
from tests.test_dedup_report import Page

WORDS = [
    f"{one}{other}" for one in ("har", "mel", "tor", "sim", "bel", "rak") for other in ("bour", "ted", "ing", "al")
]


def text_of(seed: int, changed: int = 0) -> str:
    """Return a text of 200 words, with `changed` of them replaced."""
    chance = Random(seed)
    words = [chance.choice(WORDS) + str(chance.randrange(9)) for _ in range(200)]
    for at in range(5, 5 + 3 * changed, 3):
        words[at] = f"changed{at}"
    return " ".join(words)


def written(path: Path, texts: dict[str, str], **names: str) -> Path:
    id_field, text_field = names.get("id", "id"), names.get("text", "text")
    lines = [json.dumps({id_field: doc_id, text_field: text}) for doc_id, text in texts.items()]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def near_texts(folder: Path, name: str = "pages.jsonl", **names: str) -> Path:
    """Write three clusters: exact copies, texts with a few changed words, and texts with more of them."""
    texts = {"copy/1": text_of(1), "copy/2": text_of(1), "copy/3": text_of(1), "few/1": text_of(2)}
    texts |= {"few/2": text_of(2, 4), "many/1": text_of(3), "many/2": text_of(3, 14), "alone": text_of(4)}
    return written(folder / name, texts, **names)


def deduplicated(*arguments: str) -> dict[str, object]:
    """Run dedup and return its numbers."""
    result = run("dedup", *arguments)
    assert result.exit_code == 0, result.stderr
    return stats(Path(arguments[arguments.index("--out") + 1]))


def stats(out: Path) -> dict[str, object]:
    found = json.loads((out / "stats.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def page(out: Path) -> Page:
    return Page((out / "report.html").read_text("utf-8"))


def pasted(command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "hsimhash"
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr


def test_the_numbers_of_the_headline_and_of_the_tiles_are_those_of_the_statistics(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = deduplicated(str(near_texts(tmp_path)), "--out", str(out), "--distance", "10")
    (headline,) = page(out).all_of("h1")
    numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", headline)]
    assert numbers == [found[name] for name in ("documents", "kept", "dropped", "clusters")]
    assert [int(number) for number in page(out).all_of("strong")] == numbers
    assert min(numbers) > 1


@pytest.mark.parametrize("profile", ["auto-1", "auto-2"])
def test_the_least_alike_cluster_is_shown_first_and_exact_copies_last(profile: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    deduplicated(str(near_texts(tmp_path)), "--out", str(out), "--distance", "14", "--profile", profile)
    source = (out / "report.html").read_text("utf-8")
    shown = source[source.index('<h2 id="clusters">') : source.index('<h2 id="all">')]
    assert re.findall(r"<(?:h3|summary)><bdi>(\w+)", shown) == ["many", "few", "copy"]
    assert shown.index("few/1") < shown.index('<h2 id="copies">') < shown.index("copy/1")
    assert shown.count(text_of(1)[:100]) == 1


def test_the_least_alike_clusters_are_shown_however_many_larger_ones_there_are(tmp_path: Path) -> None:
    texts = {f"copy/{seed}/{number}": text_of(seed) for seed in range(10, 50) for number in range(4)}
    texts |= {"many/1": text_of(3), "many/2": text_of(3, 14)}
    out = tmp_path / "out"
    deduplicated(str(written(tmp_path / "in.jsonl", texts)), "--out", str(out), "--distance", "14")
    source = (out / "report.html").read_text("utf-8")
    assert source.index('id="cluster-1"') < source.index("<h3><bdi>many/1") < source.index('<h2 id="copies">')
    assert len(re.findall('<(?:article|details) class="card cluster"', source)) == CLUSTERS_SHOWN


def test_every_command_runs_as_it_is_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"a": 0, "b": 0, "c": 0b1111, "d": 0b111111}
    Path("in.tsv").write_text("".join(f"{name}\t{value:016x}\n" for name, value in values.items()))
    before = deduplicated("in.tsv", "--out", "dup", "--distance", "4", "--table-format", "jsonl")
    more, fewer, apply = page(Path("dup")).commands
    pasted(apply)
    assert [line.partition("\t")[0] for line in Path("kept.tsv").read_text().splitlines()] == ["a", "d"]
    for command, distance, pairs in ((more, 7, 3), (fewer, 2, 2)):
        pasted(command)
        after = stats(Path("dup"))
        assert after["options"] == {**before["options"], "max_distance": distance}
        assert after["inputs"] == before["inputs"]
        assert after["pairs"] == pairs


@pytest.mark.parametrize("folders", [("mixed",), ("mixed", "more")])
def test_every_command_reads_the_same_folders(
    folders: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in folders:
        Path(folder).mkdir()
        Path(folder, "a.txt").write_text(text_of(1))
        Path(folder, "b.txt").write_text(text_of(1, 12))
        Path(folder, "r.jsonl").write_text(json.dumps({"text": text_of(1)}) + "\n")
    before = deduplicated(*folders, "--out", "dup", "--distance", "14", "--profile", "auto-1")
    *others, apply = page(Path("dup")).commands
    pasted(apply)
    assert "mixed/a.txt\n" in Path("kept.txt").read_text()
    assert others
    for command in others:
        pasted(command)
        assert stats(Path("dup"))["inputs"] == before["inputs"]


@pytest.mark.parametrize("profile", ["auto-1", "auto-2:fields=title^3+body", "auto-3:fields=title^3+body"])
def test_a_pasted_command_has_every_option_of_the_run(profile: str, tmp_path: Path) -> None:
    names = ("a b'c.jsonl", "$(echo x).jsonl", '中文 "1".jsonl')
    texts = {f"{number}/{copy}": text_of(number, copy) for number in range(4) for copy in (0, 4, 14, 24)}
    for at, name in enumerate(names):
        lines = [{"url": f"{at}/{doc_id}", "title": text, "body": text} for doc_id, text in texts.items()]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)) + "\n")
    out = tmp_path / "out of it"
    given = (
        *(str(tmp_path / name) for name in names),
        *("--out", str(out), "--distance", "6", "--profile", profile, "--id-field", "url", "--text-field", "body"),
        *("--max-sketch", "off", "--clusters", "components", "--max-cluster-size", "50", "--keep", "longest"),
        *("--keep", "highest:score", "--table-format", "jsonl", "--pairs", "all", "--extract", "none"),
    )
    before = deduplicated(*given)
    more = page(out).commands[0]
    pasted(re.sub("--distance [0-9]+", "--distance 6", more))
    after = stats(out)
    assert [after[name] for name in ("options", "profile", "inputs", "pairs", "kept")] == [
        before[name] for name in ("options", "profile", "inputs", "pairs", "kept")
    ]


def test_a_pasted_command_compares_with_the_same_index(tmp_path: Path) -> None:
    url = make_index(tmp_path, {"old": 0}, profile="auto-2")
    source, out = near_texts(tmp_path), tmp_path / "out"
    before = deduplicated(str(source), "--out", str(out), "--against", url, "--distance", "4")
    pasted(page(out).commands[0])
    assert [stats(out)[name] for name in ("against", "profile")] == [before["against"], before["profile"]]


def test_a_name_that_looks_like_an_option_is_an_input_of_the_pasted_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    near_texts(tmp_path, "--out.jsonl")
    deduplicated("--distance", "4", "--out", "dup", "--", "--out.jsonl")
    pasted(page(Path("dup")).commands[0])


@thorough
def test_what_no_command_can_name_is_described_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = near_texts(tmp_path)
    (tmp_path / "a\nb").mkdir()
    names = {"a\nb/in.jsonl", "\u202ein.jsonl", "x" * 200 + ".jsonl"}
    for name in names:
        Path(name).write_bytes(source.read_bytes())
    Path("terms.idf").write_text("")
    for number, arguments in enumerate((name,) for name in names if len(name) < 200):
        deduplicated(*arguments, "--out", f"dup{number}", "--distance", "4", "--profile", "auto-2")
        assert page(Path(f"dup{number}")).commands == []
        assert "Run your command again with --distance 7 --overwrite" in page(Path(f"dup{number}")).text
    run_apart("dedup", "-", "--out", "stream", "--distance", "4", given=source.read_bytes(), cwd=tmp_path)
    assert page(Path("stream")).commands == []
    many = ["./" * 50 + f"{number}.jsonl" for number in range(COMMAND_CHARS // 100)]
    for name in many:
        written(Path(name), {name: text_of(1)})
    deduplicated(*many, str(source), "--out", "many", "--distance", "4")
    assert page(Path("many")).commands == []


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take names of UTF-8 alone")
def test_a_name_that_is_not_utf8_makes_a_page_without_commands(tmp_path: Path) -> None:
    source = tmp_path / "caf\udce9.jsonl"
    near_texts(tmp_path).rename(source)
    deduplicated(str(source), "--out", str(tmp_path / "out"), "--distance", "4")
    assert page(tmp_path / "out").commands == []


def test_no_secret_of_a_url_is_in_the_page(tmp_path: Path) -> None:
    near_texts(tmp_path)
    out = tmp_path / "out"
    with serving_files(tmp_path) as server:
        deduplicated(
            f"{server.url}/pages.jsonl?sig=hush-hush", "--out", str(out), "--distance", "4", "--profile", "auto-2"
        )
    found = page(out)
    assert f" {server.url}/pages.jsonl " in found.commands[0]
    assert "hush" not in (out / "report.html").read_text("utf-8")
    assert "does not store the user, password or query of a URL" in found.text


def test_the_report_names_the_records_that_are_neither_kept_nor_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.txt").write_text(text_of(1))
    Path("notes/photo.jpg").write_bytes(bytes(range(256)) * 4)
    source = near_texts(Path())
    source.write_text(source.read_text() + "nonsense\n")
    assert run("dedup", "notes", "pages.jsonl", "--out", "out").exit_code == 7
    said = "2 records rejected, neither kept nor dropped: notes/photo.jpg, pages.jsonl:9; rejects.jsonl lists"
    assert said in page(Path("out")).text


def test_pairs_that_share_a_key_are_left_out_by_a_profile_without_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names, words = "Brandywine Lighthouse keeper Amsel Torvik. " * 4, [f"word{number}" for number in range(120)]
    texts = {"a": names + " ".join(words), "b": names + " ".join([*words[:90], *WORDS, *WORDS])}
    before = deduplicated(written(Path("in.jsonl"), texts).name, "--out", "dup")
    assert (before["by_distance"], before["by_key"]) == (0, 1)
    *_, without_keys, apply = page(Path("dup")).commands
    assert "Without keys, 1 pair farther apart than 6 bits is left out." in page(Path("dup")).text
    assert not any("--distance 3" in command for command in page(Path("dup")).commands)
    pasted(without_keys)
    after = stats(Path("dup"))
    assert (after["pairs"], after["profile"]) == (0, "auto-3:key=off")
    assert apply.startswith("hsimhash apply")


def test_a_folder_of_texts_has_a_command_that_lists_the_files_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    for number in (1, 2):
        Path(f"notes/{number}.txt").write_text(text_of(1))
    deduplicated("notes", "--out", "dup")
    apply, dropped = page(Path("dup")).commands
    pasted(apply)
    pasted(dropped)
    assert Path("kept.txt").read_text().split() == ["notes/1.txt"]
    assert Path("dropped.txt").read_text().split() == ["notes/2.txt"]


def test_of_a_table_the_page_names_the_lists_of_ids(tmp_path: Path) -> None:
    source = tmp_path / "pages.csv"
    source.write_text(f"id,text\n1,{text_of(1)}\n2,{text_of(1)}\n")
    deduplicated(str(source), "--out", str(tmp_path / "out"))
    found = page(tmp_path / "out")
    assert found.commands == []
    assert "keep.txt and drop.txt with one id per line" in found.text
