"""Notifications: commands are told what happens to a run, each event once, by the process beside the driver."""

import contextlib
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Literal

from contrasweep.delivery import Message, deliver
from contrasweep.errors import BrokenFileError, StorageError, duration, plural
from contrasweep.live.state import (
    COMPLETE,
    FAILURES,
    SILENT_S,
    RunState,
    Watched,
    one_line,
    read_live,
)
from contrasweep.secrets import redacted
from contrasweep.storage.interim_log import VERDICTS, LookAt, LookLog, read_looks
from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.tracker import Outcome

Event = Literal["end", "failure", "look", "silent"]
POLL_S = 5.0
PATIENCE_S = 3.0
"""Seconds for which a driver waits at its end for notifications that are not delivered."""


class Notifier:
    """Watches a run in the storage, which begins at `began` (unix seconds) or later, and tells commands of its events.

    The events: a first trial fails, a look decides something, the run gives no sign of life, it ends. Each command has
    a thread of its own: one that hangs delays no other, and no driver.
    """

    def __init__(self, commands: Sequence[str], records: StudyRecords, began: float) -> None:
        """Prepare to tell the commands; nothing is told before `look` is called."""
        self.records = records
        self.began = began
        self._tellers = {command: ThreadPoolExecutor(1) for command in commands}
        self._sent = list[Future[None]]()
        self._watched = Watched()
        self._told = set[Event]()
        # How many looks were told or are older than the run; None: they were not counted yet.
        self._looks: int | None = None

    def look(self) -> None:
        """Read the run's state in the storage once, and tell the commands each event that is new.

        `StorageError` where the storage cannot be read.
        """
        with contextlib.suppress(BrokenFileError):  # the driver reports a broken file itself
            log = read_looks(self.records) or LookLog("", "")
            # Looks of earlier runs are not told again.
            if self._looks is None:
                self._looks = sum(look.taken < self.began for look in log.looks)
            if text := decided(log, self._looks):
                self._send("look", text)
            self._looks = len(log.looks)
        state = self._state()
        if state is None:
            return
        failed = sum(state.statuses.get(status, 0) for status in Status if status.failed)
        if failed and "failure" not in self._told:
            lines = [text for _, text in state.events if text.startswith("failed: ")]
            self._send("failure", lines[0] if lines else f"{plural(failed, 'trial')} failed", state)
        # Silence is told once, and again only after the run was heard of in between.
        self._watched.seen(state, time.time(), time.monotonic())
        if self._watched.silent_s <= SILENT_S:
            self._told.discard("silent")
        elif "silent" not in self._told:
            self._send("silent", _silent(state, f"for {duration(self._watched.silent_s)}"), state)

    def close(self, outcome: Outcome, *, lost: bool) -> None:
        """Tell the commands what is new since the last `look`, and how the run has ended.

        With `lost`, the driver has ended without a word. The event is then `silent` and not `end`, unless `silent` was
        told already.
        """
        with contextlib.suppress(StorageError):
            self.look()
        state = None
        with contextlib.suppress(StorageError):
            state = self._state()
        if not lost:
            self._send("end", _ended(state, outcome), state)
        elif "silent" not in self._told:
            text = _silent(state, "any more") if state else "its driver ended without a word"
            self._send("silent", text, state)

    def join(self, seconds: float) -> bool:
        """Wait, for `seconds` at most, until each event is delivered or given up; return whether all are."""
        return not wait(self._sent, seconds).not_done

    def _state(self) -> RunState | None:
        """Return the state of this run in live.json; None as long as there is none, or only that of an earlier run."""
        state = read_live(self.records)
        # An older state in the storage is that of an earlier run.
        return None if state is None or state.began < self.began else state

    def _send(self, event: Event, text: str, state: RunState | None = None) -> None:
        """Hand an event to the thread of each command, with the numbers of trials in `state`, if that is known.

        Passwords and other secrets in the message are replaced.
        """
        self._told.add(event)
        message: Message = {
            "event": event,
            "study": self.records.study,
            "text": one_line(redacted(f"{self.records.study}: {text}")),
            "storage": redacted(self.records.storage),
            "host": socket.gethostname(),
            "time": time.time(),
            "done": state.done if state else None,
            "total": state.total if state else None,
        }
        for command, teller in self._tellers.items():
            self._sent.append(teller.submit(_tell, command, message))


def _tell(command: str, message: Message) -> None:
    """Deliver a message, or print a line that it is not delivered."""
    if problem := deliver(command, message):
        note = f"notify: {command} was not told of the {message['event']} ({problem})"
        with contextlib.suppress(OSError):
            print(redacted(one_line(note)), file=sys.stderr, flush=True)


def decided(log: LookLog, before: int) -> str:
    """Return what the looks of `log` have decided, as text, without the first `before` looks; "" for nothing.

    For example `look 2 at 12 seeds decided: ocl better than supcon by 0.0213`. A comparison is named at the look that
    decided it first, and at no later one.
    """
    lines = []
    decided_keys = set()
    for number, look in enumerate(log.looks, 1):
        newly_decided = [
            entry
            for entry in look.comparisons
            if entry.decision in VERDICTS and entry.key not in decided_keys
        ]
        decided_keys |= {entry.key for entry in newly_decided}
        if newly_decided and number > before:
            verdicts = ", ".join(map(_verdict, newly_decided))
            lines.append(f"look {number} at {look.replicates} {log.unit} decided: {verdicts}")
    return "; ".join(lines)


def _verdict(comparison: LookAt) -> str:
    """Return the decision of a look as text: `ocl better than supcon by 0.0213`, or `ocl equivalent to supcon`."""
    if comparison.decision == "equivalent":
        return f"{comparison.a} equivalent to {comparison.b}"
    better, other = comparison.a, comparison.b
    if comparison.decision == "worse":
        better, other = other, better
    return f"{better} better than {other} by {abs(comparison.difference):.3g}"


def _silent(state: RunState, since: str) -> str:
    """Return the message on a run that gives no sign of life; `since` is how long: `for 3 min`, or `any more`."""
    where = f"from process {state.pid} on {state.host}"
    return f"no sign of life {where} {since}; `contrasweep run` goes on from what is recorded"


def _ended(state: RunState | None, outcome: Outcome) -> str:
    """Return in words how a run ended, with its counts and its best score; the outcome alone without a state.

    For example `failures, 30 of 30 trials, 1 failed; best accuracy 0.9312 (supcon)`.
    """
    if state is None:
        return outcome
    of = "" if state.total is None else f" of {state.total}"
    # `state.ended` is the driver's own word, which says why it ended early. It is used where it agrees with the outcome
    # on whether all was done: a driver that was killed has none, or that of an earlier run.
    is_of_this_run = (state.ended in (COMPLETE, FAILURES)) == (outcome == "complete")
    how = state.ended if state.ended and is_of_this_run else outcome
    not_done = "".join(f", {text}" for text in state.counts_not_done)
    score = ""
    if state.best is not None:
        arm, progress = state.best
        score = f"; best {state.name(state.metric)} {progress.best:.4g} ({state.name(arm)})"
    return f"{how}, {state.done}{of} trials{not_done}{score}"
