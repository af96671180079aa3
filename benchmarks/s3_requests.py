"""The requests to an object store that a study costs, end to end: by method and by purpose, counted on the wire.

    python -m benchmarks.s3_requests [--trials 24] [--servers moto seaweedfs] [--output FILE]

`contrasweep run` (untracked) of trials that report once and keep nothing, and of trials of twelve reports with a
checkpoint and scores of items each; the storage is a real S3 server behind a proxy that counts and does nothing else.
Of the servers asked for, those are used that are installed (moto comes with the tests' packages). A request belongs to
a trial where its key names one; the rest is the study's. What the trials have recorded is compared with a run of the
same study in a local folder: every status, metric and score of an item must be the same to the bit.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fault_proxy import faulty_proxy
from benchmarks.faults.servers import seaweedfs
from benchmarks.tracking_services import S3_ENV, s3_server
from contrasweep.results.results import Results

BUCKET = "faults"  # as `benchmarks.faults.servers` calls it
KINDS: dict[str, dict[str, Any]] = {
    "one report, nothing kept": {"steps": 1, "every": 0, "step_s": 0.0},
    "12 reports, a checkpoint with each": {"steps": 12},
}
PURPOSES = (
    (r"/records/[^/]+/record\.json", "record"),
    (r"attempt\.json", "attempt"),
    (r"checkpoint/latest\.json", "checkpoint's marker"),
    (r"checkpoint/", "checkpoint's files"),
    (r"metrics\.parquet", "reports"),
    (r"system\.parquet", "use over time"),
    (r"items\.parquet", "scores of items"),
    (r"log\.txt", "log"),
)
METHODS = ("PUT", "GET", "HEAD", "DELETE", "POST", "LIST")
OF_STUDY = "the study's own"


def counted(seen: dict[tuple[str, str], int]) -> Counter[tuple[str, str]]:
    """Requests by (purpose, method) from those by (method, path)."""
    found: Counter[tuple[str, str]] = Counter()
    for (method, path), count in seen.items():
        key, _, query = path.partition("?")
        of_trial = re.search(r"/(trials|records)/[0-9a-f]{8,}", key)
        purpose = next((name for pattern, name in PURPOSES if of_trial and re.search(pattern, key)), OF_STUDY)
        found[purpose, "LIST" if method == "GET" and "list-type" in query else method] += count
    return found


def declare(folder: Path, trials: int, settings: dict[str, Any]) -> Path:
    """The study's file: four arms."""
    arms = {
        f"arm{i}": {"trainable": "benchmarks.checkpointing_trial:train", "config": settings | {"lr": 0.1 + i}}
        for i in range(4)
    }
    fields = {"name": "requests", "data": "digits-lt", "seeds": list(range(trials // 4)), "metric": "accuracy"}
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(fields | {"arms": arms}))
    return path


def run(study: Path, storage: str, environment: dict[str, str]) -> None:
    """The command, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "contrasweep", "run", str(study), "--storage", storage, "--tracking", "none"],
        cwd=study.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CONTRASWEEP_CACHE": str(study.parent / "cache")} | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def recorded(storage: str) -> dict[str, Any]:
    """Of each trial what it was to find: status, last metrics, every report without its time, scores of items."""
    results = Results.load("requests", storage)
    found = {}
    for trial_id, record in results.trial_records.items():
        rows = [{k: v for k, v in row.items() if k != "time"} for row in results.records.metrics(trial_id)]
        items = {name: scores.tolist() for name, scores in results.records.items(trial_id, record.items).items()}
        found[trial_id] = (record.status, dict(record.metrics), record.attempts, rows, items)
    return found


def measured(endpoint: str, trials: int) -> tuple[dict[str, Counter[tuple[str, str]]], bool]:
    """Of each kind of trial the requests; whether all that was recorded equals a local run's."""
    found, equal = {}, True
    for number, (kind, settings) in enumerate(KINDS.items()):
        with tempfile.TemporaryDirectory() as scratch, faulty_proxy(endpoint) as proxy:
            study = declare(Path(scratch), trials, settings)
            storage = f"s3://{BUCKET}/runs{number}"
            run(study, storage, S3_ENV | {"AWS_ENDPOINT_URL": proxy.endpoint})
            found[kind] = counted(proxy.seen)
            run(study, f"{scratch}/runs", {})
            os.environ.update(S3_ENV | {"AWS_ENDPOINT_URL": endpoint})
            equal &= recorded(storage) == recorded(f"{scratch}/runs")
    return found, equal


def table(found: dict[str, Counter[tuple[str, str]]], trials: int) -> str:
    """Requests a trial, by purpose and method; those of the study are in all."""
    lines = []
    for kind, counts in found.items():
        lines += ["", f"**{kind}**", "", f"| for | {' | '.join(METHODS)} | all |", f"|---{'|---' * 7}|"]
        of_trials = [name for _, name in PURPOSES if any(counts[name, method] for method in METHODS)]
        for name in of_trials:
            lines.append(_line(name, [counts[name, method] / trials for method in METHODS]))
        sums = [sum(counts[name, method] for name in of_trials) / trials for method in METHODS]
        lines.append(_line("**a trial**", sums))
        lines.append(_line(f"{OF_STUDY}, in all", [counts[OF_STUDY, method] for method in METHODS]))
    return "\n".join(lines)


def _line(name: str, numbers: list[float]) -> str:
    return f"| {name} | {' | '.join(f'{number:.3g}' if number else '' for number in [*numbers, sum(numbers)])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24, help="a multiple of 4")
    parser.add_argument("--servers", nargs="+", choices=["moto", "seaweedfs"], default=["moto"])
    parser.add_argument("--output", type=Path, help="a file to which the tables are written")
    options = parser.parse_args()
    parts = [
        f"# Requests to S3\n\n{date.today()}, {platform.machine()}, {os.cpu_count()} shared cores, load "
        f"{os.getloadavg()[0]:.1f}; {options.trials} trials a study, `python -m benchmarks.s3_requests`."
    ]
    starts = {"moto": lambda folder: s3_server(BUCKET), "seaweedfs": seaweedfs}
    for name in options.servers:
        if name == "seaweedfs" and not shutil.which("weed"):
            print("seaweedfs is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder, starts[name](Path(folder) / "server") as endpoint:
            found, equal = measured(endpoint, options.trials)
        print(json.dumps({"server": name, "equal": equal}), file=sys.stderr)
        if not equal:
            raise SystemExit(f"on {name} something else was recorded than in a folder")
        parts.append(f"\n## {name}\n{table(found, options.trials)}\n\nRecorded the same as in a folder, to the bit.")
    text = "\n".join(parts) + "\n"
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
