"""Arms that start from the checkpoints of another study: which trials, in what order, and what is said; without Ray."""

import dataclasses

import pytest
from refusals import refused

import contrasweep as cs
from contrasweep.code import CurrentCode
from contrasweep.errors import ContrasweepError, NotTrainedError
from contrasweep.planning.planner import plan_staged
from contrasweep.running.engine.loop import StudyCode
from contrasweep.running.prepare import CodeChanged, prepare
from contrasweep.running.publish import clean, plan_cleaning
from contrasweep.running.upkeep import verify
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.archive import archive_trials
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Cause, Status
from contrasweep.storage.records import StudyRecords

METHOD = """
import pathlib, tempfile
from contrasweep.trial import Report
def train(trial, resume=None):
    begun = (trial.start_folder / "weight").read_text() if trial.start_folder else "new"
    if resume is not None:
        begun = (resume / "weight").read_text()
    with tempfile.TemporaryDirectory() as folder:
        for step in (1, 2)[resume is not None :]:
            (pathlib.Path(folder) / "weight").write_text(f"{begun}>{trial.arm}{trial.fold}{trial.seed}")
            yield Report(step, {"accuracy": trial.seed / 10 + VALUE}, pathlib.Path(folder))
train.start_settings = ()
"""


class Studies:
    """A study `before` and one that starts from it, of methods in files that a test edits; no Ray."""

    def __init__(self, folder, storage=""):
        self.folder = folder
        self.storage = storage or str(folder / "storage")
        for name in ("first", "second", "other"):
            self.write(name, "VALUE = 0.5")
        self.before = self.grid("before", {"a": cs.Arm("first:train"), "b": cs.Arm("other:train")})
        self.after = self.grid(
            "after", {"none": cs.Arm("second:train"), "a": self.arm(), "b": self.arm("b")}
        )

    @staticmethod
    def arm(arm="a", **start):
        return cs.Arm("second:train", start=cs.Start("before", arm, **start))

    @staticmethod
    def grid(name, arms, **fields):
        return cs.AblationGrid(name, arms, "digits-lt", **{"folds": 2, "seeds": [0, 1], **fields})

    def write(self, name, value):
        (self.folder / f"{name}.py").write_text(f"{METHOD}\n{value}\n")

    def run(self, grid, **options):
        """What `run` does, but for the engine; the number of trials that were trained."""
        plan = cs.plan(grid, storage=self.storage)
        records = StudyRecords(self.storage, grid.name)
        code = CurrentCode({})
        done = prepare(plan, records, code, **{"extend": True, "retry_failed": False, **options})
        left = [trial for trial in plan.trials if trial.id not in done.finished]
        for trial in left:
            self.execution(trial, records)
        return len(left)

    def execution(self, trial, records, steps=9):
        namespace = {}
        path = self.folder / f"{trial.trainable.partition(':')[0]}.py"
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        code = StudyCode(records, CurrentCode({}), print).of(trial)
        execution = Execution(trial, namespace["train"], records, metric="accuracy", code=code)
        while steps and execution.advance().record is None:
            steps -= 1
        return execution

    def weights(self, study):
        records = StudyRecords(self.storage, study)
        found = {}
        for trial_id, record in records.read(sorted(records.finished())).items():
            marker = Checkpoints(records.store, records.key(trial_id, "checkpoint")).latest()
            assert marker is not None
            weight = records.store.read(
                f"{records.key(trial_id, 'checkpoint')}/{marker.step}/weight"
            )
            found[record.arm, record.fold, record.seed] = weight.decode()
        return found

    def plan(self, study, **options):
        return cs.plan(study, storage=self.storage, **options)

    def load(self, name):
        return cs.load(name, storage=self.storage)


@pytest.fixture
def studies(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Studies(tmp_path)


def test_code_that_the_network_to_start_from_has_is_named_by_the_study_that_starts(
    studies, monkeypatch
):
    """Its record is the storage's, and what stands there is imported by the trials that start."""
    for name in ("with_net", "tuned_net"):
        studies.write(name, "VALUE = 0.5\ntrain.start_settings = ('net',)")
    studies.run(
        studies.grid("before", {"a": cs.Arm("with_net:train", {"net": {"name": "mine:Net"}})})
    )
    start = cs.Start("before", "a")
    after = studies.grid("after", {"a": cs.Arm("tuned_net:train", start=start)})
    with refused(
        cs.SpecError, "arms.a.start: what only a storage names is not used, got 'mine:Net'"
    ):
        studies.plan(after)
    named = studies.grid(
        "after", {"a": cs.Arm("tuned_net:train", {"net": {"name": "mine:Net"}}, start=start)}
    )
    known = {trial.id for trial in studies.plan(named).trials}
    monkeypatch.setenv("CONTRASWEEP_CODE", "mine")
    assert {trial.id for trial in studies.plan(after).trials} == known


def test_a_trial_starts_from_the_trial_of_its_fold_and_seed(studies):
    studies.run(studies.before)
    assert studies.run(studies.after) == 12
    for (arm, fold, seed), weight in studies.weights("after").items():
        source = "new" if arm == "none" else f"new>{arm}{fold}{seed}"
        assert weight == f"{source}>{arm}{fold}{seed}"
    assert studies.run(studies.after) == 0
    assert verify(StudyRecords(studies.storage, "after")).sound


def test_the_source_is_part_of_a_trials_identity(studies):
    studies.run(studies.before)
    trials = studies.plan(studies.after).trials
    assert len({trial.id for trial in trials}) == 12
    sources = {trial.start.trial for trial in trials if trial.start}
    assert sources == set(StudyRecords(studies.storage, "before").finished())
    alone = studies.grid("after", {"a": cs.Arm("second:train")})
    assert not {t.id for t in studies.plan(alone).trials} & {t.id for t in trials}


def test_a_plan_before_its_sources_has_the_same_ids(studies):
    first = studies.plan(studies.before)
    planned = studies.plan(studies.after, before=[first])
    studies.run(studies.before)
    assert {t.id for t in planned.trials} == {t.id for t in studies.plan(studies.after).trials}


def test_missing_sources_are_one_line_with_the_command_and_the_rest_is_planned(studies):
    with refused(
        NotTrainedError, "starts from 'before', which was not run in this storage; run it first:"
    ):
        studies.plan(studies.after)
    planned, (missing,) = plan_staged(studies.after, storage=studies.storage)
    assert [cell.arm for cell in planned.cells] == ["none"]
    assert str(missing).startswith("study before: 2 cells, 8 trials; not trained: contrasweep run")
    studies.run(studies.grid("before", studies.before.arms, seeds=[0]))
    archived = StudyRecords(studies.storage, "before")
    archive_trials(archived, sorted(archived.finished())[:1], "gone", {})
    with refused(NotTrainedError, "1 of whose trials have not ended"):
        cs.plan(
            studies.grid("after", {"a": studies.arm(), "b": studies.arm("b")}, seeds=[0]),
            storage=studies.storage,
        )


def test_best_is_the_best_trial_of_the_same_fold(studies):
    best = studies.grid("after", {"a": studies.arm(trial="best")})
    first = studies.plan(studies.before)
    planned, (missing,) = plan_staged(best, storage=studies.storage, before=[first])
    assert planned is None and missing.cells == 1
    whole = {"folds": None, "keep_checkpoints_of": "best_of_arm"}
    first = studies.plan(studies.grid("before", studies.before.arms, **whole))
    one = studies.grid("after", best.arms, folds=None)
    assert plan_staged(one, storage=studies.storage, before=[first])[1], "the best one is kept"
    studies.run(studies.before)
    studies.run(best)
    assert all(
        weight == f"new>a{fold}1>a{fold}{seed}"
        for (_, fold, seed), weight in studies.weights("after").items()
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"seeds": [0, 5]},
            r"arms\.a\.start: before/a has no trials to start from, got 'fold 0, seed 5'.*seeds 0, 1",
        ),
        (
            {"folds": 3},
            r"arms\.a\.start: before/a was trained on other folds .* seen what is held out here",
        ),
        ({"folds": None}, r"arms\.a\.start: before/a was trained on other folds"),
        (
            {"arms": {"a": cs.Arm("second:train", start=cs.Start("before", "c"))}},
            r"before has no such arm.*known arms: a",
        ),
        (
            {"arms": {"a": cs.Arm("two_tower", start=cs.Start("before", "a"))}},
            r"arms\.a\.start: this trainable starts from no checkpoint.*finetune and contrastive do",
        ),
    ],
)
def test_what_cannot_start_is_refused_in_one_line(studies, fields, says):
    studies.run(studies.before)
    arms = fields.pop("arms", {"a": studies.arm()})
    with refused(cs.SpecError, match=says):
        cs.plan(studies.grid("after", arms, **fields), storage=studies.storage)


def test_a_trial_that_failed_gives_no_network_to_start_from(studies):
    studies.run(studies.before)
    records = StudyRecords(studies.storage, "before")
    (first, *_) = (r for r in records.read(sorted(records.finished())).values() if r.arm == "a")
    records.write(dataclasses.replace(first, status=Status.FAILED, cause=Cause.METHOD))
    with refused(
        cs.SpecError,
        "arms.a.start: a trial of before/a gave no network: it is failed, got ",
        "run before again with --retry-failed",
    ):
        studies.plan(studies.grid("after", {"a": studies.arm()}))


def test_a_study_does_not_start_from_itself_and_a_search_from_nothing():
    arm = cs.Arm("finetune", start=cs.Start("after", "a"))
    with refused(cs.SpecError, "arms.a.start.study: a study does not start from itself"):
        Studies.grid("after", {"a": arm})
    searched = cs.Arm(
        "finetune", space={"learning_rate": cs.Float(0.1, 1)}, start=cs.Start("before", "a")
    )
    with refused(cs.SpecError, "an arm of a Sweep starts from no checkpoint"):
        cs.Sweep("s", {"a": searched}, "digits-lt", trials_per_arm=2, folds=2)


def test_axes_that_both_have_pair_the_trials_and_others_are_ambiguous(studies):
    axes = {"width": [1, 2]}
    studies.run(studies.grid("before", {"a": cs.Arm("first:train")}, axes=axes))
    paired = cs.plan(
        studies.grid("after", {"a": studies.arm()}, axes=axes), storage=studies.storage
    )
    assert len({trial.start.trial for trial in paired.trials}) == 8
    with refused(
        cs.SpecError, match=r"has 2 trials to start from.*give this study its axes \(width\)"
    ):
        cs.plan(studies.grid("after", {"a": studies.arm()}), storage=studies.storage)


def test_networks_that_are_trained_again_make_exactly_their_cells_stale(studies):
    studies.run(studies.before)
    studies.run(studies.after)
    studies.write("first", "VALUE = 0.6")
    with refused(
        ContrasweepError,
        match=r"after starts from networks of before, of which 4 of \d+ trials were",
    ):
        studies.run(studies.after, changed="rerun")
    assert studies.run(studies.before, changed="rerun") == 4
    says = "4 of 12 trials were made from other networks: the networks of before that a starts from were trained again"
    with refused(CodeChanged, match=says):
        studies.run(studies.after)
    results = studies.load("after")
    text = results.table().to_text()
    assert "† 4 of 12 trials started from networks of before that were trained again since" in text
    assert [cell.other_code for cell in results.table().cells.values()] == [0, 4, 0]
    assert studies.run(studies.after, changed="rerun") == 4
    assert "†" not in studies.load("after").table().to_text()


def test_networks_that_are_trained_again_can_be_accepted(studies):
    studies.run(studies.before)
    studies.run(studies.after)
    studies.run(studies.before, rerun=["a"])
    assert studies.run(studies.after, changed="accept") == 0
    assert studies.run(studies.after) == 0
    assert "†" in studies.load("after").table().to_text()


def test_a_study_of_the_same_trials_is_another_source(studies):
    """Its trials have the same ids, and other networks."""
    studies.run(studies.before)
    twin = studies.grid("twin", studies.before.arms)
    studies.run(twin)
    assert (
        StudyRecords(studies.storage, "twin").finished()
        == StudyRecords(studies.storage, "before").finished()
    )
    studies.run(studies.after)
    moved = studies.grid(
        "after", {**studies.after.arms, "a": cs.Arm("second:train", start=cs.Start("twin", "a"))}
    )
    with refused(cs.SpecError, "a study of this name with another plan"):
        studies.run(moved, extend=False)
    other = studies.grid("other", moved.arms)
    assert studies.run(other) == 12
    started = studies.load("other").trial_records.values()
    assert {record.start.study for record in started if record.arm == "a"} == {"twin"}
    lost = plan_cleaning(studies.load("twin"), "none").lost
    assert [line for line in lost if line.startswith("start:")] == [
        "start: other cannot be trained again: it starts from 4 of these networks"
    ]


def test_an_unfinished_trial_starts_over_where_its_source_was_trained_again(studies):
    studies.run(studies.before)
    plan = studies.plan(studies.after)
    records = StudyRecords(studies.storage, "after")
    trial = next(trial for trial in plan.trials if trial.arm == "a")
    studies.execution(trial, records, steps=1).close()
    for _ in range(2):
        assert studies.execution(trial, records, steps=0).resume is not None, "it goes on"
        studies.execution(trial, records, steps=1).close()
    studies.run(studies.before, rerun=["a"])
    again = next(t for t in studies.plan(studies.after).trials if t.id == trial.id)
    assert studies.execution(again, records, steps=0).resume is None, "it starts over"
    late = next(t for t in plan.trials if t.arm == "a" and t.id != trial.id)  # planned before that
    with refused(cs.StorageError, "was deleted or trained again since the study was planned"):
        studies.execution(late, records)
    assert records.read_one(late.id) is None, "it is not at fault, and runs again"


def test_deleted_checkpoints_are_one_line_before_anything_is_spent(studies):
    studies.run(studies.before)
    small = studies.grid("after", {"a": studies.arm()})
    studies.run(small)
    results = studies.load("before")
    cleaning = plan_cleaning(results, "none")
    assert (
        "start: after cannot be trained again: it starts from 4 of these networks" in cleaning.lost
    )
    clean(results, cleaning)
    assert studies.run(small) == 0, "what is trained needs none"
    with refused(
        ContrasweepError, match="after starts from checkpoints of before, and 4 of 4 are deleted"
    ):
        studies.run(studies.after)
    assert studies.load("after").document.arms == ("a",), "nothing was written"


@pytest.mark.parametrize(
    "fields",
    [{"keep": "none"}, {"keep_checkpoints_of": "none"}, {"keep_checkpoints_of": "best_of_arm"}],
)
def test_a_study_that_will_delete_its_checkpoints_is_refused_as_a_source(studies, fields):
    before = studies.grid("before", studies.before.arms, **fields)
    first = studies.plan(before)
    with refused(cs.SpecError, "before deletes the checkpoints to start from"):
        studies.plan(studies.after, before=[first])
