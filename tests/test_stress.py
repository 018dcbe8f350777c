"""The short forms of `make stress`, and tests that those of exactness and kills detect what they look for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hsimhash import Match
from hsimhash.fingerprint import Signature
from hsimhash.layout import LAYOUT_NAMES, Layout
from hsimhash.store.conformance.place import StorePlace
from tests.stress import (
    calls_exactness,
    claims,
    crowd,
    exactness,
    foreign_files,
    foreign_suites,
    fuzz_inputs,
    fuzz_truths,
    hostile_shapes,
    kill_ingests,
    kill_writers,
    kills,
)
from tests.stress.victims import Operation
from tests.support import archives
from tests.support.effort import IS_THOROUGH, thorough, tries
from tests.support.fingerprint_sets import FINGERPRINTS, PAIRS, real_fingerprints
from tests.support.programs import Outcome, faults

pytestmark = pytest.mark.stress
KILLS = (
    {"bulk": 3, "skip": 2, "tag": 2, "texts": 1, "fitted": 2, "writers": 4, "compact": 6}
    if IS_THOROUGH
    else {"writers": 1}
)


@pytest.mark.parametrize("name", [*exactness.LAYOUTS[:-1], pytest.param(exactness.LAYOUTS[-1], marks=thorough)])
def test_no_match_is_missed_and_none_invented(name: str, tmp_path: Path) -> None:
    filled, distances = partial(exactness.embedded, tmp_path), ((1, 3, 5) if IS_THOROUGH else (3,))
    queries = tries(1_000, 200)
    outcomes = list(exactness.check_layout(name, filled, stored=3_000, queries=queries, distances=distances))
    assert len(outcomes) == 4 * len(distances)
    assert faults(outcomes) == []


@pytest.mark.parametrize("name", exactness.SIGNED_LAYOUTS)
def test_no_match_by_signature_is_missed_and_none_invented(name: str, tmp_path: Path) -> None:
    filled = partial(exactness.embedded, tmp_path)
    outcomes = list(exactness.check_signatures(name, filled, stored=3_000, queries=tries(1_000, 200)))
    assert len(outcomes) == 24
    assert faults(outcomes) == []


def test_all_near_pairs_of_real_fingerprints_are_found(labelled_data: Path, tmp_path: Path) -> None:
    fingerprints = real_fingerprints(labelled_data / FINGERPRINTS)
    assert faults([exactness.check_real("10", tmp_path, fingerprints, labelled_data / PAIRS)]) == []


@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_every_drawer_is_the_only_way_to_some_planted_match(name: str) -> None:
    layout, rng = Layout.named(name), np.random.default_rng(1)
    stored = exactness.stored_fingerprints(rng, 1_000)
    plan = exactness.planted(rng, layout, layout.max_distance, stored, 8_000)
    targets = stored[plan.targets]
    is_shared = (layout.prefix_array(plan.queries[: len(targets)]) == layout.prefix_array(targets)).all(axis=-1)
    is_sole = (is_shared.sum(axis=1) == 1) & (plan.distances <= layout.max_distance)
    assert is_shared[is_sole].any(axis=0).all()


@thorough
def test_random_calls_are_answered_as_brute_force_says(tmp_path: Path) -> None:
    with calls_exactness.places("lmdb", tmp_path) as where:
        assert faults(calls_exactness.outcomes(where, 6_000)) == []


def test_a_wrong_answer_to_a_random_call_is_seen(tmp_path: Path) -> None:
    keeping = StorePlace(lambda: f"memory://{tmp_path}", expire=lambda store, doc_ids: None)
    assert len(faults(calls_exactness.outcomes([keeping], 1_000, [(40, 400)]))) == 1


def test_a_missed_a_false_and_a_repeated_match_are_counted() -> None:
    right = np.array([1, 2, 3], np.uint64)
    assert exactness.compared(right, np.array([3, 2, 2, 4], np.uint64)) == exactness.Comparison(3, missed=1, extra=2)
    assert exactness.compared(right, right[::-1]).outcome("").is_right
    assert not exactness.Comparison(3, missed=1, extra=0).outcome("").is_right
    assert not exactness.Comparison(3, missed=0, extra=1).outcome("").is_right


def test_a_match_that_says_something_else_is_counted() -> None:
    one, other = Match(1, "a", 5, 0, 0.5, "key"), Match(2, "b", 6, 0)
    assert exactness.told([[one, other], []], [[one, other], []]) == exactness.Comparison(2, missed=0, extra=0)
    assert exactness.told([[one, other]], [[one]]) == exactness.Comparison(2, missed=1, extra=0)
    assert exactness.told([[one, other]], [[other, one]]) == exactness.Comparison(2, missed=0, extra=1)
    assert exactness.told([[one]], [[one, one]]) == exactness.Comparison(1, missed=0, extra=1)
    wrong = [one._replace(similarity=0.6), one._replace(found_by="distance")]
    assert exactness.told([[one], [one]], [[match] for match in wrong]) == exactness.Comparison(2, missed=2, extra=2)


@pytest.mark.parametrize(("name", "count"), KILLS.items(), ids=KILLS)
def test_a_kill_loses_nothing_and_a_resumed_run_ends_as_an_undisturbed_one(
    name: str, count: int, tmp_path: Path
) -> None:
    tally = kills.run({name: count}, tmp_path, documents=800)
    assert tally.is_sound, tally.faults
    assert tally.kills >= count
    assert tally.ends


def test_a_difference_between_two_ends_is_seen() -> None:
    one = kill_ingests.Result({"a": (Signature(1), 0)}, {"tags": b"1"}, {"added": 1}, leftovers=0)
    other = kill_ingests.Result({"a": (Signature(1, 0, 7), 0)}, {"tags": b"2"}, {"added": 2}, leftovers=1)
    assert kill_ingests.differences(one, one) == []
    assert len(kill_ingests.differences(one, other)) == 4


def test_a_writer_whose_acknowledged_documents_are_gone_is_seen() -> None:
    writer = kill_writers.Writer(0, seed=1)
    while not writer.documents:
        writer.acknowledge(1)
    assert writer.phase(writer.documents) is not None
    assert writer.phase({}) is None


def test_the_model_of_the_writers_keeps_first_seen_of_what_does_not_move() -> None:
    one, other, keyed = Signature(1, 4), Signature(2), Signature(2, 0, 7)
    documents = {"a": (one, 5), "b": (other, 5)}
    Operation("add", (("a", one, 9), ("b", other, 9), ("b", keyed, 9))).apply(documents)
    assert documents == {"a": (one, 5), "b": (keyed, 9)}
    Operation("remove", (("a", other, 0), ("c", other, 0))).apply(documents)
    assert documents == {"b": (keyed, 9)}


@thorough
@pytest.mark.parametrize(
    ("program", "claim"),
    [
        ("fuzz_records --records 500", "500 fuzzed records: 0 faults"),
        ("fuzz_inputs --inputs 1500", "1,500 fuzzed inputs: 0 faults"),
        ("damage --trials 4", "40 commands: 0 faults"),
        ("hfile_damage --trials 300", "HBase's, 660 cells, 33,940 bytes: damage was told"),
    ],
    ids=[
        "all records are accounted for",
        "all inputs are read as the plainest reading does",
        "damage is reported",
        "damage of HFiles is reported",
    ],
)
def test_a_program_finds_nothing_wrong(program: str, claim: str, tmp_path: Path) -> None:
    name, *given = program.split()
    command = [sys.executable, "-m", f"tests.stress.{name}", *given, "--scratch", tmp_path]
    ended = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert claim in ended.stdout


FOREIGN = {
    "y_object.json": b'{"text": "some words"}',
    "n_array_just_comma.json": b"[,]",
    "i_string_truncated-utf-8.json": b'["\xe0\xff"]',
    "strings.json": json.dumps(["", "undefined", "<script>alert(0)</script>", "../../etc/passwd%00", "\u202etest"]),
    "encodings.json": json.dumps([{"encodings": [{"labels": ["utf8", "utf-8"], "name": "UTF-8"}]}]),
    "table.csv": b"id,text\r\na,some words\r\n",
    "page.warc": archives.response("http://example.org/", b"<!doctype html><p>some words</p>"),
    "notes.md": b"# Some words\n",
    "random": bytes(range(256)),
}


@thorough
def test_files_of_others_are_read_or_refused(tmp_path: Path) -> None:
    (tmp_path / "suite").mkdir()
    for name, content in FOREIGN.items():
        (tmp_path / "suite" / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tally = foreign_files.try_folder(tmp_path / "suite", scratch)
    assert (tally.files, tally.faults) == (len(FOREIGN), {kind: [] for kind in foreign_files.KINDS})
    assert tally.documents > len(FOREIGN)
    assert tally.rejects
    assert tally.refused


def test_each_kind_of_fault_of_a_command_is_seen() -> None:
    trial = foreign_suites.Trial(Path("in.json"), records=2, verdict="read")
    ended = foreign_files.Ended(0, "", 1.0, documents=2)
    faults = {
        "": ended,
        "crash": replace(ended, code=-11),
        "hang": replace(ended, code=-signal.SIGXCPU),
        "silent loss": replace(ended, documents=1),
        "verdict": replace(ended, documents=1, rejects=["invalid JSON at character 5"]),
    }
    for kind, one in faults.items():
        assert (foreign_files.fault_of(one, trial) or ("",))[0] == kind
    for text in ("Traceback (most recent call last):", "unexpected KeyError: 'a'; this is a bug"):
        assert foreign_files.fault_of(replace(ended, said=text), trial)[0] == "crash"
    assert foreign_files.fault_of(replace(ended, rejects=["AttributeError: 'int' has no …"]), trial)[0] == "crash"


def test_a_record_that_a_reader_misses_changes_or_invents_is_seen() -> None:
    truth = [(1, ("a", "one")), (3, fuzz_truths.Judgement.REJECT)]
    found = {(0, 1): [("a", "one")], (0, 3): [fuzz_truths.Judgement.REJECT]}
    assert list(fuzz_inputs.compared(0, truth, found, is_whole=True)) == []
    for change in ({(0, 1): []}, {(0, 1): [("a", "two")]}, {(0, 3): [("b", "")]}, {(0, 2): [("b", "two")]}):
        assert len(list(fuzz_inputs.compared(0, truth, {**found, **change}, is_whole=True))) == 1


@thorough
@pytest.mark.parametrize(
    "check",
    [
        lambda folder: crowd.check_moves(folder, 2),
        lambda folder: crowd.check_opens(folder, 100),
        pytest.param(  # Python prints and swallows what a signal raises during a destructor or a collection
            lambda folder: crowd.check_signals(folder, 200),
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ),
        lambda folder: crowd.check_forks(folder, 10, load=1),
    ],
    ids=["moves", "opens", "signals", "forks"],
)
def test_a_crowd_at_one_index_does_no_harm(check: Callable[[Path], Outcome], tmp_path: Path) -> None:
    assert faults([check(tmp_path)]) == []


@thorough
def test_of_near_documents_that_processes_claim_one_is_new_whoever_is_killed(tmp_path: Path) -> None:
    assert faults([claims.on_lmdb(tmp_path, 2, 300, 2)]) == []


@thorough
def test_a_hostile_record_is_a_document_or_a_reject_between_two_documents(tmp_path: Path) -> None:
    hostile_shapes.warm_up()
    for name in ("page", "JSON lines", "CSV, quoted", "page in WARC, gzip body", "Parquet, zstd"):
        shapes = ["only NUL", "prose in Chinese", "bytes at random", hostile_shapes.OVER_LIMIT]
        (tmp_path / name).mkdir()
        found = hostile_shapes.try_carrier(name, shapes, 1 << 20, tmp_path / name)
        assert (found.faults, found.ended.keys()) == ({}, set(shapes))


@thorough
def test_a_hostile_record_is_not_charged_for_memory_of_the_process_that_tries_it(tmp_path: Path) -> None:
    hostile_shapes.warm_up()
    ballast = bytearray(b"x") * (400 << 20)
    ended = list[hostile_shapes.Ended]()
    shapes = [hostile_shapes.Trial("page", "prose in Chinese"), hostile_shapes.Trial("JSON lines", "prose in Chinese")]
    hostile_shapes.run(shapes, 1 << 20, tmp_path, 1, lambda _, one: ended.append(one))
    assert len(ballast) == 400 << 20
    assert [(one.fault, one.cost.mib < 400) for one in ended] == [("", True)] * 2


def test_each_bar_of_a_hostile_record_is_seen() -> None:
    trial, base = hostile_shapes.Trial("JSON lines", "prose"), hostile_shapes.Cost(1.0, 20.0, 0.0)
    good = hostile_shapes.Ended(hostile_shapes.Cost(6.0, 320.0, 0.0), ["a", "hostile", "z"])
    rejected = replace(good, documents=["a", "z"], rejects=["too long"])
    assert [hostile_shapes.fault_of(trial, one, base) for one in (good, rejected)] == ["", ""]
    for wrong in (
        replace(good, cost=hostile_shapes.Cost(6.1, 20.0, 0.0)),
        replace(good, cost=hostile_shapes.Cost(1.0, 20.0, 301.0)),
        replace(good, documents=["a", "hostile"]),
        replace(good, documents=["a", "z"]),
        replace(good, rejects=["too long"]),
        replace(rejected, rejects=[""]),
        replace(good, fault="hung"),
    ):
        assert hostile_shapes.fault_of(trial, wrong, base), wrong
