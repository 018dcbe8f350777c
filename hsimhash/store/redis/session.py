"""An open index on Redis: its connections, and calls that are retried until a deadline.

A call is one command: a read, or a script. If the reply is lost, the call is sent again on another connection. A script
has the same effect when it runs twice, and the second run does not count the changes of the first. A script that writes
receives the server time at which its sender stops waiting, so a call that timed out cannot run after later writes. It
also receives the identity of the index that its sender opened, and the time of the sender's last acknowledged write. So
nothing is written into another index, into a dropped index, or after a server has lost that write.
"""

from __future__ import annotations

import math
import os
import secrets
import ssl
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hsimhash.errors import (
    CorruptionError,
    HsimhashError,
    IndexNotFoundError,
    StoreClosedError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from hsimhash.extras import install_command
from hsimhash.store.base import gone
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.codec import Keys
from hsimhash.store.redis.failures import store_error
from hsimhash.store.redis.scripts import Script
from hsimhash.store.retries import RetryWarnings, pauses

if TYPE_CHECKING:
    import redis

FORGOTTEN_S = 86_400  # how long after its last write the server forgets a writer
_CHECKED_S = FORGOTTEN_S / 2  # for how long after its last write a sender checks that the write still exists
_Word = bytes | str | int  # a word in a command

_PASSWORD_CHARS = 4_096  # maximum length of the first line of the password file
_PASSING = ("BUSY ", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN")  # temporary errors


class RedisSession:
    """Calls to the server at an address; thread-safe and fork-safe, like redis-py's pool.

    Args:
        address: Address of the index.
        deadline_s: How long a call is retried, in seconds, unless the address sets it.
        password: The user's password, unless the address names a password file.
    """

    def __init__(self, address: RedisAddress, deadline_s: float, password: str | None = None) -> None:
        self.address = address
        self.url = str(address)
        self.timeout_s = address.timeout_s
        self._deadline_s = address.deadline_s or deadline_s
        self._library = redis_library()
        self._pool: redis.ConnectionPool | None = _pool_of(address, password)
        self.identity = b""  # of the index that was opened; empty for an older one
        self.described = b""  # layout and profile of an index without an identity
        self._writer = _Writer()
        self._warnings = RetryWarnings()
        self._behind_ms: float | None = None  # lower bound on how far this clock is behind the server's

    def call(self, *command: _Word, until_s: float = math.inf) -> Any:
        """Send a command and return the reply; retry until the deadline, or until `until_s` on the monotonic clock.

        Raises:
            StoreTimeoutError: `until_s` has passed.
            StoreUnavailableError: The deadline has passed, or a retry would not help.
        """
        return self._tried(command, None, until_s)

    def read(
        self, script: Script, keys: Sequence[bytes], given: Sequence[bytes | int], until_s: float = math.inf
    ) -> Any:
        """Run a script that reads, with keys and arguments, and return its result; see `call`."""
        return self._tried(("EVALSHA", script.sha, len(keys), *keys, *given), script, until_s)

    def write(self, script: Script, keys: Sequence[bytes], given: Sequence[_Word]) -> Any:
        """Run a script that writes, with keys and arguments, and return its result; see `call`.

        The keys of the record and the identity are inserted before the given keys.

        Raises:
            IndexNotFoundError: The index is not the one that was opened; nothing was written.
            CorruptionError: The server has lost the last write that it acknowledged; nothing was written.
        """
        writer = self._writer = self._writer if self._writer.pid == os.getpid() else _Writer()
        own = (self.keys.record, self.keys.identity)
        command: tuple[_Word, ...] = ("EVALSHA", script.sha, len(keys) + len(own), *own, *keys)
        reply = self._tried((*command, *given), script, math.inf, len(command))
        if isinstance(reply, list):
            reply, noted = reply
            writer.note(noted)
        return reply

    @cached_property
    def keys(self) -> Keys:
        """The keys of the index."""
        return Keys(self.address.prefix)

    def server_ms(self) -> int:
        """Return the server's time, in ms since 1970."""
        seconds, micros = self.call("TIME")
        return int(seconds) * 1_000 + int(micros) // 1_000

    def _tried(self, command: Sequence[_Word], script: Script | None, until_s: float, late: int = 0) -> Any:
        """Send a command until a reply arrives; insert the first arguments of every write at `late`, unless it is 0."""
        errors, began_s, waits = self._library.exceptions, time.monotonic(), pauses()
        while True:
            try:
                sent = (*command[:late], *self._given_first(), *command[late:]) if late else command
                return self._exchange(sent, until_s)
            except errors.NoScriptError:
                if script is None:
                    raise
                self.call("SCRIPT", "LOAD", script.text, until_s=until_s)
                continue
            except (errors.RedisError, OSError) as error:
                failed: Exception = error
            self._refuse_other(str(failed))
            pause_s = next(waits)
            if time.monotonic() + pause_s >= until_s:
                raise StoreTimeoutError(f"Redis at {self.address.place} did not respond in time") from failed
            tried_s = time.monotonic() - began_s
            if not self._is_passing(failed) or tried_s + pause_s > self._deadline_s:
                raise store_error(failed, self.address, tried_s) from failed
            left_s = min(self._deadline_s - tried_s, until_s - time.monotonic())
            self._warnings.note(store_error(failed, self.address, tried_s), failing_s=tried_s, left_s=left_s)
            time.sleep(pause_s)

    def _is_passing(self, error: Exception) -> bool:
        """Whether a retry may help."""
        errors, said = self._library.exceptions, str(error)
        if said.startswith("LATE"):
            self._behind_ms = None  # a clock was set, or another server has become the master
            return True
        if isinstance(error, (errors.AuthenticationError, errors.AuthorizationError)) or "SSL" in said:
            return False
        if isinstance(error, errors.ReadOnlyError):  # it accepted writes before, so a failover is in progress
            return bool(self.address.service or self._writer.noted())
        lost = (errors.ConnectionError, errors.TimeoutError, errors.MasterDownError, errors.TryAgainError, OSError)
        return isinstance(error, lost) or said.startswith(_PASSING)

    def _refuse_other(self, said: str) -> None:
        """Raise an error if a script reports that the index, or its sender's last write, does not exist."""
        if said.startswith("BACK"):
            self._writer = _Writer()  # so that the loss is reported only once
            raise CorruptionError(
                f"{self.url}: Redis at {self.address.place} lost acknowledged writes of this process in a restart or "
                f"failover, and did not store this write; add the documents again, and set appendonly yes and "
                f"appendfsync always"
            )
        if said.startswith(("GONE", "ANEW")):
            raise self._is_other(is_anew=said.startswith("ANEW"))

    def check_same(self, held: bytes | None) -> None:
        """Raise `IndexNotFoundError` if the identity on the server is not that of the opened index."""
        if (held or b"") != self.identity:
            raise self._is_other(is_anew=held is not None)

    def _is_other(self, *, is_anew: bool) -> IndexNotFoundError:
        cause = f"it was dropped, or Redis at {self.address.place} lost its data"
        return gone(self.url, is_replaced=is_anew, cause=cause)

    def _given_first(self) -> tuple[_Word, ...]:
        """Return the first arguments of every write; see `scripts.py`."""
        return self._not_after(), self.identity or self.described, self._writer.name, self._writer.noted()

    def _not_after(self) -> int:
        """Return the server time in ms at which the sender of a call stops waiting, or an earlier time."""
        if self._behind_ms is None:
            seconds, micros = self._exchange(("TIME",), math.inf)
            self._behind_ms = int(seconds) * 1_000 + int(micros) / 1_000 - time.monotonic() * 1_000
        return int(self._behind_ms + (time.monotonic() + self.timeout_s) * 1_000)

    def _exchange(self, command: Sequence[_Word], until_s: float) -> Any:
        """Send a command once, and return its reply."""
        pool = self._pool
        if pool is None:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        wait_s = min(self.timeout_s, until_s - time.monotonic())
        if wait_s <= 0:
            raise StoreTimeoutError(f"Redis at {self.address.place}: the time limit was exceeded")
        connection: Any = pool.get_connection()  # redis-py does not annotate it
        try:
            connection.send_packed_command([_packed(command)])
            return connection.read_response(timeout=wait_s)
        except BaseException as error:
            errors = self._library.exceptions
            if not isinstance(error, errors.ResponseError) or isinstance(error, errors.ReadOnlyError):
                connection.disconnect()  # a reply may be on its way, or there may be a new master
            raise
        finally:
            pool.release(connection)

    def close(self) -> None:
        """Close the connections; repeated calls are harmless."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.disconnect()


class _Writer:
    """A process that writes, identified by a unique name, and the server's time of its last acknowledged write."""

    def __init__(self) -> None:
        self.pid, self.name = os.getpid(), secrets.token_bytes(8)
        self._noted, self._at_s = 0, 0.0

    def note(self, noted: int) -> None:
        """Record the server time of a write in µs; if threads write concurrently, the latest time is kept."""
        self._noted, self._at_s = max(self._noted, noted), time.monotonic()

    def noted(self) -> int:
        """Return the time in µs of the last write that the server must still have, or 0."""
        return self._noted if time.monotonic() - self._at_s < _CHECKED_S else 0


def _packed(command: Sequence[_Word]) -> bytes:
    """Return the bytes to send for a command; redis-py takes four times as long for a script's thousands of words."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)])


def redis_library() -> ModuleType:
    """Return redis-py, or raise an error that explains how to install it."""
    try:
        import redis.sentinel
    except ImportError as error:
        raise HsimhashError(f"an index on Redis needs redis-py: {install_command('redis')}") from error
    return redis


def _pool_of(address: RedisAddress, password: str | None) -> redis.ConnectionPool:
    """Return a pool of connections to the server at an address; no connection is opened yet."""
    library: Any = redis_library()
    given = {
        "db": address.database,
        "username": address.user or None,
        "password": _password_in(address.password_file) if address.password_file else password,
        "socket_timeout": address.timeout_s,
        "socket_connect_timeout": address.timeout_s,
        "retry": library.retry.Retry(library.backoff.NoBackoff(), 0),  # `_tried` retries
        "protocol": 2,
        "driver_info": None,
    }
    if address.scheme == "unix":
        del given["socket_connect_timeout"]
        return library.ConnectionPool(connection_class=library.UnixDomainSocketConnection, path=address.path, **given)  # type: ignore[no-any-return]
    if address.scheme == "redis+sentinel":
        sentinel = library.sentinel.Sentinel(address.hosts, socket_timeout=address.timeout_s)
        return library.sentinel.SentinelConnectionPool(address.service, sentinel, **given)  # type: ignore[no-any-return]
    host, port = address.hosts[0]
    if address.scheme == "rediss":
        for path in filter(None, (address.ca, address.cert, address.key)):
            if not Path(path).is_file():
                raise ValueError(f"file not found: {path}; check ca=, cert= and key= in {address}")
        given |= {
            "connection_class": library.SSLConnection,
            "ssl_cert_reqs": "required",
            "ssl_check_hostname": True,
            "ssl_min_version": ssl.TLSVersion.TLSv1_2,
            "ssl_ca_certs": address.ca or None,
            "ssl_certfile": address.cert or None,
            "ssl_keyfile": address.key or address.cert or None,
        }
    return library.ConnectionPool(host=host, port=port, **given)  # type: ignore[no-any-return]


def _password_in(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            first = file.readline(_PASSWORD_CHARS + 1)  # the file may be an endless device
        if not 0 < len(first) <= _PASSWORD_CHARS:
            raise ValueError(f"its first line must have 1 to {_PASSWORD_CHARS:,} characters")
        return first.splitlines()[0]
    except (OSError, ValueError) as error:
        raise StoreUnavailableError(
            f"cannot read password_file={path}: {error}; the first line of the file must be the password"
        ) from error
