"""Hostile shapes for `hostile_shapes.py`: inputs on which a careless parser, tokenizer or pattern is superlinear.

Each shape is a function of a size: it returns about that many bytes of UTF-8, or fewer. Some are not valid UTF-8.
"""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import count

Shape = Callable[[int], bytes]
_SEED = 35
_WORDS = "harbour ferry Sunday divers look at the moorings because church bus leaves instead every half hour".split()  # noqa: SIM905
_HAN = "近似重复的网页非常普遍港务局表示由于潜水员需要检查系泊设备渡轮星期日停航乘客可以改乘教堂门前接驳巴士"


def repeated(unit: str | bytes, *, before: str = "", after: str = "") -> Shape:
    """Return a shape that repeats one unit."""
    data, head, tail = unit if isinstance(unit, bytes) else unit.encode(), before.encode(), after.encode()
    return lambda size: head + data * max(1, (size - len(head) - len(tail)) // len(data)) + tail


def numbered(unit: str, *, before: str = "", after: str = "") -> Shape:
    """Return a shape that repeats a unit with a running number at `{}`."""

    def made(size: int) -> bytes:
        return before.encode() + _upto(size, (unit.replace("{}", str(number)) for number in count())) + after.encode()

    return made


def halves(unit: str, other: str) -> Shape:
    """Return a shape that repeats one unit, then another the same number of times."""
    both = len((unit + other).encode())
    return lambda size: (unit * (size // both) + other * (size // both)).encode()


def _upto(size: int, units: Iterable[str]) -> bytes:
    parts, length = list[bytes](), 0
    for unit in units:
        data = unit.encode()
        if length + len(data) > size:
            break
        parts.append(data)
        length += len(data)
    return b"".join(parts)


def drawn(characters: str, *, between: str = "", length: int = 1) -> Shape:
    """Return a shape of random characters, in words of `length`."""

    def made(size: int) -> bytes:
        rng = random.Random(_SEED)
        unit = len((characters[-1] * length + between).encode())
        picked = "".join(rng.choices(characters, k=max(1, size // unit) * length))
        if not between:
            return picked.encode()
        return between.join(picked[at : at + length] for at in range(0, len(picked), length)).encode()

    return made


def _bytes_at_random(size: int) -> bytes:
    return random.Random(_SEED).randbytes(size)


def _base64(size: int) -> bytes:
    return base64.b64encode(_bytes_at_random(size * 3 // 4))


def _prose(size: int) -> bytes:
    rng = random.Random(_SEED)
    return " ".join(rng.choices(_WORDS, k=size // 6)).encode()[:size]


def _between(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


def _inside(shape: Shape, before: str, after: str) -> Shape:
    room = len((before + after).encode())
    return lambda size: before.encode() + shape(max(1, size - room)) + after.encode()


# In a text.

_ONE_CHARACTER = {
    **{f"only {char!r}": char for char in "a0-_ \n\r\t'\"\\,.;:/|#&%@+*=~`^$"},
    **{f"only {name}": char for name, char in {
        "NUL": "\0", "DEL": "\x7f", "no-break space": "\xa0", "soft hyphen": "\xad", "e acute": "é", "dotted I": "İ",
        "sharp s": "ß", "final sigma": "ς", "combining acute": "\u0301", "zero-width space": "\u200b",
        "zero-width joiner": "\u200d", "byte order mark": "\ufeff", "right-to-left override": "\u202e",
        "Hebrew": "א", "Arabic": "م", "Thai": "ก", "Lao": "ກ", "Khmer": "ក", "Burmese": "က", "Tibetan": "ཀ",
        "Devanagari": "क", "Hangul": "한", "Hangul jamo": "ᄒ", "Hiragana": "あ", "Katakana": "ア", "half-width": "ｱ",
        "Han": "的", "rare Han": "𠀀", "compatibility Han": "豈", "full stop": "。", "ideographic space": "\u3000",
        "letter that grows by 18": "ﷺ", "ligature": "ﬃ", "emoji": "😀", "flag": "🇩", "skin tone": "\U0001f3fd",
        "variation selector": "\ufe0f", "tag character": "\U000e0061", "private": "\ue000", "noncharacter": "\uffff",
        "line separator": "\u2028", "next line": "\x85", "replacement": "\ufffd", "last character": "\U0010ffff",
    }.items()},
}  # fmt: skip
_UNITS = {
    "a.": "a.", "a.b.": "a.b.", "a-": "a-", "a_": "a_", "a'": "a'", "it's": "it's", "a@": "a@", "a@b.c ": "a@b.c ",
    "a/": "a/", "a+": "a+", "a%": "a%", "a&": "a&", "1,": "1,", "1.": "1.", "1-2-": "1-2-", "%41": "%41", "C++ ": "C++ ",
    "-.": "-.", "a ": "a ", "the ": "the ", "I. ": "I. ", "Aa": "Aa", "a1": "a1", "http://": "http://", "www.": "www.",
    "http://a/": "http://a/", "http://a.b/c?d=e&f ": "http://a.b/c?d=e&f ", "#a ": "#a ", "\\n": "\\n",
    "CRLF": "\r\n", "a line": "a\n", "blank lines": " \n", "table": "| a | b |\n", "rule": "| --- |\n", "fence": "```\n",
    "brackets": "[", "braces": "{", "parentheses": "((", "pairs": "()", "quoted": '"a" ', "quotes": '""', "quote line": '"\n',
    "quote comma": '",', "backslash quote": '\\"', "tabs": "a\tb\t", "accented": "é\u0301\u0327", "a letter with a mark": "a\u0301",
    "marks out of order": "\u0301\u0316", "flags": "🇩🇪", "family": "👨\u200d👩\u200d👧\u200d👦", "keycap": "1\ufe0f\u20e3",
    "Thai words": "ภาษาไทย", "Arabic words": "مرحبا ", "Hebrew words": "שלום ", "Hindi words": "नमस्ते ", "Korean words": "안녕하세요 ",
    "Hangul in jamo": "한", "kana": "ひらがなカタカナ", "Chinese word": "中国", "Chinese and Latin": "中a", "Chinese comma": "中，",
    "Chinese digits": "一二三四五六七八九十", "right to left and left to right": "aא", "null words": "a\0", "escape": "\x1b[31m",
    "number": "1234567890", "real": "1.5e10 ", "hex": "0xdeadbeef ", "UUID": "123e4567-e89b-12d3-a456-426614174000 ",
    "date": "2026-01-02T03:04:05Z ", "IPv6": "fe80::1 ", "long sentence": "word, ", "hyphen line": "-\n", "colons": "a: b\n",
    "JSON": '{"a": 1}\n', "CSV": "a,b,c\n", "UTF-8 read as Latin-1": "Ã¤Ã¶", "stop words": "the of and to in ",
    "diaeresis or combining": "äa\u0308", "soft hyphens": "a\xad", "zero width in words": "a\u200b", "marks on nothing": " \u0301",
}  # fmt: skip
TEXTS: Mapping[str, Shape] = {
    **{name: repeated(unit) for name, unit in (_ONE_CHARACTER | _UNITS).items()},
    "prose": _prose,
    "prose in Chinese": drawn(_HAN, between="。", length=12),
    "distinct words": numbered("w{} "),
    "distinct words joined by hyphens": numbered("w{}-"),
    "distinct words joined by dots": numbered("w{}."),
    "distinct numbers": numbered("{} "),
    "distinct lines": numbered("line {}\n"),
    "distinct links": numbered("http://host{}.example/path "),
    "letters at random": drawn(_between(97, 122)),
    "words at random": drawn(_between(97, 122), between=" ", length=5),
    "digits at random": drawn("0123456789"),
    "hex at random": drawn("0123456789abcdef"),
    "punctuation at random": drawn("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "printable at random": drawn(_between(32, 126)),
    "Han of prose at random": drawn(_HAN),
    "Han at random": drawn(_between(0x4E00, 0x9FA5)),
    "Han and others at random": drawn(_HAN + "ab1.- "),
    "any character at random": drawn(_between(0x20, 0xD7FF) + _between(0xE000, 0x1FFFF)),
    "marks at random": drawn(_between(0x300, 0x36F)),
    "Latin letters at random": drawn(_between(0xC0, 0x24F)),
    "Thai at random": drawn(_between(0xE01, 0xE2E) + _between(0xE40, 0xE4E)),
    "Hangul at random": drawn(_between(0xAC00, 0xD7A3)),
    "emoji at random": drawn(_between(0x1F300, 0x1F64F) + "\u200d\ufe0f"),
    "base64": _base64,
    "bytes at random": _bytes_at_random,
    "Latin-1": repeated(b"\xe9"),
    "half a character": repeated("中".encode()[:2]),
    "surrogates": repeated("\ud83d".encode("utf-8", "surrogatepass")),
    "one long link": _inside(_base64, "http://example.org/", ""),
    "one emoji after ASCII": _inside(repeated("word "), "😀", ""),
}

# In HTML.

_NESTED = """
    div span p b i a font ul li ol dl dt dd table tr td th tbody caption form select option optgroup button label h1 h2 blockquote
    pre code svg math nobr ruby object applet marquee center small sub em strong q ins del section article main nav aside footer
    header figure details summary body html head noscript template textarea iframe frameset map custom-element
""".split()  # noqa: SIM905
_TAG_UNITS = {
    "<": "<", "<<a": "<<a", "< ": "< ", "</": "</", "</a": "</a", "<a<": "<a<", "<p/": "<p/", "<>": "<>", "<a ": "<a ", ">": ">",
    "<a/>": "<a/>", "<!": "<!", "<!-": "<!-", "<!--": "<!--", "<!-- -": "<!-- -", "<!--->": "<!--->", "--><!--": "--><!--",
    "<!---->": "<!---->", "<!----!": "<!----!", "-->": "-->", "<![CDATA[": "<![CDATA[", "]]>": "]]>", "<?": "<?", "<?xml ": "<?xml ",
    "<?a?>": "<?a?>", "<!doctype html>": "<!doctype html>", "<!doctype ": "<!doctype ", "<!ENTITY a 'b'>": "<!ENTITY a 'b'>",
    "<script>": "<script>", "<script></": "<script></", "<script></script>": "<script></script>", "</script": "</script",
    "<script><!--": "<script><!--", "<style>": "<style>", "<style></style>": "<style></style>", "<title>": "<title>",
    "<textarea>": "<textarea>", "<plaintext>": "<plaintext>", "<xmp>": "<xmp>", "<noscript>": "<noscript>", "<br>": "<br>",
    "<hr>": "<hr>", "<br/>": "<br/>", "<img>": "<img>", "<input>": "<input>", "<wbr>": "<wbr>a", "<p>": "<p>", "<p>a": "<p>a",
    "<p>a</p>": "<p>a</p>", "<li>a": "<li>a", "<td>a": "<td>a", "<tr><td>a": "<tr><td>a", "<option>a": "<option>a",
    "<dt>a<dd>b": "<dt>a<dd>b", "</p>": "</p>", "</div>": "</div>", "</b>": "</b>", "</br>": "</br>", "</body>": "</body>a",
    "</html>": "</html><p>a", "<b><i></b>": "<b><i></b>", "<a><b></a>": "<a><b></a>", "<b><p></b>": "<b><p></b>a",
    "<table><b>": "<table><b>", "<table>a": "<table>a", "<p><table>": "<p><table>", "<ul><li>": "<ul><li>",
    "<table><tr><td>": "<table><tr><td>", "<dl><dd>": "<dl><dd>", "<form><input>": "<form><input>", "<div><p>a": "<div><p>a",
    "<form></form>": "<form><input name=a></form>", "<select><option>": "<select><option>a</select>", "<h1>a</h1>": "<h1>a</h1>",
    "<h2>a</h2>": "<h2>a</h2>", "<h2>a</h2><p>b": "<h2>a</h2><p>b b b b</p>", "<meta charset>": "<meta charset=utf-8>",
    "<meta http-equiv>": '<meta http-equiv="Content-Type" content="text/html; charset=gbk">', "<base>": "<base href=//a>",
    "<link>": "<link rel=canonical href=//a>", "<a href>": '<a href="http://a.b/c">d</a> ', "<a>": "<a>a</a>",
    "<img src>": '<img src="data:image/png;base64,AAAA">', "<iframe>": "<iframe src=a></iframe>", "<svg>": "<svg><path d=M0,0></svg>",
    "<math>": "<math><mi>a</mi></math>", "<pre>": "<pre>a\n</pre>", "<code>": "<code>a</code>", "<q>": "<q>a</q>",
    "<span>a</span>": "<span>a</span>", "<span> </span>": "<span> </span>", "<b>a</b>": "<b>a</b>", "<i>a</i> ": "<i>a</i> ",
    "<font>": "<font color=red>a</font>", "<div>a</div>": "<div>a</div>", "<div></div>": "<div></div>",
    "<div class=comment>": "<div class=comment><p>words of a comment</p></div>", "<nav>": "<nav><a href=a>b</a></nav>",
    "<article>": "<article><p>Some words of an article.</p></article>", "<div class=article>": "<div class=article-content><p>a</p></div>",
    "<template>": "<template>a</template>", "<object>": "<object><param></object>", "<ruby>": "<ruby>a<rt>b</ruby>",
    "<time>": "<time datetime=2026-01-02>a</time>", "<table>": "<table><tr><td>a</td></tr></table>", "<x-a>": "<x-a></x-a>",
    "<p>sentence": "<p>The harbour ferry will not run on Sunday because divers look at the moorings.</p>\n",
    "<p>一句": "<p>港务局表示，由于潜水员需要检查系泊设备，渡轮星期日停航。</p>\n", "<p>&nbsp;": "<p>&nbsp;</p>", "p with blanks": "<p>  \n  </p>",
    "a lone CR": "<p>a\r", "a form feed": "<p\fid=a>\f", "a NUL": "<p\0>a\0", "&": "&", "&amp;": "&amp;", "&lt;p&gt;": "&lt;p&gt;",
    "&#": "&#", "&#x": "&#x", "&#0;": "&#0;", "&#55296;": "&#55296;", "&#x110000;": "&#x110000;", "&#128512;": "&#128512;",
    "&#65": "&#65", "&a": "&a", "&ampamp": "&ampamp", "&notit;": "&notit;", "&nbsp;": "&nbsp;", "&zzzz;": "&zzzz;", "&;": "&;",
    "a=b": "a=b ", "='": "='", '="': '="', '<a b="': '<a b="', "<a b='": "<a b='", "<a b=c ": "<a b=c ", '<a b="c': '<a b="c>',
    "<a b=c=": "<a b=c=", "two quotes": "<a b=\"'>'\"", "slashes": "<a////", "conditional": "<!--[if IE]>a<![endif]-->",
}  # fmt: skip


def _attributes(kept: int) -> Shape:
    names = " ".join(f"a{number}=1" for number in range(kept))
    return repeated(f"<p {names}>a</p>")


HTML: Mapping[str, Shape] = {
    **{f"nested <{name}>": repeated(f"<{name}>") for name in _NESTED},
    **{f"nested <{name}> closed": halves(f"<{name}>", f"</{name}>") for name in ("div", "b", "p", "table", "ul", "a")},
    **{f"many {name}": repeated(unit) for name, unit in _TAG_UNITS.items()},
    "a tag with many attributes": numbered(" a{}=1", before="<p", after=">a</p>"),
    "a tag with many attributes, unclosed": numbered(" a{}=1", before="<p"),
    "a tag with many attributes, quoted": numbered(' a{}="b"', before="<p", after=">a</p>"),
    "a tag with many empty attributes": numbered(" a{}", before="<p", after=">a</p>"),
    "an end tag with many attributes": numbered(" a{}=1", before="<p>a</p", after=">"),
    "a tag with the same attribute": repeated(" a=1", before="<p", after=">a</p>"),
    "<html> again with other attributes": numbered("<html a{}=1>"),
    "<body> again with other attributes": numbered("<body a{}=1>"),
    "tags with 10 attributes": _attributes(10),
    "tags with 199 attributes": _attributes(199),
    "one long attribute": repeated("a", before='<p title="', after='">a</p>'),
    "one long attribute of references": repeated("&amp;", before='<p title="', after='">a</p>'),
    "one long attribute, unclosed": repeated("a", before='<p title="'),
    "one long link": repeated("a/", before='<a href="http://a/', after='">a</a>'),
    "one long class": numbered("c{} ", before='<div class="', after='">a</div>'),
    "one long style": repeated("a:b;", before='<div style="', after='">a</div>'),
    "one long data URI": _inside(_base64, '<img src="data:image/png;base64,', '">'),
    "one long tag name": repeated("a", before="<", after=">a"),
    "one long tag name, unclosed": repeated("a", before="<"),
    "one long end tag": repeated("a", before="a</", after=">"),
    "one long attribute name": repeated("a", before="<p ", after=">a</p>"),
    "one long reference": repeated("a", before="&", after=";"),
    "one long number": repeated("9", before="&#", after=";"),
    "one long hex number": repeated("0", before="&#x", after="41;"),
    "one long comment": repeated("a", before="<!--", after="-->a"),
    "one long comment of dashes": repeated("-", before="<!--", after="-->a"),
    "one long comment, unclosed": repeated("-- ", before="<!--"),
    "one long script": repeated("a<b;", before="<script>", after="</script>a"),
    "one long JSON-LD": repeated('{"@type":"Article","articleBody":"a"},', before='<script type="application/ld+json">[', after="]</script>a"),
    "one long nested JSON-LD": repeated("[", before='<script type="application/ld+json">', after="</script>a"),
    "one long style sheet": repeated("a{b:c}", before="<style>", after="</style>a"),
    "one long title": repeated("a ", before="<title>", after="</title>a"),
    "one long title of names": repeated("a - ", before="<title>", after="</title>a"),
    "one long doctype": repeated("a ", before="<!doctype "),
    "one long pre": repeated("a\n", before="<pre>", after="</pre>"),
    "one long row": repeated("<td>a", before="<table><tr>"),
    "one long meta": repeated("a, ", before='<meta name="keywords" content="', after='">a'),
    "distinct tags": numbered("<x-{}>a</x-{}>"),
    "distinct nested tags": numbered("<x-{}>"),
    "distinct attributes": numbered("<p a{}=b>a</p>"),
    "distinct classes": numbered('<p class="c{}">a</p>'),
    "distinct ids": numbered('<a id="i{}" name="i{}">a</a>'),
    "distinct links": numbered('<a href="http://host{}.example/">link {}</a> '),
    "distinct references": numbered("&#{};"),
    "distinct unknown references": numbered("&u{};"),
    "distinct paragraphs": numbered("<p>Paragraph {} of a long page is about the ferry at the harbour.</p>\n"),
    "distinct rows": numbered("<tr><td>{}</td><td>a</td></tr>", before="<table>"),
    "distinct items": numbered("<li><a href=/{}>item {}</a></li>", before="<ul>"),
    "distinct headings": numbered("<h2>Heading {}</h2><p>Some words.</p>"),
    "paragraph of line breaks": repeated("a<br>", before="<p>"),
    "deep, then much": lambda size: b"<div>" * 250 + repeated("<p>a b c</p>")(max(1, size - 1_250)),
    "deeper, then much": lambda size: b"<div>" * 2_500 + repeated("<p>a b c</p>")(max(1, size - 12_500)),
    "comments in a tag": repeated("<!---->", before="<p "),
    "entities of XML": repeated('<!ENTITY a "&a;&a;">', before="<!DOCTYPE html [", after="]>&a;"),
}  # fmt: skip

# As the value of an unused JSON field, or instead of a record.

JSON_VALUES: Mapping[str, Shape] = {
    "nested arrays": halves("[", "]"),
    "nested arrays, unclosed": repeated("["),
    "nested objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "nested objects, unclosed": repeated('{"a":'),
    "nested both": repeated('[{"a":'),
    "closing brackets": repeated("]"),
    "array of numbers": repeated("1,", before="[", after="1]"),
    "array of arrays": repeated("[],", before="[", after="1]"),
    "array of objects": repeated("{},", before="[", after="1]"),
    "array of objects with a field": repeated('{"a":1},', before="[", after="1]"),
    "array of strings": repeated('"",', before="[", after="1]"),
    "array of distinct strings": numbered('"{}",', before="[", after="1]"),
    "array of reals": repeated("1.5,", before="[", after="1]"),
    "array of null": repeated("null,", before="[", after="1]"),
    "many fields": numbered('"k{}":1,', before="{", after='"z":1}'),
    "the same field": repeated('"text":"a",', before="{", after='"text":"a"}'),
    "commas": repeated(",", before="[", after="]"),
    "one long number": repeated("9"),
    "one long real": repeated("9", before="0."),
    "one long exponent": repeated("9", before="1e"),
    "one long zero": repeated("0", before="0."),
    "one long minus": repeated("-"),
    "one long key": repeated("a", before='{"', after='":1}'),
    "one long string": repeated("a", before='"', after='"'),
    "string of escapes": repeated("\\u0041", before='"', after='"'),
    "string of surrogate escapes": repeated("\\ud83d", before='"', after='"'),
    "string of pairs": repeated("\\ud83d\\ude00", before='"', after='"'),
    "string of NUL escapes": repeated("\\u0000", before='"', after='"'),
    "string of backslashes": repeated("\\\\", before='"', after='"'),
    "string of odd backslashes": repeated("\\", before='"', after='"'),
    "string of quotes": repeated('\\"', before='"', after='"'),
    "string, unclosed": repeated("a", before='"'),
    "strings": repeated('"a"'),
    "quotes": repeated('"'),
    "white space": repeated(" ", after="1"),
    "tabs": repeated("\t", after="1"),
    "words": repeated("true"),
    "NaN": repeated("NaN,", before="[", after="1]"),
    "NUL": repeated("\0"),
    "array of long numbers": repeated(f"{'9' * 4000},", before="[", after="1]"),
    "array of large numbers": repeated("1e400,", before="[", after="1]"),
}

# As a row of CSV. Millions of short rows are left out, because each is a separate record with its own cost.

CSV_ROWS: Mapping[str, Shape] = {
    "quotes": repeated('"'),
    "quote and comma": repeated('",'),
    "comma and quote": repeated(',"'),
    "commas": repeated(","),
    "cells": repeated("a,"),
    "quoted cells": repeated('"a",'),
    "stray quotes": repeated('a"b,'),
    "closed and going on": repeated('"a"b,'),
    "carriage returns": repeated("\r"),
    "quoted lines": repeated("a\n", before='h,"', after='"'),
    # Then each line is a record: eight million in 16 MiB.
    "quoted lines, unclosed": lambda size: repeated("a\n", before='h,"')(size // 8),
    "quoted cell, unclosed": repeated("a", before='h,"'),
    "quoted quotes": repeated('""', before='h,"', after='"'),
    "quoted backslashes": repeated('\\"', before='h,"', after='"'),
    "NUL": repeated("\0", before="h,"),
    "one long cell": repeated("a", before="h,"),
    "one long id": repeated("a", after=",text"),
    "semicolons": repeated("a;"),
    "tabs": repeated("a\t"),
    "bytes at random": _bytes_at_random,
}

# As an HTTP answer in a web archive.

_ANSWER, _BODY = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n", "\r\n<!doctype html><p>Some words."


def _coded_again(size: int) -> bytes:
    import zlib

    body, layers = _BODY.strip().encode() + _bytes_at_random(size // 2), 20
    for _ in range(layers):
        packer = zlib.compressobj(0, wbits=31)
        body = packer.compress(body) + packer.flush()
        if len(body) > size - 6 * layers:
            break
    return f"{_ANSWER}Content-Encoding: {', '.join(['gzip'] * layers)}\r\n\r\n".encode() + body


ANSWERS: Mapping[str, Shape] = {
    "many headers": numbered("X-{}: a\r\n", before=_ANSWER, after=_BODY),
    "the same header": repeated("X: a\r\n", before=_ANSWER, after=_BODY),
    "a header on many lines": repeated(" a\r\n", before=f"{_ANSWER}X: a\r\n", after=_BODY),
    "lines without a colon": repeated("a\n", before=_ANSWER, after=_BODY),
    "blank lines of blanks": repeated(" \n", before=_ANSWER, after=_BODY),
    "one long header": repeated("a", before=f"{_ANSWER}X: ", after=f"\r\n{_BODY}"),
    "one long type": repeated(";a", before="HTTP/1.1 200 OK\r\nContent-Type: text/html", after=f"\r\n{_BODY}"),
    "one long charset": repeated("a", before="HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=", after=f"\r\n{_BODY}"),
    "a charset after blanks": repeated(" ", before="HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=", after=f";\r\n{_BODY}"),
    "charset and blanks": repeated("charset  ", before="HTTP/1.1 200 OK\r\nContent-Type: text/html; ", after=f"\r\n{_BODY}"),
    "codings": repeated("gzip,", before=f"{_ANSWER}Content-Encoding: ", after=f"\r\n{_BODY}"),
    "packed again and again": _coded_again,
    "small chunks": repeated("1\r\na\r\n", before=f"{_ANSWER}Transfer-Encoding: chunked\r\n\r\n1\r\n<\r\n", after="0\r\n\r\n"),
    "chunks with extensions": repeated(f"1;{'a' * 900}\r\na\r\n", before=f"{_ANSWER}Transfer-Encoding: chunked\r\n\r\n", after="0\r\n\r\n"),
    "a chunk size of blanks": repeated(" ", before=f"{_ANSWER}Transfer-Encoding: chunked\r\n\r\n"),
    "no end of the head": repeated("a: b\r\n", before=_ANSWER),
    "no status": repeated("a", before="HTTP/1.1 "),
    "only line ends": repeated("\r\n"),
    "only carriage returns": repeated("\r"),
    "status of blanks": repeated(" ", before="HTTP/1.1", after="200 OK\r\n\r\na"),
    "status of digits": repeated("1.", before="HTTP/", after=" 200 OK\r\n\r\na"),
}  # fmt: skip
