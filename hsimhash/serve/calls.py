"""Run a call on the bodies in a request, and return the answers in order. A batch has one body per line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, ValidationError

from hsimhash.cover import check_distance
from hsimhash.fingerprint import TOO_SHORT, Signature, format_fingerprint
from hsimhash.fingerprint.stream import signed_texts
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions
from hsimhash.inputs.records import check_values, content_of
from hsimhash.serve import models
from hsimhash.store.base import Matches

Json = dict[str, object]
# Maximum size of the parsed values in a body. More would block other requests for over 50 ms.
_VALUES_BYTES = 4 << 20
SHORTEN = "for a longer text, send the fingerprint that 'hsimhash fingerprint --signature' prints"
_QUICK_MATCHES = 100  # maximum number of matches to find and send without delaying other calls
_TOO_SHORT = "the text is too short: the profile finds nothing to fingerprint"


class CheckedBody(NamedTuple):
    """A valid body, and its signature: None if it does not have one, or if its text is too short."""

    body: Any  # an instance of its call's model
    signature: Signature | None


class PostCall(NamedTuple):
    """An API call: name, purpose, example body, request and response models, and function."""

    name: str
    summary: str
    example: Json
    body: type[BaseModel]
    answer: type[BaseModel]
    make: Callable[[HSimIndex, Sequence[CheckedBody], float], list[Json]]
    takes_short: bool = True  # whether a text without a fingerprint gets an answer instead of an error


class Bodies:
    """The checked lines of a call; `answers` runs the call on them.

    Args:
        index: Index to use.
        call: Call to run.
        lines: Lines of JSON with their numbers.
        timeout_s: Time limit for queries, in seconds.
        most_bytes: Maximum length of a line; longer lines are rejected.
    """

    def __init__(
        self,
        index: HSimIndex,
        call: PostCall,
        lines: Sequence[tuple[int, bytes]],
        timeout_s: float,
        most_bytes: int,
    ) -> None:
        self._index, self._call, self._timeout_s = index, call, timeout_s
        self._numbers = [number for number, _ in lines]
        self._bodies: dict[int, BaseModel] = {}
        self._texts: dict[int, str] = {}
        self._refused: dict[int, Json] = {}
        self.is_unfit = False  # whether a valid body was rejected because its text does not have a fingerprint
        for number, line in lines:
            try:
                if len(line) > most_bytes:
                    raise ValueError(f"line too long: expected at most {most_bytes:,} bytes of JSON; {SHORTEN}")
                check_values(line, _VALUES_BYTES)
                self._take(number, call.body.model_validate_json(line))
            except ValidationError as error:
                self._refuse(number, models.refusal_of(error, call.body))
            except ValueError as error:
                self._refuse(number, str(error))

    def _take(self, number: int, body: BaseModel) -> None:
        if isinstance(body, models.QueryBody) and body.max_distance is not None:
            check_distance(body.max_distance, self._index.layout)
        if isinstance(body, models.FingerprintBody) or (isinstance(body, models.SignedBody) and body.text is not None):
            options = InputOptions().for_profile(self._index.profile)
            is_whole = isinstance(body.text, dict) and options.fields
            record = body.text if is_whole else {options.text_field: body.text}
            self._texts[number] = content_of(cast(Json, record), options)
        self._bodies[number] = body

    def _refuse(self, number: int, why: str, *, is_unfit: bool = False) -> None:
        self.is_unfit |= is_unfit
        self._refused[number] = {"line": number, "error": why}

    def quick_answer(self) -> Json | None:
        """Return the answer to a single body if it is quick to compute, or None if the call should run in a thread."""
        if not self._bodies:
            return self.answers()[0]
        (body,) = self._bodies.values()
        if self._texts or not self._index.backend.is_embedded or not isinstance(body, models.QueryBody):
            return None
        if (body.max_distance or 0) > self._index.distance:
            return None
        most = _QUICK_MATCHES if body.limit is None else body.limit
        if most > _QUICK_MATCHES:
            return None
        asked = body.model_copy(update={"limit": most + (body.limit is None)})
        (answer,) = self._call.make(self._index, [CheckedBody(asked, asked.signature)], self._timeout_s)
        return answer if len(cast(list[object], answer["matches"])) <= most else None

    def answers(self) -> list[Json]:
        """Return an answer for each line, in order: the fields of its model, or `line` and `error`."""
        made = self._made()
        asked = {
            number: CheckedBody(body, made.get(number, getattr(body, "signature", None)))
            for number, body in self._bodies.items()
        }
        for number in [number for number in made if made[number] is None and not self._call.takes_short]:
            del asked[number]
            self._refuse(number, _TOO_SHORT, is_unfit=True)
        answers = self._call.make(self._index, [*asked.values()], self._timeout_s) if asked else []
        by_number = {**dict(zip(asked, answers, strict=True)), **self._refused}
        return [by_number[number] for number in self._numbers]

    def _made(self) -> dict[int, Signature | None]:
        """Return the signatures of texts, or None for texts that are too short."""
        if not self._texts:
            return {}
        signatures, refused = signed_texts(self._index.profile, [*self._texts.values()])
        numbers = [*self._texts]
        for at, why in refused.items():
            self._refuse(numbers[at], why, is_unfit=True)
            del self._bodies[numbers[at]]
        rows = zip(numbers, signatures, signatures.kinds.tolist(), strict=True)
        made = {number: None if kind == TOO_SHORT else signature for number, signature, kind in rows}
        return {number: signature for number, signature in made.items() if number in self._bodies}


def _named(asked: CheckedBody, **answer: object) -> Json:
    """Return an answer with the fingerprint of a request and its id, if it has one."""
    name = {} if asked.body.id is None else {"id": asked.body.id}
    return {**name, "fingerprint": asked.signature and format_fingerprint(asked.signature.fingerprint), **answer}


def _query(index: HSimIndex, asked: Sequence[CheckedBody], timeout_s: float) -> list[Json]:
    groups: dict[tuple[int | None, ...], list[int]] = {}
    for place, (body, signature) in enumerate(asked):
        if signature is not None:
            groups.setdefault((body.max_distance, body.max_sketch, body.limit, body.partial), []).append(place)
    found: dict[int, Matches] = {}
    for places in groups.values():
        found.update(zip(places, _matches(index, [asked[place] for place in places], timeout_s), strict=True))
    return [_answered(one, found.get(place, Matches())) for place, one in enumerate(asked)]


def _answered(asked: CheckedBody, found: Matches) -> Json:
    missing = {"missing": found.missing} if asked.body.partial else {}
    return _named(asked, **missing, matches=[match.to_json() for match in found])


def _matches(index: HSimIndex, asked: Sequence[CheckedBody], timeout_s: float) -> list[Matches]:
    """Return the matches of queries with the same rule."""
    one = asked[0].body
    names = ("max_distance", "max_sketch", "limit", "partial")
    rule: dict[str, Any] = {name: getattr(one, name) for name in names}
    if len(asked) == 1:
        return [index.query(asked[0].signature or 0, exclude=one.id, timeout=timeout_s, **rule)]
    signatures = [signature for _, signature in asked if signature is not None]
    return index.query_many(signatures, exclude=[body.id for body, _ in asked], timeout=timeout_s, **rule)


def _add(index: HSimIndex, asked: Sequence[CheckedBody], _: float) -> list[Json]:
    (signatures, doc_ids), times = _documents(asked), _times(asked)
    if len(asked) == 1:
        index.add(signatures[0], doc_ids[0], first_seen=times[0])  # shares its commit with concurrent calls
    else:
        index.add_many(signatures, doc_ids, first_seen=times)
    return [_named(one) for one in asked]


def _claim(index: HSimIndex, asked: Sequence[CheckedBody], _: float) -> list[Json]:
    claims = index.claim_many(*_documents(asked), first_seen=_times(asked))
    return [
        _named(one, is_new=claim.is_new, match=claim.match and claim.match.to_json())
        for one, claim in zip(asked, claims, strict=True)
    ]


def _documents(asked: Sequence[CheckedBody]) -> tuple[list[Signature], list[str]]:
    return [signature for _, signature in asked if signature is not None], [body.id for body, _ in asked]


def _times(asked: Sequence[CheckedBody]) -> list[int]:
    now = time.time_ns() // 1_000_000
    return [now if body.first_seen is None else body.first_seen for body, _ in asked]


def _remove(index: HSimIndex, asked: Sequence[CheckedBody], _: float) -> list[Json]:
    doc_ids = [body.id for body, _ in asked]
    stored = index.get_many(doc_ids)
    index.remove(doc_ids)
    return [{"id": doc_id, "was_stored": one is not None} for doc_id, one in zip(doc_ids, stored, strict=True)]


def _fingerprint(_: HSimIndex, asked: Sequence[CheckedBody], __: float) -> list[Json]:
    return [_named(one, **(one.signature.to_json() if one.signature else {})) for one in asked]


_EXAMPLE: Json = {"id": "doc-1", "text": "A text of a few words or more"}
QUERY = PostCall(
    "query",
    "Find the documents near a text or a fingerprint.",
    {"text": _EXAMPLE["text"]},
    models.QueryBody,
    models.QueryAnswer,
    _query,
)
CALLS = (
    QUERY,
    PostCall(
        "claim",
        "Add a document, or return the match if a near-duplicate is already stored. Of concurrent claims, one wins.",
        _EXAMPLE,
        models.DocumentBody,
        models.ClaimAnswer,
        _claim,
        takes_short=False,
    ),
    PostCall(
        "add",
        "Add or replace a document. It is on disk when the response arrives.",
        _EXAMPLE,
        models.DocumentBody,
        models.DocumentAnswer,
        _add,
        takes_short=False,
    ),
    PostCall("remove", "Remove a document.", {"id": "doc-1"}, models.RemoveBody, models.RemoveAnswer, _remove),
    PostCall(
        "fingerprint",
        "Compute the fingerprint of a text.",
        {"text": _EXAMPLE["text"]},
        models.FingerprintBody,
        models.FingerprintAnswer,
        _fingerprint,
    ),
)
