"""Generate the OpenAPI 3.1 description of the calls from the models that validate them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from hsimhash import __version__
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
    f"Each call accepts one body as {JSON}, or a batch as {LINES} with one body per line. The response to a batch has "
    "one line for each line that is not blank, in the same order. A rejected line gets an answer with line and error, "
    "and the other lines are processed. Answers are complete unless a query allows partial answers. Long lists of "
    "matches are sent in parts, as fast as the client reads them; use limit to shorten them."
)
_REFUSALS = {
    "400": "The body is invalid.",
    "401": "The bearer token is missing or wrong.",
    "403": "A page on another site sent the request, its Host header is unknown, or the index is read-only.",
    "408": "The body did not arrive in time.",
    "409": "The body is valid, but its text does not have a fingerprint, for example because it is too short.",
    "413": "The body is too long, or has too many lines.",
    "415": f"The content type is neither {JSON} nor {LINES}, or the body is compressed.",
    "500": "An internal error; the server's log has details.",
    "503": "The store is unreachable or busy; send the same request again after Retry-After seconds.",
}


def openapi(calls: Sequence[PostCall], index: HSimIndex, *, has_token: bool, has_metrics: bool) -> dict[str, object]:
    """Return the description of the calls. Some fields depend on the profile and layout of the index."""
    models: list[type[BaseModel]] = [ErrorAnswer, *(model for call in calls for model in (call.body, call.answer))]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    components: dict[str, object] = {"schemas": _for_index(schemas["$defs"], index)}
    page: dict[str, object] = {
        "openapi": "3.1.0",
        "info": {"title": "hsimhash", "version": __version__, "description": _DESCRIPTION},
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
    """Return the schema of the texts that a profile accepts."""
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
    """Return the endpoints for health checks, which do not need a token."""
    done: dict[str, object] = {"200": {"description": "Yes."}}
    alive = {
        "operationId": "healthz",
        "summary": "Check that the server is running.",
        "security": [],
        "responses": done,
    }
    ready = {
        "operationId": "readyz",
        "summary": "Check that the store responds.",
        "security": [],
        "responses": {**done, "503": _refusal(_REFUSALS["503"])},
    }
    return {"/healthz": {"get": alive}, "/readyz": {"get": ready}}


def _metrics() -> dict[str, object]:
    """Return the endpoint for metrics, which does not need a token either."""
    done = {"200": {"description": "All metrics.", "content": {METRICS_TYPE: {"schema": {"type": "string"}}}}}
    shown = {"operationId": "metrics", "summary": "Metrics for Prometheus.", "security": [], "responses": done}
    return {METRICS: {"get": shown}}


def _refusal(text: str) -> dict[str, object]:
    return {"description": text, "content": {JSON: _schema(ErrorAnswer.__name__)}}


def _schema(*names: str) -> dict[str, object]:
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}
