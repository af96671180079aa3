"""Attempts of a trial: the latest one counts, and an earlier one must notice this before it writes.

    <study>/trials/<id>/attempt.json    the latest attempt: its token, where and since when it trains, and the trial

A process that is stopped, or on a host that is cut off, is given up, and a new attempt of its trial begins elsewhere.
Then the old process may wake and train on. So each attempt writes its token as it begins, and later reads it from time
to time. Where it finds another token, it ends before it writes anything that it has trained meanwhile. Where two
attempts come to their end, the first record stays.
"""

import os
import socket
import time
import uuid

from contrasweep.errors import AttemptSuperseded, BrokenFileError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label
from contrasweep.storage.record import Count, Pid, Record, Status, Time, TrialLike, unix_time
from contrasweep.storage.records import ATTEMPT, StudyRecords

ASK_AFTER_S = 10.0
"""Seconds between two reads of the token, by a clock that also runs while the process is stopped. Ray gives up a node
later than that, so a process that Ray has given up reads the token before it writes again."""


@stored
class Owner:
    """The process that trains a trial, or trained it last."""

    token: Label  # drawn at random for each attempt, so that it tells attempts apart
    host: Label = ""
    pid: Pid = 0
    since: Time | None = None  # when the attempt began; None: not known
    attempts: Count = 1  # how many attempts have begun, with this one
    trial: Record | None = None  # with the fields of its `Trial`; None: not known


OWNER_FILE = JsonFile(Owner, 1, "the trial's next attempt writes it again")
"""trials/<id>/attempt.json, written and read."""


class Attempt:
    """One attempt of a trial, which claims the trial as it begins: it writes its token to the trial's attempt.json.

    An earlier attempt that still lives finds another token there when it asks (`check`), and ends.
    """

    def __init__(self, records: StudyRecords, trial: TrialLike) -> None:
        """Claim the trial for this process, in place of any earlier attempt."""
        self.records = records
        self.trial_id = trial.id
        self.key = records.key(trial.id, ATTEMPT)
        before = read_owner(records, trial.id)
        self.owner = Owner(
            token=uuid.uuid4().hex,
            host=socket.gethostname(),
            pid=os.getpid(),
            since=unix_time(),
            attempts=1 if before is None else before.attempts + 1,
            trial=Record.of(trial, status=Status.PENDING),
        )
        OWNER_FILE.write(records.store, self.key, self.owner)
        # When this attempt was last known to be the latest one.
        self.last_checked = time.monotonic()

    def check(self) -> None:
        """Raise `AttemptSuperseded` where a later attempt has begun.

        Nothing happens if the last check was less than `ASK_AFTER_S` ago.
        """
        if time.monotonic() - self.last_checked < ASK_AFTER_S:
            return
        # Where the file was archived or damaged, nothing is known about a later attempt, and this one goes on.
        latest = read_owner(self.records, self.trial_id) or self.owner
        if latest.token != self.owner.token:
            raise self.superseded(f"process {latest.pid} on {latest.host} has begun it again")
        self.last_checked = time.monotonic()

    def superseded(self, why: str) -> AttemptSuperseded:
        """Return the error for this attempt, which must end; `why` is a clause such as `another attempt has begun`."""
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


def read_begun(records: StudyRecords, trial_id: str) -> tuple[Record, float] | None:
    """Return a trial that has begun, as a record without results, and when its newest attempt began (unix seconds).

    The time is the present one where it is not known. None where attempt.json is missing or broken, or has no trial.
    """
    owner = read_owner(records, trial_id)
    if owner is None or owner.trial is None:
        return None
    return owner.trial, owner.since or time.time()
