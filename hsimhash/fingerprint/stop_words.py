"""Words that occur in every sentence but rarely in menus and advertising, for the tokens `stop-words`.

The list decides the results of profiles with these tokens, so it never changes.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.murmur3 import murmur64

# Of Chinese single characters: without a segmenter each is a word.
_WORDS = (
    "a an and are as at be been but by can for from had has have he her his i if in into is it its not of on or our "
    "she so that the their them then there they this to was we were what when which who will with would you your "
    "的 了 是 在 和 有 也 就 都 而 与 及 但 被 把 从 对 为 其 之 于 所 以 着 过 吗 呢 吧 "
    "我 你 他 她 它 们 这 那 不 没 很 还 與 從 對 為 於 著 過 嗎 們 這 沒 還"
)


@cache
def stop_word_hashes() -> Uint64s:
    """Return the hashes of the words, ascending."""
    return np.unique(np.array([murmur64(word) for word in _WORDS.split()], np.uint64))
