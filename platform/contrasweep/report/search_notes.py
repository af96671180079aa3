"""What a Sweep's search cost beside its budget and, of several objectives or under constraints, the Pareto fronts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from contrasweep import canonical
from contrasweep.results.results import Results
from contrasweep.text_table import text_table
from contrasweep.tuning.pruners.scheduled import last_settings


@dataclass(frozen=True)
class SearchNotes:
    """`costs`: a line an arm; `front`: a head and the rows of the Pareto fronts, `title` what they are of."""

    costs: tuple[str, ...] = ()
    title: str = ""
    front: tuple[tuple[str, ...], ...] = ()

    def to_text(self, width: int | None = None) -> str:
        """For a terminal; empty for a study without a search."""
        lines = [line if line.startswith("schedule") else f"searched {line}" for line in self.costs]
        if self.front:
            lines += ["", self.title, "", *text_table(self.front, width=width)]
        return "\n".join(lines)


def search_notes(results: Results) -> SearchNotes:
    """What the records say of a Sweep's search."""
    costs = [f"{arm}: {cost}" for arm, cost in results.spent().items()]
    costs += [f"schedule of {text}" for text in _schedules(results)]
    frame = results.pareto()
    if frame.empty:
        return SearchNotes(tuple(costs))
    kept = frame[frame["front"]].drop(columns=["front", "feasible"])
    rows = [tuple(map(_text, row)) for row in kept.itertuples(index=False)]
    return SearchNotes(tuple(costs), _title(results, frame), (tuple(map(str, kept.columns)), *rows))


def _schedules(results: Results) -> list[str]:
    """What population based training came to: `toy: lr=0.1 from the start, lr=0.12 after step 2`."""
    configs = {
        record.arm: record.config
        for record in results.trial_records.values()
        if last_settings(record.config) is not record.config
    }
    spaces = {arm: results.document.space(arm) for arm in configs}
    parts = {
        arm: [
            (", ".join(f"{name}={canonical.dumps(settings[name])}" for name in spaces[arm]), step)
            for step, settings in config["schedule"]
        ]
        for arm, config in configs.items()
    }
    return [
        f"{arm}: " + "; ".join(f"{text} {f'after step {step}' if step else 'from the start'}" for text, step in steps)
        for arm, steps in parts.items()
    ]


def _title(results: Results, frame: pd.DataFrame) -> str:
    goals = ", ".join(f"{metric} ({mode})" for metric, mode in results.document.goals.items())
    bounds = " and ".join(f"{metric} {text}" for metric, text in results.document.constraints.items())
    return (
        f"Pareto front of the search over {goals}{f' with {bounds}' if bounds else ''}: {int(frame['front'].sum())} "
        f"of {len(frame)} "
        f"configurations, {int(frame['feasible'].sum())} feasible; each arm's best feasible {results.metric} is "
        f"confirmed"
    )


def _text(value: Any) -> str:
    """A short number; a list or mapping as JSON."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return canonical.dumps(value) if isinstance(value, list | dict) else str(value)
