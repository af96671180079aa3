"""`Follower`: brings a tracker up to what the storage has of a study, and keeps it there while the study runs.

It reads what anybody can read: the records, `live.json` for the trials that run, their attempt.json and the reports
that they have stored so far. A tracker that is away, slow or wiped loses nothing: all is read again when it is back.
"""

import contextlib
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import filelock

from contrasweep import canonical
from contrasweep.errors import BrokenFileError, ContrasweepError, StorageError, plural
from contrasweep.live.state import RunningTrial, is_living, read_live
from contrasweep.rows import step_of
from contrasweep.storage import compact
from contrasweep.storage.attempts import read_begun
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.tracker import EndedTrial, Outcome, Target, TrackingError, TrialFiles

POLL_S = 2.0
"""Seconds from one look at the storage to the next. Stored reports are up to five seconds old, so that a curve is less
than ten seconds late."""
BUSY_S = 3.0
"""Seconds for which trials that have ended are shown before those that run are looked at again."""
KEEP_S = 10.0
"""Seconds after which the storage is told again what the tracker has."""
MAX_PAUSE_S = 5.0
"""Seconds until a tracker that is away is tried again while the study runs."""
MAX_TRIES = 5
"""How often a trial's data is sent to a tracker that is there and does not take it."""
LOCK_S = 3600.0
"""Seconds for which a follower waits for another one that shows the same study on the same tracker."""
AWAY_S = 30.0
"""Seconds for which a tracker that is away is waited for once the study is over."""
MANY_RECORDS = 100
"""From so many records on, they are read from the compacted files and not one by one."""
TRIALS_NAMED = 3
"""Trials that a message on what a tracker lacks names at most."""


class Follower:
    """Shows one study's storage on one tracker, as it grows."""

    def __init__(self, records: StudyRecords, target: Target) -> None:
        """Prepare to show the study of `records` on the tracker `target`; nothing is read or shown yet."""
        self.records = records
        self.target = target
        self.ended: dict[str, EndedTrial] = {}  # the trials that have a record
        # Trial id -> record, of those among them that the tracker does not show yet.
        self.waiting: dict[str, Record] = {}
        self.refused: dict[str, str] = {}  # trial id -> why the tracker does not show it
        self.error = ""  # why the tracker takes nothing at the moment
        self._shown: set[str] = set()  # ids of trials whose end this follower has shown
        self._etags: dict[str, str] = {}  # trial id -> etag of its record that was read
        # Trial id -> trial and when it began (unix seconds), of those that run.
        self._trials: dict[str, tuple[Record, float]] = {}
        self._steps: dict[str, int] = {}  # trial id -> its newest step that is shown
        self._tries: dict[str, int] = {}  # trial id -> calls for it that have failed
        self._connected = False  # whether the tracker was asked what it shows already
        self._begun = False  # whether the tracker was told that the study runs
        self._troubled = False  # whether a call for a trial has failed in this look
        self._kept = time.monotonic()  # when the storage was last told what the tracker has

    def look(self, *, last: bool = False, seconds: float = math.inf) -> None:
        """Read the storage once, and show on the tracker what is new, for about `seconds` seconds.

        Ended trials that are not shown by then stay in `waiting`. With `last`, reports of trials that were interrupted
        are shown too. Raises `TrackingError` where the tracker cannot be reached, and `StorageError` where the storage
        cannot be read.
        """
        self._read_records()
        if not self._connected:
            # A tracker that was away may have been wiped: it is asked again what it shows.
            began = min((record.started for record in self.waiting.values()), default=None)
            self.target.connect(began)
            self._connected = True
            self.waiting = {
                i: record for i, record in self.waiting.items() if not self.target.shows(record)
            }
        self._troubled = False
        for entry in self._running(last):
            self._try(entry.trial_id, partial(self._show_running, entry))
        # Some at a time, so that the time and a tracker in trouble are noticed in between.
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(self.target.connections) as pool:
            while self.waiting and not self._troubled and time.monotonic() < until:
                batch = list(islice(self.waiting.values(), 4 * self.target.connections))
                list(pool.map(self._show_ended, batch))  # the list waits for all of them
                # Other processes learn from the storage what the tracker has by now.
                if time.monotonic() >= self._kept + KEEP_S:
                    self._keep()

    def close(self, outcome: Outcome) -> None:
        """Tell the tracker how the study has ended, or that it still runs. Nothing may be shown after this call.

        `TrackingError` where the tracker cannot be reached.
        """
        self.target.end(self.ended, outcome)
        self._keep()

    def follow(
        self, outcome: Callable[[float], Outcome | None], on_left: Callable[[int], None]
    ) -> None:
        """Look every two seconds until the study is over and all is shown.

        A tracker that is away at the end is waited for `AWAY_S` seconds. One that refuses all calls is given up:
        `error` says why, and `waiting` has what it lacks.

        Args:
            outcome: Waits for the given seconds at most, and returns how the study stands once it is over, else None.
            on_left: Is called after each look once the study is over, with the number of trials that are left.
        """
        final: Outcome | None = None  # once the study is over
        away_since = math.inf  # the time of the first call in a row that has failed
        while True:
            final = final or outcome(0.0)
            try:
                self.look(last=final is not None, seconds=BUSY_S)
                if final is not None and not self.waiting:
                    self.close(final)
                    self._note("")
                    return
                self._note("")
                away_since = math.inf
                # A second where a call has failed; none as long as there is more to show.
                if self._troubled:
                    pause = 1.0
                elif self.waiting:
                    pause = 0.0
                else:
                    pause = POLL_S
            except (TrackingError, StorageError) as error:
                # The tracker or the storage is away: all is looked at anew when it is back.
                self._connected = False
                pause = MAX_PAUSE_S if final is None else 1.0
                away_since = min(away_since, time.monotonic())
                self._note(str(error))
                if isinstance(error, TrackingError) and not error.retryable:
                    # No later call would work. What the tracker lacks is told once the study is over.
                    outcome(math.inf)
                    self._read_records()
                    return
            # A tracker that is away for so long is given up.
            if final is not None and time.monotonic() > away_since + AWAY_S:
                return
            if final is not None:
                on_left(len(self.waiting))
                time.sleep(pause)
            elif pause:
                final = outcome(pause)

    @property
    def shown(self) -> int:
        """The number of trials that had ended and that this follower has shown."""
        return len(self._shown)

    def gap(self) -> str:
        """Return a line on what the tracker lacks although the storage has it, and the command that completes it.

        Empty where it lacks nothing.
        """
        # Trial id -> why it is not shown. A tracker that fails with no trial left lacks the study's own summary.
        lacks = {**dict.fromkeys(self.waiting, self.error), **self.refused}
        if not lacks and not self.error:
            return ""
        gap = plural(len(lacks), "trial") if lacks else "the summary"
        reason = next(filter(None, [self.error, *self.refused.values()]), "it took too long")
        remedy = "the records have everything: run `contrasweep sync` for this study"
        return f"{self.target.name} lacks {gap} of study {self.records.study} ({' '.join(reason.split())}); {remedy}"

    def refusals(self) -> str:
        """Return how many trials the tracker has refused, with the ids of the first of them and the reasons, in a line.

        For example `2 trials: 3f2a (...); 9c1d (...)`.
        """
        first_refused = list(self.refused.items())[:TRIALS_NAMED]
        named = [f"{trial_id} ({' '.join(why.split())[:300]})" for trial_id, why in first_refused]
        if len(self.refused) > TRIALS_NAMED:
            named.append(f"and {len(self.refused) - TRIALS_NAMED} more")
        return f"{plural(len(self.refused), 'trial')}: {'; '.join(named)}"

    def read_changed(self) -> list[Record]:
        """Return the records that are new in the storage, or have changed, since the last call.

        What this follower knows of their trials is forgotten, so that they are shown anew. So is what it knows of
        trials whose record is gone. A trial whose record is broken counts as refused by the tracker.
        """
        etags = self.records.etags()
        for trial_id in self._etags.keys() - etags.keys():  # archived: it runs again
            self._drop(trial_id)
        changed = {
            trial_id for trial_id, etag in etags.items() if self._etags.get(trial_id) != etag
        }
        broken: list[BrokenFileError] = []
        # Many records are read faster from compacted files, which `read_records` uses if it gets the etags of all.
        etags_to_use = etags if len(changed) >= MANY_RECORDS else {i: etags[i] for i in changed}
        records_read = compact.read_records(self.records, broken, changed, etags_to_use)
        for trial_id in changed:
            self._drop(trial_id)
            self._etags[trial_id] = etags[trial_id]
            if record := records_read.get(trial_id):
                self.ended[trial_id] = EndedTrial(record.status, record.ended, record.code)
        # A record's file lies in the folder of its trial.
        for error in broken:
            self._refuse(error.file.split("/")[-2], error)
        return list(records_read.values())

    def _read_records(self) -> None:
        """Read the new records of the storage, and add those that the tracker does not show yet to `waiting`."""
        if records := self.read_changed():
            for record in records:
                if not (self._connected and self.target.shows(record)):
                    self.waiting[record.trial_id] = record
            self.target.learn(records)  # may fail, where the tracker or the storage is away

    def _drop(self, trial_id: str) -> None:
        """Forget all that this follower knows of a trial, because its record has changed or is gone."""
        for known in (
            self._etags,
            self.ended,
            self.waiting,
            self.refused,
            self._trials,
            self._steps,
            self._tries,
        ):
            known.pop(trial_id, None)

    def _running(self, last: bool) -> list[RunningTrial]:
        """Return the trials that run now by live.json and have no record.

        Of a run that has ended there are none. But with `last` its trials without a record are returned, which were
        interrupted. The tracker is told here, once, that the study runs.
        """
        state = read_live(self.records)
        if state is None or (state.ended and not last):
            return []
        if is_living(state) and not self._begun:
            self.target.begin()
            self._begun = True
        return [trial for trial in state.running.values() if trial.trial_id not in self._etags]

    def _show_running(self, entry: RunningTrial) -> None:
        """Show a trial that runs, with its reports. Do nothing if it has made no report since it was shown last."""
        trial_id = entry.trial_id
        begun = self._trials.get(trial_id) or read_begun(self.records, trial_id)
        if begun is None or entry.step <= self._steps.get(trial_id, -1):
            return
        self._trials[trial_id] = begun
        trial, since = begun
        files = TrialFiles(self.records, trial_id)
        self.target.show_running(trial, since, files)
        self._steps[trial_id] = step_of(files.reports[-1]) if files.reports else 0

    def _show_ended(self, record: Record) -> None:
        """Show a trial that has its record; where that fails for now, it stays in `waiting`."""

        def show() -> None:
            """Show the trial, and note that it is shown."""
            self.target.show_ended(record, TrialFiles(self.records, record.trial_id))
            self._shown.add(record.trial_id)

        if self._try(record.trial_id, show):
            self.waiting.pop(record.trial_id, None)

    def _try(self, trial_id: str, call: Callable[[], None]) -> bool:
        """Call the tracker for a trial; return whether the trial needs no further try: it was taken, or is given up.

        An error of the trial counts against it, and is not raised. `TrackingError` is raised only where the tracker
        cannot be reached, which is no fault of the trial.
        """
        if trial_id in self.refused:
            return True
        try:
            call()
        except TrackingError as error:
            # The call may have worked although its answer is lost.
            self.target.doubt(trial_id)
            if error.retryable and not self.target.is_reachable():
                raise
            return self._failed(trial_id, error, error.retryable)
        except (ContrasweepError, OSError) as error:  # the trial's files cannot be read
            # A storage that is away may answer later; a broken file stays broken.
            away = isinstance(error, StorageError) and not isinstance(error, BrokenFileError)
            return self._failed(trial_id, error, away)
        return True

    def _failed(self, trial_id: str, error: Exception, retryable: bool) -> bool:
        """Count a failed try to show a trial; return whether the trial is given up, and so counts as refused.

        A trial is given up after `MAX_TRIES` tries. It is given up at once if another try cannot work (`retryable` is
        false).
        """
        tries = self._tries.get(trial_id, 0) + 1
        self._tries[trial_id] = tries
        if retryable and tries < MAX_TRIES:
            self._troubled = True
            # Somebody may have deleted the whole experiment: the tracker is asked again what it has.
            if tries >= 2:
                self._connected = False
            return False
        self._refuse(trial_id, error)
        return True

    def _refuse(self, trial_id: str, error: Exception) -> None:
        """Note that the tracker does not show a trial, and the error that says why.

        For the first such trial a line is printed to standard error; further ones are only counted.
        """
        if not self.refused:
            print(
                f"{self.target.name} does not show trial {trial_id} ({error})",
                file=sys.stderr,
                flush=True,
            )
        self.refused[trial_id] = str(error)

    def _keep(self) -> None:
        """Let the tracker write to the storage what other processes need to know of it, such as links."""
        self._kept = time.monotonic()
        self.target.keep()

    def _note(self, error: str) -> None:
        """Set `error`, the reason why the tracker takes no calls; "" means that it works.

        A line is printed when the tracker starts to fail, and when it works again.
        """
        name = self.target.name
        before = self.error
        self.error = error
        if error and not before:
            print(
                f"{name} takes nothing at the moment ({error}); training goes on",
                file=sys.stderr,
                flush=True,
            )
        elif before and not error:
            print(f"{name} takes data again", file=sys.stderr, flush=True)


def follow_all(
    followers: Collection[Follower],
    outcome: Callable[[float], Outcome | None],
    on_left: Callable[[int], None] | None = None,
) -> list[threading.Thread]:
    """Start a thread for each follower, so that a slow tracker delays no other, and return the threads.

    `outcome` is the argument of `Follower.follow`. Once the study is over, `on_left` is called again and again with the
    number of trials that are still to be shown. Of several trackers it is the largest number. An error in a thread is
    kept in the follower's `error`.
    """
    left: dict[str, int] = {}

    def follow(follower: Follower) -> None:
        """Follow the study for one tracker, while its lock is held; an error is kept in the follower's `error`."""

        def count(waiting: int) -> None:
            """Note that this tracker lacks `waiting` trials; pass `on_left` the largest number of any tracker."""
            left[follower.target.name] = waiting
            if on_left is not None:
                on_left(max(left.values()))

        try:
            with locked(follower.records, follower.target, LOCK_S):
                follower.follow(outcome, count)
        except Exception as error:  # what breaks here ends no other tracker
            follower.error = f"{type(error).__name__}: {error}"

    threads = [
        threading.Thread(target=follow, args=(follower,), daemon=True) for follower in followers
    ]
    for thread in threads:
        thread.start()
    return threads


@contextlib.contextmanager
def locked(records: StudyRecords, target: Target, timeout_s: float) -> Iterator[None]:
    """Hold a lock in a `with` block: no other process of this user then shows this study on this tracker.

    `StorageError` where another process holds the lock for longer than `timeout_s` seconds.
    """
    # The user is part of the name, since nobody may open a lock of another user.
    text = f"{os.getuid()}:{records.store.uri}:{records.study}:{target.name}"
    name = f"contrasweep-tracking-{canonical.digest(text, 16)}.lock"
    lock = filelock.FileLock(Path(tempfile.gettempdir()) / name)
    try:
        lock.acquire(timeout_s)
    except filelock.Timeout:
        problem = f"another process shows study {records.study} there, and goes on until all of it is there"
        raise StorageError(f"tracking {target.name}: {problem}") from None
    try:
        yield
    finally:
        lock.release()
