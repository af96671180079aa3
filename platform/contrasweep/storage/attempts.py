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
"""Seconds after which an attempt reads its claim again before it goes on, by a clock that also runs while the process
is stopped. Ray waits longer than that before it gives up a node, so that a process which Ray has given up always
asks."""


@stored
class BegunTrial:
    """A trial as the storage has it before its record. The fields are those of `Trial`.

    `trainable` is a dotted path, `config` has all settings, resolved and nested. `fold` None: it is tested on the test
    split. `start` None: it starts with new weights.
    """

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
            id=trial.id,
            study=trial.study,
            arm=trial.arm,
            trainable=trial.trainable,
            config=config,
            data=data,
            fold=trial.fold,
            seed=trial.seed,
            start=trial.start,
        )


@stored
class Owner:
    """The process that trains a trial, or trained it last.

    `token` is drawn at random for each attempt and tells attempts apart. `since` is in unix seconds (None: not known),
    `trial` what it trains (None: not known).
    """

    token: Label
    host: Label = ""
    pid: Pid = 0
    since: Time | None = None
    attempts: Count = 1  # how many have begun, with this one
    trial: BegunTrial | None = None


OWNER_FILE = JsonFile(Owner, 1, "the trial's next attempt writes it again")
"""trials/<id>/attempt.json, written and read."""


class Attempt:
    """One attempt of a trial, which claims the trial as it begins: it writes its token to the trial's attempt.json.

    An earlier attempt that still lives finds another token there when it asks (`check`), and ends.
    """

    def __init__(
        self, records: StudyRecords, trial: TrialLike, *, no_prior_state: bool = False
    ) -> None:
        """Claim the trial for this process, in place of any earlier attempt.

        With `no_prior_state` it is known that no attempt has begun before, and the storage is not asked.
        """
        self.records = records
        self.trial_id = trial.id
        self.key = records.key(trial.id, ATTEMPT)
        begun = BegunTrial.of(trial)
        before = None if no_prior_state else read_owner(records, trial.id)
        count = 1 if before is None else before.attempts + 1
        self.owner = Owner(
            token=uuid.uuid4().hex,
            host=socket.gethostname(),
            pid=os.getpid(),
            since=unix_time(),
            attempts=count,
            trial=begun,
        )
        OWNER_FILE.write(records.store, self.key, asdict(self.owner))
        # When it was last known that the claim stands: it was written just now. `check` asks again after `ASK_AFTER_S`.
        self.last_checked = time.monotonic()

    def check(self) -> None:
        """Raise `AttemptSuperseded` where a later attempt has begun.

        The storage is asked where that was last done `ASK_AFTER_S` ago or longer; else nothing happens.
        """
        if time.monotonic() - self.last_checked < ASK_AFTER_S:
            return
        # A file that was archived or damaged says nothing of a later attempt: this one goes on.
        latest = read_owner(self.records, self.trial_id) or self.owner
        if latest.token != self.owner.token:
            raise self.superseded(f"process {latest.pid} on {latest.host} has begun it again")
        self.last_checked = time.monotonic()

    def superseded(self, why: str) -> AttemptSuperseded:
        """Return the error of an attempt that must end; `why` says in words what has become of the trial since."""
        return AttemptSuperseded(
            f"trial {self.trial_id}: {why}, since this process gave no sign; it ends and writes nothing more"
        )


def read_owner(records: StudyRecords, trial_id: str) -> Owner | None:
    """Return the process that trains a trial or trained it last.

    None where no attempt has begun, and where attempt.json is broken.
    """
    try:
        return OWNER_FILE.read(records.store, records.key(trial_id, ATTEMPT))
    except (FileNotFoundError, BrokenFileError):
        return None


def read_begun(records: StudyRecords, trial_id: str) -> tuple[BegunTrial, float] | None:
    """Return a trial that has begun, and since when (unix seconds) its newest attempt trains it.

    None where the trial is not known. Where only the time is not known, it is now.
    """
    owner = read_owner(records, trial_id)
    return (
        None if owner is None or owner.trial is None else (owner.trial, owner.since or time.time())
    )
