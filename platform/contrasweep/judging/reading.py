"""A table of runs as a frame: from a file, a folder, a program's store, a reader of the user's, or as it is.

Nothing in a source is executed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_from_here, import_path
from contrasweep.judging.curves import LAST, At
from contrasweep.judging.sources import MOST_BYTES, read_folder
from contrasweep.storage.names import as_line
from contrasweep.storage.parquet_file import opened_table, read_bounded


def _delimited(path: Path, separator: str) -> pd.DataFrame:
    return pd.read_csv(path, sep=separator, compression=None, skipinitialspace=True)


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda path: _delimited(path, ","),
    ".tsv": lambda path: _delimited(path, "\t"),
    ".jsonl": lambda path: pd.read_json(path, lines=True, compression=None),
    ".parquet": lambda path: read_bounded(path, opened_table(path)).to_pandas(),
}
"""By the end of a file's name, what reads it."""


def _mlflow(address: str, name: str, at: At) -> pd.DataFrame:
    from contrasweep.tracking.mlflow.experiment import runs_of

    return pd.DataFrame(runs_of(address, name, None if at == LAST else at.of_curve))


def _optuna(address: str, name: str, at: At) -> pd.DataFrame:
    from contrasweep.tuning.searchers.stored import trials_of

    return trials_of(address, name)


def _study(address: str, name: str, at: At) -> pd.DataFrame:
    from contrasweep.results.results import Results

    frame = Results.load(name, address).to_frame()
    return frame[frame["status"].isin(["done", "failed"])].dropna(axis=1, how="all")


SERVICES: dict[str, Callable[[str, str, At], pd.DataFrame]] = {
    "mlflow": _mlflow,
    "optuna": _optuna,
    "contrasweep": _study,
}
"""What reads KIND:ADDRESS:NAME."""


def read_table(source: "str | Path | pd.DataFrame", at: At = LAST, reader: str = "") -> tuple[str, pd.DataFrame, bool]:
    """Return the name and the rows of a source, and whether they are `at` some place of curves.

    Raises:
        SpecError: For a file that is not there, of another kind, broken or empty.
    """
    path, place, curves = Path(str(source)[:4096]), str(source), False
    kind, _, rest = place.partition(":")
    address, _, name = rest.rpartition(":")
    if isinstance(source, pd.DataFrame):
        name, place, frame = "results", "frame", source
    elif reader:
        import_from_here()
        read = import_path(reader, "--reader", "reader")
        with errors_named(f"{reader} does not give a table", "--reader"):
            name, frame = path.stem, pd.DataFrame(read(place))
    elif path.is_dir():
        name, (frame, curves) = path.resolve().name, read_folder(path, at)
    elif kind in SERVICES:
        with errors_named("the source cannot be read", place):
            frame, curves = SERVICES[kind](address, name, at), kind == "mlflow"
    else:
        name, frame = path.stem, _of_file(path)
    if at != LAST and not curves:
        raise SpecError("there are no curves: a row is a run", place="--at", value=at.text, hint="leave --at out")
    return as_line(name), _checked(frame, place), curves


def _of_file(path: Path) -> pd.DataFrame:
    if not path.is_file():
        hint = f"a file, a folder, or {', '.join(f'{kind}:ADDRESS:NAME' for kind in SERVICES)}"
        raise SpecError("there is no such file", place="SOURCE", value=str(path), hint=hint)
    if path.suffix.lower() not in READERS:
        known = ", ".join(READERS)
        raise SpecError("what reads such a file is not known", place="SOURCE", value=path.name, hint=f"known: {known}")
    if path.stat().st_size > MOST_BYTES:
        raise SpecError("a file of results has up to 2 GiB", place="SOURCE", value=str(path))
    with errors_named("the file cannot be read as a table", str(path)):
        return READERS[path.suffix.lower()](path)


def _checked(frame: pd.DataFrame, place: str) -> pd.DataFrame:
    if not len(frame) or not len(frame.columns):
        raise SpecError("a table of results has a row for each run", place=place, value=f"{len(frame)} rows")
    frame = frame.rename(columns=lambda name: as_line(str(name)))
    if twice := next(iter(frame.columns[frame.columns.duplicated()]), None):
        raise SpecError("each column has a name of its own", place=place, value=twice)
    for name in frame.columns[frame.dtypes.astype(str) == "object"]:  # lists and the like are values as their text
        frame[name] = frame[name].map(lambda value: value if pd.api.types.is_hashable(value) else str(value))
    return frame.reset_index(drop=True)


def numbers(frame: pd.DataFrame, metric: str, place: str) -> Any:
    """Return the metric as numbers, NaN where a run has none; `SpecError` at the first text that is no number."""
    column = frame[metric]
    with errors_named("the metric is a number", f"{place}: column {metric}"):  # one of a thousand digits is too large
        values = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = values.isna() & column.notna() & ~column.astype(str).str.strip().str.lower().isin(["nan", "", "none"])
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise SpecError(
            "the metric is a number", place=f"{place}: row {row + 1}, column {metric}", value=str(column.iloc[row])
        )
    return values.to_numpy()
