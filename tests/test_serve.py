"""`hsimhash serve`: a real server in its own process, called over HTTP."""

from __future__ import annotations

import hashlib
import re
import shlex
import signal
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.long_texts import MOST_RUN
from hsimhash.index import HSimIndex
from hsimhash.serve.app import ServeLimits
from hsimhash.serve.calls import CALLS, PostCall
from hsimhash.serve.page import FORM
from tests.stress import serve_fuzz
from tests.support.command_line import ids_in, make_index, run
from tests.support.effort import thorough
from tests.support.processes import wait_until
from tests.support.programs import faults
from tests.support.serve_process import LINES, Caller, Serving, served, served_here
from tests.test_dedup_report import Page

pytestmark = pytest.mark.together

TEXT = "a text with enough words in it to be fingerprinted, and then a few more of them for good measure"
NEAR = "0000000000000003"
HOSTILE_ID = "<script>alert('1')</script>\"&amp;</td><img src=//x onerror=y>"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server of an index with a, b, 中文 and far; its tests do not add documents near those."""
    url = make_index(tmp_path_factory.mktemp("serve"), first_seen=1_700_000_000_000)
    with served(url) as running:
        yield running


@pytest.fixture
def caller(serving: Serving) -> Caller:
    return serving.caller()


def test_a_query_is_answered_with_what_the_command_prints(caller: Caller) -> None:
    status, answer = caller.call("/query", {"fingerprint": NEAR})
    assert status == 200
    assert answer["fingerprint"] == NEAR
    assert [match["id"] for match in answer["matches"]] == ["b", "a", "中文"]
    assert answer["matches"][0] == {
        "distance": 0,
        "id": "b",
        "fingerprint": NEAR,
        "first_seen": 1_700_000_000_000,
        "similarity": None,
        "found_by": "distance",
    }


def test_a_query_leaves_out_its_own_document_and_keeps_to_distance_and_limit(caller: Caller) -> None:
    def ids(**rule: object) -> list[str]:
        return [match["id"] for match in caller.call("/query", {"fingerprint": NEAR, **rule})[1]["matches"]]

    assert ids(id="b") == ["a", "中文"]
    assert ids(limit=1) == ["b"]
    assert ids(max_distance=0) == ["b"]
    assert ids(max_distance=16, max_sketch=None) == ["b", "a", "中文"]


def test_a_query_that_may_be_partial_says_what_is_missing(caller: Caller) -> None:
    whole = caller.call("/query", {"fingerprint": NEAR})[1]
    status, found = caller.call("/query", {"fingerprint": NEAR, "partial": True})
    assert status == 200
    assert found == {**whole, "missing": []}


def test_a_document_is_added_found_by_its_text_changed_and_removed(caller: Caller) -> None:
    fingerprint = f"{Profile.named('auto-1').fingerprint(TEXT):016x}"
    assert caller.call("/add", {"id": "t", "text": TEXT, "first_seen": 5}) == (
        200,
        {"id": "t", "fingerprint": fingerprint},
    )
    (match,) = caller.call("/query", {"text": TEXT})[1]["matches"]
    assert (match["id"], match["first_seen"]) == ("t", 5)
    assert caller.call("/add", {"id": "t", "fingerprint": "00000000ffffffff"})[0] == 200
    assert caller.call("/query", {"text": TEXT})[1]["matches"] == []
    assert caller.call("/remove", {"id": "t"}) == (200, {"id": "t", "was_stored": True})
    assert caller.call("/remove", {"id": "t"}) == (200, {"id": "t", "was_stored": False})


def test_of_near_documents_that_claim_the_first_is_new_and_the_other_is_told_which(caller: Caller) -> None:
    first, second = {"id": "first", "text": TEXT}, {"id": "second", "text": TEXT}
    status, answer = caller.call("/claim", first)
    assert (status, answer["is_new"], answer["match"]) == (200, True, None)
    answers = caller.batch("/claim", [second, first, {"id": "short", "text": ""}])
    assert [one.get("is_new") for one in answers] == [False, True, None]
    assert answers[0]["match"]["id"] == "first"
    assert caller.call("/remove", {"id": "second"})[1]["was_stored"] is False
    assert caller.call("/remove", {"id": "first"})[1]["was_stored"] is True


def test_a_fingerprint_is_the_profiles_and_null_where_the_text_is_too_short(caller: Caller) -> None:
    fingerprint = f"{Profile.named('auto-1').fingerprint(TEXT):016x}"
    assert caller.call("/fingerprint", {"text": TEXT, "id": "x"}) == (200, {"id": "x", "fingerprint": fingerprint})
    assert caller.call("/fingerprint", {"text": ""}) == (200, {"fingerprint": None})
    assert caller.call("/query", {"text": ""}) == (200, {"fingerprint": None, "matches": []})
    status, answer = caller.call("/add", {"text": "", "id": "short"})
    assert (status, "too short" in answer["error"]) == (409, True)


def test_a_batch_is_answered_line_by_line_and_a_bad_line_refused_alone(caller: Caller) -> None:
    sent = [{"fingerprint": NEAR, "limit": 1}, {"fingerprint": "x"}, {"fingerprint": NEAR, "id": "b"}, {"text": ""}]
    answers = caller.batch("/query", sent)
    found = [[match["id"] for match in answer.get("matches", ())] for answer in answers]
    assert found == [["b"], [], ["a", "中文"], []]
    assert answers[1]["line"] == 2
    assert "fingerprint" in answers[1]["error"]
    added = caller.batch("/add", [{"id": "p", "text": TEXT}, {"id": "", "text": TEXT}, {"id": "q", "text": ""}])
    assert [answer.get("id") for answer in added] == ["p", None, None]
    assert [answer["line"] for answer in added[1:]] == [2, 3]
    removed = caller.batch("/remove", [{"id": "p"}, {"id": "q"}])
    assert removed == [{"id": "p", "was_stored": True}, {"id": "q", "was_stored": False}]
    assert caller.send("POST", "/query", b"\n\n", LINES) == (200, b"")


def test_a_text_that_cannot_be_fingerprinted_is_refused_alone(tmp_path: Path) -> None:
    texts = [{"id": "p", "text": TEXT}, {"id": "q", "text": "网" * (MOST_RUN + 1)}]
    with served_here(make_index(tmp_path), ServeLimits(value_bytes=8 << 20)) as port:
        caller = Caller(port)
        answers = caller.batch("/add", texts)
        caller.connection.close()
    assert answers[0]["id"] == "p"
    assert (answers[1]["line"], "cannot split" in answers[1]["error"]) == (2, True)


def test_a_line_that_is_too_long_is_refused_alone(caller: Caller) -> None:
    answers = caller.batch("/add", [{"id": "p", "text": TEXT}, {"id": "q", "text": "a" * ServeLimits().value_bytes}])
    assert answers[0]["id"] == "p"
    assert (answers[1]["line"], "at most 2,097,152 bytes" in answers[1]["error"]) == (2, True)


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/query", {}, '"fingerprint" or "text"'),
        ("/query", {"fingerprint": NEAR, "text": TEXT}, '"fingerprint" or "text"'),
        ("/query", {"text": TEXT, "sketch": NEAR}, '"sketch" and "key"'),
        ("/query", {"fingerprint": 3}, "fingerprint"),
        ("/query", {"fingerprint": NEAR, "distance": 3}, "distance"),
        ("/query", {"fingerprint": NEAR, "max_distance": 17}, "max_distance must be 0 to 16 with layout 10, got 17"),
        ("/query", {"fingerprint": NEAR, "limit": 0}, "limit"),
        ("/query", {"text": ["no", "text"]}, "text"),
        ("/add", {"fingerprint": NEAR}, "id"),
        ("/add", {"fingerprint": NEAR, "id": "a\n"}, "control characters"),
        ("/add", {"fingerprint": NEAR, "id": "x", "first_seen": -1}, "first_seen"),
        ("/add", {"fingerprint": NEAR}, 'missing field "id"'),
        ("/remove", {"id": 7}, '"id" must be a string, got 7'),
        ("/remove", [], "expected a JSON object, got []"),
        ("/query", {"fingerprint": "x" * 200}, f'"fingerprint" must be 16 hex digits, got "{"x" * 79}…'),
        ("/query", {"fingerprint": NEAR, "limit": 1 << 63}, f'"limit" must be less than {1 << 63}, got {1 << 63}'),
        ("/query", {"fingerprint": NEAR, "max_sketch": 65}, '"max_sketch" must be at most 64, got 65'),
        ("/query", {"fingerprint": NEAR, "max_sketch": 1.5}, '"max_sketch" must be an integer, got 1.5'),
    ],
)
def test_a_wrong_body_is_refused_and_the_message_names_what_is_wrong(
    caller: Caller, path: str, body: object, named: str
) -> None:
    status, answer = caller.call(path, body)
    assert status == 400
    assert named in answer["error"]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_an_unknown_field_is_named_with_those_that_are_allowed(caller: Caller, call: PostCall) -> None:
    status, answer = caller.call(f"/{call.name}", {"txt": TEXT, **call.example})
    assert status == 400
    assert answer["error"] == f'unknown field "txt": expected only {", ".join(call.body.model_fields)}'


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_no_wrong_value_is_answered_in_the_words_of_the_library(caller: Caller, call: PostCall) -> None:
    for name in call.body.model_fields:
        for value in (None, True, -1, 1.5, 1 << 70, "", "x", [], {}):
            answer = caller.call(f"/{call.name}", {**call.example, name: value})[1]
            assert not re.search("Input|Extra|Field req|Value error|valid", str(answer.get("error", "")))
    for doc_id in ("x", "doc-1"):
        caller.call("/remove", {"id": doc_id})


def test_other_refusals_have_their_status_and_json(caller: Caller) -> None:
    assert caller.call("/nothing")[0] == 404
    assert caller.call("/query")[0] == 405
    status, body = caller.send("POST", "/query", b"{", "application/json")
    assert (status, b"invalid JSON: " in body, b"line 1" in body) == (400, True, True)
    assert caller.send("POST", "/remove", b'{"id": "a"}', "text/plain")[0] == 415  # any page may send this type


def test_it_says_whether_it_lives_and_whether_its_store_answers(caller: Caller) -> None:
    assert caller.call("/healthz") == (200, {"is_alive": True})
    assert caller.call("/readyz") == (200, {"is_ready": True})


def test_a_batch_of_too_many_lines_is_refused(caller: Caller) -> None:
    status, body = caller.send("POST", "/query", b"{}\n" * (ServeLimits().batch_lines + 1), LINES)
    assert (status, b"at most 10,000" in body) == (413, True)


@thorough
def test_without_its_token_only_health_and_numbers_are_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-word\n")
    with served(make_index(tmp_path), "--token-file", str(token)) as serving:
        for headers in ({}, {"Authorization": "Bearer secret"}, {"Authorization": "Basic secret-word"}):
            caller = serving.caller(**headers)
            assert caller.call("/query", {"fingerprint": NEAR})[0] == 401
            assert caller.answered["WWW-Authenticate"] == "Bearer"
            assert caller.call("/openapi.json")[0] == 401
            assert caller.call("/readyz")[0] == 200
            assert caller.send("GET", "/metrics", None, "")[0] == 200
        for scheme in ("Bearer", "bearer", "BEARER"):
            caller = serving.caller(Authorization=f"{scheme} secret-word", Host="any.example")
            assert caller.call("/query", {"fingerprint": NEAR})[0] == 200
        for host in ("evil.example'; rm -rf ~ #", "a b", "<b>"):  # does not appear in the examples
            caller = serving.caller(Authorization="Bearer secret-word", Host=host)
            assert "http://127.0.0.1:8343/query" in front(caller)[1].text
        assert serving.stop() == 0
        assert b"secret" not in serving.told


@thorough
def test_what_is_busy_is_said_with_503_and_when_to_come_again(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    with served(f"{url}?lock_timeout=100ms") as serving, HSimIndex.open(url) as index, index.store.writing():
        caller = serving.caller()
        status, answer = caller.call("/add", {"id": "x", "fingerprint": NEAR})
        assert status == 503
        assert caller.answered["Retry-After"] == "1"
        assert "is writing" in answer["error"]
        assert caller.call("/query", {"fingerprint": NEAR})[0] == 200


def test_the_description_is_of_the_calls_and_its_references_lead_somewhere(caller: Caller) -> None:
    page = caller.call("/openapi.json")[1]
    assert {f"/{call.name}" for call in CALLS} | {"/healthz", "/readyz", "/metrics"} == set(page["paths"])
    refs = re.findall(r"#/components/schemas/(\w+)", str(page))
    assert set(refs) == set(page["components"]["schemas"])


def front(caller: Caller, **fields: str) -> tuple[int, Page]:
    """Return the status and the page, or those of the response to a form with these fields."""
    if fields:
        status, body = caller.send("POST", "/", urlencode(fields), FORM)
    else:
        status, body = caller.send("GET", "/", None, "")
    assert caller.answered["Content-Type"] == "text/html; charset=utf-8"
    return status, Page(body.decode())


def test_the_page_says_what_the_server_is_and_has_an_example_of_each_endpoint(caller: Caller) -> None:
    status, page = front(caller)
    assert status == 200
    assert re.search(r"Documents \d+ in lmdb://", page.text)
    assert "Profile auto-1" in page.text
    assert "Distance 3 bits" in page.text
    paths = {f"/{call.name}" for call in CALLS} | {"/healthz", "/readyz", "/metrics", "/openapi.json"}
    assert {command.rpartition("/")[2] for command in page.commands} == {path[1:] for path in paths}
    described = caller.call("/openapi.json")[1]["paths"]
    assert set(described) == paths - {"/openapi.json"}  # the JSON calls, not the pages


def test_every_example_of_the_page_runs(caller: Caller) -> None:
    for command in front(caller)[1].commands:
        _, *words, url = shlex.split(command)
        assert url.startswith(f"http://127.0.0.1:{caller.connection.port}/")
        path, body = urlsplit(url).path, words[words.index("-d") + 1] if "-d" in words else None
        status, _ = caller.send("POST" if body else "GET", path, body, "application/json")
        assert status == 200, command
    assert caller.call("/remove", {"id": "doc-1"})[0] == 200


def test_the_page_may_run_and_fetch_nothing(caller: Caller) -> None:
    _, page = front(caller, text=TEXT)
    policy = caller.answered["Content-Security-Policy"]
    style = "".join(page.all_of("style"))
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ") == [
        *("default-src 'none'", f"style-src 'sha256-{digest}'", "form-action 'self'"),
        *("base-uri 'none'", "frame-ancestors 'none'"),
    ]
    assert caller.answered["Cache-Control"] == "no-store"
    assert not {"script", "link", "img"} & {tag for tag, _ in page.tags}
    assert not {"style", "src", "onclick"} & {name for _, fields in page.tags for name in fields}


def test_the_form_finds_what_a_query_does(caller: Caller) -> None:
    status, page = front(caller, fingerprint=NEAR, text="")
    assert status == 200
    assert f"3 near-duplicates of fingerprint {NEAR} " in page.text
    assert page.all_of("bdi") == ["b", "a", "中文"]
    unknown = "what no other test has put into the index that they share, in enough words"
    assert "No near-duplicates of fingerprint" in front(caller, text=unknown)[1].text
    assert front(caller, text=f"\n<b>{TEXT}")[1].all_of("textarea") == [f"\n\n<b>{TEXT}"]
    assert "too short for a fingerprint" in front(caller, text="?")[1].text


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"text": " "}, "enter either a text or a fingerprint"),
        ({"text": TEXT, "fingerprint": NEAR}, "enter either a text or a fingerprint"),
        ({"fingerprint": "<i>"}, '"fingerprint" must be 16 hex digits, got "<i>"'),
    ],
)
def test_a_wrong_form_is_answered_with_the_page_and_what_is_wrong(
    caller: Caller, fields: dict[str, str], named: str
) -> None:
    status, page = front(caller, **fields)
    assert status == 400
    assert named in page.text


@thorough
def test_an_id_is_shown_as_text_and_a_link_only_if_it_is_a_url(tmp_path: Path) -> None:
    ids = {HOSTILE_ID: 1, "https://example.org/?a=1&b='2'": 1, "javascript:alert(1)": 1}
    with served(make_index(tmp_path, ids)) as serving:
        _, page = front(serving.caller(), fingerprint="0000000000000001")
    assert sorted(page.all_of("bdi")) == sorted(ids)
    assert [link["href"] for link in page.links] == ["https://example.org/?a=1&b='2'"]


def test_a_form_from_another_site_or_of_another_kind_is_refused(caller: Caller, serving: Serving) -> None:
    other = serving.caller(Origin="https://example.org")
    assert other.send("POST", "/", f"fingerprint={NEAR}", FORM)[0] == 403
    own = serving.caller(Origin=f"http://127.0.0.1:{serving.port}")
    assert own.send("POST", "/", f"fingerprint={NEAR}", FORM)[0] == 200
    assert caller.send("POST", "/", f"fingerprint={NEAR}", "text/plain")[0] == 415
    assert caller.send("POST", "/", b"text=\xff", FORM)[0] == 400
    assert caller.send("POST", "/", b"text=%ff", FORM)[0] == 400
    assert caller.send("POST", "/", b"&".join([b"a=1"] * 100), FORM)[0] == 400


def test_docs_lead_to_the_page_and_other_paths_stay_json(caller: Caller) -> None:
    assert caller.send("GET", "/docs", None, "") == (307, b"")
    assert caller.answered["Location"] == "/"
    status, answer = caller.call("/nothing")
    assert (status, answer) == (404, {"error": "not found: GET /nothing; GET / lists the endpoints"})


@thorough
def test_without_the_token_the_page_shows_nothing_of_the_index(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-word\n")
    with served(make_index(tmp_path), "--token-file", str(token)) as serving:
        for fields in ({}, {"fingerprint": NEAR}, {"fingerprint": NEAR, "token": "secret"}):
            status, page = front(serving.caller(), **fields)
            assert status == (401 if fields else 200)
            assert "This server needs a token" in page.text
            assert not any(one in page.text for one in ("lmdb://", "auto-1", "3 bits", "中文"))
        status, page = front(serving.caller(), fingerprint=NEAR, token="secret-word")
        assert status == 200
        assert page.all_of("bdi") == ["b", "a", "中文"]
        assert "Documents 4 in lmdb://" in page.text
        assert "secret-word" not in str(page.tags) + page.text
        assert "lmdb://" in front(serving.caller(Authorization="Bearer secret-word"))[1].text
        assert serving.stop() == 0
        assert b"secret" not in serving.told


def test_answers_are_as_described(caller: Caller) -> None:
    models = {call.name: call.answer for call in CALLS}
    bodies = {
        "query": {"fingerprint": NEAR, "id": "b"},
        "claim": {"fingerprint": "00000000ffffffff", "id": "d"},
        "add": {"fingerprint": "00000000ffffffff", "id": "d"},
        "remove": {"id": "d"},
        "fingerprint": {"text": TEXT},
    }
    for name, body in bodies.items():
        status, answer = caller.call(f"/{name}", body)
        assert status == 200
        assert models[name].model_validate(answer, strict=True).model_dump(exclude_unset=True) == answer


def test_fuzzed_requests_are_refused_never_a_fault(serving: Serving) -> None:
    assert faults(serve_fuzz.check(serving, 400)) == []


@thorough
def test_a_stop_under_load_loses_no_acknowledged_add(tmp_path: Path) -> None:
    url = make_index(tmp_path, {})
    acknowledged: list[str] = []

    def add(serving: Serving, number: int) -> None:
        caller = serving.caller()
        try:
            for count in range(100_000):
                doc_id = f"{number}-{count}"
                if caller.call("/add", {"id": doc_id, "fingerprint": f"{number << 32 | count:016x}"})[0] == 200:
                    acknowledged.append(doc_id)
        except OSError:
            return  # the server has stopped

    with served(url, "--workers", "2") as serving:
        threads = [threading.Thread(target=add, args=(serving, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(acknowledged) >= 100)
        assert serving.stop() == 0
        for thread in threads:
            thread.join()
    assert b"Traceback" not in serving.told, serving.told.decode()
    assert set(acknowledged) <= set(ids_in(url))


@thorough
def test_a_killed_server_leaves_no_worker(tmp_path: Path) -> None:
    with served(make_index(tmp_path), "--workers", "2") as serving:
        port = serving.port
        assert serving.stop(signal.SIGKILL) == -signal.SIGKILL

        def is_free() -> bool:
            with socket.socket() as tried:
                return tried.connect_ex(("127.0.0.1", port)) != 0

        wait_until(is_free)


def test_what_keeps_it_from_serving_is_said_with_the_usual_exit_codes(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    assert run("serve", "--store", f"lmdb://{tmp_path}/none").exit_code == 5
    assert run("serve", "--store", "memory://x").exit_code == 2
    assert run("serve", "--store", url, "--listen", "nonsense").exit_code == 2
    empty = tmp_path / "empty"
    empty.write_text("two words")
    refused = run("serve", "--store", url, "--token-file", str(empty))
    assert (refused.exit_code, "does not contain a token" in refused.stderr) == (1, True)
    refused = run("serve", "--store", url, "--token-file", "/dev/zero")
    assert (refused.exit_code, "does not contain a token" in refused.stderr) == (1, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = run("serve", "--store", url, "--listen", address)
    assert (refused.exit_code, "cannot listen on" in refused.stderr) == (1, True)
