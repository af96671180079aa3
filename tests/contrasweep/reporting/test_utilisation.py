"""What a study's trials used over time: measured, kept beside their reports, and told to MLflow."""

import time

import pandas as pd
from counting_trial import finish
from reports import report_of

from contrasweep.cluster.usage import Meter
from contrasweep.data.manifest import Manifest
from contrasweep.reporting.page import html_report
from contrasweep.running.worker.execution import Execution
from contrasweep.storage import compact
from contrasweep.storage.study_document import StudyDocument
from contrasweep.tracking.tracker import system_metrics
from contrasweep.trial import Report, Trial

DATA = Manifest("digits", "/nowhere", "image", {})


def test_a_meter_notes_what_is_in_use_every_so_often():
    with Meter(interval_s=0.02, timeline_s=0.05) as meter:
        while len(meter.timeline) < 3:
            time.sleep(0.01)
    first, second, *_ = meter.timeline
    assert 0 <= second["cpu_utilization_percentage"] <= 100
    assert 0.005 < second["process_memory_gib"] < 100
    assert second["time"] - first["time"] >= 0.05
    assert "gpu_memory_gib" not in first or first["gpu_memory_gib"] > 0


def test_it_is_kept_beside_the_reports_and_read_for_all_trials_at_once(records):
    def train(trial, resume=None):
        for step in (1, 2):
            execution.use.meter.timeline.append(
                {"time": time.time(), "process_memory_gib": float(step)}
            )
            yield Report(step, {"accuracy": 0.5})

    trial = Trial("s", "a", "m:train", {}, DATA)
    execution = Execution(trial, train, records, metric="accuracy")
    execution.advance()
    assert [row["process_memory_gib"] for row in records.system(trial.id)] == [1.0]
    finish(execution)
    frame = compact.read_curves(
        records, records.etags(), [trial.id, "another"], [], compact.SYSTEMS
    )
    assert list(frame["process_memory_gib"]) == [1.0, 2.0] and set(frame["trial_id"]) == {trial.id}
    assert records.metrics(trial.id)[0].keys() == {"step", "time", "accuracy"}
    assert system_metrics(records.system(trial.id)[0]) == {"system/process_memory_gib": 1.0}


def test_the_report_names_what_shows_a_failed_trial_s_log():
    frame = pd.DataFrame(
        {
            "trial_id": ["i1"],
            "arm": ["a"],
            "fold": [0],
            "seed": [0],
            "status": ["failed"],
            "cause": [None],
            "error": ["E\nValueError: x"],
        }
    )
    document = StudyDocument(name="s", metric="f1", arms=("a",))
    page = html_report(report_of(frame, document, storage="/runs here"))
    assert "contrasweep logs s i1 --storage &#39;/runs here&#39;" in page
