"""Open the gateway at an address, using the Thrift interface that it supports."""

from __future__ import annotations

import logging
import time

from hsimhash.errors import StoreUnavailableError
from hsimhash.store.base import DEADLINE_S
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Gateway
from hsimhash.store.hbase.gateway.connection import Connection
from hsimhash.store.hbase.gateway.failures import AGAIN, explain_failure
from hsimhash.store.hbase.gateway.pipeline import Caller
from hsimhash.store.hbase.gateway.pool import Pool
from hsimhash.store.hbase.gateway.thrift1 import Thrift1Gateway
from hsimhash.store.hbase.gateway.thrift2 import Thrift2Gateway
from hsimhash.store.retries import pauses

_log = logging.getLogger("hsimhash.store")


def open_gateway(address: Address, *, deadline_s: float = DEADLINE_S) -> Gateway:
    """Open a table, using the Thrift interface of the first gateway that responds; this takes one connection.

    Args:
        address: Address of the table. A deadline in it takes precedence over `deadline_s`.
        deadline_s: How long a call without a reply is retried. Opening also retries for this long if a gateway failed
            but turns out to be the right one.

    Raises:
        StoreUnavailableError: No gateway responds. The message describes what was found at each address instead.
    """
    if address.scheme == "hbase+http" and address.options.auth:
        _log.warning(
            "%s: over HTTP, Kerberos authenticates the client, but all requests and responses are unencrypted; use "
            "hbase+https:// if the gateway supports TLS",
            address,
        )
    spoken: list[int] = []

    def check(connection: Connection) -> None:
        found = connection.server_type()
        if found != (spoken or [found])[0]:
            raise StoreUnavailableError(f"it speaks Thrift{found}, but the first gateway speaks Thrift{spoken[0]}")
        spoken[:] = [found]

    caller = Caller(Pool(address, check), deadline_s=deadline_s)
    _reach(caller)
    return Thrift1Gateway(caller) if spoken[0] == 1 else Thrift2Gateway(caller)


def _reach(caller: Caller) -> None:
    """Connect to a gateway; retry until the deadline if one failed but turns out to be the right one."""
    address = caller.pool.address
    began_s = time.monotonic()
    for pause_s in pauses():
        errors = caller.pool.reach()
        if not errors:
            return
        complaints = [explain_failure(endpoint, address, error) for endpoint, error in errors.items()]
        failure = StoreUnavailableError(f"no HBase gateway for {address}: {'; '.join(complaints)}")
        failing_s = time.monotonic() - began_s
        if not any(text.endswith(AGAIN) for text in complaints) or failing_s + pause_s >= caller.deadline_s:
            raise failure
        caller.warnings.note(failure, failing_s=failing_s, left_s=caller.deadline_s - failing_s)
        time.sleep(pause_s)
