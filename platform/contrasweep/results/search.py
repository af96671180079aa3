"""Results of a search: its trials, the importance of settings, and the best settings, also as a file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.schema import validate
from contrasweep.storage.record import COUNTING, Phase, Record, Status
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study import dotted
from contrasweep.study.space import Parameter, drawn_from

if TYPE_CHECKING:  # brings SciPy along
    from contrasweep.results.table import Cell


def start_notes(document: StudyDocument) -> list[str]:
    """Say how many known good settings each arm's search began with, where arms have not equally many."""
    arms = document.spec.get("arms", {}) if document.search else {}
    counts = {arm: len(arms.get(arm, {}).get("start_points") or ()) for arm in document.arms}
    if len(set(counts.values())) < 2:
        return []
    return [
        f"start points: {', '.join(f'{arm} {n}' for arm, n in counts.items())}; arms with more knew more"
    ]


OWN_COLUMNS = ["trial_id", "arm", "value", "status"]
"""The columns of a frame of configurations that are no settings."""
ENOUGH = 20
"""Configurations of which the best tenth are two: with fewer, that nothing stands out says nothing."""


def settings(frame: pd.DataFrame) -> list[str]:
    """The searched settings among the columns of a `search_frame`."""
    return [str(column) for column in frame.columns if column not in OWN_COLUMNS]


def search_frame(records: Iterable[Record], document: StudyDocument) -> pd.DataFrame:
    """Return the configurations of a search in the order of asking.

    Returns:
        One row a configuration: trial_id (of its first fold), arm, value (mean of the metric over its folds; NaN where
        a fold has none), status (that of the first fold that is not done, else `done`), and the searched settings; of a
        setting that changed while it trained the last value.
    """
    spaces = {arm: validate(dict[str, Parameter], document.space(arm)) for arm in document.arms}
    ended: dict[tuple[str, str], list[Record]] = {}
    # The trials of one configuration, a fold each, in the order in which the searcher asked for it.
    for record in sorted(records, key=lambda r: (r.notes.candidate or 0, r.arm, r.fold or 0)):
        if record.notes.phase == Phase.SEARCH:
            ended.setdefault((record.arm, canonical.dumps(record.config)), []).append(record)
    rows = [
        {
            "trial_id": rs[0].trial_id,
            "arm": arm,
            "value": float(np.mean([r.metrics.get(document.metric, np.nan) for r in rs])),
            "status": next((r.status.value for r in rs if not r.status.counts), Status.DONE.value),
            **drawn_from(spaces.get(arm, {}), rs[0].config),
        }
        for (arm, _), rs in ended.items()
    ]
    return pd.DataFrame(rows, columns=None if rows else OWN_COLUMNS)


def importance(frame: pd.DataFrame, document: StudyDocument) -> pd.DataFrame:
    """Return how much each searched setting of each arm matters, by PED-ANOVA.

    Returns:
        One row an arm and setting, the most important first: arm, setting, share (of what tells the best tenth of the
        configurations apart), noise (the share that shuffled scores reach), configurations (that were trained to their
        end), and verdict: "matters", "no more than noise" or "too few configurations". NaN where nothing can be told.
    """
    from contrasweep.tuning.searchers import importance as of

    rows = []
    for arm in document.arms:
        of_arm = frame[(frame["arm"] == arm) & frame["status"].isin(COUNTING)]
        space = validate(dict[str, Parameter], document.space(arm))
        configs = []
        for row in of_arm.to_dict("records"):
            # A setting that a configuration does not have is missing in its row of the frame.
            drawn = {
                str(k): v
                for k, v in row.items()
                if k in space and (isinstance(v, list | dict) or not pd.isna(v))
            }
            configs.append((drawn, float(row["value"])))
        result = of(configs, space, mode=document.mode)
        for name in result.shares or space:
            share = result.shares.get(name, np.nan)
            noise = result.noise.get(name, np.nan)
            # A share above its noise matters; one below tells something only if there were enough configurations.
            if share > noise:
                verdict = "matters"
            elif result.configurations >= ENOUGH:
                verdict = "no more than noise"
            else:
                verdict = "too few configurations"
            rows.append((arm, name, share, noise, result.configurations, verdict))
    return pd.DataFrame(
        rows, columns=["arm", "setting", "share", "noise", "configurations", "verdict"]
    )


GRID_FIELDS = (
    "data",
    "folds",
    "metric",
    "mode",
    "alpha",
    "reference",
    "question",
    "smallest_difference",
)
"""Fields of a study's declaration that its rerun keeps."""


@dataclass(frozen=True)
class Best:
    """An arm's best: of a search its best configuration, of a grid its best cell.

    `settings` are those searched (or the cell's axes) by dotted key. `searched` is the metric in the search (mean over
    its folds), of `configurations` that were trained to their end. `mean`, with `low` to `high`, is what the table has:
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

    def with_cell(self, cell: "Cell") -> "Best":
        """Return a copy with the mean, interval and number of trials of `cell`, the table's cell for it."""
        mean = cell.mean if cell.mean is not None and np.isfinite(cell.mean) else None
        return replace(self, mean=mean, low=cell.low, high=cell.high, n=cell.n)


def best_of_search(
    search: pd.DataFrame,
    confirmed: Iterable[Record],
    cells: "Mapping[str, Cell]",
    document: StudyDocument,
) -> list[Best]:
    """Return one entry an arm whose search has a configuration that was trained to its end, in the order of the study.

    The settings are those that were confirmed; where none was yet, those of the best in the search. `search` is the
    frame of `search_frame`, `confirmed` are the trials of confirmations, `cells` the table's by arm.
    """
    configs = {record.arm: record.config for record in confirmed}
    rows = []
    sign = 1 if document.mode == "max" else -1
    for arm in document.arms:
        of_arm = search[
            (search["arm"] == arm) & search["status"].isin(COUNTING) & search["value"].notna()
        ]
        if of_arm.empty:
            continue
        # The best by the search, unless the confirmation says which configuration it took.
        row = of_arm.iloc[int((sign * of_arm["value"]).argmax())]
        space = validate(dict[str, Parameter], document.space(arm))
        drawn = {
            str(key): value for key, value in row.items() if key not in OWN_COLUMNS and key in space
        }
        if arm in configs:
            drawn = drawn_from(space, configs[arm])
        best = Best(arm, drawn, len(of_arm), float(row["value"]))
        rows.append(best.with_cell(cells[arm]) if arm in cells else best)
    return rows


def best_of_grid(
    cells: "Iterable[tuple[str, Config, Cell]]", document: StudyDocument
) -> list[Best]:
    """Return one entry an arm: of its `cells` (arm, value by axis, cell) the one with the best mean.

    In the order of the study; an arm without a finished trial has none.
    """
    sign = 1 if document.mode == "max" else -1
    best = dict[str, Best]()
    for arm, axes, cell in cells:
        entry = Best(arm, axes).with_cell(cell)
        if entry.mean is not None and (
            arm not in best or sign * entry.mean > sign * (best[arm].mean or 0.0)
        ):
            best[arm] = entry
    return [best[arm] for arm in document.arms if arm in best]


def best_frame(entries: Iterable[Best]) -> pd.DataFrame:
    """Return one row for each arm: arm, its settings (dotted columns), configurations, searched, mean, low, high, n."""
    return pd.DataFrame(
        [
            {"arm": entry.arm, **entry.settings}
            | {k: v for k, v in vars(entry).items() if k not in ("arm", "settings")}
            for entry in entries
        ]
    )


def rerun(entries: Iterable[Best], document: StudyDocument) -> MutableConfig:
    """Return the fields of a grid whose arms have their best settings: a study file that runs as it is.

    Its seeds are fresh, as many as the study has: on those of the study the settings were chosen, or already scored.

    Raises:
        SpecError: For a grid over datasets or with sub-grids, where an arm has no one best cell.
    """
    declared = document.whole
    if "data" in document.axes or declared.get("subgrids"):
        raise SpecError(
            "a grid over datasets or with sub-grids has no one best cell an arm",
            place="--format",
            value="yaml",
            hint="`contrasweep report STUDY --json` has the settings of each trial",
        )
    arms = {}
    for entry in entries:
        arm = declared["arms"][entry.arm]
        settings = {  # without missing values, and numbers as Python's
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in entry.settings.items()
            if value is not None and not (isinstance(value, float) and np.isnan(value))
        }
        config = dotted.merge(dotted.expand(arm.get("config") or {}), dotted.expand(settings))
        arms[entry.arm] = {"trainable": arm["trainable"], "config": config}
    fields = {key: declared[key] for key in GRID_FIELDS if declared.get(key) is not None}
    # As many seeds, all above those that the study has used.
    seeds = declared.get("confirm_seeds") or declared.get("seeds") or [0]
    first = max(*seeds, declared.get("search_seed") or 0) + 1
    seeds = list(range(first, first + len(seeds)))
    return {"name": f"{document.name}-best", **fields, "seeds": seeds, "arms": arms}
