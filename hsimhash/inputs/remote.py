"""Read files behind URLs block by block through fsspec, and resume at any byte if the server supports byte ranges.

The secret parts of a URL are never shown or stored: its user, password and query, which holds the signature of a signed
URL. So a file remains the same input after its URL is signed again. A change is detected by the size of the
file, and by the ETag or modification time if the server sends one. A URL is rejected if it is not clear where its
password ends, because the rest of the password would be mistaken for a host and a path.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast
from urllib.parse import quote, unquote

from hsimhash.errors import InputUnavailableError
from hsimhash.extras import needed
from hsimhash.inputs.lines import path_order
from hsimhash.store.urls import masked, user_in

READ_AHEAD_BYTES = 4 << 20  # bytes fetched in one request and held in memory
SILENT_S = 60  # how long a server may send nothing
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_URL_IN_TEXT = re.compile(_URL.pattern + r"\S+")
_STATES = ("ETag", "etag", "Last-Modified", "LastModified", "Content-MD5", "mtime", "modified", "md5", "crc32c")
_ACCOUNTS = ("abfs", "abfss", "wasb", "wasbs")  # schemes whose URLs have a container before the @
_HTTP = ("http", "https")
_WORTH_A_RETRY = (408, 429)
# A part of a secret that may occur alone in a library's message. Shorter parts would also match ordinary words.
_SECRET_PART = re.compile(r"[A-Za-z0-9]{4,}|[^\x00-\x7f]+")


def is_remote(name: str) -> bool:
    """Whether a name is a URL."""
    return _URL.match(name) is not None


def shown_url(url: str) -> str:
    """Return a URL without its user, password and query."""
    user, is_clear = user_in(url)
    if ":" in user and not is_clear:
        return masked(url)
    scheme, _, rest = url.partition("://")
    rest = rest.partition("?")[0]
    if scheme.lower() in _HTTP:
        rest = rest.partition("#")[0]
    host, slash, path = rest.partition("/")
    host = host if scheme.lower() in _ACCOUNTS and ":" not in user else host.rpartition("@")[2]
    return f"{scheme}://{host}{slash}{path}"


@dataclass(frozen=True, slots=True)
class RemoteSource:
    """A file behind a URL, and what its server reports about it."""

    url: str = field(repr=False)  # URL with its secrets
    name: str  # URL as it is shown and stored
    size_bytes: int | None  # None if the server does not report it
    mark: str  # changes when the file does
    has_ranges: bool  # whether reading can start at any byte

    def open(self) -> BinaryIO:
        """Open the file at its first byte."""
        return cast(BinaryIO, _RemoteFile(self))

    @property
    def note(self) -> str:
        """A note for the user; usually empty."""
        return (
            ""
            if self.has_ranges
            else (
                f"{self.name}: its server does not support byte ranges, so a resumed run downloads it again from the "
                f"start; to avoid this, download the file and pass the copy"
            )
        )


def matching_urls(url: str) -> list[str]:
    """Return the URLs that match a pattern with `*` or `[…]`, in order; any other URL is returned unchanged.

    Raises:
        ValueError: Nothing matches, the protocol needs a package that is missing, or it is not clear where the
            password ends.
        InputUnavailableError: The server cannot be reached.
    """
    user, is_clear = user_in(url)
    if ":" in user and not is_clear:
        raise ValueError(
            f"input {masked(url)}: it is not clear where the password ends; write / ? # @ in user and password as %2F "
            f"%3F %23 %40, or leave both out and use the credentials of the protocol's package"
        )
    if not any(mark in shown_url(url).partition("://")[2] for mark in "*["):
        return [url]
    name = shown_url(url)
    system, pattern = _system(url)
    try:
        found = sorted(system.glob(pattern), key=path_order)
    except NotImplementedError:
        raise ValueError(
            f"input {name}: its protocol does not support listing files; pass the URL of each file"
        ) from None
    except Exception as error:
        raise _failure(url, error) from None
    if not found:
        raise ValueError(f"input {name}: no file matches, or its server does not list files; pass existing URLs")
    return [_url_of(url, system, path) for path in found]


def _url_of(url: str, system: Any, path: str) -> str:
    """Return the URL of a path that matched the pattern `url`; the host stays the same."""
    if is_remote(path):
        return path
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0] if path.startswith("/") else ""
    same_host = f"{scheme}://{host}{path}"
    return same_host if system._strip_protocol(same_host) == path else str(system.unstrip_protocol(path))


def find_remote(url: str) -> RemoteSource:
    """Look up the file behind a URL.

    Raises:
        ValueError: The file does not exist or cannot be read, or the protocol needs a package that is missing.
        InputUnavailableError: The server cannot be reached.
    """
    name = shown_url(url)
    system, path = _system(url)
    try:
        about: Mapping[str, Any] = system.info(path)
        if about.get("type") == "directory":
            raise ValueError(f"input {name} is a folder; pass its files, as in {name.rstrip('/')}/*.jsonl")
        size = about.get("size")
        has_ranges = size is not None and _has_ranges(url, system, path, size)
    except Exception as error:
        raise _failure(url, error) from None
    states = [str(about[state]) for state in _STATES if about.get(state)]
    state = " ".join(states) or hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
    return RemoteSource(url, name, size, f"{'?' if size is None else size} bytes of {state}", has_ranges)


def _has_ranges(url: str, system: Any, path: str, size: int) -> bool:
    """Whether the server supports byte ranges; tested by requesting the last byte, because headers are often wrong."""
    if url.partition("://")[0].lower() not in _HTTP or size < 2:
        return True
    with system.open(path, "rb", block_size=1, cache_type="none", size=size) as file:
        file.seek(size - 1)
        try:
            return len(file.read(1)) == 1
        except ValueError:  # raised by fsspec if the server sends the whole file instead
            return False


def _system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the file's path in it."""
    name = shown_url(url)
    core = needed("fsspec.core", "remote", f"input {name}")
    how: dict[str, Any] = {}
    if (scheme := url.partition("://")[0].lower()) in _HTTP:  # aiohttp's default is 5 minutes for a whole file
        http, own = (
            needed("aiohttp", "remote", f"input {name}"),
            needed("fsspec.config", "remote", f"input {name}").conf,
        )
        timeout = http.ClientTimeout(total=None, sock_connect=SILENT_S, sock_read=SILENT_S)
        how = {"client_kwargs": {"timeout": timeout, **own.get(scheme, {}).get("client_kwargs", {})}}
    try:
        system, path = core.url_to_fs(url, **how)
    except ImportError as error:  # its message names the package
        raise ValueError(f"input {name} cannot be read: {_reason(url, error)}") from None
    except Exception as error:
        raise _failure(url, error) from None
    return system, path


def _failure(url: str, error: Exception) -> Exception:
    """Return the exception to raise for a file that cannot be found: `ValueError` unless a retry may help."""
    # fsspec raises FileNotFoundError for any failure.
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    status = getattr(error, "status", None)
    is_refused = isinstance(status, int) and 400 <= status < 500 and status not in _WORTH_A_RETRY
    if is_refused or isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, ValueError)):
        why = _reason(url, error)
        return ValueError(why if why.startswith("input ") else f"input {shown_url(url)} cannot be read: {why}")
    return _unavailable(url, error)


def _unavailable(url: str, error: Exception) -> InputUnavailableError:
    return InputUnavailableError(
        f"input {shown_url(url)} cannot be read now: {_reason(url, error)}; check the network, the server and the "
        f"credentials, and run the same command again: acknowledged data is kept"
    )


def _reason(url: str, error: Exception) -> str:
    """Return an error's message without the URL's secrets: whole or in part, percent-encoded or not."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    said = _URL_IN_TEXT.sub(lambda found: shown_url(found[0]), str(error))
    for part in _SECRET_PART.findall(unquote(f"{user_in(url)[0]} {url.partition('?')[2]}")):
        said = said.replace(part, "…").replace(quote(part), "…")
    return said or type(error).__name__


class _RemoteFile(io.RawIOBase):
    """The bytes of a remote file; without byte ranges, seeking back downloads the file again from the beginning.

    Every failure is an `InputUnavailableError`, because a bad record or a damaged file cannot be the cause.
    """

    def __init__(self, source: RemoteSource) -> None:
        super().__init__()
        self._source = source
        self._at = 0
        self._file = self._opened()

    def _opened(self) -> Any:
        source = self._source
        how: dict[str, Any] = {"block_size": READ_AHEAD_BYTES, "cache_type": "readahead"}
        if source.url.partition("://")[0].lower() in _HTTP:
            if source.has_ranges:
                how["size"] = source.size_bytes
            else:
                how = {"block_size": 0}
        try:
            system, path = _system(source.url)
            return system.open(path, "rb", **how)
        except Exception as error:
            raise _unavailable(source.url, error) from None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Read into the buffer; return 0 only at the end."""
        source, wanted = self._source, len(buffer)
        try:
            data: bytes = self._file.read(wanted)
        except Exception as error:
            raise _unavailable(source.url, error) from None
        self._at += len(data)
        if not data and wanted and source.size_bytes is not None and self._at < source.size_bytes:
            raise _unavailable(source.url, EOFError(f"it ended at byte {self._at:,} of {source.size_bytes:,}"))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size_bytes or 0}[whence]
        wanted = start + offset
        if self._source.has_ranges:
            self._file.seek(wanted)
            self._at = wanted
            return wanted
        if wanted < self._at:
            self._file.close()
            self._file, self._at = self._opened(), 0
        while self._at < wanted and self.read(min(wanted - self._at, READ_AHEAD_BYTES)):
            pass
        return self._at

    def close(self) -> None:
        """Close the file; closing it again is harmless."""
        if not self.closed:
            self._file.close()
        super().close()
