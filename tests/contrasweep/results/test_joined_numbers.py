"""Studies whose trials have the same ids and other values: joined, each shows its own numbers, however it is asked."""

import json
import tempfile

import numpy as np
import pandas as pd
import pytest
from command_line import contrasweep
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from made_up import ENDS, SHARDS, made

import contrasweep as cs
from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.reporting import FORMATS, render, report_data, write_report
from contrasweep.reporting.curves import curves_section
from contrasweep.reporting.data import TrialData
from contrasweep.storage.record import Cause, CodeRef, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import EVALUATION
from contrasweep.trial import Trial

STUDIES = st.lists(
    st.fixed_dictionaries(
        {
            "arms": st.sets(st.sampled_from("abc"), min_size=1).map(sorted),
            "seeds": st.sets(st.integers(0, 4), min_size=1, max_size=4).map(sorted),
            "ends": st.lists(st.sampled_from(ENDS), min_size=1, max_size=5),
            "items": st.booleans(),
        }
    ),
    min_size=2,
    max_size=3,
)


def split(trial_id):
    study, _, own = trial_id.partition("/")
    return study, own


def equal(one, other):
    """Whether two frames have the same rows, in any order; a column without a value may be missing."""
    one, other = (frame.dropna(axis="columns", how="all") for frame in (one, other))
    columns = sorted(one.columns)
    assert columns == sorted(other.columns)

    def rows(frame):
        return sorted(frame[columns].astype("object").map(repr).to_numpy().tolist())

    return rows(one) == rows(other)


@pytest.mark.long
@settings(max_examples=20, deadline=None, phases=[Phase.generate])  # an example takes too long to be made smaller
@given(STUDIES, st.sampled_from([None, 3]), st.sampled_from([(8,), (8, 16)]))
def test_every_number_of_joined_studies_is_that_of_its_part(declared, folds, axes):
    with tempfile.TemporaryDirectory() as folder:
        names = [f"s{i}" for i in range(len(declared))]
        for name, fields in zip(names, declared, strict=True):
            made(folder, name, folds=folds, axes=axes, **fields)
        parts = {name: cs.load(name, storage=folder) for name in names}
        for order in (names, names[::-1]):
            _check(cs.load(order, storage=folder), parts, folds)


def _check(joined, parts, folds):
    frame, axes = joined.to_frame(), joined.axes
    assert len(frame) == len(set(frame["trial_id"])) == sum(len(part.planned) for part in parts.values())
    curves, system = joined.curves(), joined.system()
    for name, part in parts.items():
        of_part = part.to_frame()
        named = of_part.assign(trial_id=f"{name}/" + of_part["trial_id"], arm=f"{name}/" + of_part["arm"])
        mine = frame[frame["trial_id"].str.startswith(f"{name}/")]
        assert equal(mine, named)
        for whole, own in ((curves, part.curves()), (system, part.system())):
            ids = whole["trial_id"].astype(str)
            assert equal(
                whole[ids.str.startswith(f"{name}/")], own.assign(trial_id=f"{name}/" + own["trial_id"].astype(str))
            )
        assert equal(
            joined.curves([mine["trial_id"].iloc[0]]).drop(columns="trial_id"),
            part.curves([of_part["trial_id"].iloc[0]]).drop(columns="trial_id"),
        )
        for trial, record in part.trial_records.items():
            theirs = joined.trial_records[f"{name}/{trial}"]
            assert (theirs.study, theirs.trial_id, theirs.arm) == (name, trial, f"{name}/{record.arm}")
            assert (theirs.metrics, theirs.error, theirs.ended) == (record.metrics, record.error, record.ended)
            assert joined.etags[f"{name}/{trial}"] == part.etags[trial]
            assert {k: list(v) for k, v in joined.items(f"{name}/{trial}").items()} == {
                k: list(v) for k, v in part.items(trial).items()
            }
        _check_tables(joined, name, part)
    done = joined.frame.groupby("arm")["status"].agg(lambda statuses: set(statuses) == {"done"})
    of_arm = {arm: rows.set_index([*axes, "fold", "seed"])["accuracy"] for arm, rows in frame.groupby("arm")}
    for pair in joined.table([*axes, "arm"], []).pairs:
        a, b = (of_arm[arm] for arm in (pair.a, pair.b))
        at = {axis: int(value) for axis, value in pair.context}
        if done[pair.a] and done[pair.b]:
            apart = (a - b).dropna()
            apart = apart.xs(at["batch_size"], level="batch_size") if at else apart
            assert pair.comparison.difference == pytest.approx(apart.mean())


def _check_tables(joined, name, part):
    for rows, columns in ((["arm"], []), ([*joined.axes], ["arm"])):
        if not rows:
            continue
        whole, own = joined.table(rows, columns), part.table(rows, columns)
        for (row, column), cell in own.cells.items():
            place = (row, (f"{name}/{column[0]}",)) if columns else ((f"{name}/{row[0]}",), column)
            theirs = whole.cells[place]
            for field in ("mean", "n", "min", "max", "statuses", "deviation"):
                assert getattr(theirs, field) == pytest.approx(getattr(cell, field)), (place, field)
            told = {(r.trial_id, r.status, r.value, r.url) for r in theirs.replicates}
            assert told == {(f"{name}/{r.trial_id}", r.status, r.value, r.url) for r in cell.replicates}
    by_study = joined.table("study", "arm") if not joined.axes else None
    for (row, column), cell in (by_study.cells if by_study else {}).items():
        if row == (name,):
            assert cell.mean == pytest.approx(part.table(["arm"], []).cells[column, ()].mean)


@pytest.fixture
def pair(tmp_path):
    """The same two arms and seeds, run before and after a change of code."""
    folder = str(tmp_path / "runs")
    for name in ("before", "after"):
        made(folder, name, items=True)
    return folder


def means(frame):
    return dict(zip(frame["arm"], frame["mean"], strict=True))


def means_of(storage, *names):
    frames = {name: cs.load(name, storage=storage).table().to_frame() for name in names}
    return {f"{name}/{arm}": mean for name, frame in frames.items() for arm, mean in means(frame).items()}


@pytest.mark.slow
def test_the_same_arm_before_and_after_a_change_of_code_is_not_called_equal(pair):
    """In every form of the table, and whichever study is named last."""
    true = means_of(pair, "before", "after")
    assert len(set(true.values())) == 4
    for order in (["before", "after"], ["after", "before"]):
        joined = cs.load(order, storage=pair)
        table = joined.table()
        assert means(table.to_frame()) == true
        assert {arm for p in table.pairs for arm in (p.a, p.b)} == set(true) and len(table.pairs) == 6
        for p in table.pairs:
            assert p.comparison.difference == pytest.approx(true[p.a] - true[p.b])
        compared = joined.compare("after/a", "before/a")
        assert compared.difference == pytest.approx(true["after/a"] - true["before/a"]) != 0
        for text in (table.to_text(), table.to_markdown(), table.to_latex(), table.to_html()):
            assert all(table.cell_text(cell).split()[0] in text for cell in table.cells.values())
        values = [(r.trial_id, r.url) for cell in table.cells.values() for r in cell.replicates]
        assert len(values) == len(set(values)) == 32
        assert all(url == f"http://mlflow/{trial}" and url in table.to_html() for trial, url in values)
        assert {best.arm: best.mean for best in joined.best_settings} == true


def test_figures_of_joined_studies_are_each_study_s_own(pair):
    joined = cs.load(["before", "after"], storage=pair)
    drawn = curves_section(TrialData(joined.frame, joined.document, curves=joined.curves()))
    (panel,) = drawn["by_metric"]["accuracy"]
    assert {line.name: line.y[-1] for line in panel.chart.series} == pytest.approx(means_of(pair, "before", "after"))
    assert joined.statuses == {"done": 32} and len(joined.trial_rows()) == 32


@pytest.mark.slow
def test_the_commands_show_each_study_s_own_numbers(pair, tmp_path):
    true = means_of(pair, "before", "after")
    for order in (("before", "after"), ("after", "before")):
        shown = contrasweep("report", *order, "--json", "--storage", pair, folder=tmp_path)
        document = json.loads(shown.stdout)
        assert {row["factors"]["arm"]: row["mean"] for row in document["table"]} == pytest.approx(true)
        rows = {row["trial_id"]: row for row in document["rows"]}
        assert len(rows) == 32 and all(row["arm"].partition("/")[0] == split(trial)[0] for trial, row in rows.items())
        by_study = contrasweep(
            "report", *order, "--rows", "study", "--columns", "arm", "--json", "--storage", pair, folder=tmp_path
        )
        cells = {"{study}/{arm}".format(**row["factors"]): row["mean"] for row in json.loads(by_study.stdout)["table"]}
        assert cells == pytest.approx(true)
    csv = tmp_path / "both.csv"
    contrasweep(
        "report", "before", "after", "--format", "csv", "--output", str(csv), "--storage", pair, folder=tmp_path
    )
    frame, comparisons = pd.read_csv(csv), pd.read_csv(csv.with_suffix(".comparisons.csv"))
    assert means(frame) == pytest.approx(true) and len(comparisons) == 6


def test_scores_of_evaluations_are_those_of_each_study_s_own_networks(pair):
    """Also where one evaluation is left at both studies."""
    given = {}
    for name, value in (("before", 0.25), ("after", 0.75)):
        records = StudyRecords(pair, name)
        for record in records.read(sorted(records.finished())).values():
            source = {"study": name, "source": record.trial_id, "trained": record.ended}
            data = Manifest("e", "/nowhere", "image", SHARDS)
            trial = Trial("scored", record.arm, EVALUATION, canonical.Config(source), data, None, record.seed)
            own = StudyRecords(pair, "scored")
            own.write_items(trial.id, {"e/hits": np.full(3, value)})
            scored = {"metrics": {"e/hits": value + record.seed / 100}, "items": ("e/hits",)}
            own.write(Record.of(trial, status=Status.DONE, **scored))
            given[f"{name}/{record.trial_id}"] = scored["metrics"]["e/hits"]
        records.add_evaluation("scored")
    joined = cs.load(["before", "after"], storage=pair)
    assert dict(zip(joined.frame["trial_id"], joined.frame["e/hits"], strict=True)) == given
    assert {float(joined.items(trial)["e/hits"][0]) for trial in given if trial.startswith("after/")} == {0.75}
    cells = joined.table(metric="e/hits").to_frame()
    assert means(cells) == pytest.approx({"before/a": 0.285, "before/b": 0.285, "after/a": 0.785, "after/b": 0.785})


def test_three_studies_of_equal_ids_are_three(pair):
    made(pair, "last", seeds=range(4))
    joined = cs.load(["before", "after", "last"], storage=pair)
    assert means(joined.table().to_frame()) == means_of(pair, "before", "after", "last")
    assert joined.compare("last/a", "before/a").n == 4


def test_a_study_named_twice_is_refused(pair, tmp_path):
    with pytest.raises(cs.SpecError, match="stands once in a table, got 'before'"):
        cs.load(["before", "before"], storage=pair)
    assert cs.load(["before", "bef*"], storage=pair).name == "before", "a pattern may mean it too"
    shown = contrasweep("report", "after", "after", "--storage", pair, folder=tmp_path)
    assert shown.returncode == 2 and shown.stderr.count("\n") == 1


@pytest.mark.slow
def test_what_is_of_one_study_refuses_several(pair):
    joined = cs.load(["before", "after"], storage=pair)
    for format in FORMATS:
        if format in ("html", "yaml"):
            with pytest.raises(cs.SpecError, match=f"--format {format} takes one study"):
                write_report(joined, format)
        elif format != "parquet":
            assert b"before/a" in render(joined, format) or b"before/a" in render(joined, format).replace(b"\\", b"")
    with pytest.raises(cs.SpecError, match="takes one study"):
        report_data(joined, joined.table())
    with pytest.raises(cs.SpecError):
        joined.evaluate(on=["digits"])


def test_studies_without_a_common_seed_are_compared_with_nothing_and_the_table_says_so(pair):
    made(pair, "fresh", seeds=range(100, 108))
    joined = cs.load(["before", "fresh"], storage=pair)
    table = joined.table()
    assert {frozenset((split(p.a)[0], split(p.b)[0])) for p in table.pairs} == {
        frozenset([name]) for name in ("before", "fresh")
    }
    said = "before and fresh have no seed in common, so that no arm of one is compared with one of the other"
    assert said in table.notes and not joined.advice()
    assert all(said in text for text in (table.to_markdown(), " ".join(table.to_text().split()), table.to_html()))
    assert not any("in common" in note for note in cs.load(["before", "after"], storage=pair).table().notes)


@pytest.mark.slow
def test_what_was_declared_differently_is_said_with_what_is_used(pair):
    made(pair, "strict", alpha=0.01, smallest_difference=0.02, reference="a")
    made(pair, "loose", smallest_difference=0.03, axes=(8,))
    notes = cs.load(["loose", "strict"], storage=pair).table().notes
    assert "alpha is 0.01 in this table (declared: loose 0.05, strict 0.01)" in notes
    assert "smallest_difference is – in this table (declared: loose 0.03, strict 0.02)" in notes
    assert "reference is – in this table (declared: loose –, strict a)" in notes
    joined = cs.load(["loose", "strict"], storage=pair)
    assert {p.comparison.family.alpha for p in joined.table().pairs} == {0.01}
    assert not any("in this table" in note for note in cs.load(["before", "after"], storage=pair).table().notes)
    cells = {"axes": (8, 16), "seeds": range(4)}
    made(pair, "whole", **cells)
    made(pair, "single", question="cells", **cells)
    assert (
        "question is overall in this table (declared: whole overall, single cells)"
        in cs.load(["whole", "single"], storage=pair).table().notes
    )


def test_notes_and_failures_of_joined_studies_name_their_study(tmp_path):
    folder = str(tmp_path / "runs")
    for name, ends in (("before", [None, Cause.METHOD]), ("after", [None])):
        plan, records = made(folder, name, ends=ends), StudyRecords(folder, name)
        code = CodeRef(("b" if name == "before" else "a") * 12)
        for record in records.read(trial.id for trial in plan.trials).values():
            unused = ("lr",) if name == "after" else ()
            records.write(
                Record(
                    **{
                        **vars(record),
                        "code": code,
                        "unused_settings": unused,
                        "ended": record.ended + 5 * (name == "after"),
                    }
                )
            )
    joined = cs.load(["after", "before"], storage=folder)
    table = joined.table()
    assert (
        "after: lr: no trial of arms a, b read this setting, so it changed nothing there; it may be misspelt."
        in table.notes
    )
    assert any("† 16 of 32 trials ran other code than the newest" in note for note in table.notes)
    marked = {row[0]: cell.other_code for (row, _), cell in table.cells.items()}
    assert marked == {"after/a": 0, "after/b": 0, "before/a": 8, "before/b": 8}
    failed = {row[0]: cell.statuses.get("failed", 0) for (row, _), cell in table.cells.items()}
    assert failed["after/a"] == failed["after/b"] == 0 and failed["before/a"] + failed["before/b"] == 8
    assert any("not in the table: 8 failed" in line for line in table.legend)
