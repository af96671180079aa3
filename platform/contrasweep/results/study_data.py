"""`StudyData`: a study in its storage, with its trials as a frame and the notices for its readers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.data.manifest import NO_DATA
from contrasweep.errors import BrokenFileError, SpecError, choose_from, plural
from contrasweep.live.overview import no_such_study
from contrasweep.results.items import Items
from contrasweep.results.notices import (
    MixedCode,
    notice_lines,
    retrained,
    unmoved_lines,
    unread_lines,
    unread_settings,
)
from contrasweep.results.rendering import DisplayNames, display_names
from contrasweep.rows import ItemColumns
from contrasweep.storage import compact
from contrasweep.storage.archive import removed_trials
from contrasweep.storage.planned import read_planned
from contrasweep.storage.record import COUNTING, Record, RecordsById, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument, declared_lines
from contrasweep.study.metric_names import smaller_is_better
from contrasweep.tracking.links import read_links

TRIAL_COLUMNS = ("trial_id", "arm", "fold", "seed", "status", "cause", "seconds", "gpu_memory_gib")
"""The columns of a frame of trials that are neither axes nor metrics."""
MAX_NOTES = 3
"""The most broken files that are named to the reader."""
PLURALS = {
    "arm": "arms",
    "axis": "axes",
    "metric": "metrics",
    "rows or columns": "rows and columns",
}
"""What `StudyData.known_name` calls the known names, by kind."""


@dataclass(frozen=True, repr=False)
class StudyData:
    """A study's trials and their records, as they lie in the storage. A trial without a record is `pending`."""

    document: StudyDocument
    planned: pd.DataFrame  # one row per trial of the table: trial_id, arm, the axes, fold, seed
    trial_records: RecordsById  # by trial id, of the planned trials that have ended
    search_records: RecordsById  # by trial id, of a Sweep's search
    records: StudyRecords
    etags: Mapping[str, str]  # trial id -> the state of its record when it was read
    # trial id -> address of its MLflow run, where it is known
    run_urls: Mapping[str, str] = field(default_factory=dict)
    stopped: str = ""  # which budget ended the run that gave these results; "" where none did
    # trial id -> records of the evaluations of its network
    evaluations: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    # broken files of single trials, which are left out of the results
    broken: list[BrokenFileError] = field(default_factory=list)

    @classmethod
    def load(cls, study: str, storage: str) -> Self:
        """Read the study called `study` from `storage`.

        Args:
            study: The name of the study.
            storage: The folder, or the address of the object store, that the study was run in.

        Returns:
            The study as far as it has run.

        Raises:
            SpecError: If it was never run there.
            StorageError: If the storage cannot be read.
        """
        records = StudyRecords(storage, study)
        document = records.document()
        if document is None:
            raise no_such_study(study, storage)
        # Broken files of single trials are left out, and named to the reader.
        planned = read_planned(records)
        etags = records.etags()
        broken: list[BrokenFileError] = []
        rest = compact.read_records(records, broken, etags=etags)
        evaluations = compact.read_evaluations(records, broken)
        # The records of the planned trials, with their scores; in a sweep the rest are those of the search.
        of_trials = {
            trial_id: compact.with_scores(rest.pop(trial_id), evaluations)
            for trial_id in planned["trial_id"]
            if trial_id in rest
        }
        return cls(
            document,
            planned,
            of_trials,
            rest if document.search else {},
            records,
            etags,
            read_links(records).runs,
            broken=broken,
            evaluations=evaluations,
        )

    @property
    def name(self) -> str:
        """The study's name."""
        return self.document.name

    @property
    def metric(self) -> str:
        """The metric that the study is about."""
        return self.document.metric

    @property
    def axes(self) -> list[str]:
        """Return the axes over which the arms are compared, as declared."""
        return list(self.document.axes)

    @cached_property
    def names(self) -> DisplayNames:
        """Return the display names of arms, axes and metrics, from the study's `labels`."""
        return display_names(self.document.labels, [*self.document.arms, *self.frame.columns])

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The trials: trial_id, arm, axes, fold, seed, status, cause (of failure), metrics, seconds, gpu_memory_gib."""
        return self.frame_of(self.planned, self.trial_records)

    def frame_of(self, planned: pd.DataFrame, records_by_id: RecordsById) -> pd.DataFrame:
        """Return the columns of `frame` for other trials of the study, such as those of its search.

        Args:
            planned: A row for each trial, with its `trial_id` and its values of the axes.
            records_by_id: The records of those trials that have begun. A trial without one is pending, or broken where
                its file could not be read.

        Returns:
            A row for each trial of `planned`.
        """
        records = [records_by_id.get(trial_id) for trial_id in planned["trial_id"]]
        # The metrics: the study's first, then the others in the order in which trials have them. Most trials have the
        # same names, so that each different tuple of names is looked at once.
        by_trial = [record.metrics if record else {} for record in records]
        names = {self.metric: None}
        for names_of_trial in dict.fromkeys(map(tuple, by_trial)):
            names |= dict.fromkeys(names_of_trial)
        metrics = pd.DataFrame(by_trial, planned.index, list(names), "float64")
        # A metric with the name of another column is renamed to `metric.NAME`.
        taken = {*TRIAL_COLUMNS, *self.axes}
        metrics.columns = [f"metric.{name}" if name in taken else name for name in names]
        # A trial without a record is broken where it has a file, which could not be read; else it is still to run.
        statuses = []
        for trial_id, record in zip(planned["trial_id"], records, strict=True):
            if record:
                statuses.append(record.status.value)
            elif trial_id in self.etags:
                statuses.append(Status.BROKEN.value)
            else:
                statuses.append(Status.PENDING.value)
        labels = planned.assign(
            status=statuses,
            cause=pd.array(
                [record.cause.value if record and record.cause else None for record in records],
                dtype="str",
            ),
        )
        # pandas would warn if hundreds of metrics were added one by one.
        return pd.concat([labels, metrics], axis=1).assign(
            seconds=[record.seconds if record else np.nan for record in records],
            gpu_memory_gib=pd.array(
                [record.gpu_memory_gib if record else None for record in records], dtype="Float64"
            ),
        )

    @property
    def done(self) -> pd.DataFrame:
        """The rows of `frame` that are finished trials."""
        return self.frame[self.frame["status"].isin(COUNTING)]

    @cached_property
    def items(self) -> Items:
        """The function that returns a trial's scores of test items, score -> values, from the trial's id.

        It reads each file once. Scores in broken files are left out.
        """
        return cache(self._items)

    def _items(self, trial_id: str) -> ItemColumns:
        """Return a trial's scores of test items: score -> one value per item.

        Where an evaluation has a score of the same name, its values replace those that the trial wrote itself.
        """
        record = self.trial_records.get(trial_id)
        # The trial's own scores, less those that an evaluation has replaced; then those of each evaluation.
        evaluations = compact.scores_of(record, self.evaluations) if record else []
        replaced = {name for evaluation in evaluations for name in evaluation.items}
        score_names = [name for name in record.items if name not in replaced] if record else []
        sources = [(self.records, trial_id, score_names)]
        for evaluation in evaluations:
            records = StudyRecords(self.records.storage, evaluation.study)
            sources.append((records, evaluation.trial_id, list(evaluation.items)))
        items: dict[str, object] = {}
        for records, scored_id, names in sources:
            try:
                items |= records.items(scored_id, names)
            except BrokenFileError as error:
                self._leave_out([error])
        return items

    def _leave_out(self, broken: Iterable[BrokenFileError]) -> None:
        """Add errors of broken files to the list that `broken_notes` shows, each once, however often a file is read."""
        already_broken = set(map(str, self.broken))
        self.broken.extend(error for error in broken if str(error) not in already_broken)

    def broken_notes(self) -> list[str]:
        """Return lines that name the broken files, for a reader of the results."""
        lines = [f"left out: {error}" for error in self.broken[:MAX_NOTES]]
        unlisted = len(self.broken) - MAX_NOTES
        if unlisted > 0:
            lines.append(f"left out: {plural(unlisted, 'more broken file')}")
        return lines

    def curves(self, trial_ids: Iterable[str] | None = None) -> pd.DataFrame:
        """Return every report of the table's trials, or of the trials `trial_ids`.

        Args:
            trial_ids: The ids of trials, those of a search too.

        Returns:
            One row a report: trial_id, step, time (unix seconds), and the metrics.
        """
        broken: list[BrokenFileError] = []
        ids = self.trial_records if trial_ids is None else trial_ids
        curves = compact.read_curves(self.records, self.etags, ids, broken)
        self._leave_out(broken)
        return curves

    def system(self) -> pd.DataFrame:
        """Return what every trial used over time.

        Returns:
            One row a measurement: trial_id, step (seconds since the trial began), time (unix seconds),
            `gpu_utilization_percentage`, `gpu_memory_gib`, `cpu_utilization_percentage` (of the host) and
            `process_memory_gib`. Trials of less than 10 seconds have no row.
        """
        broken: list[BrokenFileError] = []
        used = compact.read_curves(
            self.records, self.etags, self.all_records, broken, compact.SYSTEMS
        )
        self._leave_out(broken)
        return used

    @property
    def all_records(self) -> dict[str, Record]:
        """The records of all trials that have ended, of the search too, by trial id."""
        return {**self.search_records, **self.trial_records}

    @cached_property
    def unused_settings(self) -> list[str]:
        """A sentence for each setting that is set in some arms and that no trial of these arms read."""
        return unread_lines([*self.trial_records.values(), *self.search_records.values()])

    @cached_property
    def notices(self) -> list[str]:
        """Sentences on the data's classes, on what trials report, on axes without effect, and on warnings in logs."""
        lines = [*self.document.data_notes, *notice_lines(self.done, self.axes, self.names)]
        # Of a setting that no trial read, `unused_settings` says it.
        unread = unread_settings(self.all_records.values())
        read_axes = [axis for axis in self.axes if axis not in unread]
        lines += unmoved_lines(self.done, read_axes, self.metric)
        if self.warned:
            lines.append(
                f"{len(self.warned)} of {len(self.planned)} trials have warnings in their logs"
            )
        pending = {*self.planned["trial_id"]} - self.trial_records.keys()
        removed = removed_trials(self.records) & pending if pending else set()
        if removed:
            lines.append(
                f"{len(removed)} of {len(self.planned)} trials were removed; `contrasweep restore` puts them back"
            )
        return lines

    @property
    def warned(self) -> list[Record]:
        """The records of the table's trials whose logs have warnings."""
        return [record for record in self.trial_records.values() if record.warnings]

    @cached_property
    def trained_again(self) -> frozenset[str]:
        """Ids of trials that were trained again after their results were seen, with another result."""
        first = self.document.first_values
        records = self.trial_records
        return frozenset(
            i for i in first if i in records and records[i].value(self.metric) != first[i]
        )

    @property
    def declared_notes(self) -> list[str]:
        """Sentences on what was declared anew, or trained again, after trials had ended."""
        lines = declared_lines(self.document)
        again = self.trained_again
        if again:
            arms = ", ".join(dict.fromkeys(self.trial_records[i].arm for i in sorted(again)))
            lines.append(
                f"{len(again)} of {len(self.planned)} trials (of {arms}) were trained again after their results "
                "were seen, and came out otherwise: comparisons with them are exploratory"
            )
        return lines

    @cached_property
    def mixed_code(self) -> MixedCode:
        """Trials of the table that ran other code than the newest, or started from networks trained again since."""
        mixed = MixedCode.of(self.trial_records)
        return replace(mixed, retrained=retrained(self.trial_records, self.records.storage))

    def mode(self, metric: str) -> Any:
        """Return which values of a metric are better.

        For the study's own metric the study says it, for any other metric the name: smaller values are better for
        losses, errors, times and sizes, larger ones for all others.

        Args:
            metric: The name of the metric.

        Returns:
            "max" or "min".
        """
        if metric == self.metric:
            return self.document.mode
        return "min" if smaller_is_better(metric) else "max"

    @property
    def title(self) -> str:
        """The title over every table: the study and its data, such as `quickstart on tiles (synthetic)`.

        Where trials are programs that bring data of their own, and no label of the study names these, it is the study
        alone.
        """
        names: dict[str, None] = {}  # each once, in their order
        for dataset in self.document.datasets:
            name = self.names(dataset.name)
            if name != NO_DATA:
                names[f"{name} (synthetic)" if dataset.synthetic else name] = None
        return f"{self.name} on {', '.join(names)}" if names else self.name

    def at(self, frame: pd.DataFrame, at: Config) -> pd.DataFrame:
        """Return the rows of a frame of trials whose axes have the values `at`.

        Args:
            frame: A frame as `to_frame` gives.
            at: The values of axes that are fixed, by axis.

        Returns:
            The rows with these values.

        Raises:
            SpecError: For an unknown axis, or values that no row has.
        """
        for name, value in at.items():
            axis = self.known_name("axis", name, self.axes)
            # 1 and 1.0 are one value, 1 and True are not.
            has_value = [canonical.same(label, value) for label in frame[axis]]
            if not any(has_value):
                hint = choose_from("values", set(map(canonical.label, frame[axis])), value)
                raise SpecError("no trial has this value", place=axis, value=value, hint=hint)
            frame = frame[has_value]
        return frame

    def known_name(self, kind: str, value: str, known: list[str]) -> str:
        """Return the declared name of what `value` names.

        Args:
            kind: What it is: "arm", "axis", "metric" or "rows or columns".
            value: The declared name, or the display name that tables show.
            known: The declared names that there are.

        Returns:
            The declared name.

        Raises:
            SpecError: Unless `value` is or shows one of `known`.
        """
        if value in known:
            return value
        for name in known:
            if self.names(name) == value:
                return name
        hint = choose_from(PLURALS[kind], known, value)
        raise SpecError(
            f"there is no such {kind}", place=f"study {self.name}", value=value, hint=hint
        )
