"""The plan of a study beside its study.json, so that results are read without the study's code or data."""

import io
import json
from typing import TYPE_CHECKING

import pandas as pd

from contrasweep.storage.records import StudyRecords

if TYPE_CHECKING:
    from contrasweep.planning.grid import Plan
    from contrasweep.planning.sweep import SweepPlan

PLAN = "plan.parquet"


def write_planned(records: StudyRecords, plan: "Plan | SweepPlan") -> None:
    """Keep the plan's frame: one row a trial of the table."""
    frame = plan.to_frame()
    for axis in plan.study.axis_names:
        frame[axis] = [json.dumps(value) for value in frame[axis]]
    sink = io.BytesIO()
    frame.assign(fold=frame["fold"].astype("Int64")).to_parquet(sink, index=False)
    records.store.write(f"{records.study}/{PLAN}", sink.getvalue())


def read_planned(records: StudyRecords) -> pd.DataFrame:
    """What `write_planned` wrote."""
    frame = pd.read_parquet(io.BytesIO(records.store.read(f"{records.study}/{PLAN}")))
    for axis in frame.columns[2:-2]:
        frame[axis] = pd.Series([json.loads(text) for text in frame[axis]], index=frame.index)
    return frame
