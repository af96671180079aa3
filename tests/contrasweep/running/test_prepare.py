"""Unfinished and failed trials of other code, and the words by which trials run again; without Ray."""

import math
from dataclasses import replace
from itertools import product

import pytest
from counting_trial import finish
from refusals import refused

from contrasweep import AblationGrid, Arm, SpecError, plan
from contrasweep.code import CurrentCode
from contrasweep.running.engine.loop import StudyCode
from contrasweep.running.failures import LACKS_METRIC
from contrasweep.running.prepare import (
    CodeChanged,
    decide,
    prepare,
    selected_trials,
)
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.archive import list_archived
from contrasweep.storage.record import Cause, Phase, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords

METHOD = """
import pathlib, tempfile
from contrasweep.trial import Report
STEP = 1
def train(trial, resume=None):
    done = int((resume / "n").read_text()) if resume else 0
    with tempfile.TemporaryDirectory() as folder:
        for n in range(done + 1, 4):
            (pathlib.Path(folder) / "n").write_text(str(n))
            yield Report(n, {"accuracy": n * STEP / 10}, pathlib.Path(folder))
"""


class Study:
    """A grid of a method in a file that a test edits, driven trial by trial."""

    def __init__(self, folder):
        self.file = folder / "edited_method.py"
        self.storage = str(folder / "storage")
        self.file.write_text(METHOD)
        grid = AblationGrid(
            "s",
            {name: Arm("edited_method:train") for name in ("a", "b")},
            "digits-lt",
            axes={"width": [8, 16]},
            folds=3,
        )
        self.plan, self.records = plan(grid, storage=self.storage), StudyRecords(self.storage, "s")

    def execution(self, trial):
        namespace = {}
        exec(compile(self.file.read_text(), "edited", "exec"), namespace)
        code = StudyCode(self.records, CurrentCode({}), print).of(trial)
        return Execution(trial, namespace["train"], self.records, metric="accuracy", code=code)

    def decide(self, **options):
        return decide(self.plan, self.records, CurrentCode({}), **options)

    def edit(self):
        self.file.write_text(self.file.read_text().replace("STEP = 1", "STEP = 2"))


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Study(tmp_path)


def interrupted(study):
    """A study whose first trial was interrupted after its second report, and edited since."""
    trial = study.plan.trials[0]
    execution = study.execution(trial)
    execution.advance()
    execution.advance()
    execution.close()
    assert study.decide().comparison.line() == ""
    study.edit()
    return trial


def test_an_unfinished_trial_of_other_code_is_not_continued_in_silence(study):
    trial = interrupted(study)
    with refused(
        CodeChanged, "1 unfinished trial was begun by other code: edited_method.py changed (1 line"
    ):
        study.decide()
    assert study.decide(changed="rerun").carry_out(study.records) == {trial.id}
    assert study.records.begun() == set()
    record = finish(study.execution(trial))
    assert (record.metrics, record.attempts, record.code.earlier) == (
        {"accuracy": pytest.approx(0.6)},
        1,
        (),
    )


def test_one_that_is_continued_on_purpose_says_so_in_its_record(study):
    trial = interrupted(study)
    (other,) = study.decide(changed="accept").comparison.changes
    study.decide(changed="accept").carry_out(study.records)
    record = finish(study.execution(trial))
    assert (record.attempts, record.code.digest, record.code.earlier) == (
        2,
        other.new,
        (other.old,),
    )
    assert study.records.read_one(trial.id) == record
    study.decide()  # it was accepted


def test_a_failed_trial_goes_on_under_the_same_code_and_starts_over_under_another(study):
    trials = study.plan.trials[:2]
    for trial in trials:
        execution = study.execution(trial)
        execution.advance()
        execution.finish(Status.FAILED, error="lost")
    assert study.decide(retry_failed=True).carry_out(study.records) == {t.id for t in trials}
    assert study.records.begun() == {t.id for t in trials}
    ended, begun = (trial.id for trial in trials)
    study.execution(trials[0]).finish(Status.FAILED, error="lost")
    assert (study.records.begun(), study.records.finished()) == ({begun}, {ended})
    study.execution(trials[1]).finish(Status.FAILED, error="lost")
    study.edit()
    study.decide()  # what failed is in no table
    assert study.decide(retry_failed=True).carry_out(study.records) == {t.id for t in trials}
    assert study.records.begun() == study.records.finished() == set()
    assert list_archived(study.records)[0].reason == "failed, and runs again from its beginning"


@pytest.mark.parametrize("metrics", [{"accuracy": math.nan}, {"other": 0.5}], ids=["nan", "none"])
def test_a_trial_without_a_value_at_its_end_starts_over_where_it_is_asked_for(study, metrics):
    """It went on behind its last report, and failed again at once: with nan in each run, also without the flag."""
    other, trial = study.plan.trials[:2]
    finish(study.execution(other))
    finish(study.execution(trial))
    error = LACKS_METRIC.format(metric="accuracy")
    record = study.records.read_one(trial.id)
    study.records.reopen(trial.id)
    study.records.write(replace(record, status=Status.FAILED, error=error, metrics=metrics))
    assert study.decide().again == set()
    assert study.decide(retry_failed=True).carry_out(study.records) == {trial.id}
    assert study.records.begun() == set(), "in the archive"


def test_a_record_without_code_is_of_other_code(study):
    study.records.write(
        Record.of(study.plan.trials[0], status=Status.DONE, metrics={"accuracy": 0.5})
    )
    with refused(
        CodeChanged, "1 of 12 trials was made by other code: recorded before code was kept"
    ):
        study.decide()
    study.decide(changed="accept").carry_out(study.records)
    study.decide()


def test_another_version_of_a_package_is_a_note(study):
    study.file.write_text("import numpy\n" + METHOD)
    record = finish(study.execution(study.plan.trials[0]))
    study.records.write(replace(record, versions={"numpy": "1.0"}))
    (note,) = study.decide().notes
    assert note.startswith("1 of 1 trials ran with numpy 1.0, here is ")


def test_trials_run_again_by_arm_cell_and_id(study):
    trials = study.plan.trials
    for trial in trials:
        finish(study.execution(trial))

    def chosen(*words):
        return {
            (t.arm, t.config["width"], t.fold)
            for t in trials
            if t.id in study.decide(rerun=words).selected
        }

    assert {arm for arm, *_ in chosen("a")} == {"a"} and len(chosen("a")) == 6
    assert chosen("a/width=16") == {("a", 16, fold) for fold in range(3)}
    assert {width for _, width, _ in chosen("width=8")} == {8} and len(chosen("width=8")) == 6
    assert len(chosen(trials[0].id)) == len(chosen(trials[0].id[:8])) == 1
    assert len(chosen("a", "b/width=8")) == 9
    for word in ("c", "a/depth=3", "a/width=3", "None/width=8", trials[0].id[:3]):
        with refused(SpecError, "--rerun"):
            study.decide(rerun=[word])
    with refused(SpecError, "no such way"):
        study.decide(changed="keep")
    (record, *_) = study.records.read([trials[0].id]).values()
    begun = {f"012345678{n}": replace(record, trial_id=f"012345678{n}") for n in range(2)}
    with refused(
        SpecError, "--rerun: this is the beginning of several trials' ids, got '01234567'"
    ):
        selected_trials(study.plan, begun, ["01234567"])


def test_cells_are_named_by_lists_and_one_is_not_true(study):
    planned = plan(replace(study.plan.study, axes={"widths": [[1, 2], [3]], "deep": [True, None]}))

    def chosen(word):
        ids = selected_trials(planned, {}, [word])
        return [list(cell.axes.values()) for cell in planned.cells if cell.trials[0].id in ids]

    assert chosen("a/widths=[1,2],deep=true") == [[[1, 2], True]]
    assert chosen("a/deep=null,widths=[3]") == [[[3], None]]
    assert len(chosen("deep=null")) == 4
    with refused(SpecError, "--rerun widths: the value of --rerun must be YAML"):
        chosen("widths=[1,2")
    with refused(SpecError, "no such arm, cell or trial"):
        chosen("deep=1")


def test_a_failed_trial_runs_again_where_asked_or_where_nobody_is_to_blame_and_no_search_went_on_from_it(
    study,
):
    trial = study.plan.trials[0]
    for cause, phase in product((None, *Cause), (None, *Phase)):
        notes = TrialNotes(phase=phase)
        study.records.write(Record.of(trial, status=Status.FAILED, cause=cause, notes=notes))
        outside = cause not in (None, Cause.METHOD, Cause.TIME_LIMIT)
        again = {trial.id} if outside and phase != Phase.SEARCH else set()
        assert study.decide(changed="accept").failed == again, (cause, phase)
        assert study.decide(changed="accept", retry_failed=True).failed == {trial.id}


def test_a_study_with_trials_that_fitted_no_host_is_not_complete(study):
    """The same command runs them where a larger host has joined."""
    prepared = prepare(study.plan, study.records, CurrentCode({}), extend=False, retry_failed=False)
    assert not prepared.complete and not prepared.finished
    for trial in study.plan.trials:
        large = trial is study.plan.trials[0]
        status = Status.INFEASIBLE if large else Status.DONE
        metrics = {} if large else {"accuracy": 0.5}
        study.records.write(Record.of(trial, status=status, metrics=metrics))
    prepared = prepare(
        study.plan,
        study.records,
        CurrentCode({}),
        extend=False,
        retry_failed=False,
        changed="accept",
    )
    assert not prepared.complete and list(prepared.infeasible) == [study.plan.trials[0].id]
    assert prepared.finished == {trial.id for trial in study.plan.trials[1:]}
