"""A study's `labels` stand wherever people read: tables, verdicts, reports, a run; data keep the declared names."""

import io
import json
import re
import time
from dataclasses import asdict

import pytest
from command_line import contrasweep, printed, shown_json
from made_up import declared
from rich.console import Console
from toy import train

import contrasweep as cs
from contrasweep.cli.reports import summary
from contrasweep.live.displays import View
from contrasweep.live.state import LIVE, LIVE_FILE, ArmState, RunningTrial, RunState, progress_line
from contrasweep.reporting import html_report, report_data, write_report
from contrasweep.results.rendering import DisplayNames, display_names
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords

LABELS = {
    "scl": "SupCon [1]",
    "ocl": "OCL (ours)",
    "lr": "learning rate",
    "0.2": "a fifth",
    "accuracy": "Top-1",
}
LABELS |= {"digits-lt": "long-tailed digits"}
DECLARED = re.compile(r"\b(scl|ocl|lr|accuracy)\b")


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """Two arms, two learning rates, three seeds, with made-up values."""
    folder = str(tmp_path_factory.mktemp("named"))
    arms = {"scl": cs.Arm(train), "ocl": cs.Arm(train)}
    axes = {"lr": [0.1, 0.2]}
    grid = cs.AblationGrid(
        "named", arms, "digits-lt", axes=axes, seeds=[0, 1, 2], reference="scl", labels=LABELS
    )
    plan, records = declared(cs.plan(grid, storage=folder), folder)
    for trial in plan.trials:
        value = (
            0.5 + 0.2 * (trial.arm == "ocl") + 0.1 * (trial.config["lr"] == 0.2) + 0.01 * trial.seed
        )
        records.write_metrics(
            trial.id, [{"step": s, "time": 1.0, "accuracy": value * s / 2} for s in (1, 2)]
        )
        records.write(
            Record.of(
                trial, status=Status.DONE, metrics={"accuracy": value}, step=2, ended=time.time()
            )
        )
    return folder


@pytest.mark.parametrize("format", ["text", "markdown", "latex"])
def test_tables_and_verdicts_show_display_names(storage, format):
    results = cs.load("named", storage=storage)
    one_cell = results.versus("ocl", "scl", at={"lr": 0.2})
    for shown in (
        results.table(),
        results.table("arm", "lr"),
        results.versus("ocl", "scl"),
        one_cell,
    ):
        text = getattr(shown, f"to_{format}")().replace(r"\cmidrule(lr)", "")
        assert not DECLARED.search(text), text
        assert "OCL (ours)" in text and "Top-1" in text and "SupCon" in text
        where = ", learning rate a fifth" if shown is one_cell else ""
        assert f"named on long-tailed digits{where}: Top-1" in text
    own = results.table(style=cs.TableStyle(names=DisplayNames({"ocl": "mine"})))
    text = getattr(own, f"to_{format}")()
    assert "mine" in text and "OCL (ours)" not in text and "Top-1" in text


def test_display_names_are_taken_where_declared_names_are(storage, tmp_path):
    compared = ("compare", "named", "--storage", storage)
    declared = printed(tmp_path, *compared, "ocl", "scl", "--metric", "accuracy", "--at", "lr=0.2")
    words = ("OCL (ours)", "SupCon [1]", "--metric", "Top-1", "--at", "learning rate=a fifth")
    assert printed(tmp_path, *compared, *words) == declared
    results = cs.load("named", storage=storage)
    shown = results.table("arm", "learning rate", "Top-1")
    assert str(shown) == str(results.table("arm", "lr", "accuracy"))
    assert len(results.at(results.frame, {"learning rate": "a fifth"})) == 6
    assert printed(tmp_path, "diff", "named:OCL (ours)", "named:ocl", "--storage", storage)


def test_the_report_shows_display_names(storage):
    results = cs.load("named", storage=storage)
    html = html_report(report_data(results, results.table()))
    main = html[html.index("<header") : html.index("<script>")]
    shown = re.sub(
        r'<section id="again">.*?</section>', "", main, flags=re.S
    )  # commands and the declaration
    assert not DECLARED.search(re.sub("<[^>]*>", "", shown))
    assert 'data-name="OCL (ours)"' in html and "learning rate" in html and "a fifth" in html


@pytest.mark.parametrize("format", ["text", "markdown", "latex"])
def test_a_table_for_a_paper_shows_display_names_in_its_legend_and_verdicts_too(
    storage, format, tmp_path
):
    results = cs.load("named", storage=storage)
    write_report(results, format, output=tmp_path / "table", style=cs.TableStyle(percent=True))
    text = (tmp_path / "table").read_text().replace(r"\cmidrule(lr)", "")
    assert not DECLARED.search(text), text
    assert "OCL (ours)" in text and "SupCon" in text
    assert "in percent; the verdicts are not" in " ".join(text.split()).lower()
    with_caption = cs.TableStyle(percent=True, caption="A caption.")
    write_report(results, format, output=tmp_path / "table", style=with_caption)
    assert "the verdicts are not" not in " ".join((tmp_path / "table").read_text().split())


def test_data_keep_the_declared_names(storage, tmp_path):
    results = cs.load("named", storage=storage)
    assert set(results.table().to_frame()["arm"]) == {"scl", "ocl"}
    assert {"lr", "accuracy"} <= set(results.to_frame())
    shown = printed(tmp_path, "report", "named", "--storage", storage, "--json")
    arms = {row["factors"]["arm"] for row in json.loads(shown)["table"]}
    assert arms == {"scl", "ocl"} and "OCL (ours)" not in shown
    by_arm = results.table("arm", [])
    assert summary(results, by_arm)["table"] == by_arm.to_rows() != results.table().to_rows()
    text = printed(tmp_path, "report", "named", "--storage", storage)
    assert "OCL (ours) against SupCon [1] is undecided" in text


def test_a_run_is_shown_with_display_names(storage, tmp_path):
    now = time.time()
    running = {"t": RunningTrial("t", "ocl", {"lr": "0.2"}, None, 0, now, 3, 9, 0.5, now)}
    arms = {"ocl": ArmState(1, 2, 1, 0.7, 0.7, "learning rate=a fifth seed=0")}
    state = RunState(
        "named", "accuracy", "max", storage, 2, 0, 1, now, running=running, arms=arms, labels=LABELS
    )
    for width in (80, 200):
        console = Console(file=io.StringIO(), width=width, height=40)
        console.print(View(state))
        text = console.file.getvalue()
        assert "OCL (ours)" in text and "Top-1" in text and "a fifth" in text
        assert not DECLARED.search(text), text
    assert progress_line(state).endswith("best Top-1 0.7: OCL (ours) learning rate=a fifth seed=0")
    LIVE_FILE.write(StudyRecords(storage, "named").store, f"named/{LIVE}", asdict(state))
    seen = contrasweep("watch", "named", "--storage", storage, "--once", folder=tmp_path)
    assert "Top-1 0.5 of OCL (ours) at step 3" in seen.stderr
    shown = shown_json(tmp_path, "watch", "named", "--storage", storage)["run"]
    assert shown["metric"] == "accuracy" and shown["running"]["t"]["arm"] == "ocl"
    assert "Top-1 0.82 (OCL (ours))" in printed(tmp_path, "status", "named", "--storage", storage)


def test_what_would_be_shown_alike_keeps_its_declared_name():
    names = display_names({"a": "Ours", "b": "Ours", "c": "d"}, ["a", "b", "c", "d"])
    assert [names(word) for word in "abcde"] == ["Ours (a)", "Ours (b)", "d (c)", "d", "e"]
