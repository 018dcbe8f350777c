"""Reading a sample of fingerprints from a file."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from hsimhash.cli.console import say
from hsimhash.fingerprint.formats import formats_named, read_fingerprint, spoken
from hsimhash.inputs.sniff import decided_formats


def read_sample(path: Path, flag: str, fingerprint_format: str) -> NDArray[np.uint64]:
    """Return the fingerprints of a file, one a line, alone or behind a tab; `flag` named the file."""
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        words = [(number, line.strip().split("\t")[-1]) for number, line in enumerate(lines, start=1) if line.strip()]
    if not words:
        raise click.BadParameter(f"{path} has no fingerprint", param_hint=f"'{flag}'")
    asked = formats_named(fingerprint_format)
    formats = decided_formats(str(path), asked, (word for _, word in words))
    if formats != asked:
        say(f"fingerprints of {path} are read as {spoken(formats)}")
    found = []
    for number, word in words:
        try:
            found.append(read_fingerprint(word, formats))
        except ValueError as error:
            raise click.BadParameter(f"{path}:{number}: {error}", param_hint=f"'{flag}'") from error
    return np.array(found, np.uint64)
