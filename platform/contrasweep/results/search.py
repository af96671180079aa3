"""Results of a search: its trials, the importance of settings, and the best settings, also as a file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from contrasweep import canonical
from contrasweep.commands import COMMAND, COMMAND_PATH, OPTIONS
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.results.notices import LEAST_EQUAL, arms_in_words
from contrasweep.rows import row_beside
from contrasweep.schema import validate
from contrasweep.storage.record import COUNTING, Record, RecordsById, Status
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study import dotted
from contrasweep.study.arm_budget import of_search
from contrasweep.study.replicates import extended
from contrasweep.study.space import Parameter, drawn_from

if TYPE_CHECKING:  # brings SciPy along
    from contrasweep.results.table import Cell


SEARCH_FIELDS = (
    "searcher",
    "searcher_options",
    "pruner",
    "pruner_options",
    "slots",
    "space",
    "config",
    "start_points",
)
"""Fields of a study and of an arm by which another search may try other configurations with the same seed."""


def start_notes(document: StudyDocument) -> list[str]:
    """Return sentences that a reader must know on how the searches of the arms began; none for a grid.

    The first says how many known good settings the search of each arm began with; it is left out if all have as many.
    The second names the arms whose search was declared differently in an earlier declaration of this study.
    """
    if not document.search:
        return []
    notes = []
    arms = document.spec.get("arms", {})
    counts = {arm: len(arms.get(arm, {}).get("start_points") or ()) for arm in document.arms}
    if len(set(counts.values())) > 1:
        known = ", ".join(f"{arm} {n}" for arm, n in counts.items())
        notes.append(f"start points: {known}; arms with more knew more")
    # The arms whose search was declared otherwise before. A search with another seed does not count: none of its trials
    # is shown (`searched`).
    fields_now = _fields_of_searches(document.spec)
    changed = set()
    for entry in document.log:
        if entry.spec and entry.spec.get("search_seed") == document.spec.get("search_seed"):
            fields_before = _fields_of_searches(entry.spec)
            for arm, fields in fields_now.items():
                if fields_before.get(arm, fields) != fields:
                    changed.add(arm)
    if changed:
        names = ", ".join(arm for arm in arms if arm in changed)
        notes.append(
            f"the search of {names} was another before: its configurations and best score are of both"
        )
    return notes


def _fields_of_searches(spec: Config) -> dict[str, list[object]]:
    """Return for each arm of a declaration the values of the fields `SEARCH_FIELDS`, its own or those of the study."""
    # Where an arm does not give a field, that of the study holds for it.
    return {
        arm: [{**spec, **fields}.get(name) for name in SEARCH_FIELDS]
        for arm, fields in spec.get("arms", {}).items()
    }


CONFIGURATION_COLUMNS = ["trial_id", "arm", "value", "status"]
"""The columns of a frame of configurations that are no settings."""
ENOUGH = 20
"""With fewer configurations, a setting that does not stand out may matter all the same: a tenth of 20 are two."""


def settings(frame: pd.DataFrame) -> list[str]:
    """Return the searched settings, which are columns of a `search_frame`."""
    return [str(column) for column in frame.columns if column not in CONFIGURATION_COLUMNS]


def searched(records: Iterable[Record], document: StudyDocument) -> list[Record]:
    """Return the records of the search of a study, without those of earlier searches with another seed or folds."""
    # The fold of a record is None where the study has no folds.
    folds = document.spec.get("search_folds") or [0]
    return of_search(records, document.spec.get("search_seed") or 0, [None, *folds])


def search_frame(records: Iterable[Record], document: StudyDocument) -> pd.DataFrame:
    """Return the configurations of a search, in the order in which the searcher proposed them.

    Returns:
        One row a configuration: trial_id (of its first fold), arm, value (mean of the metric over its folds; NaN where
        a fold has none), status (of the first fold that is not done, else `done`), and the searched settings. Of a
        setting that changed while the trial trained, it has the last value. NaN: the configuration lacks the setting.
    """
    folds_searched = len(document.spec.get("search_folds") or [0])
    spaces = {arm: validate(dict[str, Parameter], document.space(arm)) for arm in document.arms}
    # The trials of each arm and configuration, one for each fold.
    folds_of: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(
        searched(records, document),
        key=lambda record: (record.notes.candidate or 0, record.arm, record.fold or 0),
    ):
        folds_of.setdefault((record.arm, canonical.dumps(record.config)), []).append(record)
    rows = []
    for (arm, _), trials in folds_of.items():
        to_run = folds_searched - len(trials)
        values = [trial.reported(document.metric) for trial in trials] + [np.nan] * to_run
        unfinished = [trial.status.value for trial in trials if not trial.status.counts]
        unfinished += [Status.PENDING.value] * to_run
        rows.append(
            {
                "trial_id": trials[0].trial_id,
                "arm": arm,
                "value": float(np.mean(values)),
                "status": unfinished[0] if unfinished else Status.DONE.value,
                **drawn_from(spaces.get(arm, {}), trials[0].config),
            }
        )
    frame = pd.DataFrame(rows, columns=None if rows else CONFIGURATION_COLUMNS)
    # pandas would make NaN of None, which may be an option, and 3.0 of 3 where a configuration lacks the setting.
    for name in settings(frame):
        column = [row.get(name, np.nan) for row in rows]
        if len({*map(type, column)}) > 1:
            frame[name] = pd.Series(column, dtype=object)
    return frame


def importance(frame: pd.DataFrame, document: StudyDocument) -> pd.DataFrame:
    """Return how much each searched setting of each arm matters, by PED-ANOVA.

    Returns:
        One row per arm and setting, the most important first: arm, setting, share, noise, configurations (how many were
        trained to their end) and verdict. The share is the setting's part in what tells the best tenth of the
        configurations from all of them. The noise is the share that shuffled scores reach. Both are NaN for too few
        configurations. The verdict is "matters", "no more than noise" or "too few configurations".
    """
    from contrasweep.tuning.searchers import importance as ped_anova

    rows = []
    for arm in document.arms:
        space = validate(dict[str, Parameter], document.space(arm))
        done = frame[(frame["arm"] == arm) & frame["status"].isin(COUNTING)]
        configs = []
        for row in done.to_dict("records"):
            # A setting that a configuration does not have is NaN, which differs from itself.
            drawn = {name: row[name] for name in space if name in row and row[name] == row[name]}
            configs.append((drawn, float(row["value"])))
        result = ped_anova(configs, space, mode=document.mode)
        # Without shares, as of too few configurations, each setting has a row all the same.
        for name in result.shares or space:
            share = result.shares.get(name, np.nan)
            noise = result.noise.get(name, np.nan)
            # A share above its noise matters; a share below it says something only with enough configurations.
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


def unmoved_notes(frame: pd.DataFrame, metric: str) -> list[str]:
    """Return a sentence on the arms whose configurations all have one value, as where a script ignores its settings.

    `frame` is a `search_frame` of `metric`. Fewer than `LEAST_EQUAL` configurations say nothing.
    """
    values = frame[frame["status"].isin(COUNTING)].groupby("arm", sort=False)["value"]
    unmoved = (values.size() >= LEAST_EQUAL) & (values.nunique() == 1)
    arms = list(unmoved.index[unmoved])
    if not arms:
        return []
    return [
        f"all configurations of {arms_in_words(arms)} have the same {metric}; check that their settings reach the "
        "training"
    ]


GRID_FIELDS = (
    "data",
    "folds",
    "metric",
    "mode",
    "alpha",
    "reference",
    "question",
    "smallest_difference",
    "labels",
)
"""Fields of a study's declaration that `rerun` keeps."""


@dataclass(frozen=True)
class Best:
    """An arm's best configuration in a search, or its best cell in a grid.

    `settings` are the searched settings (of a grid the cell's axes) by dotted key. `searched` is the metric of the best
    configuration in the search, as the mean over folds; `configurations` counts those that were trained to their end.
    `mean` and its interval `low` to `high` are those of the table's cell, over `n` trials: in a sweep of the
    confirmation. `collapsed` of these trials say that their embeddings collapsed. What is not known is None.
    """

    arm: str
    settings: Config
    configurations: int = 0
    searched: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    collapsed: int = 0

    def with_cell(self, cell: "Cell") -> "Best":
        """Return a copy with the mean, interval and numbers of trials and collapsed trials of the table's `cell`."""
        return replace(
            self, mean=cell.mean, low=cell.low, high=cell.high, n=cell.n, collapsed=cell.collapsed
        )


def best_of_search(
    search: pd.DataFrame,
    searched: RecordsById,
    confirmed: Iterable[Record],
    cells: "Mapping[str, Cell]",
    document: StudyDocument,
) -> list[Best]:
    """Return the best configuration of each arm, in the order of the study.

    Its settings are those that were confirmed; before a confirmation, those of the configuration with the best mean in
    the search. An arm is left out until a configuration was trained to its end. `search` is the `search_frame` of the
    trials in `searched`, trial id -> record. `confirmed` are the records of confirmations, and `cells` is arm -> cell
    of the table.
    """
    configs = {record.arm: record.config for record in confirmed}
    entries = []
    sign = 1 if document.mode == "max" else -1
    for arm in document.arms:
        of_arm = search[
            (search["arm"] == arm) & search["status"].isin(COUNTING) & search["value"].notna()
        ]
        if of_arm.empty:
            continue
        # The score is the best one of the search, whatever was confirmed: a confirmation has a mean of its own.
        row = of_arm.iloc[int((sign * of_arm["value"]).argmax())]
        config = configs[arm] if arm in configs else searched[row["trial_id"]].config
        settings = drawn_from(validate(dict[str, Parameter], document.space(arm)), config)
        best = Best(arm, settings, len(of_arm), float(row["value"]))
        entries.append(best.with_cell(cells[arm]) if arm in cells else best)
    return entries


def best_frame(entries: Sequence[Best]) -> pd.DataFrame:
    """Return one row per arm: arm, the settings of all arms (a column each), then the numbers of `Best`."""
    rows = []
    lacking = {name: np.nan for entry in entries for name in entry.settings}
    for entry in entries:
        # The other fields of `Best` are numbers.
        numbers = {k: v for k, v in vars(entry).items() if k not in ("arm", "settings")}
        rows.append(row_beside({"arm": entry.arm, **lacking, **entry.settings}, numbers))
    return pd.DataFrame(rows)


def rerun(entries: Iterable[Best], document: StudyDocument) -> MutableConfig:
    """Return the fields of a grid whose arms have their best settings: a study file that runs as it is.

    It has as many seeds as the study, but fresh ones: on the study's seeds the settings were chosen or scored already.

    Raises:
        SpecError: For a grid over datasets or with sub-grids, where an arm has no one best cell.
    """
    declared = document.required_spec
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
        # Without sub-grids each cell sets each axis, so a None among its settings is a value of the axis.
        config = dotted.merge(dotted.expand(arm.get("config") or {}), dotted.expand(entry.settings))
        fields = {name: arm[name] for name in ("trainable", "start", "resources") if arm.get(name)}
        # A command is declared by fields of the arm; in the study they are settings.
        if arm["trainable"] == COMMAND_PATH:
            del fields["trainable"]
            fields |= {COMMAND: config.pop(COMMAND), **config.pop(OPTIONS, {})}
        arms[entry.arm] = fields | {"config": config}
    # As many seeds, all above those that the study has used, or may use as it grows.
    seeds = declared.get("confirm_seeds") or declared.get("seeds") or [0]
    replicates = declared.get("replicates")
    if replicates and replicates["of"] == "seeds":
        seeds = extended(seeds, replicates["most"])
    first_seed = max(*seeds, declared.get("search_seed") or 0) + 1
    fresh_seeds = list(range(first_seed, first_seed + len(seeds)))
    kept = {name: declared[name] for name in GRID_FIELDS if declared.get(name) is not None}
    return {"name": f"{document.name}-best", **kept, "seeds": fresh_seeds, "arms": arms}
