"""A failed trial in a line: what was raised, where, and the command that shows the rest."""

import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from contrasweep.commands import COMMAND_PATH, OPTIONS
from contrasweep.commands.metrics import WAYS_TO_REPORT
from contrasweep.errors import choose_from, clipped, error_of
from contrasweep.live.state import replicate_of
from contrasweep.shell import command_line
from contrasweep.storage.record import Record

FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in ', re.MULTILINE)
"""A line of a traceback that names a file."""
INSTALLED = (
    Path(sysconfig.get_path("purelib")),
    Path(sysconfig.get_path("stdlib")),
    Path(__file__).parents[1],
)
"""Folders whose code is not the study's own: installed packages, Python's library and contrasweep itself."""
RELATIVE_PATH = re.compile(r"No such file or directory: '[^/']")
"""How an error names a file that was looked for in the trial's working directory."""
LACKS_METRIC = "the last report's metric {metric!r} is missing"
"""The error of a trial whose last report lacks the metric."""
NOTHING_REPORTED = (
    "all {} trials that have ended failed before they reported anything, and no arm has done better. Nothing more is "
    "trained: mend what their lines say, and the same command with --retry-failed goes on"
)
"""The line that ends a study of which many trials failed before any report."""
SHORT_ID = 8
"""Digits of a trial's id in a message: commands take the beginning of an id."""


def failure_line(
    record: Record, storage: str, axes: Sequence[str] = (), *, how_again: bool = True
) -> str:
    """Return one line on a failed trial: its error, where it was raised, and the ways to its log and to another run.

    `failed: ARM lr=0.1 seed=1: ValueError: ... (method.py:12); all of it: contrasweep logs STUDY ID; again: ...`

    The values of `axes` name the trial. With `how_again` the line ends with the way to run the trial again: the same
    command if the trial failed for a cause outside its method, else `--retry-failed`.
    """
    text = (record.error or "").strip()
    last = clipped(error_of(text) or "unknown error", 300)
    place = place_of(text)
    where = f" ({place})" if place else ""
    # A command runs where the files of its project, or links to them, are.
    if RELATIVE_PATH.search(last) and record.trainable != COMMAND_PATH:
        where += "; a trial's working directory is empty: Path(__file__).parent / FILE"
    to_logs = command_line("logs", record.study, record.trial_id[:SHORT_ID], storage=storage)
    # `record.missing`: the cause was outside the method.
    cause = f" [{record.cause}]" if record.missing else ""
    line = f"failed: {replicate_of(record, axes)}: {last}{where}{cause}; all of it: {to_logs}"
    if not how_again:
        return line
    return f"{line}; again: {'the same command' if record.missing else '--retry-failed'}"


def place_of(error: str) -> str:
    """Return the last line of the user's own code in the traceback `error`, such as `method.py:12`; "" without one.

    Code of Python and of installed packages is not the user's own.
    """
    place = ""
    for match in FRAME.finditer(error):
        file = Path(match["file"])
        if not any(folder in file.parents for folder in INSTALLED):
            place = f"{file.name}:{match['line']}"
    return place


def lacks_metric(record: Record) -> bool:
    """Whether a trial trained to its end but failed because its last report lacks a finite value of the metric."""
    beginning = LACKS_METRIC.partition("{")[0]
    return record.status.failed and (record.error or "").startswith(beginning)


def unreported_metric(metric: str, record: Record) -> str:
    """Return the line that ends a study whose trials do not report its metric: what is wrong, and what to do.

    `metric` is the name that the study declares. `record` is that of the first trial that ended without the metric. The
    line lists the metrics that this trial has reported instead, and says how a trainable reports one if there are none.
    """
    hint = choose_from("metrics", list(record.metrics), metric)
    if not record.metrics:
        # A function yields its reports. A command prints or writes them, where its arm says so by `metrics`.
        how_to_report = f'`yield Report(step, {{"{metric}": number}})`'
        if record.trainable == COMMAND_PATH:
            sources = record.config.get(OPTIONS, {}).get("metrics")
            how_to_report = (
                f"none of {sources} is in what it printed and left" if sources else WAYS_TO_REPORT
            )
        hint = f"it has reported nothing: {how_to_report}"
    return (
        f"metric: no trial has reported {metric!r}, and the first of arm {record.arm} has ended; {hint}. "
        "Nothing more is trained: mend the study or what the trainable reports, and the same command with "
        "--retry-failed goes on"
    )
