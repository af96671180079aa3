"""Datasets that a plan lacks: what waits for them, and the commands that stage them."""

from collections.abc import Sequence
from dataclasses import dataclass

from contrasweep.errors import NotStagedError
from contrasweep.study.grid import AblationGrid
from contrasweep.study.study import Study

PLANNED = ", planned by what its paper says"


@dataclass(frozen=True)
class MissingDataset:
    """A dataset that is not staged: its name in the study, the command that stages it from what it `requires`, how many
    cells (of a sweep arms) wait for it, and how many trials these are; None where that is not known. `described`:
    they are in the plan all the same, since the dataset's paper says its rows and shapes."""

    name: str
    command: str
    requires: str
    cells: int
    trials: int | None
    described: bool = False

    @classmethod
    def of(cls, study: Study, name: str, cells: int, error: NotStagedError, described: bool) -> "MissingDataset":
        """What waits for the dataset that `error` is about."""
        trials = cells * len(study.all_seeds) * len(study.all_folds) if isinstance(study, AblationGrid) else None
        return cls(name, error.command, error.requires, cells, trials, described)

    @property
    def waiting(self) -> str:
        """What waits for it."""
        what = "arm" if self.trials is None else "cell"
        trials = "" if self.trials is None else f", {self.trials} trials"
        return f"{self.cells} {what}{'s' * (self.cells != 1)}{trials}"

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        return dict(vars(self))


def missing_lines(missing: Sequence[MissingDataset]) -> list[str]:
    """A line for each dataset: its name, what waits for it, and the command."""
    return [
        f"missing   {one.name}: {one.waiting}{PLANNED * one.described}; "
        f"not staged: {one.command}   (PATH: {one.requires})"
        for one in missing
    ]


def outline(study: Study, missing: Sequence[MissingDataset]) -> list[str]:
    """What is to be said of a study none of whose datasets is staged."""
    return [
        f"study     {study.name}: {study.metric} ({study.mode}); none of its datasets is staged, so nothing is planned",
        *missing_lines(missing),
    ]
