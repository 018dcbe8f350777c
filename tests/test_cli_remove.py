"""`hsimhash remove`."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import ids_in, make_index, on_terminal, run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return make_index(tmp_path)


def test_removed_and_unknown_documents_are_counted(url: str) -> None:
    result = run("remove", "a", "nobody", "中文", "a", "--yes", "--store", url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "removed 2 documents, 1 unknown" in result.stderr
    assert ids_in(url) == ["b", "far"]


def test_json_has_the_counts(url: str) -> None:
    result = run("remove", "a", "nobody", "--yes", "--json", "--store", url)
    assert json.loads(result.stdout) == {"removed": 1, "unknown": 1}


def test_ids_come_from_a_file_or_stdin_one_a_line(url: str, tmp_path: Path) -> None:
    (tmp_path / "gone").write_bytes("a\r\n\n中文\n".encode())
    assert run("remove", "--file", str(tmp_path / "gone"), "--yes", "--store", url).exit_code == 0
    assert ids_in(url) == ["b", "far"]
    assert run("remove", "-", "--yes", "--store", url, given="b").exit_code == 0
    assert ids_in(url) == ["far"]


def test_many_ids_are_removed_batch_by_batch(tmp_path: Path) -> None:
    url = make_index(tmp_path, {f"d{number}": number for number in range(2_500)})
    ids = "\n".join(f"d{number}" for number in range(2_499))
    result = run("remove", "-", "--yes", "--json", "--store", url, given=ids)
    assert json.loads(result.stdout) == {"removed": 2_499, "unknown": 0}
    assert ids_in(url) == ["d2499"]


def test_bad_lines_are_told_and_the_rest_is_removed(url: str) -> None:
    result = run("remove", "-", "--yes", "--store", url, given=b"a\nb\tb\n\xff\nfar\n")
    assert result.exit_code == 7
    assert "stdin:2: rejected" in result.stderr
    assert "stdin:3: rejected" in result.stderr
    assert ids_in(url) == ["b", "中文"]


def test_bad_id_on_the_command_line_is_misuse_and_nothing_is_removed(url: str) -> None:
    result = run("remove", "a", "b\tb", "--yes", "--store", url)
    assert result.exit_code == 2
    assert len(ids_in(url)) == 4


def test_nobody_to_ask_is_misuse(url: str) -> None:
    result = run("remove", "a", "--store", url)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert len(ids_in(url)) == 4


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, 4), ("\n", 1, 4), ("y\n", 0, 3), ("\x03", 130, 4)])
def test_terminal_is_asked(url: str, answer: str, code: int, left: int) -> None:
    status, shown = on_terminal("remove", "a", "--store", url, asked="[y/N]", typed=answer)
    assert (status, len(ids_in(url))) == (code, left)
    assert f"Remove 1 document from {url}?" in shown


@pytest.mark.parametrize("arguments", [(), ("a", "--file", "b"), ("-", "a")])
def test_sources_that_contradict_are_misuse(url: str, arguments: tuple[str, ...]) -> None:
    assert run("remove", *arguments, "--yes", "--store", url).exit_code == 2


def test_missing_file_is_named(url: str) -> None:
    result = run("remove", "--file", "gone.txt", "--yes", "--store", url)
    assert result.exit_code == 1
    assert "gone.txt: No such file" in result.stderr
