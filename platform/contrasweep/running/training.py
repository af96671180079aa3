"""Train what of a plan has no record yet, on hosts and placements, until no trial is left or a budget is used up."""

import sys
from contextlib import closing
from pathlib import Path

from cluster.footprint import Footprint
from cluster.inventory import Inventory, read_inventory
from contrasweep.planning import learned
from contrasweep.planning.budget import Budget
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.identity import PresentCode
from contrasweep.planning.learned import Learned
from contrasweep.planning.plan import Plan
from contrasweep.running.active_trials import ActiveTrials
from contrasweep.running.engine import Engine
from contrasweep.running.listener import RunListener
from contrasweep.running.placement import Placements
from contrasweep.running.progress import Progress
from contrasweep.running.session import cluster_hosts, connected
from contrasweep.running.signals import interruptible
from contrasweep.running.study_code import StudyCode
from contrasweep.running.worker import RunContext
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking import Tracker

REPORT_INTERVAL_S = 1.0  # a trial reports to the driver about this often where nobody prunes


def train(
    plan: Plan,
    finished: set[str],
    records: StudyRecords,
    tracker: Tracker,
    code: PresentCode,
    max_concurrent: int | None = None,
    inventory_file: Path | None = None,
) -> str:
    """Train what of the plan is not `finished`; if a budget has ended it, which one, in a line.

    Trials are placed on the hosts of `inventory_file`, or without one on those of the connected Ray. Raises
    KeyboardInterrupt on SIGINT and SIGTERM, and `SpecError` if no trial fits a host.
    """
    source, budget = plan.source(records, finished), Budget(plan.study, records)
    used_up = "" if source.finished else budget.used_up()
    if not source.finished and not used_up:
        peaks = learned.read(records, records.finished())
        with connected() as detected, interruptible():
            inventory = _hosts(plan, peaks, detected, inventory_file)
            budget.check_prices(inventory)
            placements = Placements(Footprints(plan.study, inventory, peaks))
            placements.check(plan.sample_trials)
            slots = max_concurrent or placements.slots(plan.sample_trials)
            with closing(Progress(plan.total, len(plan.own(finished)), slots)) as progress:
                listener = RunListener(progress, tracker, placements, budget)
                kept_code = StudyCode(records, code, listener.on_message)
                trials = ActiveTrials(source, records, placements, listener, budget, kept_code)
                context = _context(plan, records, inventory)
                Engine(context, trials, max_failures=plan.study.max_failures, max_concurrent=max_concurrent).run()
        used_up = budget.used_up()
    for warning in source.warnings():
        print(warning, file=sys.stderr)
    return used_up


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
    return RunContext(records.storage, study.name, study.metric, plan.datasets, plan.functions, interval_s, inventory)
