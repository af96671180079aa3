"""The cost of a plan and the questions it can answer, before anything is spent."""

import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from contrasweep.cluster.inventory import Inventory, read_inventory, this_machine
from contrasweep.cluster.memory import UTILISATION
from contrasweep.cluster.packing import Footprint, PackingRow, Placement, place
from contrasweep.cluster.simulate import Makespan
from contrasweep.data.folds import class_notes
from contrasweep.errors import plural
from contrasweep.planning.budget import Budget
from contrasweep.planning.durations import Durations, duration
from contrasweep.planning.footprints import DEFAULT, Footprints, Requirement
from contrasweep.planning.learned import learned_of
from contrasweep.planning.plan import Plan, PlanRow
from contrasweep.planning.planner import MissingDataset, missing_lines
from contrasweep.planning.power import (
    EarlierNoise,
    PlannedSize,
    known_noise,
    noise_in,
    other_question,
    planned_sizes,
    power_lines,
    power_warnings,
    study_power,
)
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import hours_text
from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Sweep
from contrasweep.study.trainables import unchecked_settings
from contrasweep.text_table import text_table
from contrasweep.trial import Trial

if TYPE_CHECKING:
    from contrasweep.statistics.power_of_designs import PlannedPower

MAX_ROWS = 40
"""Rows of the table for people; the others are counted below it."""
MAX_NOTES = 5
"""Notes on trials that fit nowhere or are not known, likewise."""
COUNTED = (
    f"by the counted work of training steps at {UTILISATION:g} of the GPUs' peak of operations, which trials on a GPU "
    "share, without evaluation and start-up; measured as soon as a trial has finished"
)


@dataclass(frozen=True)
class Capacity:
    """How many trials of one kind the hosts can run.

    `placements` are the ways to place one, the first choice first. Where there is none, `why_not` says why. `slots`
    are how many such trials run at once if no others do, 0 where none fits.
    """

    requirement: Requirement
    placements: tuple[Placement, ...]
    slots: int
    why_not: str = ""

    @property
    def footprint(self) -> Footprint:
        """Return the footprint of one trial on the type of GPU where it is placed first; else the one for any host."""
        first = self.first
        footprint = self.requirement.footprint
        return footprint.on(first.gpu) if first and first.gpu else footprint

    @property
    def first(self) -> Placement | None:
        """The place that is tried first; None where a trial fits no host."""
        return self.placements[0] if self.placements else None

    def to_dict(self) -> dict[str, object]:
        """Return the facts for programs: memory in GiB, shares as text, None where there is no GPU or no place."""
        # Shares and GPUs are those of the place that is tried first.
        on = self.footprint
        gpu = self.first if self.first and self.first.gpu else None
        return {
            "memory_gib": round(on.gpu_memory_gib, 3) if on.wants_gpu else None,
            "memory_source": self.requirement.source,
            "host_memory_gib": on.host_memory_gib,
            "cpus": on.cpus,
            "gpu": gpu and gpu.gpu,
            "share": gpu and str(gpu.share),
            "per_gpu": gpu and gpu.per_gpu,
            "types": [{"gpu": p.gpu, "share": str(p.share)} for p in self.placements if p.gpu],
            "slots": self.slots,
            "infeasible": self.why_not or None,
        }


def capacity_of(trials: Iterable[Trial], footprints: Footprints) -> Capacity:
    """Return the capacity of the most demanding of `trials`: one that fits no host, else that with the most memory.

    There must be a trial; `ValueError` else.
    """

    def of(trial: Trial) -> Capacity:
        """Return the capacity for trials such as this one."""
        placements = tuple(footprints.options(trial))
        why_not = "" if placements else footprints.why_not(trial)
        return Capacity(
            footprints.of(trial), placements, sum(map(footprints.slots, placements)), why_not
        )

    def demand(capacity: Capacity) -> tuple[bool, float, float]:
        """Return what capacities are ranked by: whether there is no place, GPU memory, host memory."""
        footprint = capacity.requirement.footprint
        return not capacity.placements, footprint.gpu_memory_gib, footprint.host_memory_gib

    return max(map(of, trials), key=demand)


@dataclass(frozen=True)
class ForecastRow:
    """A row of the plan, how its trials fit the hosts, and the expected `seconds` of one trial (None: not known).

    With `counted` the seconds come from the counted work of training steps, because no trial of the arm has finished.
    """

    planned: PlanRow
    capacity: Capacity
    seconds: float | None
    counted: bool

    @property
    def footprint(self) -> Footprint:
        """Return the footprint of one trial, with its margin on every type of GPU."""
        return self.capacity.requirement.footprint


@dataclass(frozen=True)
class Forecast:
    """The plan of a study beside the `records` there are, and what the rest will take on the hosts of `inventory`.

    `packing` says how many of the trials to run go where (`cluster.packing.Packing.summary`). `makespan` says how long
    that takes if nothing is stopped early; it is None where the seconds of a trial are not known, or where the budget
    counts no trials. The cells of `missing` datasets are not in the plan.

    `durations` are of the finished trials, `noise` is what earlier trials say of the metric's (None: nothing), and
    `power` what the study can decide (None: not computed, or nothing to compare).
    """

    plan: Plan
    records: Mapping[str, Record]
    rows: tuple[ForecastRow, ...]
    inventory: Inventory
    packing: tuple[PackingRow, ...]
    makespan: Makespan | None
    budget: Budget
    warnings: tuple[str, ...]
    durations: Durations
    missing: tuple[MissingDataset, ...] = ()
    noise: EarlierNoise | None = None
    power: "PlannedPower | None" = None
    kept: str = ""  # the line on checkpoints that stay

    @property
    def hours(self) -> float | None:
        """Wall hours to go on the hosts planned for; None where it is not known."""
        return self.makespan.hours if self.makespan else None

    @property
    def counted(self) -> bool:
        """Whether the hours rest on counted work, because no trial of some kind has finished yet."""
        return self.makespan is not None and any(row.counted for row in self.rows)

    @property
    def slots(self) -> int:
        """Return how many trials run at once of the row with the fewest slots, of rows that fit a host; at least 1."""
        return max(
            1, min((row.capacity.slots for row in self.rows if row.capacity.placements), default=1)
        )

    def hours_of(self, trials: Mapping[str, int]) -> float | None:
        """Return the simulated wall hours of so many trials of each arm, spread over its cells.

        `trials` is arm -> number. None where the seconds of a trial are not known, or an arm is not in the plan.
        """
        rows = defaultdict[str, list[ForecastRow]](list)
        for row in self.rows:
            rows[row.planned.arm].append(row)
        if not trials.keys() <= rows.keys():
            return None
        # An arm's cells take turns until it has its number of trials.
        drawn = [row for arm, count in trials.items() for row in islice(cycle(rows[arm]), count)]
        makespan = self.durations.makespan(
            [row.footprint for row in drawn], [row.seconds for row in drawn]
        )
        return makespan.hours if makespan else None

    def power_lines(self) -> list[str]:
        """Return lines on what the study decides as declared, with more replicates, and by its other question.

        `  x2      20 seeds (40 trials more, 3.1 h): 0.9 spreads`. The time is left out where it is not known.
        """
        lines = power_lines(self.power)
        for size in self.sizes[1:]:
            # `size.trials` are all trials of the larger study, of which the declared ones are 1 / times.
            further = (size.trials or 0) * (size.times - 1) // size.times
            extra_trials = "" if size.trials is None else f"{plural(further, 'trial')} more"
            added = Counter[str]()
            for row in self.rows:
                added[row.planned.arm] += (size.times - 1) * len(row.planned.trials)
            hours = self.hours_of(added) if size.trials is not None else None
            time = "" if hours is None else f", {duration(3600 * hours)}"
            price = f" ({extra_trials}{time})" if extra_trials else ""
            lines.append(f"  x{size.times}      {plural(size.seeds, 'seed')}{price}: {size.text}")
        return lines + (
            other_question(self.plan.study, self.power, self.noise) if self.power else []
        )

    @property
    def sizes(self) -> list[PlannedSize]:
        """Return what a grid of fixed replicates can decide, as declared and with two and four times its replicates.

        [] for other studies, without SciPy, and where nothing can be decided at any of these sizes.
        """
        study = self.plan.study
        # A study that grows says its own sizes, and a sweep confirms one configuration an arm.
        if (
            study.replicates is not None
            or not isinstance(study, AblationGrid)
            or self.power is None
        ):
            return []
        sizes = planned_sizes(self.power, self.plan.total, self.noise)
        return sizes if any(math.isfinite(size.detectable) for size in sizes) else []

    def to_dict(self) -> dict[str, object]:
        """Return what `to_text` shows, for programs."""
        return {
            "study": self.plan.study.name,
            **self.plan.totals(self.records),
            "hours": self.hours,
            "hours_are_counted": self.counted,
            "slots": self.slots,
            "plan_digest": self.plan.digest,
            "packing": list(self.packing),
            "makespan": vars(self.makespan) if self.makespan else None,
            "budget": self.budget.to_dict(),
            "warnings": list(self.warnings),
            "sizes": [vars(size) for size in self.sizes],
            "missing": [vars(dataset) for dataset in self.missing],
            "table": [
                {**row.planned.facts, "seconds": row.seconds, **row.capacity.to_dict()}
                for row in self.rows
            ],
        }

    def to_text(self, width: int | None = None) -> str:
        """Return a table of the plan's rows, then the sums and the warnings, folded to `width` columns.

        Without a width lines are as long as they get.
        """
        lines = [
            *_table(self.rows, self.inventory, width),
            "",
            *self.plan.lines(self.records),
            *missing_lines(self.missing),
            *(
                f"packing   {plural(row['trials'], 'trial')} on {row['share']} {row['gpu']}, {row['slots']} at once"
                for row in self.packing
                if row["gpu"] != "none"
            ),
            *self._time_lines(),
            *([self.kept] if self.kept else []),
            *_notes(self.rows, self.inventory),
        ]
        sentences = [*self.power_lines(), *(f"warning   {line}" for line in self.warnings)]
        if width is not None:  # a sentence is folded below its beginning
            sentences = [
                textwrap.fill(
                    line,
                    width,
                    subsequent_indent=" " * 10,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                for line in sentences
            ]
        return "\n".join([*lines, *sentences])

    def _time_lines(self) -> list[str]:
        """Return lines on wall time, GPU-hours and cost of the trials to run; if unknown, one that says why."""
        makespan = self.makespan
        inventory = self.inventory
        # `4 slots on 2 GPUs`
        hosts = plural(self.slots, "slot") + (
            f" on {plural(inventory.gpus, 'GPU')}" if inventory.gpus else ""
        )
        if makespan is None:
            why = " until a trial has finished"
            if self.plan.total is None:
                why = ", as how many trials the budget pays for"
            return [f"time      unknown{why}; {hosts}"]
        least = "about " if self.counted else ""
        lines = [f"time      {least}{duration(3600 * makespan.hours)}, simulated; {hosts}"]
        if self.counted:
            lines.append(f"          {COUNTED}")
        if inventory.gpus:
            lines.append(
                f"GPU-hours {hours_text(makespan.gpu_hours)}; {makespan.utilisation:.0%} of the GPUs' time is given out"
            )
        if inventory.cost_per_hour:
            lines.append(
                f"cost      {makespan.cost:,.4g} for all hosts as long as it runs, {makespan.trials_cost:,.4g} for the "
                "trials' parts of them, in the inventory's currency"
            )
        return lines


def forecast(
    plan: Plan,
    storage: str,
    cluster: Path | None = None,
    missing: tuple[MissingDataset, ...] = (),
    noise_file: Path | None = None,
) -> Forecast:
    """Return what the rest of `plan` will take, from the trials in the storage that have ended. Nothing is written.

    `cluster` is an inventory file; without one, this machine is planned for. `missing` are the datasets whose cells
    the plan leaves out. `noise_file` is what `contrasweep noise --json` wrote, in place of what earlier trials say.
    """
    study = plan.study
    records = StudyRecords(storage, plan.study.name)
    # What there is: hosts, ended trials, and what these say of memory and time.
    inventory = read_inventory(cluster) if cluster else this_machine()
    ended = records.read(sorted(plan.belonging(records.finished())))
    footprints = Footprints(study, inventory, learned_of(records, ended.values()))
    durations = Durations(ended.values(), inventory)
    rows = tuple(
        ForecastRow(
            row, capacity_of(row.samples, footprints), *_seconds(row, durations, footprints)
        )
        for row in plan.rows(ended)
    )
    packing: list[PackingRow] = []
    makespan = None
    # How many trials a budget of epochs or hours pays for is not known, so it has no makespan.
    if (left := plan.left(ended)) is not None:
        to_run = [rows[number] for number in left]
        needs = [row.footprint for row in to_run]
        seconds = [row.seconds for row in to_run]
        # A trial whose seconds are not known counts as one second, since packing needs some number.
        packing = place(needs, inventory, seconds=[s or 1.0 for s in seconds]).summary()
        makespan = durations.makespan(needs, seconds)
    budget = Budget(study, records, ended.values())
    noise = noise_in(noise_file, study) if noise_file else known_noise(plan, records, ended)
    power = study_power(study, noise=noise)
    warnings = (
        *durations.warnings(),
        *budget.warnings(makespan),
        *power_warnings(study, power),
        *group_warnings(plan),
        *(note for data in plan.datasets.values() for note in class_notes(data)),
        *unchecked_settings(study),
    )
    return Forecast(
        plan,
        ended,
        rows,
        inventory,
        tuple(packing),
        makespan,
        budget,
        warnings,
        durations,
        missing,
        noise,
        power,
        checkpoints_line(plan, footprints),
    )


def checkpoints_line(plan: Plan, footprints: Footprints) -> str:
    """Return the line on how many GiB of checkpoints the whole study keeps; "" where a size cannot be counted.

    Where it is not known how many trials the budget pays for, it says the size of one.
    """
    study = plan.study
    # The largest cell of an arm stands for the arm: which of them is kept is not known yet.
    each = defaultdict[str, float](float)
    for trial in plan.sample_trials:
        each[trial.arm] = max(each[trial.arm], footprints.checkpoint_gib(trial) or 0.0)
    sizes = each.values()
    if not each or not all(sizes):
        return ""
    keep = study.keep_checkpoints_of
    trials = plan.total
    if keep == "none":
        trials = 0
    elif keep == "best_of_arm":
        trials = len(study.arms)
    elif keep == "confirmed" and isinstance(study, Sweep):
        trials = len(study.arms) * len(study.confirm_folds) * len(study.all_seeds)
    if study.keep == "none":
        return "keeps     0 GiB: no checkpoints (keep: none)"
    # The mean over arms, since each arm has as many trials. With `keep: all` a trial keeps several checkpoints.
    gib = sum(sizes) / len(sizes)
    least = "at least " if study.keep == "all" else ""
    if trials is None:
        return (
            f"keeps     {least}{_bytes(gib)} a trial: its checkpoint (keep_checkpoints_of: {keep})"
        )
    checkpoints = f"checkpoints of {plural(trials, 'trial')} (keep_checkpoints_of: {keep})"
    return f"keeps     {least}{_bytes(gib * trials)}: {checkpoints}"


def _bytes(gib: float) -> str:
    """Return a size as text: `1.5 GiB`; under a tenth of a GiB in MiB."""
    return f"{gib:.3g} GiB" if gib >= 0.1 else f"{1024 * gib:.2g} MiB"


def group_warnings(plan: Plan) -> list[str]:
    """Return a warning for each dataset on whose one test split seeds decide and whose test rows come in groups.

    Seeds tell nothing about other groups. [] for a study with folds.
    """
    if plan.table_folds is not None:
        return []
    # Dataset -> groups among its test rows; 0 where rows have none.
    counted = {
        data.name: data.counts.get("test", {}).get("groups", 0) for data in plan.table_datasets
    }
    return [
        f"{name}: verdicts hold for the {groups} groups of the test split; for others like them hold each out whole "
        "(stage all groups as training rows with a fold each, and set folds)"
        for name, groups in counted.items()
        if groups > 1
    ]


def _seconds(
    row: PlanRow, durations: Durations, footprints: Footprints
) -> tuple[float | None, bool]:
    """Return the seconds of one trial of a row (None: not known), and whether they come from counted work.

    They are those that finished trials took, else those that the row's longest sample is reckoned to take; one sample
    that cannot be reckoned makes them unknown.
    """
    if (seconds := durations.of(row.arm, row.trials)) is not None:
        return seconds, False
    estimates = [footprints.seconds(trial) for trial in row.samples]
    counted = [seconds for seconds in estimates if seconds is not None]
    complete = bool(counted) and len(counted) == len(estimates)
    return (max(counted), True) if complete else (None, False)


def _table(rows: Sequence[ForecastRow], inventory: Inventory, width: int | None) -> list[str]:
    """Return a header and a line a row, the first ones of many: what is planned, what it requires, what it searches.

    The middle columns are of GPUs where one is wanted or there, else of hosts. `width`: columns to fold to, if any.
    """
    listed = rows[:MAX_ROWS]
    if any(row.footprint.wants_gpu for row in listed) or inventory.gpus:
        middle = [
            ["memory GiB", "share", "GPU", "per GPU"],
            *(_on_gpu(row.capacity) for row in listed),
        ]
    else:
        middle = [["host GiB", "cores", "at once"], *(_on_host(row.capacity) for row in listed)]
    # A column is a pair of head and text: the first row takes the heads (pair[0]), all others the texts (pair[1]).
    cells = [
        [
            *(pair[i > 0] for pair in row.planned.columns),
            *columns,
            *(pair[i > 0] for pair in row.planned.last),
        ]
        for i, (row, columns) in enumerate(zip([listed[0], *listed], middle, strict=True))
    ]
    tail = [f"... and {plural(len(rows) - MAX_ROWS, 'more cell')}"] if len(rows) > MAX_ROWS else []
    return [*text_table(cells, width=width), *tail]


def _on_gpu(capacity: Capacity) -> list[str]:
    """Return the columns of a row on a GPU: memory in GiB and its source, share, types, and how many one GPU holds.

    `-` where there is no GPU to say it of; a row that fits no host has `fits none`.
    """
    first = capacity.first
    on = capacity.footprint
    memory = f"{on.gpu_memory_gib:.1f} {capacity.requirement.source}"
    # 0 GiB: nothing is known of it, or the trial wants no GPU.
    if not round(on.gpu_memory_gib, 3):
        memory = "unknown" if on.wants_gpu else "-"
    if first is None or first.gpu is None:
        return [memory, "-", "none" if first else "fits none", "-"]
    types = [place.gpu for place in capacity.placements if place.gpu]
    return [
        memory,
        str(first.share),
        " or ".join(filter(None, [types[0], ", ".join(types[1:])])),
        str(first.per_gpu or "-"),
    ]


def _on_host(capacity: Capacity) -> list[str]:
    """Return the columns of a row on hosts without GPUs: memory in GiB and its source, cores, number at once."""
    footprint = capacity.requirement.footprint
    memory = f"{footprint.host_memory_gib:.1f} {capacity.requirement.source}"
    return [memory, f"{footprint.cpus:g}", "fits none" if capacity.why_not else str(capacity.slots)]


def _notes(rows: Iterable[ForecastRow], inventory: Inventory) -> list[str]:
    """Return lines on which trials fit nowhere, and of which the memory is not known, and why.

    A line that holds for several rows stands once, with their number; the first `MAX_NOTES` are given.
    """
    counts = Counter[str]()
    for row in rows:
        capacity = row.capacity
        why = capacity.requirement.why
        if not why and capacity.requirement.source == DEFAULT and inventory.gpus:
            why = (
                "nothing is known (its trainable has no `memory`, the arm no `resources`): a whole GPU until one was "
                "measured"
            )
        # What fits nowhere is said alone: why its memory is not known matters no more.
        if capacity.why_not:
            counts[f"infeasible  arm {row.planned.arm}: {capacity.why_not}"] += 1
        elif why:
            counts[f"memory    arm {row.planned.arm}: {why}"] += 1
    lines = [text + (f" ({n} cells)" if n > 1 else "") for text, n in counts.items()]
    tail = [f"... and {len(lines) - MAX_NOTES} more of this kind"] if len(lines) > MAX_NOTES else []
    return [*lines[:MAX_NOTES], *tail]
