"""An hsimhash index in one SQLite file: `sqlite://pages.db`.

Two tables hold the documents. `registers` has a row per document; its index by fingerprint serves as the listings.
`rows` has the rowkeys of the drawers and of the key drawer. A third table, `parts`, holds the record and the marks.

One transaction writes documents, rows and mark, so a kill leaves all of an `insert` or nothing of it. A read sees one
state of the index and does not wait for other processes. Threads of a process take turns.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np

from hsimhash import errors
from hsimhash.cover import Prices
from hsimhash.fingerprint import Signature, Signatures
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import KEY_FLAG, ROWKEY_BYTES, bucket_range, last_occurrences
from hsimhash.store import Backend, CheckReport, Document, Instead, Mark, Opening, Record, Store
from hsimhash.store.base import IDENTITY_PART, LOCK_TIMEOUT_S, View, gone
from hsimhash.store.capabilities import BacksUp, Compacts
from hsimhash.store.checkup import Check, check_read, check_record

APPLICATION = 0x4853494D  # marks SQLite's file as an index
SCHEMA = (
    f"PRAGMA application_id = {APPLICATION}",
    "CREATE TABLE parts (name BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE registers (doc_id BLOB PRIMARY KEY, fingerprint BLOB NOT NULL, first_seen INTEGER NOT NULL, "
    "sketch BLOB NOT NULL, key BLOB NOT NULL) WITHOUT ROWID",
    "CREATE UNIQUE INDEX listings ON registers (fingerprint, doc_id)",
    "CREATE TABLE rows (row BLOB PRIMARY KEY) WITHOUT ROWID",
)
COLUMNS = "doc_id, fingerprint, first_seen, sketch, key"
PAGE = 1_000  # documents
PAUSE_S = 0.02  # between two attempts, while another process writes
SUFFIXES = ("", "-wal", "-shm", "-lock")
# A process's calls take turns, and a fork waits for its turn too: a child must not inherit an open connection.
TURN = threading.RLock()
os.register_at_fork(before=TURN.acquire, after_in_parent=TURN.release, after_in_child=TURN.release)


@contextmanager
def own_errors(url: str) -> Iterator[None]:
    """Turn SQLite's errors into those that `Store` documents."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kinds = {sqlite3.SQLITE_INTERRUPT: errors.StoreTimeoutError, sqlite3.SQLITE_BUSY: errors.StoreBusyError}
        raise kinds.get(error.sqlite_errorcode & 0xFF, errors.StoreUnavailableError)(f"{url}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise errors.CorruptionError(f"{url}: {error}") from error


def connect(path: Path) -> closing[sqlite3.Connection]:
    """Connect to an existing file; a commit returns once it is on disk."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=30)
    connection.execute("PRAGMA synchronous = FULL")
    return closing(connection)


def wait(attempt: Callable[[], bool], path: Path, stop: Callable[[], bool] | None) -> None:
    """Repeat an attempt to get what another process holds, until it succeeds."""
    end = time.monotonic() + LOCK_TIMEOUT_S
    while not attempt():
        if stop and stop():
            raise errors.StopAskedError
        if time.monotonic() > end:
            raise errors.StoreBusyError(f"another writer held {path} for {LOCK_TIMEOUT_S:g} s; try again")
        time.sleep(PAUSE_S)


@contextmanager
def locked(path: Path, stop: Callable[[], bool] | None = None) -> Iterator[None]:
    """Exclude other processes that lock the same index."""
    try:
        descriptor = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise errors.StoreUnavailableError(f"{path}-lock cannot be written: {error.strerror}") from error

    def is_locked() -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        wait(is_locked, path, stop)
        yield
    finally:
        os.close(descriptor)


def packed(number: int) -> bytes:
    """Return an unsigned 64-bit number as bytes that sort like numbers."""
    return number.to_bytes(8, "big")


def as_document(row: tuple[bytes, bytes, int, bytes, bytes]) -> Document:
    doc_id, fingerprint, first_seen, *others = row
    numbers = [int.from_bytes(number, "big") for number in (fingerprint, *others)]
    return Document(doc_id.decode(), numbers[0], first_seen, *numbers[1:])


def read_record(connection: sqlite3.Connection, url: str) -> Record:
    parts = dict(connection.execute("SELECT name, value FROM parts"))
    try:
        return Record.from_parts(parts, url).learn_lists(parts.get, url)
    except ValueError as error:
        raise errors.CorruptionError(f"the record of {url} is damaged: {error}") from error


def is_index(path: Path) -> bool:
    # A plain read of the file would end this process's locks on it when it is closed.
    with TURN, suppress(sqlite3.Error), connect(path) as connection:
        return connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
    return False


def add_rows(connection: sqlite3.Connection, rows: Iterable[bytes], table: str = "rows") -> None:
    connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((row,) for row in sorted(rows)))


def delete_rows(connection: sqlite3.Connection, rows: Iterable[bytes]) -> None:
    connection.executemany("DELETE FROM rows WHERE row = ?", ((row,) for row in sorted(rows)))


class SqliteView(View):
    """Reads within one transaction."""

    def __init__(self, connection: sqlite3.Connection, record: Record) -> None:
        self._execute, self._record = connection.execute, record

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> np.ndarray:
        return self._rows(map(bucket_range, prefixes), f"LIMIT {-1 if most is None else most}")

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> np.ndarray:
        is_drawer = f"substr(row, 5, 1) <> x'{KEY_FLAG:02x}'" if self._record.has_signatures else "true"
        return self._rows(ranges, f"AND {is_drawer}")

    def _rows(self, ranges: Iterable[tuple[bytes, bytes]], condition: str = "") -> np.ndarray:
        query = f"SELECT row FROM rows WHERE row >= ? AND row < ? {condition}"
        found = b"".join([row for one in ranges for (row,) in self._execute(query, one)])
        return np.frombuffer(found, np.uint8).reshape(-1, ROWKEY_BYTES)

    def estimate(self) -> int:
        return int(self._execute("SELECT count(*) FROM registers").fetchone()[0])

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        query = f"SELECT {COLUMNS} FROM registers WHERE fingerprint = ? ORDER BY doc_id LIMIT ?"
        most = -1 if limit is None else limit
        return [list(map(as_document, self._execute(query, (packed(one), most)))) for one in fingerprints]

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        query = f"SELECT {COLUMNS} FROM registers WHERE doc_id = ?"
        return [row and as_document(row) for row in (self._execute(query, (one,)).fetchone() for one in doc_ids)]


class SqliteStore(Store):
    """An index in a SQLite file."""

    def __init__(self, url: str, path: Path) -> None:
        self.url, self._path = url, path
        self._is_closed, self._depth = False, 0
        with TURN, own_errors(url), connect(path) as connection:
            self.record = read_record(connection, url)

    def _check_usable(self) -> None:
        if self._is_closed:
            raise errors.StoreClosedError(f"{self.url} was closed")
        if not self._path.exists():
            raise gone(self.url, is_replaced=False)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction, which is committed unless the block raises."""
        self._check_usable()
        with TURN, own_errors(self.url), connect(self._path) as connection:
            connection.execute(begin)
            identity = connection.execute("SELECT value FROM parts WHERE name = ?", (IDENTITY_PART,)).fetchone()
            if identity != (self.record.identity,):
                raise gone(self.url, is_replaced=True)
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def view(self, *, timeout_s: float | None = None) -> Iterator[SqliteView]:
        with self._transaction("BEGIN") as connection:
            if timeout_s is not None:
                end = time.monotonic() + timeout_s
                connection.set_progress_handler(lambda: time.monotonic() > end, 1_000)
            yield SqliteView(connection, self.record)

    @contextmanager
    def writing(self, *, stop: Callable[[], bool] | None = None) -> Iterator[None]:
        self._check_usable()
        wait(lambda: TURN.acquire(timeout=PAUSE_S), self._path, stop)
        try:
            with nullcontext() if self._depth else locked(self._path, stop):
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
        finally:
            TURN.release()

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: np.ndarray, *, mark: Mark | None = None
    ) -> int:
        signatures = self.record.stored(signatures)
        changed, left = list[Signature](), list[Signature]()
        with self.writing(), self._transaction("BEGIN IMMEDIATE") as connection:
            for place in last_occurrences(doc_ids):
                signature, doc_id = signatures.at(place), doc_ids[place]
                (before,) = SqliteView(connection, self.record).lookup([doc_id])
                if before and before.signature == signature:
                    continue
                fingerprint, sketch, key = map(packed, signature)
                register = (doc_id, fingerprint, int(first_seen[place]), sketch, key)
                connection.execute("REPLACE INTO registers VALUES (?, ?, ?, ?, ?)", register)
                changed.append(signature)
                left += [before.signature] if before else []
            add_rows(connection, self._filed(changed))
            self._delete_rows(connection, left)
            if mark:
                connection.execute("REPLACE INTO parts VALUES (?, ?)", (mark.key, mark.value))
        return len(changed)

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        removed = list[Signature]()
        with self.writing(), self._transaction("BEGIN IMMEDIATE") as connection:
            for doc_id in set(doc_ids):
                (document,) = SqliteView(connection, self.record).lookup([doc_id])
                if document and (before is None or document.first_seen < before):
                    connection.execute("DELETE FROM registers WHERE doc_id = ?", (doc_id,))
                    removed.append(document.signature)
            self._delete_rows(connection, removed)
        return len(removed)

    def _filed(self, signatures: Iterable[Signature]) -> set[bytes]:
        return {row.tobytes() for row in self.record.filed_rowkeys(signatures)}

    def _delete_rows(self, connection: sqlite3.Connection, left: Sequence[Signature]) -> None:
        """Delete the rows of signatures that documents had, unless another document needs them."""
        query = "SELECT DISTINCT fingerprint, key FROM registers WHERE fingerprint = ?"
        needed = [
            Signature(int.from_bytes(fingerprint, "big"), key=int.from_bytes(key, "big"))
            for one in {packed(signature.fingerprint) for signature in left}
            for fingerprint, key in connection.execute(query, (one,))
        ]
        delete_rows(connection, self._filed(left) - self._filed(needed))

    def marked(self, token: str) -> int:
        with self._transaction("BEGIN") as connection:
            found = connection.execute("SELECT value FROM parts WHERE name = ?", (Mark(token).key,)).fetchone()
        return int(found[0]) if found else 0

    def walk(self) -> Iterator[list[Document]]:
        query = f"SELECT {COLUMNS} FROM registers WHERE (fingerprint, doc_id) > (?, ?) ORDER BY fingerprint, doc_id"
        after = (b"", b"")
        while True:
            with self._transaction("BEGIN") as connection:
                rows = connection.execute(f"{query} LIMIT {PAGE}", after).fetchall()
            if not rows:
                return
            yield list(map(as_document, rows))
            after = rows[-1][1], rows[-1][0]

    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        with self.writing() if repair else nullcontext(), self._transaction("BEGIN") as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise errors.CorruptionError(f"{self.url} is damaged: {found}; restore a backup")
            report = CheckReport(documents=SqliteView(connection, self.record).estimate())
            (report.drawer_rows,) = connection.execute("SELECT count(*) FROM rows").fetchone()
            connection.execute("CREATE TEMP TABLE needed (row BLOB PRIMARY KEY) WITHOUT ROWID")
            registers = connection.execute(f"SELECT {COLUMNS} FROM registers")
            for done in range(0, report.documents, PAGE):
                page = map(as_document, registers.fetchmany(PAGE))
                add_rows(connection, self._filed(document.signature for document in page), "needed")
                observer.report("check", min(done + PAGE, report.documents), report.documents)
            missing, extra = (
                {row for (row,) in connection.execute(f"SELECT row FROM {one} EXCEPT SELECT row FROM {other}")}
                for one, other in (("needed", "rows"), ("rows", "needed"))
            )
            for row in sorted(missing):
                report.problem(f"row {row.hex()}, which a register needs, is missing")
            for row in sorted(extra):
                report.leftover(f"no register needs row {row.hex()}")
            if repair:
                add_rows(connection, missing)
                delete_rows(connection, extra)
                report.repaired = len(missing) + len(extra)
            return report

    def describe(self) -> dict[str, str | int]:
        with self._transaction("BEGIN") as connection:
            (rows,) = connection.execute("SELECT count(*) FROM rows").fetchone()
        return {"path": str(self._path.absolute()), "drawer_rows": rows, "file_bytes": self._path.stat().st_size}

    def close(self) -> None:
        self._is_closed = True


class SqliteBackend(Backend):
    """Indexes in SQLite files."""

    name, title = "sqlite", "SQLite, embedded"
    schemes = ("sqlite",)
    example = "sqlite://relative/path.db, sqlite:///absolute/path.db"
    # Guesses, in the order of `Prices`, in µs and bytes; a store for real use should measure them.
    prices = Prices(15, 0.3, 3, 20, 0, 180, 10, 0.4)
    is_embedded = True

    def parse(self, url: str) -> Path:
        path = Path(url.removeprefix("sqlite://"))
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name a file in it, such as sqlite://{path / 'index.db'}")
        return path

    def name_of(self, url: str) -> str:
        return f"sqlite://{self.parse(url).absolute()}"

    def jobs_of(self, url: str) -> Path:
        return Path(f"{self.parse(url)}-jobs")

    def is_own_file(self, url: str, path: Path) -> bool:
        return path.resolve() in {Path(f"{self.parse(url)}{suffix}").resolve() for suffix in SUFFIXES}

    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> SqliteStore:
        path = self.parse(url)
        parts = record.list_parts() | {IDENTITY_PART: uuid.uuid4().bytes} | record.to_parts()
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        with TURN, own_errors(url), locked(path):
            path.touch()
            with connect(path) as connection:
                if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    raise errors.IndexExistsError(f"there is already a database at {url}; choose another path")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE")
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.executemany("INSERT INTO parts VALUES (?, ?)", parts.items())
                connection.execute("COMMIT")
        return SqliteStore(url, path)

    def open(self, url: str, opening: Opening) -> SqliteStore:
        if not is_index(path := self.parse(url)):
            raise errors.IndexNotFoundError(f"no index at {url}; " + errors.create_one(url))
        return SqliteStore(url, path)

    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        if not is_index(path := self.parse(url)):
            raise errors.IndexNotFoundError(f"no index at {url}")
        if not is_sure(f"Delete the index in {path} and everything in it?"):
            return False
        with TURN, locked(path):
            for file in [Path(f"{path}{suffix}") for suffix in SUFFIXES]:
                file.unlink(missing_ok=True)
        shutil.rmtree(self.jobs_of(url), ignore_errors=True)
        return True

    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        try:
            store = self.open(url, opening)
        except errors.HsimhashError as error:
            yield Check.failed("index", error)
            return
        with store:
            yield check_record(store.record)
            yield check_read(store)

    def instead(self, capability: type, url: str, target: str = "") -> Instead | None:
        shell = f"sqlite3 {shlex.quote(str(self.parse(url)))}"
        if capability is Compacts:
            return Instead("SQLite compacts the file itself:", [f"{shell} VACUUM"])
        if capability is BacksUp:
            return Instead("SQLite copies the file itself:", [f'{shell} ".backup {target or "copy.db"}"'])
        return super().instead(capability, url, target)


BACKEND = SqliteBackend()
