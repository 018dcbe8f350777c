import dataclasses
import io
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.dedup.report import (
    CLUSTERS_LISTED,
    CLUSTERS_SHOWN,
    DIFFS_SHOWN,
    ID_CHARS,
    LINK_CHARS,
    MEMBERS_LISTED,
    PAIRS_SHOWN,
    Distance,
    ReportCluster,
    ReportData,
    ShownPair,
    Totals,
    find_notices,
    write_report,
)
from hsimhash.dedup.texts import FIRST_LINE_CHARS
from hsimhash.dedup.word_diff import compare

TOTALS = Totals(documents=100_000, dropped=12_300, clusters=4_000, equal=8_000, short=12, rejected=7)
TRAMS = compare("The tram leaves at eight every day.", "The tram leaves at nine every day.")
PAIR = ShownPair("en-tram", "en-tram/edit", 3, TRAMS)
CLUSTER = ReportCluster(
    kept_id="en-tram",
    size=3,
    diameter=4,
    members=(("en-tram/edit", 3), ("en-tram/exact", 0)),
    pairs=(PAIR,),
    first_line="The tram",
)
DATA = ReportData(
    inputs=("crawl.jsonl",),
    date="2026-11-21",
    settings=(("layout", "10"), ("profile", "auto-1")),
    totals=TOTALS,
    cluster_sizes={2: 3_000, 3: 900, 7: 60, 9: 39, 1234: 1},
    distances=(
        Distance(0, 8_000),
        Distance(1, 2_000),
        Distance(2, 0),
        Distance(3, 2_300, shown=(PAIR,)),
        Distance(4, 1_150, is_within=False),
    ),
    sampled=(4_000, 92_000),
    notices=(),
    clusters=(CLUSTER,),
    listed=(CLUSTER,),
    clusters_file="clusters.jsonl",
)
HOSTILE = "<script>alert('1')</script>\"&amp;\u202e\x00\ud800\u0301</details><img src=//x onerror=y>"
VOID = {"meta", "br"}
PAGE_TAGS = {"html", "head", "meta", "title", "style", "body", "header", "main"}
TEXT_TAGS = {"h1", "h2", "h3", "p", "div", "span", "strong", "bdi", "mark", "br", "dl", "dt", "dd"}
TABLE_TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "b"}
TAGS = PAGE_TAGS | TEXT_TAGS | TABLE_TAGS
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


def cluster_of(left: str, right: str) -> tuple[ReportCluster]:
    """One cluster, in which a pair with these texts is shown."""
    return (dataclasses.replace(CLUSTER, pairs=(ShownPair("a", "b", 1, compare(left, right)),)),)


def hostile_data(text: str) -> ReportData:
    """Data with `text` wherever a text can stand."""
    pairs = (ShownPair(text, text, 2, compare(f"one {text} {text} three", f"one {text} two")),)
    pairs += (ShownPair(text, text, 2, compare(f"one {text} {text} three", f"one {text} {text} three")),)
    cluster = ReportCluster(text, 5, 2, ((text, 2),), pairs, text)
    distances = (Distance(2, 5, shown=pairs),)
    return dataclasses.replace(
        DATA,
        inputs=(text,),
        date=text,
        settings=((text, text),),
        distances=distances,
        keyed=pairs,
        clusters=(cluster,),
        listed=(cluster,),
        clusters_file=text,
        texts_missing=text,
    )


def largest_data(doc_id: str, char: str) -> ReportData:
    """As much of everything as the report may be given."""
    text = " ".join([char * 30] * 3_000)
    other = text.replace(char * 30, f"2{char * 9}", 1_000)
    pair = ShownPair(doc_id, doc_id, 3, compare(text, other))
    cluster = ReportCluster(
        doc_id, 50_000, 64, ((doc_id, 3),) * MEMBERS_LISTED, (pair,) * DIFFS_SHOWN, char * FIRST_LINE_CHARS
    )
    return dataclasses.replace(
        DATA,
        inputs=(doc_id,) * 500,
        clusters=(cluster,) * CLUSTERS_SHOWN,
        listed=(cluster,) * CLUSTERS_LISTED,
        cluster_sizes=dict.fromkeys(range(2, 50_000), 1),
        distances=tuple(Distance(bits, 9, shown=(pair,) * PAIRS_SHOWN) for bits in range(20)),
        keyed=(pair,) * PAIRS_SHOWN,
    )


def test_totals_are_shown() -> None:
    text = page_of().text
    for number in ("100,000", "87,700", "12,300", "12.3% fewer", "4,000", "8,000"):
        assert number in text
    for fact in ("2026-11-21", "auto-1", "crawl.jsonl"):
        assert fact in text


def test_documents_matched_in_an_index_are_shown_where_there_was_one() -> None:
    assert "In the index" not in page_of().text
    assert "In the index 77 match" in page_of(totals=dataclasses.replace(TOTALS, matched=77)).text


def test_what_keys_found_and_sketches_refused_is_shown_where_there_are_some() -> None:
    assert "by key" not in page_of().text
    totals = dataclasses.replace(TOTALS, pairs=12_345, by_key=45, unconfirmed=67)
    text = page_of(totals=totals, keyed=(PAIR,), distances=()).text
    assert all(f"{name} {count} " in text for name, count in (("distance", "12,300"), ("key", 45), ("Unconfirmed", 67)))
    assert "the same key · 45 pairs, beyond --max-distance · 87.5% of the words equal" in text


def test_no_documents_at_all_make_a_page() -> None:
    empty = dataclasses.replace(
        DATA, totals=Totals(0, 0, 0, 0, 0, 0), cluster_sizes={}, distances=(), clusters=(), listed=()
    )
    text = page_of(empty).text
    assert text.count("There are none.") == 2
    assert not any(title in text for title in ("largest clusters", "All clusters", "Some pairs"))


def bars_of(data: ReportData) -> list[tuple[str, list[int]]]:
    """The rows of the charts: label, counts."""
    rows = re.findall(r'<tr class="\w*"><th scope="row" class="number">([\d,–]+)</th>(.*)</tr>', html_of(data))
    return [
        (label, [int(count.replace(",", "")) for count in re.findall(r'"number">([\d,]+)<', cells)])
        for label, cells in rows
    ]


def test_cluster_sizes_are_counted_in_steps_by_clusters_and_by_documents() -> None:
    sizes = dict(bars_of(dataclasses.replace(DATA, distances=())))
    assert sizes["2"] == [3_000, 6_000]
    assert sizes["4"] == [0, 0]
    assert sizes["5–9"] == [99, 60 * 7 + 39 * 9]
    assert list(sizes.items())[-1] == ("1,000–1,999", [1, 1_234])


@given(st.dictionaries(st.integers(2, 10**9), st.integers(1, 99), min_size=1))
def test_every_cluster_is_in_the_step_of_its_size(sizes: dict[int, int]) -> None:
    rows = bars_of(dataclasses.replace(DATA, cluster_sizes=sizes, distances=()))
    for label, counts in rows:
        first, _, last = label.replace(",", "").partition("–")
        inside = {size: n for size, n in sizes.items() if int(first) <= size <= int(last or first)}
        assert counts == [sum(inside.values()), sum(size * n for size, n in inside.items())]
    assert sum(counts[0] for _, counts in rows) == sum(sizes.values())
    assert len(rows) <= 3 * 10 + 3


def test_distances_run_from_0_bits_to_those_beyond_the_one_searched_for() -> None:
    rows = bars_of(dataclasses.replace(DATA, cluster_sizes={}))
    assert rows == [("0", [8_000]), ("1", [2_000]), ("2", [0]), ("3", [2_300]), ("4", [1_150])]
    assert html_of(DATA).count('<tr class="beyond">') == 1


def test_the_longest_bar_fills_its_column_and_no_count_has_no_bar() -> None:
    source = html_of(dataclasses.replace(DATA, cluster_sizes={2: 10, 5: 5}, distances=DATA.distances[:4]))
    widths = [*("100.00", "80.00", "50.00", "100.00"), *("100.00", "25.00", "28.75")]
    assert re.findall(r"width:([\d.]+)%\"", source) == widths


def test_what_a_greater_distance_would_add_is_said_and_how_it_was_counted() -> None:
    assert "1,150 at 4 bits (estimated from 4,000 of 92,000 fingerprints)" in page_of().text
    assert "1,150 at 4 bits (all were counted)" in page_of(sampled=(92_000, 92_000)).text


def test_the_share_of_equal_words_is_shown_and_is_100_percent_only_where_all_are() -> None:
    text = page_of().text
    assert text.count("3 bits apart, 87.5% of the words equal") == 2
    assert "3 bits · 2,300 pairs · 87.5% of the words equal" in text
    words = " ".join(map(str, range(5_000)))
    assert "99.9% of the words equal" in page_of(clusters=cluster_of(words, f"{words} end")).text


def test_a_pair_shows_only_what_differs_as_marked() -> None:
    assert page_of(distances=()).all_of("mark") == ["eight", "nine"]


def test_line_breaks_stay_and_are_no_part_of_what_is_marked() -> None:
    clusters = cluster_of("Title\n\nfirst line\nlast line", "Title\n\nother line\nlast line")
    source = html_of(dataclasses.replace(DATA, distances=(), clusters=clusters))
    assert ">Title\n\n<mark>first</mark> line\nlast line</p>" in source
    assert "white-space: pre-line" in source


def test_texts_with_the_same_words_are_said_to_be_so() -> None:
    page = page_of(clusters=cluster_of("The  tram.\n", "The tram."), distances=())
    assert "100.0% of the words equal" in page.text
    assert "Both have the same words: The tram." in page.text
    assert not page.all_of("mark")


def test_a_cluster_without_texts_says_so_once() -> None:
    bare = dataclasses.replace(CLUSTER, pairs=(dataclasses.replace(PAIR, comparison=None),))
    assert page_of(clusters=(bare,)).text.count("are not at hand") == 1
    text = page_of(clusters=(bare,), texts_missing="The input was fingerprints.").text
    assert "The input was fingerprints." in text
    assert "are not at hand" not in text


def test_a_cluster_is_named_by_the_document_that_is_kept() -> None:
    assert "en-tram · 3 documents · diameter 4 bits" in page_of().text


def test_members_and_clusters_that_are_not_listed_are_counted() -> None:
    many = dataclasses.replace(CLUSTER, size=41_234)
    text = page_of(clusters=(many,), listed=(CLUSTER,) * 30).text
    assert f"{41_234 - 1 - 2:,} more are in clusters.jsonl." in text
    assert f"{4_000 - 30:,} more clusters are in clusters.jsonl." in text
    assert "The 30 largest clusters by name" in text
    all_listed = page_of(listed=(CLUSTER,), totals=dataclasses.replace(TOTALS, clusters=1)).text
    assert "All clusters Kept documents and their first lines" in all_listed
    assert "more clusters" not in all_listed


def test_a_listed_cluster_has_its_kept_document_and_first_line_and_size() -> None:
    assert "en-tram The tram 3 4 bits" in page_of(clusters=(), distances=()).text


LINK = "https://example.org/a?b=1&c='2'"


def test_an_id_that_is_a_url_is_a_link_which_tells_nobody_where_it_was_followed() -> None:
    source = html_of(hostile_data(LINK))
    links = [attributes for tag, attributes in Page(source).tags if tag == "a"]
    assert links
    assert all(link == {"href": LINK, "rel": "noreferrer"} for link in links)


@pytest.mark.parametrize(
    "doc_id",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://example.org/",
        "//example.org/",
        "see http://example.org/",
        "http://example.org/a b",
        "http://example.org/\n",
        "http://example.org/\u202egpj.exe",
        "http://",
        "https://example.org/" + "x" * LINK_CHARS,
    ],
)
def test_no_other_id_is_a_link(doc_id: str) -> None:
    assert not [tag for tag, _ in page_of(hostile_data(doc_id)).tags if tag == "a"]


@pytest.mark.parametrize(
    "text", [HOSTILE, "</title></style><script>", "{{ title }} {% endfor %} {# x #}", "\u2066\u200f<!--", "]]>"]
)
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


USUAL_URL = "https://www.example.org/archive/2026/11/22/what-happened-at-the-harbour?page=2&view=print"


@pytest.mark.parametrize(
    ("doc_id", "char", "most_bytes"),
    [
        (USUAL_URL, "x", 1_000_000),
        ("x" * 2_000, "x", 4_000_000),
        ("\U000e0001" * 2_000, "\U000e0001", 4_000_000),
        ("'" * 2_000, "\u202e'", 4_000_000),
    ],
    ids=["usual", "long", "hidden", "escaped"],
)
def test_the_page_stays_small_whatever_there_is(doc_id: str, char: str, most_bytes: int) -> None:
    assert len(html_of(largest_data(doc_id, char)).encode("utf-8")) < most_bytes


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
    notices = find_notices(dataclasses.replace(TOTALS, short=6_000), [giant], [(0xBEEF, 1_500)])
    assert [notice.title for notice in notices] == ["Giant cluster", "Hot fingerprint", "Many short texts"]
    assert "2,000 of 100,000 documents (2.0%) are in the cluster of 'en-tram', whose diameter is 9" in notices[0].detail
    assert "000000000000beef" in notices[1].detail
    assert "6,000 of 100,000 documents (6.0%)" in notices[2].detail
    text = page_of(notices=notices).text
    assert all(notice.title in text and notice.detail in text for notice in notices)


def test_nothing_odd_makes_no_notice() -> None:
    assert find_notices(TOTALS, [], []) == ()
    assert find_notices(Totals(4, 2, 1, 2, 1, 0), [], []) == ()
    assert "Warnings" not in page_of().text
