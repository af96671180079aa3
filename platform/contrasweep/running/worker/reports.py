"""Reports and system use of one trial: checked, kept, and written to the storage."""

import logging
import operator
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, SupportsIndex

import pyarrow as pa

from contrasweep.errors import BrokenFileError, SpecError
from contrasweep.rows import Row
from contrasweep.storage.checkpoints import Extra, Saved
from contrasweep.storage.names import check_file_name, check_label
from contrasweep.storage.record import MAX_COUNT
from contrasweep.storage.records import REPORT_COLUMNS, StudyRecords, encode_items
from contrasweep.trial import Report, RevisedReport, Trial

log = logging.getLogger(__name__)
REPORTS_EVERY_S = 5.0
"""Seconds between two uploads of a trial's reports to an object store. A checkpoint, the trial's end, and a pruner that
decides on each report have them stored earlier. Else they need not be: the driver has them, and a trial resumes from
its checkpoint."""


class Reports:
    """The reports of one trial, those of its earlier attempts too, and how many of them the storage has."""

    def __init__(self, trial: Trial, records: StudyRecords, saved: Saved | None) -> None:
        """Read the reports up to the checkpoint `saved`.

        Without a checkpoint, or where these reports are not whole, `rows` is empty and the trial starts over.
        """
        self.trial = trial
        self.records = records
        self.rows = _rows_until(saved, records, trial.id)
        extra = saved.extra if saved and self.rows else Extra()
        self.step = saved.step if saved and self.rows else 0
        self.item_names: tuple[str, ...] = extra.items  # of the latest scores of items
        self.artifacts: tuple[str, ...] = extra.artifacts  # names of all artifacts
        self._rows_stored: list[Row] = []  # the rows that are in the storage
        # the latest scores of items, as the bytes of their file, until they are in the storage
        self._item_scores = b""
        self.due = time.monotonic()  # when reports are uploaded next

    def take(self, report: Report) -> Row:
        """Check a report and keep it; return its row: `step`, `time` in unix seconds, and its metrics.

        A `RevisedReport` of the last step replaces the last report. Artifacts are stored at once, because the trainable
        may delete the files when it goes on. Scores of items are stored with the next checkpoint or record, which name
        them.

        Raises `SpecError` where the trainable yields no report, or one with a wrong step, name, value or checkpoint.
        """
        if not isinstance(report, Report):
            raise SpecError(
                "a trainable yields reports",
                place=self.trial.trainable,
                value=report,
                hint="use `yield Report(step, metrics)`, from contrasweep import Report",
            )
        for name in ("metrics", "items", "artifacts"):
            value = getattr(report, name)
            if not isinstance(value, Mapping):
                raise SpecError("it maps names to values", place=f"Report.{name}", value=value)
        # Steps must grow, except that a revised report has the step of the last one.
        step = _checked_step(report.step)
        revised = isinstance(report, RevisedReport) and step == self.step
        if step < 0 or (self.rows and step <= self.step and not revised):
            raise SpecError(
                "reports count their steps up",
                place=self.trial.trainable,
                value=(self.step, step),
                hint="what has given a checkpoint goes on from `resume`",
            )
        if report.checkpoint is not None and not Path(str(report.checkpoint)).is_dir():
            raise SpecError(
                "a report's checkpoint is a folder of files",
                place=self.trial.trainable,
                value=report.checkpoint,
                hint="make the folder, write the files into it, then yield Report(step, metrics, checkpoint=folder)",
            )
        self.step = step
        metrics = {
            _checked_metric(name): _number(name, value) for name, value in report.metrics.items()
        }
        row = {"step": step, "time": time.time(), **metrics}
        if revised and self.rows:
            self.rows[-1] = row
        else:
            self.rows.append(row)
        for name, path in report.artifacts.items():
            _check_name(check_file_name, "an artifact", name)
            if not Path(str(path)).is_file():
                raise SpecError(
                    "an artifact is a file", place=f"Report.artifacts.{name}", value=path
                )
            key = self.records.key(self.trial.id, f"artifacts/{name}")
            self.records.store.put_file(key, Path(path))
        self.artifacts = tuple(dict.fromkeys([*self.artifacts, *report.artifacts]))
        if report.items:
            for name in report.items:
                _check_name(check_label, "a score of items", name)
            try:
                self._item_scores = encode_items(report.items)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise SpecError(
                    "items have a number for each test item (`group`: also a text), all as many",
                    place="Report.items",
                    hint=str(error),
                ) from None
            self.item_names = tuple(report.items)
        return row

    def write(self, *, items: bool = False) -> None:
        """Store the reports and, with `items`, the latest scores of items, unless they are stored already."""
        if self.rows != self._rows_stored:
            self.records.write_metrics(self.trial.id, self.rows)
            self._rows_stored = list(self.rows)
            self.due = time.monotonic() + REPORTS_EVERY_S
        if items and self._item_scores:
            self.records.write_encoded_items(self.trial.id, self._item_scores)
            self._item_scores = b""


class SystemUse:
    """Writes `system.parquet` of a trial, its memory and utilisation over time; rows of earlier attempts stay."""

    def __init__(
        self, trial_id: str, records: StudyRecords, meter: Any, started: float, *, resumed: bool
    ) -> None:
        """Store what `meter`, which has the methods of `cluster.usage.Meter`, measures.

        `started` is when the trial's first attempt began, in unix seconds. `resumed` says whether the trial resumes
        from a checkpoint, so that rows of earlier attempts stay.
        """
        self.trial_id = trial_id
        self.records = records
        self.meter = meter
        self.started = started
        # Rows of attempts that this one does not resume began before `started`, and are left out.
        self._earlier: list[Row] = []
        try:
            rows = records.system(trial_id) if resumed else []
            self._earlier = [row for row in rows if row["time"] >= started]
        except BrokenFileError as error:  # nothing depends on them
            log.warning("%s; what trial %s used before is left out", error.problem, trial_id)
        self._stored = 0  # how many of the meter's rows are in the storage

    def write(self) -> None:
        """Store all rows if there are new ones. The step of a row is the seconds since the trial began."""
        # The meter's thread may add rows meanwhile, so only those that were counted are written.
        count = len(self.meter.timeline)
        if count > self._stored:
            self._stored = count
            rows = [
                {"step": round(row["time"] - self.started), **row}
                for row in self.meter.timeline[:count]
            ]
            self.records.write_system(self.trial_id, [*self._earlier, *rows])


def _rows_until(saved: Saved | None, records: StudyRecords, trial_id: str) -> list[Row]:
    """Return the rows of the reports up to a checkpoint; [] without a checkpoint, or where some reports are missing.

    A curve with a gap is worse than one that is trained again.
    """
    if saved is None:
        return []
    try:
        rows = [row for row in records.metrics(trial_id) if row["step"] <= saved.step]
    except BrokenFileError as error:
        log.warning("%s; trial %s starts over", error.problem, trial_id)
        return []
    # Reports are stored before their checkpoint, so the last one has the checkpoint's step unless some are missing.
    return rows if rows and rows[-1]["step"] == saved.step else []


def _checked_step(step: Any) -> int:
    """Return a step, which may be a NumPy integer, as a Python integer, which files can hold.

    Raises `SpecError` where the step is no whole number or above 2**53. Negative steps are not checked here.
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
    """Return a metric's name; raise `SpecError` where it is no label, or the name of another column of the reports."""
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
    """Raise `SpecError` where `check` refuses a name of the trainable; `kind` says what it names."""
    try:
        check(name)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"a trainable may not use this name for {kind}: {error}", place="Report", value=name
        ) from None


def _number(name: str, value: Any) -> float:
    """Return the value of the metric `name` as a float; raise `SpecError` where it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SpecError(
            f"a metric is one number ({error})", place=f"Report.metrics.{name}", value=value
        ) from None
