"""Tables of inverse document frequencies: jieba's own `idf.txt`, read from the installed package without importing it.

Importing jieba costs seconds and trusts a cache file that any local user can write; its data files do neither.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path

from hsimhash.errors import ProfileMismatchError

IDF_NAME = "jieba-0.42.1"
IDF_SHA256 = "501b70ec56c34d90f3f590f1918ca4b1bd617d5b46cd99bd6d17c7de6e4f80ed"


@functools.cache
def load_idf(sha256: str) -> tuple[dict[str, float], float]:
    """Return word → idf, and the median, which words not listed get.

    Raises:
        ProfileMismatchError: the installed table is missing, or its content is another.
    """
    content = _jieba_file().read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ProfileMismatchError(
            f"the installed jieba's idf.txt has SHA-256 {found[:16]}…, the profile's {sha256[:16]}…: "
            f"fingerprints would differ from those stored; {IDF_NAME} goes with jieba 0.42.1"
        )
    fields = content.decode().split()
    table = dict(zip(fields[::2], map(float, fields[1::2]), strict=True))
    return table, sorted(table.values())[len(table) // 2]


def _jieba_file() -> Path:
    spec = importlib.util.find_spec("jieba")
    if spec is None or not spec.submodule_search_locations:
        raise ProfileMismatchError(
            "jieba is not installed, whose idf.txt weighs Chinese words; pip install jieba==0.42.1"
        )
    return Path(spec.submodule_search_locations[0]) / "analyse" / "idf.txt"
