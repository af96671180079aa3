"""`TrackedStudy`: what a tracker must know of a study before its first trial."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from contrasweep.storage.record import Record
from contrasweep.study import dotted
from contrasweep.trial import Trial


@dataclass(frozen=True)
class TrackedStudy:
    """A study as its trackers show it.

    `axes` are the config keys that tell trials apart, in the order a run's name shows them; `keys` all config keys
    that any trial has; `trials` how many are planned; `extra` further rows of its description (data, folds, seeds, ...)
    in the order given.
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

    @classmethod
    def of(cls, name: str, planned: Collection[Trial | Record], /, **fields: Any) -> Self:
        """The study `name` whose trials, and so whose config keys, are those of `planned`."""
        keys = dict.fromkeys(key for trial in planned for key in dotted.flatten(trial.config))
        return cls(name=name, keys=tuple(keys), **{"trials": len(planned), **fields})
