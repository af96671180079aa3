"""One attempt of a trial, and the upload of its checkpoints to the storage.

In a folder of this machine each checkpoint is stored at once. To an object store one is uploaded every few seconds at
most, because training waits for it. The trainable may change the files of one that waits as soon as it goes on, so they
are copied to this machine's disk. A newer one replaces it, because a trial resumes from its newest checkpoint only.
"""

import logging
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from contrasweep.errors import ContrasweepError
from contrasweep.running.worker.reports import Reports
from contrasweep.storage.attempts import Attempt
from contrasweep.storage.checkpoints import Checkpoints, Extra, Retention, files_of
from contrasweep.storage.record import CodeRef, TrialNotes, unix_time
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.trial import Trial

log = logging.getLogger(__name__)
EVERY_S = 5.0
"""Seconds between the uploads of two checkpoints, at least. An upload costs some five requests; a trial that is lost
trains these seconds again."""
SHARE = 0.05
"""The part of the time that uploads of checkpoints may take."""


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint of a trial, to be stored."""

    folder: Path  # of its files
    step: int
    extra: Extra  # what is stored beside it
    score: float | None = None  # of the last report, larger is better; None: it is not compared


class TrialAttempt:
    """One attempt of a trial: it claims the trial, fetches the newest checkpoint and stores the next ones.

    `save`, `drain` and the claim's `check` raise `AttemptSuperseded` where a later attempt has begun.
    """

    def __init__(
        self,
        trial: Trial,
        records: StudyRecords,
        scratch: Path,
        *,
        notes: TrialNotes,
        code: CodeRef,
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
            retention: Which checkpoints stay.
        """
        self.retention = retention
        self.claim = Attempt(records, trial)
        self.checkpoints = Checkpoints.of(records, trial.id)
        self.local = isinstance(records.store, LocalStore)
        self._copy = scratch / "checkpoint"  # of the files of the checkpoint that waits
        self._waiting: Snapshot | None = None
        self._due = time.monotonic()  # when the next checkpoint may be uploaded
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
        """Store the files of `folder` as the checkpoint after the latest report, now or with a later one.

        `seconds` is the training time so far. `unused_settings` are the settings that no attempt has read.
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
        self._waiting = Snapshot(folder, reports.step, extra, score)
        # Where an older checkpoint may stay, none is replaced by a newer one before it is stored.
        stays = self.retention.keep in ("best", "all")
        if self.local or stays or time.monotonic() >= self._due:
            self.drain()
            return
        shutil.rmtree(self._copy, ignore_errors=True)
        try:
            for name, path in files_of(folder).items():
                (self._copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, self._copy / name)
            self._waiting = replace(self._waiting, folder=self._copy)
        except OSError:  # this machine's disk has no room for a copy
            self.drain()

    def drain(self) -> None:
        """Store the checkpoint that waits, if there is one, after the reports and scores up to it.

        A later attempt may have begun while the checkpoint waited, for example because this process was stopped. This
        is checked before anything is written, and again before the marker names the checkpoint.
        """
        snapshot = self._waiting
        self._waiting = None
        if snapshot is None:
            return
        began = time.monotonic()
        self.claim.check()
        self.reports.write(items=True)
        self.checkpoints.save(
            snapshot.folder,
            snapshot.step,
            snapshot.extra,
            check=self.claim.check,
            keep=self.retention.keep,
            score=snapshot.score,
        )
        took_s = time.monotonic() - began
        self._due = time.monotonic() + max(EVERY_S, took_s / SHARE)

    def abandon(self) -> None:
        """Give up the checkpoint that waits."""
        self._waiting = None

    def close(self) -> None:
        """Store the checkpoint that waits. An error is logged: the trial then resumes from an earlier checkpoint."""
        try:
            self.drain()
        except ContrasweepError as error:
            log.warning("the newest checkpoint was not stored: %s", error)
