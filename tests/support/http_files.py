"""An HTTP server for a folder's files, with or without byte ranges, that can cut a connection in the middle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


@dataclass
class FileServer:
    folder: Path
    has_ranges: bool = True
    cut_at: int | None = None  # the connection is closed before this byte of a file is sent
    url: str = ""
    ranges: list[tuple[int, int]] = field(default_factory=list)  # the requested ranges, half-open


def _handler(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(is_head=True)

        def do_GET(self) -> None:
            self._answer(is_head=False)

        def _answer(self, *, is_head: bool) -> None:
            path = server.folder / self.path.partition("?")[0].lstrip("/")
            if path.is_dir():
                data, kind = "".join(f'<a href="{one.name}">x</a>' for one in path.iterdir()).encode(), "text/html"
            elif path.exists():
                data, kind = path.read_bytes(), "application/octet-stream"
            else:
                self.send_error(404)
                return
            asked = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if server.has_ranges else None
            start, end = (int(asked[1]), min(int(asked[2]) + 1, len(data))) if asked else (0, len(data))
            self.send_response(206 if asked else 200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(end - start))
            if asked:
                server.ranges.append((start, end))
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
            if path.is_file():
                self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
            self.end_headers()
            is_probe = end - start == 1
            if not is_head:
                stop = end if server.cut_at is None or is_probe else min(end, max(start, server.cut_at))
                try:
                    self.wfile.write(data[start:stop])
                except OSError:
                    return  # the client has enough
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def serving_files(folder: Path, *, has_ranges: bool = True) -> Iterator[FileServer]:
    files = FileServer(folder, has_ranges)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(files))
    server.daemon_threads = True
    files.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
