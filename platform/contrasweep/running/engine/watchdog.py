"""A watch over running trials: it reports silent ones with their place in the code, and ends those out of time.

It also calls workers that are late. Where a network was cut for a while, a worker may have closed the connection on
which the driver waits for its answer. The driver has nothing to send on it, and Ray notices after five minutes. A call
goes the same way and is refused by the worker's host, which Ray takes for a lost worker. A worker that trains answers
it after its step.

Looks at late workers show a trial that waits for a task of Ray. Ray places what a trial starts into the trial's own
place, where the trial holds all cores.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import ray

from contrasweep.live.state import replicate_of
from contrasweep.running.engine.accounts import LOOK_S
from contrasweep.running.engine.loop import TrialLoop
from contrasweep.running.engine.ray_internals import actor_of, call_actor
from contrasweep.running.failures import SHORT_ID
from contrasweep.running.run_context import RayTrial
from contrasweep.running.stacks import actor_waits_for_task, innermost, stack_of_actor
from contrasweep.shell import command_line
from contrasweep.storage.record import Cause
from contrasweep.storage.records import STACK

log = logging.getLogger(__name__)
CHECK_S = 1.0
STALLED_S = 5.0
"""After so long without a look the driver itself was late, and answers may wait that it has not read."""


class Watchdog:
    """Checks the running trials once a second, in Tune's own loop. Slow checks, such as stacks, run in a thread."""

    def __init__(self, loop: TrialLoop) -> None:
        self.loop = loop
        self.due = 0.0  # when the trials are looked at next
        self._ending: dict[str, str] = {}  # trial id -> why it ends, until it has ended
        self._ready: dict[str, str] = {}  # of these, error texts with the stack in them
        # trial id, where a look saw it wait for a task -> when it had reported last, and when the look was
        self._waited: dict[str, tuple[float, float]] = {}
        self._asking: set[str] = set()  # arms of which it was said that a trial waits for a task

    def check(self, tune_trials: Iterable[RayTrial]) -> None:
        """Look at the running trials, if it is time to: end those out of time, say silent ones, call late ones.

        `tune_trials` are all of Tune's.
        """
        if (now := time.monotonic()) < self.due:
            return
        # This process stood still for a while, so that what was seen before says nothing of the workers.
        if now > self.due + STALLED_S:
            self._waited.clear()
        self.due = now + CHECK_S
        overdue = self.loop.accounts.overdue
        # Trials out of time whose stack a thread has read by now.
        if self._ready:
            running = _running(tune_trials)
            for trial_id in list(self._ready):
                self._end(trial_id, self._ready.pop(trial_id), running.get(trial_id))
        over = overdue.timed_out(now)
        silent = overdue.silent(now)
        late = overdue.late(now)
        if not (silent or late or over.keys() - self._ending.keys()):
            return
        running = _running(tune_trials)
        # Where the worker has closed the connection, the call is refused, and Ray notices that it is lost.
        for trial_id, heard in late.items():
            if trial_id in running and trial_id not in self._ending:
                call_actor(actor_of(running[trial_id]))
                self._beside(self._look, trial_id, heard, actor_of(running[trial_id]))
        for trial_id, reason in over.items():
            if trial_id not in self._ending and trial_id in running:
                self._ending[trial_id] = reason
                self._beside(self._prepare_end, trial_id, reason, actor_of(running[trial_id]))
        for trial_id, silence in silent.items():
            if trial_id in running and trial_id not in self._ending:
                self._beside(self._say, trial_id, silence, actor_of(running[trial_id]))

    def _prepare_end(self, trial_id: str, reason: str, actor: Any) -> None:
        """Read the stack of a trial that is out of time, and leave the text of its error to the next `check`."""
        stack, where = self._stack(trial_id, actor)
        self._ready[trial_id] = f"{stack}\n{reason}{where}\n".lstrip()

    def _end(self, trial_id: str, error: str, tune_trial: Any) -> None:
        """Write the record of a trial, then end its process.

        Tune takes that for a lost worker and starts the trial once more, which ends at once because it has its record.
        """
        self._ending.pop(trial_id, None)
        if trial_id not in self.loop.accounts.active or tune_trial is None:
            return
        self.loop.give_up(trial_id, error, cause=Cause.TIME_LIMIT)
        if (actor := actor_of(tune_trial)) is not None:
            ray.kill(actor, no_restart=True)

    def _look(self, trial_id: str, heard: float, actor: Any) -> None:
        """Look at a late trial: where it waits for a task of Ray at two looks in a row, say so, once for its arm.

        `heard` is when it reported last: looks are of one silence where it is the same.
        """
        try:
            waits = actor is not None and actor_waits_for_task(actor)
        except Exception as error:  # its host may be cut off
            log.info("no look at the worker of trial %s: %s", trial_id, error)
            return
        before, last_seen = self._waited.pop(trial_id, (-1.0, 0.0))
        now = time.monotonic()
        active = self.loop.accounts.active.get(trial_id)
        if not waits or active is None or active.trial.arm in self._asking:
            return
        # The first look of this silence, or a second one too soon after it.
        if before != heard or now - last_seen < LOOK_S / 2:
            self._waited[trial_id] = heard, now
            return
        self._asking.add(active.trial.arm)
        trial = replicate_of(active.trial, self.loop.progress.axes)
        self.loop.progress.say(
            f"waits: {trial} waits for a task or an actor of Ray. What a trial starts "
            "gets what is left in the trial's own place, of which the trial holds all cores: where it asks for "
            "a core it waits for ever; start it with num_cpus=0, or do its work in the trial"
        )

    def _say(self, trial_id: str, silence: str, actor: Any) -> None:
        """Mark a trial as silent, and say where it stands."""
        _, where = self._stack(trial_id, actor)
        active = self.loop.accounts.active.get(trial_id)
        records = self.loop.records
        if active is None:  # it ended meanwhile
            return
        logs = command_line("logs", records.study, trial_id[:SHORT_ID], storage=records.storage)
        self.loop.progress.hangs(trial_id, silence)
        self.loop.progress.say(
            f"silent: {replicate_of(active.trial, self.loop.progress.axes)}: {silence}{where}; see {logs}"
        )

    def _stack(self, trial_id: str, actor: Any) -> tuple[str, str]:
        """Store the stacks of a trial's process beside its log; return them, and the place where it is, in words.

        Such as `; it is in train (method.py:12)`. Both are "" where they cannot be read or stored.
        """
        try:
            stack = stack_of_actor(actor) if actor is not None else ""
            if stack:
                records = self.loop.records
                records.store.write(records.key(trial_id, STACK), stack.encode())
        except Exception as error:  # the process may be gone, its host, or the storage
            log.info("no stack of trial %s: %s", trial_id, error)
            return "", ""
        at = innermost(stack)
        return stack, f"; it is in {at}" if at else ""

    def _beside(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call a slow check in a thread of its own, since Tune's loop must go on."""
        threading.Thread(target=call, args=arguments, name="watchdog", daemon=True).start()


def _running(tune_trials: Iterable[RayTrial]) -> dict[str, RayTrial]:
    return {trial.config["id"]: trial for trial in tune_trials if trial.status == "RUNNING"}
