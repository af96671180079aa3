"""Run or resume a study: plan minus records goes through the engine, the rest is there already."""

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from cluster.footprint import Footprint
from cluster.inventory import Inventory, read_inventory
from contrasweep import data
from contrasweep.data.manifest import Manifest
from contrasweep.defaults import STORAGE, TRACKING
from contrasweep.planning import learned
from contrasweep.planning.budget import Budget
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.grid import Plan, make_plan
from contrasweep.planning.sweep import SweepPlan, make_sweep_plan
from contrasweep.results.results import Results
from contrasweep.running.locks import exclusive_driver
from contrasweep.running.progress import Progress
from contrasweep.running.publish import publish
from contrasweep.running.signals import interruptible
from contrasweep.running.source import FixedSource, Source
from contrasweep.running.versions import versions
from contrasweep.storage.planned import read_planned, write_planned
from contrasweep.storage.record import DatasetRef, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import open_store
from contrasweep.storage.study_document import DeclaredSearch, StudyDocument
from contrasweep.study import dotted
from contrasweep.study.file import to_plain
from contrasweep.study.study import Study, Sweep
from contrasweep.tracking import StudyFacts, Tracker, checked_uri, open_tracker

INTERRUPT_FLUSH_TIMEOUT_S = 5.0  # how long an interrupted run may still talk to the tracking store
REPORT_INTERVAL_S = 1.0  # a trial reports to the driver about this often where nobody prunes


def plan(study: Study, *, storage: str = STORAGE) -> Plan | SweepPlan:
    """What `study` would run. Nothing is written to `storage` and no Ray is started."""

    def resolve(name: str) -> Manifest:
        return data.resolve(name, folds=study.folds, storage=storage)

    return make_sweep_plan(study, resolve) if isinstance(study, Sweep) else make_plan(study, resolve)


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
        if isinstance(planned, Plan):
            write_planned(records, planned)
        finished = records.finished()
        if retry_failed:
            finished -= _unmark_failed(records, planned, finished)
        facts = study_facts(planned, storage)
        tracker = open_tracker(tracking, facts, records)
        try:
            placed = planned
            if not _complete(planned, records, finished):
                placed = planned.relocated(
                    lambda name: data.resolve(name, folds=study.folds, storage=storage, write=True)
                )
            stopped = ""
            if isinstance(placed, SweepPlan):
                stopped = _search(placed, records, tracker, max_concurrent, cluster)
            elif missing := [trial for trial in placed.trials if trial.id not in finished]:
                source = FixedSource(missing)
                stopped = _train(
                    placed, source, len(placed.trials) - len(missing), records, tracker, max_concurrent, cluster
                )
        except BaseException:
            tracker.close(timeout_s=INTERRUPT_FLUSH_TIMEOUT_S)  # what is not sent now, `sync` or the next run sends
            raise
        loaded = replace(Results.load(study.name, storage), stopped=stopped)
        if placed is not planned:
            learned.write(records, [*loaded.trial_records.values(), *loaded.search_records.values()])
        return publish(loaded, tracker, tracking, facts, placed.datasets, ran=placed is not planned)


def _complete(plan_: Plan | SweepPlan, records: StudyRecords, finished: set[str]) -> bool:
    """Whether nothing is left to run. A sweep's plan is whole only once its confirmation is known."""
    if isinstance(plan_, Plan):
        return all(trial.id in finished for trial in plan_.trials)
    try:
        return set(read_planned(records)["trial_id"]) <= finished
    except FileNotFoundError:
        return False


def _search(
    plan_: SweepPlan, records: StudyRecords, tracker: Tracker, max_concurrent: int | None, hosts: Path | None
) -> str:
    from contrasweep.running.sweep import SweepSource

    write_planned(records, plan_)  # the table is there, all pending, until an arm's best is known
    source = SweepSource(plan_, records, lambda confirmed: write_planned(records, confirmed))
    stopped = ""
    if not source.finished:
        stopped = _train(plan_, source, len(records.finished()), records, tracker, max_concurrent, hosts)
    for arm in source.unconfirmed:
        print(f"arm {arm}: no finished configuration satisfies the constraints; nothing to confirm", file=sys.stderr)
    return stopped


def _train(
    plan_: Plan | SweepPlan,
    source: Source,
    before: int,
    records: StudyRecords,
    tracker: Tracker,
    max_concurrent: int | None,
    hosts: Path | None,
) -> str:
    """Train what `source` gives; which budget is used up, in a line, if one has ended it."""
    from contrasweep.running.active_trials import ActiveTrials
    from contrasweep.running.engine import Engine
    from contrasweep.running.listener import RunListener
    from contrasweep.running.placement import Placements
    from contrasweep.running.session import cluster_hosts, connected
    from contrasweep.running.worker import RunContext

    study = plan_.study
    budget = Budget(study, records)
    if used_up := budget.used_up():
        return used_up
    trials = (
        [t for arm in study.arms for t in plan_.samples(arm)]
        if isinstance(plan_, SweepPlan)
        else [c.trials[0] for c in plan_.cells]
    )
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
        total = plan_.total if isinstance(plan_, SweepPlan) else len(plan_.trials)
        progress = Progress(total, before, max_concurrent or placements.slots(trials))
        chunk_s = 0.0 if isinstance(study, Sweep) and study.scheduler else REPORT_INTERVAL_S
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
    return budget.used_up()


def describe(plan_: Plan | SweepPlan) -> StudyDocument:
    """study.json of a plan."""
    study = plan_.study
    spec = to_plain(study)
    for name, arm in study.arms.items():
        spec["arms"][name]["trainable"] = (
            arm.trainable if isinstance(arm.trainable, str) else arm.trainable.__qualname__
        )
    datasets = [plan_.data] if isinstance(plan_, SweepPlan) else plan_.datasets.values()
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
        folds=None if isinstance(study, Sweep) and study.confirm_on == "test" else study.folds,
        trials=plan_.total if isinstance(plan_, SweepPlan) else len(plan_.trials),
        search=_declared_search(plan_) if isinstance(plan_, SweepPlan) else None,
        description=study.description,
        datasets=tuple(DatasetRef.of(manifest) for manifest in datasets),
        commands=_command(),
        created=time.time(),
        versions=versions(),
        spec=spec,
    )


def _declared_search(plan_: SweepPlan) -> DeclaredSearch:
    study = plan_.study
    return DeclaredSearch(study.searcher, len(plan_.search_folds), to_plain(study.arm_budget))


def _command() -> tuple[str, ...]:
    """The command that declared the study, for whoever runs it again; none where a program did."""
    ours = Path(sys.argv[0]).name == "contrasweep" or sys.argv[0].endswith("contrasweep/__main__.py")
    return (shlex.join(["contrasweep", *sys.argv[1:]]),) if ours else ()


def study_facts(plan_: Plan | SweepPlan, storage: str) -> StudyFacts:
    """What the tracker shows of a study."""
    study = plan_.study
    if isinstance(plan_, SweepPlan):
        keys = {key: None for arm in plan_.study.arms.values() for key in [*dotted.flatten(arm.config), *arm.space]}
        searched = {key: None for arm in plan_.study.arms.values() for key in arm.space}
        return StudyFacts(
            study.name,
            plan_digest=plan_.digest,
            axes=tuple(searched),
            keys=tuple(keys),
            metric=study.metric,
            mode=study.mode,
            trials=plan_.total,
            storage=storage,
            description=study.description,
            facts={
                "data": plan_.data.name,
                "folds": study.folds,
                "searcher": plan_.study.searcher,
                "confirmed on seeds": plan_.study.confirm_seeds,
            },
        )
    return StudyFacts.of(
        study.name,
        plan_.trials,
        plan_digest=plan_.digest,
        axes=tuple(study.axis_names),
        metric=study.metric,
        mode=study.mode,
        storage=storage,
        description=study.description,
        facts={
            "data": ", ".join(m.name for m in plan_.datasets.values()),
            "folds": study.folds,
            "seeds": plan_.study.seeds,
        },
    )


def _unmark_failed(records: StudyRecords, plan_: Plan | SweepPlan, finished: set[str]) -> set[str]:
    """Take away the records of failed trials, which then resume from their checkpoints."""
    own = finished if isinstance(plan_, SweepPlan) else {t.id for t in plan_.trials} & finished
    failed = {r.trial_id for r in records.read(sorted(own)).values() if r.status == Status.FAILED}
    for trial_id in failed:
        records.reopen(trial_id)
    return failed
