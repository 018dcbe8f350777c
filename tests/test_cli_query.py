"""`hsimhash query`."""

import json
import select
from pathlib import Path

import pytest

from hsimhash.fingerprint import Profile, Signature
from hsimhash.index import HSimIndex
from tests.support.command_line import PATIENCE_S, lines_of, make_index, on_terminal, own_process, run, run_apart, send
from tests.support.effort import thorough

TEXT = "a text with enough words in it to be fingerprinted, and then a few more of them for good measure"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return make_index(tmp_path, first_seen=1_700_000_000_000)


def found(text: str) -> list[list[str]]:
    return [[match["id"] for match in answer["matches"]] for answer in lines_of(text)]


def test_fingerprints_are_answered_in_order_with_nearest_first(url: str) -> None:
    result = run("query", "0000000000000003", "0x1", "18446744073709551615", "--store", url)
    assert result.exit_code == 0
    assert found(result.stdout) == [["b", "a", "中文"], ["a", "b", "中文"], ["far"]]
    answer = lines_of(result.stdout)[0]
    assert answer["fingerprint"] == "0000000000000003"
    assert answer["matches"][0] == {
        "distance": 0,
        "id": "b",
        "fingerprint": "0000000000000003",
        "first_seen": 1_700_000_000_000,
        "similarity": None,
        "found_by": "distance",
    }


ASKED = Signature(0xF0F0, 0xFFFF_FFFF, 77)
SIGNED = {
    "itself": ASKED,
    "alike": Signature(0xF0F1, 0xFFFF_FFF0, 0),
    "unlike": Signature(0xF0F1, 0xFFFF_FFFF << 32, 78),
    "bare": Signature(0xF0F3),
    "framed": Signature(0xFFF_F0F0, 0xFFFF_FFFE, 77),
}


def found_by(text: str) -> list[tuple[object, ...]]:
    (answer,) = lines_of(text)
    return [tuple(match[name] for name in ("id", "similarity", "found_by")) for match in answer["matches"]]


@thorough
def test_a_document_or_a_line_is_asked_for_with_its_sketch_and_key(tmp_path: Path) -> None:
    url = make_index(tmp_path, SIGNED, profile="auto-2")
    expected = [("alike", 1 - 8 / 64, "distance"), ("bare", None, "distance"), ("framed", 1 - 2 / 64, "key")]
    assert found_by(run("query", "--id", "itself", "--store", url).stdout) == expected
    line = json.dumps({"id": "itself", **ASKED.to_json()})
    assert found_by(run("query", "-", "--store", url, given=line).stdout) == expected
    assert found_by(run("query", "-", "--store", url, "--max-sketch", "3", given=line).stdout) == expected[1:]
    off = run("query", "-", "--store", url, given=line, environment={"HSIMHASH_MAX_SKETCH": "off"})
    assert found_by(off.stdout) == [expected[0], ("unlike", 0, "distance"), *expected[1:]]
    plain = [(name, None, "distance") for name in ("itself", "alike", "unlike", "bare")]
    assert found_by(run("query", "0xf0f0", "--store", url).stdout) == plain
    code, shown = on_terminal("query", "--id", "itself", "--store", url)
    assert (code, "similarity" in shown, "0.88" in shown, "found by" in shown) == (0, True, True, True)
    near = on_terminal("query", "0xf0f0", "--store", url)[1]
    assert ("similarity" in near, "found by" in near) == (False, False)


def test_a_text_finds_its_equal_with_all_of_its_sketch(tmp_path: Path) -> None:
    signature = Profile.named("auto-2").signature(TEXT)
    url = make_index(
        tmp_path,
        {"equal": signature, "unlike": signature._replace(sketch=~signature.sketch & 2**64 - 1)},
        profile="auto-2",
    )
    for result in (
        run("query", "--text", TEXT, "--store", url),
        run("query", "-", "--store", url, given=json.dumps({"text": TEXT})),
    ):
        assert found_by(result.stdout) == [("equal", 1.0, "distance")]


@pytest.mark.parametrize(("text", "is_short"), [("hello", True), ("a long text " + TEXT, False)])
def test_a_text_of_few_words_is_pointed_out(tmp_path: Path, text: str, is_short: bool) -> None:
    with HSimIndex.create(f"lmdb://{tmp_path}/index", profile="auto-3"):
        pass
    asked = run("query", "--text", text, "--store", f"lmdb://{tmp_path}/index")
    assert ("the text has only 1 feature" in asked.stderr) == is_short


def test_a_sketch_that_means_something_else_is_nothing_to_an_index_without_sketches(url: str, tmp_path: Path) -> None:
    line = '{"fingerprint": 1, "sketch": "s3://a"}'
    assert found(run("query", "-", "--store", url, given=line).stdout) == [["a", "b", "中文"]]
    signed = make_index(tmp_path / "signed", SIGNED, profile="auto-2")
    result = run("query", "-", "--store", signed, given=line)
    assert (result.exit_code, result.stdout) == (7, "")
    assert 'stdin:1: rejected: "sketch" must be 16 hexadecimal digits' in result.stderr


def test_document_is_not_its_own_match(url: str) -> None:
    result = run("query", "--id", "b", "--store", url)
    assert found(result.stdout) == [["a", "中文"]]
    assert lines_of(result.stdout)[0]["id"] == "b"


def test_unknown_document_fails_with_a_message(url: str) -> None:
    result = run("query", "--id", "nobody", "--store", url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("does not have a document 'nobody'\n")
    missing = run("query", "--id", "http://example.org/a", "--store", url)
    assert missing.stderr.endswith("; ids must match exactly, including http or https and a / at the end\n")


def test_text_file_and_stdin_give_the_same_answer(url: str, tmp_path: Path) -> None:
    with HSimIndex.open(url) as index:
        index.add(index.profile.fingerprint(TEXT), "the text")
    (tmp_path / "text").write_text(TEXT)
    answers = [
        run("query", "--text", TEXT, "--store", url),
        run("query", "--file", str(tmp_path / "text"), "--store", url),
        run("query", "--file", "-", "--store", url, given=TEXT),
    ]
    assert {answer.stdout for answer in answers} == {answers[0].stdout}
    assert found(answers[0].stdout) == [["the text"]]


def test_text_too_short_is_an_error(url: str) -> None:
    result = run("query", "--text", " ", "--store", url)
    assert (result.exit_code, result.stdout) == (1, "")


def test_profile_that_no_longer_gives_its_fingerprints_is_a_mismatch(tmp_path: Path) -> None:
    changed = Profile.from_json({**Profile("mine-1").to_json(), "probe": "0" * 16})
    url = f"lmdb://{tmp_path / 'changed'}"
    HSimIndex.create(url, profile=changed).close()
    for result in (
        run("query", "--text", TEXT, "--store", url),
        run("query", "-", "--store", url, given=json.dumps({"text": TEXT})),
    ):
        assert (result.exit_code, result.stdout) == (5, "")
        assert "profile mine-1 returns" in result.stderr
    assert run("query", "1", "--store", url).exit_code == 0


def test_file_that_is_missing_or_no_text_is_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for name, reason in [("gone", "No such file"), ("latin", "not UTF-8")]:
        result = run("query", "--file", str(tmp_path / name), "--store", url)
        assert result.exit_code == 1
        assert str(tmp_path / name) in result.stderr
        assert reason in result.stderr


def test_an_id_is_read_as_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    store, ascii_only = f"lmdb://{tmp_path / 'ascii'}", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with HSimIndex.create(store, profile="zh-1") as index:
        index.add_many([1, 2], ["中文", "b"])
    near = run_apart("query", "--id", "中文".encode(), "--store", store, environment=ascii_only)
    assert (near.returncode, b'"b"' in near.stdout) == (0, True), near.stderr
    wrong = run_apart("query", "--id", b"caf\xe9", "--store", store, environment=ascii_only)
    assert (wrong.returncode, b"is not valid UTF-8" in wrong.stderr) == (2, True)


def test_bounds_narrow_the_answer(url: str) -> None:
    assert found(run("query", "1", "--distance", "1", "--store", url).stdout) == [["a", "b"]]
    assert found(run("query", "1", "--limit", "1", "--store", url).stdout) == [["a"]]
    assert found(run("query", "1", "--exclude", "a", "--limit", "1", "--store", url).stdout) == [["b"]]
    beyond = run("query", "1", "--distance", "17", "--store", url)
    assert beyond.exit_code == 2
    assert "--distance must be 0 to 16 with layout 10, got 17" in beyond.stderr


def test_distance_may_be_greater_than_the_layouts_own(url: str) -> None:
    assert found(run("query", "f" * 16, "--distance", "16", "--store", url).stdout) == [["far"]]
    assert found(run("query", "000000000000ffff", "--distance", "16", "--store", url).stdout) == [["中文", "b", "a"]]


def test_distance_may_come_from_the_settings(url: str) -> None:
    result = run("query", "1", environment={"HSIMHASH_STORE": url, "HSIMHASH_MAX_DISTANCE": "0"})
    assert found(result.stdout) == [["a"]]


def test_exit_code_tells_whether_anything_was_found(url: str) -> None:
    assert run("query", "1", "--exit-code", "--store", url).exit_code == 0
    assert run("query", "123456789abcdef0", "1", "--exit-code", "--store", url).exit_code == 0
    assert run("query", "123456789abcdef0", "--exit-code", "--store", url).exit_code == 8
    assert run("query", "123456789abcdef0", "--store", url).exit_code == 0


def test_lines_are_answered_with_their_number_and_id(url: str) -> None:
    given = [{"fingerprint": "0000000000000001", "id": "a"}, {"fingerprint": 3}, {"text": ""}, {"text": TEXT, "id": 7}]
    result = run("query", "-", "--store", url, given="\n\n".join(map(json.dumps, given)))
    assert result.exit_code == 0
    answers = lines_of(result.stdout)
    assert [answer["line"] for answer in answers] == [1, 3, 5, 7]
    assert [answer.get("id") for answer in answers] == ["a", None, None, "7"]
    assert found(result.stdout) == [["b", "中文"], ["b", "a", "中文"], [], []]
    assert answers[2]["fingerprint"] is None


def test_bad_lines_are_rejected_and_the_rest_is_answered(url: str) -> None:
    bad = [
        b"{",
        b"[1]",
        b'{"id": "a"}',
        b'{"text": 5}',
        b'{"fingerprint": "xyz"}',
        b'{"fingerprint": true}',
        b'{"fingerprint": -9223372036854775809}',
        b'{"fingerprint": 18446744073709551616}',
        b'{"fingerprint": 1, "id": ["a"]}',
        b'{"fingerprint": 1, "id": "a\\u0000"}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b"[" * 200_000,
        b"1" * 5_000,
        b'{"text": "' + b"x" * (16 << 20) + b'"}',
    ]
    lines = [b'\xef\xbb\xbf{"fingerprint": 1}', *bad, b'{"fingerprint": 3}']
    result = run("query", "-", "--store", url, "--exit-code", given=b"\r\n".join(lines))
    assert result.exit_code == 7
    assert [answer["line"] for answer in lines_of(result.stdout)] == [1, len(lines)]
    told = [line for line in result.stderr.splitlines() if "rejected" in line]
    assert sorted(int(line.split(":")[2]) for line in told) == list(range(2, len(lines)))
    assert "longer than 16 MiB" in told[-1]
    assert "codec" not in result.stderr
    assert "set_int_max_str_digits" not in result.stderr


def test_more_lines_than_a_batch_keep_their_order(url: str) -> None:
    given = "".join(f'{{"fingerprint": {number << 40}}}\n' for number in range(2_500))
    answers = lines_of(run("query", "-", "--store", url, given=given).stdout)
    assert [int(str(answer["fingerprint"]), 16) >> 40 for answer in answers] == list(range(2_500))


def test_fields_of_lines_are_those_of_the_settings(url: str) -> None:
    result = run(
        "query", "-", "--text-field", "body", "--id-field", "url", "--store", url, given='{"body":"","url":"u"}'
    )
    assert lines_of(result.stdout) == [{"line": 1, "id": "u", "fingerprint": None, "matches": []}]


def test_no_lines_are_no_answers(url: str) -> None:
    result = run("query", "-", "--store", url)
    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--id", "a", "--id", "b"), "not --id 'a' and --id 'b'"),
        (("--text", "x", "--text", "y"), "not --text 'x' and --text 'y'"),
        (("--file", "x", "--file", "y"), "not --file 'x' and --file 'y'"),
        (("1", "--id", "a"), "not arguments and --id 'a'"),
        (("--id", "a", "--file", "y"), "not --id 'a' and --file 'y'"),
        (("--text", "x", "--file", "y"), "not --text 'x' and --file 'y'"),
    ],
)
def test_two_questions_are_misuse_that_names_both(url: str, arguments: tuple[str, ...], named: str) -> None:
    result = run("query", *arguments, "--store", url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr


@pytest.mark.parametrize(("words", "named"), [(("12xy",), "12xy"), (("1", "--limit", "0"), "--limit")])
def test_bad_value_is_misuse_and_named_before_any_index_is_opened(words: tuple[str, ...], named: str) -> None:
    result = run("query", *words, "--store", "lmdb://gone")
    assert result.exit_code == 2
    assert named in result.stderr


def test_an_ambiguous_fingerprint_is_misuse_that_names_the_remedies(url: str) -> None:
    taken = "1291587514616409"
    result = run("query", taken, "--store", url)
    assert result.exit_code == 2
    assert "0x" in result.stderr
    assert "--fingerprint-format" in result.stderr
    for arguments, value in [
        ((f"0x{taken}",), int(taken, 16)),
        ((taken, "--fingerprint-format", "hex"), int(taken, 16)),
        ((taken, "--fingerprint-format", "decimal"), int(taken)),
        (("--fingerprint-format", "signed", "--", f"-{taken}"), 2**64 - int(taken)),
    ]:
        answer = lines_of(run("query", "--store", url, *arguments).stdout)[0]
        assert answer["fingerprint"] == f"{value:016x}"


def test_lines_are_read_in_the_format_that_those_beside_them_tell(url: str) -> None:
    written = ["1291587514616409", "12345678901234567890", 7]
    given = "".join(json.dumps({"fingerprint": one}) + "\n" for one in written)
    result = run("query", "-", "--store", url, given=given)
    assert [int(str(answer["fingerprint"]), 16) for answer in lines_of(result.stdout)] == list(map(int, written))
    assert "stdin: fingerprints are read as decimal" in result.stderr


def test_a_field_beside_a_text_tells_nothing_about_fingerprints(tmp_path: Path) -> None:
    url = make_index(tmp_path, SIGNED, profile="auto-2")
    lines = ('{"text": "", "key": "12"}', json.dumps({"id": "itself", **ASKED.to_json()}))
    result = run("query", "-", "--store", url, given="\n".join(lines))
    assert (result.exit_code, found(result.stdout)) == (0, [[], ["alike", "bare", "framed"]])


def test_a_line_that_alone_is_ambiguous_is_rejected_and_nothing_waits_for_more(url: str) -> None:
    with own_process("query", "-", "--store", url) as process:
        send(process, b'{"fingerprint": "1291587514616409"}\n')
        assert b"stdin:1: rejected: ambiguous" in process.stderr.readline()
        send(process, b'{"fingerprint": "000000000000000f"}\n')
        assert json.loads(process.stdout.readline())["line"] == 2
        process.stdin.close()
    assert process.returncode == 7


def test_terminal_shows_a_table_unless_json_is_asked_for(url: str) -> None:
    code, shown = on_terminal("query", "1", "123456789abcdef0", "--store", url)
    assert code == 0
    assert "first seen" in shown
    assert "2023-11-14T22:13:20Z" in shown
    assert "中文" in shown
    assert "123456789abcdef0: no document is near" in shown
    code, shown = on_terminal("query", "1", "--json", "--store", url)
    assert found(shown) == [["a", "b", "中文"]]


def test_pipe_gets_utf_8_whatever_the_locale(url: str) -> None:
    answer = run_apart("query", "7", "--store", url, environment={"PYTHONIOENCODING": "latin-1"})
    assert "中文".encode() in answer.stdout


def test_each_line_is_answered_when_no_more_has_come(url: str) -> None:
    with own_process("query", "-", "--store", url) as process:
        # The first line arrives with the beginning of the next; its answer does not wait for the rest.
        for number, part in enumerate([b'{"fingerprint": 1}\n{"finger', b'print": 3}\n'], start=1):
            send(process, part)
            readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
            assert readable, "the answer waits for more lines"
            assert json.loads(process.stdout.readline())["line"] == number
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_an_unknown_id_that_is_a_file_is_told_how_to_query_by_it(tmp_path: Path) -> None:
    store, path = make_index(tmp_path), tmp_path / "a.txt"
    path.write_text("a text")
    assert run("query", "--id", str(path), "--store", store).stderr.endswith(
        f"does not have a document {str(path)!r}; to use the file with this name, pass it without --id\n"
    )
    assert run("query", "--id", "x" * 5000, "--store", store).exit_code != 0
