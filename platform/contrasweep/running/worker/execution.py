"""One attempt of a trial, from its generator to its record, with its reports, its checkpoints and what it uses.

This module knows nothing of Ray; it needs only the storage. In a folder of this machine each checkpoint is stored at
once. To an object store one is uploaded every few seconds at most, because training waits for it. The trainable may
change the files of one that waits as soon as it goes on, so they are copied to this machine's disk. A newer one
replaces it, because a trial resumes from its newest checkpoint only.
"""

import functools
import logging
import math
import operator
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, SupportsIndex

import pyarrow as pa

from contrasweep import canonical
from contrasweep.cluster import out_of_memory
from contrasweep.cluster.usage import Meter
from contrasweep.code.version import versions
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import (
    AttemptSuperseded,
    BrokenFileError,
    ContrasweepError,
    ProcessLostError,
    SpecError,
    StorageError,
)
from contrasweep.processes import scratch_folder
from contrasweep.rows import Row
from contrasweep.running.failures import LACKS_METRIC
from contrasweep.running.signals import Termination
from contrasweep.running.study_code import checked_function
from contrasweep.running.worker.isolation import Isolation
from contrasweep.running.worker.output import Output
from contrasweep.storage.attempts import Attempt
from contrasweep.storage.checkpoints import Checkpoints, Extra, Retention, Saved, files_of
from contrasweep.storage.names import check_file_name, check_label
from contrasweep.storage.record import MAX_COUNT, CodeRef, Record, Status, TrialNotes, unix_time
from contrasweep.storage.records import REPORT_COLUMNS, StudyRecords, encode_items
from contrasweep.storage.store import LocalStore
from contrasweep.trial import Report, RevisedReport, Trial

log = logging.getLogger(__name__)
NO_NOTES = TrialNotes()
NO_CODE = CodeRef()
KEEP_NEWEST = Retention()
"""Of the checkpoints of a trial the newest stays."""
UPLOAD_EVERY_S = 5.0
"""Seconds between the uploads of two checkpoints, at least. An upload costs some five requests; a trial that is lost
trains these seconds again."""
UPLOAD_SHARE = 0.05
"""The part of the time that uploads of checkpoints may take."""


@dataclass
class Advance:
    """What `Execution.advance` returns: the rows (step, time, metrics) of new `reports`, and the `record`.

    `record` is None until the trial has ended.
    """

    reports: list[Row] = field(default_factory=list)
    record: Record | None = None


REPORTS_EVERY_S = 5.0
"""Seconds between two uploads of a trial's reports to an object store. A checkpoint, the trial's end, and a pruner that
decides on each report have them stored earlier. Else they need not be: the driver has them, and a trial resumes from
its checkpoint."""


class Reports:
    """The reports of one trial, those of its earlier attempts too, and how many of them the storage has."""

    def __init__(self, trial: Trial, records: StudyRecords, saved: Saved | None) -> None:
        """Read the reports of earlier attempts up to the checkpoint `saved`, from which the trial goes on.

        Without a checkpoint, or where some of these reports are missing, `rows` is empty and the trial starts over.
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
        may delete the files when it goes on. Scores of items are stored together with the next checkpoint, or with the
        record.

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
    """Return the rows of the reports up to the checkpoint `saved`, by which the trial goes on.

    [] without a checkpoint. [] too where one of these reports is missing: the trial then starts over, because a curve
    with a gap is worse.
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
    """Return the name of a metric; raise `SpecError` where no metric can have it.

    It must be a line of printable characters, and not the name of another column of the reports, such as `step`.
    """
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


class RecordedConfig(canonical.Config):
    """A trial's config, with its nested mappings, that notes each setting that is read.

    To iterate over the keys reads no setting. To copy, merge or pickle the config reads all settings.
    """

    def __init__(self, config: Config, place: str = "", read: set[str] | None = None) -> None:
        """Wrap `config`, the whole config or a mapping nested in it.

        `place` is the dotted key of a nested mapping, such as `optimizer`; "": `config` is the whole config. `read` is
        the set to which dotted keys are added as they are read; nested mappings share it. None: a new set.
        """
        super().__init__({})
        self.place = place
        self.read = set[str]() if read is None else read
        # The canonical text is made now, from the plain config, so that a later use of it reads no setting.
        self.text = canonical.dumps(config)
        for key, value in config.items():
            if isinstance(value, Mapping):
                value = RecordedConfig(value, self._at(key), self.read)
            # Not `self[key] = value`, which would count the key as read.
            dict.__setitem__(self, key, value)

    def unused_settings(self) -> tuple[str, ...]:
        """Return the dotted keys of settings that the trainable never read, in the order of the config."""
        unused: list[str] = []
        # Not `self.items()`, which would count all settings as read.
        for key, value in dict.items(self):
            # Of a nested mapping they are those within it, unless it is empty.
            if isinstance(value, RecordedConfig) and len(value):
                unused += value.unused_settings()
            elif self._at(key) not in self.read:
                unused.append(self._at(key))
        return tuple(unused)

    def _at(self, key: str) -> str:
        """Return the dotted key that `key` of this mapping has in the whole config: `optimizer.lr` for `lr`."""
        return f"{self.place}.{key}".lstrip(".")

    def _note(self, *keys: object) -> None:
        """Note that these keys of this mapping were read."""
        self.read.update(self._at(key) for key in keys if isinstance(key, str))

    def _all(self) -> MutableConfig:
        """Return the whole config as plain mappings, and count all of it as read."""
        return {
            key: value._all() if isinstance(value, RecordedConfig) else value
            for key, value in self.items()
        }

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._note(key)  # what the trainable adds is no setting that it passes over
        super().__setitem__(key, value)

    # Without this method, `**config` and dict(config) would not call __getitem__.
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    # These read and set by the methods above; those of `dict` would not.
    __contains__ = MutableMapping.__contains__
    get = MutableMapping.get  # type: ignore[assignment]
    pop = MutableMapping.pop  # type: ignore[assignment]
    setdefault = MutableMapping.setdefault  # type: ignore[assignment]
    values = MutableMapping.values  # type: ignore[assignment]

    def items(self) -> Any:
        """Return all keys with their values, as `dict.items` does; all of these keys count as read."""
        self._note(*dict.keys(self))
        return super().items()

    def copy(self) -> MutableConfig:
        """Return a plain dict with the same settings, in which reading is not noted; all settings count as read now."""
        return self._all()

    def __or__(self, other: Any) -> Any:
        return self._all() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._all()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._all(),)


class Execution:
    """One attempt of a trial, from its newest checkpoint in the storage to its record.

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
        retention: Retention = KEEP_NEWEST,
    ) -> None:
        """Claim the trial and fetch its newest checkpoint; the trainable is called by the first `advance`.

        The trial starts over where it has no checkpoint, or the reports up to its checkpoint are broken. It also does
        where the network that it started from was trained again since.

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
        self.notes = notes
        self.packages = dict(packages or {})
        self.output = output
        self.retention = retention
        self.local = isinstance(records.store, LocalStore)
        meter = Meter().start()
        scratch = scratch_folder("trial")
        self.claim = Attempt(records, trial)
        self.checkpoints = Checkpoints.of(records, trial.id)
        self._copy = scratch / "checkpoint"  # of the files of the checkpoint that waits
        # stores the checkpoint that waits; None: none waits
        self._waiting: Callable[[], None] | None = None
        self._due = time.monotonic()  # when the next checkpoint may be uploaded
        folder = scratch / "resume"
        folder.mkdir()
        saved = self.checkpoints.fetch(folder)
        # The checkpoint continues a network that was trained again since, so it is not used.
        if saved and trial.start and saved.extra.start_ended != trial.start.ended:
            log.warning("trial %s starts over: %s was trained again", trial.id, trial.start.trial)
            shutil.rmtree(folder)
            saved = None
        # A checkpoint without its reports would leave a gap in the curve, so it is not used either.
        self.reports = Reports(trial, records, saved)
        saved = saved if self.reports.rows else None
        self.resume = folder if saved else None  # the checkpoint from which training resumes
        # Training time, start and code continue from the checkpoint.
        before = saved.extra if saved else Extra()
        # The other codes that trained it so far; "" is that of a checkpoint that does not name its code.
        earlier = [*before.earlier_code, before.code or ""] if saved else []
        others = dict.fromkeys(digest for digest in earlier if digest != code.digest)
        self.code = replace(code, earlier=tuple(others))
        # The fields that are the same beside each checkpoint of this attempt; `_save` replaces the others.
        self.extra = Extra(
            seconds=before.seconds,
            started=unix_time() if before.started is None else before.started,
            code=self.code.digest,
            earlier_code=self.code.earlier,
            gpus=notes.gpus,
            cost_per_hour=notes.cost_per_hour,
            unused_settings=before.unused_settings,
            start_ended=None if trial.start is None else trial.start.ended,
        )
        self.seconds = before.seconds  # of training, over all attempts
        self.use = SystemUse(
            trial.id, records, meter, self.extra.started or 0.0, resumed=saved is not None
        )
        # Each attempt has a folder in the storage, which stays; in an object store there is none.
        if isinstance(records.store, LocalStore):
            key = records.key(trial.id, f"folder/{self.claim.owner.attempts}")
            trial = replace(trial, folder=records.store.root / key)
        # The trainable gets a copy of its settings, because it may change lists in them, and the record has these too.
        trial = replace(trial, config=canonical.Config(trial.config))
        # A trainable without `settings` does not declare its settings: then those that it reads are noted.
        self.watched = None if hasattr(function, "settings") else RecordedConfig(trial.config)
        if self.watched is not None:
            trial = replace(trial, config=self.watched)
        # The folder for the checkpoint that the trial starts from. A trial that resumes does not need it any more.
        start = None if saved or trial.start is None else scratch / "start"
        self.generator = _reports(function, trial, self.resume, records, start)
        self.finished = False
        # What is closed at the trial's end, in reverse order.
        self.opened = ExitStack()
        self.opened.callback(shutil.rmtree, scratch, ignore_errors=True)
        self.opened.enter_context(limits or nullcontext())
        self.termination = self.opened.enter_context(Termination())
        if output is not None:
            self.opened.callback(output.close)
        # First the meter stops, then the generator cleans up, then the newest checkpoint is stored.
        for close in (self._store_newest, self.generator.close, meter.stop):
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
                # A pruner may let this trial resume from here later, so the checkpoint must be stored.
                if not at_least_s:
                    self._store_waiting()
                # Reports are written to a folder each time, and to an object store when they are due.
                if self.local or not at_least_s or time.monotonic() >= self.reports.due:
                    self.reports.write()
                    self.use.write()
        return result

    def finish(self, status: Status, *, error: str | None = None) -> Record:
        """End the trial with `status`: write its reports and log, and the record last; return the record.

        `error` is the text of a failure; None without one. Raises `AttemptSuperseded` where another attempt has written
        the record already.
        """
        reports = self.reports
        with self._ended_if_superseded():
            self._store_waiting()
            # Checked once more, because the upload of a checkpoint may take long.
            self.claim.check()
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
                attempts=self.claim.owner.attempts,
                error=error,
                host=socket.gethostname(),
                gpu_memory_gib=meter.peak_gpu_memory_gib,
                gpu_utilisation=meter.gpu_utilisation,
                host_memory_gib=meter.peak_host_memory_gib,
                items=reports.item_names,
                artifacts=reports.artifacts,
                notes=self.notes,
                versions=self.packages | versions(),
                code=self.code,
                unused_settings=self._unused_settings(),
                warnings=0 if self.output is None else self.output.warnings,
            )
            # The newest checkpoint is deleted if it is not the best. This is before the record: if the process ended in
            # between, nobody would delete it later.
            if status.counts and self.retention.keep == "best":
                self.checkpoints.conclude("best", self.claim.check)
            if not reports.records.create(record):
                raise self.claim.superseded("another attempt has written its record")
            # With `none` all are deleted, after the record: until then the trial may resume from its checkpoint.
            if status.counts and self.retention.keep == "none":
                self.checkpoints.conclude("none")
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
            row, needs_decision = self._next()
            if needs_decision:
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
        self.claim.check()
        began = time.perf_counter()
        try:
            report = next(self.generator)
        finally:
            self.seconds += time.perf_counter() - began
        self.claim.check()
        before = self.reports.rows[-1] if self.reports.rows else {}
        row = self.reports.take(report)
        if report.checkpoint is not None:
            self._save(Path(report.checkpoint))
        adds_metric = self.metric in row and self.metric not in before
        return row, adds_metric or row["step"] != before.get("step")

    def _save(self, folder: Path) -> None:
        """Store the files in `folder` as the checkpoint after the latest report.

        For an object store this may wait until an upload is due; the files are then copied first, as the trainable may
        change them.
        """
        reports = self.reports
        keep = self.retention.keep
        # Where an older checkpoint may stay, none is replaced by a newer one before it is stored.
        waits = not self.local and keep in ("newest", "none") and time.monotonic() < self._due
        if waits:
            shutil.rmtree(self._copy, ignore_errors=True)
            try:
                for name, path in files_of(folder).items():
                    (self._copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, self._copy / name)
                folder = self._copy
            except OSError:  # this machine's disk has no room for a copy
                waits = False
        extra = replace(
            self.extra,
            seconds=self.seconds,
            items=reports.item_names,
            artifacts=reports.artifacts,
            unused_settings=self._unused_settings(),
        )
        self._waiting = functools.partial(
            self.checkpoints.save,
            folder,
            reports.step,
            extra,
            check=self.claim.check,
            keep=keep,
            score=self.retention.score(reports.rows[-1]),
        )
        if not waits:
            self._store_waiting()

    def _store_waiting(self) -> None:
        """Store the checkpoint that waits, if there is one, after the reports and scores up to it.

        A later attempt may have begun while the checkpoint waited, for example because this process was stopped. This
        is checked before anything is written, and again before the marker names the checkpoint. Raises
        `AttemptSuperseded` where it has.
        """
        store = self._waiting
        self._waiting = None
        if store is None:
            return
        began = time.monotonic()
        self.claim.check()
        self.reports.write(items=True)
        store()
        took_s = time.monotonic() - began
        # So uploads take no larger part of the time than `UPLOAD_SHARE`.
        self._due = time.monotonic() + max(UPLOAD_EVERY_S, took_s / UPLOAD_SHARE)

    def _store_newest(self) -> None:
        """Store the checkpoint that waits to be uploaded.

        An error is only logged. The trial then resumes from an earlier checkpoint, if it must resume.
        """
        try:
            self._store_waiting()
        except ContrasweepError as error:
            log.warning("the newest checkpoint was not stored: %s", error)

    def _unused_settings(self) -> tuple[str, ...]:
        """Return the settings that neither this attempt nor the attempts before its checkpoint have read.

        () for a trainable that declares its settings.
        """
        unused = () if self.watched is None else self.watched.unused_settings()
        # None: there was no attempt before.
        unused_before = self.extra.unused_settings
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
        """End this attempt where the body of the `with` block raises `AttemptSuperseded`, and raise that again.

        Another attempt of the trial has begun then, so this one writes no more to the storage.
        """
        try:
            yield
        except AttemptSuperseded as error:
            if not self.finished:
                log.warning("%s", error)
                self._waiting = None
                if self.output is not None:
                    self.output.abandon()
                self.close()
            raise

    def _exit_if_terminated(self) -> None:
        """Raise `SystemExit` where a signal has told the process to end and the trial has no record.

        This attempt is closed before that.
        """
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
    if start is not None and trial.start is not None:
        source = StudyRecords(records.storage, trial.start.study)
        record = source.read_one(trial.start.trial)
        start.mkdir()
        saved = Checkpoints.of(source, trial.start.trial).fetch(start)
        if saved is None or record is None or record.ended != trial.start.ended:
            raise StorageError(  # no fault of the trial
                f"the checkpoint of trial {trial.start.trial} of {trial.start.study}, from which this trial starts, "
                "was deleted or trained again since the study was planned; run the study again"
            )
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


def begin(
    trial: Trial,
    code: CodeRef,
    load: Callable[[], Callable[..., Any]],
    isolation: Isolation,
    records: StudyRecords,
    **options: Any,
) -> Execution:
    """Return a new attempt of a trial in this process, with the trial's log open.

    `load` imports the trainable, and `isolation` sets the global states of the process for it. `options` are further
    arguments of `Execution`. Raises `OtherCodeHere` where the code on this machine is not `code`.
    """
    function, packages = checked_function(
        records.storage,
        trial.study,
        code.digest,
        lambda: isolation.begin(trial.id, trial.trainable, load),
    )
    # If the execution cannot begin, the log is closed here; otherwise the execution closes it.
    with ExitStack() as opened:
        output = opened.enter_context(closing(Output(records, trial.id).open()))
        execution = Execution(
            trial, function, records, code=code, packages=packages, output=output, **options
        )
        opened.pop_all()
    return execution
