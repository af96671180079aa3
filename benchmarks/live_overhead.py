"""What seeing a run costs: live view, kept output and measurements over time, beside one-second trials.

    python -m benchmarks.live_overhead [--trials 20] [--output benchmarks/results/live_overhead.md]

The same trials (each prints ten lines, reports ten times and takes a second) run one after the other in this process,
with all three and without any, in turns. Counted is the processor time of all threads, which other work on the machine
does not change, and the time that a trial waits for its output to be opened and closed; the ratio is to the trials'
seconds.
"""

import argparse
import datetime
import io
import os
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from contrasweep.data.manifest import Manifest
from contrasweep.live.live_file import LiveFile
from contrasweep.live.progress import Progress, axes_as_text, cell_of
from contrasweep.live.state import ArmState, RunState
from contrasweep.live.terminal import Terminal
from contrasweep.running.execution import Execution
from contrasweep.running.output import Output
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Report, Trial

DATA = Manifest("digits", "/nowhere", "image", {})
SECONDS, REPORTS = 1.0, 10


def train(trial, resume=None):
    """A second that is spent waiting, so that all processor time is the platform's."""
    for step in range(1, REPORTS + 1):
        time.sleep(SECONDS / REPORTS)
        print(f"step {step}: a line as one prints it while training")
        yield Report(step, {"accuracy": step / REPORTS, "loss": 1 / step})


def one(trial: Trial, records: StudyRecords, progress: Progress | None) -> float:
    """Run a trial; the seconds that it waited for its output."""
    waited, output = 0.0, None
    if progress is not None:
        began = time.perf_counter()
        output = Output(records, trial.id).open()
        waited = time.perf_counter() - began
        progress.started(trial)
        close = output.close

        def timed_close() -> None:
            nonlocal waited
            began = time.perf_counter()
            close()
            waited += time.perf_counter() - began

        output.close = timed_close  # type: ignore[method-assign]
    execution = Execution(trial, train, records, metric="accuracy", output=output)
    execution.meter.timeline_s = 10.0 if progress is not None else 10.0**9
    while (stepped := execution.advance(1.0)).record is None:
        if progress is not None:
            progress.reported(trial.id, stepped.reports)
    if progress is not None:
        progress.ended(stepped.record)
    return waited


def block(name: str, trials: list[Trial], folder: str, seen: bool) -> tuple[float, float]:
    """Processor seconds and waiting of a block of trials."""
    records = StudyRecords(folder, name)
    state = RunState(name, "accuracy", "max", folder, len(trials), 0, 1, time.time(), arms={"a": ArmState()})
    planned = {t.id: cell_of(t.arm, axes_as_text(["lr"], t.config, "digits")) for t in trials}
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    progress = Progress(state, ["lr"], [Terminal(console), LiveFile(records)], planned) if seen else None
    began, waited = time.process_time(), 0.0
    if progress is not None:
        progress.open()
    for trial in trials:
        waited += one(trial, records, progress)
    if progress is not None:
        progress.close()
    return time.process_time() - began, waited


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    trials = [Trial("live", "a", "m:train", {"lr": 0.1}, DATA, None, seed) for seed in range(options.trials)]
    used, waited, blocks = {True: 0.0, False: 0.0}, 0.0, 4
    size = max(1, len(trials) // blocks)
    screen = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where a trial prints whose output nobody keeps
    with tempfile.TemporaryDirectory() as folder:
        block("warm-up", [replace(trials[0], study="warm")], folder, seen=True)
        for number in range(0, len(trials), size):
            part = trials[number : number + size]
            for seen in (True, False):
                cpu, wait = block(f"{number}-{seen}", part, folder, seen)
                used[seen] += cpu
                waited += wait
    count = len(trials)
    extra, wait = (used[True] - used[False]) / count, waited / count
    where = f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores"
    text = f"""# What seeing a run costs

`python -m benchmarks.live_overhead --trials {count}`, {where},
shared with other work; Python {platform.python_version()}. {count} trials of {SECONDS:g} s, one at a time, each
with {REPORTS} reports and as many printed lines; with live tables, kept output and measurements, and without,
in turns.

| of a one-second trial | share |
|---|---|
| processor time of all threads, with less without | {100 * extra / SECONDS:.2f} % |
| waiting for its output to be opened and closed | {100 * wait / SECONDS:.2f} % |

Processor time of a trial: {1000 * used[True] / count:.1f} ms with, {1000 * used[False] / count:.1f} ms without.
"""
    sys.stdout.flush()
    os.dup2(screen, 1)
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
