"""What would decide the comparisons that a study leaves undecided, and what that costs."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import pandas as pd

from contrasweep.errors import duration, plural
from contrasweep.planning.budget import covered
from contrasweep.results.answer import Answer, Pair
from contrasweep.results.interim_verdicts import ExtensionVerdicts, InterimVerdicts
from contrasweep.results.rendering import NONE, DisplayNames, render_fragment, wrapped
from contrasweep.statistics.checks import finite_or_none
from contrasweep.statistics.comparison import freedom
from contrasweep.statistics.design import Contrast
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import LEVEL_DIVISOR
from contrasweep.statistics.predictive import (
    MOST_TIMES,
    Prediction,
    Unit,
    count_of,
    detectable_difference,
    predict,
    resized,
    smallest_count_as_estimated,
    smallest_sufficient_design,
)
from contrasweep.storage.record import Record
from contrasweep.text_table import text_table

Hours = Callable[[Mapping[str, int]], float | None]
"""A function from numbers of further trials, by arm, to their wall hours; None where these are not known."""


@dataclass(frozen=True)
class Size:
    """A larger study: its number of replicates and what it costs beyond the present one.

    `count` is the number of seeds or repeats (`unit`). `trials` is the number of additional trials; 0 where replicates
    are no trials. `hours` is their wall time; None where it is not known.
    """

    unit: Unit
    count: int
    trials: int
    hours: float | None

    @property
    def replicates(self) -> str:
        """The number of replicates in words: `10 seeds`, or `1 seed`."""
        return plural(self.count, self.unit.removesuffix("s"))

    @property
    def price(self) -> str:
        """What the size costs, as text: `12 trials, 3 h`, the time only where it is known; "" for no trials."""
        if not self.trials:
            return ""
        trials = plural(self.trials, "trial")
        return trials if self.hours is None else f"{trials}, {duration(3600 * self.hours)}"

    def __str__(self) -> str:
        return f"{self.replicates} ({self.price})" if self.trials else self.replicates


class Prices:
    """Prices of larger studies. A further replicate is taken to need as many trials as those so far, and as long ones.

    Args:
        planned: The study's trials, a row each: arm, seed and fold.
        folds: Folds of one partition of the data; None without cross-validation. A repeat is one more partition; its
            folds are numbered on from those of the repeat before.
        records: The trials that have ended.
        hours: The function that gives the wall hours of further trials; None: they are estimated from the records.

    Attributes:
        present: How many seeds and repeats the study has.
        trials: For seeds and for repeats, the number of trials by arm that one more seed or repeat takes.
        hours: The function that gives the wall hours of further trials.
    """

    def __init__(
        self,
        planned: pd.DataFrame,
        folds: int | None,
        records: Iterable[Record],
        hours: Hours | None,
    ) -> None:
        # Each repeat has folds of its own numbers, so that the number of all folds tells how many repeats there are.
        seed = planned["seed"]
        fold = planned["fold"]
        repeats = 1 if folds is None else fold.nunique() // folds
        self.present: dict[Unit, int] = {
            "seeds": seed.nunique(),
            "repeats": max(1, repeats),
        }
        # One more seed takes as many trials as the first seed, that of the first row; and one more repeat as many as
        # the first repeat.
        rows_of_first = {
            "seeds": seed.isin(seed[:1]),
            "repeats": fold.isna() if folds is None else fold < folds,
        }
        self.trials = {
            unit: planned["arm"][rows].value_counts() for unit, rows in rows_of_first.items()
        }
        done = [
            record for record in records if record.status.counts and record.ended > record.started
        ]
        self.hours = hours or _hours_by_records(done)

    def priced_size(self, unit: Unit, count: int, fresh: bool) -> Size:
        """Return the size of a study with `count` seeds or repeats (`unit`), with its price.

        With `fresh` it is a new study, and all of its trials are paid; else those beyond the present study.
        """
        further = count if fresh else count - self.present[unit]
        added = {str(arm): further * int(n) for arm, n in self.trials[unit].items()}
        return Size(unit, count, sum(added.values()), self.hours(added))


def _hours_by_records(done: Sequence[Record]) -> Hours:
    """Return the function that estimates the wall hours of further trials from the records `done`.

    Each further trial is taken to last as long as the median trial of its arm, with as many trials at a time as there
    were on average.
    """
    durations: dict[str, list[float]] = {}  # arm -> seconds of each of its trials
    for record in done:
        durations.setdefault(record.arm, []).append(record.ended - record.started)
    seconds = {arm: statistics.median(of_arm) for arm, of_arm in durations.items()}
    # How many trials ran at a time: the seconds of all trials over the seconds in which any of them ran.
    spans = [(record.started, record.ended) for record in done]
    wall_seconds = covered(spans)
    at_once = 1.0
    if wall_seconds > 0:
        at_once = max(1.0, sum(end - start for start, end in spans) / wall_seconds)

    def hours(added: Mapping[str, int]) -> float | None:
        """Return the wall hours of the trials `added`, arm -> number; None where an arm has no trial that has ended."""
        if not set(added) <= set(seconds):
            return None
        return sum(n * seconds[arm] for arm, n in added.items()) / at_once / 3600

    return hours


TIMES = (2, 4)
"""The sizes that are proposed, as multiples of the present one."""
VAGUE = 0.9
"""A chance that may lie anywhere in a range of more than this is not known."""
MAX_FORECASTS = 12
"""The most undecided comparisons that are forecast: those with the smallest p."""


class SufficientSize(NamedTuple):
    """A larger study that decides a comparison with a chance of 80 % or more, and the prediction that says so."""

    size: Size
    prediction: Prediction


@dataclass(frozen=True)
class PowerForecast:
    """What more replicates would do for one undecided comparison.

    Attributes:
        pair: The comparison.
        detectable: The difference that is decided with a chance of 80 %, in units of the metric: now, and at each of
            the advice's `sizes`.
        degrees: The degrees of freedom of the noise: now, and at each of the `sizes`.
        chances: The chance of a decision at each of the `sizes`; empty where it is not known.
        enough: The sizes that reach a chance of 80 %, the cheapest first.
        enough_as_estimated: Where `enough` is empty, the cheapest size that would reach 80 % if the noise is as
            estimated; None where no size would.
    """

    pair: Pair
    detectable: tuple[float, ...]
    degrees: tuple[float, ...]
    chances: tuple[Prediction, ...]
    enough: tuple[SufficientSize, ...]
    enough_as_estimated: Size | None

    def title(self, names: DisplayNames) -> str:
        """Return the two arms as a difference, behind the comparison's place in the table: `batch_size 32: ocl - scl`.

        `names` are the display names of arms, axes and values.
        """
        return f"{self.pair.place(names)}{names(self.pair.a)} - {names(self.pair.b)}"

    def sufficient(self) -> str:
        """Return, as text, the sizes that decide the comparison with a chance of 80 %, each with its price.

        A size behind ~ does so if the noise is as estimated. A dash says that no such size is known.
        """
        estimated = self.enough_as_estimated
        if estimated is None:
            return " or ".join(str(larger.size) for larger in self.enough) or "–"
        # With one seed on all folds no size is known to decide: only a second seed tells how much a seed changes.
        if self.pair.comparison.evidence.common.seed_unknown:
            price = f" ({estimated.price})" if estimated.price else ""
            return f"a second seed tells{price}"
        return f"~ {estimated}"


@dataclass(frozen=True, repr=False)
class Advice:
    """What would decide each undecided comparison.

    Attributes:
        present: The size of the study now.
        sizes: The sizes with two and four times the present replicates.
        forecasts: What is predicted of each comparison.
        fresh: Whether no look is left, so that the sizes are those of a new study with fresh seeds.
        look: The number of the next look at the study, from 1.
        pending: How many trials are still to run; nothing is predicted while there are any.
        omitted: How many undecided comparisons have no forecast: those with the largest p.
        type: Where the replicates come from: a grid, the confirmation of a sweep, or results made elsewhere.
        names: Display names in place of declared ones.
        price_of: The title of the row of prices. It says what the hours are computed from: the pace of the trials so
            far, or the hosts of a plan.
        replicate: What a replicate is, where it is no repeat and no fold: a seed, run, item, group or task.
    """

    present: Size
    sizes: tuple[Size, ...]
    forecasts: tuple[PowerForecast, ...]
    fresh: bool
    look: int = 1
    pending: int = 0
    omitted: int = 0
    type: Literal["ablation_grid", "sweep", "judged"] = "ablation_grid"
    names: DisplayNames = NONE  # what every format shows in place of declared names
    price_of: str = "price"
    replicate: str = "seed"

    def __bool__(self) -> bool:
        return bool(self.forecasts)

    def __repr__(self) -> str:
        count = plural(len(self.forecasts) + self.omitted, "undecided comparison")
        return f"Advice(on {count}, {plural(self.pending, 'pending trial')})"

    def _repr_html_(self) -> str | None:
        return render_fragment("sections/advice.html", advice=self) if self else None

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 100) -> str:
        """Return the table of `rows` and the sentences of `notes` below it; "" where nothing is undecided.

        Args:
            width: The columns of the terminal.

        Returns:
            The text.
        """
        if not self:
            return ""
        heading = f"What would decide: the chance of a verdict with {self.unit_text}."
        table = text_table(self.rows(), rule=True, width=width)
        notes = [wrapped(note, width) for note in self.notes()]
        return "\n".join([wrapped(heading, width), "", *table, "", *notes]) + "\n"

    @property
    def unit_text(self) -> str:
        """What the sizes in the table's columns have, in words: `more seeds`, or fresh seeds in a new study."""
        if self.fresh:
            return "fresh seeds alone, in a new study"
        return self._named(f"more {self.present.unit}")

    def _named(self, text: str) -> str:
        """Return `text` with the word "seed" replaced by what the replicates are, such as "item", "task" or "run"."""
        return text.replace("seed", self.replicate)

    def _document_of(self, size: Size) -> dict[str, object]:
        """Return the fields of a size by name, for JSON; its `unit` is named after the replicates, such as `items`."""
        return vars(size) | {"unit": self._named(size.unit)}

    def rows(self) -> list[list[str]]:
        """Return the table of the advice as text.

        Returns:
            The rows, all of one length: the head, a row for each forecast, one that counts the `omitted` comparisons
            (if any), the detectable difference, the degrees of freedom, and the price (if there is one).
        """
        head = [f"now: {self.present.replicates}", *(size.replicates for size in self.sizes)]
        rows = [["", *map(self._named, head), "80% with"]]
        # A row for each comparison: its chance of a decision at each size, and the sizes that are enough.
        for forecast in self.forecasts:
            chances = ["not known"] * len(self.sizes)
            if forecast.chances:
                chances = [
                    f"{chance.assurance:.0%} [{100 * chance.low:.0f}, {100 * chance.high:.0f}]"
                    for chance in forecast.chances
                ]
            title = forecast.title(self.names)
            rows.append([title, "undecided", *chances, self._named(forecast.sufficient())])
        if self.omitted:
            not_computed = ["not computed"] * (len(self.sizes) + 1)
            rows.append([f"and {self.omitted} more", "undecided", *not_computed])
        # Two rows have medians over all comparisons. No difference is larger than the metric's range, `widest`.
        widest = self.forecasts[0].pair.comparison.widest or math.inf
        differences = [forecast.detectable for forecast in self.forecasts]
        degrees = [forecast.degrees for forecast in self.forecasts]
        rows += [
            ["detectable difference", *_medians("±{:.2g}", differences, widest), "at each size"],
            ["degrees of freedom", *_medians("{:.0f}", degrees), "at each size"],
        ]
        # Replicates that are no trials (items, runs made elsewhere) have no price.
        if any(size.trials for size in self.sizes):
            prices = [size.price for size in self.sizes]
            rows.append([self.price_of, "paid", *prices, "at each size"])
        return rows

    def notes(self) -> list[str]:
        """Return sentences for below the table: what its numbers and signs mean, and how to follow the advice."""
        # A warning where trainings collapse stands first.
        forecasts = self.forecasts
        evidence_of_all = [forecast.pair.comparison.evidence for forecast in forecasts]
        lines = []
        if any(map(_collapses, evidence_of_all)):
            lines.append(
                "Mend the training first: of an arm here half of the replicates or more have a trial that "
                "collapsed, and more replicates have them too."
            )
        # What brackets and detectable differences mean.
        median = ", in the median of these comparisons" if len(forecasts) > 1 else ""
        lines.append(
            "In brackets: the range for 80% of the plausible noise. Detectable: decided in 80% of studies"
            f"{median}."
        )
        if any(evidence.a_loses or evidence.b_loses for evidence in evidence_of_all):
            lines.append(
                "Trials that failed count as losses where a verdict depends on them, and as many of further ones."
            )
        # The signs ~ and – of the last column, where they occur. With an infinite detectable difference nothing is
        # known of the noise, and the column says so without a ~.
        with_tilde = [
            forecast
            for forecast in forecasts
            if forecast.enough_as_estimated and math.isfinite(forecast.detectable[0])
        ]
        if with_tilde:
            lines.append(
                "~: for a difference and noise as estimated so far, which too few degrees of freedom make unsure."
            )
        if any(forecast.sufficient() == "–" for forecast in forecasts):
            lines.append(
                f"–: undecided even with {MOST_TIMES} times as many replicates, in more than 20% of studies."
            )
        return [*lines, *_what_adds_degrees(self), self._how_to_follow()]

    def _how_to_follow(self) -> str:
        """Return a sentence on how to follow the advice, and on what a look at more replicates costs."""
        if self.type == "judged":
            return "Replicates that are added because of this table are a look at it: judge them at a quarter of alpha."
        if self.fresh:  # only a new study can decide
            return "No look at this study is left: declare a new study, with another name and fresh seeds."
        sizes = []  # that would be enough for a comparison
        for forecast in self.forecasts:
            sizes += [sufficient.size for sufficient in forecast.enough]
            if forecast.enough_as_estimated:
                sizes.append(forecast.enough_as_estimated)
        # The field of the study that is made larger.
        if self.present.unit == "repeats" or {size.unit for size in sizes} == {"repeats"}:
            field = "repeats"
        elif self.type == "sweep":
            field = "confirm_seeds"
        else:
            field = "seeds"
        look = "the first look, as nothing was tested yet"
        if self.look > 1:  # each further look tests at a smaller level
            share = f"at alpha / {LEVEL_DIVISOR ** (self.look - 1):g}; chances and detectable differences allow for it"
            look = f"the {ordinal(self.look)} look at the table, {share}"
        # Where no size is enough, there is nothing to follow.
        if sizes:
            return f"To follow it, add {field} and run with --extend. That is {look}."
        return f"More {field}, added with --extend, would be {look}."

    def to_dict(self) -> dict[str, object]:
        """Return the advice for JSON: the sizes with their price, and what is predicted of each comparison.

        Entries have the names of the attributes. But `forecasts` are called `comparisons`, and `type` and `names` are
        left out. An infinite number is None. `enough_as_estimated` is None where the forecast has no such size.
        """
        return {
            "present": self._document_of(self.present),
            "sizes": list(map(self._document_of, self.sizes)),
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
                    "detectable": list(map(finite_or_none, forecast.detectable)),
                    "degrees": list(map(finite_or_none, forecast.degrees)),
                    "chances": [_chance(prediction) for prediction in forecast.chances],
                    "enough": [
                        self._document_of(size) | _chance(prediction)
                        for size, prediction in forecast.enough
                    ],
                    "enough_as_estimated": forecast.enough_as_estimated
                    and self._document_of(forecast.enough_as_estimated),
                }
                for forecast in self.forecasts
            ],
        }


def _what_adds_degrees(advice: Advice) -> list[str]:
    """Return a sentence on where most of the noise comes from, and on what adds degrees of freedom.

    These are seeds, repeats or folds. The list is empty for a study without folds.
    """
    now = advice.forecasts[0].pair.comparison.evidence.common
    design = now.design
    components = now.components
    if not design.folds:
        return []
    # n folds leave at most n - 1 degrees of freedom, however many seeds there are. Where there are clearly fewer, it is
    # the few seeds that limit them now.
    ceiling = f"{now.n} folds leave at most {freedom(now.n - 1)}; "
    if now.degrees < now.n - 1.5:
        ceiling += "repeats or folds alone add none, as the few seeds are what is least known"
    else:
        ceiling += "more come from repeats or folds (another number of folds is a new study)"
    # Whether seeds or folds have more than half of the variance of the mean difference; these are the terms of
    # `Design.variance`.
    half = design.variance(components) / 2
    of_seeds = components.seed / design.seeds
    of_folds = components.fold * (1 / design.replicates + design.overlap)
    # The folds may share the draws of their one seed, so that the noise between seeds is not in the data at all.
    if now.seed_unknown:
        source = (
            "One seed leaves no degree of freedom for what a seed changes; a second seed gives one"
        )
    # Each fold draws anew, or an earlier study tells the noise between seeds. The noise of training is in the data, but
    # one seed per fold does not tell it from that of the folds.
    elif design.seeds == 1:
        source = (
            "One seed per fold cannot show how much of the noise comes from training. More seeds reduce only that "
            "part; here every share is taken as equally likely. A second seed tells"
        )
    elif of_seeds > half:
        source = "Most of the noise is between seeds, which more seeds reduce"
    elif of_folds > half:
        source = "Most of the noise is between folds, which more seeds do not reduce"
    else:
        source = (
            "Most of the noise is of single trainings, which seeds, repeats and folds all reduce"
        )
    return [f"{source}. {ceiling}."]


def _collapses(evidence: Evidence) -> bool:
    """Whether half of the replicates of either arm, or more, have a trial that collapsed."""
    # One collapsed cell spoils a replicate, whose value is the mean over the cells. With folds `n` counts the folds,
    # each of which has one replicate for every seed.
    design = evidence.common.design
    replicates = evidence.common.n
    if design.folds:
        replicates *= design.seeds
    return 2 * max(len(evidence.collapsed_a), len(evidence.collapsed_b)) >= replicates


def _medians(form: str, rows: Sequence[Sequence[float]], most: float = math.inf) -> list[str]:
    """Return the median of each column of `rows`, as text by the format `form`, such as "{:.0f}".

    An infinite median is "not known". One above `most`, the largest possible value, is "none".
    """
    texts = []
    for column in zip(*rows, strict=True):
        # The larger middle one of an even number of values, so that the text is the value of some comparison.
        median = statistics.median_high(column)
        if math.isinf(median):
            texts.append("not known")
        else:
            texts.append("none" if median > most else form.format(median))
    return texts


def ordinal(n: int) -> str:
    """Return a number as an English ordinal: `2nd`, or `12th`."""
    # 10 to 20 all end in th.
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def _next_look(
    judged_pairs: Sequence[Pair], interim: InterimVerdicts | ExtensionVerdicts | None, fresh: bool
) -> int:
    """Return the number of the next look at the study, from 1.

    The present table counts as a look where any of `judged_pairs`, the comparisons that have a verdict or could have
    one, was tested. So do the earlier looks of a study that was extended (`interim`). With `fresh` no look is left at
    this study, and the next one is the first look at a new study.
    """
    if fresh:
        return 1
    # The present table is a look if any comparison had a test. None is tested while nobody knows what a seed changes.
    present = any(not pair.comparison.evidence.common.seed_unknown for pair in judged_pairs)
    earlier = interim.looks if isinstance(interim, ExtensionVerdicts) else 0
    return earlier + present + 1


def advice(
    answer: Answer,
    prices: Prices,
    interim: InterimVerdicts | ExtensionVerdicts | None = None,
    *,
    pending: int = 0,
    type: Literal["ablation_grid", "sweep", "judged"] = "judged",
) -> Advice:
    """Return what would decide the undecided comparisons of `answer`; an empty advice where they are exploratory.

    Args:
        answer: The comparisons.
        prices: What larger studies cost.
        interim: The looks at the study so far, if the study grows or was extended.
        pending: How many of the study's trials are still to run. With any, nothing is predicted.
        type: Where the replicates come from, as `Advice.type`.

    Returns:
        The advice. It is empty too where trials are still to run, and where a growing study has looks to come.
    """
    # The comparisons that have a verdict or could have one.
    judged_pairs = []
    if answer.decisive:
        judged_pairs = [pair for pair in answer.pairs if pair.has_verdict and pair.comparison.n > 1]
    # Pairs that noise leaves undecided: where all values are equal, more replicates change nothing.
    undecided = [
        pair
        for pair in judged_pairs
        if not pair.decided and pair.comparison.evidence.common.standard_error > 0
    ]
    replicate = answer.pairs[0].comparison.evidence.common.design.unit if answer.pairs else "seed"
    unit: Unit = "repeats" if interim is not None and interim.unit == "repeats" else "seeds"
    count = prices.present[unit]
    fresh = interim is not None and interim.finished
    # Nothing is predicted while trials are to run, or while a growing study has looks to come, which decide themselves.
    waiting = isinstance(interim, InterimVerdicts) and not interim.finished
    if pending or waiting or not undecided:
        present = Size(unit, count, 0, None)
        return Advice(present, (), (), fresh, pending=pending, replicate=replicate)

    # The level of the present look and of the next one. The first look has the whole level of the family's step, each
    # later one a part of it. Before the first look the present level is the whole one too.
    look = _next_look(judged_pairs, interim, fresh)
    family = judged_pairs[0].comparison.family
    whole_level = family.level_after(sum(pair.decided for pair in judged_pairs))
    level_now = whole_level / LEVEL_DIVISOR ** max(0, look - 2)
    level = whole_level / LEVEL_DIVISOR ** (look - 1)

    # The sizes: more seeds or repeats, as the study has them. A grid over folds may have more of either.
    units: list[Unit] = [unit]
    if judged_pairs[0].comparison.evidence.common.design.folds and type != "sweep" and not fresh:
        units = ["seeds", "repeats"]
    sizes = tuple(prices.priced_size(unit, times * count, fresh) for times in TIMES)
    # The comparisons with the smallest p are forecast, and the rest counted.
    nearest = sorted(undecided, key=lambda pair: pair.comparison.raw_p)[:MAX_FORECASTS]
    forecasts = [_forecast(pair, sizes, units, level_now, level, prices, fresh) for pair in nearest]
    return Advice(
        Size(unit, count, 0, 0.0),
        sizes,
        tuple(forecasts),
        fresh,
        look,
        omitted=len(undecided) - len(nearest),
        type=type,
        replicate=replicate,
    )


def _forecast(
    pair: Pair,
    sizes: Sequence[Size],
    units: Sequence[Unit],
    level_now: float,
    level: float,
    prices: Prices,
    fresh: bool,
) -> PowerForecast:
    """Return what larger studies would do for the comparison `pair`.

    `sizes` are the larger studies of the table. `units` (seeds, repeats) may be added to reach a decision, and `prices`
    says what that costs. `level_now` is the level of the present look, and `level` that of the next one. With `fresh`
    the larger studies are new ones, with new seeds only.
    """
    margin = pair.comparison.family.margin
    # A verdict must stand with failures as losses. Where these put the other arm ahead, no size gives a direction.
    evidence = pair.comparison.evidence
    now: Contrast = evidence.strictest(level, pair.comparison.mode)
    if now.difference * evidence.common.difference < 0:
        now = replace(now, difference=0.0)
    # All folds have one seed, and nothing tells what another would change: no number of folds makes that known.
    if now.seed_unknown:
        # n seeds leave n - 1 degrees of freedom, and never more than the folds leave. Now there is one seed, and so
        # there is after more repeats.
        seeds = [1, *(size.count if size.unit == "seeds" else 1 for size in sizes)]
        return PowerForecast(
            pair,
            detectable=(math.inf,) * len(seeds),
            degrees=tuple(min(n, now.n) - 1.0 for n in seeds),
            chances=(),
            enough=(),
            enough_as_estimated=prices.priced_size("seeds", 2, fresh),
        )

    def lost(unit: Unit) -> int:
        """Return how many of the study's seeds or repeats (`unit`) the comparison lacks, as either arm failed in them.

        They stay lost when the study grows; a new study has none.
        """
        return 0 if fresh else prices.present[unit] - count_of(now.design, unit)

    # The chance of a decision in each larger study, without the replicates that are lost for good.
    designs = [resized(now.design, size.unit, size.count - lost(size.unit)) for size in sizes]
    predictions = [predict(now, design, level, margin, fresh=fresh) for design in designs]
    # No chance is shown where any has a wide range over the plausible noise, as it tells nothing, or where the noise
    # is known by a single degree of freedom.
    precise = [chance for chance in predictions if chance and chance.high - chance.low <= VAGUE]
    chances_known = len(precise) == len(sizes) and round(now.degrees) >= 2
    # How many replicates decide: by the predicted chance where that is known, else by the present estimate.
    enough = []
    estimated = []
    for unit in units:
        prediction = None
        if chances_known:
            prediction = smallest_sufficient_design(now, unit, level, margin, fresh=fresh)
        if prediction is not None:
            needed = count_of(prediction.design, unit) + lost(unit)
            enough.append(SufficientSize(prices.priced_size(unit, needed, fresh), prediction))
            continue
        count = smallest_count_as_estimated(now, unit, level, fresh=fresh)
        if count is not None:
            estimated.append(prices.priced_size(unit, count + lost(unit), fresh))
    cheapest = None
    if estimated and not enough:
        cheapest = min(estimated, key=lambda size: size.trials)
    return PowerForecast(
        pair,
        (
            detectable_difference(now, now.design, level_now),
            *(detectable_difference(now, design, level) for design in designs),
        ),
        (now.degrees, *(design.degrees(now.components) for design in designs)),
        chances=tuple(precise) if chances_known else (),
        enough=tuple(sorted(enough, key=lambda larger: larger.size.trials)),
        enough_as_estimated=cheapest,
    )


def _chance(prediction: Prediction) -> dict[str, float]:
    """Return a prediction for JSON: the chance of a decision and the range of that chance, without the design."""
    return {"assurance": prediction.assurance, "low": prediction.low, "high": prediction.high}
