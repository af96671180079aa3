"""Displays of a run: redrawn in place on a terminal, in a notebook, or as lines of text.

A terminal shows the trials that run, what each arm came to, and one line of counts. A notebook shows the same as one
HTML display that updates; no widgets are needed.
"""

import html
import io
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from contrasweep.live.lines import Lines, counts_line, elapsed
from contrasweep.live.progress import Display
from contrasweep.live.state import RunningTrial, RunState
from contrasweep.terminal_text import printable, unguarded

MAX_RUNNING, MAX_ARMS = 12, 8
LEAST = 8  # letters that are left of a text
STYLES = {"failed:": "red", "silent:": "yellow", "again:": "yellow", "no sign of life": "yellow"}
SHORT_ARM = 16
NOTE = "odd"
COLUMNS = 110
BAR = 40  # columns of the bar of trials that are done
MAX_SAID = 12
PAGE = '<pre style="white-space:pre;overflow-x:auto;line-height:1.25;margin:0">{code}</pre>'
NARROW = 100  # columns below which settings are shown under the arm's name instead of beside it


def display_here() -> Display:
    """The display for this process; on standard error, since results go to standard output."""
    if in_notebook():
        return Notebook()
    console = Console(file=unguarded(sys.stderr), highlight=False)
    return Terminal(console) if console.is_terminal and not console.is_dumb_terminal else Lines(sys.stderr)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class View:
    """A state as a table of rich, sized to the width and height of its display."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Group(*self._parts(options.max_width, options.size.height))

    def _parts(self, width: int, height: int) -> Iterator[RenderableType]:
        state = self.state
        arms = min(len(state.arms), MAX_ARMS)
        rows = max(2, min(MAX_RUNNING, height - arms - 8))
        yield Text("")
        if state.running:
            yield _running(state, width, rows)
        if len(state.running) > rows:
            yield Text(f"and {len(state.running) - rows} more", style="dim")
        if any(arm.scored for arm in state.arms.values()):
            yield Text("")
            yield _arms(state, width)
        yield Text("")
        if state.total:
            bar = ProgressBar(state.total, state.done, width=min(width, BAR), finished_style="bar.complete")
            yield Columns([bar, Text(f"{state.done / state.total:.0%}")])
        yield Text(printable(counts_line(state)), style="bold", overflow="fold")


class Terminal:
    """Shows a run in place on a terminal; messages scroll away above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self.opened = False

    def show(self, state: RunState) -> None:
        """Draw the state."""
        if not self.opened:
            self.opened = True
            self.live.start()
        self.live.update(View(state), refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the tables."""
        self.console.print(Text(printable(text), style=_style(text), overflow="fold"), soft_wrap=True)

    def close(self, state: RunState) -> None:
        """Leave what was shown last on the terminal."""
        if self.opened:
            self.show(state)
            self.live.stop()


class Notebook:
    """Shows a run as one display of the notebook's cell, which updates."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.said: list[str] = []
        self.drawn = ""

    def show(self, state: RunState) -> None:
        """Draw the state, if anything changed."""
        from IPython.display import HTML, display

        text = to_html(state, self.said)
        if self.handle is None:
            self.handle = display(HTML(text), display_id=True)
        elif text != self.drawn:
            self.handle.update(HTML(text))
        self.drawn = text

    def say(self, text: str) -> None:
        """Show a line above the tables; the newest few stay."""
        self.said = [*self.said, text][-MAX_SAID:]

    def close(self, state: RunState) -> None:
        """Leave what was shown last."""
        self.show(state)


def to_html(state: RunState, said: list[str]) -> str:
    """Return the tables as HTML, below the messages `said`."""
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, height=40, force_jupyter=False)
    console.print(View(state))
    tables = console.export_html(inline_styles=True, code_format=PAGE)
    return "".join(f"<div>{html.escape(text)}</div>" for text in said) + tables


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str], yields: str) -> Table:
    """Return rows under `columns`; the columns in `numbers` are aligned to the right.

    Where there is too little room the column `yields` and then texts are cut; numbers never are.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place, name in enumerate(columns):
        widest = max(len(name), *(len(row[place]) for row in rows))
        is_number = name in numbers
        table.add_column(
            printable(name),
            justify="right" if is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=widest if is_number else min(widest, LEAST),
            max_width=widest,
            ratio=1 if name == yields else None,
            style="yellow" if name == NOTE else "",
        )
    for row in rows:
        table.add_row(*(Text(printable(text)) for text in row))
    return table


def _running(state: RunState, width: int, rows: int) -> Table:
    wide = width >= NARROW
    shown = list(state.running.values())[:rows]
    axes = list(dict.fromkeys(axis for trial in shown for axis in trial.axes)) if wide else []
    folds = ["fold"] if any(trial.fold is not None for trial in shown) else []
    noted = [NOTE] if any(trial.note for trial in shown) else []
    numbers = [*folds, "seed", "step", state.name(state.metric), "elapsed"]
    texts = []
    for trial in shown:
        arm = state.name(trial.arm)
        name = arm if wide else f"{_short(arm)} {state.settings(trial.axes)}".rstrip()
        fold = [] if not folds else ["" if trial.fold is None else str(trial.fold)]
        spent = elapsed(state.updated - trial.started)
        own = [name, *(state.name(trial.axes.get(axis, "")) for axis in axes), *fold, str(trial.seed)]
        note = [_note(trial, wide)] if noted else []
        texts.append([*own, _step(trial), _number(trial.value), spent, *note])
    return _table(["running", *map(state.name, axes), *numbers, *noted], texts, numbers, "running")


def _style(text: str) -> str:
    """Return the colour of a line, chosen by its first word."""
    return next((style for word, style in STYLES.items() if text.startswith(word)), "")


def _short(arm: str) -> str:
    """An arm's name that leaves room for its settings."""
    return arm if len(arm) <= SHORT_ARM else f"{arm[: SHORT_ARM - 1]}…"


def _note(trial: RunningTrial, wide: bool) -> str:
    return trial.note if wide else "!" * bool(trial.note)


def _arms(state: RunState, width: int) -> Table:
    rows, metric = [], state.name(state.metric)
    for declared, arm in list(state.arms.items())[:MAX_ARMS]:
        done = str(arm.ended) if arm.total is None else f"{arm.ended}/{arm.total}"
        name = state.name(declared)
        shown = name if width >= NARROW else _short(name)
        rows.append([shown, done, _number(arm.mean if arm.scored else None), _number(arm.best), arm.best_where])
    if len(state.arms) > MAX_ARMS:
        rows.append([f"and {len(state.arms) - MAX_ARMS} more", "", "", "", ""])
    return _table(["arm", "done", f"mean {metric}", "best", "of"], rows, ("done", f"mean {metric}", "best"), "of")


def _step(trial: RunningTrial) -> str:
    if not trial.step:
        return "–" if trial.steps is None else f"–/{trial.steps}"
    return str(trial.step) if trial.steps is None else f"{trial.step}/{trial.steps}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
