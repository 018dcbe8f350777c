"""The description of the calls in OpenAPI 3.1, made of the models that check them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from hsimhash.serve.calls import PostCall
from hsimhash.serve.models import ErrorAnswer

JSON = "application/json"
LINES = "application/x-ndjson"
METRICS = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_DESCRIPTION = (
    f"Each call takes one body as {JSON}, or a batch as {LINES}: a body a line. A batch is answered with a line for "
    "each that is not blank, in the same order; a refused one has an answer with line and error, the others count."
)
_REFUSALS = {
    "400": "The body is refused.",
    "401": "The bearer token is missing or wrong.",
    "413": "The body is too long, or has too many lines.",
    "415": f"The content type is neither {JSON} nor {LINES}.",
    "500": "A fault; the server's log has more.",
    "503": "The store is away or busy; send the same again after Retry-After seconds.",
}


def openapi(calls: Sequence[PostCall], *, has_token: bool, has_metrics: bool) -> dict[str, object]:
    """Return the description of calls."""
    models: list[type[BaseModel]] = [ErrorAnswer, *(model for call in calls for model in (call.body, call.answer))]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    components: dict[str, object] = {"schemas": schemas["$defs"]}
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
