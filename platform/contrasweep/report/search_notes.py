"""What a Sweep's search cost beside its budget and, of several objectives or under constraints, the Pareto fronts."""

from html import escape

import numpy as np
import pandas as pd

from contrasweep import canonical
from contrasweep.results.pareto import goals_of
from contrasweep.results.results import Results
from contrasweep.tuning.pruners.scheduled import last_settings


def notes_text(results: Results) -> str:
    """For a terminal; empty for a study without a search."""
    frame = results.pareto()
    lines = [f"searched {arm}: {cost}" for arm, cost in results.spent().items()] + [
        f"schedule of {text}" for text in _schedules(results)
    ]
    if len(frame):
        lines += ["", _title(results, frame), "", _front(frame).to_string(index=False)]
    return "\n".join(lines)


def notes_html(results: Results) -> str:
    """For the HTML report."""
    frame = results.pareto()
    costs = [f"{arm}: {cost}" for arm, cost in results.spent().items()] + [
        f"schedule of {text}" for text in _schedules(results)
    ]
    items = "".join(f"<li>{escape(line)}</li>" for line in costs)
    front = (
        f'<h3>Pareto fronts</h3><p class="soft">{escape(_title(results, frame))}.</p><div class="wide">'
        if len(frame)
        else ""
    )
    table = f"{_front(frame).to_html(index=False, border=0, classes='plain')}</div>" if len(frame) else ""
    return (f'<h3>What it cost</h3><ul class="cs-notes">{items}</ul>' if items else "") + front + table


def _schedules(results: Results) -> list[str]:
    """What population based training found: `toy: lr=0.1 from the start, lr=0.12 after step 2`."""
    found = {
        record.arm: record.config
        for record in results.found.values()
        if last_settings(record.config) is not record.config
    }
    spaces = {arm: results.facts["spec"]["arms"][arm]["space"] for arm in found}
    said = {
        arm: [
            (", ".join(f"{name}={canonical.dumps(settings[name])}" for name in spaces[arm]), step)
            for step, settings in config["schedule"]
        ]
        for arm, config in found.items()
    }
    return [
        f"{arm}: " + "; ".join(f"{text} {f'after step {step}' if step else 'from the start'}" for text, step in parts)
        for arm, parts in said.items()
    ]


def _title(results: Results, frame: pd.DataFrame) -> str:
    goals = ", ".join(f"{metric} ({mode})" for metric, mode in goals_of(results.facts).items())
    bounds = " and ".join(
        f"{metric} {text}" for metric, text in (results.facts["spec"].get("constraints") or {}).items()
    )
    return (
        f"Pareto front of the search over {goals}{f' with {bounds}' if bounds else ''}: {int(frame['front'].sum())} "
        f"of {len(frame)} "
        f"configurations, {int(frame['feasible'].sum())} feasible; each arm's best feasible {results.metric} is "
        f"confirmed"
    )


def _front(frame: pd.DataFrame) -> pd.DataFrame:
    """The front's rows with short numbers; lists and mappings as text."""
    kept = frame[frame["front"]].drop(columns=["front", "feasible"])
    return kept.map(
        lambda v: (
            ("" if np.isnan(v) else f"{v:.4g}")
            if isinstance(v, float)
            else canonical.dumps(v)
            if isinstance(v, list | dict)
            else v
        )
    )
