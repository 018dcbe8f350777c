"""Turn HTML into text: how to treat each value, and which parts of a page are fingerprinted.

The fingerprint of a page is computed from its main text, which trafilatura extracts. Headers, menus, footers and
comments are left out. So is the first heading, the title of the page, because some sites place it above the text and
others within it. If trafilatura finds no text in a page, or the page is too large for it, all visible text is used.
Fragments and `--extract none` do not need trafilatura; see `markup.py`.

`page_text` takes milliseconds for most pages but may take arbitrarily long, so it runs in child processes; see
`extraction.py`.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from hsimhash.errors import Remedy
from hsimhash.extras import needed
from hsimhash.fingerprint.document_fields import FIELD_SEPARATOR
from hsimhash.inputs.charsets import decoded
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES
from hsimhash.inputs.markup import FORBIDDEN, character_of, is_markup, is_page, text_of_markup

_LIBRARY = ("trafilatura", "html", "the main text of an HTML page")
MAIN_TEXT_CHARACTERS = 4_000_000  # longest page whose main text is extracted; takes up to 0.5 s per million characters
_SNIFFED_CHARACTERS = 16 << 10
_MOST_CONTROLS = 0.04  # share in a page; in random bytes it is .09
_TITLE = "(//h1)[1] | (//h2[not(//h1)])[1]"
_FRAME = ("nav", "menu", "header", "footer", "aside")  # elements that do not belong to a main text
_SHORT_CHARACTERS = 100  # minimum length of a main text that is used without the title
_NO_MEMORY, _TOO_DEEP = "ERR_NO_MEMORY", "ERR_RESOURCE_LIMIT"  # libxml2 errors after which parsing stops
_FORBIDDEN_BYTES = bytes(code for code in range(0x20) if code not in b"\t\n\r")
_NOISE_BYTES = bytes(code for code in _FORBIDDEN_BYTES if code not in b"\v\f\x0e\x0f\x1b")  # terminals use the others
_FORBIDDEN_ELSE = ("\ufffe".encode(), "\uffff".encode())
_NUMBER = re.compile(rb"&#(?:[0-9]++|[xX][0-9a-fA-F]++);?+")
# libxml2 compares each attribute of a tag with all earlier attributes. A page smaller than this has too few to matter.
_FEW_ATTRIBUTES_BYTES = 128 << 10
_KEPT_ATTRIBUTES = 200
_NAME = rb"<[a-zA-Z][^\s/>]*+"
_ATTRIBUTE = rb"""[\s/]*+[^\s/>][^\s/=>]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+"""
_SHORT_TAGS = re.compile(rb"(?:[^<]++|<(?![a-zA-Z])|%b(?:%b){0,%d}+[\s/]*+>)*+" % (_NAME, _ATTRIBUTE, _KEPT_ATTRIBUTES))
_BEGUN_TAG = re.compile(rb"%b(?:%b){0,%d}+" % (_NAME, _ATTRIBUTE, _KEPT_ATTRIBUTES))
_REST_OF_TAG = re.compile(rb"(?:%b)*+[\s/]*+" % _ATTRIBUTE)


class Content(NamedTuple):
    """A document's text, or the HTML from which `page_text` extracts it."""

    text: str
    is_page: bool = False


def page_of(data: bytes, charset: str | None = None) -> str:
    """Decode a page, or other text from the web, as a browser does; `charset` is the label sent with it.

    Raises:
        ValueError: The page is too long, or is not text.
    """
    if len(data) > RECORD_LIMIT_BYTES:
        raise ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")
    text = decoded(data, charset)
    head = text[:_SNIFFED_CHARACTERS]
    written = head.encode("utf-8", "replace")
    if len(written) - len(written.translate(None, _NOISE_BYTES)) > _MOST_CONTROLS * len(head):
        raise ValueError("not text: it has too many control characters; convert it to text first")
    return text.replace(FIELD_SEPARATOR, " ")


def content_in(text: str, extract: str, *, has_fields: bool = False) -> Content:
    """Return the text of a value without HTML tags, or the value itself if it is a whole page.

    Args:
        text: The value.
        extract: How to read the value. `auto`: a page is recognized by its beginning, and a fragment by its tags or
            character references; anything else is plain text. `none`: like `auto`, but all visible text of a page is
            used. `html`: a page or a fragment. `text`: plain text.
        has_fields: Whether `text` is several values joined by `join_fields`; each of them is then read separately.
    """
    if extract == "text" or (extract != "html" and "<" not in text and "&" not in text):
        return Content(text)
    if not has_fields:
        return Content(text, is_page=True) if is_page(text) else Content(_text_of_value(text, extract))
    values = text.split(FIELD_SEPARATOR)
    if any(map(is_page, values)):
        return Content(text, is_page=True)
    return Content(FIELD_SEPARATOR.join([_text_of_value(value, extract) for value in values]))


def _text_of_value(value: str, extract: str) -> str:
    return text_of_markup(value) if extract == "html" or is_markup(value) else value


def page_text(page: str, extract: str, *, has_fields: bool = False) -> str:
    """Return the text of a page, or of several values of which some are pages; empty if there is no text.

    Among several values, a page is recognized by its beginning. A single value is always treated as a page.
    """
    values = page.split(FIELD_SEPARATOR) if has_fields else [page]
    if len(values) > 1:
        read = [_text_of_page(one, extract) if is_page(one) else _text_of_value(one, extract) for one in values]
        return FIELD_SEPARATOR.join(read)
    return _text_of_page(page, extract)


def require_page_library(*, is_optional: bool = True) -> None:
    """Raise `ValueError` if the library for main texts is missing; the message says how to install it.

    With `is_optional`, the message also says how to do without it.
    """
    try:
        if find_spec(_LIBRARY[0]) is not None:
            return
        needed(*_LIBRARY)
    except ValueError as error:
        if not is_optional:
            raise
        without = Remedy('pass extract="none"', "pass --extract none")
        raise ValueError(f"{error}, or " + without + ", which uses all visible text and needs no package") from error


def prepare_main_texts() -> None:
    """Load the libraries for main texts; see `require_page_library`."""
    require_page_library()
    logging.getLogger("trafilatura").addHandler(logging.NullHandler())  # otherwise it prints to stderr for some pages
    _text_of_page("<html><body><p>The first page loads the lists that the library needs.</p></body></html>", "auto")


def _text_of_page(page: str, extract: str) -> str:
    main_text = None if extract == "none" or len(page) > MAIN_TEXT_CHARACTERS else _main_text(page)
    return (text_of_markup(page) if main_text is None else main_text).replace(FIELD_SEPARATOR, " ")


def _main_text(page: str) -> str | None:
    """Return the main text of a page, or None if the library cannot read the page.

    A short main text includes the title. If there is no main text, return all text outside menus and the like.
    Otherwise, pages that share only a menu, or differ only in their titles, would have the same text.
    """
    trafilatura = needed(*_LIBRARY)
    main_text = partial(trafilatura.extract, include_comments=False, prune_xpath=_TITLE)
    data = _readable(page)
    try:
        if found := main_text(_tree(data), favor_precision=True):
            is_short = len(found) < _SHORT_CHARACTERS
            return "\n".join([*(one.text_content().strip() for one in _tree(data).xpath(_TITLE) if is_short), found])
        tree = _without_frame(_tree(data))
        found = main_text(tree)  # includes doubtful parts
        return found if found and len(found) >= _SHORT_CHARACTERS else text_of_markup(_html_of(tree))
    except MemoryError:
        raise
    except Exception:  # the library cannot handle every page; the caller falls back to all visible text
        return None


def _without_frame(tree: Any) -> Any:
    """Remove menus, headers, footers and side bars from the tree of a page."""
    needed("lxml.etree", *_LIBRARY[1:]).strip_elements(tree, *_FRAME, with_tail=False)
    return tree


def _html_of(tree: Any) -> str:
    return str(needed("lxml.etree", *_LIBRARY[1:]).tostring(tree, encoding="unicode", method="html"))


def _tree(data: bytes) -> Any:
    """Return the tree of a page.

    Raises:
        MemoryError: Memory was exhausted. libxml2 would continue with part of the page.
        ValueError: The page is nested too deeply.
    """
    lxml = needed("lxml.html", *_LIBRARY[1:])
    # Without `huge_tree`, lxml silently drops whatever is nested deeply or very long.
    parser = lxml.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    tree = lxml.document_fromstring(data, parser=parser)
    errors = {error.type_name for error in parser.error_log.filter_from_fatals()}
    if _NO_MEMORY in errors:
        raise MemoryError
    if _TOO_DEEP in errors:
        raise ValueError("nested too deeply")
    return tree


def _readable(page: str) -> bytes:
    """Return a page in UTF-8 without anything that lxml rejects or processes in more than linear time."""
    try:
        data = page.encode()
    except UnicodeEncodeError:  # surrogates
        page = FORBIDDEN.sub("\ufffd", page)
        data = page.encode()
    if len(data.translate(None, _FORBIDDEN_BYTES)) != len(data) or any(one in data for one in _FORBIDDEN_ELSE):
        data = FORBIDDEN.sub("\ufffd", page).replace("\f", " ").encode()
    if b"&#" in data:
        data = _NUMBER.sub(lambda match: _reference(match[0]), data)
    return data if len(data) < _FEW_ATTRIBUTES_BYTES else _with_few_attributes(data)


@lru_cache(maxsize=1 << 12)
def _reference(written: bytes) -> bytes:
    """Return a numeric reference to the character that browsers show for the given reference."""
    return f"&#{ord(character_of(written.decode('ascii')))};".encode()


def _with_few_attributes(data: bytes) -> bytes:
    """Return a page with excess attributes removed from its tags.

    This takes linear time: the patterns only move forward, and are called once for each tag with too many attributes.
    There are no tags after the last `>`.
    """
    parts, place, last = list[bytes](), 0, data.rfind(b">") + 1
    while place < last:
        end = _SHORT_TAGS.match(data, place, last).end()  # type: ignore[union-attr]  # it also matches nothing
        begun = _BEGUN_TAG.match(data, end, last)
        if begun is None:
            break
        parts.append(data[place : begun.end()])
        place = _REST_OF_TAG.match(data, begun.end(), last).end()  # type: ignore[union-attr]  # it always matches
    return b"".join([*parts, data[place:]])
