"""Generate the OpenAPI 3.1 description of the calls from the models that validate them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from hsimhash.cover import most_distance
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.vote import SCALE
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions
from hsimhash.serve.calls import PostCall
from hsimhash.serve.models import ErrorAnswer

JSON = "application/json"
LINES = "application/x-ndjson"
METRICS = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_DESCRIPTION = (
    f"Each call takes one body as {JSON}, or a batch as {LINES}: a body a line. A batch is answered with a line for "
    "each that is not blank, in the same order; a refused one has an answer with line and error, the others count. An "
    "answer is complete, unless a query allows partial ones. One with many matches is sent in parts as its caller "
    "takes them; limit bounds it."
)
_REFUSALS = {
    "400": "The body is refused.",
    "401": "The bearer token is missing or wrong.",
    "403": "A page of another site sent it, or it names the server by an unknown Host, or the index is read-only.",
    "408": "The body did not arrive in time.",
    "409": "The body is right, but its text has no fingerprint by the index's profile: it is too short, for example.",
    "413": "The body is too long, or has too many lines.",
    "415": f"The content type is neither {JSON} nor {LINES}, or the body is compressed.",
    "500": "A fault; the server's log has more.",
    "503": "The store is away or busy; send the same again after Retry-After seconds.",
}


def openapi(calls: Sequence[PostCall], index: HSimIndex, *, has_token: bool, has_metrics: bool) -> dict[str, object]:
    """Return the description of the calls; some fields depend on the profile and layout of the index."""
    models: list[type[BaseModel]] = [ErrorAnswer, *(model for call in calls for model in (call.body, call.answer))]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    components: dict[str, object] = {"schemas": _for_index(schemas["$defs"], index)}
    page: dict[str, object] = {
        "openapi": "3.1.0",
        "info": {"title": "hsimhash", "version": version("hsimhash"), "description": _DESCRIPTION},
        "paths": {
            **{f"/{call.name}": {"post": _post(call)} for call in calls},
            **_looks(),
            **(_metrics() if has_metrics else {}),
        },
        "components": components,
    }
    if has_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        page["security"] = [{"token": []}]
    return page


def _for_index(schemas: dict[str, Any], index: HSimIndex) -> dict[str, Any]:
    text = _text_of(index.profile)
    for schema in schemas.values():
        properties = schema.get("properties", {})
        if "text" in properties:
            described = {"description": properties["text"]["description"]}
            is_needed = "text" in schema.get("required", ())
            properties["text"] = {**(text if is_needed else {"anyOf": [text, {"type": "null"}]}), **described}
        if "max_distance" in properties:
            properties["max_distance"]["anyOf"][0]["maximum"] = most_distance(index.layout)
    del schemas["JsonValue"]
    return schemas


def _text_of(profile: Profile) -> dict[str, object]:
    """Return the schema of the texts that a profile takes."""
    options = InputOptions().for_profile(profile)
    text: dict[str, object] = {"type": "string"}
    if options.has_features:
        weight = {"anyOf": [{"const": 0}, {"type": "number", "minimum": 1 / SCALE}]}
        name = {"anyOf": [text, {"type": "integer", "minimum": 0, "exclusiveMaximum": 1 << 64}]}
        pair = {"type": "array", "prefixItems": [name, weight], "minItems": 2, "maxItems": 2}
        names = {"type": "array", "items": {"anyOf": [name, pair]}}
        return {"anyOf": [{"type": "object", "additionalProperties": weight}, names]}
    if not options.fields:
        return text
    field = {"anyOf": [text, {"type": "array", "items": text}, {"type": "null"}]}
    fields: dict[str, object] = {
        "type": "object",
        "properties": dict.fromkeys(options.fields, field),
        "anyOf": [{"required": [name]} for name in options.fields],
    }
    return {"anyOf": [text, fields]} if options.text_field in options.fields else fields


def _post(call: PostCall) -> dict[str, object]:
    return {
        "operationId": call.name,
        "summary": call.summary,
        "requestBody": {"required": True, "content": {kind: _schema(call.body.__name__) for kind in (JSON, LINES)}},
        "responses": {
            "200": {
                "description": "Done.",
                "content": {
                    JSON: _schema(call.answer.__name__),
                    LINES: _schema(call.answer.__name__, ErrorAnswer.__name__),
                },
            },
            **{code: _refusal(text) for code, text in _REFUSALS.items()},
        },
    }


def _looks() -> dict[str, object]:
    """Return what needs no token: whether the server runs, and whether its store answers."""
    done: dict[str, object] = {"200": {"description": "Yes."}}
    alive = {"operationId": "healthz", "summary": "Whether the server runs.", "security": [], "responses": done}
    ready = {
        "operationId": "readyz",
        "summary": "Whether the store answers.",
        "security": [],
        "responses": {**done, "503": _refusal(_REFUSALS["503"])},
    }
    return {"/healthz": {"get": alive}, "/readyz": {"get": ready}}


def _metrics() -> dict[str, object]:
    """Return what shows the numbers to watch; it needs no token either."""
    done = {"200": {"description": "All numbers.", "content": {METRICS_TYPE: {"schema": {"type": "string"}}}}}
    shown = {"operationId": "metrics", "summary": "Numbers for Prometheus.", "security": [], "responses": done}
    return {METRICS: {"get": shown}}


def _refusal(text: str) -> dict[str, object]:
    return {"description": text, "content": {JSON: _schema(ErrorAnswer.__name__)}}


def _schema(*names: str) -> dict[str, object]:
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}
