"""Folders of runs that other programs wrote, as a frame: one reader a kind of file. Nothing in them is executed.

A run lies in ARM/.../FILE: the first folder below the source names its arm, and `seed3`, `seed_3` or `seed=3` anywhere
in its path its seed. A W&B run and a log of inspect_ai say by themselves what they are of.
"""

import json
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from contrasweep.commands import files
from contrasweep.data.safety import read_member
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_path, installed, path_of
from contrasweep.judging.curves import LAST, At

SEED = re.compile(r"seed[_=-]?(\d+)", re.IGNORECASE)
MOST_BYTES = 2**31
"""No larger file is read."""
MOST_UNPACKED = 2**28
ZSTANDARD = 93
"""The compression of zip files that Python 3.11 does not know."""
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, True: 1.0, False: 0.0}
"""inspect_ai: correct, incorrect, partly, no answer."""


def _rows(path: Path) -> pd.DataFrame:
    """A file that training programs leave their metrics in: a row a step, or one of them all."""
    table = pd.DataFrame(files.read(path))
    if table.empty:
        raise ValueError("it has no metrics")
    return table


def _samples(path: Path) -> pd.DataFrame:
    """lm-evaluation-harness, `--log_samples`: a row an example, with its scores."""
    rows = pd.read_json(path, lines=True, compression=None)
    told = {name for names in rows.get("metrics", []) for name in names}
    scores = [name for name in rows if name in told] or [
        name for name in rows.select_dtypes("number") if name not in ("doc_id", "idx", "target")
    ]
    return rows[["doc_id", *scores, *({"filter"} & set(rows))]].assign(
        task=re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", path.stem)
    )


def _report(path: Path) -> pd.DataFrame:
    """MTEB: the main score of a task, over its subsets of the test split. Else a log of inspect_ai."""
    found: Any = json.loads(path.read_text())
    if "eval" in found:
        return _scores(path, found, found["samples"])
    parts = [part["main_score"] for parts in found["scores"].values() for part in parts]
    return pd.DataFrame([{"task": found["task_name"], "main_score": sum(parts) / len(parts)}])


def _packed(path: Path) -> pd.DataFrame:
    """inspect_ai's zip file."""

    def member(name: str) -> Any:
        info = packed.getinfo(name)
        if info.compress_type != ZSTANDARD:
            return json.loads(read_member(packed, name, MOST_UNPACKED))
        if info.file_size > MOST_UNPACKED:
            raise ValueError(f"{name} has {info.file_size:,} bytes")
        file.seek(info.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)
        return json.loads(pa.decompress(file.read(info.compress_size), info.file_size, "zstd", asbytes=True))

    with zipfile.ZipFile(path) as packed, path.open("rb") as file:
        return _scores(path, member("header.json"), member("summaries.json"))


def _scores(path: Path, head: Any, samples: Any) -> pd.DataFrame:
    """The scores of the samples of an evaluation, over its epochs."""
    if head["status"] != "success":
        raise ValueError(f"the evaluation has not ended: {head['status']}")
    rows = []
    for sample in samples:
        rows.append({"sample_id": str(sample["id"])})
        for scorer, score in (sample["scores"] or {}).items():
            parts = score["value"] if isinstance(score["value"], dict) else {"": score["value"]}
            rows[-1] |= {f"{scorer}.{part}".rstrip("."): GRADES.get(value, value) for part, value in parts.items()}
    means = pd.DataFrame(rows).groupby("sample_id", sort=False).mean(numeric_only=True).reset_index()
    return means.assign(model=head["eval"]["model"], task=head["eval"]["task"], run=path.stem)


def _wandb(path: Path) -> pd.DataFrame:
    """A W&B run: its history and summary, beside its settings."""
    curve, (settings,) = _rows(path), pd.json_normalize(files.wandb_config(path.read_bytes())).to_dict("records")
    taken = {str(name): value for name, value in settings.items() if name not in curve and str(name)[:1] != "_"}
    return curve.assign(**taken, run=path.parent.name)


CURVES = {"trainer_state.json": _rows, "metrics.csv": _rows, "events.out.tfevents.*": _rows, "*.wandb": _wandb}
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

    It has their metrics, `arm`, `run` (where it lies), and `seed` where all paths name one, unless the files say
    themselves of which run they are.

    Raises:
        SpecError: For a folder without a file of a kind that is known, and for a broken file.
    """
    more = {name: path_of("readers", name) for name in installed("readers")} if at == LAST else {}
    kinds: Mapping[str, str | Callable[[Path], pd.DataFrame]] = {**more, **(KINDS if at == LAST else CURVES)}
    found = next(((k, paths) for k in kinds if (paths := sorted(filter(Path.is_file, folder.rglob(k))))), None)
    if found is None:
        raise SpecError("no file of a known kind lies below", place=str(folder), hint=f"known: {', '.join(kinds)}")
    kind, runs, seeds = found[0], [], []
    read = import_path(named, "judge", "reader") if isinstance(named := kinds[kind], str) else named
    for path in found[1]:
        where = path.relative_to(folder).parts[:-1] or (path.stem,)
        seeds.append(SEED.search("/".join(where)))
        if path.stat().st_size > MOST_BYTES:
            raise SpecError("a file of results has up to 2 GiB", place="SOURCE", value=str(path))
        with errors_named("the file is not what its name says", str(path)):
            table = read(path)
            runs.append(at.of_curve(table) if kind in CURVES else table)
        if "run" not in runs[-1]:
            runs[-1] = runs[-1].assign(arm=where[0], run="/".join(where), seed=seeds[-1] and seeds[-1][1])
    table = pd.concat(runs, ignore_index=True)
    return table if all(seeds) or "arm" not in table else table.drop(columns="seed", errors="ignore"), kind in CURVES
