"""`contrasweep evaluate`: networks that were kept are scored on other data, and what was trained is not touched."""

import dataclasses
import functools
import sys
import types

import numpy as np
import pytest
import torch
from calm import calm_run

import contrasweep as cs
from contrasweep.running.evaluation import plan_evaluation
from contrasweep.running.prepare import study_document
from contrasweep.running.verification import verify
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.planned import write_planned
from contrasweep.storage.records import StudyRecords
from contrasweep.trainables.evaluation import networks

CONFIG = {"epochs": 1, "batch_size": 128, "encoder": "cnn", "transfer": ["digits"], "ema": 0.5}
ARMS = {loss: cs.Arm("contrastive", {"loss": loss, **CONFIG}) for loss in ("supcon", "ocl")}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """The storage of a trained study of two arms and folds, which scores its networks on `digits` itself."""
    folder = tmp_path_factory.mktemp("evaluated")
    calm_run(cs.AblationGrid("source", ARMS, "digits-lt", folds=2, metric="knn1", reference="supcon"), folder)
    return str(folder)


def contents(storage, study):
    store = StudyRecords(storage, study).store
    return {key: store.read(key) for key in store.list(f"{study}/")}


def evaluated(storage, *, on=(), function="", most=99, study="source"):
    """What `evaluate` does, without Ray: at most so many trials of the evaluation that have no record yet."""
    results = cs.load(study, storage=storage)
    planned = plan_evaluation(results, on, function)
    records = StudyRecords(storage, planned.study.name)
    results.records.store.write(f"{study}/evaluations/{planned.study.name}", b"")
    records.claim(study_document(planned))
    write_planned(records, planned.to_frame())
    left = [trial for trial in planned.trials if trial.id not in records.finished()][:most]
    train = functools.partial(networks.train, storage=storage)
    for trial in left:
        execution = Execution(trial, train, records, metric=planned.study.metric)
        while execution.advance().record is None:
            pass
    return len(left), planned.study.name


def test_scores_are_those_of_transfer_to_the_last_digit_and_nothing_trained_is_touched(storage):
    before = contents(storage, "source")
    assert evaluated(storage, on=["digits"], most=1)[0] == 1
    assert evaluated(storage, on=["digits"])[0] == 3 and evaluated(storage, on=["digits"]) == (0, "source.on-digits")
    after = contents(storage, "source")
    assert {key: data for key, data in after.items() if "/evaluations/" not in key} == before
    results = cs.load("source", storage=storage)
    done = results.done
    for metric in ("knn1", "knn5", "probe"):
        assert (done[f"digits/{metric}"] == done[f"{metric}_on_digits"]).all() and len(done) == 4
    assert {"digits/map_at_r", "digits/noise_similarity"} <= set(done) and results.mode(
        "digits/noise_similarity"
    ) == "min"
    assert verify(results.records).sound and verify(StudyRecords(storage, "source.on-digits")).sound


def test_what_was_scored_afterwards_stands_in_tables_and_decides_nothing(storage):
    _, name = evaluated(storage, on=["digits"])
    results = cs.load("source", storage=storage)
    table = results.table(metric="digits/knn1")
    assert table.metric == "digits/knn1" and not table.decisive
    assert results.versus("ocl", "supcon", "digits/knn1").overall.comparison.judgement is None
    own = cs.load(name, storage=storage)
    assert own.document.evaluates and not own.table().decisive
    assert cs.load("source*", storage=storage).name == "source", "a pattern does not mean it"
    with pytest.raises(cs.SpecError, match="is an evaluation"):
        plan_evaluation(own, ["digits"], "")


def test_own_code_gets_the_network_the_data_and_the_trial(storage, monkeypatch):
    def spread(model, data, trial):
        assert trial.id in cs.load("source", storage=storage).trial_records
        weights = sum(parameter.numel() for parameter in model.parameters())
        return {"weights": weights, "rows": len(data.split("train").labels)}

    module = types.ModuleType("scores")
    module.spread = spread
    module.nothing = lambda model, data, trial: {}
    monkeypatch.setitem(sys.modules, "scores", module)
    _, name = evaluated(storage, function="scores:spread")
    assert name == "source.with-spread"
    assert {r.error for r in cs.load(name, storage=storage).trial_records.values()} == {None}
    done = cs.load("source", storage=storage).done
    assert (done["spread/rows"] > 100).all() and done["spread/weights"].nunique() == 1
    evaluated(storage, on=["digits"], function="scores:spread")
    both = cs.load("source", storage=storage).done
    assert (both["digits/rows"] > both["spread/rows"]).all()
    _, name = evaluated(storage, function="scores:nothing")
    (error,) = {r.error.splitlines()[-1] for r in cs.load(name, storage=storage).trial_records.values()}
    assert "returns {metric: number}" in error


def test_a_network_that_started_from_another_is_evaluated_as_any(storage, monkeypatch):
    def known(model, data, trial):
        assert trial.start is not None and trial.id in cs.load("tuned", storage=storage).trial_records
        return {"features": model(torch.zeros(1, 1, 8, 8, dtype=torch.uint8)).shape[1]}

    monkeypatch.setitem(sys.modules, "scores", types.SimpleNamespace(known=known))
    arm = cs.Arm("finetune", {"epochs": 1, "frozen": True}, start=cs.Start("source", "ocl"))
    calm_run(cs.AblationGrid("tuned", {"a": arm}, "digits-lt", folds=2), storage)
    count, name = evaluated(storage, function="scores:known", study="tuned")
    assert count == 2 and {r.error for r in cs.load(name, storage=storage).trial_records.values()} == {None}
    assert (cs.load("tuned", storage=storage).done["known/features"] == 64).all()


def test_scores_of_a_network_that_was_trained_again_are_not_shown_and_it_is_scored_again(storage):
    evaluated(storage, on=["digits"])
    results = cs.load("source", storage=storage)
    record = next(iter(results.trial_records.values()))
    own = results.records.read_one(record.trial_id)
    results.records.write(dataclasses.replace(own, ended=own.ended + 1))
    frame = cs.load("source", storage=storage).to_frame().set_index("trial_id")
    assert frame["digits/knn1"].isna().sum() == 1 and np.isnan(frame.loc[record.trial_id, "digits/knn1"])
    assert evaluated(storage, on=["digits"])[0] == 1
    assert cs.load("source", storage=storage).to_frame()["digits/knn1"].notna().all()


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
    with pytest.raises(cs.ContrasweepError, match=said):
        plan_evaluation(cs.load("source", storage=storage), on, function)
