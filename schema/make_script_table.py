"""Make `hsimhash/fingerprint/simplified.npz`: which Han character each traditional one becomes, frozen.

Run it on OpenCC's `data/dictionary/TSCharacters.txt` (https://github.com/BYVoid/OpenCC, Apache License 2.0; the one in
use is of commit 5249273a): `python schema/make_script_table.py TSCharacters.txt hsimhash/fingerprint/simplified.npz`.
Of a character that may become several the first one counts, as in OpenCC where no phrase decides. Fingerprints in
stored indexes depend on this table: another one is another name.

| array | dtype | meaning |
|---|---|---|
| `traditional`, `simplified` | uint32 | the i-th of the first, ascending, becomes the i-th of the second, which stays |
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import numpy as np


def is_kept(code: int) -> bool:
    """Return whether a code point is a character of a normalised text that jieba segments."""
    return 0x4E00 <= code <= 0x9FD5 and unicodedata.is_normalized("NFKC", chr(code))


def main(source: Path, target: Path) -> None:
    """Write the table."""
    lines = source.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if line and not line.startswith("#"))
    table = {ord(key): ord(values.split()[0]) for key, values in pairs}
    # A text is in NFKC before the table is used, and must be so after it, of characters that the segmenter knows.
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
