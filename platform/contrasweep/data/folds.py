"""Rows assigned to folds: a pure function of labels, groups and a rule, the same on every machine.

`numpy.random.RandomState` is used because its stream is frozen for ever; the newer `Generator` may change
with a numpy release, and then the folds of a finished table would.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasweep.data.manifest import Folds, Manifest
from contrasweep.errors import SpecError, check_known, plural

Ints = NDArray[np.int64]
NAMELESS = frozenset({None, ""})
"""The group of a row that belongs to none: such a row is a group of its own, wherever groups count."""


def assign(labels: Any, groups: Any, own_folds: Any, folds: Folds) -> Ints:
    """Return the fold, 0 to count-1, of every row.

    `labels` [n] integers, `groups` [n] (values of one type, or of `NAMELESS`) or None, `own_folds` [n] integers, those
    of the data itself, or None. `folds` says how many there are, by which of `RULES`, and with which seed.

    `SpecError` where there is no such rule or it lacks its column, when a fold would be empty, or when `folds.count` is
    not the number of folds in `own_folds`.
    """
    check(folds, len(labels), None)
    check_known(folds.rule, "rules", RULES, "there is no such fold rule", place="folds.rule")
    return RULES[folds.rule](np.asarray(labels, dtype=np.int64), groups, own_folds, folds)


def repeated(labels: Any, groups: Any, own_folds: Any, folds: Folds, repeat: int) -> Ints:
    """Return the fold of every row in a repeat of the partition.

    Repeat 0 is that of `assign`, whose arguments are these; each other has a seed of its own. `SpecError` where the
    rule leaves no choice, so that a repeat would be the same partition again.
    """
    first = assign(labels, groups, own_folds, folds)
    if repeat == 0:
        return first
    again = assign(labels, groups, own_folds, replace(folds, seed=folds.seed + repeat))
    # Each fold of the one is a fold of the other, perhaps under another number, if there are only so many pairs.
    if len(set(zip(first.tolist(), again.tolist(), strict=True))) == folds.count:
        raise SpecError(
            f"the rule {folds.rule!r} partitions these rows in one way only",
            place="repeats",
            value=repeat + 1,
            hint="add seeds instead",
        )
    return again


def stratified(labels: Ints, groups: Any, own_folds: Any, folds: Folds) -> Ints:
    """Return the fold of every row: each class is shuffled, and its rows are dealt to the folds in turns.

    The next class goes on where the last one stopped, so that folds differ by at most one row, in total and in every
    class.
    """
    random = np.random.RandomState(folds.seed)
    assigned = np.empty(len(labels), np.int64)
    start = 0  # rows dealt so far: where the next class goes on
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        assigned[members] = (start + np.arange(len(members))) % folds.count
        start += len(members)
    return assigned


def grouped(labels: Ints, groups: Any, own_folds: Any, folds: Folds) -> Ints:
    """Return the fold of every row, with each group whole in one fold.

    `groups` has the group of each row, None where the data name none; `own_folds`, which all rules of folds are given,
    is not looked at. Groups are assigned the largest first (of equals by the seed), each to the fold where class counts
    then come closest to equal shares. `SpecError` where the data have no groups, or fewer than folds.
    """
    if groups is None:
        raise SpecError("grouped folds need a group column", place="folds.rule", value="grouped")
    group = _numbered(groups)
    _, label = np.unique(labels, return_inverse=True)
    # Rows of each class in each group [groups, classes].
    members = np.zeros((group.max() + 1, label.max() + 1))
    np.add.at(members, (group, label), 1)
    check(folds, len(labels), len(members))
    shuffled = np.random.RandomState(folds.seed).permutation(len(members))
    order = shuffled[np.argsort(-members[shuffled].sum(axis=1), kind="stable")]
    # What a fold should have of each class, and what each has so far [folds, classes].
    share = members.sum(axis=0) / folds.count
    held = np.zeros((folds.count, members.shape[1]))
    fold_of = np.empty(len(members), np.int64)
    for position, g in enumerate(order):
        # What adding this group changes in the squared deviation from the share, each class weighed alike.
        cost = (((held + members[g] - share) / share) ** 2 - ((held - share) / share) ** 2).sum(
            axis=1
        )
        # Once there are only as many groups left as empty folds, each goes to an empty one.
        empty = held.sum(axis=1) == 0
        if empty.sum() >= len(order) - position:
            cost[~empty] = np.inf
        fold_of[g] = np.argmin(cost)
        held[fold_of[g]] += members[g]
    return fold_of[group]


def _numbered(groups: Any) -> Ints:
    """Return a number for the group of each row, from 0; each row without a group has one of its own."""
    groups = np.asarray(groups)
    has_name = np.array([group not in NAMELESS for group in groups.tolist()])
    number = np.empty(len(groups), np.int64)
    values, number[has_name] = np.unique(groups[has_name], return_inverse=True)
    number[~has_name] = len(values) + np.arange((~has_name).sum())
    return number


def as_given(labels: Ints, groups: Any, own_folds: Any, folds: Folds) -> Ints:
    """Return the data's own folds of the rows; `SpecError` where there are none, or not exactly 0 to count-1."""
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
    """Raise the `SpecError` of `assign` as far as numbers of rows and groups tell, since a plan has no rows.

    `groups` is None where their number is not known; it counts for the rule `grouped` alone.
    """
    if folds.count < 2:
        raise SpecError("a dataset has at least 2 folds", place="folds", value=folds.count)
    # What fills a fold: a row, or where groups stay whole a group.
    fill, noun = (
        (groups, "group") if folds.rule == "grouped" and groups is not None else (rows, "row")
    )
    if folds.count > fill:
        raise SpecError(
            f"{plural(fill, noun)} cannot fill {plural(folds.count, 'fold')}",
            place="folds",
            value=folds.count,
            hint=f"at most {plural(fill, 'fold')}",
        )


MOST_NAMED = 5
"""So many classes are named in a note."""
USUAL = 5
"""Folds by which a dataset is judged as it is staged."""


def class_notes(data: Manifest, count: int | None = None) -> list[str]:
    """Return sentences on what stands out in the classes and images of a dataset, over `count` folds.

    None: over the folds that it has, if any. They are classes with fewer rows than folds or without any, one class
    alone, and images that come twice. [] where nothing stands out.
    """
    rows: list[int] = data.counts.get("train", {}).get("classes", [])
    count = count or (data.folds.count if data.folds else 0)
    # `rows` are of each class, in the order of the names.
    few = {name: n for name, n in zip(data.classes, rows, strict=False) if 0 < n < count}
    none = {name: n for name, n in zip(data.classes, rows, strict=False) if n == 0}
    notes = []
    if few:
        notes.append(
            f"fewer training rows than {count} folds: {_named(few)}; where a fold tests none of a class, its macro "
            "averages are over the other classes"
        )
    if none:
        notes.append(f"no training row at all: {_named(none)}; no method can learn these classes")
    if rows and len(data.classes) == 1:
        notes.append(f"one class alone, {data.classes[0]!r}: there is nothing to tell apart")
    # An importer counts images that are equal byte for byte: over two folds they would leak from training to test.
    copies = data.source.get("copies")
    if isinstance(copies, Mapping) and (copies.get("across splits") or (count and copies)):
        text = ", ".join(f"{number} {kind}" for kind, number in sorted(copies.items()))
        kept = data.folds is not None and data.folds.rule == "grouped"
        notes.append(
            f"images that are equal to one before them, byte for byte: {text}; "
            + (
                "they are in one fold"
                if kept
                else "folds may part them: `--set copies=together` keeps them in one"
            )
        )
    return [f"{data.name}: {note}" for note in notes]


def _named(classes: Mapping[str, int]) -> str:
    """Return `cat (3), dog (0) and 4 classes more`, with their numbers of rows."""
    first = ", ".join(f"{name} ({n})" for name, n in list(classes.items())[:MOST_NAMED])
    return first + (
        f" and {len(classes) - MOST_NAMED} classes more" if len(classes) > MOST_NAMED else ""
    )
