"""Page styles that `--extract auto` was not tuned on, each with its own markup and its own words around a text.

They were written before any measurement and are never edited to fit the rule: a new case needs a new style.
"""

from __future__ import annotations

# ruff: noqa: E501, SIM905 (words and templates are easier to read so)
import html
import json
import random
import re
from collections.abc import Callable, Sequence

from tests.support.web_pages import Article

_ENDS = re.compile(r"(?<=[。！？])|(?<=[.!?]) ")
_MENU = {
    "en": "Front page|Latest|Local|Nation|Economy|Companies|Research|Gadgets|Medicine|Football|Theatre|Films|Letters|Columns|"
    "Obituaries|Gardening|Recipes|Motoring|Family|Schools|Universities|Law|Crime|Transport|Energy|Farming|Shipping|History|"
    "Religion|Forum|Shop|Help|Calendar|Maps|Radio|Live|Members|Downloads|Support|Partners".split("|"),
    "zh": "网站首页|滚动|要闻|本地|社会|观察|证券|基金|银行|保险|家居|数码港|手机|电脑|影视|音乐|综艺|明星|篮球|足球|综合体育|中医|育儿|母婴|"
    "高考|留学|考研|文化|收藏|书画|佛学|星座|情感|三农|环保|能源|航空|铁路|地图|导航|邮箱|微博|直播|会员|帮助|客服".split(
        "|"
    ),
}
_NOTICES = {
    "en": "Get our daily digest delivered free to your inbox. You can unsubscribe at any time.|The views expressed here are those of "
    "the authors and do not reflect the position of the publisher.|Reproduction in whole or in part without written permission is "
    "prohibited.|Registered in England and Wales, company number 04418261.|Follow us on Facebook, Twitter and Instagram|Site map|"
    "Accessibility statement|Imprint|Cookie settings|Complaints procedure|Work for us|Media kit|Syndication|Editorial guidelines|"
    "Support independent writing: become a member from 3 pounds a month.|Prices include VAT and are correct at time of going to press.|"
    "This site is best viewed at 1024 by 768.|Press office|Store locator|Gift cards".split("|"),
    "zh": "凡本网注明来源的作品，均为本网合法拥有版权或有权使用的作品，未经授权不得转载|本站所载文章、数据仅供参考，使用前务请仔细阅读法律声明，风险自负|"
    "互联网新闻信息服务许可证 11220180001|信息网络传播视听节目许可证 0105094|京ICP备05012345号-3|广播电视节目制作经营许可证（京）字第 828 号|"
    "网站简介|人才招聘|友情链接|意见反馈|网站律师|会员注册|产品答疑|隐私保护指引|侵权投诉|举报邮箱|关注我们的公众号，每天推送精彩内容|"
    "未成年人保护专区|客户服务热线 400-690-0000|七天无理由退货|正品保障|门店查询|帮助中心".split("|"),
}
_REMARKS = {
    "en": "Thanks for posting this, I had been wondering about it for years.|I am not convinced, where does the second figure come from?|"
    "Great read, shared it with my brother who works in the field.|Does anyone have a link to the original source?|+1|"
    "My experience was quite different, it took three weeks and two phone calls.|You should split this into two parts next time.|"
    "Bought it in March and it still works like on the first day.|The delivery was late but the quality is good for the money.|"
    "Moderator here: please keep to the subject of this thread.|Old news, this was discussed last winter already.|Bump.|"
    "Could somebody explain the last paragraph to a beginner?|I disagree with nearly everything here, but it is well written.".split(
        "|"
    ),
    "zh": "谢谢楼主分享，学习了。|说得不错，不过第二个数字是从哪里来的？|顶一下。|路过，帮顶。|写得很好，已经转发给同事看了。|沙发！|"
    "我的经历完全不一样，当时等了三个星期，打了两次电话才办好。|请问有没有原文的链接？|三月份买的，到现在还跟新的一样，好评。|"
    "快递有点慢，不过东西对得起这个价格。|版主提醒：请大家围绕主题讨论，不要人身攻击。|这个去年冬天就讨论过了吧。|"
    "新手求教，最后一段是什么意思？|不敢苟同，但是文笔可以。".split("|"),
}
_PEOPLE = {
    "en": "M. Okafor|Hannah Weiss|tom_1978|Priya N.|old_sailor|Our correspondent|R. Delacroix|editor2".split("|"),
    "zh": "张伟|陈静|老船长|清风明月|本网综合|小编阿杰|刘洋|momo2012".split("|"),
}


class Frame:
    """What a template can use: the text, and words to put around it.

    Menus and notices depend on the site and the visit; teasers, remarks, people, dates and counts change on every page.

    Args:
        style: the name of the site; each has one template.
        article: the article to show.
        number: the article's number, from 0.
        visit: how often the site was redesigned: each time its menu, notices, teasers and counts change.
        teasers: sentences of other articles.
    """

    def __init__(self, style: str, article: Article, number: int, visit: int, teasers: Sequence[str]) -> None:
        self.language = article.language
        self.title = html.escape(article.title)
        self._site = random.Random(f"{style} {self.language} {visit}")
        self.page = random.Random(f"{style} {self.language} {visit} {number}")
        self._own = random.Random(f"{style} {self.language} {number}")
        self._teasers = teasers
        sentences = [one.strip() for one in _ENDS.split(article.text) if one.strip()]
        size = random.Random(f"{style} {self.language}").randint(2, 5)  # sentences per paragraph
        joint = "" if self.language == "zh" else " "
        self.texts = [joint.join(sentences[at : at + size]) for at in range(0, len(sentences), size)]

    def say(self, english: str, chinese: str) -> str:
        """Return the wording in the page's language."""
        return english if self.language == "en" else chinese

    def paragraphs(self) -> list[str]:
        """Return the paragraphs, some of them with a link or bold words inside."""
        return [self._marked(html.escape(one, quote=False)) for one in self.texts]

    def _marked(self, text: str) -> str:
        """Return a paragraph, perhaps with a few words as a link, bold or italic."""
        spaces = [at for at, one in enumerate(text) if one == " "] if self.language == "en" else range(len(text))
        if "&" in text or len(spaces) < 12 or self._own.random() < 0.6:
            return text
        name, opening = self._own.choice([("b", "<b>"), ("a", '<a href="/tag/1" target="_blank">'), ("em", "<em>")])
        first = self._own.randrange(1, len(spaces) - 8)
        begin = spaces[first] + (self.language == "en")
        end = spaces[first + (3 if self.language == "en" else 6)]
        return f"{text[:begin]}{opening}{text[begin:end]}</{name}>{text[end:]}"

    def joined(self, form: str) -> str:
        """Return all paragraphs, each wrapped in `form`."""
        return "\n".join(form.format(one) for one in self.paragraphs())

    def menu(self, count: int, form: str = '<li><a href="/{at}/">{word}</a></li>') -> str:
        """Return `count` entries of the site's menu."""
        words = self._site.sample(_MENU[self.language], count)
        return "\n".join(form.format(at=at, word=word) for at, word in enumerate(words))

    def notices(self, count: int, form: str = '<li><a href="/info/{at}">{word}</a></li>') -> str:
        """Return `count` notices of the site."""
        words = self._site.sample(_NOTICES[self.language], count)
        return "\n".join(form.format(at=at, word=word) for at, word in enumerate(words))

    def teasers(self, least: int, most: int, form: str = '<li><a href="/a/{at}.html">{word}</a></li>') -> str:
        """Return links to other articles."""
        words = self.page.sample(list(self._teasers), self.page.randint(least, most))
        return "\n".join(form.format(at=self.page.randrange(9**6), word=html.escape(word.strip())) for word in words)

    def remarks(self, least: int, most: int, form: str) -> str:
        """Return readers' comments: `form` takes their words, names and dates."""
        words = self.page.sample(_REMARKS[self.language], self.page.randint(least, most))
        return "\n".join(
            form.format(word=word, name=self.person(), date=self.date(), count=self.count()) for word in words
        )

    def person(self) -> str:
        """Return a person's name."""
        return self.page.choice(_PEOPLE[self.language])

    def count(self, below: int = 9_000) -> int:
        """Return a number that the page shows."""
        return self.page.randint(1, below)

    def date(self) -> str:
        """Return a day and a time."""
        month, day = self.page.randint(1, 12), self.page.randint(1, 28)
        time = f"{self.page.randint(0, 23):02}:{self.page.randint(0, 59):02}"
        return self.say(f"{day:02}/{month:02}/2025 {time}", f"2025年{month:02}月{day:02}日 {time}")


def _tables(f: Frame) -> str:
    """A site of 2001: tables within tables, fonts, lines broken by hand."""
    return f"""<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01 Transitional//EN">
<html><head><meta http-equiv="Content-Type" content="text/html; charset=utf-8"><title>{f.title}</title></head>
<body bgcolor="#FFFFFF" text="#000000" link="#0000CC" topmargin="0">
<table width="760" border="0" cellspacing="0" cellpadding="0" align="center"><tr>
<td width="180"><a href="/"><img src="/logo.gif" width="160" height="50" border="0"></a></td>
<td align="right"><font size="2" face="Arial">{f.menu(8, '<a href="/{at}.htm">{word}</a> |')} {f.date()}</font></td></tr></table>
<table width="760" border="0" cellspacing="0" cellpadding="4" align="center"><tr>
<td width="150" valign="top" bgcolor="#E8E8E8"><font size="2">{f.menu(12, '&#183; <a href="/{at}.htm">{word}</a><br>')}<hr>
{f.say("You are visitor number", "您是第")} <b>{f.count(90_000)}</b>{f.say("", "位访客")}</font></td>
<td valign="top"><table width="100%" border="0" cellpadding="6"><tr><td><center><font size="5"><b>{f.title}</b></font></center>
<center><font size="2" color="#808080">{f.person()} &nbsp; {f.date()} &nbsp; {f.say("read", "阅读")}: {f.count()}</font></center><hr size="1">
<font size="3">{"<br><br>".join("&nbsp;&nbsp;" + one for one in f.paragraphs())}</font>
<p align="right"><font size="2">[<a href="javascript:print()">{f.say("Print", "打印本页")}</a>] [<a href="/">{f.say("Back", "返回")}</a>]</font></p>
</td></tr></table></td>
<td width="140" valign="top"><table border="1" cellpadding="2" width="100%"><tr><td bgcolor="#003366"><font color="#FFFFFF" size="2"><b>{f.say("More news", "相关新闻")}</b></font></td></tr>
<tr><td><font size="2">{f.teasers(5, 9, '&#8226; <a href="/{at}.htm">{word}</a><br>')}</font></td></tr></table></td>
</tr></table><hr width="760"><center><font size="1">{f.notices(6, "{word} |")} Copyright 1999-2004</font></center></body></html>"""


def _blog(f: Frame) -> str:
    """A blog with widgets, sharing buttons, related posts and comments."""
    comment = '<li class="comment even depth-1"><article class="comment-body"><footer class="comment-meta"><b class="fn">{name}</b> <a href="#c">{date}</a></footer><div class="comment-content"><p>{word}</p></div><div class="reply"><a href="#respond">Reply</a></div></article></li>'
    return f"""<!DOCTYPE html>
<html lang="{f.language}"><head><meta charset="UTF-8"><title>{f.title} &#8211; {f.say("Notes from the attic", "阁楼笔记")}</title><meta name="generator" content="WordPress 6.4"></head>
<body class="post-template-default single single-post postid-{f.count()}"><div id="page" class="site"><a class="skip-link screen-reader-text" href="#content">{f.say("Skip to content", "跳至内容")}</a>
<header id="masthead" class="site-header"><p class="site-title"><a href="/">{f.say("Notes from the attic", "阁楼笔记")}</a></p><p class="site-description">{f.say("Just another weblog", "又一个博客")}</p>
<nav id="site-navigation" class="main-navigation"><ul id="primary-menu" class="menu">{f.menu(7, '<li class="menu-item"><a href="/c/{at}">{word}</a></li>')}</ul></nav></header>
<div id="content" class="site-content"><div id="primary" class="content-area"><main id="main" class="site-main">
<article id="post-1" class="post type-post status-publish hentry"><header class="entry-header"><h1 class="entry-title">{f.title}</h1>
<div class="entry-meta"><span class="posted-on">{f.say("Posted on", "发布于")} <time class="entry-date published">{f.date()}</time></span><span class="byline"> {f.say("by", "作者：")} <a class="url fn n" href="/author">{f.person()}</a></span></div></header>
<div class="entry-content">{f.joined("<p>{}</p>")}
<div class="sharedaddy sd-sharing-enabled"><h3 class="sd-title">{f.say("Share this:", "分享到：")}</h3><ul><li><a href="#">Twitter</a></li><li><a href="#">Facebook</a></li></ul></div>
<div id="jp-relatedposts" class="jp-relatedposts"><h3 class="jp-relatedposts-headline"><em>{f.say("Related", "相关文章")}</em></h3>{f.teasers(3, 3, '<div class="jp-relatedposts-post"><h4><a href="/{at}">{word}</a></h4><p>{word}...</p></div>')}</div></div>
<footer class="entry-footer"><span class="cat-links">{f.say("Posted in", "分类：")} {f.menu(2, '<a href="/{at}" rel="category tag">{word}</a> ')}</span><span class="tags-links">{f.say("Tagged", "标签：")} {f.menu(3, '<a href="/{at}" rel="tag">{word}</a> ')}</span></footer></article>
<nav class="navigation post-navigation"><div class="nav-links">{f.teasers(2, 2, '<div class="nav-previous"><a href="/{at}" rel="prev">{word}</a></div>')}</div></nav>
<div id="comments" class="comments-area"><h2 class="comments-title">{f.count(30)} {f.say("thoughts on this post", "条评论")}</h2><ol class="comment-list">{f.remarks(2, 6, comment)}</ol>
<div id="respond" class="comment-respond"><h3 id="reply-title">{f.say("Leave a Reply", "发表回复")}</h3><form><p class="comment-notes">{f.say("Your email address will not be published. Required fields are marked *", "您的电子邮箱地址不会被公开。 必填项已用 * 标注")}</p><textarea></textarea></form></div></div></main></div>
<aside id="secondary" class="widget-area"><section class="widget widget_search"><form><input type="search"></form></section><section class="widget widget_recent_entries"><h2 class="widget-title">{f.say("Recent Posts", "近期文章")}</h2><ul>{f.teasers(5, 5)}</ul></section>
<section class="widget widget_archive"><h2 class="widget-title">{f.say("Archives", "归档")}</h2><ul>{"".join(f'<li><a href="/{at}">2025-{at:02}</a> ({f.count(40)})</li>' for at in range(1, 10))}</ul></section></aside></div>
<footer id="colophon" class="site-footer"><div class="site-info"><a href="https://wordpress.org/">{f.say("Proudly powered by WordPress", "自豪地采用WordPress")}</a>{f.notices(3, " | {word}")}</div></footer></div></body></html>"""


def _docs(f: Frame) -> str:
    """A manual: a tree of chapters at the side, a note, links to the previous and next pages."""
    note = f.say(
        "This page describes the current release. For older releases choose a version below.",
        "本页适用于当前版本，旧版本请在下方选择。",
    )
    return f"""<!DOCTYPE html>
<html class="writer-html5" lang="{f.language}"><head><meta charset="utf-8"><title>{f.title} &mdash; {f.say("Handbook 4.2 documentation", "手册 4.2 文档")}</title></head>
<body class="wy-body-for-nav"><div class="wy-grid-for-nav"><nav data-toggle="wy-nav-shift" class="wy-nav-side"><div class="wy-side-scroll"><div class="wy-side-nav-search"><a href="index.html" class="icon icon-home"> {f.say("Handbook", "手册")}</a><div class="version">4.2.{f.count(20)}</div><div role="search"><form><input type="text" placeholder="{f.say("Search docs", "搜索文档")}"></form></div></div>
<div class="wy-menu wy-menu-vertical" role="navigation"><p class="caption"><span class="caption-text">{f.say("Getting started", "入门")}</span></p><ul>{f.menu(9, '<li class="toctree-l1"><a class="reference internal" href="{at}.html">{word}</a></li>')}</ul>
<p class="caption"><span class="caption-text">{f.say("Reference", "参考")}</span></p><ul class="current">{f.menu(14, '<li class="toctree-l1"><a class="reference internal" href="r{at}.html">{word}</a><ul><li class="toctree-l2"><a class="reference internal" href="r{at}.html#a">{word} (1)</a></li></ul></li>')}</ul></div></div></nav>
<section data-toggle="wy-nav-shift" class="wy-nav-content-wrap"><div class="wy-nav-content"><div class="rst-content"><div role="navigation" aria-label="breadcrumbs"><ul class="wy-breadcrumbs"><li><a href="index.html">{f.say("Docs", "文档")}</a> &raquo;</li><li>{f.title}</li><li class="wy-breadcrumbs-aside"><a href="_sources/p.txt">{f.say("View page source", "查看源码")}</a></li></ul><hr></div>
<div role="main" class="document" itemscope="itemscope"><div itemprop="articleBody"><section id="s1"><h1>{f.title}<a class="headerlink" href="#s1" title="Permalink">&para;</a></h1>
<div class="admonition note"><p class="admonition-title">{f.say("Note", "备注")}</p><p>{note}</p></div>
{f.joined("<p>{}</p>")}
<div class="admonition seealso"><p class="admonition-title">{f.say("See also", "参见")}</p><ul class="simple">{f.teasers(2, 3, '<li><p><a class="reference internal" href="{at}.html">{word}</a></p></li>')}</ul></div></section></div></div>
<footer><div class="rst-footer-buttons" role="navigation">{f.teasers(2, 2, '<a href="{at}.html" class="btn btn-neutral" rel="next">{word}</a>')}</div><hr><div role="contentinfo"><p>&copy; {f.say("Copyright 2025, the Handbook team. Last updated on", "版权所有 2025，手册小组。最后更新于")} {f.date()}.</p></div>
{f.notices(3, "<p>{word}</p>")} {f.say("Built with Sphinx using a theme provided by Read the Docs.", "由 Sphinx 构建，主题由 Read the Docs 提供。")}</footer></div></div></section></div></body></html>"""


def _news(f: Frame) -> str:
    """A newspaper: a banner about cookies, teasers between the paragraphs and all around."""
    inside = f"""<div class="c-inline-promo"><span class="c-inline-promo__label">{f.say("Read more", "延伸阅读")}</span>{f.teasers(1, 2, '<a class="c-inline-promo__link" href="/{at}">{word}</a>')}</div>"""
    letter = f"""<div class="c-newsletter"><h4>{f.say("The morning briefing", "早间快报")}</h4><p>{f.notices(1, "{word}")}</p><form><input type="email"><button>{f.say("Sign up", "订阅")}</button></form></div>"""
    body = [f'<p class="c-body__p">{one}</p>' for one in f.paragraphs()]
    body[2:2], body[1:1] = [letter], [inside]
    shares = "".join(
        f'<li><button class="c-share__btn">{one}</button></li>'
        for one in ("Facebook", "WhatsApp", "X", f.say("Copy link", "复制链接"))
    )
    card = '<article class="c-card"><a href="/{at}"><h3 class="c-card__title">{word}</h3></a><p class="c-card__standfirst">{word}</p><span class="c-card__time">3h</span></article>'
    return f"""<!doctype html>
<html lang="{f.language}"><head><meta charset="utf-8"><title>{f.title} | {f.say("The Evening Courier", "东方晚报")}</title><meta property="og:type" content="article"></head><body>
<div id="consent" class="c-consent" role="dialog"><h2>{f.say("Your privacy matters to us", "我们重视您的隐私")}</h2><p>{f.say("We and our 812 partners store and access information on your device, such as cookies, in order to personalise advertising and content. You may accept or manage your choices at any time.", "本网站及合作伙伴使用 Cookie 在您的设备上存储和读取信息，以便提供个性化的广告与内容。您可以随时接受或管理您的选择。")}</p><button>{f.say("Accept all", "全部接受")}</button><button>{f.say("Manage options", "管理选项")}</button></div>
<div class="c-breaking"><strong>{f.say("Breaking", "快讯")}</strong> {f.teasers(1, 1, '<a href="/{at}">{word}</a>')}</div>
<header class="l-header"><a class="c-logo" href="/">{f.say("The Evening Courier", "东方晚报")}</a><nav class="c-nav"><ul>{f.menu(16)}</ul></nav><a class="c-subscribe" href="/sub">{f.say("Subscribe for 1 pound", "订阅")}</a></header>
<main class="l-main"><article class="c-article" itemscope><div class="c-article__kicker">{f.menu(1, "{word}")}</div><h1 class="c-article__headline">{f.title}</h1>
<div class="c-article__meta"><span class="c-byline">{f.person()}</span><time>{f.date()}</time><span>{f.count(20)} {f.say("min read", "分钟阅读")}</span></div><ul class="c-share">{shares}</ul>
<figure class="c-figure"><img src="/i.jpg" alt=""><figcaption>{f.say("File photo. Photograph: agencies", "资料图片。图源：通讯社")}</figcaption></figure>
<div class="c-body">{chr(10).join(body)}</div>
<div class="c-tags"><ul>{f.menu(4)}</ul></div><div class="c-author-bio"><p>{f.person()} {f.say("has covered the region for the paper since 2009.", "自2009年起为本报撰稿。")}</p></div></article>
<section class="c-more"><h2>{f.say("More on this story", "更多报道")}</h2>{f.teasers(4, 8, card)}</section>
<aside class="l-rail"><h2>{f.say("Most viewed", "点击排行")}</h2><ol>{f.teasers(5, 10)}</ol></aside></main>
<footer class="l-footer"><ul>{f.menu(12)}</ul><ul>{f.notices(8)}</ul><p>&copy; {f.say("Courier Media Group", "东方报业集团")}</p></footer></body></html>"""


def _forum(f: Frame) -> str:
    """A thread: the text is the first post, other users reply; each user has a profile and a signature."""

    def post(at: int, name: str, text: str) -> str:
        return f"""<div id="p{at}" class="post has-profile bg{at % 2 + 1}"><div class="inner"><dl class="postprofile" id="profile{at}"><dt class="has-profile-rank"><a href="./member" class="username">{name}</a></dt><dd class="profile-rank">{f.say("Member", "中级会员")}</dd><dd class="profile-posts"><strong>{f.say("Posts:", "帖子：")}</strong> <a href="#">{f.count()}</a></dd><dd class="profile-joined"><strong>{f.say("Joined:", "注册：")}</strong> {f.date()}</dd></dl>
<div class="postbody"><div id="post_content{at}"><h3 class="first"><a href="#p{at}">{"Re: " if at else ""}{f.title}</a></h3><ul class="post-buttons"><li><a href="./quote" class="button">{f.say("Quote", "引用")}</a></li></ul><p class="author"><span class="responsive-hide">{f.say("by", "由")} <strong>{name}</strong> &raquo; </span><time>{f.date()}</time></p>
<div class="content">{text}</div><div id="sig{at}" class="signature">{f.page.choice(_NOTICES[f.language])}</div></div></div><div class="back2top"><a href="#top">{f.say("Top", "顶部")}</a></div></div></div><hr class="divider">"""

    answers = [post(at, f.person(), one) for at, one in enumerate(f.remarks(3, 8, "{word}").splitlines(), 1)]
    posts = "\n".join([post(0, f.person(), "<br><br>\n".join(f.paragraphs())), *answers])
    pages = f"{f.say('Page', '第')} <strong>1</strong> {f.say('of', '页，共')} <strong>{f.count(9)}</strong>"
    return f"""<!DOCTYPE html>
<html dir="ltr" lang="{f.language}"><head><meta charset="utf-8"><title>{f.title} - {f.say("Harbour boards", "港湾论坛")}</title></head><body id="phpbb" class="nojs notouch section-viewtopic ltr"><div id="wrap" class="wrap"><div id="page-header"><div class="headerbar" role="banner"><div class="inner"><h1>{f.say("Harbour boards", "港湾论坛")}</h1><p>{f.notices(1, "{word}")}</p></div></div>
<div class="navbar" role="navigation"><ul id="nav-main" class="nav-main linklist">{f.menu(5)}</ul><ul id="nav-breadcrumbs" class="linklist navlinks">{f.menu(3, '<li class="breadcrumbs"><span class="crumb"><a href="./f{at}">{word}</a></span></li>')}</ul></div></div>
<div id="page-body" class="page-body" role="main"><h2 class="topic-title"><a href="./t">{f.title}</a></h2><div class="action-bar bar-top"><a href="./reply" class="button">{f.say("Post Reply", "发表回复")}</a><div class="pagination">{f.count(80)} {f.say("posts", "篇帖子")} &bull; {pages}</div></div>
{posts}
<div class="action-bar bar-bottom"><div class="pagination">{f.count(80)} {f.say("posts", "篇帖子")} &bull; {pages}</div></div><div class="similar"><h3>{f.say("Similar topics", "相似主题")}</h3><ul class="topiclist">{f.teasers(3, 5)}</ul></div>
<div class="stat-block online-list"><h3>{f.say("Who is online", "在线用户")}</h3><p>{f.say("Users browsing this forum: no registered users and", "正浏览此版面的用户：没有注册用户 和")} {f.count(60)} {f.say("guests", "位访客")}</p></div></div>
<div id="page-footer" class="page-footer" role="contentinfo"><div class="navbar"><ul class="nav-footer linklist">{f.notices(5)}</ul></div><div class="copyright"><p>Powered by phpBB&reg; Forum Software &copy; phpBB Limited</p></div></div></div></body></html>"""


def _shop(f: Frame) -> str:
    """A product: its description is the text; prices, options, delivery, a table, reviews, other products."""
    item = '<li class="product-card"><a href="/p/{at}"><img src="/{at}.jpg" alt=""><span class="product-card__name">{word}</span><span class="product-card__price">{at}.00</span></a></li>'
    review = '<div class="review"><span class="review__stars" aria-label="4 of 5">&#9733;&#9733;&#9733;&#9733;&#9734;</span><strong>{name}</strong><span class="review__date">{date}</span><p>{word}</p><button>Helpful ({count})</button></div>'
    rows = "".join(
        f"<tr><th>{name}</th><td>{f.count()}</td></tr>"
        for name in f.say(
            "Item number|Width (mm)|Height (mm)|Weight (g)|Packing unit",
            "商品编号|宽度（毫米）|高度（毫米）|重量（克）|包装数量",
        ).split("|")
    )
    return f"""<!DOCTYPE html>
<html lang="{f.language}"><head><meta charset="utf-8"><title>{f.say("Buy", "购买")} {f.title}</title></head><body class="catalog-product-view"><div class="promo-bar">{f.notices(1, "{word}")} <a href="/sale">{f.say("Sale ends Sunday", "限时特惠")}</a></div>
<header class="page-header"><a class="logo" href="/">{f.say("Harrow & Finch".replace("&", "&amp;"), "万家商城")}</a><form class="search"><input placeholder="{f.say("Search", "搜索商品")}"></form><a class="minicart" href="/cart">{f.say("Basket", "购物车")} <span>{f.count(9)}</span></a><nav class="navigation"><ul>{f.menu(11)}</ul></nav></header>
<div class="breadcrumbs"><ol>{f.menu(3)}</ol></div>
<div class="page-main"><div class="columns"><div class="product media"><img src="/1.jpg" alt=""><img src="/2.jpg" alt=""></div>
<div class="product-info-main"><h1 class="page-title"><span class="base">{f.title}</span></h1><div class="rating"><a href="#reviews">{f.count(500)} {f.say("reviews", "条评价")}</a></div><div class="price-box"><span class="price">{f.say("£", "¥")}{f.count(400)}.00</span> <del>{f.count(900)}.00</del></div>
<p class="stock available">{f.say("In stock, delivered in 2 to 3 working days", "现货，预计2至3个工作日送达")}</p><form><label>{f.say("Colour", "颜色")}</label><select><option>{f.say("Blue", "蓝色")}</option><option>{f.say("Red", "红色")}</option></select><label>{f.say("Quantity", "数量")}</label><input type="number"><button>{f.say("Add to basket", "加入购物车")}</button></form><ul class="usp">{f.notices(3, "<li>{word}</li>")}</ul></div>
<div class="product info detailed"><div class="product data items"><div class="data item title active"><a href="#description">{f.say("Description", "商品详情")}</a></div><div class="data item content" id="description"><div class="product attribute description"><div class="value">{f.joined("<p>{}</p>")}</div></div></div>
<div class="data item title"><a href="#additional">{f.say("More Information", "规格参数")}</a></div><div class="data item content" id="additional"><table class="data table additional-attributes">{rows}</table></div>
<div class="data item title"><a href="#reviews">{f.say("Reviews", "用户评价")}</a></div><div class="data item content" id="reviews">{f.remarks(2, 6, review)}</div></div></div>
<div class="block upsell"><h2>{f.say("Customers also bought", "看了又看")}</h2><ol class="products list">{f.teasers(4, 8, item)}</ol></div></div></div>
<footer class="page-footer"><div class="newsletter"><label>{f.say("Sign up for our newsletter and save 10 percent on your first order", "订阅邮件，首单立减10%")}</label></div><ul class="footer links">{f.notices(9)}</ul><small class="copyright">&copy; 2025</small></footer></body></html>"""


def _portal(f: Frame) -> str:
    """A portal: channel bars, dense lists of links on all sides, indented paragraphs, licences at the foot."""

    def links(count: int) -> str:
        return f.menu(count, '<a href="/{at}/" target="_blank">{word}</a>')

    block = f"""<div class="blk_0{{}} clearfix"><div class="hd"><h2><a href="/c">{{}}</a></h2><span class="more"><a href="/m">{f.say("more", "更多")}&gt;&gt;</a></span></div><div class="bd"><ul class="list_009">{{}}</ul></div></div>"""
    titles = f.say(
        "Headlines|Video|Today's pictures|Hot searches|Editor's choice", "今日热点|视频推荐|高清图集|热搜榜|编辑推荐"
    ).split("|")
    blocks = [
        block.format(at, one, f.teasers(6, 12, '<li><a href="/{at}.shtml" target="_blank">{word}</a></li>'))
        for at, one in enumerate(titles)
    ]
    return f"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{f.title}_{f.say("news centre", "新闻中心")}_{f.say("Eastnet", "东网")}</title></head><body>
<div class="site-topbar"><div class="tb-in"><div class="tb-l">{links(18)}</div><div class="tb-r"><a href="/login">{f.say("Log in", "登录")}</a> <a href="/reg">{f.say("Register", "注册")}</a></div></div></div>
<div class="sub-nav">{links(30)}</div><div class="ad-top"><a href="/ad">{f.notices(1, "{word}")}</a></div>
<div class="path-search"><div class="path"><a href="/">{f.say("News centre", "新闻中心")}</a>&gt; {f.menu(1, '<a href="/{at}">{word}</a>')}&gt; {f.say("text", "正文")}</div></div>
<div class="main-wrap clearfix"><div class="wrap-left"><h1 class="main-title">{f.title}</h1><div class="top-bar" id="top_bar"><span class="date">{f.date()}</span> <span class="source">{f.say("Source:", "来源：")}<a href="/s">{f.person()}</a></span> <span class="num">{f.count()} {f.say("comments", "人评论")}</span></div>
<div class="article-box"><div class="img_wrapper"><img src="/n.jpg" alt=""><span class="img_descr">{f.say("Picture: archive", "资料图")}</span></div>
{f.joined("<p>　　{}</p>")}
<p class="show_author">{f.say("Editor in charge:", "责任编辑：")}{f.person()} SN{f.count(300):03}</p></div>
<div class="keywords"><span>{f.say("Keywords", "文章关键词")}：</span>{links(4)}</div><div class="feedback"><a href="/fb">{f.say("I want to give feedback", "我要反馈")}</a> <a href="/save">{f.say("Save page", "保存网页")}</a></div><div class="hot-cmnt"><div class="hd">{f.say("Hot comments", "热门评论")}</div>{f.remarks(2, 5, '<div class="item"><span class="name">{name}</span><span class="time">{date}</span><div class="txt">{word}</div><a href="#">({count})</a></div>')}</div>
{blocks[0]}{blocks[1]}</div><div class="wrap-right">{blocks[2]}{blocks[3]}{blocks[4]}</div></div>
<div class="channel-map">{links(40)}</div><div class="page-bottom"><p>{f.notices(9, '<a href="/{at}">{word}</a> |')}</p><p>Copyright &copy; 1996-2025 EASTNET Corporation, All Rights Reserved</p></div></body></html>"""


def _wiki(f: Frame) -> str:
    """An encyclopedia: a box of facts, references within the text and after it, categories, tools."""
    body = [
        f'<p>{one}<sup id="cite_ref-{at}" class="reference"><a href="#cite_note-{at}">[{at}]</a></sup></p>'
        for at, one in enumerate(f.paragraphs(), 1)
    ]
    source = '<li id="cite_note"><span class="mw-cite-backlink"><b><a href="#cite_ref">^</a></b></span> <span class="reference-text"><cite class="citation book">{word}. <i>{word}</i>. 2011. <a href="/isbn">ISBN</a> 978-3-16-{at}-0.</cite></span></li>'
    facts = "".join(
        f'<tr><th scope="row" class="infobox-label">{name}</th><td class="infobox-data">{f.count()}</td></tr>'
        for name in f.say("Founded|Area|Population|Elevation|Code", "成立|面积|人口|海拔|代码").split("|")
    )
    return f"""<!DOCTYPE html>
<html class="client-nojs" lang="{f.language}" dir="ltr"><head><meta charset="UTF-8"><title>{f.title} - {f.say("Openpedia", "开放百科")}</title></head><body class="mediawiki ltr ns-0 ns-subject skin-vector action-view"><div id="mw-page-base" class="noprint"></div>
<div id="content" class="mw-body" role="main"><a id="top"></a><div id="siteNotice"><div class="cn-notice">{f.notices(1, "{word}")}</div></div><h1 id="firstHeading" class="firstHeading mw-first-heading"><span class="mw-page-title-main">{f.title}</span></h1>
<div id="bodyContent" class="vector-body"><div id="siteSub" class="noprint">{f.say("From Openpedia, the free encyclopedia", "开放百科，自由的百科全书")}</div><a class="mw-jump-link" href="#mw-head">{f.say("Jump to navigation", "跳转到导航")}</a>
<div id="mw-content-text" class="mw-body-content mw-content-ltr"><div class="mw-parser-output"><div role="note" class="hatnote navigation-not-searchable">{f.say("For other uses, see", "关于其他用法，见")} {f.teasers(1, 1, '<a href="/wiki/{at}" class="mw-disambig">{word}</a>')}.</div>
<table class="infobox vcard"><tbody><tr><th colspan="2" class="infobox-above">{f.title}</th></tr><tr><td colspan="2" class="infobox-image"><img src="/i.png" alt=""><div class="infobox-caption">{f.say("View from the south, 2014", "南面景观，2014年")}</div></td></tr>{facts}</tbody></table>
{chr(10).join(body)}
<h2><span class="mw-headline" id="See_also">{f.say("See also", "参见")}</span><span class="mw-editsection"><span class="mw-editsection-bracket">[</span><a href="/edit">{f.say("edit", "编辑")}</a><span class="mw-editsection-bracket">]</span></span></h2><ul>{f.teasers(2, 4, '<li><a href="/wiki/{at}">{word}</a></li>')}</ul>
<h2><span class="mw-headline" id="References">{f.say("References", "参考资料")}</span><span class="mw-editsection"><span class="mw-editsection-bracket">[</span><a href="/edit">{f.say("edit", "编辑")}</a><span class="mw-editsection-bracket">]</span></span></h2><div class="reflist"><div class="mw-references-wrap"><ol class="references">{f.teasers(3, 9, source)}</ol></div></div>
<div role="navigation" class="navbox"><table class="nowraplinks navbox-inner"><tbody><tr><th class="navbox-title">{f.say("Topics", "主题")}</th></tr><tr><td class="navbox-list"><ul>{f.menu(20)}</ul></td></tr></tbody></table></div></div>
<div class="printfooter">{f.say("Retrieved from", "取自")} "<a href="/x">https://openpedia.example/index.php?oldid={f.count()}</a>"</div></div><div id="catlinks" class="catlinks"><div id="mw-normal-catlinks"><a href="/cat">{f.say("Categories", "分类")}</a>: <ul>{f.menu(5)}</ul></div></div></div></div>
<div id="mw-navigation"><h2>{f.say("Navigation menu", "导航菜单")}</h2><div id="mw-head"><nav id="p-personal" class="vector-menu"><ul>{f.menu(4)}</ul></nav></div><div id="mw-panel"><nav id="p-navigation" class="vector-menu"><h3>{f.say("Contribute", "贡献")}</h3><ul>{f.menu(12)}</ul></nav></div></div>
<footer id="footer" class="mw-footer" role="contentinfo"><ul id="footer-info"><li id="footer-info-lastmod">{f.say("This page was last edited on", "本页面最后修订于")} {f.date()}.</li><li id="footer-info-copyright">{f.say("Text is available under the Creative Commons Attribution-ShareAlike License; additional terms may apply.", "本站的全部文字在知识共享 署名-相同方式共享协议之条款下提供，附加条款亦可能应用。")}</li></ul><ul id="footer-places">{f.notices(4)}</ul></footer></body></html>"""


def _app(f: Frame) -> str:
    """An application rendered on a server: meaningless classes, the text in `main`, data for the scripts."""
    state = json.dumps({"props": {"title": f.title, "views": f.count()}}).replace("</", "<\\/")
    return f"""<!DOCTYPE html>
<html lang="{f.language}"><head><meta charSet="utf-8"/><meta name="viewport" content="width=device-width"/><title>{f.title}</title></head><body><noscript>{f.say("You need to enable JavaScript to run this app.", "您需要启用 JavaScript 才能运行此应用。")}</noscript>
<div id="__next"><div class="sc-bdVaJa kXhzSy"><div class="sc-bwzfXH jTzLTM"><div class="sc-htpNat gQJxMc"><a href="/" class="sc-bxivhb fQZnzf">{f.say("Papaya", "木瓜")}</a>{f.menu(6, '<a href="/{at}" class="sc-ifAKCX hUhRQi">{word}</a>')}<button class="sc-EHOje jYzQkW">{f.say("Sign in", "登录")}</button></div></div>
<main class="sc-bZQynM ckLxHD"><div class="sc-gzVnrw dQVPoC"><h1 class="sc-htoDjs eEmTQH">{f.title}</h1><div class="sc-dnqmqq kZhDqF"><img alt="" src="/u.png"/><span class="sc-iwsKbI bnQvNk">{f.person()}</span><span class="sc-gZMcBi hKcSqn">{f.date()}</span><button class="sc-EHOje lQvNqR">{f.say("Follow", "关注")}</button></div>
{f.joined('<p class="sc-gqjmRU iJyQhF">{}</p>')}
<div class="sc-VigVT fRzGvc"><button class="sc-EHOje">{f.say("Like", "赞")} {f.count()}</button><button class="sc-EHOje">{f.say("Bookmark", "收藏")} {f.count(900)}</button><button class="sc-EHOje">{f.say("Comments", "评论")} {f.count(300)}</button></div></div></main>
<div class="sc-jTzLTM rQbQvY"><div class="sc-fjdhpX">{f.say("Recommended for you", "为你推荐")}</div>{f.teasers(4, 10, '<a href="/post/{at}" class="sc-jzJRlG bqLlnk"><div class="sc-cSHVUG">{word}</div><div class="sc-kAzzGY">{at}</div></a>')}</div>
<div class="sc-chPdSV dLvQkC">{f.notices(6, '<a href="/{at}" class="sc-kgoBCf">{word}</a>')}</div></div><div role="dialog" class="sc-kGXeez"><div>{f.say("Open in the app for a better experience", "打开App，阅读体验更佳")}</div><button>{f.say("Open", "打开")}</button><button>{f.say("Not now", "以后再说")}</button></div></div>
<script id="__NEXT_DATA__" type="application/json">{state}</script><script src="/_next/static/chunks/main.js" defer></script></body></html>"""


def _divs(f: Frame) -> str:
    """Nothing but `div` and `span`, even for paragraphs."""
    return f"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{f.title}</title></head><body><div class="w1"><div class="t0"><div class="lg">{f.say("Citizen Daily", "市民日报")}</div>{f.menu(12, '<div class="mi"><a href="/{at}">{word}</a></div>')}</div>
<div class="w2"><div class="l1"><div class="tt">{f.title}</div><div class="in"><span>{f.date()}</span><span>{f.person()}</span><span>{f.say("Views", "浏览")} {f.count()}</span></div>
<div class="bd"><div>{f.joined('<div class="s">{}</div>')}</div></div>
<div class="zan"><span>{f.say("Like", "点赞")} {f.count(700)}</span><span>{f.say("Share", "转发")} {f.count(200)}</span></div><div class="rl"><div class="rt">{f.say("You might also enjoy", "相关推荐")}</div>{f.teasers(4, 7, '<div class="ri"><a href="/{at}">{word}</a><span>{at}</span></div>')}</div></div>
<div class="r1"><div class="rt">{f.say("Popular this week", "本周热门")}</div>{f.teasers(6, 10, '<div class="ri"><a href="/{at}">{word}</a></div>')}<div class="qr">{f.notices(1, "{word}")}</div></div></div>
<div class="b0">{f.notices(8, "<span>{word}</span>")}</div></div></body></html>"""


STYLES: dict[str, Callable[[Frame], str]] = {
    "old tables": _tables,
    "blog": _blog,
    "docs": _docs,
    "news": _news,
    "forum": _forum,
    "shop": _shop,
    "portal": _portal,
    "wiki": _wiki,
    "app": _app,
    "divs": _divs,
}


def styled_page(style: str, article: Article, number: int, visit: int, teasers: Sequence[str]) -> str:
    """Return an article's page on the site of a style; see `Frame`."""
    return STYLES[style](Frame(style, article, number, visit, teasers))
