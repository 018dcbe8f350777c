"""Keep compiled templates where Python keeps compiled modules, because compiling them takes longer than a small job."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import CodeType

import jinja2
from jinja2.bccache import Bucket, FileSystemBytecodeCache

from hsimhash import __version__


def template_cache() -> FileSystemBytecodeCache | None:
    """Return the cache for an environment, or None if Python does not write bytecode either.

    The names of its files contain all versions that the bytecode depends on.
    """
    if sys.dont_write_bytecode:
        return None
    versions = (sys.implementation.cache_tag, MAGIC_NUMBER.hex(), getattr(jinja2, "__version__", ""), __version__)
    folder = Path(cache_from_source(__file__)).parent
    return _TemplateCache(str(folder), f"template-{'-'.join(map(str, versions))}-%s.cache")


class _TemplateCache(FileSystemBytecodeCache):
    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # the file is damaged, or cannot be read
            bucket.reset()
        if not isinstance(bucket.code, CodeType):
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):  # the folder may be missing or read-only
            super().dump_bytecode(bucket)
