"""Numbers to watch, for Prometheus: calls, errors and seconds by operation, rows and matches of queries, gateways.

They are off until `enable` is called, and cost one look at `current` for each operation then. They are those of this
process: processes that a command starts to help it count for themselves, and nobody reads that.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from hsimhash.errors import HsimhashError

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

P = ParamSpec("P")
T = TypeVar("T")

BUCKETS_MS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)

connections: list[Callable[[], Tally[str]]] = []  # whoever holds connections says how many there are, by gateway


class Meters:
    """All numbers, in a registry of their own."""

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError as missing:
            raise HsimhashError(
                "metrics need prometheus_client; install it: pip install 'hsimhash[metrics]'"
            ) from missing
        self.registry = own = CollectorRegistry()
        operation, gateway = ("operation",), ("gateway",)
        self.milliseconds = Histogram(
            "hsimhash_operation_milliseconds",
            "Time of operations on an index, with those that failed.",
            operation,
            buckets=BUCKETS_MS,
            registry=own,
        )
        self.errors = Counter("hsimhash_operation_errors", "Operations that raised.", operation, registry=own)
        self.rows = Counter("hsimhash_query_rows", "Candidates: rows of buckets that queries read.", registry=own)
        self.near = Counter("hsimhash_query_near", "Fingerprints near enough, or with the key.", registry=own)
        self.matches = Counter("hsimhash_query_matches", "Matches that queries returned.", registry=own)
        self.documents = Gauge("hsimhash_job_documents", "Documents that the job has taken so far.", registry=own)
        self.replies = Counter("hsimhash_gateway_replies", "Replies of HBase's gateways.", gateway, registry=own)
        self.retries = Counter(
            "hsimhash_gateway_failures",
            "Calls that failed for the moment, most of them made again.",
            gateway,
            registry=own,
        )
        self.timeouts = Counter(
            "hsimhash_gateway_timeouts", "Connections given up after a time-out.", gateway, registry=own
        )
        own.register(self)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield what is counted only when somebody asks."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily("hsimhash_gateway_connections", "Open connections.", labels=["gateway"])
        for gateway, number in sum((count() for count in list(connections)), Tally[str]()).items():
            family.add_metric([gateway], number)
        yield family


current: Meters | None = None  # None: off


def enable() -> Meters:
    """Begin to count in this process, unless it does so already.

    Raises:
        HsimhashError: prometheus_client is not installed.
    """
    global current
    if current is None:
        current = Meters()
    return current


def exposition() -> bytes:
    """Return all numbers in Prometheus's text format; the first call begins to count."""
    from prometheus_client import generate_latest

    return generate_latest(enable().registry)


@contextmanager
def served(host: str, port: int) -> Iterator[int]:
    """Count, and answer `GET /metrics` meanwhile; yield the port, a free one where 0 is asked for.

    Raises:
        HsimhashError: prometheus_client is not installed, or the address cannot be listened on.
    """
    registry = enable().registry
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise HsimhashError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --metrics-port"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def measured(operation: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let calls of a function count as this operation."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def run(*args: P.args, **given: P.kwargs) -> T:
            meters = current
            if meters is None:
                return function(*args, **given)
            began = time.perf_counter()
            try:
                return function(*args, **given)
            except BaseException:
                meters.errors.labels(operation).inc()
                raise
            finally:
                meters.milliseconds.labels(operation).observe(1_000 * (time.perf_counter() - began))

        return run

    return decorate
