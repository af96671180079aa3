"""Train what of a plan has no record yet, on hosts and placements, until no trial is left or a budget is used up."""

import sys
from pathlib import Path

from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.growth import FixedHosts
from contrasweep.cluster.inventory import Inventory, read_inventory
from contrasweep.code import CurrentCode
from contrasweep.planning import learned
from contrasweep.planning.budget import Budget
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.lanes import open_lanes
from contrasweep.planning.learned import Learned
from contrasweep.planning.plan import Plan
from contrasweep.processes import sweep_scratch
from contrasweep.running.engine.active_trials import ActiveTrials
from contrasweep.running.engine.compacting import compacting
from contrasweep.running.engine.deferred import DeferredTrials
from contrasweep.running.engine.interim_source import InterimSource
from contrasweep.running.engine.listener import RunListener
from contrasweep.running.engine.loop import Engine
from contrasweep.running.engine.overdue import Overdue
from contrasweep.running.engine.placement import Placements
from contrasweep.running.engine.session import cluster_hosts, connected, growing_hosts
from contrasweep.running.engine.showing import showing
from contrasweep.running.prepare import Remaining
from contrasweep.running.run_context import RunContext
from contrasweep.running.signals import interruptible
from contrasweep.running.study_code import StudyCode
from contrasweep.storage.lease import Lease
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.study.study import Study
from contrasweep.tuning.source import Source

REPORT_INTERVAL_S = 1.0  # a trial reports to the driver about this often where nobody prunes


def train(
    plan: Plan,
    remaining: Remaining,
    records: StudyRecords,
    code: CurrentCode,
    lease: Lease,
    max_concurrent: int | None = None,
    inventory_file: Path | None = None,
) -> str:
    """Train what of the plan is `remaining`; if a budget has ended it, which one, in a line.

    Trials are placed on the hosts of `inventory_file`, or without one on those of the connected Ray. Raises
    KeyboardInterrupt on SIGINT and SIGTERM, and `SpecError` if no trial fits a host.
    """
    finished = remaining.finished
    source, budget = plan.source(records, finished), Budget(plan.study, records)
    if plan.study.replicates is not None:
        source = InterimSource(plan, source, records, lambda line: print(line, file=sys.stderr))
    used_up = "" if source.finished else budget.used_up()
    if not source.finished and not used_up:
        sweep_scratch()
        peaks = learned.read(records, records.finished())
        with interruptible(), connected() as detected:
            inventory = _hosts(plan, peaks, detected, inventory_file)
            hosts = FixedHosts() if inventory_file else growing_hosts(inventory)
            budget.check_prices(inventory)
            footprints = Footprints(plan.study, inventory, peaks)
            placements = Placements(footprints, open_lanes(plan, footprints, finished, records))
            placements.check(plan.sample_trials)
            slots = max_concurrent or placements.slots(plan.sample_trials)
            with showing(plan, records, finished, slots) as progress, compacting(records) as compactor:
                listener = RunListener(progress, placements, budget, compactor)
                if isinstance(source, InterimSource):
                    source.say = listener.on_message
                kept_code = StudyCode(records, code, listener.on_message)
                deferred = DeferredTrials(placements, hosts, listener.on_message)
                trials = ActiveTrials(
                    source,
                    records,
                    placements,
                    listener,
                    budget,
                    kept_code,
                    _limits(plan.study),
                    deferred,
                    remaining.refused,
                    _touched(source, records),
                    "" if any(arm.scored for arm in progress.state.arms.values()) else plan.study.metric,
                )
                lease.on_lost = trials.stop
                context = _context(plan, records, inventory)
                Engine(
                    context,
                    trials,
                    max_failures=plan.study.max_failures,
                    max_concurrent=max_concurrent,
                    own_process=plan.study.process == "own",
                ).run()
        used_up = budget.used_up()
    for warning in source.warnings():
        print(warning, file=sys.stderr)
    return used_up


def _touched(source: Source, records: StudyRecords) -> set[str] | None:
    """The trials of which something is in an object store: one listing spares each other trial three requests. None
    where asking costs nothing, and for searches, which copy checkpoints into trials that are to begin."""
    if source.adaptive or isinstance(records.store, LocalStore):
        return None
    return records.with_files()


def _limits(study: Study) -> Overdue:
    """The study's limits of time, in seconds."""
    hours, minutes = study.trial_hours, study.report_minutes
    return Overdue(None if hours is None else 3600 * hours, None if minutes is None else 60 * minutes)


def _hosts(plan: Plan, peaks: Learned, detected: Inventory, inventory_file: Path | None) -> Inventory:
    """The hosts of the inventory file, or else those of the cluster; one that no trial fits yet is waited for."""
    if inventory_file:
        return read_inventory(inventory_file)

    def unplaced(inventory: Inventory) -> Footprint | None:
        footprints = Footprints(plan.study, inventory, peaks)
        smallest = footprints.missing(plan.sample_trials)
        return footprints.of(smallest).footprint if smallest else None

    return cluster_hosts(unplaced, detected)


def _context(plan: Plan, records: StudyRecords, inventory: Inventory) -> RunContext:
    interval_s = 0.0 if plan.stops_early else REPORT_INTERVAL_S
    study = plan.study
    return RunContext(records.storage, study.name, study.metric, plan.datasets, study.functions, interval_s, inventory)
