"""The metrics of a command, read where it leaves them: its lines for us, its output, its files.

A row that names no step has its own number as step; those of a resumed command count on from the step of its
checkpoint. A row of the same step as the row before revises that: it adds numbers, and replaces those of the same name.
Values that are no numbers are left out.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from contrasweep.commands import files
from contrasweep.commands.files import Values
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError
from contrasweep.storage.records import REPORT_COLUMNS
from contrasweep.trial import Report, RevisedReport

log = logging.getLogger(__name__)
METRICS_VARIABLE = "CONTRASWEEP_METRICS"
REPORT_FILE = "contrasweep-report.json"
"""The file of a checkpoint that has the step and the numbers of its report."""
READ_EVERY_S = 2.0
"""Seconds from reading a command's files to reading them again."""
WAYS_TO_REPORT = (
    'it may print its metrics (metrics: "loss: {loss:f} acc: {accuracy:f}"), write a CSV, JSON, TensorBoard or W&B '
    f"file (metrics: metrics.csv), or append lines of JSON to the file that {METRICS_VARIABLE} names"
)
"""How a command can report, for messages."""
REPORT_WORDS = (
    METRICS_VARIABLE,
    "wandb",
    "lightning",
    "transformers",
    "tensorboard",
    "SummaryWriter",
)
"""Words in the code of a command that can report without `metrics`."""
# A name in braces, `{loss}` or `{loss:f}`, also with a format as of the script's own f-string, `{loss:.4f}`.
_FIELD = re.compile(r"\{(\w[\w./@ -]*)(?::[^{}\s]*)?\}")
_WORD_BEFORE = re.compile(r"([A-Za-z]+)[\s_/-]*$")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?([eE][-+]?\d+)?")
# Languages write what is no finite number as nan, NaN, inf, Inf or Infinity.
_NUMBER = r"[-+]?(?:\d[\d,_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?))"


class Pattern:
    """A text as scripts print it, `loss: {loss:f} acc: {accuracy:f}`, or a regular expression with named groups.

    `{_}` stands for any text, `{checkpoint}` for one without spaces. `names` are the metrics that it names, `count` the
    lines that it has matched so far, and `before` the words that stood before it in these, such as `test`. Raises
    `SpecError` for a text that is no regular expression, or names no metric.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        # A text gives its names while it is made an expression; an expression has them as its groups.
        self.names: list[str] = []
        try:
            self.expression = re.compile(text if "(?P<" in text else self._expression(text))
        except re.error as error:
            raise SpecError(
                "a pattern is a regular expression", place="metrics", value=text, hint=str(error)
            ) from None
        self.names = self.names or list(self.expression.groupindex)
        self.count = 0  # of the lines that it has matched
        self.before: dict[str, None] = {}  # each word once, in their order
        if not self.names or len(set(self.names)) < len(self.names):
            rule = "a pattern names a metric, and each one once"
            raise SpecError(rule, place="metrics", value=text, hint='"loss: {loss:f} ({_})"')

    def _expression(self, text: str) -> str:
        """Return the text as a regular expression: a group for each name, the rest as it stands.

        White space matches any white space. `self.names` gets the names, in the order of the groups.
        """
        expression = ""
        # `split` gives text and the name of a field in turns, so that every second part is a name. The name `_` is that
        # of a field whose text is skipped.
        for i, part in enumerate(_FIELD.split(text)):
            if i % 2 == 0:
                expression += r"\s+".join(map(re.escape, re.split(r"\s+", part)))
            elif part == "_":
                expression += ".*?"
            else:
                self.names.append(part)
                expression += r"(\S+)" if part == files.CHECKPOINT else f"({_NUMBER})"
        return expression

    def row(self, line: str) -> Values | None:
        """Return metric -> number of a line of output, and as "line" how many lines have matched so far.

        None where the line does not match. A group that took no part in the match is left out.
        """
        match = self.expression.search(line)
        if match is None:
            return None
        self.count += 1
        word = _WORD_BEFORE.search(line, max(0, match.start() - 80), match.start())
        self.before[word[1] if word else ""] = None
        # Groups of a user's expression have names; those of a text have theirs in `self.names`.
        groups = match.groupdict().items() or zip(self.names, match.groups(), strict=True)
        texts = {}
        for name, group in groups:
            # A comma behind a number is no part of it; 1,024 is a number too.
            text = (group or "").strip(", ")
            has_thousands = name != files.CHECKPOINT and _THOUSANDS.fullmatch(text)
            texts[name] = text.replace(",", "") if has_thousands else text
        return {"line": self.count, **files.values(texts.items())}


def is_pattern(source: str) -> bool:
    """Return whether an entry of `metrics` is a pattern of the output; else it names files."""
    return bool(_FIELD.search(source)) or "(?P<" in source


def check(source: str) -> None:
    """Raise `SpecError` for an entry of `metrics` that is neither a pattern nor names files that can be read."""
    if is_pattern(source):
        Pattern(source)
    elif not (".tfevents." in source or Path(source).suffix in files.READABLE_SUFFIXES):
        suffixes = ", ".join(files.READABLE_SUFFIXES[1:])  # without "", that of folders
        hint = f'a pattern, as "loss: {{loss:f}}", or {suffixes}, TensorBoard\'s or a folder'
        raise SpecError(
            "metrics are read from output or from files", place="metrics", value=source, hint=hint
        )


class Metrics:
    """What a command has reported so far.

    Args:
        sources: The entries of `metrics`: patterns of output and names of files below `folder`. Empty: the files that
            are there once the command has ended.
        folder: The trial's own folder.
        file: The file that the command may append lines of JSON to.
        checkpoints: The folder of its checkpoints; relative paths of artifacts are relative to it too.
        resume: The folder of the checkpoint that the command goes on from. None: it begins.
    """

    def __init__(
        self,
        sources: Sequence[str],
        folder: Path,
        file: Path,
        checkpoints: Path,
        resume: Path | None = None,
    ) -> None:
        self.patterns = [Pattern(source) for source in sources if is_pattern(source)]
        self.files = [source for source in sources if not is_pattern(source)]
        self.declared = bool(sources)
        self.folder = folder
        self.file = file
        self.checkpoints = checkpoints
        # Step and numbers of the report before; -1 before the first.
        self.step = -1
        self.numbers = dict[str, float]()
        if resume is not None and (resume / REPORT_FILE).exists():
            self.step, self.numbers = json.loads((resume / REPORT_FILE).read_text())
        self.resumed_at = max(self.step, 0)  # the step after which rows are numbered
        self.lines = 0  # that were read of `file`
        self.printed = 0  # lines of output
        self._place = ""  # of the row that was read last: a line of `file`, or `metrics`
        self._position = 0  # in bytes, where `file` is read on
        self._left_out = set[str]()  # names of which it was said that they are no metrics
        self._read = tuple[object, ...]()  # the files that were read last, each with its size
        self._due = 0.0  # when files are read again, on the monotonic clock
        file.touch()

    def reports(self, output: Iterable[str] = (), *, ended: bool = False) -> Iterator[Report]:
        """Yield the new reports: of lines of JSON in `file`, of new lines of output, of files that have grown.

        `output` are the lines that the command has printed since the last call. `ended` says that it has ended well and
        that this is the last call. A report's checkpoint is deleted when the next report is asked for: it is stored by
        then. `SpecError` for a line in `file` that is no row, and for metrics in several places.
        """
        for row in self._new_lines(ended):
            report = self._report(row)
            yield report
            if report.checkpoint is not None:
                shutil.rmtree(report.checkpoint, ignore_errors=True)
        # Errors from here on name the field `metrics` of the study, which has the patterns.
        self._place = "metrics"
        for line in output:
            self.printed += 1
            for pattern in self.patterns:
                matched = pattern.row(line)
                if matched is not None:
                    yield self._report(matched)
        for pattern in self.patterns if ended else ():
            if not pattern.count:
                log.warning(
                    "metrics: %r matches none of %d printed lines", pattern.text, self.printed
                )
            # A script prints the same of training and test, or the best value at its end.
            if len(pattern.before) > 1:
                log.warning(
                    "metrics: %r matches behind %s, and the last line counts; write the word before it too",
                    pattern.text,
                    " and ".join(word or "other text" for word in pattern.before),
                )
        # Nothing was declared and nothing reported: then what the command has left is looked for.
        if ended and not self.declared and not self.lines:
            self.files = self._found()
        # Steps of several files can be put in order only once all are whole.
        if self.files and (ended or (len(self.files) == 1 and time.monotonic() >= self._due)):
            self._due = time.monotonic() + READ_EVERY_S
            yield from self._of_files(ended)

    def _new_lines(self, ended: bool) -> Iterator[Values]:
        """Yield the rows that the command has appended to its file since the last call, with line numbers as `line`.

        A last line without a line end may be half written. It is kept for the next call, unless the command has
        `ended`. `SpecError` for a line that is no JSON object, and where the file has become shorter than what was read
        of it.
        """
        unread = b""
        size = 0
        # The command may delete the file before its first line.
        with contextlib.suppress(FileNotFoundError), self.file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(self._position)
            unread = opened.read()
        if size < self._position:
            self._place = METRICS_VARIABLE
            hint = f'{self._position} were read; open the file to append, open(path, "a")'
            raise self._wrong("lines of metrics are appended", f"{size} bytes", hint)
        # Up to the last line end, behind which half a line may stand.
        complete = unread if ended else unread[: unread.rfind(b"\n") + 1]
        self._position += len(complete)
        for line in complete.splitlines():
            self.lines += 1
            self._place = f"{METRICS_VARIABLE}, line {self.lines}"
            if line.strip():
                try:
                    row = json.loads(line, object_pairs_hook=_each_once)
                except ValueError as error:
                    text = line.decode("utf-8", "replace")
                    raise self._wrong(
                        "a line of metrics is a JSON object", text, str(error)
                    ) from None
                if not isinstance(row, dict):
                    example = 'for example {"step": 1, "accuracy": 0.5}'
                    raise self._wrong("a line of metrics is a JSON object", row, example)
                yield {"line": self.lines, **row}

    def _of_files(self, ended: bool) -> Iterator[Report]:
        """Yield a report for each step of the files that was not reported yet, but not for the newest step.

        The newest step may get more rows, and is reported once the command has `ended`; its report has the last value
        of each number, of earlier steps too.
        """
        places = [place for source in self.files for place in self._places(source)]
        sizes = tuple((place, place.stat().st_size) for place in places)
        if sizes == self._read and not ended:
            return
        self._read = sizes
        rows = []
        for place in places:
            for number, values in enumerate(files.read(place), self.resumed_at + 1):
                rows.append(_Row(_run(place), number, values))
        steps, unclear = _by_step(rows)
        for name, runs in unclear.items():
            if name not in self._left_out:
                self._left_out.add(name)
                log.warning("%s is left out, as %s have other values of it; name one", name, runs)
        for step in sorted(steps)[:-1]:
            if step > self.step:
                yield self._report({"step": step, **steps[step]})
        # The newest row may still be growing, so it waits for the end. Then it is reported even where its step is not
        # above the last one: it revises that. It has the newest value of each number, also of those at other steps.
        if ended and steps:
            last: Values = {}
            for step in sorted(steps):
                last |= steps[step]
            yield self._report({"step": max(self.step, *steps), **last})

    def _places(self, source: str) -> list[Path]:
        """Return the files that an entry of `metrics` names: by a path, or by a name or pattern in any folder.

        Where the entry names a folder, they are the files in it that `files.KNOWN_FILES` knows. Empty where none is
        there yet.
        """
        path = Path(source)
        paths = [path] if path.is_absolute() else sorted(self.folder.rglob(source))
        found = [path for path in paths if path.is_file()]
        for folder in paths:
            if folder.is_dir():
                found += chain.from_iterable(_by_kind(folder).values())
        return found

    def _found(self) -> list[str]:
        """Return the paths of the files in the trial's folder that hold metrics; empty where there are none.

        They are of one kind and of one run; `SpecError` where there are several kinds or runs. Hugging Face leaves a
        state in each checkpoint: all of these are of one run.
        """
        kinds = _by_kind(self.folder)
        all_paths = list(chain.from_iterable(kinds.values()))
        runs = {_run(file) for file in all_paths if file.name != "trainer_state.json"}
        if len(kinds) > 1 or len(runs) > 1:
            names = sorted(str(file.relative_to(self.folder)) for file in all_paths)
            raise SpecError(
                "the command has left metrics in several places",
                place="metrics",
                value=names[:6],
                hint="name one",
            )
        for kind, paths in kinds.items():
            log.warning("metrics are read from %s: %s", kind, paths[-1].relative_to(self.folder))
        return list(map(str, all_paths))

    def _report(self, row: Values) -> Report:
        """Return the report that a row says. The members of the row are removed from it.

        Besides numbers, a row may have `artifacts`, `checkpoint` and `items`. Where it names no step, its number of the
        line is the step. A row with the same step as the row before revises that report: it adds numbers or replaces
        them. `SpecError` for a step below the one before, and for a member of another type.
        """
        # A resumed command counts its lines from 1 again, so the step that it resumed at is added. Where rows that name
        # their step are ahead of the count of lines, the step stays.
        step = max(row.pop("line", 0) + self.resumed_at, self.step)
        for name in files.STEP_NAMES:
            named_step = _integer(row.get(name))
            if named_step is not None:
                step = named_step
                row.pop(name)
                break
        if step < max(self.step, 0):
            hint = f"{self.step} was before; leave out what begins anew: {{_}} in a pattern, or another name"
            raise self._wrong("steps count up from 0", step, hint)
        members = {name: row.pop(name, None) or {} for name in ("artifacts", "items")}
        for name, value in members.items():
            if not isinstance(value, dict):
                example = f'for example "{name}": {{"accuracy": ...}}'
                raise self._wrong(f"{name} are a JSON object", value, example)
        artifacts = {name: self._existing(path) for name, path in members["artifacts"].items()}
        checkpoint = self._checkpoint(row.pop(files.CHECKPOINT, None))
        numbers = self._numbers(row)
        revises = step == self.step
        self.step = step
        self.numbers = self.numbers | numbers if revises else numbers
        if checkpoint is not None:
            # A command that resumes here goes on from this step and these numbers. A folder that another user
            # made cannot be written to: there they are not noted.
            with contextlib.suppress(OSError):
                (checkpoint / REPORT_FILE).write_text(json.dumps([step, self.numbers]))
        kind = RevisedReport if revises else Report
        return kind(step, dict(self.numbers), checkpoint, members["items"], artifacts)

    def _numbers(self, row: Values) -> dict[str, float]:
        """Return the numbers of a row, metric -> number. A warning names each other entry, the first time only."""
        numbers = {}
        for name, value in row.items():
            if name.startswith("_"):  # what W&B adds by itself
                continue
            if isinstance(value, int | float) and name not in REPORT_COLUMNS:
                numbers[name] = value
            elif name not in self._left_out and value is not None:
                self._left_out.add(name)
                log.warning(
                    "%s is no metric and is left out: %.80r is no number, or the name is taken",
                    name,
                    value,
                )
        return numbers

    def _checkpoint(self, name: Any) -> Path | None:
        """Return the folder of a checkpoint that the command names; None where it names none.

        `SpecError` where that is no folder, or the folder of all checkpoints.
        """
        if name is None:
            return None
        folder = self._existing(name)
        if not folder.is_dir() or folder == self.checkpoints:
            hint = "write a folder of its own for each checkpoint into CONTRASWEEP_CHECKPOINTS, and name it"
            raise self._wrong("a checkpoint is a folder", name, hint)
        return folder

    def _existing(self, name: Any) -> Path:
        """Return the path that the command names: relative to its folder of checkpoints, or absolute.

        `SpecError` where nothing is there.
        """
        path = self.checkpoints / str(name)
        if not path.exists():
            raise self._wrong(
                "a row of metrics names a file that is not there", name, f"looked for {path}"
            )
        return path

    def _wrong(self, rule: str, value: object, hint: str) -> SpecError:
        """Return an error with this rule, value and hint, whose place is the row that was read last."""
        return SpecError(rule, place=self._place, value=value, hint=hint)


class _Row(NamedTuple):
    """A row of a file of metrics: its values, its number in the file, and the run that the file belongs to (`_run`)."""

    run: Path
    number: int
    values: Values


def _by_kind(folder: Path) -> dict[str, list[Path]]:
    """Return the kinds of files of metrics below a folder, each with its files."""
    by_kind: dict[str, list[Path]] = {}
    for kind, names in files.KNOWN_FILES.items():
        for name in names:
            paths = sorted(folder.rglob(name))
            if paths:
                by_kind.setdefault(kind, []).extend(paths)
    return by_kind


def _run(file: Path) -> Path:
    """Return a path that is the same for all files of metrics that one run has written.

    TensorBoard writes several files of a run into a folder, so there it is the folder; else it is the file.
    """
    return file.parent if ".tfevents." in file.name else file


def _by_step(rows: Sequence[_Row]) -> tuple[dict[int, Values], dict[str, str]]:
    """Return step -> the values of all rows of that step, and the names that are left out as runs differ in them.

    The step of a row is in the first column of `files.STEP_NAMES` that any row has; it is removed from the values.
    Without such a column it is the number of the row in its file. A name is left out of all steps where two runs have
    different numbers of it at one step. The second mapping has each such name with the two runs as text: `a.csv and
    b.csv`.
    """
    # All rows have their step in one column: the first of the known names that any row has.
    names = set().union(*(row.values for row in rows))
    step_column = next((name for name in files.STEP_NAMES if name in names), "")
    steps: dict[int, Values] = {}
    first: dict[tuple[int, str], tuple[Path, Any]] = {}  # step and name -> run and value
    unclear = {}
    for run, number, values in rows:
        step: int | None = number
        if step_column:
            step = _integer(values.pop(step_column, None))
        # A row without a step among rows with steps has results of the end, which belong to the newest step.
        if step is None:
            step = max(steps, default=number)
        steps.setdefault(step, {}).update(values)
        for name, value in values.items():
            other, value_of_other = first.setdefault((step, name), (run, value))
            if other == run or not isinstance(value, int | float):
                continue
            # NaN differs from itself, and is no other value.
            if value != value_of_other and value_of_other == value_of_other:
                unclear[name] = f"{other.name} and {run.name}"
    for name in unclear:
        for values in steps.values():
            values.pop(name, None)
    return steps, unclear


def _each_once(members: list[tuple[str, Any]]) -> MutableConfig:
    """Return the members of a JSON object as a mapping. Raises `ValueError` where a key stands twice."""
    mapping: MutableConfig = {}
    for key, value in members:
        if key in mapping:
            raise ValueError(f"the key {key!r} stands twice")
        mapping[key] = value
    return mapping


def _integer(value: Any) -> int | None:
    """Return a step as an integer, also of 1.0; None for anything else, such as 0.5, True, NaN or a text."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return None
    return int(value)
