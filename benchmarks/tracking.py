"""What tracking costs and loses: MLflow on PostgreSQL with S3 artifacts, killed for a minute under 8 trials.

    python -m benchmarks.tracking outage --seconds 60       # needs PostgreSQL and moto
    python -m benchmarks.tracking drivers --trials 10000    # eight drivers at once on PostgreSQL
    python -m benchmarks.tracking scale --trials 1000       # sync of many trials, and the plain client beside it
    python -m benchmarks.tracking local --trials 300        # a local sqlite file: a transaction a call, or for many

The trials' metrics are made up here (a decaying curve): what is measured is the way they take, not learning.
"""

import argparse
import json
import logging
import multiprocessing
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
import unittest.mock
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.tracking_services import (
    S3_ENV,
    MlflowServer,
    mlflow_server,
    postgres,
    postgres_missing,
    s3_server,
    wait_until,
)
from contrasweep.data.manifest import Manifest
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking import MlflowTracker, TrackedStudy, sync
from contrasweep.tracking.mlflow import writer
from contrasweep.tracking.mlflow.transaction import in_transactions
from contrasweep.tracking.mlflow.whole_runs import RunInserter
from contrasweep.trial import Trial

RESULTS = Path(__file__).parent / "results"
DATA = Manifest("synthetic-metrics", "", "image", {}, source={"synthetic": True})
METRICS = ("loss", "accuracy", "f1_macro", "lr")


class Driver:
    """One driver process in miniature: `slots` threads train stand-in trials and tell one tracker."""

    def __init__(self, uri: str, name: str, storage: str, slots: int, steps: int, period_s: float) -> None:
        self.trials = [
            Trial(name, f"arm{i % 2}", "benchmarks:stand_in", {"lr": 0.1 * i}, DATA, seed=i) for i in range(slots)
        ]
        self.records = StudyRecords(storage, name)
        self.tracked = TrackedStudy.of(name, self.trials, metric="accuracy", storage=storage)
        self.tracker = MlflowTracker(uri, self.tracked, self.records)
        self.waits: list[tuple[float, float]] = []  # (when, how long the trial waited for the tracker, seconds)
        self.steps, self.period_s = steps, period_s
        self._threads = [threading.Thread(target=self._train, args=(trial,)) for trial in self.trials]

    def start(self) -> None:
        """Train, once MLflow shows every trial as running."""
        for trial in self.trials:
            self.tracker.start(trial)
        wait_until(lambda: len(self.tracker.run_ids()) == len(self.trials), "all runs")
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _train(self, trial: Trial) -> None:
        started, rows = time.time(), []
        for step in range(1, self.steps + 1):
            time.sleep(self.period_s)
            row = {name: (i + 1) / step + trial.seed for i, name in enumerate(METRICS)}
            rows.append({"step": step, "time": time.time(), **row})
            self._timed(lambda row=row, step=step: self.tracker.report(trial.id, step, row, rows[-1]["time"]))
        self.records.write_metrics(trial.id, rows)
        artifact = f"step {self.steps}\n".encode()
        self.records.store.write(self.records.key(trial.id, "artifacts/notes.txt"), artifact)
        record = stand_in_record(trial, rows, started, artifacts=("notes.txt",))
        self.records.write(record)
        self._timed(lambda: self.tracker.finish(record))

    def _timed(self, call: Any) -> None:
        before = time.perf_counter()
        call()
        self.waits.append((time.time(), time.perf_counter() - before))


def stand_in_record(trial: Trial, rows: list[dict[str, Any]], started: float, **fields: Any) -> Record:
    return Record.of(
        trial,
        status=Status.DONE,
        rows=rows,
        seconds=time.time() - started,
        started=started,
        ended=time.time(),
        **fields,
    )


def compare(uri: str, records: StudyRecords) -> dict[str, int]:
    """Reports in the records, on the server, missing there, and there twice; runs and artifacts."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(records.study).experiment_id
    runs = [r for r in client.search_runs([experiment], max_results=5000) if "trial_id" in r.data.tags]
    count = dict.fromkeys(("in_records", "on_server", "missing", "twice"), 0)
    for run in runs:
        rows = records.metrics(run.data.tags["trial_id"])
        for key in METRICS:
            want = {(row["step"], row[key]) for row in rows if key in row}
            found = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
            count["in_records"] += len(want)
            count["on_server"] += len(found)
            count["missing"] += len(want - set(found))
            count["twice"] += len(found) - len(set(found))
    artifacts = sum(len(client.list_artifacts(run.info.run_id)) for run in runs)
    return {"runs": len(runs), **count, "artifacts": artifacts}


def outage(
    server: MlflowServer,
    storage: str,
    *,
    drivers: int,
    slots: int,
    steps: int,
    period_s: float,
    down_s: float,
    stay_down: bool,
) -> dict[str, Any]:
    """Kill the server in the middle of training for `down_s`; with `stay_down` until the drivers have closed,
    and `sync` afterwards."""
    name = "outage-sync" if stay_down else "outage"
    running = [Driver(server.uri, f"{name}-{i}", storage, slots, steps, period_s) for i in range(drivers)]
    for driver in running:
        driver.start()
    reports = slots * steps
    wait_until(lambda: all(len(driver.waits) > reports / 4 for driver in running), "a quarter of the reports", 600)
    killed = time.time()
    server.kill()
    restarted = killed
    if not stay_down:
        time.sleep(down_s)
        server.start()
        restarted = time.time()
    for driver in running:
        driver.join()
    trained = time.time()
    gaps = [driver.tracker.close(timeout_s=2 if stay_down else 120) for driver in running]
    closed = time.time()
    summaries = []
    if stay_down:
        time.sleep(max(0.0, down_s - (time.time() - killed)))
        server.start()
        restarted = time.time()
        summaries = [str(sync(driver.records, server.uri, driver.tracked)) for driver in running]
    waits = [wait for driver in running for when, wait in driver.waits if when < killed]
    waits_down = [wait for driver in running for when, wait in driver.waits if killed <= when <= restarted]
    return {
        "server_down_s": round(restarted - killed, 1),
        "reports_while_down": len(waits_down),
        "longest_wait_up_ms": round(1000 * max(waits), 3),
        "longest_wait_down_ms": round(1000 * max(waits_down), 3),
        "median_wait_down_ms": round(1000 * statistics.median(waits_down), 4),
        "close_after_training_s": round(closed - trained, 1),
        "gaps": [str(gap) for gap in gaps if gap],
        "sync": summaries,
        "content": [compare(server.uri, driver.records) for driver in running],
    }


def outage_on_postgres(
    cases: dict[str, bool], down_s: float, *, drivers: int, slots: int, steps: int, workers: int
) -> dict[str, Any]:
    """`outage` on a fresh PostgreSQL, MLflow server and S3 bucket, for each case (name -> stay_down)."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto logs every request
    setting: dict[str, Any] = {"drivers": drivers, "slots": slots, "steps": steps, "period_s": 0.1, "down_s": down_s}
    folder = Path(tempfile.mkdtemp(prefix="contrasweep-outage-"))
    try:
        with postgres() as store, s3_server("artifacts") as endpoint:
            env = {**S3_ENV, "MLFLOW_S3_ENDPOINT_URL": endpoint}
            with mlflow_server(store, "s3://artifacts/mlflow", folder, env=env, workers=workers) as server:
                storage = str(folder / "storage")
                found = {name: outage(server, storage, stay_down=stay, **setting) for name, stay in cases.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"setting": setting | {"server workers": workers}, **found}


def drivers_on_postgres(
    trials: int, seconds: float, *, drivers: int = 8, steps: int = 12, workers: int = 2
) -> dict[str, Any]:
    """So many trials of `steps` reports by drivers that are processes of their own, each with a study; they take
    `seconds` to train all (0: as fast as they can tell of them). What the store has is read from its tables."""
    folder, context = Path(tempfile.mkdtemp(prefix="contrasweep-drivers-")), multiprocessing.get_context("spawn")
    answers = context.Queue()
    try:
        with postgres() as store, mlflow_server(store, f"{folder}/artifacts", folder, workers=workers) as server:
            ready = context.Barrier(drivers)
            given = (trials // drivers, steps, seconds, str(folder / "storage"), server.uri, ready, answers)
            running = [context.Process(target=_drive, args=(f"driver-{i}", *given)) for i in range(drivers)]
            for process in running:
                process.start()
            told = [answers.get() for _ in running]
            for process in running:
                process.join()
            shown = _shown(store)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    count = drivers * (trials // drivers)
    took = max(one["ended"] for one in told) - min(one["began"] for one in told)
    wanted = {(f"driver-{d}", seed) for d in range(drivers) for seed in range(trials // drivers)}
    return {
        "drivers": drivers,
        "server workers": workers,
        "trials": count,
        "reports": count * steps,
        "points": count * steps * len(METRICS),
        "load": round(os.getloadavg()[0], 1),
        "trained_s": round(max(one["trained"] for one in told) - min(one["began"] for one in told), 1),
        "all_shown_s": round(took, 1),
        "runs_per_s": round(count / took, 1),
        "tracker's calls, ms a trial": round(1000 * statistics.fmean(one["call_s"] for one in told), 3),
        "longest call, ms": round(1000 * max(one["longest_s"] for one in told), 1),
        "driver's processor, ms a trial": round(1000 * statistics.fmean(one["processor_s"] for one in told), 1),
        "gaps": [one["gap"] for one in told if one["gap"]],
        "runs": len(shown),
        "runs that lack": len(wanted - shown.keys()),
        "points missing": sum(steps * len(METRICS) - shown.get(one, (0, 0))[0] for one in wanted),
        "points twice": sum(twice for _, twice in shown.values()),
    }


def _drive(
    name: str, trials: int, steps: int, seconds: float, storage: str, uri: str, ready: Any, answers: Any
) -> None:
    """One driver of `drivers_on_postgres`, in its own process."""
    every = [
        Trial(name, f"arm{seed % 4}", "benchmarks:stand_in", {"lr": 0.001 * seed}, DATA, seed=seed)
        for seed in range(trials)
    ]
    records = StudyRecords(storage, name)
    tracker = MlflowTracker(uri, TrackedStudy.of(name, every, metric="accuracy", storage=storage), records)
    ready.wait()
    began, used, calls = time.time(), time.process_time(), []

    def timed(call: Any, *given: Any) -> None:
        before = time.perf_counter()
        call(*given)
        calls.append(time.perf_counter() - before)

    for number, trial in enumerate(every):
        time.sleep(max(0.0, began + seconds * number / trials - time.time()))
        now = time.time()
        rows = [{"step": s, "time": now, **dict.fromkeys(METRICS, 1 / s + trial.seed)} for s in range(1, steps + 1)]
        timed(tracker.start, trial)
        for row in rows:
            timed(tracker.report, trial.id, row["step"], {key: row[key] for key in METRICS}, now)
        records.write_metrics(trial.id, rows)
        record = stand_in_record(trial, rows, now)
        records.write(record)
        timed(tracker.finish, record)
    trained = time.time()
    gap = tracker.close(3600)
    answers.put(
        {
            "began": began,
            "trained": trained,
            "ended": time.time(),
            "gap": str(gap or ""),
            "call_s": sum(calls) / trials,
            "longest_s": max(calls),
            "processor_s": (time.process_time() - used) / trials,
        }
    )


def _shown(store: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(study, seed) -> reported points of its finished run as PostgreSQL has them, and how many are there twice."""
    import psycopg

    query = """
        select study.value, seed.value, count(distinct (m.key, m.step)), count(*) - count(distinct (m.key, m.step))
        from runs join tags study on study.run_uuid = runs.run_uuid and study.key = 'study'
        join tags seed on seed.run_uuid = runs.run_uuid and seed.key = 'seed'
        join metrics m on m.run_uuid = runs.run_uuid and m.key = any(%s)
        where runs.status = 'FINISHED' and runs.lifecycle_stage = 'active'
        group by runs.run_uuid, study.value, seed.value"""
    with psycopg.connect(store) as connection:
        rows = connection.execute(query, [list(METRICS)]).fetchall()
    found = {(study, int(seed)): (points, twice) for study, seed, points, twice in rows}
    assert len(found) == len(rows), "a trial has two runs"
    return found


def scale(trials: int, steps: int = 50) -> dict[str, Any]:
    """Seconds to show `trials` finished trials of 4 metrics x `steps`, again, and after losing a tenth."""
    figures: dict[str, Any] = {"trials": trials, "reports": trials * steps, "points": trials * steps * len(METRICS)}
    folder = Path(tempfile.mkdtemp(prefix="contrasweep-scale-"))
    try:
        records = StudyRecords(str(folder / "storage"), "scale")
        for seed in range(trials):
            trial = Trial(
                "scale",
                f"arm{seed % 4}",
                "benchmarks:stand_in",
                {"lr": 0.001 * (seed % 50), "width": 64},
                DATA,
                seed=seed,
            )
            now = time.time()
            rows = [{"step": s, "time": now, **dict.fromkeys(METRICS, 1 / s + seed)} for s in range(1, steps + 1)]
            records.write_metrics(trial.id, rows)
            records.write(stand_in_record(trial, rows, now))
        with mlflow_server(f"sqlite:///{folder}/server.db", str(folder / "art"), folder) as server:
            for kind, uri in {"sqlite file": f"sqlite:///{folder}/file.db", "server": server.uri}.items():
                figures[kind] = {
                    "plain client, one call a metric, extrapolated": round(_plain(uri, records) * trials, 1),
                    "sync": round(sync(records, uri).seconds, 1),
                    "sync again": round(sync(records, uri).seconds, 2),
                    **compare(uri, records),
                }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def local(trials: int, steps: int = 12) -> dict[str, Any]:
    """Milliseconds a trial of the tracker on a sqlite file, of the wall and of the processor, `steps` reports each:
    with a transaction for each of MLflow's calls, as a client does it, with one for many trials, and with their runs
    inserted whole in these. In turns, twice; the faster counts."""
    plain = TrackedStudy("local")
    with tempfile.TemporaryDirectory(prefix="contrasweep-local-") as scratch:
        MlflowTracker(f"sqlite:///{scratch}/warm.db", plain).close()  # imports
        ways = {
            "a transaction a call": (_one_by_one, False),
            "one for many trials": (in_transactions, False),
            "runs inserted whole": (in_transactions, True),
        }
        rounds = [{name: _local(Path(scratch), trials, steps, *way) for name, way in ways.items()} for _ in range(2)]
    best = {name: {key: min(one[name][key] for one in rounds) for key in rounds[0][name]} for name in ways}
    before, _, after = best.values()
    return {
        "trials": trials,
        "reports": trials * steps,
        "load": round(os.getloadavg()[0], 1),
        **best,
        "ratio": {key: round(before[key] / after[key], 2) for key in before},
    }


def _one_by_one(client: Any, items: list[Any], send: Any) -> Iterator[list[Any]]:
    for item in items:
        send(item)
        yield [item]


def _local(folder: Path, trials: int, steps: int, way: Any, whole: bool) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(dir=folder))
    every = [
        Trial("local", f"arm{i % 4}", "benchmarks:stand_in", {"lr": 0.001 * i}, DATA, seed=i) for i in range(trials)
    ]
    records = StudyRecords(str(folder / "storage"), "local")
    tracked = TrackedStudy.of("local", every, metric="accuracy", storage=records.storage)
    done = []
    for trial in every:
        now = time.time()
        rows = [{"step": s, "time": now + s, **dict.fromkeys(METRICS, 1 / s + trial.seed)} for s in range(1, steps + 1)]
        records.write_metrics(trial.id, rows)
        done.append((trial, rows, stand_in_record(trial, rows, now)))
    of = RunInserter.of if whole else lambda *_: None
    with unittest.mock.patch.object(writer, "in_transactions", way), unittest.mock.patch.object(RunInserter, "of", of):
        uri = f"sqlite:///{folder}/mlflow.db"
        MlflowTracker(uri, tracked, records).close()  # the file, with MLflow's tables
        began, used = time.perf_counter(), time.process_time()
        tracker = MlflowTracker(uri, tracked, records)
        for trial, rows, record in done:
            tracker.start(trial)
            for row in rows:
                tracker.report(trial.id, int(row["step"]), {key: row[key] for key in METRICS}, row["time"])
            tracker.finish(record)
        gap = tracker.close(3600)
    assert gap is None, gap
    return {
        "wall_ms": round(1000 * (time.perf_counter() - began) / trials, 1),
        "processor_ms": round(1000 * (time.process_time() - used) / trials, 1),
    }


def _plain(uri: str, records: StudyRecords, sample: int = 5) -> float:
    """Seconds a trial with MLflow's own calls: start_run, log_param, log_metric."""
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("plain")
    found = list(records.read(sorted(records.finished())[:sample]).values())
    rows = {record.trial_id: records.metrics(record.trial_id) for record in found}
    begun = time.perf_counter()
    for record in found:
        with mlflow.start_run(run_name=record.trial_id):
            for key, value in record.config.items():
                mlflow.log_param(key, value)
            for row in rows[record.trial_id]:
                for name in METRICS:
                    mlflow.log_metric(name, row[name], step=row["step"])
    return (time.perf_counter() - begun) / sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["outage", "drivers", "scale", "local"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args()
    if options.what in ("outage", "drivers") and (reason := postgres_missing()):
        parser.exit(1, f"{reason}\n")
    if options.what == "outage":
        cases = {"server comes back while trials run": False, "server comes back after the drivers": True}
        steps = int((options.seconds + 90) / 0.1)
        figures = outage_on_postgres(cases, options.seconds, drivers=2, slots=8, steps=steps, workers=2)
    elif options.what == "drivers":
        figures = drivers_on_postgres(options.trials, options.seconds)
    else:
        figures = {"scale": scale, "local": local}[options.what](options.trials)
    figures = {"date": date.today().isoformat(), "hardware": f"{platform.machine()}, 2 cores, shared", **figures}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"tracking_{options.what}.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
