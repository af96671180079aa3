"""Members come and go, rest and fail without the others noticing; what cannot be folded is refused."""

import pytest
import torch
from folded_members import SHAPE, folded_step, members, network, train
from torch import nn

from contrasweep.trainables.fusing.folding import ENGINES, Unfoldable, fold, folding_rule
from contrasweep.trainables.fusing.folding.rules import RULES, stacked


def state(step, slot):
    """All that belongs to a slot."""
    return {
        **step.network.take(slot),
        **{f"velocity.{i}": v for i, v in enumerate(step.optimizer.take(slot)["velocity"])},
    }


@pytest.mark.parametrize("engine", ["grouped", "products"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_put_is_taken_to_the_bit(engine: str, dtype: torch.dtype) -> None:
    trials = members(network("cnn", width=4), 2, dtype=dtype)
    for trial in trials:
        trial.train(range(2), 8, SHAPE)
    step = folded_step(trials, engine)
    for slot, trial in enumerate(trials):
        taken, plain = step.network.take(slot), trial.network.state_dict()
        assert list(taken) == list(plain)
        for name, value in plain.items():
            assert torch.equal(taken[name], value)
            assert (taken[name].dtype, taken[name].stride()) == (value.dtype, value.stride())
        velocity = trial.optimizer.state_dict()["velocity"]
        for mine, theirs in zip(step.optimizer.take(slot)["velocity"], velocity, strict=True):
            assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()


@pytest.mark.parametrize("engine", ["grouped", "products"])
def test_an_inactive_slot_does_not_move(engine: str) -> None:
    trials = members(network("cnn", width=4), 3, dtype=torch.float32)
    step = folded_step(trials, engine)
    step.network.slots.activate([0, 2])
    before = state(step, 1)
    outcome = [step(*map(torch.stack, zip(*(t.batch(i, 8, SHAPE) for t in trials), strict=True))) for i in range(3)]
    assert outcome[-1].taken.tolist() == [True, False, True]
    after = state(step, 1)
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("engine", ["grouped", "products"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_member_that_is_not_finite_leaves_the_others_equal_to_the_bit(engine: str, bad: float) -> None:
    trials = members(network("cnn", width=4), 3, dtype=torch.float32)
    calm, hurt = folded_step(trials, engine), folded_step(trials, engine)
    own = state(hurt, 1)
    for i in range(3):
        images, labels, ids = map(torch.stack, zip(*(t.batch(i, 8, SHAPE) for t in trials), strict=True))
        calm(images, labels, ids)
        images[1, 0] = bad
        assert hurt(images, labels, ids).taken.tolist() == [True, False, True]
    for slot in (0, 2):
        mine, theirs = state(hurt, slot), state(calm, slot)
        assert all(torch.equal(mine[name], value) for name, value in theirs.items())
    weights = dict(trials[1].network.named_parameters())
    assert all(torch.equal(state(hurt, 1)[name], own[name]) for name in weights)


def test_a_slot_is_refilled_with_a_member_of_another_age() -> None:
    trials = members(network("cnn", width=4), 3)
    step = folded_step(trials[:2])
    for trial in trials[:2]:
        trial.train(range(4), 8, SHAPE)
    train(step, trials[:2], range(4), 8, SHAPE)
    late = trials[2]
    step.network.put(0, late.network.state_dict())
    step.loss.put(0, late.loss)
    step.optimizer.put(0, late.options)
    step.optimizer.lr[0] = late.lr
    now = [late, trials[1]]
    alone = [trial.train(range(4, 8), 8, SHAPE) for trial in now]
    torch.testing.assert_close(train(step, now, range(4, 8), 8, SHAPE), alone, rtol=1e-11, atol=0)


class Noisy(nn.Module):
    """Noise of one draw for all values, or for each."""

    def __init__(self, *, each: bool) -> None:
        super().__init__()
        self.each = each

    def forward(self, x):
        """Values with noise."""
        return x + (torch.rand(x.shape) if self.each else torch.rand(1, 1))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (tied(), r"its '1\.weight' is shared by modules"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), r"weight.* computed from other parameters"),
        (hooked(), "module '0' has hooks"),
        (Noisy(each=True), "its forward calls rand, which draws random numbers"),
        (Noisy(each=False), "its forward draws random numbers"),
    ],
    ids=["tied", "parametrised", "hooked", "noise of values", "noise"],
)
def test_a_network_that_would_be_another_is_refused(model: nn.Module, why: str) -> None:
    state = torch.get_rng_state()
    with pytest.raises(Unfoldable, match=why):
        fold(model, 2)
    assert torch.equal(state, torch.get_rng_state())


def test_a_module_without_a_rule_is_named() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(8, 4)

        def forward(self, x):
            return self.cell(x.flatten(1, 2))[0].mean(1)

    with pytest.raises(Unfoldable, match=r"'1\.cell' is a LSTM, which has no folding rule"):
        fold(nn.Sequential(nn.Identity(), Recurrent()), 2)


class Scale(nn.Module):
    """A module of somebody's own: a factor a feature."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.rand(64))

    def forward(self, x):
        """Scaled features."""
        return x * self.factor


class Unscaled(nn.Module):
    """Its folded form, which leaves the features as they are, so that a test sees that it was used."""

    def __init__(self, module, slots) -> None:
        super().__init__()
        self.factor = stacked(module.factor, slots.count)

    def forward(self, x):
        """The same features."""
        return x


def test_own_forward_code_is_folded_without_a_rule_and_with_one() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Flatten(), Scale()), torch.randn(2, 5, 1, 8, 8)
    assert torch.equal(fold(model, 2)(x), torch.stack([model(part) for part in x]))
    calls = []

    @folding_rule(Scale)
    def fold_scale(module, slots, engine):
        calls.append(engine)
        return Unscaled(module, slots)

    try:
        assert torch.equal(fold(model, 2)(x), x.flatten(2))
    finally:
        del RULES[Scale]
    assert calls == [ENGINES["grouped"]]
