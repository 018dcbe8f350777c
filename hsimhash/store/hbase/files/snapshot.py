"""The index in a snapshot of its table, read from files alone, without a cluster: `Snapshot`.

HBase's `ExportSnapshot -copy-to ROOT` writes a folder, its root, which is made as a cluster's own:

| path | what |
|---|---|
| `.hbase-snapshot/NAME/` | the snapshot: which files belong to it, see `snapshot_manifest.py` |
| `archive/data/NAMESPACE/TABLE/REGION/FAMILY/FILE` | HFiles, those of other snapshots too |
| `data/NAMESPACE/…` | in a cluster's root: those of tables as they are now |

A region that was split or merged a moment ago has the files of its parents, of which its own rows are read.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from hsimhash.errors import CorruptionError, HsimhashError, IndexNotFoundError
from hsimhash.hfile import HFile, KeyValue, merged_cells, visible_cells
from hsimhash.rowkey import RECORD_ROWKEY, REGISTER_FLAG
from hsimhash.store.base import RECORD_PARTS, Document, Record
from hsimhash.store.hbase.files.snapshot_manifest import SnapshotManifest, SnapshotRegion, StoreFile
from hsimhash.store.hbase.files.stage import reached
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, RECORD_FAMILY
from hsimhash.store.hbase.rows.cells import Register, is_register, record_from, row_flag

_SNAPSHOTS, _INFO, _MANIFEST = ".hbase-snapshot", ".snapshotinfo", "data.manifest"
_PLACES = ("archive/data", "data")  # of files, below the root
_SEQUENCE, _LOADED = b"MAX_SEQ_ID_KEY", b"BULKLOAD_TIMESTAMP"  # in the file info
_EXPORT = "hbase org.apache.hadoop.hbase.snapshot.ExportSnapshot -snapshot NAME -copy-to FOLDER"
_AGAIN = f"export the snapshot again: {_EXPORT}"


class Snapshot:
    """A snapshot of an index's table; only its registers and its record are read.

    Args:
        place: the root, which has one snapshot, or its folder `.hbase-snapshot/NAME`; a path, or a URL that fsspec
            reaches.

    Attributes:
        place: the snapshot's own folder.
        record: of the index.

    Raises:
        IndexNotFoundError: no snapshot is there, or one of a table without an index.
        CorruptionError: something is damaged or missing; while documents are read, too.
    """

    def __init__(self, place: str) -> None:
        self._disk = _disk_of(place)
        self._root, name = self._found(self._disk.path)
        self.place = posixpath.join(self._root, _SNAPSHOTS, name)
        info, manifest = (self._read(posixpath.join(self.place, one)) for one in (_INFO, _MANIFEST))
        try:
            self._manifest = SnapshotManifest.parse(info, manifest)
        except ValueError as error:
            raise CorruptionError(
                f"{posixpath.join(self.place, _MANIFEST)} cannot be read ({error}); {_AGAIN}"
            ) from error
        self.record = self._recorded()

    def documents(self) -> Iterator[Document]:
        """Yield all documents as the table had them when the snapshot was taken, in order of their registers' rows."""
        for region in self._manifest.regions:
            for cell in self._cells(region, DOCUMENT_FAMILY, lambda row: row_flag(row) == REGISTER_FLAG):
                if is_register(cell.row, cell.qualifier):
                    document = Register.from_bytes(cell.value).document(cell.qualifier)
                    if document is not None:
                        yield document

    def _found(self, place: str) -> tuple[str, str]:
        """Return the root and the snapshot's name."""
        folder, name = posixpath.split(place)
        root, parent = posixpath.split(folder)
        if parent == _SNAPSHOTS and _MANIFEST in self._disk.names(place):
            return root, name
        folder = posixpath.join(place, _SNAPSHOTS)
        names = [
            name for name in self._disk.names(folder) if _MANIFEST in self._disk.names(posixpath.join(folder, name))
        ]
        if not names:
            raise IndexNotFoundError(
                f"no snapshot in {place}: no folder {_SNAPSHOTS}/NAME there has a {_MANIFEST}; give the FOLDER of "
                f"'{_EXPORT}'"
            )
        if len(names) > 1:
            named = ", ".join(posixpath.join(folder, name) for name in names)
            raise IndexNotFoundError(f"{place} has {len(names)} snapshots; give the folder of one: {named}")
        return place, names[0]

    def _recorded(self) -> Record:
        (region,) = (region for region in self._manifest.regions if region.has(RECORD_ROWKEY))
        cells = self._cells(region, RECORD_FAMILY, lambda row: row == RECORD_ROWKEY)
        found = {cell.qualifier: cell.value for cell in cells}
        if not any(part in found for part in RECORD_PARTS):
            raise IndexNotFoundError(
                f"no index in {self.place}: its table has no record of one; take a snapshot of an index's table"
            )
        return record_from(found, self.place).learn_lists(found.get, self.place)

    def _cells(self, region: SnapshotRegion, family: bytes, is_wanted: Callable[[bytes], bool]) -> Iterator[KeyValue]:
        """Yield the cells of a region and a family, as HBase shows them, of the rows that are wanted."""
        with ExitStack() as stack:
            opened = [_Opened(stack.enter_context(self._file(one)), one) for one in region.files.get(family, [])]
            opened.sort(key=_Opened.age)
            files = [one.cells(region, is_wanted) for one in opened]
            with _reading(self.place):
                yield from visible_cells(merged_cells(files), self._manifest.oldest.get(family, 0))

    def _file(self, file: StoreFile) -> HFile:
        for folder in _PLACES:
            path = posixpath.join(self._root, folder, file.path)
            with _reading(path), suppress(FileNotFoundError):
                opened = HFile(path, self._disk.open(path))
                if file.size not in (None, opened.size):
                    opened.close()
                    raise CorruptionError(f"{path} has {opened.size:,} bytes instead of {file.size:,}; {_AGAIN}")
                return opened
        raise CorruptionError(
            f"{self.place} lacks {file.path}, which is in none of {', '.join(_PLACES)} of {self._root}; {_AGAIN}"
        )

    def _read(self, path: str) -> bytes:
        with _reading(path), self._disk.open(path) as stream:
            return stream.read()


class _Opened(NamedTuple):
    """A file that is read."""

    file: HFile
    store: StoreFile

    def age(self) -> tuple[int, int, bytes, str]:
        """Return what orders files as HBase does, the oldest first."""
        sequence = int.from_bytes(self.file.info.get(_SEQUENCE, b""), "big")
        if self.store.load is not None:
            sequence = self.store.load
        return sequence, -self.file.size, self.file.info.get(_LOADED, b""), self.store.path

    def cells(self, region: SnapshotRegion, is_wanted: Callable[[bytes], bool]) -> Iterator[KeyValue]:
        """Yield the cells of wanted rows of a region; those of a bulk load have its number."""
        load = self.store.load
        for cell in self.file.cells():
            if not region.has(cell.row):
                if self.store.is_of_parent:
                    continue
                raise CorruptionError(f"{self.file.name} has row {cell.row.hex()}, not of its region; {_AGAIN}")
            if is_wanted(cell.row):
                yield cell if load is None else cell._replace(sequence=load)


class _LocalDisk(NamedTuple):
    """Files of this machine; `path` is the one that was given."""

    path: str

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, in order; nothing where there is none."""
        with _reading(folder), suppress(FileNotFoundError, NotADirectoryError):
            return sorted(os.listdir(folder))  # noqa: PTH208
        return []

    def open(self, path: str) -> BinaryIO:
        """Open a file to be read."""
        return Path(path).open("rb")


class _RemoteDisk(NamedTuple):
    """Likewise, files that fsspec reaches."""

    path: str
    files: Any

    def names(self, folder: str) -> list[str]:
        with _reading(folder), suppress(FileNotFoundError, NotADirectoryError):
            return sorted(posixpath.basename(one.rstrip("/")) for one in self.files.ls(folder, detail=False))
        return []

    def open(self, path: str) -> BinaryIO:
        stream: BinaryIO = self.files.open(path, "rb")
        return stream


def _disk_of(place: str) -> _LocalDisk | _RemoteDisk:
    if "://" not in place:
        return _LocalDisk(str(Path(place).absolute()))
    files, path = reached(place, "snapshot")
    return _RemoteDisk(path.rstrip("/"), files)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raise errors of files as `HsimhashError`, but where there is none."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise HsimhashError(f"cannot read {error.filename or path}: {error.strerror or error}; repair that") from error
