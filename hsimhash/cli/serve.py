"""`hsimhash serve`: serve an index over HTTP, from several processes that share a port."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from hsimhash import metrics
from hsimhash.cli.console import log_to_stderr, say
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.options import open_index, refuse_memory, with_settings
from hsimhash.errors import HsimhashError
from hsimhash.extras import install_command
from hsimhash.processes import end_with_parent
from hsimhash.settings import Settings, address_in, host_names, web_origins

try:
    from starlette.types import ASGIApp
    from uvicorn.config import Config
    from uvicorn.supervisors.multiprocess import Multiprocess

    from hsimhash.serve.app import SERVE_LIMITS, ServeLimits, make_app
    from hsimhash.serve.connections import TimedConnection
except ImportError as missing:
    raise HsimhashError(f"serve needs {missing.name}; install it: {install_command('serve')}") from missing

_TOKEN_CHARS = 4_096  # maximum number of characters to read, because the file may be an endless device
_BACKLOG = 2_048  # maximum number of connections that wait to be accepted
_IDLE_S = 75  # an idle connection is closed after this time; proxies close theirs earlier
_SILENT_S = 60  # a worker that does not answer its parent for this long is killed and restarted
_STARTUP_FAILURE = 3  # exit code of a uvicorn worker that cannot start; uvicorn moved the constant between releases
STOP_S = 3  # grace period for calls in progress; workers then get one more second


@click.command("serve", cls=Command)
@with_settings("store", "listen", "host", "token_file", "allow_origin", "workers", "lock_timeout_s", "slow_query_s")
def serve_command(settings: Settings) -> ExitCode:
    """Answer queries and add documents over HTTP, as JSON, until Ctrl-C or SIGTERM.

    \b
    Example: hsimhash serve --store lmdb://pages
             hsimhash serve --listen 0.0.0.0:8343 --token-file token.txt --store hbase://gw1:9091/pages
             curl -d '{"text": "A text of some length"}' -H 'Content-Type: application/json' localhost:8343/query

    POST /query, /claim, /add, /remove and /fingerprint accept a JSON object with a "fingerprint" (16 hex digits) or a
    "text", and an optional "id". To send many objects, use application/x-ndjson with one object per line; the response
    has one line for each. /claim adds a document unless a near-duplicate is already stored. GET /openapi.json describes
    all endpoints. GET /healthz and /readyz report whether the server is running and can reach its store. GET /metrics
    returns metrics for Prometheus if 'hsimhash[metrics]' is installed.

    Invalid requests get status 4xx. If the store is unreachable or busy, the status is 503 with Retry-After. Every
    acknowledged write is durable. On shutdown, the server first finishes the requests in progress.

    By default, only this machine can connect. To serve other networks, pass a token and put a proxy with TLS in front.
    Without a token, requests must address the server as localhost, by an IP address, or by a name passed with --host.
    This keeps web pages from reaching it through your browser.
    """
    refuse_memory(settings)
    token = _token_in(Path(settings.token_file)) if settings.token_file else None
    if settings.allow_origin and token is None:
        raise click.UsageError(
            "--allow-origin needs --token-file; add it, so that the server accepts only callers with the token"
        )
    limits: ServeLimits = click.get_current_context().obj or SERVE_LIMITS  # a caller of `main` may pass other limits
    open_index(settings).close()  # reports problems once, not in every worker
    with _listening(settings.listen) as listener:
        host, port = listener.getsockname()[:2]
        workers = settings.workers or os.cpu_count() or 1
        verbosity = int(click.get_current_context().find_root().params.get("verbose", 0))
        say(f"serving {settings.store} at http://{f'[{host}]' if ':' in host else host}:{port}, with {workers} workers")
        if token is None and not ip_address(host).is_loopback:
            say("anyone who can reach this address can read and write; pass --token-file to prevent that")
        with _counting() as folder:
            _serve(partial(_app, settings, token, limits, folder, verbosity), limits, listener, workers, folder)
    return ExitCode.DONE


@contextmanager
def _counting() -> Iterator[Path | None]:
    """Yield a folder in which the workers share their metrics, or None if prometheus_client is missing."""
    if find_spec("prometheus_client") is None:
        yield None
        return
    before = os.environ.get(metrics.SHARED)
    with TemporaryDirectory(prefix="hsimhash-metrics-") as folder:
        os.environ[metrics.SHARED] = folder  # prometheus_client reads this variable when a worker imports it
        try:
            yield Path(folder)
        finally:
            os.environ.pop(metrics.SHARED)
            if before is not None:
                os.environ[metrics.SHARED] = before


class _Supervisor(Multiprocess):
    """Restarts workers that die. The requests that they were processing are lost.

    Args:
        config: Configuration of the workers.
        listener: Socket that they share.
        folder: Folder in which they share their metrics, or None.
    """

    def __init__(self, config: Config, listener: socket.socket, folder: Path | None) -> None:
        super().__init__(config, [listener])
        self._folder = folder

    def join_all(self) -> None:
        """Wait for the workers to exit; kill those that are still waiting for their store."""
        deadline = time.monotonic() + STOP_S + 1
        for one in self.processes:
            one.process.join(max(0.0, deadline - time.monotonic()))
            if one.exitcode is None:
                one.process.kill()
                one.process.join()

    def keep_subprocess_alive(self) -> None:
        """Check the workers twice a second."""
        super().keep_subprocess_alive()
        if self._folder is not None:
            metrics.forget_ended(self._folder, [one.pid for one in self.processes if one.pid is not None])


def _token_in(path: Path) -> str:
    """Return the token in a file; raise `HsimhashError` unless it can be sent in a header."""
    with path.open(encoding="utf-8") as file:
        token = file.read(_TOKEN_CHARS).strip()
    if not re.fullmatch("[!-~]+", token):
        raise HsimhashError(f"{path} does not contain a token: expected one word of visible ASCII characters")
    return token


def _listening(address: str) -> socket.socket:
    host, port = address_in(address)
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_BACKLOG
        )
    except OSError as error:
        raise HsimhashError(f"cannot listen on {address}: {error.strerror}; choose another address") from error


def _serve(
    app: Callable[[], ASGIApp], limits: ServeLimits, listener: socket.socket, workers: int, folder: Path | None
) -> None:
    """Serve until a signal arrives; restart workers that die."""
    config = Config(
        app,
        factory=True,
        workers=workers,
        loop="uvloop",
        http=partial(TimedConnection, limits),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # invalid HTTP gets a response and is not logged
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=STOP_S,
        timeout_worker_healthcheck=_SILENT_S,
    )
    supervisor = _Supervisor(config, listener, folder)
    supervisor.run()
    if any(one.exitcode == _STARTUP_FAILURE for one in supervisor.processes):
        raise HsimhashError("a worker failed to start; see its error above")


def _app(settings: Settings, token: str | None, limits: ServeLimits, folder: Path | None, verbosity: int) -> ASGIApp:
    """Return the application for this worker process."""
    end_with_parent()
    log_to_stderr(verbosity)
    if folder is not None:
        metrics.enable(folder)
    hosts = (address_in(settings.listen)[0], *(host_names(settings.host) if settings.host else ()))
    origins = web_origins(settings.allow_origin) if settings.allow_origin else ()
    return make_app(partial(open_index, settings), token, limits, hosts, origins)
