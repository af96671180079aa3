"""Folders of runs that other programs wrote, as a frame: one reader a kind of file. Nothing in them is executed.

A run lies in ARM/.../FILE: the first folder below the source names its arm, and `seed3`, `seed_3` or `seed=3` anywhere
in its path its seed. Of a curve the last value of each metric counts.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from contrasweep.commands import files
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named

SEED = re.compile(r"seed[_=-]?(\d+)", re.IGNORECASE)


def _last(curve: pd.DataFrame) -> pd.DataFrame:
    """The last value of each column, of a table that has a row a step."""
    return curve.ffill().tail(1)


def _values(path: Path) -> pd.DataFrame:
    """A file of one object: its numbers, by name."""
    found = json.loads(path.read_text())
    return pd.DataFrame([{name: value for name, value in found.items() if isinstance(value, int | float)}])


def _samples(path: Path) -> pd.DataFrame:
    """lm-evaluation-harness, `--log_samples`: a row an example, with its scores."""
    rows = pd.read_json(path, lines=True, compression=None)
    scores = [name for name in rows.select_dtypes("number") if name not in ("doc_id", "idx")]
    return rows[["doc_id", *scores, *({"filter"} & set(rows))]].assign(
        task=re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", path.stem)
    )


def _events(path: Path) -> pd.DataFrame:
    """TensorBoard: the last value of each scalar."""
    last = {name: value for row in files.read(path) for name, value in row.items() if name != "step"}
    return pd.DataFrame([last])


def _task(path: Path) -> pd.DataFrame:
    """MTEB: the main score of a task, over its subsets of the test split."""
    found: Any = json.loads(path.read_text())
    parts = [part["main_score"] for parts in found["scores"].values() for part in parts]
    return pd.DataFrame([{"task": found["task_name"], "main_score": sum(parts) / len(parts)}])


KINDS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "samples_*.jsonl": _samples,
    "all_results.json": _values,
    "trainer_state.json": lambda path: _last(pd.DataFrame(json.loads(path.read_text())["log_history"])),
    "metrics.csv": lambda path: _last(pd.read_csv(path, compression=None)),
    "events.out.tfevents.*": _events,
    "[!.]*.json": _task,
}
"""By the name of a file, what reads it. The first kind that a folder has is taken."""


def read_folder(folder: Path) -> pd.DataFrame:
    """Return the runs of a folder: their metrics, `arm`, `run` (where it lies), and `seed` where all paths name one.

    Raises:
        SpecError: For a folder without a file of a kind that is known, and for a broken file.
    """
    files, read = next(
        ((found, read) for kind, read in KINDS.items() if (found := sorted(folder.rglob(kind)))), ([], _values)
    )
    if not files:
        raise SpecError("no file of a known kind lies below", place=str(folder), hint=f"known: {', '.join(KINDS)}")
    runs, seeds = [], []
    for path in files:
        where = path.relative_to(folder).parts[:-1] or (path.stem,)
        seeds.append(SEED.search("/".join(where)))
        with errors_named("the file is not what its name says", str(path)):
            runs.append(read(path).assign(arm=where[0], run="/".join(where)))
        if seed := seeds[-1]:
            runs[-1]["seed"] = seed[1]
    table = pd.concat(runs, ignore_index=True)
    return table if all(seeds) else table.drop(columns="seed", errors="ignore")
