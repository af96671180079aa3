"""What a Sweep's search tried, and which of the searched settings mattered."""

import json
from collections.abc import Iterable

import numpy as np
import pandas as pd

from contrasweep.results.pareto import feasible
from contrasweep.schema import validate
from contrasweep.storage.record import Phase, Record, Status
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.space import Parameter, drawn_from
from contrasweep.tuning.pruners import scheduled

OWN_COLUMNS = ["trial_id", "arm", "value", "status"]
ENOUGH = 20
"""Configurations of which the best tenth are two: with fewer, that nothing stands out says nothing."""


def settings(frame: pd.DataFrame) -> list[str]:
    """The searched settings among the columns of a `search_frame`."""
    return [str(column) for column in frame.columns if column not in OWN_COLUMNS]


def search_frame(records: Iterable[Record], document: StudyDocument) -> pd.DataFrame:
    """One row a configuration in the order of asking: trial_id (of its first fold), arm, value (mean of the metric
    over its folds), status (the worst of its folds', or that it breaks a constraint), and the searched settings; of a
    schedule of settings, its last."""
    spaces = {arm: validate(dict[str, Parameter], document.space(arm)) for arm in document.arms}
    ended: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.notes.candidate or 0, r.arm, r.fold or 0)):
        if record.notes.phase == Phase.SEARCH:
            ended.setdefault((record.arm, json.dumps(record.config, sort_keys=True)), []).append(record)
    rows = [
        {
            "trial_id": rs[0].trial_id,
            "arm": arm,
            "value": float(np.mean([r.metrics.get(document.metric, np.nan) for r in rs])),
            "status": next(
                (r.status.value for r in rs if r.status != Status.DONE),
                Status.DONE.value if feasible(rs, document) else "breaks a constraint",
            ),
            **drawn_from(spaces.get(arm, {}), scheduled.last_settings(rs[0].config)),
        }
        for (arm, _), rs in ended.items()
    ]
    return pd.DataFrame(rows, columns=None if rows else OWN_COLUMNS)


def importance(frame: pd.DataFrame, document: StudyDocument) -> pd.DataFrame:
    """One row an arm and searched setting: arm, setting, share (of what tells the best tenth apart, PED-ANOVA), noise
    (the share that shuffled scores reach), configurations (that were trained to their end), and `verdict`: "matters",
    "no more than noise" or "too few configurations". Most important first; NaN where there is nothing to tell from."""
    from contrasweep.tuning.searchers import importance as of

    rows = []
    for arm in document.arms:
        whole = frame[(frame["arm"] == arm) & (frame["status"] == Status.DONE)]
        space = validate(dict[str, Parameter], document.space(arm))
        configs = [
            (
                {str(k): v for k, v in row.items() if k in space and (isinstance(v, list | dict) or not pd.isna(v))},
                float(row["value"]),
            )
            for row in whole.to_dict("records")
        ]
        seen = of(configs, space, mode=document.mode)
        for name in seen.shares or space:
            share, noise = seen.shares.get(name, np.nan), seen.noise.get(name, np.nan)
            verdict = _verdict(share > noise, seen.configurations)
            rows.append((arm, name, share, noise, seen.configurations, verdict))
    return pd.DataFrame(rows, columns=["arm", "setting", "share", "noise", "configurations", "verdict"])


def _verdict(above: bool, configurations: int) -> str:
    if above:
        return "matters"
    return "too few configurations" if configurations < ENOUGH else "no more than noise"
