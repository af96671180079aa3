"""What would decide the comparisons that a study leaves undecided, and what that costs."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from contrasweep.planning.budget import covered
from contrasweep.results.answer import Answer, Pair
from contrasweep.results.interim_verdicts import ExtensionVerdicts, InterimVerdicts
from contrasweep.results.rendering import NONE, DisplayNames, TextRenderable
from contrasweep.results.study_data import StudyData
from contrasweep.statistics.design import Contrast
from contrasweep.statistics.predictive import (
    Prediction,
    Unit,
    count_of,
    detectable_difference,
    enough,
    predict,
    resized,
)
from contrasweep.storage.record import Record

Hours = Callable[[Mapping[str, int]], float | None]
"""Wall hours of so many more trials of each arm; None where it is not known."""


@dataclass(frozen=True)
class Size:
    """A larger study: how many replicates it has, and what it costs beyond what there is.

    `count` is the number of seeds or repeats (`unit`), `trials` the trials that it takes beyond those there are,
    `hours` their wall time (None: not known).
    """

    unit: Unit
    count: int
    trials: int
    hours: float | None

    @property
    def replicates(self) -> str:
        """The number of replicates in words, for example `10 seeds`."""
        return f"{self.count} {self.unit if self.count != 1 else self.unit[:-1]}"


class Prices:
    """What a larger study costs, if each replicate takes as many trials, of the same length, as those so far.

    `present` counts the study's replicates, `trials` each arm's in the first of them, which no look has cut short.
    """

    def __init__(
        self, planned: pd.DataFrame, folds: int | None, records: Iterable[Record], hours: Hours | None
    ) -> None:
        seed, fold = planned["seed"], planned["fold"]
        repeats = 1 if folds is None else fold.nunique() // folds
        self.present: dict[Unit, int] = {"seeds": seed.nunique(), "repeats": max(1, repeats)}
        first = {"seeds": seed.isin(seed[:1]), "repeats": fold.isna() if folds is None else fold < folds}
        self.trials = {unit: planned["arm"][rows].value_counts() for unit, rows in first.items()}
        done = [record for record in records if record.status.counts and record.ended > record.started]
        self.hours = hours or _as_so_far(done)

    def of(self, unit: Unit, count: int, fresh: bool) -> Size:
        """The study with so many replicates."""
        more = count if fresh else count - self.present[unit]
        added = {str(arm): more * int(n) for arm, n in self.trials[unit].items()}
        return Size(unit, count, sum(added.values()), self.hours(added))


def _as_so_far(done: Sequence[Record]) -> Hours:
    """The median time of each arm's trials, as many at a time as there were."""
    spans = [(record.started, record.ended) for record in done]
    wall = covered(spans)
    at_once = max(1.0, sum(end - start for start, end in spans) / wall) if wall > 0 else 1.0
    arms = {record.arm for record in done}
    seconds = {arm: statistics.median(r.ended - r.started for r in done if r.arm == arm) for arm in arms}

    def hours(added: Mapping[str, int]) -> float | None:
        if not set(added) <= set(seconds):
            return None
        return sum(n * seconds[arm] for arm, n in added.items()) / at_once / 3600

    return hours


TIMES = (2, 4)
MAX_FORECASTS = 12
"""Of more undecided comparisons those with the smallest p are looked into."""


@dataclass(frozen=True)
class PowerForecast:
    """What more replicates would come to for one undecided comparison.

    `detectable` is the difference that is decided with a chance of 80 %, in units of the metric: now, and at each of
    the advice's sizes. `predictions` are the chances of a decision at these sizes, `enough` the sizes that decide it
    with 80 %, the cheapest first (none: no size that could be proposed does).
    """

    pair: Pair
    detectable: tuple[float, ...]
    predictions: tuple[Prediction, ...]
    enough: tuple[tuple[Size, Prediction], ...]

    def title(self, names: DisplayNames) -> str:
        """The two arms, with their place in the table."""
        where = ", ".join(f"{names(factor)} {names(label)}" for factor, label in self.pair.context)
        return (f"{where}: " if where else "") + f"{names(self.pair.a)} - {names(self.pair.b)}"


@dataclass(frozen=True, repr=False)
class Advice(TextRenderable):
    """What would decide each undecided comparison.

    Attributes:
        present: The size there is.
        sizes: Two and four times that size.
        forecasts: What is predicted of each comparison.
        fresh: Whether no look is left, so that the sizes are those of a new study with fresh seeds.
        look: How many looks at the study there are, the next one included.
        pending: Trials that are still to run; nothing is predicted while there are any.
        omitted: Undecided comparisons with the largest p, of which nothing is predicted.
        sweep: Whether the replicates are those of a confirmation.
        names: Display names in place of declared ones.
    """

    present: Size
    sizes: tuple[Size, ...]
    forecasts: tuple[PowerForecast, ...]
    fresh: bool = False
    look: int = 1
    pending: int = 0
    omitted: int = 0
    sweep: bool = False
    names: DisplayNames = NONE  # what every format shows in place of declared names

    def __bool__(self) -> bool:
        return bool(self.forecasts)

    def __repr__(self) -> str:
        if self:
            count = len(self.forecasts) + self.omitted
            return f"Advice(on {count} undecided comparison{'s' * (count != 1)})"
        return f"Advice(none yet: {self.pending} trials are pending)" if self.pending else "Advice(none)"

    def _repr_html_(self) -> str | None:
        return self._rendered("html") if self else None

    def to_dict(self) -> dict[str, object]:
        """Return for programs the sizes, their price, and each comparison's detectable differences and chances."""
        return {
            "present": vars(self.present),
            "sizes": [vars(size) for size in self.sizes],
            "fresh": self.fresh,
            "look": self.look,
            "pending": self.pending,
            "omitted": self.omitted,
            "comparisons": [
                {
                    "context": dict(one.pair.context),
                    "a": one.pair.a,
                    "b": one.pair.b,
                    "difference": one.pair.comparison.difference,
                    "detectable": [_finite(value) for value in one.detectable],
                    "assurance": [_chance(prediction) for prediction in one.predictions],
                    "enough": [vars(size) | _chance(prediction) for size, prediction in one.enough],
                }
                for one in self.forecasts
            ],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each undecided comparison at each size.

        Returns:
            The factors of the comparison, a, b, the size with its price, detectable (the difference, in units of the
            metric), and assurance (the chance of a decision) with its range low to high.
        """
        return pd.DataFrame(
            [
                dict(one.pair.context)
                | {"a": one.pair.a, "b": one.pair.b, **vars(size), "detectable": detectable, **_chance(prediction)}
                for one in self.forecasts
                for size, detectable, prediction in zip(self.sizes, one.detectable[1:], one.predictions, strict=True)
            ]
        )


def advice(
    data: StudyData, answer: Answer, interim: InterimVerdicts | ExtensionVerdicts | None, hours: Hours | None = None
) -> Advice:
    """Return what would decide the comparisons of `answer` that are undecided.

    Of a study that is not at its end nothing is predicted: `pending` counts its trials that are to run.
    """
    document = data.document
    prices = Prices(data.planned, document.folds, data.trial_records.values(), hours)
    pending = sum(trial_id not in data.trial_records for trial_id in data.planned["trial_id"])
    known = [pair for pair in answer.pairs if pair.comparison.n > 1]
    unit: Unit = "repeats" if interim is not None and interim.unit == "repeats" else "seeds"
    fresh = interim is not None and interim.finished
    waiting = isinstance(interim, InterimVerdicts) and not interim.finished
    undecided = [pair for pair in known if not pair.decided and pair.comparison.evidence.common.standard_error > 0]
    if not known or pending or waiting or not undecided:
        return Advice(Size(unit, prices.present[unit], 0, None), (), (), fresh, pending=pending)
    family = known[0].comparison.family
    first_level = family.levels(sum(pair.decided for pair in known))
    look = 1 if fresh else 2 + (len(interim.log.looks) if isinstance(interim, ExtensionVerdicts) else 0)
    levels = tuple(
        first_level / 2 ** max(0, number - 1) for number in (look - 1, look)
    )  # halved, see `ExtensionVerdicts`
    shown = sorted(undecided, key=lambda pair: pair.comparison.raw_p)[:MAX_FORECASTS]
    count = prices.present[unit]
    units: list[Unit] = [unit]
    if document.folds and document.type == "ablation_grid" and not fresh:
        units = ["seeds", "repeats"]
    sizes = tuple(prices.of(unit, times * count, fresh) for times in TIMES)
    forecasts = tuple(_forecast(pair, sizes, units, levels, family.margin, prices, fresh) for pair in shown)
    sweep = document.type == "sweep"
    omitted = len(undecided) - len(shown)
    return Advice(
        Size(unit, count, 0, 0.0), sizes, tuple(o for o in forecasts if o.predictions), fresh, look, 0, omitted, sweep
    )


def _forecast(
    pair: Pair,
    sizes: Sequence[Size],
    units: Sequence[Unit],
    levels: Sequence[float],
    margin: float | None,
    prices: Prices,
    fresh: bool,
) -> PowerForecast:
    """`levels`: of the present look and of the next."""
    now: Contrast = pair.comparison.evidence.common
    present_level, level = levels

    def lost(unit: Unit) -> int:
        """Replicates that failed in either arm, and stay lost in a larger study."""
        return 0 if fresh else prices.present[unit] - count_of(now.design, unit)

    designs = [resized(now.design, size.unit, size.count - lost(size.unit)) for size in sizes]
    predictions = [predict(now, design, level, margin, fresh=fresh) for design in designs]
    reached = []
    for unit in units:
        if (one := enough(now, unit, level, margin, fresh=fresh)) is not None:
            reached.append((prices.of(unit, count_of(one.design, unit) + lost(unit), fresh), one))
    return PowerForecast(
        pair,
        (
            detectable_difference(now, now.design, present_level),
            *(detectable_difference(now, design, level) for design in designs),
        ),
        tuple(p for p in predictions if p is not None),
        tuple(sorted(reached, key=lambda entry: entry[0].trials)),
    )


def _chance(prediction: Prediction) -> dict[str, float]:
    return {"assurance": prediction.assurance, "low": prediction.low, "high": prediction.high}


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
