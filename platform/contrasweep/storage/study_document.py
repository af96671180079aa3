"""`StudyDocument`: study.json, which describes a study in its storage."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal

import pydantic

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.rows import Mode
from contrasweep.shell import is_ours
from contrasweep.storage.json_file import SCHEMA, JsonFile, stored
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import Count, DatasetRef, Digest, Measure, Time

Alpha = Annotated[float, pydantic.Field(gt=0, lt=0.5)]
EVALUATION = "contrasweep.trainables.evaluation.networks:train"
"""The trainable of studies that evaluate the networks of another one."""
EVALUATED = "evaluated"
"""The metric of such a study, 1 in every trial, where the scores are those that a user's function returns."""
STUDY_FORMAT = 4
"""Format version of study.json."""
VERDICT = ("metric", "mode", "alpha", "reference", "question", "smallest_difference", "evaluate")
"""Fields of a declaration on which verdicts depend; of `evaluate`, only the metrics."""


Commands = Annotated[
    tuple[str, ...], pydantic.AfterValidator(lambda texts: tuple(filter(is_ours, texts)))
]
"""Commands that people are shown to copy. A text that is not one contrasweep command is left out."""


class _Budget(pydantic.BaseModel):
    """The limits of a declared budget on trials, epochs and GPU hours. None: that quantity is not limited."""

    model_config = SCHEMA

    trials: Count | None = None
    epochs: Count | None = None
    gpu_hours: Measure | None = None


def _check_budget(budget: Config) -> Config:
    """Return `budget`; raise `ValidationError` where it has other fields or types."""
    _Budget.model_validate(budget)
    return budget


@stored
class DeclaredSearch:
    """How a Sweep searches."""

    searcher: Label  # its name
    folds: Count  # the number of folds on which each configuration is trained
    # of each arm: fields of `ArmBudget`
    budget: Annotated[Config, pydantic.AfterValidator(_check_budget)]


# The fields of a whole declaration that are read, and their types. Other fields are not looked at.
class _DeclaredStart(pydantic.BaseModel):
    study: Name
    arm: Label
    trial: Label = ""


class _DeclaredArm(pydantic.BaseModel):
    trainable: str
    config: Config = {}
    space: Mapping[str, Config] | None = None
    start: _DeclaredStart | None = None
    start_points: Sequence[Config] | None = None


class _DeclaredAxes(pydantic.BaseModel):
    data: Sequence[str] = ()


class _DeclaredEvaluation(pydantic.BaseModel):
    metrics: tuple[Label, ...] = ()


class _DeclaredReplicates(pydantic.BaseModel):
    of: Label
    most: Count


class _Declaration(pydantic.BaseModel):
    """The fields of a study's declaration that are read from study.json. Other fields are kept unchanged."""

    model_config = pydantic.ConfigDict(strict=True)

    data: str
    arms: Mapping[str, _DeclaredArm]
    axes: _DeclaredAxes | None = None
    folds: Count | None = None
    confirm_on: str | None = None
    replicates: _DeclaredReplicates | None = None
    smallest_difference: float | None = None
    labels: Mapping[Label, Label] | None = None
    evaluate: Sequence[_DeclaredEvaluation] | None = None


def _check_declaration(spec: Config) -> Config:
    """Return `spec`; raise `ValidationError` where a field that is read has a wrong type.

    {}, which means that no declaration was kept, passes.
    """
    if spec:
        _Declaration.model_validate(spec)
    return spec


Declaration = Annotated[Config, pydantic.AfterValidator(_check_declaration)]
"""A whole declaration, as `contrasweep.study.file.to_plain` writes it; empty where none was kept."""


def _scores(spec: Config) -> tuple[str, ...]:
    """Return the names of the evaluation scores by which a declared study decides; () where there are none."""
    return tuple(
        metric
        for evaluation in spec.get("evaluate") or ()
        for metric in evaluation.get("metrics", ())
    )


def comparable_fields(spec: Config, free: Collection[str] = ()) -> MutableConfig:
    """Return the fields by which a declaration is compared with another one, as plain JSON.

    The study's name, the fields in `free` and fields that are None are left out. `evaluate` has only the metrics,
    sorted.
    """
    # Through JSON, so that a list equals a tuple, and a value that JSON does not have becomes a text.
    plain = json.loads(json.dumps({**spec, "evaluate": sorted(_scores(spec)) or None}, default=str))
    return {
        name: value
        for name, value in plain.items()
        if value is not None and name not in ("name", *free)
    }


@stored
class LogEntry:
    """An entry of a study's log: a later declaration, or a second training of trials, after a trial had ended.

    The first entry of a log is the study's first declaration.
    """

    at: Time
    by: str = ""  # who asked for it
    ended: Count = 0  # how many trials of the table had ended by then
    trials: Count | None = None  # how many trials the table has; None: not known
    # what differs from the entry before: lines that begin with a field's name
    changes: tuple[str, ...] = ()
    spent: Count = 0  # how many looks the entry counts as; each leaves a quarter of the level of all comparisons
    spec: Declaration | None = None  # None: the declaration did not change
    # Trial that was trained again -> the value that it had before; None: it had failed.
    again: Mapping[Name, float | None] = field(default_factory=dict)


@stored
class StudyDocument:
    """A study as it was declared, with what is needed to report it without its code and data.

    The trials are those of the newest declaration. The fields on which verdicts depend (`VERDICT`) are those of the
    first declaration, or of the newest one that spent some of alpha.
    """

    name: Name
    metric: Label
    mode: Mode = "max"
    type: Literal["ablation_grid", "sweep"] = "ablation_grid"
    plan_digest: Label = ""
    arms: tuple[Label, ...] = ()
    axes: tuple[Label, ...] = ()
    alpha: Alpha = 0.05
    reference: Label | None = None  # the arm that the others are compared with
    # None: the trials of the table are scored on the dataset's own test split.
    folds: Annotated[int, pydantic.Field(ge=2, le=2**31)] | None = None
    trials: Count | None = None  # of the table; None: not known beforehand
    search: DeclaredSearch | None = None  # None: the study has no search
    description: str = ""
    datasets: tuple[DatasetRef, ...] = ()
    # on classes and copies in the datasets (`data.folds.class_notes`)
    data_notes: tuple[str, ...] = ()
    commands: Commands = ()  # that declared the study; () where a program declared it
    created: Time = 0.0
    # Drawn at random when the file is first written, and the same in a copy of the storage. By it a tracker tells the
    # study's trials from those of the same study in another storage.
    origin: Digest = ""
    versions: Mapping[Label, Label] = field(default_factory=dict)  # package -> version
    family: tuple[Label, ...] = ()  # the arms whose comparisons have verdicts; (): all arms
    # all declarations; () until something changes after a trial has ended
    log: tuple[LogEntry, ...] = ()
    # earlier studies that compared two of these arms on these datasets
    asked_before: tuple[Name, ...] = ()
    spec: Declaration = field(default_factory=dict)  # the whole declaration; {}: not kept

    @property
    def labels(self) -> dict[str, str]:
        """Return declared name -> the name that tables show for it; {} where the study declares no such names."""
        return dict(self.spec.get("labels") or {})

    @property
    def evaluates(self) -> bool:
        """Whether the study evaluates the networks of another one; such a study decides nothing itself."""
        return any(arm.get("trainable") == EVALUATION for arm in self.spec.get("arms", {}).values())

    @property
    def question(self) -> Literal["overall", "cells"]:
        """Return whether the study compares arms over all cells (`overall`) or in each cell (`cells`)."""
        return "cells" if self.spec.get("question") == "cells" else "overall"

    @property
    def smallest_difference(self) -> float | None:
        """The smallest difference of interest, in units of the metric; None where none was declared."""
        value = self.spec.get("smallest_difference")
        return None if value is None else float(value)

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the evaluation scores on which the study decides beside its metric; () where there are none."""
        return _scores(self.spec)

    @property
    def required_spec(self) -> Config:
        """The same as `spec`, but `SpecError` where the storage kept no declaration."""
        if not self.spec:
            raise SpecError(
                "the study's declaration is not in its study.json", place="STUDY", value=self.name
            )
        return self.spec

    @property
    def declared(self) -> Config:
        """The newest declaration as it was made, with the fields on which no verdict depends yet.

        In `spec`, fields on which verdicts depend (`VERDICT`) are those that verdicts use, which may be older.
        """
        specs = [entry.spec for entry in self.log if entry.spec is not None]
        return specs[-1] if specs else self.spec

    @property
    def spent(self) -> int:
        """The number of looks at the results that the later declarations count as: the sum of `spent` over the log.

        Each of them divides the level of all comparisons by 4.
        """
        return sum(entry.spent for entry in self.log)

    @property
    def first_values(self) -> dict[str, float | None]:
        """The value of the metric that a trial's first training gave, by trial id, for trials that were trained again.

        None: the first training failed.
        """
        values: dict[str, float | None] = {}
        # The earliest entry on a trial comes last, so that its value stays.
        for entry in reversed(self.log):
            values |= entry.again
        return values

    @property
    def level(self) -> float:
        """The level of the comparisons of one metric: `alpha`, divided equally among the metric and the `scores`."""
        return self.alpha / (1 + len(self.scores))

    def start(self, arm: str) -> MutableConfig:
        """Return `{"start": ...}`, the declared field `start` of an arm; {} where its trials start with new weights.

        For example `{"start": {"study": "pretrain", "arm": "supcon", "trial": ""}}`.
        """
        start = self.spec.get("arms", {}).get(arm, {}).get("start")
        return {"start": start} if start else {}

    def space(self, arm: str) -> MutableConfig:
        """Return dotted key -> declared fields of each searched setting of an arm; {} where none is searched."""
        return dict(self.spec.get("arms", {}).get(arm, {}).get("space") or {})


def lines_declared_anew(known: StudyDocument | None, document: StudyDocument) -> list[str]:
    """Return the sentences of `declared_lines(document)` that `known` does not have, which is an earlier study.json.

    `known` is None for a new study: then all of them are returned.
    """
    before = declared_lines(known) if known else []
    return [line for line in declared_lines(document) if line not in before]


def declared_lines(document: StudyDocument) -> list[str]:
    """Return sentences, for below the table, that limit what its verdicts say; often [].

    The first names earlier studies that asked the same. Then come seeds that are left out, and each later declaration
    that asked for other verdicts.
    """
    lines = []
    before = document.asked_before
    if before:
        studies = ", ".join(before[:3])
        if len(before) > 3:
            studies += f" and {len(before) - 3} more"
        lines.append(
            f"asked before, on the same data: {studies} compared the same arms; these verdicts do not count that"
        )
    lines += [
        f"seed {seed} is left out: {reason}"
        for seed, reason in document.spec.get("excluded", {}).items()
    ]
    lines += filter(None, (_entry_line(document, entry) for entry in document.log))
    return list(dict.fromkeys(lines))


def _entry_line(document: StudyDocument, entry: LogEntry) -> str:
    """Return the sentence below the table on an entry of the log: what was declared anew, and what verdicts follow.

    "" where the entry changed nothing on which verdicts depend, and counts as no look.
    """
    # A training that was repeated without counting as a look changes no verdict.
    if entry.again and not entry.spent:
        return ""
    # Each change begins with the name of its field.
    fields = [change.partition(" ")[0] for change in entry.changes]
    verdict_changes = [
        change
        for change, name in zip(entry.changes, fields, strict=True)
        if name in (*VERDICT, "arms")
    ]
    # A change on which no verdict depends, as of a budget, is named only where the entry counts as a look. An entry
    # without a declaration has one line, such as `study.json was missing`, which is always named.
    changes = entry.changes if entry.spent or entry.spec is None else verdict_changes
    if not changes:
        return ""
    line = ", ".join(changes)
    if entry.trials is not None:
        line = f"declared anew after {entry.ended} of {entry.trials} trials had ended: {line}"
    # The values that verdicts use now, for each changed field.
    values = [
        f"{name} {_shown(document, name)}" for name in dict.fromkeys(fields) if name in VERDICT
    ]
    if values:
        line += f"; verdicts are of {', '.join(values)}"
    if entry.spent:
        word = "each" if entry.spent > 1 else "this"
        line += f"; {word} counts as a look"
    elif document.family and any(change.startswith("arms + ") for change in verdict_changes):
        line += f"; comparisons with other arms than {', '.join(document.family)} are exploratory"
    return line


def _shown(document: StudyDocument, name: str) -> str:
    """Return as text the value of a field of `VERDICT` that verdicts use, such as `0.05`; `none` without one."""
    if name == "evaluate":
        return ", ".join(document.scores) or "none"
    value = getattr(document, name)
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _check_arms(document: StudyDocument) -> StudyDocument:
    """Return `document`; raise `ValueError` where one of its fields names an arm that its declaration lacks.

    Nothing is checked where the declaration was not kept.
    """
    other = set(document.arms) - set(document.spec["arms"]) if document.spec else ()
    if other:
        raise ValueError(f"arms that its declaration has not: {', '.join(sorted(other))[:100]!a}")
    return document


STUDY_FILE: JsonFile[StudyDocument] = JsonFile(
    Annotated[StudyDocument, pydantic.AfterValidator(_check_arms)],  # type: ignore[arg-type]
    STUDY_FORMAT,
    "`contrasweep verify STUDY --repair` puts it aside, and the next run of the study writes it again",
)
"""study.json, written and read."""
