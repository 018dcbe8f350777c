"""Keep compiled templates where Python keeps compiled modules, because compiling them takes longer than a small job."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

from jinja2.bccache import Bucket, FileSystemBytecodeCache

from hsimhash import __version__


def template_cache() -> FileSystemBytecodeCache | None:
    """Return the cache for an environment, or None if Python does not write bytecode either."""
    if sys.dont_write_bytecode:
        return None
    return _TemplateCache(str(Path(cache_from_source(__file__)).parent), f"template-{__version__}-%s.cache")


class _TemplateCache(FileSystemBytecodeCache):
    """Ignores files that are damaged, or that another version of Jinja or Python wrote, as the base class does."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):  # the folder may be missing or read-only
            super().dump_bytecode(bucket)
