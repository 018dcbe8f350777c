"""Models of requests and responses. They validate requests, and describe both in `/openapi.json`."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from hsimhash.fingerprint import Signature
from hsimhash.fingerprint.signature import MAX_SKETCH, SKETCH_BITS
from hsimhash.rowkey import DOC_ID_BYTES, KEY_FLAG, RECORD_FLAG, check_doc_id


def _doc_id(text: str) -> str:
    check_doc_id(text)
    return text


def _whole(number: object) -> object:
    """Return 1.0 as 1: JSON Schema, and languages with a single number type, treat both as integers."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


# In some languages, a pattern's `$` also matches before a final line feed. So the schema also specifies the length.
Digits = Annotated[
    str,
    Field(
        pattern="^[0-9a-fA-F]{16}$",
        description="An unsigned 64-bit number, 16 hex digits.",
        json_schema_extra={"minLength": 16, "maxLength": 16},
    ),
]
DocId = Annotated[
    str,
    AfterValidator(_doc_id),
    Field(
        description=f"1 to {DOC_ID_BYTES:,} bytes of UTF-8 without control characters.",
        json_schema_extra={
            "minLength": 1,
            "maxLength": DOC_ID_BYTES,
            "not": {"pattern": "[\\u0000-\\u001f\\u007f-\\u009f]"},
        },
    ),
]
_WHOLE = BeforeValidator(_whole)
Milliseconds = Annotated[int, Field(ge=0, lt=1 << 63, description="Milliseconds since 1970."), _WHOLE]
# The check of `SignedBody`, as JSON Schema.
_ONE_OF_BOTH: list[JsonValue] = [
    {"required": ["fingerprint"], "properties": {"fingerprint": {"type": "string"}, "text": {"type": "null"}}},
    {
        "required": ["text"],
        "properties": {
            "text": {"not": {"type": "null"}},
            "fingerprint": {"type": "null"},
            "sketch": {"type": "null"},
            "key": {"type": "null"},
        },
    },
]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class RemoveBody(_Body):
    """A document to remove."""

    id: DocId


class FingerprintBody(_Body):
    """A text to fingerprint."""

    id: DocId | None = None
    text: JsonValue = Field(description="A string, or the fields or features of a document if the profile uses those.")


class SignedBody(_Body):
    """A fingerprint, optionally with its sketch and key, or a text."""

    model_config = ConfigDict(json_schema_extra={"oneOf": _ONE_OF_BOTH})

    fingerprint: Digits | None = None
    sketch: Digits | None = None
    key: Digits | None = None
    text: JsonValue = Field(None, description=FingerprintBody.model_fields["text"].description)

    @model_validator(mode="after")
    def _one_of_both(self) -> SignedBody:
        if (self.fingerprint is None) == (self.text is None):
            raise ValueError('expected either "fingerprint" or "text"')
        if self.fingerprint is None and not (self.sketch is None and self.key is None):
            raise ValueError('"sketch" and "key" require "fingerprint"')
        return self

    @property
    def signature(self) -> Signature | None:
        """The signature in the request, or None for a text."""
        if self.fingerprint is None:
            return None
        return Signature(int(self.fingerprint, 16), int(self.sketch or "0", 16), int(self.key or "0", 16))


class QueryBody(SignedBody):
    """A query. The document with this `id` is left out of the matches."""

    id: DocId | None = None
    max_distance: Annotated[int, Field(ge=0, le=64), _WHOLE] | None = Field(
        None, description="Maximum distance in bits. Default: the distance of the index."
    )
    max_sketch: Annotated[int, Field(ge=0, le=SKETCH_BITS), _WHOLE] | None = Field(
        MAX_SKETCH, description="Maximum number of differing bits in the sketches; null: do not compare sketches."
    )
    limit: Annotated[int, Field(ge=1, lt=1 << 63), _WHOLE] | None = Field(
        None, description="Return only this many of the nearest matches."
    )
    partial: bool = Field(
        False,
        description="If parts of the index do not answer in time, return the matches from the other parts instead of "
        "status 503.",
    )


class DocumentBody(SignedBody):
    """A document to store."""

    id: DocId
    first_seen: Milliseconds | None = Field(None, description="Time in ms since 1970. Default: now.")


class MatchAnswer(BaseModel):
    """A document near the query."""

    distance: int
    id: str
    fingerprint: Digits
    first_seen: Milliseconds
    similarity: float | None
    found_by: Literal["distance", "key"]


class QueryAnswer(BaseModel):
    """The matches, nearest first. The fingerprint is null if the text is too short for one."""

    id: str | None = None
    fingerprint: Digits | None
    missing: list[int] | None = Field(
        None,
        description=f"Only with partial: the drawers that did not answer. {KEY_FLAG} is the key drawer; {RECORD_FLAG} "
        "means that it is unknown whether the index was replaced. If the list is empty, the answer is complete; "
        "otherwise, a document is left out only if all drawers in which it would be found are missing.",
    )
    matches: list[MatchAnswer]


class DocumentAnswer(BaseModel):
    """A document. After an add, it is stored durably."""

    id: str
    fingerprint: Digits


class ClaimAnswer(DocumentAnswer):
    """Whether the document was new and is now stored. If not, the match that was already stored."""

    is_new: bool
    match: MatchAnswer | None


class RemoveAnswer(BaseModel):
    """A removed document, and whether it existed before the call."""

    id: str
    was_stored: bool


class FingerprintAnswer(BaseModel):
    """The fingerprint of a text, null if the text is too short; sketch and key if the profile makes them."""

    id: str | None = None
    fingerprint: Digits | None
    sketch: Digits | None = None
    key: Digits | None = None


class ErrorAnswer(BaseModel):
    """The error and its remedy. In a batch, also the line number, starting at 1."""

    error: str
    line: int | None = None


# What was expected, by pydantic's error type.
_EXPECTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "an integer below 2**63",
    "string_pattern_mismatch": "16 hex digits",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
}
_GOT_CHARS = 80
_MOST_PROBLEMS = 100  # maximum to list; listing all unknown fields could block other requests for half a second


def refusal_of(error: ValidationError, body: type[BaseModel]) -> str:
    """Return why a body is rejected, in one line."""
    if error.error_count() > _MOST_PROBLEMS:
        return f"more than {_MOST_PROBLEMS} unknown fields: expected only {', '.join(body.model_fields)}"
    problem = error.errors(include_url=False)[0]
    kind, context = problem["type"], problem.get("ctx", {})
    place = ".".join(str(part) for part in problem["loc"])
    name = json.dumps(place, ensure_ascii=False)
    if kind == "extra_forbidden":
        return f"unknown field {_got(place)}: expected only {', '.join(body.model_fields)}"
    if kind == "missing":
        return f"missing field {name}"
    if kind == "json_invalid":
        return f"invalid JSON: {context['error']}"
    if kind == "model_type":
        return f"expected a JSON object, got {_got(problem['input'])}"
    if kind in _EXPECTED:
        return f"{name} must be {_EXPECTED[kind].format(**context)}, got {_got(problem['input'])}"
    reason = str(context.get("error") or problem["msg"])
    return f"{name}: {reason}" if place else reason


def _got(value: object) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= _GOT_CHARS else f"{shown[:_GOT_CHARS]}…"
