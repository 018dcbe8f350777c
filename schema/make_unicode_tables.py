"""Make `hsimhash/fingerprint/unicode.npz`, the Unicode data that fingerprints depend on, in one fixed version.

Run it with Python 3.11, whose Unicode is 14.0: `python schema/make_unicode_tables.py hsimhash/fingerprint/unicode.npz`.
Fingerprints in stored indexes depend on this file, so a table for a new version of Unicode needs a new name.

| array | dtype | meaning |
|---|---|---|
| `class_starts`, `class_values` | uint32, uint8 | code points starting at the i-th start have the i-th class |
| `single_from`, `single_to` | uint32 | code points that always normalise to one other code point, and that code point |
| `many_from`, `many_start`, `many_codes` | uint32 | the i-th becomes the codes [`many_start[i]`, `many_start[i + 1]`) |
| `joining` | uint32 | code points whose normalisation may depend on the preceding code points |

Classes: 0 none (punctuation, symbols, private use), 1 Han that the segmenter knows, 2 letter, digit or mark in a script
with spaces, 3 letter, digit or mark in a script without spaces, 4 blank (white space, controls, surrogates, not
assigned), 5 ignored (zero-width).
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import numpy as np

UNICODE_VERSION = "14.0.0"
CODE_POINTS = 0x110000
NONE, HAN, SPACED, UNSPACED, BLANK, IGNORED = range(6)

SEGMENTED = range(0x4E00, 0x9FD6)  # jieba segments these; for jieba, any other Han character ends a word
# Prefixes of the names of letters in scripts without spaces (the standard library does not have script data).
UNSPACED_NAMES = (
    "CJK", "IDEOGRAPHIC", "HANGZHOU NUMERAL", "SUZHOU NUMERAL", "VERTICAL IDEOGRAPHIC", "VERTICAL KANA", "HIRAGANA",
    "KATAKANA", "HENTAIGANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE", "BALINESE",
    "SUNDANESE", "TAI LE", "NEW TAI LUE", "TAI THAM", "TAI VIET", "YI SYLLABLE", "TANGUT", "NUSHU", "KHITAN", "CHAM",
    "COMBINING KATAKANA", "MASU",
)  # fmt: skip
# Assigned code points with Default_Ignorable_Code_Point, from DerivedCoreProperties.txt of Unicode 14.0.
IGNORABLE = (
    0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010),
    *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0,
    *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000),
)  # fmt: skip


def class_of(code: int, ignorable: frozenset[int]) -> int:
    """Return a code point's class."""
    char = chr(code)
    category = unicodedata.category(char)
    if category in ("Cn", "Cs", "Cc", "Zs", "Zl", "Zp"):
        return BLANK
    if code in ignorable:
        return IGNORED
    if code in SEGMENTED:
        return HAN
    if category[0] not in "LMN":
        return NONE
    name = unicodedata.name(char, "TANGUT")  # the only letters for which Python 3.11 has no names
    return UNSPACED if name.startswith(UNSPACED_NAMES) else SPACED


def composing() -> frozenset[str]:
    """Return the characters that can join with a preceding one: NFC_Quick_Check=Maybe, or a combining class."""
    found = {chr(c) for c in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}  # Hangul vowels and finals
    for char in map(chr, range(CODE_POINTS)):
        parts = unicodedata.decomposition(char).split()
        if len(parts) == 2 and "<" not in parts[0]:
            pair = "".join(chr(int(part, 16)) for part in parts)
            if unicodedata.normalize("NFC", pair) == char:
                found.add(pair[1])
        if unicodedata.combining(char):
            found.add(char)
    return frozenset(found)


def main(path: Path) -> None:
    """Write the tables."""
    if unicodedata.unidata_version != UNICODE_VERSION:
        raise SystemExit(
            f"this Python has Unicode {unicodedata.unidata_version}, not {UNICODE_VERSION}: use Python 3.11"
        )
    ignorable = frozenset(IGNORABLE)
    classes = np.array([class_of(code, ignorable) for code in range(CODE_POINTS)], np.uint8)
    joins, single, many, joining = composing(), [], [], []
    for code in np.flatnonzero(classes < BLANK).tolist():
        compatible = unicodedata.normalize("NFKC", chr(code))
        folded = compatible.casefold()
        final = unicodedata.normalize("NFKC", folded)
        if any(classes[ord(c)] >= BLANK and c != " " for c in final):
            raise SystemExit(f"U+{code:04X} normalises to a blank or ignored code point")
        if {compatible[0], folded[0], final[0]} & joins:
            joining.append(code)
        elif len(final) > 1:
            many.append((code, [ord(c) for c in final]))
        elif ord(final) != code:
            single.append((code, ord(final)))
    starts = np.flatnonzero(np.concatenate(([True], classes[1:] != classes[:-1])))
    np.savez_compressed(
        path,
        class_starts=starts.astype(np.uint32),
        class_values=classes[starts],
        single_from=np.array([a for a, _ in single], np.uint32),
        single_to=np.array([b for _, b in single], np.uint32),
        many_from=np.array([a for a, _ in many], np.uint32),
        many_start=np.cumsum([0, *(len(b) for _, b in many)]).astype(np.uint32),
        many_codes=np.array([c for _, b in many for c in b], np.uint32),
        joining=np.array(joining, np.uint32),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
