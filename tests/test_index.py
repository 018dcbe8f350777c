"""`HSimIndex` compared with brute force: every match and no other, for every layout, on every store."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hsimhash
from hsimhash import (
    Document,
    FormatVersionError,
    HSimIndex,
    IndexExistsError,
    IndexNotFoundError,
    Layout,
    LayoutMismatchError,
    Match,
    ProfileMismatchError,
    StoreClosedError,
)
from hsimhash.aio import AsyncHSimIndex
from hsimhash.layout import LAYOUT_NAMES
from hsimhash.matching import MEETINGS_AT_ONCE
from hsimhash.pairs import find_pairs, iter_pairs
from hsimhash.plan import layouts_for
from hsimhash.store.base import INSERT_DOCUMENTS
from hsimhash.store.lmdb.store import LmdbStore
from tests.support.command_line import run
from tests.support.effort import thorough, tries
from tests.support.oracles import crowds

_numbers = itertools.count()


@pytest.fixture(params=["memory", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://index-{next(_numbers)}" if request.param == "memory" else f"lmdb://{tmp_path / 'index'}"


@pytest.fixture
def index(url: str) -> Iterator[HSimIndex]:
    with HSimIndex.create(url) as made:
        yield made


def brute_force(documents: dict[str, int], query: int, k: int) -> list[Match]:
    found = (Match(hsimhash.distance(query, value), doc_id, value, 0) for doc_id, value in documents.items())
    return sorted(match for match in found if match.distance <= k)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=tries(25, 2))
@pytest.mark.parametrize("name", [*LAYOUT_NAMES, "7,9,16,20,12/2", "20,44/1", "32,32/2"])
@given(values=crowds(30, least=1), asked=st.integers(1, 5), limit=st.none() | st.integers(1, 4), data=st.data())
def test_query_equals_brute_force(
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
    values: list[int],
    asked: int,
    limit: int | None,
    data: st.DataObject,
) -> None:
    # Only a few distances, because finding the cover for a new one takes up to a second.
    k = data.draw(st.sampled_from([*range(Layout.parse(name).max_distance + 3), 10]))
    queries, documents = values[:asked], {f"doc-{number}": value for number, value in enumerate(values[asked:])}
    for url in (f"memory://brute-{next(_numbers)}", f"lmdb://{tmp_path_factory.mktemp('brute') / 'index'}"):
        with HSimIndex.create(url, layout=name) as index:
            index.add_many(list(documents.values()), list(documents), first_seen=0)
            expected = [brute_force(documents, query, k)[:limit] for query in queries]
            assert [index.query(query, max_distance=k, limit=limit) for query in queries] == expected
            assert index.query_many(queries, max_distance=k, limit=limit) == expected
            exclude = ["doc-0", None, "doc-1", "nobody", "doc-2"][: len(queries)]
            matches = [brute_force(documents, query, index.distance) for query in queries]
            rest = [[one for one in ones if one.doc_id != e] for ones, e in zip(matches, exclude, strict=True)]
            assert index.query_many(queries, exclude=exclude) == rest
            assert [index.query(q, exclude=e) for q, e in zip(queries, exclude, strict=True)] == rest


def test_every_planted_distance_is_found_and_k_plus_one_is_not(index: HSimIndex) -> None:
    rng = np.random.default_rng(5)
    for number in range(200):
        value = rng.integers(0, 2**64, dtype=np.uint64)
        index.add(value, str(number))
        for count in range(8):
            bits = rng.choice(64, count, replace=False)
            query = value ^ np.uint64(sum(1 << int(bit) for bit in bits))
            assert (str(number) in [match.doc_id for match in index.query(query)]) == (count <= index.distance)


def test_exact_duplicates_are_all_returned_in_order(index: HSimIndex) -> None:
    index.add_many([9] * 5 + [8], ["e", "a", "d", "b", "c", "near"], first_seen=1)
    assert index.query(9) == [*(Match(0, doc_id, 9, 1) for doc_id in "abcde"), Match(1, "near", 8, 1)]
    assert [match.doc_id for match in index.query(9, limit=2, exclude="a")] == ["b", "c"]


def test_first_seen_is_kept_and_given_back(index: HSimIndex) -> None:
    index.add(1, "a", first_seen=5)
    index.add(1, "a", first_seen=9)
    index.add_many([2, 3], ["b", "c"], first_seen=[6, 7])
    assert index.get("a") == Document("a", 1, 5)
    assert [document and document.first_seen for document in index.get_many(["c", "x", "b"])] == [7, None, 6]
    assert [match.first_seen for match in index.query(1)] == [5, 7, 6]
    assert [document.doc_id for document in index.documents(before=7)] == ["a", "b"]
    index.add(4, "now")
    found = index.get("now")
    assert found is not None
    assert found.first_seen > 1_700_000_000_000


def test_a_removed_document_is_not_found_and_a_moved_one_where_it_went(index: HSimIndex) -> None:
    elsewhere = 0xFFFF_0000
    index.add_many([1, 1, elsewhere + 1], ["a", "b", "c"])
    assert index.remove("a") == 1
    index.add(elsewhere, "b")
    assert index.query(1) == []
    assert [match.doc_id for match in index.query(elsewhere)] == ["b", "c"]
    assert index.remove(["b", "c", "nobody"]) == 2
    assert index.count() == 0


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        (lambda index: index.add(-1, "a"), ValueError, "must be 0 to"),
        (lambda index: index.add(2**64, "a"), ValueError, "must be 0 to"),
        (lambda index: index.add(1.5, "a"), TypeError, "got float"),
        (lambda index: index.add(True, "a"), TypeError, "got bool"),
        (lambda index: index.add(1, "a\nb"), ValueError, "control"),
        (lambda index: index.add_many([1, 2], ["good", "a" * 3000]), ValueError, "got 3000"),
        (lambda index: index.add_many([1, 2], ["a"]), ValueError, "2 signatures for 1"),
        (lambda index: index.add(1, "a", first_seen=-1), ValueError, "ms since 1970"),
        (lambda index: index.add(1, "a", first_seen=1.5), ValueError, "ms since 1970"),
        (lambda index: index.query(1, max_distance=17), ValueError, "must be 0 to 16"),
        (lambda index: index.query(1, max_distance=-1), ValueError, "must be 0 to 16"),
        (lambda index: index.query(1, limit=0), ValueError, "at least 1"),
        (lambda index: index.query_many([1], limit=0), ValueError, "at least 1"),
        (lambda index: index.query_many([1, 2], exclude=["a"]), ValueError, "None for each query, got 1 for 2"),
        (lambda index: index.query("1"), TypeError, "got str"),
        (lambda index: index.remove(["a", 5]), TypeError, "got int"),
        (lambda index: index.add_many([1, 2], "ab"), TypeError, "got a single str"),
        (lambda index: index.add_many([1, 2], {"a", "b"}), TypeError, "doc_ids must have a fixed order, got a set"),
        (
            lambda index: index.add_many({1: 0, 2: 0}.keys(), ["a", "b"]),
            TypeError,
            "signatures must have a fixed order, got a dict_keys",
        ),
        (lambda index: index.query(1, limit=1.5), TypeError, "must be a whole number, got float: 1.5"),
        (lambda index: index.query_many([1], limit=True), TypeError, "got bool"),
        (lambda index: index.query(1, max_distance=1.5), TypeError, "got float"),
        *(
            (partial(call, distance=wrong), TypeError, "must be an int, got")
            for wrong in (True, False, 1.0, "1", np.True_)
            for call in (
                lambda index, distance: index.query(1, max_distance=distance),
                lambda index, distance: index.query_many([1], max_distance=distance),
                lambda index, distance: index.claim(1, "a", max_distance=distance),
                lambda index, distance: index.claim_many([1], ["a"], max_distance=distance),
                lambda index, distance: index.explain(1, max_distance=distance),
                lambda index, distance: index.cover(distance),
                lambda index, distance: HSimIndex.create("memory://none", distance=distance),
                lambda index, distance: find_pairs([1], max_distance=distance),
                lambda index, distance: list(iter_pairs([1], max_distance=distance)),
                lambda index, distance: layouts_for(distance),
            )
        ),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_written(
    index: HSimIndex, call: Callable[[HSimIndex], object], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        call(index)
    assert index.count() == 0


def test_empty_batches_do_nothing(index: HSimIndex) -> None:
    assert index.add_many([], []) == 0
    assert index.query_many([]) == []
    assert index.remove([]) == 0


def test_open_refuses_another_layout_or_profile_than_the_indexs(url: str) -> None:
    with HSimIndex.create(url, layout="4", profile="words-1") as index:
        with pytest.raises(LayoutMismatchError, match="layout 4, not 10"):
            HSimIndex.open(url, layout="10")
        with pytest.raises(ProfileMismatchError, match="words-1, not zh-1"):
            HSimIndex.open(url, profile="zh-1")
        with HSimIndex.open(url, layout=Layout.named("4"), profile="words-1") as same:
            assert same.profile == index.profile
        with HSimIndex.open(url) as adopted:
            assert (adopted.layout, adopted.profile) == (index.layout, index.profile)


@pytest.mark.parametrize("bad", ["pages", "mongo://x", "lmdb://", "://x", ""])
def test_a_url_of_no_store_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="not a store URL"):
        HSimIndex.open(bad)
    with pytest.raises(ValueError, match="not a store URL"):
        HSimIndex.create(bad)


def test_a_bare_word_is_refused_with_both_spellings_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'pages' is not a store URL: for a folder, use \./pages or lmdb://pages"):
        HSimIndex.open("pages")
    result = run("describe", "--store", "pages")
    assert result.exit_code == 2
    assert "--store: store = 'pages': for a folder, use ./pages or lmdb://pages" in result.stderr
    for wrong in (5, None, b"./pages"):
        with pytest.raises(TypeError, match="an index must be a URL or a path, got"):
            HSimIndex.open(wrong)  # type: ignore[arg-type]


def test_a_path_means_an_embedded_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setenv("HOME", str(tmp_path))
    spellings = [
        tmp_path / "pages",
        Path("../pages"),
        str(tmp_path / "pages"),
        "../pages",
        "./../pages",
        "~/pages",
        f"lmdb://{tmp_path}/pages",
    ]
    HSimIndex.create(spellings[0]).close()
    for number, place in enumerate(spellings):
        with HSimIndex.open(place) as index:
            assert index.count() == number
            assert index.url.startswith("lmdb://")
            index.add(number, f"page-{number}")
        described = run("describe", "--store", str(place), "--json", environment={"HOME": str(tmp_path)})
        assert described.exit_code == 0, described.stderr
        assert json.loads(described.stdout)["documents"] == number + 1
        with pytest.raises(IndexExistsError):
            HSimIndex.create(place)
    monkeypatch.chdir(tmp_path)
    with HSimIndex.open(Path("pages")) as index:  # a Path is not a bare word
        assert index.count() == len(spellings)


@pytest.mark.parametrize("old", [{"lock_timeout_s": 7}, {"deadline_s": 5}, {"exclusive": True}], ids=str)
def test_old_keywords_are_options_of_the_url_for_one_release(old: dict[str, Any], tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path / 'index'}"
    HSimIndex.create(url).close()
    with pytest.warns(DeprecationWarning, match="set them in the URL"), HSimIndex.open(url, **old) as index:
        assert index.url == (f"{url}?lock_timeout=7s" if "lock_timeout_s" in old else url)  # LMDB ignores the others
    with HSimIndex.create(f"{url}?x=1") as made, pytest.warns(DeprecationWarning, match="URL"):
        assert HSimIndex.open(made.url, **old).full_url == made.url + ("?lock_timeout=7s" * ("lock_timeout_s" in old))
    with pytest.warns(DeprecationWarning, match="URL"), HSimIndex.open(f"{url}?lock_timeout=3s", **old) as index:
        assert index.url == f"{url}?lock_timeout=3s"


def test_the_url_says_how_long_a_write_waits_on_lmdb(tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path / 'a folder?x=1'}"
    with HSimIndex.create(f"{url}?lock_timeout=1500ms") as index:
        assert index.store.session.lock_timeout_s == 1.5
        assert index.full_url == f"{url}?lock_timeout=1500ms"
    with HSimIndex.open(url) as index:
        assert index.store.session.lock_timeout_s == 30
    for wrong in ("lock_timeout=soon", "lock_timeout=25h", "lock_timout=5s"):
        with pytest.raises(ValueError, match="lock_timeout"):
            HSimIndex.create(f"{url}?{wrong}")


def test_a_pickled_index_is_opened_again_in_another_process_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words.idf"
    words.write_text("quick 3.5\nfox 2.5\n")
    monkeypatch.chdir(tmp_path)
    with HSimIndex.create("./pages", profile=f"auto-2:idf={words}") as index:
        index.add(5, "a")
        sent = pickle.dumps(HSimIndex.open("./pages?lock_timeout=7", slow_s=None))
        words.unlink()
        code = (
            "import pickle, sys; index = pickle.load(sys.stdin.buffer); print(index.query(5)[0].doc_id, index.slow_s)"
        )
        told = subprocess.run([sys.executable, "-c", code], input=sent, cwd="/", stdout=subprocess.PIPE, check=True)
        assert told.stdout == b"a None\n"
        monkeypatch.chdir("/")
        with pickle.loads(sent) as same:
            assert same.store.session.lock_timeout_s == 7
            assert same.profile == index.profile
        awaited = pickle.loads(pickle.dumps(AsyncHSimIndex(index, max_pending=3)))
        assert asyncio.run(awaited.query(5))[0].doc_id == "a"
    shutil.rmtree(tmp_path / "pages")
    with pytest.raises(IndexNotFoundError):
        pickle.loads(sent)


def test_an_index_that_another_process_cannot_open_says_why_it_is_not_pickled() -> None:
    with HSimIndex.create(f"memory://index-{next(_numbers)}") as index:
        for one in (index, AsyncHSimIndex(index)):
            with pytest.raises(TypeError, match="its documents exist only in this process; use lmdb:// instead"):
                pickle.dumps(one)


def test_a_password_is_not_pickled(tmp_path: Path) -> None:
    HSimIndex.create(tmp_path / "index").close()
    with HSimIndex.open(tmp_path / "index", password="secret") as index:
        with pytest.raises(TypeError, match="the pickle would contain its password; put password_file=PATH") as raised:
            pickle.dumps(index)
        assert "secret" not in str(raised.value)


def test_the_version_is_that_of_the_package_installed_or_not() -> None:
    assert hsimhash.__version__ == version("hsimhash")
    code = (
        "import importlib.metadata as metadata\n"
        "def missing(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = missing\n"
        "import hsimhash\n"
        "print(hsimhash.__version__)"
    )
    told = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert told.stdout.strip() == version("hsimhash")


def test_an_unknown_format_version_is_refused(tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path / 'index'}"
    with HSimIndex.create(url) as index:
        store = index.store
        assert isinstance(store, LmdbStore)
        with store.session.write() as transaction:
            transaction.put(
                b"format", b'{"version": 4, "rows": "tall"}', db=store.session.environment.databases["record"]
            )
    with pytest.raises(FormatVersionError, match="'version': 4"):
        HSimIndex.open(url)


def test_a_closed_index_refuses_calls(index: HSimIndex) -> None:
    index.close()
    index.close()
    calls: list[Callable[[], object]] = [
        lambda: index.query(1),
        lambda: index.query_many([]),
        lambda: index.add_many([], []),
        lambda: index.add(1, "a"),
        index.count,
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match="open it again"):
            call()


@thorough
def test_many_queries_into_one_large_bucket_are_answered_in_parts() -> None:
    with HSimIndex.create(f"memory://parts-{next(_numbers)}", layout="4", distance=3) as index:
        documents = {f"{value:04d}": value for value in range(2_000)}
        index.add_many(list(documents.values()), list(documents), first_seen=0)
        queries = list(range(0, 2_000, 2))
        assert 3 * len(documents) * len(queries) > 5 * MEETINGS_AT_ONCE
        found = index.query_many(queries)
        assert found[::50] == [brute_force(documents, query, 3) for query in queries[::50]]
        assert sum(map(len, found)) == sum(len(index.query(query)) for query in queries)


def test_a_fingerprint_of_many_documents_is_read_only_as_far_as_asked(index: HSimIndex) -> None:
    ids = [f"copy {number:05d}" for number in range(5_000)]
    index.add_many([7] * len(ids), ids)
    assert [match.doc_id for match in index.query(7, limit=3)] == ids[:3]
    assert [match.doc_id for match in index.query_many([6], limit=2, exclude=[ids[0]])[0]] == ids[1:3]
    assert len(index.query(7)) == len(ids)


def test_describe_tells_how_the_index_was_made(index: HSimIndex) -> None:
    index.add_many([1, 1, 2], ["a", "b", "c"])
    facts = index.describe()
    assert facts["documents"] == 3
    assert facts["drawer_rows"] == 8
    assert (facts["max_distance"], facts["distance"]) == (3, 6)
    assert facts["format"] == {"version": 3, "rows": "tall"}
    assert facts["layout"] == index.layout.to_json()


@thorough
def test_of_an_id_that_occurs_twice_in_a_large_call_the_last_counts(url: str) -> None:
    count = INSERT_DOCUMENTS + 1
    doc_ids = ["twice", *map(str, range(count - 2)), "twice"]
    with HSimIndex.create(url, layout="4") as index:
        assert index.add_many(list(range(count)), doc_ids, first_seen=7) == count - 1
        assert index.add_many(list(range(count)), doc_ids, first_seen=8) == 0
        assert index.get("twice") == Document("twice", count - 1, 7)
