"""Commands on documents with several fields and on supplied features; profiles with other parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hsimhash.fingerprint import Profile, format_fingerprint
from hsimhash.index import HSimIndex
from tests.support.command_line import lines_of, run

BODY = (
    "The tide table in the harbour office is printed twice a year, and nobody trusts it before the second cup of tea."
)
RECORDS: Sequence[dict[str, object]] = (
    {"id": "a", "title": "Tides", "headings": ["Morning", "Evening"], "body": BODY},
    {"id": "b", "body": BODY, "title": None},
    {"id": "c", "text": BODY},
    {"id": "d", "title": 5},
    {"id": "e", "title": "Boats", "body": BODY.replace("tea", "soup")},
)
FIELDS = ("--field", "title=3", "--field", "headings=2", "--field", "body")
PROFILE = "auto-3:fields=title^3+headings^2+body"
FEATURES: Sequence[dict[str, object]] = (
    {"id": "a", "tags": {"cat": 0.9, "dog": 2}},
    {"id": "b", "tags": [["dog", 2], ["cat", 0.9], ["sea", 0]]},
    {"id": "c", "tags": "cat"},
    {"id": "d"},
    {"id": "e", "tags": {"cat": -1}},
    {"id": "f", "tags": []},
)


def written(path: Path, records: Sequence[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def expected() -> dict[str, int]:
    profile = Profile.named(PROFILE)
    documents = {
        "a": {"title": "Tides", "headings": "Morning\nEvening", "body": BODY},
        "b": {"body": BODY},
        "e": {"title": "Boats", "body": BODY.replace("tea", "soup")},
    }
    return {doc_id: profile.fingerprint(profile.document(fields)) for doc_id, fields in documents.items()}


def test_an_index_keeps_the_weights_of_fields(tmp_path: Path) -> None:
    url, path = f"lmdb://{tmp_path / 'index'}", written(tmp_path / "in.jsonl", RECORDS)
    result = run("ingest", path, "--store", url, *FIELDS)
    assert result.exit_code == 7
    rejects = Path(json.loads(result.stdout)["rejects"])
    assert [(reject["line"], reject["reason"]) for reject in lines_of(rejects.read_text())] == [
        (3, 'no field "title" or "headings" or "body"'),
        (4, '"title" must be a string, got a number'),
    ]
    with HSimIndex.open(url) as index:
        assert index.profile == Profile.named(PROFILE)
        assert {document.doc_id: document.fingerprint for document in index.documents()} == expected()
    again = run("ingest", path, "--store", url)  # the index has stored its fields
    assert json.loads(again.stdout)["repeated"]
    other = run("ingest", path, "--store", url, "--field", "title=4", "--field", "body")
    assert other.exit_code == 5
    assert "fields=title^3+headings^2+body, not auto-3:fields=title^4+body; omit the profile" in other.stderr
    asked = run("query", "-", "--store", url, given=json.dumps(RECORDS[1]))
    assert lines_of(asked.stdout)[0]["fingerprint"] == format_fingerprint(expected()["b"])


def test_the_other_commands_read_the_same_fields(tmp_path: Path) -> None:
    path = written(tmp_path / "in.jsonl", RECORDS)
    made = run("fingerprint", "-", *FIELDS, given=Path(path).read_text())
    assert {line["id"]: int(line["fingerprint"], 16) for line in lines_of(made.stdout)} == expected()
    out = str(tmp_path / "out")
    assert json.loads(run("dedup", path, "--out", out, *FIELDS).stdout)["documents"] == 3
    kept = run("apply", path, "--from", out)
    assert {line["id"] for line in lines_of(kept.stdout)} <= expected().keys()
    assert "left out 2 invalid records" in kept.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--field", "title=x"), "invalid field 'title^x': expected fields such as title^3+body"),
        (("--field", "a=1", "--field", "a=2"), "field a is given twice"),
        (("--field", "title", "--profile", "jieba-topn-1"), "tfidf-float does not support fields"),
        (("--features-field", "tags", "--profile", "auto-2"), "profile auto-2 is for texts: --features-field needs"),
        (("--profile", "words-1:tie=two"), "tie 'two' is unknown; did you mean one?"),
        (("--profile", "1e0n-1"), "did you mean 1e0ng-1?"),
    ],
)
def test_what_is_wrong_is_refused(options: Sequence[str], message: str) -> None:
    result = run("fingerprint", "-", *options, given="")
    assert result.exit_code == 2
    assert message in result.stderr


def test_features_are_read_from_their_field(tmp_path: Path) -> None:
    url, path = f"lmdb://{tmp_path / 'index'}", written(tmp_path / "in.jsonl", FEATURES)
    result = run("ingest", path, "--store", url, "--features-field", "tags")
    summary = json.loads(result.stdout)
    assert (result.exit_code, summary["added"], summary["short"], summary["rejected"]) == (7, 2, 1, 3)
    reasons = [reject["reason"] for reject in lines_of(Path(summary["rejects"]).read_text())]
    assert reasons[0].startswith('"tags": invalid features: expected an object')
    assert reasons[1] == 'no field "tags"'
    assert "invalid weight -1 of feature 'cat'" in reasons[2]
    fingerprint = Profile.named("features-1").fingerprint_features({"cat": 0.9, "dog": 2})
    with HSimIndex.open(url) as index:
        assert {document.fingerprint for document in index.documents()} == {fingerprint}
    found = run("query", "-", "--store", url, "--text-field", "tags", given=json.dumps(FEATURES[0]))
    assert [match["id"] for match in lines_of(found.stdout)[0]["matches"]] == ["b"]
    made = run("fingerprint", "-", "--features-field", "tags", given=json.dumps(FEATURES[1]))
    assert lines_of(made.stdout)[0]["fingerprint"] == format_fingerprint(fingerprint)


def test_a_hash_of_32_bits_is_warned_of_when_it_is_chosen(tmp_path: Path) -> None:
    assert "crc32c has 32 bits" in run("fingerprint", BODY, "--profile", "clickhouse-1").stderr
    url = f"lmdb://{tmp_path / 'index'}"
    assert "crc32c has 32 bits" in run("create-table", "--store", url, "--profile", "clickhouse-1").stderr
    assert run("describe", "--store", url).stderr == ""


def test_other_parts_make_a_profile_that_the_index_keeps(tmp_path: Path) -> None:
    url, name = f"lmdb://{tmp_path / 'index'}", "words-1:n=3,hash=fnv-1a-64,tie=one"
    assert run("create-table", "--store", url, "--profile", "words-1:tie=one,hash=fnv-1a-64,n=3").exit_code == 0
    with HSimIndex.open(url, profile=name) as index:
        assert index.profile == Profile.named(name)


def test_fields_go_with_lists_of_ones_own(tmp_path: Path) -> None:
    pages, stops = written(tmp_path / "pages.jsonl", RECORDS[:2]), tmp_path / "stops.txt"
    stops.write_text("cup\n")
    store = f"lmdb://{tmp_path / 'index'}"
    named = Profile.named(f"{PROFILE},stops={stops}")
    assert run("ingest", pages, "--store", store, "--profile", f"auto-3:stops={stops}", *FIELDS).exit_code == 0
    with HSimIndex.open(store) as index:
        assert (index.profile, index.count()) == (named, 2)


def test_inputs_are_looked_at_with_the_fields_of_the_index(tmp_path: Path) -> None:
    url, records = f"lmdb://{tmp_path / 'index'}", [one for one in RECORDS if "body" in one]
    assert run("ingest", written(tmp_path / "in.jsonl", records), "--store", url, *FIELDS).exit_code == 0
    more = written(tmp_path / "more.jsonl", [{**one, "id": f"{one['id']}2"} for one in records])
    assert run("dedup", more, "--out", str(tmp_path / "out"), "--against", url).exit_code == 0
    assert run("ingest", more, "--store", url).exit_code == 0
