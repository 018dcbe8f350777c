"""Find the backend for a URL. Each scheme has a backend, which is imported when needed.

Other packages add kinds of stores through entry points in the group `hsimhash.stores`: one entry point per scheme,
which refers to the package's `Backend`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from hsimhash.errors import HsimhashError, Remedy
from hsimhash.layout import Layout
from hsimhash.store.backend import Backend, Opening
from hsimhash.store.base import Record, Store
from hsimhash.store.capabilities import TITLES
from hsimhash.store.urls import masked, url_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

Capability = TypeVar("Capability")
_log = logging.getLogger("hsimhash.store")

GROUP = "hsimhash.stores"  # group of entry points
_OWN = {
    "hsimhash.store.lmdb.backend": ["lmdb"],
    "hsimhash.store.hbase.backend": ["hbase", "hbase+thrift1", "hbase+https", "hbase+http"],
    "hsimhash.store.postgresql.backend": ["postgresql"],
    "hsimhash.store.redis.backend": ["redis", "rediss", "unix", "redis+sentinel"],
    "hsimhash.store.tables.backend": ["tables"],
    "hsimhash.store.memory": ["memory"],
}
_MODULES = {scheme: module for module, schemes in _OWN.items() for scheme in schemes}
_DEFAULT = "lmdb"  # used if no store is named, because it works on any machine without a server


def _own_backend(scheme: str) -> Backend:
    found: Backend = import_module(_MODULES[scheme]).BACKEND
    return found


def _others() -> EntryPoints:
    """Return the stores of other packages."""
    from importlib.metadata import entry_points  # imported here because it takes 25 ms

    return entry_points(group=GROUP)


@cache
def _backend_of_scheme(scheme: str) -> Backend | None:
    if scheme in _MODULES:
        return _own_backend(scheme)
    found = [one for one in _others() if one.name == scheme]
    if not found:
        return None
    try:
        backend = found[0].load()
    except Exception as error:  # whatever the other package raises during import
        raise HsimhashError(f"cannot import the store {scheme}:// from {found[0].value}: {error}") from error
    if not isinstance(backend, Backend):
        raise HsimhashError(
            f"the store {scheme}:// from {found[0].value} must be an instance of hsimhash.store.Backend"
        )
    return backend


@cache
def backends() -> Mapping[str, Backend]:
    """Return the backends of persistent indexes by name.

    Backends from other packages come last. If one cannot be imported, it is left out and a warning is logged.
    """
    found = [_own_backend(schemes[0]) for schemes in _OWN.values()]
    for scheme in sorted(one.name for one in _others()):
        try:
            backend = _backend_of_scheme(scheme)
        except HsimhashError as error:
            _log.warning("%s", error)
        else:
            found += [backend] if backend else []
    named = dict[str, Backend]()
    for backend in found:
        if backend.is_lasting:
            named.setdefault(backend.name, backend)
    return named


def default_backend() -> Backend:
    """Return the backend used if no store is named."""
    return _own_backend(_DEFAULT)


def _named_backend(url: str) -> Backend | None:
    scheme, _, place = url_of(url).partition("://")
    return _backend_of_scheme(scheme) if place else None


def backend_of(url: str) -> Backend:
    """Return the backend for a URL or path; raise `ValueError` if there is none."""
    backend = _named_backend(url)
    if backend is None:
        raise ValueError(f"{masked(url)!r} is not a store URL: {_expected(url)}")
    return backend


def check_url(url: str) -> None:
    """Raise `ValueError`, with the remedy, if `url` is not the URL or path of a store."""
    url.encode()
    backend = _named_backend(url)
    if backend is None:
        raise ValueError(_expected(url))
    backend.parse(url)


def _expected(url: str) -> str:
    if url and ":" not in url and masked(url) == url:
        return f"for a folder, use ./{url} or lmdb://{url}"
    urls = ", ".join(backend.example for backend in backends().values())
    usual = f"use a folder's path (./pages, /data/pages), {urls} or memory://name"
    scheme, colon, place = url.partition(":")
    schemes = [*_MODULES, *(one.name for one in _others())]
    near = get_close_matches(scheme.lower(), schemes, n=1, cutoff=0.7) if colon else []
    if near != [scheme]:
        return f"did you mean {near[0]}://? Otherwise, {usual}" if near else usual
    wrong = f"nothing follows {scheme}://" if place.startswith("//") else f"{scheme}: must be followed by //"
    return f"{wrong}; {usual}"


def store_name(url: str) -> str:
    """Return the store's URL in a form that is valid in any working folder, without connection options."""
    return backend_of(url).name_of(url)


def titles(flag: str) -> str:
    """Return the titles of the kinds of stores that support a flag, joined by "or"."""
    return " or ".join(backend.title for backend in backends().values() if flag in backend.flags)


def new_record(
    url: str, profile: dict[str, object], *, layout: Layout | None = None, distance: int | None = None
) -> Record:
    """Return the record of a new index at `url`; its backend provides the defaults."""
    backend = backend_of(url)
    usual = Layout.named(backend.layout)
    assumed = {part for part, given in (("layout", layout), ("distance", distance)) if given is None}
    if distance is None and layout in (None, usual):
        distance = backend.distance
    return Record(layout or usual, profile, distance, frozenset(assumed))


def create_store(url: str, record: Record, opening: Opening | None = None, *, ttl_s: int | None = None) -> Store:
    """Create an empty index at `url`.

    Args:
        url: URL of the store.
        record: Record of the new index.
        opening: Options for opening it.
        ttl_s: How many seconds after its last insert a document expires, if the store supports that; None: never.

    Raises:
        IndexExistsError: The index already exists.
        ValueError: The URL or `ttl_s` is not valid.
    """
    backend = backend_of(url)
    if ttl_s is not None and ("--ttl" not in backend.flags or not 0 < ttl_s < 1 << 31):
        able = titles("--ttl")
        raise ValueError(
            f"invalid ttl_s {ttl_s} for {masked(url)}: expected 1 to 2**31 - 1 seconds, only on {able}; on "
            f"other stores, remove old documents with "
            + Remedy("index.remove(doc_ids, before=...)", "'hsimhash expire'")
        )
    return backend.create(url_of(url), record, opening or Opening(), ttl_s)


def open_store(url: str, opening: Opening | None = None) -> Store:
    """Open the index at `url`.

    Raises:
        IndexNotFoundError: The index does not exist.
        ValueError: The URL is not valid.
    """
    return backend_of(url).open(url_of(url), opening or Opening())


def lacking(capability: type, url: str) -> str:
    """Return the error message for a store that lacks a capability."""
    able = " or ".join(backend.title for backend in backends().values() if capability in backend.capabilities)
    return f"{masked(url)} does not support {TITLES[capability]}; an index on {able} does"


def capable(store: Store, capability: type[Capability]) -> Capability:
    """Return the store if it has a capability.

    Raises:
        HsimhashError: The store lacks it; the message explains what to do instead.
    """
    if isinstance(store, capability):
        return store
    instead = backend_of(store.url).instead(capability, store.url)
    said = "" if instead is None else f": {' '.join([instead.said, *instead.lines])}"
    raise HsimhashError(f"{lacking(capability, store.url)}{said}")
