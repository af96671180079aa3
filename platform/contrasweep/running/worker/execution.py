"""One trial from its generator to its record. Knows nothing of Ray; works in any process that sees the storage."""

import logging
import math
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, cast

from cluster import out_of_memory
from cluster.usage import Meter
from contrasweep.errors import AttemptSuperseded, BrokenFileError, ProcessLostError, SpecError, StorageError
from contrasweep.planning.lanes import FailedElsewhere, TrainedElsewhere, is_elsewhere
from contrasweep.processes import scratch_folder
from contrasweep.rows import Row
from contrasweep.running.failures import LACKS_METRIC
from contrasweep.running.signals import Termination
from contrasweep.running.versions import versions
from contrasweep.running.worker.checkpoint_writer import CheckpointWriter, Snapshot
from contrasweep.running.worker.output import Output
from contrasweep.running.worker.recorded_config import RecordedConfig
from contrasweep.storage.attempts import Attempt
from contrasweep.storage.checkpoints import Checkpoints, Extra, Saved
from contrasweep.storage.names import check_file_name, check_label
from contrasweep.storage.record import CodeRef, Record, Status, TrialNotes
from contrasweep.storage.records import REPORT_COLUMNS, StudyRecords, encode_items
from contrasweep.storage.store import LocalStore
from contrasweep.trial import Report, Trial

log = logging.getLogger(__name__)
REPORTS_EVERY_S = 5.0
"""Seconds from storing a trial's reports in an object store to storing them again, unless a checkpoint, its end or a
decision on each report asks for them: the driver has them already, and a trial goes on from its checkpoint."""


@dataclass
class StepResult:
    """What `advance` returns: the new reports as {step, time, metrics}, and the record once there is one."""

    reports: list[Row] = field(default_factory=list)
    record: Record | None = None


class Execution:
    """Runs `trial`, resuming from its newest checkpoint in the storage. Metrics, checkpoints and at last the
    record are written as they come: killing the process at any point loses at most the steps since then."""

    def __init__(
        self,
        trial: Trial,
        function: Callable[..., Generator[Report, None, None]],
        records: StudyRecords,
        *,
        metric: str,
        notes: TrialNotes | None = None,
        code: CodeRef | None = None,
        packages: Mapping[str, str] | None = None,
        limits: AbstractContextManager[None] | None = None,
        output: Output | None = None,
        fresh: bool = False,
    ) -> None:
        """`notes`, `code` and `packages` (name -> version, of what the code imports) go into the record; `limits` (see
        `cluster.guard`) are open from before the trial's first step to its end; `output`, which takes what it prints,
        is open already and closed with it. `fresh`: the storage has nothing of this trial, and is not asked for it."""
        self.trial, self.records, self.metric = trial, records, metric
        self.notes, self.output = notes or TrialNotes(), output
        self.code, self.packages = code or CodeRef(), dict(packages or {})
        self.elsewhere: TrainedElsewhere | None = cast(TrainedElsewhere, function) if is_elsewhere(function) else None
        self.meter = Meter().start() if self.elsewhere is None else self.elsewhere.meter
        self.attempt = Attempt(records, trial)
        self.checkpoints = Checkpoints(records.store, records.key(trial.id, "checkpoint"), fresh=fresh)
        self.scratch = scratch_folder("trial")
        # To a folder of this machine a checkpoint is a copy anyway; one on a store's way takes a thread of its own.
        local = isinstance(records.store, LocalStore)
        self.writer = None if local else CheckpointWriter(self._store, self.scratch)
        self._storing = threading.Lock()
        self._reports_stored = self._items_stored = 0  # how many reports, and the step of the scores, that are stored
        self._reports_due = time.monotonic()
        self._items: tuple[int, bytes] | None = None  # the latest scores, with the step that gave them
        saved = self.checkpoints.fetch(_fresh(self.scratch / "resume"))
        self.rows = _reports_until(saved, records, trial.id)
        saved = saved if self.rows else None
        extra = saved.extra if saved else Extra()
        self.seconds = extra.seconds
        self.started = time.time() if extra.started is None else extra.started
        self.attempts = extra.attempts + 1
        self.step = saved.step if saved else 0
        self.items: tuple[str, ...] = extra.items
        self.artifacts: tuple[str, ...] = extra.artifacts
        self.code = _went_on(self.code, extra) if saved else self.code
        self.finished = False
        self._written = 0  # rows of the meter's timeline
        self._earlier_system = _system_before(self.started, records, trial.id) if saved else []
        self.limits = ExitStack()
        self.limits.enter_context(limits or nullcontext())
        self.termination = self.limits.enter_context(Termination())
        known = self.elsewhere is not None or hasattr(function, "settings")
        self.watched = None if known else RecordedConfig(trial.config)
        given = trial if self.watched is None else replace(trial, config=self.watched)
        self.generator = _reports(function, given, self.scratch / "resume" if saved else None)

    def advance(self, at_least_s: float = 0.0) -> StepResult:
        """Train until a report is there and `at_least_s` have passed, or the trial ends.

        A trainable that raises, or calls `sys.exit`, ends its trial as `failed`, with the traceback in the record.
        Raised instead are out-of-memory errors, because the scheduler answers them with more memory, and
        `StorageError`, `ProcessLostError` and, of a process that received SIGTERM, `SystemExit`, because these are no
        fault of the trial, which goes on from its checkpoint when it is run again; and `AttemptSuperseded` where it
        does so already.
        """
        result = StepResult()
        began = time.monotonic()
        while result.record is None and (not result.reports or time.monotonic() - began < at_least_s):
            try:
                self._check_attempt()
                result.reports.append(self._take(self._next()))
            except StopIteration:
                self._exit_if_terminated()
                result.record = self._end()
            except (Exception, SystemExit) as error:
                self._exit_if_terminated()
                lost = isinstance(error, StorageError | ProcessLostError | AttemptSuperseded)
                if lost or out_of_memory.which(error) is not None:
                    self.close()
                    raise
                text = error.text if isinstance(error, FailedElsewhere) else "".join(traceback.format_exception(error))
                result.record = self.finish(Status.FAILED, error=text)
            except BaseException:
                self.close()
                raise
            self._exit_if_terminated()
        if result.record is None:
            if not at_least_s:  # what is decided on each report may have the trial go on from here, or another
                self._drain()
            if self.writer is None or not at_least_s or time.monotonic() >= self._reports_due:
                self._write_reports(len(self.rows))
                self._write_system()
        return result

    def _write_system(self) -> None:
        if (count := len(self.meter.timeline)) > self._written:
            self._written = count
            rows = [self._system_row(row) for row in self.meter.timeline[:count]]
            self.records.write_system(self.trial.id, [*self._earlier_system, *rows])

    def _system_row(self, row: Mapping[str, float]) -> Row:
        """A row of the meter with its step, the seconds since the trial began."""
        return {"step": round(row["time"] - self.started), **row}

    def finish(self, status: Status, *, error: str | None = None) -> Record:
        """End the trial with `status`: the metrics first, the record last. `AttemptSuperseded` where another attempt
        has ended it already."""
        self._drain()
        self._check_attempt()  # last, because to drain may take long
        self._write_reports(len(self.rows))
        self._write_items(self._items)
        self._write_system()
        used = self.meter.to_dict()
        self._close_output()  # what belongs to a record is written before it
        record = Record.of(
            self.trial,
            status=status,
            rows=self.rows,
            step=self.step,
            seconds=self.seconds,
            started=self.started,
            ended=time.time(),
            attempts=self.attempts,
            error=error,
            host=socket.gethostname(),
            gpu_memory_gib=used["peak_gpu_memory_gib"],
            gpu_utilisation=used["gpu_utilisation"],
            host_memory_gib=used["peak_host_memory_gib"],
            items=self.items,
            artifacts=self.artifacts,
            notes=self.notes if self.elsewhere is None else self.notes.joined(self.elsewhere.notes),
            versions=self.packages | versions(),
            code=self.code,
            unread=() if self.watched is None else self.watched.unread(),
        )
        if not self.records.create(record):
            self._end_superseded(self.attempt.superseded("another attempt has written its record"))
        self.close()
        return record

    def close(self) -> None:
        """Stop the generator, whose `finally` cleans up, and drop the scratch folder."""
        self.finished = True
        self.meter.stop()
        try:
            self.generator.close()
        finally:
            if self.writer is not None:
                self.writer.close()
            self._close_output()
            self.limits.close()
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _check_attempt(self) -> None:
        """`AttemptSuperseded`, and this attempt at its end, where a later one has begun."""
        try:
            self.attempt.check()
        except AttemptSuperseded as error:
            self._end_superseded(error)

    def _drain(self) -> None:
        """Wait until all checkpoints are stored."""
        if self.writer is not None:
            try:
                self.writer.drain()
            except AttemptSuperseded as error:
                self._end_superseded(error)

    def _save(self, snapshot: Snapshot) -> None:
        """Store a checkpoint, now or while training goes on."""
        try:
            if self.writer is None:
                self._store(snapshot)
            else:
                self.writer.put(snapshot)
        except AttemptSuperseded as error:
            self._end_superseded(error)

    def _store(self, snapshot: Snapshot) -> None:
        """Store a checkpoint after all that came with it and before, so that they agree. It may have waited while this
        process was stopped, and another attempt has written since."""
        self.attempt.check()
        self._write_reports(snapshot.reports)
        self._write_items(snapshot.items)
        self.checkpoints.save(snapshot.folder, snapshot.step, snapshot.extra, check=self._check_checkpoint)

    def _check_checkpoint(self) -> None:
        """Raise where a checkpoint on its way must not be named as the newest."""
        self.attempt.check()
        if self.writer is not None and self.writer.left:
            raise StorageError(f"trial {self.trial.id} was closed before its checkpoint was stored")

    def _write_reports(self, count: int) -> None:
        """Store the first `count` reports, unless these or more are stored."""
        with self._storing:
            if count > self._reports_stored:
                self.records.write_metrics(self.trial.id, self.rows[:count])
                self._reports_stored, self._reports_due = count, time.monotonic() + REPORTS_EVERY_S

    def _write_items(self, items: tuple[int, bytes] | None) -> None:
        """Store scores, unless these or later ones are stored."""
        with self._storing:
            if items is not None and items[0] > self._items_stored:
                self.records.write_encoded_items(self.trial.id, items[1])
                self._items_stored = items[0]

    def _end_superseded(self, error: AttemptSuperseded) -> NoReturn:
        log.warning("%s", error)
        if self.writer is not None:
            self.writer.abandon()
        if self.output is not None:
            self.output.abandon()
        self.close()
        raise error

    def _close_output(self) -> None:
        if self.output is not None:
            self.output.close()

    def _exit_if_terminated(self) -> None:
        """`SystemExit` where the process received SIGTERM, unless the trial has its record."""
        if self.termination.requested and not self.finished:
            self.close()
            raise SystemExit(1)

    def _next(self) -> Report:
        began = time.perf_counter()
        try:
            return next(self.generator)
        finally:
            self.seconds += time.perf_counter() - began

    def _take(self, report: Report) -> Row:
        """Keep a report. Its artifacts go to the storage at once, because the trainable may drop its files when it goes
        on; its scores of items with the next checkpoint or the record, which are what names them."""
        if not isinstance(report, Report):
            raise SpecError(
                "a trainable yields reports",
                place=self.trial.trainable,
                value=report,
                hint="use `yield Report(step, metrics)`, from contrasweep import Report",
            )
        self._check_attempt()
        if report.step <= self.step:
            raise SpecError("reports count their steps up", place=self.trial.trainable, value=(self.step, report.step))
        if report.checkpoint is not None and not Path(report.checkpoint).is_dir():
            raise SpecError(
                "a report's checkpoint is a folder of files",
                place=self.trial.trainable,
                value=report.checkpoint,
                hint="make the folder, write the files into it, then yield Report(step, metrics, checkpoint=folder)",
            )
        self.step = report.step
        metrics = {_checked_metric(name): _number(name, value) for name, value in report.metrics.items()}
        row = {"step": report.step, "time": time.time(), **metrics}
        self.rows.append(row)
        for name, path in report.artifacts.items():
            _check_names(check_file_name, "an artifact", name)
            self.records.store.put_file(self.records.key(self.trial.id, f"artifacts/{name}"), path)
        self.artifacts = tuple(dict.fromkeys([*self.artifacts, *report.artifacts]))
        if report.items:
            for name in report.items:
                _check_names(check_label, "a score of items", name)
            self._items = report.step, encode_items(report.items)
            self.items = tuple(report.items)
        if report.checkpoint is not None:
            extra = Extra(
                seconds=self.seconds,
                started=self.started,
                attempts=self.attempts,
                items=self.items,
                artifacts=self.artifacts,
                code=self.code.digest,
                earlier_code=self.code.earlier,
                gpus=self.notes.gpus,
                shared_by=self.notes.shared_by,
                cost_per_hour=self.notes.cost_per_hour,
            )
            self._save(Snapshot(Path(report.checkpoint), report.step, extra, len(self.rows), self._items))
        return row

    def _end(self) -> Record:
        final = self.rows[-1].get(self.metric) if self.rows else None
        if final is not None and math.isfinite(final):
            return self.finish(Status.DONE)
        known = ", ".join(sorted(set(self.rows[-1]) - {"step", "time"})) if self.rows else "nothing"
        lacks = LACKS_METRIC.format(metric=self.metric)
        problem = lacks if final is None else f"the last report's metric {self.metric!r} is {final}"
        return self.finish(Status.FAILED, error=f"{problem}; it reported: {known}\n")


def _reports(
    function: Callable[..., Generator[Report, None, None]], trial: Trial, resume: Path | None
) -> Generator[Report, None, None]:
    """The reports of a trainable, which is called with the first: what it raises then is a failure like any other."""
    reports = function(trial, resume=resume)
    if not isinstance(reports, Iterator):
        raise SpecError(
            "a trainable returns an iterator of reports",
            place=trial.trainable,
            value=reports,
            hint="use `yield Report(step, metrics)`",
        )
    yield from reports


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise SpecError(f"a metric is one number ({error})", place=f"Report.metrics.{name}", value=value) from None


def _reports_until(saved: Saved | None, records: StudyRecords, trial_id: str) -> list[Row]:
    """The reports up to a checkpoint; none where there is no checkpoint or they are not whole, so that the trial starts
    over: a curve with a hole is worse than one that is trained again."""
    if saved is None:
        return []
    try:
        rows = [row for row in records.metrics(trial_id) if row["step"] <= saved.step]
    except BrokenFileError as error:
        log.warning("%s; trial %s starts over", error.problem, trial_id)
        return []
    return rows if rows and rows[-1]["step"] == saved.step else []


def _system_before(started: float, records: StudyRecords, trial_id: str) -> list[Row]:
    """What earlier attempts of a trial used; nothing where that is broken, for it decides nothing."""
    try:
        return [row for row in records.system(trial_id) if row["time"] >= started]
    except BrokenFileError as error:
        log.warning("%s; what trial %s used before is left out", error.problem, trial_id)
        return []


def _checked_metric(name: str) -> str:
    _check_names(check_label, "a metric", name)
    if name in REPORT_COLUMNS:
        raise SpecError("a metric may not have this name", place="Report.metrics", value=name, hint="choose another")
    return name


def _check_names(check: Callable[[str], str], kind: str, name: str) -> None:
    try:
        check(name)
    except ValueError as error:
        raise SpecError(f"a trainable may not use this name for {kind}: {error}", place="Report") from None


def _went_on(code: CodeRef, checkpoint: Extra) -> CodeRef:
    """`code` with the others that trained up to the checkpoint that it goes on from."""
    before = [*checkpoint.earlier_code, checkpoint.code or ""]
    return replace(code, earlier=tuple(dict.fromkeys(digest for digest in before if digest != code.digest)))


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder
