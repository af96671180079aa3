"""Displays of a run: redrawn in place on a terminal, in a notebook, or as lines of text.

A terminal shows the trials that run, what each arm came to, and one line of counts. A notebook shows the same as one
HTML display that updates; no widgets are needed.
"""

import contextlib
import html
import io
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from contrasweep.errors import StorageError, clipped, plural
from contrasweep.live.state import (
    LIVE,
    LIVE_FILE,
    ArmState,
    Display,
    RunningTrial,
    RunState,
    counts_line,
    elapsed,
    progress_line,
)
from contrasweep.storage.records import StudyRecords
from contrasweep.terminal_text import printable, unguarded

EVERY_S = 15.0
"""Seconds between two lines of `Lines`."""
FILE_EVERY_S = 5.0
"""Seconds between two writes of `LiveFile`."""
CLOSE_S = 10.0  # how long the end of a run waits for a storage that does not answer
# The most rows of running trials and of arms, and the most messages of a notebook.
MAX_RUNNING = 12
MAX_ARMS = 8
MAX_MESSAGES = 12
MOST_OF_NAME = 30
"""Characters of a column's name, which takes the width from the other columns."""
NOTE_COLUMN = "odd"
"""The column of what is odd about a running trial (`RunningTrial.note`)."""
TEXT_COLUMNS = ("running", "settings", NOTE_COLUMN, "arm", "of")
"""Columns that are cut where there is too little room; all others are numbers."""
STYLES = {"failed:": "red", "silent:": "yellow", "again:": "yellow", "no sign of life": "yellow"}
"""Beginning of a message -> its colour on a terminal."""
PAGE = '<pre style="white-space:pre;overflow-x:auto;line-height:1.25;margin:0">{code}</pre>'
TROUBLE = (*STYLES, "arm ", "no host")
"""Beginnings of lines that say what went wrong, or that an arm or the whole run waits for a larger host."""


class Lines:
    """Prints lines of text: one every `every_s` seconds during a run, one at its end, each message at once."""

    def __init__(self, stream: TextIO, every_s: float = EVERY_S) -> None:
        self.stream = stream
        self.every_s = every_s
        self.due = time.monotonic() + every_s

    def show(self, state: RunState) -> None:
        """Print a line on the progress if `every_s` seconds have passed since the last one; none after the end."""
        now = time.monotonic()
        if now >= self.due and not state.ended:
            self.due = now + self.every_s
            self.say(progress_line(state))

    def say(self, text: str) -> None:
        """Print a line at once."""
        print(text, file=self.stream, flush=True)

    def close(self, state: RunState) -> None:
        """Print a last line, which says how the run ended."""
        self.say(progress_line(state))


class Quiet(Lines):
    """Prints only messages on trouble (`TROUBLE`): on trials that fail, do not report, run again or wait for a host."""

    def show(self, state: RunState) -> None:
        """Print nothing."""

    def say(self, text: str) -> None:
        """Print the message `text` if it begins with one of `TROUBLE`; nothing for any other."""
        if text.startswith(TROUBLE):
            super().say(text)

    def close(self, state: RunState) -> None:
        """Print nothing."""


def display_here() -> Display:
    """Return the display for this process: that of a notebook, of a terminal, or lines of text where it has neither.

    Terminal and lines are written to standard error, because results go to standard output.
    """
    ipython = sys.modules.get("IPython")
    if ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell":
        return Notebook()
    if not sys.stderr.isatty():
        return Lines(sys.stderr)
    # Rich draws by escape sequences, which the guarded stream would print as text.
    console = Console(file=unguarded(sys.stderr), highlight=False)
    return Lines(sys.stderr) if console.is_dumb_terminal else Terminal(console)


class LiveFile:
    """Writes the state of a run to the storage, in a thread of its own, so that a slow storage delays nothing.

    Nothing is written while `may_write` returns False: the file belongs to the driver that holds the study's lease.
    """

    def __init__(
        self,
        records: StudyRecords,
        every_s: float = FILE_EVERY_S,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.records = records
        self.may_write = may_write
        self.every_s = every_s
        self.due = 0.0
        self._thread: threading.Thread | None = None

    def show(self, state: RunState) -> None:
        """Write the state to the storage, if `every_s` seconds have passed and the last write has ended."""
        if time.monotonic() >= self.due and not (self._thread and self._thread.is_alive()):
            self.due = time.monotonic() + self.every_s
            self._begin(state)

    def say(self, text: str) -> None:
        """Do nothing: the state has the messages already."""

    def close(self, state: RunState) -> None:
        """Write the last state, after a write that still goes on has ended; wait `CLOSE_S` seconds at most for each."""
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        self._begin(state).join(CLOSE_S)

    def _begin(self, state: RunState) -> threading.Thread:
        """Start the thread that writes `state`, which must not change any more, and return it."""
        self._thread = threading.Thread(
            target=self._write, args=(state,), name="live-file", daemon=True
        )
        self._thread.start()
        return self._thread

    def _write(self, state: RunState) -> None:
        """Write the state to the study's `live.json`, if this driver still holds the study (`may_write`).

        A storage that fails is no error here: the run itself says so, and whoever watches sees no sign of life.
        """
        with contextlib.suppress(StorageError):
            if self.may_write():
                LIVE_FILE.write(self.records.store, f"{self.records.study}/{LIVE}", state)


class View:
    """Draws a state as tables of the library Rich, with as many rows as the display has room for."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts of the drawing: running trials, arms that have scores, a bar, and the line of counts.

        A table without rows is left out.
        """
        state = self.state
        running = list(state.running.values())
        arms = list(state.arms.items())
        # Rows of running trials get the height that the rows of arms and the 8 lines around them leave: heads of both
        # tables, empty lines, "and ... more", the bar and the counts.
        room = max(2, min(MAX_RUNNING, options.size.height - min(len(arms), MAX_ARMS) - 8))
        yield Text("")
        if running:
            yield _running_table(state, running[:room])
        if len(running) > room:
            yield Text(f"and {len(running) - room} more", style="dim")
        if any(arm.scored for _, arm in arms):
            yield Text("")
            yield _arms_table(state, arms[:MAX_ARMS])
        if len(arms) > MAX_ARMS:
            yield Text(f"and {plural(len(arms) - MAX_ARMS, 'more arm')}", style="dim")
        yield Text("")
        # Without a total, as under a budget, nobody knows which part is done.
        if state.total:
            bar = ProgressBar(
                state.total,
                state.done,
                width=min(options.max_width, 40),
                finished_style="bar.complete",
            )
            yield Columns([bar, Text(f"{state.done / state.total:.0%}")])
        yield Text(printable(counts_line(state)), style="bold", overflow="fold")


class Terminal:
    """Shows a run in place on a terminal; messages scroll away above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def show(self, state: RunState) -> None:
        """Draw the state."""
        self.live.start()
        self.live.update(View(state), refresh=True)

    def say(self, text: str) -> None:
        """Print a message above the tables, in a colour that depends on its first words (`STYLES`)."""
        style = next((style for word, style in STYLES.items() if text.startswith(word)), "")
        self.console.print(Text(printable(text), style=style, overflow="fold"), soft_wrap=True)

    def close(self, state: RunState) -> None:
        """Leave what was shown last on the terminal."""
        if self.live.is_started:
            self.show(state)
            self.live.stop()


class Notebook:
    """Shows a run as one display of the notebook's cell, which updates."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.messages: list[str] = []

    def show(self, state: RunState) -> None:
        """Draw the state: the first time as a new display of the cell, from then on in its place."""
        from IPython.display import HTML, display

        page = HTML(to_html(state, self.messages))
        if self.handle is None:
            self.handle = display(page, display_id=True)
        else:
            self.handle.update(page)

    def say(self, text: str) -> None:
        """Show a line above the tables; the newest few stay."""
        self.messages = [*self.messages, text][-MAX_MESSAGES:]

    def close(self, state: RunState) -> None:
        """Leave what was shown last."""
        self.show(state)


def to_html(state: RunState, messages: Iterable[str]) -> str:
    """Return the messages and below them the tables as HTML, drawn as on a terminal of 110 columns and 40 lines."""
    console = Console(file=io.StringIO(), record=True, width=110, height=40, force_jupyter=False)
    console.print(View(state))
    tables = console.export_html(inline_styles=True, code_format=PAGE)
    return "".join(f"<div>{html.escape(text)}</div>" for text in messages) + tables


def _running_table(state: RunState, trials: Sequence[RunningTrial]) -> Table:
    """Return a table with a row for each of these running trials."""
    metric = state.name(state.metric)
    names = ("running", "settings", "fold", "seed", "step", metric, "elapsed", NOTE_COLUMN)
    rows = []
    for trial in trials:
        step = str(trial.step or "–")
        if trial.steps is not None:
            step += f"/{trial.steps}"
        rows.append(
            (
                state.name(trial.arm),
                state.settings(trial.axes),
                "" if trial.fold is None else str(trial.fold),
                str(trial.seed),
                step,
                _number(trial.value),
                elapsed(state.updated - trial.started),
                trial.note,
            )
        )
    return _table(names, rows)


def _arms_table(state: RunState, arms: Sequence[tuple[str, ArmState]]) -> Table:
    """Return a table with a row for each of these arms, name and state: trials that have ended, and their scores."""
    rows = [
        (
            state.name(name),
            str(arm.ended) if arm.total is None else f"{arm.ended}/{arm.total}",
            _number(arm.mean if arm.scored else None),
            _number(arm.best),
            arm.best_where,
        )
        for name, arm in arms
    ]
    return _table(("arm", "done", f"mean {state.name(state.metric)}", "best", "of"), rows)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return rows under the names of their columns, without columns that are empty.

    `TEXT_COLUMNS` are aligned to the left and cut where there is no room. All others are numbers, which are aligned
    to the right and never cut.
    """
    # Positions of the columns that have a text in any row.
    columns = [i for i in range(len(names)) if any(row[i] for row in rows)]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for i in columns:
        name = names[i]
        is_text = name in TEXT_COLUMNS
        table.add_column(
            Text(clipped(name, MOST_OF_NAME)),
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            style="yellow" if name == NOTE_COLUMN else "",
        )
    for row in rows:
        texts = [Text(printable(row[i]), no_wrap=True, overflow="ellipsis") for i in columns]
        table.add_row(*texts)
    return table


def _number(value: float | None) -> str:
    """Return a number with four digits; "" for None."""
    return "" if value is None else f"{value:.4g}"
