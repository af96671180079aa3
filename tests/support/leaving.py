"""Trainables that change their process, one a function, and a calm one that reports everything they change.

Also a study of them in any order, and what its calm arms have recorded.
"""

import builtins
import decimal
import gc
import io
import locale
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib

import numpy as np
import torch

from contrasweep.study.arm import Arm
from contrasweep.study.grid import AblationGrid
from contrasweep.trial import Report

KEPT: list[int] = []
COUNT = 0
GENERATOR = np.random.default_rng(0)


class Model:
    def forward(self):
        return 1


def calm(trial, resume=None):
    if resume is None:
        yield Report(1, {"accuracy": random.random()}, tempfile.mkdtemp())
    yield Report(2, {"accuracy": random.random(), **observed()})


def process(trial, resume=None):
    yield Report(1, {"accuracy": float(os.getpid())})


def observed() -> dict[str, float]:
    """What the functions below change, in numbers."""
    texts = {
        "environ": sorted(item for item in os.environ.items() if item[0] in ("LEFT", "HOME")),
        "path": "left" in "".join(sys.path),
        "locale": locale.setlocale(locale.LC_ALL),
        "errors": np.geterr(),
        "printing": repr(np.array([1 / 3])),
        "decimal": decimal.Decimal(1) / 3,
        # By its name: a trial has a handler of its own that calls the earlier one.
        "term": getattr(handler := signal.getsignal(signal.SIGINT), "__qualname__", handler),
        "precision": torch.get_float32_matmul_precision(),
        "device": torch.ones(1).device.type,
        "loggers": [logging.getLogger(name).getEffectiveLevel() for name in ("", "left")],
        "filters": any(entry[0] == "error" for entry in warnings.filters),
        "handlers": any(
            isinstance(handler, logging.NullHandler) for handler in logging.root.handlers
        ),
        "out": isinstance(sys.stdout, io.StringIO),
        "rc": sys.modules["matplotlib"].rcParams["lines.linewidth"]
        if "matplotlib" in sys.modules
        else 1.5,
        "patched": [
            time.time.__name__,
            print.__name__,
            hasattr(np, "left"),
            Model().forward(),
            torch.nn.functional.relu.__name__,
        ],
    }
    return {
        **{name: float(zlib.crc32(str(value).encode())) for name, value in texts.items()},
        "python": random.random(),
        "numpy": np.random.rand(),
        "torch": torch.rand(1, device="cpu", dtype=torch.float64).item(),
        "module": float(
            len(KEPT) + COUNT + zlib.crc32(str(GENERATOR.bit_generator.state).encode())
        ),
        "dtype": float(torch.get_default_dtype().itemsize),
        "grad": float(torch.is_grad_enabled()),
        "threads": float(torch.get_num_threads()),
        "deterministic": float(torch.get_deterministic_debug_mode()),
        "benchmark": float(torch.backends.cudnn.benchmark),
        "denormals": float("5e-324") * 1.0,
        "recursion": float(sys.getrecursionlimit()),
        "gc": float(gc.isenabled()),
        "umask": float(_umask()),
        "disabled": float(logging.root.manager.disable),
    }


def _umask():
    os.umask(now := os.umask(0o77))
    return now


def dtype():
    torch.set_default_dtype(torch.float64)


def device():
    torch.set_default_device("meta")


def grad():
    torch.set_grad_enabled(False)


def threads():
    torch.set_num_threads(3)


def determinism():
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.set_flush_denormal(True)


def numpy_settings():
    np.seterr(divide="raise")
    np.set_printoptions(precision=2)


def random_states():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def environment():
    os.environ["LEFT"] = "1"
    os.environ.pop("HOME", None)


def folder():
    os.chdir(gone := tempfile.mkdtemp())
    os.rmdir(gone)
    os.umask(0o777)


def interpreter():
    sys.setrecursionlimit(5000)
    sys.path.insert(0, "/left")
    gc.disable()
    decimal.getcontext().prec = 3


def warning_filters():
    warnings.simplefilter("error")


def logs():
    logging.basicConfig(level=logging.DEBUG, handlers=[logging.NullHandler()], force=True)
    logging.getLogger("left").setLevel(logging.ERROR)
    logging.disable(logging.INFO)


def handlers():
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as of a command in the background
    signal.signal(signal.SIGINT, signal.SIG_DFL if ignored else signal.SIG_IGN)


def language():
    locale.setlocale(locale.LC_ALL, "C.UTF-8" if locale.setlocale(locale.LC_ALL) == "C" else "C")


def figures():
    import matplotlib

    matplotlib.rcParams["lines.linewidth"] = 7


def output():
    sys.stdout = io.StringIO()


PUT_BACK = (
    dtype,
    device,
    grad,
    threads,
    determinism,
    numpy_settings,
    random_states,
    environment,
    folder,
    interpreter,
    logs,
    handlers,
    language,
    figures,
    output,
)


def closed_output():
    sys.stdout.close()


def thread():
    threading.Thread(target=time.sleep, args=(10**6,)).start()


def child():
    subprocess.Popen(["sleep", "1000"])


def function_of_a_library():
    time.time = _now


def _now(real=time.time):
    return real() + 1


def builtin():
    builtins.print = _say


def _say(*words):
    return None


def attribute_of_a_library():
    np.left = 1  # type: ignore[attr-defined]


def function_of_torch():
    torch.nn.functional.relu = torch.nn.functional.gelu


def class_of_torch():
    torch.nn.Linear.forward = torch.nn.Identity.forward


def own_class():
    Model.forward = lambda self: 2


def own_list():
    KEPT.append(1)


def own_number():
    global COUNT
    COUNT += 1


def own_generator():
    GENERATOR.random()


def own_new_name():
    globals()["CACHED"] = {}


LEFT = {
    closed_output: "closed a standard stream",
    thread: "left a thread behind",
    child: "left a process behind",
    function_of_a_library: "changed time.time",
    builtin: "changed builtins.print",
    attribute_of_a_library: "changed numpy.left",
    function_of_torch: "changed torch.nn.functional.relu",
    class_of_torch: "changed torch.nn.Linear.forward",
    own_class: "changed Model.forward in the module leaving",
    own_list: "changed KEPT in the module leaving",
    own_number: "changed COUNT in the module leaving",
    own_generator: "changed GENERATOR in the module leaving",
    own_new_name: "changed CACHED in the module leaving",
}


def changes(trial, resume=None):
    """One of the changes, by its name."""
    yield Report(1, {"accuracy": 0.5})
    globals()[trial.config["change"]]()
    yield Report(2, {"accuracy": 0.5})


CALM = ("calm-a", "calm-b")
MISBEHAVING = [
    change.__name__.replace("_", "-")
    for change in (*PUT_BACK[:11], closed_output, thread, own_list, function_of_a_library)
]
"""Fifteen arms, by name."""


def study(order, **fields):
    """One trial of each of these arms, in this order."""
    kinds = {"calm-a": Arm("leaving:calm"), "calm-b": Arm("leaving:calm", config={"b": 1})}
    arms = {
        a: kinds.get(a) or Arm("leaving:changes", config={"change": a.replace("-", "_")})
        for a in order
    }
    return AblationGrid("leaving", arms, "digits", **{"seeds": [0], "reference": "calm-a"} | fields)


def calm_records(results):
    """All that the calm arms reported, by trial."""
    calm = {i: record for i, record in results.trial_records.items() if record.arm in CALM}
    rows = {
        i: [{k: v for k, v in row.items() if k != "time"} for row in results.records.metrics(i)]
        for i in calm
    }
    return {i: (record.arm, record.status, record.metrics, rows[i]) for i, record in calm.items()}
