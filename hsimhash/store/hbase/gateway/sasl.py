"""Kerberos: SASL frames on a socket, `Authorization: Negotiate` over HTTP.

During the negotiation, a frame is a status (1 byte), a length (4 bytes, big-endian) and a message. After that, a frame
is a length followed by bytes that are protected as negotiated. thriftpy2's own SASL transport is not used, because it
needs the `sasl` C library and writes frames of 4 KB.

Sources: RFC 4752 (the GSSAPI mechanism), RFC 4559 (Negotiate), Thrift's TSaslTransport.
"""

from __future__ import annotations

import socket
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from enum import IntEnum
from importlib import import_module
from typing import Any, Protocol

from hsimhash.extras import install_command

LAYERS = {"auth": 1, "auth-int": 2, "auth-conf": 4}  # the security layers' bits in RFC 4752, weakest first

_LONGEST = 0xFFFFFF  # maximum frame size that a client can announce in this mechanism
_SPNEGO = "1.3.6.1.5.5.2"


class KerberosError(OSError):
    """Kerberos failed; the message contains the cause and the remedy."""


class Status(IntEnum):
    """The kinds of frames in a negotiation."""

    START = 1
    OK = 2
    BAD = 3
    ERROR = 4
    COMPLETE = 5


class Wire(Protocol):
    """The socket under thriftpy2's transports."""

    @property
    def socket(self) -> socket.socket | None: ...
    def read(self, size: int) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Kerberos:
    """The client side of a security context with a service, such as `hbase` on a host; it uses the user's ticket."""

    def __init__(self, service: str, host: str, *, is_http: bool = False) -> None:
        self._gssapi = _library()
        self._service = f"{service}@{host}"
        self._context = self._do(self._begun, is_http)

    def _begun(self, is_http: bool) -> Any:
        name = self._gssapi.Name(self._service, self._gssapi.NameType.hostbased_service)
        mechanism = self._gssapi.OID.from_int_seq(_SPNEGO) if is_http else self._gssapi.MechType.kerberos
        return self._gssapi.SecurityContext(name=name, mech=mechanism, usage="initiate")

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None = None) -> bytes:
        """Process the service's token (None at first), and return the token to send."""
        return self._do(self._context.step, token) or b""

    def wrap(self, data: bytes, *, is_secret: bool) -> bytes:
        """Protect bytes for the service."""
        return bytes(self._do(self._context.wrap, data, is_secret).message)

    def unwrap(self, data: bytes, *, is_secret: bool) -> bytes:
        """Verify and unwrap bytes from the service.

        Raises:
            KerberosError: The bytes were altered, or are not encrypted as required.
        """
        found = self._do(self._context.unwrap, data)
        if is_secret and not found.encrypted:
            raise KerberosError(f"{self._service} sent unencrypted data, which qop=auth-conf does not allow")
        return bytes(found.message)

    def largest(self, size: int, *, is_secret: bool) -> int:
        """Return the maximum number of bytes whose protected form has at most `size` bytes."""
        return int(self._do(self._context.get_wrap_size_limit, size, is_secret))

    def _do(self, call: Callable[..., Any], *arguments: object) -> Any:  # gssapi is not typed
        errors = self._gssapi.exceptions
        try:
            return call(*arguments)
        except (errors.MissingCredentialsError, errors.ExpiredCredentialsError) as error:
            raise KerberosError(f"no valid Kerberos ticket ({_said(error)}); get one with 'kinit'") from error
        except errors.GSSError as error:
            raise KerberosError(
                f"Kerberos failed for {self._service} ({_said(error)}); the gateway's principal must be SERVICE/HOST, "
                f"where HOST is the host in the URL; set service= if SERVICE is different"
            ) from error


def _library() -> Any:
    try:
        return import_module("gssapi")
    except ImportError as error:
        raise KerberosError(
            f"auth=kerberos needs the gssapi library ({error}); run {install_command('kerberos')}, which needs "
            f"the MIT Kerberos headers (Debian: libkrb5-dev)"
        ) from error


def _said(error: Any) -> str:
    # The mechanism's own minor status is the most specific; MIT's texts name the ticket cache and the principal.
    texts = [*error.get_all_statuses(error.min_code, False), *error.get_all_statuses(error.maj_code, True)]
    return next((text for text in texts if text and not text.startswith("Success")), str(error))


class SaslSocket:
    """A socket on which both sides have authenticated each other; its bytes are protected as negotiated."""

    def __init__(self, plain: Wire, context: Kerberos, qop: str = "") -> None:
        """Negotiate; without `qop`, use the strongest security layer that the gateway offers."""
        self._plain = plain
        self._context = context
        self._layer = LAYERS["auth"]
        self._frame_bytes = 0  # maximum size of a frame before protection
        self._out = bytearray()
        self._in = memoryview(b"")
        first = context.step()
        self._say(Status.START, b"GSSAPI")
        self._say(Status.OK, first)
        while not context.is_complete:
            self._say(Status.OK, context.step(self._hear(Status.OK)))
        self._agree_on_layer(qop)

    @property
    def socket(self) -> socket.socket | None:
        return self._plain.socket

    @property
    def _is_secret(self) -> bool:
        return self._layer == LAYERS["auth-conf"]

    def _agree_on_layer(self, qop: str) -> None:
        offer = self._context.unwrap(self._hear(Status.OK), is_secret=False)
        if len(offer) != 4:
            raise KerberosError(f"invalid security layers offered by the gateway: expected 4 bytes, got {len(offer)}")
        self._layer = _chosen(offer[0], qop)
        longest = 0
        if self._layer != LAYERS["auth"]:
            longest = _LONGEST
            self._frame_bytes = self._context.largest(int.from_bytes(offer[1:]), is_secret=self._is_secret)
        answer = bytes([self._layer]) + longest.to_bytes(3)
        self._say(Status.OK, self._context.wrap(answer, is_secret=False))
        self._hear(Status.COMPLETE)

    def _say(self, status: Status, message: bytes) -> None:
        self._plain.write(struct.pack(">BI", status, len(message)) + message)

    def _hear(self, awaited: Status) -> bytes:
        status, length = struct.unpack(">BI", self._exactly(5))
        if status not in list(Status):
            raise KerberosError(f"the gateway does not speak SASL: it sent status {status}")
        message = self._exactly(length)
        if status in (Status.BAD, Status.ERROR):
            raise KerberosError(
                f"the gateway rejected the negotiation: {message.decode(errors='replace')[:200]}; see the gateway's log"
            )
        if status != awaited:
            raise KerberosError(
                f"unexpected reply from the gateway: expected status {awaited.name}, got {Status(status).name}"
            )
        return message

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self._plain.read(size - len(data))
        return bytes(data)

    def read(self, size: int) -> bytes:
        while not self._in:
            frame = self._exactly(int.from_bytes(self._exactly(4)))
            self._in = memoryview(self._opened(frame))
        data, self._in = self._in[:size], self._in[size:]
        return bytes(data)

    def _opened(self, frame: bytes) -> bytes:
        return frame if self._layer == LAYERS["auth"] else self._context.unwrap(frame, is_secret=self._is_secret)

    def write(self, data: bytes) -> None:
        self._out += data

    def flush(self) -> None:
        data, self._out = bytes(self._out), bytearray()
        self._plain.write(b"".join(len(frame).to_bytes(4) + frame for frame in self._frames(data)))

    def _frames(self, data: bytes) -> Iterator[bytes]:
        if self._layer == LAYERS["auth"]:
            yield data
            return
        for start in range(0, len(data), self._frame_bytes):
            yield self._context.wrap(data[start : start + self._frame_bytes], is_secret=self._is_secret)

    def close(self) -> None:
        self._plain.close()


def _chosen(offered: int, qop: str) -> int:
    names = [name for name, layer in LAYERS.items() if layer & offered]
    if not names or (qop and qop not in names):
        offers = f"qop={' or '.join(names)}" if names else "no known qop"
        raise KerberosError(
            f"the gateway offers {offers}, but the URL has qop={qop or 'any'}; "
            f"leave qop= out to use the gateway's setting (hbase.thrift.security.qop)"
        )
    return LAYERS[qop or names[-1]]


def proof(context: Kerberos) -> dict[str, str]:
    """Return the HTTP request header that authenticates the client."""
    return {"Authorization": f"Negotiate {b64encode(context.step()).decode()}"}


def check_proof(context: Kerberos, answer: str | None) -> None:
    """Check the `WWW-Authenticate` header; raise `KerberosError` if it does not authenticate the gateway."""
    words = (answer or "").split()
    if len(words) == 2 and words[0].lower() == "negotiate" and not context.is_complete:
        try:
            context.step(b64decode(words[1], validate=True))
        except Base64Error as error:
            raise KerberosError(f"the gateway sent an invalid token in WWW-Authenticate ({error})") from error
    if not context.is_complete:
        raise KerberosError("the gateway did not authenticate itself: its response lacks a token in WWW-Authenticate")
