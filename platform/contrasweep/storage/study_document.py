"""`StudyDocument`: study.json, what a storage keeps of a study beside its trials."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from contrasweep.storage.record import DatasetRef, newer_format

STUDY_FORMAT = 2
"""Format version of study.json. Version 1 had the fields of `search` side by side with the others."""


@dataclass(frozen=True)
class DeclaredSearch:
    """How a Sweep searches: its searcher, on how many folds, and within which budget an arm (see `ArmBudget`)."""

    searcher: str
    folds: int
    budget: Mapping[str, Any]


@dataclass(frozen=True)
class StudyDocument:
    """A study as it was declared, with what is needed to report it without its code and data.

    `spec` is the whole declaration as `contrasweep.study.file.to_plain` writes it. `folds` is None where the trials
    of the table are scored on the dataset's own test split, `trials` where their number is not known beforehand.
    """

    name: str
    metric: str
    mode: Literal["max", "min"] = "max"
    type: str = "ablation_grid"  # or "sweep"
    plan_digest: str = ""
    arms: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()
    alpha: float = 0.05
    reference: str | None = None  # the arm that the others are compared with
    folds: int | None = None
    trials: int | None = None
    search: DeclaredSearch | None = None
    description: str = ""
    datasets: tuple[DatasetRef, ...] = ()
    commands: tuple[str, ...] = ()  # that declared the study; none where a program did
    created: float = 0.0  # unix time
    versions: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    format_version: int = field(default=STUDY_FORMAT, compare=False)  # of the file it was read from

    @property
    def goals(self) -> dict[str, str]:
        """Metric -> mode of what is optimised."""
        return dict(self.spec.get("objectives") or {}) or {self.metric: self.mode}

    @property
    def constraints(self) -> dict[str, str]:
        """Metric -> bound (`<= 0.1`) that configurations have to keep."""
        return dict(self.spec.get("constraints") or {})

    @property
    def train_fraction(self) -> float | None:
        """The part of the data that a fold's trials train on; None where there are no folds."""
        return (self.folds - 1) / self.folds if self.folds else None

    def space(self, arm: str) -> dict[str, Any]:
        """The searched settings of an arm as declared; {} for an arm that is not searched."""
        return dict(self.spec.get("arms", {}).get(arm, {}).get("space") or {})

    def to_json(self) -> bytes:
        """The content of study.json."""
        return json.dumps(asdict(self) | {"format_version": STUDY_FORMAT}, indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """The inverse of `to_json`, and of what earlier releases wrote. Raises `StorageError` for a newer format and
        ValueError, KeyError or TypeError for what is no study."""
        content = json.loads(data)
        version = content.pop("format_version")
        if version > STUDY_FORMAT:
            raise newer_format(version, STUDY_FORMAT)
        if version == 1:
            content = _from_version_1(content)
        search = content["search"]
        return cls(
            **content
            | {
                "format_version": version,
                "search": search and DeclaredSearch(**search),
                "datasets": tuple(DatasetRef(**entry) for entry in content["datasets"]),
                **{name: tuple(content[name]) for name in ("arms", "axes", "commands")},
            }
        )


def _from_version_1(content: Mapping[str, Any]) -> dict[str, Any]:
    old = dict(content)
    searcher, folds, budget = old.pop("searcher", None), old.pop("search_folds", 1), old.pop("budget", {})
    search = None if searcher is None else {"searcher": searcher, "folds": folds, "budget": budget}
    return {"search": search, "commands": [], "description": "", **old}
