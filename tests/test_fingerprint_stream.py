"""A stream of batches, signed by worker processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hsimhash.errors import ProfileMismatchError
from hsimhash.fingerprint import TOO_SHORT, Profile, stream
from hsimhash.fingerprint.stream import TEXT_LIMITS, RefusedText, signature_stream, worked
from hsimhash.processes import CallLimits
from tests.support.effort import thorough
from tests.support.processes import children

pytestmark = pytest.mark.usefixtures("signed_by_numpy")  # otherwise threads sign, not processes
AUTO = Profile.named("auto-1")
TEXTS = [f"我们在图书馆研究第{i}个近似重复网页 and the quick brown fox {i} jumps" * 2 for i in range(700)]


def batches() -> list[list[str]]:
    return [TEXTS[:3], [], TEXTS[3:600], [""], TEXTS[600:]]


@pytest.mark.parametrize(("profile", "workers"), [("auto-1", 1), ("auto-1", 2), ("auto-2", 2)])
def test_each_batch_comes_back_whole_and_in_order(profile: str, workers: int) -> None:
    found = list(signature_stream(Profile.named(profile), batches(), workers))
    for result, batch in zip(found, batches(), strict=True):
        expected = Profile.named(profile).signatures(batch)
        assert list(result.signatures) == list(expected)
        assert np.array_equal(result.signatures.kinds, expected.kinds)
        assert result.refused == {}


def test_only_a_bounded_number_of_batches_is_read_ahead() -> None:
    read = 0

    def counted() -> Iterator[list[str]]:
        nonlocal read
        for _ in range(40):
            read += 1
            yield ["text of a page"]

    for done, _ in enumerate(signature_stream(AUTO, counted(), 2), 1):
        assert read - done <= 2 * 2 + 2


def test_one_worker_is_this_process() -> None:
    before = children()
    found = signature_stream(AUTO, batches(), 1)
    next(found)
    assert children() <= before


def test_no_worker_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        next(signature_stream(AUTO, [], 0))


def test_a_stream_left_early_leaves_no_worker() -> None:
    before = children()
    found = signature_stream(AUTO, iter([["a page"]] * 50), 2)
    next(found)
    assert children() - before
    found.close()
    assert children() <= before


def test_an_error_in_a_worker_reaches_the_caller() -> None:
    other = replace(Profile.named("zh-1"), name="mine-1", idf_sha256="0" * 64)
    with pytest.raises(ProfileMismatchError, match=r"idf table with SHA-256 0{16}… is not available"):
        list(signature_stream(other, [["我们在图书馆"]], 2))


PROGRAM = """
import sys
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.stream import signature_stream
from tests.support.processes import children, wait_until

def batches():
    yield from [["a page"]] * 6
    wait_until(lambda: len(children()) == 2)
    print(*children(), flush=True)
    sys.stdin.read()  # hold the stream open
    yield ["a page"]

if __name__ == "__main__":
    found = list(signature_stream(Profile.named("auto-1"), batches(), 2))
    print(sum(len(one.signatures) - len(one.refused) for one in found), flush=True)
"""


def start(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a program with two workers that waits on its stdin; return it and their pids."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    program = subprocess.Popen(
        [sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert program.stdout is not None
    return program, [int(pid) for pid in program.stdout.readline().split()]


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program, pids = start(tmp_path)
    with program:
        files = [os.pidfd_open(pid) for pid in pids]
        assert len(files) == 2
        program.kill()
        for file in files:
            assert select.select([file], [], [], 120)[0]  # a pidfd is readable once its process has ended
            os.close(file)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, pytest.param(signal.SIGINT, marks=thorough)])
def test_a_stream_outlives_its_workers(sent: signal.Signals, tmp_path: Path) -> None:
    program, pids = start(tmp_path)
    for pid in pids:
        os.kill(pid, sent)
    out, _ = program.communicate("")
    assert out.strip() == "7"


class Panic(BaseException):
    """Like the error that PyO3 raises when Rust panics; not an Exception."""


Panic.__module__ = "pyo3_runtime"


def count(_: Profile, texts: Sequence[str]) -> list[str]:
    """Imitate what a tokenizer may do."""
    for text in texts:
        match text:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "recurse":
                raise RecursionError("too deep")
            case "refuse":
                raise ValueError("text is odd: expected an even one")
            case "panic":
                raise Panic("index out of bounds")
            case "allocate":
                bytearray(TEXT_LIMITS.memory_bytes * 64)
    return list(texts)


POISONS = {
    "recurse": "no fingerprint computed because of RecursionError: too deep",
    "refuse": "text is odd: expected an even one",
    "panic": "no fingerprint computed because of Panic: index out of bounds",
    "allocate": "no fingerprint computed within",
}
DEADLY = {
    "kill": "no fingerprint computed because its process was killed by signal 9",
    "exit": "no fingerprint computed because its process exited with code 3",
}


@pytest.mark.parametrize(
    ("poison", "reason", "workers"),
    [
        *((poison, reason, workers) for poison, reason in POISONS.items() for workers in (1, 2)),
        *((poison, reason, 2) for poison, reason in DEADLY.items()),
    ],
)
def test_a_text_that_fails_is_refused_alone(poison: str, reason: str, workers: int) -> None:
    batches = [["a", "b"], ["c", poison, "d"], [poison], [], ["e"]]
    found = [
        part if isinstance(part, RefusedText) else "".join(part)
        for parts in worked(AUTO, batches, workers, count)
        for part in parts
    ]
    assert [part for part in found if isinstance(part, str) and part] == ["ab", "c", "d", "e"]
    refused = [part for part in found if isinstance(part, RefusedText)]
    assert len(refused) == 2
    assert all(one.reason.startswith(reason) for one in refused)


def test_what_stops_the_program_is_no_texts_fault() -> None:
    def interrupted(_: Profile, texts: Sequence[str]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(worked(AUTO, [["a", "b"]], 1, interrupted))


@thorough
@pytest.mark.parametrize("workers", [1, 2])
def test_a_text_that_the_pattern_never_ends_with_is_refused_alone(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "TEXT_LIMITS", CallLimits(cpu_s=1.0, memory_bytes=1 << 30))
    profile = Profile.named("words-1:tokens=regex,normalize=lower,min_features=1,pattern=(?:a|a)*b|[c-z]+")
    texts = ["lorem ipsum", "a" * 40, "dolor ut vel"]
    (found,) = signature_stream(profile, [texts], workers)
    assert found.refused == {1: "no fingerprint computed within 1 s of CPU time"}
    assert list(found.signatures[[0, 2]]) == list(profile.signatures([texts[0], texts[2]]))
    assert found.signatures.kinds[1] == TOO_SHORT
