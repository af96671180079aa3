"""Real small trials from `contrasweep run` to MLflow's page: what 10,000 of them take.

    python -m benchmarks.end_to_end [--trials 10000] [--epochs 1] [--keep FOLDER] [--output FILE]

SupCon and SINCERE train the quickstart's cnn on digits-lt at two batch sizes, tracked by MLflow on a local sqlite file;
then the report is written in three forms, the finished study is run again, and MLflow's server is asked for its trials:
the best first, and in Chromium the page that the link of the study opens. Memory is the driver's own, its processor
seconds too. Prints a table, and appends it to FILE.
"""

import argparse
import asyncio
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.browser import browser, chromium
from benchmarks.tracking_services import mlflow_server
from contrasweep.tracking.mlflow.server import study_page

NAME, FOLDS = "end-to-end", 5
BATCHES = (64, 128)
LOSSES = ("supcon", "sincere")
SAMPLE_S = 0.2
SHOWN_S = 60.0
"""How long the page may take to list trials."""


def study_file(folder: Path, trials: int, epochs: int) -> Path:
    """The study as YAML."""
    config = {"encoder": "cnn", "epochs": epochs}
    study = {
        "name": NAME,
        "arms": {
            loss: {
                "trainable": "trainables.contrastive:train",
                "config": config | {"loss": {"name": loss, "temperature": 0.2}},
            }
            for loss in LOSSES
        },
        "axes": {"batch_size": list(BATCHES)},
        "data": "digits-lt",
        "folds": FOLDS,
        "seeds": list(range(-(-trials // (FOLDS * len(BATCHES) * len(LOSSES))))),
        "metric": "f1_macro",
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def measured(*words: str) -> dict[str, float]:
    """Seconds, processor seconds and most memory in MB of one `contrasweep` command, without the processes that it
    starts."""
    began, peak, spent = time.perf_counter(), 0, 0.0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([sys.executable, "-m", "contrasweep", *words], stdout=said, stderr=said)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                peak = max(peak, watched.memory_info().rss)
                spent = sum(watched.cpu_times()[:2])
            except psutil.Error:  # it has ended just now
                pass
            time.sleep(SAMPLE_S)
        if process.returncode:
            said.seek(0)
            raise SystemExit(said.read())
    return {"s": time.perf_counter() - began, "processor s": spent, "MB": peak / 1e6}


def asked(uri: str) -> dict[str, float]:
    """Seconds in which MLflow's server gives 100 trials: the best, the best of an arm, and in a setting's order."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(NAME).experiment_id
    best = "metrics.f1_macro DESC"
    questions = {
        "the best": ("", best),
        "the best of an arm": ("params.arm = 'sincere' and metrics.f1_macro > 0.5", best),
        "by batch size": ("", "params.batch_size ASC"),
    }
    found = {}
    for name, (condition, order) in questions.items():
        began = time.perf_counter()
        assert client.search_runs([experiment], condition, order_by=[order], max_results=100), name
        found[name] = time.perf_counter() - began
    return found


async def shown(uri: str, picture: Path) -> dict[str, float]:
    """Seconds until MLflow's page of the study lists trials in Chromium, and how many rows it has then."""
    from mlflow import MlflowClient

    experiment = MlflowClient(uri).get_experiment_by_name(NAME).experiment_id
    async with browser() as page:
        began = time.perf_counter()
        await page.open(f"{uri}/{study_page(experiment)}")
        while (rows := await page.js("document.querySelectorAll('[role=row]').length")) < len(LOSSES):
            if time.perf_counter() - began > SHOWN_S:
                raise SystemExit(f"MLflow's page lists no trial after {SHOWN_S:g} s")
            await asyncio.sleep(SAMPLE_S)
        seconds = time.perf_counter() - began
        await asyncio.sleep(5)  # its charts
        await page.picture(picture)
    return {"s": seconds, "rows": float(rows)}


def end_to_end(folder: Path, trials: int, epochs: int) -> dict[str, dict[str, float]]:
    """All figures, by what was done."""
    study, storage, database = study_file(folder, trials, epochs), str(folder / "storage"), folder / "mlflow.db"
    run = ("run", str(study), "--storage", storage, "--tracking", f"sqlite:///{database}")
    found = {"run": measured(*run)}
    for kind in ("text", "html", "csv"):
        report = ("report", NAME, "--storage", storage, "--format", kind, "--output", str(folder / f"report.{kind}"))
        found[f"report, {kind}"] = measured(*report)
    found["run again"] = measured(*run)
    with mlflow_server(f"sqlite:///{database}", str(folder / "artifacts"), folder) as server:
        found |= {f"MLflow, {what}": {"s": seconds} for what, seconds in asked(server.uri).items()}
        if chromium():
            found["MLflow's page"] = asyncio.run(shown(server.uri, folder / "page.png"))
    files = [path.stat() for path in Path(storage).rglob("*") if path.is_file()]
    found["storage"] = {"MB": sum(file.st_blocks for file in files) * 512 / 1e6, "files": float(len(files))}
    found["MLflow's database"] = {"MB": database.stat().st_size / 1e6}
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """As Markdown."""
    columns = list(dict.fromkeys(name for row in found.values() for name in row))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for what, row in found.items():
        lines.append(f"| {what} | {' | '.join(f'{row[name]:.4g}' if name in row else '' for name in columns)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="leave everything in this folder, which must not be there")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    if options.keep:
        options.keep.mkdir(parents=True)
    place: Any = nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory()
    with place as folder:
        found = end_to_end(Path(folder), options.trials, options.epochs)
    head = (
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before; "
        f"{options.trials} trials of {options.epochs} epochs; `python -m benchmarks.end_to_end`."
    )
    print(json.dumps(found))
    text = f"{head}\n\n{table(found)}\n"
    print(text)
    if options.output:
        with options.output.open("a") as file:
            file.write(f"{text}\n")


if __name__ == "__main__":
    main()
