"""`StudyDocument`: study.json, which describes a study in its storage."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

import pydantic

from contrasweep.config import Config, MutableConfig
from contrasweep.shell import is_ours
from contrasweep.storage.json_file import SCHEMA, JsonFile, stored
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import Count, DatasetRef, Measure, Time

EVALUATION = "contrasweep.trainables.evaluation.networks:train"
"""The trainable of studies that evaluate the networks of another one."""
STUDY_FORMAT = 4
"""Format version of study.json."""


Commands = Annotated[tuple[str, ...], pydantic.AfterValidator(lambda texts: tuple(filter(is_ours, texts)))]
"""Commands that people are shown to paste: what is no single command of ours is left out."""


class _Budget(pydantic.BaseModel):
    model_config = SCHEMA

    trials: Count | None = None
    epochs: Count | None = None
    gpu_hours: Measure | None = None


def _check_budget(budget: Config) -> Config:
    _Budget.model_validate(budget)
    return budget


@stored
class DeclaredSearch:
    """How a Sweep searches: its searcher, its number of folds, and the budget of each arm (see `ArmBudget`)."""

    searcher: Label
    folds: Count
    budget: Annotated[Config, pydantic.AfterValidator(_check_budget)]


class _DeclaredArm(pydantic.BaseModel):
    space: Mapping[str, Config] | None = None
    start: Config | None = None


class _DeclaredEvaluation(pydantic.BaseModel):
    metrics: tuple[Label, ...] = ()


class _Declaration(pydantic.BaseModel):
    """The fields that are read of a declaration; other fields are kept unchanged."""

    arms: Mapping[str, _DeclaredArm] = {}
    objectives: Mapping[str, Literal["max", "min"]] | None = None
    constraints: Mapping[str, str] | None = None
    labels: Mapping[Label, Label] | None = None
    evaluate: tuple[_DeclaredEvaluation, ...] | None = None


def _check_declaration(spec: Config) -> Config:
    _Declaration.model_validate(spec)
    return spec


@stored
class StudyDocument:
    """A study as it was declared, with what is needed to report it without its code and data.

    `spec` is the whole declaration as `contrasweep.study.file.to_plain` writes it. `folds` is None where the trials
    of the table are scored on the dataset's own test split, `trials` where their number is not known beforehand.
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
    commands: Commands = ()  # that declared the study; none where a program did
    created: Time = 0.0
    versions: Mapping[Label, Label] = field(default_factory=dict)
    spec: Annotated[Config, pydantic.AfterValidator(_check_declaration)] = field(default_factory=dict)

    @property
    def goals(self) -> dict[str, str]:
        """Return metric -> mode of what the study optimises."""
        return dict(self.spec.get("objectives") or {}) or {self.metric: self.mode}

    @property
    def constraints(self) -> dict[str, str]:
        """Metric -> bound (`<= 0.1`) that configurations have to keep."""
        return dict(self.spec.get("constraints") or {})

    @property
    def labels(self) -> dict[str, str]:
        """Declared names -> what people read in their place."""
        return dict(self.spec.get("labels") or {})

    @property
    def evaluates(self) -> bool:
        """Whether the study evaluates the networks of another one, so that it decides nothing."""
        return any(arm.get("trainable") == EVALUATION for arm in self.spec.get("arms", {}).values())

    @property
    def question(self) -> Literal["overall", "cells"]:
        """Return whether the study compares arms over all cells or in each cell."""
        return "cells" if self.spec.get("question") == "cells" else "overall"

    @property
    def smallest_difference(self) -> float | None:
        """The smallest difference of interest, in units of the metric, where one was declared."""
        value = self.spec.get("smallest_difference")
        return None if value is None else float(value)

    @property
    def scores(self) -> tuple[str, ...]:
        """Scores of evaluations that the study decides beside its metric."""
        return tuple(metric for one in self.spec.get("evaluate") or () for metric in one.get("metrics", ()))

    @property
    def level(self) -> float:
        """The level of the comparisons of one metric: `alpha`, divided among the metric and `scores`."""
        return self.alpha / (1 + len(self.scores))

    @property
    def train_fraction(self) -> float | None:
        """The part of the data that a fold's trials train on; None where there are no folds."""
        return (self.folds - 1) / self.folds if self.folds else None

    def start(self, arm: str) -> MutableConfig:
        """Where the trials of an arm start from, as declared: `{"start": {study, arm, trial}}`; {} for new weights."""
        start = self.spec.get("arms", {}).get(arm, {}).get("start")
        return {"start": start} if start else {}

    def space(self, arm: str) -> MutableConfig:
        """The searched settings of an arm as declared; {} for an arm that is not searched."""
        return dict(self.spec.get("arms", {}).get(arm, {}).get("space") or {})


STUDY_FILE = JsonFile(
    StudyDocument,
    STUDY_FORMAT,
    "`contrasweep verify STUDY --repair` puts it aside, and the next run of the study writes it again",
)
"""study.json, written and read."""
