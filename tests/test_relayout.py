"""`relayout` gives the documents of an index another layout, whatever interrupts it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hsimhash import HSimIndex, ProfileMismatchError
from hsimhash.load import default_job, relayout
from hsimhash.progress import Observer
from tests.support.command_line import run
from tests.support.fingerprint_sets import random_signatures

pytestmark = pytest.mark.usefixtures("in_empty_folder")
COUNT = 3_000


@pytest.fixture
def old() -> str:
    """An index in which some documents share a fingerprint, and some have neither sketch nor key."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2**64, COUNT, np.uint64)
    values[::10] = values[0]
    signatures = [
        one if place % 3 else one._replace(sketch=0, key=0) for place, one in enumerate(random_signatures(rng, values))
    ]
    with HSimIndex.create("lmdb://old", layout="4", profile="auto-2") as index:
        index.add_many(signatures, [f"页/{number}" for number in range(COUNT)], first_seen=list(range(COUNT)))
        index.remove(["页/7"])
    return "lmdb://old"


def documents(url: str) -> list[object]:
    with HSimIndex.open(url) as index:
        assert index.check().is_sound
        return list(index.documents())


def test_the_new_index_has_the_same_documents_and_another_layout(old: str) -> None:
    result = run("relayout", "--store", old, "--to", "lmdb://new", "--to-layout", "10", "--distance", "4")
    assert result.exit_code == 0, result.stderr
    assert f"{old} has 2,999 documents, lmdb://new has 2,999; new or changed: 2,999" in result.stderr
    assert "hsimhash drop-table --store lmdb://old" in result.stderr
    assert documents("lmdb://new") == documents(old)
    with HSimIndex.open("lmdb://new") as new, HSimIndex.open(old) as before:
        assert (new.layout.name, new.distance) == ("10", 4)
        for document in list(before.documents())[:50]:
            assert new.query(document.fingerprint, max_distance=3) == before.query(document.fingerprint, max_distance=3)
    assert not list(Path("new", "jobs").iterdir())
    again = run("relayout", "--store", old, "--to", "lmdb://new", "--to-layout", "10")
    assert "new or changed: 0" in again.stderr


@pytest.mark.parametrize("most", [1, 3, 7, 9])
def test_one_that_was_interrupted_goes_on(old: str, most: int) -> None:
    told: list[int] = []
    observer = Observer(stop=lambda: len(told) >= most, progress=lambda _: told.append(1))
    HSimIndex.create("lmdb://new", layout="10", profile="auto-2").close()
    with HSimIndex.open(old) as source, HSimIndex.open("lmdb://new") as target:
        first = relayout(source, target, Path("job"), observer=observer, shard_documents=500)
        if most < 9:
            assert first is None
            assert relayout(source, target, Path("job")) == COUNT - 1
    assert documents("lmdb://new") == documents(old)
    assert not Path("job").exists()


def test_an_unfinished_relayout_is_reported_until_it_finishes(old: str) -> None:
    new, told = "lmdb://new", list[int]()
    stops_in_merge = Observer(stop=lambda: len(told) >= 7, progress=lambda _: told.append(1))
    HSimIndex.create(new, layout="4", profile="auto-2").close()
    with HSimIndex.open(old) as source, HSimIndex.open(new) as target:
        job = default_job(new, []).with_suffix(".relayout")
        assert relayout(source, target, job, observer=stops_in_merge, shard_documents=500) is None
    said = "a relayout into this index has not finished"
    assert f"warn  relayout: {said}" in run("doctor", "--store", new).stdout
    for command in (["status"], ["describe"], ["query", "7"], ["export"], ["check"]):
        result = run(*command, "--store", new)
        assert f"warning: {said}, so documents are missing; run the same" in result.stderr, command
        assert "--repair'" not in result.stderr
    assert result.stderr.endswith("check the index again when the relayout into it has finished\n")
    resumed = run("relayout", "--store", old, "--to", new)
    assert resumed.exit_code == 0, resumed.stderr
    assert "new or changed: 2,999 since the job began" in resumed.stderr
    assert "already has" not in resumed.stderr
    for command in ("doctor", "status", "check"):
        result = run(command, "--store", new)
        assert said not in result.stdout + result.stderr


def test_a_target_with_documents_is_named_before_they_are_replaced(old: str) -> None:
    with HSimIndex.create("lmdb://new", layout="4", profile="auto-2") as new:
        new.add(5, "页/8")
    result = run("relayout", "--store", old, "--to", "lmdb://new")
    assert result.exit_code == 0, result.stderr
    assert "lmdb://new already has documents; those with the same id are replaced" in result.stderr
    assert documents("lmdb://new") == documents(old)


def test_an_interrupt_before_the_copy_says_so(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted_open(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hsimhash.cli.relayout.opened_index", interrupted_open)
    result = run("relayout", "--store", old, "--to", "lmdb://new")
    assert (result.exit_code, "stopped before this run copied anything" in result.stderr) == (130, True)


def test_what_others_have_in_the_jobs_folder_stays(old: str) -> None:
    Path("job").mkdir()
    Path("job", "mine").write_text("kept")
    result = run("relayout", "--store", old, "--to", "lmdb://new", "--to-layout", "10", "--job", "job")
    assert result.exit_code == 0, result.stderr
    assert [path.name for path in Path("job").iterdir()] == ["mine"]


def test_what_others_wrote_meanwhile_is_told(old: str) -> None:
    with HSimIndex.create("lmdb://new", layout="10", profile="auto-2") as new:
        new.add(5, "another")
    result = run("relayout", "--store", old, "--to", "lmdb://new", "--to-layout", "10")
    assert result.exit_code == 1
    assert (
        "the copy is complete, but the new index has more documents than the old one: it was not empty" in result.stderr
    )


@pytest.mark.parametrize("to_layout", [(), ("--to-layout", "10")])
def test_a_move_keeps_layout_and_distance(to_layout: tuple[str, ...]) -> None:
    with HSimIndex.create("lmdb://before", layout="10", distance=2) as index:
        index.add(5, "five")
    result = run("relayout", "--store", "lmdb://before", "--to", "lmdb://new", *to_layout)
    assert result.exit_code == 0, result.stderr
    assert "hsimhash check --store lmdb://new" in result.stderr
    with HSimIndex.open("lmdb://new") as new:
        assert (new.layout.name, new.distance) == ("10", 2)
    HSimIndex.create("lmdb://other", layout="4").close()
    assert run("relayout", "--store", "lmdb://before", "--to", "lmdb://other").exit_code == 5


def test_what_cannot_be_is_refused(old: str) -> None:
    HSimIndex.create("lmdb://english", layout="10", profile="words-1").close()
    HSimIndex.create("lmdb://six", layout="10", profile="auto-2", distance=6).close()
    for options, code, message in (
        (
            ("--to", "lmdb://six", "--to-layout", "10", "--distance", "9"),
            5,
            "distance: the index has 6, requested 9",
        ),
        (("--to", "lmdb://english", "--to-layout", "10"), 5, "is already an index, with profile words-1"),
        (("--to", "lmdb://english", "--to-layout", "4"), 5, "layout"),
        (("--to", "lmdb:/new"), 2, "--to: 'lmdb:/new': lmdb: must be followed by //"),
        (("--to", "redis://host?prefx=a"), 2, "--to: 'redis://host?…': unknown option prefx; did you mean prefix?"),
        (("--to", old, "--to-layout", "4"), 2, "are the same index; choose another index to copy to"),
        (("--to", "lmdb://new", "--to-layout", "77"), 2, "77"),
        (("--to", "lmdb://new", "--to-layout", "10", "--stage", "stage"), 2, "--stage is for an index on HBase"),
    ):
        result = run("relayout", "--store", old, *options)
        assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    with (
        HSimIndex.open(old) as source,
        HSimIndex.open("lmdb://english") as target,
        pytest.raises(ProfileMismatchError, match="choose another target"),
    ):
        relayout(source, target, Path("job"))
