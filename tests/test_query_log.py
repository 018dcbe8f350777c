"""Slow queries are logged once, with what they read, on every store; other queries are not."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from hsimhash.errors import StoreTimeoutError
from hsimhash.index import HSimIndex
from tests.support.command_line import make_index, run
from tests.support.effort import thorough
from tests.support.serve_process import served

ALWAYS_S = 1e-9


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one for one in caplog.records if one.name == "hsimhash.slow"]
    assert all(one.levelno == logging.WARNING for one in found)
    return [one.getMessage() for one in found]


@pytest.mark.parametrize("scheme", ["lmdb", "memory"])
def test_a_slow_query_is_logged_with_what_it_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    url = make_index(tmp_path) if scheme == "lmdb" else "memory://slow"
    opened = HSimIndex.open(url, slow_s=ALWAYS_S) if scheme == "lmdb" else HSimIndex.create(url)
    with opened as index:
        index.slow_s = None
        if scheme == "memory":
            index.add_many([3, 1], ["b", "a"])
        index.slow_s = ALWAYS_S
        matches = len(index.query(3))
        (said,) = logged(caplog)
        buckets = index.cover().bucket_count
        assert re.fullmatch(
            rf"slow query of {re.escape(index.url)}: \d+ ms for fingerprint 0000000000000003 within {index.distance} "
            rf"bits; buckets or ranges: {buckets}, rows: \d+, near: {matches}, matches: {matches}",
            said,
        )
        caplog.clear()
        index.query_many([3, 5, 7])
        (said,) = logged(caplog)
        assert "slow query_many" in said
        assert "0000000000000003 and 2 more" in said
        caplog.clear()
        index.claim(3, "late")
        assert logged(caplog)[0].startswith("slow claim of")
        caplog.clear()
        assert index.query_many([]) == []
        index.query(3, max_distance=16)
        assert "within 16 bits" in logged(caplog)[-1]


def test_what_is_not_slow_is_not_logged_and_none_and_0_are_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = make_index(tmp_path)
    for slow_s in (60.0, 0, None):
        with HSimIndex.open(url, slow_s=slow_s) as index:
            index.query(3)
    assert logged(caplog) == []


def test_a_slow_query_that_fails_is_logged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with HSimIndex.open(make_index(tmp_path), slow_s=ALWAYS_S) as index, pytest.raises(StoreTimeoutError):
        index.query(3, timeout=1e-9)
    assert logged(caplog)[0].endswith("failed")


@thorough
def test_a_server_logs_slow_queries_by_the_setting(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    for seconds, times in (("0.000001", 1), ("0", 0)):
        with served(url, "--slow-query", seconds) as serving:
            assert serving.caller().call("/query", {"fingerprint": "0000000000000003"})[0] == 200
            assert serving.stop() == 0
        assert serving.told.count(b"WARNING slow query of") == times
        assert len(re.findall(rb"20\d\d-.* hsimhash.slow WARNING slow query of lmdb://", serving.told)) == times
    assert run("serve", "--store", url, "--slow-query", "-1").exit_code == 2
