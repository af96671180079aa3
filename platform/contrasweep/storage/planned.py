"""The plan of a study beside its study.json, so that results are read without the study's code or data."""

import io
import json

import pandas as pd

from contrasweep.storage.records import StudyRecords

PLAN = "plan.parquet"


def write_planned(records: StudyRecords, frame: pd.DataFrame) -> None:
    """Keep the frame of a plan: one row a trial of the table, columns trial_id, arm, the axes, fold, seed."""
    axes = {axis: [json.dumps(value) for value in frame[axis]] for axis in frame.columns[2:-2]}
    frame = frame.assign(**axes)
    sink = io.BytesIO()
    frame.assign(fold=frame["fold"].astype("Int64")).to_parquet(sink, index=False)
    records.store.write(f"{records.study}/{PLAN}", sink.getvalue())


def read_planned(records: StudyRecords) -> pd.DataFrame:
    """What `write_planned` wrote."""
    frame = pd.read_parquet(io.BytesIO(records.store.read(f"{records.study}/{PLAN}")))
    for axis in frame.columns[2:-2]:
        frame[axis] = pd.Series([json.loads(text) for text in frame[axis]], index=frame.index)
    return frame
