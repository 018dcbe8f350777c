"""Pages in HTML → text: their bytes by the charset that they name, and of the page what is to be fingerprinted.

The main text is what trafilatura takes for it: headers, menus, footers and comments do not count; nor does the page's
first heading, its title, which one site has above the text and another within. That takes about ten milliseconds a
page, so it is worker processes that do it.
"""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from hsimhash.extras import needed
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES

PAGE_LIBRARY = ("trafilatura", "html", "a page in HTML")
_HEAD_BYTES = 4_096  # of a page, where it may name its charset
_META_CHARSET = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_PAGE = re.compile(r"\ufeff?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S)
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# What browsers read for a charset that a page names, for it may hold more than that has (encoding.spec.whatwg.org).
_AS_BROWSERS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
_TITLE = "(//h1)[1] | (//h2[not(//h1)])[1]"
_HIDDEN = ("script", "style", "noscript", "template")  # whose text nobody sees


def is_page(text: str) -> bool:
    """Whether a text begins as a page in HTML does."""
    return _PAGE.match(text) is not None


def page_of(data: bytes, charset: str | None = None) -> str:
    """Return a page, or a text from the web, by its byte order mark, the charset that came with it, or its own.

    What the charset has no character for becomes U+FFFD. Without a charset it is UTF-8, else GB 18030, if all of it can
    be, else Windows-1252.

    Raises:
        ValueError: the charset is unknown, or there is too much.
    """
    if len(data) > RECORD_LIMIT_BYTES:
        raise ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")
    for mark, codec in _BOMS.items():
        if data.startswith(mark):
            return data.decode(codec, "replace")
    if charset is None and (named := _META_CHARSET.search(data[:_HEAD_BYTES])):
        charset = named[1].decode("ascii", "replace")
        if charset.lower().startswith("utf-16"):  # or the name could not have been read
            charset = "utf-8"
    if charset is not None:
        return data.decode(_codec_of(charset), "replace")
    for codec in ("utf-8", "gb18030"):
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            continue
    return data.decode("cp1252", "replace")


def _codec_of(charset: str) -> str:
    try:
        name = codecs.lookup(charset).name
        "".encode(name)  # `LookupError` for a codec such as hex, which makes no text
    except (LookupError, ValueError) as error:
        raise ValueError(f"unknown charset {charset!r:.80}") from error
    return _AS_BROWSERS.get(name, name)


def page_texts(pages: Sequence[str], extract: str) -> list[str]:
    """Return what is to be fingerprinted of each page, nothing where it has no such text.

    Args:
        pages: in HTML.
        extract: `auto`: their main texts; `none`: all their text.

    Raises:
        ValueError: trafilatura is missing.
    """
    trafilatura, lxml = needed(*PAGE_LIBRARY), needed("lxml.html", *PAGE_LIBRARY[1:])
    logging.getLogger("trafilatura").addHandler(logging.NullHandler())  # else it writes to stderr about some pages
    parser = partial(lxml.HTMLParser, encoding="utf-8", remove_comments=True, remove_pis=True)
    main_text = partial(trafilatura.extract, include_comments=False, prune_xpath=_TITLE)

    def text_of_page(page: str) -> str:
        def tree() -> Any:
            return lxml.document_fromstring(page.replace("\0", "").encode("utf-8", "replace"), parser=parser())

        try:
            if extract == "auto":  # what is doubtful is left out, unless nothing remains
                return str(main_text(tree(), favor_precision=True) or main_text(tree()) or "")
            shown = tree()
            lxml.etree.strip_elements(shown, *_HIDDEN, with_tail=False)
            return str(trafilatura.html2txt(shown, clean=False))
        except (lxml.etree.LxmlError, ValueError):  # there is nothing in it
            return ""

    return [text_of_page(page) for page in pages]
