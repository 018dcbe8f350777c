"""Metrics for Prometheus: calls, errors and times of operations, rows and matches of queries, gateways.

Until `enable` is called, `current` counts nothing. After that, it counts for this process, or for all processes that
share a folder. A command's helper processes count separately, and nothing reads their counts.
"""

from __future__ import annotations

import struct
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from hsimhash.errors import HsimhashError, Remedy
from hsimhash.extras import install_command

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

P = ParamSpec("P")
T = TypeVar("T")

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # names a shared folder; must be set before prometheus_client is imported
BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
BUCKETS_MS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)

connections: list[Callable[[], Tally[str]]] = []  # functions that return the number of open connections by gateway


class _Unmetered:
    """Stands in for all metrics, and for each of them, while they are off."""

    def __init__(self) -> None:
        self.documents = self.matches = self.replies = self.retries = self.timeouts = self.unreached = self

    def labels(self, _: object) -> _Unmetered:
        return self

    def inc(self, _: float = 1) -> None:
        pass

    set = inc

    def count_reads(self, rows: int, near: int) -> None:
        pass

    def call(self, _: str, function: Callable[..., T], args: Iterable[object], given: Mapping[str, object]) -> T:
        return function(*args, **given)


class Meters:
    """All metrics, in their own registry.

    Args:
        folder: Folder in which several processes count together; None: count for this process only.
    """

    def __init__(self, folder: Path | None = None) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError as missing:
            raise HsimhashError(
                f"metrics need prometheus_client; install it: {install_command('metrics')}"
            ) from missing
        self.folder = folder
        self.registry = own = CollectorRegistry()
        operation, gateway = ("operation",), ("gateway",)
        self.milliseconds = Histogram(
            "hsimhash_operation_milliseconds",
            "Duration of operations on an index, including failed ones.",
            operation,
            buckets=BUCKETS_MS,
            registry=own,
        )
        self.errors = Counter("hsimhash_operation_errors", "Operations that failed.", operation, registry=own)
        self.rows = Counter("hsimhash_query_rows", "Candidates: rows that queries read from buckets.", registry=own)
        self.near = Counter("hsimhash_query_near", "Fingerprints that are near enough or share the key.", registry=own)
        self.matches = Counter("hsimhash_query_matches", "Matches that queries returned.", registry=own)
        self.documents = Gauge(
            "hsimhash_job_documents",
            "Documents that the job has read so far.",
            registry=own,
            multiprocess_mode="livesum",
        )
        self.replies = Counter("hsimhash_gateway_replies", "Replies from HBase gateways.", gateway, registry=own)
        self.retries = Counter(
            "hsimhash_gateway_failures",
            "Calls that failed temporarily; most are retried.",
            gateway,
            registry=own,
        )
        self.timeouts = Counter(
            "hsimhash_gateway_timeouts", "Connections closed after a timeout.", gateway, registry=own
        )
        self.unreached = Counter(
            "hsimhash_gateway_connect_failures",
            "Failed attempts to connect to a gateway.",
            gateway,
            registry=own,
        )
        self._connections = Gauge(
            "hsimhash_gateway_connections", "Open connections.", gateway, registry=None, multiprocess_mode="livesum"
        )
        self._gateways: set[str] = set()  # gateways that were connected to at least once
        self.http = Http(own)
        own.register(self)

    def count_reads(self, rows: int, near: int) -> None:
        """Count what queries and claims read."""
        self.rows.inc(rows)
        self.near.inc(near)

    def call(
        self, operation: str, function: Callable[..., T], args: Iterable[object], given: Mapping[str, object]
    ) -> T:
        """Call a function and return its result; count the call and its time under this operation."""
        began = time.perf_counter()
        try:
            return function(*args, **given)
        except BaseException:
            self.errors.labels(operation).inc()
            raise
        finally:
            self.milliseconds.labels(operation).observe(1_000 * (time.perf_counter() - began))

    def collect(self) -> Iterable[Metric]:
        """Return the metrics that are counted only on request."""
        self.count_connections()
        return self._connections.collect()

    def count_connections(self) -> None:
        """Count the open connections."""
        now = sum((count() for count in list(connections)), Tally[str]())
        self._gateways |= now.keys()
        for gateway in list(self._gateways):
            self._connections.labels(gateway).set(now[gateway])


class Http:
    """Metrics of a server: requests by route and status, seconds to the first byte, requests in progress."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        self.requests = Counter(
            "hsimhash_http_requests", "Requests that received a response.", ("route", "status"), registry=registry
        )
        self.seconds = Histogram(
            "hsimhash_http_seconds",
            "Seconds from a request to its response.",
            ("route",),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.under_way = Gauge(
            "hsimhash_http_under_way",
            "Requests in progress.",
            registry=registry,
            multiprocess_mode="livesum",
        )


current: Meters | _Unmetered = _Unmetered()


def enable(folder: Path | None = None) -> Meters:
    """Start counting in this process. Further calls have no effect.

    Args:
        folder: Folder in which several processes count together. The variable `SHARED` must name it. Each exposition
            then shows the totals of all processes.

    Raises:
        HsimhashError: prometheus_client is not installed.
    """
    global current
    if not isinstance(current, Meters):
        current = Meters(folder)
    return current


def exposition() -> bytes:
    """Return all metrics in Prometheus's text format 0.0.4; the first call starts counting."""
    meters = enable()
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    if meters.folder is None:
        return generate_latest(meters.registry)
    meters.count_connections()
    shared = CollectorRegistry()
    MultiProcessCollector(shared, str(meters.folder))  # type: ignore[no-untyped-call]
    try:
        return generate_latest(shared)
    except struct.error:  # another process has just created its file and has not written to it yet
        return generate_latest(shared)


def forget_ended(folder: Path, alive: Iterable[int]) -> None:
    """Remove the gauges of exited processes from a shared folder. Their counters are kept.

    Args:
        folder: Shared folder.
        alive: Pids of the processes that are still running.
    """
    names = {f"{number}.db" for number in alive}
    for file in folder.glob("gauge_live*.db"):
        if file.name.rpartition("_")[2] not in names:
            file.unlink(missing_ok=True)


@contextmanager
def served(host: str, port: int) -> Iterator[int]:
    """Start counting, and serve `GET /metrics` during the block. Yields the port; port 0 chooses a free port.

    Raises:
        HsimhashError: prometheus_client is not installed, or the address is not available.
    """
    registry = enable().registry
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise HsimhashError(
            f"cannot listen on {host}:{port}: {error.strerror}; "
            + Remedy("pass another port", "choose another port with --metrics-port")
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def measured(operation: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that counts calls of a function under this operation."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def run(*args: P.args, **given: P.kwargs) -> T:
            return current.call(operation, function, args, given)

        return run

    return decorate
