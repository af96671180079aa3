"""Of two attempts of one trial the later one counts: what an attempt that was given up must find out before it writes.

    <study>/trials/<id>/attempt.json    the latest attempt: its token, where and since when it trains

A process that was stopped, or a host that was cut off, is given up, and its trial goes on elsewhere; then it wakes.
Each attempt writes its token as it begins. One that trains on asks from time to time whose token is there, and ends
where it is another's, before it writes anything of what it trained meanwhile. Of two attempts that end, the first
record stands.
"""

import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

import pydantic

from contrasweep.errors import AttemptSuperseded, BrokenFileError
from contrasweep.storage.json_file import SCHEMA, JsonFile
from contrasweep.storage.names import Label
from contrasweep.storage.record import Time
from contrasweep.storage.records import ATTEMPT, StudyRecords

ASK_AFTER_S = 10.0
"""Who has not asked for so long, by a clock that goes on while a process is stopped, asks before it goes on. Ray gives
up a node that does not answer after more than that."""


@dataclass(frozen=True)
class Claim:
    """Who trains a trial, and since when."""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = SCHEMA

    token: Label
    host: Label = ""
    pid: Annotated[int, pydantic.Field(ge=0, lt=2**31)] = 0
    since: Time | None = None


CLAIM_FILE = JsonFile(pydantic.TypeAdapter(Claim), 1, "the trial's next attempt writes it again")
"""trials/<id>/attempt.json, written and read."""


class Attempt:
    """One attempt of a trial, which claims it as it begins."""

    def __init__(self, records: StudyRecords, trial_id: str) -> None:
        self.records, self.trial_id = records, trial_id
        self.key = records.key(trial_id, ATTEMPT)
        self.claim = Claim(uuid.uuid4().hex, socket.gethostname(), os.getpid(), time.time())
        CLAIM_FILE.write(records.store, self.key, asdict(self.claim))
        self.asked = time.monotonic()

    def check(self) -> None:
        """`AttemptSuperseded` where a later attempt has begun; asks no more than once in `ASK_AFTER_S`."""
        if time.monotonic() - self.asked >= ASK_AFTER_S:
            self.ask()

    def ask(self) -> None:
        """`AttemptSuperseded` where a later attempt has begun."""
        try:
            latest = CLAIM_FILE.read(self.records.store, self.key)
        except (FileNotFoundError, BrokenFileError):  # put aside, or damaged: it says nothing of a later attempt
            latest = self.claim
        if latest.token != self.claim.token:
            raise self.superseded(f"process {latest.pid} on {latest.host} has begun it again")
        self.asked = time.monotonic()

    def superseded(self, why: str) -> AttemptSuperseded:
        """The error of an attempt that must end."""
        return AttemptSuperseded(
            f"trial {self.trial_id}: {why}, since this process gave no sign; it ends and writes nothing more"
        )
