"""Import optional packages on first use. The error for a missing one names the extra to install."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, extra: str, what: str) -> Any:
    """Import a module from an optional package; raise a `ValueError` that says how to install or repair the package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if not isinstance(error, ModuleNotFoundError):
            raise ValueError(f"{what} needs {package}, which cannot be loaded: {error}") from error
        raise ValueError(f"{what} needs {package}; install it: pip install 'hsimhash[{extra}]'") from error


def arrow_needed(what: str) -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet; see `needed`."""
    return needed("pyarrow", "parquet", what), needed("pyarrow.parquet", "parquet", what)
