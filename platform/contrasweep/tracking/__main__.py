"""`python -m contrasweep.tracking STUDY`: the process that `process.TrackingProcess` starts."""

import contextlib
import json
import math
import os
import signal
import sys
import threading
from pathlib import Path

from contrasweep.delivery import DELIVER_S
from contrasweep.errors import StorageError
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.follower import Follower, follow_all
from contrasweep.tracking.kinds import Trackers
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.notify import PATIENCE_S, POLL_S, Notifier
from contrasweep.tracking.sync import targets
from contrasweep.tracking.tracker import Outcome, TrackedStudy

AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")
WORDS: tuple[Outcome, ...] = ("complete", "interrupted")
LAST_S = 4 * DELIVER_S
"""How long what is not delivered is tried in the background."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Driver:
    """The driver as this process knows it: how it says the study stands, once it does."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._parent = os.getppid()
        self._outcome: Outcome | None = None
        self.lost = False  # it ended without a word
        threading.Thread(target=self._listen, name="driver", daemon=True).start()

    def outcome(self, seconds: float) -> Outcome | None:
        """Return the outcome of the study as soon as it is known; None if it is not known after `seconds`."""
        self._over.wait(min(seconds, threading.TIMEOUT_MAX))
        # a process that it forked keeps the input open
        if self._outcome is None and os.getppid() != self._parent:
            self.lost = True
            return "interrupted"
        return self._outcome

    def leave_output(self) -> None:
        """Close the driver's standard error once the driver has ended, so that a pipe from the driver ends too."""
        if os.getppid() != self._parent:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 2)

    def _listen(self) -> None:
        word = sys.stdin.readline().strip()
        _be_nice(0)
        self.lost = not word
        self._outcome = next((outcome for outcome in WORDS if outcome == word), "interrupted")
        self._over.set()


def main() -> None:
    """Run followers for all trackers until the driver has ended and everything is shown."""
    # sent to all processes of a job; this one ends after the driver, which is told by them
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    setup = json.loads(sys.stdin.readline() or "null")
    if setup is None:  # the driver died before it said anything
        return
    _be_nice(setup["niceness"])
    driver = Driver()
    study = TrackedStudy(**setup["study"])
    trackers = Trackers(TrackingAddress(setup["store"]), tuple(setup["others"]))
    records = StudyRecords(setup["storage"], study.name)
    followers = [Follower(records, target) for target in targets(trackers, study, records)]
    threads = follow_all(followers, driver.outcome, lambda count: _say({"left": count}))
    notifier = Notifier(setup["notify"], records, setup["began"]) if setup["notify"] else None
    while (outcome := driver.outcome(POLL_S if notifier else math.inf)) is None:
        if notifier is not None:
            with contextlib.suppress(StorageError):  # away for now: nothing is known of the run
                notifier.look()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if notifier is not None:
        notifier.close(outcome, lost=driver.lost)
    # A follower that still shows the end must not keep the driver's pipe open for whoever reads it.
    while living := [thread for thread in threads if thread.is_alive()]:
        living[0].join(0.5)
        driver.leave_output()
    notified = notifier is None or notifier.join(PATIENCE_S)
    _say({"gaps": [gap for follower in followers if (gap := follower.gap())], "told": notified})
    driver.leave_output()
    if notifier is not None:
        notifier.join(LAST_S)


def _be_nice(niceness: int) -> None:
    """Set the priority of this process.

    Linux may divide each core between sessions first (autogroups). This process has a session of its own, so the
    niceness of the session counts then, which can be lowered again. That of a process cannot: it stays.
    """
    try:
        if AUTOGROUPS.read_text().strip() == "1":
            Path("/proc/self/autogroup").write_text(str(niceness))
            return
    except OSError:  # another system, or a container that does not show it
        pass
    os.nice(max(0, niceness - os.nice(0)))


def _say(answer: object) -> None:
    with contextlib.suppress(OSError):  # the driver did not wait for it
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
