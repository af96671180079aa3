"""Notices for readers of a table: problems of its trials, unused settings, and older code."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from contrasweep.canonical import label
from contrasweep.code import Difference, difference, dotted_paths
from contrasweep.errors import StorageError, plural
from contrasweep.rows import Row, step_of
from contrasweep.storage import compact
from contrasweep.storage.code_files import accepted, read_sources
from contrasweep.storage.record import Record, RecordsById
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted

if TYPE_CHECKING:
    import pandas as pd

    from contrasweep.results.table import Table

NOTICES = {
    "collapsed": "collapsed: the loss stands at its collapse value and all embeddings coincide; lower the "
    "learning rate, check the augmentations, or raise the temperature of a loss that has one",
    "untrained": "learned nothing: the gradient was 0 in every step, or no weight changed; check the learning rate, "
    "that batches hold pairs of both kinds, and the margins and the similarity of a loss that has them",
    "ocl_equals_scl": "OCL equals SCL at every step: no cosine of two negatives was negative; the embeddings "
    "lie close together, so train longer, raise the temperature, or call it SCL (SupCon)",
}
"""Metric -> the notice that holds where the metric's last value is 1: what a method found of its trial; a remedy."""
MOST_CELLS = 4
"""The most cells that a notice names of an arm."""
LEAST_EQUAL = 3
"""Fewer values that are equal may be so by chance, as an accuracy on few items."""
FIRST_EPOCHS = 3
"""From this epoch on a notice is told while the trial still trains."""


def early_notices(rows: Iterable[Row]) -> dict[str, str]:
    """Return metric -> sentence for each notice that holds in a running trial after its first epochs.

    `rows` are the reports of the trial so far; a sentence names the newest of them in which its notice holds.
    """
    sentences = {}
    for row in rows:
        for metric, sentence in NOTICES.items():
            if step_of(row) >= FIRST_EPOCHS and row.get(metric) == 1:
                sentences[metric] = f"after epoch {step_of(row)}: {sentence}"
    return sentences


def notices_of(record: Record) -> dict[str, str]:
    """Return metric -> sentence for each notice that holds at the end of a trial.

    A notice is a sentence on a problem that a metric with the value 1 reports, such as collapsed embeddings.
    """
    return {name: sentence for name, sentence in NOTICES.items() if record.metrics.get(name) == 1}


def notice_lines(
    trials: "pd.DataFrame", axes: Sequence[str] = (), names: Callable[[str], str] = str
) -> list[str]:
    """Return a sentence for each notice that holds for any finished trial: for how many, by arm, and in which cells.

    `trials` has a row per trial: arm, axes and metrics. `names` turns declared names into display names. A notice does
    not hold for a trial that does not report its metric.
    """
    lines = []
    for metric, sentence in NOTICES.items():
        if metric not in trials or not (trials[metric] == 1).any():
            continue
        counts = [
            _counted(str(arm), part, metric, axes, names)
            for arm, part in trials.groupby("arm", sort=False)
            if (part[metric] == 1).any()
        ]
        # The counts of the arms stand between what was found and its remedy.
        headline, _, remedy = sentence.partition("; ")
        lines.append(f"{headline} ({', '.join(counts)}); {remedy}")
    return lines


def _counted(
    arm: str, trials: "pd.DataFrame", metric: str, axes: Sequence[str], names: Callable[[str], str]
) -> str:
    """Return how often and where a notice holds: `supcon: 6 of 30 trials, 6 of 10 at loss.temperature=0.1`.

    It holds in those trials of the arm, the rows of `trials`, that have 1 in the column `metric`. `axes` and `names`
    are as in `notice_lines`.
    """
    has_notice = trials[metric] == 1
    text = f"{names(arm)}: {has_notice.sum()} of {len(has_notice)} trials"
    if not axes or has_notice.all():
        return text
    # The cells in which most trials have the notice are named, and the others counted.
    cells = [
        ", ".join(f"{names(axis)}={label(value)}" for axis, value in zip(axes, values, strict=True))
        for values in trials[list(axes)].itertuples(index=False)
    ]
    by_cell = has_notice.set_axis(cells).groupby(level=0, sort=False).agg(bad="sum", total="size")
    worst = by_cell[by_cell["bad"] > 0].sort_values("bad", ascending=False, kind="stable")
    parts = [text]
    for cell, row in worst.head(MOST_CELLS).iterrows():
        parts.append(f"{row['bad']} of {row['total']} at {cell}")
    if len(worst) > MOST_CELLS:
        parts.append(f"some in {plural(len(worst) - MOST_CELLS, 'more cell')}")
    return ", ".join(parts)


def unread_settings(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    """Return setting (dotted key) -> arms in which the setting is set but was read by no trial.

    Trials that failed or fit no host do not count, since they may have ended before they read the setting.
    """
    trained = [record for record in records if record.status.trained]
    unread: dict[str, dict[str, None]] = {}  # setting -> arms
    for record in trained:
        for key in record.unused_settings:
            unread.setdefault(key, {})[record.arm] = None
    if not unread:
        return {}  # most studies: the configs of their trials need not be searched
    # An arm is taken out again where another of its trials has read the setting.
    for record in trained:
        read = dotted.flatten(record.config).keys() - set(record.unused_settings)
        for key in read & unread.keys():
            unread[key].pop(record.arm, None)
    return {key: tuple(arms) for key, arms in unread.items() if arms}


def unread_lines(records: Iterable[Record]) -> list[str]:
    """Return a sentence for each setting that is set in some arms and that no trial of them ever read."""
    return [
        f"{key}: no trial of {arms_in_words(arms)} read this setting, so it changed nothing there; it may be misspelt."
        for key, arms in unread_settings(records).items()
    ]


def unmoved_lines(trials: "pd.DataFrame", axes: Sequence[str], metric: str) -> list[str]:
    """Return a sentence for each axis that changed no value of `metric` in some arms, as where a script ignores a flag.

    `trials` has a row per finished trial: arm, axes, fold, seed and metrics. Fewer than `LEAST_EQUAL` values of an arm
    that are equal to those at another value of the axis say nothing.
    """
    lines = []
    trials = trials.astype(dict.fromkeys(axes, str))  # lists cannot be grouped by
    for axis in axes:
        same = ["arm", *(name for name in (*axes, "fold", "seed") if name != axis)]
        groups = trials.groupby(same, dropna=False, sort=False)
        # How many trials of each group differ from its first in the axis, and in nothing else that is declared.
        counts = groups[axis].nunique() - 1
        is_moved = (counts > 0) & (groups[metric].nunique(dropna=False) > 1)
        equal = counts.mask(is_moved, -math.inf).groupby(level="arm", sort=False).sum()
        arms = list(map(str, equal.index[equal >= LEAST_EQUAL]))
        if arms:
            lines.append(
                f"{axis}: trials of {arms_in_words(arms)} that differ in it alone have the same {metric}; check that "
                "it reaches the training"
            )
    return lines


def arms_in_words(names: Sequence[str]) -> str:
    """Return `arm a`, or `arms a, b`."""
    return f"{'arm' if len(names) == 1 else 'arms'} {', '.join(names)}"


@dataclass(frozen=True)
class MixedCode:
    """Trials that ran other code than the newest of their trainable.

    `older` is trial id -> (digest of its code, digest of the newest code); a digest is "" where no code was recorded.
    `newest` counts the trials that ran only the newest code, by its digest; `total` counts all trials. `retrained` is
    trial id -> study, for trials that started from a network of that study which was trained again since.
    """

    older: Mapping[str, tuple[str, str]]
    newest: Mapping[str, int]
    total: int
    retrained: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, records: RecordsById) -> "MixedCode":
        """Return which of `records` (trial id -> record) are of older code.

        The newest code is that of the trial that ended last, among the trials with the same trainable and the same
        dotted paths in their configs.
        """
        # Groups of trials whose code should be the same: of one trainable, with the same components by path. Replicates
        # of a cell share a config, whose paths are looked for once.
        groups: dict[tuple[str, ...], dict[str, Record]] = defaultdict(dict)
        paths: dict[str, list[str]] = {}
        for trial_id, record in records.items():
            text = repr(record.config)
            if text not in paths:
                paths[text] = sorted(set(dotted_paths(record.config)))
            groups[record.trainable, *paths[text]][trial_id] = record

        # A trial is of older code where any of its attempts ran another code than the newest of its group.
        older = {}
        counts: Counter[str] = Counter()
        for group in groups.values():
            newest = max(group.values(), key=lambda record: record.ended).code.digest
            for trial_id, record in group.items():
                codes = (record.code.digest, *record.code.earlier)
                others = [digest for digest in codes if digest != newest]
                if others:
                    older[trial_id] = (others[0], newest)
                else:
                    counts[newest] += 1
        return cls(older, counts, len(records))

    def notes(self, records: StudyRecords) -> list[str]:
        """Return sentences on trials of older code, of retrained networks, and of accepted code.

        - For each older code: how many trials ran it, and what has changed since.
        - For each study whose networks were trained again: how many trials started from its networks.
        - For each newest code: how many trials `--accept-code` kept although their code had changed. Nothing is said
          once a trial ran the changed code, as trials of the code before are then older ones.
        """
        lines = [
            f"{count} of {self.total} trials ran other code than the newest: {_change(records, old, new)}"
            for (old, new), count in sorted(Counter(self.older.values()).items())
        ]
        lines += [
            f"{count} of {self.total} trials started from networks of {study} that were trained again since"
            for study, count in sorted(Counter(self.retrained.values()).items())
        ]
        # Once a trial ran the changed code that was accepted, the code before is told as an older one, above.
        accepted_codes = {old for old, new in _accepted(records) if new not in self.newest}
        lines += [
            f"{count} of {self.total} trials were kept by --accept-code although their code "
            f"({digest or 'recorded before code was kept'}) had changed"
            for digest, count in sorted(self.newest.items())
            if digest in accepted_codes
        ]
        return lines


def retrained(records: RecordsById, storage: str) -> dict[str, str]:
    """Return trial id -> study, for each trial that started from a network of that study which was trained again since.

    `records` are those of the starting trials by id; `storage` has the studies that they started from. A study that
    cannot be read is left out, as are its broken records.
    """
    studies: dict[str, str] = {}
    for study in {record.start.study for record in records.values() if record.start}:
        source = StudyRecords(storage, study)
        try:
            now = compact.read_records(source, broken=[])
        except StorageError:  # a report is made all the same
            continue
        # A trial that was trained again has ended at another time than the one that was started from.
        for trial_id, record in records.items():
            if record.start and record.start.study == study:
                source_now = now.get(record.start.trial)
                if source_now and source_now.ended != record.start.ended:
                    studies[trial_id] = study
    return studies


def code_diff(records: StudyRecords, changes: Iterable[tuple[str, str]]) -> str:
    """Return the unified diffs of changes of code, given as (old digest, new digest).

    A change whose sources were not kept has none.
    """
    differences = [_difference(records, old, new) for old, new in sorted(changes)]
    return "\n".join(change.diff for change in differences if change is not None)


def mark_mixed_code(table: "Table", mixed: MixedCode, records: StudyRecords) -> "Table":
    """Return `table` with the notes of `mixed` and with the mark † at each cell that these notes are about.

    Such a cell has trials of older code, or trials that started from networks which were trained again. Without any
    such trial no cell is marked, and the notes are only on changes of code that the user has accepted.
    """
    notes = mixed.notes(records)
    stale = {*mixed.older, *mixed.retrained}
    if not stale:
        return replace(table, notes=(*table.notes, *notes)) if notes else table
    cells = {
        place: replace(
            cell, other_code=sum(replicate.trial_id in stale for replicate in cell.replicates)
        )
        for place, cell in table.cells.items()
    }
    return replace(table, cells=cells, notes=(*table.notes, *(f"† {note}" for note in notes)))


def _change(records: StudyRecords, old: str, new: str) -> str:
    """Return in words what differs between the codes with the digests `old` and `new`: `method.py changed (12 lines)`.

    `records` is the storage that keeps the sources. Without them the words are the digests.
    """
    if not old:
        return "recorded before code was kept"
    change = _difference(records, old, new)
    if change is None:
        return f"{old}, not {new or 'recorded before code was kept'}"
    return str(change)


def _accepted(records: StudyRecords) -> set[tuple[str, str]]:
    """Return the changes of code that the user has accepted with `--accept-code`, as (old digest, new digest).

    Empty where the list of these cannot be read.
    """
    try:
        return accepted(records)
    except StorageError:
        return set()


def _difference(records: StudyRecords, old: str, new: str) -> Difference | None:
    """Return what differs between the codes with the digests `old` and `new`; None where sources are missing or broken.

    `records` is the storage that keeps the sources.
    """
    try:
        before = read_sources(records, old)
        after = read_sources(records, new)
    except StorageError:
        return None
    return None if before is None or after is None else difference(before, after, (old, new))
