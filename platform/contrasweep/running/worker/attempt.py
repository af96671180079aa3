"""One attempt of a trial, and the upload of its checkpoints to the storage.

A folder of this machine takes a checkpoint at once. To an object store it goes while training goes on: a trainable may
change its files as soon as it goes on, so a checkpoint is first copied to this machine's disk; a thread then stores the
copy, every few seconds at most. One is being stored and one may wait: a newer one takes its place, because a trial goes
on from its newest checkpoint only. One counts when its marker is stored, as ever; what fails on the way is raised in
the trial's own thread with its next report, and before its record at the latest.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from contrasweep.errors import AttemptSuperseded, StorageError
from contrasweep.running.worker.reports import Reports
from contrasweep.storage.attempts import Attempt
from contrasweep.storage.checkpoints import Checkpoints, Extra, Retention, files_of
from contrasweep.storage.record import CodeRef, TrialNotes, unix_time
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.trial import Trial

log = logging.getLogger(__name__)
EVERY_S = 5.0
"""Seconds from storing one checkpoint to storing the next, unless the trial waits for it: each costs some five
requests, and a trial that is lost trains these seconds again."""
CLOSE_TIMEOUT_S = 20.0
"""How long a trial that is stopped early waits for its newest checkpoint."""


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint of a trial: the folder of its files, its step, what is kept beside it, and the reports up to it.

    `reports` is their number. `items` are the latest scores of items: the step that gave them and their bytes; None
    where there are none. `score` is the last report's metric, larger is better; None where only the best one is not
    looked for.
    """

    folder: Path
    step: int
    extra: Extra
    reports: int
    items: tuple[int, bytes] | None = None
    score: float | None = None


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
        """Claim the trial and fetch its checkpoint into the folder `scratch`; `retention`: which ones stay.

        `notes` and `code` are for its record. With `no_prior_state`, the trial is known to have no checkpoint. A
        checkpoint is of no use where the reports up to it are broken, or where the network that the trial started from
        was trained again: then it starts over.
        """
        self.retention = retention
        self.claim = Attempt(records, trial, no_prior_state=no_prior_state)
        self.checkpoints = Checkpoints(
            records.store, records.key(trial.id, "checkpoint"), no_prior_state=no_prior_state
        )
        # In a folder of this machine, to store a checkpoint is no more than to copy it: no thread is needed.
        local = isinstance(records.store, LocalStore)
        self.writer = CheckpointWriter(self.store, scratch, at_once=local)
        folder = scratch / "resume"
        folder.mkdir()
        saved = self.checkpoints.fetch(folder)
        # The checkpoint went on from a network that was trained again since, so it is of no use.
        if (
            saved is not None
            and trial.start is not None
            and saved.extra.start_ended != trial.start.ended
        ):
            log.warning("trial %s starts over: %s was trained again", trial.id, trial.start.trial)
            shutil.rmtree(folder)
            folder.mkdir()
            saved = None
        # Reports decide: a checkpoint without its reports would leave a gap in the curve, so training starts over.
        self.reports = Reports(trial, records, saved)
        saved = saved if self.reports.rows else None
        self.resume = folder if saved else None  # the checkpoint that training goes on from
        before = saved.extra if saved else Extra()
        self.code = _with_earlier(code, before) if saved else code
        self.notes = notes
        self.extra = Extra(  # what is kept beside each checkpoint; `save` puts in what changes
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

        `seconds` is the training time so far, `unused_settings` are those that no attempt has read. Raises what failed
        when an earlier one was stored.
        """
        reports = self.reports
        extra = replace(
            self.extra, seconds=seconds, items=reports.items, artifacts=reports.artifacts
        )
        extra = replace(extra, unused_settings=unused_settings)
        score = self.retention.score(reports.rows[-1])
        self.writer.put(
            Snapshot(folder, reports.step, extra, len(reports.rows), reports.scores, score)
        )
        # Where an older checkpoint may have to stay, none may be replaced by a newer one before it is stored.
        if self.retention.each_counts:
            self.writer.drain()

    def store(self, snapshot: Snapshot) -> None:
        """Write a checkpoint. The reports and scores before it are written first, so that they agree with it.

        The checkpoint may have waited while this process was stopped. So it is checked that no later attempt has begun,
        before it is written and once more before the marker names it.
        """
        self.claim.check()
        self.reports.write(snapshot.reports, snapshot.items)
        self.checkpoints.save(
            snapshot.folder,
            snapshot.step,
            snapshot.extra,
            check=self._check_checkpoint,
            keep=self.retention.keep,
            score=snapshot.score,
        )

    def _check_checkpoint(self) -> None:
        """Raise where a checkpoint on its way must not be named as the newest.

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
        self._waiting: Snapshot | None = None
        self._storing = False  # the thread is storing a snapshot
        self._closing = False  # the thread stores what waits, and ends
        self._urgent = (
            False  # somebody waits in `drain`: the thread does not wait until the next one is due
        )
        self._due = time.monotonic()  # when the next one may be stored
        self._error: BaseException | None = None  # what ended the thread
        self.left = False  # whether the trial has gone on without what was not stored by then; the copies are removed
        self._thread: threading.Thread | None = None

    def put(self, snapshot: Snapshot) -> None:
        """Copy a checkpoint and have it stored, in place of the one that still waits, if any.

        It is stored before this returns where this machine's disk has no room for a copy. Raises what has failed in the
        thread.
        """
        if self.at_once:
            self._store(snapshot)
            return
        self.check()
        copy = self._scratch / f"checkpoint-{snapshot.step}"
        try:
            for name, path in files_of(snapshot.folder).items():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy / name)
        except OSError:
            # No room: the earlier ones first, which also frees their copies, then this one from its own folder.
            shutil.rmtree(copy, ignore_errors=True)
            self.drain()
            self._store(snapshot)
            return
        with self._changed:
            replaced = self._waiting
            self._waiting = replace(snapshot, folder=copy)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if replaced is not None:
            shutil.rmtree(replaced.folder, ignore_errors=True)

    def check(self) -> None:
        """Raise what has failed in the thread."""
        if self._error is not None:
            raise self._error

    def drain(self) -> None:
        """Return when all is stored, which begins at once, or raise what has failed."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._error is not None or (self._waiting is None and not self._storing)
            )
            self._urgent = False
        self.check()

    def abandon(self) -> None:
        """Store nothing more, not even what waits."""
        with self._changed:
            self._waiting = None
        self.close()

    def close(self) -> None:
        """Have what waits stored at once, and wait for that, `CLOSE_TIMEOUT_S` seconds at most; raises nothing.

        A trial that loses it goes on from an earlier checkpoint.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        with self._changed:
            self.left = True
            self._waiting = None

    def _work(self) -> None:
        """Store the newest snapshot when it is due, until the writer closes or an error ends it."""
        while True:
            # First until there is a snapshot, then until it is due, unless somebody waits for it.
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._closing)
                self._changed.wait_for(
                    lambda: self._urgent or self._closing, max(0.0, self._due - time.monotonic())
                )
                snapshot = self._waiting
                self._waiting = None
                if snapshot is None:  # the writer closes, and nothing waits
                    return
                self._storing = True
            try:
                self._store(snapshot)
            except BaseException as error:
                # Once the writer closes, nobody asks for the error any more, so it is logged.
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


def _with_earlier(code: CodeRef, checkpoint: Extra) -> CodeRef:
    """Return `code` with the digests of the other codes that trained the trial before the checkpoint, each once.

    "" stands for the code of a checkpoint that does not name it.
    """
    before = [*checkpoint.earlier_code, checkpoint.code or ""]
    return replace(
        code, earlier=tuple(dict.fromkeys(digest for digest in before if digest != code.digest))
    )
