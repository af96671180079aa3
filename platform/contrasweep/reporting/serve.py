"""The report as a page that stays true while the study runs, and the small web server that serves it.

The server reads the storage and changes nothing.
"""

import gzip
import json
import re
import socket
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate

from contrasweep.errors import ContrasweepError, SpecError
from contrasweep.live.state import SILENT_S, RunState, read_live
from contrasweep.planning.durations import duration
from contrasweep.reporting.figures import Figure, Lines, Series, short
from contrasweep.reporting.formats import render_template
from contrasweep.rows import step_of
from contrasweep.storage.records import StudyRecords

Change = tuple[int, int] | str
"""Characters `start` to `end` (exclusive) of the older text, counted in UTF-16 as JavaScript does, or new text."""
PIECE = re.compile(r"(?<=\n)|(?<=\],)|(?<=>)")
"""Ends of lines, of rows of JSON, and of HTML tags: in a report about 40 characters each."""


def changes(old: str, new: str) -> list[Change]:
    """Return `new` as a list of slices of `old` and new texts, in order; the time is linear in the lengths.

    Where `old` has a piece several times, the one that goes on from the last is taken, else the next after it, so that
    there are few parts; each choice gives `new`.
    """
    before = _pieces(old)
    places: dict[str, list[int]] = defaultdict(list)
    for place, piece in enumerate(before):
        places[piece].append(place)
    parts: list[tuple[int, int] | list[str]] = []  # places of pieces, or new ones
    after = 0
    for piece in _pieces(new):
        last = parts[-1] if parts else None
        where = _next(places.get(piece, ()), after)
        if where is None:
            if isinstance(last, list):
                last.append(piece)
            else:
                parts.append([piece])
            continue
        if isinstance(last, tuple) and where == after:
            parts[-1] = (last[0], where + 1)
        else:
            parts.append((where, where + 1))
        after = where + 1
    at = list(accumulate((len(piece.encode("utf-16-le")) // 2 for piece in before), initial=0))
    return ["".join(part) if isinstance(part, list) else (at[part[0]], at[part[1]]) for part in parts]


def _pieces(text: str) -> list[str]:
    return [piece for piece in PIECE.split(text) if piece]


def _next(places: Sequence[int], after: int) -> int | None:
    """The first of the sorted `places` from `after` on, else the first of all; None where there are none."""
    if not places:
        return None
    at = bisect_left(places, after)
    return places[at] if at < len(places) else places[0]


FRESH_S = 2.0  # what several browsers ask for within this time is read once
MAX_CURVES = 24  # running trials whose curves are drawn; a table has them all up to MAX_ROWS
MAX_ROWS = 200
REST = 3.0  # times as long as a report took to write, before the next is written
LOOK_S = 30.0  # between listings of the records while the run tells of no trial that has ended
OLDER = 3  # reports that a browser may have when it asks what has changed


@dataclass(frozen=True)
class Version:
    """A report that was written: its number, its HTML, when, and how many trials had ended by what the run tells."""

    number: int
    html: str
    at: float
    done: int | None


class LivePage:
    """Writes the report of a study again, in a thread of its own, when its records have changed.

    `write` gives the whole report as HTML. `page`, `now` and `changes_since` answer from what is there at the moment.
    """

    def __init__(self, records: StudyRecords, write: Callable[[], str]) -> None:
        self.records, self._write = records, write
        self._error = ""
        self._lock = threading.Lock()
        self._now: tuple[float, str] = (0.0, "")
        self._known = records.etags()
        self._versions: dict[int, Version] = {}
        self._drawn: dict[str, tuple[int, Series]] = {}  # by trial: its newest report's step, and its line
        self._add(1, write(), read_live(records))
        self._rested = self._due = 0.0  # the earliest and the latest moment of the next listing
        self._writing = False

    @property
    def page(self) -> str:
        """Return the newest report, which contains its version for its own script."""
        return self._version.html.replace("<body>", f'<body data-version="{self._version.number}">', 1)

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
            return {"version": self._version.number, "html": html}

    def changes_since(self, version: int) -> dict[str, object]:
        """Return `version` of the newest report and its changes since `version`; all of it where that is too old."""
        newest, older = self._version, self._versions.get(version)
        return {
            "version": newest.number,
            "changes": [newest.html] if older is None else changes(older.html, newest.html),
        }

    def _add(self, number: int, html: str, state: RunState | None) -> None:
        html = str(html)  # Jinja2's own kind of text would escape what is put into it
        self._version = Version(number, html, time.time(), state.done if state else None)
        older = {n: version for n, version in self._versions.items() if n > number - OLDER}
        self._versions = older | {number: self._version}

    def _look_if_due(self, state: RunState | None) -> None:
        """Ask for new records only if the run gives a reason: listing 10,000 trials takes an object store seconds."""
        now = time.monotonic()
        ended_more = state is not None and state.done != self._version.done
        if not self._writing and (now >= self._due or (ended_more and now >= self._rested)):
            self._writing = True
            threading.Thread(target=self._look, args=(state,), name="report", daemon=True).start()

    def _look(self, state: RunState | None) -> None:
        began = time.monotonic()
        try:
            etags = self.records.etags()
            if etags != self._known:
                self._add(self._version.number + 1, self._write(), state)
                self._known = etags
            self._error = ""
        except ContrasweepError as error:  # the storage is away, or a file is broken: the page says so and stays
            self._error = str(error)
        finally:
            self._rested = time.monotonic() + REST * (time.monotonic() - began)
            self._due = self._rested + LOOK_S
            self._writing = False

    def _running(self, state: RunState | None) -> str:
        lines = self._curves(state) if state else []
        metric = state.name(state.metric) if state else ""
        chart = Lines(lines, x_label="step", y_label=metric, whole_x=True) if lines else None
        return render_template(
            "live.html",
            state=state,
            error=self._error,
            silent=state is not None and not state.ended and time.time() - state.updated > SILENT_S,
            rows=_rows(state) if state else [],
            figure=Figure(chart, "The metric of the trials that run, as far as they have reported.") if chart else None,
            left="" if state is None or not state.eta_s else duration(state.eta_s),
            since=max(0, state.done - self._version.done) if state and self._version.done is not None else 0,
            age=duration(time.time() - self._version.at),
        )

    def _curves(self, state: RunState) -> list[Series]:
        """The study's metric over the steps of each running trial, in the colour of its arm."""
        colours = {arm: i for i, arm in enumerate(document.arms)} if (document := self.records.document()) else {}
        drawn = {}
        for trial in list(state.running.values())[:MAX_CURVES]:
            at, line = self._drawn.get(trial.trial_id, (-1, None))
            if line is None or at < trial.step:
                try:
                    reports = self.records.metrics(trial.trial_id)
                except ContrasweepError:
                    continue
                rows = [row for row in reports if state.metric in row]
                x, y = [float(row["step"]) for row in rows], [float(row[state.metric]) for row in rows]
                at = step_of(reports[-1]) if reports else -1
                line = Series(state.name(trial.arm), colours.get(trial.arm, 0), x, y, dots=True)
            drawn[trial.trial_id] = (at, line)
        self._drawn = drawn
        return [line for _, line in drawn.values() if line.x]


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
