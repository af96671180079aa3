"""A table of runs as a frame: from a file, a folder, a program's store, a reader of the user's, or as it is.

Nothing in a source is executed. In a folder a run lies in ARM/.../FILE: the first folder below the source names its
arm, and `seed3`, `seed_3` or `seed=3` anywhere in its path its seed. A W&B run and a log of inspect_ai say themselves
what they are of. Where a file is a curve, a table with a row a step, `At` says which row counts. The best value of the
metric itself is a maximum over noise, and is taken only where somebody insists.
"""

import json
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa

from contrasweep.commands import files
from contrasweep.data.safety import read_member
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_from_here, import_path, installed, path_of
from contrasweep.judging.roles import better
from contrasweep.storage.names import as_line
from contrasweep.storage.parquet_file import opened_table, read_bounded

SEED = re.compile(r"seed[_=-]?(\d+)", re.IGNORECASE)
CHECKPOINT = re.compile(r"checkpoint-\d+")
"""The folder of a checkpoint of the Transformers library, which has a copy of the run's curve."""
PART = re.compile(r"_part_\d+$")
"""How the names of files end into which neptune-exporter splits a run."""
MOST_BYTES = 2**31
"""No larger file is read."""
MOST_UNPACKED = 2**28
"""No larger member of a zip file is unpacked, in bytes."""
ZSTANDARD = 93
"""The compression of zip files that Python 3.11 does not know."""
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, True: 1.0, False: 0.0}
"""inspect_ai: correct, incorrect, partly, no answer."""


READERS: Mapping[str, Callable[..., Any]] = {
    ".csv": partial(pd.read_csv, compression=None, skipinitialspace=True),
    ".tsv": partial(pd.read_csv, sep="\t", compression=None, skipinitialspace=True),
    ".jsonl": partial(pd.read_json, lines=True, compression=None),
    ".parquet": lambda path: read_bounded(path, opened_table(path)).to_pandas(),
}
"""By the end of a file's name, what reads it as a frame."""


@dataclass(frozen=True)
class At:
    """At which row of a learning curve it is read: where `metric` is best, at `step`, or (neither) at its end."""

    text: str = "last"
    metric: str = ""
    mode: str = "max"
    step: int | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Read the value of `--at`; `SpecError` for any other text."""
        kind, _, what = text.partition(":")
        if text == "last":
            return cls()
        if kind == "step" and what.isdecimal() and len(what) < 20:
            return cls(text, step=int(what))
        if kind == "best-of-validation" and what:
            name, _, mode = what.rpartition(":")
            if name and mode in ("max", "min"):
                return cls(text, name, mode)
            return cls(text, what, better(what, "--at"))
        hint = "last, best-of-validation:METRIC, best-of-validation:METRIC:min, or step:N"
        raise SpecError("there is no such value of a curve", place="--at", value=text, hint=hint)

    def of_curve(self, curve: pd.DataFrame) -> pd.DataFrame:
        """Return the chosen row of a curve, as a frame of one row. Each column has its last value up to that row.

        A column with a single value in the whole curve, as from a test after training, keeps it wherever the curve is
        read.
        """
        # Metrics may be written in other rows than the one that is read: each keeps its last value.
        filled = curve.ffill()
        if not (self.metric or self.step is not None):
            return filled.tail(1)
        # The column that decides: the metric, or the first that counts steps; empty where the curve has none.
        steps = next((name for name in files.STEPS if name in curve), "")
        column = pd.to_numeric(
            curve.get(self.metric or steps, pd.Series(dtype=float)), errors="coerce"
        ).dropna()
        if self.step is not None:
            chosen = filled.loc[column.index[column == self.step]].tail(1)
        else:
            best = pd.Series.idxmax if self.mode == "max" else pd.Series.idxmin
            ends = column.index[:0] if column.empty else [best(column)]  # no row, or the best one
            chosen = filled.loc[ends]
        if chosen.empty:
            hint = f"its columns are {', '.join(map(str, curve.columns[:20]))}"
            raise SpecError("a curve has no such place", place="--at", value=self.text, hint=hint)
        # A value that stands once, such as a test after training, belongs to the whole curve.
        once = curve.columns[curve.count() == 1]
        return chosen.assign(**{str(name): filled[name].iloc[-1] for name in once})


LAST = At()


def _rows(path: Path) -> pd.DataFrame:
    """A file that training programs leave their metrics in: a row a step, or one of them all."""
    table = pd.DataFrame(files.read(path))
    if table.empty:
        raise ValueError("it has no metrics")
    return table


def _samples(path: Path) -> pd.DataFrame:
    """Read what lm-evaluation-harness writes with `--log_samples`: a row an example, with its scores."""
    rows: pd.DataFrame = READERS[".jsonl"](path)
    # Rows name their metrics; those of older versions do not, and all numbers but ids are taken.
    metric_names = {name for names in rows.get("metrics", []) for name in names}
    scores = [name for name in rows if name in metric_names] or [
        name for name in rows.select_dtypes("number") if name not in ("doc_id", "idx", "target")
    ]
    return rows[["doc_id", *scores, *({"filter"} & set(rows))]].assign(
        task=re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", path.stem)
    )


def _report(path: Path) -> pd.DataFrame:
    """Read a report as JSON: of MTEB the mean main score of a task over its splits and subsets, or of inspect_ai a log.

    Of MTEB it is one row.
    """
    content: Any = json.loads(path.read_text())
    if "eval" in content:
        return _scores(path, content, content["samples"])
    parts = [part["main_score"] for parts in content["scores"].values() for part in parts]
    return pd.DataFrame([{"task": content["task_name"], "main_score": sum(parts) / len(parts)}])


def _packed(path: Path) -> pd.DataFrame:
    """Read a log of inspect_ai, a zip file: a row a sample, with its scores."""

    def member(name: str) -> Any:
        """Return the content of a JSON member of the zip; Zstandard, which `zipfile` cannot read, is unpacked here."""
        info = packed.getinfo(name)
        if info.compress_type != ZSTANDARD:
            return json.loads(read_member(packed, name, MOST_UNPACKED))
        if info.file_size > MOST_UNPACKED:
            raise ValueError(f"{name} has {info.file_size:,} bytes")
        # A member's own header has 30 bytes; the last four are the lengths of the name and the extra field behind it.
        file.seek(info.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)
        return json.loads(
            pa.decompress(file.read(info.compress_size), info.file_size, "zstd", asbytes=True)
        )

    with zipfile.ZipFile(path) as packed, path.open("rb") as file:
        return _scores(path, member("header.json"), member("summaries.json"))


def _scores(path: Path, head: Any, samples: Any) -> pd.DataFrame:
    """Return the mean scores of an evaluation's samples over its epochs, a row a sample.

    `head` is the header of a log of inspect_ai, `samples` are its samples or their summaries.
    """
    if head["status"] != "success":
        raise ValueError(f"the evaluation has not ended: {head['status']}")
    rows = []
    for sample in samples:
        rows.append({"sample_id": str(sample["id"])})
        # A scorer gives a value, or several by name; letters such as C (correct) are graded as numbers.
        for scorer, score in (sample["scores"] or {}).items():
            parts = score["value"] if isinstance(score["value"], dict) else {"": score["value"]}
            rows[-1] |= {
                f"{scorer}.{part}".rstrip("."): GRADES.get(value, value)
                for part, value in parts.items()
            }
    means = (
        pd.DataFrame(rows).groupby("sample_id", sort=False).mean(numeric_only=True).reset_index()
    )
    return means.assign(model=head["eval"]["model"], task=head["eval"]["task"], run=path.stem)


def _wandb(path: Path) -> pd.DataFrame:
    """Read a W&B run as a table by step: its history and summary, beside its settings."""
    # Settings that are no part of the curve, without those of W&B itself, which begin with an underscore.
    curve = _rows(path)
    (settings,) = pd.json_normalize(files.wandb_config(path.read_bytes())).to_dict("records")
    settings_kept = {
        str(name): value
        for name, value in settings.items()
        if name not in curve and str(name)[:1] != "_"
    }
    return curve.assign(**settings_kept, run=path.parent.name)


def _neptune(path: Path) -> pd.DataFrame:
    """Read what neptune-exporter wrote of a run, a row a value: its series by step, beside its settings."""
    # A row's value is in the column of its type, and the other columns of values are empty.
    rows: pd.DataFrame = READERS[".parquet"](path)
    columns = rows.filter(regex="^(float|int|bool|string)_value$").astype(object)
    rows["value"] = columns.bfill(axis=1).iloc[:, 0]
    series = rows["attribute_type"] == "float_series"
    curve = rows[series].pivot_table(
        index="step", columns="attribute_path", values="float_value", aggfunc="last"
    )
    curve.index = curve.index.astype(float)
    alone = rows[~series & rows["value"].notna()]
    settings = dict(zip(alone["attribute_path"].astype(str), alone["value"], strict=True))
    table = curve.reset_index() if len(curve) else pd.DataFrame([{}])
    return table.assign(**settings, run=str(rows["run_id"].iloc[0]))


CURVES = {
    "trainer_state.json": _rows,
    "metrics.csv": _rows,
    "events.out.tfevents.*": _rows,
    "*.wandb": _wandb,
    "*_part_*.parquet": _neptune,
}
"""By the name of a file, what reads it as a row a step of a run."""
KINDS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "samples_*.jsonl": _samples,
    "all_results.json": _rows,
    **CURVES,
    "*.eval": _packed,
    "[!.]*.json": _report,
}
"""By the name of a file, what reads it. The first kind that a folder has is taken."""


def read_folder(folder: Path, at: At = LAST) -> tuple[pd.DataFrame, bool]:
    """Return the runs of a folder, and whether they had curves: a row a run, or a score of one.

    The frame has their metrics, `arm`, `run` (where it lies), and `seed` where all paths name one, unless the files say
    themselves of which run they are. Of a curve the row is that which `at` chooses; unless it is the last one, only
    files with curves are read.

    Raises:
        SpecError: For a folder without a file of a kind that is known, and for a broken file.
    """
    own = {name: path_of("readers", name) for name in installed("readers")} if at == LAST else {}
    kinds: Mapping[str, str | Callable[[Path], pd.DataFrame]] = {
        **own,
        **(KINDS if at == LAST else CURVES),
    }
    rows: list[Path] = []
    # The first kind with any file is read: `kinds` has the surest signs first, and a folder is of one program.
    for kind in kinds:
        rows = sorted(filter(Path.is_file, folder.rglob(kind)))
        if rows:
            break
    else:
        raise SpecError(
            "no file of a known kind lies below",
            place=str(folder),
            hint=f"known: {', '.join(kinds)}",
        )
    runs = []
    seeds = []
    read = kinds[kind]
    if isinstance(read, str):  # the dotted path of an installed part
        read = import_path(read, "judge", "reader")
    # Files of one run are read together: what a restart left belongs to it.
    files_of: dict[Path, list[Path]] = {}
    for path in rows:
        files_of.setdefault(_run_of(path.relative_to(folder), kind), []).append(path)
    for run, paths in files_of.items():
        where = run.parts[:-1] or (paths[0].stem,)
        seeds.append(SEED.search("/".join(where)))
        tables = []
        for path in paths:
            if path.stat().st_size > MOST_BYTES:
                raise SpecError(
                    "a file of results has up to 2 GiB", place="SOURCE", value=str(path)
                )
            with errors_named("the file is not what its name says", str(path)):
                tables.append(read(path))
        table = pd.concat(tables, ignore_index=True)
        if kind in CURVES:
            table = at.of_curve(_by_step(table) if len(paths) > 1 else table)
        runs.append(table)
        # Where the files name no run, the path does: its first part is the arm.
        if "run" not in runs[-1]:
            runs[-1] = runs[-1].assign(
                arm=where[0], run="/".join(where), seed=seeds[-1] and seeds[-1][1]
            )
    table = pd.concat(runs, ignore_index=True)
    # A seed in some paths alone would pair runs that do not belong together.
    if "arm" in table and not all(seeds):
        table = table.drop(columns="seed", errors="ignore")
    return table, kind in CURVES


def _run_of(path: Path, kind: str) -> Path:
    """Return what a run is known by, from the path of a file of this kind.

    Files of one run share it: those of its checkpoints, its restarts, its parts. A run of any other kind has one file.
    """
    match kind:
        case "trainer_state.json" if CHECKPOINT.fullmatch(path.parent.name):
            return path.parent.with_name(path.name)
        case "events.out.tfevents.*":
            return path.with_name(kind)
        case "*.wandb":  # each time that a run is resumed it gets another folder
            return Path(path.name)
        case "*_part_*.parquet":
            return path.with_name(PART.sub("", path.stem))
    return path


def _by_step(table: pd.DataFrame) -> pd.DataFrame:
    """Return a curve of several files, as of a run that was begun again, with each step as it was written last."""
    step = next((name for name in files.STEPS if name in table), None)
    return table if step is None else table.groupby(step, as_index=False, dropna=False).last()


SERVICES = ("mlflow", "optuna", "contrasweep")
"""Kinds of KIND:ADDRESS:NAME."""


def _stored(kind: str, address: str, name: str, at: At) -> pd.DataFrame:
    """Return the rows of what a program's store keeps; `kind` is one of `SERVICES`."""
    if kind == "mlflow":
        from contrasweep.tracking.mlflow.experiment import runs_of

        return pd.DataFrame(runs_of(address, name, None if at == LAST else at.of_curve))
    if kind == "optuna":
        from contrasweep.tuning.searchers.stored import trials_of

        return trials_of(address, name)
    from contrasweep.results.results import Results

    frame = Results.load(name, address).to_frame()
    return frame[frame["status"].isin(["done", "failed"])]


def read_table(
    source: "str | Path | pd.DataFrame", at: At = LAST, reader: str = ""
) -> tuple[str, pd.DataFrame, bool]:
    """Return the name and the rows of a source, and whether they are `at` some place of curves.

    Rows have names of columns of one line, and no column that is empty. `reader` is the dotted path of the user's
    function, which is called with the source.

    Raises:
        SpecError: For a file that is not there, of another kind, broken or empty.
    """
    path = Path(str(source)[:4096])  # a longer text is no path, and an error to ask the system for
    place = str(source)
    curves = False
    kind, _, rest = place.partition(":")
    address, _, name = rest.rpartition(":")
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
    elif kind in SERVICES:
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
    if frame.empty:
        raise SpecError(
            "a table of results has a row for each run", place=place, value=f"{len(frame)} rows"
        )
    # An empty column plays no role, as that of folds where a study has none.
    frame = frame.dropna(axis=1, how="all").rename(columns=lambda name: as_line(str(name)))
    if twice := next(iter(frame.columns[frame.columns.duplicated()]), None):
        raise SpecError("each column has a name of its own", place=place, value=twice)
    # lists and the like are values as their text
    for column in frame.columns[frame.dtypes.astype(str) == "object"]:
        frame[column] = frame[column].map(
            lambda value: value if pd.api.types.is_hashable(value) else str(value)
        )
    return as_line(name), frame.reset_index(drop=True), curves


def _of_file(path: Path) -> pd.DataFrame:
    """Return the table in a file, by the end of its name; `SpecError` where none reads it or it is broken."""
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
    if path.stat().st_size > MOST_BYTES:
        raise SpecError("a file of results has up to 2 GiB", place="SOURCE", value=str(path))
    with errors_named("the file cannot be read as a table", str(path)):
        frame: pd.DataFrame = READERS[path.suffix.lower()](path)
        return frame


def numbers(frame: pd.DataFrame, metric: str, place: str) -> Any:
    """Return the metric as numbers, NaN where a run has none; `SpecError` at the first text that is no number."""
    column = frame[metric]
    # one of a thousand digits is too large
    with errors_named("the metric is a number", f"{place}: column {metric}"):
        values = pd.to_numeric(column, errors="coerce").astype("float64")
    # Texts that programs write for a missing number are none too.
    wrong = (
        values.isna()
        & column.notna()
        & ~column.astype(str).str.strip().str.lower().isin(["nan", "", "none"])
    )
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise SpecError(
            "the metric is a number",
            place=f"{place}: row {row + 1}, column {metric}",
            value=str(column.iloc[row]),
        )
    return values.to_numpy()
