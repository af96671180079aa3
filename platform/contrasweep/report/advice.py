"""What would decide the comparisons that a study leaves undecided, as people read it."""

import math
import statistics
from collections.abc import Sequence

from contrasweep.planning.durations import duration
from contrasweep.report.data import Variables
from contrasweep.report.tables import wrapped
from contrasweep.results.advice import Advice, PowerForecast, Size
from contrasweep.statistics.predictive import MOST_TIMES, Prediction
from contrasweep.text_table import text_table

HEADING = "What would decide: the chance of a verdict"


def advice_text(advice: Advice, width: int) -> str:
    """Return a row for each undecided comparison, the price, and how the chances are meant; "" without comparisons."""
    if not advice:
        return ""
    table = text_table(advice_rows(advice), rule=True, width=width)
    lines = [wrapped(f"{HEADING} with {replicates(advice)}.", width), "", *table, ""]
    return "\n".join([*lines, *(wrapped(line, width) for line in advice_notes(advice))]) + "\n"


def advice_variables(advice: Advice | None) -> Variables:
    """Return what `sections/advice.html` shows."""
    if not advice:
        return {}
    return {"rows": advice_rows(advice), "what": replicates(advice), "notes": advice_notes(advice)}


def replicates(advice: Advice) -> str:
    """Say what the sizes are of: a larger study, or a new one."""
    return "fresh seeds alone, in a new study" if advice.fresh else f"more {advice.present.unit}"


def advice_rows(advice: Advice) -> list[list[str]]:
    """Return a head, a row for each undecided comparison (the first of many), the detectable difference and price."""
    every = (*advice.sizes, *advice.others)
    rest = [""] * len(advice.others)
    rows = [["", f"now: {advice.present.replicates}", *(size.replicates for size in every), "80% with"]]
    for one in advice.forecasts:
        chances = list(map(_chance, one.predictions)) or ["not known"] * len(advice.sizes)
        rows.append([one.title(advice.names), "undecided", *chances, *rest, _enough(one)])
    if advice.omitted:
        rows.append([f"and {advice.omitted} more", *[""] * (len(every) + 2)])
    widest = advice.forecasts[0].pair.comparison.widest or math.inf
    rows.append(
        ["detectable difference", *_medians("±{:.2g}", [one.detectable for one in advice.forecasts], widest), ""]
    )
    rows.append(["degrees of freedom", *_medians("{:.0f}", [one.degrees for one in advice.forecasts]), ""])
    rows.append(["price", "", *map(_price, every), ""])
    return rows


def advice_notes(advice: Advice) -> list[str]:
    """Return sentences on how the numbers are meant, and how to follow the advice."""
    lines = [
        "In brackets: the range for 80% of the plausible noise. Detectable: decided in 80% of studies"
        + (", in the median of these comparisons." if len(advice.forecasts) > 1 else ".")
    ]
    if any(one.as_estimated and math.isfinite(one.detectable[0]) for one in advice.forecasts):
        lines.append("~: for a difference and noise as estimated so far, which too few degrees of freedom make unsure.")
    if any(not one.enough and one.as_estimated is None for one in advice.forecasts):
        lines.append(f"–: undecided even with {MOST_TIMES} times as many replicates, in more than 20% of studies.")
    lines += _what_adds_degrees(advice)
    if advice.fresh:
        lines.append("No look at this study is left: declare a new study, with another name and fresh seeds.")
    else:
        field = "repeats" if advice.present.unit == "repeats" else "confirm_seeds" if advice.sweep else "seeds"
        share = f"at alpha / {2 ** (advice.look - 1)}; the chances allow for it"
        counted = f"the {ordinal(advice.look)} look at the table, {share}"
        counted = counted if advice.look > 1 else "the first look, as nothing was tested yet"
        lines.append(f"To follow it, add {field} and run with --extend. That is {counted}.")
    return lines


def _what_adds_degrees(advice: Advice) -> list[str]:
    """Return a sentence on whether seeds, repeats or folds make the noise known, where replicates are folds."""
    now = advice.forecasts[0].pair.comparison.evidence.common
    design, parts = now.design, now.components
    if not design.folds:
        return []
    other = " (another number of folds is a new study)" if any(size.unit == "folds" for size in advice.others) else ""
    ceiling = f"{now.n} folds leave at most {now.n - 1} degrees of freedom; more come from repeats or folds{other}"
    if now.seed_unknown:
        return [f"One seed leaves no degree of freedom for what a seed changes; a second seed gives one. {ceiling}."]
    if design.seeds == 1:
        return [
            "One seed a fold cannot show how much of the noise comes from training. More seeds reduce only that part; "
            f"here every share is taken as equally likely. A second seed tells. {ceiling}."
        ]
    if parts.seed / design.seeds > design.variance(parts) / 2:
        return [f"Most of the noise is between seeds, and each further seed adds a degree of freedom. {ceiling}."]
    if parts.fold * (1 / design.units + design.overlap) > design.variance(parts) / 2:
        return [f"Most of the noise is between folds, which more seeds do not reduce. {ceiling}."]
    return [f"Most of the noise is of single trainings, which seeds, repeats and folds all reduce. {ceiling}."]


def _chance(prediction: Prediction) -> str:
    return f"{prediction.assurance:.0%} [{100 * prediction.low:.0f}, {100 * prediction.high:.0f}]"


def _enough(one: PowerForecast) -> str:
    if one.as_estimated is not None and one.pair.comparison.evidence.common.seed_unknown:
        return f"a second seed tells ({_price(one.as_estimated)})"
    if one.as_estimated is not None:
        return f"~ {one.as_estimated.replicates} ({_price(one.as_estimated)})"
    return " or ".join(f"{size.replicates} ({_price(size)})" for size, _ in one.enough) or "–"


def _medians(form: str, rows: Sequence[Sequence[float]], most: float = math.inf) -> list[str]:
    """The median of each column, as text; "none" where it is more than can be."""
    found = [statistics.median_high(column) for column in zip(*rows, strict=True)]
    words = ["none" if most < value < math.inf else form.format(value) for value in found]
    return ["not known" if math.isinf(value) else word for value, word in zip(found, words, strict=True)]


def _price(size: Size) -> str:
    time = "" if size.hours is None else f", {duration(3600 * size.hours)}"
    return f"{size.trials} trials{time}"


def ordinal(n: int) -> str:
    """Return a number as text: `2nd`."""
    return f"{n}{'th' if 10 <= n % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
