"""Edits that pages undergo between two crawls. A reader would consider each edited page the same page.

A page is a list of sentences. Inserted words and sentences come from other pages in the same language. Headers and
footers come from one site per language. There are two languages here: `zh` stands for all scripts without spaces
between words, `en` for all other scripts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

SEED = 2007

HEADERS = {
    "zh": "首页 新闻 文档 社区 下载 关于我们\n"
    "您现在的位置：首页 > 文章 > 正文\u3000字体：大 中 小\u3000打印本页\u3000收藏\u3000分享到微信\n",
    "en": "Home | News | Docs | Community | Downloads | About us\nYou are here: Home > Articles > Read. "
    "Print this page, save it for later, or share it with your friends.\n",
}
FOOTERS = {
    "zh": "\n上一篇：没有了\u3000下一篇：返回列表\n相关阅读\u3000热门文章\u3000发表评论\n"
    "本站声明：转载请注明出处。版权所有，未经许可不得转载。\n联系我们\u3000隐私政策\u3000使用条款\u3000网站地图",
    "en": "\nPrevious article: none. Next article: back to the list.\nRelated articles, most read, leave a comment. "
    "All rights reserved; no part may be copied without permission.\nContact us | Privacy policy | Terms | Sitemap",
}
_SENTENCE = {
    "zh": re.compile(r"[^。！？\n]*[。！？\n]+|[^。！？\n]+$"),
    "en": re.compile(r".*?(?:[.!?](?=\s)|\n)\s*|.+?$", re.DOTALL),
}
_WORD = {"zh": re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u4e00-\u9fff]{2}"), "en": re.compile(r"[^\W\d_]+")}
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u4e00-\u9fff]")
_UNSPACED_SHARE = 0.3  # a text with a greater share of such characters is treated as `zh`

# (random generator, sentences, language, other pages) → edited text
Edit = Callable[[random.Random, list[str], str, Sequence[str]], str]


def language_of(text: str) -> str:
    """Return `zh` for a text in a script without spaces, otherwise `en`."""
    return "zh" if len(_UNSPACED.findall(text)) > _UNSPACED_SHARE * len(text) else "en"


def sentences(text: str, language: str) -> list[str]:
    """Split a text into sentences; joining them restores the text."""
    return [one for one in _SENTENCE[language].findall(text) if one]


def _replaced(every: int, chance: random.Random, page: list[str], language: str, others: Sequence[str]) -> str:
    text = "".join(page)
    found = list(_WORD[language].finditer(text))
    pool = _WORD[language].findall(chance.choice(others)) or [match[0] for match in found]
    parts, done = [], 0
    for match in sorted(
        chance.sample(found, min(len(found), max(1, round(len(found) / every)))), key=lambda one: one.start()
    ):
        parts += [text[done : match.start()], chance.choice(pool)]
        done = match.end()
    return "".join([*parts, text[done:]])


def _sentence_in(chance: random.Random, page: list[str], language: str, others: Sequence[str]) -> str:
    at = chance.randrange(len(page) + 1)
    return "".join([*page[:at], chance.choice(sentences(chance.choice(others), language)), *page[at:]])


def _sentence_out(chance: random.Random, page: list[str], language: str, others: Sequence[str]) -> str:
    at = chance.randrange(len(page))
    return "".join(page[:at] + page[at + 1 :])


def _blocks_moved(chance: random.Random, page: list[str], language: str, others: Sequence[str]) -> str:
    first, second = sorted(chance.sample(range(len(page) + 1), 2))
    return "".join(page[first:second] + page[:first] + page[second:])


def _framed(chance: random.Random, page: list[str], language: str, others: Sequence[str]) -> str:
    return HEADERS[language] + "".join(page) + FOOTERS[language]


def _tail_cut(chance: random.Random, page: list[str], language: str, others: Sequence[str]) -> str:
    text = "".join(page)
    return text[: len(text) * 9 // 10]


def _reformatted(chance: random.Random, page: list[str], language: str, others: Sequence[str]) -> str:
    """Change line ends, spacing, and case (or full-width letters)."""
    text = "\r\n\r\n".join(one.strip().replace("\n", " \n\t") for one in page)
    wide = {code: code + 0xFEE0 for code in range(ord("A"), ord("z") + 1) if chr(code).isalpha()}
    return text.translate(wide) if language == "zh" else text.upper()


EDITS: Mapping[str, Edit] = {
    "1 word in 300": partial(_replaced, 300),
    "1 word in 100": partial(_replaced, 100),
    "1 word in 20": partial(_replaced, 20),
    "sentence in": _sentence_in,
    "sentence out": _sentence_out,
    "blocks moved": _blocks_moved,
    "header, footer": _framed,
    "tail cut": _tail_cut,
    "reformatted": _reformatted,
}


@dataclass(frozen=True, slots=True)
class Planted:
    """Edited texts, each with the position of its original and the kind of edit."""

    original: tuple[int, ...]
    kinds: tuple[str, ...]
    texts: tuple[str, ...]


def plant(texts: Sequence[str], most: int) -> Planted:
    """Apply every edit to some of the texts, except where it would leave a text unchanged or empty.

    The result is always the same for the same texts.

    Args:
        texts: Texts of a sample.
        most: Maximum number of texts to edit, chosen at random with a fixed seed.
    """
    languages = [language_of(text) for text in texts]
    pools = {one: [text for text, own in zip(texts, languages, strict=True) if own == one and text] for one in _WORD}
    planted = []
    for at in sorted(random.Random(SEED).sample(range(len(texts)), min(most, len(texts)))):
        language = languages[at]
        if page := sentences(texts[at], language):
            for kind, edit in EDITS.items():
                edited = edit(random.Random(f"{SEED} {kind} {at}"), page, language, pools[language])
                if edited.strip() and edited != texts[at]:
                    planted.append((at, kind, edited))
    original, kinds, edited_texts = zip(*planted, strict=True) if planted else ((), (), ())
    return Planted(original, kinds, edited_texts)
