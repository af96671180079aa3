"""What a person sees while a study runs: trials done, running, failed, and when it will be over."""

import sys
import time
from collections import Counter
from typing import Any, TextIO

from contrasweep.planning.durations import duration
from contrasweep.storage.record import Record, Status
from contrasweep.trial import Trial


class Progress:
    """One line: rewritten in place on a terminal, printed every `every_s` seconds anywhere else. `total` None: how many
    trials there will be is not known."""

    def __init__(
        self, total: int | None, done_before: int, slots: float, *, stream: TextIO | None = None, every_s: float = 15.0
    ) -> None:
        self.total, self.before, self.slots = total, done_before, max(slots, 1.0)
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.every_s = 0.2 if self.live else every_s
        self.statuses: Counter[Status] = Counter()
        self.running: set[str] = set()
        self.over: dict[str, Status] = {}  # by trial id
        self.seconds: list[float] = []
        self.shown = time.monotonic() if not self.live else 0.0

    def started(self, trial: Trial) -> None:
        """Count a trial as running."""
        self.running.add(trial.id)
        if trial.id in self.over:  # a stopped trial that goes on after all
            self.statuses[self.over.pop(trial.id)] -= 1
        self._show()

    def reported(self, trial_id: str, reports: list[dict[str, Any]]) -> None:
        """Show the line again, if it is due."""
        self._show()

    def ended(self, record: Record) -> None:
        """Count a trial by its status."""
        self.running.discard(record.trial_id)
        self.statuses[record.status] += 1
        self.over[record.trial_id] = record.status
        self.seconds.append(record.seconds)
        self._show(force=sum(self.statuses.values()) + self.before == self.total)

    def say(self, text: str) -> None:
        """Print a line of its own."""
        print(("\r\033[K" if self.live else "") + text, file=self.stream, flush=True)

    def close(self) -> None:
        """End the line on a terminal."""
        if self.live and self.shown:
            print(file=self.stream, flush=True)

    def eta_s(self) -> float | None:
        """Seconds still to go, from the mean time of the trials that ended; None before the first one."""
        if self.total is None:
            return None
        left = self.total - self.before - sum(self.statuses.values())
        return left * (sum(self.seconds) / len(self.seconds)) / min(self.slots, max(left, 1)) if self.seconds else None

    def line(self) -> str:
        """The line as it stands: trials done, running, failed, and the time to go."""
        done = self.before + sum(self.statuses.values())
        bad = [f"{n} {status}" for status, n in sorted(self.statuses.items()) if n and status != Status.DONE]
        eta = self.eta_s()
        parts = [
            f"{done} trials" if self.total is None else f"{done}/{self.total} trials",
            f"{len(self.running)} running",
            *bad,
        ]
        return ", ".join(parts) + (
            f", about {duration(eta)} to go" if eta is not None and self.total is not None and done < self.total else ""
        )

    def _show(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self.shown >= self.every_s:
            self.shown = now
            print(
                ("\r\033[K" if self.live else "") + self.line(),
                end="" if self.live else "\n",
                file=self.stream,
                flush=True,
            )
