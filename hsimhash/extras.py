"""Import optional packages on first use. The error for a missing one names the extra to install."""

from __future__ import annotations

import importlib
import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_NAME = "hsimhash"


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where hsimhash came from: a folder, a repository or an index."""
    origin, option = _origin(), ""
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        what = f"{_NAME}[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    elif url.startswith("file://") and Path(path := unquote(url.removeprefix("file://"))).exists():
        what = f"{path}[{extra}]"
        option = "-e " if origin.get("dir_info", {}).get("editable") else ""
    else:  # an index, or a folder that is gone, such as the one from which an image was built
        what = f"{_NAME}[{extra}]"
    return f"pip install {option}{shlex.quote(what)}"


@cache
def _origin() -> dict[str, Any]:
    """Return what pip recorded about hsimhash's source (`direct_url.json`); nothing if it was the package index."""
    from importlib.metadata import distributions  # imported here because it takes 60 ms

    # A checkout in the working folder counts as another installation, without this file.
    found = filter(None, (one.read_text("direct_url.json") for one in distributions(name=_NAME)))
    origin: dict[str, Any] = json.loads(next(found, "{}"))
    return origin


def needed(module: str, extra: str, what: str) -> Any:
    """Import a module from an optional package; raise a `ValueError` that says how to install or repair the package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if not isinstance(error, ModuleNotFoundError):
            raise ValueError(f"{what} needs {package}, which cannot be loaded: {error}") from error
        raise ValueError(f"{what} needs {package}; install it: {install_command(extra)}") from error


def arrow_needed(what: str) -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet; see `needed`."""
    return needed("pyarrow", "parquet", what), needed("pyarrow.parquet", "parquet", what)
