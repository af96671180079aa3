"""`TrackedStudy`: what a tracker must know of a study before its first trial."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict

from contrasweep.storage.record import Record, TrialLike
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted


class DatasetFacts(TypedDict):
    """Where a dataset lies, and how many rows each of its splits has."""

    uri: str
    rows: Mapping[str, int]


@dataclass(frozen=True)
class TrackedStudy:
    """A study as its trackers show it.

    `axes` are the config keys that tell trials apart, in the order a run's name shows them; `keys` all config keys
    that any trial has; `trials` how many are planned; `extra` further rows of its description (data, folds, seeds, ...)
    in the order given; `datasets` what is known of datasets, by digest.
    """

    name: str
    plan_digest: str = ""
    axes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    metric: str = ""
    mode: str = "max"
    trials: int | None = None
    storage: str = ""
    description: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)
    datasets: Mapping[str, DatasetFacts] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, planned: Collection[TrialLike | Record], /, **fields: Any) -> Self:
        """The study `name` whose trials, and so whose config keys, are those of `planned`."""
        keys = dict.fromkeys(key for trial in planned for key in dotted.flatten(trial.config))
        return cls(name=name, keys=tuple(keys), **{"trials": len(planned), **fields})

    @classmethod
    def stored(cls, records: StudyRecords) -> Self:
        """What study.json tells of a study."""
        document = records.document()
        if document is None:
            return cls(records.study, storage=records.storage)
        return cls(
            records.study,
            plan_digest=document.plan_digest,
            axes=document.axes,
            metric=document.metric,
            mode=document.mode,
            trials=document.trials,
            storage=records.storage,
            description=document.description,
            extra={
                "data": ", ".join(data.name for data in document.datasets),
                "arms": document.arms,
                "folds": document.folds,
            },
        )
