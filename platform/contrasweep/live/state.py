"""The state of a run: as plain data, as lines of text, from the events of a run, and in the storage.

`Progress` receives the events of a run, keeps its `RunState` and passes it to displays.

The driver writes the state to `<study>/live.json` every few seconds and once more when it ends, so that the run is
watched on any machine. A driver that was killed leaves one that is not renewed any more.
"""

import copy
import math
import os
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Annotated, Protocol

import pydantic

from contrasweep.errors import BrokenFileError, duration, plural
from contrasweep.rows import Mode, Row, step_of
from contrasweep.shell import command_line
from contrasweep.storage.json_file import SCHEMA, JsonFile
from contrasweep.storage.lease import living_holder
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import (
    COUNTING,
    Count,
    Measure,
    Phase,
    Record,
    Seed,
    Status,
    Time,
    TrialLike,
)
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import EVALUATED, EVALUATION
from contrasweep.study import dotted
from contrasweep.trial import Trial

COMPLETE = "complete"
"""The state of a study, or the end of a run: every trial of the table was trained."""
FAILURES = "failures"
"""Every trial has ended, and some of the table failed or fit no host, or an arm had none to confirm."""
USED_UP = "budget used up"
"""A budget ended the run."""
STOPPED = "stopped"
"""It was interrupted, killed, or ended by an error."""
MAX_EVENTS = 20
"""The most events that a state keeps."""
MAX_LINE = 1000
"""The most characters of a line in a state."""


def one_line(text: str) -> str:
    """Return the first `MAX_LINE` characters of `text` as one line: each control character becomes a space."""
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_LINE]


Line = Annotated[str, pydantic.AfterValidator(one_line)]


@dataclass
class RunningTrial:
    """A trial that a worker trains. Times are unix seconds; `step` is 0 until the trial reports."""

    __pydantic_config__ = SCHEMA

    trial_id: Name
    arm: Label
    axes: dict[Label, Line]
    fold: Count | None
    seed: Seed
    started: Time
    step: Count = 0
    steps: Count | None = None  # the last step that is expected; None: not known
    value: float | None = None  # the study's metric, as it was last reported
    reported: Time | None = None
    note: Line = ""  # what is odd about the trial, such as that it does not report
    first_step: Count = 0  # the step of its first report in this run
    first_reported: Time | None = None

    @property
    def pace_s(self) -> float | None:
        """The seconds that a step takes, by the reports in this run; None before the second report.

        The time from the start to the first report does not count, as it includes the start of a process.
        """
        if self.reported is None or self.first_reported is None or self.step == self.first_step:
            return None
        return (self.reported - self.first_reported) / (self.step - self.first_step)


@dataclass
class ArmState:
    """How many trials of an arm have ended, and the scores of those that have one.

    `total` is how many trials the arm has (None: not known). `scored` counts the trials with a score; `mean` and `best`
    are over these. `best_where` names the trial with the best score, `lr=0.1 seed=1`.
    """

    __pydantic_config__ = SCHEMA

    ended: Count = 0
    total: Count | None = None
    scored: Count = 0
    mean: float = 0.0
    best: float | None = None
    best_where: Line = ""

    def score(self, value: float, where: str, mode: str) -> None:
        """Add the metric's value of a finished trial to the mean, and to the best value if it is better.

        `where` says in words which trial it is, `lr=0.1 seed=1`; `mode` is "max" or "min".
        """
        self.scored += 1
        self.mean += (value - self.mean) / self.scored
        sign = 1 if mode == "max" else -1
        if self.best is None or sign * value > sign * self.best:
            self.best = value
            self.best_where = where


@dataclass
class RunState:
    """The state of a run that began at `began`, when `before` trials (status -> how many) had ended already.

    `total` is how many trials the study has; None under a budget. `slots` trials run at once; 0 until a host is there.
    `waits` says why no trial runs: which host is waited for; empty where one runs. `ended` is empty as long as the run
    goes on, and then `complete`, `failures`, `budget used up`, or `stopped`, with the error that stopped it. `updated`
    is the time of this state, in unix seconds by the clock of its host.
    """

    __pydantic_config__ = SCHEMA

    study: Name
    metric: Label
    mode: Mode
    storage: Line
    total: Count | None
    before: dict[Label, Count]
    slots: Measure
    began: Time
    host: Label = ""
    pid: Count = 0
    updated: Time = 0.0
    eta_s: Measure | None = None
    # How many trials ended with each status since the run began
    statuses: dict[Label, Count] = field(default_factory=dict)
    running: dict[Name, RunningTrial] = field(default_factory=dict)  # by trial id
    arms: dict[Label, ArmState] = field(default_factory=dict)
    events: list[tuple[Time, Line]] = field(default_factory=list)  # the newest last
    waits: Line = ""
    ended: Line = ""
    # What people read in place of declared names
    labels: dict[Label, Label] = field(default_factory=dict)
    warned: Count = 0  # trials whose logs have warnings

    def name(self, word: str) -> str:
        """Return the display name of an arm, an axis, its value or the metric."""
        return self.labels.get(word, word)

    def settings(self, axes: Mapping[str, str]) -> str:
        """Return values of axes as people read them, `batch_size=16 lr=0.1`."""
        return " ".join(f"{self.name(axis)}={self.name(value)}" for axis, value in axes.items())

    @property
    def done(self) -> int:
        """The number of trials that have ended, in this run or before it."""
        return sum(self.before.values()) + sum(self.statuses.values())

    @property
    def counts_not_done(self) -> list[str]:
        """Return the counts of trials that ended with another status than done, before the run too: `2 failed`."""
        counts = Counter(self.statuses) + Counter(self.before)
        return [f"{n} {status}" for status, n in sorted(counts.items()) if status not in COUNTING]

    @property
    def best(self) -> tuple[str, ArmState] | None:
        """The arm with the best trial so far, by name and state; None before any trial has a score.

        Of several arms it is the first by name, as in `contrasweep status`.
        """
        scored = [(name, arm) for name, arm in sorted(self.arms.items()) if arm.best is not None]
        pick = max if self.mode == "max" else min
        return pick(scored, key=lambda entry: entry[1].best or 0.0) if scored else None

    def event(self, now: float, text: str) -> None:
        """Add a line to the state's events, for whoever watches. `now` is its time in unix seconds.

        Only the newest `MAX_EVENTS` lines are kept.
        """
        self.events = [*self.events, (now, one_line(text))][-MAX_EVENTS:]


def start_line(state: RunState) -> str:
    """Return in a line what a run will do: `30 trials, 12 ended before, 2 slots, about 3 min`."""
    until = "trials until the budget is used up"
    trials = until if state.total is None else plural(state.total, "trial")
    ended = sum(state.before.values())
    before = f", {ended} ended before" if ended else ""
    parts = f"{state.study}: {trials}{before}, {plural(int(state.slots), 'slot')}"
    if state.eta_s is None:
        return f"{parts}; the time to go shows once some trials have ended"
    return f"{parts}, about {duration(state.eta_s)}"


def counts_line(state: RunState) -> str:
    """Return the counts in a line: `14/30 trials, 2 running, 1 failed, 3 min so far, about 4 min to go`."""
    done = (
        plural(state.done, "trial") if state.total is None else f"{state.done}/{state.total} trials"
    )
    # Once the run is over, a word that says so stands in place of the number of running trials.
    running = f"{len(state.running)} running"
    if state.ended:
        running = STOPPED if state.ended.startswith(STOPPED) else "ended"
    warned = [f"{state.warned} with warnings"] if state.warned else []
    parts = [
        done,
        running,
        *state.counts_not_done,
        *warned,
        f"{elapsed(state.updated - state.began)} so far",
    ]
    # At 0 all that is left is overdue, and nothing can be said. How long a run waits for a place is not known.
    is_left = state.total is not None and state.done < state.total
    if not state.ended and state.running and state.eta_s and is_left:
        parts.append(f"about {duration(state.eta_s)} to go")
    return ", ".join(parts)


def progress_line(state: RunState) -> str:
    """Return in a line the counts, the newest value of the metric of a running trial, and the best value so far.

    `14/30 trials, 2 running, ...; knn1 0.81 of ocl at step 40; best knn1 0.84: ocl lr=0.1 seed=1`.
    """
    parts = [counts_line(state)]
    metric = state.name(state.metric)
    reported = [trial for trial in state.running.values() if trial.value is not None]
    if reported:
        newest = max(reported, key=lambda trial: trial.reported or 0.0)
        parts.append(
            f"{metric} {newest.value:.4g} of {state.name(newest.arm)} at step {newest.step}"
        )
    if state.best is not None:
        name, arm = state.best
        parts.append(f"best {metric} {arm.best:.4g}: {state.name(name)} {arm.best_where}".rstrip())
    return "; ".join(parts)


def elapsed(seconds: float) -> str:
    """Return a time as 0:07, 12:40 (minutes and seconds) or 3:05:12; one below 0 as 0:00."""
    total = max(0, int(seconds))
    hours, rest = divmod(total, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def time_to_go(
    ended: Mapping[str, Sequence[float]],
    waiting: Counter[str],
    running: Collection[RunningTrial],
    slots: float,
    now: float,
) -> float | None:
    """Return the seconds until a run ends; 0 where no trial is left, None where no trial's length is known.

    A trial takes what its own reports tell, else the mean of its arm's ended trials, else that of all.

    Args:
        ended: Arm -> seconds of each trial that has ended.
        waiting: Arm -> number of its trials that wait; of "", those whose arm is not known.
        running: The trials that run, of which only the rest of their time counts.
        slots: Trials that run at once.
        now: The time in unix seconds.
    """
    # What the reports of running trials tell: the seconds of whole trials, and by trial the seconds to go.
    lengths = []
    to_go: dict[str, float] = {}
    for trial in running:
        if trial.steps and trial.pace_s is not None and trial.reported is not None:
            lengths.append(trial.pace_s * trial.steps)
            to_go[trial.trial_id] = trial.reported - now + trial.pace_s * (trial.steps - trial.step)
    known = [seconds for of_arm in ended.values() for seconds in of_arm] or lengths
    if not known:
        return None if running or waiting.total() else 0.0
    means = {arm: fmean(of_arm) for arm, of_arm in ended.items()}
    mean_of_all = fmean(known)
    for trial in running:
        length = means.get(trial.arm, mean_of_all)
        to_go.setdefault(trial.trial_id, length - (now - trial.started))
    of_running = [max(0.0, seconds) for seconds in to_go.values()]
    of_waiting = sum(number * means.get(arm, mean_of_all) for arm, number in waiting.items())
    # The work is shared by the places; places without a trial do not count.
    places = max(1.0, min(slots, waiting.total() + len(of_running)))
    return max([*of_running, (sum(of_running) + of_waiting) / places])


TICK_S = 1.0
"""Seconds between two updates of the displays."""
EPOCHS = "epochs"
"""The setting that is taken for a trial's last step."""


class Display(Protocol):
    """A place where a run is shown. Its methods are called from one thread at a time."""

    def show(self, state: RunState) -> None:
        """Show the state as it is now; called once a second."""

    def say(self, text: str) -> None:
        """Show a message on a line by itself."""

    def close(self, state: RunState) -> None:
        """Show the last state: the run is over."""


class Progress:
    """The state of a run. Its methods may be called from any thread, and never raise or wait for a display."""

    def __init__(
        self,
        state: RunState,
        axes: Sequence[str],
        displays: Sequence[Display],
        planned: Mapping[str, str] | None = None,
        earlier: Sequence[Record] = (),
    ) -> None:
        """Make the state of a run that is not shown yet.

        Args:
            state: The state, which is kept up to date.
            axes: The axes whose values are shown.
            displays: Where the run is shown.
            planned: Trial id -> arm, of the trials that wait, where they are known.
            earlier: The records of trials that ended in earlier runs.
        """
        self.state = state
        self.axes = list(axes)
        self.displays = list(displays)
        self.state.host = socket.gethostname()
        self.state.pid = os.getpid()
        # Arm -> seconds that each of its trained trials took its place.
        self._seconds = defaultdict[str, list[float]](list)
        self.planned = dict(planned or {})
        # Trial id -> status, of the trials that ended in this run.
        self.over: dict[str, Status] = {}
        # The same of those that ended in earlier runs.
        self.earlier = {record.trial_id: record.status for record in earlier}
        self._messages = list[str]()  # messages that no display has yet
        self._warned = set[str]()  # ids of trials that printed warnings
        self._confirming = False  # whether a search has come to its confirmations
        # arm, fold and seed -> record of the trial that confirms there
        self._confirmations: dict[tuple[str, int | None, int], Record] = {}
        self._failed = set[str]()  # ids of trials of the table that failed or fit no host
        self._searched = set[str]()  # arms that were searched
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # An arm's total is what waits and what has ended; None where no trial is known to wait, as in a search.
        planned_of = Counter(self.planned.values())
        for name, arm in state.arms.items():
            arm.total = planned_of[name] or None
        for record in earlier:
            arm = state.arms.setdefault(record.arm, ArmState())
            if arm.total is not None:
                arm.total += 1
            self._count(record, record.seconds)

    @contextmanager
    def shown(self, used_up: Callable[[], str]) -> Iterator[None]:
        """Show the run while the context is open; then show how it ended.

        `used_up` returns which budgets have ended the run; "" where none has.
        """
        self.open()
        try:
            yield
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self.close(STOPPED if interrupted else f"{STOPPED}: {type(error).__name__}: {error}")
            raise
        self.close(USED_UP if used_up() else "")

    def begin(self, slots: float) -> None:
        """Note that hosts are there on which `slots` trials run at once, and tell what the run will do."""
        with self._lock:
            self.state.slots = slots
            self.state.waits = ""
            self._estimate(time.time())
            self._messages.append(start_line(self.state))

    def open(self) -> None:
        """Begin to show the run."""
        self._update()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def started(self, trial: Trial) -> None:
        """Note that a worker has begun to train a trial, or goes on with one."""
        with self._lock:
            self.state.waits = ""
            # A trial that was stopped may go on after all. Then it is counted no more as one that has ended, whether it
            # did so in this run or in an earlier one.
            for status_of, counts in (
                (self.over, self.state.statuses),
                (self.earlier, self.state.before),
            ):
                if trial.id in status_of:
                    counts[status_of.pop(trial.id)] -= 1
                    self.state.arms[trial.arm].ended -= 1
            self.planned.pop(trial.id, None)
            self._failed.discard(trial.id)
            epochs = dotted.lookup(trial.config, EPOCHS)
            self.state.running[trial.id] = RunningTrial(
                trial.id,
                trial.arm,
                axes_as_text(self.axes, trial),
                trial.fold,
                trial.seed,
                time.time(),
                # Another number than a count, such as -1 for a training without an end, is no last step.
                steps=epochs if type(epochs) is int and epochs > 0 else None,
            )

    def reported(self, trial_id: str, reports: Sequence[Row]) -> None:
        """Note new reports of a running trial."""
        with self._lock:
            trial = self.state.running.get(trial_id)
            if trial is None or not reports:
                return
            trial.step = step_of(reports[-1])
            trial.reported = float(reports[-1]["time"])
            trial.note = ""
            # The pace is counted from the first report on, which leaves out what the start takes.
            if trial.first_reported is None:
                trial.first_step = step_of(reports[0])
                trial.first_reported = float(reports[0]["time"])
            # The newest report with the metric gives the value that is shown; NaN shows as no value.
            for row in reports:
                value = row.get(self.state.metric)
                if value is not None:
                    trial.value = float(value) if math.isfinite(value) else None
            # A trial that goes beyond its expected last step makes that unknown.
            if trial.steps is not None and trial.step > trial.steps:
                trial.steps = None

    def hangs(self, trial_id: str, note: str) -> None:
        """Add a note to a running trial on what is odd, such as `no report for 5 min`; its next report removes it."""
        with self._lock:
            trial = self.state.running.get(trial_id)
            if trial:
                trial.note = note

    def lost(self, trial_id: str) -> None:
        """Note that the worker of a trial is lost, and that the trial waits to be started again."""
        with self._lock:
            trial = self.state.running.pop(trial_id, None)
            if trial:
                self.planned[trial_id] = trial.arm

    def ended(self, record: Record) -> None:
        """Count a trial that has ended. At the first one that printed warnings, tell the command that shows its log."""
        state = self.state
        with self._lock:
            trial = state.running.pop(record.trial_id, None)
            self.planned.pop(record.trial_id, None)
            state.statuses[record.status] = state.statuses.get(record.status, 0) + 1
            self.over[record.trial_id] = record.status
            # A trial takes its place for a little longer than it trains. The first trial of each place also starts a
            # process and imports what it trains with, which says nothing of later ones.
            seconds = record.seconds
            if trial is not None and len(self.over) > state.slots:
                seconds = time.time() - trial.started
            # Told once: no other trial of this run has warned before.
            if record.warnings and self._warned.isdisjoint(self.over):
                logs_command = command_line(
                    "logs", state.study, record.trial_id[:8], storage=state.storage
                )
                self._tell(
                    f"a trial of {state.name(record.arm)} has printed warnings: {logs_command}"
                )
            self._count(record, seconds)

    def waits(self, text: str) -> None:
        """Tell which host the run waits for; `text` stays in the state until a trial starts."""
        with self._lock:
            self.state.waits = one_line(text)
        self.say(text)

    def say(self, text: str) -> None:
        """Show a line on the displays and keep it in the state's events; before the run is shown, print it instead."""
        if self._thread is None:
            print(text, file=sys.stderr)
            return
        with self._lock:
            self._tell(text)

    def _tell(self, text: str) -> None:
        """Add a message for the displays and for the state's events. The caller holds the lock."""
        self.state.event(time.time(), text)
        self._messages.append(text)

    def close(self, reason: str = "") -> None:
        """Show that the run has ended, and stop the displays. `reason` is why it ended early; "" where it did not."""
        # Once the thread has ended, this one alone uses the displays and the state.
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        # A search that found nothing to confirm leaves its arm without a trial of the table.
        unconfirmed = self._searched - {arm for arm, _, _ in self._confirmations}
        self.state.ended = reason or (FAILURES if self._failed or unconfirmed else COMPLETE)
        self._update()
        for display in self.displays:
            display.close(self.state)

    def _count(self, record: Record, seconds: float) -> None:
        """Count an ended trial in the state of its arm: its status, its score, and how long it took.

        `seconds` is how long the trial kept its place on a host.
        """
        state = self.state
        arm = state.arms.setdefault(record.arm, ArmState())
        arm.ended += 1
        if record.warnings:
            # A stopped trial that went on may be in the set already.
            self._warned.add(record.trial_id)
            state.warned = len(self._warned)
        if record.status.trained:
            self._seconds[record.arm].append(seconds)
        confirms = record.notes.phase == Phase.CONFIRM
        if record.notes.phase == Phase.SEARCH:
            self._searched.add(record.arm)
        elif not record.status.trained:
            self._failed.add(record.trial_id)
        if confirms:
            # A confirmation of a newly found configuration takes the place of an earlier one. Where there is none yet,
            # `setdefault` returns this record.
            replicate = record.arm, record.fold, record.seed
            replaced = self._confirmations.setdefault(replicate, record)
            if replaced.trial_id != record.trial_id:
                self._failed.discard(replaced.trial_id)
                self._confirmations[replicate] = record
                ended_here = replaced.trial_id in self.over
                counts = state.statuses if ended_here else state.before
                counts[replaced.status] -= 1
                arm.ended -= 1
        if confirms and not self._confirming:
            # Scores of the search were made on other rows and chosen as the best, so they do not count any more.
            self._confirming = True
            for name, with_scores in state.arms.items():
                state.arms[name] = ArmState(with_scores.ended, with_scores.total)
            arm = state.arms[record.arm]
        # The metric `EVALUATED` only says that a network was evaluated, which is no score.
        score = record.value(state.metric) if state.metric != EVALUATED else None
        if score is not None and confirms == self._confirming:
            fold = "" if record.fold is None else f"fold={record.fold}"
            settings = state.settings(axes_as_text(self.axes, record))
            where = " ".join(filter(None, [settings, fold, f"seed={record.seed}"]))
            arm.score(score, where, state.mode)

    def _run(self) -> None:
        """Show the state every `TICK_S` seconds until the run is over; runs in a thread."""
        while not self._stopping.wait(TICK_S):
            self._update()

    def _update(self) -> None:
        """Give each display the messages that are new since the last call, and a copy of the state."""
        # Displays may be slow, so they are called without the lock.
        with self._lock:
            messages = self._messages
            self._messages = []
            self._estimate(time.time())
            snapshot = copy.deepcopy(self.state)
        for display in self.displays:
            for text in messages:
                display.say(text)
            display.show(snapshot)

    def _estimate(self, now: float) -> None:
        """Set the seconds that the run will probably still take; None under a budget, which decides what runs."""
        state = self.state
        state.updated = now
        state.eta_s = None
        if state.total is not None:
            # Trials that a search has not drawn yet wait too, for an arm that is not known.
            waiting = Counter(self.planned.values())
            trials_left = state.total - state.done - len(state.running)
            waiting[""] = max(0, trials_left - waiting.total())
            state.eta_s = time_to_go(
                self._seconds, waiting, state.running.values(), state.slots, now
            )


def axes_as_text(axes: Sequence[str], trial: TrialLike | Record) -> dict[str, str]:
    """Return a trial's values of the study's axes, or of its searched settings, as text for people: axis -> text.

    For example `{"optimizer.lr": "0.1"}`. The axis `data` has the name of the trial's dataset. Axes of which the trial
    has no value are left out. An evaluation has the values of the trial whose network it evaluates.
    """
    config = trial.config["config"] if trial.trainable == EVALUATION else trial.config
    values = {**config, "data": trial.data.name}
    texts = {}
    for axis in axes:
        value = dotted.name_of(dotted.lookup(values, axis))
        if value is not None:
            texts[axis] = f"{value:.4g}" if isinstance(value, float) else str(value)
    return texts


def replicate_of(trial: TrialLike, axes: Sequence[str]) -> str:
    """Return a trial as people read it, with its values of `axes`: `ARM lr=0.1 fold=0 seed=1`."""
    settings = (f"{axis}={value}" for axis, value in axes_as_text(axes, trial).items())
    fold = "" if trial.fold is None else f"fold={trial.fold}"
    return " ".join(filter(None, (trial.arm, *settings, fold, f"seed={trial.seed}")))


LIVE = "live.json"
POLL_S = 2.0
"""Seconds between two readings of a state that is watched."""
SILENT_S = 60.0
"""Seconds after which a run whose state was not renewed counts as one without a living driver."""
LIVE_FILE: JsonFile[RunState] = JsonFile(RunState, 1, "it is written anew by the next run")


def read_live(records: StudyRecords) -> RunState | None:
    """Return the state that the study's newest run kept; None where no state can be read."""
    try:
        return LIVE_FILE.read(records.store, f"{records.study}/{LIVE}")
    except (FileNotFoundError, BrokenFileError):
        return None


def is_living(state: RunState) -> bool:
    """Whether the driver of a run is there, as far as its `live.json` tells."""
    return not state.ended and time.time() - state.updated < SILENT_S


def has_driver(records: StudyRecords) -> bool:
    """Whether a driver trains the study now, as far as its `live.json` tells."""
    state = read_live(records)
    return state is not None and is_living(state)


def watch(
    records: StudyRecords,
    display: Display,
    *,
    once: bool = False,
    awaited: Callable[[], str] = lambda: "",
) -> RunState | None:
    """Show the study's newest run until it ends, or just `once`, and return its last state.

    None where no run has kept a state. Where the newest run has ended, it is not shown as long as another one is about
    to come: one that holds the study's lease and has kept no state yet, or a job that `awaited` names in a line.
    `awaited` returns "" where there is none.

    The clocks of the two machines are compared at the first look only. After it, a driver counts as alive as long as
    its state changes.
    """
    watched = Watched()
    last_coming = ""
    while True:
        state = read_live(records)
        # Where no run goes on, the next one is waited for if anything says that it comes: `coming` is a line on it.
        coming = ""
        if not once and (state is None or state.ended):
            coming = awaited() or _next_run(records, state)
        if coming:
            if coming != last_coming:
                display.say(coming)
            last_coming = coming
            time.sleep(POLL_S)
            continue
        if state is None:
            return None
        current = watched.seen(state, time.time(), time.monotonic())
        for text in watched.news(state):
            display.say(text)
        if state.ended or once:
            display.close(current)
            return current
        display.show(current)
        time.sleep(POLL_S)


def _next_run(records: StudyRecords, last: RunState | None) -> str:
    """Return a line on a run that holds the study's lease and has kept no state yet; "" where there is none.

    `last` is the state of the newest run that has kept one: that run does not count.
    """
    holder = living_holder(records)
    if holder is None or (last and (holder.host, holder.pid) == (last.host, last.pid)):
        return ""
    return f"{holder} has not begun to train yet"


class Watched:
    """Tells from a run's states, read one after the other, whether its driver is alive, and what is new."""

    def __init__(self) -> None:
        self.updated = 0.0  # that of the state, by the clock of the run's host; 0: none was read
        self.written = 0.0  # when it was written, by the monotonic clock of this process
        self.silent_s = 0.0  # seconds since then; 0 where the run has ended
        self.told_at = 0.0  # time of the newest event that `news` has returned
        self.silence_told = False

    def seen(self, state: RunState, now: float, clock: float) -> RunState:
        """Take the `state` that was read last; return it with `updated` moved towards now, if the driver seems alive.

        It is moved by the time since the state changed last, at most by `SILENT_S`; not for a run that has ended. `now`
        is in unix seconds and `clock` is monotonic time. Both are of this machine, which need not be that of the run.
        """
        # A state that was written since the last look: from now on its age is counted by this process's clock.
        if state.updated != self.updated:
            # The first state may be of any age, which only the clocks of both machines tell. A later one is new.
            is_first = not self.updated
            age = max(0.0, now - state.updated) if is_first and not state.ended else 0.0
            self.updated = state.updated
            self.written = clock - age
            self.silence_told = False
        if state.ended:
            self.silent_s = 0.0
            return state
        self.silent_s = clock - self.written
        return replace(state, updated=state.updated + min(self.silent_s, SILENT_S))

    def news(self, state: RunState) -> list[str]:
        """Return a line for each new event of `state`, and one if the run gave no sign of life for `SILENT_S` seconds.

        Each line is returned once only.
        """
        news = [text for at, text in state.events if at > self.told_at]
        self.told_at = max([self.told_at, *(at for at, _ in state.events)])
        if self.silent_s > SILENT_S and not self.silence_told:
            self.silence_told = True
            news.append(
                f"no sign of life for {duration(self.silent_s)} from process {state.pid} on {state.host}: it has ended "
                f"without a word, or cannot reach the storage; `contrasweep run` goes on from what is recorded"
            )
        return news
