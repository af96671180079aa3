"""What would decide the comparisons that a study leaves undecided, and what that costs."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from contrasweep.errors import plural
from contrasweep.planning.budget import covered
from contrasweep.planning.durations import duration
from contrasweep.results.answer import Answer, Pair
from contrasweep.results.interim_verdicts import ExtensionVerdicts, InterimVerdicts
from contrasweep.results.rendering import NONE, DisplayNames, render_fragment, wrapped
from contrasweep.statistics.comparison import LOOK, freedom
from contrasweep.statistics.design import Contrast
from contrasweep.statistics.predictive import (
    MOST_TIMES,
    Prediction,
    Unit,
    count_of,
    detectable_difference,
    enough,
    enough_as_estimated,
    predict,
    resized,
)
from contrasweep.storage.record import Record
from contrasweep.text_table import text_table

Hours = Callable[[Mapping[str, int]], float | None]
"""Wall hours of so many more trials of each arm; None where it is not known."""


@dataclass(frozen=True)
class Size:
    """A larger study: its number of replicates and what it costs beyond the present one.

    `count` is the number of seeds, repeats or folds (`unit`). `trials` are the additional trials (all of them for
    another number of folds, 0 where replicates are no trials). `hours` is their wall time (None: not known).
    """

    unit: Unit
    count: int
    trials: int
    hours: float | None

    @property
    def replicates(self) -> str:
        """The number of replicates in words: `10 seeds`, or `1 seed`."""
        return f"{self.count} {self.unit if self.count != 1 else self.unit[:-1]}"

    @property
    def price(self) -> str:
        """What the size costs, as text: `12 trials, 3 h`, the time only where it is known; "" for no trials."""
        if not self.trials:
            return ""
        return plural(self.trials, "trial") + (
            "" if self.hours is None else f", {duration(3600 * self.hours)}"
        )

    def __str__(self) -> str:
        return self.replicates + (f" ({self.price})" if self.trials else "")


class Prices:
    """Prices of larger studies, if each further replicate takes as many trials, of the same length, as those so far.

    Args:
        planned: The study's trials, a row each: arm, seed and fold.
        folds: Folds of one partition of the data; None without cross-validation. A repeat is one more partition, whose
            folds are counted on.
        records: The trials that have ended.
        hours: Gives the wall hours of further trials; None: they are taken from the records.

    Attributes:
        present: How many seeds, repeats and folds the study has.
        planned: Its trials by arm.
        trials: By unit (seeds or repeats) the trials by arm that one more of it takes.
    """

    def __init__(
        self,
        planned: pd.DataFrame,
        folds: int | None,
        records: Iterable[Record],
        hours: Hours | None,
    ) -> None:
        # Folds are counted on from repeat to repeat, so that their number gives that of repeats.
        seed = planned["seed"]
        fold = planned["fold"]
        repeats = 1 if folds is None else fold.nunique() // folds
        self.present: dict[Unit, int] = {
            "seeds": seed.nunique(),
            "repeats": max(1, repeats),
            "folds": folds or 1,
        }
        self.planned = planned["arm"].value_counts()
        # What one more seed costs is what the first seed has cost, which is that of the first row; and so for a repeat
        # of the folds.
        first = {
            "seeds": seed.isin(seed[:1]),
            "repeats": fold.isna() if folds is None else fold < folds,
        }
        self.trials = {unit: planned["arm"][rows].value_counts() for unit, rows in first.items()}
        done = [
            record for record in records if record.status.counts and record.ended > record.started
        ]
        self.hours = hours or _as_so_far(done)

    def of(self, unit: Unit, count: int, fresh: bool) -> Size:
        """Return the study with `count` seeds, repeats or folds (`unit`) and its price.

        With `fresh` it is a new study, all of whose replicates are paid.
        """
        # Other folds are another partition: all of its trials are new.
        if unit == "folds":
            added = {
                str(arm): int(n) * count // self.present["folds"] for arm, n in self.planned.items()
            }
        else:
            further = count if fresh else count - self.present[unit]
            added = {str(arm): further * int(n) for arm, n in self.trials[unit].items()}
        return Size(unit, count, sum(added.values()), self.hours(added))


def _as_so_far(done: Sequence[Record]) -> Hours:
    """Return a function that gives the hours of further trials by arm.

    Each takes the median time of its arm's trials so far, with as many at a time as there were.
    """
    spans = [(record.started, record.ended) for record in done]
    wall = covered(spans)
    # Seconds of all trials over the time in which any of them ran.
    at_once = max(1.0, sum(end - start for start, end in spans) / wall) if wall > 0 else 1.0
    arms = {record.arm for record in done}
    seconds = {
        arm: statistics.median(r.ended - r.started for r in done if r.arm == arm) for arm in arms
    }

    def hours(added: Mapping[str, int]) -> float | None:
        # Of an arm without an ended trial nobody knows how long one takes.
        if not set(added) <= set(seconds):
            return None
        return sum(n * seconds[arm] for arm, n in added.items()) / at_once / 3600

    return hours


TIMES = (2, 4)
"""The sizes that are proposed, in times the present one."""
MANY_FOLDS = 10
"""Folds of a study that is proposed in place of one with fewer."""
VAGUE = 0.9
"""A chance that may lie anywhere in a range of more than this is not known."""
MAX_FORECASTS = 12
"""Of more undecided comparisons those with the smallest p are looked into."""


@dataclass(frozen=True)
class PowerForecast:
    """What more replicates would do for one undecided comparison.

    Attributes:
        pair: The comparison.
        detectable: The difference that is decided with a chance of 80 %, in units of the metric: now, at each of the
            advice's `sizes`, and at each of its `others`.
        degrees: The degrees of freedom of the noise, of the same designs.
        chances: The chance of a decision at each of the `sizes`; empty where it is not known.
        enough: The sizes that reach a chance of 80 %, the cheapest first.
        enough_as_estimated: The cheapest size that would reach it if the noise is as estimated, where `enough` is
            empty; None where no size would.
    """

    pair: Pair
    detectable: tuple[float, ...]
    degrees: tuple[float, ...]
    chances: tuple[Prediction, ...]
    enough: tuple[tuple[Size, Prediction], ...]
    enough_as_estimated: Size | None = None

    def title(self, names: DisplayNames) -> str:
        """The two arms as a difference, behind their place in the table: `batch_size 32: ocl - scl`."""
        return f"{self.pair.place(names)}{names(self.pair.a)} - {names(self.pair.b)}"

    def sufficient(self) -> str:
        """Return the sizes that decide it with a chance of 80 %, with their price.

        Behind ~ stands a size that does so if the noise is as estimated; – says that none is known.
        """
        if self.enough_as_estimated is None:
            return " or ".join(map(str, (size for size, _ in self.enough))) or "–"
        # One seed on all folds: no size is known to decide, and only another seed tells what one changes.
        if self.pair.comparison.evidence.common.seed_unknown:
            return f"a second seed tells ({self.enough_as_estimated.price})"
        return f"~ {self.enough_as_estimated}"


@dataclass(frozen=True, repr=False)
class Advice:
    """What would decide each undecided comparison.

    Attributes:
        present: The size there is.
        sizes: Two and four times that size.
        others: Other sizes to weigh against them: twice the repeats of the folds, and more folds in a new study.
        forecasts: What is predicted of each comparison.
        fresh: Whether no look is left, so that the sizes are those of a new study with fresh seeds.
        look: How many looks at the study there are, the next one included.
        pending: Trials that are still to run; nothing is predicted while there are any.
        omitted: Undecided comparisons with the largest p, of which nothing is predicted.
        type: What the replicates are of: a grid, the confirmation of a sweep, or results made elsewhere.
        names: Display names in place of declared ones.
    """

    present: Size
    sizes: tuple[Size, ...]
    forecasts: tuple[PowerForecast, ...]
    fresh: bool = False
    look: int = 1
    pending: int = 0
    omitted: int = 0
    type: Literal["ablation_grid", "sweep", "judged"] = "ablation_grid"
    names: DisplayNames = NONE  # what every format shows in place of declared names
    others: tuple[Size, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.forecasts)

    def __repr__(self) -> str:
        if self:
            count = len(self.forecasts) + self.omitted
            return f"Advice(on {plural(count, 'undecided comparison')})"
        if self.pending:
            return f"Advice(none yet: {plural(self.pending, 'pending trial')})"
        return "Advice(none)"

    def _repr_html_(self) -> str | None:
        return render_fragment("sections/advice.html", advice=self) if self else None

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 100) -> str:
        """Return a row for each undecided comparison, the price, and how the chances are meant; "" without comparisons.

        Args:
            width: The columns of the terminal.

        Returns:
            The text.
        """
        if not self:
            return ""
        table = text_table(self.rows(), rule=True, width=width)
        heading = wrapped(
            f"What would decide: the chance of a verdict with {self.unit_text}.", width
        )
        return (
            "\n".join([heading, "", *table, "", *(wrapped(note, width) for note in self.notes())])
            + "\n"
        )

    @property
    def unit_text(self) -> str:
        """What the columns of the table are, in words: more seeds of this study, or a new study with fresh ones."""
        if self.fresh:
            return "fresh seeds alone, in a new study"
        return self._named(f"more {self.present.unit}")

    def _named(self, text: str) -> str:
        """A text on seeds as one on what the replicates are: items, tasks, runs."""
        return text.replace("seed", self.forecasts[0].pair.comparison.evidence.common.design.unit)

    def rows(self) -> list[list[str]]:
        """Return a head, a row for each undecided comparison (the first of many), the detectable difference and price.

        Returns:
            The rows, each with as many entries.
        """
        every = (*self.sizes, *self.others)
        empty_cells = ["not computed"] * len(self.others)
        head = [f"now: {self.present.replicates}", *(size.replicates for size in every)]
        rows = [["", *map(self._named, head), "80% with"]]
        for forecast in self.forecasts:
            chances = [
                f"{chance.assurance:.0%} [{100 * chance.low:.0f}, {100 * chance.high:.0f}]"
                for chance in forecast.chances
            ] or ["not known"] * len(self.sizes)
            rows.append(
                [
                    forecast.title(self.names),
                    "undecided",
                    *chances,
                    *empty_cells,
                    self._named(forecast.sufficient()),
                ]
            )
        if self.omitted:
            rows.append(
                [f"and {self.omitted} more", "undecided", *["not computed"] * (len(every) + 1)]
            )
        # One row for all comparisons: the median of theirs. No difference is larger than the metric's range, `widest`.
        widest = self.forecasts[0].pair.comparison.widest or math.inf
        detectable = [forecast.detectable for forecast in self.forecasts]
        rows.append(["detectable difference", *_medians("±{:.2g}", detectable, widest), "of any"])
        degrees = [forecast.degrees for forecast in self.forecasts]
        rows.append(["degrees of freedom", *_medians("{:.0f}", degrees), "of any"])
        # Replicates that are no trials (items, runs made elsewhere) have no price.
        prices = [["price", "paid", *(size.price for size in every), "of any"]]
        return rows + prices * any(size.trials for size in every)

    def notes(self) -> list[str]:
        """Return sentences on how the numbers are meant, and how to follow the advice."""
        forecasts = self.forecasts
        lines = [
            "In brackets: the range for 80% of the plausible noise. Detectable: decided in 80% of studies"
            + (", in the median of these comparisons." if len(forecasts) > 1 else ".")
        ]
        evidence = [forecast.pair.comparison.evidence for forecast in forecasts]
        if any(2 * max(len(e.collapsed_a), len(e.collapsed_b)) >= e.pairs for e in evidence):
            lines.insert(
                0,
                "Mend the training first: of an arm here half of the trials or more collapsed, and more replicates "
                "collapse too.",
            )
        if any(
            forecast.enough_as_estimated and math.isfinite(forecast.detectable[0])
            for forecast in forecasts
        ):
            lines.append(
                "~: for a difference and noise as estimated so far, which too few degrees of freedom make unsure."
            )
        if any(
            not forecast.enough and forecast.enough_as_estimated is None for forecast in forecasts
        ):
            lines.append(
                f"–: undecided even with {MOST_TIMES} times as many replicates, in more than 20% of studies."
            )
        if self.others:
            lines.append(
                f"Chances are computed for more {self.present.unit} alone; the rows below are of all sizes."
            )
        lines += _what_adds_degrees(self)

        # Last, how to follow the advice, and what a look at more replicates costs.
        if self.type == "judged":
            look = "Replicates that are added because of this table are a look at it: judge them at a quarter of alpha."
            return [*lines, look]
        if self.fresh:
            return [
                *lines,
                "No look at this study is left: declare a new study, with another name and fresh seeds.",
            ]
        if self.present.unit == "repeats":
            field = "repeats"
        elif self.type == "sweep":
            field = "confirm_seeds"
        else:
            field = "seeds"
        look = "the first look, as nothing was tested yet"
        if self.look > 1:
            share = f"at alpha / {LOOK ** (self.look - 1):g}; the chances allow for it"
            look = f"the {ordinal(self.look)} look at the table, {share}"
        return [*lines, f"To follow it, add {field} and run with --extend. That is {look}."]

    def to_dict(self) -> dict[str, object]:
        """Return for programs the sizes, their price, and each comparison's detectable differences and chances.

        They have the names and the order of the attributes; an infinite number is None.
        """
        return {
            "present": vars(self.present),
            "sizes": [vars(size) for size in self.sizes],
            "others": [vars(size) for size in self.others],
            "fresh": self.fresh,
            "look": self.look,
            "pending": self.pending,
            "omitted": self.omitted,
            "comparisons": [
                {
                    "context": dict(forecast.pair.context),
                    "a": forecast.pair.a,
                    "b": forecast.pair.b,
                    "difference": forecast.pair.comparison.difference,
                    "detectable": [_finite(value) for value in forecast.detectable],
                    "degrees": [_finite(value) for value in forecast.degrees],
                    "chances": [_chance(prediction) for prediction in forecast.chances],
                    "enough": [
                        vars(size) | _chance(prediction) for size, prediction in forecast.enough
                    ],
                    "enough_as_estimated": forecast.enough_as_estimated
                    and vars(forecast.enough_as_estimated),
                }
                for forecast in self.forecasts
            ],
        }


def _what_adds_degrees(advice: Advice) -> list[str]:
    """Return a sentence on whether seeds, repeats or folds make the noise known; none where replicates are no folds."""
    now = advice.forecasts[0].pair.comparison.evidence.common
    design = now.design
    parts = now.components
    if not design.folds:
        return []
    other = (
        " (another number of folds is a new study)"
        if any(size.unit == "folds" for size in advice.others)
        else ""
    )
    ceiling = (
        f"{now.n} folds leave at most {freedom(now.n - 1)}; more come from repeats or folds{other}"
    )
    if now.seed_unknown:
        return [
            f"One seed leaves no degree of freedom for what a seed changes; a second seed gives one. {ceiling}."
        ]
    if design.seeds == 1:
        return [
            "One seed a fold cannot show how much of the noise comes from training. More seeds reduce only that part; "
            f"here every share is taken as equally likely. A second seed tells. {ceiling}."
        ]
    # Which source has more than half of the variance of the mean difference (`Design.variance` has its terms).
    if parts.seed / design.seeds > design.variance(parts) / 2:
        return [
            f"Most of the noise is between seeds, and each further seed adds a degree of freedom. {ceiling}."
        ]
    if parts.fold * (1 / design.units + design.overlap) > design.variance(parts) / 2:
        return [f"Most of the noise is between folds, which more seeds do not reduce. {ceiling}."]
    return [
        f"Most of the noise is of single trainings, which seeds, repeats and folds all reduce. {ceiling}."
    ]


def _medians(form: str, rows: Sequence[Sequence[float]], most: float = math.inf) -> list[str]:
    """Return the median of each column of `rows`, as text by the format `form`.

    It is "not known" where it is infinite, and "none" where it is above `most`, more than can be.
    """
    medians = [statistics.median_high(column) for column in zip(*rows, strict=True)]
    words = ["none" if most < value < math.inf else form.format(value) for value in medians]
    return [
        "not known" if math.isinf(value) else word
        for value, word in zip(medians, words, strict=True)
    ]


def ordinal(n: int) -> str:
    """Return a number as text: `2nd`, and `12th`, as 10 to 20 all end alike."""
    return f"{n}{'th' if 10 <= n % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def advice(
    answer: Answer,
    prices: Prices,
    interim: InterimVerdicts | ExtensionVerdicts | None = None,
    *,
    pending: int = 0,
    type: Literal["ablation_grid", "sweep", "judged"] = "judged",
) -> Advice:
    """Return what would decide the comparisons of `answer` that are undecided; nothing where they are exploratory.

    Args:
        answer: The comparisons.
        prices: What larger studies cost.
        interim: The looks at the study so far, if it is one that grows or was extended.
        pending: How many of its trials are still to run. With any, nothing is predicted.
        type: What the replicates are of, as `Advice.type`.
    """
    # What is undecided because of its noise: without noise (all values equal) more replicates change nothing.
    judged_pairs = [
        pair for pair in answer.pairs if answer.decisive and pair.judged and pair.comparison.n > 1
    ]
    unit: Unit = "repeats" if interim is not None and interim.unit == "repeats" else "seeds"
    fresh = interim is not None and interim.finished
    waiting = isinstance(interim, InterimVerdicts) and not interim.finished
    undecided = [
        pair
        for pair in judged_pairs
        if not pair.decided and pair.comparison.evidence.common.standard_error > 0
    ]
    if not judged_pairs or pending or waiting or not undecided:
        return Advice(Size(unit, prices.present[unit], 0, None), (), (), fresh, pending=pending)

    # The levels of the present look, of the next one, and of a new study.
    family = judged_pairs[0].comparison.family
    first_level = family.levels(sum(pair.decided for pair in judged_pairs))
    tested = any(not pair.comparison.evidence.common.seed_unknown for pair in judged_pairs)
    # Each look at an extended study has a quarter of the level before; a new study begins with all of it.
    look = 1
    if not fresh:
        look += tested + (interim.looks if isinstance(interim, ExtensionVerdicts) else 0)
    levels = tuple(first_level / LOOK ** max(0, number - 1) for number in (look - 1, look, 1))
    nearest = sorted(undecided, key=lambda pair: pair.comparison.raw_p)[:MAX_FORECASTS]

    # The sizes: more of the study's unit; where folds are repeated or seeds added, more of either, or more folds.
    count = prices.present[unit]
    units: list[Unit] = [unit]
    if judged_pairs[0].comparison.evidence.common.design.folds and type != "sweep" and not fresh:
        units = ["seeds", "repeats"]
    sizes = tuple(prices.of(unit, times * count, fresh) for times in TIMES)
    others: list[Size] = []
    if len(units) > 1:
        others.append(prices.of("repeats", 2 * prices.present["repeats"], fresh))
        if prices.present["folds"] < MANY_FOLDS and interim is None:
            others.append(prices.of("folds", MANY_FOLDS, fresh))
    forecasts = [
        _forecast(pair, sizes, others, units, levels, family.margin, prices, fresh)
        for pair in nearest
    ]
    omitted = len(undecided) - len(nearest)
    return Advice(
        Size(unit, count, 0, 0.0),
        sizes,
        tuple(forecasts),
        fresh,
        look,
        0,
        omitted,
        type,
        others=tuple(others),
    )


def _forecast(
    pair: Pair,
    sizes: Sequence[Size],
    others: Sequence[Size],
    units: Sequence[Unit],
    levels: Sequence[float],
    margin: float | None,
    prices: Prices,
    fresh: bool,
) -> PowerForecast:
    """Return what larger studies would do for one comparison.

    `sizes` and `others` are those studies, `units` what may be added to reach a decision, and `levels` those of the
    present look, of the next one, and of a new study. `margin` is the smallest difference of interest; `fresh` as in
    `Advice`.
    """
    now: Contrast = pair.comparison.evidence.common
    present_level, level, new_level = levels
    # All folds have one seed, and nothing tells what another would change: no number of folds makes that known.
    if now.seed_unknown:
        # So many seeds leave one degree of freedom less, and never more than the folds do.
        unknown = [size.count if size.unit == "seeds" else 1 for size in (*sizes, *others)]
        degrees = (min(seeds, now.n) - 1.0 for seeds in (1, *unknown))
        return PowerForecast(
            pair,
            (math.inf,) * (1 + len(unknown)),
            tuple(degrees),
            (),
            (),
            prices.of("seeds", 2, fresh),
        )

    def lost(unit: Unit) -> int:
        """Replicates that failed in either arm, and stay lost in a larger study."""
        return 0 if fresh else prices.present[unit] - count_of(now.design, unit)

    # The larger studies, less the replicates that are lost for good.
    designs = [
        resized(now.design, size.unit, size.count - lost(size.unit)) for size in (*sizes, *others)
    ]
    predictions = [
        predict(now, design, level, margin, fresh=fresh) for design in designs[: len(sizes)]
    ]
    # A chance whose range over the plausible noise is wide tells nothing: then none is shown. Nor is one of a noise
    # that a single degree of freedom speaks of.
    sure = tuple(p for p in predictions if p is not None and p.high - p.low <= VAGUE)
    if round(now.degrees) < 2 or len(sure) < len(sizes):
        sure = ()
    reached = []
    estimated = []
    # How many replicates decide: by the predicted chance where that is known, else by the present estimate.
    for unit in units:
        if sure and (prediction := enough(now, unit, level, margin, fresh=fresh)) is not None:
            reached.append(
                (prices.of(unit, count_of(prediction.design, unit) + lost(unit), fresh), prediction)
            )
        elif (count := enough_as_estimated(now, unit, level, fresh=fresh)) is not None:
            estimated.append(prices.of(unit, count + lost(unit), fresh))
    return PowerForecast(
        pair,
        (
            detectable_difference(now, now.design, present_level),
            *(
                detectable_difference(now, design, new_level if size.unit == "folds" else level)
                for size, design in zip((*sizes, *others), designs, strict=True)
            ),
        ),
        (now.degrees, *(design.degrees(now.components) for design in designs)),
        sure,
        tuple(sorted(reached, key=lambda entry: entry[0].trials)),
        None if reached else min(estimated, key=lambda size: size.trials, default=None),
    )


def _chance(prediction: Prediction) -> dict[str, float]:
    """Return the chance of a decision with its range, without the design that it is of."""
    return {"assurance": prediction.assurance, "low": prediction.low, "high": prediction.high}


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
