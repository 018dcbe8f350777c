import dataclasses
import io
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.dedup.report import ID_CHARS, write_report
from hsimhash.dedup.report_data import (
    CLUSTERS_SHOWN,
    MEMBERS_LISTED,
    TEXT_CHARS,
    Member,
    ReportCluster,
    ReportData,
    Totals,
    find_notices,
)

TOTALS = Totals(documents=100_000, dropped=12_300, clusters=4_000, equal=8_000, short=12, rejects=7)
CLUSTER = ReportCluster(
    cluster="en-tram",
    size=3,
    diameter=4,
    kept_id="en-tram",
    members=(Member("en-tram/edit", 3, "The tram leaves at nine every day."), Member("en-tram/exact", 0)),
    kept_text="The tram leaves at eight every day.",
)
DATA = ReportData(
    inputs=("crawl.jsonl",),
    date="2026-11-21",
    settings=(("layout", "10"), ("profile", "auto-1")),
    totals=TOTALS,
    cluster_sizes={2: 3_000, 3: 900, 7: 60, 9: 39, 1234: 1},
    distances={0: 8_000, 1: 2_000, 3: 2_300},
    notices=(),
    clusters=(CLUSTER,),
    clusters_file="clusters.jsonl",
)
HOSTILE = "<script>alert('1')</script>\"&amp;\u202e\x00\ud800\u0301</details><img src=//x onerror=y>"
VOID = {"meta"}
HEAD_TAGS = {"html", "head", "meta", "title", "style"}
BODY_TAGS = {"body", "header", "main", "h1", "h2", "h3", "dl", "div", "dt", "dd", "strong", "span", "p", "bdi", "mark"}
TABLE_TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"}
TAGS = HEAD_TAGS | BODY_TAGS | TABLE_TAGS
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "style", "scope", "open", "dir"}


class Page(HTMLParser):
    """A parsed page; parsing fails where the tags are not nested."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(source)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.stack[-1] if self.stack else "", data))

    def all_of(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(text for tag, text in self.texts if tag != "style"))


def html_of(data: ReportData) -> str:
    file = io.StringIO()
    write_report(file, data)
    return file.getvalue()


def page_of(data: ReportData = DATA, **changes: object) -> Page:
    return Page(html_of(dataclasses.replace(data, **changes)))


def hostile_data(text: str) -> ReportData:
    """Data with `text` wherever a text can stand."""
    member = Member(text, 2, f"one {text} two")
    cluster = ReportCluster(text, 5, 2, text, (member,), f"one {text} {text} three")
    data = dataclasses.replace(DATA, inputs=(text,), date=text, settings=((text, text),), clusters=(cluster,))
    return dataclasses.replace(data, clusters_file=text, texts_missing=text)


def largest_data(char: str) -> ReportData:
    """More of everything than the report shows."""
    text = " ".join([char * 30] * 3_000)
    members = tuple(
        Member(char * 2_000, 3, text.replace(char * 30, f"{number}{char * 9}", number * 500)) for number in range(2, 60)
    )
    clusters = tuple(ReportCluster(char * 2_000, 50_000, 64, char * 2_000, members, text) for _ in range(60))
    sizes = dict.fromkeys(range(2, 50_000), 1)
    return dataclasses.replace(
        DATA,
        inputs=(char * 2_000,) * 500,
        clusters=clusters,
        cluster_sizes=sizes,
        distances=dict.fromkeys(range(65), 9),
    )


def test_totals_are_shown() -> None:
    text = page_of().text
    for shown in (
        "100,000",
        "87,700",
        "12,300",
        "12.3% fewer",
        "4,000",
        "8,000",
        "2026-11-21",
        "auto-1",
        "crawl.jsonl",
    ):
        assert shown in text


def test_documents_matched_in_an_index_are_shown_where_there_was_one() -> None:
    assert "In the index" not in page_of().text
    assert "In the index 77 match" in page_of(totals=dataclasses.replace(TOTALS, matched=77)).text


def test_no_documents_at_all_make_a_page() -> None:
    empty = dataclasses.replace(DATA, totals=Totals(0, 0, 0, 0, 0, 0), cluster_sizes={}, distances={}, clusters=())
    text = page_of(empty).text
    assert text.count("There are none.") == 2
    assert "largest clusters" not in text


def test_cluster_sizes_are_counted_in_steps_and_add_up() -> None:
    rows = re.findall(r'scope="row" class="number">([\d,–]+)</th><td class="number">([\d,]+)<', html_of(DATA))
    sizes = dict(rows[: -len(range(4))])
    assert sizes["2"] == "3,000"
    assert sizes["4"] == "0"
    assert sizes["5–9"] == "99"
    assert list(sizes)[-1] == "1,000–1,999"
    assert sum(int(count.replace(",", "")) for count in sizes.values()) == sum(DATA.cluster_sizes.values())


@given(st.dictionaries(st.integers(2, 10**9), st.integers(1, 99), min_size=1))
def test_every_cluster_is_in_the_step_of_its_size(sizes: dict[int, int]) -> None:
    source = html_of(dataclasses.replace(DATA, cluster_sizes=sizes, distances={}))
    rows = re.findall(r'scope="row" class="number">([\d,–]+)</th><td class="number">([\d,]+)<', source)
    for label, count in rows:
        first, _, last = label.replace(",", "").partition("–")
        inside = sum(n for size, n in sizes.items() if int(first) <= size <= int(last or first))
        assert int(count.replace(",", "")) == inside
    assert sum(int(count.replace(",", "")) for _, count in rows) == sum(sizes.values())
    assert len(rows) <= 3 * 10 + 3


def test_distances_run_from_0_bits_on_without_a_gap() -> None:
    rows = re.findall(r'scope="row" class="number">(\d)</th><td class="number">([\d,]+)<', html_of(DATA))
    assert rows[-4:] == [("0", "8,000"), ("1", "2,000"), ("2", "0"), ("3", "2,300")]


def test_the_longest_bar_fills_its_column_and_no_count_has_no_bar() -> None:
    source = html_of(dataclasses.replace(DATA, cluster_sizes={}))
    assert re.findall(r"width:([\d.]+)%\"", source) == ["100.00", "25.00", "28.75"]


def test_a_pair_shows_only_what_differs_as_marked() -> None:
    assert page_of().all_of("mark") == ["eight", "nine"]


def test_texts_with_the_same_words_are_said_to_be_so() -> None:
    same = dataclasses.replace(CLUSTER, kept_text="The  tram.\n", members=(Member("b", 0, "The tram."),))
    page = page_of(clusters=(same,))
    assert "Both have the same words: The tram." in page.text
    assert not page.all_of("mark")


def test_a_cluster_without_texts_says_so_once() -> None:
    bare = dataclasses.replace(CLUSTER, kept_text=None)
    assert "does not hold the texts" in page_of(clusters=(bare,)).text
    text = page_of(clusters=(bare,), texts_missing="The input was fingerprints.").text
    assert "The input was fingerprints." in text
    assert "does not hold the texts" not in text


def test_members_and_clusters_that_are_not_listed_are_counted() -> None:
    members = tuple(Member(f"member-{number}", 1) for number in range(30))
    many = dataclasses.replace(CLUSTER, size=41_234, members=members)
    text = page_of(clusters=(many,) * 30).text
    assert text.count("member-19 ") == CLUSTERS_SHOWN
    assert "member-20" not in text
    assert f"{41_234 - 1 - MEMBERS_LISTED:,} more are in clusters.jsonl." in text
    assert f"{4_000 - CLUSTERS_SHOWN:,} more clusters are in clusters.jsonl." in text


def test_the_first_members_with_a_text_are_compared_and_no_more() -> None:
    members = tuple(Member(f"m{number}", 3 - number, f"word{number}" if number else None) for number in range(4))
    page = page_of(clusters=(dataclasses.replace(CLUSTER, members=members),))
    assert page.all_of("h3") == ["Kept and dropped, 2 bits apart", "Kept and dropped, 1 bit apart"]


@pytest.mark.parametrize("chars", [TEXT_CHARS, TEXT_CHARS + 1, 3 * TEXT_CHARS])
def test_text_that_was_not_compared_is_said_to_be_so_also_where_it_comes_cut(chars: int) -> None:
    text = ("word " * chars)[:chars]
    long = dataclasses.replace(CLUSTER, kept_text=text, members=(Member("b", 1, f"{text} end"),))
    assert "Only the first 20,000 characters were compared." in page_of(clusters=(long,)).text


@pytest.mark.parametrize("text", [HOSTILE, "</title></style><script>", "$title ${main} $$", "\u2066\u200f<!--", "]]>"])
def test_whatever_documents_say_is_text(text: str) -> None:
    page = page_of(hostile_data(text))
    assert {tag for tag, _ in page.tags} <= TAGS
    assert {name for _, attributes in page.tags for name in attributes} <= ATTRIBUTES
    visible = re.sub(r"[^\x20-\x7e].*", "", text)
    assert all(visible in "".join(page.all_of(tag)) for tag in ("title", "h1", "bdi", "dt", "dd"))


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_makes_a_well_formed_page_in_utf8(text: str) -> None:
    source = html_of(hostile_data(text))
    source.encode("utf-8")
    assert {tag for tag, _ in Page(source).tags} <= TAGS


def test_controls_that_hide_or_reverse_text_are_shown_by_number() -> None:
    source = html_of(hostile_data("a\u202eb\x07c\u200b\u200bd\ud800"))
    assert "a‹U+202E›b‹U+0007›c‹U+200B…›d‹U+D800›" in source
    assert not re.search("[\u202e\x07\u200b\ud800]", source)


def test_a_lone_combining_mark_stands_on_a_circle() -> None:
    assert "<bdi>◌\u0301x</bdi>" in html_of(hostile_data("\u0301x"))


def test_a_long_id_shows_its_beginning_and_its_end() -> None:
    shown = page_of(hostile_data("a" * 1_000 + "z" * 1_000)).all_of("bdi")[0]
    assert re.fullmatch(f"a{{{ID_CHARS // 2}}} … z{{{ID_CHARS // 2}}}", shown)


@pytest.mark.parametrize("char", ["x", "\U000e0001", "\u202e'"])
def test_the_page_stays_under_3_mb_whatever_there_is(char: str) -> None:
    data = largest_data(char)
    assert len(html_of(data).encode("utf-8")) < 3_000_000


def test_the_same_data_give_the_same_bytes_in_any_order_of_the_counts() -> None:
    turned = dataclasses.replace(DATA, cluster_sizes=dict(reversed(DATA.cluster_sizes.items())))
    assert html_of(DATA) == html_of(DATA) == html_of(turned)


def test_nothing_is_fetched_and_nothing_runs() -> None:
    source = html_of(DATA)
    assert not re.search(r"src\s*=|href|url\(|@import|https?:|<script|<link|javascript|\son\w+=", source, re.IGNORECASE)
    policies = [attrs["content"] for tag, attrs in Page(source).tags if "http-equiv" in attrs]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


def test_notices_name_the_count_and_are_shown() -> None:
    giant = dataclasses.replace(CLUSTER, size=2_000, diameter=9)
    notices = find_notices(dataclasses.replace(TOTALS, short=6_000), giant, (0xBEEF, 1_500))
    assert [notice.title for notice in notices] == ["Giant cluster", "Hot fingerprint", "Many short texts"]
    assert "2,000 of 100,000 documents (2.0%)" in notices[0].detail
    assert "000000000000beef" in notices[1].detail
    assert "6,000 of 100,000 documents (6.0%)" in notices[2].detail
    text = page_of(notices=notices).text
    assert all(notice.title in text and notice.detail in text for notice in notices)


def test_a_giant_cluster_of_equal_documents_alone_is_no_more_than_a_hot_fingerprint() -> None:
    equal = dataclasses.replace(CLUSTER, size=2_000, diameter=0)
    assert [notice.title for notice in find_notices(TOTALS, equal, (0xBEEF, 2_000))] == ["Hot fingerprint"]


def test_nothing_odd_makes_no_notice() -> None:
    assert find_notices(TOTALS, CLUSTER, (0xBEEF, 10)) == ()
    assert find_notices(Totals(0, 0, 0, 0, 0, 0), None, (0, 0)) == ()
    assert find_notices(Totals(4, 2, 1, 2, 1, 0), dataclasses.replace(CLUSTER, size=3), (1, 3)) == ()
    assert "Warnings" not in page_of().text
