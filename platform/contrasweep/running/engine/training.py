"""Train the trials of a plan that have no record, until no trial is left or a budget is used up."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from contrasweep.cluster.hosts import Hosts
from contrasweep.cluster.inventory import Inventory, read_inventory
from contrasweep.cluster.packing import Footprint
from contrasweep.code import CurrentCode
from contrasweep.live.displays import LiveFile, Quiet, display_here
from contrasweep.live.state import ArmState, Progress, RunState
from contrasweep.planning import learned
from contrasweep.planning.budget import Budget
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.planner import Plan
from contrasweep.processes import sweep_scratch
from contrasweep.results.rendering import display_names
from contrasweep.running.engine.accounts import Accounts, Overdue
from contrasweep.running.engine.interim_source import InterimSource
from contrasweep.running.engine.loop import StudyCode, TrialLoop, TrialQueue
from contrasweep.running.engine.placement import Placements
from contrasweep.running.engine.session import cluster_hosts, connected
from contrasweep.running.engine.tune_engine import run_trials
from contrasweep.running.prepare import Prepared
from contrasweep.running.run_context import RunContext
from contrasweep.running.signals import interruptible
from contrasweep.storage import compact
from contrasweep.storage.checkpoints import Retention
from contrasweep.storage.lease import Lease
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Source

REPORT_INTERVAL_S = 1.0
"""About how often a trial reports to the driver where no pruner decides on its reports."""


def train(
    plan: Plan,
    prepared: Prepared,
    records: StudyRecords,
    code: CurrentCode,
    lease: Lease,
    max_concurrent: int | None = None,
    inventory_file: Path | None = None,
    quiet: bool = False,
) -> str:
    """Train the trials of a plan that have no record yet; return a line on the budget that ended the run, or "".

    Args:
        plan: The plan of the study.
        prepared: Which of its trials earlier runs have finished.
        records: The study in the storage.
        code: The code of the study.
        lease: The lease of this driver; the run ends where it is lost.
        max_concurrent: Trials at once, at most; None: as many as fit.
        inventory_file: The file of the hosts to place trials on; None: the hosts of the connected Ray.
        quiet: Show only failures and warnings.

    Raises:
        KeyboardInterrupt: On SIGINT and SIGTERM.
        SpecError: A trial of the plan fits no host.
    """
    study = plan.study
    # The finished trials of this plan alone: the storage may have trials of an earlier, larger one.
    plan_ids = plan.trials_among(prepared.finished)
    earlier = list(compact.read_records(records, only=plan_ids).values())
    progress = _progress(plan, records, earlier, quiet, lease)
    source: Source = plan.source(records, prepared.finished)
    if study.replicates is not None:
        source = InterimSource(plan, source, records, progress.say)
    # Ray starts only where something is left to train, and a budget to train it: a finished study is read in seconds.
    is_left = not source.finished
    budget = Budget(study, records)
    used_up = budget.used_up() if is_left else ""
    if is_left and not used_up:
        sweep_scratch()  # temporary folders that killed processes have left on this machine
        peaks = learned.read(records, records.finished())

        def spent() -> str:
            """Return a text on the budgets that are used up while trials are left; else ""."""
            state = progress.state
            if state.total is not None and state.done >= state.total:
                return ""
            return budget.used_up()

        with interruptible(), connected() as detected, progress.shown(spent):

            def unplaced(inventory: Inventory) -> Footprint | None:
                """Return the smallest footprint (memory and cores) of the trials if none fits a host; else None."""
                footprints = Footprints(study, inventory, peaks)
                smallest = footprints.smallest_if_none_fits(plan.example_trials)
                return footprints.of(smallest).footprint if smallest else None

            # The hosts to run on, and what a trial takes on them.
            if inventory_file:
                inventory = read_inventory(inventory_file)
                hosts = Hosts()  # fixed: those of the file, whatever joins the cluster
            else:
                inventory, hosts = cluster_hosts(unplaced, detected, progress.waits)
            footprints = Footprints(study, inventory, peaks)
            footprints.check(plan.example_trials)
            slots = max_concurrent or footprints.most_slots(plan.example_trials)
            # The parts of the loop: the queue and the accounts. A limit of None is no limit.
            placements = Placements(footprints)
            queue = TrialQueue(
                source, placements, hosts, records, progress.say, prepared.infeasible
            )
            hours = study.trial_hours
            minutes = study.report_minutes
            limits = Overdue(trial_s=hours and 3600 * hours, report_s=minutes and 60 * minutes)
            progress.begin(slots)
            loop = TrialLoop(
                queue,
                Accounts(budget, limits, lease),
                records,
                StudyCode(records, code, progress.say),
                progress,
                # As long as no trial has reported the metric, its name may be wrong, which then ends the run.
                unreported="" if progress.state.best else study.metric,
            )
            context = RunContext(
                storage=records.storage,
                study=study.name,
                metric=study.metric,
                datasets=plan.datasets,
                functions=study.functions,
                chunk_s=0.0 if plan.stops_early else REPORT_INTERVAL_S,
                inventory=inventory,
                retention=Retention(study.keep, study.metric, study.mode),
            )
            run_trials(
                context,
                loop,
                max_failures=study.max_failures,
                max_concurrent=max_concurrent,
                own_process=study.process == "own",
            )
            compact.compact_finished(records)
        used_up = spent()
    for warning in source.warnings():
        print(warning, file=sys.stderr)
    return used_up


def _progress(
    plan: Plan, records: StudyRecords, earlier: Sequence[Record], quiet: bool, lease: Lease
) -> Progress:
    """Return the object that shows how a run proceeds: on this terminal, and in live.json for `contrasweep watch`.

    `earlier` are the records of trials that ended in earlier runs. With `quiet` only failures and warnings are printed.
    live.json is written only while `lease` is held.
    """
    study = plan.study
    axes = plan.varied
    ended = {record.trial_id for record in earlier}
    state = RunState(
        study=study.name,
        metric=study.metric,
        mode=study.mode,
        storage=records.storage,
        total=plan.total,
        before=dict(Counter(record.status for record in earlier)),
        slots=0,
        began=time.time(),
        arms={name: ArmState() for name in study.arms},
        labels=dict(display_names(study.labels or {}, [*study.arms, *axes, study.metric]).names),
    )
    displays = [
        Quiet(sys.stderr) if quiet else display_here(),
        LiveFile(records, may_write=lease.is_sure),
    ]
    # trial id -> arm, of the trials to come. Which trials a search will make is not known.
    trials = () if plan.declared_search is not None else plan.trials
    planned = {trial.id: trial.arm for trial in trials if trial.id not in ended}
    return Progress(state, axes, displays, planned, earlier)
