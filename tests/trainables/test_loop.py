"""The loop that methods share: when it evaluates, saves, resumes and ends, and which steps its guard takes."""

import math
from typing import Any

import pytest
import torch

from contrasweep.data.manifest import Manifest
from contrasweep.trainables import checkpoint, loop, optimisation
from contrasweep.trainables.losses.batch import NotFiniteError
from contrasweep.trial import Trial

DATA = Manifest("none", "", "image", {})


class Counter:
    """A method whose weights are the number of epochs trained; it ends after `epochs`."""

    def __init__(self, epochs):
        self.guard = loop.Guard(0.1)
        self.model = torch.nn.Linear(1, 1)
        self.epochs = epochs
        self.events: list[Any] = []
        with torch.no_grad():
            self.model.weight.zero_()

    @property
    def parts(self):
        return {"model": self.model}

    def epoch(self, epoch):
        with torch.no_grad():
            self.model.weight += 1
        self.guard.nonfinite_steps += 1
        return {"loss": 1.0 / epoch}

    def ends(self, epoch):
        return epoch >= self.epochs

    def evaluate(self, final, folder):
        self.events.append(final)
        with torch.no_grad():  # as a method does that tests the best epoch's weights
            self.model.weight += 0 if not final else 100
        return loop.Evaluation({"score": 1.0}, {"hits": [1]} if final else {})


def trial(fold=0):
    return Trial("study", "arm", "module:train", {}, DATA, fold)


@pytest.mark.parametrize(
    ("fold", "scored", "every", "saved"), [(0, [2, 4, 5], 3, [3, 5]), (None, [5], 0, [5])]
)
def test_it_evaluates_and_saves_when_due_and_at_the_end(fold, scored, every, saved):
    method = Counter(epochs=5)
    reports = list(loop.run(method, trial(fold), evaluate_every=2, checkpoint_every=every))
    assert [r.step for r in reports] == [1, 2, 3, 4, 5]
    assert [r.step for r in reports if "score" in r.metrics] == scored
    assert method.events == [
        *[False] * (len(scored) - 1),
        True,
    ]
    assert [r.step for r in reports if r.checkpoint] == saved
    assert [r.step for r in reports if r.items] == [5]
    assert [r.metrics["nonfinite_steps"] for r in reports] == [1, 2, 3, 4, 5]


def test_it_resumes_with_the_guards_counts_and_saves_before_the_last_evaluation():
    reports = loop.run(Counter(epochs=4), trial(), checkpoint_every=1)
    next(reports)
    saved = next(reports).checkpoint
    assert saved is not None
    method = Counter(epochs=4)
    rest = loop.run(method, trial(), saved, checkpoint_every=1)
    assert next(rest).metrics == {"loss": 1 / 3, "nonfinite_steps": 3.0}
    last = next(rest)
    assert last.checkpoint is not None and last.step == 4
    assert checkpoint.part(last.checkpoint, "model")["weight"].item() == 4
    assert method.model.weight.item() == 104


def test_a_finished_method_has_nothing_left_to_do():
    run = loop.run(Counter(epochs=1), trial())
    saved = next(run).checkpoint
    assert list(loop.run(Counter(epochs=1), trial(), saved)) == []


def gives(loss, slope):
    return lambda: (torch.tensor(loss), [torch.tensor([slope])], "kept")


def refuses():
    raise NotFiniteError("embeddings: must be finite")


def test_the_guard_takes_finite_steps_only_and_counts_the_others():
    weight = torch.nn.Parameter(torch.ones(1))
    guard = loop.Guard(0.5)
    sgd = optimisation.SGD([weight], lr=1.0, momentum=0.0)
    for step in (gives(math.inf, 1.0), gives(1.0, math.nan), refuses):
        assert guard.step(sgd, step) is None and weight.item() == 1
    assert guard.nonfinite_steps == 3
    taken = guard.step(sgd, gives(1.0, 4.0), clip=0.5)
    assert taken is not None and taken[0].item() == 4 and taken[1] == "kept"
    assert weight.item() == pytest.approx(0.5) and guard.nonfinite_steps == 3
    with pytest.raises(
        FloatingPointError, match=r"every step of epoch 7 .*: lower learning_rate \(0\.5\)$"
    ):
        guard.require_steps(0, 7)
    with pytest.raises(
        FloatingPointError, match=r"gives scores .* after 3 steps .*: lower learning_rate"
    ):
        guard.require_finite(torch.tensor([1.0, math.nan]), "scores")


class Learner:
    """A method with one weight, whose loss has a gradient from epoch `first` on."""

    def __init__(self, first, epochs=3, rate=0.1):
        self.first = first
        self.epochs = epochs
        self.rate = rate
        self.guard = loop.Guard(rate)
        self.network = torch.nn.Linear(1, 1)

    @property
    def parts(self):
        return {"model": self.network}

    def epoch(self, epoch):
        gradient = float(epoch >= self.first)
        with torch.no_grad():
            self.network.weight.sub_(self.rate * gradient)
        return {"loss": 0.0, "grad_norm": gradient}

    def ends(self, epoch):
        return epoch == self.epochs

    def evaluate(self, final, folder):
        return loop.Evaluation({})


@pytest.mark.parametrize(
    ("method", "untrained"),
    [
        (Learner(1), [0, 0, 0]),
        (Learner(2), [1, 0, 0]),
        (Learner(9), [1, 1, 1]),
        (Learner(1, rate=0.0), [1, 1, 1]),
    ],
    ids=["learns", "learns from epoch 2 on", "no gradient", "no weight changes"],
)
def test_a_trial_says_until_it_learns_that_nothing_is_learned(method, untrained, caplog):
    made = list(loop.run(method, trial()))
    assert [int(report.metrics.get("untrained", 0)) for report in made] == untrained
    assert len(caplog.records) == sum(untrained)


def test_a_loss_that_reached_zero_is_learned_also_after_a_resume():
    first = loop.run(Learner(1), trial())
    report = next(first)  # its folder lives as long as the training
    assert all(
        "untrained" not in later.metrics
        for later in loop.run(Learner(9), trial(), report.checkpoint)
    )
