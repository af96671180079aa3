"""Inside a job, before its trials: all nodes have the driver's versions."""

import importlib.metadata
import platform
from collections.abc import Iterable, Mapping

from contrasweep.cluster.errors import SubmissionError


def versions() -> dict[str, str]:
    """What must be equal on all nodes for a table to be one table."""
    installed = {"python": platform.python_version()}
    for name in ("contrasweep", "ray", "torch", "numpy"):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "none"
    return installed


def check_nodes(timeout_s: float = 120.0) -> None:
    """Every node has this process's versions. Asks each by a task of 0 cores; a node that goes meanwhile is left
    out."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    ask = ray.remote(num_cpus=0)(versions)
    alive = [node for node in ray.nodes() if node["Alive"]]
    pending = [
        (node["NodeName"], ask.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote()) for node in alive
    ]
    answers = []
    for name, answer in pending:
        try:
            answers.append((name, ray.get(answer, timeout=timeout_s)))
        except ray.exceptions.GetTimeoutError:
            raise SubmissionError(f"node {name} does not answer within {timeout_s:.0f} s; is it overloaded?") from None
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError, ray.exceptions.WorkerCrashedError):
            continue
    compare_versions(versions(), answers)


def compare_versions(mine: Mapping[str, str], nodes: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """`SubmissionError` for the first of `nodes` (name, versions) that differs from `mine`."""
    for node, theirs in nodes:
        for name, version in mine.items():
            if theirs.get(name) != version:
                raise SubmissionError(
                    f"node {node} has {name} {theirs.get(name)} and the driver {version}; use one image for all"
                )
