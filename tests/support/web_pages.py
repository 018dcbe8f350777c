"""Pages like those of real sites: an article, surrounded by what a site shows on all of its pages."""

from __future__ import annotations

# ruff: noqa: E501, SIM905 (words and templates are easier to read so)
import html
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

_ENDS = re.compile(r"(?<=[。！？])|(?<=[.!?]) ")
_MENUS = {
    "en": "Home World Politics Business Markets Technology Science Health Sport Culture Travel Opinion Video Weather "
    "Jobs Property Puzzles Podcasts Newsletters Photos Archive Education Climate Style Food Games Cars".split(),
    "zh": "首页 国内 国际 财经 股票 科技 数码 体育 娱乐 健康 教育 军事 历史 汽车 房产 旅游 美食 时尚 游戏 博客 论坛 视频 图片 "
    "专题 评论 读书 招聘 天气 彩票 公益".split(),
}
_NOTICES = {
    "en": "Subscribe to our newsletter and get the best stories every morning.|We use cookies to improve your visit; by "
    "browsing on you accept our policy.|All rights reserved. No part of this site may be copied without permission.|"
    "Download our app for breaking news alerts.|Sign in to comment on this story.|About us|Contact the editors|Terms of "
    "use|Privacy notice|Advertise with us|Corrections|Report an error|Most read today|You may also like".split("|"),
    "zh": "下载客户端，第一时间看新闻|本网站内容未经授权不得转载、摘编或以其他方式使用|关于我们|联系编辑|广告服务|版权声明|隐私政策|"
    "网站地图|违法和不良信息举报电话|增值电信业务经营许可证|京公网安备|扫描二维码关注官方微信|登录后发表评论|热门排行|猜你喜欢|"
    "我们使用缓存改善浏览体验，继续浏览即表示同意".split("|"),
}
_BYLINES = {"en": "By {} | {} May 2026 | {} min read", "zh": "记者：{}　2026年5月{}日　阅读需{}分钟"}
_NAMES = {"en": "Ann Lee,J. Smith,Staff writer,News desk".split(","), "zh": "王小明,李华,编辑部,本报记者".split(",")}


@dataclass(frozen=True, slots=True)
class Article:
    """A text and its title; `language` is `en` or `zh`."""

    language: str
    title: str
    text: str


class Site:
    """A site in one language: it has its own words around its articles, and some change on every page.

    Args:
        number: the site's number, which also picks one of six templates.
        language: `en` or `zh`.
        teasers: sentences of other articles; every page shows some of them.
    """

    def __init__(self, number: int, language: str, teasers: Sequence[str]) -> None:
        chosen = random.Random(f"{number} {language}")
        self._template = number % 6
        self._language = language
        self._teasers = teasers
        self._name = f"{chosen.choice(_MENUS[language])} {number}"
        self._menu = chosen.sample(_MENUS[language], chosen.randint(10, 22))
        self._within = chosen.sample(_WITHIN, chosen.randint(0, 2))
        self._notices = chosen.sample(_NOTICES[language], chosen.randint(6, 12))

    def page(self, article: Article, number: int) -> str:
        """Return an article's page; `number` determines what changes from page to page."""
        chosen = random.Random(f"{self._name} {number}")
        sentences = [one.strip() for one in _ENDS.split(article.text) if one.strip()]
        paragraphs, at = [], 0
        while at < len(sentences):
            size = chosen.randint(2, 4)
            paragraphs.append(("" if self._language == "zh" else " ").join(sentences[at : at + size]))
            at += size
        blocks = [f"<p>{_marked(chosen, one)}</p>" for one in paragraphs]
        blocks[1:1] = [one.format(chosen.choice(self._teasers)[:60]) for one in self._within]
        body = "\n".join(blocks)
        byline = _BYLINES[self._language].format(
            chosen.choice(_NAMES[self._language]), chosen.randint(1, 31), chosen.randint(2, 9)
        )
        teasers = [one[:90] for one in chosen.sample(self._teasers, chosen.randint(8, 24))]
        main = _MAINS[self._template].format(title=html.escape(article.title), byline=byline, body=body)
        return _PAGE.format(
            language=self._language,
            title=html.escape(f"{article.title} - {self._name}"),
            menu=_links(self._menu),
            main=main,
            side=_SIDES[self._template].format(teasers=_links(teasers), head=self._notices[0]),
            foot=_FEET[self._template].format(notices=_links(self._notices), name=self._name),
        )


def _links(words: Sequence[str]) -> str:
    return "\n".join(f'<li><a href="/{number}">{html.escape(word)}</a></li>' for number, word in enumerate(words))


def _marked(chosen: random.Random, paragraph: str) -> str:
    """Return a paragraph, perhaps with some words in bold or as a link."""
    text, at = html.escape(paragraph, quote=False), chosen.randrange(max(1, len(paragraph) - 8))
    if "&" in text or chosen.random() < 0.6:
        return text
    tag = chosen.choice(["strong", 'a href="/x"'])
    return f"{text[:at]}<{tag}>{text[at : at + 6]}</{tag.partition(' ')[0]}>{text[at + 6 :]}"


_PAGE = """<!DOCTYPE html>
<html lang="{language}"><head><meta charset="utf-8"><title>{title}</title>
<style>.menu li {{ float: left }}</style><script>var tracker = "{language}";</script></head>
<body><header class="site-header"><nav class="menu"><ul>{menu}</ul></nav></header>
{main}
{side}
{foot}
<script>load("comments");</script></body></html>
"""
_WITHIN = [
    "<figure><img src='/photo.jpg'><figcaption>{}</figcaption></figure>",
    "<p><a href='/more'>{}</a></p>",
    "<ul class='share'><li><a href='/w'>Weibo</a></li><li><a href='/m'>Mail</a></li><li>{}</li></ul>",
    "<div class='ad'>{}</div>",
]
_MAINS = [
    "<main><article><h1>{title}</h1><p class='byline'>{byline}</p>{body}</article></main>",
    "<h1 class='headline'>{title}</h1><div class='meta'>{byline}</div><div class='article-content'>{body}</div>",
    "<div id='content'><h1>{title}</h1><span class='author'>{byline}</span><div class='entry-content'>{body}</div></div>",
    "<section><div class='post'><h2>{title}</h2><time>{byline}</time><div class='post-body'>{body}</div></div></section>",
    "<table><tr><td><h1>{title}</h1><div class='info'>{byline}</div><div class='text'>{body}</div></td></tr></table>",
    "<article class='story'><header><h1>{title}</h1><p class='date'>{byline}</p></header><div>{body}</div></article>",
]
_SIDES = [
    "<aside><h3>{head}</h3><ul>{teasers}</ul></aside>",
    "<div class='sidebar'><h4>{head}</h4><ul class='related'>{teasers}</ul></div>",
    "<div id='related-posts'><ul>{teasers}</ul></div>",
    "<aside class='widget'><ul>{teasers}</ul></aside><div class='comments'><h3>{head}</h3></div>",
    "<div class='recommend'><h3>{head}</h3><ul>{teasers}</ul></div>",
    "<nav class='more'><h3>{head}</h3><ul>{teasers}</ul></nav>",
]
_FEET = [
    "<footer><ul>{notices}</ul><p>© 2026 {name}</p></footer>",
    "<div class='footer'><ul>{notices}</ul><p>© {name}</p></div>",
    "<footer class='site-footer'><div>{name}</div><ul>{notices}</ul></footer>",
    "<div id='footer'><ul>{notices}</ul></div>",
    "<div class='bottom footer'><ul>{notices}</ul><p>{name}</p></div>",
    "<footer><nav><ul>{notices}</ul></nav></footer>",
]
