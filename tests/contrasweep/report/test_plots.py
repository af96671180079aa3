"""Figures of a study for notebooks and papers, and what a notebook shows of comparisons."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from sweeps import ARMS, finished, sweep

import contrasweep as cs
from contrasweep.errors import SpecError
from contrasweep.planning.planner import plan
from contrasweep.report import render
from contrasweep.running.prepare import study_document
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords

VALUES = {"a": 0.6, "b": 0.7}


@pytest.fixture
def grid(tmp_path) -> cs.Results:
    """Two arms, two values of an axis, three folds, reports of three steps; values are made up."""
    arms = {arm: cs.Arm("toy:train") for arm in VALUES}
    study = cs.AblationGrid("g", arms, "digits-lt", axes={"lr": [0.1, 1.0]}, folds=3)
    planned, records = plan(study, storage=str(tmp_path)), StudyRecords(str(tmp_path), "g")
    records.claim(study_document(planned))
    write_planned(records, planned.to_frame())
    for trial in planned.trials:
        value = VALUES[trial.arm] + 0.1 * trial.config["lr"] + 0.01 * trial.fold
        steps = [{"step": step, "time": float(step), "accuracy": value - 0.1 * (3 - step)} for step in (1, 2, 3)]
        records.write_metrics(trial.id, steps)
        records.write(Record.of(trial, status=Status.DONE, metrics={"accuracy": value}, step=3))
    return cs.load("g", storage=str(tmp_path))


def lines(figure, axes=0):
    return [line for line in figure.axes[axes].lines if len(line.get_xdata())]


def test_curves_are_means_over_replicates_in_a_panel_for_each_cell(grid):
    figure = grid.plot.curves()
    assert isinstance(figure, Figure)
    assert [axes.get_title() for axes in figure.axes] == ["lr 0.1", "lr 1"]
    assert [list(line.get_ydata()) for line in lines(figure)] == [
        pytest.approx([VALUES[arm] + 0.01 + 0.01 - 0.1 * left for left in (2, 1, 0)]) for arm in VALUES
    ]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def test_cells_are_those_of_the_table_with_every_replicate(grid):
    drawn = [y for line in lines(grid.plot.cells()) for y in line.get_ydata()]
    table = grid.table()
    for cell in table.cells.values():
        assert cell.mean in drawn
        assert all(replicate.value in drawn for replicate in cell.replicates)


def test_parallel_coordinates_have_a_line_a_trial(grid):
    coloured = [line for line in lines(grid.plot.parallel()) if len(line.get_xdata()) == 3]  # arm, lr, metric
    assert len(coloured) == 12
    assert max(line.get_ydata()[-1] for line in coloured) == 1.0


def test_a_notebook_gets_an_image_with_pyplot_or_without(grid):
    assert grid.plot.cells()._repr_png_().startswith(b"\x89PNG")
    file = io.BytesIO()
    grid.plot.cells().savefig(file, format="pdf")
    assert file.getvalue().startswith(b"%PDF")


def test_what_cannot_be_drawn_is_said(grid):
    with pytest.raises(SpecError, match=r"plot.importance: importances are of a search"):
        grid.plot.importance()
    with pytest.raises(
        SpecError, match=r"no finished trial reported values of it that change.*did you mean 'accuracy'"
    ):
        grid.plot.curves("acuracy")


def test_importance_says_what_noise_would_show_in_text_frame_json_and_figure(tmp_path):
    from contrasweep.cli.reports import summary

    results, _ = finished(sweep(), tmp_path)
    frame = results.importance()
    assert list(frame["arm"]) == list(ARMS) and set(frame["configurations"]) == {5}
    assert ((frame["share"] > frame["noise"]) == (frame["verdict"] == "matters")).all()
    text = render(results, "text").decode()
    assert all(
        f"{arm}" in text and verdict in text for arm, verdict in zip(frame["arm"], frame["verdict"], strict=True)
    )
    assert summary(results)["importance"][0]["noise"] == frame["noise"].iloc[0]
    figure = results.plot.importance()
    assert [axes.get_title() for axes in figure.axes] == [f"{arm}, 5 configurations" for arm in ARMS]
    assert len(lines(results.plot.parallel())) >= len(results.search)


def test_three_configurations_are_too_few_in_words(tmp_path):
    results, _ = finished(sweep(trials_per_arm=3), tmp_path)
    assert set(results.importance()["verdict"]) == {"too few configurations"}
    assert np.isnan(results.importance()["share"]).all()
    assert "too few configurations" in render(results, "text").decode()
    assert "3 configurations are too few to say" in render(results, "html").decode()


def test_comparisons_show_themselves_in_a_line_and_as_html(grid):
    versus, comparison = grid.versus("a", "b"), grid.compare("a", "b")
    for shown in (versus, comparison):
        assert len(repr(shown)) < 250 and "\n" not in repr(shown)
    assert f"{comparison.difference:+.4g}"[:6] in repr(comparison)
    assert versus._repr_html_().count("<tr>") == 1 + len(versus.pairs)
    assert (
        "<td>undecided</td>" in comparison._repr_html_() or f"<td>{comparison.verdict}</td>" in comparison._repr_html_()
    )
