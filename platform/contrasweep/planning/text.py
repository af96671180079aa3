"""A forecast as people read it."""

import textwrap
from collections.abc import Iterable, Sequence

from contrasweep.cluster.inventory import Inventory
from contrasweep.cluster.packing import PackingRow
from contrasweep.cluster.simulate import Makespan
from contrasweep.planning.capacity import Capacity
from contrasweep.planning.durations import duration
from contrasweep.planning.footprints import DEFAULT
from contrasweep.planning.plan import Lot
from contrasweep.text_table import text_table

MAX_ROWS = 40
MAX_NOTES = 5
UNTIL_ONE_FINISHED = "unknown until a trial has finished"
COUNTED = (
    "by the counted operations and bytes of training steps at the GPUs' peaks, without evaluation and start-up; "
    "measured as soon as a trial has finished"
)


def hanging(line: str, width: int | None) -> str:
    """A line of a label and a sentence, in a terminal of `width` columns broken below the sentence."""
    if width is None:
        return line
    return textwrap.fill(line, width, subsequent_indent=" " * 10, break_long_words=False, break_on_hyphens=False)


def table(lots: Sequence[tuple[Lot, Capacity]], inventory: Inventory, width: int | None = None) -> list[str]:
    """A line a lot, the first ones of many: what is planned, what it requires, what it searches."""
    shown = lots[:MAX_ROWS]
    middle = capacity_columns([capacity for _, capacity in shown], inventory)
    lots_and_header = [shown[0][0], *(lot for lot, _ in shown)]
    rows = [
        [*(pair[i > 0] for pair in lot.columns), *columns, *(pair[i > 0] for pair in lot.last)]
        for i, (lot, columns) in enumerate(zip(lots_and_header, middle, strict=True))
    ]
    more = [f"... and {len(lots) - MAX_ROWS} more cells"] if len(lots) > MAX_ROWS else []
    return [*text_table(rows, width=width), *more]


def capacity_columns(capacities: Sequence[Capacity], inventory: Inventory) -> list[list[str]]:
    """A header, and for each capacity the columns that a plan shows of it: memory, and its part of a GPU, or of a host
    where there are no GPUs at all."""
    if any(c.requirement.footprint.wants_gpu for c in capacities) or inventory.gpus:
        return [["memory GiB", "share", "GPU", "per GPU"], *map(_on_gpu, capacities)]
    return [["host GiB", "cores", "at once"], *map(_on_host, capacities)]


def _on_gpu(capacity: Capacity) -> list[str]:
    facts = capacity.to_dict()
    known = facts["memory_gib"]
    memory = "-" if known is None else "unknown" if not known else f"{known:.1f} {facts['memory_source']}"
    if capacity.why_not:
        return [memory, "-", "fits none", "-"]
    if facts["gpu"] is None:
        return [memory, "-", "none", "-"]
    more = f" or {', '.join(place['gpu'] for place in facts['types'][1:])}" if len(facts["types"]) > 1 else ""
    return [memory, facts["share"] or "-", facts["gpu"] + more, str(facts["per_gpu"] or "-")]


def _on_host(capacity: Capacity) -> list[str]:
    footprint = capacity.requirement.footprint
    return [
        f"{footprint.host_memory_gib:.1f} {capacity.requirement.source}",
        f"{footprint.cpus:g}",
        "fits none" if capacity.why_not else str(capacity.slots),
    ]


def packing_lines(packing: Iterable[PackingRow]) -> list[str]:
    """Where the trials to run go, by type and share of a GPU, most first."""
    kinds = [row for row in packing if row["gpu"] != "none"]
    lines = [
        f"packing   {row['trials']} trials on {row['share']} {row['gpu']}, {row['slots']} at once" for row in kinds
    ]
    return lines[:MAX_NOTES] + (
        [f"          and {len(lines) - MAX_NOTES} more kinds"] if len(lines) > MAX_NOTES else []
    )


def time_lines(
    makespan: Makespan | None,
    inventory: Inventory,
    slots: int,
    unknown: str = UNTIL_ONE_FINISHED,
    counted: bool = False,
) -> list[str]:
    """Wall time, GPU-hours and cost of what is to run; `counted`: of operations, not of trials that have finished."""
    hosts = f"{slots} slots" + (f" on {inventory.gpus} GPUs" if inventory.gpus else "")
    if makespan is None:
        return [f"time      {unknown}; {hosts}"]
    least = "at least about " * counted
    lines = [f"time      {least}{duration(3600 * makespan.hours)}, simulated; {hosts}"]
    if counted:
        lines.append(f"          {COUNTED}")
    if inventory.gpus:
        lines.append(f"GPU-hours {makespan.gpu_hours:.3g}; {makespan.utilisation:.0%} of the GPUs' time is given out")
    if inventory.cost_per_hour:
        lines.append(
            f"cost      {makespan.cost:,.4g} for all hosts as long as it runs, {makespan.trials_cost:,.4g} for the "
            f"trials' parts of them"
        )
    return lines


def notes(capacities: Iterable[tuple[str, Capacity]], inventory: Inventory) -> list[str]:
    """Which trials fit nowhere, which are given a whole GPU because nothing is known of them, and why not; once
    each."""
    counts: dict[str, int] = {}
    for arm, capacity in capacities:
        if capacity.why_not:
            key = f"infeasible  arm {arm}: {capacity.why_not}"
        elif capacity.requirement.why:
            key = f"memory    arm {arm}: {capacity.requirement.why}"
        elif capacity.requirement.source == DEFAULT and inventory.gpus:
            key = (
                f"memory    arm {arm}: nothing is known (its trainable has no `memory`, the arm no footprint): "
                "a whole GPU until one was measured"
            )
        else:
            continue
        counts[key] = counts.get(key, 0) + 1
    lines = [f"{text}" + (f" ({n} cells)" if n > 1 else "") for text, n in counts.items()]
    return lines[:MAX_NOTES] + (
        [f"... and {len(lines) - MAX_NOTES} more of this kind"] if len(lines) > MAX_NOTES else []
    )
