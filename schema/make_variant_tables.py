"""Make `hsimhash/fingerprint/variants.npz`, fixed tables of the spellings that `nfkc-casefold-2` treats as the same.

Run it with Python 3.11, whose Unicode is 14.0:
`python schema/make_variant_tables.py hsimhash/fingerprint/variants.npz`.
Fingerprints in stored indexes depend on this file, so a table with other variants needs a new name.

| array | dtype | meaning |
|---|---|---|
| `dropped` | uint32 | code points that are dropped before NFKC |
| `blank` | uint32 | code points that become a space |
| `dropped_marks` | uint32 | marks that are dropped after NFKC, which may compose them with a letter |
| `single_from`, `single_to` | uint32 | code points that become one other code point, if `unicode.npz` differs |
| `many_from`, `many_start`, `many_codes` | uint32 | the i-th becomes several code points, as in `unicode.npz` |
| `hyphen_starts`, `hyphen_values` | uint32, uint8 | code points starting at the i-th start have the i-th value |

The hyphen values are for words that are broken at a line end. 1 is a letter in a script with spaces that may come
before or after the hyphen. 2 is a capital letter or a mark, which may come only before the hyphen. 0 is anything else.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import numpy as np
from make_unicode_tables import BLANK, CODE_POINTS, IGNORABLE, SPACED, UNICODE_VERSION, class_of, composing

# Vowel signs, cantillation, stress and other marks that writers may leave out, and tatweel, which only stretches words.
OPTIONAL = (
    *range(0x483, 0x488), *range(0x591, 0x5BE), 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7,
    *range(0x610, 0x61B), 0x640, *range(0x64B, 0x653), *range(0x656, 0x660), 0x670,
    *range(0x6D6, 0x6DD), *range(0x6DF, 0x6E5), 0x6E7, 0x6E8, *range(0x6EA, 0x6EE),
    *range(0x8CA, 0x8E2), *range(0x8E3, 0x900), *range(0x951, 0x955),
    *range(0x1AB0, 0x1ACF), *range(0x1DC0, 0x1E00), *range(0xFE20, 0xFE30),
)  # fmt: skip
# Accents, hamza and madda above, hamza below, and nukta. NFKC composes some of them with some letters.
OPTIONAL_COMPOSED = (*range(0x300, 0x34F), *range(0x350, 0x370), 0x653, 0x654, 0x655, 0x93C)
KEPT_WITH_MARK = "й"  # the one letter with an accent that the root collation of Unicode and CLDR sorts by itself
VARIANTS = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2039\u203a\u02bb\u02bc`\u055a\u05f3\ua78c", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u05f4", '"'),
    **dict.fromkeys("\u2010\u2012\u2013\u2014\u2015\u2212\u05be", "-"),
    # Latin: letters that the root collation sorts as these, and the dotless i, because case folding turns I into i.
    "ø": "o", "đ": "d", "ð": "d", "ł": "l", "ħ": "h", "æ": "ae", "œ": "oe", "ı": "i",
    # Hebrew: Yiddish digraphs.
    "\u05f0": "\u05d5\u05d5", "\u05f1": "\u05d5\u05d9", "\u05f2": "\u05d9\u05d9",
    # Arabic: alef, heh, yeh and kaf, as in Lucene's filters for Arabic and Persian.
    **dict.fromkeys("\u0622\u0623\u0625\u0671\u0672\u0673\u0675", "\u0627"),
    **dict.fromkeys("\u0629\u06c0\u06c1\u06c2\u06c3", "\u0647"),
    "\u0649": "\u064a", "\u06cc": "\u064a", "\u06a9": "\u0643", "\u06d3": "\u06d2",
    # Devanagari: letters with a nukta, and candrabindu, which is usually printed as an anusvara.
    "\u0929": "\u0928", "\u0931": "\u0930", "\u0934": "\u0933", "\u0901": "\u0902",
    # Bengali and Malayalam: letters that older texts write as a consonant and a virama.
    "\u09ce": "\u09a4\u09cd",
    "\u0d7a": "\u0d23\u0d4d", "\u0d7b": "\u0d28\u0d4d", "\u0d7c": "\u0d30\u0d4d",
    "\u0d7d": "\u0d32\u0d4d", "\u0d7e": "\u0d33\u0d4d", "\u0d7f": "\u0d15\u0d4d",
    # Khmer: deprecated letters. Japanese: the iteration mark of vertical text, and the wave dash.
    "\u17a3": "\u17a2", "\u17a4": "\u17a2\u17b6", "\u303b": "\u3005", "\u301c": "~",
}  # fmt: skip
ACCENTED = ("LATIN", "GREEK", "CYRILLIC")


def variant(char: str) -> str:
    """Return the variant of a character in text in NFKC and lower case; empty if the character is dropped."""
    if ord(char) in OPTIONAL or ord(char) in OPTIONAL_COMPOSED:
        return ""
    if char in VARIANTS or char == KEPT_WITH_MARK:
        return VARIANTS.get(char, char)
    if unicodedata.category(char) == "Nd":
        return str(unicodedata.decimal(char))
    base, *marks = unicodedata.normalize("NFD", char)
    if marks and unicodedata.name(char, "").startswith(ACCENTED):
        return variant(base)
    return char


def hyphen_value(code: int, ignorable: frozenset[int]) -> int:
    """Return the hyphen value of a code point; see the module docstring."""
    category = unicodedata.category(chr(code))
    if category[0] not in "LM" or class_of(ord(unicodedata.normalize("NFKC", chr(code))[0]), ignorable) != SPACED:
        return 0
    return 2 if category in ("Lu", "Lt") or category[0] == "M" else 1


def main(path: Path) -> None:
    """Write the tables."""
    if unicodedata.unidata_version != UNICODE_VERSION:
        raise SystemExit(
            f"this Python has Unicode {unicodedata.unidata_version}, not {UNICODE_VERSION}: use Python 3.11"
        )
    ignorable, joins = frozenset(IGNORABLE), composing()
    dropped, single, many, blank = list(OPTIONAL), [], [], []
    for code in range(CODE_POINTS):
        if class_of(code, ignorable) >= BLANK or code in OPTIONAL or code in OPTIONAL_COMPOSED:
            continue
        compatible = unicodedata.normalize("NFKC", chr(code))
        folded = compatible.casefold()
        final = unicodedata.normalize("NFKC", folded)
        became = "".join(map(variant, final))
        if unicodedata.normalize("NFKC", became) != became:
            raise SystemExit(f"U+{code:04X} becomes {became!r}, which is not in NFKC")
        if "".join(map(variant, became)) != became or became.casefold() != became:
            raise SystemExit(f"U+{code:04X} becomes {became!r}, which becomes something else")
        if {compatible[0], folded[0], final[0]} & joins:
            if became != final:
                raise SystemExit(f"U+{code:04X} joins and has a variant")
        elif not became:
            dropped.append(code)
        elif became[0] == " ":
            blank.append(code)
        elif became != final:
            (single if len(became) == 1 else many).append((code, [ord(char) for char in became]))
    values = np.array([hyphen_value(code, ignorable) for code in range(CODE_POINTS)], np.uint8)
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    np.savez_compressed(
        path,
        dropped=np.array(sorted(dropped), np.uint32),
        blank=np.array(blank, np.uint32),
        dropped_marks=np.array(OPTIONAL_COMPOSED, np.uint32),
        single_from=np.array([a for a, _ in single], np.uint32),
        single_to=np.array([b[0] for _, b in single], np.uint32),
        many_from=np.array([a for a, _ in many], np.uint32),
        many_start=np.cumsum([0, *(len(b) for _, b in many)]).astype(np.uint32),
        many_codes=np.array([c for _, b in many for c in b], np.uint32),
        hyphen_starts=starts.astype(np.uint32),
        hyphen_values=values[starts],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
