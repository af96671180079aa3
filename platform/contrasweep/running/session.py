"""A connection to Ray for the length of a run: the cluster in RAY_ADDRESS, or this machine."""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

from cluster.demand import wait_for_hosts
from cluster.footprint import Footprint
from cluster.inventory import Inventory, ray_inventory
from cluster.node_versions import check_nodes
from contrasweep.errors import ContrasweepError
from contrasweep.running.engine import TUNE_ENVIRONMENT

STARTS = 3  # tries to start a local Ray


@contextmanager
def connected() -> Iterator[Inventory]:
    """Connect, give the hosts there are, and disconnect again what was connected here."""
    if ray.is_initialized():
        yield ray_inventory(ray.nodes())
        return
    os.environ.update({k: v for k, v in TUNE_ENVIRONMENT.items() if k.startswith("RAY_")})
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a trial has one core unless it asks for more
    address = _address()
    options = {"include_dashboard": False} if address == "local" else {}
    for attempt in range(STARTS):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
            break
        except Exception as error:  # Ray raises a plain Exception when a busy machine took it over 30 s to start
            ray.shutdown()
            if "timed out during startup" in str(error) and attempt < STARTS - 1:
                continue
            what = (
                "Ray cannot be started on this machine"
                if address == "local"
                else f"no Ray cluster at RAY_ADDRESS={address}"
            )
            raise ContrasweepError(f"{what} ({str(error).splitlines()[0]})") from None
    try:
        if address != "local":
            check_nodes()
        yield ray_inventory(ray.nodes())
    finally:
        # Tune leaves cycles with references into Ray; freed after the shutdown, by any thread, they end the process
        gc.collect()
        ray.shutdown()


def hosts_for(missing: Callable[[Inventory], Footprint | None], inventory: Inventory) -> Inventory:
    """`inventory`, or where that is a cluster on which a host for a trial is still `missing`, its hosts once there is
    one."""
    if _address() == "local":
        return inventory
    return wait_for_hosts(inventory, missing, lambda text: print(text, file=sys.stderr, flush=True))


def _address() -> str:
    return os.environ.get("RAY_ADDRESS") or "local"
