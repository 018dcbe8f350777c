import dataclasses
import io
import pickle
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.bccache import bc_magic

from hsimhash.dedup import template_cache
from hsimhash.dedup.report import (
    CLUSTERS_LISTED,
    CLUSTERS_SHOWN,
    DIFFS_SHOWN,
    ID_CHARS,
    LINK_CHARS,
    MEMBERS_LISTED,
    MEMBERS_OPEN,
    PAIRS_SHOWN,
    DedupCommands,
    Distance,
    ReportCluster,
    ReportData,
    Retry,
    ShownPair,
    Totals,
    find_notices,
    page_environment,
    write_report,
)
from hsimhash.dedup.report_texts import FIRST_LINE_CHARS
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
    newest_input="2026-11-21",
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
    left_out=2_300,
    commands=DedupCommands(
        more=Retry(6, "hsimhash dedup crawl.jsonl --out dup --distance 6 --overwrite", "--distance 6"),
        fewer=Retry(1, "hsimhash dedup crawl.jsonl --out dup --distance 1 --overwrite", "--distance 1"),
        apply="hsimhash apply crawl.jsonl --from dup --out kept.jsonl",
    ),
)
HOSTILE = "<script>alert('1')</script>\"&amp;\u202e\x00\ud800\u0301</details><img src=//x onerror=y>"
VOID = {"meta", "br", "input"}
PAGE_TAGS = {"html", "head", "meta", "title", "style", "body", "header", "nav", "main", "article"}
TEXT_TAGS = {"h1", "h2", "h3", "h4", "p", "div", "span", "strong", "b", "bdi", "mark", "br", "pre", "code", "a"}
TABLE_TAGS = {
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "dl",
    "dt",
    "dd",
    "ul",
    "li",
}
TAGS = PAGE_TAGS | TEXT_TAGS | TABLE_TAGS
OWN_ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "style", "scope", "open", "dir"}
ATTRIBUTES = OWN_ATTRIBUTES | {"id", "href", "aria-label"}


class Page(HTMLParser):
    """A parsed page; parsing fails if the tags are not nested."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.commands: list[str] = []  # to paste, as a reader would copy them
        self.feed(source)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "pre":
            self.commands.append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.stack[-1] if self.stack else "", data))
        if "pre" in self.stack:
            self.commands[-1] += data

    def all_of(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]

    @property
    def links(self) -> list[dict[str, str | None]]:
        """The links that lead out of the page."""
        links = [attributes for tag, attributes in self.tags if tag == "a"]
        return [one for one in links if not (one["href"] or "").startswith("#")]

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
    """Return one cluster that shows a pair with these texts."""
    return (dataclasses.replace(CLUSTER, pairs=(ShownPair("a", "b", 1, compare(left, right)),)),)


def hostile_data(text: str) -> ReportData:
    """Return data with `text` wherever a text can appear."""
    pairs = (ShownPair(text, text, 2, compare(f"one {text} {text} three", f"one {text} two")),)
    pairs += (ShownPair(text, text, 2, compare(f"one {text} {text} three", f"one {text} {text} three")),)
    cluster = ReportCluster(text, 5, 2, ((text, 2),), pairs, text)
    distances = (Distance(2, 5, shown=pairs),)
    return dataclasses.replace(
        DATA,
        inputs=(text,),
        newest_input=text,
        settings=((text, text),),
        totals=dataclasses.replace(TOTALS, by_key=2, unconfirmed=1),
        distances=distances,
        keyed=pairs,
        clusters=(cluster,),
        listed=(cluster,),
        clusters_file=text,
        texts_missing=text,
        commands=DedupCommands(Retry(3, text, text), None, None, text),
    )


def largest_data(doc_id: str, char: str) -> ReportData:
    """Return data with as much of everything as a report may contain."""
    text = " ".join([char * 30] * 3_000)
    other = text.replace(char * 30, f"2{char * 9}", 1_000)
    pair = ShownPair(doc_id, doc_id, 3, compare(text, other))
    cluster = ReportCluster(
        doc_id, 50_000, 64, ((doc_id, 3),) * MEMBERS_LISTED, (pair,) * DIFFS_SHOWN, char * FIRST_LINE_CHARS
    )
    return dataclasses.replace(
        DATA,
        inputs=(doc_id,) * 500,
        totals=dataclasses.replace(TOTALS, by_key=3, unconfirmed=1),
        clusters=(cluster,) * CLUSTERS_SHOWN,
        listed=(cluster,) * CLUSTERS_LISTED,
        cluster_sizes=dict.fromkeys(range(2, 50_000), 1),
        distances=tuple(Distance(bits, 9, shown=(pair,) * PAIRS_SHOWN) for bits in range(20)),
        keyed=(pair,) * PAIRS_SHOWN,
    )


def test_the_headline_says_what_was_kept_and_dropped() -> None:
    page = page_of()
    assert page.all_of("h1") == ["100,000 documents: 87,700 kept, 12,300 near-duplicates dropped in 4,000 clusters"]
    assert page.all_of("strong") == ["100,000", "87,700", "12,300", "4,000"]
    assert "12.3% fewer documents" in page.text
    one = page_of(totals=Totals(documents=2, dropped=1, clusters=1, equal=0, short=0, rejected=0))
    assert one.all_of("h1") == ["2 documents: 1 kept, 1 near-duplicate dropped in 1 cluster"]
    none = page_of(totals=Totals(documents=2, dropped=0, clusters=0, equal=0, short=0, rejected=0))
    assert none.all_of("h1") == ["2 documents: no near-duplicates found"]


def test_settings_and_the_newest_input_are_in_the_details() -> None:
    details = page_of().text.partition(" Counts, cluster sizes and settings ")[2]
    assert all(fact in details for fact in ("layout 10", "profile auto-1", "newest input file 2026-11-21"))
    assert "newest input file" not in page_of(newest_input="").text


def test_documents_matched_in_an_index_are_shown_if_there_are_any() -> None:
    matched = page_of(totals=dataclasses.replace(TOTALS, matched=77)).text
    assert "77 documents match a document in the index" in matched
    for none in (None, 0):
        assert "index" not in page_of(totals=dataclasses.replace(TOTALS, matched=none)).text


def test_a_count_of_zero_is_not_shown() -> None:
    names = ("rejected", "short", "repeated", "exact", "split", "matched", "by_key", "unconfirmed", "equal")
    counts = dict.fromkeys(names, 0)
    text = page_of(totals=dataclasses.replace(TOTALS, **counts), distances=()).text
    shown = (
        "ejected",
        "too short",
        "Too short",
        "repeat",
        "Very short",
        "larger",
        "index",
        "by key",
        "ruled out",
        "Same",
    )
    assert [word for word in shown if word in text] == []
    more = page_of(totals=dataclasses.replace(TOTALS, **dict.fromkeys(names, 3)), distances=()).text
    assert [word for word in shown if word not in more] == []


def test_what_keys_found_and_sketches_refused_is_shown_where_there_are_some() -> None:
    assert "key" not in page_of().text
    totals = dataclasses.replace(TOTALS, pairs=12_345, by_key=45, unconfirmed=67)
    text = page_of(totals=totals, keyed=(PAIR,)).text
    assert "Pairs within 3 bits 12,300 " in text
    assert "Pairs by key 45 " in text
    assert "Pairs ruled out 67 " in text
    assert "87.5% of words equal in 1 sample shared key 45 pairs" in text


def test_no_documents_at_all_make_a_page() -> None:
    empty = dataclasses.replace(
        DATA, totals=Totals(0, 0, 0, 0, 0, 0), cluster_sizes={}, distances=(), clusters=(), listed=()
    )
    page = page_of(empty)
    assert page.all_of("h1") == ["No documents were read"]
    assert page.all_of("h2") == ["Next steps", "Details"]


def bars_of(data: ReportData) -> list[tuple[str, list[int]]]:
    """Return the label and the counts of each chart row."""
    rows = re.findall(r'<tr><th scope="row" class="number">([\d,–]+)</th>(.*)</tr>', html_of(data))
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


def rows_of(page: Page) -> list[str]:
    """Return the rows that show the pairs at each distance."""
    return re.findall(
        r"[\d.]+%(?:–[\d.]+%)? of words equal(?: in \d+ samples?)? (?:\d+ bits?|shared key) [\d,]+ pairs?", page.text
    )


def test_each_distance_has_a_row_with_the_share_of_equal_words_before_the_bits() -> None:
    exact = dataclasses.replace(PAIR, comparison=compare("a", "a"))
    distances = (
        Distance(0, 8_000, shown=(exact,)),
        Distance(1, 0),
        Distance(2, 1, shown=(PAIR, exact)),
        Distance(3, 1_150, is_within=False, shown=(PAIR,)),
    )
    assert rows_of(page_of(distances=distances, clusters=())) == [
        "100% of words equal in 1 sample 0 bits 8,000 pairs",
        "87.5%–100% of words equal 2 bits 1 pair",
        "87.5% of words equal in 1 sample 3 bits 1,150 pairs",
    ]


def test_the_longest_bar_fills_its_column_and_no_count_has_no_bar() -> None:
    source = html_of(dataclasses.replace(DATA, cluster_sizes={2: 10, 5: 5}))
    widths = [*("100.00", "25.00", "28.75", "14.38"), *("100.00", "80.00", "50.00", "100.00")]
    assert re.findall(r"width:([\d.]+)%\"", source) == widths


def test_what_another_distance_would_change_is_said_with_the_command_to_paste() -> None:
    page = page_of()
    assert "(counts estimated from 4,000 of 92,000 fingerprints)" in page.text
    assert "A distance of 6 bits adds about 1,150 pairs." in page.text
    assert "A distance of 1 bit leaves out 2,300 pairs." in page.text
    commands = DATA.commands
    assert page.commands == [commands.more.command, commands.fewer.command, commands.apply]
    assert "estimated" not in page_of(sampled=(92_000, 92_000)).text


def test_a_distance_that_changes_nothing_is_not_offered() -> None:
    distances = Distance(0, 10), Distance(1, 5), Distance(2, 0), Distance(3, 0, is_within=False)
    page = page_of(distances=distances, left_out=0)
    assert page.commands == [DATA.commands.apply]


def test_a_command_that_cannot_be_pasted_is_described() -> None:
    page = page_of(commands=DedupCommands(Retry(6, "", "--distance 6"), Retry(1, "", "--distance 1")))
    assert page.commands == []
    text = page.text
    assert "Run your command again with --distance 6 --overwrite ." in text
    assert "Run your command again with --distance 1 --overwrite ." in text


def test_a_page_whose_commands_lack_part_of_a_url_says_so() -> None:
    commands = dataclasses.replace(DATA.commands, has_short_url=True)
    assert "does not store the user, password or query" in page_of(commands=commands).text
    assert "does not store" not in page_of().text


def test_the_share_of_equal_words_is_100_percent_only_where_all_are() -> None:
    assert page_of(distances=()).text.count("87.5% of words equal · 3 bits apart") == 1
    words = " ".join(map(str, range(5_000)))
    assert "99.9% of words equal" in page_of(clusters=cluster_of(words, f"{words} end")).text


def test_a_pair_shows_only_what_differs_as_marked() -> None:
    source = html_of(dataclasses.replace(DATA, distances=()))
    texts = re.findall(r'<p class="text .*?</p>', source, re.DOTALL)
    assert re.findall("<mark>(.*?)</mark>", "".join(texts)) == ["eight", "nine"]


def test_ids_are_marked_where_they_differ() -> None:
    left, right = "docs/3.10/library/abc.html", "docs/3.11/library/abc.html"
    cluster = dataclasses.replace(
        CLUSTER, kept_id=left, members=((right, 3), ("x", 3)), pairs=(ShownPair(left, right, 3, TRAMS),)
    )
    source = html_of(dataclasses.replace(DATA, clusters=(cluster,), distances=(), listed=()))
    kept, dropped = "docs/3.<mark>10</mark>/library/abc.html", "docs/3.<mark>11</mark>/library/abc.html"
    assert source.count(f"<bdi>{kept}</bdi>") == 1
    assert source.count(f"<bdi>{dropped}</bdi>") == 2
    assert "<bdi>x</bdi>" in source  # it has nothing in common with the kept one


def test_line_breaks_stay_and_are_no_part_of_what_is_marked() -> None:
    clusters = cluster_of("Title\n\nfirst line\nlast line", "Title\n\nother line\nlast line")
    source = html_of(dataclasses.replace(DATA, distances=(), clusters=clusters))
    assert ">Title\n\n<mark>first</mark> line\nlast line</p>" in source
    assert "white-space: pre-line" in source


def same_words(doc_id: str = "copy") -> ReportCluster:
    pair = ShownPair(doc_id, f"{doc_id}/2", 0, compare("The  tram.\n", "The tram."))
    return dataclasses.replace(CLUSTER, kept_id=doc_id, members=((f"{doc_id}/2", 0),), pairs=(pair,))


def test_exact_copies_come_last_and_show_their_text_once() -> None:
    page = page_of(clusters=(CLUSTER, same_words()), distances=())
    assert page.all_of("h2")[:2] == ["Least similar clusters", "Clusters with the same words"]
    before, _, after = page.text.partition(" Clusters with the same words In this cluster")
    assert "en-tram /edit" in before
    assert "copy" not in before.partition("Next steps Details ")[2]
    assert after.count("The tram.") == 1
    assert after.count("100%") == 1


def test_sections_and_clusters_can_be_jumped_to() -> None:
    page = page_of(clusters=(CLUSTER, CLUSTER, CLUSTER, same_words()), notices=find_notices(TOTALS, [CLUSTER], []))
    places = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    jumps = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert len(jumps) == 7 + 3
    assert {f"#{place}" for place in places} >= set(jumps)


def test_a_cluster_without_texts_says_so_once() -> None:
    bare = dataclasses.replace(CLUSTER, pairs=(dataclasses.replace(PAIR, comparison=None),))
    assert page_of(clusters=(bare,), distances=()).text.count("not available") == 1
    text = page_of(clusters=(bare,), texts_missing="The input was fingerprints.").text
    assert "The input was fingerprints." in text
    assert "not available" not in text
    only_copies = page_of(clusters=(same_words(),), texts_missing="The input was fingerprints.")
    assert only_copies.text.count("The input was fingerprints.") == 1


def test_a_cluster_is_named_by_the_document_that_is_kept() -> None:
    assert "en-tram 3 documents, up to 4 bits apart" in page_of().text


def test_members_and_clusters_that_are_not_listed_are_counted() -> None:
    many = dataclasses.replace(CLUSTER, size=41_234)
    text = page_of(clusters=(many,), listed=(CLUSTER,) * 30).text
    assert f"{41_234 - 1 - 2:,} more are in clusters.jsonl." in text
    assert "1 more is in clusters.jsonl." in page_of(clusters=(dataclasses.replace(CLUSTER, size=4),)).text
    assert f"{4_000 - 30:,} more clusters are in clusters.jsonl." in text
    assert "The 30 largest clusters" in text
    all_listed = page_of(listed=(CLUSTER,), totals=dataclasses.replace(TOTALS, clusters=1)).text
    assert "All clusters Kept documents and their first lines" in all_listed
    assert "more clusters" not in all_listed


def test_a_long_list_of_members_is_folded() -> None:
    def opened(count: int) -> int:
        members = tuple((str(number), 1) for number in range(count))
        tags = page_of(clusters=(dataclasses.replace(CLUSTER, members=members),), listed=()).tags
        return sum("open" in attributes for tag, attributes in tags if tag == "details")

    assert (opened(MEMBERS_OPEN - 1), opened(MEMBERS_OPEN)) == (1, 0)


def test_a_listed_cluster_has_its_kept_document_and_first_line_and_size() -> None:
    assert "en-tram The tram 3 4 bits" in page_of(clusters=(), distances=()).text


LINK = "https://example.org/a?b=1&c='2'"


def test_an_id_that_is_a_url_is_a_link_which_tells_nobody_where_it_was_followed() -> None:
    source = html_of(hostile_data(LINK))
    links = Page(source).links
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
    assert not page_of(hostile_data(doc_id)).links


@pytest.mark.parametrize(
    "text", [HOSTILE, "</title></style><script>", "{{ title }} {% endfor %} {# x #}", "\u2066\u200f<!--", "]]>"]
)
def test_whatever_documents_say_is_text(text: str) -> None:
    page = page_of(hostile_data(text))
    assert {tag for tag, _ in page.tags} <= TAGS
    assert {name for _, attributes in page.tags for name in attributes} <= ATTRIBUTES
    visible = re.sub(r"[^\x20-\x7e].*", "", text)
    assert all(visible in "".join(page.all_of(tag)) for tag in ("title", "p", "bdi", "dt", "dd"))
    assert all(visible in command for command in page.commands)


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


def test_kept_templates_make_the_same_page_even_if_their_files_are_damaged_or_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(template_cache.__file__).relative_to("/").parent
    (tmp_path / "there" / folder).mkdir(parents=True)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    pages, kept = [], list[Path]()
    (tmp_path / "file").touch()
    # After the magic number come a pickled checksum and the marshalled code.
    damages = (None, None, *(bc_magic[:length] for length in (3, len(bc_magic))))
    damages += tuple(bc_magic + end for end in (b"damaged", pickle.dumps("x")[:-1], pickle.dumps("x") + b"N"))
    for place, damage in [*(("there", one) for one in damages), ("missing", None), ("file", None)]:
        for file in kept if damage is not None else ():
            file.write_bytes(damage)
        monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / place))
        page_environment.cache_clear()
        pages.append(html_of(DATA))
        kept = [*tmp_path.rglob("*.cache")]
    page_environment.cache_clear()
    assert len(set(pages)) == 1
    assert kept
    assert all(file.is_relative_to(tmp_path / "there") and file.stat().st_size > 1_000 for file in kept)


def test_nothing_is_fetched_and_nothing_runs() -> None:
    source = html_of(DATA)
    foreign = r"src\s*=|href=\"[^#]|url\(|@import|https?:|<script|<link|javascript|\son\w+="
    assert not re.search(foreign, source, re.IGNORECASE)
    policies = [attrs["content"] for tag, attrs in Page(source).tags if "http-equiv" in attrs]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


def test_notices_name_the_count_and_are_shown() -> None:
    giant = dataclasses.replace(CLUSTER, size=2_000, diameter=9)
    notices = find_notices(dataclasses.replace(TOTALS, short=6_000), [giant], [(0xBEEF, 1_500)])
    assert [notice.title for notice in notices] == ["Giant cluster", "Hot fingerprint", "Many short texts"]
    assert (
        "2,000 of 100,000 documents (2.0%) are in the cluster of 'en-tram'; some are 9 bits apart." in notices[0].detail
    )
    assert "000000000000beef" in notices[1].detail
    assert "6,000 of 100,000 documents (6.0%)" in notices[2].detail
    text = page_of(notices=notices).text
    assert all(notice.title in text and notice.detail in text for notice in notices)


def test_nothing_odd_makes_no_notice() -> None:
    assert find_notices(TOTALS, [], []) == ()
    assert find_notices(Totals(4, 2, 1, 2, 1, 0), [], []) == ()
    assert "Warnings" not in page_of().text
