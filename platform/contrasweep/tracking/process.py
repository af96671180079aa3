"""The process beside a driver that shows its study: started after the claim, told when the study is over.

The driver writes how the study is shown to the process's standard input and, at the end, how the study stands; where
the driver dies, the input ends. The process (`contrasweep.tracking.__main__`) answers on its standard output with lines
of JSON once the study is over: how many trials are left and, last, what the trackers lack.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from contrasweep.errors import plural
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.kinds import Trackers
from contrasweep.tracking.tracker import Outcome, TrackedStudy

FINISH_S = 30.0
"""Seconds for which a driver waits at its end until all is shown."""
INTERRUPT_S = 5.0
"""The same for a driver that was interrupted."""
NICENESS = 15
"""Training goes first while it runs: of a core that both want, this process gets 3.5 %."""


class TrackingProcess:
    """The process that shows a study on its trackers, as the driver that has started it sees it.

    It goes on after the driver's end while it still has something to show.
    """

    def __init__(self, trackers: Trackers, study: TrackedStudy, records: StudyRecords) -> None:
        """Start the process that shows `study` on `trackers` from the storage of `records`, and send it these facts."""
        setup = {
            "store": trackers.store,
            "others": trackers.others,
            "notify": trackers.notify,
            "began": time.time(),
            "storage": records.storage,
            "niceness": NICENESS,
            "study": asdict(study),
        }
        self.name = "notify" if trackers.is_none else str(trackers)
        self.study = study.name
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "contrasweep.tracking", study.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # So that the process finds the modules of a user's tracker where this process does.
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            start_new_session=True,  # Ctrl-C reaches the driver alone, which then tells the process
        )
        self._tell(json.dumps(setup, default=str))

    def close(self, outcome: Outcome, timeout_s: float) -> str:
        """Tell the process how the study has ended, and wait until it has shown all, for `timeout_s` seconds at most.

        After that time the process goes on alone.

        Returns:
            A line on what is not shown by then; "" if nothing is missing.
        """
        self._tell(outcome)
        answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(answers,), name="tracking", daemon=True).start()
        until = time.monotonic() + timeout_s
        unshown = None  # trials that are left, once the process has said it
        while True:
            try:
                line = answers.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                rest = "all" if unshown is None else plural(unshown, "trial")
                return (
                    f"{self.name} does not show {rest} of study {self.study} yet: process {self.process.pid} goes on "
                    f"in the background, and `contrasweep sync` shows the rest too"
                )
            if line is None:
                return f"the process that shows study {self.study} by {self.name} ended early; run `contrasweep sync`"
            answer = json.loads(line)
            if "gaps" in answer:
                # Without undelivered notifications the process ends now, which may take long on a busy machine.
                if answer["told"]:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(max(0.0, until - time.monotonic()))
                return "\n".join(answer["gaps"])
            unshown = answer["left"]

    def _tell(self, line: str) -> None:
        """Write a line to the process's standard input; nothing where it has ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended: `close` says so
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def _listen(self, answers: "queue.SimpleQueue[str | None]") -> None:
        """Put each line that the process prints into `answers`, and None at its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answers.put(line)
        answers.put(None)


@dataclass
class TrackingState:
    """What `following` yields: `outcome`, which the driver sets, and `gap`, which it reads afterwards.

    `outcome` is how the study has ended; the driver sets it before it leaves the `with` block. `gap` is a line on what
    the trackers had not shown when the block ended; "": they had shown all.
    """

    outcome: Outcome = "interrupted"
    gap: str = ""


@contextlib.contextmanager
def following(
    trackers: Trackers, study: TrackedStudy, records: StudyRecords
) -> Iterator[TrackingState]:
    """Show the study on its trackers during a `with` block, by another process.

    Without trackers and without `notify` no process is started. The body sets `outcome` of the object that is yielded.
    After it, the process has `FINISH_S` seconds to show the rest, or `INTERRUPT_S` after an exception. A line on
    standard error says what it has not shown by then.
    """
    state = TrackingState()
    if trackers.is_none and not trackers.notify:
        yield state
        return
    process = TrackingProcess(trackers, study, records)
    timeout_s = INTERRUPT_S
    try:
        yield state
        timeout_s = FINISH_S  # not reached after an exception
    finally:
        # Somebody has killed the process: another one finds what is missing.
        if process.process.poll() is not None:
            process = TrackingProcess(trackers, study, records)
        state.gap = process.close(state.outcome, timeout_s)
        if state.gap:
            print(state.gap, file=sys.stderr)
