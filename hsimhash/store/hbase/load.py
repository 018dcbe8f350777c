"""What `hsimhash doctor --load N` does: it opens what N processes would, all at once, and times the last connections.

A gateway gives each connection a thread for its life, of which it has 1,000 unless it was started with `-w`, and keeps
as many more waiting without an answer; with a framed transport it may be started with `-threadedselector`, where
connections need no threads.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

from hsimhash.store.checkup import Check
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.connect import ask_on
from hsimhash.store.hbase.connection import Connection, tls_context
from hsimhash.store.hbase.diagnosis import reason

WORKERS, MOST_FULL = 1_000, 0.8  # threads of a gateway as it comes, and how many of them should be taken
SLOW_S = 1.0
_SPARE_FILES = 64

ADVICE = (
    "processes x connections should be at most 0.8 x threads x gateways: start gateways with -w 4000, or with "
    "-threadedselector and transport=framed, add gateways, or set connections= lower"
)


def load_checks(address: Address, processes: int) -> Iterator[Check]:
    """Open the connections of so many processes, and say how long the last one took to be answered."""
    connections, gateways = address.options.connections, len(address.gateways)
    wanted = processes * connections
    said = f"{processes} processes with {connections} connections each make {wanted}"
    if wanted > MOST_FULL * WORKERS * gateways:
        yield Check(
            "size", "warn", f"{said}, and {gateways} gateways as they come have {WORKERS} threads each: {ADVICE}"
        )
    else:
        yield Check("size", "ok", f"{said}; {gateways} gateways as they come have {WORKERS} threads each")
    yield _open_all(address, min(wanted, _most_files()))


def _open_all(address: Address, count: int) -> Check:
    context, timeout_s = tls_context(address), address.options.timeout_s
    seconds = 0.0
    with ExitStack() as opened:
        for number in range(count):
            endpoint = address.gateways[number % len(address.gateways)]
            began = time.perf_counter()
            try:
                connection = Connection(endpoint, address, context, timeout_s=timeout_s)
                opened.enter_context(closing(connection))
                ask_on(connection, address)
            except Exception as error:  # a service that is full can answer anything
                why = (
                    f"gateway {endpoint} does not answer connection {number + 1} of {count}: {reason(error, timeout_s)}"
                )
                return Check("load", "fail", f"{why}; {ADVICE}")
            seconds = time.perf_counter() - began
    said = f"{count} connections at once, all answered, the last after {1_000 * seconds:.1f} ms"
    return Check("load", "ok" if seconds < SLOW_S else "warn", said)


def _most_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft - _SPARE_FILES
