"""`Trial`, the unit of training, and `Report`, what it tells while it runs."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.rows import ItemColumns
from contrasweep.storage.record import Record, StartRef, id_of


@dataclass(frozen=True)
class Trial:
    """One training run: everything that a trainable needs, and nothing about where it runs.

    Args:
        study: The study's name.
        arm: The arm's name.
        trainable: The dotted path of the trainable, `package.module:function`.
        config: All settings: fixed ones, those of axes, searched ones, and defaults, resolved for the dataset.
        data: The staged dataset.
        fold: The held-out fold. Default: the dataset's own test split.
        seed: The seed of initial weights, data order and augmentation.
        start: The trial from whose checkpoint this one starts. Default: it starts from new weights.
        start_folder: While it trains, the folder with that checkpoint. None where it goes on from its own.
        folder: While it trains, a folder of this attempt that stays in the storage. None in an object store.

    Example:
        >>> import contrasweep as cs
        >>> trial = cs.plan(study).trials[0]
        >>> trial.arm, trial.fold, trial.seed, len(trial.id)
        ('scl', 0, 0, 16)
    """

    study: str
    arm: str
    trainable: str
    config: Config
    data: Manifest
    fold: int | None = None
    seed: int = 0
    start: StartRef | None = None
    start_folder: Path | None = field(default=None, compare=False, repr=False)
    folder: Path | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, record: Record, data: Manifest) -> "Trial":
        """Return the trial of a record; `data` is the trial's dataset, of which the record has the digest alone."""
        return cls(
            record.study,
            record.arm,
            record.trainable,
            record.config,
            data,
            record.fold,
            record.seed,
            record.start,
        )

    @cached_property
    def id(self) -> str:
        """The trial's id, 16 hexadecimal digits: a digest of all that changes its result (`storage.record.id_of`)."""
        return id_of(self, self.config_text)

    @property
    def config_text(self) -> str:
        """The canonical text of the config."""
        # All replicates of a cell share one `canonical.Config`, whose text is made once.
        config = self.config
        return config.text if isinstance(config, canonical.Config) else canonical.dumps(config)


@dataclass(frozen=True)
class Report:
    """What a trainable yields.

    Args:
        step: The step or epoch that it is of, counted from 1.
        metrics: Metric -> number.
        checkpoint: A folder from which `train(trial, resume=folder)` continues after this very report, bit for bit. It
            is read before the generator is resumed, so the trainable may use the folder again.
        items: Metric -> one score per test item, larger is better, in a fixed order of the items, for paired tests over
            items. The column `group` names what each item is from (a scene, a patient); such tests take groups whole.
        artifacts: Name -> a file worth keeping.

    Example:
        >>> import contrasweep as cs
        >>> def train(trial, resume=None):
        ...     yield cs.Report(step=1, metrics={"accuracy": 0.75})
        >>> next(train(None)).metrics
        {'accuracy': 0.75}
    """

    step: int
    metrics: Mapping[str, float]
    checkpoint: Path | None = None
    items: ItemColumns = field(default_factory=dict)
    artifacts: Mapping[str, Path] = field(default_factory=dict)


class RevisedReport(Report):
    """A report that takes the place of the one before it, of the same step."""


Trainable = Callable[..., Generator[Report]]
"""`def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]`

Three attributes of the function are used where it has them:

    train.settings = Settings     built as Settings(**config), so that a wrong config is found by the plan. If the class
                                  has a method resolve(self, data: Manifest) -> Self, it makes concrete what depends on
                                  the dataset's content. The resolved settings are `trial.config`
                                  (`contrasweep.schema.resolved_config`)
    train.memory = memory         def memory(config, data: Manifest) -> Workload (of `contrasweep.cluster.memory`): the
                                  model, the inputs of a step and the optimiser's states, from which memory is estimated
                                  before a trial runs
    train.start_settings = ()     the trainable takes an arm's `start`: it loads weights from `trial.start_folder`,
                                  where that is not None. The names are settings that a trial has from the one that it
                                  starts from, such as "encoder"

`memory` must not read the data nor touch a GPU; it is called for every cell of a plan. Without it, trials get what
their arm's `resources` say or a whole GPU, until a trial of the cell was measured.
"""


def in_turns(cells: list[tuple[Trial, ...]]) -> tuple[Trial, ...]:
    """Return the first trial of every cell, then every cell's second, and so on.

    `cells` has the trials of each cell in their order: [(a, b), (c,)] gives (a, c, b).
    """
    longest = max(map(len, cells), default=0)
    return tuple(trials[i] for i in range(longest) for trials in cells if i < len(trials))
