"""The page at `/`: shows the server and its endpoints, with a form to try a query. It does not use scripts.

The page is static except for the result of a query. Without the token, it shows nothing about the index.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.responses import Response

from hsimhash.dedup.report import page_environment
from hsimhash.serve.calls import Json, PostCall
from hsimhash.serve.openapi import JSON, METRICS

FORM = "application/x-www-form-urlencoded"
MATCHES_SHOWN = 20
_FORM_FIELDS = 8  # maximum number of fields; more are rejected
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")
_GET = {
    "/healthz": "Check that the server is running.",
    "/readyz": "Check that the store responds.",
    METRICS: "Get metrics for Prometheus.",
}
_OPENAPI = "/openapi.json"


class IndexFacts(NamedTuple):
    """The facts about the index that the page shows."""

    url: str
    profile: str
    distance: int
    documents: str


@dataclass(frozen=True, slots=True)
class QueryForm:
    """The contents of the form."""

    text: str = ""
    fingerprint: str = ""
    token: str = ""

    @classmethod
    def parse(cls, body: bytes) -> QueryForm:
        """Parse a form that a browser sent; raise `ValueError` if it is invalid."""
        try:
            fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FORM_FIELDS)
        except UnicodeDecodeError as error:
            raise ValueError("invalid form: expected UTF-8") from error
        known = {name: fields.get(name, [""])[0] for name in ("text", "fingerprint", "token")}
        return cls(known["text"].replace("\r\n", "\n"), known["fingerprint"].strip(), known["token"])

    @property
    def query(self) -> Json:
        """The body of a query; raise `ValueError` if nothing, or both fields, were entered."""
        if bool(self.text.strip()) == bool(self.fingerprint):
            raise ValueError("enter either a text or a fingerprint")
        asked: Json = {"fingerprint": self.fingerprint} if self.fingerprint else {"text": self.text}
        return {**asked, "limit": MATCHES_SHOWN}


class FormAnswer(NamedTuple):
    """The result of a form: the answer to the query, or an error."""

    answer: Mapping[str, object] | None = None
    error: str = ""


class FrontPage:
    """Renders the page at `/`."""

    def __init__(self, calls: Sequence[PostCall], *, has_token: bool, has_metrics: bool) -> None:
        environment = page_environment("serve")
        self._template = environment.get_template("page.html.jinja")
        self._style = environment.get_template("page.css.jinja").render()
        self._calls, self._has_token = calls, has_token
        self._has_metrics = has_metrics
        digest = b64encode(hashlib.sha256(self._style.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'"
        self._headers = {
            "Content-Security-Policy": f"{policy}; base-uri 'none'; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Referrer-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
        }

    def response(
        self,
        base: str,
        facts: IndexFacts | None,
        form: QueryForm | None = None,
        found: FormAnswer | None = None,
        status: int = 200,
    ) -> Response:
        """Return the page.

        Args:
            base: URL at which the caller reached the server, for the examples: `http://localhost:8343`.
            facts: Facts about the index; None if the caller did not send the token.
            form: Contents of the form, which the page shows again, without the token.
            found: Result of the form.
            status: Status of the response.
        """
        page = self._template.render(
            style=self._style,
            has_token=self._has_token,
            facts=facts,
            form=form or QueryForm(),
            found=found or FormAnswer(),
            most=MATCHES_SHOWN,
            calls=[(f"/{call.name}", call.summary, self._example(base, call)) for call in self._calls],
            looks=list(self._looks(base)),
        )
        return Response(page.encode("utf-8", "replace"), status, self._headers, "text/html")

    @property
    def _token(self) -> str:
        return '-H "Authorization: Bearer $TOKEN" ' if self._has_token else ""

    def _looks(self, base: str) -> Iterator[tuple[str, str, str]]:
        """Yield path, summary and example of each endpoint without a body."""
        for path, summary in _GET.items():
            if path != METRICS or self._has_metrics:
                note = " The token is not required." if self._has_token else ""
                yield path, summary + note, f"curl {shlex.quote(base + path)}"
        summary = "Get the OpenAPI description of these endpoints."
        yield _OPENAPI, summary, f"curl {self._token}{shlex.quote(base + _OPENAPI)}"

    def _example(self, base: str, call: PostCall) -> str:
        body = shlex.quote(json.dumps(call.example))
        return f"curl {self._token}-H 'Content-Type: {JSON}' -d {body} {shlex.quote(f'{base}/{call.name}')}"


def base_of(scheme: str, host: str) -> str:
    """Return the base URL of the server; for an invalid host, the URL of the default address."""
    return f"{scheme}://{host}" if _HOST.fullmatch(host) else "http://127.0.0.1:8343"
