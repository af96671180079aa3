"""What a Sweep's search tried, and which of the searched settings mattered."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from contrasweep.results.pareto import feasible
from contrasweep.schema import validate
from contrasweep.storage.records import DONE, Record
from contrasweep.study.space import Parameter, drawn_from
from contrasweep.tuning.pruners import scheduled

OWN_COLUMNS = ["trial_id", "arm", "value", "status"]


def settings(frame: pd.DataFrame) -> list[str]:
    """The searched settings among the columns of a `search_frame`."""
    return [str(column) for column in frame.columns if column not in OWN_COLUMNS]


def search_frame(found: Iterable[Record], facts: Mapping[str, Any]) -> pd.DataFrame:
    """One row a configuration in the order of asking: trial_id (of its first fold), arm, value (mean of the metric
    over its folds), status (the worst of its folds', or that it breaks a constraint), and the searched settings; of a
    schedule of settings, its last."""
    spaces = {name: validate(dict[str, Parameter], arm.get("space", {})) for name, arm in facts["spec"]["arms"].items()}
    ended: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(found, key=lambda r: (r.notes.get("number", 0), r.arm, r.fold or 0)):
        if record.notes.get("phase") == "search":
            ended.setdefault((record.arm, json.dumps(record.config, sort_keys=True)), []).append(record)
    rows = [
        {
            "trial_id": rs[0].trial_id,
            "arm": arm,
            "value": float(np.mean([r.metrics.get(facts["metric"], np.nan) for r in rs])),
            "status": next(
                (r.status for r in rs if r.status != DONE), DONE if feasible(rs, facts) else "breaks a constraint"
            ),
            **drawn_from(spaces.get(arm, {}), scheduled.last_settings(rs[0].config)),
        }
        for (arm, _), rs in ended.items()
    ]
    return pd.DataFrame(rows, columns=None if rows else OWN_COLUMNS)


def importance(frame: pd.DataFrame, facts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By arm: the share of each searched setting in what makes configurations good (PED-ANOVA), over those that
    were trained to their end."""
    from contrasweep.tuning.searchers import importance as of

    found = {}
    for arm, rows in frame[frame["status"] == DONE].groupby("arm", sort=False):
        space = validate(dict[str, Parameter], facts["spec"]["arms"][arm]["space"])
        configs = [
            (
                {str(k): v for k, v in row.items() if k in space and (isinstance(v, list | dict) or not pd.isna(v))},
                float(row["value"]),
            )
            for row in rows.to_dict("records")
        ]
        found[str(arm)] = of(configs, space, mode=facts["mode"])
    return found
