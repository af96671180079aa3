"""The report with what runs now, offered anew as trials end, and the small web server that serves it.

The server reads the storage and changes nothing.
"""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from contrasweep.errors import ContrasweepError, SpecError
from contrasweep.live.state import SILENT_S, RunState, read_live
from contrasweep.planning.durations import duration
from contrasweep.reporting.figures import short
from contrasweep.reporting.formats import render_template
from contrasweep.storage.records import StudyRecords

FRESH_S = 2.0  # what several browsers ask for within this time is read once
MAX_ROWS = 200
REST = 3.0  # times as long as a report took to write, before the next is written
LOOK_S = 30.0  # between listings of the records while the run tells of no trial that has ended


class LivePage:
    """Writes the report of a study again, in a thread of its own, when its records have changed.

    `write` gives the whole report as HTML. `page` and `now` answer from what is there at the moment.
    """

    def __init__(self, records: StudyRecords, write: Callable[[], str]) -> None:
        self.records, self._write = records, write
        self._error = ""
        self._lock = threading.Lock()
        self._now: tuple[float, str] = (0.0, "")
        self._known = records.etags()
        self._version = 0
        self._keep(write(), read_live(records))
        self._rested = self._due = 0.0  # the earliest and the latest moment of the next listing
        self._writing = False

    def now(self) -> dict[str, object]:
        """Return `version` of the newest report and, as HTML, what runs now.

        Starts a newer report where there are new records.
        """
        with self._lock:
            at, html = self._now
            if time.monotonic() - at > FRESH_S:
                state = read_live(self.records)
                self._look_if_due(state)
                html = self._running(state)
                self._now = (time.monotonic(), html)
            return {"version": self._version, "html": html}

    def _keep(self, html: str, state: RunState | None) -> None:
        """Keep a report as the newest `page`, with its version for its own script, and how many trials had ended."""
        self._version += 1
        self.page = str(html).replace("<body>", f'<body data-version="{self._version}">', 1)  # a Markup would escape it
        self._at, self._done = time.time(), state.done if state else None

    def _look_if_due(self, state: RunState | None) -> None:
        """Ask for new records only if the run gives a reason: listing 10,000 trials takes an object store seconds."""
        now = time.monotonic()
        ended_more = state is not None and state.done != self._done
        if not self._writing and (now >= self._due or (ended_more and now >= self._rested)):
            self._writing = True
            threading.Thread(target=self._look, args=(state,), name="report", daemon=True).start()

    def _look(self, state: RunState | None) -> None:
        began = time.monotonic()
        try:
            etags = self.records.etags()
            if etags != self._known:
                self._keep(self._write(), state)
                self._known = etags
            self._error = ""
        except ContrasweepError as error:  # the storage is away, or a file is broken: the page says so and stays
            self._error = str(error)
        finally:
            self._rested = time.monotonic() + REST * (time.monotonic() - began)
            self._due = self._rested + LOOK_S
            self._writing = False

    def _running(self, state: RunState | None) -> str:
        return render_template(
            "live.html",
            state=state,
            error=self._error,
            silent=state is not None and not state.ended and time.time() - state.updated > SILENT_S,
            rows=_rows(state) if state else [],
            left="" if state is None or not state.eta_s else duration(state.eta_s),
            since=max(0, state.done - self._done) if state and self._done is not None else 0,
            age=duration(time.time() - self._at),
        )


def _rows(state: RunState) -> list[list[str]]:
    """A head and one row a running trial."""
    head = ["arm", "settings", "fold", "seed", "step", state.name(state.metric), "for", ""]
    running = list(state.running.values())
    rows = [
        [
            state.name(trial.arm),
            state.settings(trial.axes),
            "–" if trial.fold is None else str(trial.fold),
            str(trial.seed),
            f"{trial.step}" + (f" of {trial.steps}" if trial.steps else ""),
            "–" if trial.value is None else short(trial.value),
            duration(max(0.0, state.updated - trial.started)),
            trial.note,
        ]
        for trial in running[:MAX_ROWS]
    ]
    return [head, *rows] if rows else []


LOOPBACK = ("127.0.0.1", "localhost", "::1")
PACKED_FROM = 2**12  # bytes
REQUEST_TIMEOUT_S = 10.0
"""How long a request may take to come; a connection that stays silent is closed then."""
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
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            asked = (self.headers.get("Host") or "").rsplit(":", 1)[0].strip("[]")
            if host in LOOPBACK and asked not in LOOPBACK:  # a name that leads here by trickery
                self._answer(403, "text/plain", b"this page is for this machine alone")
            elif self.path == "/":
                self._answer(200, "text/html", live.page.encode())
            elif self.path == "/now.json":
                self._answer(200, "application/json", json.dumps(live.now()).encode())
            else:
                self._answer(404, "text/plain", b"there is / and /now.json")

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
