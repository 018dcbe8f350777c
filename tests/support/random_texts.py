"""Random texts of every script, including what segmenters and normalisation trip over."""

from __future__ import annotations

import random
from collections.abc import Sequence

# First and last code points: Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, Lao, Burmese, Khmer, Hangul,
# punctuation, kana, Han of three planes, lone surrogates, compatibility forms, emoji.
BLOCKS = [
    (0x00, 0x7F), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x600, 0x6FF),
    (0x900, 0x97F), (0xE01, 0xE5B), (0xE81, 0xEDF), (0x1000, 0x109F), (0x1780, 0x17DD), (0x1100, 0x11FF),
    (0xAC00, 0xD7A3), (0x2000, 0x206F), (0x3040, 0x30FF), (0x3400, 0x34FF), (0x4E00, 0x9FFF), (0xD800, 0xDFFF),
    (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFF00, 0xFFEF), (0x1F600, 0x1F640), (0x20000, 0x20100),
]  # fmt: skip
LAYOUT = [" ", "  ", "\n", "\r\n", "\t", "-\n", "\u00ad", "\u00ad\n", "\u2010 \n", "'", "’", ".", "<p>"]
HAN = BLOCKS[17]


def run_of(rng: random.Random, block: tuple[int, int], most: int = 12) -> str:
    """Return a run of random characters of a block."""
    return "".join([chr(rng.randint(*block)) for _ in range(rng.randint(1, most))])


def text_of_scripts(rng: random.Random) -> str:
    """Return runs of several scripts with layout between them."""
    parts = [rng.choice(LAYOUT) if rng.random() < 0.4 else run_of(rng, rng.choice(BLOCKS)) for _ in range(6)]
    return "".join(parts)


def text_of_words(rng: random.Random, words: Sequence[str]) -> str:
    """Return adjacent words, some cut short or joined by something that is not a word."""
    parts = list[str]()
    for _ in range(rng.randint(2, 10)):
        word = rng.choice(words)
        kind = rng.random()
        if kind < 0.1:
            word = word[: rng.randint(0, len(word))]
        elif kind < 0.15:
            word = run_of(rng, HAN, 4)
        elif kind < 0.2:
            word = rng.choice(LAYOUT) if kind < 0.18 else run_of(rng, rng.choice(BLOCKS), 3)
        parts.append(word)
    return "".join(parts)


def text_that_repeats(rng: random.Random, words: Sequence[str]) -> str:
    """Return a few words repeated many times, between others."""
    name = [rng.choice(words) for _ in range(rng.randint(1, 3))]
    between = rng.choice(["", " ", "\n", "。"])
    others = [rng.choice(words) for _ in range(rng.randint(0, 12))]
    times = rng.randint(2, 12)
    return between.join([between.join(name) + between + between.join(others[number::times]) for number in range(times)])
