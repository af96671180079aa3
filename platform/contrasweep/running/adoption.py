"""Trials that a release with flat settings recorded, filed under the ids that they have in a plan of today.

A storage with a study.json of format version 1 holds trials whose ids digest flat settings. Each record is translated
by its trainable's `Settings.MOVED` (old key -> dotted key), resolved for its dataset, and filed again if the trial it
comes to is planned. A run that is killed between any two operations has lost nothing, and the next one goes on: new
files are written first, the record last of them; then the old ones move to superseded/; then study.json is rewritten.
"""

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.planning.plan import Plan
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.storage.superseded import put_aside
from contrasweep.study import dotted
from contrasweep.study.trainables import SettingsOfArms, trainable_path
from contrasweep.trial import Trial

FLAT_SETTINGS = 1
"""The format version of study.json whose trials had flat settings."""


@dataclass(frozen=True)
class Adoption:
    """What becomes of an earlier release's trials, decided and not yet done."""

    origins: Mapping[str, str] = field(default_factory=dict)  # planned id -> id of the earlier release
    records: Mapping[str, Record] = field(default_factory=dict)  # by planned id, as they will be written
    obsolete: tuple[str, ...] = ()  # ids that move to superseded/
    same_plan: bool = False  # whether the earlier release ran this very plan, so that its name is claimed already
    notes: tuple[str, ...] = ()

    def carry_out(self, records: StudyRecords) -> None:
        """File the records and what belongs to them under their new ids, then put the old ones aside."""
        for trial_id, old in self.origins.items():
            folder = records.key(old, "")
            for key in records.store.list(folder):
                if (name := key.removeprefix(folder)) != "record.json":
                    records.store.copy(key, records.key(trial_id, name))
            records.write(self.records[trial_id])
        if self.obsolete:
            put_aside(records, self.obsolete, "recorded by a release with flat settings")


def decide_adoption(plan: Plan, records: StudyRecords, *, extend: bool) -> Adoption:
    """Read what an earlier release has left of `plan` in the storage; nothing is changed. Nothing is adopted where the
    study is of this release's format, or where it is of another plan and not to be extended."""
    document = records.document()
    if document is None or document.format_version > FLAT_SETTINGS:
        return Adoption()
    recorded = records.read(sorted(records.finished()))
    begun = records.begun()
    same = _declares(document, plan)
    if plan.declared_search is not None:
        note = f"an earlier release recorded this study: its search starts anew, and {_count(recorded)} put aside"
        moved = (*sorted(recorded), *sorted(begun))
        return Adoption(obsolete=moved, same_plan=same, notes=(note,)) if same or extend else Adoption()
    planned = {trial.id for trial in plan.trials}
    origins: dict[str, str] = {}
    adopted: dict[str, Record] = {}
    replaced: list[str] = []
    lost: list[str] = []
    elsewhere = 0
    settings = SettingsOfArms(plan.study.arms)
    for old, record in sorted(recorded.items(), key=lambda item: item[1].status is not Status.DONE):
        if old in planned:
            continue
        try:
            now = translated(record, plan, settings)
        except SpecError:
            lost.append(old)
            continue
        if now is None or now.trial_id not in planned:
            elsewhere += 1
            continue
        replaced.append(old)
        if now.trial_id not in adopted:
            origins[now.trial_id], adopted[now.trial_id] = old, now
    if not extend and (elsewhere or not same):
        return Adoption()
    unfinished = sorted(begun - planned)
    notes = []
    if adopted:
        notes.append(f"{_count(adopted)} filed under the ids that they have now; an earlier release recorded them")
    if lost:
        notes.append(f"{_count(lost)} left as an earlier release recorded them: their settings cannot be translated")
    if unfinished:
        notes.append(f"{_count(unfinished)} put aside and started over: an earlier release did not finish them")
    return Adoption(origins, adopted, (*replaced, *unfinished), True, tuple(notes))


def translated(record: Record, plan: Plan, settings: SettingsOfArms) -> Record | None:
    """The record under the id that its trial has today; None where the plan has no such arm, trainable or dataset.
    `SpecError` where its settings cannot be translated."""
    arm, data = plan.study.arms.get(record.arm), plan.datasets.get(record.data.digest)
    if arm is None or data is None:
        return None
    trainable = _moved_trainable(record.trainable)
    if trainable != trainable_path(arm):
        return None
    flat = dict(record.config)
    moved = getattr(getattr(settings.functions[record.arm], "settings", None), "MOVED", {})
    while True:
        try:
            config = settings.resolve(record.arm, canonical.Config(nested(flat, moved)), data)
            break
        except SpecError as error:
            # Zero meant the default in settings that refuse it now.
            refused = [k for k, v in flat.items() if k in moved and v == 0 and error.place.endswith(f".{moved[k]}")]
            if not refused:
                raise
            flat = {key: value for key, value in flat.items() if key not in refused}
    trial = Trial(record.study, record.arm, trainable, config, data, record.fold, record.seed)
    return replace(record, trial_id=trial.id, trainable=trainable, config=dict(config))


def nested(flat: Config, moved: Mapping[str, str]) -> MutableConfig:
    """Flat settings where they stand now. A moved setting that is null is left out: null meant the default."""
    config = {key: value for key, value in flat.items() if key not in moved}
    for key, value in flat.items():
        if key in moved and value is not None:
            config = dotted.merge(config, dotted.nest(moved[key], value))
    return config


def _declares(document: StudyDocument, plan: Plan) -> bool:
    """Whether an earlier release's study.json is of the same study, as far as it does not depend on settings' names."""
    study = plan.study
    # A search confirmed on all folds then, and does on those not searched now.
    total = plan.total if plan.declared_search is None else document.trials
    now = (study.type, study.metric, study.mode, set(study.arms), plan.table_folds, total)
    then = (document.type, document.metric, document.mode, set(document.arms), document.folds, document.trials)
    return now == then and {d.digest for d in document.datasets} == {d.digest for d in plan.table_datasets}


def _count(trials: Collection[str]) -> str:
    return f"{len(trials)} {'trial is' if len(trials) == 1 else 'trials are'}"


def _moved_trainable(path: str) -> str:
    """Where a trainable stands now: `MOVED_TRAINABLES` in the module `methods` of its package says so, if any does."""
    try:
        methods = importlib.import_module(f"{path.partition(':')[0].partition('.')[0]}.methods")
    except ImportError:
        return path
    return str(getattr(methods, "MOVED_TRAINABLES", {}).get(path, path))
