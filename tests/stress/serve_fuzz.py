"""Fuzzed requests to `hsimhash serve`: `python -m tests.stress.serve_fuzz [--requests 10000]`.

Requests that are wrong in a known way must get 4xx: bodies with a missing, wrong, too long or unknown part, and wrong
methods, paths, types and tokens. Valid requests with bytes changed at random may get 200 or 4xx; bytes that are not
HTTP may get 400 or a closed connection. No request may get 5xx or cause a traceback. Valid requests in between and
afterwards must be answered.
"""

from __future__ import annotations

import json
import random
import socket
import sys
from collections import Counter
from collections.abc import Iterator

from tests.support.command_line import PATIENCE_S, make_index
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.serve_process import JSON, LINES, Caller, Serving, served

REQUESTS, SEED = 10_000, 24
PATHS = ("/query", "/claim", "/add", "/remove", "/fingerprint")
RIGHT = {"fingerprint": "00000000ffffffff", "id": "fuzz"}
ODD: tuple[object, ...] = (
    *(None, True, -1, 0, 1e308, 2**70, [], {}, [[[]]]),
    *("", "x" * 5_000, "\x00", "\ud800", "é" * 16, "\uff10" * 16),
)
BAD_JSON = (b"", b"null", b"[]", b"7", b"[" * 100_000, b"\xff\xfe{}", b'{"id": NaN}')


def bad_body(rng: random.Random) -> tuple[str, bytes]:
    """Return a path and a body that the call at that path must refuse."""
    path = rng.choice(PATHS)
    record: dict[str, object] = {"id": "x"} if path == "/remove" else dict(RIGHT)
    kind = rng.randrange(5)
    if kind == 0:
        record[rng.choice(["unknown", "ID", "distance", "é"])] = rng.choice(ODD)
    elif kind == 1:
        record["id"] = rng.choice([True, -1, 2**70, "", "x" * 5_000, "\x00", "\ud800", [], {}])
    elif kind == 2:
        path, record["fingerprint"] = "/query", rng.choice([one for one in ODD if one is not None])
    elif kind == 3:
        return path, json.dumps(record).encode()[: -rng.randrange(1, 10)]
    else:
        return path, rng.choice([*BAD_JSON, rng.randbytes(50)])
    return path, json.dumps(record).encode()


def changed(rng: random.Random) -> tuple[str, bytes]:
    """Return a path and a valid body with bytes changed at random."""
    body = bytearray(json.dumps(RIGHT | {"id": "fuzz"}).encode())
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(body))
        if rng.random() < 0.5:
            body[place] = rng.randrange(256)
        else:
            body[place:place] = rng.randbytes(rng.randrange(1, 4))
    return rng.choice(PATHS), bytes(body)


def raw(rng: random.Random, port: int) -> int:
    """Send bytes that are not HTTP, or a broken request; return the status, or 400 if the connection was closed."""
    head = b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    sent = rng.choice(
        [
            rng.randbytes(200) + b"\r\n\r\n",
            head + b"Content-Length: -5\r\n\r\n",
            head + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n{}",
            head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
            head + b"\x00: \xff\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            head + b"Content-Length: 2\r\n\r\n[]",
        ]
    )
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        try:
            answer = connection.recv(65_536)
        except ConnectionResetError:
            answer = b""
    return int(answer.split()[1]) if answer else 400


def wrong(rng: random.Random, caller: Caller) -> int:
    """Send a request that does not match any call; return the status."""
    body = json.dumps(RIGHT).encode()
    kind = rng.randrange(3)
    if kind == 0:
        return caller.send(rng.choice(["PUT", "DELETE", "PATCH", "OPTIONS"]), rng.choice(PATHS), body, JSON)[0]
    if kind == 1:
        paths = ["/", "/query/", "/QUERY", "/../query", "/%00", "/query%2f", "//query", "/" + "a" * 3_000, "/metric"]
        return caller.send("PUT", rng.choice(paths), body, JSON)[0]
    return caller.send("POST", rng.choice(PATHS), body, rng.choice(["", "text/plain", "image/png", "application"]))[0]


def check(serving: Serving, requests: int) -> Iterator[Outcome]:
    """Send that many requests; yield the outcomes."""
    rng, caller = random.Random(SEED), serving.caller()
    known: Counter[int] = Counter()
    others: Counter[int] = Counter()
    unanswered = 0
    for number in range(requests):
        kind = number % 5
        if kind < 2:
            path, body = bad_body(rng)
            known[caller.send("POST", path, body, JSON)[0]] += 1
        elif kind == 2:
            known[wrong(rng, caller)] += 1
        elif kind == 3:
            path, body = changed(rng)
            others[caller.send("POST", path, body, rng.choice([JSON, LINES]))[0]] += 1
        else:
            others[raw(rng, serving.port)] += 1
        unanswered += number % 100 == 0 and caller.call("/query", RIGHT)[0] != 200
    shown = f"of {requests:,} requests"
    yield Outcome(all(400 <= code < 500 for code in known), f"{shown} all wrong ones are refused: {dict(known)}")
    yield Outcome(all(code == 200 or 400 <= code < 500 for code in others), f"{shown} none failed: {dict(others)}")
    yield Outcome(unanswered == 0, "right queries in between are answered")
    yield Outcome(caller.call("/readyz")[0] == 200, "it is ready afterwards")


def main() -> int:
    given = options(__doc__ or "", requests=(REQUESTS, "how many"))
    print_conditions("fuzzed requests", packages=("starlette", "uvicorn"), requests=given.requests, seed=SEED)
    with scratch_folder(given.scratch) as folder, served(make_index(folder)) as serving:
        code = print_outcomes(check(serving, given.requests))
        is_stopped = serving.stop() == 0
        told = serving.told.decode()
    return code | print_outcomes(
        [Outcome(is_stopped, "it stops as asked"), Outcome("Traceback" not in told, f"no traceback: {told[-2_000:]}")]
    )


if __name__ == "__main__":
    sys.exit(main())
