"""hsimhash-native against numpy: `python -m tests.stress.native_identity [--strings 10000000] [--data DIR]`.

| part | texts |
|---|---|
| `scripts` | runs of random characters of every script, with layout between them |
| `words` | adjacent words of jieba's dictionary, some cut short |
| `names` | the same few words, repeated many times |
| `sets` | all texts of the labelled sets, with `--data` |

Each of the first three parts gets a third of the strings. All profiles sign all texts; all signatures must be equal.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from hsimhash.fingerprint import DEFAULT_PROFILE, Profile, Signatures
from hsimhash.fingerprint.native import signs_natively
from hsimhash.fingerprint.segment import jieba_dictionary
from hsimhash.native_package import SWITCH, signer_name
from tests.support.fingerprint_sets import read_documents
from tests.support.programs import Outcome, options, print_conditions, print_outcomes
from tests.support.random_texts import text_of_scripts, text_of_words, text_that_repeats

SEED, TOGETHER, SHOWN = 17, 2_000, 20


def differing(profile: Profile, texts: Sequence[str]) -> list[str]:
    """Return the texts for which the two signatures differ."""

    def signed(switch: str) -> Signatures:
        os.environ[SWITCH] = switch
        return profile.signatures(texts)

    ours, theirs = signed("1"), signed("0")
    is_same = np.equal(ours.fingerprints, theirs.fingerprints) & np.equal(ours.sketches, theirs.sketches)
    is_same &= np.equal(ours.keys, theirs.keys) & np.equal(ours.kinds, theirs.kinds)
    return [texts[place] for place in np.flatnonzero(~is_same)]


def check(part: str, texts: Iterator[str], profiles: Sequence[Profile]) -> Outcome:
    """Sign texts both ways; print those that differ."""
    count = faults = 0
    while some := list(islice(texts, TOGETHER)):
        count += len(some)
        for profile in profiles:
            for text in differing(profile, some):
                faults += 1
                if faults <= SHOWN:
                    print(f"{part} {profile.name}: {ascii(text)[:2000]}", flush=True)
    names = ", ".join(profile.name for profile in profiles)
    return Outcome(count > 0 and not faults, f"{part}: {count:,} texts by {names}, {faults} signed otherwise")


def random_texts(make: Callable[[random.Random], str], count: int) -> Iterator[str]:
    rng = random.Random(SEED)
    return (make(rng) for _ in range(count))


def texts_of_sets(data: Path) -> Iterator[str]:
    for path in sorted(data.rglob("docs.jsonl.gz")):
        yield from (document["text"] for document in read_documents(path) if isinstance(document.get("text"), str))


def main() -> None:
    asked = options(
        __doc__,
        has_data=True,
        strings=(10_000_000, "random strings"),
        profiles=(DEFAULT_PROFILE, "names of profiles, with blanks between them"),
    )
    profiles = [Profile.named(name) for name in asked.profiles.split()]
    if missing := [profile.name for profile in profiles if not signs_natively(profile)]:
        sys.exit(f"{signer_name()} signs {', '.join(missing)}; make native")
    print_conditions("hsimhash-native against numpy", signer=signer_name(), seed=SEED)
    words = [line.partition(" ")[0] for line in jieba_dictionary().decode().splitlines()]
    makers: dict[str, Callable[[random.Random], str]] = {
        "scripts": text_of_scripts,
        "words": partial(text_of_words, words=words),
        "names": partial(text_that_repeats, words=words),
    }
    outcomes = (
        check(part, random_texts(make, asked.strings // len(makers)), profiles) for part, make in makers.items()
    )
    sets = [] if asked.data is None else [check("sets", texts_of_sets(asked.data), profiles)]
    sys.exit(print_outcomes([*outcomes, *sets]))


if __name__ == "__main__":
    main()
