"""What a study at a paper's scale would take on given hosts, in a sentence for the page of claims."""

from pathlib import Path

from contrasweep.planning.durations import duration
from contrasweep.planning.forecast import forecast
from contrasweep.planning.planner import plan_staged
from contrasweep.study.file import load_study


def paper_scale_cost(study: str, storage: str, cluster: Path) -> str:
    """Trials, wall and GPU hours of `study` on the hosts of the inventory file `cluster`, and what is not in them."""
    declared = load_study(study)
    labels = declared.labels or {}
    planned, missing = plan_staged(declared, storage=storage)
    unknown = [one for one in missing if not one.described]
    waiting = "".join(
        f"; {one.waiting} on {labels.get(one.name, one.name)}, whose size is not known before it is staged, left out"
        for one in unknown
    )
    if planned is None:
        return f"not planned{waiting}"
    seen = forecast(planned, storage, cluster, missing)
    hosts = ", ".join(f"{node.count * node.gpus} {node.gpu.type}" for node in seen.inventory.nodes if node.gpu)
    trials = "as many trials as its budget pays for" if planned.total is None else f"{planned.total} trials"
    if seen.makespan is None:
        return f"{trials} on {hosts}, hours unknown until one has finished{waiting}"
    least = "at least about " * seen.counted
    hours = f"{least}{duration(3600 * seen.makespan.hours)} and {seen.makespan.gpu_hours:.3g} GPU-hours"
    return f"{trials} on {hosts}, {hours}{waiting}"
