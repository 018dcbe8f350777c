"""Messages with two wordings: one for Python callers, one for users of the command line."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsimhash import CorruptionError, HSimIndex, IndexNotFoundError, parse_fingerprint
from hsimhash.cli.exit_codes import message_of
from hsimhash.dedup import reading_of_run
from hsimhash.errors import Remedy, create_one, in_shell
from hsimhash.inputs.files import InputOptions
from hsimhash.inputs.find import find_inputs
from hsimhash.pairs import find_pairs
from tests.support.command_line import run

PACKAGE = Path(__file__).parents[1] / "hsimhash"


def test_a_message_has_both_wordings_wherever_its_remedy_stands() -> None:
    remedy = create_one("lmdb://pages")
    for message in ("at once: " + remedy, remedy + "; or wait", "a; " + remedy + "; b"):
        assert "HSimIndex.create(" in message
        assert "hsimhash create-table" not in message
        assert in_shell(message) == str(message).replace(str(remedy), remedy.shell)


@pytest.mark.parametrize("kind", [IndexNotFoundError, CorruptionError, ValueError, TypeError])
def test_an_error_keeps_both_wordings_when_it_is_copied_or_sent_to_another_process(kind: type[Exception]) -> None:
    error = kind("no index here; " + create_one("redis://host/?prefix=a&b"))
    for one in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (
            str(one) == 'no index here; check the URL, or create one with HSimIndex.create("redis://host/?prefix=a&b")'
        )
        command = "hsimhash create-table --store 'redis://host/?prefix=a&b'"
        assert in_shell(one) == f'no index here; check the URL, or create one with "{command}"'


def test_an_error_of_the_system_keeps_both_wordings() -> None:
    error = OSError(28, "no space; " + Remedy("pass more memory_bytes", "allow more --memory"), "pages")
    assert message_of(error) == "pages: no space; allow more --memory"
    assert "memory_bytes" in str(error)


def test_python_reads_calls_and_the_command_line_reads_commands(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(
        IndexNotFoundError,
        match=rf'^no index at {missing}; check the URL, or create one with HSimIndex.create\("lmdb://{missing}"\)$',
    ):
        HSimIndex.open(missing)
    told = run("describe", "--store", f"{missing}").stderr
    assert (
        f"no index at {missing}; check the URL, or create one with 'hsimhash ingest INPUT --store lmdb://{missing}'"
        in told
    )
    assert "HSimIndex" not in told

    with pytest.raises(ValueError, match=r"or name the format with format=$"):
        parse_fingerprint("1291587514616409")
    assert "or name the format with --fingerprint-format" in run("explain", "1291587514616409", "0").stderr

    with pytest.raises(ValueError, match=r"see hsimhash.plan.layouts_for\(9\)$"):
        find_pairs([1, 2], max_distance=9, layout="4")


def test_inputs_and_results_name_arguments_in_python_and_flags_on_the_command_line(tmp_path: Path) -> None:
    records, table = tmp_path / "records.jsonl", tmp_path / "mixed.tsv"
    records.write_text('{"key": "a", "content": "a long text"}\n' * 2)
    table.write_text("a\t0123456789abcdef\nb\ta text\n")
    (tmp_path / "binary.bin").write_bytes(b"\0\1\2" * 99)
    (tmp_path / "digits.jsonl").write_text('{"id": "a", "fingerprint": "1291587514616409"}\n')
    (tmp_path / "pages.warc").write_bytes(b"")
    tries: list[tuple[str, dict[str, str], str, str]] = [
        ("records.jsonl", {}, 'pass text_field="content"', "pass --text-field content"),
        ("records.jsonl", {"text_field": "content", "id_field": "url"}, 'id_field="NAME"', "--id-field NAME"),
        ("mixed.tsv", {}, 'pass format="fingerprints"', "pass --format fingerprints"),
        ("binary.bin", {}, "name its format with format=", "pass --format"),
        ("pages.warc", {"id_field": "key"}, "id_field must be", "--id-field must be"),
        (
            *("digits.jsonl", {"fingerprint_field": "fingerprint"}),
            *("choose with fingerprint_format=hex|", "choose with --fingerprint-format hex|"),
        ),
    ]
    for name, options, in_python, on_command_line in tries:
        path = str(tmp_path / name)
        with pytest.raises(ValueError, match=re.escape(in_python)) as caught:
            find_inputs([path], InputOptions(**options))
        assert "--" not in str(caught.value)
        flags = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
        told = run("dedup", path, *flags, "--out", str(tmp_path / "out")).stderr
        assert on_command_line in told
        assert in_python not in told or in_python in on_command_line

    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match=r"call dedup again$"):
        reading_of_run(tmp_path / "out")
    assert "run 'hsimhash dedup' again" in run("apply", str(records), "--from", str(tmp_path / "out")).stderr


# Modules that commands call and whose messages are about the options of these commands.
OF_COMMANDS = {"cli", "settings.py", "store/hbase/operations.py"}
OF_COMMANDS |= {"store/hbase/files/load_tool.py", "dedup/commands.py", "dedup/report.py", "calibrate/results.py"}


def test_no_other_message_of_the_library_names_a_flag() -> None:
    """A complete command in quotes may have flags because there is nothing to call instead."""
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if any(name == one or name.startswith(f"{one}/") for one in OF_COMMANDS) or path.name == "checkup.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.Raise, ast.Return)):
                said = re.sub(r"'hsimhash [^']*'", "", "".join(plain_texts(node)))
                assert not re.search(r"(^|[\s'(])--[a-z]", said), f"{name}:{node.lineno}: {said}"


def test_no_command_shows_the_wording_for_python() -> None:
    """An f-string or str() of an error has that wording; in_shell and message_of return the command-line wording."""
    for path in (PACKAGE / "cli").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        errors = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)} | {"error"}
        for node in ast.walk(tree):
            shown = [node.value] if isinstance(node, ast.FormattedValue) else []
            shown += node.args if isinstance(node, ast.Call) and ast.unparse(node.func) == "str" else []
            assert not {ast.unparse(one) for one in shown} & errors, f"{path.name}:{node.lineno}"


def plain_texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts in an expression, except those of a remedy."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Remedy":
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from plain_texts(child)
