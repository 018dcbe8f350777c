"""Embedded indexes. Each one is a folder with an LMDB file and, if the index is large, a base.

`lmdb:///data/pages?lock_timeout=5m` waits longer for other writers. Any other `?` is part of the folder's name.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from hsimhash.cover import Prices
from hsimhash.store.backend import Backend, Opening
from hsimhash.store.base import LOCK_TIMEOUT_S, Record
from hsimhash.store.capabilities import BacksUp, Compacts, LoadsInBulk
from hsimhash.store.checkup import Check
from hsimhash.store.lmdb import files
from hsimhash.store.lmdb.checkup import checks
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.urls import LOCK_TIMEOUT, folder_in, time_option, unknown_option, url_of

_OPTION = re.compile(r"\?(\w+)=([^/?]*)\Z")


def _parts(url: str) -> tuple[str, str]:
    """Split a URL into the folder's URL and the option after it, including the question mark."""
    url = url_of(url)
    found = _OPTION.search(url)
    if found and found[1] == LOCK_TIMEOUT:
        time_option(LOCK_TIMEOUT, found[2])
        return url[: found.start()], found[0]
    if found and difflib.get_close_matches(found[1], [LOCK_TIMEOUT]):
        raise unknown_option(found[1], [LOCK_TIMEOUT])
    return url, ""


def _lock_timeout_s(url: str) -> float:
    option = _parts(url)[1]
    return time_option(LOCK_TIMEOUT, option.partition("=")[2]) if option else LOCK_TIMEOUT_S


class _LmdbBackend(Backend):
    name, title = "lmdb", "LMDB, embedded"
    schemes = ("lmdb",)
    example = "lmdb://relative/path, lmdb:///absolute/path"
    # CPU time on a Xeon at 2.5 GHz with all data in memory, derived from the differences between layouts and between
    # document counts. The measurements were single queries without a match, with 4, 10, 20, 28 and 84 drawers, over
    # 150,000 to 2,400,000 random fingerprints, and the `add_many` calls that wrote those fingerprints. They did
    # not use hsimhash-native, which takes a twentieth of the time per drawer. Sizes are those of an index after bulk
    # loads of 20,000 to 10,000,000 documents, accurate to within a fifth.
    prices = Prices(
        read_us=0.7,
        candidate_us=0.011,
        row_us=0.1,
        row_bytes=9.5,
        bucket_bytes=0,
        document_bytes=108.5,
        neighbour_us=0.4,
        swept_us=0.6,
    )
    is_embedded = True
    options = frozenset({LOCK_TIMEOUT})
    capabilities = frozenset({BacksUp, Compacts, LoadsInBulk})
    limits = files.BASE_LIMITS  # limits of the stores that this backend opens

    def parse(self, url: str) -> Path:
        return folder_in(url, _parts(url)[0].removeprefix("lmdb://"))

    def name_of(self, url: str) -> str:
        return f"lmdb://{os.path.abspath(self.parse(url))}"  # noqa: PTH100 (does not resolve links)

    def full_url(self, url: str) -> str:
        return self.name_of(url) + _parts(url)[1]

    def jobs_of(self, url: str) -> Path:
        return self.parse(url) / files.JOBS

    def is_own_file(self, url: str, path: Path) -> bool:
        return files.is_own(self.parse(url), path)

    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> LmdbStore:
        return LmdbStore.create(url, self.parse(url), record, lock_timeout_s=_lock_timeout_s(url), limits=self.limits)

    def open(self, url: str, opening: Opening) -> LmdbStore:
        return LmdbStore(url, self.parse(url), lock_timeout_s=_lock_timeout_s(url), limits=self.limits)

    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        folder = self.parse(url)
        files.refuse_no_index(folder)
        if not is_sure(f"Delete the index in {folder} and everything in it?"):
            return False
        files.drop_at(folder, lock_timeout_s=_lock_timeout_s(url))
        if folder.is_dir():
            say(f"{folder} has files that are not part of the index; they were kept")
        return True

    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        return checks(url, self.parse(url))


BACKEND = _LmdbBackend()
