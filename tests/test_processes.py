"""The child processes that the tests themselves start."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.support.processes import FAILED, children, fork, forked, wait_until


def failing() -> None:
    raise LookupError("what the child met")


def test_a_forked_child_ends_with_its_work() -> None:
    before = children()
    with forked(lambda: None):
        assert len(children() - before) == 1
    assert children() <= before


@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt, pytest.fail.Exception])
def test_an_error_of_a_forked_child_reaches_its_parent_with_the_traceback(error: type[BaseException]) -> None:
    def meet() -> None:
        raise error("what the child met")

    with pytest.raises(AssertionError, match=r"(?s)in meet\n.*what the child met"), forked(meet):
        pass


def test_a_killed_child_fails_its_parent() -> None:
    with pytest.raises(AssertionError, match="ended with -9"), forked(lambda: os.kill(os.getpid(), signal.SIGKILL)):
        pass


def test_a_child_ends_where_its_parent_fails() -> None:
    before, own = children(), set[int]()

    def failing_parent() -> None:
        own.update(children() - before)
        failing()

    with pytest.raises(LookupError), forked(threading.Event().wait):
        failing_parent()
    assert own
    wait_until(lambda: not own & children())  # threads of other tests may have started children in the meantime


def test_a_forked_child_that_takes_too_long_ends_and_tells_where_it_was() -> None:
    with pytest.raises(AssertionError, match=r"(?s)Timeout.*in wait"), forked(threading.Event().wait, limit_s=3):
        pass


@pytest.mark.parametrize(("work", "code"), [(lambda: None, 0), (lambda: exit(3), 3), (failing, FAILED)])
def test_the_exit_code_of_a_forked_child_is_that_of_its_work(work: object, code: int) -> None:
    with open(os.devnull, "wb") as told:  # noqa: PTH123
        _, status = os.waitpid(fork(work, told.fileno()), 0)
    assert os.waitstatus_to_exitcode(status) == code
