"""Which of Tune's waiting trials is the next."""

from types import SimpleNamespace

from contrasweep.running.engine.tune_engine import TuneScheduler


def test_the_trial_that_was_handed_out_first_is_next_and_a_paused_one_last():
    accounts = SimpleNamespace(active=dict.fromkeys("abcde"), closing=lambda: False)
    loop = SimpleNamespace(
        accounts=accounts, queue=SimpleNamespace(hosts=SimpleNamespace(autoscaled=False))
    )
    statuses = {"e": "PENDING", "c": "PENDING", "b": "PAUSED", "d": "PENDING", "a": "RUNNING"}
    live = [
        SimpleNamespace(config={"id": name}, status=status) for name, status in statuses.items()
    ]
    controller = SimpleNamespace(get_live_trials=lambda: set_like(live))
    taken = []
    while (chosen := TuneScheduler(loop).choose_trial_to_run(controller)) is not None:
        taken.append(chosen.config["id"])
        chosen.status = "RUNNING"
    assert taken == ["c", "d", "e", "b"]


def set_like(trials):
    """In another order each time, as Tune's set may be."""
    trials.append(trials.pop(0))
    return list(trials)
