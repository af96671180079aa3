"""The trials from whose checkpoints others start: which they are, and whether they can be started from."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product

from contrasweep import canonical
from contrasweep.code import CurrentCode
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.defaults import STORAGE
from contrasweep.errors import ContrasweepError, NotTrainedError, SpecError, check_known
from contrasweep.planning.code_comparison import compare_code
from contrasweep.planning.plan import Plan
from contrasweep.storage import compact
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.planned import axes_of, read_planned
from contrasweep.storage.record import DatasetLike, Record, StartRef
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.arm import Start
from contrasweep.study.file import named_by
from contrasweep.study.grid import DATA_AXIS
from contrasweep.study.trainables import START_SETTINGS, SettingsOfArms
from contrasweep.study.trust import check_named
from contrasweep.trial import Trial


@dataclass(frozen=True)
class SourceTrial:
    """A trial that others may start from; without a `record` it has not ended yet.

    `config` is its whole config, `fold` None where it has none, `axes` axis -> its cell's value.
    """

    id: str
    config: Config
    data: DatasetLike
    fold: int | None
    seed: int
    axes: Config
    record: Record | None = None


@dataclass
class Sources:
    """The trials of studies that arms start from, as a storage has them, or plans of studies that run before.

    Studies in `before` need not have run: their trials are known without it, unless the best is asked for.

    `_known` is (study, arm) -> its trials, `_fitting` (study, arm, digest of the data) -> those to start from there.
    """

    storage: str = STORAGE
    before: Sequence[Plan] = ()
    _known: dict[tuple[str, str], list[SourceTrial]] = field(default_factory=dict)
    _fitting: dict[tuple[str, str, str], list[SourceTrial]] = field(default_factory=dict)

    def trials(self, start: Start) -> list[SourceTrial]:
        """Return the trials of an arm to start from; read once for each arm.

        Raises:
            NotTrainedError: They are not of a plan in `before`, and not all have ended; or the best is asked for, and
            not
                all have.
            SpecError: The study has no such arm, or deletes the checkpoints to start from.
        """
        # A plan of a study that runs before is newer than what the storage has of it.
        key = (start.study, start.arm)
        if key not in self._known:
            planned = next((plan for plan in self.before if plan.study.name == start.study), None)
            self._known[key] = (
                self._stored(start) if planned is None else self._planned(start, planned)
            )
        trials = self._known[key]
        not_ended = sum(trial.record is None for trial in trials)
        if start.trial == "best" and not_ended:
            raise NotTrainedError(start.study, self._command(start.study), not_ended)
        return trials

    def started(
        self,
        settings: SettingsOfArms,
        arm: str,
        start: Start,
        config: Config,
        axes: Config,
        data: Manifest,
        replicates: Sequence[tuple[int | None, int]],
    ) -> tuple[canonical.Config, list[StartRef]]:
        """Return the whole config of a cell whose trials start from others, and where each of its replicates starts.

        What `config` does not set of the trainable's `start_settings`, the cell has from these trials. `settings`
        builds the settings of `arm`; `config`, `axes` and `data` are the cell's, `replicates` the (fold, seed) of its
        trials.

        Raises:
            NotTrainedError: As for `trials`.
            SpecError: As for `of`, or `config` sets such a setting otherwise.
        """
        names = getattr(settings.functions[arm], START_SETTINGS)
        try:
            sources = [self.of(start, data, fold, seed, axes) for fold, seed in replicates]
            # All sources must agree in these, as is checked below, so the first one says them.
            inherited = {
                name: sources[0].config[name] for name in names if name in sources[0].config
            }
            # Code and addresses that the stored study has must be named by the user's own declarations too.
            named_values = [config, *(named_by(plan.study) for plan in self.before)]
            check_named(
                inherited,
                named_values,
                "start",
                f"say yourself in `config` what {start.study}/{start.arm} has",
            )
            whole_config = settings.resolve(arm, canonical.Config({**inherited, **config}), data)
            # Every replicate's source must have the same settings as the cell.
            for source, name in product(sources, names):
                if whole_config.get(name) != source.config.get(name):
                    raise SpecError(
                        f"a trial has the {name} of the network that it starts from",
                        place=f"config.{name}",
                        value=whole_config.get(name),
                        hint=f"leave it out: {start.study}/{start.arm} has {source.config.get(name)}",
                    )
        # An error that does not say its arm is one of this arm.
        except SpecError as error:
            raise error if error.place.startswith("arms.") else error.at(f"arms.{arm}") from None
        return whole_config, [
            StartRef(start.study, source.id, source.record.ended if source.record else 0.0)
            for source in sources
        ]

    def of(
        self, start: Start, data: Manifest, fold: int | None, seed: int, axes: Config
    ) -> SourceTrial:
        """Return the trial to start from for a trial on `data` with this fold, seed and values of axes.

        Raises:
            NotTrainedError: As for `trials`.
            SpecError: There is no such trial, it has no network, or its network may have seen what is held out here.
        """
        name = f"{start.study}/{start.arm}"
        trials = self.trials(start)
        fitting = self._of_data(start, data, trials)
        # A source trained on all data serves every fold where it has no folds of its own.
        folds = {trial.fold for trial in fitting}
        fitting = [trial for trial in fitting if trial.fold == (fold if fold in folds else None)]
        # Where both studies have an axis, a trial starts from the network of its own value.
        shared = [
            axis
            for axis in axes
            if axis != DATA_AXIS and all(axis in trial.axes for trial in fitting)
        ]
        fitting = [
            trial for trial in fitting if all(trial.axes[axis] == axes[axis] for axis in shared)
        ]
        # The best is one of all seeds; else the trial of the same seed.
        if start.trial == "best":
            document = self._document(start.study)
            sign = 1 if document.mode == "max" else -1
            values = {
                trial.id: trial.record.value(document.metric) for trial in fitting if trial.record
            }
            ended = [trial for trial in fitting if values.get(trial.id) is not None]
            fitting = sorted(ended, key=lambda trial: sign * (values[trial.id] or 0.0))[-1:]
        else:
            fitting = [trial for trial in fitting if trial.seed == seed]
        replicate = f"fold {fold}, seed {seed}" if fold is not None else f"seed {seed}"
        if len(fitting) != 1:
            # Several that fit differ in an axis of their own study, of which no value is asked for.
            has = ", ".join(sorted({str(trial.seed) for trial in trials}, key=int))
            several = [axis for axis in (fitting[0].axes if fitting else ()) if axis not in shared]
            raise SpecError(
                f"{name} has {len(fitting) or 'no'} trials to start from",
                place="start",
                value=replicate,
                hint=f"give this study its axes ({', '.join(several)}), or say trial: best"
                if several
                else f"it has seeds {has}: give this study the same folds and seeds, or say trial: best",
            )
        (matching,) = fitting
        if matching.record is not None and not matching.record.status.counts:
            raise SpecError(
                f"a trial of {name} gave no network: it is {matching.record.status}",
                place="start",
                value=f"{replicate} (trial {matching.id})",
                hint=f"run {start.study} again with --retry-failed",
            )
        return matching

    def _of_data(
        self, start: Start, data: Manifest, trials: list[SourceTrial]
    ) -> list[SourceTrial]:
        """Return those of the `trials` to start from that were trained on `data` and its folds; all if on other data.

        It is other data if no trial was trained on a dataset of this name. Raises `SpecError` where none is left.
        """
        key = (start.study, start.arm, data.digest)
        if key not in self._fitting:
            dataset_names = {trial.data.name for trial in trials}
            self._fitting[key] = (
                [t for t in trials if t.data.digest == data.digest]
                if data.name in dataset_names
                else trials
            )
        if not self._fitting[key]:
            raise SpecError(
                f"{start.study}/{start.arm} was trained on other folds or another version of {data.name}, so that its "
                "networks may have seen what is held out here",
                place="start",
                value=f"{data.folds.count if data.folds else 'no'} folds",
                hint="give both studies the same data and folds",
            )
        return self._fitting[key]

    def _planned(self, start: Start, plan: Plan) -> list[SourceTrial]:
        """Return the trials of a study that runs before, with the records that there are.

        Those of a search are not known before its end: they are as the storage has them. Raises `SpecError` where the
        study has no such arm, or will have deleted the checkpoints.
        """
        _check_arm(start, plan.study.arms)
        keeps = plan.study.keep_checkpoints_of
        if keeps == "none" or (keeps == "best_of_arm" and start.trial != "best"):
            raise SpecError(
                f"{start.study} deletes the checkpoints to start from",
                place="start",
                value=f"keep_checkpoints_of: {keeps}",
            )
        cells = [cell for cell in plan.cells if cell.arm == start.arm]
        ended = self._records(start.study, {trial.id for cell in cells for trial in cell.trials})
        trials = [
            SourceTrial(t.id, t.config, t.data, t.fold, t.seed, cell.axes, ended.get(t.id))
            for cell in cells
            for t in cell.trials
        ]
        if not trials:  # of a search, they are known at its end
            return self._stored(start)
        return trials

    def _stored(self, start: Start) -> list[SourceTrial]:
        """Return the trials of the arm of a study in the storage, all of which have ended.

        Raises:
            NotTrainedError: The study was never run, has not planned trials of the arm yet, or not all have ended.
            SpecError: The study has no such arm.
        """
        _check_arm(start, self._document(start.study).arms)
        frame = read_planned(StudyRecords(self.storage, start.study))
        rows = frame[frame["arm"] == start.arm].to_dict("records")
        ended = self._records(start.study, {row["trial_id"] for row in rows})
        # An arm without planned trials counts as one that has not ended.
        not_ended = len(rows) - len(ended) if rows else 1
        if not_ended:
            raise NotTrainedError(start.study, self._command(start.study), not_ended)
        axes = axes_of(frame)
        of_row = ((ended[row["trial_id"]], {axis: row[axis] for axis in axes}) for row in rows)
        return [
            SourceTrial(r.trial_id, r.config, r.data, r.fold, r.seed, values, r)
            for r, values in of_row
        ]

    def _records(self, study: str, ids: Collection[str]) -> dict[str, Record]:
        """Return trial id -> record, of the trials `ids` of a study that have one."""
        records = StudyRecords(self.storage, study)
        return compact.read_records(records, records.etags(), only=ids)

    def _document(self, study: str) -> StudyDocument:
        """Return a study's study.json; `NotTrainedError` where it was never run in this storage."""
        document = StudyRecords(self.storage, study).document()
        if document is None:
            raise NotTrainedError(study, self._command(study), 0)
        return document

    def _command(self, study: str) -> str:
        """Return the command that trains a study: the last one that ran it, else one with FILE in it."""
        document = StudyRecords(self.storage, study).document()
        if document and document.commands:
            return document.commands[-1]
        return f"contrasweep run FILE, where FILE declares {study}"


def _check_arm(start: Start, arms: Collection[str]) -> None:
    """Raise `SpecError` where the study has no arm that `start` names."""
    check_known(start.arm, "arms", arms, f"{start.study} has no such arm", place="start.arm")


def check_starts(plan: Plan, storage: str, current: CurrentCode, finished: Collection[str]) -> None:
    """Raise `ContrasweepError`, one line, where a trial that is not `finished` cannot start from its source.

    It cannot where the source's checkpoint is deleted. So too where any source was made by other code than the
    `current` one and the user has not accepted that. `finished` are ids of trials of `plan` with a record.
    """
    of_study: dict[str, list[Trial]] = defaultdict(list)
    for trial in plan.trials:
        if trial.start is not None:
            of_study[trial.start.study].append(trial)
    for study, trials in of_study.items():
        source = StudyRecords(storage, study)
        source_ids = {trial.start.trial for trial in trials if trial.start}
        records = compact.read_records(source, source.etags(), only=source_ids).values()
        # What a notebook or script made names code that cannot be imported, and so not be compared.
        importable = [record for record in records if not record.trainable.startswith("__main__:")]
        if line := compare_code(source, importable, (), current, len(importable)).line():
            raise ContrasweepError(
                f"{plan.study.name} starts from networks of {study}, of which {line}; run {study} first, with "
                "--rerun-changed or --accept-code"
            )
        starts_left = [trial.start for trial in trials if trial.start and trial.id not in finished]
        # A source without an end has not run yet: its study runs before, and keeps its checkpoints.
        sources = sorted({start.trial for start in starts_left if start.ended})
        checkpoints = [Checkpoints(source.store, source.key(i, "checkpoint")) for i in sources]
        # Each is a call of the storage, which waits for the network.
        with ThreadPoolExecutor(16) as pool:
            found = pool.map(Checkpoints.latest, checkpoints)
            gone = [i for i, latest in zip(sources, found, strict=True) if latest is None]
        if gone:
            raise ContrasweepError(
                f"{plan.study.name} starts from checkpoints of {study}, and {len(gone)} of {len(sources)} are "
                f"deleted or were never kept, such as of trial {gone[0]}; train it again with --rerun {gone[0]}"
            )
