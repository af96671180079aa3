"""Reports and system use of one trial: checked, kept, and written to the storage once each."""

import logging
import operator
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsIndex

from contrasweep.errors import BrokenFileError, SpecError
from contrasweep.rows import Row
from contrasweep.storage.checkpoints import Extra, Saved
from contrasweep.storage.names import check_file_name, check_label
from contrasweep.storage.record import MAX_COUNT
from contrasweep.storage.records import REPORT_COLUMNS, StudyRecords, encode_items
from contrasweep.trial import Report, RevisedReport, Trial

log = logging.getLogger(__name__)
REPORTS_EVERY_S = 5.0
"""Seconds from storing a trial's reports in an object store to storing them again, unless a checkpoint, its end or a
decision on each report asks for them: the driver has them already, and a trial goes on from its checkpoint."""


class Reports:
    """The reports of one trial, from its first attempt on, and how many of them the storage has.

    The trial's thread takes the reports. That thread writes them, and so does the thread that stores checkpoints.
    """

    def __init__(self, trial: Trial, records: StudyRecords, saved: Saved | None) -> None:
        """Read the reports up to the checkpoint `saved`.

        Without a checkpoint, or where these reports are not whole, `rows` is empty and the trial starts over.
        """
        self.trial = trial
        self.records = records
        self.rows = _rows_until(saved, records, trial.id)
        extra = saved.extra if saved and self.rows else Extra()
        self.step = saved.step if saved and self.rows else 0
        self.items: tuple[str, ...] = extra.items  # names of the latest scores
        self.artifacts: tuple[str, ...] = extra.artifacts  # names of all artifacts
        # the latest of this attempt, encoded, after their step
        self.scores: tuple[int, bytes] | None = None
        self._lock = threading.Lock()  # held while reports or scores are written
        self._rows_stored = 0  # how many of the rows are in the storage
        self._scores_stored = 0  # the step of the scores that are in the storage
        self.due = time.monotonic()  # when they are to be stored again

    def take(self, report: Report) -> Row:
        """Check a report and keep it; return its row: `step`, `time` in unix seconds, and its metrics.

        `SpecError` names what is wrong with it. A `RevisedReport` of the last step replaces the last report. Its
        artifacts go to the storage at once, because the trainable may delete its files when it goes on. Its scores
        go there with the next checkpoint or with the record, which name them.
        """
        if not isinstance(report, Report):
            raise SpecError(
                "a trainable yields reports",
                place=self.trial.trainable,
                value=report,
                hint="use `yield Report(step, metrics)`, from contrasweep import Report",
            )
        # Steps go up, but for a report that replaces the last one of its step.
        step = _checked_step(report.step)
        revised = isinstance(report, RevisedReport) and step == self.step
        if step < 0 or (self.rows and step <= self.step and not revised):
            raise SpecError(
                "reports count their steps up", place=self.trial.trainable, value=(self.step, step)
            )
        if report.checkpoint is not None and not Path(report.checkpoint).is_dir():
            raise SpecError(
                "a report's checkpoint is a folder of files",
                place=self.trial.trainable,
                value=report.checkpoint,
                hint="make the folder, write the files into it, then yield Report(step, metrics, checkpoint=folder)",
            )
        # The row that is replaced may be in the storage: it counts as not stored, so that `write` writes again.
        if revised and self.rows:
            self.rows.pop()
            self._rows_stored = min(self._rows_stored, len(self.rows))
        self.step = step
        metrics = {
            _checked_metric(name): _number(name, value) for name, value in report.metrics.items()
        }
        row = {"step": step, "time": time.time(), **metrics}
        self.rows.append(row)
        for name, path in report.artifacts.items():
            _check_name(check_file_name, "an artifact", name)
            self.records.store.put_file(self.records.key(self.trial.id, f"artifacts/{name}"), path)
        self.artifacts = tuple(dict.fromkeys([*self.artifacts, *report.artifacts]))
        if report.items:
            for name in report.items:
                _check_name(check_label, "a score of items", name)
            self.scores = (step, encode_items(report.items))
            self.items = tuple(report.items)
        return row

    def write(self, count: int, scores: tuple[int, bytes] | None = None) -> None:
        """Store the first `count` reports, then `scores`; neither where the same or later ones are stored.

        `scores` are those of items: their step and their bytes; None: none.
        """
        with self._lock:
            if count > self._rows_stored:
                self.records.write_metrics(self.trial.id, self.rows[:count])
                self._rows_stored = count
                self.due = time.monotonic() + REPORTS_EVERY_S
            if scores is not None and scores[0] > self._scores_stored:
                self.records.write_encoded_items(self.trial.id, scores[1])
                self._scores_stored = scores[0]


class SystemUse:
    """The memory and utilisation of one trial over time, after the rows of its earlier attempts."""

    def __init__(
        self, trial_id: str, records: StudyRecords, meter: Any, started: float, *, resumed: bool
    ) -> None:
        """Sample `meter`, which has the methods of `cluster.usage.Meter`.

        The trial's first attempt began at `started`.
        """
        self.trial_id = trial_id
        self.records = records
        self.meter = meter
        self.started = started
        self._earlier = self._read_earlier() if resumed else []
        self._stored = 0  # how many of the meter's rows are in the storage

    def write(self) -> None:
        """Store all rows, each with the seconds since the trial began as its step, if there are new ones."""
        # The meter's thread may add a row meanwhile: no more are written than were counted.
        count = len(self.meter.timeline)
        if count > self._stored:
            self._stored = count
            rows = [
                {"step": round(row["time"] - self.started), **row}
                for row in self.meter.timeline[:count]
            ]
            self.records.write_system(self.trial_id, [*self._earlier, *rows])

    def _read_earlier(self) -> list[Row]:
        """Return the rows of earlier attempts; [] where they are broken, because they decide nothing.

        Rows from before `started` are left out: they are of attempts from which this trial does not go on.
        """
        try:
            return [
                row for row in self.records.system(self.trial_id) if row["time"] >= self.started
            ]
        except BrokenFileError as error:
            log.warning("%s; what trial %s used before is left out", error.problem, self.trial_id)
            return []


def _rows_until(saved: Saved | None, records: StudyRecords, trial_id: str) -> list[Row]:
    """Return the reports up to a checkpoint; none without a checkpoint, or where the reports are not whole.

    A curve with a hole is worse than one that is trained again.
    """
    if saved is None:
        return []
    try:
        rows = [row for row in records.metrics(trial_id) if row["step"] <= saved.step]
    except BrokenFileError as error:
        log.warning("%s; trial %s starts over", error.problem, trial_id)
        return []
    # Reports are stored before their checkpoint, so the last one is of its step unless some are lost.
    return rows if rows and rows[-1]["step"] == saved.step else []


def _checked_step(step: Any) -> int:
    """Return the step as an integer of Python, which files can hold; `step` may be a NumPy integer.

    `SpecError` where it is no whole number or above 2**53. Negative ones pass.
    """
    if isinstance(step, SupportsIndex) and operator.index(step) <= MAX_COUNT:
        return operator.index(step)
    raise SpecError(
        "a step is a whole number up to 2**53",
        place="Report.step",
        value=step,
        hint="use int(step)",
    )


def _checked_metric(name: str) -> str:
    """Return the metric's name; `SpecError` where it is a column of the reports already, or no label."""
    _check_name(check_label, "a metric", name)
    if name in REPORT_COLUMNS:
        raise SpecError(
            "a metric may not have this name",
            place="Report.metrics",
            value=name,
            hint="choose another",
        )
    return name


def _check_name(check: Callable[[str], str], kind: str, name: str) -> None:
    """Raise `SpecError` where `check` refuses a name that the trainable gives."""
    try:
        check(name)
    except ValueError as error:
        raise SpecError(
            f"a trainable may not use this name for {kind}: {error}", place="Report"
        ) from None


def _number(name: str, value: Any) -> float:
    """Return a metric's value as a float; `SpecError` where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SpecError(
            f"a metric is one number ({error})", place=f"Report.metrics.{name}", value=value
        ) from None
