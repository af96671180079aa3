"""A connection to Ray for the length of a run: the cluster in RAY_ADDRESS, or this machine."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from cluster.inventory import Inventory
from contrasweep.errors import ContrasweepError
from contrasweep.running.engine import TUNE_ENVIRONMENT


@contextmanager
def connected() -> Iterator[Inventory]:
    """Connect, give the hosts there are, and disconnect again what was connected here."""
    if ray.is_initialized():
        yield Inventory.from_ray(ray.nodes())
        return
    os.environ.update({k: v for k, v in TUNE_ENVIRONMENT.items() if k.startswith("RAY_")})
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a trial has one core unless it asks for more
    address = os.environ.get("RAY_ADDRESS") or "local"
    options = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ContrasweepError(f"no Ray cluster at RAY_ADDRESS={address} ({str(error).splitlines()[0]})") from None
    try:
        yield Inventory.from_ray(ray.nodes())
    finally:
        ray.shutdown()
