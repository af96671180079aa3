"""`python -m contrasweep.tracking STUDY`: the process that `process.TrackingProcess` starts."""

import contextlib
import json
import math
import os
import signal
import sys
import threading
from pathlib import Path

from contrasweep.errors import StorageError
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.follower import Follower, follow_all
from contrasweep.tracking.kinds import Trackers
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.notify import PATIENCE_S, POLL_S, Notifier
from contrasweep.tracking.sync import targets
from contrasweep.tracking.tracker import Outcome, TrackedStudy

AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")
"""Linux's file that has 1 where it divides each core between sessions first."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DriverListener:
    """Waits for the driver, this process's parent, to say how its study has ended.

    The driver's word is one line on standard input: `complete`, or another text where the study was interrupted. `lost`
    is true where the driver has ended without a word, as after `kill -9`.
    """

    def __init__(self) -> None:
        """Start a thread that waits for the driver's word on standard input."""
        self._over = threading.Event()  # set once the outcome is known
        self._parent = os.getppid()  # the driver, while it lives
        self._outcome: Outcome | None = None
        self.lost = False  # whether the driver has ended without a word
        threading.Thread(target=self._listen, name="driver", daemon=True).start()

    def outcome(self, seconds: float) -> Outcome | None:
        """Return how the study has ended as soon as that is known; None if it is not known after `seconds`.

        Where the driver has ended without a word, `lost` becomes true, and the outcome is "interrupted".
        """
        self._over.wait(min(seconds, threading.TIMEOUT_MAX))
        # Standard input ends with the driver, unless a process that the driver has forked keeps it open. So the end of
        # the driver is seen by another parent of this process too.
        if self._outcome is None and os.getppid() != self._parent:
            self.lost = True
            return "interrupted"
        return self._outcome

    def leave_output(self) -> None:
        """Close standard error of this process, which it shares with the driver, if the driver has ended.

        Otherwise a program that reads the driver's standard error through a pipe would wait for this process too.
        """
        if os.getppid() != self._parent:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 2)

    def _listen(self) -> None:
        """Wait for the driver's word on standard input, or for the end of the input, and set the outcome.

        From then on, training needs no processor any more, so this process gives up its low priority.
        """
        word = sys.stdin.readline().strip()
        _be_nice(0)
        self.lost = not word
        self._outcome = "complete" if word == "complete" else "interrupted"
        self._over.set()


def main() -> None:
    """Show the study on all trackers, and notify, until the driver has ended and everything is shown.

    The first line of standard input is JSON: what to show, and where. The second line is the driver's word at its end.
    Answers for the driver are printed as lines of JSON.
    """
    # These signals reach all processes of a job. They tell the driver to stop; this process ends after it.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    setup = json.loads(sys.stdin.readline() or "null")
    if setup is None:  # the driver died before it said anything
        return
    _be_nice(setup["niceness"])
    driver = DriverListener()
    study = TrackedStudy(**setup["study"])
    trackers = Trackers(TrackingAddress(setup["store"]), tuple(setup["others"]))
    records = StudyRecords(setup["storage"], study.name)
    followers = [Follower(records, target) for target in targets(trackers, study, records)]
    # From here on followers work in threads of their own; this thread waits for the driver, and notifies meanwhile.
    threads = follow_all(followers, driver.outcome, lambda count: _say({"left": count}))
    notifier = None
    if setup["notify"]:
        notifier = Notifier(setup["notify"], records, setup["began"])
    pause_s = POLL_S if notifier else math.inf
    outcome = driver.outcome(pause_s)
    while outcome is None:
        if notifier is not None:
            with contextlib.suppress(StorageError):  # away for now: nothing is known of the run
                notifier.look()
        outcome = driver.outcome(pause_s)
    # The driver has ended: from now on SIGTERM may end this process, though it may still have something to show.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if notifier is not None:
        notifier.close(outcome, lost=driver.lost)
    # A follower that still shows the end must not keep the driver's pipe open for whoever reads it.
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)
            driver.leave_output()
    notified = notifier is None or notifier.join(PATIENCE_S)
    # The last word to the driver: what trackers lack, and whether all notifications are delivered.
    gaps = [follower.gap() for follower in followers]
    _say({"gaps": list(filter(None, gaps)), "told": notified})
    driver.leave_output()


def _be_nice(niceness: int) -> None:
    """Set the priority of this process: `niceness` from 0, as usual, to 19, the lowest.

    Linux may divide each core between sessions first (autogroups); this process has a session of its own. With
    autogroups the session's niceness counts, which may be raised and lowered. Without them the process's niceness
    counts, which may only be raised.
    """
    try:
        if AUTOGROUPS.read_text().strip() == "1":
            Path("/proc/self/autogroup").write_text(str(niceness))
            return
    except OSError:  # another system, or a container that does not show it
        pass
    # `os.nice(0)` is the present niceness; only a step up is allowed.
    os.nice(max(0, niceness - os.nice(0)))


def _say(answer: object) -> None:
    """Print `answer` as a line of JSON for the driver; do nothing where the driver has gone."""
    with contextlib.suppress(OSError):  # the driver did not wait for it
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
