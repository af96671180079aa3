"""`contrasweep evaluate`: networks that were kept are scored on other data, and what was trained is not touched."""

import dataclasses
import functools
import sys
import types

import numpy as np
import pytest
import torch
from calm import calm_run
from command_line import contrasweep
from counting_trial import finish
from drivers import output_of, ray_folder, start_driver
from folders import make_files
from mlflow import MlflowClient
from refusals import refused

import contrasweep as cs
from contrasweep.code import CurrentCode
from contrasweep.data.resolving import find
from contrasweep.running.evaluation import is_evaluated, plan_evaluation, plan_of_checkpoint
from contrasweep.running.prepare import prepare, study_document
from contrasweep.running.publish import plan_cleaning
from contrasweep.running.upkeep import verify
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study.evaluation import Evaluation
from contrasweep.trainables.evaluation import networks

CONFIG = {"epochs": 1, "batch_size": 128, "encoder": "cnn", "transfer": ["digits"], "ema": 0.5}
ARMS = {loss: cs.Arm("contrastive", {"loss": loss, **CONFIG}) for loss in ("supcon", "ocl")}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """The storage of a trained study of two arms and folds, which scores its networks on `digits` itself."""
    folder = tmp_path_factory.mktemp("evaluated")
    calm_run(
        cs.AblationGrid("source", ARMS, "digits-lt", folds=2, metric="knn1", reference="supcon"),
        folder,
    )
    return str(folder)


def source(storage):
    return cs.load("source", storage=str(storage))


def errors_of(name, storage):
    """The errors of a study's trials, the last line of each."""
    records = cs.load(name, storage=storage).trial_records.values()
    return {record.error and record.error.splitlines()[-1] for record in records}


def contents(storage, study):
    store = StudyRecords(storage, study).store
    return {key: store.read(key) for key in store.list(f"{study}/")}


def evaluated(storage, *, on=(), function="", most=99, study="source"):
    """What `evaluate` does, without Ray: at most so many trials of the evaluation that have no record yet."""
    results = cs.load(study, storage=storage)
    planned = plan_evaluation(results, Evaluation(list(on), function))
    results.records.add_evaluation(planned.study.name)
    return trained(planned, storage, most), planned.study.name


def trained(planned, storage, most=99):
    """Run what has no record yet, at most so many trials, and return how many."""
    records = StudyRecords(storage, planned.study.name)
    records.claim(study_document(planned))
    write_planned(records, planned.to_frame())
    left = [trial for trial in planned.trials if trial.id not in records.finished()][:most]
    train = functools.partial(networks.train, storage=storage)
    for trial in left:
        finish(Execution(trial, train, records, metric=planned.study.metric))
    return len(left)


def test_scores_are_those_of_transfer_to_the_last_digit_and_nothing_trained_is_touched(storage):
    before = contents(storage, "source")
    plan_evaluation(source(storage), Evaluation(["digits"]))
    assert Evaluation(["s3://b/datasets/digits/"]).prefixes == ("digits/",)
    assert contents(storage, "source") == before, "a plan writes nothing"
    assert evaluated(storage, on=["digits"], most=1)[0] == 1
    assert evaluated(storage, on=["digits"])[0] == 3
    assert evaluated(storage, on=["digits"]) == (
        0,
        "source.on-digits",
    )
    after = contents(storage, "source")
    assert {key: data for key, data in after.items() if "/evaluations/" not in key} == before
    results = source(storage)
    done = results.done
    for metric in ("knn1", "knn5", "probe"):
        assert (done[f"digits/{metric}"] == done[f"{metric}_on_digits"]).all() and len(done) == 4
    assert {"digits/map_at_r", "digits/noise_similarity"} <= set(done)
    assert results.mode("digits/noise_similarity") == "min"
    assert verify(results.records).sound and verify(StudyRecords(storage, "source.on-digits")).sound
    network = results.load_model("ocl")
    assert isinstance(network, torch.nn.Module)
    assert len(network(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))) == 2


def test_what_was_scored_afterwards_stands_in_tables_and_decides_nothing(storage):
    _, name = evaluated(storage, on=["digits"])
    results = source(storage)
    table = results.table(metric="digits/knn1")
    assert table.metric == "digits/knn1" and not table.decisive
    assert results.versus("ocl", "supcon", "digits/knn1").overall.comparison.judgement is None
    own = cs.load(name, storage=storage)
    assert own.document.evaluates and not own.table().decisive
    with refused(cs.SpecError, "is an evaluation"):
        plan_evaluation(own, Evaluation(["digits"]))


def test_shipped_scores_and_those_of_a_function_on_the_same_data_are_two_evaluations(
    scores, tmp_path, runs
):
    calm_run(
        cs.AblationGrid("source", {"ocl": ARMS["ocl"]}, "digits-lt", metric="knn1"),
        tmp_path / "runs",
    )
    evaluated(runs, on=["digits"], function="one_scores:hits")
    results = source(tmp_path / "runs")
    assert is_evaluated(results, Evaluation(["digits"], "one_scores:hits"))
    assert not is_evaluated(results, Evaluation(["digits"]))
    (record,) = results.trial_records.values()
    results.records.write(dataclasses.replace(record, status=Status.FAILED))
    assert is_evaluated(source(runs), Evaluation(["digits"])), "a failed trial has none"


def test_own_code_gets_the_network_the_data_and_the_trial(storage, monkeypatch):
    def spread(model, data, trial):
        assert trial.id in source(storage).trial_records
        weights = sum(parameter.numel() for parameter in model.parameters())
        return {"weights": weights, "rows": len(data.split("train").labels)}

    module = types.ModuleType("scores")
    module.spread = spread
    module.nothing = lambda model, data, trial: {}
    monkeypatch.setitem(sys.modules, "scores", module)
    _, name = evaluated(storage, function="scores:spread")
    assert name == "source.with-spread"
    assert errors_of(name, storage) == {None}
    done = source(storage).done
    assert (done["spread/rows"] > 100).all() and done["spread/weights"].nunique() == 1
    evaluated(storage, on=["digits"], function="scores:spread")
    assert is_evaluated(source(storage), Evaluation(["digits"], "scores:spread"))
    both = source(storage).done
    assert (both["digits/spread/rows"] > both["spread/rows"]).all()
    _, name = evaluated(storage, function="scores:nothing")
    (error,) = errors_of(name, storage)
    assert "returns {metric: number}" in error


def test_a_network_that_started_from_another_is_evaluated_as_any(storage, monkeypatch):
    def known(model, data, trial):
        assert trial.start is not None
        assert trial.id in cs.load("tuned", storage=storage).trial_records
        return {"features": model(torch.zeros(1, 1, 8, 8, dtype=torch.uint8)).shape[1]}

    monkeypatch.setitem(sys.modules, "scores", types.SimpleNamespace(known=known))
    arm = cs.Arm("finetune", {"epochs": 1, "frozen": True}, start=cs.Start("source", "ocl"))
    calm_run(cs.AblationGrid("tuned", {"a": arm}, "digits-lt", folds=2), storage)
    count, name = evaluated(storage, function="scores:known", study="tuned")
    assert count == 2 and errors_of(name, storage) == {None}
    assert (cs.load("tuned", storage=storage).done["known/features"] == 64).all()


def test_scores_of_a_network_that_was_trained_again_are_not_shown_and_it_is_scored_again(storage):
    evaluated(storage, on=["digits"])
    results = source(storage)
    record = next(iter(results.trial_records.values()))
    own = results.records.read_one(record.trial_id)
    results.records.write(dataclasses.replace(own, ended=own.ended + 1))
    frame = source(storage).to_frame().set_index("trial_id")
    assert frame["digits/knn1"].isna().sum() == 1
    assert np.isnan(frame.loc[record.trial_id, "digits/knn1"])
    assert evaluated(storage, on=["digits"])[0] == 1
    assert source(storage).to_frame()["digits/knn1"].notna().all()


@pytest.mark.parametrize(
    ("on", "function", "said"),
    [
        ([], "", "data, or a function"),
        (["nothing"], "", "nothing"),
        (["synthetic-pairs"], "", "images with labels"),
        ([], "scores:missing", "scores"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line_before_anything_runs(storage, on, function, said):
    with refused(cs.ContrasweepError, match=said):
        source(storage).evaluate(on, function)


@pytest.fixture
def scores(tmp_path, monkeypatch):
    """Modules of a user: two functions of one name, and a loader of networks."""
    code = """
import torch
class Flat(torch.nn.Module):
    def forward(self, pixels):
        assert pixels.dtype == torch.uint8 and not self.training
        return pixels.flatten(1).float() / 255
def load(path):
    assert torch.load(path, weights_only=True) == {"w": 1}
    return Flat()
def not_one(path):
    return 3
def hits(model, data, trial):
    test = data.parts(trial.fold)[1]
    values = torch.as_tensor(test.labels % 3 == 0).double().numpy() * (1 + trial.seed)
    return {"third": values.mean()}, {"third": values}
"""
    for name in ("one_scores", "two_scores"):
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.save({"w": 1}, tmp_path / "net.pt")
    yield tmp_path
    for name in ("one_scores", "two_scores"):
        sys.modules.pop(name, None)


def test_scores_of_single_items_stand_where_those_of_a_trial_do(storage, scores):
    evaluated(storage, function="one_scores:hits")
    evaluated(storage, on=["digits"])
    results = source(storage)
    for trial, record in results.trial_records.items():
        items = results.items(trial)
        assert items["hits/third"].mean() == record.metrics["hits/third"]
        assert items["digits/knn1"].mean() == record.metrics["digits/knn1"]
        assert items["knn1"].mean() == record.metrics["knn1"]
        assert len(items["knn1"]) != len(items["digits/knn1"])


def test_scores_of_items_of_several_datasets_are_refused_where_a_function_gives_them(
    storage, scores
):
    _, name = evaluated(storage, on=["digits", "digits-lt"], function="one_scores:hits")
    (error,) = errors_of(name, storage)
    assert "scores of items are kept of one dataset" in error and "evaluate each by itself" in error


def test_two_functions_of_one_name_do_not_meet(storage, scores):
    evaluated(storage, function="one_scores:hits")
    for on in ([], ["digits"]):
        with refused(
            cs.SpecError, "hits has those of one_scores:hits", match="two functions of one name"
        ):
            plan_evaluation(source(storage), Evaluation(on, "two_scores:hits"))


def test_the_record_has_the_digests_of_data_and_code(storage, scores):
    on = [f"digits#{find('digits', storage=storage).digest[:12]}"]
    before = plan_evaluation(source(storage), Evaluation(["digits"], "one_scores:hits")).trials[0]
    assert list(before.config["on"]) == on
    code = CurrentCode({}).of(before.trainable, before.config).version
    (scores / "one_scores.py").write_text(
        (scores / "one_scores.py").read_text().replace("% 3", "% 4")
    )
    assert CurrentCode({}).of(before.trainable, before.config).version.digest != code.digest
    assert "one_scores" in code.modules


def test_a_checkpoint_from_elsewhere_is_a_study_of_one_cell(tmp_path, runs, scores):
    storage = runs
    for name in ("digits", "digits-lt"):
        cs.data.resolve(name, folds=None, storage=storage, write=True)
    evaluation = Evaluation(["digits", "digits-lt"])
    planned = plan_of_checkpoint("", "one_scores:load", scores / "net.pt", evaluation, storage)
    records = StudyRecords(storage, planned.study.name)
    prepare(planned, records, CurrentCode({}), extend=True, retry_failed=True, changed="rerun")
    assert trained(planned, storage) == 1 and planned.study.name == "net.on-digits-digits-lt"
    results = cs.load(planned.study.name, storage=storage)
    (record,) = results.trial_records.values()
    assert record.error is None and len(results.table().cells) == 1
    data = cs.data.open_dataset(cs.data.resolve("digits", folds=None, storage=storage))
    index, test = data.parts(None)
    x, z = (part.array("image").reshape(len(part), -1) / 255.0 for part in (index, test))
    near = (
        (z / np.linalg.norm(z, axis=1, keepdims=True))
        @ (x / np.linalg.norm(x, axis=1, keepdims=True)).T
    ).argmax(1)
    assert record.metrics["digits/knn1"] == pytest.approx(
        (index.labels[near] == test.labels).mean(), abs=0.005
    )
    assert (
        trained(
            plan_of_checkpoint("", "one_scores:load", scores / "net.pt", evaluation, storage),
            storage,
        )
        == 0
    )
    assert verify(results.records).sound
    (copy,) = (
        key for key in records.store.list(f"{records.study}/given/") if key.endswith("net.pt")
    )
    records.store.write(copy, b"other")
    assert not verify(records).sound and verify(records, repair=True).sound
    assert verify(records).sound
    torch.save({"w": 1, "v": 2}, tmp_path / "net.pt")
    with refused(cs.SpecError, match=r"evaluates something else.*choose another"):
        plan_of_checkpoint("", "one_scores:load", scores / "net.pt", evaluation, storage)


def test_what_a_loader_returns_is_checked_where_it_is_called(runs, scores):
    storage = runs
    cs.data.resolve("digits", folds=None, storage=storage, write=True)
    planned = plan_of_checkpoint(
        "odd", "one_scores:not_one", scores / "net.pt", Evaluation(["digits"]), storage
    )
    trained(planned, storage)
    (record,) = cs.load("odd", storage=storage).trial_records.values()
    assert "a loader returns a torch.nn.Module" in record.error and "returned int" in record.error


def test_declared_scores_are_decided_at_a_share_of_alpha_and_others_are_not(tmp_path):
    metrics = ["digits/knn1", "digits/probe"]
    declared = [Evaluation(["digits"], metrics=metrics)]
    arms = {name: cs.Arm("contrastive", arm.config) for name, arm in ARMS.items()}
    study = cs.AblationGrid(
        "source", arms, "digits-lt", folds=2, seeds=[0, 1], metric="knn1", evaluate=declared
    )
    assert study.level == pytest.approx(0.05 / 3), "by which a plan says what is decided"
    calm_run(study, tmp_path)
    plain = source(tmp_path)
    assert not is_evaluated(plain, declared[0]) and plain.document.level == pytest.approx(0.05 / 3)
    assert plain.answer.pairs[0].comparison.family.alpha == pytest.approx(0.05 / 3)
    evaluated(str(tmp_path), on=["digits"])
    results = source(tmp_path)
    assert is_evaluated(results, declared[0])
    for metric in metrics:
        comparison = results.versus("ocl", "supcon", metric).overall.comparison
        assert comparison.judgement is not None
        assert comparison.family.alpha == pytest.approx(0.05 / 3)
        assert (
            "alpha 0.05 is divided among knn1, digits/knn1, digits/probe"
            in results.table(metric=metric).to_text()
        )
    assert results.versus("ocl", "supcon", "digits/knn5").overall.comparison.judgement is None
    lost = next(iter(results.trial_records.values()))
    own = results.records.read_one(lost.trial_id)
    results.records.write(dataclasses.replace(own, ended=own.ended + 1))
    again = source(tmp_path)
    assert again.versus("ocl", "supcon", "digits/knn1").overall.comparison.judgement is None, (
        "a score is missing"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"data": []}, "data, or a function"),
        ({"data": ["digits"], "metrics": ["mnist/knn1"]}, "is one of its scores"),
        ({"data": ["digits"], "function": "m:f", "metrics": ["digits/knn1"]}, "digits/f/METRIC"),
        ({"data": ["digits", "./digits"]}, "different names"),
        ({"data": ["digits"], "metrics": ["digits/f/score"]}, "is one of its scores"),
        ({"data": ["digits"], "metrics": ["digits/knn1", "digits/knn1"]}, "decided once"),
    ],
)
def test_an_evaluation_that_a_study_cannot_declare_is_one_line(fields, said):
    with refused(cs.SpecError, match=said):
        cs.AblationGrid("s", ARMS, "digits", evaluate=[fields])


def test_names_that_evaluations_would_have_are_checked_when_the_study_is_declared():
    """Else the run ends with an error once all has been trained."""
    scored = [{"function": "one:score"}, {"function": "two:score"}]
    with refused(cs.SpecError, "two functions of one name"):
        cs.AblationGrid("s", ARMS, "digits", evaluate=scored)
    with refused(cs.SpecError, "a name of at most 100 characters"):
        cs.AblationGrid("s" * 95, ARMS, "digits", evaluate=scored[:1])
    twice = [{"function": "one:score", "data": [name]} for name in ("digits", "digits-lt")]
    assert cs.AblationGrid("s" * 70, ARMS, "digits", evaluate=twice).evaluate


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("function: no_module:f", "evaluate: the function's module cannot be imported"),
        ("function: scores:non", "did you mean 'none'?"),
        ("data: [synthetic-pairs]", "evaluate: networks are scored on images with labels"),
        ("data: [nothing]", "there is no dataset 'nothing'"),
    ],
)
def test_a_plan_refuses_a_declared_evaluation_that_cannot_be_computed_in_one_line(
    declared, said, tmp_path
):
    make_files(
        tmp_path,
        {"scores.py": "def none(model, data, trial):\n    return {}\n", "study.yaml": DECLARED},
    )
    done = contrasweep("plan", "study.yaml", "--set", f"evaluate=[{{{declared}}}]", folder=tmp_path)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, (
        done.stderr
    )
    assert not done.stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == [
        "scores.py",
        "study.yaml",
    ]


def test_a_plan_names_the_command_for_data_that_its_evaluation_waits_for(tmp_path):
    (tmp_path / "study.yaml").write_text(DECLARED)
    done = contrasweep(
        "plan", "study.yaml", "--set", "evaluate=[{data: [digits, mnist]}]", folder=tmp_path
    )
    assert done.returncode == 0 and "trials    4: 0 done, 4 to run" in done.stdout, done.stderr
    (missing,) = [line for line in done.stdout.splitlines() if line.startswith("missing")]
    assert missing.startswith("missing   mnist: the scores that evaluate declares")
    assert "not staged: contrasweep data stage mnist --source PATH" in missing


def test_a_study_that_grows_decides_its_own_metric_alone():
    declared = [{"data": ["digits"], "metrics": ["digits/knn1"]}]
    with refused(cs.SpecError, "decides its own metric alone"):
        cs.AblationGrid(
            "s",
            ARMS,
            "digits",
            replicates=cs.Replicates(first=4, step=4, most=8),
            evaluate=declared,
        )


DECLARED = """
name: declared
data: digits-lt
seeds: [0, 1]
metric: knn1
evaluate:
  - {data: [digits], metrics: [digits/knn1]}
keep_checkpoints_of: none
arms:
  supcon: {trainable: contrastive, config: {loss: supcon, epochs: 1, batch_size: 256, encoder: cnn}}
  ocl: {trainable: contrastive, config: {loss: ocl, epochs: 1, batch_size: 256, encoder: cnn}}
"""


@pytest.mark.long
def test_a_run_computes_what_its_study_declares_before_checkpoints_go_and_mlflow_has_it(tmp_path):
    (tmp_path / "study.yaml").write_text(DECLARED)
    words = ["run", "study.yaml", "--storage", "runs", "--tracking", "sqlite:///ml.db"]
    with ray_folder() as ray:
        for _ in range(2):  # the second time nothing is left to do, and no checkpoint
            printed, _ = output_of(start_driver(*words, folder=tmp_path, ray=ray))
    results = cs.load("declared", storage=str(tmp_path / "runs"))
    assert results.done["digits/knn1"].notna().all() and len(results.done) == 4
    assert "alpha 0.05 is divided among knn1, digits/knn1" in printed
    assert plan_cleaning(results, "none").trials == ()
    client = MlflowClient(f"sqlite:///{tmp_path}/ml.db")
    experiment = client.get_experiment_by_name("declared").experiment_id
    runs = {
        run.data.tags.get("trial_id"): run.data.metrics for run in client.search_runs([experiment])
    }
    for trial, record in results.trial_records.items():
        assert runs[trial]["digits/knn1"] == record.metrics["digits/knn1"]
    assert len(runs) == 5 and client.get_experiment_by_name("declared.on-digits") is None
