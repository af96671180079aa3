"""Which column of a table of runs has which role: arm, metric, what pairs runs, item, group of items, task."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from contrasweep.errors import SpecError, check_known
from contrasweep.rows import Mode, row_tuples
from contrasweep.storage.names import as_line
from contrasweep.study.foreign import SEED
from contrasweep.study.metric_names import SMALLER

ARM = "arm|model|method|system|algorithm|optimizer|variant|config|condition|entry|name"
"""Usual names of columns of arms. This and the following are patterns of whole names."""
REPEAT = "repeat|split_id"
"""Usual names of columns that tell the partitions into folds apart, where there are several."""
FOLD = f"fold|cv_fold|{REPEAT}"
"""Usual names of columns that pair runs by folds, which share training rows."""
COLUMNS = {
    "arm": "",
    "metric": "",
    "pair": f"{SEED}|random_state|rng|{FOLD}",
    "item": "(item|example)(_id)?|(sample|doc|question|instance)_id",
    "group": "(item_)?group|patient|document|subject",
    "block": "(task|dataset)(_name)?|benchmark",
}
"""Role -> usual names of columns with this role; arm and metric are looked for among the other columns."""
NO_SETTING = "state|status|user|host|created|notes|tags|sweep|.*date.*|.*time.*|duration"
"""Usual names of columns that trackers write beside the settings of a run."""
BASE = "base|baseline|control|reference|main"
"""Usual names of the arm that others are compared with."""
METRIC = "metric|score|value|main_score"
"""Usual names of the metric, where several columns may be it."""
NO_METRIC = (
    r"step|steps|epoch|epochs|time|runtime|timestamp|date|.*_time|.*seconds?|duration|run|run_id|trial|id|index|n|lr|"
    r"learning_rate|batch_size|.*_id|rank|unnamed.*|params|size|collapsed"
)
"""Usual names of columns of numbers that are no metrics."""
NO_VALUE = ("", "nan", "na", "n/a", "#n/a", "<na>", "null", "none")
"""Words for a missing number."""
LARGER = re.compile(
    r"(^|_)(acc|accuracy|f1|auc|auroc|score|precision|recall|map|ndcg|mrr|bleu|rouge|reward|return|r2|knn\d*|top\d*|"
    r"pass|win|wins|correct|hits?|psnr|ssim|iou|dice|exact_match|em|mcc|spearman|pearson|success)($|_|@|\d)"
)
"""What stands in the names of metrics for which larger values are better."""


@dataclass(frozen=True)
class Roles:
    """Which column has which role. `arm`, `pair` and `block` may be several columns; each other is one, or "" for none.

    `mode` says whether larger or smaller values of the metric are better. `reference` is the arm that others are
    compared with; None: every two are. `guessed` names the roles that the user has not given.
    """

    arm: tuple[str, ...]
    metric: str
    mode: Mode
    pair: tuple[str, ...]
    item: str
    group: str
    block: tuple[str, ...]
    reference: str | None
    guessed: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """Every column that has a role."""
        return [
            *self.arm,
            self.metric,
            *self.pair,
            *filter(None, (self.item, self.group)),
            *self.block,
        ]

    @property
    def folds(self) -> tuple[str, ...]:
        """The columns of `pair` that number folds or repeats.

        The last one numbers folds, those before it number repeats of the partition.
        """
        return tuple(name for name in self.pair if _matches(name, FOLD))

    @property
    def repeats_alone(self) -> bool:
        """Whether no column names folds: the last one of `folds` has a name for repeats, such as `repeat`."""
        return _matches(self.folds[-1], REPEAT)


def one_run_a_row(frame: pd.DataFrame, options: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with one run in each row.

    A row with columns such as `seed0` and `seed1` becomes a row for each of them, with two new columns: `seed`, `fold`
    or `run` has the number in the column's name, and `value` its entry. So it does with several columns that the option
    `metric` names with commas. Each of them is a task where another column has the arms, else an arm: the new column
    `task` or `arm` has its name. Any other table is returned unchanged.
    """
    # Column of a run -> its word, and its number or name.
    words, numbers = {}, {}
    for name in frame:
        if match := re.fullmatch(r"(seed|fold|run)_?(\d+)", _plain(str(name))):
            words[name], numbers[name] = match.groups()
    if options["metric"]:
        named = [name.strip() for name in options["metric"].split(",")]
        numbers = {name: name for name in named if name in frame}
        has_arms = options["arm"] or any(_matches(name, ARM) for name in frame.columns)
        # Two metrics, such as accuracy and F1, are no two tasks.
        if len(numbers) < len(named) or (has_arms and any(map(_better, named))):
            return frame
        words = dict.fromkeys(numbers, "task" if has_arms else "arm")
    word = next(iter(words.values()), "")
    if len(words) < 2 or {*words.values()} != {word} or word in frame or "value" in frame:
        return frame
    others = [name for name in frame if name not in words]
    rows = frame.melt(others, list(words), var_name=word, value_name="value")
    return rows.assign(**{word: rows[word].map(numbers)})


def guess_roles(frame: pd.DataFrame, options: Mapping[str, str]) -> Roles:
    """Return the roles of the columns of `frame`; those that `options` leave out are guessed by names and values.

    `options` has a text for each role of `COLUMNS`, for `mode` and for `reference`: "" to have it guessed, `none` for
    none, a name, or several names of columns with commas.

    Raises:
        SpecError: For a column that is not there, and where a guess is ambiguous; the hint names the option to give.
    """
    names = [str(name) for name in frame.columns]
    columns_of = _named_columns(names, options)

    # The columns with a usual name, for roles that no option names. The arm and the metric have no usual names here.
    named = set(itertools.chain(*columns_of.values()))
    for role, usual_names in COLUMNS.items():
        if options[role] or not usual_names:
            continue
        # Only items are grouped, so that without items the name of a group says nothing.
        if role == "group" and not columns_of["item"]:
            continue
        columns_of[role] = [
            name for name in names if _matches(name, usual_names) and name not in named
        ]
    for role in ("item", "group", "block", "metric"):
        if len(columns_of[role]) > 1 and not (role == "block" and options[role]):
            raise SpecError(
                f"one column is the {role}", place=f"--{role}", value=", ".join(columns_of[role])
            )
    _check_seeds(frame, [name for name in columns_of["pair"] if not _matches(name, FOLD)])

    # The arm and the metric are among the columns without a role.
    taken = set(itertools.chain(*columns_of.values()))
    free = [name for name in names if name not in taken]
    arms = columns_of["arm"] or _arm(frame, free)
    free = [name for name in free if name not in arms]
    # The frame of a study says what its metric is.
    metric_of_study = frame.attrs.get("metric")
    if columns_of["metric"]:
        metric = columns_of["metric"][0]
    elif metric_of_study in free:
        metric = metric_of_study
    else:
        metric = _metric(frame, free)

    # Which values are better: as the option says, or the study, or the name of the metric.
    mode_of_study = frame.attrs.get("mode") if metric == metric_of_study else None
    mode = options["mode"] or mode_of_study or mode_of_name(metric)
    check_known(
        mode, "modes", ("max", "min"), "a mode says which values are better", place="--mode"
    )

    # The reference: by default that of the study, or the first arm with a usual name of one.
    labels = list(dict.fromkeys(row_labels(frame, arms)))
    likely = [name for name in labels if _matches(name, BASE)]
    if "reference" in frame.attrs:
        likely = [name for name in labels if name == frame.attrs["reference"]]
    reference = options["reference"] or next(iter(likely), "none")
    if reference != "none":
        check_known(reference, "arms", labels, "there is no such arm", place="--reference")
    # Repeats stand first, then folds, then seeds.
    pair = sorted(
        columns_of["pair"],
        key=lambda name: (not _matches(name, FOLD), not _matches(name, REPEAT)),
    )
    return Roles(
        arm=tuple(arms),
        metric=metric,
        mode=mode,  # type: ignore[arg-type]
        pair=tuple(pair),
        # Each of these has one column at most.
        item=next(iter(columns_of["item"]), ""),
        group=next(iter(columns_of["group"]), ""),
        block=tuple(columns_of["block"]),
        reference=None if reference == "none" else reference,
        guessed=tuple(role for role in (*COLUMNS, "mode", "reference") if not options[role]),
    )


def _named_columns(names: Sequence[str], options: Mapping[str, str]) -> dict[str, list[str]]:
    """Return role of `COLUMNS` -> the columns that its option names; `SpecError` unless each is there, with one role.

    `names` are those of all columns. A role whose option is "" or `none` has no columns yet.
    """
    columns_of = {}
    for role in COLUMNS:
        text = "" if options[role] == "none" else options[role]
        # The name of one column may have a comma.
        parts = [text] if text in names else text.split(",")
        columns_of[role] = [part.strip() for part in parts if part.strip()]
    named = list(itertools.chain(*columns_of.values()))
    for role, columns in columns_of.items():
        for name in columns:
            check_known(
                name, "columns with values", names, "there is no such column", place=f"--{role}"
            )
            if named.count(name) > 1:
                raise SpecError("a column has one role", place=f"--{role}", value=name)
    return columns_of


def _check_seeds(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise `SpecError` where one of the `columns`, which the user has named for seeds, holds a setting instead.

    Several columns may number the same seeds, if each value of one belongs to one value of the others. Otherwise one of
    them is a setting. Runs of one seed with different settings are no further replicates: they share its random
    numbers.
    """
    combinations = frame[columns].drop_duplicates()
    if any(combinations[name].duplicated().any() for name in columns):
        raise SpecError(
            "one column of a pair names seeds; over a setting values are averaged",
            place="--pair",
            value=", ".join(columns),
            hint="--block COLUMN --over these for each setting",
        )


def row_labels(frame: pd.DataFrame, columns: Sequence[str]) -> "pd.Series[str]":
    """Return one text for each row [rows], from its entries in these columns: `adam 0.1` for `adam` and `0.1`."""
    # Imported here because it brings SciPy, which the list of readers does without.
    from contrasweep.results.building import joined

    texts = frame[list(columns)].astype(str).map(lambda text: as_line(str(text)))
    return pd.Series([joined(labels) for labels in row_tuples(texts, columns)], frame.index)


def _matches(name: str, pattern: str) -> bool:
    """Whether the whole name matches the pattern, whatever its case and its separators."""
    return re.fullmatch(pattern, _plain(name)) is not None


def _plain(name: str) -> str:
    """Return the name of a column in lower case, with `_` for other signs: `Learning rate` is `learning_rate`.

    The words that trackers put before the names of settings, such as `params.`, are removed.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", str(name).lower()).strip("_")
    return re.sub("^((h|hyper)?params|parameters|args|cfg|config|user_attrs)_", "", plain)


def as_numbers(column: "pd.Series[Any]") -> tuple["pd.Series[float]", "pd.Series[bool]"]:
    """Return a column as numbers, and a mask of the entries that are texts and no numbers.

    The number is NaN for such an entry and for a missing one. Truth values are 1 and 0. Words that programs write for a
    missing number, such as `nan`, count as missing and are not in the mask.
    """
    words = column.astype(str).str.strip().str.lower()
    if words[column.notna()].str.endswith("%").all():
        column = words.str.removesuffix("%")
    values = pd.to_numeric(column, errors="coerce").astype("float64")
    values = values.fillna(words.map({"true": 1.0, "false": 0.0}))
    return values, values.isna() & column.notna() & ~words.isin(NO_VALUE)


def _of_numbers(column: "pd.Series[Any]") -> bool:
    """Whether a column has numbers or truth values, as texts or objects too, and nothing else."""
    values, wrong = as_numbers(column)
    return bool(values.notna().any() and not wrong.any())


def setting_columns(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Return those of the columns `names` that may hold settings of runs: some of their rows have the same value.

    A column whose values all differ holds names of runs, such as `Name` in an export of W&B, or results.
    """
    shared = [name for name in names if frame[name].nunique() < len(frame)]
    return [name for name in shared if not _matches(name, NO_SETTING)]


def _arm(frame: pd.DataFrame, free: Sequence[str]) -> list[str]:
    """Return the column that names the arms, in a list.

    It is looked for among the columns `free`, which have no role. It is the first column with a usual name, such as
    `method`, in which values repeat; else the only column of texts that repeat. Where no texts repeat, it is the first
    with a usual name. `SpecError` where no column fits.
    """
    settings = setting_columns(frame, free)
    usual = [name for name in settings if _matches(name, ARM)]
    repeated = [
        name for name in settings if frame[name].nunique() > 1 and not _of_numbers(frame[name])
    ]
    if usual or len(repeated) == 1:
        return (usual or repeated)[:1]
    # With one run of each arm no arm repeats. The column is taken all the same: a later error tells that more clearly.
    named = [name for name in free if _matches(name, ARM)]
    if named and not repeated:
        return named[:1]
    hint = (
        f"--arm COLUMN, with the name of an arm in each row, or --metric A,B if each arm has a column; the columns are "
        f"{', '.join(map(str, frame.columns))}"
    )
    raise SpecError(
        "which column names the arm is not clear", place="--arm", value=repeated or None, hint=hint
    )


def _metric(frame: pd.DataFrame, free: Sequence[str]) -> str:
    """Return the column of the metric among the columns `free`, those without a role.

    It is the only one of numbers, or the only one of numbers with a usual name; `SpecError` where there is no such one.
    """
    # The columns of numbers, without those that have another role by their name, such as a step or an id.
    numbers = [name for name in free if _of_numbers(frame[name])]
    other_roles = "|".join([NO_METRIC, *filter(None, COLUMNS.values())])
    likely = [name for name in numbers if not _matches(name, other_roles)]
    usual = [name for name in likely if _matches(name, METRIC)]
    for candidates in (likely, usual):
        if len(candidates) == 1:
            return candidates[0]
    hint = (
        f"--metric COLUMN, with the number of one run in each row, or --metric A,B if each task has a column; the "
        f"numeric columns are {', '.join(numbers)}"
    )
    if not numbers:
        first_row = ", ".join(f"{name} {frame[name].iloc[0]!r}" for name in free)
        hint = (
            f"one column has the number of one run in each row; the first row here has {first_row}"
        )
    raise SpecError(
        "which column is the metric is not clear",
        place="--metric",
        value=likely or None,
        hint=hint,
    )


def mode_of_name(metric: str, place: str = "--mode") -> str:
    """Return the mode of a metric by its name, `max` or `min`; `SpecError` at `place` where the name says neither."""
    mode = _better(metric)
    if not mode:
        hint = f"{metric}:max or {metric}:min"
        if place == "--mode":
            hint = "--mode max (larger is better) or --mode min"
        raise SpecError(
            "which values are better is not clear", place=place, value=metric, hint=hint
        )
    return mode


def _better(metric: str) -> str:
    """Return the mode that the name of a metric says, `max` or `min`; "" where it says neither, or both."""
    smaller = SMALLER.search(_plain(metric))
    larger = LARGER.search(_plain(metric))
    if bool(smaller) == bool(larger):
        return ""
    return "min" if smaller else "max"
