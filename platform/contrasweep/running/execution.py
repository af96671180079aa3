"""One trial from its generator to its record. Knows nothing of Ray; works in any process that sees the storage."""

import math
import shutil
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster import out_of_memory
from cluster.usage import Meter
from contrasweep.errors import SpecError, StorageError
from contrasweep.running.signals import Termination
from contrasweep.running.versions import versions
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import CodeRef, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Report, Trial

BUDGETED = ("gpus", "cost_per_hour")
"""Notes that a checkpoint keeps too, so that an unfinished trial counts in the study's budgets."""


@dataclass
class StepResult:
    """What `advance` returns: the new reports as {step, time, metrics}, and the record once there is one."""

    reports: list[dict[str, Any]] = field(default_factory=list)
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
    ) -> None:
        """`notes`, `code` and `packages` (name -> version, of what the code imports) go into the record; `limits` (see
        `cluster.guard`) are open from before the trial's first step to its end."""
        self.trial, self.records, self.metric = trial, records, metric
        self.notes = notes or TrialNotes()
        self.code, self.packages = code or CodeRef(), dict(packages or {})
        self.meter = Meter().start()
        self.checkpoints = Checkpoints(records.store, records.key(trial.id, "checkpoint"))
        self.scratch = Path(tempfile.mkdtemp(prefix="contrasweep-"))
        saved = self.checkpoints.fetch(_fresh(self.scratch / "resume"))
        extra = saved.extra if saved else {}
        self.rows = [row for row in records.metrics(trial.id) if saved and row["step"] <= saved.step]
        self.seconds = float(extra.get("seconds", 0.0))
        self.started = float(extra.get("started", time.time()))
        self.attempts = int(extra.get("attempts", 0)) + 1
        self.step = saved.step if saved else 0
        self.items: tuple[str, ...] = tuple(extra.get("items", ()))
        self.artifacts: tuple[str, ...] = tuple(extra.get("artifacts", ()))
        self.code = _went_on(self.code, extra) if saved else self.code
        self.finished = False
        self.limits = ExitStack()
        self.limits.enter_context(limits or nullcontext())
        self.termination = self.limits.enter_context(Termination())
        self.generator = function(trial, resume=self.scratch / "resume" if saved else None)

    def advance(self, at_least_s: float = 0.0) -> StepResult:
        """Train until a report is there and `at_least_s` have passed, or the trial ends.

        A trainable that raises ends its trial as `failed`, with the traceback in the record. Raised instead are
        out-of-memory errors, because the scheduler answers them with more memory, and `StorageError` and, of a process
        that received SIGTERM, `SystemExit`, because these are no fault of the trial, which goes on from its checkpoint
        when it is run again.
        """
        result = StepResult()
        began = time.monotonic()
        while result.record is None and (not result.reports or time.monotonic() - began < at_least_s):
            try:
                result.reports.append(self._take(self._next()))
            except StopIteration:
                self._exit_if_terminated()
                result.record = self._end()
            except Exception as error:
                self._exit_if_terminated()
                if isinstance(error, StorageError) or out_of_memory.which(error) is not None:
                    self.close()
                    raise
                result.record = self.finish(Status.FAILED, error="".join(traceback.format_exception(error)))
            except BaseException:
                self.close()
                raise
            self._exit_if_terminated()
        if result.record is None:
            self.records.write_metrics(self.trial.id, self.rows)
        return result

    def finish(self, status: Status, *, error: str | None = None) -> Record:
        """End the trial with `status`: the metrics first, the record last."""
        if self.rows:
            self.records.write_metrics(self.trial.id, self.rows)
        used = self.meter.to_dict()
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
            notes=self.notes,
            versions=self.packages | versions(),
            code=self.code,
        )
        self.records.write(record)
        self.close()
        return record

    def close(self) -> None:
        """Stop the generator, whose `finally` cleans up, and drop the scratch folder."""
        self.finished = True
        self.meter.stop()
        try:
            self.generator.close()
        finally:
            self.limits.close()
            shutil.rmtree(self.scratch, ignore_errors=True)

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

    def _take(self, report: Report) -> dict[str, Any]:
        """Keep a report. Its checkpoint goes to the storage after all that came with it and before, so that they
        agree; items and artifacts go there at once, because the trainable may drop its files when it goes on."""
        if report.step <= self.step:
            raise SpecError("reports count their steps up", place=self.trial.trainable, value=(self.step, report.step))
        self.step = report.step
        metrics = {name: float(value) for name, value in report.metrics.items()}
        row = {"step": report.step, "time": time.time(), **metrics}
        self.rows.append(row)
        for name, path in report.artifacts.items():
            self.records.store.put_file(self.records.key(self.trial.id, f"artifacts/{name}"), path)
        self.artifacts = tuple(dict.fromkeys([*self.artifacts, *report.artifacts]))
        if report.items:
            self.records.write_items(self.trial.id, report.items)
            self.items = tuple(report.items)
        if report.checkpoint is not None:
            self.records.write_metrics(self.trial.id, self.rows)
            self.checkpoints.save(
                report.checkpoint,
                report.step,
                seconds=self.seconds,
                started=self.started,
                attempts=self.attempts,
                items=self.items,
                artifacts=self.artifacts,
                code=self.code.digest,
                earlier_code=self.code.earlier,
                **{name: value for name, value in self.notes.to_dict().items() if name in BUDGETED},
            )
        return row

    def _end(self) -> Record:
        final = self.rows[-1].get(self.metric) if self.rows else None
        if final is not None and math.isfinite(final):
            return self.finish(Status.DONE)
        known = ", ".join(sorted(set(self.rows[-1]) - {"step", "time"})) if self.rows else "nothing"
        problem = "is missing" if final is None else f"is {final}"
        return self.finish(
            Status.FAILED, error=f"the last report's metric {self.metric!r} {problem}; it reported: {known}\n"
        )


def _went_on(code: CodeRef, checkpoint: Mapping[str, Any]) -> CodeRef:
    """`code` with the others that trained up to the checkpoint that it goes on from."""
    before = [*checkpoint.get("earlier_code", ()), str(checkpoint.get("code", ""))]
    return replace(code, earlier=tuple(dict.fromkeys(digest for digest in before if digest != code.digest)))


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder
