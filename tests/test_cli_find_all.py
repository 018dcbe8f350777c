"""`hsimhash find-all` and `find-clusters`: the results, messages and exit codes of simhash-cpp's programs."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import own_process, run, run_apart
from tests.support.effort import thorough
from tests.support.processes import wait_until

COMMANDS = ("find-all", "find-clusters")
ASKED = ("-b", "4", "-d", "3")
EXAMPLE = "255\n239\n238\n206\n51\n"
LANES = [value << shift for shift in (0, 8, 16, 24) for value in (0xFF, 0xEF, 0xEE, 0xCE, 0x33)]
DIVERSE = [0, 269488128, 269484048, 268439568, 1052688, 16843008, 16842753, 16777473, 65793]
DENSE = "".join(f"{4 * number}\n" for number in range(20_000))  # 4.7 million pairs


pytestmark = pytest.mark.usefixtures("in_empty_folder")


def lines_of(shown: str) -> list[list[int]]:
    """Return the list in each line; the lines must be exactly as `json` writes them."""
    lists = [json.loads(line) for line in shown.splitlines()]
    assert shown == "".join(f"{json.dumps(one)}\n" for one in lists)
    return lists


def text_of(fingerprints: list[int]) -> str:
    return "".join(f"{fingerprint}\n" for fingerprint in fingerprints)


def near_pairs(fingerprints: list[int], distance: int) -> set[tuple[int, int]]:
    ordered = itertools.combinations(sorted(set(fingerprints)), 2)
    return {(a, b) for a, b in ordered if (a ^ b).bit_count() <= distance}


def test_the_example_has_six_pairs_and_one_cluster() -> None:
    found = run("find-all", *ASKED, "-i", "-", "-o", "-", given=EXAMPLE)
    assert (found.exit_code, sorted(found.stdout.splitlines())) == (
        0,
        ["[206, 238]", "[206, 239]", "[206, 255]", "[238, 239]", "[238, 255]", "[239, 255]"],
    )
    found = run("find-clusters", *ASKED, given=EXAMPLE)
    assert (found.exit_code, found.stdout) == (0, "[255, 239, 238, 206]\n")


@pytest.mark.parametrize("blocks", range(4, 10))
def test_the_answer_is_the_same_for_any_number_of_blocks(blocks: int) -> None:
    asked = ("-b", str(blocks), "-d", "3")
    pairs = lines_of(run("find-all", *asked, given=text_of(LANES)).stdout)
    assert len(pairs) == 24
    assert {tuple(pair) for pair in pairs} == near_pairs(LANES, 3)
    clusters = lines_of(run("find-clusters", *asked, given=text_of(LANES)).stdout)
    assert clusters == [LANES[at : at + 4] for at in (0, 5, 10, 15)]
    assert len(lines_of(run("find-all", *asked, given=text_of(DIVERSE)).stdout)) == 20
    assert lines_of(run("find-clusters", *asked, given=text_of(DIVERSE)).stdout) == [DIVERSE]


@pytest.mark.parametrize("distance", [1, 3, 6, 12])
def test_all_pairs_and_clusters_are_those_of_brute_force(distance: int) -> None:
    rng = np.random.default_rng(distance)
    fingerprints = rng.integers(0, 2**64, 300, dtype=np.uint64).tolist()
    for _ in range(600):
        near = int(rng.choice(fingerprints)) ^ sum(1 << int(bit) for bit in rng.integers(0, 64, 4))
        fingerprints.append(near % 2**64)
    asked = ("-b", str(distance + 2), "-d", str(distance))
    pairs = lines_of(run("find-all", *asked, given=text_of(fingerprints)).stdout)
    expected = near_pairs(fingerprints, distance)
    assert len(pairs) == len(expected)
    assert {tuple(pair) for pair in pairs} == expected
    clusters = lines_of(run("find-clusters", *asked, given=text_of(fingerprints)).stdout)
    assert {frozenset(one) for one in clusters} == joined(expected)
    assert sum(map(len, clusters)) == len(set(itertools.chain(*expected)))


def joined(pairs: set[tuple[int, int]]) -> set[frozenset[int]]:
    cluster: dict[int, frozenset[int]] = {}
    for a, b in pairs:
        both = cluster.get(a, frozenset([a])) | cluster.get(b, frozenset([b]))
        cluster |= dict.fromkeys(both, both)
    return set(cluster.values())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("given", ["7\n7\n7", "", "1\n18446744073709551614"])
def test_nothing_near_is_no_output_and_success(command: str, given: str) -> None:
    found = run(command, *ASKED, given=given)
    assert (found.exit_code, found.stdout) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("-b4", "-d3"),
        ("--blocks=4", "--distance=3"),
        ("--bl", "4", "--dist=3"),
        ("in", "-b", "4", "out", "-d", "3", "--inp", "-"),
        ("-b", "9", "-b", "4x", "-d", " +3"),
        ("-b", "4", "-d", "3", "--", "-b", "1", "--nonsense"),
        ("-b", "64", "-d", "3"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_read_as_getopt_long_reads_them(command: str, arguments: tuple[str, ...]) -> None:
    assert run(command, *arguments, given=EXAMPLE).stdout == run(command, *ASKED, given=EXAMPLE).stdout != ""


@pytest.mark.parametrize("flag", ["-h", "--help", "--he"])
@pytest.mark.parametrize("command", COMMANDS)
def test_usage_goes_to_stdout(command: str, flag: str) -> None:
    found = run(command, flag)
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout.startswith(
        f"usage: hsimhash {command} --blocks BLOCKS --distance DISTANCE --input INPUT --output OUTPUT\n\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--foo",), 1, "unrecognized option '--foo'"),
        (("-x",), 1, "invalid option -- 'x'"),
        (("--blocks",), 1, "option '--blocks' requires an argument"),
        (("-b",), 1, "option requires an argument -- 'b'"),
        (("--help=x",), 1, "option '--help' doesn't allow an argument"),
        ((), 2, "Blocks must be provided and > 0"),
        (("-b", "abc", "-d", "3"), 2, "Blocks must be provided and > 0"),
        (("-b", "-1", "-d", "3"), 2, "Blocks must be provided and > 0"),
        (("-b", "65", "-d", "3"), 2, "Number of blocks must not exceed 64"),
        (("-b", "9" * 30, "-d", "3"), 2, "Number of blocks must not exceed 64"),
        (("-b", "4"), 3, "Distance must be provided and > 0"),
        (("-b", "4", "-d", "0", "-i", ""), 3, "Distance must be provided and > 0"),
        (("-b", "3", "-d", "3", "-i", "", "-o", ""), 4, "Input must be provided and non-empty."),
        (("-b", "3", "-d", "3", "-o", ""), 5, "Output must be provided and non-empty."),
        (("-b", "3", "-d", "9", "-i", "gone"), 6, "Blocks (3) must be "),
        (("-b", "4", "-d", "3", "-i", "gone"), 7, "Error reading gone"),
        (("-b", "4", "-d", "3", "-i", "."), 7, "Error reading ."),
        (("-b", "4", "-d", "3", "-o", "gone/out"), 8, "Error writing gone/out"),
        (("-b", "4", "-d", "3", "-o", "."), 8, "Error writing ."),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_wrong_ends_in_the_peers_codes_and_words(
    command: str, arguments: tuple[str, ...], code: int, told: str
) -> None:
    found = run(command, *arguments, given=EXAMPLE)
    assert (found.exit_code, found.stdout) == (code, "")
    assert told in found.stderr.splitlines()[-1]


def test_too_few_blocks_are_refused_in_each_programs_words() -> None:
    assert run("find-all", "-b", "3", "-d", "3").stderr == "Blocks (3) must be >= distance (3)\n"
    assert run("find-clusters", "-b", "3", "-d", "3").stderr == "Blocks (3) must be > distance (3)\n"


@pytest.mark.parametrize(
    ("command", "computing", "writing"), [("find-all", "matches", "matches"), ("find-clusters", "clusters", "results")]
)
def test_each_command_says_what_it_does(command: str, computing: str, writing: str) -> None:
    streams = run(command, *ASKED, given=EXAMPLE).stderr
    assert streams == f"Reading hashes from stdin.\nComputing {computing}...\nWriting results to stdout.\n"
    Path("in").write_text(EXAMPLE)
    files = run(command, *ASKED, "-i", "in", "-o", "out").stderr
    assert files == f"Reading hashes from in\nComputing {computing}...\nWriting {writing} to out\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("command", COMMANDS)
def test_blank_lines_are_skipped_with_a_warning(command: str, newline: str) -> None:
    found = run(command, *ASKED, given=newline.join(["255", "", " +239", "  ", "51"]))
    assert (found.exit_code, sorted(itertools.chain(*lines_of(found.stdout)))) == (0, [239, 255])
    assert "Skipped 2 blank lines in stdin; the first is line 2" in found.stderr.splitlines()


@pytest.mark.parametrize("junk", ["foo", "1 foo", "-1", "18446744073709551616", "0xff"])
@pytest.mark.parametrize("command", COMMANDS)
def test_junk_is_an_error_that_names_file_line_and_value(command: str, junk: str) -> None:
    Path("in").write_text(f"1\n2\n{junk}\n3\n")
    found = run(command, *ASKED, "-i", "in", "-o", "out")
    assert (found.exit_code, found.stdout, Path("out").exists()) == (7, "", False)
    assert found.stderr.splitlines()[-1].startswith(f"Error reading in: line 3: '{junk}' is not an unsigned decimal")


def test_output_replaces_a_file_through_its_link_and_leaves_nothing_beside_it() -> None:
    Path("folder").mkdir()
    Path("folder/out.gz").write_text("old")
    Path("link").symlink_to("folder/out.gz")
    assert run("find-clusters", *ASKED, "-o", "link", given=EXAMPLE).exit_code == 0
    assert Path("folder/out.gz").read_text() == "[255, 239, 238, 206]\n"
    assert Path("link").is_symlink()
    assert [path.name for path in Path("folder").iterdir()] == ["out.gz"]


@pytest.mark.parametrize("name", ["in", "link", "hard"])
@pytest.mark.parametrize("given", ["in", "-"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_input_is_not_written_over(command: str, given: str, name: str) -> None:
    Path("in").write_text(EXAMPLE)
    Path("link").symlink_to("in")
    Path("hard").hardlink_to("in")
    with Path("in").open("rb") as stdin:
        refused = run_apart(command, *ASKED, "-i", given, "-o", name, stdin=stdin)
    assert refused.returncode == 8
    assert f"Error writing {name}: it is the input" in refused.stderr.decode()
    assert Path("in").read_text() == EXAMPLE


def test_what_a_killed_run_left_is_no_obstacle_to_one_of_its_process_number() -> None:
    Path(f".out.{os.getpid()}").write_text("half")
    assert run("find-clusters", *ASKED, "-o", "out", given=EXAMPLE).exit_code == 0
    assert Path("out").read_text() == "[255, 239, 238, 206]\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_is_written_to_and_not_replaced(command: str) -> None:
    done = run_apart(command, *ASKED, "-o", "/dev/stdout", given=EXAMPLE.encode())
    assert (done.returncode, done.stdout.decode()) == (0, run(command, *ASKED, given=EXAMPLE).stdout)


@pytest.mark.parametrize("output", ["-", "/dev/full"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_an_error_of_writing(command: str, output: str) -> None:
    with Path("/dev/full").open("wb") as full:
        failed = run_apart(command, *ASKED, "-o", output, given=EXAMPLE.encode(), stdout=full)
    assert failed.returncode == 8
    name = "stdout" if output == "-" else output
    assert failed.stderr.decode().splitlines()[-1] == f"Error writing {name}: No space left on device"


def test_a_reader_that_goes_away_is_no_failure() -> None:
    Path("in").write_text(DENSE)
    with own_process("find-all", *ASKED, "-i", "in") as process:
        process.stdout.close()
        assert b"Error" not in process.stderr.read()
    assert process.returncode == 0


@thorough
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 130), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_that_ends_early_leaves_the_output_as_it_was(sent: signal.Signals, code: int) -> None:
    Path("in").write_text(DENSE)
    Path("out").write_text("old")
    with own_process("find-all", *ASKED, "-i", "in", "-o", "out") as process:
        wait_until(lambda: any(path.stat().st_size for path in Path().glob(".out.*")), process)
        process.send_signal(sent)
        assert process.wait() == code
    assert Path("out").read_text() == "old"
    assert run("find-all", *ASKED, "-i", "in", "-o", "out").exit_code == 0
    assert Path("out").read_bytes().count(b"\n") == 4_721_904
