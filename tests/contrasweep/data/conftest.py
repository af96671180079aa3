"""A node cache of its own for every test, and a way between us and the S3 server on which faults happen."""

import contextlib
import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from contrasweep.storage import s3 as s3_module


@pytest.fixture(autouse=True)
def node_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "node-cache"
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(folder))
    monkeypatch.delenv("CONTRASWEEP_DATA", raising=False)
    return folder


@dataclass
class Faults:
    """What happens on the way. `plan` gets (method, path, how many such requests came before) and names a fault or
    None: `500`, `503`, `cut` (half a body, then the connection closes), `short` (half a body, called whole),
    `flip` (one byte changed), `slow` (a little at a time), `stall` (an answer after 2 s), `reset` (closed without an
    answer),
    `lost` (done, but the answer is lost)."""

    plan: Callable[[str, str, int], str | None] = lambda method, path, n: None
    endpoint: str = ""
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def on(self, method: str, pattern: str, *faults: str) -> None:
        """The first requests of `method` for a path that matches meet `faults`, one each; `...` as last repeats it."""

        def plan(got: str, path: str, n: int) -> str | None:
            if got != method or not re.search(pattern, path):
                return None
            if faults[-1] == "...":
                return faults[min(n, len(faults) - 2)]
            return faults[n] if n < len(faults) else None

        self.plan = plan

    def next(self, method: str, path: str) -> str | None:
        with self.lock:
            n = self.seen.get((method, path), 0)
            self.seen[method, path] = n + 1
            if fault := self.plan(method, path, n):
                self.done.append(f"{fault} {method} {path}")
            return fault


@pytest.fixture
def faults(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """A proxy in front of the S3 server; this process's S3 requests go through it."""
    found = Faults()
    target = urlsplit(s3.endpoint).netloc

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = found.next(self.command, self.path)
            if fault == "stall":
                time.sleep(2)
            if fault == "reset":
                self.close_connection = True
                return
            if fault in ("500", "503"):
                self._answer(
                    int(fault),
                    [("Content-Type", "application/xml")],
                    f"<Error><Code>{'SlowDown' if fault == '503' else 'InternalError'}</Code></Error>".encode(),
                )
                return
            upstream = http.client.HTTPConnection(target, timeout=30)
            upstream.request(
                self.command, self.path, body, {k: v for k, v in self.headers.items() if k.lower() != "connection"}
            )
            response = upstream.getresponse()
            data = response.read()
            if fault == "lost":
                self.close_connection = True
                return
            headers = [
                (k, v)
                for k, v in response.getheaders()
                if k.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server")
            ]
            length = response.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(response.status, headers, data, fault, length)
            upstream.close()

        def _answer(
            self,
            status: int,
            headers: list[tuple[str, str]],
            data: bytes,
            fault: str | None = None,
            length: str | None = None,
        ) -> None:
            if fault == "short":
                data = data[: len(data) // 2]
            if fault == "flip":
                data = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(data)))
            self.end_headers()
            with contextlib.suppress(OSError):
                if fault == "slow":
                    for start in range(0, len(data), max(1, len(data) // 5)):
                        self.wfile.write(data[start : start + max(1, len(data) // 5)])
                        time.sleep(0.05)
                    return
                self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
            if fault == "cut":
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()  # `shutdown` waits for so long
    found.endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", found.endpoint)
    monkeypatch.setattr(s3_module, "FIRST_WAIT_S", 0.01)
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
