"""What a study recommends: each arm's best settings, with their score in the search and their confirmed one; and the
same as a study that runs them again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
import pandas as pd

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.results.cells import Cell
from contrasweep.results.searched import OWN_COLUMNS
from contrasweep.schema import validate
from contrasweep.storage.record import Record, Status
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study import dotted
from contrasweep.study.space import Parameter, drawn_from
from contrasweep.tuning.pruners import scheduled

GRID_FIELDS = ("data", "folds", "metric", "mode", "alpha", "reference", "question", "smallest_difference")
"""Fields of a study's declaration that its rerun keeps."""


@dataclass(frozen=True)
class Best:
    """An arm's best: of a search its best configuration, of a grid its best cell.

    `settings` are those searched (or the cell's axes) by dotted key. `searched` is the metric in the search (mean over
    its folds), of `configurations` that were trained to their end; `mean` with `low` to `high` is what the table has:
    of a search the confirmation on `n` fresh replicates. None stands for what there is not.
    """

    arm: str
    settings: Config = field(default_factory=dict)
    configurations: int = 0
    searched: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


def best_of_search(
    search: pd.DataFrame, confirmed: Iterable[Record], cells: Mapping[str, Cell], document: StudyDocument
) -> list[Best]:
    """One entry an arm whose search has a configuration that was trained to its end, in the order of the study.

    The settings are those that were confirmed; where none was yet, those of the best in the search.
    """
    configs = {record.arm: scheduled.last_settings(record.config) for record in confirmed}
    rows, sign = [], 1 if document.mode == "max" else -1
    for arm in document.arms:
        whole = search[(search["arm"] == arm) & (search["status"] == Status.DONE) & search["value"].notna()]
        if whole.empty:
            continue
        row = whole.iloc[int((sign * whole["value"]).argmax())]
        space = validate(dict[str, Parameter], document.space(arm))
        drawn = {str(key): value for key, value in row.items() if key not in OWN_COLUMNS and key in space}
        if arm in configs:
            drawn = drawn_from(space, configs[arm])
        rows.append(
            Best(arm, drawn, len(whole), float(row["value"]), **(_confirmed(cells[arm]) if arm in cells else {}))
        )
    return rows


def best_of_grid(cells: Iterable[tuple[str, Config, Cell]], document: StudyDocument) -> list[Best]:
    """One entry an arm: of its `cells` (arm, axes, cell) the one with the best mean."""
    sign, best = 1 if document.mode == "max" else -1, dict[str, Best]()
    for arm, axes, cell in cells:
        entry = Best(arm, axes, **_confirmed(cell))
        if entry.mean is not None and (arm not in best or sign * entry.mean > sign * (best[arm].mean or 0.0)):
            best[arm] = entry
    return [best[arm] for arm in document.arms if arm in best]


def best_frame(entries: Iterable[Best]) -> pd.DataFrame:
    """One row an arm: arm, its settings (dotted columns), configurations, searched, mean, low, high, n."""
    return pd.DataFrame(
        [
            {"arm": entry.arm, **entry.settings}
            | {"configurations": entry.configurations, "searched": entry.searched}
            | {"mean": entry.mean, "low": entry.low, "high": entry.high, "n": entry.n}
            for entry in entries
        ]
    )


def rerun(entries: Iterable[Best], document: StudyDocument) -> MutableConfig:
    """The fields of a grid whose arms have their best settings: a study file that runs as it is.

    Raises `SpecError` for a grid over datasets or with sub-grids, where an arm has no one best cell.
    """
    declared = document.spec
    if "data" in document.axes or declared.get("subgrids"):
        raise SpecError(
            "a grid over datasets or with sub-grids has no one best cell an arm",
            place="--format",
            value="yaml",
            hint="`contrasweep report STUDY --json` has the settings of each trial",
        )
    tuned: dict[str, MutableConfig] = {}
    arms = {}
    by_arm = {entry.arm: entry for entry in entries}
    for name in _bases_first(list(by_arm), declared.get("freeze") or {}):
        arm, own = declared["arms"][name], _plain(by_arm[name].settings)
        below = tuned.get((declared.get("freeze") or {}).get(name, ""), {})
        kept = (dotted.nest(key, value) for key, value in below.items() if key not in (arm.get("space") or {}))
        tuned[name] = {**below, **own}
        config = dotted.merge(*kept, dotted.expand(arm.get("config") or {}), dotted.expand(own))
        arms[name] = {"trainable": arm["trainable"], "config": config}
    fields = {key: declared[key] for key in GRID_FIELDS if declared.get(key) is not None}
    seeds = declared.get("confirm_seeds") or declared.get("seeds") or [0]
    return {"name": f"{document.name}-best", **fields, "seeds": seeds, "arms": {name: arms[name] for name in by_arm}}


def _bases_first(arms: Sequence[str], freeze: Mapping[str, str]) -> list[str]:
    """`arms` with each after the one that it is frozen on; the declaration was checked to have no circle."""
    ordered: list[str] = []
    while waiting := [arm for arm in arms if arm not in ordered]:
        ordered += [arm for arm in waiting if freeze.get(arm) not in waiting]
    return ordered


class Confirmed(TypedDict, total=False):
    """The fields of a `Best` that the table's cell says."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


def _confirmed(cell: Cell) -> Confirmed:
    mean = cell.mean if cell.mean is not None and np.isfinite(cell.mean) else None
    return {"mean": mean, "low": cell.low, "high": cell.high, "n": cell.n}


def _plain(settings: Config) -> MutableConfig:
    """The settings without those that stand for none, numbers as Python's."""
    return {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in settings.items()
        if value is not None and not (isinstance(value, float) and np.isnan(value))
    }
