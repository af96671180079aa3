"""What Ray does not promise: each name may be gone, and a run goes on without what rests on it and says so."""

import os
import pkgutil
import sys
from types import SimpleNamespace

import pytest
import ray
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.registry import _global_registry as registry

import contrasweep as cs
from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.tune_engine import LOST, NEVER_BEGAN, _cause, _error_text, _reason
from contrasweep.storage.record import Cause
from contrasweep.storage.records import StudyRecords

NAMES = [name for feature in ray_internals.FEATURES for name in feature.names]


@pytest.fixture
def gone(monkeypatch):
    """Takes dotted names away from our modules; Ray itself keeps them."""
    plain = pkgutil.resolve_name
    names = set[str]()

    def resolve_name(name):
        if name in names:
            raise AttributeError(name)
        return (
            None
            if name in ray_internals.PROCESSES.names and not ray.is_initialized()
            else plain(name)
        )

    monkeypatch.setattr(pkgutil, "resolve_name", resolve_name)
    return names.update


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_gone_is_a_line_that_says_which_feature_is_off(name, gone):
    assert list(ray_internals.lacking()) == []
    gone([name])
    [feature] = [feature for feature in ray_internals.FEATURES if name in feature.names]
    assert list(ray_internals.lacking()) == [
        f"Ray {ray.__version__} has no {name}: {feature.without}"
    ]


def test_where_all_names_are_gone_nothing_is_changed_and_nothing_fails(gone, monkeypatch):
    gone(NAMES)
    before = (ray.exceptions.RayActorError.preempted, pkgutil.resolve_name)
    ray_internals.leave_callbacks_alone()
    ray_internals.keep_credentials()
    ray_internals.forgive_lost_hosts()
    ray_internals.replace_refusing_workers(print)
    ray_internals.forget_authentication()
    asked = TuneTrial.set_ray_actor
    ray_internals.ask_no_location()
    assert TuneTrial.set_ray_actor is asked
    with ray_internals.registry_read_once():
        assert "get" not in vars(registry)
    ray_internals.keep_places()()
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
        hidden = type(
            "Hidden", (), {part: None for part in vars(owner) if part != name.split(".")[-1]}
        )
        if owner is trial:
            del trial.__dict__[name]
        else:
            setattr(trial, name.split(".")[0], hidden())

    monkeypatch.setattr(TuneTrial, "__init__", without)
    [line] = [line for line in ray_internals.lacking() if "of a trial" in line]
    assert line.startswith(f"Ray {ray.__version__} has no {name} of a trial: ")


def test_a_lost_host_is_no_failure_and_another_loss_is(monkeypatch):
    monkeypatch.setattr(
        ray.exceptions.RayActorError, "preempted", ray.exceptions.RayActorError.preempted
    )
    error = ray.exceptions.ActorUnavailableError
    assert not error("rpc error", None).preempted
    ray_internals.forgive_lost_hosts()
    assert error("The actor is temporarily unavailable: rpc error", None).preempted
    assert not ray.exceptions.ActorDiedError().preempted


KILLED = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."
DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."


@pytest.mark.parametrize(
    ("error", "sentence", "cause", "reason"),
    [
        ("ray::Trainable.train()\nValueError: x", "", Cause.METHOD, "ValueError: x"),
        ("ray::Trainable.train()\nMemoryError", "", Cause.HOST_MEMORY, "its memory ran out"),
        (KILLED, "", Cause.HOST_MEMORY, "its memory ran out"),
        (DIED, LOST, Cause.SIGNAL, "its worker or host was lost"),
        (f"{DIED} its node has died", LOST, Cause.HOST_LOST, "its worker or host was lost"),
        (f"{DIED} The actor never ran", NEVER_BEGAN, Cause.HOST_LOST, "its worker or host was lost"),
    ],
)  # fmt: skip
def test_only_a_process_that_was_lost_without_a_word_gets_our_sentence(
    error, sentence, cause, reason, tmp_path
):
    file = tmp_path / "error.txt"
    file.write_text(
        f"Failure # 1 (occurred at 9)\nMemoryError\nFailure # 2 (occurred at 9)\n{error}\n"
    )
    text = _error_text(SimpleNamespace(error_file=str(file)))
    assert text == f"{error}\n" + (f"{sentence}\n" if sentence else "")
    records = StudyRecords(str(tmp_path), "s")
    assert (_cause(records, "t", text), _reason(text)) == (cause, reason)


def test_what_is_registered_is_read_once_and_anew_after_it_is_registered_again(monkeypatch):
    kept = {("env", "a"): 1}
    read = []
    monkeypatch.setattr(type(registry), "get", lambda self, *key: (read.append(key), kept[key])[1])
    monkeypatch.setattr(type(registry), "contains", lambda self, *key: key in kept)
    monkeypatch.setattr(
        type(registry),
        "register",
        lambda self, category, key, value: kept.update({(category, key): value}),
    )
    with ray_internals.registry_read_once():
        assert not registry.contains("env", "b") and registry.contains("env", "a")
        assert [registry.get("env", "a") for _ in range(3)] == [1, 1, 1] and len(read) == 1
        registry.register("env", "a", 2)
        registry.register("env", "b", 3)
        assert (registry.get("env", "a"), registry.get("env", "b")) == (2, 3)
        assert registry.contains("env", "b")
    kept["env", "a"] = 4
    assert registry.get("env", "a") == 4, "after a run Ray's own reading is back"


def test_a_placement_group_serves_the_next_of_its_kind_or_goes_after_a_turn(monkeypatch):
    manager_class = pkgutil.resolve_name(ray_internals._MANAGER)
    made = []
    removed = []
    monkeypatch.setattr(
        manager_class,
        "request_resources",
        lambda self, resource_request: made.append(resource_request),
    )
    monkeypatch.setattr(
        manager_class,
        "cancel_resource_request",
        lambda self, resource_request: removed.append(resource_request),
    )
    remove_unused = ray_internals.keep_places()
    remove_unused = ray_internals.keep_places()  # a second run in this process: wrapped once
    manager, other = (object.__new__(manager_class) for _ in range(2))
    for one in (manager, other):
        one.clear = lambda: None  # of `__del__`
    manager.request_resources(resource_request="one core")
    manager.cancel_resource_request(resource_request="one core")
    remove_unused()
    manager.request_resources(resource_request="one core")
    assert (made, removed) == (["one core"], []), "kept over a turn, and used"
    manager.cancel_resource_request(resource_request="one core")
    manager.request_resources(resource_request="two cores")
    other.request_resources(resource_request="one core")
    assert made == ["one core", "two cores", "one core"], "neither another's nor of other resources"
    remove_unused()
    assert removed == []
    remove_unused()
    assert removed == ["one core"], "nobody asked within a turn"
    remove_unused()
    assert removed == ["one core"]


def test_a_worker_is_not_asked_where_it_runs(monkeypatch):
    monkeypatch.setattr(TuneTrial, "set_ray_actor", TuneTrial.set_ray_actor)
    ray_internals.ask_no_location()
    trial = TuneTrial("none", stub=True)
    actor = object()
    trial.set_ray_actor(actor)
    assert ray_internals.actor_of(trial) is actor and trial._default_result_or_future is None


@pytest.mark.long
@pytest.mark.xdist_group("ray")
def test_a_study_runs_on_a_ray_without_any_of_the_names(storage, gone, capfd, monkeypatch):
    gone(NAMES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers find what tests import
    arms = {"toy": cs.Arm("toy:train", {"epochs": 2})}
    study = cs.AblationGrid("bare", arms, "digits-lt", folds=2, metric="accuracy", seeds=[0])
    results = cs.run(study, storage=storage, tracking="none")
    assert [record.status for record in results.trial_records.values()] == ["done", "done"]
    said = capfd.readouterr().err
    for feature in ray_internals.FEATURES:
        assert f"has no {feature.names[0]}: {feature.without}" in " ".join(said.split()), said
