"""Make `hsimhash/fingerprint/simplified.npz`, a fixed table of traditional Han characters and their simplified forms.

Run it on OpenCC's `data/dictionary/TSCharacters.txt` (https://github.com/BYVoid/OpenCC, Apache License 2.0; the current
table is from commit 5249273a):
`python schema/make_script_table.py TSCharacters.txt hsimhash/fingerprint/simplified.npz`.
If a character has several simplified forms, the first form is used, as OpenCC does if no phrase decides. Fingerprints
in stored indexes depend on this table, so a new table needs a new name.

| array | dtype | meaning |
|---|---|---|
| `traditional`, `simplified` | uint32 | the traditional characters, ascending, and their final simplified forms |
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import numpy as np


def is_kept(code: int) -> bool:
    """Return whether a code point can occur in normalised text and is a character that jieba segments."""
    return 0x4E00 <= code <= 0x9FD5 and unicodedata.is_normalized("NFKC", chr(code))


def main(source: Path, target: Path) -> None:
    """Write the table."""
    lines = source.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if line and not line.startswith("#"))
    table = {ord(key): ord(values.split()[0]) for key, values in pairs}
    # Text is in NFKC before the table is applied. Afterwards, it must still be in NFKC, and the segmenter must know the
    # new characters.
    table = {key: value for key, value in table.items() if is_kept(key) and is_kept(value)}
    for key in table:
        while (further := table.get(table[key], table[key])) != table[key]:
            table[key] = further
    changed = sorted((key, value) for key, value in table.items() if key != value)
    np.savez_compressed(
        target,
        traditional=np.array([key for key, _ in changed], np.uint32),
        simplified=np.array([value for _, value in changed], np.uint32),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
