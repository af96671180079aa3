"""The report of a study as a page that stays true while it runs: what runs now, and the report again as trials end."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contrasweep.errors import BrokenFileError, ContrasweepError
from contrasweep.live.live_file import SILENT_S, read_live
from contrasweep.live.state import RunState
from contrasweep.planning.durations import duration
from contrasweep.report.charts import Series, short, xy_chart
from contrasweep.report.figures import Figure
from contrasweep.report.templating import render_template
from contrasweep.storage import compact
from contrasweep.storage.records import StudyRecords

FRESH_S = 2.0  # what several browsers ask for within this time is read once
SHOWN = 24  # running trials whose curves are drawn; a table has them all up to ROWS
ROWS = 200
REST = 3.0  # times as long as a report took to write, before the next is written


@dataclass(frozen=True)
class Version:
    """A report that was written: its number, its HTML."""

    number: int
    html: str


class LivePage:
    """Writes the report of a study anew, in a thread of its own, when its records have changed.

    `write` gives the whole report as HTML. `page` and `now` answer from what is there at the moment.
    """

    def __init__(self, records: StudyRecords, write: Callable[[], str]) -> None:
        self.records, self._write = records, write
        self._version, self._error = Version(1, write()), ""
        self._lock = threading.Lock()
        self._now: tuple[float, str] = (0.0, "")
        self._known = compact.record_etags(records)
        self._due, self._writing = 0.0, False

    @property
    def page(self) -> str:
        """The newest report."""
        return self._version.html

    def now(self) -> dict[str, Any]:
        """`version` of the newest report and, as HTML, what runs now. Begins a newer report where records have come."""
        with self._lock:
            at, html = self._now
            if time.monotonic() - at > FRESH_S:
                self._rewrite_if_changed()
                html = self._running()
                self._now = (time.monotonic(), html)
            return {"version": self._version.number, "html": html}

    def _rewrite_if_changed(self) -> None:
        if self._writing or time.monotonic() < self._due:
            return
        try:
            etags = compact.record_etags(self.records)
        except ContrasweepError as error:
            self._error = str(error)
            return
        if etags != self._known:
            self._known, self._writing = etags, True
            threading.Thread(target=self._rewrite, name="report", daemon=True).start()

    def _rewrite(self) -> None:
        began = time.monotonic()
        try:
            self._version, self._error = Version(self._version.number + 1, self._write()), ""
        except ContrasweepError as error:  # the storage is away, or a file is broken: the page says so and stays
            self._error = str(error)
        finally:
            self._due = time.monotonic() + REST * (time.monotonic() - began)
            self._writing = False

    def _running(self) -> str:
        state = read_live(self.records)
        lines = self._curves(state) if state else []
        chart = xy_chart(lines, x_label="step", y_label=state.metric, whole_x=True) if state and lines else None
        return render_template(
            "live.html",
            state=state,
            error=self._error,
            silent=state is not None and not state.ended and time.time() - state.updated > SILENT_S,
            rows=_rows(state) if state else [],
            figure=Figure(chart, "The metric of the trials that run, as far as they have reported.") if chart else None,
            left="" if state is None or state.eta_s is None else duration(state.eta_s),
        )

    def _curves(self, state: RunState) -> list[Series]:
        """The study's metric over the steps of each running trial, in the colour of its arm."""
        colours = {arm: i for i, arm in enumerate(document.arms)} if (document := self.records.document()) else {}
        lines = []
        for trial in list(state.running.values())[:SHOWN]:
            try:
                rows = [row for row in self.records.metrics(trial.trial_id) if state.metric in row]
            except (BrokenFileError, ContrasweepError):
                continue
            x, y = [float(row["step"]) for row in rows], [float(row[state.metric]) for row in rows]
            lines.append(Series(trial.arm, colours.get(trial.arm, 0), x, y, dots=True))
        return [line for line in lines if line.x]


def _rows(state: RunState) -> list[list[str]]:
    """A head and one row a running trial."""
    head = ["arm", "settings", "fold", "seed", "step", state.metric, "for", ""]
    running = list(state.running.values())
    rows = [
        [
            trial.arm,
            trial.settings,
            "–" if trial.fold is None else str(trial.fold),
            str(trial.seed),
            f"{trial.step}" + (f" of {trial.steps}" if trial.steps else ""),
            "–" if trial.value is None else short(trial.value),
            duration(max(0.0, state.updated - trial.started)),
            trial.note,
        ]
        for trial in running[:ROWS]
    ]
    return [head, *rows] if rows else []
