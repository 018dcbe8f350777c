"""Classify failures: what a gateway's error means, why a connection fails, and what is listening at a port.

Thrift1's error messages are Java stack traces. Thrift2's messages often contain the exception's message without its
class. The `canRetry` field is true even for a missing table if the call was a batch, and happybase does not read it.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from thriftpy2.thrift import TApplicationException

from hsimhash.errors import CorruptionError, HsimhashError, IndexNotFoundError, StoreUnavailableError, diagnose
from hsimhash.store.hbase.gateway.address import Address, Endpoint
from hsimhash.store.hbase.gateway.sasl import KerberosError, Status

_JAVA = re.compile(r"(?:[\w$]+\.)+([A-Z]\w*(?:Exception|Error))")
_CAUSE = re.compile(r"((?:[\w$]+\.)+[A-Z]\w*(?:Exception|Error)\b.*)")
_NO_TABLE = {"TableNotFoundException", "NamespaceNotFoundException"}
_WORTH_A_RETRY = {
    "CallQueueTooBigException",
    "CallTimeoutException",
    "ConnectException",
    "ConnectionClosedException",
    "MasterNotRunningException",
    "NoServerForRegionException",
    "NotServingRegionException",
    "PleaseHoldException",
    "RegionMovedException",
    "RegionOpeningException",
    "RegionServerAbortedException",
    "RegionServerStoppedException",
    "RegionTooBusyException",
    "RetriesExhaustedException",
    "RetriesExhaustedWithDetailsException",
    "ServerNotRunningYetException",
    "SocketTimeoutException",
    "UnknownScannerException",
}

PROBE_S = 1.5  # time-out of a probe; servers respond to their own protocol at once, but often never to others
_REPLY_BYTES = 4096
_METHOD = b"getThriftServerType"

_BINARY = struct.pack(">II", 0x80010001, len(_METHOD)) + _METHOD + struct.pack(">I", 0) + b"\x00"
_COMPACT = b"\x82\x21\x00" + bytes([len(_METHOD)]) + _METHOD + b"\x00"
_SASL = struct.pack(">BI", Status.START, len(_METHOD)) + _METHOD  # names a mechanism that no gateway supports
_POST = b"POST / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\nContent-Type: application/x-thrift\r\n"


class TransientError(StoreUnavailableError):
    """A failure that a retry may resolve."""


class RefusedError(HsimhashError):
    """A call that the servers will never accept."""


def store_error(error: Exception, method: str, address: Address, gateway: object) -> HsimhashError:
    """Translate an error from a gateway; return a `TransientError` if a retry may help."""
    message, table = str(getattr(error, "message", None) or error), address.full_table.decode()
    classes = set(_JAVA.findall(message))
    what = f"{method} on {table}: {_gist(message)}"
    if "TableNotEnabledException" in classes:
        return disabled(table)
    if message.strip() == f"{table.removeprefix('default:')} is disabled.":  # Thrift2's whole message for a scan
        return TransientError(str(disabled(table)))
    if _NO_TABLE & classes:
        return IndexNotFoundError(f"there is no table {table} ({what}); the index may have been dropped")
    if _is_but_the_table(message, table.removeprefix("default:")):
        remedy = f"{diagnose(str(address))} to see which"
        return IndexNotFoundError(f"table {table} is missing or disabled ({what}); {remedy}")
    if "NoSuchColumnFamilyException" in classes:
        return CorruptionError(f"table {table} lacks a column family of an index ({what}); choose another table name")
    if "Read-only mode" in message:
        return HsimhashError(
            f"gateway {gateway} is read-only: it was started with -ro ({what}); write through another gateway"
        )
    if "AccessDeniedException" in classes:
        return HsimhashError(
            f"the gateway's user does not have permission ({what}); grant it to that user, or use another gateway"
        )
    if isinstance(error, TApplicationException):
        if error.type == TApplicationException.UNKNOWN_METHOD:
            return RefusedError(
                f"the gateway does not support the call ({what}); check whether it was started with the other Thrift "
                f"interface"
            )
        # Thrift2 in HBase 2.6 fails like this while a region is not on any server.
        if method == "getAllRegionLocations":
            return TransientError(f"a region is not on any server ({what}); if this persists, run 'hbase hbck'")
        return RefusedError(f"the gateway failed without giving a reason ({what}); see the gateway's log")
    if _is_transient(error, classes):
        return TransientError(f"the servers temporarily refuse the call: {what}")
    return RefusedError(f"the servers refuse the call: {what}")


def disabled(table: str) -> StoreUnavailableError:
    """Return the error for a disabled table."""
    return StoreUnavailableError(
        f"table {table} is disabled; enable it in hbase shell: enable '{table}'; if a drop was interrupted, run "
        f"'hsimhash drop-table' again"
    )


def no_namespace(namespace: str) -> str:
    """Say that a namespace does not exist, and how to create it."""
    return f"namespace {namespace} does not exist; in hbase shell: create_namespace '{namespace}'"


def _is_but_the_table(message: str, table: str) -> bool:
    # For a missing table, Thrift2's whole message is the table's name; for a batch, the name appears once for all rows.
    line = re.sub(r"^[\w.$]+Exception: ", "", _first_line(message))
    return bool(re.fullmatch(rf"(?:Failed \d+ actions?: )?{re.escape(table)}(?:: \d+ times?,.*)?", line))


def _is_transient(error: Exception, classes: set[str]) -> bool:
    if type(error).__name__ in ("IllegalArgument", "TIllegalArgument"):
        return "scanner" in str(getattr(error, "message", ""))  # its lease expired, or the gateway restarted
    if _WORTH_A_RETRY & classes:
        return True
    can_retry = getattr(error, "canRetry", None)
    return not classes if can_retry is None or "DoNotRetryIOException" in classes else bool(can_retry)


def _gist(message: str) -> str:
    """Return a message's first line, and the last cause (Java class and message) unless that line includes it."""
    first = _first_line(message)
    lines = [line for line in message.splitlines() if not line.lstrip().startswith("at ")]
    causes = [found[1][:200].strip() for line in lines if (found := _CAUSE.search(line))]
    return first if not causes or causes[-1] in first else f"{first} … {causes[-1]}"


def _first_line(message: str) -> str:
    lines = message.strip().splitlines() or ["no message"]
    return lines[0][:200]


# Probing the service at a port.


class Service(NamedTuple):
    """The service at a port and, for a gateway, how to reach it; `name` is None if the response determines it."""

    name: str | None = None
    is_gateway: bool = False
    scheme: str = "hbase"
    transport: str = "buffered"
    protocol: str = "binary"
    auth: str = ""


TLS = Service("a server that requires TLS", is_gateway=True, scheme="hbase+https")

# TLS alerts about a client's certificate (RFC 8446, section 6), by OpenSSL's names; which one is sent varies by server.
_ALERTS = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_UNKNOWN",
    "HANDSHAKE_FAILURE",
    "UNKNOWN_CA",
)


def reason(error: BaseException, timeout_s: float) -> str:
    """Describe a connection error in a few words."""
    if isinstance(error, TimeoutError):
        return f"no reply within {timeout_s:.3g} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return f"the host name does not resolve ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({getattr(error, 'verify_message', None) or error.reason or error})"
    return str(getattr(error, "message", None) or error) or type(error).__name__


_CHECK_GATEWAY = "check that a Thrift gateway is running there, and see in its log whether all of its threads are busy"
AGAIN = "it responds now; try again"  # ends the explanation for a gateway that turns out to be the right one


def explain_failure(endpoint: Endpoint, address: Address, error: Exception) -> str:
    """Probe a gateway that failed with `error`; return what is wrong with it, and the remedy."""
    why = reason(error, address.options.timeout_s)
    if isinstance(error, socket.gaierror):
        return f"{endpoint}: {why}; check the spelling"
    if isinstance(error, ConnectionRefusedError):
        start = f"'hbase thrift2 start -p {endpoint.port}'"
        return f"nothing is listening at {endpoint} ({why}); check the host and the port, or start a gateway: {start}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{endpoint}: {why}; set ca=FILE to its CA certificate"
    if isinstance(error, (HsimhashError, KerberosError)):
        return f"{endpoint}: {why}"
    if isinstance(error, ssl.SSLError) and (error.reason or "").endswith(_ALERTS):
        return f"{endpoint}: {why}; {_certificate_remedy(address)}"
    try:
        found = identify(endpoint)
    except OSError as probe_error:
        return f"{endpoint}: {reason(probe_error, PROBE_S)}; check that the host is up and its firewall allows the port"
    is_https = address.scheme == "hbase+https"
    if found is None or (found is TLS and is_https):
        # A server that closes the connection immediately may discard the TLS alert that explains the failure.
        is_cut = isinstance(error, (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError))
        remedy = _certificate_remedy(address) if is_https and is_cut else _CHECK_GATEWAY
        return f"{endpoint}: {why}; {remedy}"
    return f"{endpoint} is {found.name}; {_advice(endpoint, address, found)}"


def _certificate_remedy(address: Address) -> str:
    if address.options.cert:
        return f"it does not accept the certificate in cert={address.options.cert}; check that it trusts the issuing CA"
    return "if it requires a client certificate, set cert=FILE, and key=FILE for its key"


def _advice(endpoint: Endpoint, address: Address, found: Service) -> str:
    if not found.is_gateway:
        return "use the port of a Thrift gateway, such as 9091 after 'hbase thrift2 start -p 9091'"
    options = replace(address.options, transport=found.transport, protocol=found.protocol, auth=found.auth)
    if not found.auth:
        options = replace(options, service="", qop="")
    given = replace(address, gateways=(endpoint,))
    right = replace(given, scheme=found.scheme, options=options)
    return AGAIN if str(right) == str(given) else f"use {right}"


def identify(endpoint: Endpoint) -> Service | None:
    """Return the service at a port, or None if it is unknown; raise `OSError` if the port refuses connections."""
    socket.create_connection(endpoint, PROBE_S).close()
    with ThreadPoolExecutor(len(_PROBES)) as threads:  # in parallel; otherwise, probing a port that hangs takes 10 s
        answers = threads.map(lambda request: _answer(endpoint, request), _PROBES)
        for answer, known in zip(list(answers), _PROBES.values(), strict=True):
            for pattern, service in known:
                if re.search(pattern, answer, re.DOTALL):
                    return service if service.name else service._replace(name=_gateway(answer, service))
    return None


def _answer(endpoint: Endpoint, request: bytes) -> bytes:
    answer = b""
    try:
        with socket.create_connection(endpoint, PROBE_S) as connection:
            connection.sendall(request)
            while len(answer) < _REPLY_BYTES and not answer.startswith((b"\x80\x01", b"\x00\x00")):
                part = connection.recv(_REPLY_BYTES)
                if not part:
                    break
                answer += part
    except OSError:
        return answer
    return answer


def _gateway(answer: bytes, service: Service) -> str:
    """Describe a gateway from field 0 of its response: an i32, or a zigzag varint in the compact protocol."""
    number = re.search(rb"\x08\x00\x00\x00\x00\x00([\x01\x02])|\x05\x00([\x02\x04])", answer)
    kind = f"Thrift{number[1][0] if number[1] else number[2][0] >> 1} gateway" if number else "Thrift service"
    if service.scheme == "hbase+http":
        return f"a {kind} over HTTP"
    return f"a {kind} with transport={service.transport} and protocol={service.protocol}"


def _framed(request: bytes) -> bytes:
    return struct.pack(">I", len(request)) + request


# The bytes to send, in this order, and the service that each response identifies. From a web server, only the response
# to the POST is meaningful: it shows whether the server is a Thrift gateway.
_PROBES: dict[bytes, tuple[tuple[bytes, Service], ...]] = {
    _BINARY: (
        (
            b"FatalConnectionException",
            Service("an HBase master or region server, which speaks HBase's own RPC on this port"),
        ),
        (rb"^\x15\x03", TLS),
        (rb"^\x80\x01\x00", Service(is_gateway=True)),
    ),
    _SASL: (
        (
            b"^[%c%c].*%b" % (Status.BAD, Status.ERROR, _METHOD),
            Service("a Thrift gateway that requires Kerberos", is_gateway=True, auth="kerberos"),
        ),
    ),
    _framed(_BINARY): ((rb"^.{4}\x80\x01\x00", Service(is_gateway=True, transport="framed")),),
    _COMPACT: ((rb"^\x82", Service(is_gateway=True, protocol="compact")),),
    _framed(_COMPACT): ((rb"^.{4}\x82", Service(is_gateway=True, transport="framed", protocol="compact")),),
    b"srvr": ((b"ookeeper|not in the whitelist", Service("ZooKeeper")),),
    _POST + b"Content-Length: %d\r\n\r\n" % len(_BINARY) + _BINARY: (
        (rb"\x80\x01\x00\x02", Service(is_gateway=True, scheme="hbase+http")),
        (b"400 Bad Request.*(?i:TLS)", TLS),
        (
            rb"^HTTP/1\.1 401.*WWW-Authenticate: Negotiate",
            Service("a web server that requires Kerberos", is_gateway=True, scheme="hbase+http", auth="kerberos"),
        ),
        (b"^HTTP/", Service("a web server (HBase's web pages are on ports 16010, 16030 and 9095)")),
    ),
}
