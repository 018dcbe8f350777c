"""`GET /metrics` of `hsimhash serve`: the totals of all workers, whichever answers, even after a worker dies."""

from __future__ import annotations

import http.client
import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.command_line import PATIENCE_S, make_index
from tests.support.effort import thorough
from tests.support.processes import wait_until
from tests.support.serve_process import JSON, Serving, served
from tests.test_metrics import scraped

NEAR = "0000000000000003"
QUERIES = 40


def ask(serving: Serving, path: str, body: object = None) -> int:
    """Send a request over a new connection, which any worker may accept; return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=PATIENCE_S)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, sent, {"Content-Type": JSON})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def workers_of(serving: Serving) -> set[int]:
    """Return the process ids of the workers."""
    own = serving.process.pid
    numbers = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    return {int(one) for one in numbers if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()}


@thorough
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_scrape_has_the_sum_of_all_workers(tmp_path: Path, workers: str) -> None:
    with served(make_index(tmp_path), "--workers", workers) as serving:
        for _ in range(QUERIES):
            assert ask(serving, "/query", {"fingerprint": NEAR}) == 200
        assert ask(serving, "/query", {}) == 400
        assert ask(serving, "/add", {"id": "x", "fingerprint": "00000000ffffffff"}) == 200
        assert ask(serving, "/nothing") == ask(serving, "/else") == 404
        for _ in range(5):  # any worker may answer
            numbers = scraped(serving.port)
            assert numbers["hsimhash_http_requests_total{/query}{200}"] == QUERIES
            assert numbers["hsimhash_http_requests_total{/query}{400}"] == 1
            assert numbers["hsimhash_http_requests_total{/add}{200}"] == 1
            assert numbers["hsimhash_http_requests_total{other}{404}"] == 2
            assert numbers["hsimhash_http_seconds_count{/query}"] == QUERIES + 1
            assert numbers["hsimhash_operation_milliseconds_count{query}"] == QUERIES
            assert numbers["hsimhash_query_matches_total"] == 3 * QUERIES
            assert not any("/metrics" in name for name in numbers)
        wait_until(lambda: scraped(serving.port)["hsimhash_http_under_way"] == 0)


@thorough
def test_of_a_worker_that_dies_the_counts_stay_and_what_it_had_under_way_goes(tmp_path: Path) -> None:
    with served(make_index(tmp_path), "--workers", "2") as serving:
        for _ in range(QUERIES):
            ask(serving, "/query", {"fingerprint": NEAR})
        begun = [serving.caller().connection for _ in range(4)]
        for connection in begun:  # headers, and a body that never ends
            connection.putrequest("POST", "/query")
            connection.putheader("Content-Type", JSON)
            connection.putheader("Content-Length", "100")
            connection.endheaders(b"{")
        wait_until(lambda: scraped(serving.port)["hsimhash_http_under_way"] == 4)
        old = workers_of(serving)
        assert len(old) == 2
        for worker in old:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(workers_of(serving) - old) == 2)
        wait_until(lambda: scraped(serving.port)["hsimhash_http_under_way"] == 0)
        assert scraped(serving.port)["hsimhash_http_requests_total{/query}{200}"] == QUERIES
        assert ask(serving, "/query", {"fingerprint": NEAR}) == 200
        assert scraped(serving.port)["hsimhash_http_requests_total{/query}{200}"] == QUERIES + 1
