"""Rows assigned to folds: a pure function of labels, groups and a rule, the same on every machine.

`numpy.random.RandomState` is used because its random numbers never change. Those of the newer `Generator` may change
with a release of NumPy, and with them the folds of a finished table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasweep.data.manifest import Folds, Manifest
from contrasweep.errors import SpecError, check_known, plural

Ints = NDArray[np.int64]


def is_nameless(group: object) -> bool:
    """Return whether this value of the column `group` says that the row has no group: None, NaN or "".

    Such a row counts as a group of its own.
    """
    # NaN alone is not equal to itself.
    return group is None or group != group or group == ""


def assign(labels: Any, groups: Any, own_folds: Any, folds: Folds) -> Ints:
    """Return the fold, 0 to count-1, of every row.

    Args:
        labels: [n] integers.
        groups: [n] values of one type; a row whose value `is_nameless` is a group of its own. None: rows have none.
        own_folds: [n] integers, the folds that the data come with; None: they have none.
        folds: Number of folds, one of `RULES`, and the seed.

    Raises:
        SpecError: There is no such rule, its column is missing, a fold would be empty, or `folds.count` is not the
            number of folds in `own_folds`.
    """
    check(folds, len(labels), None)
    check_known(folds.rule, "rules", RULES, "there is no such fold rule", place="folds.rule")
    return RULES[folds.rule](np.asarray(labels, dtype=np.int64), groups, own_folds, folds)


def repeated(labels: Any, groups: Any, own_folds: Any, folds: Folds, repeat: int) -> Ints:
    """Return the fold [n] of every row in a repeat of the partition; the other arguments are those of `assign`.

    Repeat 0 is the partition of `assign`; each other repeat has a seed of its own. `SpecError` where the rule allows
    one partition only, so that a repeat would be the same again.
    """
    first = assign(labels, groups, own_folds, folds)
    if repeat == 0:
        return first
    repeated = assign(labels, groups, own_folds, replace(folds, seed=folds.seed + repeat))
    # If there are only as many pairs as folds, both are the same partition, perhaps with other numbers.
    pairs = set(zip(first.tolist(), repeated.tolist(), strict=True))
    if len(pairs) == folds.count:
        raise SpecError(
            f"the rule {folds.rule!r} partitions these rows in one way only",
            place="repeats",
            value=repeat + 1,
            hint="add seeds instead",
        )
    return repeated


def stratified(labels: Ints, groups: Any, own_folds: Any, folds: Folds) -> Ints:
    """Return the fold [n] of every row: each class is shuffled, and its rows are dealt to the folds in turns.

    The next class begins with the fold after the last one that got a row. So the numbers of rows of two folds differ by
    at most one, in total and in every class. `groups` and `own_folds` are not used.
    """
    random = np.random.RandomState(folds.seed)
    assigned = np.empty(len(labels), np.int64)
    start = 0  # rows dealt so far
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        assigned[members] = (start + np.arange(len(members))) % folds.count
        start += len(members)
    return assigned


def grouped(labels: Ints, groups: Any, own_folds: Any, folds: Folds) -> Ints:
    """Return the fold [n] of every row, so that all rows of a group are in the same fold.

    Groups are assigned one after the other, the largest first; groups of equal size in an order that depends on the
    seed. A group goes to the fold that brings the numbers of rows of each class closest to equal shares. `own_folds` is
    not used. `SpecError` where the data have no groups, or fewer groups than folds.
    """
    if groups is None:
        raise SpecError("grouped folds need a group column", place="folds.rule", value="grouped")
    group = _numbered(groups)
    _, label = np.unique(labels, return_inverse=True)
    rows = np.bincount(group)  # of each group
    check(folds, len(labels), len(rows))
    # The labels of each group's rows. A table of groups by classes could take gigabytes.
    labels_of = np.split(label[np.argsort(group, kind="stable")], np.cumsum(rows)[:-1])
    # The largest groups first; a stable sort keeps groups of one size in shuffled order.
    shuffled = np.random.RandomState(folds.seed).permutation(len(rows))
    order = shuffled[np.argsort(-rows[shuffled], kind="stable")]
    # rows of each class that a fold should have [classes]
    share = np.bincount(label) / folds.count
    # rows that each fold has so far [folds, classes]
    rows_of_fold = np.zeros((folds.count, len(share)))
    fold_of = np.empty(len(rows), np.int64)
    for position, g in enumerate(order):
        members = np.bincount(labels_of[g], minlength=len(share))  # rows of each class
        # How much each fold's squared deviation from the share would grow with this group. Deviations are relative, so
        # that each class has the same weight.
        before = ((rows_of_fold - share) / share) ** 2
        after = ((rows_of_fold + members - share) / share) ** 2
        cost = (after - before).sum(axis=1)
        # When only as many groups remain as there are empty folds, each must go to an empty one.
        is_empty = rows_of_fold.sum(axis=1) == 0
        if is_empty.sum() >= len(order) - position:
            cost[~is_empty] = np.inf
        fold_of[g] = np.argmin(cost)
        rows_of_fold[fold_of[g]] += members
    return fold_of[group]


def _numbered(groups: Any) -> Ints:
    """Return the number of each row's group, [n] from 0. A row without a group gets a number that no other row has."""
    groups = np.asarray(groups)
    has_name = ~np.array(list(map(is_nameless, groups.tolist())), bool)
    number = np.empty(len(groups), np.int64)
    values, number[has_name] = np.unique(groups[has_name], return_inverse=True)
    number[~has_name] = len(values) + np.arange((~has_name).sum())
    return number


def as_given(labels: Ints, groups: Any, own_folds: Any, folds: Folds) -> Ints:
    """Return the folds that the data come with, `own_folds`: an int per row, the fold in which the row is tested.

    For three folds of five rows it may be `[0, 2, 1, 1, 0]`. `labels` and `groups` are not used. `SpecError` where the
    data have no folds, or where the folds present are not exactly 0 to `folds.count` - 1.
    """
    if own_folds is None:
        raise SpecError("given folds need a fold column", place="folds.rule", value="given")
    assigned = np.asarray(own_folds, dtype=np.int64)
    present = np.unique(assigned).tolist()
    if present != list(range(folds.count)):
        raise SpecError(
            f"the data comes with its own folds {present}, which are never changed",
            place="folds",
            value=folds.count,
            hint=f"use folds={len(present)}",
        )
    return assigned


RULES = {"stratified": stratified, "grouped": grouped, "given": as_given}


def check(folds: Folds, rows: int, groups: int | None) -> None:
    """Raise `SpecError` where there are fewer than two folds, or fewer rows or groups than folds.

    A plan checks this before the rows are there. `groups` is the number of groups (None: not known), which is used for
    the rule `grouped` only.
    """
    if folds.count < 2:
        raise SpecError("a dataset has at least 2 folds", place="folds", value=folds.count)
    # Each fold needs a row, or a whole group where groups are not divided.
    parts = rows
    noun = "row"
    if folds.rule == "grouped" and groups is not None:
        parts = groups
        noun = "group"
    if folds.count > parts:
        raise SpecError(
            f"{plural(parts, noun)} cannot fill {plural(folds.count, 'fold')}",
            place="folds",
            value=folds.count,
            hint=f"at most {plural(parts, 'fold')}",
        )


MOST_CLASSES_NAMED = 5
"""The most classes that a note names."""
USUAL_FOLDS = 5
"""Number of folds for which a dataset is checked when it is staged."""


def class_notes(data: Manifest, count: int | None = None) -> list[str]:
    """Return warnings on a dataset, one sentence each, of classes and copies of images that make results doubtful.

    There is a warning for each of these: classes without training rows, classes with fewer rows than folds, and a
    single class. Another one says that equal images may be both trained and tested on. [] where all is well. `count` is
    the number of folds; None: that of the dataset, if it has folds.
    """
    # Number of training rows of each class, in the order of the names.
    rows: list[int] = data.counts.get("train", {}).get("classes", [])
    count = count or (data.folds.count if data.folds else 0)
    names = [f"class {k} ({name})" for k, name in enumerate(data.classes)]
    small_classes = []
    empty_classes = []
    for name, n in zip(names, rows, strict=False):
        if n == 0:
            empty_classes.append(name)
        elif n < count:
            small_classes.append(f"{n} of {name}")
    notes = []
    if small_classes:
        notes.append(
            f"fewer training rows than {count} folds: {_named(small_classes)}; at most n folds test a class of n rows, "
            "and macro averages of the other folds are over the other classes"
        )
    if empty_classes:
        notes.append(
            f"no training row at all: {_named(empty_classes)}; no method can learn these classes"
        )
    if rows and len(data.classes) == 1:
        notes.append(f"one class alone, {data.classes[0]!r}: there is nothing to tell apart")
    # An importer counts images that are equal byte for byte, and equal pairs. In two splits or folds they leak from
    # training to test. So without folds only those in two splits matter, with folds all of them.
    copies = data.source.get("copies")
    if isinstance(copies, Mapping) and (copies.get("across splits") or (count and copies)):
        text = ", ".join(f"{number} {kind}" for kind, number in sorted(copies.items()))
        what = "images that are equal to one before them, byte for byte"
        where = "folds may part them: `--set copies=together` keeps them in one"
        if data.kind == "image-pair":
            what = "pairs that are equal to one before them in every pixel"
            where = "folds may part them unless they are of one `group`"
        elif data.folds is not None and data.folds.rule == "grouped":
            where = "they are in one fold"
        notes.append(f"{what}: {text}; {where}")
    return [f"in {data.name}: {note}" for note in notes]


def _named(classes: Sequence[str]) -> str:
    """Return the first `MOST_CLASSES_NAMED` texts, and how many more there are: `a, b and 3 classes more`."""
    text = ", ".join(classes[:MOST_CLASSES_NAMED])
    if len(classes) > MOST_CLASSES_NAMED:
        text += f" and {len(classes) - MOST_CLASSES_NAMED} classes more"
    return text
