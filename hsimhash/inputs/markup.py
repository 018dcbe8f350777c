"""Detect HTML in values (whole pages or fragments), and extract the visible text.

Everything here takes linear time on any input, without a parser:

- `is_page` and `is_markup` only move forward. Every repetition in their patterns is possessive, or stops at `<`, where
  the next attempt begins, so no character is examined more than a few times.
- `text_of_markup` splits a text into tags and the text between them. It does not search for tags after the last `>`.
  Before that, every tag that begins also ends: its pattern ignores a quotation mark that is never closed, and continues
  to the next `>`. A search for a closing mark reaches the end of the text at most once for each of the two kinds of
  quotation mark, because no other mark of that kind follows. The search for the end of a comment or a script starts at
  its beginning. If the end is missing, it is also missing for all later elements of that kind. So the search is not
  repeated for them, and only their tags are removed.
"""

from __future__ import annotations

import html.entities
import io
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

_BLOCKS = """
    address article aside blockquote body br button caption center dd details dialog dir div dl dt fieldset figcaption
    figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol
    optgroup option p search section select summary table tbody td tfoot th thead tr ul
""".split()  # noqa: SIM905 (a list of words, also below); these elements begin a new line
_PRE = ["pre", "listing", "xmp", "plaintext"]  # blocks whose line breaks are kept
# Hidden elements, including their content.
_HIDDEN = ["script", "style", "noscript", "template", "textarea", "title", "iframe", "noembed", "noframes"]
_INLINE = """
    a abbr acronym applet area audio b base basefont bdi bdo big canvas cite code col colgroup data datalist del dfn
    em embed font i img input ins kbd label link map mark marquee math meta meter nobr object output param picture
    progress q rb rp rt rtc ruby s samp small source span strike strong sub sup svg time track tt u var video wbr
""".split()  # noqa: SIM905
# Tag names that nobody uses as a placeholder (as in <title> or <code>) or as a type parameter (as in <b> or <P>).
_PLAIN = "br hr div span li ul ol h1 h2 h3 h4 h5 h6 tr td tbody thead strong em img wbr nobr".split()  # noqa: SIM905


def _either_case(text: str) -> str:
    return "".join(f"[{char}{char.upper()}]" if char.isalpha() else re.escape(char) for char in text)


def _one_of(words: Iterable[str], written: Callable[[str], str] = _either_case) -> str:
    """Return a pattern that tries words in the given order; words with the same first letter share a branch."""
    by_first: dict[str, list[str]] = {}
    for word in words:
        by_first.setdefault(word[:1], []).append(word[1:])
    branches = [written(first) + (_one_of(rest, written) if first else "") for first, rest in by_first.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


_ATTRIBUTES = (
    r"""(?: [\s/]++ | [^\s/>][^\s/=>]*+ (?: \s*+=\s*+ (?: "[^"]*+" | '[^']*+' | [^\s>"'][^\s>]*+ )?+ )?+ )*+"""
)
_BLOCK = rf"(?: {_one_of(_BLOCKS)} ) (?=[\s/>])"
_SPECIAL = rf"(?: {_one_of([*_HIDDEN, *_PRE])} ) (?=[\s/>])"
# What follows `<` in any tag, doctype or the like, except for tags that need special treatment.
_TAG = rf"(?: /?+ (?!{_SPECIAL}) [a-zA-Z][^\s/>]*+ {_ATTRIBUTES} | (?!!--) [!?] [^>]*+ | / (?![a-zA-Z]) [^>]*+ ) >"
_COMMENT = "!--(?:-?>|(?:[^-]++|-(?!-!?>))*+--!?>)"


@cache  # compiled on first use, because compiling takes long and only texts with tags need these patterns
def _tags(tag: str) -> re.Pattern[str]:
    """Return a pattern for runs of tags: a run that begins with a block, or a run without any block.

    Groups are never within a repetition, because that can fail in Python 3.11.
    """
    written = rf"""
        < (?=[a-zA-Z/!?]) (?:
            (?: (?= /?+ {_BLOCK} ) (?P<block>) | ) {tag}
                (?(block) (?: <{tag} )*+ | (?: < (?! /?+ {_BLOCK} ) {tag} )*+ )
            | (?P<endless> !-- )
            | (?P<is_end> /?+ ) (?P<special> [a-zA-Z]++ ) {_ATTRIBUTES} >
        )
    """
    return re.compile(written, re.VERBOSE | re.ASCII)


_BLOCK_GROUP = 1  # the group `block`; looking up a group by number is faster than by name
_TAG_OR_COMMENT = f"(?: {_TAG} | {_COMMENT} )"
_ENDS = {name: re.compile(rf"</{_either_case(name)}(?=[\s/>])[^>]*+>", re.ASCII) for name in _HIDDEN}
_UNFINISHED = re.compile(r"<[a-zA-Z/!?]")

_LEGACY = sorted((name for name in html.entities.html5 if not name.endswith(";")), key=len, reverse=True)
_LEGACY_NAME = re.compile(_one_of(_LEGACY, re.escape))
_REFERENCE = re.compile(
    rf"&(?=[a-zA-Z#])(?:\#(?:[0-9]++|[xX][0-9a-fA-F]++);?+|[a-zA-Z][a-zA-Z0-9]{{1,31}}+;|{_LEGACY_NAME.pattern})"
)
_LAST_CHARACTER = 0x10FFFF
_REPLACEMENT = "\ufffd"
# Characters that XML forbids and lxml rejects; the form feed is white space in HTML.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

PAGE_BEGINNING_BYTES = 4 << 10  # first bytes that decide whether a file is a page
_PAGE = re.compile(
    rf"[\s\ufeff]*+(?:<\?[xX][mM][lL][^>]*+>)?+\s*+(?:<{_COMMENT}\s*+)*+<(?:![dD][oO][cC][tT][yY][pP][eE]\s*+)?+"
    r"[hH][tT][mM][lL](?![\w:-])"
)
_ANY_NAME = rf"(?:{_one_of([*_BLOCKS, *_PRE, *_HIDDEN, *_INLINE])}|[a-zA-Z]++-[\w-]++)"


@cache
def _markup() -> re.Pattern[str]:
    """Return a pattern for tags that nobody writes in plain text."""
    return re.compile(
        rf"<(?=[a-zA-Z/])(?:/{_ANY_NAME}\s*+>|{_ANY_NAME}(?:\s*+/>|\s++[a-zA-Z_:@#][\w:.-]*+\s*+=\s*+[^\s>=])"
        rf"|(?:{_one_of(_PLAIN)}|p)\s*+>)",
        re.ASCII,
    )


# References that nobody types in plain text. References that may occur in source code, such as &sum; &copy; or &num;,
# are not included.
_TYPED_BY_NOBODY = re.compile(
    r"&(?=[a-zA-Z#])(?:\#[0-9]{2,7}|\#[xX][0-9a-fA-F]{2,6}|nbsp|amp|lt|gt|quot|apos|[lr][sd]quo|[lr]aquo|[mn]dash|hellip|bull|middot"
    r"|shy|zwn?j|thinsp|e[nm]sp|trade|euro|[a-zA-Z](?:acute|grave|circ|uml|tilde|cedil)|[aA]ring|[oO]slash|szlig|AElig"
    r"|aelig);"
)
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60\U00020000-\U0003ffff"
_WRAPPED = re.compile(rf"(?<=[{_WIDE}])[ \t\f]*+\n[ \t\f\n]*+(?=[{_WIDE}])")  # lines joined without a space
_BLANKS, _BREAKS = re.compile(r"[^\S\n]{2,}+"), re.compile(r"\s?\n\s*+")
_PART = 1 << 18  # characters processed at once


def is_page(text: str) -> bool:
    """Whether a text starts like a whole HTML page: with a doctype or `<html`, possibly after comments."""
    return _PAGE.match(text) is not None


def is_markup(text: str) -> bool:
    """Whether a text contains tags or character references that nobody would write in plain text.

    Closing HTML tags count, and so do tags with attributes and opening tags such as `<p>`. Other words in angle
    brackets do not count, even if they name an element. Neither does anything that could be a comparison or a type.
    """
    if "<" in text:
        if _markup().search(text):
            return True
        comment = text.find("<!--")
        if comment >= 0 and text.find("-->", comment + 4) >= 0:
            return True
    return "&" in text and _TYPED_BY_NOBODY.search(text) is not None


def text_of_markup(text: str) -> str:
    """Return the visible text of HTML, without tags, comments and hidden elements such as scripts.

    Blocks and line breaks end a line; other tags do not split words. A run of white space becomes one space, or is
    removed where a line was wrapped between two Chinese or Japanese characters. Character references are decoded as in
    browsers. Characters that XML forbids become U+FFFD.

    Two rules differ from those of browsers, so that no text is lost after damage. If a comment, a script or the like
    never ends, only its tag is removed. A tag with a quotation mark that is never closed ends at the next `>`.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if FORBIDDEN.search(text):
        text = _by_parts(lambda part: FORBIDDEN.sub(_REPLACEMENT, part), text)
    return _by_parts(lambda part: _BREAKS.sub("\n", _BLANKS.sub(" ", part)), _visible(text)).strip()


def _by_parts(change: Callable[[str], str], text: str) -> str:
    """Change a text part by part, because `re.sub` holds every piece between two matches in memory."""
    return "".join([change(text[start : start + _PART]) for start in range(0, len(text), _PART)])


def _visible(text: str) -> str:
    """Return the text between tags, with references decoded and with line breaks."""
    out = io.StringIO()
    write = out.write
    place, last, pre = 0, text.rfind(">") + 1, 0
    last_comment = max(text.rfind("-->"), text.rfind("--!>"))
    endless: set[str] = set()  # hidden elements that do not have an end tag in the rest of the text
    is_plain = "&" not in text and "\n" not in text
    is_done = False
    while not is_done:
        is_done, may_be_comment = True, place < last_comment
        for match in _tags(_TAG_OR_COMMENT if may_be_comment else _TAG).finditer(text, place, last):
            start, end = match.span()
            if start > place:
                write(text[place:start] if is_plain else _piece(text[place:start], is_wrapped=not pre))
            place, kind = end, match.lastindex
            if kind is None:
                continue
            if kind == _BLOCK_GROUP:
                write("\n")
                continue
            if match["special"]:
                name = match["special"].lower()
                if name in _PRE:
                    write("\n")
                    pre = max(0, pre - 1) if match["is_end"] else pre + 1
                    continue
                if match["is_end"] or name in endless:
                    continue
                closing = _ENDS[name].search(text, place, last)
                if closing is None:
                    endless.add(name)
                    continue
                place = closing.end()
            elif not may_be_comment:
                continue
            is_done = False  # restart the search at `place`
            break
    unfinished = _UNFINISHED.search(text, place)
    end = unfinished.start() if unfinished else len(text)
    if is_plain:  # avoid another copy of a long text
        out.writelines(text[at : min(at + _PART, end)] for at in range(place, end, _PART))
    else:
        write(_piece(text[place:end], is_wrapped=not pre))
    return out.getvalue()


def _piece(text: str, *, is_wrapped: bool) -> str:
    if is_wrapped and "\n" in text:
        joined = text if text.isascii() else _by_parts(lambda part: _WRAPPED.sub("", part), text)
        text = joined.replace("\n", " ")
    return _REFERENCE.sub(lambda match: _characters(match[0]), text) if "&" in text else text


@lru_cache(maxsize=1 << 12)
def _characters(reference: str) -> str:
    """Return the characters that a reference stands for, or the reference itself if it is unknown."""
    if reference[1] == "#":
        return character_of(reference)
    name = reference[1:]
    if name in html.entities.html5:
        return html.entities.html5[name]
    begun = _LEGACY_NAME.match(name)
    return html.entities.html5[begun[0]] + name[begun.end() :] if begun else reference


def character_of(reference: str) -> str:
    """Return the character for a reference such as `&#8217;` or `&#x2019`, or U+FFFD if XML does not allow it."""
    digits = reference[2:].rstrip(";")
    is_hex = digits[:1] in ("x", "X")
    digits = digits[is_hex:].lstrip("0")
    number = int(digits or "0", 16 if is_hex else 10) if len(digits) <= 7 else _LAST_CHARACTER + 1
    if number > _LAST_CHARACTER:
        return _REPLACEMENT
    if 0x80 <= number < 0xA0:  # Windows-1252, as in browsers
        return bytes([number]).decode("cp1252", "replace")
    return " " if number in (0x0C, 0x0D) else FORBIDDEN.sub(_REPLACEMENT, chr(number))
