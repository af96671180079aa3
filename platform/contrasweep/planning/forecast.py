"""The cost of a plan and the questions it can answer, before anything is spent."""

import statistics as stats
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from contrasweep.cluster.inventory import Inventory, read_inventory, this_machine
from contrasweep.cluster.memory import UTILISATION
from contrasweep.cluster.packing import Footprint, PackingRow, Placement, place, summary
from contrasweep.cluster.simulate import Makespan, simulate
from contrasweep.data.folds import class_notes
from contrasweep.errors import duration, plural
from contrasweep.imports import install_command, is_installed
from contrasweep.planning.budget import Budget
from contrasweep.planning.footprints import DEFAULT, Footprints, Requirement, cell_of
from contrasweep.planning.learned import CPU, cell_key, learned_of, trials_elsewhere
from contrasweep.planning.plan import PlanRow
from contrasweep.planning.planner import MissingDataset, Plan, missing_lines
from contrasweep.planning.power import (
    PlannedSize,
    known_noise,
    looks_before,
    noise_in,
    planned_sizes,
    power_warnings,
    study_power,
)
from contrasweep.storage.record import Record, RecordsById
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import hours_text
from contrasweep.study.trainables import unchecked_settings
from contrasweep.text_table import text_table
from contrasweep.trial import Trial

if TYPE_CHECKING:
    from contrasweep.statistics.power_of_designs import PlannedPower

MAX_ROWS = 40
"""The most rows in the table for people; the others are counted below it."""
MAX_NOTES = 5
"""The most notes on trials that fit no host or whose memory is not known; the others are counted below them."""
COUNTED = (
    f"by the counted work of training steps at {UTILISATION:g} of the GPUs' peak of operations, which trials on a GPU "
    "share, without evaluation and start-up; measured as soon as a trial has finished"
)
"""How the hours are known where no trial has finished, as a line below them."""


class Durations:
    """How many seconds a trial of a study trains, computed from trials that were trained to their end.

    `known` are the study's own records. `equal` are trials of the same cells in other studies, as (cell key, record),
    and `studies` has the names of these studies. Seconds are converted to a GPU whose `speed` is 1 in the inventory;
    those on a CPU stay as measured.
    """

    def __init__(
        self, known: Iterable[Record], inventory: Inventory, equal: Sequence[tuple[str, Record]]
    ) -> None:
        self.inventory = inventory
        self.done = {record.trial_id: record for record in known if record.status.counts}
        self.speeds = {gpu.type: gpu.speed for gpu in inventory.gpu_types}
        # arm, or cell key of other studies' trials -> seconds of each trial
        seconds_of = defaultdict[str, list[float]](list)
        for key, record in [*((record.arm, record) for record in self.done.values()), *equal]:
            seconds_of[key].append(self._seconds(record))
        self.usual = {key: stats.median(seconds) for key, seconds in seconds_of.items()}
        others = [record for _, record in equal]
        self.studies = sorted({record.study for record in others})
        # These say how long a trial takes beside its training.
        self.measured = [*self.done.values()] or others

    def of(self, row: PlanRow) -> float | None:
        """Return the expected seconds of one trial of `row`; None where no trial of the study or of `equal` has ended.

        It is the median over the row's finished trials. Where none has finished, it is the median over equal trials of
        other studies; else over the finished trials of the row's arm; else the median of the medians of all arms and
        equal cells.
        """
        done = [self.done[trial.id] for trial in row.trials if trial.id in self.done]
        if done:
            return stats.median(map(self._seconds, done))
        cell_keys = [cell_key(*cell_of(trial)) for trial in row.examples]
        for key in [*cell_keys, row.arm]:
            if key in self.usual:
                return self.usual[key]
        return stats.median(self.usual.values()) if self.usual else None

    def makespan(
        self, footprints: Sequence[Footprint], seconds: Sequence[float | None]
    ) -> Makespan | None:
        """Simulate how long trials with these footprints and training seconds take, run in this order.

        None where the seconds of a trial are not known. The time that a trial takes beside its training (start,
        staging, saving) is the median over finished trials.
        """
        known = [trained_s for trained_s in seconds if trained_s is not None]
        if len(known) < len(seconds):
            return None
        # A trial that was interrupted has waited too, so it does not count.
        overheads_s = [
            record.ended - record.started - record.seconds
            for record in self.measured
            if record.attempts == 1
        ]
        start_s = max(0.0, stats.median(overheads_s)) if overheads_s else 0.0
        return simulate(footprints, known, self.inventory, start_s=start_s)

    def warnings(self) -> list[str]:
        """Return one warning where finished trials ran on types of GPU that the inventory does not have; else []."""
        # On hosts without a GPU all trials have one type, `CPU`.
        types = {(record.notes.gpu_type or CPU) for record in self.done.values()}
        planned_types = {*self.speeds} or {CPU}
        others = ", ".join(sorted(types - planned_types))
        if not others:
            return []
        return [
            f"time is what trials took on {others}; these hosts have {', '.join(sorted(planned_types))}"
        ]

    def _seconds(self, record: Record) -> float:
        """Return a record's training seconds at speed 1, or as measured where the inventory lacks its type of GPU."""
        return record.seconds * self.speeds.get((record.notes.gpu_type or CPU), 1.0)


@dataclass(frozen=True)
class ForecastRow:
    """A row of a forecast: what the most demanding trial of a row of the plan needs, and how long a trial takes."""

    planned: PlanRow
    requirement: Requirement
    placements: tuple[Placement, ...]  # ways to place one trial, the first choice first
    slots: int  # how many of them run at once, if no others do; 0 where none fits
    why_not: str  # why a trial fits no host; "" where it fits one
    seconds: float | None  # of one trial; None: not known
    counted: bool  # the seconds come from the counted work of steps, because no trial of the study has finished

    @property
    def footprint(self) -> Footprint:
        """Return the footprint of the row's most demanding trial: what it needs on each type of GPU, with margins."""
        return self.requirement.footprint

    @property
    def first(self) -> Placement | None:
        """The place that is tried first; None where a trial fits no host."""
        return self.placements[0] if self.placements else None

    @property
    def first_footprint(self) -> Footprint:
        """Return the footprint of a trial on the type of GPU of its first placement; without one, that for any host."""
        first = self.first
        return self.footprint.on(first.gpu) if first and first.gpu else self.footprint

    def to_dict(self) -> dict[str, object]:
        """Return the row by names of its parts, for JSON.

        Memory is in GiB, and a share of a GPU is a text such as `1/4`. A part is None where the trial takes no GPU, or
        fits no host.
        """
        footprint = self.first_footprint
        # Share and GPU are those of the placement that is tried first.
        on_gpu = self.first if self.first and self.first.gpu else None
        return {
            **self.planned.facts,
            "seconds": self.seconds,
            "memory_gib": round(footprint.gpu_memory_gib, 3) if footprint.wants_gpu else None,
            "memory_source": self.requirement.source,
            "host_memory_gib": footprint.host_memory_gib,
            "cpus": footprint.cpus,
            "gpu": on_gpu.gpu if on_gpu else None,
            "share": str(on_gpu.share) if on_gpu else None,
            "per_gpu": on_gpu.per_gpu if on_gpu else None,
            "types": [
                {"gpu": option.gpu, "share": str(option.share)}
                for option in self.placements
                if option.gpu
            ],
            "slots": self.slots,
            "infeasible": self.why_not or None,
        }


@dataclass(frozen=True)
class Forecast:
    """The plan of a study, and what the trials that have not ended will take on the hosts of `inventory`.

    `makespan` says how long these trials take if none is stopped early. It is None where the seconds of a trial are not
    known, or where the budget counts no trials.
    """

    plan: Plan
    records: RecordsById  # of the trials that have ended, by trial id
    rows: tuple[ForecastRow, ...]
    inventory: Inventory
    packing: tuple[PackingRow, ...]  # how many of the trials to run go where
    makespan: Makespan | None
    budget: Budget
    warnings: tuple[str, ...]
    durations: Durations
    missing: tuple[MissingDataset, ...]  # datasets that are not staged
    power: "PlannedPower | None"  # None: not computed, or the study has nothing to compare
    sizes: tuple[PlannedSize, ...]  # what the study can decide as declared, and with more seeds
    looks: int  # looks at the table before this one

    @property
    def hours(self) -> float | None:
        """Wall hours that the trials to run will take; None where that is not known."""
        return self.makespan.hours if self.makespan else None

    @property
    def counted(self) -> bool:
        """Whether the hours are computed from counted operations, because trials of some row have never finished."""
        return self.makespan is not None and any(row.counted for row in self.rows)

    @property
    def slots(self) -> int:
        """How many trials run at once: the smallest number among the rows whose trials fit a host; at least 1."""
        slots = [row.slots for row in self.rows if row.placements]
        return max(1, min(slots, default=1))

    def hours_of(self, trials: Mapping[str, int]) -> float | None:
        """Return the simulated wall hours of additional trials. `trials` is arm -> number of them.

        None where the seconds of a trial are not known, or an arm is not in the plan.
        """
        rows = defaultdict[str, list[ForecastRow]](list)
        for row in self.rows:
            rows[row.planned.arm].append(row)
        if not trials.keys() <= rows.keys():
            return None
        # The cells of an arm take turns until the arm has its number of trials.
        drawn = [row for arm, count in trials.items() for row in islice(cycle(rows[arm]), count)]
        makespan = self.durations.makespan(
            [row.footprint for row in drawn], [row.seconds for row in drawn]
        )
        return makespan.hours if makespan else None

    def power_lines(self) -> list[str]:
        """Return lines on which differences the study can decide, and on earlier looks, which make that harder.

        A line is on the study as declared, and further ones on more replicates: ` x2 20 seeds (40 trials more, 3.1 h):
        0.9 spreads`. The time is left out where it is not known. [] where there is nothing to compare; without SciPy
        one line that says so.
        """
        if not is_installed("scipy"):
            return [
                f"decides   not computed: SciPy is not installed here ({install_command('judge')})"
            ]
        if self.power is None:
            return []
        lines = [f"decides   {self.power.sentence}"]
        if self.looks:
            earlier = plural(self.looks, "earlier look")
            lines.append(
                f"          {earlier} at the table counted: each leaves a quarter of alpha"
            )
        # The first size is the study as declared. What a finished study needs beyond that is said by its advice, which
        # counts that its results were seen.
        finished = len(self.plan.trials_among(self.records)) == self.plan.total
        larger_sizes = () if finished else self.sizes[1:]
        for size in larger_sizes:
            price = ""
            if size.trials is not None:
                # `size.trials` are all trials of the larger study, of which the declared ones are 1 / times.
                further = size.trials * (size.times - 1) // size.times
                added = Counter[str]()
                for row in self.rows:
                    added[row.planned.arm] += (size.times - 1) * len(row.planned.trials)
                hours = self.hours_of(added)
                time = "" if hours is None else f", {duration(3600 * hours)}"
                price = f" ({plural(further, 'trial')} more{time})"
            lines.append(f"  x{size.times}      {plural(size.seeds, 'seed')}{price}: {size.text}")
        return lines

    def to_dict(self) -> dict[str, object]:
        """Return the numbers and sentences of the forecast by name, for JSON."""
        return {
            "study": self.plan.study.name,
            **self.plan.totals(self.records),
            "hours": self.hours,
            "hours_are_counted": self.counted,
            "measured_in": self.durations.studies,
            "slots": self.slots,
            "plan_digest": self.plan.digest,
            "packing": list(self.packing),
            "makespan": vars(self.makespan) if self.makespan else None,
            "budget": self.budget.to_dict(),
            "warnings": list(self.warnings),
            "sizes": [vars(size) for size in self.sizes],
            "missing": [vars(dataset) for dataset in self.missing],
            "table": [row.to_dict() for row in self.rows],
        }

    def to_text(self, width: int | None = None) -> str:
        """Return a table of the plan's rows, then sums, what can be decided, and warnings.

        Lines are folded to `width` columns; None: they are not folded.
        """
        # How trials are packed on GPUs; trials without one take cores of a host.
        packing_lines = [
            f"packing   {plural(row['trials'], 'trial')} on {row['share']} {row['gpu']}, {row['slots']} at once"
            for row in self.packing
            if row["gpu"] != "none"
        ]
        lines = [
            *_table(self.rows, self.inventory, width),
            "",
            *self.plan.lines(self.records),
            *missing_lines(self.missing),
            *packing_lines,
            *self._time_lines(),
            *_notes(self.rows, self.inventory),
        ]
        sentences = [*self.power_lines(), *(f"warning   {line}" for line in self.warnings)]
        if width is not None:
            # The second line of a sentence is indented to below the beginning of its text.
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
        """Return lines on wall time, GPU-hours and cost of the trials to run; if unknown, one line that says why."""
        makespan = self.makespan
        inventory = self.inventory
        # `4 slots on 2 GPUs`
        hosts = plural(self.slots, "slot")
        if inventory.gpus:
            hosts += f" on {plural(inventory.gpus, 'GPU')}"
        if makespan is None:
            why = " until a trial has finished"
            if self.plan.total is None:
                why = ", as how many trials the budget pays for"
            return [f"time      unknown{why}; {hosts}"]
        about = "about " if self.counted else ""
        seconds = 3600 * makespan.hours
        # A short run takes longer to start than to train.
        start = " beside the start of Ray and its workers" if 0 < seconds < 60 else ""
        lines = [f"time      {about}{duration(seconds)}{start}, simulated; {hosts}"]
        if self.counted:
            lines.append(f"          {COUNTED}")
        if self.durations.studies:
            lines.append(
                f"          equal cells as measured in {', '.join(self.durations.studies)}"
            )
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
    """Return what the trials of `plan` that have not ended will take. Nothing is written.

    Args:
        plan: The plan.
        storage: The folder or address of the storage, whose ended trials say how much memory and time others take.
        cluster: An inventory file of the hosts; None: the trials run on this machine.
        missing: The datasets whose cells the plan leaves out.
        noise_file: What `contrasweep noise --json` wrote, in place of the noise of earlier trials.

    Raises:
        SpecError: `noise_file` is broken or the study has folds, or the user's code calls sys.exit.
        InventoryError: `cluster` is broken.
        StorageError: A record is broken.
    """
    study = plan.study
    records = StudyRecords(storage, study.name)
    inventory = read_inventory(cluster) if cluster else this_machine()
    finished = records.finished()
    ended = records.read(sorted(plan.trials_among(finished)))
    learned = learned_of(records, ended.values())
    footprints = Footprints(study, inventory, learned)
    planned_rows = plan.rows(ended)
    # Equal trials of other studies, on the same type of host, say how long trials of an arm take of which none has
    # finished.
    finished_arms = {record.arm for record in ended.values() if record.status.counts}
    cells: set[tuple[str, str]] = set()
    for planned in planned_rows:
        if planned.arm not in finished_arms:
            for trial in planned.examples:
                key = cell_key(*cell_of(trial))
                cells |= {(key, option.gpu or CPU) for option in footprints.options(trial)}
    durations = Durations(ended.values(), inventory, [*trials_elsewhere(storage, learned, cells)])
    rows = [_row(row, durations, footprints) for row in planned_rows]
    # How the trials to run are packed on the hosts, and how long they take together. Where the budget is one of epochs
    # or hours, it is not known which trials will run.
    packing: list[PackingRow] = []
    makespan = None
    rows_to_run = plan.rows_of_trials_to_run(ended)
    if rows_to_run is not None:
        to_run = [rows[index] for index in rows_to_run]
        needs = [row.footprint for row in to_run]
        packing = summary(place(needs, inventory), inventory)
        makespan = durations.makespan(needs, [row.seconds for row in to_run])
    budget = Budget(study, records, ended.values())
    noise = noise_in(noise_file, study) if noise_file else known_noise(plan, records, ended)
    looks = looks_before(plan, records, finished)
    power = study_power(study, noise=noise, looks=looks)
    warnings = (
        *durations.warnings(),
        *budget.warnings(makespan),
        *power_warnings(study, power),
        *group_warnings(plan),
        *copy_warnings(plan),
        *(note for data in plan.datasets.values() for note in class_notes(data)),
        *unchecked_settings(study),
    )
    return Forecast(
        plan=plan,
        records=ended,
        rows=tuple(rows),
        inventory=inventory,
        packing=tuple(packing),
        makespan=makespan,
        budget=budget,
        warnings=warnings,
        durations=durations,
        missing=missing,
        power=power,
        sizes=planned_sizes(study, power, plan.total, noise) if power else (),
        looks=looks,
    )


def group_warnings(plan: Plan) -> list[str]:
    """Return a warning for each dataset whose test rows come in groups, in a study without folds; [] with folds.

    Verdicts then rest on seeds on one test split, and tell nothing about other groups.
    """
    if plan.table_folds is not None:
        return []
    # Dataset -> number of groups among its test rows; 0 where they have no groups.
    groups_of = {
        data.name: data.counts.get("test", {}).get("groups", 0) for data in plan.table_datasets
    }
    return [
        f"{name}: verdicts hold for the {groups} groups of the test split; for others like them hold each out whole "
        "(stage all groups as training rows with a fold each, and set folds)"
        for name, groups in groups_of.items()
        if groups > 1
    ]


def copy_warnings(plan: Plan) -> list[str]:
    """Return a warning on each set of arms that differ in nothing but their names; [] where there is none."""
    # Arm -> the ids that its trials would have if arms had no names.
    ids: dict[str, set[str]] = {arm: set() for arm in plan.study.arms}
    for trial in plan.example_trials:
        ids[trial.arm].add(replace(trial, arm="").id)
    # (these ids, the searched space) -> arms that have both. A search has only example trials yet, so its space counts.
    arms_of = defaultdict[tuple[frozenset[str], str], list[str]](list)
    for arm, ids_of_arm in ids.items():
        arms_of[frozenset(ids_of_arm), repr(plan.study.arms[arm].space)].append(arm)
    return [
        f"arms {', '.join(arms)} train the same with the same settings"
        for arms in arms_of.values()
        if len(arms) > 1
    ]


def _row(row: PlanRow, durations: Durations, footprints: Footprints) -> ForecastRow:
    """Return what is expected of the trials of a row of the plan: their requirement, places, and the seconds of one.

    The seconds are those of finished trials. Where none has finished, they are computed from the counted operations of
    each of the row's example trials, and the longest counts. None where the operations of an example cannot be counted.
    """

    def demand(trial: Trial) -> tuple[bool, float, float]:
        """Return how hard a trial is to place: whether it fits nowhere, its GPU memory, its host memory (in GiB)."""
        footprint = footprints.of(trial).footprint
        return not footprints.options(trial), footprint.gpu_memory_gib, footprint.host_memory_gib

    # The trial of the row that is hardest to place stands for all of them.
    trial = max(row.examples, key=demand)
    placements = tuple(footprints.options(trial))
    seconds = durations.of(row)
    is_counted = False
    if seconds is None:
        counted = [footprints.seconds(example) for example in row.examples]
        known = [estimate for estimate in counted if estimate is not None]
        is_counted = len(known) == len(counted)
        seconds = max(known) if is_counted else None
    return ForecastRow(
        row,
        footprints.of(trial),
        placements,
        sum(map(footprints.slots, placements)),
        "" if placements else footprints.why_not(trial),
        seconds,
        is_counted,
    )


def _table(rows: Sequence[ForecastRow], inventory: Inventory, width: int | None) -> list[str]:
    """Return the lines of a table with at most `MAX_ROWS` rows, folded to `width` columns (None: not folded).

    Its columns say what is planned, what a trial requires, and what is searched. A trial's requirements are those on a
    GPU, where a trial wants one or the hosts have one, else those on a host.
    """
    listed = rows[:MAX_ROWS]
    on_gpus = any(row.footprint.wants_gpu for row in listed) or inventory.gpus
    required = (
        ["memory GiB", "share", "GPU", "per GPU"] if on_gpus else ["host GiB", "cores", "at once"]
    )
    # All rows of a plan have the same headers.
    planned = listed[0].planned
    headers = [header for header, _ in planned.columns]
    last_headers = [header for header, _ in planned.last]
    cells = [[*headers, *required, *last_headers]]
    for row in listed:
        texts = [text for _, text in row.planned.columns]
        requirements = _on_gpu(row) if on_gpus else _on_host(row)
        last_texts = [text for _, text in row.planned.last]
        cells.append([*texts, *requirements, *last_texts])
    lines = text_table(cells, width=width)
    if len(rows) > MAX_ROWS:
        lines.append(f"... and {plural(len(rows) - MAX_ROWS, 'more cell')}")
    return lines


def _on_gpu(row: ForecastRow) -> list[str]:
    """Return the texts of a row for a trial's GPU: memory, share, types of GPU, and how many trials share one.

    For example `["10.5 measured", "1/4", "H100 or A100", "4"]`. A text is `-` for a trial without a GPU. The types are
    `fits none` where the trial fits no host.
    """
    first = row.first
    footprint = row.first_footprint
    memory = f"{footprint.gpu_memory_gib:.1f} {row.requirement.source}"
    # 0 GiB: nothing is known about it, or the trial wants no GPU.
    if not round(footprint.gpu_memory_gib, 3):
        memory = "unknown" if footprint.wants_gpu else "-"
    if first is None or first.gpu is None:
        return [memory, "-", "none" if first else "fits none", "-"]
    # `H100 or A100, V100`: the first choice, and the others.
    others = ", ".join(place.gpu for place in row.placements[1:] if place.gpu)
    types = f"{first.gpu} or {others}" if others else first.gpu
    return [memory, str(first.share), types, str(first.per_gpu or "-")]


def _on_host(row: ForecastRow) -> list[str]:
    """Return the texts of a row on hosts without GPUs: memory in GiB and its source, cores, trials at once."""
    footprint = row.footprint
    memory = f"{footprint.host_memory_gib:.1f} {row.requirement.source}"
    return [memory, f"{footprint.cpus:g}", "fits none" if row.why_not else str(row.slots)]


def _notes(rows: Iterable[ForecastRow], inventory: Inventory) -> list[str]:
    """Return lines on arms whose trials fit no host, or whose memory is not known, each with the reason.

    A line that is true of several rows comes once, with their number. At most `MAX_NOTES` are given, and a last line
    with the number of the others.
    """
    counts = Counter[str]()
    for row in rows:
        why = row.requirement.why
        if not why and row.requirement.source == DEFAULT and inventory.gpus:
            why = (
                "nothing is known (its trainable has no `memory`, the arm no `resources`): a whole GPU until one was "
                "measured"
            )
        # Where trials fit no host, it does not matter why their memory is not known.
        if row.why_not:
            counts[f"infeasible  arm {row.planned.arm}: {row.why_not}"] += 1
        elif why:
            counts[f"memory    arm {row.planned.arm}: {why}"] += 1
    lines = [f"{text} ({n} cells)" if n > 1 else text for text, n in counts.items()]
    further = len(lines) - MAX_NOTES
    if further > 0:
        lines[MAX_NOTES:] = [f"... and {further} more of this kind"]
    return lines
