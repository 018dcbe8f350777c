"""Decode web pages; https://encoding.spec.whatwg.org defines the charset labels.

A label that is not in the standard is ignored, as in a browser. Python's codecs differ from the standard in a few
points. Most single-byte codecs lack C1 controls that the standard maps to themselves; here they become U+FFFD. `cp949`,
`cp932` and `big5hkscs` lack some private-use and rare characters. ISO-2022-JP is decoded with Python's
`iso2022_jp_ext`. A damaged character may consume one byte more or less. For security, browsers replace text in some
charsets with a single U+FFFD. Of these charsets, `hz-gb-2312` and `iso-2022-kr` are decoded here, and all others are
read as ASCII.
"""

from __future__ import annotations

import codecs
import re

PRESCAN_BYTES = 4 << 10  # bytes searched for a charset; browsers prescan 1,024, but also find later declarations
# Python's codec -> labels.
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e "
    "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
    "iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 "
    "iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
    "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
    "windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp_ext": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
    "windows-949",
    "hz": "hz-gb-2312",
    "iso2022_kr": "csiso2022kr iso-2022-kr",
    "ascii": "iso-2022-cn iso-2022-cn-ext replacement",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
    "x-user-defined": "x-user-defined",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}
_BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_BLANKS = "\t\n\f\r "
_USER_DEFINED = {byte: 0xF700 + byte for byte in range(0x80, 0x100)}  # U+F780 to U+F7FF

_XML_ENCODING = re.compile(rb"""<\?xml[^>]*?\sencoding\s*+=\s*+["']([^"'>]++)["']""")
_NAME = re.compile(rb"/?([a-zA-Z][^\s/>]*+)")
_ATTRIBUTE = re.compile(rb"""[\s/]*+([^\s/>][^\s/=>]*+)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+""")
_CHARSET_IN_CONTENT = re.compile(rb"""charset\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^"'\s;][^\s;]*+))""", re.IGNORECASE)


def codec_of(label: str) -> str | None:
    """Return Python's codec for a charset label, or `x-user-defined`; None if the label is unknown."""
    return _CODECS.get(label.strip(_BLANKS).lower())


def decoded(data: bytes, label: str | None = None) -> str:
    """Decode a web page, or other text from the web, as a browser does.

    The charset comes from the byte order mark, else from the label sent with the text, else from the page's own
    declaration. If none of these names a known charset, the text is decoded as UTF-8 if it is valid UTF-8, else as
    GB 18030 if it is valid GB 18030, else as Windows-1252. Bytes without a character in the charset become U+FFFD.
    """
    for mark, codec in _BOMS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    codec_found = (codec_of(label) if label else None) or prescanned(data)
    if codec_found is not None:
        return _decoded_by(codec_found, data)
    for codec in ("utf-8", "gb18030"):
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            continue
    return data.decode("cp1252", "replace")


def _decoded_by(codec: str, data: bytes) -> str:
    if codec == "x-user-defined":
        return data.decode("latin-1").translate(_USER_DEFINED)
    return data.decode(codec, "replace")


def prescanned(data: bytes) -> str | None:
    """Return the codec that a page's `<meta>` declares, as browsers detect it; None if it declares no known charset.

    This is the standard's "prescan a byte stream to determine its encoding", but it covers a few KiB more. The scan
    only moves forward.
    """
    head, place = data[:PRESCAN_BYTES], 0
    while (place := head.find(b"<", place)) >= 0:
        if head.startswith(b"<!--", place):
            end = head.find(b"-->", place + 2)
        elif match := _NAME.match(head, place + 1):
            attributes, place = _attributes(head, match.end())
            if match[0].lower() == b"meta" and (codec := _named_by(attributes)):
                return codec
            continue
        elif head[place + 1 : place + 2] in (b"!", b"/", b"?"):
            end = head.find(b">", place)
        else:
            end = place
        if end < 0:
            break
        place = end + 1
    declared = _XML_ENCODING.match(head)
    return _in_ascii(codec_of(declared[1].decode("latin-1"))) if declared else None


def _attributes(head: bytes, place: int) -> tuple[dict[bytes, bytes], int]:
    """Return the attributes of a tag and the index after them; if a name is repeated, the first value is kept."""
    found: dict[bytes, bytes] = {}
    while match := _ATTRIBUTE.match(head, place):
        value = match[2] or b""
        found.setdefault(match[1].lower(), value.strip(value[:1]) if value[:1] in (b'"', b"'") else value)
        place = match.end()
    return found, place


def _named_by(attributes: dict[bytes, bytes]) -> str | None:
    """Return the codec that the attributes of a `<meta>` tag specify."""
    label = attributes.get(b"charset")
    if label is None and attributes.get(b"http-equiv", b"").strip().lower() == b"content-type":
        match = _CHARSET_IN_CONTENT.search(attributes.get(b"content", b""))
        label = match[match.lastindex] if match and match.lastindex else None
    return _in_ascii(codec_of(label.decode("latin-1"))) if label is not None else None


def _in_ascii(codec: str | None) -> str | None:
    """Return the codec that a page must mean, given that its declaration could be read as ASCII."""
    if codec in ("utf-16-le", "utf-16-be"):  # in real UTF-16 the declaration would not have been found
        return "utf-8"
    return "cp1252" if codec == "x-user-defined" else codec
