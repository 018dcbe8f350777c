"""HTML in any value: pages, fragments and plain text are told apart; no HTML that browsers display is read as empty."""

from __future__ import annotations

import csv
import html
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hsimhash.extras import install_command
from hsimhash.fingerprint import Profile
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.charsets import codec_of, decoded
from hsimhash.inputs.extraction import PageTexts, text_of_page
from hsimhash.inputs.markup import is_markup, is_page, text_of_markup
from hsimhash.inputs.pages import MAIN_TEXT_CHARACTERS, page_of, page_text
from hsimhash.inputs.reader import Batch, HeldBatches, raw_batches, read_again, read_batches, texts_at
from hsimhash.processes import CallLimits, NoResult
from hsimhash.sample import documents
from tests.support.archives import response
from tests.support.command_line import run
from tests.support.effort import thorough

SENTENCE = "The quick brown fox number {} jumps over the lazy dog while the crew of the ship looks on. "
TEXT = "".join(SENTENCE.format(number) for number in range(12)).strip()
PAGE = "<!DOCTYPE html><html><head><title>t</title></head><body><article><p>{}</p></article></body></html>"
MODES = ("auto", "none")


# What is HTML.


@pytest.mark.parametrize(
    "text",
    [
        *("a < b && c > d", "if x <y and z> w", "if (a <b c==d)", "for (i = 0; i<n; i++) a[i] <<= 3;", "1<2, 3>2"),
        *("List<String>", "Map<K, V>", "vector<a> x", "Foo<P>", "template <class T>", "#include <map>", "x<b>y"),
        *("<john@example.org>", "<https://example.org/?a=1&b=2>", "AT&T", "R&D;", "&sum;", "p = &copy;", "&c."),
        *("<name>", "<title>", "<dd>-<mm>-<yyyy>", "<file-name>", "</name>", "<i>", "> quoted\n>> twice", "<3", "->"),
        *("<stdin>", "cat <in >out", "<p.12>", "a <- b", "<%= x %>", "\\<b\\>", "&#", "&#;", "", "<", "&"),
    ],
)
def test_what_people_write_is_plain_text(text: str) -> None:
    assert not is_markup(text)
    assert not is_page(text)


@pytest.mark.parametrize(
    "text",
    [
        *("<p>one", "one<br>two", "one<br/>two", "one<BR>two", "<b>one</b>", "one</div>", '<a href="x">one', "<hr />"),
        *("<i class=x>", "<P ALIGN=center>", "<IMG SRC='x'>", "<p\nclass='x'>", "<x-y a='b'>", "</x-y>", "<td>one"),
        *("one&nbsp;two", "AT&amp;T", "it&#8217;s", "it&#x2019;s", "caf&eacute;", "one<!-- two -->three"),
    ],
)
def test_what_only_html_has_is_a_fragment(text: str) -> None:
    assert is_markup(text)
    assert not is_page(text)


@pytest.mark.parametrize(
    "begin",
    ["<html", "<HTML lang=en", "\ufeff<!doctype html", '\n <?xml version="1.0"?>\n<!DOCTYPE html', "<!-- a --><html"],
)
def test_a_page_is_known_by_its_beginning(begin: str) -> None:
    assert is_page(f"{begin}><p>one</p>")
    assert not is_page(f"one {begin}>")


# Fragments.


@pytest.mark.parametrize(
    ("fragment", "text"),
    [
        ("<p>one</p><p>two</p>", "one\ntwo"),
        ("one<br>two<br/>three<BR />four", "one\ntwo\nthree\nfour"),
        ("<b>wo</b>rd <a href='x'>li</a>nk", "word link"),
        ("<ul><li>one<li>two</ul>three", "one\ntwo\nthree"),
        ("<tr><td>one<td>two", "one\ntwo"),
        ('<a title="x > y < z">one</a>', "one"),
        ("<a title='<b>'>one", "one"),
        ('<a "b>one', "one"),
        ('<a b=c"d>one', "one"),
        ("<a/b/c=d>one</a >", "one"),
        ("one<!-- <b> -- > -->two<!-->three<!--->four<!-- --!>five", "onetwothreefourfive"),
        ("<!DOCTYPE html><?php x ?><![CDATA[ x ]]>one</>two<//>", "onetwo"),
        ("<script>if (a<b) '</p>'</script>one<STYLE>p > a</STYLE >two", "onetwo"),
        ("<title>x</title><textarea>x</textarea><noscript>x</noscript><template>x</template>one", "one"),
        ("<scripted>one</scripted><prefix>two<brx>", "onetwo"),
        ("one <script>never ends, so <b>it</b> is shown", "one never ends, so it is shown"),
        ("one <!-- never ends, so <b>it</b> is shown", "one never ends, so it is shown"),
        ('one <a href="never ends>two <b>three</b>', "one two three"),
        ("one <a href=x", "one"),
        ("a < b, c > d & e", "a < b, c > d & e"),
        ("one\n  two\r\n\tthree\rfour", "one two three four"),
        ("<pre>one\n two</pre>three", "one\ntwo\nthree"),
        ("汉字很\n  好看，ok\nok", "汉字很好看，ok ok"),
        (
            "&lt;p&gt; &amp;amp; &quot;&apos; &eacute;&eacute &notit; &nope; &am &;",
            "<p> &amp; \"' éé ¬it; &nope; &am &;",
        ),
        ("&#65;&#66&#x43;&#X44 &#128; &#150;", "ABCD € –"),
        ("&#0;&#xD800;&#1114112;&#xFFFFFFFFF;&#1;&#x1f;", "\ufffd" * 6),
        ("one&#12;two&#13;three\ftwo", "one two three\ftwo"),
        ("\x01\x0b\ufffe\ud800", "\ufffd" * 4),
    ],
)
def test_the_text_of_a_fragment_is_what_a_reader_sees(fragment: str, text: str) -> None:
    assert text_of_markup(fragment) == text


@pytest.mark.parametrize(
    ("data", "is_text"),
    [
        (np.random.default_rng(1).bytes(5_000), False),
        (b"\x00\x01" * 3_000, False),
        (b"<p>" + b"a page with a zero byte \x00 " * 3 + b"and more text" * 20, True),
        (b"\x1b[32mINFO\x1b[0m started\n" * 50, True),
        ("<p>café</p>".encode("utf-16"), True),
    ],
)
@pytest.mark.every_case
def test_noise_is_not_a_page(data: bytes, is_text: bool) -> None:
    if is_text:
        assert page_of(data)
    else:
        with pytest.raises(ValueError, match="not text: it has too many control characters"):
            page_of(data)


def test_references_are_those_of_the_standard_library_wherever_that_has_an_answer() -> None:
    for name in html.entities.html5:
        for end in ("", " ", ";", "x"):
            assert text_of_markup(f"a&{name}{end}b") == " ".join(html.unescape(f"a&{name}{end}b").split()) or (
                html.unescape(f"&{name}").isspace()
            ), name


def shape(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


UNITS = (
    *(
        "<!--",
        "<a ",
        '<a "',
        '<a b="',
        "<a b='x",
        "<<a>",
        "<p>x",
        "<!-->",
        "<?",
        "</",
        "<![CDATA[",
        "<script>",
        "<pre>",
    ),
    *(
        "&",
        "&#",
        "&#1",
        "&lt",
        "&a;",
        "<b>x",
        "<title><!--<style>",
        "<name>",
        "字\n",
        " ",
        "\x01",
        "<a =",
        "<p/",
        "\r\n",
    ),
)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("end", ["", ">"])
def test_hostile_fragments_take_linear_time(unit: str, end: str) -> None:
    def seconds(size: int) -> float:
        text, began = shape(unit, size) + end, time.process_time()
        is_page(text), is_markup(text), text_of_markup(text)
        return time.process_time() - began

    size = 1 << 18
    assert min(seconds(4 * size) for _ in range(2)) < 12 * max(min(seconds(size) for _ in range(2)), 0.02)


@pytest.mark.parametrize("written", ["&#" + "1" * 2_000_000, "&#x" + "a" * 2_000_000, "&#" + "0" * 2_000_000 + "65;"])
def test_a_reference_of_a_million_digits_takes_no_time(written: str) -> None:
    began = time.process_time()
    assert text_of_markup(written) in ("A", "\ufffd")
    assert time.process_time() - began < 2


# The same text with and without tags is the same document.


def long_texts(language: str) -> list[str]:
    """Return twenty texts in a language, each made of several documents of the sample."""
    texts = [json.loads(line) for line in documents().read_text("utf-8").splitlines()]
    own = [
        one["text"].replace("\n", "") for one in texts if one["id"].startswith(f"{language}-") and "/" not in one["id"]
    ]
    own = [text for text in own if len(text) > 80]
    return ["".join(own[(at * 7 + step * 3) % len(own)] for step in range(5)) for at in range(20)]


def sentences_of(text: str) -> list[str]:
    return re.findall(r"[^。！？.!?]+(?:[。！？.!?]+\s*|$)", text)


def in_paragraphs(text: str) -> str:
    found = sentences_of(text)
    return "".join(f"<p>{''.join(found[at : at + 3])}</p>" for at in range(0, len(found), 3))


def with_breaks(text: str) -> str:
    return "".join(f"{sentence}<br/>" for sentence in sentences_of(text))


def with_blanks(text: str) -> str:
    found = sentences_of(text)
    return "".join(f"{'&nbsp;' * 4}{''.join(found[at : at + 3])}" for at in range(0, len(found), 3))


@pytest.mark.parametrize("change", [in_paragraphs, with_breaks, with_blanks])
@pytest.mark.parametrize("language", ["zh", "en"])
def test_tags_and_references_hide_no_duplicate(language: str, change: Callable[[str], str], tmp_path: Path) -> None:
    texts = long_texts(language)
    path, out = tmp_path / "in.jsonl", tmp_path / "out"
    records = [
        {"id": f"{at}/{kind}", "text": one}
        for at, text in enumerate(texts)
        for kind, one in (("plain", text), ("html", change(text)))
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    result = run("dedup", str(path), "--out", str(out), "--distance", "3")
    assert result.exit_code == 0, result.stderr
    profile = Profile.named("auto-2")
    plain, tagged = profile.signatures(texts), profile.signatures([text_of_markup(change(text)) for text in texts])
    assert np.bitwise_count(plain.fingerprints ^ tagged.fingerprints).max() <= 1
    dropped = (out / "drop.txt").read_text().split()
    assert {f"{at}/html" for at in range(20)} <= set(dropped)


# Each value is judged by itself, in the same way in every format.

VALUES = {
    "page": PAGE.format(TEXT),
    "fragment": "".join(f"<p>{SENTENCE.format(number).strip()}</p>" for number in range(12)),
    "plain": TEXT,
}


def written(form: str, folder: Path, values: dict[str, str]) -> Path:
    path = folder / f"in.{form}"
    match form:
        case "jsonl":
            path.write_text("".join(json.dumps({"id": name, "text": value}) + "\n" for name, value in values.items()))
        case "tsv":
            path.write_text("".join(f"{name}\t{value}\n" for name, value in values.items()))
        case "csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("id", "text"), *values.items()])
        case "parquet":
            pq.write_table(pa.table({"id": list(values), "text": list(values.values())}), path)
        case "warc":
            path.write_bytes(b"".join(response(name, value.encode()) for name, value in values.items()))
    return path


def read(path: Path, **options: object) -> tuple[dict[str, str], list[tuple[int, str]]]:
    reading = InputOptions(**options)  # type: ignore[arg-type]
    found = [batch.documents for batch in read_batches(find_inputs([str(path)], reading), reading, workers=1)]
    texts = {doc_id: text for one in found for doc_id, text in zip(one.doc_ids, one.texts, strict=True)}
    return texts, [(reject.line, reject.reason) for one in found for reject in one.rejects]


FORMS = ("jsonl", "tsv", "csv", "parquet")


@pytest.mark.parametrize("form", FORMS)
def test_a_page_a_fragment_and_plain_text_are_the_same_document(form: str, tmp_path: Path) -> None:
    path = written(form, tmp_path, VALUES)
    for extract in ("auto", "html", "none"):
        texts, rejects = read(path, extract=extract)
        assert ({name: " ".join(text.split()) for name, text in texts.items()}, rejects) == (
            dict.fromkeys(VALUES, TEXT),
            [],
        )
    assert read(path, extract="text") == (VALUES, [])


@pytest.mark.parametrize("form", FORMS)
def test_a_second_look_reads_values_as_the_first_did(form: str, tmp_path: Path) -> None:
    path = written(form, tmp_path, VALUES)
    (one,) = find_inputs([str(path)], InputOptions(format="tsv" if form == "tsv" else "auto"))
    texts, _ = read(path)
    lines = range(2, 5) if form == "csv" else range(1, 4)
    assert {doc_id: text for _, doc_id, text in texts_at(one, InputOptions(), lines)} == texts


@pytest.mark.parametrize("form", [*FORMS, "warc", "files"])
def test_what_was_held_from_a_first_reading_is_read_as_without_it(form: str, tmp_path: Path) -> None:
    """There are several inputs, and so several batches; some records do not have an id, others are rejected."""
    for number in range(4):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        values = {f"{number}.{name}": value for name, value in VALUES.items()}
        if form == "files":
            for name, value in values.items():
                (folder / f"{name}.html").write_text(value)
            continue
        path = written(form, folder, values)
        if form == "jsonl":
            with path.open("a") as file:
                file.write(json.dumps({"text": VALUES["fragment"], "rank": 3}) + '\n{"id": 7}\nno record\n')
    for extract in ("auto", "html", "none", "text"):
        options = InputOptions(extract=extract, format="files" if form == "files" else "auto")
        inputs = find_inputs([str(tmp_path / f"{number}") for number in range(4)], options)
        fields = ("rank",) if form == "jsonl" else ()
        wanted = list(read_batches(inputs, options, fields=fields))
        assert sum(len(batch.documents.doc_ids) for batch in wanted) >= 12
        for most_bytes in (0, 2_000, 8_000, 1 << 20):
            held = HeldBatches(fields, most_bytes)
            assert len(list(raw_batches(inputs, options, held=held))) == len(wanted)
            again = list(read_again(inputs, options, held))
            assert [facts_of(batch) for batch in again] == [facts_of(batch) for batch in wanted]
            assert not list(held.release())


def facts_of(batch: Batch) -> tuple[object, ...]:
    one = batch.documents
    facts = one.doc_ids, one.texts, one.lines, one.rejects, one.fields, one.is_page, one.numbered, one.note
    return batch.input, batch.end, *facts


def test_each_field_of_a_document_decides_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        json.dumps({"id": "a", "title": "a < b", "parts": ["<p>one", "two</p>"], "body": PAGE.format(TEXT)})
    )
    texts, rejects = read(path, fields=("title", "parts", "body"))
    assert (texts, rejects) == ({"a": f"a < b\x1fone two\x1f{TEXT}"}, [])


def test_files_are_html_by_their_names_unless_told_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.html", "b.txt"):
        (folder / name).write_text(f"<p>{TEXT}</p>")
    tagged = f"<p>{TEXT}</p>"
    assert read(folder)[0] == {"a.html": TEXT, "b.txt": tagged}
    assert read(folder, extract="html")[0] == {"a.html": TEXT, "b.txt": TEXT}
    assert read(folder, extract="text")[0] == {"a.html": tagged, "b.txt": tagged}


def test_a_page_without_the_library_is_an_error_that_names_both_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    path = written("jsonl", tmp_path, VALUES)
    without = ', or pass extract="none", which uses all visible text'
    with pytest.raises(ValueError, match=re.escape(install_command("html") + without)):
        read(path)
    assert read(path, extract="none")[0].keys() == VALUES.keys()
    others = {name: value for name, value in VALUES.items() if name != "page"}
    assert read(written("jsonl", tmp_path, others))[0].keys() == others.keys()


# Characters.

FORBIDDEN = [
    *range(9),
    0x0B,
    0x0C,
    *range(0x0E, 0x20),
    0x7F,
    *range(0x80, 0xA0),
    0xD800,
    0xDFFF,
    0xFFFE,
    0xFFFF,
    0x1FFFE,
]


def ways(code: int) -> list[str]:
    return [chr(code), f"&#{code};", f"&#x{code:x};", f"&#{code}"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "place",
    [
        "<p>{0} {1}</p>",
        "<p>wo{1}rd {0}</p>",
        "<p title='{1}'>{0}</p>",
        "<title>{1}</title><p>{0}</p>",
        "<script>{1}</script><p>{0}</p>",
    ],
)
def test_no_character_empties_a_page(mode: str, place: str) -> None:
    for code in FORBIDDEN:
        for one in ways(code):
            page = f"<html><body><article>{place.format(TEXT, one)}</article></body></html>"
            assert TEXT in page_text(page, mode), f"{one!a} in {place}"


def test_bytes_that_are_no_characters_empty_no_page() -> None:
    for byte in range(256):
        page = PAGE.format(TEXT).encode().replace(b"fox", b"f%cx" % byte)
        for label in (None, "utf-8", "gbk", "shift_jis", "x-user-defined", "utf8mb4"):
            assert "quick brown f" in page_text(decoded(page, label), "none")


@pytest.mark.parametrize(
    ("label", "data", "text"),
    [
        ("x-sjis", "汉字".encode("cp932", "replace"), None),
        *((label, "日本".encode("cp932"), "日本") for label in ("x-sjis", "Shift_JIS", " MS_Kanji\n", "windows-31j")),
        *((label, "镕".encode("gb18030"), "镕") for label in ("GB2312", "x-gbk", "chinese", "gb18030")),
        ("windows-874", b"\xa1", "ก"),
        ("iso-8859-8-i", b"\xe0", "א"),
        ("latin1", b"\x93x\x94", "“x”"),
        ("x-user-defined", b"a\x80\xff", "a\uf780\uf7ff"),
        ("utf-16", "né".encode("utf-16-le"), "né"),
        ("utf-16be", "né".encode("utf-16-be"), "né"),
        ("euc-kr", "똠".encode("cp949"), "똠"),
        ("big5", "嘅".encode("big5hkscs"), "嘅"),
        *((label, "né".encode(), "né") for label in ("utf8mb4", "none", "utf-8,text/html", "hex", "rot13", "", "\0")),
        ("gbk", b"\xef\xbb\xbf" + "né".encode(), "né"),
        ("utf-8", b"\xff\xfe" + "né".encode("utf-16-le"), "né"),
        (None, b"<meta charset=koi8-r>\xc1", "<meta charset=koi8-r>а"),
        (None, b"<!-- <meta charset=gbk> --><meta charset='x-sjis'>\x93\xfa", None),
        ("nonsense", b"<meta charset=koi8-r>\xc1", "<meta charset=koi8-r>а"),
        (None, b"<meta charset=utf-16>n\xc3\xa9", "<meta charset=utf-16>né"),
        (None, b"<meta content='text/html; charset=koi8-r' http-equiv=Content-Type>\xc1", None),
        (None, b"<meta name=x content='charset=koi8-r'>n\xc3\xa9", "<meta name=x content='charset=koi8-r'>né"),
        (None, b"<a title='<meta charset=koi8-r>'>n\xc3\xa9", "<a title='<meta charset=koi8-r>'>né"),
        (None, b'<?xml version="1.0" encoding="koi8-r"?>\xc1', '<?xml version="1.0" encoding="koi8-r"?>а'),
    ],
)
def test_charsets_are_those_of_browsers(label: str | None, data: bytes, text: str | None) -> None:
    found = decoded(data, label)
    assert "\ufffd" not in found
    assert text is None or found == text


def test_every_label_of_the_standard_is_known_and_no_other() -> None:
    assert all(
        codec_of(label) for label in ("unicode11utf8", "csisolatin2", "logical", "l6", "dos-874", "ucs-2", "koi8-ru")
    )
    assert not any(map(codec_of, ("utf-7", "cp037", "utf_8", "utf-32", "mbcs", "idna", "base64", "gb-18030", "ansi")))


@pytest.mark.parametrize("unit", [b"<", b"<!--", b"<meta ", b"<a b='", b"<meta charset='", b"<meta content=charset="])
def test_a_charset_is_looked_for_in_no_time(unit: bytes) -> None:
    began = time.process_time()
    decoded(unit * (1 << 20))
    assert time.process_time() - began < 2


# Structures and sizes.


def nested(depth: int) -> str:
    return "<div>" * depth + f"<p>{TEXT}</p>" + "</div>" * depth


WITHIN_LIMITS = {
    "20,000 nested tags": nested(20_000),
    "1,500 nested tags": nested(1_500),
    "40,000 attributes": f"<p {' '.join(f'a{n}=x' for n in range(40_000))}>{TEXT}</p>",
    "40,000 attributes with >": "<p " + " ".join(f"a{n}='>'" for n in range(40_000)) + f">{TEXT}</p>",
    "an attribute of 12 MiB": f"<p title='{'x' * (12 << 20)}'>{TEXT}</p>",
    "a text of 4 MiB": f"<p>{TEXT}</p><p>{'word and word. ' * (1 << 18)}</p>",
    "a comment of 12 MiB": f"<!-- {'x ' * (6 << 20)} --><p>{TEXT}</p>",
    "a name of 4 MiB": f"<p>{TEXT}</p><{'a' * (4 << 20)}>",
    "frames": f"<frameset><noframes></noframes></frameset>{TEXT}",
    "no tag at all": TEXT,
    "only divisions": "".join(f"<div><span>{SENTENCE.format(n)}</span></div>" for n in range(12)),
    "a table": f"<table><tr><td>{TEXT}</td></tr></table>",
    "an unclosed comment": f"<p>{TEXT}</p><!-- <p>more</p>",
    "an unclosed script": f"<p>{TEXT}</p><script>more",
    "two bodies": f"<body><p>{TEXT}</p></body></html><html><body><p>more</p>",
}


@pytest.mark.parametrize("name", WITHIN_LIMITS)
def test_no_structure_and_no_size_empties_a_page(name: str) -> None:
    page = f"<html><body>{WITHIN_LIMITS[name]}</body></html>"
    with PageTexts(InputOptions()) as texts:
        (found,) = texts.submit([page]).result()
    assert isinstance(found, str), found
    first = SENTENCE.format(0).strip()
    assert first in " ".join(found.split())
    assert first in " ".join(text_of_markup(page).split())


MENU = '<nav><ul><li><a href="/">Home</a></li><li><a href="/shop">Shop and prices</a></li></ul></nav>'
FOOTER = "<footer><p>Copyright 2026, all rights reserved, by Example Limited.</p></footer>"
FRAMED = (
    f"<!doctype html><html><head><title>t</title></head><body><header>Example</header>{MENU}{{}}{FOOTER}</body></html>"
)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('<div id="app"></div>', ""),
        ("<main></main><aside>Read next: shoes</aside>", ""),
        ('<main><h1>Photo of a ferry</h1><img src="a.jpg"></main>', "Photo of a ferry"),
        ("<h1>Red shoe</h1><p>Price: 39 euro. In stock.</p>", "Red shoe Price: 39 euro. In stock."),
        (f"<h1>A title</h1><article><p>{TEXT}</p></article>", TEXT),
    ],
)
def test_a_page_with_little_text_has_its_title_and_never_its_menu(body: str, text: str) -> None:
    assert " ".join(text_of_page(FRAMED.format(body)).split()) == text


def test_removing_many_menus_takes_linear_time() -> None:
    page = FRAMED.format("<nav>menu</nav>x " * 10_000)
    with PageTexts(InputOptions()) as texts:
        (found,) = texts.submit([page]).result()
    assert isinstance(found, str), found
    assert "x x x" in found
    assert "menu" not in found


def test_of_a_page_that_is_very_long_all_visible_text_counts() -> None:
    menu = "<nav><ul><li>Home page</li></ul></nav>"
    for filler, has_menu in (("", False), ("words of a page " * (MAIN_TEXT_CHARACTERS // 16 + 1), True)):
        found = text_of_page(f"<html><body>{menu}<p>{TEXT}</p><p>{filler}</p></body></html>")
        assert ("Home page" in found) is has_menu
        assert SENTENCE.format(0).strip() in " ".join(found.split())


OVER_LIMITS = f"<html><body>{'<p>x' * 950_000}</body></html>"


def test_a_page_over_the_limits_is_rejected_and_the_others_are_read(tmp_path: Path) -> None:
    values = {"a": PAGE.format(TEXT), "b": OVER_LIMITS, "c": PAGE.format(TEXT)}
    texts, ((line, reason),) = read(written("jsonl", tmp_path, values))
    assert texts == {"a": TEXT, "c": TEXT}
    assert line == 2
    assert reason == "main text not found within 300 MiB of memory; use --extract none"
    assert len(read(tmp_path / "in.jsonl", extract="none")[0]["b"]) > 950_000


def test_a_page_that_takes_too_long_says_what_to_do_instead() -> None:
    page = f"<html><body>{'<p>xy' * 2_000_000}</body></html>"
    with PageTexts(InputOptions(), limits=CallLimits(0.1, 1 << 30)) as texts:
        with pytest.raises(ValueError, match=r"main text not found within 0\.1 s of CPU time; use extract=.none."):
            texts.text(page)
        assert texts.submit([page, PAGE.format(TEXT)]).result() == [NoResult("within 0.1 s of CPU time"), TEXT]


def test_a_rejected_file_is_named_and_gone_from_every_column(tmp_path: Path) -> None:
    values = {
        "a.html": PAGE.format(TEXT),
        "b.html": OVER_LIMITS,
        "c.html": PAGE.format(TEXT),
    }
    for name, value in values.items():
        (tmp_path / name).write_text(value)
    options = InputOptions(first_seen_field="date")
    (batch, *_) = read_batches(find_inputs([str(tmp_path)], options), options, workers=1, block_bytes=1 << 30)
    (reject,) = batch.documents.rejects
    assert (reject.line, reject.path) == (1, str(tmp_path / "b.html"))
    assert reject.preview.startswith("<html><body><p>x<p>x")
    assert batch.documents.doc_ids == ["a.html", "c.html"]
    assert batch.documents.lines == [1, 3]
    assert list(batch.documents.is_page) == [True, True]


@thorough
def test_memory_that_is_not_enough_never_makes_half_a_text() -> None:
    page = "<html><body>" + "".join(f"<p>{number} {TEXT}</p>" for number in range(2_000)) + "</body></html>"
    whole = text_of_page(page)
    for mebibytes in (4, 8, 12, 16, 24, 32, 48):
        with PageTexts(InputOptions(), limits=CallLimits(60, mebibytes << 20)) as texts:
            (found,) = texts.submit([page]).result()
        assert isinstance(found, NoResult) or found == whole, mebibytes
