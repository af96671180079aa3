"""Which display a run is shown on: a terminal, a notebook, or lines of text."""

import sys

from rich.console import Console

from contrasweep.live.lines import Lines
from contrasweep.live.notebook import Notebook, in_notebook
from contrasweep.live.progress import Display
from contrasweep.live.terminal import Terminal
from contrasweep.terminal_text import unguarded


def display_here(every_s: float = 15.0) -> Display:
    """The display for this process; on standard error, since results go to standard output."""
    if in_notebook():
        return Notebook()
    console = Console(file=unguarded(sys.stderr), highlight=False)
    return Terminal(console) if console.is_terminal and not console.is_dumb_terminal else Lines(sys.stderr, every_s)
