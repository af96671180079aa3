"""`StudyDocument`: study.json, which describes a study in its storage."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal

import pydantic

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.shell import is_ours
from contrasweep.storage.json_file import SCHEMA, JsonFile, stored
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import Count, DatasetRef, Digest, Measure, Time

EVALUATION = "contrasweep.trainables.evaluation.networks:train"
"""The trainable of studies that evaluate the networks of another one."""
STUDY_FORMAT = 4
"""Format version of study.json."""
VERDICT = ("metric", "mode", "alpha", "reference", "question", "smallest_difference", "evaluate")
"""Fields of a declaration that verdicts follow from; of `evaluate`, the metrics."""


Commands = Annotated[
    tuple[str, ...], pydantic.AfterValidator(lambda texts: tuple(filter(is_ours, texts)))
]
"""Commands that people are shown to paste: what is no single command of ours is left out."""


class _Budget(pydantic.BaseModel):
    """The fields of a declared budget; None: it bounds nothing of the kind."""

    model_config = SCHEMA

    trials: Count | None = None
    epochs: Count | None = None
    gpu_hours: Measure | None = None


def _check_budget(budget: Config) -> Config:
    """Return `budget`; raise `ValidationError` where it is none."""
    _Budget.model_validate(budget)
    return budget


@stored
class DeclaredSearch:
    """How a Sweep searches.

    `searcher` is its name, `folds` the folds that each configuration trains, `budget` the fields of `ArmBudget` of each
    arm.
    """

    searcher: Label
    folds: Count
    budget: Annotated[Config, pydantic.AfterValidator(_check_budget)]


# What is read of a whole declaration, by type: nothing else in it is looked at, whoever wrote it.
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
    """The fields that are read of a declaration; other fields are kept unchanged."""

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
    """Return `spec`; raise `ValidationError` where a field that is read has another type.

    {}, if none was kept, passes.
    """
    if spec:
        _Declaration.model_validate(spec)
    return spec


Declaration = Annotated[Config, pydantic.AfterValidator(_check_declaration)]
"""A whole declaration, as `contrasweep.study.file.to_plain` writes it; empty where none was kept."""


def compared(spec: Config, free: Collection[str] = ()) -> MutableConfig:
    """Return the fields of a declaration that are compared with those of another, as plain JSON.

    All but the study's name and those in `free` are; a field that is None is left out. Of `evaluate` only the metrics
    that the study decides are compared, sorted.
    """
    scores = sorted(
        metric for declared in spec.get("evaluate") or () for metric in declared.get("metrics", ())
    )
    plain = json.loads(json.dumps({**spec, "evaluate": scores or None}, default=str))
    return {
        name: value
        for name, value in plain.items()
        if value is not None and name not in ("name", *free)
    }


@stored
class Declared:
    """What was declared, or trained again, once a trial had ended. The first entry of a log is the first declaration.

    `at` is when, in unix seconds. `ended` of the `trials` of the table (None: their number is not known) had ended
    then. `by` is who asked. `changes` are lines on what differs from the entry before, each beginning with a field's
    name, and `spent` is how many looks it counts as: each leaves a quarter of the level of all comparisons. `spec` is
    the declaration (None: it did not change). `again` has the values that trials had which were trained again (None:
    failed).
    """

    at: Time
    by: str = ""
    ended: Count = 0
    trials: Count | None = None
    changes: tuple[str, ...] = ()
    spent: Count = 0
    spec: Declaration | None = None  # None where it did not change
    again: Mapping[Name, float | None] = field(default_factory=dict)


@stored
class StudyDocument:
    """A study as it was declared, with what is needed to report it without its code and data.

    `spec` is the whole declaration as `contrasweep.study.file.to_plain` writes it. `folds` is None where the trials
    of the table are scored on the dataset's own test split, `trials` where their number is not known beforehand.

    The trials are those of the newest declaration. What verdicts follow from (`VERDICT`) is of the first one, or of the
    newest that spent some of alpha: `log` has them all, and is empty until something changes after a trial has ended.
    Only comparisons of the arms `family` have verdicts (empty: of all arms).

    `origin` is drawn at random when the file is first written. By it a tracker tells the study's trials from those of
    the same study in another storage; a copy of the storage has the same.
    """

    name: Name
    metric: Label
    mode: Literal["max", "min"] = "max"
    type: Literal["ablation_grid", "sweep"] = "ablation_grid"
    plan_digest: Label = ""
    arms: tuple[Label, ...] = ()
    axes: tuple[Label, ...] = ()
    alpha: Annotated[float, pydantic.Field(gt=0, lt=0.5)] = 0.05
    reference: Label | None = None  # the arm that the others are compared with
    folds: Annotated[int, pydantic.Field(ge=2, le=2**31)] | None = None
    trials: Count | None = None
    search: DeclaredSearch | None = None
    description: str = ""
    datasets: tuple[DatasetRef, ...] = ()
    # of classes and copies in these (`contrasweep.data.folds.class_notes`)
    data_notes: tuple[str, ...] = ()
    commands: Commands = ()  # that declared the study; none where a program did
    created: Time = 0.0
    origin: Digest = ""
    versions: Mapping[Label, Label] = field(default_factory=dict)
    family: tuple[Label, ...] = ()
    log: tuple[Declared, ...] = ()
    # studies of this storage that compared two of these arms on these data
    asked_before: tuple[Name, ...] = ()
    spec: Declaration = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """Return declared name -> what people read in its place; empty where nothing was renamed."""
        return dict(self.spec.get("labels") or {})

    @property
    def evaluates(self) -> bool:
        """Whether the study evaluates the networks of another one, so that it decides nothing."""
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
        """The names of the evaluations' scores that the study decides beside its metric, as declared; often none."""
        return tuple(
            metric
            for declared in self.spec.get("evaluate") or ()
            for metric in declared.get("metrics", ())
        )

    @property
    def whole(self) -> Config:
        """The whole declaration; `SpecError` where the storage kept none."""
        if not self.spec:
            raise SpecError(
                "the study's declaration is not in its study.json", place="STUDY", value=self.name
            )
        return self.spec

    @property
    def declared(self) -> Config:
        """The newest declaration, whether or not verdicts follow it."""
        return next(
            (entry.spec for entry in reversed(self.log) if entry.spec is not None), self.spec
        )

    @property
    def spent(self) -> int:
        """How many looks at the table later declarations count as, each of which spends a part of alpha."""
        return sum(entry.spent for entry in self.log)

    @property
    def seen(self) -> dict[str, float | None]:
        """Trial -> its first value of the metric, of each trial that was trained again; None: it had no value."""
        # Of several entries on a trial the earliest is put in last, so that it counts.
        return {
            trial: value for entry in reversed(self.log) for trial, value in entry.again.items()
        }

    @property
    def level(self) -> float:
        """The level of the comparisons of one metric: `alpha`, divided equally among the metric and the `scores`."""
        return self.alpha / (1 + len(self.scores))

    def start(self, arm: str) -> MutableConfig:
        """Return where the trials of an arm start from, as declared, in one member `start`; {} for new weights.

        For example `{"start": {"study": "pretrain", "arm": "supcon", "trial": ""}}`.
        """
        start = self.spec.get("arms", {}).get(arm, {}).get("start")
        return {"start": start} if start else {}

    def space(self, arm: str) -> MutableConfig:
        """Return the searched settings of an arm as declared, dotted key -> fields.

        {} for an arm that is not searched.
        """
        return dict(self.spec.get("arms", {}).get(arm, {}).get("space") or {})


def lines_declared_anew(known: StudyDocument | None, document: StudyDocument) -> list[str]:
    """Return the `declared_lines` of `document` that those of `known`, as the storage has it (None: not yet), lack."""
    before = declared_lines(known) if known else []
    return [line for line in declared_lines(document) if line not in before]


def declared_lines(document: StudyDocument) -> list[str]:
    """Return sentences, for below the table, on what was asked of these data before or otherwise.

    First the earlier studies that asked the same, then seeds that are left out, then each later declaration by which
    other verdicts were asked for, with the fields by which verdicts are. Empty where nothing of this is so.
    """
    lines = []
    before = document.asked_before
    if before:
        studies = ", ".join(before[:3]) + (
            f" and {len(before) - 3} more" if len(before) > 3 else ""
        )
        lines.append(
            f"asked before, on the same data: {studies} compared the same arms; these verdicts do not count that"
        )
    lines += [
        f"seed {seed} is left out: {reason}"
        for seed, reason in document.spec.get("excluded", {}).items()
    ]
    for entry in document.log:
        fields = [change.partition(" ")[0] for change in entry.changes]
        changes_asked = [
            c for c, name in zip(entry.changes, fields, strict=True) if name in (*VERDICT, "arms")
        ]
        # What follows no verdict, as a budget, is told only where the entry has counted as a look.
        changes = entry.changes if entry.spent or entry.spec is None else changes_asked
        # Nor is a training that was repeated without counting as a look.
        if not changes or (entry.again and not entry.spent):
            continue
        line = f"declared anew after {entry.ended} of {entry.trials} trials had ended: {', '.join(changes)}"
        if entry.trials is None:
            line = ", ".join(changes)
        stands = ", ".join(
            f"{name} {_shown(document, name)}" for name in dict.fromkeys(fields) if name in VERDICT
        )
        parts = [line]
        if stands:
            parts.append(f"verdicts are of {stands}")
        if entry.spent:
            parts.append(f"{'each' if entry.spent > 1 else 'this'} counts as a look")
        elif document.family and any(change.startswith("arms + ") for change in changes_asked):
            parts.append(
                f"comparisons with other arms than {', '.join(document.family)} are exploratory"
            )
        lines.append("; ".join(parts))
    return list(dict.fromkeys(lines))


def _shown(document: StudyDocument, name: str) -> str:
    """Return the value that verdicts follow of the field `name` of `VERDICT`, as text; `none` where there is none."""
    if name == "evaluate":
        return ", ".join(document.scores) or "none"
    value = getattr(document, name)
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _check_arms(document: StudyDocument) -> StudyDocument:
    """Return `document`; raise `ValueError` where it names arms that its own declaration, if it was kept, has not."""
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
