"""What the driver keeps in memory of each trial: its resident memory while thousands of trivial trials go through it.

    python -m benchmarks.driver_memory [--trials 3000] [--output benchmarks/results/driver_memory.md]
    python -m benchmarks.driver_memory --trials 1500 --allocations 25      # which lines of the code hold it

`contrasweep run` of a study whose trials report once and end, untracked, on a local folder. The driver's own memory,
without Ray's processes and workers, is read each time another hundredth of the trials has its record; the figure is the
slope of a line through the second to the last tenth, in bytes a trial, so that what is there from the start counts
nothing.
"""

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Generator
from datetime import date
from pathlib import Path

import psutil

from contrasweep import AblationGrid, Arm
from contrasweep.schema import checked
from contrasweep.trial import Report, Trial

SLOTS = 2


@checked
class Settings:
    """`lr` is there to be varied."""

    lr: float = 0.1


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """One report, at once."""
    yield Report(1, {"accuracy": 1.0 / (1 + trial.seed)})


train.settings = Settings  # type: ignore[attr-defined]


def study_of(trials: int) -> AblationGrid:
    """So many trials of four arms."""
    arms = {f"arm{i}": Arm("benchmarks.driver_memory:train", config={"lr": 0.1 + i}) for i in range(4)}
    return AblationGrid("driver-memory", arms=arms, data="digits-lt", seeds=list(range(trials // 4)), metric="accuracy")


def run(trials: int, folder: str, allocations: int) -> dict[str, object]:
    """Run the study in this process; (trials ended, bytes resident) as it went."""
    import ray

    from contrasweep.live.state import Progress
    from contrasweep.running.driver import run as run_study

    process, points, every = psutil.Process(), list[tuple[int, int]](), max(1, trials // 100)
    ended, on_ended = 0, Progress.ended
    snapshots: list[tracemalloc.Snapshot] = []

    def counted(self: Progress, record: object) -> None:
        nonlocal ended
        on_ended(self, record)  # type: ignore[arg-type]
        ended += 1
        if ended % every == 0:
            points.append((ended, process.memory_info().rss))
        if allocations and ended in (trials // 5, trials - 1):
            gc.collect()
            snapshots.append(tracemalloc.take_snapshot())

    Progress.ended = counted  # type: ignore[method-assign]
    if allocations:
        tracemalloc.start(6)
    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False)
    results = run_study(study_of(trials), storage=folder, tracking=None)
    ray.shutdown()
    assert results.complete, results.statuses
    if allocations:
        between = trials - 1 - trials // 5
        for line in snapshots[1].compare_to(snapshots[0], "lineno")[:allocations]:
            print(f"{line.size_diff / between:9.0f} B a trial {line.count_diff / between:6.1f}  {line.traceback}")
        for line in snapshots[1].compare_to(snapshots[0], "traceback")[: allocations // 2]:
            print(f"{line.size_diff / between:9.0f} B a trial", *line.traceback.format(), sep="\n")
    return {"points": points, "processor_s": sum(process.cpu_times()[:2])}


def slope(points: list[tuple[int, int]]) -> float:
    """Bytes a trial, by least squares, without the first tenth."""
    later = points[len(points) // 10 :]
    return statistics.linear_regression([n for n, _ in later], [size for _, size in later]).slope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[3000], help="multiples of 4")
    parser.add_argument("--allocations", type=int, default=0, help="print so many lines that hold most, by tracemalloc")
    parser.add_argument("--output", type=Path, help="a file to which the table is written")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(options.trials[0], options.one, options.allocations)))
        return
    lines = []
    for trials in options.trials:
        with tempfile.TemporaryDirectory() as folder:
            words = [f"--trials={trials}", f"--allocations={options.allocations}", f"--one={folder}/runs"]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.driver_memory", *words],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1", "CONTRASWEEP_CACHE": f"{folder}/cache"},
            )
        if done.returncode:
            raise SystemExit(done.returncode)
        *said, last = done.stdout.strip().splitlines()
        print(*said, sep="\n")
        found = json.loads(last)
        points = found["points"]
        cells = [trials, round(points[0][1] / 1e6), round(points[-1][1] / 1e6), f"{slope(points) / 1000:.1f}"]
        lines.append(f"| {' | '.join(map(str, cells))} | {1000 * found['processor_s'] / trials:.1f} |")
    text = (
        f"Memory of the driver, untracked, a local folder; {date.today()}, {platform.machine()}, {os.cpu_count()} "
        f"shared cores, load {os.getloadavg()[0]:.1f}.\n\n"
        "| trials | MB after a hundredth | MB at the end | kB a trial | processor ms a trial |\n|---|---|---|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
