"""The search of one arm by population based training: truncation selection decides, trials of schedules train.

A member is a schedule of settings. Each generation prolongs it and is a trial of its own,
`contrasweep.tuning.pruners.scheduled` up to that step, which goes on from the checkpoint of the trial that it prolongs.
So a record says with which settings every step was trained, and from the records alone an interrupted search goes on:
decisions are taken again, the same for the same seed and values. All members train from the search's one seed, so a
copied checkpoint is what the schedule's own training would have led to; were one lost, the schedule is trained from its
start.
"""

import math
import random
import statistics
import tempfile
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

from contrasweep.config import Config, MutableConfig
from contrasweep.rows import Row
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Phase, Record, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted
from contrasweep.study.space import Choice, Int, Space, nearest
from contrasweep.trial import Trial
from contrasweep.tuning.design import SweepDesign, fixed_of
from contrasweep.tuning.pruners.population import Population
from contrasweep.tuning.source import Next

FACTORS = (1.2, 0.8)
"""What a number is multiplied by where it is not drawn anew, one of them at random."""


@dataclass(frozen=True)
class Member:
    """One schedule of the population: [[last step, settings], ...].

    `trials`, one a fold, trained it last. `value` is their mean, -inf if one failed.
    """

    number: int
    schedule: tuple[tuple[int, Config], ...]
    trials: tuple[str, ...] = ()
    value: float = -math.inf

    @property
    def settings(self) -> MutableConfig:
        """Return the settings at the end of the member's schedule."""
        return dict(self.schedule[-1][1])


def exploited(
    members: list[Member], space: Space, population: Population, mode: str, seed: list[int]
) -> dict[int, tuple[int, MutableConfig]]:
    """Return whom each of the worst `quantile` of `members` is copied from, and the settings it goes on with.

    By its number, one of the best is drawn at random. A member that failed is copied by none.
    """
    draw = random.Random(repr(seed))
    ranked = sorted(members, key=lambda member: member.value if mode == "max" else -member.value)
    count = min(math.ceil(len(ranked) * population.quantile), len(ranked) // 2)
    copies = {}
    for member in ranked[:count]:
        parent = draw.choice(ranked[-count:])
        settings = _explored(parent.settings, space, population.resample, draw)
        if math.isfinite(parent.value):
            copies[member.number] = parent.number, settings
    return copies


def _explored(settings: MutableConfig, space: Space, resample: float, draw: random.Random) -> MutableConfig:
    """Return `settings` with each one drawn again with the chance `resample`, and otherwise changed a little.

    An option moves to the one beside it, a number by one of `FACTORS`.
    """
    for name, parameter in space.items():
        options, value = list(parameter.options) if isinstance(parameter, Choice) else [], settings[name]
        if draw.random() < resample or (options and value not in options):
            moved = draw.choice(options) if options else parameter.at(draw.random())
        elif options:
            moved = options[min(max(options.index(value) + draw.choice([-1, 1]), 0), len(options) - 1)]
        else:
            moved = value * draw.choice(FACTORS)
        settings[name] = nearest(parameter, round(moved) if isinstance(parameter, Int) else moved)
    return settings


@dataclass
class PopulationSearch:
    """The search of one arm; the same calls as `ArmSearch`."""

    plan: SweepDesign
    arm: str
    base: Config
    records: StudyRecords
    of: dict[str, int] = field(default_factory=dict)  # trial id -> the member it is of
    infeasible: set[str] = field(default_factory=set)  # trials that fitted no host, and run again
    known: dict[str, Record] = field(default_factory=dict)
    waiting: deque[Trial] = field(default_factory=deque)
    running: dict[str, Trial] = field(default_factory=dict)
    current: dict[str, Trial] = field(default_factory=dict)  # the trials of the generation that is trained now
    generation: int = 0

    def __post_init__(self) -> None:
        study = self.plan.study
        assert self.plan.population is not None
        self.population: Population = self.plan.population
        self.fixed, self.space = fixed_of(study.arms[self.arm], self.base), study.arms[self.arm].space
        searcher = self.plan.searcher(self.arm, self.fixed)
        configs = [dict(point) for point in study.arms[self.arm].start_points or []]
        for config in configs:
            searcher.replay(config)
        more = (searcher.ask() for _ in range((study.arm_budget.trials or 0) - len(configs)))
        configs += [config for config in more if config is not None]
        self.members = [Member(i, ((0, config),)) for i, config in enumerate(configs)]
        self._begin()

    def next(self) -> Next | None:
        """Return the next trial of this generation, with its parent's checkpoint; None until its peers have ended."""
        if not self.waiting:
            return None
        trial = self.waiting.popleft()
        member, fold = self.members[self.of[trial.id]], self.plan.search_folds.index(trial.fold)
        parent = member.trials[fold] if member.trials else ""
        notes = TrialNotes(
            phase=Phase.SEARCH,
            candidate=member.number,
            generation=self.generation,
            parent=parent or None,
            from_step=self._inherit(trial, parent),
        )
        return Next(trial, notes)

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Always: a generation is trained to its end."""
        return True

    def peer_reported(self, trial_id: str, report: Row) -> None:
        """A generation is compared when it has ended."""

    def done(self, record: Record) -> None:
        """Take a trial's record; the last of a generation begins the next one."""
        self.known[record.trial_id] = record
        self.infeasible.discard(record.trial_id)
        self.running.pop(record.trial_id, None)
        while not self.running and not self.over:
            self._end_generation()
            self._begin()

    def retry(self, trial_id: str) -> bool:
        """Let a trial run while others of its generation are trained.

        Once it was compared without it, later generations stand on that. The next run takes it up if none of them was
        trained.
        """
        if trial_id not in self.current or not self.running:
            return False
        del self.known[trial_id]
        self.running[trial_id] = self.current[trial_id]
        return True

    @property
    def over(self) -> bool:
        """Whether the last generation has ended."""
        return self.generation == len(self.population.ends)

    def best(self) -> Member | None:
        """The member that ends best; the first of equals."""
        return max(
            (m for m in self.members if math.isfinite(m.value)),
            key=lambda m: (self._sign * m.value, -m.number),
            default=None,
        )

    def best_config(self) -> MutableConfig | None:
        """Return the schedule of the best member as a trial's config; None where there is none to confirm."""
        best = self.best()
        return self._config(best, self.population.max_step) if best else None

    def tuned(self) -> MutableConfig:
        """Return nothing: no arm is frozen on a schedule."""
        return {}

    @property
    def _sign(self) -> int:
        return 1 if self.plan.study.mode == "max" else -1

    def _config(self, member: Member, until: int) -> MutableConfig:
        schedule = [[step, dotted.merge(self.fixed, dotted.expand(settings))] for step, settings in member.schedule]
        return {"trainable": self.plan.study.arms[self.arm].trainable, "schedule": schedule, "until": until}

    def _trials(self, member: Member) -> list[Trial]:
        return self.plan.search_trials(self.arm, self._config(member, self.population.ends[self.generation]))

    def _begin(self) -> None:
        """Make the trials of the next generation; trials that have a record already are taken from it."""
        self.current = {}
        if self.over:
            return
        trials = [(member, trial) for member in self.members for trial in self._trials(member)]
        self.current = {trial.id: trial for _, trial in trials}
        self.of |= {trial.id: member.number for member, trial in trials}
        unknown = {trial.id for _, trial in trials} - self.known.keys() - self.infeasible
        self.known |= self.records.read(unknown)
        self.running = {i: trial for i, trial in self.current.items() if i not in self.known}  # members may be the same
        self.waiting = deque(self.running.values())
        if not self.running:
            self._end_generation()
            self._begin()

    def _end_generation(self) -> None:
        """Score every member; decide whose checkpoint and which settings each one continues with."""
        metric, step = self.plan.study.metric, self.population.ends[self.generation]
        valued = []
        for member in self.members:
            records = [self.known[trial.id] for trial in self._trials(member)]
            values = [r.metrics.get(metric, math.nan) if r.status.counts else math.nan for r in records]
            value = statistics.fmean(values)
            valued.append(
                replace(
                    member,
                    trials=tuple(r.trial_id for r in records),
                    value=value if math.isfinite(value) else -self._sign * math.inf,
                )
            )
        self.generation += 1
        copied = (
            {}
            if self.over
            else exploited(
                valued, self.space, self.population, self.plan.study.mode, [self.plan.study.search_seed, step]
            )
        )
        self.members = [
            replace(
                valued[copied[m.number][0]],
                number=m.number,
                schedule=_prolonged(valued[copied[m.number][0]], step, copied[m.number][1]),
            )
            if m.number in copied
            else m
            for m in valued
        ]

    def _inherit(self, trial: Trial, parent: str) -> int:
        """Let `trial` go on from the last checkpoint of `parent`; the step it starts from."""
        own = Checkpoints(self.records.store, self.records.key(trial.id, "checkpoint"))
        if not parent:
            return 0
        with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
            saved = Checkpoints(self.records.store, self.records.key(parent, "checkpoint")).fetch(Path(folder))
            if saved is None:
                return 0
            if own.latest() is None:
                self.records.write_metrics(
                    trial.id, [row for row in self.records.metrics(parent) if row["step"] <= saved.step]
                )
                own.save(Path(folder), saved.step)
            return saved.step


def _prolonged(member: Member, step: int, settings: MutableConfig) -> tuple[tuple[int, Config], ...]:
    return member.schedule if settings == member.settings else (*member.schedule, (step, settings))
