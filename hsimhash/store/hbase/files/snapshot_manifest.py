"""Which files a snapshot of a table has, as its manifest says: `SnapshotManifest`.

Two protobuf messages lie in the snapshot's folder, `.snapshotinfo` and `data.manifest`:

| message | fields; * any number of them |
|---|---|
| info | 3 when it was taken, ms since 1970 |
| manifest | 1 table, 2* region |
| table | 3* family: 1 name, 2* attribute: 1 name, 2 value |
| region | 2 info: 1 id, 2 table (1 namespace, 2 name), 3 first row, 4 end, 6 was split, 7 replica; 3* family |
| family of a region | 1 name, 2* file: 1 name, 2 reference (to a parent), 3 bytes |

Unknown fields, and what is there twice, are refused, so that no damage passes for a file less.

A file's name says where it is:

| name | where |
|---|---|
| `FILE`, `FILE_SeqId_N_` | in the region's folder; the second came by a bulk load with the number N |
| `NAME.REGION` | NAME in the folder of REGION, which was split or merged into this one |
| `[NAMESPACE=]TABLE=REGION-FILE` | in another table, of which this one is a clone |
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from hsimhash.hfile.blocks import message_fields
from hsimhash.store.hbase.gateway.address import DEFAULT_NAMESPACE
from hsimhash.store.hbase.gateway.base import FOREVER_S

_FILE = re.compile(
    r"(?:(?:(?P<namespace>[^=]+)=)?(?P<table>[^=]+)=(?P<region>[0-9a-f]+)-)?"
    r"(?P<file>[0-9a-f]+(?:_SeqId_(?P<load>\d+)_)?)(?:\.(?P<parent>[0-9a-f]+))?"
)
_FIELDS: dict[str, dict[int, type]] = {
    "manifest": {1: bytes, 2: bytes},
    "region": {1: int, 2: bytes, 3: bytes},
    "family": {1: bytes, 2: bytes},
    "info": {1: int, 2: bytes, 3: bytes, 4: bytes, 5: int, 6: int, 7: int},
    "file": {1: bytes, 2: bytes, 3: int},
}
_REPEATED = {"manifest": 2, "region": 3, "family": 2}

_Message = Mapping[int, list[Any]]  # the values of each field, numbers or bytes


class StoreFile(NamedTuple):
    """A file of a region and a family.

    Attributes:
        path: below `data` of the root, or of its archive.
        size: in bytes.
        load: the number of the bulk load that brought it; None: HBase wrote it.
        is_of_parent: whether it has rows of other regions too.
    """

    path: str
    size: int | None
    load: int | None
    is_of_parent: bool


class SnapshotRegion(NamedTuple):
    """A region's rows, half-open, an empty `stop` for the table's end; and its files by family."""

    start: bytes
    stop: bytes
    files: dict[bytes, list[StoreFile]]

    def has(self, row: bytes) -> bool:
        """Whether a row lies in it."""
        return self.start <= row and (not self.stop or row < self.stop)


class SnapshotManifest(NamedTuple):
    """What a snapshot holds.

    Attributes:
        regions: in order; each begins where the one before ends.
        oldest: by family the time, ms since 1970, before which cells had expired when the snapshot was taken.
    """

    regions: list[SnapshotRegion]
    oldest: dict[bytes, int]

    @classmethod
    def parse(cls, info: bytes, manifest: bytes) -> SnapshotManifest:
        """Return what the two files say; `ValueError` where they cannot be right."""
        try:
            taken_ms = int(_message(info).get(3, [0])[0])
            parts = _message(manifest, "manifest")
            (table,) = parts[1]
            oldest = {name: max(0, taken_ms - 1_000 * ttl_s) for name, ttl_s in _ttls(_message(table)).items()}
            found = [_region(_message(one, "region")) for one in parts[2]]
        except (IndexError, KeyError, TypeError) as error:
            raise ValueError(f"a message of it cannot be read: {error!r}") from error
        regions = sorted((one for one in found if one is not None), key=lambda one: one.start)
        edges = [b"", *(one.stop for one in regions)], [*(one.start for one in regions), b""]
        if edges[0] != edges[1]:
            raise ValueError("its regions do not lie one behind the other")
        return cls(regions, oldest)


def _message(data: bytes, kind: str | None = None) -> _Message:
    """Return the fields of a message; of a known kind only with fields that it has, each as it must be."""
    found = defaultdict[int, list[Any]](list)
    for number, value in message_fields(data):
        if kind is not None:
            if not isinstance(value, _FIELDS[kind].get(number, ())):
                raise ValueError(f"a message of a {kind} has the unknown field {number}")
            if number in found and number != _REPEATED.get(kind):
                raise ValueError(f"a message of a {kind} has field {number} twice")
        found[number].append(value)
    return dict(found)


def _ttls(table: _Message) -> dict[bytes, int]:
    """Return after how many seconds the cells of families expire, of those where they do."""
    found = dict[bytes, int]()
    for family in map(_message, table[3]):
        pairs = map(_message, family.get(2, []))
        ttl = {pair[1][0]: pair[2][0] for pair in pairs}.get(b"TTL", b"")
        if ttl.isdigit() and int(ttl) < FOREVER_S:
            found[family[1][0]] = int(ttl)
    return found


def _region(region: _Message) -> SnapshotRegion | None:
    """Return a region; None for one that was split, whose daughters name its files, and for a replica."""
    info = _message(region[2][0], "info")
    if info.get(6, [0])[0] or info.get(7, [0])[0]:
        return None
    start, stop = (info.get(field, [b""])[0] for field in (3, 4))
    table = _message(info[2][0])
    namespace, name = (table[field][0].decode() for field in (1, 2))
    encoded = _encoded(namespace, name, start, info[1][0])
    files = dict[bytes, list[StoreFile]]()
    for family in (_message(one, "family") for one in region.get(3, [])):
        (family_name,) = family[1]
        if family_name in files:
            raise ValueError(f"family {family_name!r} is there twice in region {encoded}")
        place = namespace, name, encoded, family_name.decode()
        files[family_name] = [_file(_message(one, "file"), place) for one in family.get(2, [])]
    return SnapshotRegion(start, stop, files)


def _encoded(namespace: str, name: str, start: bytes, number: int) -> str:
    """Return the name of a region's folder."""
    table = name if namespace == DEFAULT_NAMESPACE else f"{namespace}:{name}"
    words = b",".join((table.encode(), start, str(number).encode()))
    return hashlib.md5(words, usedforsecurity=False).hexdigest()


def _file(file: _Message, place: tuple[str, str, str, str]) -> StoreFile:
    (name,) = file[1]
    found = _FILE.fullmatch(name.decode())
    if found is None:
        raise ValueError(f"a file has the name {name!r}, of a kind that is not known")
    namespace, table, encoded, family = place
    if found["table"]:
        namespace, table, encoded = found["namespace"] or DEFAULT_NAMESPACE, found["table"], found["region"]
    elif found["parent"]:
        encoded = found["parent"]
    path = f"{namespace}/{table}/{encoded}/{family}/{found['file']}"
    load = int(found["load"]) if found["load"] else None
    return StoreFile(path, file.get(3, [None])[0], load, found["parent"] is not None)
