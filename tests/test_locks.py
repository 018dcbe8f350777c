"""Locks on files: which process holds one, and that no lock is left behind."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from hsimhash.errors import StoreBusyError
from hsimhash.locks import HeldLock, lock_or_refuse, take_lock, wait_for_lock, writer_of


def lock(path: Path) -> HeldLock:
    return wait_for_lock(path, 0.01)


def test_a_lock_is_taken_and_given_back_on_a_full_disk(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("64k")
    with pytest.raises(OSError, match="No space left"):
        (disk / "ballast").write_bytes(b"x" * (1 << 20))
    for _ in range(2):
        with lock(disk / "lock"), pytest.raises(StoreBusyError, match="process unknown"), lock(disk / "lock"):
            pass


def test_a_lock_whose_file_is_replaced_while_it_is_taken_is_taken_on_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path):
        path.unlink()
        with lock(path), pytest.raises(StoreBusyError, match=r"process [0-9]+ "), lock(path):
            pass


def test_a_lock_is_not_taken_on_a_file_that_was_replaced_since_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock, opened = tmp_path / "lock", fcntl.flock, list[int]()

    def replacing(fd: int, kind: int) -> None:
        opened.append(fd)
        if len(opened) == 1:
            path.unlink()  # as its previous holder does
            path.touch()
        flock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", replacing)
    with take_lock(path) or pytest.fail("not free") as held:
        assert held.is_in_place()
        assert take_lock(path) is None


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_lock_that_a_killed_process_left_to_a_child_is_waited_for(is_reaped: bool, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | (0 if is_reaped else os.WNOWAIT))
    os.write(lock, str(ended.pid).encode())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock]) as child:
        os.close(lock)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(lock_or_refuse, path, "works here", "choose another folder")
            assert not wait([waiting], timeout=0.1).done
            child.communicate(b"\n")
            with waiting.result() as held:
                assert held.is_in_place()
    ended.wait()


def test_a_lock_that_a_living_process_holds_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with take_lock(path) or pytest.fail("not free"), pytest.raises(StoreBusyError, match=f"{os.getpid()} works here"):
        lock_or_refuse(path, "works here", "choose another folder")


def test_a_lock_names_its_holder_and_nothing_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert writer_of(path) is None
    path.write_text("123456789012345")
    assert writer_of(path) is None
    with take_lock(path) or pytest.fail("not free"):
        assert writer_of(path) == str(os.getpid())
