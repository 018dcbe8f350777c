"""`/openapi.json` describes exactly what is accepted: a body is accepted if, and only if, its schema allows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hsimhash.serve.app import ServeLimits
from hsimhash.serve.calls import CALLS
from tests.support.command_line import make_index
from tests.support.effort import tries
from tests.support.serve_process import Caller, served_here

pytestmark = [pytest.mark.together, pytest.mark.every_case]

DIGITS = st.text("0123456789abcdefABCDEF", min_size=16, max_size=16)
WORDS = st.text(max_size=9)
RIGHT = {
    "id": st.text("ab é中", min_size=1, max_size=5),
    **dict.fromkeys(("fingerprint", "sketch", "key"), DIGITS),
    "max_distance": st.integers(0, 16) | st.just(3.0),
    "max_sketch": st.integers(0, 64) | st.none(),
    "partial": st.booleans(),
    **dict.fromkeys(("limit", "first_seen"), st.integers(1, (1 << 63) - 1)),
}
FIELDS = st.dictionaries(st.sampled_from(["title", "body", "x"]), WORDS | st.none() | st.lists(WORDS, max_size=2))
WEIGHTS = st.integers(0, 9) | st.floats(0.01, 9)
NAMES = WORDS | st.integers(0, (1 << 64) - 1)
FEATURES = st.dictionaries(WORDS, WEIGHTS, max_size=3) | st.lists(NAMES | st.tuples(NAMES, WEIGHTS), max_size=3)
TEXTS = {
    "auto-1": WORDS,
    "words-1:fields=title^2+body": FIELDS,
    "words-1:tokens=features,weights=given,normalize=none,min_features=1": FEATURES,
}
# A schema cannot count the bytes of an id, so ids here are short, or have as many characters as bytes.
ODD = (
    st.sampled_from([None, True, [], {}, "", "a\n", "\x80", "x" * 2_048, "x" * 2_049, "0" * 15, "0" * 16, "0" * 17])
    | st.sampled_from([bound + more for bound in (0, 1, 16, 64, 1 << 63, 1 << 64) for more in (-1, 0, 1)])
    | st.sampled_from(["0" * 16 + "\n", -0.0, 1.5, 1e3, 1e300, ["a", [1]], [["a", -1]], {"title": 1}, {"x": "y"}])
    | WORDS
)


@st.composite
def bodies(draw: st.DrawFn, texts: st.SearchStrategy[Any]) -> tuple[str, dict[str, Any]]:
    """Draw a call and a body, mostly with valid fields and values."""
    call = draw(st.sampled_from(CALLS))
    by_name = {name: {**RIGHT, "text": texts}[name] for name in call.body.model_fields}
    chosen = draw(st.sampled_from([{"id", "text"}, {"id", "fingerprint"}, {"text"}, {"fingerprint"}, set(by_name)]))
    chosen = (chosen | draw(st.sets(st.sampled_from([*by_name]), max_size=1))) & by_name.keys()
    body = {name: draw(by_name[name] if draw(st.integers(0, 9)) else ODD) for name in sorted(chosen)}
    more = {} if draw(st.integers(0, 19)) else {"unknown": 1}
    return call.name, json.loads(json.dumps(body | more))


@pytest.fixture(scope="module", params=TEXTS)
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def caller(profile: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    url = make_index(tmp_path_factory.mktemp("serve"), {}, profile=profile)
    with served_here(url, ServeLimits()) as port:
        calling = Caller(port)
        yield calling
        calling.connection.close()


def test_a_body_is_answered_if_and_only_if_it_is_valid(caller: Caller, profile: str) -> None:
    page = caller.call("/openapi.json")[1]
    validators = {
        call.name: Draft202012Validator({"$ref": f"#/components/schemas/{call.body.__name__}", **page})
        for call in CALLS
    }
    answered = {True: 0, False: 0}

    @settings(max_examples=tries(2_000, 300), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(bodies(TEXTS[profile]))
    def compare(given: tuple[str, dict[str, Any]]) -> None:
        name, body = given
        status, answer = caller.call(f"/{name}", body)
        is_valid = validators[name].is_valid(body)
        assert status == (400 if not is_valid else 409 if "too short" in answer.get("error", "") else 200), (
            given,
            answer,
        )
        answered[is_valid] += 1

    compare()
    assert min(answered.values()) > 20, answered


def test_each_example_is_valid(caller: Caller) -> None:
    page = caller.call("/openapi.json")[1]
    assert set(page["paths"]) >= {f"/{call.name}" for call in CALLS}
    Draft202012Validator.check_schema({"$defs": page["components"]["schemas"]})
