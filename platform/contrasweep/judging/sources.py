"""A table of runs as a frame: from a file, a folder, a program's store, a reader of the user's, or as it is.

Nothing in a source is executed. In a folder a run lies in ARM/.../FILE: the first folder below the source names its
arm, and `seed3`, `seed_3` or `seed=3` anywhere in its path names its seed. The files of a W&B run, and the logs of
inspect_ai, name their run themselves. Where a file is a curve, a table with a row per step, `CurveRow` says which row
counts. The best value of the metric itself is a maximum over noise, and is taken only where the user insists.
"""

import json
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from contrasweep.commands import files
from contrasweep.data.safety import read_member
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_from_here, import_path, installed, path_of
from contrasweep.judging.roles import as_numbers, mode_of_name
from contrasweep.storage.names import as_line
from contrasweep.storage.parquet_file import opened_table, read_bounded
from contrasweep.storage.record import COUNTING, Status

SEED = re.compile(r"seed[_=-]?(\d+)", re.IGNORECASE)
"""How paths name a seed."""
CHECKPOINT = re.compile(r"checkpoint-\d+")
"""The folder of a checkpoint of the Transformers library, which has a copy of the run's curve."""
PART = re.compile(r"_part_\d+$")
"""The end of the names of the files into which neptune-exporter splits a run."""
MOST_BYTES = 2**31
"""The largest file that is read."""
MOST_UNPACKED = 2**28
"""The most bytes of a member of a zip file that is unpacked."""
ZSTANDARD = 93
"""The number of a compression of zip files that Python's `zipfile` cannot read before 3.14."""
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, True: 1.0, False: 0.0}
"""Grade of inspect_ai (correct, incorrect, partly, no answer) -> score."""


def _read_texts(path: Path, **options: Any) -> pd.DataFrame:
    """Return the table of a file with all entries as text, so that an arm may be called `1.10` or `null`.

    An empty entry is missing. `options` are further arguments of `pandas.read_csv`.
    """
    with warnings.catch_warnings():
        # Cells beyond the head are an error, unless all are empty.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # Without `index_col=False` separators at the ends of rows would make the first column an index and shift all
        # others.
        frame: pd.DataFrame = pd.read_csv(
            path,
            index_col=False,
            compression=None,
            skipinitialspace=True,
            dtype=str,
            keep_default_na=False,
            na_values=[""],
            **options,
        )
    return frame


def _read_csv(path: Path) -> pd.DataFrame:
    """Return the table of a CSV file. Columns are separated by commas, or by semicolons where its head has no comma.

    With semicolons the decimal sign is a comma, as in `0,91`, unless the table has numbers with a point too.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        head = file.readline(2**20)
    separator = ";" if ";" in head and "," not in head else ","
    frame = _read_texts(path, sep=separator)
    decimal_points = frame.apply(lambda column: column.str.fullmatch(r"[-+]?\d*\.\d+%?"))
    if separator == ";" and not decimal_points.any(axis=None):
        frame = frame.replace(r"^([-+]?\d*),(\d+%?)$", r"\1.\2", regex=True)
    return frame


_read_json = partial(pd.read_json, compression=None, precise_float=True, dtype=False)
READERS: Mapping[str, Callable[..., Any]] = {
    ".csv": _read_csv,
    ".tsv": partial(_read_texts, sep="\t"),
    ".json": _read_json,
    ".jsonl": partial(_read_json, lines=True),
    ".parquet": lambda path: read_bounded(path, opened_table(path)).to_pandas(),
}
"""End of a file's name -> the function that reads the file as a frame."""


@dataclass(frozen=True)
class CurveRow:
    """Which row of a learning curve counts: where `metric` is best, or at `step`; without both the last.

    `text` is the option as it was given. With `mode` "max" the largest value of `metric` is best.
    """

    text: str = "last"
    metric: str = ""
    mode: str = "max"
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the row that the option `--at` asks for, by its `text`, such as `step:10`; `SpecError` for others."""
        kind, _, what = text.partition(":")
        if text == "last":
            return cls()
        if kind == "step" and what.isdecimal() and len(what) < 20:
            return cls(text, step=int(what))
        # Behind the metric may stand its mode; without one its name says which values are better.
        if kind == "best-of-validation" and what:
            name, _, mode = what.rpartition(":")
            if name and mode in ("max", "min"):
                return cls(text, name, mode)
            return cls(text, what, mode_of_name(what, "--at"))
        hint = "last, best-of-validation:METRIC, best-of-validation:METRIC:min, or step:N"
        raise SpecError("there is no such value of a curve", place="--at", value=text, hint=hint)

    def of_curve(self, curve: pd.DataFrame) -> pd.DataFrame:
        """Return the row of a curve that counts, as a frame of one row; `SpecError` where the curve has no such row.

        Each column has its last value up to that row. A column with a single value in the whole curve, such as a test
        after training, has this value whichever row counts. The text `NaN` is a value that is no number, as of a run
        that diverged, and is returned as NaN; an empty cell is no value.
        """
        chosen = self._chosen(curve).astype(object)
        return chosen.replace("NaN", np.nan).infer_objects()

    def _chosen(self, curve: pd.DataFrame) -> pd.DataFrame:
        """Return the row of a curve that counts, as a frame of one row, with the text `NaN` for values that are NaN.

        `of_curve` says which row this is.
        """
        # Metrics may be written in different rows: each keeps its last value.
        filled = curve.ffill()
        if not self.metric and self.step is None:
            return filled.tail(1)
        # The column that decides: the metric, or the first that counts steps; empty where the curve has none.
        name = self.metric or next((name for name in files.STEP_NAMES if name in curve), "")
        column = curve.get(name, pd.Series(dtype=float))
        deciding = pd.to_numeric(column, errors="coerce").dropna()
        # The last row of the step, or the first row with the best value.
        if self.step is not None:
            chosen = filled.loc[deciding.index[deciding == self.step]].tail(1)
        else:
            best = deciding.max() if self.mode == "max" else deciding.min()
            chosen = filled.loc[deciding.index[deciding == best]].head(1)
        if chosen.empty:
            hint = f"its columns are {', '.join(map(str, curve.columns[:20]))}"
            raise SpecError("a curve has no such place", place="--at", value=self.text, hint=hint)
        # A value that stands once belongs to the whole curve.
        once = curve.columns[curve.count() == 1]
        return chosen.assign(**{str(name): filled[name].iloc[-1] for name in once})


LAST = CurveRow()
"""The last row of a curve, which counts by default."""


def _rows(path: Path) -> pd.DataFrame:
    """Read a file of metrics that a training program has written: a row per step, or one row for the whole run.

    NaN is the text `NaN` where it was written, so that it differs from an empty cell.
    """
    # NaN differs from itself.
    rows = [
        {name: value if value == value else "NaN" for name, value in row.items()}
        for row in files.read(path)
    ]
    return pd.DataFrame(rows)


def _samples(path: Path) -> pd.DataFrame:
    """Read what lm-evaluation-harness writes with `--log_samples`: a row per example, with its scores and its task."""
    rows: pd.DataFrame = READERS[".jsonl"](path)
    # Rows name their metrics. Those of older versions do not: all numbers but ids are taken for scores.
    metric_names = set().union(*rows.get("metrics", []))
    scores = [name for name in rows if name in metric_names]
    if not scores:
        numeric = rows.select_dtypes("number")
        scores = [name for name in numeric if name not in ("doc_id", "idx", "target")]
    columns = ["doc_id", *scores]
    # The harness scores an example once for each filter of the answers.
    if "filter" in rows:
        columns.append("filter")
    # The file is called samples_TASK_TIME.jsonl.
    task = re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", path.stem)
    return rows[columns].assign(task=task)


def _report(path: Path) -> pd.DataFrame:
    """Read a report in JSON: a log of inspect_ai, a row per sample, or a result of MTEB as one row.

    The score of MTEB is the mean main score of the task over its splits and subsets. `SpecError` for another report.
    """
    content: Any = json.loads(path.read_text())
    if "eval" in content:
        return _scores(path, content, content["samples"])
    if "scores" not in content:
        hint = "contrasweep:STORAGE:STUDY names a study of a storage"
        raise SpecError("no result of inspect_ai or MTEB", place=str(path), hint=hint)
    scores = []
    for subsets in content["scores"].values():  # a split's
        scores += [subset["main_score"] for subset in subsets]
    row = {"task": content["task_name"], "main_score": sum(scores) / len(scores)}
    return pd.DataFrame([row])


def _packed(path: Path) -> pd.DataFrame:
    """Read a log of inspect_ai, a zip file: a row per sample, with its scores."""
    with zipfile.ZipFile(path) as packed, path.open("rb") as file:

        def member(name: str) -> Any:
            """Return the content of a JSON member of the zip; `ValueError` for more than `MOST_UNPACKED` bytes."""
            info = packed.getinfo(name)
            if info.compress_type != ZSTANDARD:
                return json.loads(read_member(packed, name, MOST_UNPACKED))
            if info.file_size > MOST_UNPACKED:
                raise ValueError(f"{name} has {info.file_size:,} bytes")
            # The header before the content has 30 bytes, a name and an extra field. Its last four bytes are the lengths
            # of both, by which the content is found.
            file.seek(info.header_offset + 26)
            file.seek(sum(struct.unpack("<HH", file.read(4))), 1)
            content = file.read(info.compress_size)
            return json.loads(pa.decompress(content, info.file_size, "zstd", asbytes=True))

        return _scores(path, member("header.json"), member("summaries.json"))


def _scores(path: Path, head: Any, samples: Any) -> pd.DataFrame:
    """Return the mean scores of an evaluation's samples over its epochs, a row per sample, with model, task and run.

    `head` is the header of a log of inspect_ai, `samples` are its samples or their summaries. `SpecError` for an
    evaluation that has not ended.
    """
    if head["status"] != "success":
        raise SpecError("the evaluation has ended", place=str(path), value=head["status"])
    rows = []
    for sample in samples:
        row = {"sample_id": str(sample["id"])}
        for scorer, score in (sample["scores"] or {}).items():
            # A scorer gives one value, or several by name; grades such as C (correct) become numbers.
            values = score["value"]
            if not isinstance(values, dict):
                values = {"": values}
            for name, value in values.items():
                row[f"{scorer}.{name}".rstrip(".")] = GRADES.get(value, value)
        rows.append(row)
    means = (
        pd.DataFrame(rows).groupby("sample_id", sort=False).mean(numeric_only=True).reset_index()
    )
    return means.assign(model=head["eval"]["model"], task=head["eval"]["task"], run=path.stem)


def _wandb(path: Path) -> pd.DataFrame:
    """Read a W&B run as a row per step: its history and summary, with its settings in every row."""
    curve = _rows(path)
    (settings,) = pd.json_normalize(files.wandb_config(path.read_bytes())).to_dict("records")
    # A column of the curve takes precedence over a setting; W&B's own settings begin with an underscore.
    for name, value in settings.items():
        if name not in curve and str(name)[:1] != "_":
            curve[name] = value
    return curve.assign(run=path.parent.name)


def _neptune(path: Path) -> pd.DataFrame:
    """Read what neptune-exporter wrote of a run as a row per step: its series, with its settings in every row."""
    # In the file each row is a value, in the column of its type; the other columns of values are empty. So the first
    # value that is not empty is the row's.
    rows: pd.DataFrame = READERS[".parquet"](path)
    columns = rows.filter(regex="^(float|int|bool|string)_value$").astype(object)
    rows["value"] = columns.bfill(axis=1).iloc[:, 0]
    # The series become columns of the curve, and single values settings. A value of a series that is NaN was written
    # so, and becomes the text `NaN` as in `_rows`.
    series = rows["attribute_type"] == "float_series"
    rows["float_value"] = rows["float_value"].astype(object).fillna("NaN")
    curve = rows[series].pivot_table(
        index="step", columns="attribute_path", values="float_value", aggfunc="last"
    )
    curve.index = curve.index.astype(float)
    single_values = rows[~series & rows["value"].notna()]
    settings = dict(
        zip(single_values["attribute_path"].astype(str), single_values["value"], strict=True)
    )
    # A run without series has one row, of its settings.
    table = curve.reset_index() if len(curve) else pd.DataFrame([{}])
    return table.assign(**settings, run=str(rows["run_id"].iloc[0]))


CURVES = {
    "trainer_state.json": _rows,
    "metrics.csv": _rows,
    "events.out.tfevents.*": _rows,
    "*.wandb": _wandb,
    "*_part_*.parquet": _neptune,
}
"""Pattern of a file's name -> the function that reads the file as a curve, a row per step of a run."""
Reader = Callable[[Path], pd.DataFrame]
KINDS: dict[str, Reader] = {
    "samples_*.jsonl": _samples,
    "all_results.json": lambda path: LAST.of_curve(_rows(path)),
    **CURVES,
    "*.eval": _packed,
    "[!.]*.json": _report,
}
"""Pattern of a file's name -> the function that reads the file. The first kind that a folder has is taken."""


def read_folder(folder: Path, at: CurveRow = LAST) -> tuple[pd.DataFrame, bool]:
    """Return the runs of a folder, and whether its files are curves.

    The frame has a row per run: of a curve the one that `at` chooses. Files with several scores of a run give a row per
    score. Unless the files name their run themselves, the frame has the columns `arm`, `run` (where the run lies) and,
    where all paths name a seed, `seed`. With another `at` than `LAST`, only curves are looked for.

    Raises:
        SpecError: For a folder without a file of a known kind, and for a broken file.
    """
    kind, read, paths = _first_kind(folder, at)
    # The files of a run are read together, such as those that a restart has left.
    files_of: dict[Path, list[Path]] = {}
    for path in paths:
        files_of.setdefault(_run_of(path.relative_to(folder), kind), []).append(path)
    runs = []
    seeds = []
    for run, paths_of_run in files_of.items():
        problem = "the file is not what its name says"
        # A start that ended before its first metric leaves a file without any.
        tables = [_read_file(path, read, problem) for path in paths_of_run]
        tables = [table for table in tables if len(table)]
        if not tables:
            raise SpecError("a run has metrics", place=str(paths_of_run[0]), value="none")
        table = pd.concat(tables, ignore_index=True)
        if kind in CURVES:
            curve = _by_step(table) if len(paths_of_run) > 1 else table
            table = at.of_curve(curve)
        # Where the files name no run, the folders do: the first one is the arm. A file in no folder has its own name.
        if "run" not in table:
            folders = run.parts[:-1] or (paths_of_run[0].stem,)
            place = "/".join(folders)
            seed = SEED.search(place)
            table = table.assign(arm=folders[0], run=place, seed=seed[1] if seed else None)
            seeds.append(seed)
        runs.append(table)
    table = pd.concat(runs, ignore_index=True)
    # Seeds in some paths alone would pair runs that do not belong together.
    if not all(seeds):
        table = table.drop(columns="seed", errors="ignore")
    return table, kind in CURVES


def _first_kind(folder: Path, at: CurveRow) -> tuple[str, Reader, list[Path]]:
    """Return the kind of the files of a folder (a pattern of names), the function that reads them, and the files.

    The first of the known kinds is taken of which the folder has any file. `SpecError` where it has none.
    """
    # An installed part for reading is called by the pattern of the files that it reads.
    parts = {pattern: path_of("readers", pattern) for pattern in installed("readers")}
    kinds = [*parts, *KINDS] if at == LAST else [*CURVES]
    # The first kind with any file is read: the surest signs stand first, and a folder is of one program. A file
    # model_meta.json is no result: in it MTEB describes the model.
    for kind in kinds:
        found = folder.rglob(kind)
        paths = sorted(path for path in found if path.is_file() and path.name != "model_meta.json")
        if paths:
            if kind in KINDS:
                return kind, KINDS[kind], paths
            return kind, import_path(parts[kind], "judge", "reader"), paths
    hint = f"known: {', '.join(kinds)}"
    raise SpecError("no file of a known kind lies below", place=str(folder), hint=hint)


def _read_file(path: Path, read: Reader, problem: str) -> pd.DataFrame:
    """Return the table that the function `read` makes of a file; `SpecError` if the file is too large or broken.

    `problem` is the message for a failure, such as `the file is not what its name says`.
    """
    if path.stat().st_size > MOST_BYTES:
        raise SpecError("a file of results has up to 2 GiB", place="SOURCE", value=str(path))
    with errors_named(problem, str(path)):
        frame = read(path)
    # In `attrs` a study's own frame tells its design; a file's own `attrs` must not pass for that.
    frame.attrs = {}
    return frame


def _run_of(path: Path, kind: str) -> Path:
    """Return a path that is the same for all files of one run, by which these files are put together.

    A run may have several files: of its checkpoints, of its restarts, or parts of one table. `kind` is the pattern that
    the name of the file matches. A run of another kind has a single file, whose own `path` is returned.
    """
    match kind:
        case "trainer_state.json" if CHECKPOINT.fullmatch(path.parent.name):
            return path.parent.with_name(path.name)
        case "events.out.tfevents.*":
            return path.with_name(kind)
        case "*.wandb":  # W&B makes another folder each time that a run is resumed
            return Path(path.name)
        case "*_part_*.parquet":
            return path.with_name(PART.sub("", path.stem))
    return path


def _by_step(table: pd.DataFrame) -> pd.DataFrame:
    """Return a curve that was put together from several files with one row for each step, as it was written last.

    For example, a run that was restarted has written some steps twice.
    """
    step = next((name for name in files.STEP_NAMES if name in table), None)
    return table if step is None else table.groupby(step, as_index=False, dropna=False).last()


SERVICES = ("mlflow", "optuna", "contrasweep")
"""The kinds of a source `KIND:ADDRESS:NAME`."""


def _stored(kind: str, address: str, name: str, at: CurveRow) -> pd.DataFrame:
    """Return the runs of the experiment or study `name` in the store at `address`, a row each.

    `kind` is one of `SERVICES`. Of MLflow's runs `at` says which row of their curves counts.
    """
    if kind == "mlflow":
        from contrasweep.tracking.mlflow.experiment import runs_of

        # MLflow has the last values with each run. For others it is asked for the run's curve.
        return pd.DataFrame(runs_of(address, name, None if at == LAST else at.of_curve))
    if kind == "optuna":
        from contrasweep.tuning.searchers.stored import trials_of

        return trials_of(address, name)
    from contrasweep.results.results import Results

    return Results.load(name, address).to_frame()


def read_table(
    source: "str | Path | pd.DataFrame", at: CurveRow = LAST, reader: str = ""
) -> tuple[str, pd.DataFrame, bool]:
    """Return the name of a source, its rows, and whether these come from learning curves.

    `at` says which row of a curve counts. `reader` is the dotted path of a function of the user's, which is called with
    the source and returns a table. Each name of a column in the result is one line, and no column is empty.

    Raises:
        SpecError: For a file that is not there, of another kind, broken or empty.
    """
    place = str(source)
    path = Path(place[:4096])  # a longer text is no path, and the system refuses to look for it
    curves = False
    # A frame, what a reader gives, a folder, a store, or a file.
    if isinstance(source, pd.DataFrame):
        name = "results"
        place = "frame"
        frame = source
    elif reader:
        import_from_here()
        read = import_path(reader, "--reader", "reader")
        with errors_named(f"{reader} does not give a table", "--reader"):
            name = path.stem
            frame = pd.DataFrame(read(place))
    elif path.is_dir():
        name = path.resolve().name
        frame, curves = read_folder(path, at)
    elif place.partition(":")[0] in SERVICES:
        kind, _, rest = place.partition(":")
        address, _, name = rest.rpartition(":")
        with errors_named("the source cannot be read", place):
            frame = _stored(kind, address, name, at)
            curves = kind == "mlflow"
    else:
        name = path.stem
        frame = _of_file(path)
    if at != LAST and not curves:
        raise SpecError(
            "there are no curves: a row is a run",
            place="--at",
            value=at.text,
            hint="leave --at out",
        )
    return as_line(name), _cleaned(frame, place), curves


def _cleaned(frame: pd.DataFrame, place: str) -> pd.DataFrame:
    """Return the rows of a source that are results, and its columns without those that are empty.

    Rows of a study's trials that are still to run, or failed for a cause outside the method, are left out. `place`
    names the source in errors. `SpecError` for two columns of one name, and where no row is left.
    """
    # The index may name seeds or arms.
    in_index = [name for name in frame.index.names if name is not None and name not in frame]
    if in_index:
        frame = frame.reset_index(in_index)
    # An empty column has no role, such as that of folds where a study has none.
    frame = frame.dropna(axis=1, how="all")
    frame.columns = pd.Index([as_line(str(name)).strip() for name in frame.columns])
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise SpecError("each column has a name of its own", place=place, value=repeated[0])
    # Lists and the like cannot be compared and grouped, and become texts.
    for column in frame.columns[frame.dtypes.astype(str) == "object"]:
        values = [
            value if pd.api.types.is_hashable(value) else str(value) for value in frame[column]
        ]
        frame[column] = pd.Series(values, frame.index, dtype=object)
    # A study's trial that is to run, fits no host or failed for a cause outside the method says nothing of its arm.
    if _of_trials(frame):
        # Imported here because it brings SciPy, which the list of readers does without.
        from contrasweep.results.building import LOST, OUTSIDE

        outside = frame.reindex(columns=["cause"])["cause"].isin(OUTSIDE)
        frame = frame[frame["status"].isin([*COUNTING, *LOST]) & ~outside]
    if frame.empty:
        raise SpecError(
            "a table of results has a row for each run", place=place, value=f"{len(frame)} rows"
        )
    return frame.reset_index(drop=True)


def _of_file(path: Path) -> pd.DataFrame:
    """Return the table in a file, read by the end of its name; `SpecError` where that is not known, or it is broken."""
    if not path.is_file():
        hint = f"a file, a folder, or {', '.join(f'{kind}:ADDRESS:NAME' for kind in SERVICES)}"
        raise SpecError("there is no such file", place="SOURCE", value=str(path), hint=hint)
    if path.suffix.lower() not in READERS:
        kinds = ", ".join(READERS)
        raise SpecError(
            "what reads such a file is not known",
            place="SOURCE",
            value=path.name,
            hint=f"known: {kinds}",
        )
    return _read_file(path, READERS[path.suffix.lower()], "the file cannot be read as a table")


def _of_trials(frame: pd.DataFrame) -> bool:
    """Whether the rows are trials of a study, as `Results.to_frame` gives them: each has a `Status`."""
    return "status" in frame and bool(frame["status"].isin(list(Status)).all())


def numbers(frame: pd.DataFrame, metric: str, place: str) -> Any:
    """Return the metric as numbers [runs], NaN where a run has none; `SpecError` for a text that is no number.

    `frame` has a row for each run; `place` names the source in errors. What a trial of a study reported before it
    failed, or was stopped, is not its value.
    """
    column = frame[metric]
    # An integer of a thousand digits fits in no float, which is an error too.
    with errors_named("the metric is a number", f"{place}: column {metric}"):
        values, wrong = as_numbers(column)
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise SpecError(
            "the metric is a number",
            place=f"{place}: row {row + 1}, column {metric}",
            value=str(column.iloc[row]),
        )
    if _of_trials(frame):
        values = values.where(frame["status"].isin(COUNTING))
    return values.to_numpy()
