"""From an address to the gateway that answers there."""

from __future__ import annotations

import logging

from hsimhash.errors import StoreUnavailableError
from hsimhash.store.base import DEADLINE_S
from hsimhash.store.hbase.address import Address, Endpoint
from hsimhash.store.hbase.connection import Connection, tls_context
from hsimhash.store.hbase.diagnosis import explain_failure
from hsimhash.store.hbase.gateway import Gateway
from hsimhash.store.hbase.idl import THRIFT2
from hsimhash.store.hbase.lanes import Caller
from hsimhash.store.hbase.pool import Pool
from hsimhash.store.hbase.thrift1 import Thrift1Gateway
from hsimhash.store.hbase.thrift2 import Thrift2Gateway

ONE = THRIFT2.TThriftServerType.ONE
TWO = THRIFT2.TThriftServerType.TWO

_log = logging.getLogger("hsimhash.store")


def open_gateway(address: Address, *, deadline_s: float = DEADLINE_S) -> Gateway:
    """Return the table behind the first gateway that answers, through the interface that it speaks: one connection.

    Args:
        address: of the table; a deadline in it beats `deadline_s`.
        deadline_s: how long a call is tried without an answer.

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
        found = ask_on(connection, address)
        if found != (spoken or [found])[0]:
            raise StoreUnavailableError(f"it speaks Thrift{found} where the first one spoke Thrift{spoken[0]}")
        spoken[:] = [found]

    pool = Pool(address, check)
    errors = pool.reach()
    if errors:
        complaints = (explain_failure(endpoint, address, error) for endpoint, error in errors.items())
        raise StoreUnavailableError(f"no HBase gateway for {address}: {'; '.join(complaints)}")
    caller = Caller(pool, deadline_s=deadline_s)
    return Thrift2Gateway(caller) if spoken[0] == TWO else Thrift1Gateway(caller)


def first_gateway(address: Address) -> tuple[Endpoint, int]:
    """Return the first gateway that answers, and which interface it speaks: 1 or 2.

    Raises:
        StoreUnavailableError: none answers; the message says of each what was found there instead.
    """
    complaints = []
    for endpoint in address.gateways:
        try:
            return endpoint, ask(endpoint, address)
        except Exception as error:  # a service that is no gateway can answer anything
            complaints.append(explain_failure(endpoint, address, error))
    raise StoreUnavailableError(f"no HBase gateway for {address}: {'; '.join(complaints)}")


def ask(endpoint: Endpoint, address: Address) -> int:
    """Return which interface a gateway speaks: 1 or 2."""
    connection = Connection(endpoint, address, tls_context(address), timeout_s=address.options.timeout_s)
    try:
        return ask_on(connection, address)
    finally:
        connection.close()


def ask_on(connection: Connection, address: Address) -> int:
    """Return which interface the gateway of a connection speaks, 1 or 2; an error where the address has another."""
    found = int(connection.call(THRIFT2.THBaseService, "getThriftServerType"))
    if found == TWO and address.scheme == "hbase+thrift1":
        raise StoreUnavailableError("it speaks Thrift2; write hbase:// instead of hbase+thrift1://")
    return found
