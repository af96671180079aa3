"""What would decide the comparisons that a study leaves undecided, as people read it."""

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
    rows = [["", f"now: {advice.present.replicates}", *(size.replicates for size in advice.sizes), "80% with"]]
    for one in advice.forecasts:
        rows.append([one.title(advice.names), "undecided", *map(_chance, one.predictions), _enough(one)])
    if advice.omitted:
        rows.append([f"and {advice.omitted} more", *[""] * (len(advice.sizes) + 2)])
    rows.append(["detectable difference", *_detectable(advice.forecasts), ""])
    rows.append(["price", "", *map(_price, advice.sizes), ""])
    return rows


def advice_notes(advice: Advice) -> list[str]:
    """Return sentences on how the numbers are meant, and how to follow the advice."""
    lines = [
        "In brackets: the range for 80% of the plausible noise. Detectable: decided in 80% of studies"
        + (", in the median of these comparisons." if len(advice.forecasts) > 1 else ".")
    ]
    if any(not one.enough for one in advice.forecasts):
        lines.append(f"–: undecided even with {MOST_TIMES} times as many replicates, in more than 20% of studies.")
    now = advice.forecasts[0].pair.comparison.evidence.common.design
    if now.folds and now.seeds == 1:
        lines.append(
            "One seed a fold cannot show how much of the noise comes from training. More seeds reduce only that part; "
            "here every share is taken as equally likely. A second seed tells."
        )
    if advice.fresh:
        lines.append("No look at this study is left: declare a new study, with another name and fresh seeds.")
    else:
        field = "repeats" if advice.present.unit == "repeats" else "confirm_seeds" if advice.sweep else "seeds"
        lines.append(
            f"To follow it, add {field} and run with --extend. That is the {ordinal(advice.look)} look at the table, "
            f"at alpha / {2 ** (advice.look - 1)}; the chances allow for it."
        )
    return lines


def _chance(prediction: Prediction) -> str:
    return f"{prediction.assurance:.0%} [{100 * prediction.low:.0f}, {100 * prediction.high:.0f}]"


def _enough(one: PowerForecast) -> str:
    return " or ".join(f"{size.replicates} ({_price(size)})" for size, _ in one.enough) or "–"


def _detectable(forecasts: Sequence[PowerForecast]) -> list[str]:
    columns = zip(*(one.detectable for one in forecasts), strict=True)
    return [f"±{statistics.median_high(column):.2g}" for column in columns]


def _price(size: Size) -> str:
    time = "" if size.hours is None else f", {duration(3600 * size.hours)}"
    return f"{size.trials} trials{time}"


def ordinal(n: int) -> str:
    """Return a number as text: `2nd`."""
    return f"{n}{'th' if 10 <= n % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
