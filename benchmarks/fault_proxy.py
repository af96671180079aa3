"""A way to an HTTP server on which faults happen: for tests of S3, and between a study and its servers."""

import contextlib
import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

ERRORS = {
    "400": "InvalidRequest",
    "500": "InternalError",
    "501": "NotImplemented",
    "503": "SlowDown",
    "403": "AccessDenied",
    "429": "TooManyRequests",
}


@dataclass
class Faults:
    """The faults of a proxy. `plan(method, path, number of such requests before)` names a fault, or None.

    Faults are those of `ERRORS`, `cut` (half a body, then the connection closes), `short` (half a body, with its
    length), `flip` (one byte changed), `slow` (a little at a time), `drip` (a byte each 0.3 s), `stall` (an answer
    after 2 s), `reset` (closed without an answer), `lost` (done, but the answer is lost), `half` (the server gets half
    a body), `wrong` (done, and answered as if it had been there before).
    """

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


@contextlib.contextmanager
def faulty_proxy(endpoint: str) -> Iterator[Faults]:
    """A proxy in front of the server at `endpoint`; nothing happens until the faults have a plan."""
    faults = Faults()
    target = urlsplit(endpoint).netloc

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = faults.next(self.command, self.path)
            if fault == "stall":
                time.sleep(2)
            if fault == "reset":
                self.close_connection = True
                return
            if fault in ERRORS:
                self._answer(
                    int(fault),
                    [("Content-Type", "application/xml")],
                    f"<Error><Code>{ERRORS[fault]}</Code></Error>".encode(),
                )
                return
            if fault == "half":
                # S3 refuses a body that does not fit its Content-MD5; the servers of the tests may not.
                if "Content-MD5" in self.headers:
                    self._answer(400, [], b"<Error><Code>BadDigest</Code></Error>")
                    return
                body = body[: len(body) // 2]
                self.headers.replace_header("Content-Length", str(len(body)))
            upstream = http.client.HTTPConnection(target, timeout=60)
            headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
            try:
                upstream.request(self.command, self.path, body, headers)
                response = upstream.getresponse()
                data = response.read()
            except OSError:  # the server itself is down
                self.close_connection = True
                return
            if fault == "lost":
                self.close_connection = True
                return
            if fault == "wrong":
                self._answer(412, [], b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            answered = [
                (k, v)
                for k, v in response.getheaders()
                if k.lower()
                not in ("connection", "transfer-encoding", "content-length", "date", "server")
            ]
            length = response.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(response.status, answered, data, fault, length)
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
                if fault == "drip":
                    for byte in data:
                        self.wfile.write(bytes([byte]))
                        time.sleep(0.3)
                    return
                if fault == "slow":
                    for start in range(0, len(data), max(1, len(data) // 5)):
                        self.wfile.write(data[start : start + max(1, len(data) // 5)])
                        time.sleep(0.05)
                    return
                self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
            if fault == "cut":
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = handle_any

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that was killed
    # 0.02: seconds between two looks for a request to shut down
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    faults.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield faults
    finally:
        server.shutdown()
        server.server_close()
