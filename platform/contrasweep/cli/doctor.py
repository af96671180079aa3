"""Checks of this machine: one line for each part, with what to do where it does not work."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from contrasweep.errors import plural
from contrasweep.imports import install_command


@dataclass(frozen=True)
class Finding:
    """The result of one check of the part `what` of this machine, such as `ray` or `storage`.

    `works` says whether the part can be used, `detail` in a line what was found or, where it cannot, why not.
    """

    what: str
    works: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.works else 'FAIL'}  {self.what:<10} {self.detail}"


def examine(storage: str, tracking: str) -> list[Finding]:
    """Return a finding for each part that a run needs: versions, hosts, Ray, `storage` and `tracking`.

    Ray may be started and the storage written to for the time of the check; nothing is left behind, and nothing raised.
    """
    checks: dict[str, Callable[[], str]] = {
        "versions": _versions,
        "hosts": _hosts,
        "ray": _ray,
        "storage": lambda: _storage(storage),
        "tracking": lambda: _tracking(tracking),
    }
    return [_try(name, check) for name, check in checks.items()]


def _try(what: str, check: Callable[[], str]) -> Finding:
    """Run the function `check`, and return a finding that the part `what` works, with the line that `check` returns.

    Where `check` raises an error, the finding says that the part does not work, and why.
    """
    try:
        return Finding(what, True, check())
    except Exception as error:  # whatever is broken here is what doctor is asked for
        return Finding(what, False, " ".join(str(error).split()) or type(error).__name__)


def _versions() -> str:
    """Return the versions of Python and of the packages that results depend on, in a line."""
    from contrasweep.code.version import versions

    return ", ".join(f"{name} {version}" for name, version in versions().items())


def _hosts() -> str:
    """Return this machine's cores, memory and GPUs in a line: `8 cores, 62 GiB of memory, 1 x H200 with 139 GiB`."""
    from contrasweep.cluster.inventory import this_machine

    machine = this_machine()
    gpus = ", ".join(
        f"{machine.count(g.type)} x {g.type} with {g.memory_gib:.0f} GiB" for g in machine.gpu_types
    )
    memory = sum(node.memory_gib for node in machine.nodes)
    return f"{plural(machine.cpus, 'core')}, {memory:.0f} GiB of memory, {gpus or 'no GPU'}"


def _ray() -> str:
    """Start Ray, or join the cluster of RAY_ADDRESS, and return in a line what it has.

    A machine without Ray is no fault: the line says what it can do.
    """
    if find_spec("ray") is None:  # a laptop that does without
        return f"not installed: this machine plans, submits and watches; to train here: {install_command('all')}"
    from contrasweep.running.engine.session import connected

    with connected() as inventory:
        where = os.environ.get("RAY_ADDRESS")
        return (
            f"{where or 'started here'}: {plural(sum(n.count for n in inventory.nodes), 'node')}, "
            f"{plural(inventory.cpus, 'core')}, {plural(inventory.gpus, 'GPU')}"
            f"{'' if where else '; with RAY_ADDRESS=HEAD:6379 the cluster is checked'}"
        )


def _storage(uri: str) -> str:
    """Return a line on the storage; `SpecError` or `StorageError` where it cannot be opened or written."""
    from contrasweep.storage.store import open_store

    store = open_store(uri)
    store.check_writable()
    return f"{store.uri} is writable"


def _tracking(uri: str) -> str:
    """Return a line that names the trackers at `uri`, once each was seen to be usable.

    `SpecError` or `StorageError` where one cannot be used.
    """
    from contrasweep.tracking.kinds import checked_tracking

    return f"{checked_tracking(uri)} can be used"
