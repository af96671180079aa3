"""A forecast as people read it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cluster.inventory import Inventory
from cluster.simulate import Makespan
from contrasweep.planning.durations import duration
from contrasweep.planning.footprints import DEFAULT

if TYPE_CHECKING:
    from contrasweep.planning.forecast import Forecast, Room

MOST_CELLS = 40
MOST_NOTES = 5


def of_plan(found: "Forecast") -> str:
    """A line a cell, then the sums and the warnings."""
    study, trials = found.plan.study, found.plan.trials
    shown = found.cells[:MOST_CELLS]
    rows = [["arm", *study.axis_names, "replicates", "done"]]
    rows += [
        [c.cell.arm, *(str(c.cell.axes.get(a, "-")) for a in study.axis_names), str(len(c.cell.trials)), str(c.done)]
        for c in shown
    ]
    lines = table(
        [row + more for row, more in zip(rows, room_columns([c.room for c in shown], found.inventory), strict=True)]
    )
    if len(found.cells) > MOST_CELLS:
        lines.append(f"... and {len(found.cells) - MOST_CELLS} more cells")
    data = ", ".join(f"{m.name} ({m.digest[:8]})" for m in found.plan.datasets.values())
    folds = f"{study.folds} folds" if study.folds else "the test split"
    to_run = len(trials) - len(found.done)
    lines += [
        "",
        f"study     {study.name}: {study.metric} ({study.mode}) on {data}, {folds} x {len(study.seeds)} seeds",
        f"cells     {len(found.cells)}",
        f"trials    {len(trials)}: {len(found.done)} done, {to_run} to run",
        *packing_lines(found),
        *time_lines(found.makespan, found.inventory, found.slots),
        *notes([(c.cell.arm, c.room) for c in found.cells], found.inventory),
    ]
    return "\n".join([*lines, *(f"warning   {text}" for text in found.warnings)])


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines whose columns are aligned."""
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{text:<{w}}" for text, w in zip(row, wide, strict=True)).rstrip() for row in rows]


def room_columns(rooms: "Sequence[Room]", inventory: Inventory) -> list[list[str]]:
    """A header, and for each room the columns that a plan shows of it: memory, and its part of a GPU, or of a host
    where there are no GPUs at all."""
    if any(room.need.footprint.wants_gpu for room in rooms) or inventory.gpus:
        return [["memory GiB", "share", "GPU", "per GPU"], *map(_on_gpu, rooms)]
    return [["host GiB", "cores", "at once"], *map(_on_host, rooms)]


def _on_gpu(room: "Room") -> list[str]:
    facts = room.to_dict()
    known = facts["memory_gib"]
    memory = "-" if known is None else "unknown" if not known else f"{known:.1f} {facts['memory_source']}"
    if room.why_not:
        return [memory, "-", "fits none", "-"]
    if facts["gpu"] is None:
        return [memory, "-", "none", "-"]
    more = f" or {', '.join(way['gpu'] for way in facts['types'][1:])}" if len(facts["types"]) > 1 else ""
    return [memory, facts["share"], facts["gpu"] + more, str(facts["per_gpu"] or "-")]


def _on_host(room: "Room") -> list[str]:
    footprint = room.need.footprint
    return [
        f"{footprint.host_memory_gib:.1f} {room.need.source}",
        f"{footprint.cpus:g}",
        "fits none" if room.why_not else str(room.slots),
    ]


def packing_lines(found: "Forecast") -> list[str]:
    """Where the trials to run go, by type and share of a GPU, most first."""
    kinds = [row for row in found.packing if row["gpu"] != "none"]
    lines = [
        f"packing   {row['trials']} trials on {row['share']} {row['gpu']}, {row['slots']} at once" for row in kinds
    ]
    return lines[:MOST_NOTES] + (
        [f"          and {len(lines) - MOST_NOTES} more kinds"] if len(lines) > MOST_NOTES else []
    )


def time_lines(
    makespan: Makespan | None, inventory: Inventory, slots: int, unknown: str = "unknown until a trial has finished"
) -> list[str]:
    """Wall time, GPU-hours and cost of what is to run."""
    hosts = f"{slots} slots" + (f" on {inventory.gpus} GPUs" if inventory.gpus else "")
    if makespan is None:
        return [f"time      {unknown}; {hosts}"]
    lines = [f"time      {duration(3600 * makespan.hours)}, simulated; {hosts}"]
    if inventory.gpus:
        lines.append(f"GPU-hours {makespan.gpu_hours:.3g}; {makespan.utilisation:.0%} of the GPUs' time is given out")
    if inventory.cost_per_hour:
        lines.append(
            f"cost      {makespan.cost:,.4g} for all hosts as long as it runs, {makespan.trials_cost:,.4g} for the "
            f"trials' parts of them"
        )
    return lines


def notes(rooms: "Iterable[tuple[str, Room]]", inventory: Inventory) -> list[str]:
    """Which trials fit nowhere, which are given a whole GPU because nothing is known of them, and why not; once
    each."""
    said: dict[str, int] = {}
    for arm, room in rooms:
        if room.why_not:
            key = f"infeasible  arm {arm}: {room.why_not}"
        elif room.need.why:
            key = f"memory    arm {arm}: {room.need.why}"
        elif room.need.source == DEFAULT and inventory.gpus:
            key = (
                f"memory    arm {arm}: nothing is known (its trainable has no `memory`, the arm no footprint): "
                "a whole GPU until one was measured"
            )
        else:
            continue
        said[key] = said.get(key, 0) + 1
    lines = [f"{text}" + (f" ({n} cells)" if n > 1 else "") for text, n in said.items()]
    return lines[:MOST_NOTES] + (
        [f"... and {len(lines) - MOST_NOTES} more of this kind"] if len(lines) > MOST_NOTES else []
    )
