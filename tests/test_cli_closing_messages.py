"""The closing messages of commands on a terminal; in a pipe and with --json, commands print only JSON."""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hsimhash.cli.closing_messages import shell_word
from hsimhash.inputs import InputOptions
from tests.support.command_line import on_terminal, own_process, run
from tests.support.effort import thorough
from tests.test_calibrate import article, edited

OPEN = "open" if sys.platform == "darwin" else "xdg-open"
RECORDS = {"a": article(1), "b": article(1), "c": article(2), "d": "!"}

pytestmark = pytest.mark.usefixtures("in_empty_folder")


def written(path: str = "in.jsonl", *more: str, **names: str) -> str:
    id_name, text_name = names.get("id_field", "id"), names.get("text_field", "text")
    lines = [json.dumps({id_name: doc_id, text_name: text}) for doc_id, text in RECORDS.items()]
    Path(path).write_text("\n".join([*lines, *more]) + "\n")
    return path


def program() -> str:
    return "hsimhash" if shutil.which("hsimhash") else "python -m hsimhash"


def ending(*command: str, code: int = 0) -> list[str]:
    """Return what a command prints on a terminal."""
    ended, shown = on_terminal(*command)
    assert ended == code, shown
    return [line for line in shown.replace("\r", "").splitlines() if not line.startswith("hsimhash: ")]


def next_of(lines: list[str], title: str = "Next") -> list[str]:
    """Return the words of the command to paste, without the program's name."""
    (line,) = (line for line in lines if line.startswith(f"{title}: "))
    words = shlex.split(line.removeprefix(f"{title}: ").removeprefix("python -m "))
    assert words[0] == "hsimhash"
    return words[1:]


def test_dedup_tells_what_it_kept_where_to_look_and_what_next() -> None:
    lines = ending("dedup", written("in.jsonl", "nonsense"), "--out", "my results", "--quiet", code=7)
    assert lines == [
        "Read 4 documents: kept 3, dropped 1 near-duplicate in 1 cluster.",
        "Rejected 1 invalid record: see 'my results/rejects.jsonl'.",
        "The first: in.jsonl:5: invalid JSON at character 0",
        "1 document was too short to compare and was kept: see 'my results/short.jsonl'.",
        f"Report: {OPEN} 'my results/report.html'",
        f"Next: {program()} apply in.jsonl --from 'my results' --out kept.jsonl",
    ]
    assert run(*next_of(lines)).exit_code == 7
    assert Path("kept.jsonl").read_text().count("\n") == 3


@thorough
def test_what_is_printed_is_whole_however_narrow_the_terminal_and_goes_where_stdout_goes() -> None:
    source, store = written("x" * 90 + ".jsonl"), "lmdb://" + "y" * 90
    lines = ending("ingest", source, "--store", store)
    assert next_of(lines)[-1] == store
    (summary,) = (line for line in ending("ingest", source, "--store", store, "--json") if line.startswith("{"))
    assert json.loads(summary)["repeated"]
    controller, terminal = pty.openpty()
    with own_process("ingest", source, "--store", "lmdb://other", stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["added"] == 3
    os.close(controller)


def test_dedup_that_finds_nothing_says_so() -> None:
    Path("one.tsv").write_text("a\tone text\n")
    assert ending("dedup", "one.tsv", "--out", "out", "--quiet")[0] == (
        "Read 1 document: kept all of them, found no near-duplicates."
    )


@thorough
def test_inputs_without_a_document_are_not_called_unique() -> None:
    Path("texts").mkdir()
    Path("empty.jsonl").touch()
    Path("bad.jsonl").write_text("nonsense\n")
    for name in ("texts", "empty.jsonl"):
        assert ending("dedup", name, "--out", "out", "--quiet", "--overwrite") == [
            "Read 0 documents: the inputs do not contain any documents."
        ]
    assert ending("dedup", "bad.jsonl", "--out", "out", "--quiet", "--overwrite", code=7) == [
        "Read 0 documents: the inputs do not contain any documents.",
        "Rejected 1 invalid record: see out/rejects.jsonl.",
        "The first: bad.jsonl:1: invalid JSON at character 0",
    ]


@pytest.mark.parametrize("command", [("dedup", "--out"), ("ingest", "--store")])
def test_the_reason_of_the_first_reject_is_said_at_once(command: tuple[str, ...]) -> None:
    Path("in\x1b[1m.jsonl").write_text(json.dumps({"id": "a", "text": article(1)}) + "\n[1]\n{\n")
    *words, option = command
    result = run(*words, "in\x1b[1m.jsonl", option, "./out")
    assert result.exit_code == 7
    assert "the first: in\\x1b[1m.jsonl:2: invalid JSON: expected an object, got an array" in result.stderr


@pytest.mark.parametrize(
    ("options", "names"),
    [
        pytest.param((), {}, marks=thorough),
        (("--id-field", "url", "--text-field", "body"), {"id_field": "url", "text_field": "body"}),
    ],
)
def test_each_command_names_the_next_and_all_of_them_run(options: tuple[str, ...], names: dict[str, str]) -> None:
    apply = next_of(ending("dedup", written(**names), "--out", "out", "--quiet", *options))
    lines = ending(*apply)
    assert lines[0] == "Wrote 3 documents to kept.jsonl, left out 1."
    ingest = next_of(lines)
    lines = ending(*ingest, "--quiet")
    assert lines[0] == "Read 3 documents: 2 added."
    query = next_of(lines)
    assert run(*query).exit_code == 0
    assert ending(*ingest, "--quiet")[0].startswith("These inputs were already ingested")


@thorough
def test_a_folder_is_applied_to_names_and_what_is_read_is_not_written_over() -> None:
    Path("texts").mkdir()
    Path("texts", "a.txt").write_text(article(1))
    assert next_of(ending("dedup", "texts", "--out", "out", "--quiet"))[-1] == "kept.txt"
    Path("kept.txt").write_text("")
    assert next_of(ending("dedup", "texts", "--out", "out", "--quiet", "--overwrite"))[-1] == "out/kept.txt"


@thorough
def test_inputs_that_apply_refuses_get_the_list_of_ids() -> None:
    Path("in.csv").write_text("id,text\na,one text\n")
    assert ending("dedup", "in.csv", "--out", "out", "--quiet")[-1] == (
        "Next: use the ids to keep in out/keep.txt ('hsimhash apply' cannot copy in.csv)."
    )


@thorough
def test_records_of_several_formats_are_applied_together() -> None:
    Path("more.tsv").write_text(f"e\t{article(2)}\n")
    apply = next_of(ending("dedup", written(), "more.tsv", "--out", "out", "--quiet"))
    assert run(*apply).exit_code == 0
    assert Path("kept.jsonl").read_text().count("\n") == 3


@thorough
def test_calibrate_ends_with_commands_that_run() -> None:
    texts = {str(number): article(number) for number in range(30)}
    texts |= {f"near-{number}": edited(texts[str(number)], 5, number) for number in range(9)}
    Path("in.jsonl").write_text("".join(json.dumps({"id": one, "text": text}) + "\n" for one, text in texts.items()))
    lines = ending("calibrate", "in.jsonl", "--profile", "words-1", "--report", "page.html")
    assert any(line.startswith("recommended: words-1, by distance, within ") for line in lines)
    assert f"Report: {OPEN} page.html" in lines
    assert run(*next_of(lines)).exit_code == 0
    for title in ("  or", " and"):
        assert run(*next_of(lines, title)).exit_code == 0
    assert sum(line.startswith("Without labels, similar documents") for line in lines) == 1
    Path("labels.tsv").write_text("".join(f"{number}\tnear-{number}\t1\n" for number in range(9)))
    labelled = ending("calibrate", "in.jsonl", "--profile", "words-1", "--pairs", "labels.tsv")
    assert any(line.startswith("The labels contain 9 near pairs, too few for a reliable choice") for line in labelled)


@thorough
@pytest.mark.parametrize(
    "command", [("dedup", "in.jsonl", "--out", "out"), ("ingest", "in.jsonl", "--store", "lmdb://i")]
)
def test_a_pipe_and_json_get_json_alone(command: tuple[str, ...]) -> None:
    written()
    assert json.loads(run(*command, "--quiet").stdout)["documents"] == 4
    again = "--overwrite" if command[0] == "dedup" else "--fresh"
    (line,) = ending(*command, "--quiet", "--json", again)
    assert json.loads(line)["documents"] == 4
    with own_process(*command, "--quiet", again) as process:
        assert json.loads(process.communicate()[0])["documents"] == 4


@pytest.mark.parametrize(
    "word", ["plain", "two words", "it's", "$HOME", "a\nb", "\x1b[31m", "\u202e", "é中", "b\udcff", "back\\\n"]
)
def test_a_word_comes_back_from_a_shell_and_has_nothing_that_a_terminal_obeys(word: str) -> None:
    quoted = shell_word(word)
    assert quoted.isprintable()
    with os.popen(f"bash -c {shlex.quote(f'printf %s {quoted}')}") as shell:
        assert shell.buffer.read() == os.fsencode(word)


def test_flags_read_inputs_again_as_they_were_read() -> None:
    reading = InputOptions("tsv", id_field="url", extract="none")
    assert reading.flags == ["--format", "tsv", "--id-field", "url", "--extract", "none"]
    assert InputOptions().flags == []


@thorough
def test_the_settings_file_is_part_of_the_next_command() -> None:
    Path("my.yaml").write_text("workers: 1\n")
    words = next_of(ending("--config", "my.yaml", "dedup", written(), "--out", "out", "--quiet"))
    assert words[:3] == ["--config", "my.yaml", "apply"]
