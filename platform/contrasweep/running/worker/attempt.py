"""One attempt of a trial, and the upload of its checkpoints to the storage.

In a folder of this machine a checkpoint is stored at once. To an object store it is uploaded while training goes on.
The trainable may change the files as soon as it goes on, so they are first copied to this machine's disk. A thread
uploads the copy, every few seconds at most. One checkpoint may be on its way and another one may wait. A newer one
replaces the one that waits, because a trial resumes from its newest checkpoint only. A checkpoint counts once its
marker is stored. An error of the upload is raised in the trial's own thread, at its next report or before its record.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from contrasweep.errors import AttemptSuperseded, StorageError
from contrasweep.running.worker.reports import ItemScores, Reports
from contrasweep.storage.attempts import Attempt
from contrasweep.storage.checkpoints import Checkpoints, Extra, Retention, files_of
from contrasweep.storage.record import CodeRef, TrialNotes, unix_time
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.trial import Trial

log = logging.getLogger(__name__)
EVERY_S = 5.0
"""Seconds between the uploads of two checkpoints, unless the trial waits for one. An upload costs some five requests;
without it, a trial that is lost trains these seconds again."""
CLOSE_TIMEOUT_S = 20.0
"""How long a trial that is stopped early waits for its newest checkpoint."""


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint of a trial, to be stored."""

    folder: Path  # of its files
    step: int
    extra: Extra  # what is stored beside it
    reports: int  # how many reports the trial has made up to it
    item_scores: ItemScores | None = None  # the latest scores of test items; None: none yet
    score: float | None = None  # of the last report, larger is better; None: it is not compared


class TrialAttempt:
    """One attempt of a trial: it claims the trial, fetches the newest checkpoint and stores the next ones.

    `save`, the claim's `check` and the writer's `drain` raise `AttemptSuperseded` where a later attempt has begun.
    """

    def __init__(
        self,
        trial: Trial,
        records: StudyRecords,
        scratch: Path,
        *,
        notes: TrialNotes,
        code: CodeRef,
        no_prior_state: bool,
        retention: Retention,
    ) -> None:
        """Claim the trial, and fetch its newest checkpoint into the folder `scratch`.

        The trial starts over where it has no checkpoint, or the reports up to its checkpoint are broken. It also does
        where the network that it started from was trained again since.

        Args:
            trial: The trial.
            records: The study in the storage.
            scratch: A folder of this machine.
            notes: Notes for the trial's record.
            code: The code of the trial, for its record.
            no_prior_state: The storage is known to have nothing of the trial.
            retention: Which checkpoints stay.
        """
        self.retention = retention
        self.claim = Attempt(records, trial, no_prior_state=no_prior_state)
        self.checkpoints = Checkpoints(
            records.store, records.key(trial.id, "checkpoint"), no_prior_state=no_prior_state
        )
        # In a folder of this machine a checkpoint is only copied, for which no thread is needed.
        local = isinstance(records.store, LocalStore)
        self.writer = CheckpointWriter(self.store, scratch, at_once=local)
        folder = scratch / "resume"
        folder.mkdir()
        saved = self.checkpoints.fetch(folder)
        # The checkpoint continues a network that was trained again since, so it is not used.
        if (
            saved is not None
            and trial.start is not None
            and saved.extra.start_ended != trial.start.ended
        ):
            log.warning("trial %s starts over: %s was trained again", trial.id, trial.start.trial)
            shutil.rmtree(folder)
            folder.mkdir()
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
        self.code = replace(code, earlier=tuple(others)) if saved else code
        self.notes = notes
        # The fields that are the same beside each checkpoint of this attempt; `save` replaces the others.
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

    def save(self, folder: Path, seconds: float, unused_settings: tuple[str, ...]) -> None:
        """Store the files of `folder` as the checkpoint after the latest report, now or while training goes on.

        `seconds` is the training time so far. `unused_settings` are the settings that no attempt has read. An error of
        an earlier upload is raised here.
        """
        reports = self.reports
        extra = replace(
            self.extra,
            seconds=seconds,
            items=reports.item_names,
            artifacts=reports.artifacts,
            unused_settings=unused_settings,
        )
        score = self.retention.score(reports.rows[-1])
        self.writer.put(
            Snapshot(folder, reports.step, extra, len(reports.rows), reports.item_scores, score)
        )
        # Where an older checkpoint may stay, each one must be stored before a newer one can replace it here.
        if self.retention.keep in ("best", "all"):
            self.writer.drain()

    def store(self, snapshot: Snapshot) -> None:
        """Write a checkpoint to the storage, after the reports and scores up to it, so that they agree with it.

        A later attempt may have begun while the checkpoint waited, for example because this process was stopped. This
        is checked before anything is written, and again before the marker names the checkpoint.
        """
        self.claim.check()
        self.reports.write(snapshot.reports, snapshot.item_scores)
        self.checkpoints.save(
            snapshot.folder,
            snapshot.step,
            snapshot.extra,
            check=self._check_checkpoint,
            keep=self.retention.keep,
            score=snapshot.score,
        )

    def _check_checkpoint(self) -> None:
        """Raise an error where a checkpoint that is being stored must not become the newest one.

        `AttemptSuperseded` where a later attempt has begun, `StorageError` where the trial was closed without it.
        """
        self.claim.check()
        if self.writer.left:
            raise StorageError(
                f"trial {self.reports.trial.id} was closed before its checkpoint was stored"
            )


class CheckpointWriter:
    """Passes snapshots to `store`, from a thread of its own. All methods are called by the trial's thread."""

    def __init__(
        self, store: Callable[[Snapshot], None], scratch: Path, *, at_once: bool = False
    ) -> None:
        """Copy snapshots into the folder `scratch` and store them.

        With `at_once`, `put` itself stores each snapshot, without a thread.
        """
        self._store = store
        self._scratch = scratch
        self.at_once = at_once
        self._changed = threading.Condition()
        self._newest: Snapshot | None = None  # to be stored
        self._storing = False  # whether the thread is storing a snapshot
        self._closing = False  # whether the thread is to store what waits, and end
        self._urgent = False  # whether `drain` waits, so that the thread stores before `_due`
        self._due = time.monotonic()  # when the next snapshot may be stored
        self._error: BaseException | None = None  # what ended the thread
        self.left = False  # whether the trial has closed, and what is not stored yet is given up
        self._thread: threading.Thread | None = None

    def put(self, snapshot: Snapshot) -> None:
        """Copy a checkpoint and let the thread store the copy; it replaces the one that still waits, if any.

        Where this machine's disk has no room for a copy, the checkpoint is stored before this returns. An error of the
        thread is raised here.
        """
        if self.at_once:
            self._store(snapshot)
            return
        self.check()
        # A name of its own: a checkpoint of the same step may wait or be stored still.
        copy = self._scratch / f"checkpoint-{time.monotonic_ns()}"
        try:
            for name, path in files_of(snapshot.folder).items():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy / name)
        except OSError:
            # The disk is full: store the earlier ones, which frees their copies, then this one from its own folder.
            shutil.rmtree(copy, ignore_errors=True)
            self.drain()
            self._store(snapshot)
            return
        with self._changed:
            replaced = self._newest
            self._newest = replace(snapshot, folder=copy)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if replaced is not None:
            shutil.rmtree(replaced.folder, ignore_errors=True)

    def check(self) -> None:
        """Raise the error that has ended the thread, if there is one."""
        if self._error is not None:
            raise self._error

    def drain(self) -> None:
        """Store at once all that waits, and return when it is stored. An error of the thread is raised here."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._error is not None or (self._newest is None and not self._storing)
            )
            self._urgent = False
        self.check()

    def abandon(self) -> None:
        """Give up the snapshot that waits, and close."""
        with self._changed:
            self._newest = None
        self.close()

    def close(self) -> None:
        """Store at once the snapshot that waits, and end the thread; wait `CLOSE_TIMEOUT_S` seconds at most.

        Nothing is raised. If the snapshot is not stored by then, the trial would resume from an earlier checkpoint.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        with self._changed:
            self.left = True
            self._newest = None

    def _work(self) -> None:
        """Store the newest snapshot when it is due, until the writer closes or an error ends it."""
        while True:
            # Until there is a snapshot, and then until it is due; `drain` and `close` do not wait for that time.
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None or self._closing)
                self._changed.wait_for(
                    lambda: self._urgent or self._closing, max(0.0, self._due - time.monotonic())
                )
                snapshot = self._newest
                self._newest = None
                # The writer closes, and no snapshot waits.
                if snapshot is None:
                    return
                self._storing = True
            try:
                self._store(snapshot)
            except BaseException as error:
                # Once the writer closes, the trial's thread raises no error of it any more, so it is logged.
                if self._closing and not isinstance(error, AttemptSuperseded):
                    log.warning(
                        "the checkpoint after step %s was not stored: %s", snapshot.step, error
                    )
                self._error = error
            finally:
                shutil.rmtree(snapshot.folder, ignore_errors=True)
                with self._changed:
                    self._storing = False
                    self._due = time.monotonic() + EVERY_S
                    self._changed.notify_all()
            if self._error is not None:
                return
