"""Metrics of a command where it leaves them: lines for us, its output, the files of other programs."""

import gzip
import shutil
from pathlib import Path

import pytest
from refusals import refused

from contrasweep import SpecError
from contrasweep.commands import files
from contrasweep.commands.metrics import Metrics
from contrasweep.trial import RevisedReport

FILES = Path(__file__).parent / "files"
"""Written by Lightning 2.6, transformers 5.24, torch's SummaryWriter and wandb 0.31 in short trainings."""


def metrics_of(folder, *sources):
    return Metrics(sources, folder, folder / "lines.jsonl", folder)


def ended(metrics, output=()):
    """What is reported as the command ends; a revised report takes the place of the one before."""
    rows = []
    for report in metrics.reports(output, ended=True):
        rows = rows[:-1] if isinstance(report, RevisedReport) else rows
        rows.append((report.step, dict(report.metrics)))
    return rows


def test_half_a_line_waits_for_its_rest_and_counts_as_the_command_ends(tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.file.write_text('{"step": 1, "accuracy": 0.5}\n{"step": 2, "accuracy"')
    assert [report.metrics for report in metrics.reports()] == [{"accuracy": 0.5}]
    with metrics.file.open("a") as file:
        file.write(": 0.75}")
    assert list(metrics.reports()) == []
    assert ended(metrics) == [(2, {"accuracy": 0.75})]


@pytest.mark.parametrize(
    ("sources", "lines", "output", "log"),
    [
        ([], '{"accuracy": 0.3}\n', [], ""),
        (["acc {accuracy}"], "", ["acc 0.3"], ""),
        (["log.csv"], "", [], "epoch,accuracy\n1,0.1\n2,0.2\n3,0.3\n"),
        (["log.csv"], "", [], "accuracy\n0.3\n"),
    ],
    ids=["lines", "output", "a file with its history", "a file without steps"],
)
def test_rows_of_a_resumed_command_count_on_from_its_checkpoint(
    sources, lines, output, log, tmp_path
):
    first = metrics_of(tmp_path)
    (tmp_path / "saved").mkdir()
    first.file.write_text('{"loss": 1}\n{"accuracy": 0.2, "checkpoint": "saved"}\n')
    reports = first.reports()
    next(reports)
    resumed = shutil.copytree(next(reports).checkpoint, tmp_path / "resumed")
    folder = tmp_path / "again"
    folder.mkdir()
    (folder / "log.csv").write_text(log)
    metrics = Metrics(sources, folder, folder / "lines.jsonl", folder, resumed)
    metrics.file.write_text(lines)
    assert ended(metrics, output) == [(3, {"accuracy": 0.3})]


def test_lines_of_metrics_that_are_gone_are_missed_and_a_file_may_begin_anew(tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.file.unlink()
    assert list(metrics.reports()) == []
    metrics.file.write_text('{"step": 10}\n')
    assert len(list(metrics.reports())) == 1
    metrics.file.write_text('{"step":2}\n')
    with refused(SpecError, begins="CONTRASWEEP_METRICS: lines of metrics are appended, got"):
        list(metrics.reports())


def test_a_file_is_read_as_it_grows_but_for_its_newest_step(tmp_path, monkeypatch):
    monkeypatch.setattr("contrasweep.commands.metrics.READ_EVERY_S", 0.0)
    metrics = metrics_of(tmp_path, "metrics.csv")
    assert list(metrics.reports()) == []
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs/metrics.csv"
    file.write_text("step,loss,accuracy\n19,0.5,\n9,1.0,\n9,,0.5\n")
    assert [(report.step, report.metrics) for report in metrics.reports()] == [
        (9, {"loss": 1.0, "accuracy": 0.5})
    ]
    with file.open("a") as opened:
        opened.write("29,0.25,\n")
    # The last report has what was last said of each metric, as the study's must be in it.
    assert ended(metrics) == [(19, {"loss": 0.5}), (29, {"loss": 0.25, "accuracy": 0.5})]


@pytest.fixture
def left(tmp_path):
    """A folder with what one of the programs has left there."""

    def copy(program):
        folder = shutil.copytree(FILES / program, tmp_path / program)
        for packed in folder.rglob("*.gz"):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
            packed.unlink()
        return folder

    return copy


def test_files_that_are_half_written_are_read_as_far_as_they_are_whole(left, tmp_path):
    for program, name in (("tb", "events.out.tfevents.1"), ("wandb", "run-1.wandb")):
        file = left(program) / name
        whole = file.read_bytes()
        counts = []
        for length in range(0, len(whole), 37):
            file.write_bytes(whole[:length])
            counts.append(len(list(files.read(file))))
        assert counts == sorted(counts) and counts[0] == 0 and counts[-1] >= 3
