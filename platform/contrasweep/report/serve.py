"""A small web server for one study's live page. It reads the storage and changes nothing."""

import gzip
import json
import re
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from contrasweep.errors import SpecError
from contrasweep.report.live_page import LivePage

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PACKED_FROM = 2**12  # bytes
HEADERS = {
    # Nothing comes from elsewhere, whatever a name in the storage says; no other page may frame this one.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def server_of(live: LivePage, host: str, port: int) -> ThreadingHTTPServer:
    """A server of the page at `http://host:port`, which `serve_forever` runs; `SpecError` where it cannot listen."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = (self.headers.get("Host") or "").rsplit(":", 1)[0].strip("[]")
            if host in LOOPBACK and asked not in LOOPBACK:  # a name that leads here by trickery
                self._answer(403, "text/plain", b"this page is for this machine alone")
            elif self.path == "/":
                self._answer(200, "text/html", live.page.encode())
            elif self.path == "/now.json":
                self._answer(200, "application/json", json.dumps(live.now()).encode())
            elif known := re.fullmatch(r"/changes\.json\?since=([0-9]{1,9})", self.path):
                self._answer(200, "application/json", json.dumps(live.changes_since(int(known[1]))).encode())
            else:
                self._answer(404, "text/plain", b"there is /, /now.json and /changes.json?since=VERSION")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8"}.items():
                self.send_header(name, value)
            if len(body) >= PACKED_FROM and "gzip" in (self.headers.get("Accept-Encoding") or ""):
                body = gzip.compress(body, compresslevel=5)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A line a request would hide what `--serve` has printed."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        return Server((host, port), Handler)
    except OSError as error:
        raise SpecError(
            "the page cannot be served there",
            place="--port",
            value=f"{host}:{port}",
            hint=f"{error.strerror}; --port 0 takes a free one",
        ) from None


def serve(live: LivePage, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve the page until interrupted; `announce` is given its address."""
    with server_of(live, host, port) as server:
        shown = f"[{host}]" if ":" in host else host
        announce(f"http://{shown}:{server.server_address[1]}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:  # how it ends
            return
