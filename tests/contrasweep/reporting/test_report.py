"""The table and the report: what stands in a cell, what is marked, what is said, and that every format holds it."""

import dataclasses
import html.parser
import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from latex import assert_compiles
from reports import report_of

from contrasweep.reporting import html_report
from contrasweep.reporting.figures import Dots, Lines, Series
from contrasweep.reporting.search_notes import SearchNotes
from contrasweep.reporting.svg import draw, ticks
from contrasweep.results.building import DecisionRule, build_table
from contrasweep.statistics.design import Design
from contrasweep.storage.record import DatasetRef
from contrasweep.storage.study_document import DeclaredSearch, StudyDocument

ARMS = {"supcon": 0.0, "sincere": 0.005, "ocl": 0.05}


@pytest.fixture
def frame():
    """3 arms x 2 batch sizes x 5 folds; numbers are made up."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "trial_id": f"{arm}-{batch}-{fold}",
            "arm": arm,
            "batch_size": batch,
            "fold": fold,
            "seed": 0,
            "status": "done",
            "f1_macro": 0.86 + gain + 0.01 * fold + rng.normal(0, 0.004),
            "seconds": 2.0,
            "gpu_memory_gib": 1.5,
        }
        for (arm, gain), batch, fold in itertools.product(ARMS.items(), (4, 8), range(5))
    ]
    return pd.DataFrame(rows)


FOLDS = DecisionRule(Design(folds=5), question="cells")


def table(
    frame, rows=("batch_size",), columns=("arm",), rule=FOLDS, axes=("batch_size",), **options
):
    layout = {"rows": rows, "columns": columns, "axes": axes, "metric": "f1_macro"}
    return build_table(frame, rule=rule, **layout, **options)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_arms_that_tie_stand_in_their_declared_order(frame, mode):
    tied = table(frame.assign(f1_macro=0.5), rule=replace(FOLDS, mode=mode))
    assert {(pair.a, pair.b) for pair in tied.pairs} == set(itertools.combinations(ARMS, 2))
    assert "-0" not in str([pair.seen_from(pair.b).numbers() for pair in tied.pairs])


def test_an_interval_lies_around_its_mean_where_folds_lack_trials(frame):
    more = frame.assign(
        seed=1, f1_macro=frame["f1_macro"] + 0.01, trial_id=frame["trial_id"] + "-1"
    )
    cell = table(pd.concat([frame, more[more["fold"] > 1]])).cells[("4",), ("ocl",)]
    assert (cell.low + cell.high) / 2 == pytest.approx(cell.mean)
    assert cell.over == "8 replicates on 5 folds"


def test_text_fits_a_terminal_of_100_columns(frame):
    lines = table(frame).to_text(100).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(re.search(r"0\.\d+ \[0\.\d+, 0\.\d+\] \*", line) for line in lines)
    wide = table(frame, rows=[], columns=["batch_size", "arm"]).to_text(60)
    assert max(map(len, wide.splitlines())) <= 60 and wide.count("8 ocl") >= 1


def test_latex_compiles(frame, tmp_path):
    frame.loc[frame["arm"] == "sincere", "status"] = "infeasible"
    frame.loc[0, "status"] = "pending"
    greek = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
    awkward = frame.assign(
        arm=frame["arm"].replace("supcon", rf"a_b|c & 50% #1 {{x}} ~^\ <éÅıçőœß中> {greek}"),
        batch_size=frame["batch_size"].map("[{}] 中".format),
    )
    latex = table(awkward, title="study_1\n\none").to_latex()
    assert r"$\sigma$$\tau$" in latex and set(re.findall(r"U\+\w+", latex)) == {"U+4E2D"}
    assert "éÅıçőœß" in latex and r"b$|$c" in latex
    assert r"\toprule" in latex and r"\bottomrule" in latex and r"\bfseries 0." in latex
    assert_compiles(latex, tmp_path)


class _Checker(html.parser.HTMLParser):
    """Collects addresses that a page would fetch, and tags left open."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input", "path", "line", "circle", "rect"})

    def __init__(self):
        super().__init__()
        self.fetched = []
        self.open = []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag != "a":
            self.fetched += [
                v
                for k, v in named.items()
                if k in ("src", "href", "srcset") and not str(v).startswith("data:")
            ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open and self.open.pop() == tag


DOCUMENT = StudyDocument(
    name="small-batches",
    metric="f1_macro",
    mode="max",
    arms=tuple(ARMS),
    axes=("batch_size",),
    folds=5,
    datasets=(DatasetRef("made-up", "ab" * 32, synthetic=True),),
    versions={"torch": "2.15.0"},
    plan_digest="0123456789abcdef",
    commands=("contrasweep run studies:S <x>",),
    search=DeclaredSearch("random", folds=1, budget={}),
)


def source(frame, document=DOCUMENT, **more):
    steps = [
        {"trial_id": t, "step": s, "f1_macro": 0.5 + 0.04 * s, "loss": 1 / s}
        for t in frame["trial_id"][5:]  # the first arm has no curve with the smaller batch
        for s in range(1, 8)
    ]
    return report_of(
        frame,
        document,
        curves=pd.DataFrame(steps),
        links={t: f"http://127.0.0.1:5000/#/runs/{t}" for t in frame["trial_id"]},
        **more,
    )


def test_the_html_report_is_whole_and_asks_nothing_of_the_network(frame):
    frame = frame.assign(error=None, cause=None)
    frame["error"] = frame["error"].astype(object)
    frame.loc[0, ["status", "error"]] = [
        "failed",
        "Traceback ...\nValueError: <script>alert(1)</script>",
    ]
    page = html_report(source(frame))
    checker = _Checker()
    checker.feed(page)
    assert checker.fetched == [] and checker.open == []
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert not re.search(r"url\(|@import|https?://(?!127\.0\.0\.1)", page)
    for section in ("answer", "table", "slices", "curves", "trials", "failures", "again"):
        assert f'<section id="{section}">' in page
    for shown in (
        "synthetic",
        "ab" * 32,
        "0123456789abcdef",
        "2.15.0",
        "contrasweep run studies:S &lt;x&gt;",
        "is better than",
        "#/runs/ocl-4-0",
    ):
        assert shown in page
    assert not re.search(r"[\"> ]nan[\"< ]", page)


def test_a_report_of_a_study_that_has_just_begun(frame):
    begun = frame.assign(status="pending", seconds=np.nan).drop(columns="f1_macro")
    assert "pending" in table(begun).to_text() and table(begun).pairs == ()
    assert "No two arms have finished" in html_report(report_of(begun, DOCUMENT))


def test_ticks_are_round_and_inside():
    assert ticks(0.13, 0.92) == [0.2, 0.4, 0.6, 0.8]
    assert ticks(3, 3) == [3]
    assert ticks(1e-14, 3e-14)[0] == 1e-14


@pytest.mark.parametrize("letters", [30, 90])
def test_a_label_that_is_longer_than_its_chart_is_cut_and_whole_in_its_title(letters):
    name = "y" * letters
    dots = Dots("a", 0, [1.0], [2.0], ["t"])
    drawn = str(draw(Lines((), (dots,), x_label=name, y_label=name, x_names=(name, name))))
    assert (drawn.count(f">{name}</text>"), drawn.count(f"…<title>{name}</title>")) == (
        (4, 0) if letters == 30 else (0, 4)
    )


@pytest.mark.parametrize("ends", [(1e308, 1.7e308), (5e-324, 1e-323), (1.0, 1.79e308)])
def test_a_chart_holds_the_largest_and_the_smallest_numbers(ends):
    drawn = str(draw(Lines((), (Dots("a", 0, ends, ends, ["t"] * 2),))))
    assert "<circle" in drawn and "nan" not in drawn


def test_a_report_of_the_smallest_study(frame):
    """One arm, one seed, one report: no metric has a course, nothing is compared, and nothing of it is an error."""
    one = frame.head(1).drop(columns="batch_size").assign(fold=None)
    steps = pd.DataFrame(
        {"trial_id": one["trial_id"], "step": 1, "f1_macro": one["f1_macro"], "loss": 0.5}
    )
    document = dataclasses.replace(DOCUMENT, axes=(), folds=None, arms=tuple(one["arm"]))
    page = html_report(report_of(one, document, curves=steps))
    assert 'id="table"' in page and 'id="curves"' not in page
    for later in (0.4, 1.79e308):  # the largest would overflow the scale
        with_a_course = html_report(
            report_of(one, document, curves=pd.concat([steps, steps.assign(step=2, loss=later)]))
        )
        assert 'id="curves"' in with_a_course


def test_an_axis_of_any_name_and_a_value_that_counts_as_lost(frame):
    odd = frame.rename(columns={"batch_size": "self"})
    odd.loc[0, "f1_macro"] = 1.79e308
    report = report_of(odd, dataclasses.replace(DOCUMENT, axes=("self",)))
    assert "<svg" in html_report(report) and len(report.done) == len(odd) - 1


def test_no_template_lets_text_become_markup(frame):
    """Names and notes from a user's study, wherever a section shows them."""
    attack = "</script><script>alert(1)</script>\"'&"
    frame = frame.assign(
        arm=frame["arm"] + attack,
        trial_id=frame["trial_id"] + attack,
        cause=None,
        error=None,
    ).rename(columns={"batch_size": attack})
    frame["error"] = frame["error"].astype(object)
    frame.loc[0, ["status", "error"]] = ["failed", attack]
    document = dataclasses.replace(
        DOCUMENT,
        name=attack,
        description=attack,
        arms=(),
        axes=(attack,),
        versions={attack: attack},
        datasets=(DatasetRef(attack, attack),),
        commands=(attack,),
    )
    page = html_report(
        dataclasses.replace(
            source(frame, document),
            images=[(attack, attack, "")],
            search_notes=SearchNotes((attack,), attack, ((attack,), (attack,))),
            links=dict.fromkeys(frame["trial_id"], f"http://127.0.0.1/{attack}"),
            study_link=f"http://127.0.0.1/{attack}",
            ui_command=attack,
        )
    )
    checker = _Checker()
    checker.feed(page)
    assert "<script>alert" not in page and checker.open == []
    assert page.count("</script>") == 2  # of the trials' data and the page's own


@pytest.mark.parametrize("at", ["y", "low", "high"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_not_drawn(value, at):
    line = {"x": [1, 2, 3], "y": [1, 2, 3], "low": [0, 1, 2], "high": [2, 3, 4]}
    line[at][1] = value
    assert not re.search(r"\b(nan|inf)\b", str(draw(Lines([Series("a", 0, **line)]))))
