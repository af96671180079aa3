"""Delete checkpoints of finished trials. Records, scores, files and unfinished trials of a study are not touched."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from contrasweep.cluster.memory import GIB
from contrasweep.live.overview import study_names
from contrasweep.results.results import Results
from contrasweep.storage import compact
from contrasweep.storage.planned import read_planned
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords

KeptCheckpoints = Literal["best_of_arm", "confirmed", "none"]
"""Of which finished trials the checkpoints stay: the best of each arm, all in the table, or none."""


@dataclass(frozen=True)
class Cleaning:
    """What cleaning a study deletes: `trials` lose their checkpoints, the objects `keys`; `kept` trials keep theirs.

    `lost` are sentences on what nobody can ask of the study afterwards.
    """

    study: str
    kept: int
    trials: tuple[str, ...]
    keys: tuple[str, ...]
    gib: float
    lost: tuple[str, ...]


def plan_cleaning(results: Results, keep: KeptCheckpoints) -> Cleaning:
    """Return what would be deleted of a study, so that finished trials of `keep` alone have a checkpoint.

    Trials that have not finished, that failed, or whose arm is still searched keep theirs: they go on from it.
    """
    records, folder = results.records, f"{results.name}/trials/"
    sizes: dict[str, dict[str, int]] = {}
    for key, size in records.store.sizes(folder).items():
        trial_id, _, rest = key.removeprefix(folder).partition("/")
        if rest.startswith("checkpoint/"):
            sizes.setdefault(trial_id, {})[key] = size
    table = results.trial_records
    stay = set(_best(results) if keep == "best_of_arm" else table if keep == "confirmed" else ())
    finished = {**results.search_records, **results.trial_records}
    searched = {*results.document.arms} - {*results.planned["arm"]} if results.document.search else set()
    over = {i: r for i, r in finished.items() if r.status.trained and r.arm not in searched and i in sizes}
    gone = sorted(over.keys() - stay)
    # A marker goes first: a checkpoint whose marker is there is whole.
    keys = [key for trial in gone for key in sorted(sizes[trial], key=lambda k: not k.endswith("/latest.json"))]
    gib = sum(sum(sizes[trial].values()) for trial in gone) / GIB
    lost = (*_lost(over, gone), *_starting(results, set(gone)))
    return Cleaning(results.name, len(over) - len(gone), tuple(gone), tuple(keys), gib, lost)


def clean(results: Results, cleaning: Cleaning) -> None:
    """Delete what `plan_cleaning` names; an interrupted deletion goes on with the next cleaning."""
    for key in cleaning.keys:
        results.records.store.delete(key)


def _best(results: Results) -> Iterable[str]:
    """The best finished trial of each arm."""
    sign = 1 if results.document.mode == "max" else -1
    for arm in results.document.arms:
        done = [r for r in results.trial_records.values() if r.arm == arm and r.status.counts]
        if done:
            yield max(done, key=lambda r: sign * r.metrics[results.metric]).trial_id


def _starting(results: Results, gone: set[str]) -> Iterable[str]:
    """A sentence for each study of the storage that has trained from networks that go, or has still to train."""
    storage = results.records.storage
    for name in study_names(storage) if gone else ():
        records = StudyRecords(storage, name)
        document = records.document()
        arms = document.spec.get("arms", {}).values() if document else ()
        if not any((arm.get("start") or {}).get("study") == results.name for arm in arms):
            continue
        known = compact.read_records(records, records.etags(), [])
        used = {record.start.trial for record in known.values() if record.start} & gone
        left = len({*read_planned(records)["trial_id"]} - known.keys())
        unfinished = f", and {left} of its trials have not ended" if left else ""
        yield f"start: {name} cannot be trained again: it starts from {len(used)} of these networks{unfinished}"


def _lost(over: Mapping[str, Record], gone: Iterable[str]) -> Iterable[str]:
    gone = set(gone)
    if not gone:
        return
    arms = sorted({record.arm for record in over.values()} - {r.arm for i, r in over.items() if i not in gone})
    yield f"evaluate: {len(gone)} of {len(over)} networks cannot be evaluated any more"
    if arms:
        yield f"load_model, a model in MLflow: no network is left of {', '.join(arms)}"
    yield "resume: nothing changes; what has not finished, and what failed, keeps its checkpoint"
