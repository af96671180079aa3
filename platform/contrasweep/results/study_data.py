"""`StudyData`: a study in its storage, with its trials as a frame and the notices for its readers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
import pandas as pd

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.errors import BrokenFileError, SpecError, check_known, plural
from contrasweep.results.items import ItemReader, Items
from contrasweep.results.notices import MixedCode, notice_lines, retrained, unread_lines
from contrasweep.results.rendering import DisplayNames, display_names
from contrasweep.rows import FrameRow, ItemColumns
from contrasweep.storage import compact
from contrasweep.storage.planned import read_planned
from contrasweep.storage.record import COUNTING, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.storage.study_document import StudyDocument, declared_lines
from contrasweep.tracking.links import read_links

OWN_COLUMNS = ("trial_id", "arm", "fold", "seed", "status", "cause", "seconds", "gpu_memory_gib")
"""The columns of a frame of trials that are neither axes nor metrics."""
MAX_NOTES = 3
SMALLER = re.compile(
    r"(^|[^a-z])(loss|error|err|rmse|mse|mae|wer|cer|fid|perplexity|ppl|nll|bpb|latency|seconds|time|memory|gib|regret|noise|"
    r"collapsed)($|[^a-z])"
)
"""Names of metrics of which smaller values are better."""
PLURALS = {
    "arm": "arms",
    "axis": "axes",
    "metric": "metrics",
    "rows or columns": "rows and columns",
}
"""What `StudyData.check_known` calls the known names, by kind."""


@dataclass(frozen=True, repr=False)
class StudyData:
    """A study's trials and what became of them, as they lie in the storage. A trial without a record is `pending`."""

    document: StudyDocument
    planned: pd.DataFrame  # one row a trial of the table: trial_id, arm, the axes, fold, seed
    trial_records: Mapping[str, Record]  # those there are of the planned trials, by trial id
    search_records: Mapping[str, Record]  # those of a Sweep's search
    records: StudyRecords
    etags: Mapping[str, str]  # the records' state when they were read
    # of the trials' MLflow runs, where they are known
    run_urls: Mapping[str, str] = field(default_factory=dict)
    stopped: str = ""  # which budget ended the run that gave these results
    # of each trial's network
    evaluations: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    # files of single trials, left out of what is shown
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
            raise SpecError(
                "there is no such study in this storage",
                place="STUDY",
                value=study,
                hint=f"storage is {storage}; run it first with: contrasweep run",
            )
        # Broken files of single trials are left out, and named to the reader.
        planned = read_planned(records)
        etags = records.etags()
        broken: list[BrokenFileError] = []
        rest = compact.read_records(records, etags, broken)
        evaluations = compact.read_evaluations(records, broken)
        # Of a sweep the records that are not in the table are those of its search.
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
        rows = [self.trial_records.get(trial_id) for trial_id in self.planned["trial_id"]]
        own_names = {*OWN_COLUMNS, *self.axes}
        every = [record.metrics if record else {} for record in rows]
        # The study's metric first, then the others as they are met. Most trials have the same ones: those are met once.
        names = list(dict.fromkeys([self.metric, *chain(*dict.fromkeys(map(tuple, every)))]))
        metrics = pd.DataFrame(every, self.planned.index, names, "float64")
        # A metric that is called as one of our columns, or as an axis, stands beside it by another name.
        metrics.columns = [f"metric.{name}" if name in own_names else name for name in names]
        # Without a record that can be read a trial is broken where there is a file, else still to run.
        statuses = []
        for trial_id, record in zip(self.planned["trial_id"], rows, strict=True):
            if record:
                statuses.append(record.status.value)
            elif trial_id in self.etags:
                statuses.append(Status.BROKEN.value)
            else:
                statuses.append(Status.PENDING.value)
        return self.planned.assign(
            status=statuses,
            cause=pd.array(
                [record.cause.value if record and record.cause else None for record in rows],
                dtype="str",
            ),
            **metrics,
            seconds=[record.seconds if record else np.nan for record in rows],
            gpu_memory_gib=pd.array(
                [record.gpu_memory_gib if record else None for record in rows], dtype="Float64"
            ),
        )

    @property
    def done(self) -> pd.DataFrame:
        """The rows of `frame` of finished trials."""
        return self.frame[self.frame["status"].isin(COUNTING)]

    @cached_property
    def items(self) -> Items:
        """Return a trial's scores of its test items by name, as a function of its id; {} where they are broken.

        Each file is read once.
        """
        return ItemReader(self._items, remote=not isinstance(self.records.store, LocalStore))

    def _items(self, trial_id: str) -> ItemColumns:
        """Return a trial's scores of test items: those of evaluations in place of the trial's own of the same name."""
        # Where each score is read: the trial's own that no evaluation has too, then those of each evaluation.
        record = self.trial_records.get(trial_id)
        items = FrameRow()
        scored = compact.scores_of(record, self.evaluations) if record else []
        later = {name for record in scored for name in record.items}
        first = [name for name in record.items if name not in later] if record else []
        sources = [
            (StudyRecords(self.records.storage, record.study), record.trial_id, record.items)
            for record in scored
        ]
        for records, of, names in [(self.records, trial_id, first), *sources]:
            try:
                items |= records.items(of, names)
            except BrokenFileError as error:
                self._leave_out([error])
        return items

    def _leave_out(self, broken: Iterable[BrokenFileError]) -> None:
        """Remember broken files for `broken_notes`, each once however often it is read."""
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
            One row a measurement: trial_id, step (seconds since the trial began), time, `gpu_utilization_percentage`,
            `gpu_memory_gib`, `cpu_utilization_percentage` of the host and `process_memory_gib`. Trials of less than 10
            s have none.
        """
        broken: list[BrokenFileError] = []
        ids = [*self.search_records, *self.trial_records]
        return compact.read_curves(self.records, self.etags, ids, broken, compact.SYSTEMS)

    @cached_property
    def unused_settings(self) -> list[str]:
        """A sentence for each setting that no trial of some arms read."""
        return unread_lines([*self.trial_records.values(), *self.search_records.values()])

    @cached_property
    def notices(self) -> list[str]:
        """A sentence for what stands out in the classes of the data, and for what finished trials say of themselves."""
        lines = [*self.document.data_notes, *notice_lines(self.done, self.axes, self.names)]
        if self.warned:
            lines.append(
                f"{len(self.warned)} of {len(self.planned)} trials have warnings in their logs"
            )
        return lines

    @property
    def warned(self) -> list[Record]:
        """The records of the table's trials whose logs have warnings."""
        return [record for record in self.trial_records.values() if record.warnings]

    @cached_property
    def again(self) -> frozenset[str]:
        """Ids of trials that were trained again after their results were seen, with another result."""
        seen = self.document.seen
        records = self.trial_records
        return frozenset(
            i for i in seen if i in records and records[i].value(self.metric) != seen[i]
        )

    @property
    def declared_notes(self) -> list[str]:
        """Sentences on what was declared anew, or trained again, after trials had ended."""
        lines = declared_lines(self.document)
        if self.again:
            arms = ", ".join(dict.fromkeys(self.trial_records[i].arm for i in sorted(self.again)))
            lines.append(
                f"{len(self.again)} of {len(self.planned)} trials (of {arms}) were trained again after their results "
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

        The study says it of its metric, and the name of another: of losses, errors, times and sizes smaller values are
        better, of all others larger ones.

        Args:
            metric: The name of the metric.

        Returns:
            "max" or "min".
        """
        if metric == self.metric:
            return self.document.mode
        # A score of an evaluation is called DATASET/METRIC.
        return "min" if SMALLER.search(metric.rpartition("/")[2].lower()) else "max"

    @property
    def title(self) -> str:
        """The title over every table: the study, its data, and whether any of the data is synthetic."""
        names = dict.fromkeys(
            self.names(d.name) + (" (synthetic)" if d.synthetic else "")
            for d in self.document.datasets
        )
        return f"{self.name} on {', '.join(names)}"

    def at(self, frame: pd.DataFrame, at: Config) -> pd.DataFrame:
        """Return the rows of a frame of trials in some cells alone.

        Args:
            frame: A frame as `to_frame` gives.
            at: The values of axes that are fixed, by axis.

        Returns:
            The rows with these values.

        Raises:
            SpecError: For an unknown axis.
        """
        for axis, value in at.items():
            self.check_known("axis", axis, self.axes)
            # 1 and 1.0 are one value, 1 and True are not.
            frame = frame[[canonical.same(v, value) for v in frame[axis]]]
        return frame

    def check_known(self, kind: str, value: str, known: list[str]) -> None:
        """Raise `SpecError` for a name that is not known.

        Args:
            kind: What it is: "arm", "axis", "metric" or "rows or columns".
            value: The name.
            known: The names that there are.

        Raises:
            SpecError: Unless `value` is one of `known`.
        """
        check_known(
            value, PLURALS[kind], known, f"there is no such {kind}", place=f"study {self.name}"
        )
