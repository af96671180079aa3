"""Trainables that do what trainables should not, one a function, and a calm one beside them."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import numpy as np

from contrasweep.trial import Report


def calm(trial, resume=None):
    for step in (1, 2, 3):
        time.sleep(0.3)
        yield Report(step, {"accuracy": 0.5 + 0.01 * step + 0.001 * trial.seed})


def prints(trial, resume=None):
    print("on standard output")
    print("on standard error", file=sys.stderr)
    warnings.warn("a warning", stacklevel=1)
    subprocess.run(["echo", "of a subprocess"], check=True)
    yield Report(1, {"accuracy": 0.5})


def prints_a_gigabyte(trial, resume=None):
    line = "x" * 2**20
    for _ in range(2**10):
        print(line)
    print("the last words")
    yield Report(1, {"accuracy": 0.5})


def prints_a_gigabyte_below_python(trial, resume=None):
    print("the first words", flush=True)
    subprocess.run("yes | head -c 1000000000; echo the last words", shell=True, check=True)
    yield Report(1, {"accuracy": 0.5})


def hangs_at_once(trial, resume=None):
    time.sleep(10**6)
    yield


def hangs_later(trial, resume=None):
    yield Report(1, {"accuracy": 0.5})
    threading.Event().wait()


def spins(trial, resume=None):
    yield Report(1, {"accuracy": 0.5})
    while True:
        pass


def reports_nothing(trial, resume=None):
    return
    yield


def returns_a_list(trial, resume=None) -> Iterator[Report]:
    return [{"accuracy": 0.5}]


def yields_a_dictionary(trial, resume=None):
    yield {"accuracy": 0.5}


def gives_a_tensor(trial, resume=None):
    import torch

    yield Report(1, {"accuracy": torch.tensor(0.5, requires_grad=True)})


def gives_a_vector(trial, resume=None):
    import torch

    yield Report(1, {"accuracy": torch.ones(3)})


def gives_nan(trial, resume=None):
    yield Report(1, {"accuracy": np.nan})


def gives_infinity(trial, resume=None):
    yield Report(1, {"accuracy": np.inf})


def gives_text(trial, resume=None):
    yield Report(1, {"accuracy": "good"})


def gives_another_metric(trial, resume=None):
    yield Report(1, {"acuracy": 0.5})


def counts_down(trial, resume=None):
    yield Report(2, {"accuracy": 0.5})
    yield Report(1, {"accuracy": 0.5})


def exits(trial, resume=None):
    sys.exit("bye")
    yield


def exits_at_once(trial, resume=None):
    print("before the end")
    os._exit(7)
    yield


def is_killed(trial, resume=None):
    os.kill(os.getpid(), signal.SIGKILL)
    yield


def crashes(trial, resume=None):
    ctypes.string_at(0)
    yield


def misses_an_import(trial, resume=None):
    import no_such_package_anywhere

    yield Report(1, {"accuracy": no_such_package_anywhere.score()})


def raises(trial, resume=None):
    yield Report(1, {"accuracy": 0.5})
    raise ValueError("on purpose")


def recurses(trial, resume=None):
    yield Report(1, {"accuracy": len(list(recurses(trial)))})


def closes_its_streams(trial, resume=None):
    os.close(1)
    os.close(2)
    yield Report(1, {"accuracy": 0.5})


def leaves_threads(trial, resume=None):
    threading.Thread(target=time.sleep, args=(10**6,)).start()
    yield Report(1, {"accuracy": 0.5})


def is_killed_beside_its_child(trial, resume=None):
    if os.fork() == 0:
        os.setsid()
        time.sleep(10**6)
    yield Report(1, {"accuracy": 0.5})
    os.kill(os.getpid(), signal.SIGKILL)


def a_loss_that_fails_on_rank_1(embeddings, labels):
    import torch.distributed as dist

    if dist.is_initialized() and dist.get_rank() == 1 and len(labels) > 8:
        raise ValueError("no such label")
    return embeddings.square().mean()
