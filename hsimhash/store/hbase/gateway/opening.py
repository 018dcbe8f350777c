"""Open the gateway at an address, through the interface that it supports: `open_gateway`."""

from __future__ import annotations

import logging
import time

from hsimhash.durations import pauses
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

_log = logging.getLogger("hsimhash.store")


def open_gateway(address: Address, *, deadline_s: float = DEADLINE_S) -> Gateway:
    """Return the table behind the first gateway that answers, in the interface that it supports: one connection.

    Args:
        address: of the table; a deadline in it beats `deadline_s`.
        deadline_s: how long a call is tried without an answer; so long opening tries gateways that are the right ones
            and only answer late.

    Raises:
        StoreUnavailableError: none answers; the message says of each what was found there instead.
    """
    if address.scheme == "hbase+http" and address.options.auth:
        _log.warning(
            "%s: over http:// Kerberos proves who asks, and all that is asked and answered is sent in the clear; "
            "write hbase+https:// where the gateway has TLS",
            address,
        )
    spoken: list[int] = []

    def check(connection: Connection) -> None:
        found = connection.server_type()
        if found != (spoken or [found])[0]:
            raise StoreUnavailableError(f"it speaks Thrift{found} where the first one spoke Thrift{spoken[0]}")
        spoken[:] = [found]

    caller = Caller(Pool(address, check), deadline_s=deadline_s)
    _reach(caller)
    return Thrift1Gateway(caller) if spoken[0] == 1 else Thrift2Gateway(caller)


def _reach(caller: Caller) -> None:
    """Connect to a gateway; one that turns out to be the right one after all is tried until the deadline."""
    address = caller.pool.address
    end_s = time.monotonic() + caller.deadline_s
    for pause_s in pauses():
        errors = caller.pool.reach()
        if not errors:
            return
        complaints = [explain_failure(endpoint, address, error) for endpoint, error in errors.items()]
        if not any(text.endswith(AGAIN) for text in complaints) or time.monotonic() + pause_s >= end_s:
            raise StoreUnavailableError(f"no HBase gateway for {address}: {'; '.join(complaints)}")
        time.sleep(pause_s)
