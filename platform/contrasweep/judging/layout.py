"""The trials that a table of runs makes, and how they are replicated: by seeds, folds, items, tasks, or not at all."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, plural
from contrasweep.judging.roles import Roles, row_labels
from contrasweep.results.building import joined
from contrasweep.results.items import ItemValues
from contrasweep.statistics.design import Design, SeedPart
from contrasweep.storage.record import Status

Over = Literal["further", "these", "each"]
"""What verdicts over tasks hold for: further tasks like these, these tasks alone, or each task by itself."""
TRIAL_COLUMNS = ("trial_id", "fold", "seed", "status", "cause", "collapsed", "count", "weight")
"""Columns of trials beside those of runs. An axis with the name of one, or of a column of runs, is `axis.NAME`."""


@dataclass(frozen=True)
class RunLayout:
    """The trials that a table is built of, and how the arms are replicated.

    `design` has the replication as numbers. `replicates_text` has it in words (`5 folds x 2 seeds`), and `pairing_text`
    says what pairs the arms (`paired by seed`). `axes` are columns of `trials`: arms are compared at each of their
    values. `items` has the scores of test items where each seed has scored the same items; else None.
    """

    trials: pd.DataFrame
    design: Design
    replicates_text: str
    pairing_text: str
    axes: tuple[str, ...] = ()
    items: ItemValues | None = None


def layout_of(runs: pd.DataFrame, roles: Roles, over: Over) -> RunLayout:
    """Return the trials that the runs make and how they are replicated.

    `runs` has a row per run, with the columns arm and value and any of repeat (of a partition into folds), fold, seed,
    item, group and block (a task). `over` says what verdicts over several tasks hold for.

    Raises:
        SpecError: For repeats without folds, and for tasks that each have seeds with scores of items: each task is then
            a table of its own.
    """
    # A single fold or task needs no column.
    has = {name for name in runs if name not in ("fold", "block") or runs[name].nunique() > 1}
    suffix = ""  # the end of the sentence on how arms are paired
    axes: tuple[str, ...] = ()
    # All items of a fold are scored by one training, so that their mean is a replicate.
    if "item" in has and "fold" in has:
        runs = _means(runs, ["arm", *({"repeat", "fold", "seed", "block"} & has)])
        has.discard("item")
        suffix = ", items averaged within their fold"

    # Several tasks are the replicates of verdicts on further tasks. For other verdicts they are the values of an axis.
    if "block" in has and over == "further":
        return _of_tasks(runs, roles, suffix)
    if "block" in has:
        tasks = axis = joined(roles.block)
        if axis in {*runs.columns.drop("block"), *TRIAL_COLUMNS}:
            axis = f"axis.{axis}"
        axes = (axis,)
        runs = runs.copy()  # a join would lose what the frame of a study says of its design
        runs[axis] = runs["block"]
        # For verdicts on these tasks together every item counts the same: its task is a part of its name, and no axis.
        if "item" in has and over == "these":
            axes = ()
            runs = runs.assign(item=row_labels(runs, ["block", "item"]))
        if over == "these":
            suffix += f", averaged over {tasks}, for these values alone"
        else:
            suffix += f", in each {tasks}"

    # Without tasks as replicates, a replicate is an item, a seed crossed with items, a fold, a seed, or a run that
    # nothing pairs.
    if "item" in has and ("seed" not in has or runs["seed"].nunique() == 1):
        return _of_items(runs, axes, suffix)
    if "item" in has and axes:
        rule = "each task with seeds of items is a table of its own"
        raise SpecError(rule, place="--over", value=over)
    if "item" in has:
        return _of_seeds_and_items(runs, suffix)
    if "fold" in has:
        return _of_folds(runs, roles, axes, suffix)
    if "seed" in has:
        return _of_seeds(runs, roles, axes, suffix)
    # Nothing pairs the runs: those of two arms are compared as two samples.
    sizes = runs.groupby(["arm", *axes]).size()
    # Each run gets a seed that no run of another arm has.
    number = runs.groupby("arm").cumcount().astype(str)
    trials = _as_trials(runs.assign(seed=runs["arm"] + " " + number))
    design = Design(seeds=int(sizes.median()), unit="run")
    return RunLayout(trials, design, _runs_each(sizes), f"unpaired{suffix}", axes)


def _of_tasks(runs: pd.DataFrame, roles: Roles, suffix: str) -> RunLayout:
    """Return the layout for verdicts on further tasks: each task is a replicate, with the mean over all of its runs.

    `suffix`, here and in the functions below, is the end of the sentence on how arms are paired.
    """
    # A table is built of seeds; here a task takes the place of a seed.
    word = joined(roles.block)
    trials = _means(runs, ["arm", "block"]).rename(columns={"block": "seed"})
    count = trials["seed"].nunique()
    pairing = f"paired by {word}, each {word} counts the same{suffix}, for further tasks like these"
    design = Design(seeds=count, unit="task")
    return RunLayout(_as_trials(trials), design, plural(count, "task"), pairing)


def _of_items(runs: pd.DataFrame, axes: tuple[str, ...], suffix: str) -> RunLayout:
    """Return the layout of runs with one training of each arm.

    Its test items, or named groups of them, are the replicates. `axes` are the columns at whose values the arms are
    compared, here and in the functions below.
    """
    # A table is built of seeds; here an item or a group takes the place of a seed. A group counts by its items.
    unit: Literal["group", "item"] = "group" if "group" in runs else "item"
    trials = _means(runs, ["arm", *axes, unit]).rename(columns={unit: "seed"})
    sizes = trials.pop("count")
    trials["weight"] = sizes if unit == "group" else 1.0
    count = trials["seed"].nunique()
    replicates = plural(runs["item"].nunique(), "item")
    if unit == "group":
        replicates += f" of {plural(count, 'group')}"
    design = Design(seeds=count, unit=unit)
    return RunLayout(_as_trials(trials), design, replicates, f"paired by {unit}{suffix}", axes)


def _of_seeds_and_items(runs: pd.DataFrame, suffix: str) -> RunLayout:
    """Return the layout for runs in which each seed has a score of each test item; a trial is a seed of an arm.

    Only items count that all trials have.
    """
    # A row for each trial and a column for each item; items that any trial lacks are left out.
    scores = runs.pivot(index=["arm", "seed"], columns="item", values="value")
    complete = scores.dropna(axis=1)
    if complete.shape[1] < 2:
        count = f"{complete.shape[1]} in common"
        raise SpecError("all runs have scores of the same items", place="--item", value=count)
    # Each item is a unit by itself, or belongs to a group, which then is the unit. A unit is known by a number.
    unit = "group" if "group" in runs else "item"
    unit_of_item = runs.drop_duplicates("item").set_index("item", drop=False)[unit]
    numbers, units = pd.factorize(unit_of_item.reindex(complete.columns))
    sizes = np.bincount(numbers).astype(float)
    trials = _as_trials(complete.mean(axis=1).rename("value").reset_index())
    # The mean score of each unit in each trial. All trials have the same test part, which needs no name.
    ids = trials["trial_id"].tolist()
    means = [np.bincount(numbers, row) / sizes for row in complete.to_numpy()]
    values = ItemValues(dict(zip(ids, means, strict=True)), dict.fromkeys(ids, ""), {"": sizes})
    replicates = f"{plural(trials['seed'].nunique(), 'seed')} x {plural(len(units), unit)}"
    pairing = "paired by seed and item"
    left_out = scores.shape[1] - complete.shape[1]
    if left_out:
        pairing += f" (without {plural(left_out, 'item')} that not every run has)"
    return RunLayout(trials, Design(items=len(units)), replicates, pairing + suffix, (), values)


def _of_folds(runs: pd.DataFrame, roles: Roles, axes: tuple[str, ...], suffix: str) -> RunLayout:
    """Return the layout of runs on folds, with or without seeds.

    The design corrects for training rows that folds share.

    Raises:
        SpecError: No column names folds, but only repeats of them; or a repeat has one fold.
    """
    count = runs["fold"].nunique()
    folds = count
    # With repeats, each of which is a partition, the folds of the design are those of one repeat.
    if "repeat" in runs:
        folds = int(runs.groupby("repeat")["fold"].nunique().max())
    if roles.repeats_alone or folds < 2:
        raise SpecError(
            "repeats without folds do not say which training rows they share",
            place="--pair",
            value=roles.folds[-1],
            hint="call the column fold if it names the folds of one partition, or seed if all runs share a split",
        )
    replicates = plural(count, "fold")
    if "seed" in runs:
        replicates += f" x {plural(runs['seed'].nunique(), 'seed')}"
    else:
        runs = runs.assign(seed="0")
    columns = " and ".join(roles.pair)
    pairing = f"paired by {columns}, corrected for the training rows that folds share{suffix}"
    design = Design(folds=folds)
    # The frame of a study says how it is replicated. Some folds may have no trial, since a sweep has searched them.
    study = runs.attrs.get("design")
    if study:
        seed_part = study["seed_part"] if roles.metric == runs.attrs["metric"] else {}
        design = replace(
            design,
            folds=max(folds, study["folds"] or 0),
            searched=study["searched"],
            seed_part=SeedPart(**seed_part),
        )
    return RunLayout(_as_trials(runs), design, replicates, pairing, axes)


def _of_seeds(runs: pd.DataFrame, roles: Roles, axes: tuple[str, ...], suffix: str) -> RunLayout:
    """Return the layout of runs with seeds: arms are paired by seed where they share two seeds or more.

    Arms that share fewer are compared as two samples of runs.
    """
    seeds_of_arms = runs.groupby("arm")["seed"].agg(set)
    common_seeds = set.intersection(*seeds_of_arms)
    all_seeds = set.union(*seeds_of_arms)
    columns = " and ".join(roles.pair)
    # How many pairs of arms have fewer than two seeds in common, too few for paired differences to tell the noise.
    pairs = list(itertools.combinations(seeds_of_arms, 2))
    unpaired = sum(len(a & b) < 2 for a, b in pairs)
    if unpaired == len(pairs):
        pairing = f"unpaired: no two arms have two values of {columns} in common{suffix}"
        counts = seeds_of_arms.map(len)
        design = Design(seeds=counts.min(), unit="run")
        return RunLayout(_as_trials(runs), design, _runs_each(counts), pairing, axes)
    replicates = f"{plural(len(common_seeds), 'seed')} in common"
    if len(all_seeds) > len(common_seeds):
        replicates += f" of {len(all_seeds)}"
    pairing = f"paired by {columns}"
    if unpaired:
        pairing += f" where two arms share two or more, else unpaired ({unpaired})"
    # All arms may share fewer than two seeds, while some two arms share at least two.
    design = Design(seeds=max(2, len(common_seeds)))
    return RunLayout(_as_trials(runs), design, replicates, pairing + suffix, axes)


def _runs_each(sizes: "pd.Series[int]") -> str:
    """Return in words how many runs each arm has, from the `sizes` of arms: `5 runs each`, or `3 to 5 runs each`."""
    least = "" if sizes.min() == sizes.max() else f"{sizes.min()} to "
    return f"{least}{plural(sizes.max(), 'run')} each"


def _means(runs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return a row for each combination of `keys`: `value`, the mean of its runs' values, and `count`, their number.

    The mean is NaN where a run lacks its value.
    """
    grouped = runs.groupby(list(keys), sort=False)["value"]
    sizes = grouped.size()
    sums = grouped.sum(min_count=0).where(grouped.count() == sizes)
    return (sums / sizes).rename("value").to_frame().assign(count=sizes).reset_index()


def _as_trials(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the frame that a table is built of: each row of `runs` is taken as a trial that has finished.

    The id of a trial is the number of its row, from 0, as text.
    """
    ids = np.arange(len(runs)).astype(str)
    return runs.assign(trial_id=ids, fold=runs.get("fold"), status=Status.DONE.value)
