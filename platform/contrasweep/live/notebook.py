"""A run in a notebook: what a terminal shows, as one HTML display that updates. No widgets are needed."""

import html
import io
import sys
from typing import Any

from rich.console import Console

from contrasweep.live.state import RunState
from contrasweep.live.terminal import View

COLUMNS = 110
MAX_SAID = 12
PAGE = '<pre style="white-space:pre;overflow-x:auto;line-height:1.25;margin:0">{code}</pre>'


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class Notebook:
    """Updates one display of the cell that runs the study."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.said: list[str] = []
        self.drawn = ""

    def show(self, state: RunState) -> None:
        """Draw it anew, if anything changed."""
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
    """The tables as HTML, below the lines that were said."""
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, height=40, force_jupyter=False)
    console.print(View(state))
    tables = console.export_html(inline_styles=True, code_format=PAGE)
    return "".join(f"<div>{html.escape(text)}</div>" for text in said) + tables
