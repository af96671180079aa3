"""One trial, from its generator to its record. This module knows nothing of Ray; it needs only the storage."""

import logging
import math
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from contrasweep import canonical
from contrasweep.cluster import out_of_memory
from contrasweep.cluster.usage import Meter
from contrasweep.code.version import versions
from contrasweep.errors import AttemptSuperseded, ProcessLostError, SpecError, StorageError
from contrasweep.processes import scratch_folder
from contrasweep.rows import Row
from contrasweep.running.failures import LACKS_METRIC
from contrasweep.running.signals import Termination
from contrasweep.running.worker.attempt import TrialAttempt
from contrasweep.running.worker.output import Output
from contrasweep.running.worker.recorded_config import RecordedConfig
from contrasweep.running.worker.reports import SystemUse
from contrasweep.storage.checkpoints import Checkpoints, Retention
from contrasweep.storage.record import CodeRef, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.trial import Report, Trial

log = logging.getLogger(__name__)
NO_NOTES = TrialNotes()
NO_CODE = CodeRef()
NEWEST = Retention()


@dataclass
class Advance:
    """The progress that `advance` returns: rows of the new reports (step, time, metrics), and the record at the end."""

    reports: list[Row] = field(default_factory=list)
    record: Record | None = None


class Execution:
    """Runs one trial, from its newest checkpoint in the storage to its record.

    Metrics and checkpoints are written while it trains, and the record last. A process that is killed loses at most the
    steps since its newest checkpoint.
    """

    def __init__(
        self,
        trial: Trial,
        function: Callable[..., Generator[Report]],
        records: StudyRecords,
        *,
        metric: str,
        notes: TrialNotes = NO_NOTES,
        code: CodeRef = NO_CODE,
        packages: Mapping[str, str] | None = None,
        limits: AbstractContextManager[None] | None = None,
        output: Output | None = None,
        retention: Retention = NEWEST,
    ) -> None:
        """Begin one attempt of a trial; the trainable is called by the first `advance`.

        Args:
            trial: The trial.
            function: Its trainable.
            records: The study in the storage.
            metric: The study's metric, which the last report must have.
            notes: Notes for the record.
            code: The code of the trial, for the record.
            packages: Name -> version of the packages that the code imports, for the record.
            limits: Limits on memory (see `cluster.guard`), which hold from here to the trial's end.
            output: The trial's log, which is open already; it is closed at the trial's end.
            retention: Which checkpoints stay.
        """
        self.metric = metric
        self.packages = dict(packages or {})
        self.output = output
        # Claim the trial and fetch its newest checkpoint.
        meter = Meter().start()
        scratch = scratch_folder("trial")
        self.attempt = TrialAttempt(
            trial,
            records,
            scratch,
            notes=notes,
            code=code,
            retention=retention,
        )
        self.reports = self.attempt.reports
        resume = self.attempt.resume
        self.seconds = self.attempt.extra.seconds  # of training, over all attempts
        started = self.attempt.extra.started or 0.0
        self.use = SystemUse(trial.id, records, meter, started, resumed=resume is not None)
        # Each attempt has a folder in the storage, which stays; in an object store there is none.
        store = records.store
        if isinstance(store, LocalStore):
            attempt = self.attempt.claim.owner.attempts
            trial = replace(trial, folder=store.root / records.key(trial.id, f"folder/{attempt}"))
        # The trainable gets a copy of its settings, because it may change lists in them, and the record has these too.
        trial = replace(trial, config=canonical.Config(trial.config))
        # A trainable without `settings` does not declare its settings: then those that it reads are noted.
        self.watched = None if hasattr(function, "settings") else RecordedConfig(trial.config)
        if self.watched is not None:
            trial = replace(trial, config=self.watched)
        # The folder for the checkpoint that the trial starts from. A trial that resumes does not need it any more.
        start = None if resume is not None or trial.start is None else scratch / "start"
        self.generator = _reports(function, trial, resume, records, start)
        self.finished = False
        # What is closed at the trial's end, in reverse order.
        self.opened = ExitStack()
        self.opened.callback(shutil.rmtree, scratch, ignore_errors=True)
        self.opened.enter_context(limits or nullcontext())
        self.termination = self.opened.enter_context(Termination())
        if output is not None:
            self.opened.callback(output.close)
        # First the meter stops, then the generator cleans up, then the newest checkpoint is stored.
        for close in (self.attempt.close, self.generator.close, meter.stop):
            self.opened.callback(close)

    def advance(self, at_least_s: float = 0.0) -> Advance:
        """Train until there is a report and `at_least_s` seconds have passed, or the trial ends; return what is new.

        With 0 seconds each report is returned by itself, because a pruner decides on each. A trainable that raises an
        error, or calls `sys.exit`, ends its trial as `failed`, with the traceback in the record.

        Raises:
            AttemptSuperseded: A later attempt of the trial has begun.
            StorageError, ProcessLostError: No fault of the trial, which resumes when it is run again.
            SystemExit: This process has received SIGINT or SIGTERM; the trial resumes then too.
            Exception: An out-of-memory error, which the scheduler answers with more memory.
        """
        result = Advance()
        began = time.monotonic()
        with self._ended_if_superseded():
            while result.record is None and (
                not result.reports or time.monotonic() - began < at_least_s
            ):
                self._train(result)
            if result.record is None:
                # A pruner may let this trial or a copy of it resume from here later, so the checkpoint must be stored.
                if not at_least_s:
                    self.attempt.drain()
                # Reports are written to a folder each time, and to an object store when they are due.
                if self.attempt.local or not at_least_s or time.monotonic() >= self.reports.due:
                    self.reports.write()
                    self.use.write()
        return result

    def finish(self, status: Status, *, error: str | None = None) -> Record:
        """End the trial with `status`: write its reports and log, and the record last; return the record.

        `error` is the text of a failure; None without one. Raises `AttemptSuperseded` where another attempt has written
        the record already.
        """
        attempt = self.attempt
        reports = self.reports
        with self._ended_if_superseded():
            attempt.drain()
            attempt.claim.check()  # last, because to drain may take long
            reports.write(items=True)
            self.use.write()
            meter = self.use.meter
            if self.output is not None:
                self.output.close()
            record = Record.of(
                reports.trial,
                status=status,
                rows=reports.rows,
                step=reports.step,
                seconds=self.seconds,
                started=self.use.started,
                ended=time.time(),
                attempts=attempt.claim.owner.attempts,
                error=error,
                host=socket.gethostname(),
                gpu_memory_gib=meter.peak_gpu_memory_gib,
                gpu_utilisation=meter.gpu_utilisation,
                host_memory_gib=meter.peak_host_memory_gib,
                items=reports.item_names,
                artifacts=reports.artifacts,
                notes=attempt.notes,
                versions=self.packages | versions(),
                code=attempt.code,
                unused_settings=self._unused_settings(),
                warnings=0 if self.output is None else self.output.warnings,
            )
            # The newest checkpoint is deleted if it is not the best. This is before the record: if the process ended in
            # between, nobody would delete it later.
            if status.counts and attempt.retention.keep == "best":
                attempt.checkpoints.conclude("best", attempt.claim.check)
            if not reports.records.create(record):
                raise attempt.claim.superseded("another attempt has written its record")
            # With `none` all are deleted, after the record: until then the trial may resume from its checkpoint.
            if status.counts and attempt.retention.keep == "none":
                attempt.checkpoints.conclude("none")
        self.close()
        return record

    def close(self) -> None:
        """Close the trial's generator, whose `finally` cleans up, and its checkpoints, log and folder.

        A second call does nothing.
        """
        self.finished = True
        self.opened.close()

    def _train(self, result: Advance) -> None:
        """Train up to the next report or to the record, whichever comes first, and add it to `result`.

        The errors that `advance` raises are raised after this attempt was closed.
        """
        try:
            row, decides = self._next()
            if decides:
                result.reports.append(row)
        except StopIteration:
            self._exit_if_terminated()
            result.record = self._end()
        except AttemptSuperseded:  # `advance` ends this attempt
            raise
        # Also such as `asyncio.CancelledError` or a `KeyboardInterrupt` without a signal, which are no `Exception`.
        except BaseException as error:
            self._exit_if_terminated()
            if (
                isinstance(error, StorageError | ProcessLostError)
                or out_of_memory.exhausted_memory(error) is not None
            ):
                self.close()
                raise
            result.record = self.finish(
                Status.FAILED, error="".join(traceback.format_exception(error))
            )
        self._exit_if_terminated()

    def _next(self) -> tuple[Row, bool]:
        """Train up to the next report, keep it and store its checkpoint.

        Return the report's row (step, time and metrics), and whether the driver decides on this report. A pruner
        decides on each step once: on its first report, or on the revised one that first has the study's metric. Raises
        the errors of the trainable, and `StopIteration` where the trainable has ended.
        """
        # A later attempt may begin while the driver decides, and while this one trains.
        self.attempt.claim.check()
        began = time.perf_counter()
        try:
            report = next(self.generator)
        finally:
            self.seconds += time.perf_counter() - began
        self.attempt.claim.check()
        before = self.reports.rows[-1] if self.reports.rows else {}
        row = self.reports.take(report)
        if report.checkpoint is not None:
            self.attempt.save(Path(report.checkpoint), self.seconds, self._unused_settings())
        adds_metric = self.metric in row and self.metric not in before
        return row, adds_metric or row["step"] != before.get("step")

    def _unused_settings(self) -> tuple[str, ...]:
        """Return the settings that neither this attempt nor the attempts before its checkpoint have read.

        () for a trainable that declares its settings.
        """
        unused = () if self.watched is None else self.watched.unused_settings()
        # None: there was no attempt before.
        unused_before = self.attempt.extra.unused_settings
        return tuple(name for name in unused if unused_before is None or name in unused_before)

    def _end(self) -> Record:
        """End the trial after its trainable has returned; it is done if its last report has the study's metric.

        Without the metric, or with a value that is not finite, it ends as failed; the error names what it reported.
        """
        rows = self.reports.rows
        final = rows[-1].get(self.metric) if rows else None
        if final is not None and math.isfinite(final):
            return self.finish(Status.DONE)
        reported_names = ", ".join(sorted(set(rows[-1]) - {"step", "time"})) if rows else "nothing"
        lacks = LACKS_METRIC.format(metric=self.metric)
        problem = lacks if final is None else f"the last report's metric {self.metric!r} is {final}"
        return self.finish(Status.FAILED, error=f"{problem}; it reported: {reported_names}\n")

    @contextmanager
    def _ended_if_superseded(self) -> Iterator[None]:
        """End this attempt, which writes nothing more, at an `AttemptSuperseded` within the `with` block."""
        try:
            yield
        except AttemptSuperseded as error:
            if not self.finished:
                log.warning("%s", error)
                self.attempt.abandon()
                if self.output is not None:
                    self.output.abandon()
                self.close()
            raise

    def _exit_if_terminated(self) -> None:
        """Raise `SystemExit` where this process was told to end by a signal, unless the trial has its record."""
        if self.termination.requested and not self.finished:
            self.close()
            raise SystemExit(1)


def _reports(
    function: Callable[..., Generator[Report]],
    trial: Trial,
    resume: Path | None,
    records: StudyRecords,
    start: Path | None,
) -> Generator[Report]:
    """Yield the reports of a trainable.

    The trainable is called when the first report is asked for, so that its errors are the trial's. The checkpoint that
    the trial starts from is fetched into the folder `start` (None: there is none).
    """
    if start is not None:
        _fetch_start(trial, records, start)
        trial = replace(trial, start_folder=start)
    reports = function(trial, resume=resume)
    if not isinstance(reports, Iterator):
        raise SpecError(
            "a trainable returns an iterator of reports",
            place=trial.trainable,
            value=reports,
            hint="use `yield Report(step, metrics)`",
        )
    yield from reports


def _fetch_start(trial: Trial, records: StudyRecords, folder: Path) -> None:
    """Fetch the checkpoint that a trial starts from into `folder`.

    Raises `StorageError`, which is no fault of the trial, where the checkpoint was deleted or replaced since.
    """
    assert trial.start is not None
    source = StudyRecords(records.storage, trial.start.study)
    record = source.read_one(trial.start.trial)
    folder.mkdir()
    saved = Checkpoints.of(source, trial.start.trial).fetch(folder)
    if saved is None or record is None or record.ended != trial.start.ended:
        raise StorageError(
            f"the checkpoint of trial {trial.start.trial} of {trial.start.study}, from which this trial starts, was "
            "deleted or trained again since the study was planned; run the study again"
        )
