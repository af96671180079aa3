"""A table of runs as a frame: from a file, a folder, an MLflow experiment, or as it is handed over.

Nothing in a source is executed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.judging.sources import read_folder

MOST_BYTES = 2**31
"""No larger file is read."""


def _delimited(path: Path, separator: str) -> pd.DataFrame:
    return pd.read_csv(path, sep=separator, compression=None, skipinitialspace=True)


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda path: _delimited(path, ","),
    ".tsv": lambda path: _delimited(path, "\t"),
    ".jsonl": lambda path: pd.read_json(path, lines=True, compression=None),
    ".parquet": pd.read_parquet,
}
"""By the end of a file's name, what reads it."""


def read_table(source: "str | Path | pd.DataFrame") -> tuple[str, pd.DataFrame]:
    """Return the name and the rows of a source.

    Raises:
        SpecError: For a file that is not there, of another kind, broken or empty.
    """
    if isinstance(source, pd.DataFrame):
        return "results", _checked(source, "frame")
    path = Path(source)
    place = str(source)
    if path.is_dir():
        return path.resolve().name, _checked(read_folder(path), place)
    kind, _, rest = place.partition(":")
    if kind == "mlflow":
        address, _, experiment = rest.rpartition(":")
        from contrasweep.tracking.mlflow.experiment import runs_of

        return experiment, _checked(pd.DataFrame(runs_of(address, experiment)), place)
    if not path.is_file():
        raise SpecError(
            "there is no such file", place="SOURCE", value=place, hint="a file, a folder, or mlflow:ADDRESS:EXPERIMENT"
        )
    if path.suffix.lower() not in READERS:
        known = ", ".join(READERS)
        raise SpecError("what reads such a file is not known", place="SOURCE", value=path.name, hint=f"known: {known}")
    if path.stat().st_size > MOST_BYTES:
        raise SpecError("a file of results has up to 2 GiB", place="SOURCE", value=place)
    with errors_named("the file cannot be read as a table", place):
        frame = READERS[path.suffix.lower()](path)
    return path.stem, _checked(frame, place)


def _checked(frame: pd.DataFrame, place: str) -> pd.DataFrame:
    if not len(frame) or not len(frame.columns):
        raise SpecError("a table of results has a row for each run", place=place, value=f"{len(frame)} rows")
    frame = frame.rename(columns=str)
    if twice := next(iter(frame.columns[frame.columns.duplicated()]), None):
        raise SpecError("each column has a name of its own", place=place, value=twice)
    return frame.reset_index(drop=True)


def numbers(frame: pd.DataFrame, metric: str, place: str) -> Any:
    """Return the metric as numbers, NaN where a run has none; `SpecError` at the first text that is no number."""
    column = frame[metric]
    values = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = values.isna() & column.notna() & ~column.astype(str).str.strip().str.lower().isin(["nan", "", "none"])
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise SpecError(
            "the metric is a number", place=f"{place}: row {row + 1}, column {metric}", value=str(column.iloc[row])
        )
    return values.to_numpy()
