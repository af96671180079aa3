"""`python -m benchmarks.gpu [--only losses,...] [--minutes 9] [--output FOLDER]`: everything that only a GPU can show.

Needs torch, torchvision, numpy, scipy, scikit-learn, pyarrow, psutil, nvidia-ml-py and pydantic; neither
Ray nor MLflow nor boto3. The data it makes, or takes from scikit-learn. It ends by itself within `--minutes`: a section
that does not fit any more is said to be unfinished. Writes gpu.md and gpu.json into the folder after each section.
With `--small` it runs through the same code in sizes for a CPU, whose figures mean nothing. Exit status 1 where a check
did not hold or a section failed, else 0.
"""

import argparse
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path

import torch
from benchmarks.gpu import losses, memory, sharing, speed, training
from benchmarks.gpu.context import Context, OutOfTime
from benchmarks.gpu.results import Section, write

ROOT = Path(__file__).resolve().parents[2]
SECTIONS: dict[str, Callable[[Context], Iterator[Section]]] = {
    "losses": losses.correctness,
    "resume": training.resumed,
    "limits": sharing.limits,
    "memory": memory.peaks,
    "packing": sharing.packing,
    "large-batches": losses.speed,
    "alone": speed.engines,
    "training": training.for_real,
}
"""By name, in the order in which they run: what must be right first, what may be cut short last."""
CORRECTNESS = ("losses", "resume", "limits")
"""The sections that are mostly checks: what `make gpu-test` runs."""


def main() -> int:
    """Run the sections and write what they gave."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only",
        default=",".join(SECTIONS),
        help=f"some of {', '.join(SECTIONS)}, or `correctness`",
    )
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="the command ends within this time"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        help="folder of gpu.md, gpu.json",
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument(
        "--small", action="store_true", help="sizes for a CPU, to see that the command works"
    )
    options = parser.parse_args()
    names = (
        CORRECTNESS
        if options.only == "correctness"
        else [name.strip() for name in options.only.split(",")]
    )
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(
            f"--only: there is no section {unknown[0]!r}; there are {', '.join(SECTIONS)} and `correctness`"
        )
    chosen = options.device
    if chosen == "auto":
        chosen = "cuda" if torch.cuda.is_available() else "cpu"
    if chosen == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this process sees no GPU")
    if chosen == "cpu" and not options.small:
        parser.error("without a GPU this measures nothing; --small shows that the command works")
    context = Context(torch.device(chosen), options.small, 60 * options.minutes - 15)
    if chosen == "cpu":
        torch.set_num_threads(1)
    done: list[Section] = []
    failed = False
    for name in SECTIONS:
        if name not in names:
            continue
        section, error = run(SECTIONS[name], context)
        done.append(section)
        failed |= bool(error or section.failed)
        print("\n".join(section.markdown()), flush=True)
        if error:
            print(error, file=sys.stderr, flush=True)
        written = write(options.output, head(context), done)
    print(f"written: {written[0]} and {written[1]}, after {time.monotonic() - context.begun:.0f} s")
    return int(failed)


def run(function: Callable[[Context], Iterator[Section]], context: Context) -> tuple[Section, str]:
    """A section, as far as it came, and the traceback where it failed."""
    began = time.monotonic()
    error = ""
    parts = function(context)
    section = next(parts)  # what it measures is added to it while it goes on
    try:
        context.require(10 if not context.small else 1)
        for _ in parts:
            pass
    except OutOfTime as reason:
        section.unfinished = f"the time of the command was used up ({reason})"
    except Exception as problem:
        section.unfinished = f"{type(problem).__name__}: {problem}".splitlines()[0]
        error = traceback.format_exc()
    section.seconds = time.monotonic() - began
    return section, error


def head(context: Context) -> dict[str, str]:
    """Where and with what this was measured."""
    device = (
        torch.cuda.get_device_name() if context.cuda else platform.processor() or platform.machine()
    )
    names = ("torch", "torchvision", "numpy", "scikit-learn", "pydantic")
    facts = {
        "date": str(date.today()),
        "device": device,
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "commit": _commit(),
    }
    if context.cuda:
        facts |= {"CUDA": str(torch.version.cuda), "driver": _driver()}
    if context.small:
        facts["sizes"] = "small: these figures mean nothing"
    return facts


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def _driver() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # no library or no driver of NVIDIA's: a fact less
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
