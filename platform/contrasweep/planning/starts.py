"""The trials from whose checkpoints others start: which they are, and whether they can be started from."""

import math
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
from contrasweep.planning.plan import PlanBase
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


@dataclass(frozen=True)
class SourceTrial:
    """A trial whose network other trials may start from."""

    id: str
    config: Config  # with the trainable's defaults
    data: DatasetLike
    fold: int | None  # None: the dataset's test split
    seed: int
    axes: Config  # axis -> value of the trial's cell
    record: Record | None  # None: the trial has not ended yet


@dataclass
class Sources:
    """The trials that arms start from: of studies in a storage, or of plans of studies that run before.

    The trials of the plans `before` are known although they need not have run. Only a choice of the best needs records.
    """

    storage: str = STORAGE
    before: Sequence[PlanBase] = ()
    # (study, arm) -> all trials of the arm
    _known: dict[tuple[str, str], list[SourceTrial]] = field(default_factory=dict)

    def trials(self, start: Start) -> list[SourceTrial]:
        """Return all trials of the arm that `start` names; they are read once for each arm.

        Raises:
            NotTrainedError: Not all of these trials have ended. Where their study is in `before`, it is raised only if
                `start` asks for the best trial.
            SpecError: The study has no such arm, or deletes the checkpoints to start from.
        """
        key = (start.study, start.arm)
        if key not in self._known:
            # A plan of a study that runs before is newer than what the storage has of it.
            planned = next((plan for plan in self.before if plan.study.name == start.study), None)
            self._known[key] = (
                self._stored(start) if planned is None else self._planned(start, planned)
            )
        trials = self._known[key]
        not_ended = sum(trial.record is None for trial in trials)
        if start.trial == "best" and not_ended:
            raise self._not_trained(start.study, not_ended)
        return trials

    def config_and_starts(
        self,
        settings: SettingsOfArms,
        arm: str,
        start: Start,
        config: Config,
        axes: Config,
        data: Manifest,
        replicates: Sequence[tuple[int | None, int]],
    ) -> tuple[canonical.Config, list[StartRef]]:
        """Return the whole config of a cell whose trials start from others, and the source of each replicate.

        The trainable's `start_settings` describe the network. Where the cell's `config` does not set one of them, the
        cell takes it over from the trials that it starts from.

        Args:
            settings: Builds the settings of `arm`.
            arm: The cell's arm.
            start: Which trials the arm starts from.
            config: The cell's config as declared.
            axes: Axis -> the cell's value.
            data: The cell's dataset.
            replicates: (fold, seed) of each trial of the cell.

        Raises:
            NotTrainedError: As for `trials`.
            SpecError: As for `of`, or `config` gives one of the `start_settings` another value than the sources have.
        """
        names = getattr(settings.functions[arm], START_SETTINGS)
        try:
            sources = [self.of(start, data, fold, seed, axes) for fold, seed in replicates]
            # All sources must have the same, as is checked below, so the first one's are taken.
            first = sources[0].config
            inherited = {name: first[name] for name in names if name in first}
            # A setting may be the name of a function, which would be run, or an address. A storage is not trusted to
            # choose these: the user's own declarations must have the same name or address.
            named_values = [config, *(named_by(plan.study) for plan in self.before)]
            check_named(
                inherited,
                named_values,
                "start",
                f"say yourself in `config` what {start.study}/{start.arm} has, or ",
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
        except SpecError as error:
            if error.place.startswith("arms."):
                raise
            # An error that names no arm is about this one.
            raise error.at(f"arms.{arm}") from None
        # The end of a source's training is 0 while it has not ended.
        return whole_config, [
            StartRef(start.study, source.id, source.record.ended if source.record else 0.0)
            for source in sources
        ]

    def of(
        self, start: Start, data: Manifest, fold: int | None, seed: int, axes: Config
    ) -> SourceTrial:
        """Return the trial from which a trial on `data`, with this fold, seed and values of axes, starts.

        Raises:
            NotTrainedError: As for `trials`.
            SpecError: There is no such trial, it has no network, or its network may have seen what is held out here.
        """
        name = f"{start.study}/{start.arm}"
        # Trials on the same data with the same folds. Where no trial was trained on a dataset of this name, all of them
        # were trained on other data, and none has seen what is held out.
        fitting = self.trials(start)
        if any(trial.data.name == data.name for trial in fitting):
            fitting = [trial for trial in fitting if trial.data.digest == data.digest]
        if not fitting:
            raise SpecError(
                f"{name} was trained on other folds or another version of {data.name}, so that its "
                "networks may have seen what is held out here",
                place="start",
                value=f"{data.folds.count if data.folds else 'no'} folds",
                hint="give both studies the same data and folds",
            )
        # A trial of the same fold; in a study without folds, one network serves every fold.
        folds = {trial.fold for trial in fitting}
        source_fold = fold if fold in folds else None
        fitting = [trial for trial in fitting if trial.fold == source_fold]
        # Then a trial with the same value of each axis that both studies have.
        in_all = set(axes).intersection(*(trial.axes for trial in fitting)) - {DATA_AXIS}
        for axis in in_all:
            fitting = [trial for trial in fitting if trial.axes[axis] == axes[axis]]
        # Then the best of all seeds, or the trial of the same seed.
        if start.trial == "best":
            fitting = self._best(start.study, fitting)
        else:
            fitting = [trial for trial in fitting if trial.seed == seed]
        replicate = f"fold {fold}, seed {seed}" if fold is not None else f"seed {seed}"
        if len(fitting) != 1:
            seeds = ", ".join(map(str, sorted({trial.seed for trial in self.trials(start)})))
            hint = f"it has seeds {seeds}: give this study the same folds and seeds, or say trial: best"
            # Several trials fit where their study has an axis that this study does not have.
            lacking = [axis for axis in fitting[0].axes if axis not in in_all] if fitting else []
            if lacking:
                hint = f"give this study its axes ({', '.join(lacking)}), or say trial: best"
            raise SpecError(
                f"{name} has {len(fitting) or 'no'} trials to start from",
                place="start",
                value=replicate,
                hint=hint,
            )
        (source,) = fitting
        if source.record is not None and not source.record.status.counts:
            raise SpecError(
                f"a trial of {name} gave no network: it is {source.record.status}",
                place="start",
                value=f"{replicate} (trial {source.id})",
                hint=f"run {start.study} again with --retry-failed",
            )
        return source

    def _best(self, study: str, trials: Sequence[SourceTrial]) -> list[SourceTrial]:
        """Return a list with the trial that has the best value of the metric of `study`; [] where none has a value.

        If several of `trials` have the best value, it is the last of them.
        """
        document = self._document(study)
        sign = 1 if document.mode == "max" else -1
        best: list[SourceTrial] = []
        highest = -math.inf
        for trial in trials:
            value = trial.record.value(document.metric) if trial.record else None
            if value is not None and sign * value >= highest:
                highest = sign * value
                best = [trial]
        return best

    def _planned(self, start: Start, plan: PlanBase) -> list[SourceTrial]:
        """Return the trials of the arm that `start` names, of the plan of a study that runs before.

        Trials that have ended have their records. A sweep whose search has not ended has no trials in its plan yet:
        these are read from the storage. Raises `SpecError` where the study has no such arm, or deletes the checkpoints
        to start from.
        """
        _check_arm(start, plan.study.arms)
        # `best_of_arm` keeps the network of one trial. This is enough only where all trials start from the best one;
        # with folds, each fold has another best one.
        keeps = plan.study.keep_checkpoints_of
        lacks_some = keeps == "best_of_arm" and (start.trial != "best" or plan.table_folds)
        if "none" in (keeps, plan.study.keep) or lacks_some:
            raise SpecError(
                f"{start.study} deletes the checkpoints to start from",
                place="start",
                value=f"keep: {plan.study.keep}, keep_checkpoints_of: {keeps}",
            )
        cells = [cell for cell in plan.cells if cell.arm == start.arm]
        ended = self._records(start.study, {trial.id for cell in cells for trial in cell.trials})
        sources = [
            SourceTrial(
                trial.id,
                trial.config,
                trial.data,
                trial.fold,
                trial.seed,
                cell.axes,
                ended.get(trial.id),
            )
            for cell in cells
            for trial in cell.trials
        ]
        return sources or self._stored(start)

    def _stored(self, start: Start) -> list[SourceTrial]:
        """Return the trials of the arm that `start` names, of a study in the storage; all of them have ended.

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
            raise self._not_trained(start.study, not_ended)
        trials = []
        for row in rows:
            record = ended[row["trial_id"]]
            axes = {axis: row[axis] for axis in axes_of(frame)}
            trials.append(
                SourceTrial(
                    record.trial_id,
                    record.config,
                    record.data,
                    record.fold,
                    record.seed,
                    axes,
                    record,
                )
            )
        return trials

    def _records(self, study: str, ids: Collection[str]) -> dict[str, Record]:
        """Return trial id -> record of those of the trials `ids`, of the study `study`, that have ended."""
        records = StudyRecords(self.storage, study)
        return compact.read_records(records, only=ids)

    def _document(self, study: str) -> StudyDocument:
        """Return a study's study.json; `NotTrainedError` where it was never run in this storage."""
        document = StudyRecords(self.storage, study).document()
        if document is None:
            raise self._not_trained(study, 0)
        return document

    def _not_trained(self, study: str, not_ended: int) -> NotTrainedError:
        """Return the error for a study of which `not_ended` trials have not ended; 0: the study was never run.

        The error has the command that trains the study: the last command that ran it, else `contrasweep run FILE`.
        """
        command = f"contrasweep run FILE, where FILE declares {study}"
        document = StudyRecords(self.storage, study).document()
        if document and document.commands:
            command = document.commands[-1]
        return NotTrainedError(study, command, not_ended)


def _check_arm(start: Start, arms: Collection[str]) -> None:
    """Raise `SpecError` where the study has no arm that `start` names."""
    check_known(start.arm, "arms", arms, f"{start.study} has no such arm", place="start.arm")


def check_starts(
    plan: PlanBase, storage: str, current: CurrentCode, finished: Collection[str]
) -> None:
    """Raise `ContrasweepError`, one line, where trials of `plan` must not or cannot start from their sources.

    It is raised where a source was made by other code than the `current` one, and the user has not accepted that. It is
    raised too where a trial that is still to run would start from a checkpoint that is deleted. `finished` are the ids
    of trials of `plan` with a record.
    """
    # study -> ids of its trials from which trials of the plan start, and of those whose checkpoints are still needed. A
    # source that has not ended is of a study that runs before and keeps its checkpoints.
    sources: dict[str, set[str]] = defaultdict(set)
    needed: dict[str, set[str]] = defaultdict(set)
    for trial in plan.trials:
        start = trial.start
        if start is not None:
            sources[start.study].add(start.trial)
            if start.ended and trial.id not in finished:
                needed[start.study].add(start.trial)
    for study, source_ids in sources.items():
        records = StudyRecords(storage, study)
        recorded = compact.read_records(records, only=source_ids).values()
        # The code of a notebook or script cannot be imported, so it cannot be compared.
        importable = [record for record in recorded if not record.trainable.startswith("__main__:")]
        line = compare_code(records, importable, (), current, len(importable)).line()
        if line:
            raise ContrasweepError(
                f"{plan.study.name} starts from networks of {study}, of which {line}; run {study} first, with "
                "--rerun-changed or --accept-code"
            )
        ids = sorted(needed[study])
        checkpoints = [Checkpoints.of(records, trial_id) for trial_id in ids]
        # Each checkpoint takes a call of the storage, which waits for the network: many calls run at a time.
        with ThreadPoolExecutor(16) as pool:
            newest = pool.map(Checkpoints.latest, checkpoints)
            missing = [i for i, latest in zip(ids, newest, strict=True) if latest is None]
        if missing:
            raise ContrasweepError(
                f"{plan.study.name} starts from checkpoints of {study}, and {len(missing)} of {len(ids)} are "
                f"deleted or were never kept, such as of trial {missing[0]}; train it again with --rerun {missing[0]}"
            )
