"""Run or resume a study: plan minus records goes through the engine, the rest is there already."""

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from cluster.footprint import Footprint
from cluster.inventory import Inventory, read_inventory
from contrasweep import data
from contrasweep.defaults import STORAGE, TRACKING
from contrasweep.planning import learned
from contrasweep.planning.budget import Budget
from contrasweep.planning.facade import plan
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.plan import Plan
from contrasweep.results.results import Results
from contrasweep.running.locks import exclusive_driver
from contrasweep.running.progress import Progress
from contrasweep.running.publish import publish
from contrasweep.running.signals import interruptible
from contrasweep.running.versions import versions
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import DatasetRef, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import open_store
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.file import to_plain
from contrasweep.study.study import Study
from contrasweep.tracking import TrackedStudy, Tracker, checked_uri, open_tracker
from contrasweep.tuning.source import Source

INTERRUPT_FLUSH_TIMEOUT_S = 5.0  # how long an interrupted run may still talk to the tracking store
REPORT_INTERVAL_S = 1.0  # a trial reports to the driver about this often where nobody prunes


def run(
    study: Study,
    *,
    storage: str = STORAGE,
    tracking: str = TRACKING,
    max_concurrent: int | None = None,
    extend: bool = False,
    retry_failed: bool = False,
    cluster: Path | None = None,
) -> Results:
    """Run what of `study` has no record yet, here or on the Ray cluster in RAY_ADDRESS, and return its results.

    `cluster` is an inventory file of the hosts that the cluster has or can start, with their prices; without it, trials
    are placed on the hosts that Ray lists. A run that a budget has ended says so in `Results.stopped`.

    Interrupted (SIGINT, SIGTERM) it raises KeyboardInterrupt after finished trials are recorded; called
    again it goes on from there. Raises `ContrasweepError` for bad input before anything is written.
    """
    storage = open_store(storage).uri  # whole, because workers have another working directory
    planned = plan(study, storage=storage)
    tracking = checked_uri(tracking)
    records = StudyRecords(storage, study.name)
    records.store.check_writable()
    with exclusive_driver(records):
        records.claim(describe(planned), extend=extend)
        finished = records.finished()
        if retry_failed:
            finished -= _unmark_failed(records, planned, finished)
        tracked = tracked_study(planned, storage)
        tracker = open_tracker(tracking, tracked, records)
        try:
            placed = planned
            if not planned.complete(records, finished):
                placed = planned.relocated(
                    lambda name: data.resolve(name, folds=study.folds, storage=storage, write=True)
                )
            stopped = ""
            frame = planned.to_frame()
            if placed is not planned or len(planned.trials) == len(frame):  # else the frame there knows more
                write_planned(records, frame)
            if placed is not planned:
                stopped = _train(placed, finished, records, tracker, max_concurrent, cluster)
        except BaseException:
            tracker.close(timeout_s=INTERRUPT_FLUSH_TIMEOUT_S)  # what is not sent now, `sync` or the next run sends
            raise
        loaded = replace(Results.load(study.name, storage), stopped=stopped)
        if placed is not planned:
            learned.write(records, [*loaded.trial_records.values(), *loaded.search_records.values()])
        return publish(loaded, tracker, tracking, tracked, placed.datasets, ran=placed is not planned)


def _train(
    plan_: Plan,
    finished: set[str],
    records: StudyRecords,
    tracker: Tracker,
    max_concurrent: int | None,
    hosts: Path | None,
) -> str:
    """Train what of the plan is not `finished`; which budget is used up, in a line, if one has ended it."""
    from contrasweep.running.active_trials import ActiveTrials
    from contrasweep.running.engine import Engine
    from contrasweep.running.listener import RunListener
    from contrasweep.running.placement import Placements
    from contrasweep.running.session import cluster_hosts, connected
    from contrasweep.running.worker import RunContext

    study = plan_.study
    source = plan_.source(records, finished)
    budget = Budget(study, records)
    if source.finished:
        return _warned(source)
    if used_up := budget.used_up():
        return used_up
    trials = plan_.sample_trials
    known = learned.read(records, records.finished())

    def missing(inventory: Inventory) -> Footprint | None:
        needs = Footprints(study, inventory, known)
        smallest = needs.missing(trials)
        return needs.of(smallest).footprint if smallest else None

    with connected() as there, interruptible():
        inventory = read_inventory(hosts) if hosts else cluster_hosts(missing, there)
        budget.check_prices(inventory)
        placements = Placements(Footprints(study, inventory, known))
        placements.check(trials)
        progress = Progress(plan_.total, len(plan_.own(finished)), max_concurrent or placements.slots(trials))
        chunk_s = 0.0 if plan_.stops_early else REPORT_INTERVAL_S
        context = RunContext(
            records.storage, study.name, study.metric, plan_.datasets, plan_.functions, chunk_s, inventory
        )
        listener = RunListener(progress, tracker, placements, budget)
        active = ActiveTrials(source, records, placements, listener, budget)
        engine = Engine(context, active, max_failures=study.max_failures, max_concurrent=max_concurrent)
        try:
            engine.run()
        finally:
            progress.close()
    _warned(source)
    return budget.used_up()


def _warned(source: Source) -> str:
    for line in source.warnings():
        print(line, file=sys.stderr)
    return ""


def describe(plan_: Plan) -> StudyDocument:
    """study.json of a plan."""
    study = plan_.study
    spec = to_plain(study)
    for name, arm in study.arms.items():
        spec["arms"][name]["trainable"] = (
            arm.trainable if isinstance(arm.trainable, str) else arm.trainable.__qualname__
        )
    return StudyDocument(
        name=study.name,
        metric=study.metric,
        mode=study.mode,
        type=study.type,
        plan_digest=plan_.digest,
        arms=tuple(study.arms),
        axes=tuple(study.axis_names),
        alpha=study.alpha,
        reference=study.reference,
        folds=plan_.table_folds,
        trials=plan_.total,
        search=plan_.declared_search,
        description=study.description,
        datasets=tuple(DatasetRef.of(manifest) for manifest in plan_.table_datasets),
        commands=_command(),
        created=time.time(),
        versions=versions(),
        spec=spec,
    )


def _command() -> tuple[str, ...]:
    """The command that declared the study, for whoever runs it again; none where a program did."""
    ours = Path(sys.argv[0]).name == "contrasweep" or sys.argv[0].endswith("contrasweep/__main__.py")
    return (shlex.join(["contrasweep", *sys.argv[1:]]),) if ours else ()


def tracked_study(plan_: Plan, storage: str) -> TrackedStudy:
    """What the tracker shows of a study."""
    study = plan_.study
    return TrackedStudy(
        study.name,
        plan_digest=plan_.digest,
        axes=tuple(plan_.varied),
        keys=tuple(plan_.keys),
        metric=study.metric,
        mode=study.mode,
        trials=plan_.total,
        storage=storage,
        description=study.description,
        extra=plan_.summary(),
    )


def _unmark_failed(records: StudyRecords, plan_: Plan, finished: set[str]) -> set[str]:
    """Take away the records of failed trials, which then resume from their checkpoints."""
    own = plan_.own(finished)
    failed = {r.trial_id for r in records.read(sorted(own)).values() if r.status == Status.FAILED}
    for trial_id in failed:
        records.reopen(trial_id)
    return failed
