"""The errors a user can cause, each one line: the rule, the place, the value, and what would have worked."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


class ContrasweepError(Exception):
    """Base of all errors that the user can correct; the command line prints them and exits with 2.

    Example:
        >>> import contrasweep as cs
        >>> try:
        ...     cs.load("no-such-study")
        ... except cs.ContrasweepError as error:
        ...     print(error)
        STUDY: there is no such study in this storage, got 'no-such-study'; ...
    """

    # Python would call the constructor with the message, which most of these classes do not take.
    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[ContrasweepError], args: tuple[object, ...], parts: Mapping[str, object]
) -> ContrasweepError:
    """Return the error that was pickled, with its message and its parts."""
    error = kind.__new__(kind, *args)
    vars(error).update(parts)
    return error


class SpecError(ContrasweepError, ValueError):
    """A study, arm or option breaks a rule. The message is one line: place, rule, value, hint.

    Args:
        rule: What must hold.
        place: Where the value stands: a field, or a file and a field.
        value: What was found.
        hint: What would have worked.

    Example:
        >>> import contrasweep as cs
        >>> try:
        ...     cs.Arm("contrastiv")
        ... except cs.SpecError as error:
        ...     print(error.place, error.value, error.hint)
        trainable contrastiv did you mean 'contrastive'? known methods: ...
    """

    def __init__(self, rule: str, *, place: str = "", value: object = None, hint: str = "") -> None:
        self.rule = rule
        self.place = place
        self.value = value
        self.hint = hint
        super().__init__(rule)

    def __str__(self) -> str:
        where = f"{clipped(self.place, 300)}: " if self.place else ""
        got = "" if self.value is None else f", got {_short(self.value)}"
        hint = f"; {clipped(self.hint, 1500)}" if self.hint else ""
        return f"{where}{clipped(self.rule, 500)}{got}{hint}"

    def at(self, place: str) -> "SpecError":
        """Return the same error at a place further out: `place`, a dot, and the error's own place.

        For example an error at `lr` becomes one at `optimizer.lr` with `place` "optimizer".
        """
        joined = ".".join(part for part in (place, self.place) if part)
        return SpecError(self.rule, place=joined, value=self.value, hint=self.hint)

    def within(self, file: str) -> "SpecError":
        """Return the error with the name of the file in front of its place."""
        place = f"{file}: {self.place}" if self.place else file
        return SpecError(self.rule, place=place, value=self.value, hint=self.hint)


def quoting(value: object) -> str:
    """Return a hint to quote `value` where YAML reads the text as something else (`no`, `{lr}`); else ""."""
    if isinstance(value, bool):
        return "YAML reads no, off, yes and on as true or false: put a text in quotes"
    if isinstance(value, Mapping) and value and all(entry is None for entry in value.values()):
        return f'YAML reads braces as a mapping: put them in quotes, "{{{next(iter(value))}}}"'
    return ""


class DataError(ContrasweepError):
    """A dataset is missing, broken, or not what its manifest says.

    Example:
        >>> import contrasweep as cs
        >>> try:
        ...     cs.plan(cs.AblationGrid("losses", {"scl": cs.Arm("contrastive")}, "no-such-data"))
        ... except cs.DataError as error:
        ...     print(error)
        there is no dataset 'no-such-data'; known datasets: ...
    """


@dataclass(eq=False, repr=False)
class NotStagedError(DataError):
    """A known dataset is not staged.

    `command` stages it; its word PATH stands for the source, and `requires` says in words what that must be. `looked`
    says in which folders the dataset was sought.
    """

    dataset: str
    command: str
    requires: str
    looked: str

    def __post_init__(self) -> None:
        super().__init__(
            f"dataset {self.dataset!r} is not staged; stage it with: {self.command}   (PATH: {self.requires}); "
            f"{self.looked}"
        )


@dataclass(eq=False, repr=False)
class PackageMissingError(DataError):
    """A dataset is not staged, and to stage it needs a `package` that this machine lacks; `command` stages it."""

    dataset: str
    package: str
    command: str

    def __post_init__(self) -> None:
        super().__init__(
            f"to stage dataset {self.dataset!r} here, the package {self.package} is missing; stage it once on a "
            f"machine with contrasweep[all]: {self.command}"
        )


@dataclass(eq=False, repr=False)
class NotTrainedError(ContrasweepError):
    """The trials of `study`, which another study starts from, are not trained. The `command` trains them.

    `left` counts trials of `study` that have not ended; 0 where it has not run at all.
    """

    study: str
    command: str
    left: int

    def __post_init__(self) -> None:
        lacks = "which was not run in this storage"
        if self.left:
            lacks = f"{self.left} of whose trials have not ended"
        super().__init__(
            f"this study starts from {self.study!r}, {lacks}; run it first: {self.command}"
        )


class StorageError(ContrasweepError):
    """The storage cannot be read or written, or a file of it is broken.

    Example:
        >>> import contrasweep as cs
        >>> try:
        ...     cs.run(study, storage="memory://nowhere")
        ... except cs.StorageError as error:
        ...     print(error)
        storage memory://... is seen by this process alone, and trials run in others; take a folder
    """


class ProcessLostError(ContrasweepError):
    """A process of the trial has ended. It is no fault of the trial, which resumes from its checkpoint."""


class AttemptSuperseded(ContrasweepError):
    """A later attempt of the same trial has begun. This attempt ends and writes nothing more."""


class StorageDenied(StorageError):
    """The object store refuses the credentials, which no further try mends."""


@dataclass(eq=False, repr=False)
class BrokenFileError(StorageError):
    """A file of the storage is broken; the error names the file, the defect and the remedy."""

    file: str
    problem: str
    remedy: str

    def __post_init__(self) -> None:
        self.problem = clipped(self.problem, 300)
        super().__init__(f"{self.file} is broken ({self.problem}); {self.remedy}")


def clipped(text: str, limit: int) -> str:
    """Return `text` as one line of at most `limit` characters, without signs that a terminal would obey."""
    # Only twice the limit is read, since a log may have many megabytes; white space shrinks below.
    line = "".join(character if character.isprintable() else " " for character in text[: 2 * limit])
    line = " ".join(line.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def error_members(error: Exception | None) -> dict[str, object]:
    """Return what programs read of an error: its `kind` (the class), `rule`, `place`, `hint` and `value`.

    Only a `SpecError` has all of them. A text that the error lacks is "", a missing value is None. For `error` None all
    four texts are "" and the value is None.
    """
    value = getattr(error, "value", None)
    # The schema of documents has texts, integers and truth values here: any other value as Python writes it.
    if not (value is None or isinstance(value, bool | int)):
        value = clipped(value, 300) if isinstance(value, str) else _short(value)
    texts = {
        name: clipped(str(getattr(error, name, "") or ""), 1500)
        for name in ("rule", "place", "hint")
    }
    return {"kind": type(error).__name__ if error else "", **texts, "value": value}


def _short(value: object) -> str:
    """Return `value` as Python writes it, in at most 120 characters."""
    try:
        text = repr(value)
    except Exception:  # a number of too many digits, or somebody's own class
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 120 else text[:117] + "..."


def choose_from(kind: str, known: Iterable[str], value: object) -> str:
    """Return the hint for an unknown name `value`: `did you mean 'scl'? known arms: ocl, scl`.

    The question is left out where no known name is similar. `kind` is the plural noun for the names (`arms`). Without
    any name the list is `none`.
    """
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(str(value), names, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}known {kind}: {', '.join(names) or 'none'}"


def check_known(
    value: object, kind: str, known: Iterable[str], rule: str, *, place: str = ""
) -> None:
    """Raise `SpecError` where `value` is none of the names `known`, with a hint that lists them and the nearest one.

    `rule` is the sentence of the error (`there is no such arm`), `kind` a plural for the names (`arms`), and `place`
    the option or field that has the value.
    """
    names = list(known)
    if value not in names:
        raise SpecError(rule, place=place, value=value, hint=choose_from(kind, names, value))


def plural(number: float, noun: str) -> str:
    """Return `1 trial` or `12 trials`, for a sentence; `noun` is the singular of one that takes an s."""
    return f"{number:.12g} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return seconds as text: `12 s` (below 100), `3 min` (below an hour and a half), `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


OUR_SENTENCES = ("its process ", "ended with ", "timed out ")
"""How the lines begin that say at the end of an error what became of a worker, a command or a trial."""


def error_of(text: str) -> str:
    """Return the line of `text` that says the error, without the class of our own errors.

    In a traceback it is the first line after the last frame; further lines of its message may follow. Without a
    traceback it is the last line of `text`, as it also is where that line begins with one of `OUR_SENTENCES` and so
    says what became of a worker or a command.
    """
    # The lines of an exception group have margins.
    text = re.sub(r"^ +\| ", "", text, flags=re.MULTILINE)
    found = re.findall(r"^  File .*\n(?: .*\n)*(\S.*)", text, re.MULTILINE)
    last = text.rpartition("\n")[2]
    line = found[-1] if found and not last.startswith(OUR_SENTENCES) else last
    return re.sub(r"^contrasweep\.[\w.]+: ", "", line)
