"""Why a gateway does not answer: what listens at that port instead, and what to do."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from hsimhash.errors import HsimhashError
from hsimhash.store.hbase.address import Address, Endpoint
from hsimhash.store.hbase.sasl import KerberosError, Status

PROBE_S = 1.5  # for each probe: who speaks the protocol answers at once, who does not often hangs
_REPLY_BYTES = 4096
_METHOD = b"getThriftServerType"

_BINARY = struct.pack(">II", 0x80010001, len(_METHOD)) + _METHOD + struct.pack(">I", 0) + b"\x00"
_COMPACT = b"\x82\x21\x00" + bytes([len(_METHOD)]) + _METHOD + b"\x00"
_SASL = struct.pack(">BI", Status.START, len(_METHOD)) + _METHOD  # a mechanism that no gateway knows
_POST = b"POST / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\nContent-Type: application/x-thrift\r\n"


class Service(NamedTuple):
    """What answers at a port; of a Thrift gateway its interface, where it tells, and how to talk to it."""

    name: str
    is_gateway: bool = False
    server_type: int | None = None
    scheme: str = "hbase"
    transport: str = "buffered"
    protocol: str = "binary"
    auth: str = ""


ZOOKEEPER = Service("ZooKeeper")
HBASE_RPC = Service("an HBase master or region server, which speaks HBase's own RPC there")
WEB = Service("a web server (HBase's pages are at 16010, 16030 and 9095)")
TLS = Service("a server that wants TLS", is_gateway=True, scheme="hbase+https")
SASL = Service("a Thrift gateway that wants Kerberos", is_gateway=True, auth="kerberos")
SPNEGO = Service("a web server that wants Kerberos", is_gateway=True, scheme="hbase+http", auth="kerberos")

# TLS's alerts about a client's certificate (RFC 8446, section 6) as OpenSSL names them; servers differ in their use.
_ALERTS = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_UNKNOWN",
    "HANDSHAKE_FAILURE",
    "UNKNOWN_CA",
)


def reason(error: BaseException, timeout_s: float) -> str:
    """Return in a few words what an error of a connection means."""
    if isinstance(error, TimeoutError):
        return f"no reply within {timeout_s:.3g} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return f"the host name does not resolve ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({getattr(error, 'verify_message', None) or error.reason or error})"
    return str(getattr(error, "message", None) or error) or type(error).__name__


def explain_failure(endpoint: Endpoint, address: Address, error: Exception) -> str:
    """Return what is wrong with a gateway that failed with `error`, and what to do; asks the port what it is."""
    why = reason(error, address.options.timeout_s)
    if isinstance(error, socket.gaierror):
        return f"{endpoint}: {why}; is it spelled as on the cluster?"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {endpoint} ({why}); is it 'hbase thrift2 start -p {endpoint.port}'?"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{endpoint}: {why}; name the file of its authority with ca=FILE"
    if isinstance(error, (HsimhashError, KerberosError)):
        return f"{endpoint}: {why}"
    if isinstance(error, ssl.SSLError) and (error.reason or "").endswith(_ALERTS):
        return f"{endpoint}: {why}; {_certificate_remedy(address)}"
    try:
        found = identify(endpoint)
    except OSError as probe_error:
        return f"{endpoint}: {reason(probe_error, PROBE_S)}; is the host up, and the port open in its firewall?"
    is_https = address.scheme == "hbase+https"
    if found is None or (found is TLS and is_https):
        return f"{endpoint}: {why}{f'; {_certificate_remedy(address)}' if is_https and _is_cut(error) else ''}"
    return f"{endpoint} is {found.name}; {_advice(endpoint, address, found)}"


def _is_cut(error: Exception) -> bool:
    # A server that closes at once may take the alert back that says why.
    return isinstance(error, (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError))


def _certificate_remedy(address: Address) -> str:
    if address.options.cert:
        return f"it does not accept the certificate of cert={address.options.cert}: is that by an authority it trusts?"
    return "does it ask for a client certificate? name its file with cert=FILE, and that of its key with key=FILE"


def _advice(endpoint: Endpoint, address: Address, found: Service) -> str:
    if not found.is_gateway:
        return "name the port of a Thrift gateway, as 'hbase thrift2 start -p 9091' has it"
    options = replace(address.options, transport=found.transport, protocol=found.protocol, auth=found.auth)
    if not found.auth:
        options = replace(options, service="", qop="")
    right = replace(address, scheme=found.scheme, gateways=(endpoint,), options=options)
    return (
        f"write {right}" if str(right) != str(replace(address, gateways=(endpoint,))) else "it answers now: try again"
    )


def identify(endpoint: Endpoint) -> Service | None:
    """Return what answers at a port, None where nothing that is known does; `OSError` where it takes no connection."""
    socket.create_connection(endpoint, PROBE_S).close()
    with ThreadPoolExecutor(len(_PROBES)) as threads:  # all at once: one after the other, a port that hangs takes 10 s
        answers = threads.map(lambda probe: _answer(endpoint, probe[0]), _PROBES)
        found = [read(answer) for (_, read), answer in zip(_PROBES, answers, strict=True)]
    return next(filter(None, found), None)


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


def _read_socket(answer: bytes) -> Service | None:
    if b"FatalConnectionException" in answer:
        return HBASE_RPC
    if answer.startswith(b"HTTP/"):
        return None  # the POST tells whether Thrift is behind it
    if answer.startswith(b"\x15\x03"):
        return TLS
    return _gateway(answer, "buffered", "binary") if answer.startswith(b"\x80\x01\x00") else None


def _read_framed(answer: bytes) -> Service | None:
    return _gateway(answer, "framed", "binary") if answer[4:7] == b"\x80\x01\x00" else None


def _read_sasl(answer: bytes) -> Service | None:
    is_sasl = answer[:1] in (bytes([Status.BAD]), bytes([Status.ERROR])) and _METHOD in answer
    return SASL if is_sasl else None


def _read_compact(answer: bytes) -> Service | None:
    return _gateway(answer, "buffered", "compact") if answer.startswith(b"\x82") else None


def _read_framed_compact(answer: bytes) -> Service | None:
    return _gateway(answer, "framed", "compact") if answer[4:5] == b"\x82" else None


def _read_http(answer: bytes) -> Service | None:
    if b"\x80\x01\x00\x02" in answer:
        return _gateway(answer, "buffered", "binary", "hbase+http")
    if b"400 Bad Request" in answer and b"TLS" in answer.upper():
        return TLS
    if answer.startswith(b"HTTP/1.1 401") and b"WWW-Authenticate: Negotiate" in answer:
        return SPNEGO
    return WEB if answer.startswith(b"HTTP/") else None


def _read_zookeeper(answer: bytes) -> Service | None:
    return ZOOKEEPER if b"ookeeper" in answer or b"not in the whitelist" in answer else None


def _gateway(answer: bytes, transport: str, protocol: str, scheme: str = "hbase") -> Service:
    server_type = _server_type(answer, protocol)
    kind = f"Thrift{server_type} gateway" if server_type else "Thrift service"
    how = "over HTTP" if scheme == "hbase+http" else f"with transport={transport} and protocol={protocol}"
    return Service(f"a {kind} {how}", True, server_type, scheme, transport, protocol)


def _server_type(answer: bytes, protocol: str) -> int | None:
    # Field 0 of the result, an i32; in the compact protocol its header is `05 00` and the value a zigzag varint.
    mark = b"\x08\x00\x00\x00\x00\x00" if protocol == "binary" else b"\x05\x00"
    value = answer.partition(mark)[2][:1]
    number = value[0] if value else 0
    number = number if protocol == "binary" else number >> 1
    return number if number in (1, 2) else None


def _framed(request: bytes) -> bytes:
    return struct.pack(">I", len(request)) + request


_PROBES: tuple[tuple[bytes, Callable[[bytes], Service | None]], ...] = (
    (_BINARY, _read_socket),
    (_SASL, _read_sasl),
    (_framed(_BINARY), _read_framed),
    (_COMPACT, _read_compact),
    (_framed(_COMPACT), _read_framed_compact),
    (b"srvr", _read_zookeeper),
    (_POST + b"Content-Length: %d\r\n\r\n" % len(_BINARY) + _BINARY, _read_http),
)
