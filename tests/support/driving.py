"""A run whose events a session tells, in place of Ray: what it prints, and what it leaves in its storage."""

import contextlib
import io
import time
from typing import Any
from unittest.mock import patch

import yaml
from made_up import declared
from rich.console import Console

from contrasweep.live import state
from contrasweep.live.displays import View
from contrasweep.planning.planner import plan
from contrasweep.running.engine import training
from contrasweep.storage.attempts import Attempt
from contrasweep.storage.lease import Lease
from contrasweep.storage.record import CodeRef, Phase, Record, Status, TrialNotes
from contrasweep.study.file import load_study


class Driver:
    """`$ driver EVENT [WORDS]` tells a run an event, and prints what the run shows then, in 90 columns.

    `begins FILE` takes the study of a file; `quiet FILE` shows trouble alone. A trial is named by its number in the
    plan, and fields are YAML: `started 0`, `reported 0 '{step: 1, accuracy: 0.5}'`, `ended 0 '{status: failed}'`.
    Others are the methods of `Progress`.
    """

    def __call__(self, folder, event, *words):
        said = io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stderr(said):
            if event in ("begins", "quiet"):
                self._begin(words[0], event == "quiet")
            else:
                self._tell(
                    event, *(yaml.safe_load(w) if w[0] in "{0123456789" else w for w in words)
                )
            displays: Any = self.progress.displays
            lines, file = displays
            lines.stream = said
            lines.due = 0.0
            if event == "close":
                self.progress.close(*words)
            else:
                self.progress._update()  # as once a second
                file._thread.join()
        Console(file=said, width=90, height=30, color_system=None).print(View(self.progress.state))
        return said.getvalue()

    def _begin(self, file, quiet):
        planned, self.records = declared(plan(load_study(file), storage="runs"), "runs")
        earlier = self.records.read(sorted(self.records.finished())).values()
        self.trials = planned.trials
        no_lease = Lease(self.records, print)
        self.progress = training._progress(planned, self.records, [*earlier], quiet, no_lease)
        displays: Any = self.progress.displays
        displays[1].may_write = lambda: True
        displays[1].every_s = 0.0
        with patch.object(state, "TICK_S", 1e6):
            self.progress.open()

    def _tell(self, event, *words):
        if event in ("started", "reported", "ended", "hangs", "lost"):
            trial, *words = self.trials[words[0]], *words[1:]
        match event:
            case "close":
                pass
            case "started":
                Attempt(self.records, trial)
                self.progress.started(trial)
            case "reported":
                rows = [{"time": time.time(), **row} for row in words]
                revised = {row["step"] for row in rows}
                before = [r for r in self.records.metrics(trial.id) if r["step"] not in revised]
                self.records.write_metrics(trial.id, [*before, *rows])
                self.progress.reported(trial.id, rows)
            case "ended":
                self.progress.ended(self._record(trial, *words))
            case "hangs" | "lost":
                getattr(self.progress, event)(trial.id, *words)
            case _:
                getattr(self.progress, event)(*words)

    def _record(self, trial, fields):
        status = Status(fields.pop("status", "done"))
        notes = TrialNotes(phase=Phase(fields.pop("phase"))) if "phase" in fields else TrialNotes()
        code = CodeRef(*fields.pop("code", []))
        at = time.time()
        base = {"seconds": 10.0, "ended": at, "host": "gpu1", "status": status, "notes": notes}
        rows = self.records.metrics(trial.id)
        record = Record.of(trial, rows=rows, **base | {"code": code} | fields)
        self.records.write(record)
        return record
