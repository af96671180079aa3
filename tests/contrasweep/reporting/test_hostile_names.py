"""Names that somebody else wrote into a storage are text: in CSV no formula, in HTML no markup, in TeX no command."""

import csv
import io
import math
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from html import escape
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from made_up import nowhere, train
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from contrasweep import AblationGrid, Arm, SpecError, load
from contrasweep.cli.app import app
from contrasweep.markdown_text import fenced, markdown_text
from contrasweep.planning.grid import make_plan
from contrasweep.reporting import render, write_report
from contrasweep.reporting.figures import Dots, Lines, Series
from contrasweep.reporting.formats import csv_text, inert_cell
from contrasweep.reporting.svg import draw
from contrasweep.results.notes import NOTE_FILE, Note, add_note, read_notes
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.table import TableStyle
from contrasweep.running.prepare import study_document
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.links import LINKS_FILE, read_links
from contrasweep.tracking.mlflow.description import study_note
from contrasweep.tracking.tracker import TrackedStudy

SCRIPT = "<script>alert(1)</script>"
PICTURE = "![x](http://evil/x.png)"
commonmark = MarkdownIt("commonmark").enable("table")
DATA = replace(nowhere(2), name=f'd"{SCRIPT}')


@pytest.fixture
def records(storage):
    """A study whose owner writes what they like into each text that a report shows."""
    grid = AblationGrid(
        "s",
        {"a": Arm(train), "b": Arm(train)},
        "d",
        axes={"kind": [f"{SCRIPT}\nname: x", "=1+1"]},
        folds=2,
    )
    plan = make_plan(grid, lambda name: DATA)
    records = StudyRecords(storage, "s")
    texts = {
        "description": f"x{SCRIPT}\\input{{/etc/passwd}}",
        "commands": (f"contrasweep run {shlex.quote(SCRIPT)}",),
    }
    records.claim(replace(study_document(plan), **texts))
    write_planned(records, plan.to_frame())
    for i, trial in enumerate(plan.trials):
        failed = i == 0
        metrics = {"accuracy": 0.5 + i / 100, f"m{SCRIPT}": 1.0, "collapsed": 1 - i % 2}
        error = f"Traceback\n{SCRIPT}\\end{{table}}" if failed else None
        status = Status.FAILED if failed else Status.DONE
        records.write(
            Record.of(
                trial, status=status, metrics=metrics, error=error, host=f"h{SCRIPT}", ended=10.0
            )
        )
    NOTE_FILE.write(
        records.store,
        "s/notes/0000.json",
        asdict(Note(trial.id, f"\x1b[2J{SCRIPT}\nSupCon is better")),
    )
    add_note(records, PICTURE)
    return records


@pytest.mark.parametrize("format", ["html", "latex", "markdown", "csv", "text", "yaml"])
def test_every_format_shows_hostile_names_as_text(records, format):
    shown = render(load("s", storage=records.storage), format).decode()
    if format == "html":
        assert SCRIPT not in shown and "&lt;script&gt;alert(1)" in shown
        assert not re.search(r"<[^>]*\son\w+=[^>]*alert", shown)
    if format == "latex":
        assert "\\input{/etc" not in shown
        assert "\\end{table}" not in shown.replace("\\end{table}\n", "", 1)
    if format == "csv":
        assert {"'=1+1"} <= {cell for row in csv.reader(io.StringIO(shown)) for cell in row}
    if format == "yaml":
        assert yaml.safe_load(shown)["name"] == "s-best"
        assert "# collapsed: the loss" in shown and "lower the learning rate" in shown
    if format == "markdown":
        assert "<script" not in shown.replace("\\<", "") and PICTURE not in shown
    assert "\x1b" not in shown
    assert ("note on s/" in shown) == (format in ("html", "markdown", "text"))


def test_a_note_is_bounded_and_changes_nothing_else(records):
    def note(*words):
        return (
            CliRunner().invoke(app, ["note", "s", *words, "--storage", records.storage]).exception
        )

    trial = next(iter(records.etags()))
    records.store.write(records.key(trial, "log.txt"), b"")
    others = {key: records.store.read(key) for key in records.store.list("s/")}
    assert note("the  first") is note(trial[:8], "#odd jumps") is None
    assert read_notes(records)[2:] == (("", "the first"), (trial, "#odd jumps"))
    for words in (["x" * 501], [" "], ["nobody", "x"], [trial, "b", "c"]):
        assert isinstance(note(*words), SpecError), words
    assert others == {key: records.store.read(key) for key in others}
    assert len(read_notes(records)) == 4
    with ThreadPoolExecutor() as pool:  # at the same moment
        list(pool.map(lambda text: add_note(records, text), "abcdefgh"))
    assert {text for _, text in read_notes(records)[4:]} == set("abcdefgh")
    records.store.write("s/notes/0000.json", NOTE_FILE.encode({"trial": "", "text": "x" * 501}))
    (told, *_) = load("s", storage=records.storage).notes
    assert told.startswith("left out: ") and "0000.json" in told


@pytest.mark.parametrize("name", [SCRIPT, '"onload="alert(1)', "'><g>"])
def test_every_name_in_a_chart_is_text(name):
    series = Series(name, 0, (1.0, 2.0), (0.1, 0.2), dots=True)
    dots = Dots(name, 0, (1.0,), (0.1,), [name])
    charts = [
        (Lines((series,), (dots,), name, name), 2),
        (Lines((series,), x_label=name, x_names=(name, name)), 1),
    ]
    for chart, named in charts:
        drawn = ElementTree.fromstring(str(draw(chart)))
        assert {e.tag for e in drawn.iter()} <= {
            "svg",
            "g",
            "line",
            "text",
            "path",
            "circle",
            "rect",
            "title",
        }
        assert [e.get("data-name") for e in drawn.iter() if e.get("data-name")] == [name] * named
        assert not any(e.get("onload") for e in drawn.iter())


@pytest.mark.parametrize("format", ["markdown", "latex"])
def test_a_table_for_a_paper_shows_hostile_names_as_text(records, format, tmp_path):
    names = DisplayNames({"a": SCRIPT, "b": "\\input{/etc/passwd}"})
    style = TableStyle(names=names, digits=3, caption=PICTURE if format == "markdown" else "")
    write_report(load("s", storage=records.storage), format, output=tmp_path / "table", style=style)
    shown = (tmp_path / "table").read_text()
    if format == "latex":
        assert "\\input" not in shown
    else:
        html = commonmark.render(shown)
        assert "<img" not in html and "<script" not in html and html.count("&lt;script&gt;") > 1


@pytest.mark.parametrize(
    "text",
    [
        PICTURE,
        "[x][y]",
        "[y]: http://evil",
        SCRIPT,
        "\\<b>",
        "<http://evil>",
        "a|b",
        "a\\|b",
        "<!-- ",
        "a\n# b",
        "*a* **b** 2*3*4 *c",
        "_a_ __b__ (_c_) d__e__f `g` `a|b`",
    ],
)
def test_markdown_shows_hostile_text_letter_by_letter(text):
    html = commonmark.render(f"a {markdown_text(text)} b")
    assert (
        html
        == f"<p>a {escape(' '.join(text.split()), quote=False).replace(chr(34), '&quot;')} b</p>\n"
    )
    table = commonmark.render(f"| head |\n|---|\n| {markdown_text(text)} | cut off |\n")
    assert table.count("<td>") == 1 and "<a" not in table and "<img" not in table
    assert "<script" not in table


def test_the_note_of_a_failed_run_stays_one_block_of_code():
    error = f"Traceback\n````\n{PICTURE}\n```\n{SCRIPT}\n"
    html = commonmark.render(fenced(error))
    assert html.count("<pre>") == 1 and "<img" not in html and "<script" not in html


def test_the_note_of_a_study_in_mlflow_has_no_markup_of_others():
    study = TrackedStudy(
        f"s{PICTURE}", metric=f"m{SCRIPT}", description=f"one\n{PICTURE}", extra={PICTURE: SCRIPT}
    )
    html = commonmark.render(study_note(study, ("#a", "#b")))
    assert "<img" not in html and "<script" not in html
    assert "<td>![x](http://evil/x.png)</td>" in html


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "http://x y", "//x"]
)
def test_a_page_that_is_no_http_is_no_link(records, url):
    trial = sorted(records.finished())[0]
    LINKS_FILE.write(
        records.store, "s/mlflow.json", {"runs": {trial: url}, "study": "", "tracking": ""}
    )
    assert read_links(records).runs == {}
    assert url not in render(load("s", storage=records.storage), "html").decode()


@given(
    st.lists(
        st.one_of(st.text(max_size=8), st.floats(), st.integers(-(2**53), 2**53), st.none()),
        min_size=1,
    )
)
def test_no_cell_is_a_formula_and_numbers_stay_numbers(values):
    for value in values:
        cell = inert_cell(value)
        if isinstance(value, str):
            assert cell == value or cell == f"'{value}"
            assert (
                cell[:1] not in tuple("=+-@\t\r\n")
                or not math.isnan(float(cell) * 0)
                or "nan" in cell
                or "inf" in cell
            )
        else:
            assert cell is value


def test_differences_are_written_as_numbers_are():
    frame = pd.DataFrame({"difference": [-0.5, 1.0], "=cmd|' /C calc'!A0": ["-0.5", "@SUM(A1)"]})
    assert csv_text(frame) == "difference,'=cmd|' /C calc'!A0\n-0.5,-0.5\n1.0,'@SUM(A1)\n"


def test_the_note_of_a_large_study_says_that_mlflow_shows_a_part_of_it():
    assert "**Load more**" in study_note(TrackedStudy("s", metric="m", trials=101), ("", ""))
    assert "Load more" not in study_note(TrackedStudy("s", metric="m", trials=100), ("", ""))
