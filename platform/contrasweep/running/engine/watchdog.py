"""A watch over running trials: it reports silent ones with their place in the code, and ends those out of time.

It also calls late workers. After a network was cut, a worker may have closed the connection on which the driver waits
for its answer. Ray notices this only after five minutes, because the driver sends nothing. A call is refused at once by
the worker's host, and Ray takes the worker for lost. A worker that trains answers the call after its step.

It also looks at the stacks of late workers, for a trial that waits for a task of Ray. Ray gives such a task resources
of the trial's own place, of which the trial itself holds all cores, so the task never starts.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import ray

from contrasweep.live.state import replicate_of
from contrasweep.running.engine.loop import TrialLoop
from contrasweep.running.engine.ray_internals import actor_of, call_actor
from contrasweep.running.failures import SHORT_ID
from contrasweep.running.run_context import RayTrial
from contrasweep.running.stacks import innermost, on_node_of, spied, stack_of, waits_for_task
from contrasweep.shell import command_line
from contrasweep.storage.record import Cause
from contrasweep.storage.records import STACK

log = logging.getLogger(__name__)
CHECK_S = 1.0
"""How often the running trials are checked."""
STALLED_S = 5.0
"""After so long without a check the driver itself was late, and may have answers that it has not read."""
END_S = 5.0
"""How long slow checks are waited for at the end: one that Ray's head does not answer may take a minute."""


class Watchdog:
    """Checks the running trials once a second, in Tune's own loop. Slow checks, such as stacks, run in a thread."""

    def __init__(self, loop: TrialLoop) -> None:
        self.loop = loop
        self.due = time.monotonic()  # when the trials are checked next
        self._ending: dict[str, str] = {}  # trial id -> why it ends, until it has ended
        # trial id -> its error with the stack, of trials that can be ended now
        self._ready: dict[str, str] = {}
        # arms of which it was said that a trial waits for a task
        self._wait_told: set[str] = set()
        self._threads: list[threading.Thread] = []  # of slow checks
        self._ended = False  # Tune pickles this object, so that it is no Event

    def check(self, tune_trials: Iterable[RayTrial]) -> None:
        """Look after the running trials, once in `CHECK_S` seconds.

        Trials that are out of time are ended, silent ones are reported, and late ones are called. `tune_trials` are all
        trials of Tune, also ended ones.
        """
        now = time.monotonic()
        if now < self.due:
            return
        overdue = self.loop.accounts.overdue
        # This process stood still for a while: reports of the workers wait here.
        if now > self.due + STALLED_S:
            overdue.stood_still(now - self.due, now)
        self.due = now + CHECK_S
        # End the trials out of time whose stack a thread has read by now.
        if self._ready:
            running = _running(tune_trials)
            for trial_id in list(self._ready):
                self._end(trial_id, self._ready.pop(trial_id), running.get(trial_id))
        timed_out = overdue.timed_out(now)
        silent = overdue.silent(now)
        late = overdue.late(now)
        if not (silent or late or timed_out.keys() - self._ending.keys()):
            return
        # The workers of running trials, except for those that are being ended.
        actors = {
            trial_id: actor_of(trial)
            for trial_id, trial in _running(tune_trials).items()
            if trial_id not in self._ending
        }
        # Call late workers: if the worker has closed the connection, Ray notices by the call that it is lost.
        for trial_id in late:
            if trial_id in actors:
                call_actor(actors[trial_id])
                self._in_thread(self._find_task_wait, trial_id, actors[trial_id])
        for trial_id, reason in timed_out.items():
            if trial_id in actors:
                self._ending[trial_id] = reason
                self._in_thread(self._prepare_end, trial_id, reason, actors.pop(trial_id))
        for trial_id, silence in silent.items():
            if trial_id in actors:
                self._in_thread(self._say_silent, trial_id, silence, actors[trial_id])

    def _prepare_end(self, trial_id: str, reason: str, actor: Any) -> None:
        """Read the stacks of a trial that is out of time, and keep the text of its error, which the next `check` uses.

        The text has the stacks, `reason`, and where in the code the trial is.
        """
        stack, where = self._stack(trial_id, actor)
        self._ready[trial_id] = f"{stack}\n{reason}{where}\n".lstrip()

    def _end(self, trial_id: str, error: str, tune_trial: Any) -> None:
        """Write the record of a trial, then kill its process.

        Tune takes this for a lost worker and starts the trial again, which then ends at once by its record.
        """
        self._ending.pop(trial_id, None)
        if trial_id not in self.loop.accounts.active or tune_trial is None:
            return
        self.loop.give_up(trial_id, error, cause=Cause.TIME_LIMIT)
        actor = actor_of(tune_trial)
        if actor is not None:
            ray.kill(actor, no_restart=True)

    def _find_task_wait(self, trial_id: str, actor: Any) -> None:
        """Tell the user, once for each arm, if a late trial waits for a task of Ray that may never start.

        Nothing is said where the stacks of its process cannot be read.
        """
        try:
            stack = on_node_of(actor, spied, lambda: self._ended) or ""
        except Exception as error:  # its host may be cut off
            log.info("no look at the worker of trial %s: %s", trial_id, error)
            return
        active = self.loop.accounts.active.get(trial_id)
        if active is None or not waits_for_task(stack) or active.trial.arm in self._wait_told:
            return
        self._wait_told.add(active.trial.arm)
        trial = replicate_of(active.trial, self.loop.progress.axes)
        self.loop.progress.say(
            f"waits: {trial} waits for a task or an actor of Ray. What a trial starts "
            "gets what is left in the trial's own place, of which the trial holds all cores: where it asks for "
            "a core it waits for ever; start it with num_cpus=0, or do its work in the trial"
        )

    def _say_silent(self, trial_id: str, silence: str, actor: Any) -> None:
        """Show a trial as silent, and tell the user at which line of its code it is.

        `silence` is a phrase of `Overdue.silent`, such as `no report for 3 min`.
        """
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
        """Store the stacks of a trial's process beside its log; return them, and a phrase on where the process is.

        The phrase is such as `; it is in train (method.py:12)`. Both are "" where the stacks cannot be read or stored.
        """
        try:
            stack = on_node_of(actor, stack_of, lambda: self._ended) or ""
            if stack:
                records = self.loop.records
                records.store.write(records.key(trial_id, STACK), stack.encode())
        except Exception as error:  # the process may be gone, its host, or the storage
            log.info("no stack of trial %s: %s", trial_id, error)
            return "", ""
        place = innermost(stack)
        return stack, f"; it is in {place}" if place else ""

    def _in_thread(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call a slow check in a thread of its own, because Tune's loop must go on."""
        thread = threading.Thread(target=call, args=arguments, name="watchdog", daemon=True)
        self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
        thread.start()

    def end(self) -> None:
        """End the slow checks, and wait a while for their threads.

        A thread that asks Ray something while Ray is shut down crashes the process.
        """
        self._ended = True
        deadline = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _running(tune_trials: Iterable[RayTrial]) -> dict[str, RayTrial]:
    """Return the trials of Tune that are running, by the ids of our trials (not Tune's own ids)."""
    return {trial.config["id"]: trial for trial in tune_trials if trial.status == "RUNNING"}
