"""Estimates of training's memory and work, kept on disk: a plan that finds one need not run the model on fake tensors.

An estimate is a small file in the node's cache (`CONTRASWEEP_CACHE`/counts). Its name is the digest of all that the
estimate depends on, which stands in it too and is compared when it is read. A file that is not exactly that is as if
there were none. Not kept are estimates of which that cannot be said by plain values (see `key_of`).
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import FunctionType
from typing import NamedTuple, TypeGuard

import contrasweep.cluster.memory
from contrasweep.cluster.memory import NO_WORK, Work, Workload
from contrasweep.code import CurrentCode, installed_version
from contrasweep.data.cache import cache_folder
from contrasweep.errors import StorageError
from contrasweep.storage.names import local_path
from contrasweep.storage.store import LocalStore
from contrasweep.trial import Trial

MAX_COUNTS = 4096
"""Files that are kept; when there are more, the quarter that was written longest ago is deleted."""
WORK = tuple(field.name for field in fields(Work))
MAX_BYTES = 1 << 20
"""A file that is larger is none of ours, and not read; a key that is longer is not kept."""


def key_of(work: Workload, hook: object, trial: Trial, code: CurrentCode) -> str | None:
    """Return all that the estimate of `work` depends on, as text; None where this cannot be known.

    It is the shape of the workload, the trial's config and data, the code that its trainable reaches, the versions of
    what that imports, of PyTorch and of Python, and how it is counted.

    It cannot be known where `hook`, which gave the workload, is no plain function of a module that the trainable
    reaches; where the shape has other than plain values; where the config names a file or folder, whose content may
    matter; and in a notebook or an interactive Python, whose modules may have been imported before they were edited.
    """
    if hasattr(sys, "ps1"):  # IPython sets it too
        return None
    config = trial.config
    shape = (work.architecture, work.shape, work.inputs if not callable(work.inputs) else None)
    if not isinstance(hook, FunctionType) or hook.__closure__ or not _is_plain(shape) or _names_file(config):
        return None
    try:
        version = code.of(trial.trainable, config).version
    except Exception:  # the code is the user's, and `run` says what is wrong with it
        return None
    if hook.__module__ == "__main__" or hook.__module__ not in version.modules:
        return None  # of a notebook, the code is the source of the trainable alone
    numbers = (work.precision, work.optimizer_states, work.resident_bytes, work.fake, work.parts, work.gpus)
    return json.dumps(
        {
            "shape": repr(shape),
            "numbers": repr(numbers),
            "config": repr(sorted(config.items())),
            "data": trial.data.digest,
            "trainable": trial.trainable,
            "code": version.digest,
            "distributions": dict(version.distributions),
            "torch": installed_version("torch"),
            "python": sys.version,
            "counting": _counting(),
        },
        sort_keys=True,
    )


class Estimate(NamedTuple):
    """The memory of a training in GiB before calibration, the work of one step, and the GiB of a checkpoint.

    A checkpoint holds the network and what the optimiser keeps.
    """

    gib: float
    work: Work = NO_WORK
    checkpoint_gib: float = 0.0


def read(key: str) -> Estimate | None:
    """Return the stored count of `key`; None if there is none, or its file is broken or of another key."""
    try:
        kept = json.loads(_store().read(_name(key), MAX_BYTES))
    except (OSError, StorageError, ValueError, RecursionError):
        return None
    if not isinstance(kept, dict) or kept.get("key") != key:
        return None
    numbers = [number for name in ("gib", "checkpoint_gib", *WORK) if _is_amount(number := kept.get(name))]
    return Estimate(numbers[0], Work(*numbers[2:]), numbers[1]) if len(numbers) == 2 + len(WORK) else None


def write(key: str, counted: Estimate) -> None:
    """Keep a count, and no more than `MAX_COUNTS`. A cache that cannot be written costs the next plan its time only."""
    data = json.dumps(
        {"key": key, "gib": counted.gib, "checkpoint_gib": counted.checkpoint_gib, **vars(counted.work)}
    ).encode()
    if len(data) > MAX_BYTES:
        return
    store = _store()
    with contextlib.suppress(OSError, StorageError):
        store.write(_name(key), data)
        _bound(store.root)


def _bound(folder: Path) -> None:
    """Delete the oldest quarter where there are too many; another process may have deleted some of them."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    if len(names) <= MAX_COUNTS:
        return
    ages = []
    for name in names:
        with contextlib.suppress(OSError):
            ages.append((os.stat(folder / name).st_mtime_ns, name))
    for _, name in sorted(ages)[: max(1, len(names) - MAX_COUNTS * 3 // 4)]:
        with contextlib.suppress(OSError):
            os.unlink(folder / name)


def _is_amount(number: object) -> TypeGuard[float]:
    return isinstance(number, float) and math.isfinite(number) and number >= 0


def _store() -> LocalStore:
    return LocalStore(cache_folder() / "counts")


def _name(key: str) -> str:
    return f"{hashlib.sha256(key.encode()).hexdigest()}.json"


@functools.cache
def _counting() -> str:
    """Return the digest of the module that counts, because a checkout may change it without a new version."""
    return hashlib.sha256(Path(contrasweep.cluster.memory.__file__).read_bytes()).hexdigest()


def _is_plain(value: object) -> bool:
    """Return whether `repr` describes all of a value, and is the same in every process."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _names_file(value: object) -> bool:
    """Whether a config has a value that is not plain, or is the name of a file or folder that is there."""
    if isinstance(value, Mapping):
        return any(not isinstance(key, str) or _names_file(item) for key, item in value.items())
    if isinstance(value, tuple | list):
        return any(map(_names_file, value))
    if isinstance(value, str):
        with contextlib.suppress(OSError, ValueError):
            return local_path(value).exists() if value else False
        return False
    return not _is_plain(value)
