"""The process that trains a cohort; it knows nothing of Ray, and any process may call it from several threads.

It takes members in, trains them together, and keeps each one's reports until its own process fetches them. Everything
that touches the cohort happens in one thread, between two calls of `Cohort.advance`: members join and leave there.
Where nobody stops trials early, a member may be a few reports ahead of its process. Where a pruner decides, a member
waits until its process asks for the next report, and all members that wait train in step: their reports are handed out
together, each with those of the others, so that none is compared with fewer because it came first.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from contrasweep.cluster.usage import Meter
from contrasweep.processes import began_at, scratch_folder
from contrasweep.trainables.fusing.host.messages import STOPPED_HOST, Message, Outbox, Usage
from contrasweep.trainables.fusing.protocol import Cohort, Event
from contrasweep.trial import Trial

LIMIT = 2**16
"""Bytes that are kept of what is printed between two readings."""


class CapturedOutput:
    """Takes standard output and error of this process, with what compiled code writes there, until it is closed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process prints
        self._saved = (os.dup(1), os.dup(2))
        _flush()
        for number in (1, 2):
            os.dup2(self._file.fileno(), number)

    def read(self) -> str:
        """Return what was printed since the last reading; only the beginning where it is much."""
        _flush()
        size = os.fstat(self._file.fileno()).st_size
        if not size:
            return ""
        text = os.pread(self._file.fileno(), LIMIT, 0).decode(errors="replace")
        os.ftruncate(self._file.fileno(), 0)
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
        return text if size <= LIMIT else f"{text}\n--- {size - LIMIT:,} bytes are left out here\n"

    def show_warnings_again(self) -> None:
        """Show a warning that an earlier member caused again for the next."""
        with warnings.catch_warnings():  # leaving it makes Python forget which it has shown
            pass

    def close(self) -> None:
        """Give standard output and error back."""
        _flush()
        for number, before in zip((1, 2), self._saved, strict=True):
            os.dup2(before, number)
            os.close(before)
        self._file.close()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


AHEAD = 4
"""Reports that a member may be ahead of its process."""
FILL_S = 1.0
"""How long less than half a cohort waits for more members before it trains."""
IN_STEP_S = 2.0
"""How long members that train in step wait for the last of them; one that comes later joins the next step."""
IDLE_S = 15.0
"""After so long without a member the host ends."""
CHECK_S = 1.0
FAULT_S, ANSWER_S = 10.0, 1.0
"""In which members fetch why their host failed, and in which Ray sends the last of these answers, before it ends."""
Answer = int | Message | None
"""What a process hears that attaches a trial: a token, how the trial failed, or None, there is no slot."""


@dataclass
class Member:
    """One trial in the cohort, or waiting for a slot.

    `process`: pid and beginning of the process that stands for it; `resume`: where its checkpoint lies; `answer`: what
    that process waits for as it joins.
    """

    token: int
    trial: Trial
    process: tuple[int, str]
    resume: Path | None
    outbox: Outbox
    answer: Future[Answer] = field(default_factory=Future)
    held: list[Message] = field(default_factory=list)  # of this step, until all that train in it have theirs
    asking: bool = False
    ended: bool = False
    output: str = ""
    timeline: int = 0  # rows of the meter that it has been given

    @property
    def lives(self) -> bool:
        """Whether its process does."""
        return began_at(self.process[0]) == self.process[1]


class CohortHost:
    """A cohort in this process, which is opened by the first member.

    `on_idle` is called once nobody has been there for a while; `limits` (see `contrasweep.cluster.guard`) is open while
    the cohort is.
    """

    def __init__(
        self,
        open_cohort: Callable[[Trial], Cohort],
        slots: int,
        *,
        in_step: bool,
        on_idle: Callable[[], object] = lambda: None,
        limits: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
        captured: bool = True,
    ) -> None:
        self.open_cohort, self.slots, self.in_step = open_cohort, slots, in_step
        self.on_idle, self.limits = on_idle, limits
        self.engine = ""
        self.fault = ""
        self._members: dict[int, Member] = {}
        self._joining: deque[Member] = deque()
        self._leaving: list[Member] = []  # nobody fetches their reports any more
        self._step: set[int] = set()  # tokens of the members that train in step now
        self._tokens = 0
        self._changed_at = self._asked_at = time.monotonic()
        self._closing = False
        self._change = threading.Condition()
        self._scratch = scratch_folder("cohort")
        self._meter = Meter()
        self._output = CapturedOutput() if captured else None
        self._thread = threading.Thread(target=self._run, name="cohort", daemon=True)
        self._thread.start()

    def attach(self, trial: Trial, resume: Path | None, pid: int, folder: Path | None = None) -> Answer:
        """Take in a member whose process is `pid`, and return a token for later calls.

        None says that there is no free slot, a `Message` how the trial failed as it joined. Copies of its reports'
        files go to `folder`, which is that process's: what lies there is whole also once this host has died (None: a
        folder of the host's).
        """
        with self._change:
            for other in [m for m in self._members.values() if m.trial.id == trial.id or not m.lives]:
                self._drop(other)
            if self.fault:
                return Message(failure=self.fault)
            taken = sum(not other.ended for other in self._members.values()) + len(self._joining)
            if self._closing or taken >= self.slots:
                return None
            self._tokens += 1
            outbox = Outbox(folder or self._scratch / str(self._tokens))
            member = Member(self._tokens, trial, (pid, began_at(pid)), resume, outbox)
            self._joining.append(member)
            self._notify()
        return member.answer.result()

    def take(self, token: int, wait_s: float) -> list[Message]:
        """Return the next events of a member, after at most `wait_s` seconds (none: ask again).

        The files of the events before may be dropped from now on.
        """
        until = time.monotonic() + wait_s
        with self._change:
            member = self._member(token)
            member.outbox.drop_fetched()
            if not member.asking and not member.outbox.waiting:
                member.asking, self._asked_at = True, time.monotonic()
                self._change.notify_all()
            while not member.outbox.waiting and not self.fault and (left := until - time.monotonic()) > 0:
                self._change.wait(left)
            messages = member.outbox.fetch()
            if not messages and self.fault:
                messages = [Message(failure=self.fault)]
            if messages and messages[-1].report is None:  # its end
                self._drop(member)
            elif messages:
                self._change.notify_all()
            return messages

    def detach(self, token: int) -> None:
        """Let a member leave, at any point of its training."""
        with self._change:
            if (member := self._members.get(token)) is not None:
                self._drop(member)

    def close(self) -> None:
        """End: what trains stops after its current step."""
        with self._change:
            self._closing = True
            self._notify()
        self._thread.join()

    def _member(self, token: int) -> Member:
        if token not in self._members:
            raise RuntimeError("it is no member of this cohort any more")
        return self._members[token]

    def _drop(self, member: Member) -> None:
        self._leaving.append(self._members.pop(member.token))
        self._notify()

    def _notify(self) -> None:
        self._changed_at = time.monotonic()
        self._change.notify_all()

    def _run(self) -> None:
        cohort: Cohort | None = None
        with ExitStack() as opened:
            opened.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            if self._output is not None:
                opened.callback(self._output.close)
            try:
                opened.enter_context(self._meter)
                while not self._closing:
                    if cohort is None and self._joining:
                        opened.enter_context(self.limits())
                        cohort = self.open_cohort(self._joining[0].trial)
                        self.engine = cohort.engine
                        opened.callback(cohort.close)
                    if cohort is not None:
                        self._exchange(cohort)
                    members = self._next_step()
                    if members and cohort is not None:
                        self._deliver(cohort.advance([member.trial.id for member in members]))
                self._turn_away(None)
            except BaseException as error:
                self._fail(error)

    def _exchange(self, cohort: Cohort) -> None:
        """Let leaving members leave and waiting members join."""
        while True:
            with self._change:
                for member in [m for m in self._members.values() if not m.lives]:
                    self._drop(member)
                leaving, self._leaving = self._leaving, []
                # Who joins was taken in because of those that leave, so their slots have to be free before.
                joining = self._joining[0] if self._joining and not self._closing else None
            for member in leaving:
                if not member.ended:
                    cohort.leave(member.trial.id)
                member.outbox.close()
            if joining is None:
                return
            self._join(cohort, joining)

    def _join(self, cohort: Cohort, member: Member) -> None:
        if self._output is not None:
            self._output.show_warnings_again()
        try:
            cohort.join(member.trial, member.resume)
        except BaseException as error:
            with self._change:
                self._joining.popleft()
            member.answer.set_result(Message.of(Event(member.trial.id, error=error)))
            return
        with self._change:
            self._joining.popleft()
            member.output = self._printed()
            member.timeline = len(self._meter.timeline)
            self._members[member.token] = member
            self._notify()
        member.answer.set_result(member.token)

    def _next_step(self) -> list[Member]:
        """Return the members that train now, or none after waiting a while for one that may."""
        with self._change:
            now = time.monotonic()
            if self._members or self._joining or self._leaving:
                wait_s = CHECK_S
                if members := self._ready(now):
                    return members
                if self._members and not self._joining:
                    wait_s = 0.05 if self._about_to(now) else CHECK_S
            else:
                if now - self._changed_at > IDLE_S:
                    self._closing = True
                    self.on_idle()
                wait_s = CHECK_S
            if not self._joining and not self._leaving and not self._closing:
                self._change.wait(wait_s)
            return []

    def _ready(self, now: float) -> list[Member]:
        """Return the members that may train, in the order of joining; none while others are about to join."""
        training = [member for member in self._members.values() if not member.ended]
        if 2 * len(training) < self.slots and now - self._changed_at < FILL_S:
            return []
        if not self.in_step:
            return [member for member in training if len(member.outbox.waiting) < AHEAD]
        if self._step and not any(m.token in self._step and not m.held for m in training):
            self._hand_out()  # the last of them has gone
        if not self._step:
            asking = [member for member in training if member.asking]
            if len(asking) < len(training) and now - self._asked_at < IN_STEP_S:
                return []
            self._step = {member.token for member in asking}
        return [member for member in training if member.token in self._step and not member.held]

    def _about_to(self, now: float) -> bool:
        return now - self._changed_at < FILL_S or now - self._asked_at < IN_STEP_S

    def _deliver(self, events: Sequence[Event]) -> None:
        output = self._printed()
        with self._change:
            of = {member.trial.id: member for member in self._members.values()}
            present = max(1, sum(not member.ended for member in of.values()))
            for other in of.values():
                other.output += output if not other.ended else ""
            for event in events:
                member = of.get(event.trial_id)
                if member is None:  # its process has gone meanwhile
                    for gone in [m for m in self._leaving if m.trial.id == event.trial_id]:
                        gone.ended = gone.ended or event.ended
                    continue
                member.ended = event.ended
                message = self._message(member, event, present)
                if self.in_step:
                    member.held.append(message)
                else:
                    member.outbox.put(message)
            if self.in_step:
                self._hand_out()
            self._change.notify_all()

    def _hand_out(self) -> None:
        """Hand out the reports of members that train in step, once all of them have one."""
        members = [self._members[token] for token in self._step if token in self._members]
        if any(not member.held for member in members):
            return
        rows = {member.trial.id: row for member in members for message in member.held if (row := message.row)}
        for member in members:
            for message in member.held:
                message.peers = {trial_id: row for trial_id, row in rows.items() if trial_id != member.trial.id}
                member.outbox.put(message)
            member.held.clear()
            member.asking = False  # until its process has fetched them and asks again
        self._step = set()
        self._asked_at = time.monotonic()

    def _message(self, member: Member, event: Event, present: int) -> Message:
        message = Message.of(event)
        message.output, member.output = member.output, ""
        message.usage = Usage.part_of(self._meter, member.timeline, present)
        member.timeline += len(message.usage.rows)
        return message

    def _printed(self) -> str:
        return self._output.read() if self._output is not None else ""

    def _fail(self, error: BaseException) -> None:
        """Send an error of the whole cohort to every member, and accept no new members."""
        failure = Message.of(Event("", error=error)).failure
        with self._change:
            self.fault = f"{STOPPED_HOST}: {failure}"
        self._turn_away(Message(failure=self.fault))
        with self._change:
            self._change.wait_for(lambda: not self._members, FAULT_S)
        time.sleep(ANSWER_S)
        self.on_idle()

    def _turn_away(self, answer: Answer) -> None:
        """Accept no new members; waiting members get `answer`."""
        with self._change:
            self._closing = True
            joining, self._joining = self._joining, deque()
            self._change.notify_all()
        for member in joining:
            member.answer.set_result(answer)
