"""`hsimhash serve` with requests from pages of other sites, and with excessive requests."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsimhash.serve.app import ServeLimits
from hsimhash.serve.cross_site import why_refused
from hsimhash.serve.page import FORM
from tests.support.command_line import make_index, run
from tests.support.effort import thorough
from tests.support.local_server import LocalServer
from tests.support.local_server import serving as local_serving
from tests.support.serve_process import Serving, served
from tests.support.tcp_proxy import Proxy

pytestmark = pytest.mark.together
NEAR = "0000000000000003"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAGE = b"""<!doctype html><body><script>
const ask = (path, more) => fetch(path, more).then(r => r.status, e => "failed");
const json = {"Content-Type": "application/json"};
Promise.all([
  ask("/query", {method: "POST", headers: json, body: '{"fingerprint": "0000000000000003"}'}),
  ask("/remove", {method: "POST", headers: json, body: '{"id": "b"}'}),
  ask("/"),
  ask("/openapi.json"),
]).then(all => document.body.append("asked: " + all.join(" ")));
</script></body>"""


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with served(make_index(tmp_path_factory.mktemp("guard")), "--host", "search,Search.example") as running:
        yield running


KNOWN = ("localhost", "LOCALHOST:8343", "a.localhost", "127.0.0.1:1", "10.1.2.3", "[::1]:8343", "")
TOLD = ("search:8343", "search.example", "SEARCH.example.:80")
UNKNOWN = ("evil.example", "evil.example:8343", "localhost.evil.example", "127.0.0.1.evil.example", "127.1x")
ODD = ("search.evil.example", "[::1", "a:b:c", "evil.example:8343:1", "@localhost")


@pytest.mark.parametrize(
    ("host", "is_known"), [*((host, True) for host in KNOWN + TOLD), *((host, False) for host in UNKNOWN + ODD)]
)
def test_without_a_token_only_known_names_lead_here(host: str, is_known: bool, serving: Serving) -> None:
    caller = serving.caller(Host=host)
    status, answer = caller.call("/query", {"fingerprint": NEAR})
    assert status == (200 if is_known else 403)
    assert is_known or answer["error"].startswith(f"unknown host name {host!r}")
    assert caller.call("/healthz")[0] == 200
    assert caller.call("/readyz")[0] == 200


@pytest.mark.parametrize(
    ("origin", "host", "site", "is_own"),
    [
        ("http://localhost:8343", "localhost:8343", None, True),
        ("http://search", "search:80", None, True),
        ("https://search.example", "search.example", None, True),  # behind a proxy with TLS
        ("https://search.example", "127.0.0.1:8343", "same-origin", True),  # behind a proxy that changes the name
        ("http://evil.example", "localhost:8343", None, False),
        ("http://evil.example", "localhost:8343", "cross-site", False),
        ("http://localhost:1", "localhost:8343", "same-site", False),
        ("null", "localhost:8343", None, False),
        ("", "localhost:8343", None, False),
    ],
)
def test_pages_of_other_sites_are_refused_with_and_without_a_token(
    origin: str,
    host: str,
    site: str | None,
    is_own: bool,
) -> None:
    headers = {"host": host, "origin": origin} | ({"sec-fetch-site": site} if site else {})
    for hosts in (("search", "search.example"), None):
        assert (why_refused(headers, hosts) == "") == is_own


@pytest.fixture(scope="module")
def open_to_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with the token `word`, which pages of http://app.example may call."""
    folder = tmp_path_factory.mktemp("origin")
    (folder / "token").write_text("word")
    given = ("--token-file", str(folder / "token"), "--allow-origin", "http://app.example:81,http://app.example")
    with served(make_index(folder), *given) as running:
        yield running


def test_pages_of_an_allowed_origin_may_call_with_the_token(open_to_app: Serving) -> None:
    own, token = "http://app.example", "Bearer word"
    for origin, given, status in ((own, token, 200), (own, "", 401), ("http://evil.example", token, 403)):
        caller = open_to_app.caller(Origin=origin, Authorization=given)
        assert caller.call("/query", {"fingerprint": NEAR})[0] == status
        assert caller.answered.get("Access-Control-Allow-Origin") == (own if origin == own else None)
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    for origin, status in ((own, 200), ("http://evil.example", 400)):
        assert open_to_app.caller(Origin=origin, **asked).send("OPTIONS", "/query", None, "")[0] == status


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--allow-origin", "http://app.example"), "--allow-origin needs --token-file"),
        (("--allow-origin", "*", "--token-file", "token"), "must be origins of web pages"),
        (("--allow-origin", "app.example", "--token-file", "token"), "must be origins of web pages"),
    ],
)
def test_an_origin_that_cannot_be_allowed_is_refused(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    refused = run("serve", "--store", make_index(tmp_path), *options)
    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.stderr


class Rebound(Proxy):
    """Sends its page once, and then acts as the target server, as if its name now led there."""

    def __init__(self, target: int) -> None:
        super().__init__(target, lambda _: 0.0)
        self._is_first = True

    def talk(self, connection: socket.socket) -> None:
        if not self._is_first:
            super().talk(connection)
            return
        self._is_first = False
        connection.recv(1 << 16)
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
        connection.sendall(f"{head}Content-Length: {len(PAGE)}\r\n\r\n".encode() + PAGE)
        connection.close()


@thorough
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize(
    ("name", "statuses"), [("evil.example", "403 403 403 403"), ("search.example", "200 200 200 200")]
)
def test_a_browser_whose_page_has_its_name_lead_here_gets_nothing(name: str, statuses: str, tmp_path: Path) -> None:
    url = make_index(tmp_path)
    with served(url, "--host", "search.example") as serving, local_serving(Rebound(serving.port)) as rebound:
        shown = subprocess.run(
            [
                str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
                f"--host-resolver-rules=MAP {name} 127.0.0.1", "--virtual-time-budget=20000", "--dump-dom",
                f"http://{name}:{rebound.port}/",
            ],
            capture_output=True, text=True, check=False, timeout=120,
        ).stdout  # fmt: skip
        assert f"asked: {statuses}" in shown, shown
        assert serving.caller().call("/query", {"fingerprint": NEAR})[1]["matches"][0]["id"] == (
            "b" if name == "evil.example" else "a"
        )


@thorough
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize(("name", "statuses"), [("app.example", "200 401"), ("evil.example", "failed failed")])
def test_a_browser_lets_pages_of_an_allowed_origin_alone_call(
    name: str, statuses: str, open_to_app: Serving, tmp_path: Path
) -> None:
    with local_serving(Calling(open_to_app.port)) as site:
        shown = subprocess.run(
            [
                str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
                f"--host-resolver-rules=MAP {name}:80 127.0.0.1:{site.port}", "--virtual-time-budget=20000",
                "--dump-dom", f"http://{name}/",
            ],
            capture_output=True, text=True, check=False, timeout=120,
        ).stdout  # fmt: skip
    assert f"asked: {statuses}" in shown, shown


class Calling(LocalServer):
    """Sends a page that calls a server on another port, with its token and without."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self._page = f"""<!doctype html><body><script>
const ask = token => fetch("http://127.0.0.1:{target}/query", {{method: "POST", body: '{{"fingerprint": "{NEAR}"}}',
  headers: {{"Content-Type": "application/json", ...token}}}}).then(r => r.status, e => "failed");
Promise.all([ask({{Authorization: "Bearer word"}}), ask({{}})]).then(
  all => document.body.append("asked: " + all.join(" ")));
</script></body>"""

    def talk(self, connection: socket.socket) -> None:
        with connection:
            connection.recv(1 << 16)
            head = (
                f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {len(self._page)}"
            )
            connection.sendall(f"{head}\r\n\r\n{self._page}".encode())


class SelfSent(LocalServer):
    """Sends a page that submits its own form under a referrer policy, and replies with the form's `Origin`."""

    def __init__(self, policy: str) -> None:
        super().__init__()
        self._policy = policy

    def talk(self, connection: socket.socket) -> None:
        with connection:
            head = connection.recv(1 << 16).decode()
            origin = "".join(line for line in head.splitlines() if line.startswith("Origin:"))
            page = origin or "<form method=post action=/></form><script>document.forms[0].submit()</script>"
            given = f"Content-Type: text/html\r\nReferrer-Policy: {self._policy}\r\nConnection: close"
            connection.sendall(f"HTTP/1.1 200 OK\r\n{given}\r\nContent-Length: {len(page)}\r\n\r\n{page}".encode())


@thorough
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_form_of_the_servers_own_page_is_sent_with_its_origin(serving: Serving, tmp_path: Path) -> None:
    """Under the policy `no-referrer` a browser sends `Origin: null`, which is refused."""
    caller = serving.caller()
    caller.send("GET", "/", None, "")
    with local_serving(SelfSent(caller.answered["Referrer-Policy"])) as server:
        shown = subprocess.run(
            [
                str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
                "--host-resolver-rules=MAP search.example 127.0.0.1", "--virtual-time-budget=20000", "--dump-dom",
                f"http://search.example:{server.port}/",
            ],
            capture_output=True, text=True, check=False, timeout=120,
        ).stdout  # fmt: skip
    assert f"Origin: http://search.example:{server.port}" in shown, shown


# Excessive requests.


def test_many_unknown_fields_are_refused_without_a_list_of_them(serving: Serving) -> None:
    status, answer = serving.caller().call("/remove", {f"field {number}": 1 for number in range(60_000)})
    assert status == 400
    assert answer["error"] == "more than 100 unknown fields: expected only id"


def test_a_form_that_is_too_large_is_refused(serving: Serving) -> None:
    form = "text=" + "a" * ServeLimits().form_bytes
    status, answer = serving.caller().send("POST", "/", form, FORM)
    assert (status, b"at most 262,144 bytes" in answer) == (413, True)


@pytest.mark.parametrize("values", ["[" * 2 + "[]," * 60_000 + "1]]", '{"a":1,' * 100 + "[1]"], ids=["many", "deep"])
def test_a_body_of_nothing_but_values_is_refused(values: str, serving: Serving) -> None:
    status, answer = serving.caller().send("POST", "/query", f'{{"text": {values}}}', "application/json")
    assert status == 400
    assert b"JSON" in answer
