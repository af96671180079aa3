"""A study's `labels` stand wherever people read: tables, verdicts, reports, a run; data keep the declared names."""

import io
import re
import time

from rich.console import Console

from contrasweep.live.displays import View
from contrasweep.live.state import ArmState, RunningTrial, RunState
from contrasweep.results.rendering import display_names

LABELS = {
    "scl": "SupCon [1]",
    "ocl": "OCL (ours)",
    "lr": "learning rate",
    "0.2": "a fifth",
    "accuracy": "Top-1",
}
LABELS |= {"digits-lt": "long-tailed digits"}
DECLARED = re.compile(r"\b(scl|ocl|lr|accuracy)\b")


def test_a_run_is_shown_with_display_names(storage):
    now = time.time()
    running = {"t": RunningTrial("t", "ocl", {"lr": "0.2"}, None, 0, now, 3, 9, 0.5, now)}
    arms = {"ocl": ArmState(1, 2, 1, 0.7, 0.7, "learning rate=a fifth seed=0")}
    state = RunState(
        "named",
        "accuracy",
        "max",
        storage,
        2,
        {},
        1,
        now,
        running=running,
        arms=arms,
        labels=LABELS,
    )
    for width in (80, 200):
        console = Console(file=io.StringIO(), width=width, height=40)
        console.print(View(state))
        text = console.file.getvalue()
        assert "OCL (ours)" in text and "Top-1" in text and "a fifth" in text
        assert not DECLARED.search(text), text


def test_what_would_be_shown_alike_keeps_its_declared_name():
    names = display_names({"a": "Ours", "b": "Ours", "c": "d"}, ["a", "b", "c", "d"])
    assert [names(word) for word in "abcde"] == ["Ours (a)", "Ours (b)", "d (c)", "d", "e"]
