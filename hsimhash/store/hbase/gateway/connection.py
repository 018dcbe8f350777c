"""A Thrift client on one socket: sends calls and receives their replies in the same order.

A connection that was interrupted during a call is never reused, because the next call would read the late reply.
"""

from __future__ import annotations

import http.client
import math
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import thriftpy2
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TClient, TDecodeException, TException, TMessageType
from thriftpy2.transport import TBufferedTransport, TFramedTransport, TTransportException

from hsimhash.errors import HsimhashError, StoreUnavailableError
from hsimhash.store.hbase.gateway.address import Address, Endpoint
from hsimhash.store.hbase.gateway.sasl import Kerberos, KerberosError, SaslSocket, Wire, check_proof, proof

# The part of the second Thrift interface that hsimhash uses. Both interfaces have `getThriftServerType`.
THRIFT2: ModuleType = thriftpy2.load(
    str(Path(__file__).with_name("hbase2.thrift")), module_name="hsimhash_hbase2_thrift"
)
IDLE_S = 50.0  # the gateway closes idle connections after 60 s (hbase.thrift.server.socket.read.timeout)

_PROTOCOLS = {"binary": TBinaryProtocol, "compact": TCompactProtocol}
_BUFFER_BYTES = 1 << 16
_LEAST_WAIT_S = 0.5  # minimum time to read a reply that arrived while another reply timed out
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}  # detects a lost host within a minute


class Call(NamedTuple):
    """A method of a Thrift service and its arguments: values, or their bytes in the binary protocol.

    A method of `TByteScan` returns its reply as raw bytes. It needs a connection without another call in progress.
    """

    service: ModuleType
    method: str
    arguments: tuple[object, ...] | bytes


class _Due:
    """The time by which the current operation must end; a socket's own time-out limits only a single read."""

    def __init__(self, timeout_s: float) -> None:
        self.at_s = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the remaining time in seconds; raise `TimeoutError` if none is left."""
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


def _connected(endpoint: Endpoint, due: _Due) -> socket.socket:
    """Connect to one of the host's addresses, which share the time limit.

    `socket.create_connection` would apply the full limit to each address.

    Raises:
        OSError: The error from the last address.
    """
    found = socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM)
    for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(due.left_s() / left)
            made.connect(address)
            _keep_alive(made)
        except BaseException as error:
            made.close()
            if left == 1 or not isinstance(error, OSError):
                raise
        else:
            return made
    raise OSError(f"{endpoint.host} does not have an address")


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # some systems do not have it
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Socket:
    """The socket under thriftpy2's transports; thriftpy2's own `TSocket` resolves only IPv4."""

    def __init__(self, endpoint: Endpoint, due: _Due) -> None:
        self._due = due
        self._socket = _connected(endpoint, due)

    @property
    def socket(self) -> socket.socket | None:
        return self._socket

    def read(self, size: int) -> bytes:
        self._socket.settimeout(self._due.left_s())
        data = self._socket.recv(size)
        if not data:
            raise TTransportException(TTransportException.END_OF_FILE, "the gateway closed the connection")
        return data

    def write(self, data: bytes) -> None:
        self._socket.settimeout(self._due.left_s())
        self._socket.sendall(data)

    def flush(self) -> None:
        """Do nothing: `write` does not buffer."""

    def close(self) -> None:
        self._socket.close()


class _Kept:
    """A wire that records what is read from it while `reads` is a list."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.write, self.flush = wire.write, wire.flush
        self.reads: list[bytes] | None = None

    def read(self, size: int) -> bytes:
        data = self._wire.read(size)
        if self.reads is not None:
            self.reads.append(data)
        return data


class _Http:
    """A wire that sends one POST per call; thriftpy2's own client sets time-outs for the whole process."""

    def __init__(self, endpoint: Endpoint, address: Address, context: ssl.SSLContext | None, due: _Due) -> None:
        host, port = endpoint
        plain = _connected(endpoint, due)
        if context:
            plain.settimeout(due.left_s())
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, context=context)
            self._http.sock = context.wrap_socket(plain, server_hostname=host)
        else:
            self._http = http.client.HTTPConnection(host, port)
            self._http.sock = plain
        self._due = due
        self._address = address
        self._context: Kerberos | None = None  # for the last request; each request is authenticated separately
        self._request = bytearray()
        self._response: http.client.HTTPResponse | None = None

    @property
    def socket(self) -> socket.socket | None:
        return self._http.sock  # None once the gateway has sent 'Connection: close'

    def read(self, size: int) -> bytes:
        if self._http.sock is not None:
            self._http.sock.settimeout(self._due.left_s())
        if self._response is None:
            self._response = self._http.getresponse()
            self._check(self._response)
        data = self._response.read1(size)  # reads from the socket at most once
        if not data:
            raise TTransportException(TTransportException.END_OF_FILE, "the HTTP response ended early")
        return data

    def _check(self, response: http.client.HTTPResponse) -> None:
        status = f"HTTP {response.status} {response.reason}"
        if response.status == http.client.UNAUTHORIZED and not self._context:
            raise KerberosError(f"the gateway requires authentication ({status}); for Kerberos, add auth=kerberos")
        if response.status == http.client.UNAUTHORIZED:
            raise KerberosError(
                f"the gateway rejected the Kerberos ticket for {self._address.service}@{self._http.host} ({status}); "
                f"see the gateway's log, or set service= to use another service"
            )
        if response.status != http.client.OK:
            raise OSError(status)
        if self._context:
            check_proof(self._context, response.getheader("WWW-Authenticate"))

    def write(self, data: bytes) -> None:
        self._request += data

    def flush(self) -> None:
        if self._http.sock is not None:
            self._http.sock.settimeout(self._due.left_s())
        if self._response is not None:
            self._response.read()
            self._response = None
        body, self._request = bytes(self._request), bytearray()
        headers = {"Content-Type": "application/x-thrift"}
        if self._address.options.auth:
            self._context = Kerberos(self._address.service, self._http.host, is_http=True)
            headers |= proof(self._context)
        self._http.request("POST", self._address.options.path, body, headers)

    def close(self) -> None:
        self._http.close()


def _wire(endpoint: Endpoint, address: Address, context: ssl.SSLContext | None, due: _Due) -> Wire:
    if address.is_http:
        return _Http(endpoint, address, context, due)
    plain = _Socket(endpoint, due)
    if not address.options.auth:
        return plain
    try:
        return SaslSocket(plain, Kerberos(address.service, endpoint.host), address.options.qop)
    except BaseException:
        plain.close()
        raise


def tls_context(address: Address) -> ssl.SSLContext | None:
    """Return the TLS settings for `hbase+https://`, or None for other schemes.

    Raises:
        HsimhashError: A file named in the address cannot be used.
    """
    if address.scheme != "hbase+https":
        return None
    options = address.options
    try:
        context = ssl.create_default_context(cafile=options.ca or None)
    except OSError as error:
        raise HsimhashError(f"ca={options.ca} must be a PEM file with certificates ({_said(error)})") from error
    if options.cert:
        _load_certificate(context, options.cert, options.key)
    return context


def _load_certificate(context: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        context.load_cert_chain(cert, key or None, password="")  # without `password`, OpenSSL prompts on the terminal
    except OSError as error:
        raise HsimhashError(
            f"cert={cert}{f' and key={key} are' if key else ' is'} not a PEM certificate with its key "
            f"({_said(error)}): the key must not have a passphrase, and must be in the same file unless key= is set"
        ) from error


def _said(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)


class Connection:
    """A client of one gateway, for one thread at a time. It connects in `connect`, or on its first call.

    Replies arrive in the order of the calls.
    """

    def __init__(
        self, endpoint: Endpoint, address: Address, context: ssl.SSLContext | None, *, timeout_s: float
    ) -> None:
        self._wire: Wire | None = None
        self.endpoint = endpoint
        self.timeout_s = timeout_s  # for connecting, and later for the last call
        self.last_method = ""  # method of the last reply that was read
        self._address = address
        self._context = context
        self._due = _Due(timeout_s)
        self._awaited: deque[tuple[Call, float]] = deque()  # calls in progress, and when their replies are due
        self._used_s = time.monotonic()
        self._pid = os.getpid()

    def connect(self, timeout_s: float) -> None:
        """Connect within a time limit."""
        options = self._address.options
        self.timeout_s, self._due.at_s = timeout_s, time.monotonic() + timeout_s
        self._wire = _wire(self.endpoint, self._address, self._context, self._due)
        transport: Any = TFramedTransport if options.transport == "framed" else TBufferedTransport
        self._kept = _Kept(self._wire)
        self._protocol = _PROTOCOLS[options.protocol](transport(self._kept, _BUFFER_BYTES))

    @property
    def is_connected(self) -> bool:
        """Whether `connect` has succeeded."""
        return self._wire is not None

    @property
    def is_awaited(self) -> bool:
        """Whether a call is in progress."""
        return bool(self._awaited)

    @property
    def is_fit(self) -> bool:
        """Whether a call can be sent: no call is in progress, and the gateway has not visibly closed the connection."""
        return not self._awaited and self._pid == os.getpid() and not self.is_stale and self.is_quiet

    @property
    def due_s(self) -> float:
        """The time at which the oldest call in progress times out."""
        return self._awaited[0][1]

    @property
    def is_stale(self) -> bool:
        """Whether it has been idle for so long that the gateway may soon close it."""
        return time.monotonic() - self._used_s >= IDLE_S

    @property
    def is_quiet(self) -> bool:
        """Whether nothing unread has arrived: neither a reply nor the end of the connection."""
        if self.socket is None:
            return False
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)

    @property
    def socket(self) -> socket.socket | None:
        """The socket, or None if it is not connected."""
        return self._wire.socket if self._wire is not None else None

    def call(self, service: ModuleType, method: str, *arguments: object) -> Any:  # the IDL defines the type
        """Send a call with the previous call's time-out, and return its reply."""
        self.send(Call(service, method, arguments), self.timeout_s)
        return self.receive()

    def server_type(self) -> int:
        """Return which Thrift interface the gateway has, 1 or 2; raise if the address requires the other one."""
        found = int(self.call(THRIFT2.THBaseService, "getThriftServerType"))
        if found == THRIFT2.TThriftServerType.TWO and self._address.scheme == "hbase+thrift1":
            raise StoreUnavailableError("it speaks Thrift2; use hbase:// instead of hbase+thrift1://")
        return found

    def send(self, call: Call, timeout_s: float) -> None:
        """Send a call, possibly while others are in progress; the reply must be received within the time-out."""
        due_s = time.monotonic() + timeout_s
        if self._wire is None:
            self.connect(timeout_s)
        self._awaited.append((call, due_s))
        self.timeout_s, self._due.at_s = timeout_s, due_s
        if self._wire is None or self._wire.socket is None:
            raise ConnectionError("the gateway closed the connection after its reply")
        self._protocol.write_message_begin(call.method, TMessageType.CALL, 0)
        if isinstance(call.arguments, bytes):
            self._protocol.trans.write(call.arguments)
        else:
            getattr(call.service, f"{call.method}_args")(*call.arguments).write(self._protocol)
        self._protocol.write_message_end()
        self._protocol.trans.flush()

    def receive(self, *, end_s: float = math.inf) -> Any:  # the IDL defines the type
        """Return the reply to the oldest call in progress; raise the gateway's error, or one that says why none came.

        The time-out starts when the call is sent. A reply that has already arrived is read even after the time-out, but
        never after `end_s`.
        """
        if not self._awaited:
            raise RuntimeError("no call was sent on this connection")
        call, due_s = self._awaited[0]
        least_s = time.monotonic() + min(_LEAST_WAIT_S, self.timeout_s)
        self._due.at_s = min(max(due_s, least_s), end_s)
        self.last_method = call.method
        self._kept.reads = [] if call.service is THRIFT2.TByteScan else None
        try:
            reply = TClient(call.service, self._protocol)._recv(call.method)
        except Exception as error:
            if is_reply(error):
                self._settle()
            raise
        self._settle()
        return b"".join(self._kept.reads) if self._kept.reads is not None else reply

    def _settle(self) -> None:
        self._awaited.popleft()
        self._used_s = time.monotonic()

    def say_no_more(self) -> None:
        """Shut down the sending side, so that the gateway closes the connection when it has finished its calls."""
        if self._wire is not None and self._wire.socket is not None:
            with suppress(OSError):  # it is already closed
                self._wire.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket; in a forked child the parent's connection stays intact."""
        if self._wire is not None:
            self._wire.close()


def first_heard(connections: Sequence[Connection], wait_s: float) -> Connection | None:
    """Wait until a connection has a reply or is closed, and return it; return None after a time-out.

    Each connection must have one call in progress: with more, replies may have been read ahead.
    """
    poll = select.poll()
    by_number: dict[int, Connection] = {}
    for connection in connections:
        found = connection.socket
        if found is None:
            return connection
        by_number[found.fileno()] = connection
        poll.register(found, select.POLLIN)
    heard = poll.poll(max(0.0, 1_000 * wait_s))
    return by_number[heard[0][0]] if heard else None


def server_type_at(endpoint: Endpoint, address: Address) -> int:
    """Connect to a gateway and return its Thrift interface: 1 or 2."""
    connection = Connection(endpoint, address, tls_context(address), timeout_s=address.options.timeout_s)
    with closing(connection):
        return connection.server_type()


def is_reply(error: BaseException) -> bool:
    """Whether an error is a gateway's reply, so that its connection can be reused."""
    own = (TTransportException, TProtocolException, TDecodeException)
    return isinstance(error, TException) and not isinstance(error, own)
