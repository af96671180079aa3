"""A run that somebody else's process drives, watched from the storage alone."""

import time
from dataclasses import replace

from contrasweep.live.live_file import SILENT_S, read_live
from contrasweep.live.progress import Display
from contrasweep.live.state import RunState
from contrasweep.planning.durations import duration
from contrasweep.storage.records import StudyRecords

POLL_S = 2.0


def watch(records: StudyRecords, display: Display, *, once: bool = False, poll_s: float = POLL_S) -> RunState | None:
    """Show the study's newest run until it ends, or `once`; its last state, None where no run has kept one.

    Nobody's clock is compared for long: after the first look, a driver is alive as long as its state changes.
    """
    watched = _Watched()
    while (state := read_live(records)) is not None:
        shown = watched.seen(state, time.time(), time.monotonic())
        for text in watched.news(state):
            display.say(text)
        if state.ended or once:
            display.close(shown)
            return shown
        display.show(shown)
        time.sleep(poll_s)
    return None


class _Watched:
    """What was seen of a run so far, and when, by this process's own clock."""

    def __init__(self) -> None:
        self.updated, self.at = 0.0, 0.0
        self.told_at = 0.0  # the newest event that was told
        self.silence_told = False

    def seen(self, state: RunState, now: float, clock: float) -> RunState:
        """The state as it will be by now, if it goes on as it did."""
        if state.updated != self.updated:
            # Of the first state its age is not known but by both clocks; an old one is not a second old.
            age = max(0.0, now - state.updated) if not self.updated and not state.ended else 0.0
            self.updated, self.at = state.updated, clock - age
            self.silence_told = False
        self.silent_s = 0.0 if state.ended else clock - self.at
        return state if state.ended else replace(state, updated=state.updated + min(self.silent_s, SILENT_S))

    def news(self, state: RunState) -> list[str]:
        """Events that were not told yet, and that the run gives no sign of life any more."""
        news = [text for at, text in state.events if at > self.told_at]
        self.told_at = max([self.told_at, *(at for at, _ in state.events)])
        if self.silent_s > SILENT_S and not self.silence_told:
            self.silence_told = True
            news.append(
                f"no sign of life for {duration(self.silent_s)} from process {state.pid} on {state.host}: it has ended "
                f"without a word, or cannot reach the storage; `contrasweep run` goes on from what is recorded"
            )
        return news
