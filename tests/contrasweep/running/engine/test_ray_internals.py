"""What Ray does not promise: each name may be gone, and a run goes on without what rests on it and says so."""

import os
import pkgutil
import sys

import pytest
import ray
from ray.tune.experiment import Trial as TuneTrial

import contrasweep as cs
from contrasweep.running.engine import ray_internals

NAMES = [name for feature in ray_internals.FEATURES for name in feature.names]


@pytest.fixture
def gone(monkeypatch):
    """Takes dotted names away from our modules; Ray itself keeps them."""
    plain, names = pkgutil.resolve_name, set[str]()

    def resolve_name(name):
        if name in names:
            raise AttributeError(name)
        return None if name in ray_internals.PROCESSES.names and not ray.is_initialized() else plain(name)

    monkeypatch.setattr(pkgutil, "resolve_name", resolve_name)
    return names.update


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_gone_is_a_line_that_says_which_feature_is_off(name, gone):
    assert list(ray_internals.lacking()) == []
    gone([name])
    [feature] = [feature for feature in ray_internals.FEATURES if name in feature.names]
    assert list(ray_internals.lacking()) == [f"Ray {ray.__version__} has no {name}: {feature.without}"]


def test_where_all_names_are_gone_nothing_is_changed_and_nothing_fails(gone, monkeypatch):
    gone(NAMES)
    before = (ray.exceptions.RayActorError.preempted, pkgutil.resolve_name)
    ray_internals.leave_callbacks_alone()
    ray_internals.keep_credentials()
    ray_internals.forgive_lost_hosts()
    ray_internals.replace_refusing_workers(print)
    ray_internals.forget_authentication()
    assert ray_internals.waiting_for_resources(object()) == []
    with ray_internals.no_sigterm_handler():
        pass
    assert ray_internals.own_processes() is None and ray_internals.place_of(object()) is None
    assert (ray.exceptions.RayActorError.preempted, pkgutil.resolve_name) == before
    assert len(set(ray_internals.lacking())) == len(ray_internals.FEATURES)


@pytest.mark.parametrize("name", ray_internals.TRIAL_NAMES)
def test_a_trial_without_an_attribute_is_a_line_and_no_error(name, monkeypatch):
    class Bare:
        max_failures = 3

    for call in (ray_internals.forgive, ray_internals.give_up_next, ray_internals.forget):
        call(Bare())
    assert ray_internals.actor_of(Bare()) is None
    made = TuneTrial.__init__

    def without(trial, *arguments, **options):
        made(trial, *arguments, **options)
        owner = trial
        for part in name.split(".")[:-1]:
            owner = getattr(owner, part)
        hidden = type("Hidden", (), {part: None for part in vars(owner) if part != name.split(".")[-1]})
        if owner is trial:
            del trial.__dict__[name]
        else:
            setattr(trial, name.split(".")[0], hidden())

    monkeypatch.setattr(TuneTrial, "__init__", without)
    [line] = [line for line in ray_internals.lacking() if "of a trial" in line]
    assert line.startswith(f"Ray {ray.__version__} has no {name} of a trial: ")


def test_a_lost_host_is_no_failure_and_another_loss_is(monkeypatch):
    monkeypatch.setattr(ray.exceptions.RayActorError, "preempted", ray.exceptions.RayActorError.preempted)
    error = ray.exceptions.ActorUnavailableError
    assert not error("rpc error", None).preempted
    ray_internals.forgive_lost_hosts()
    assert error("The actor is temporarily unavailable: rpc error", None).preempted
    assert not ray.exceptions.ActorDiedError().preempted


@pytest.mark.long
@pytest.mark.xdist_group("ray")
def test_a_study_runs_on_a_ray_without_any_of_the_names(tmp_path, gone, capfd, monkeypatch):
    gone(NAMES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers find what tests import
    arms = {"toy": cs.Arm("toy:train", {"epochs": 2})}
    study = cs.AblationGrid("bare", arms, "digits-lt", folds=2, metric="accuracy", seeds=[0])
    results = cs.run(study, storage=str(tmp_path), tracking="none")
    assert [record.status for record in results.trial_records.values()] == ["done", "done"]
    said = capfd.readouterr().err
    for feature in ray_internals.FEATURES:
        assert f"has no {feature.names[0]}: {feature.without}" in " ".join(said.split()), said
