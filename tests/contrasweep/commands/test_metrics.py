"""Metrics of a command where it leaves them: lines for us, its output, the files of other programs."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from folders import make_files
from refusals import refused

from contrasweep import SpecError
from contrasweep.commands import files
from contrasweep.commands.metrics import Metrics, Pattern
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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("not json", "a line of metrics is a JSON object, got 'not json'"),
        ("[1]", "a line of metrics is a JSON object, got [1]; for example"),
        ('{"step": 1, "step": 2}', "the key 'step' stands twice"),
        ('{"step": 1, "checkpoint": "nowhere"}', "names a file that is not there, got 'nowhere'"),
        ('{"step": 1, "checkpoint": "lines.jsonl"}', "a checkpoint is a folder, got 'lines.json"),
        ('{"step": -1}', "steps count up from 0, got -1; 0 was before; leave out what begins anew"),
        ('{"step": 1, "artifacts": ["a"]}', "artifacts are a JSON object, got ['a']"),
        ('{"step": 1, "items": [0.5]}', "items are a JSON object, got [0.5]"),
    ],
)
def test_a_broken_line_of_metrics_says_which(line, says, tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.file.write_text('{"step": 0}\n' + line + "\n")
    reports = metrics.reports()
    next(reports)
    with refused(SpecError, says, begins="CONTRASWEEP_METRICS, line 2: "):
        next(reports)


def test_a_checkpoint_that_a_line_of_output_names_and_is_not_there_is_said_of_metrics(tmp_path):
    metrics = metrics_of(tmp_path, r"acc (?P<accuracy>\S+) in (?P<checkpoint>\S+)")
    with refused(SpecError, begins="metrics: a row of metrics names a file that is not there"):
        list(metrics.reports(["acc 0.5 in nowhere"]))


def test_half_a_line_waits_for_its_rest_and_counts_as_the_command_ends(tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.file.write_text('{"step": 1, "accuracy": 0.5}\n{"step": 2, "accuracy"')
    assert [report.metrics for report in metrics.reports()] == [{"accuracy": 0.5}]
    with metrics.file.open("a") as file:
        file.write(": 0.75}")
    assert list(metrics.reports()) == []
    assert ended(metrics) == [(2, {"accuracy": 0.75})]


def test_steps_are_taken_as_scripts_write_them(tmp_path):
    metrics = metrics_of(tmp_path)
    lines = [
        {"accuracy": 0.1},
        {"step": 2.0, "accuracy": 0.2},
        {"step": 2, "loss": 3},
        {"step": 2, "accuracy": 0.4},
    ]
    metrics.file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ended(metrics) == [(1, {"accuracy": 0.1}), (2, {"accuracy": 0.4, "loss": 3})]


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


def test_a_step_of_output_that_begins_anew_is_refused_in_words(tmp_path):
    metrics = metrics_of(tmp_path, "[{epoch}][{step}] loss {loss}")
    with refused(SpecError, begins="metrics: steps count up from 0, got 0; 1 was before"):
        list(metrics.reports(["[0][0] loss 3", "[0][1] loss 2", "[1][0] loss 1"]))


def test_what_is_no_number_is_left_out_with_one_warning(tmp_path, caplog):
    metrics = metrics_of(tmp_path)
    metrics.file.write_text(
        '{"step": 1, "a": 1, "matrix": [[1]], "note": "x"}\n{"step": 2, "a": 2, "matrix": [[2]], "time": 5}\n'
    )
    assert ended(metrics) == [(1, {"a": 1}), (2, {"a": 2})]
    assert [record.args[0] for record in caplog.records] == ["matrix", "note", "time"]


@pytest.mark.parametrize(
    ("pattern", "line", "row"),
    [
        (
            "loss: {loss:f} acc: {accuracy:f}",
            "step 3  loss:  1.5e-3 acc: 97.25%",
            {"loss": 0.0015, "accuracy": 97.25},
        ),
        (
            "Train: [{epoch:d}][{_}]{_}loss {_} ({loss:f})",
            "Train: [2][10/80]\tBT 0.1 (0.2)\tloss 5.10 (4.80)",
            {"epoch": 2, "loss": 4.8},
        ),
        ("loss {loss}", "loss 1,234.5", {"loss": 1234.5}),
        ("E {epoch:>3d} loss {loss:.4f}", "E   3 loss 0.1234", {"epoch": 3, "loss": 0.1234}),
        ('{"loss": {loss}, "a": 1}', '{"loss": 0.5, "a": 1}', {"loss": 0.5}),
        ("loss {loss}", "loss 3, done", {"loss": 3}),
        ("loss {loss}", "loss 0,87", {"loss": "0,87"}),
        ("loss {loss}.", "loss -Infinity.", {"loss": -float("inf")}),
        (
            r"(?P<loss>\S+) in (?P<checkpoint>\S+)",
            "3 in lr=0.1,bs=2",
            {"loss": 3, "checkpoint": "lr=0.1,bs=2"},
        ),
        (r"(?P<loss>\S+) in (?P<checkpoint>\S+)", "3 in 10", {"loss": 3, "checkpoint": "10"}),
        (
            "epoch {epoch}/{_} saved {checkpoint}, acc {acc:f}",
            "epoch 3/9 saved a/ep=3,lr=0.1.pt, acc 0.5",
            {"epoch": 3, "checkpoint": "a/ep=3,lr=0.1.pt", "acc": 0.5},
        ),
        (
            r"(?P<accuracy>0\.\d+) on (?P<part>\w+)",
            "0.75 on test",
            {"accuracy": 0.75, "part": "test"},
        ),
        (
            "val/acc {val/acc} (best {best})",
            "val/acc -1 (best NAN)",
            {"val/acc": -1, "best": pytest.approx(float("nan"), nan_ok=True)},
        ),
    ],
)
def test_a_pattern_reads_a_line_of_output(pattern, line, row):
    assert Pattern(pattern).row("nothing of this") is None
    assert Pattern(pattern).row(line) == {"line": 1, **row}


def test_lines_of_two_patterns_are_steps_by_their_number(tmp_path):
    metrics = metrics_of(tmp_path, "train loss {loss}", "test accuracy {accuracy}")
    output = [
        "train loss 3",
        "test accuracy 0.1",
        "something else",
        "train loss 2",
        "test accuracy 0.2",
    ]
    assert ended(metrics, output) == [
        (1, {"loss": 3, "accuracy": 0.1}),
        (2, {"loss": 2, "accuracy": 0.2}),
    ]


def test_a_pattern_that_matches_no_printed_line_is_said(tmp_path, caplog):
    metrics = metrics_of(tmp_path, "loss {loss}", "lost {lost}")
    list(metrics.reports(["loss 3"]))
    assert not caplog.records
    ended(metrics, ["done"])
    assert [r.getMessage() for r in caplog.records] == [
        "metrics: 'lost {lost}' matches none of 2 printed lines"
    ]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("loss: (?P<loss>", "metrics: a pattern is a regular expression"),
        ("{_}", "metrics: a pattern names a metric"),
        ("{loss} ({loss})", "metrics: a pattern names a metric, and each one once, got '{loss} ("),
        ("log.md", "metrics: metrics are read from output or from files, got 'log.md'"),
    ],
)
def test_a_source_of_metrics_that_cannot_be_read_is_refused(source, says):
    from contrasweep import Arm

    with refused(SpecError, begins=says):
        Arm(command=["python", "x.py"], metrics=source)


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


def test_a_number_that_two_runs_have_otherwise_is_left_out(tmp_path, caplog):
    for part, accuracies in (("test", "0.1\n0.2"), ("train", "0.1\n0.9")):
        (tmp_path / part).mkdir()
        (tmp_path / part / "log.csv").write_text(
            f"accuracy,{part}_loss\n" + accuracies.replace("\n", ",1\n") + ",2\n"
        )
    metrics = metrics_of(tmp_path, "log.csv")
    losses = [(step, {"test_loss": step, "train_loss": step}) for step in (1, 2)]
    assert next(metrics.reports()).step == 1 and ended(metrics) == losses[1:]
    assert [record.args[0] for record in caplog.records] == ["accuracy"]


def test_rows_without_a_step_are_numbered_in_their_own_file_and_names_are_stripped(tmp_path):
    metrics = metrics_of(tmp_path, "train.csv", "test.csv")
    make_files(
        tmp_path, {"train.csv": "loss, rate\n3, 0.1\n2, 0.1\n", "test.csv": "accuracy\n0.1\n0.2\n"}
    )
    assert ended(metrics) == [
        (1, {"loss": 3, "rate": 0.1, "accuracy": 0.1}),
        (2, {"loss": 2, "rate": 0.1, "accuracy": 0.2}),
    ]


PROGRAMS = {
    "lightning": (6, 23, {"train_loss": 0.3460704982280731, "val_acc": 0.90625, "epoch": 2}),
    "hf": (
        4,
        8,
        {"eval_accuracy": 0.640625, "loss": 0.5800255537033081, "train_loss": 0.6320415139198303},
    ),
    "tb": (3, 2, {"loss/train": pytest.approx(1 / 3 + 0.1), "acc": pytest.approx(0.7)}),
    "wandb": (3, 2, {"loss": pytest.approx(1 / 3 + 0.1), "val.acc": 0.7, "best": 0.9}),
}
"""Folder of files -> the number of reports, the last step, and metrics of the last report as the program printed."""


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


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_program_has_left_is_found_and_said(program, left, caplog):
    metrics = metrics_of(left(program))
    assert list(metrics.reports()) == []
    rows = ended(metrics)
    number, step, last = PROGRAMS[program]
    assert (len(rows), rows[-1][0]) == (number, step)
    assert {name: rows[-1][1][name] for name in last} == last
    (said,) = [
        record.getMessage() for record in caplog.records if "read from" in record.getMessage()
    ]
    assert said.startswith("metrics are read from ")


TABLE = "epoch,accuracy\n1,0.1\n2,0.3\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.csv", "\ufeff" + TABLE),
        ("train/summary.csv", TABLE.replace(",", ";")),
        ("metrics.json", '{"epoch": 1, "accuracy": 0.1}\n{"epoch": 2, "accuracy": 0.3}\n'),
        ("log.txt", '{"epoch": 1, "accuracy": 0.1, "cm": [[1]]}\n{"epoch": 2, "accuracy": 0.3}\n'),
        ("results.json", '[{"accuracy": 0.1}, {"accuracy": 0.3, "best": {"epoch": 2}}]'),
    ],
)
def test_a_file_that_is_named_is_read_in_the_forms_that_programs_write(name, text, tmp_path):
    make_files(tmp_path, {name: text})
    assert ended(metrics_of(tmp_path, Path(name).name)) == [
        (1, {"accuracy": 0.1}),
        (2, {"accuracy": 0.3}),
    ]


@pytest.mark.parametrize(
    ("program", "source"), [("tb", "tb"), ("wandb", "wandb"), ("hf", "all_results.json")]
)
def test_a_folder_or_file_that_is_named_is_read(program, source, left, tmp_path):
    left(program)
    rows = ended(metrics_of(tmp_path, source))
    assert (
        rows[-1][1].items()
        >= {k: v for k, v in PROGRAMS[program][2].items() if "loss" not in k}.items()
    )


def test_metrics_in_several_places_are_asked_for(left, tmp_path):
    for program in ("lightning", "tb"):
        left(program)
    with refused(
        SpecError, "metrics: the command has left metrics in several places, got"
    ) as caught:
        ended(metrics_of(tmp_path))
    assert caught.value.value == ["lightning/metrics.csv", "tb/events.out.tfevents.1"]


def test_a_file_of_a_name_that_tells_no_kind_is_refused(tmp_path):
    (tmp_path / "results").write_text("accuracy: 0.5")
    with refused(SpecError, "metrics: a file of metrics is CSV, ", " by its name, got 'results'"):
        ended(metrics_of(tmp_path, "results"))


def test_files_that_are_half_written_are_read_as_far_as_they_are_whole(left, tmp_path):
    for program, name in (("tb", "events.out.tfevents.1"), ("wandb", "run-1.wandb")):
        file = left(program) / name
        whole = file.read_bytes()
        counts = []
        for length in range(0, len(whole), 37):
            file.write_bytes(whole[:length])
            counts.append(len(list(files.read(file))))
        assert counts == sorted(counts) and counts[0] == 0 and counts[-1] >= 3
