"""Locks on files: who has one, and that none stays behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hsimhash.errors import StoreBusyError
from hsimhash.locks import HeldLock, wait_for_lock


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
