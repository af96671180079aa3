"""`judge`: a table of runs that others made, with the verdicts that a study's table has."""

import html
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from contrasweep.errors import SpecError, check_known, plural
from contrasweep.judging.board import Board, board_of
from contrasweep.judging.layout import Over, RunLayout, layout_of
from contrasweep.judging.roles import (
    COLUMNS,
    Roles,
    as_numbers,
    guess_roles,
    one_run_a_row,
    row_labels,
    setting_columns,
)
from contrasweep.judging.sources import CurveRow, numbers, read_table
from contrasweep.markdown_text import fenced, markdown_text
from contrasweep.reporting.formats import csv_text
from contrasweep.results.advice import Advice, Prices, advice
from contrasweep.results.answer import Pair
from contrasweep.results.building import DecisionRule, build_table
from contrasweep.results.requirement import Outcome, Requirement
from contrasweep.results.table import Table
from contrasweep.statistics.checks import checked_level
from contrasweep.statistics.family import pairs_of
from contrasweep.statistics.noise import Noise

COLLAPSED = "collapsed"
"""The column that marks, with 1, trials of a study whose embeddings collapsed."""
MOST_COMPARISONS = 1000
"""The most comparisons of one table."""


@dataclass(frozen=True, repr=False)
class Judged:
    """The verdicts on a table of runs.

    Attributes:
        name: The name of the source.
        roles: Which column has which role.
        design: How the arms are compared, in a sentence.
        columns: Which column has which role and which roles were guessed, in a sentence.
        table: The table, as a study has it.
        cells: How many cells, such as tasks, each compared value is a mean over. A replicate then needs so many runs.

    Example:
        >>> import pandas as pd
        >>> import contrasweep as cs
        >>> runs = {"model": ["a"] * 3 + ["b"] * 3, "seed": [0, 1, 2] * 2, "accuracy": [0.8, 0.7, 0.9, 0.6, 0.5, 0.8]}
        >>> judged = cs.judge(pd.DataFrame(runs))
        >>> print(judged.design)
        2 arms, 3 seeds in common: paired by seed; family of 1 comparison; metric accuracy, larger is better
        >>> judged.pairs[0].comparison.verdict
        'better'
    """

    name: str
    roles: Roles
    design: str
    columns: str
    table: Table
    cells: int

    @cached_property
    def advice(self) -> Advice:
        """Advice on what would decide the undecided comparisons."""
        # The advice is for the design of the comparison with the most replicates.
        designs = [pair.comparison.evidence.common.design for pair in self.pairs]
        design = max(designs, key=lambda design: (design.replicates, design.seeds))
        # The trials of a study of this design. Items and tasks are no trials of an arm: without an arm they have no
        # price.
        arms: set[str | None] = {None}
        if design.counts_trainings:
            arms = {arm for pair in self.pairs for arm in (pair.a, pair.b)}
        folds = range(design.replicates) if design.folds else [None]
        rows = itertools.product(arms, folds, range(design.seeds), range(self.cells))
        planned = pd.DataFrame(rows, columns=["arm", "fold", "seed", "cell"])
        return advice(self.table.answer, Prices(planned, design.folds, [], None))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The comparisons, each with its verdict."""
        return self.table.pairs

    def required(self, requirement: Requirement) -> Outcome:
        """Return whether every arm meets the requirement against the reference.

        Raises:
            SpecError: There is no reference.
        """
        base = self.roles.reference
        if base is None:
            hint = "--reference ARM"
            raise SpecError(
                "what is required is of arms against a reference", place="--require", hint=hint
            )
        # Each comparison as one of an arm with the reference.
        return requirement.outcome_of_all(
            pair.seen_from(pair.b if pair.a == base else pair.a) for pair in self.pairs
        )

    def to_text(self, width: int = 100) -> str:
        """Return the design, the table with its verdicts, and the advice, for a terminal."""
        parts = [self.design, self.columns, "", self.table.to_text(width).rstrip()]
        if self.advice:
            parts += ["", self.advice.to_text(width).rstrip()]
        return "\n".join(parts) + "\n"

    def to_markdown(self) -> str:
        """Return the design, the table with its verdicts and the advice in Markdown, for a README or an issue."""
        advised = f"\n{fenced(self.advice.to_text().rstrip())}\n" if self.advice else ""
        return f"{markdown_text(self.design)}\n\n{self.table.to_markdown().rstrip()}\n{advised}"

    def to_latex(self) -> str:
        """Return the table as LaTeX, with the design as a comment."""
        return f"% {self.design}\n{self.table.to_latex()}"

    def to_html(self) -> str:
        """Return the design, the table with its verdicts and the advice as a fragment of HTML with its own style."""
        paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in (self.design, self.columns))
        return f"{paragraphs}{self.table.to_html()}{self.advice._repr_html_() or ''}"

    def to_csv(self) -> str:
        """Return the comparisons as CSV, one row for each."""
        return csv_text(self.table.comparisons().assign(design=self.design))

    def to_dict(self) -> dict[str, object]:
        """Return the verdicts and the table for JSON."""
        return {
            "source": self.name,
            "design": self.design,
            "roles": vars(self.roles),
            "table": self.table.to_rows(),
            "comparisons": [pair.to_dict() for pair in self.pairs],
            "notes": self.table.answer.notes,
            "advice": self.advice.to_dict(),
        }

    def __str__(self) -> str:
        return self.to_text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_html()


def judge(
    source: "str | Path | pd.DataFrame",
    *,
    arm: str = "",
    metric: str = "",
    pair: str = "",
    item: str = "",
    group: str = "",
    block: str = "",
    reference: str = "",
    mode: str = "",
    margin: float | None = None,
    alpha: float | None = None,
    over: Over | None = None,
    at: str = "last",
    reader: str = "",
    i_know: bool = False,
) -> Judged:
    """Judge results of others: a table with one row per run, or one row per score of a run, on an item or a task.

    A role that is left out is guessed from the names and values of columns, and the result says what was guessed.
    `none` switches a role off.

    Args:
        source: A CSV, TSV, JSON lines or Parquet file, a folder of runs, `KIND:ADDRESS:NAME` of a store, or a frame.
        arm: The column that names what is compared; several columns with commas.
        metric: The column of the values; several with commas where each arm has one, or each task beside `arm`.
        pair: The columns by which runs of two arms belong together, such as seed and fold. Without any, the runs are
            unpaired.
        item: The column that names test items, where each row is the score of one item.
        group: The column that names groups of items that belong together.
        block: The column that names tasks or datasets; or the columns of settings that are averaged over, with `over`.
        reference: The arm that all others are compared with; without it every two arms are compared.
        mode: "max" where larger values are better, or "min".
        margin: The smallest difference of interest, in units of the metric; by default that of a study.
        alpha: The chance of any false verdict; by default that of a study, or 0.05.
        over: What verdicts over tasks hold for: "further" tasks like these (the default), "these" tasks (or settings)
            together, or "each" by itself. Without `over` and `block`, a study's own axes and `question` are taken.
        at: Which value of a curve counts: `last`, `best-of-validation:METRIC` or `step:N`.
        reader: The dotted path `package.module:name` of a function that is called with the source and returns a frame.
        i_know: Whether the best value of the metric itself may count, which is a maximum over noise.

    Returns:
        The table, its verdicts, and what would decide the undecided comparisons.

    Raises:
        SpecError: For a source that cannot be read, a role that is not clear, and runs that tell nothing of the noise.

    Example:
        >>> import pandas as pd
        >>> import contrasweep as cs
        >>> runs = pd.DataFrame({"arm": ["base"] * 3 + ["new"] * 3, "loss": [0.5, 0.6, 0.4, 0.2, 0.3, 0.25]})
        >>> print(cs.judge(runs, alpha=0.1).columns)
        columns: arm arm, metric loss, mode min, reference base (guessed: arm, metric, mode, reference)
    """
    options = {
        "arm": arm,
        "metric": metric,
        "pair": pair,
        "item": item,
        "group": group,
        "block": block,
        "mode": mode,
        "reference": reference,
        "at": at,
        "reader": reader,
    }
    kinds = ("further", "these", "each")
    check_known(over or "further", "kinds", kinds, "there is no such kind", place="--over")
    name, roles, layout, roles_text, declared, over = read_source(source, options, over, i_know)
    # The level and the smallest difference that a study declares are of its metric, and the defaults for it.
    defaults = declared if roles.metric == declared.get("metric") else {}
    alpha = checked_level(defaults.get("alpha", 0.05) if alpha is None else alpha)
    margin = defaults.get("smallest_difference") if margin is None else margin

    # The arms that are compared. More comparisons than anybody reads are better shown as a ranking.
    arms = list(dict.fromkeys(layout.trials["arm"]))
    compared = pairs_of(arms, roles.reference)
    if not compared:
        raise SpecError(
            "two arms or more are compared",
            place=name,
            value=", ".join(arms[:3]),
            hint="--arm COLUMN",
        )
    if len(compared) > MOST_COMPARISONS:
        hint = "--reference ARM, or --board for a ranking of all"
        raise SpecError(
            f"up to {MOST_COMPARISONS} comparisons are one table", value=len(compared), hint=hint
        )

    table = _table(name, roles, layout, over, margin, alpha)
    table = replace(table, notes=(*table.notes, *declared.get("notes", ())))
    # A single run of each arm tells nothing of the noise, and no verdict may look as if it did. Where one arm has
    # several runs, the reason begins with `one run:` (`spread_beside`) and tells how these spread.
    several_runs = False
    for entry in table.pairs:
        judgement = entry.comparison.judgement
        one_run = judgement is not None and judgement.reason.startswith("one run:")
        several_runs = several_runs or one_run or entry.comparison.n > 1
    if not several_runs:
        hint = "give seeds (--pair), items (--item) or tasks (--block)"
        raise SpecError(
            "one run of each arm, or none in common, tells nothing of the noise",
            place=name,
            hint=hint,
        )
    size = len(table.pairs)
    against = f" against {roles.reference}" if roles.reference else ""
    family = f"family of {plural(size, 'comparison')}{against}"
    cells = 1
    if over == "these" and layout.axes:
        cells = layout.trials.groupby(list(layout.axes)).ngroups
    return Judged(
        name,
        roles,
        _design_text(layout, roles, len({*itertools.chain(*compared)}), family),
        roles_text,
        table,
        cells,
    )


def _table(
    name: str, roles: Roles, layout: RunLayout, over: Over, margin: float | None, alpha: float
) -> Table:
    """Return the table of a source's trials, which `layout` has, with the verdicts on its comparisons.

    All its comparisons are one family: of arms over all tasks, or in each task. `over`, `margin` and `alpha` are
    options of `judge`; `name` is the title of the table.
    """
    # Runs may be compared as two samples where no folds, items or pooled tasks pair them.
    pooled = over == "these" and bool(layout.axes)
    rule = DecisionRule(
        design=layout.design,
        mode=roles.mode,
        alpha=alpha,
        question="cells" if over == "each" and layout.axes else "overall",
        margin=margin,
        reference=roles.reference,
        unpaired=layout.design.unit in ("seed", "run")
        and not (layout.design.folds or layout.items or pooled),
    )
    rows, columns = (list(layout.axes), ["arm"]) if rule.question == "cells" else (["arm"], [])
    # A prefix tells the metric from another column of the trials that has its name.
    metric = roles.metric
    if metric in layout.trials and metric != "value":
        metric = f"metric.{metric}"
    trials = layout.trials.copy()
    trials[metric] = trials["value"]
    return build_table(
        trials,
        rows=rows,
        columns=columns,
        axes=layout.axes,
        metric=metric,
        rule=rule,
        title=name,
        items=layout.items,
        weights=layout.trials.get("weight"),
    )


def rank(
    source: "str | Path | pd.DataFrame",
    *,
    alpha: float = 0.05,
    i_know: bool = False,
    **options: str,
) -> Board:
    """Rank the arms of others' results, each with the ranks that it may have.

    Args:
        source: The source of results, as in `judge`.
        alpha: The chance of any false order of two arms.
        i_know: Whether the best value of the metric itself may count, which is a maximum over noise.
        options: Options of `judge`: `arm`, `metric`, `pair`, `item`, `group`, `block`, `mode`, `at`, `reader`.

    Returns:
        The board.

    Raises:
        SpecError: As in `judge`, and where arms have too few replicates in common.
    """
    without_reference = options | {"reference": "none"}
    name, roles, layout, roles_text, *_ = read_source(source, without_reference, "further", i_know)
    if layout.items is not None:
        hint = "--pair none takes the runs of an item as one"
        raise SpecError("a board has seeds or items as replicates, not both", place=name, hint=hint)
    board = board_of(layout.trials, layout.design, roles.mode, checked_level(alpha))
    design = _design_text(layout, roles, layout.trials["arm"].nunique(), "board")
    return replace(board, design=design, columns=roles_text)


def noise_of(source: "str | Path | pd.DataFrame", same: str = "", **options: str) -> Noise:
    """Return the noise of one arm that was run twice, under two names.

    Args:
        source: The source of results, as in `judge`.
        same: The names of the two arms, with a comma between them; by default the only two arms.
        options: Options of `judge`: `arm`, `metric`, `pair`, `at`, `reader`.

    Returns:
        The values of both arms by seed, as means over folds; of unpaired runs in the order of the source.

    Raises:
        SpecError: As in `judge`, and where the runs are not of two arms that are replicated by seeds.
    """
    # Which values are better makes no difference to noise, so that it need not be guessed. By "further" the replicates
    # of a source with several tasks are its tasks, which is refused below.
    name, roles, layout, *_ = read_source(source, {"mode": "max"} | options, "further")
    runs = layout.trials
    arms = layout.trials["arm"].drop_duplicates().tolist()
    chosen = [arm.strip() for arm in same.split(",")] if same else arms
    for arm in chosen:
        check_known(arm, "arms", arms, "there is no such arm", place="--same")
    if len(chosen) != 2 or chosen[0] == chosen[1]:
        raise SpecError(
            "two arms are the same",
            place="--same",
            value=", ".join(chosen[:8]),
            hint="--same base,base2",
        )
    if layout.items or layout.design.unit not in ("seed", "run"):
        raise SpecError(
            "an A/A is of runs, not of items or tasks", place=name, hint="give a row per run"
        )
    if runs["value"].isna().any():
        raise SpecError(
            "an A/A is of runs that have a value",
            place=f"{name}: {roles.metric}",
            value="nothing",
        )
    # A row for each seed, with the mean over its folds in a column for each arm. Paired folds and seeds are those of
    # both arms.
    paired = layout.design.unit == "seed"
    wide = runs.set_index(["fold", "seed", "arm"])["value"].unstack("arm", sort=False)[chosen]
    if paired:
        wide = wide.dropna()
    wide = wide.groupby("seed", sort=False).mean()
    first, second = (tuple(wide[arm].dropna().tolist()) for arm in chosen)
    return Noise(name, (chosen[0], chosen[1]), roles.metric, first, second, paired)


class Source(NamedTuple):
    """A source of results: its name, the roles of its columns, its trials, and a sentence on the roles.

    `declared` is what a study says of itself: the `attrs` of `Results.to_frame`; of another source empty. `over` is
    what verdicts over tasks hold for.
    """

    name: str
    roles: Roles
    layout: RunLayout
    roles_text: str
    declared: Mapping[Any, Any]
    over: Over


def read_source(
    source: "str | Path | pd.DataFrame",
    options: Mapping[str, str],
    over: Over | None,
    i_know: bool = False,
) -> Source:
    """Return a source of results, with a role for each of its columns.

    `options` are arguments of `judge` by name: the roles, `mode`, `reference`, `at` and `reader`. An option that is
    left out or "" is guessed. Where the source is a study, and neither `over` nor a block is given, its own axes and
    question are taken. `i_know` allows a run to be judged by the best value of the metric itself.

    Raises:
        SpecError: For a source that cannot be read, and a role that is not clear.
    """
    options = {
        **dict.fromkeys((*COLUMNS, "mode", "reference", "reader"), ""),
        "at": "last",
        **options,
    }
    at = CurveRow.parse(options["at"])
    name, frame, curves = read_table(source, at, options["reader"])
    rows = one_run_a_row(frame, options)
    # The columns of a row's runs are one column now.
    if options["metric"] and rows is not frame:
        options["metric"] = "value"
    frame = rows
    # The frame of a study has the question of the study, which says how its axes are taken.
    question = frame.attrs.get("question")
    if over is None and not options["block"] and question:
        over = "each" if question == "cells" else "these"
        # An axis that not every arm has cannot be averaged over.
        named = ",".join(options[role] for role in COLUMNS).split(",")
        free = {*frame.dropna(axis=1)}.difference(named)
        options["block"] = ",".join(axis for axis in frame.attrs["axes"] if axis in free)
    over = over or "further"
    roles = guess_roles(frame, options)
    if at.metric == roles.metric and not i_know:
        hint = "name a metric of validation data, or say --i-know"
        rule = "the best value of the metric itself is a maximum over noise"
        raise SpecError(rule, place="--at", value=at.text, hint=hint)
    text = _columns_text(frame, roles)
    if curves:
        text += f"; of each curve: {at.text}"
    layout = layout_of(_runs(frame, roles, name), roles, over)
    return Source(name, roles, layout, text, frame.attrs, over)


def _runs(frame: pd.DataFrame, roles: Roles, place: str) -> pd.DataFrame:
    """Return the runs with a column for each role that there is: `value` as a number, the others as text.

    `place` names the source in errors. Raises `SpecError` for an empty entry, and for a run that is there twice.
    """
    for name in roles.columns:
        empty = frame[name].isna().to_numpy()
        if empty.any() and name != roles.metric:
            rule = "each row has a value in a column with a role"
            row = int(empty.argmax()) + 1
            raise SpecError(rule, place=f"{place}: row {row}, column {name}", value="nothing")

    # Role -> its columns ("": none), whose texts are joined into one. The last column of `folds` names folds, those
    # before it repeats; the other columns of `pair` name seeds.
    columns = {
        "repeat": roles.folds[:-1],
        "fold": roles.folds,
        "seed": [name for name in roles.pair if name not in roles.folds],
        "item": [roles.item],
        "group": [roles.group],
        "block": list(roles.block),
    }
    runs = pd.DataFrame(
        {"arm": row_labels(frame, roles.arm), "value": numbers(frame, roles.metric, place)}
    )
    runs.attrs = frame.attrs
    for role, names in columns.items():
        if any(names):
            runs[role] = row_labels(frame, names)
    # A seed is a number, also with zeros before it or behind its point.
    if "seed" in runs:
        runs["seed"] = runs["seed"].str.replace(r"^0+(?=\d)|\.0+$", "", regex=True)
    # A study's trials say whether their embeddings collapsed, which the table notes.
    if COLLAPSED in frame and COLLAPSED not in roles.columns:
        runs[COLLAPSED], _ = as_numbers(frame[COLLAPSED])
    if roles.item or roles.pair:
        _check_once(runs, frame, roles, place)
    return runs


def _check_once(runs: pd.DataFrame, frame: pd.DataFrame, roles: Roles, place: str) -> None:
    """Raise `SpecError` where two rows of `runs` are the same run, which would count twice.

    The same run has the same arm, seed, fold, item and task. `runs` and `frame` have the same rows; `runs` has a column
    for each role, `frame` the columns of the source. The hint names columns of settings that may tell the two rows
    apart, and have no role yet.
    """
    keys = [name for name in ("arm", "fold", "seed", "item", "block") if name in runs]
    repeated = runs.duplicated(keys, keep=False)
    if not repeated.any():
        return
    # The rows of the first repeated run, and the columns in which they differ.
    run = runs[keys][repeated].iloc[0]
    same = (runs[keys] == run).all(axis=1).to_numpy()
    rows = frame[same]
    unused = [str(name) for name in frame if name not in roles.columns]
    settings = setting_columns(frame, unused)
    different = [name for name in settings if rows[name].astype(str).nunique() > 1]
    row_numbers = ", ".join(str(row + 1) for row in same.nonzero()[0])
    hint = f"drop all but one of the rows {row_numbers}"
    if different:
        # Of a study's trials these are the axes.
        names = ",".join(frame.attrs.get("axes") or different)
        hint = f"--arm {','.join(roles.arm)},{names}; or, without --board, --block {names} --over these"
    raise SpecError("each run is there once", place=place, value=dict(run), hint=hint)


def _design_text(layout: RunLayout, roles: Roles, arms: int, result: str) -> str:
    """Return a line that says how the arms are compared: their number, replicates, pairing, `result` and the metric.

    `arms` is the number of arms. `result` is a part of the line: `a board`, or `family of 3 comparisons`.
    """
    better = "larger" if roles.mode == "max" else "smaller"
    replicates = f"{plural(arms, 'arm')}, {layout.replicates_text}: {layout.pairing_text}"
    return f"{replicates}; {result}; metric {roles.metric}, {better} is better"


def _columns_text(frame: pd.DataFrame, roles: Roles) -> str:
    """Return in a line which column has which role, which roles were guessed, and which columns are not used."""
    names_of = {}
    for role, value in vars(roles).items():
        if value and role != "guessed":
            names_of[role] = ", ".join(value) if isinstance(value, tuple) else value
    text = "columns: " + ", ".join(f"{role} {names}" for role, names in names_of.items())
    guessed = [role for role in roles.guessed if role in names_of]
    if guessed:
        text += f" (guessed: {', '.join(guessed)})"
    unused = [str(name) for name in frame if name not in (*roles.columns, COLLAPSED)]
    if unused:
        text += f"; not used: {', '.join(unused)}"
    return text
