"""Reading a sample of fingerprints from a file."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint import parse_fingerprint


def read_sample(path: Path, flag: str) -> NDArray[np.uint64]:
    """Return the fingerprints of a file, one a line, alone or behind a tab; `flag` named the file."""
    found = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    found.append(parse_fingerprint(line.strip().split("\t")[-1]))
                except ValueError as error:
                    raise click.BadParameter(f"{path}:{number}: {error}", param_hint=f"'{flag}'") from error
    if not found:
        raise click.BadParameter(f"{path} has no fingerprint", param_hint=f"'{flag}'")
    return np.array(found, np.uint64)
