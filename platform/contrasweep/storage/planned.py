"""The plan of a study, in plan.parquet beside its study.json, so that results are read without its code or data."""

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from contrasweep.errors import BrokenFileError
from contrasweep.rows import FrameRow
from contrasweep.storage.names import check_name
from contrasweep.storage.parquet_file import decode_table, encode_table, is_number, is_text
from contrasweep.storage.records import StudyRecords

if TYPE_CHECKING:
    import pandas as pd

PLAN = "plan.parquet"
_DIGEST_KEY = b"contrasweep.plan"
"""The key of the plan's digest in the metadata of the file."""
_COLUMNS = {"trial_id": is_text, "arm": is_text, "fold": is_number, "seed": is_number}
"""The columns of every plan beside its axes, each with a check of its type."""


def axes_of(planned: "pd.DataFrame") -> list[str]:
    """Return the names of the axes of a stored plan: its columns between `trial_id`, `arm` and `fold`, `seed`."""
    return list(planned.columns[2:-2])


def write_planned(records: StudyRecords, frame: "pd.DataFrame", plan_digest: str = "") -> None:
    """Write `frame`, the plan with this digest, to the study's plan.parquet.

    The frame has a row for each trial of the table, and the columns trial_id, arm, the axes, fold, seed, in this order.
    """
    # An axis may have values of any type: they are kept as JSON.
    frame = frame.assign(fold=frame["fold"].astype("Int64"))
    for axis in axes_of(frame):
        frame[axis] = [json.dumps(value) for value in frame[axis]]
    table = pa.Table.from_pandas(frame, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), _DIGEST_KEY: plan_digest}
    table = table.replace_schema_metadata(metadata)
    records.store.write(f"{records.study}/{PLAN}", encode_table(table))


def read_planned(records: StudyRecords) -> "pd.DataFrame":
    """Return the frame that `write_planned` was given, read from the storage.

    It has a row for each trial of the table: trial_id, arm, the axes, fold, seed. `BrokenFileError` where the file is
    broken or missing.
    """
    with _opened(records) as table:
        return _frame(table)


def planned_rows(records: StudyRecords) -> list[FrameRow]:
    """Return trial_id, arm, fold and seed of each trial of the stored plan, without pandas.

    [] where the plan is missing or broken.
    """
    try:
        with _opened(records) as table:
            rows: list[FrameRow] = table.select(list(_COLUMNS)).to_pylist()
            return rows
    except BrokenFileError:
        return []


def is_whole(records: StudyRecords, plan_digest: str, finished: Collection[str]) -> bool:
    """Return whether the stored plan is the one with this digest, and each of its trials is in `finished`.

    False for a plan with another digest, whose study may declare more trials now.
    """
    try:
        with _opened(records) as table:
            digest = (table.schema.metadata or {}).get(_DIGEST_KEY, b"").decode()
            return digest == plan_digest and set(_frame(table)["trial_id"]) <= set(finished)
    except BrokenFileError:  # or missing: the run writes it
        return False


@contextlib.contextmanager
def _opened(records: StudyRecords) -> Iterator[pa.Table]:
    """Yield the table of the stored plan in a `with` block; `BrokenFileError` where it is missing or broken.

    An error that the body raises because of a value in the table, such as `ValueError`, becomes a `BrokenFileError`
    too.
    """
    key = f"{records.study}/{PLAN}"
    file = f"{records.store.uri}/{key}"
    remedy = "the next `contrasweep run` of the study writes it again"
    try:
        yield decode_table(records.store.read(key), file, remedy, _COLUMNS, is_text)
    except FileNotFoundError:
        raise BrokenFileError(file, "it is missing", remedy) from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BrokenFileError(file, str(error), remedy) from None


def _frame(table: pa.Table) -> "pd.DataFrame":
    """Return the table of a stored plan as a frame: trial_id, arm, the axes, fold, seed.

    The values of axes have the types with which they were declared. `fold` has the type Int64, and is missing where a
    trial is tested on the test split. `ValueError` where the table is no plan.
    """
    import pandas as pd

    names = table.column_names
    # The first two and the last two columns are those of `_COLUMNS`; the axes lie between.
    if (*names[:2], *names[-2:]) != tuple(_COLUMNS):
        raise ValueError("its columns are not trial_id, arm, the axes, fold and seed")
    if any(table[name].null_count for name in names if name != "fold"):
        raise ValueError("a trial lacks its id, arm, seed or the value of an axis")
    ids = table["trial_id"].to_pylist()
    if len(set(ids)) < len(ids):
        raise ValueError("a trial stands in it twice")
    for text in {*ids, *table["arm"].unique().to_pylist()}:
        check_name(text)
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    # By the pandas type Int64 a missing fold stays missing; by default it would make the column one of floats.
    frame["fold"] = (
        table["fold"].cast(pa.int64()).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    )
    frame["seed"] = table["seed"].cast(pa.int64()).to_numpy()
    # An axis has few values and many rows: each text is parsed once.
    for axis in axes_of(frame):
        values = {text: json.loads(text) for text in table[axis].unique().to_pylist()}
        frame[axis] = axis_column([values[text] for text in table[axis].to_pylist()])
    return frame


def axis_column(values: Sequence[object]) -> "pd.Series[Any]":
    """Return the column of an axis with its values as they were declared.

    By itself pandas would make 1.0 of a 1 beside a .5, and NaN of a None beside numbers.
    """
    import pandas as pd

    return pd.Series(values, dtype=object if len(set(map(type, values))) > 1 else None)
