"""Attempts of a trial: the latest one counts, and an earlier one must notice this before it writes.

    <study>/trials/<id>/attempt.json    the latest attempt: its token, where and since when it trains, and the trial

A process that was stopped, or a host that was cut off, is given up, and its trial goes on elsewhere; then it wakes.
Each attempt writes its token as it begins. One that trains on asks from time to time whose token is there, and ends
where it is another's, before it writes anything of what it trained meanwhile. Of two attempts that end, the first
record stands.
"""

import os
import socket
import time
import uuid
from dataclasses import asdict
from typing import Self

from contrasweep.config import Config
from contrasweep.errors import AttemptSuperseded, BrokenFileError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import (
    Count,
    DatasetRef,
    Pid,
    Seed,
    StartRef,
    Time,
    TrialLike,
    unix_time,
)
from contrasweep.storage.records import ATTEMPT, StudyRecords

ASK_AFTER_S = 10.0
"""Who has not asked for so long, by a clock that goes on while a process is stopped, asks before it goes on. Ray gives
up a node that does not answer after more than that."""


@stored
class BegunTrial:
    """A trial as the storage has it before its record; the fields are those of `Trial`."""

    id: Name
    study: Name
    arm: Label
    trainable: Label
    config: Config
    data: DatasetRef
    fold: Count | None
    seed: Seed
    start: StartRef | None = None

    @classmethod
    def of(cls, trial: TrialLike) -> Self:
        """Return the fields of a `Trial` that the storage keeps."""
        data = DatasetRef.of(trial.data)
        config = dict(trial.config)
        return cls(
            trial.id,
            trial.study,
            trial.arm,
            trial.trainable,
            config,
            data,
            trial.fold,
            trial.seed,
            trial.start,
        )


@stored
class Owner:
    """The process that trains a trial, and the time since when."""

    token: Label
    host: Label = ""
    pid: Pid = 0
    since: Time | None = None
    attempts: Count = 1  # how many have begun, with this one
    trial: BegunTrial | None = None


OWNER_FILE = JsonFile(Owner, 1, "the trial's next attempt writes it again")
"""trials/<id>/attempt.json, written and read."""


class Attempt:
    """One attempt of a trial, which claims the trial as it begins."""

    def __init__(
        self, records: StudyRecords, trial: TrialLike, *, no_prior_state: bool = False
    ) -> None:
        """Claim the trial. `no_prior_state`: it is known that no attempt has begun before."""
        self.records = records
        self.trial_id = trial.id
        self.key = records.key(trial.id, ATTEMPT)
        begun = BegunTrial.of(trial)
        before = None if no_prior_state else read_owner(records, trial.id)
        count = 1 if before is None else before.attempts + 1
        self.owner = Owner(
            uuid.uuid4().hex, socket.gethostname(), os.getpid(), unix_time(), count, begun
        )
        OWNER_FILE.write(records.store, self.key, asdict(self.owner))
        self.asked = time.monotonic()

    def check(self) -> None:
        """Raise `AttemptSuperseded` where a later attempt has begun; ask the storage once in `ASK_AFTER_S` at most."""
        if time.monotonic() - self.asked < ASK_AFTER_S:
            return
        # Archived, or damaged, it says nothing of a later attempt.
        latest = read_owner(self.records, self.trial_id) or self.owner
        if latest.token != self.owner.token:
            raise self.superseded(f"process {latest.pid} on {latest.host} has begun it again")
        self.asked = time.monotonic()

    def superseded(self, why: str) -> AttemptSuperseded:
        """Return the error of an attempt that must end."""
        return AttemptSuperseded(
            f"trial {self.trial_id}: {why}, since this process gave no sign; it ends and writes nothing more"
        )


def read_owner(records: StudyRecords, trial_id: str) -> Owner | None:
    """Return the process that trains a trial or trained it last; None where that is not known."""
    try:
        return OWNER_FILE.read(records.store, records.key(trial_id, ATTEMPT))
    except (FileNotFoundError, BrokenFileError):
        return None


def read_begun(records: StudyRecords, trial_id: str) -> tuple[BegunTrial, float] | None:
    """Return a trial that has begun, and since when its newest attempt trains it; None where that is not known."""
    owner = read_owner(records, trial_id)
    return (
        None if owner is None or owner.trial is None else (owner.trial, owner.since or time.time())
    )
