"""A parallel search with declared slots: the same configurations, whatever ends first."""

import random

import pytest
from sweeps import ARMS, record_of, sweep

from contrasweep.planning.planner import plan
from contrasweep.storage.record import Phase
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import NextTrial
from contrasweep.tuning.sweep_source import SweepSource

ONE_ARM = {"long": ARMS["long"]}


def search(study, storage, order, *, places=4, stop_after=10**9):
    """Configurations in the order of asking, with trials that end in a random order; and how many ran at most."""
    records = StudyRecords(str(storage), study.name)
    source = SweepSource(plan(study, storage=str(storage)), records, lambda _: None)
    running = []
    collected = []
    most = 0
    while len(collected) < stop_after:
        while (
            len(running) < places
            and isinstance(answer := source.next(), NextTrial)
            and answer.notes.phase == Phase.SEARCH
        ):
            running.append(answer)
            collected.append((answer.notes.candidate, answer.trial.config["lr"]))
        most = max(most, len(running))
        if not running:
            break
        ended = running.pop(order.randrange(len(running)))
        record = record_of(ended.trial, ended.notes)
        records.write(record)
        source.done(record)
    return collected, most


def in_four_orders(folder, **fields):
    study = sweep(arms=ONE_ARM, trials_per_arm=14, **fields)
    return [search(study, folder / str(seed), random.Random(seed)) for seed in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 3])
def test_the_order_in_which_trials_end_changes_no_configuration(tmp_path, slots):
    runs = in_four_orders(tmp_path, slots=slots)
    assert len(runs[0][0]) == 14
    assert all(entry == runs[0][0] for entry, _ in runs)
    assert all(most == slots for _, most in runs)


def test_an_interrupted_search_with_slots_asks_the_same(tmp_path):
    study = sweep(arms=ONE_ARM, trials_per_arm=14, slots=3)
    calm, _ = search(study, tmp_path / "calm", random.Random(0))
    search(study, tmp_path / "shaken", random.Random(1), stop_after=6)
    rest, _ = search(study, tmp_path / "shaken", random.Random(2))
    stored = StudyRecords(str(tmp_path / "shaken"), study.name)
    records = stored.read(stored.finished()).values()
    assert dict(calm) == {r.notes.candidate: r.config["lr"] for r in records}
    assert len(rest) < 14


def test_slots_are_part_of_the_search_and_nothing_else_is(storage):
    def digest(**fields):
        return plan(sweep(**fields), storage=storage).search_digest("long")

    assert digest(slots=2) != digest() != digest(slots=3)
    assert digest() == digest(confirm_seeds=[7])
