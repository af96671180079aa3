"""What a report of 10,000 trials costs: to write, from a folder and from S3, and to read in a browser.

    python -m benchmarks.report [--trials 10000] [--s3] [--keep FOLDER]

The numbers in the trials are made up, in the format of real ones: the plan is a real study's on real digits, and
every trial has what `trainables.contrastive` leaves (12 reports of up to 31 metrics, items, a checkpoint, the record).
`nothing compacted` is what a reader waits for who finds single files alone, as a driver leaves them that was killed;
then the study is compacted by the call that a driver makes at its end, and read again. Of S3 the requests are counted
by the server.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.browser import LAPTOP, PHONE, browser, chromium

from contrasweep import AblationGrid, Arm
from contrasweep.code.version import versions
from contrasweep.planning.planner import plan
from contrasweep.running.prepare import study_document
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.compact import compact_finished
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords, encode_items
from contrasweep.trial import Trial

RESULTS = Path(__file__).parent / "results" / "report.md"
ARMS = {"supcon": 0.0, "sincere": 0.002, "ocl": -0.03, "infonce": -0.06}
EPOCHS = 12
EVERY_EPOCH = (
    "loss",
    "grad_norm",
    "learning_rate",
    "nonfinite_steps",
    "valid_anchors",
    "alignment",
    "uniformity",
    "collapse_value",
    "collapse_distance",
    "collapsed",
)
EVALUATED = (
    "accuracy",
    "f1_macro",
    *(f"f1_class_{i}" for i in range(10)),
    "knn1",
    "knn5",
    "target_similarity",
    "noise_similarity",
    "similarity_margin",
    "probe",
    "map_at_r",
    "r_precision",
    "recall_at_1",
    "recall_at_5",
)
ERRORS = (
    'Traceback (most recent call last):\n  File "contrastive.py", line 181, in epoch\nFloatingPointError: every step '
    "of epoch 3 had a loss "
    "or gradient that is not finite: lower learning_rate (0.5) or raise the temperature\n",
    "the trial's worker was lost\n",
)


def study(trials: int) -> AblationGrid:
    """A grid of about `trials` trials: 4 arms x 5 temperatures x 4 batch sizes x 5 folds x the seeds that it needs."""
    train = "contrasweep.trainables.contrastive:train"
    return AblationGrid(
        name="made-up-report",
        description="Made-up numbers in the format of real trials: a benchmark of the report, no result",
        arms={loss: Arm(train, config={"loss": loss, "epochs": EPOCHS}) for loss in ARMS},
        axes={"loss.temperature": [0.05, 0.1, 0.2, 0.5, 1.0], "batch_size": [32, 64, 128, 256]},
        data="digits-lt",
        folds=5,
        seeds=list(range(max(1, trials // 400))),
        metric="f1_macro",
    )


def fill(declared: AblationGrid, storage: str) -> int:
    """Write the files that a run of the study would leave, and return the number of trials."""
    planned = plan(declared, storage=storage)
    records = StudyRecords(storage, declared.name)
    records.claim(study_document(planned))
    write_planned(records, planned.to_frame())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda trial: _leave(records, trial), planned.trials))
    return len(planned.trials)


def _leave(records: StudyRecords, trial: Trial) -> None:
    """One trial's reports, items, checkpoint and record; one in fifty failed, one setting does not fit."""
    rng = np.random.default_rng(int(trial.id[:12], 16))
    infeasible = trial.arm == "infonce" and trial.config["batch_size"] == 256
    failed = not infeasible and rng.uniform() < 0.02
    rows = []
    if not infeasible:
        epochs = EPOCHS // 2 if failed else EPOCHS
        rows = [_row(trial, epoch, rng) for epoch in range(1, epochs + 1)]
    began = 1.79e9 + trial.seed * 60.0
    if rows:
        records.write_metrics(
            trial.id, [{"step": i, "time": began + i, **row} for i, row in enumerate(rows, 1)]
        )
    items: dict[str, Any] = {}
    if rows and not failed:
        items = {name: rng.integers(0, 2, 109) for name in ("knn1", "knn5", "probe")}
        records.write_encoded_items(trial.id, encode_items(items))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.pt").write_bytes(rng.bytes(2048))
            Checkpoints(records.store, records.key(trial.id, "checkpoint")).save(
                Path(folder), EPOCHS
            )
    status = Status.DONE
    error = None
    if failed:
        status = Status.FAILED
        error = ERRORS[int(rng.integers(2))]
    elif infeasible:
        status = Status.INFEASIBLE
        error = "it needs 96 GiB and the largest GPU has 80\n"
    records.write(
        Record.of(
            trial,
            status=status,
            metrics=rows[-1] if rows else {},
            step=len(rows),
            seconds=float(rng.uniform(40, 70)) if rows else 0.0,
            started=began,
            ended=began + 60,
            error=error,
            host=f"node-{trial.seed % 8}",
            gpu_memory_gib=float(rng.uniform(2, 9)),
            gpu_utilisation=float(rng.uniform(0.5, 0.9)),
            items=tuple(items),
            versions=versions(),
        )
    )


def _row(trial: Trial, epoch: int, rng: np.random.Generator) -> dict[str, float]:
    gain = (
        ARMS[trial.arm]
        - 0.01 * abs(np.log2(trial.config["loss"]["temperature"] / 0.2))
        + 0.01 * (trial.fold or 0)
    )
    score = 0.6 + 0.3 * (1 - np.exp(-epoch / 3)) + gain + rng.normal(0, 0.01)
    row = {name: float(1 / epoch + rng.normal(0, 0.02)) for name in EVERY_EPOCH}
    evaluated = epoch % 4 == 0
    return row | (
        {name: float(np.clip(score + rng.normal(0, 0.01), 0, 1)) for name in EVALUATED}
        if evaluated
        else {}
    )


def reports(storage: str, folder: Path, requests: "Requests | None") -> dict[str, float]:
    """Measure `contrasweep report` by format, and compaction: seconds, processor seconds, requests, and the HTML's size
    in MB.
    """
    found = measured("html, nothing compacted", requests, lambda: _report(storage, folder, "html"))
    records = StudyRecords(storage, "made-up-report")
    for key in list(records.store.list("made-up-report/compact/")):
        records.store.delete(key)
    found |= measured("compacting", requests, lambda: compact_finished(records))
    for kind in ("html", "text", "csv"):
        found |= measured(kind, requests, partial(_report, storage, folder, kind))
    found["html, MB"] = round((folder / "report.html").stat().st_size / 1e6, 2)
    found["html, MiB / text, MiB"] = round(found["html, MiB"] / found["text, MiB"], 2)
    return found


def _report(storage: str, folder: Path, kind: str) -> float:
    """Write a report; MiB of memory at most."""
    words = [
        "report",
        "made-up-report",
        "--storage",
        storage,
        "--format",
        kind,
        "--output",
        str(folder / f"report.{kind}"),
    ]
    process = subprocess.Popen([sys.executable, "-m", "contrasweep", *words])
    _, ended, used = os.wait4(process.pid, 0)
    if ended:
        raise SystemExit(f"contrasweep {' '.join(words)} ended with {ended}")
    return used.ru_maxrss / 1024


def measured(
    name: str, requests: "Requests | None", call: Callable[[], float | None]
) -> dict[str, float]:
    """Measure a call: seconds, MiB, processor seconds (with those of children, not of servers), requests."""
    began = time.perf_counter()
    used = _processor()
    asked = dict(requests.counts) if requests else {}
    memory = call()
    found = {f"{name}, s": round(time.perf_counter() - began, 1)}
    if memory is not None:
        found[f"{name}, MiB"] = round(memory)
    if requests is None:
        return found | {f"{name}, processor s": round(_processor() - used, 1)}
    return found | {
        f"{name}, {kind}": count - asked[kind] for kind, count in requests.counts.items()
    }


def _processor() -> float:
    every = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in every)


class Requests(logging.Handler):
    """Counts the requests that a moto server logs."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"listings": 0, "requests": 0}

    def emit(self, record: logging.LogRecord) -> None:
        """Count one request by its method; a listing is known by `list-type=2` in its address."""
        self.counts["listings" if "list-type=2" in record.getMessage() else "requests"] += 1


async def read(page_file: Path) -> dict[str, float]:
    """Milliseconds that a reader waits in a browser, on a laptop, by action; and by how much the page is wider than a
    phone.
    """
    async with browser() as page:
        await page.resize(*LAPTOP)
        found = {"load, ms": 1000 * await page.open(page_file.as_uri())}
        found["DOM nodes"] = await page.js("document.getElementsByTagName('*').length")
        for name, code in INTERACTIONS.items():
            _, found[f"{name}, ms"] = await page.milliseconds(code)
        await page.resize(*PHONE)
        found["wider than a phone, px"] = max(
            0, await page.js("document.documentElement.scrollWidth") - PHONE[0]
        )
    return {name: round(value) for name, value in found.items()}


INTERACTIONS = {
    "hide an arm": "document.querySelector('.key').click()",
    "show it again": "document.querySelector('.key').click()",
    "dark": "document.getElementById('theme').click()",
    "another metric's curves": "const s = document.querySelector('select[data-shows]'); s.selectedIndex = 1; "
    "s.dispatchEvent(new Event('change'))",
    "open a cell": "document.querySelector('.cs-table summary').click()",
    "filter the trials": "const f = document.querySelector('.trials input'); f.value = 'ocl failed'; "
    "f.dispatchEvent(new Event('input'))",
    "sort the trials": "document.querySelector('.trials th:nth-last-child(3)').click()",
    "point at a chart": "const c = document.querySelector('#curves svg'), r = c.getBoundingClientRect(); "
    "c.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: r.x + r.width / 2, clientY: r.y + "
    "r.height / 2}))",
}


@contextlib.contextmanager
def places(kind: str, folder: Path) -> Iterator[tuple[str, Requests | None]]:
    """A storage to measure in, a folder or a bucket of a moto server here, with the counter of its requests (None: a
    folder).
    """
    if kind == "folder":
        yield str(folder / "storage"), None
        return
    from benchmarks.tracking_services import S3_ENV, s3_server

    # moto logs every request
    requests = Requests()
    log = logging.getLogger("werkzeug")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(requests)
    with s3_server("runs") as endpoint:
        os.environ.update(S3_ENV, AWS_ENDPOINT_URL=endpoint)
        yield "s3://runs/studies", requests


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--s3", action="store_true", help="measure from a moto S3 server too")
    parser.add_argument("--keep", type=Path, help="folder to work in, which stays")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="cs-report-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in ["folder", *(["S3 (moto)"] if options.s3 else [])]:
            with places(kind, folder) as (storage, requests):
                fill(study(options.trials), storage)
                found[kind] = reports(storage, folder, requests)
            if chromium() and "Chromium" not in found:
                found["Chromium"] = asyncio.run(read(folder / "report.html"))
            write(found, options.trials)
    print(json.dumps(found, indent=1))


def write(found: dict[str, Any], trials: int) -> None:
    """Write the figures so far to the results page, with date and hardware."""
    lines = [
        f"| {kind} | {name} | {value:g} |"
        for kind, figures in found.items()
        for name, value in figures.items()
    ]
    load = os.getloadavg()[0]
    RESULTS.write_text(
        f"# The report of a big study\n\n{date.today()}, {platform.machine()}, {os.cpu_count()} cores shared with "
        f"others (load {load:.0f}, so read processor "
        f"seconds); {trials} made-up trials\nin the format of real ones; `python -m benchmarks.report --trials "
        f"{trials}{' --s3' if len(found) > 2 else ''}`. "
        "`nothing compacted` is before anything was compacted,\n`compacting` what a driver spends on it in all."
        "\n\n| where | what | found |\n|---|---|---|\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
