"""The processor time of commands that train nothing, beside that of Python alone and of `import torch`.

    python benchmarks/startup.py [--base CHECKOUT] [--runs 3] [--output benchmarks/results/startup.md]

A plan of the quickstart with an empty cache and with what that one kept, a list, and a second `run` of the quickstart
once it is finished (which trains its 30 trials first; --skip-run leaves that out). Each command is a process of its
own, waited for with its children; checkouts and commands take turns, so that whatever else the machine does meets all
of them. The figures are of the fastest runs, and the ratio is to `import torch`.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = "search_spaces.quickstart:STUDY"
FIRST, KEPT, LISTED, AGAIN = "plan, empty cache", "plan, again", "list losses", "second run, finished"


def processor_seconds(checkout: Path, words: list[str], cache: Path) -> float:
    """User and system seconds of `python WORDS` in a checkout."""
    paths = os.pathsep.join(map(str, (checkout / "platform", checkout)))
    environment = {**os.environ, "PYTHONPATH": paths, "CONTRASWEEP_CACHE": str(cache)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=checkout, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(storage: Path, trained: bool) -> dict[str, list[str]]:
    """Name -> what is run, in this order."""
    start = ["-m", "contrasweep"]
    plan = [*start, "plan", QUICKSTART, "--storage", str(storage / "empty")]
    known = {"python": ["-c", "pass"], "import torch": ["-c", "import torch"], FIRST: plan, KEPT: plan}
    known[LISTED] = [*start, "list", "losses"]
    return known | ({AGAIN: _run(storage)} if trained else {})


def _run(storage: Path) -> list[str]:
    return ["-m", "contrasweep", "run", QUICKSTART, "--storage", str(storage / "runs"), "--tracking", "none"]


def measured(checkouts: list[Path], runs: int, trained: bool) -> list[dict[str, float]]:
    """For each checkout, name of the command -> processor seconds of its fastest run."""
    least: list[dict[str, float]] = [{} for _ in checkouts]
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, str(number)) for number in range(len(checkouts))]
        if trained:
            for checkout, place in zip(checkouts, places, strict=True):
                processor_seconds(checkout, _run(place), place / "trained")
        for turn in range(runs):
            for number, (checkout, place) in enumerate(zip(checkouts, places, strict=True)):
                for name, words in commands(place, trained).items():
                    used = processor_seconds(checkout, words, place / f"cache{turn}")
                    least[number][name] = min(used, least[number].get(name, used))
    return least


def text(least: list[dict[str, float]], names: list[str]) -> str:
    """The figures as a Markdown table."""
    columns = [f"{name}: s | x torch" for name in names]
    lines = [f"| | {' | '.join(columns)} |", "|---" * (2 * len(names) + 1) + "|"]
    for command in least[0]:
        cells = [f"{of[command]:.2f} | {of[command] / of['import torch']:.2f}" for of in least]
        lines.append(f"| {command} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print; write the table with date and machine where `--output` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="another checkout, measured in turns")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--skip-run", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    checkouts = [options.base.resolve(), ROOT] if options.base else [ROOT]
    load = os.getloadavg()
    least = measured(checkouts, options.runs, not options.skip_run)
    table = text(least, ["before", "now"] if options.base else ["now"])
    where = f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} shared cores, Python "
    where += f"{platform.python_version()}; load {load[0]:.1f} before, {os.getloadavg()[0]:.1f} after"
    whole = f"Processor seconds, fastest of {options.runs}; {where}.\n\n{table}\n"
    print(whole)
    if options.output:
        options.output.write_text(whole)


if __name__ == "__main__":
    main()
