"""A member of a folded step is the trial alone: weights, statistics and losses, in float64 after 20 steps."""

import pytest
import torch
from folded_members import SHAPE, Member, folded_step, furthest, members, network, train
from torch import nn

from contrasweep.trainables import optimisation
from contrasweep.trainables.contrastive.averaging import Averaged
from contrasweep.trainables.contrastive.temperature import LearnableTemperature
from contrasweep.trainables.fusing.folding import (
    FoldedAverage,
    FoldedLoss,
    FoldedTemperature,
    Step,
    fold,
    fold_optimizer,
)
from contrasweep.trainables.fusing.folding.rules import Unfoldable
from contrasweep.trainables.losses import LOSSES, build

ENCODERS_TO_FOLD = {"cnn": {"width": 4}, "mlp": {"width": 8}, "resnet18": {"divisor": 8}}
WITH_WEIGHTS = [name for name in LOSSES if build(name).has_weights]
LOSSES_TO_FOLD = [
    (name, similarity)
    for name in LOSSES
    if name not in WITH_WEIGHTS
    for similarity in (LOSSES[name].similarities or (None,))
]
UNSTABLE = {"barlow_twins": 1e-4, "vicreg": 1e-3, "infonce": 1e-3, "lifted_structured": 1e-3}
"""Losses that are trained at a lower rate: at .05, and Barlow Twins at .001, differences of rounding grow by themselves
(3.6e-10 after 50 steps at .001, 1.5e-11 at .0003, 1.6e-14 at .0001, where an error of ours would not fall with it)."""


def doubles(values: list[list[float]]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("engine", ["grouped", "products"])
@pytest.mark.parametrize("encoder", ["cnn", "mlp"])
def test_an_encoder_after_twenty_steps(encoder: str, engine: str) -> None:
    trials = members(network(encoder, **ENCODERS_TO_FOLD[encoder]), 3)
    step = folded_step(trials, engine)
    alone = [trial.train(range(20), 8, SHAPE) for trial in trials]
    fused = train(step, trials, range(20), 8, SHAPE)
    torch.testing.assert_close(doubles(fused), doubles(alone), rtol=1e-10, atol=0)
    assert furthest(step, trials) < 1e-10


@pytest.mark.parametrize(("loss", "similarity"), LOSSES_TO_FOLD)
def test_a_loss_with_each_similarity(loss: str, similarity: str | None) -> None:
    compared = {} if similarity is None else {"similarity": similarity}
    trials = members(network("mlp", width=4), 2, loss=loss, lr=UNSTABLE.get(loss, 0.05), **compared)
    step = folded_step(trials)
    alone = [trial.train(range(4), 6, SHAPE) for trial in trials]
    fused = train(step, trials, range(4), 6, SHAPE)
    torch.testing.assert_close(doubles(fused), doubles(alone), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", WITH_WEIGHTS)
def test_a_loss_with_weights_of_its_own_is_not_folded(loss: str) -> None:
    with pytest.raises(Unfoldable, match="the loss has weights of its own"):
        folded_step(members(network("mlp", width=4), 2, loss=loss))


def test_a_loss_by_dotted_path_is_computed_member_by_member() -> None:
    trials = members(network("mlp", width=4), 2, loss="hardest_loss:from_the_hardest")
    step = folded_step(trials)
    alone = [trial.train(range(4), 6, SHAPE) for trial in trials]
    torch.testing.assert_close(doubles(train(step, trials, range(4), 6, SHAPE)), doubles(alone), rtol=1e-10, atol=1e-12)


OPTIMIZERS = {
    "sgd": (optimisation.SGD, lambda k: {"weight_decay": 0.01 * k, "momentum": 0.3 * k, "decay_on": "weights"}),
    "adamw": (optimisation.AdamW, lambda k: {"weight_decay": 0.1 * k, "betas": (0.9 - 0.2 * k, 0.99), "eps": 1e-8}),
    "lars": (optimisation.LARS, lambda k: {"trust": 0.01 * (k + 1), "weight_decay": 1e-3 * k}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_after_twenty_steps(name: str) -> None:
    plain, options = OPTIMIZERS[name]
    trials = members(network("cnn", width=4), 2, plain=plain, options=options, lr=0.01)
    for k, trial in enumerate(trials):
        trial.train(range(3 * k), 8, SHAPE)  # members join at different steps
        trial.clip = 0.1 * k
    step = folded_step(trials, "products")
    for trial in trials:
        trial.train(range(3, 23), 8, SHAPE)
    train(step, trials, range(3, 23), 8, SHAPE)
    assert furthest(step, trials) < 1e-10
    for k, trial in enumerate(trials):
        state, taken = trial.optimizer.state_dict(), step.optimizer.take(k)
        assert state.keys() == taken.keys()
        torch.testing.assert_close(taken, state, rtol=1e-9, atol=1e-15)


def test_the_numbers_of_a_loss_are_each_members_own() -> None:
    numbers = lambda k: {"temperature": 0.1 + 0.2 * k, "epsilon": 0.05 * k}  # noqa: E731
    trials = members(network("cnn", width=4), 3, loss="sincere", numbers=numbers)
    step = folded_step(trials)
    alone = [trial.train(range(20), 8, SHAPE) for trial in trials]
    torch.testing.assert_close(
        torch.tensor(train(step, trials, range(20), 8, SHAPE)), torch.tensor(alone), rtol=1e-10, atol=0
    )


EVERY = [
    *(("cnn", loss, "products") for loss in sorted(LOSSES) if loss not in WITH_WEIGHTS),
    *(("resnet18", "supcon", engine) for engine in ("grouped", "products")),
]


def shape_of(encoder: str) -> tuple[int, int, int]:
    """At 8 pixels the last blocks of a ResNet-18 see one position an image, and batch norms over few values amplify
    rounding (3e-15 to 6e-9 in 50 steps of supcon at an eighth of the width); at 16 it stays below 1e-14."""
    return (1, 16, 16) if encoder == "resnet18" else SHAPE


def two(encoder: str, loss: str) -> list[Member]:
    rate = 1e-4 if encoder == "resnet18" else UNSTABLE.get(loss, 0.01)
    return members(network(encoder, shape_of(encoder), **ENCODERS_TO_FOLD[encoder]), 2, loss=loss, lr=rate)


@pytest.mark.long
@pytest.mark.parametrize(("encoder", "loss", "engine"), EVERY)
def test_every_loss_after_twenty_steps(encoder: str, loss: str, engine: str) -> None:
    trials = two(encoder, loss)
    step = folded_step(trials, engine)
    alone = [trial.train(range(20), 4, shape_of(encoder)) for trial in trials]
    fused = train(step, trials, range(20), 4, shape_of(encoder))
    torch.testing.assert_close(doubles(fused), doubles(alone), rtol=1e-10, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["grouped", "products"])
def test_a_resnet_of_full_width_takes_a_step(engine: str) -> None:
    """At 32 pixels, as studies train it; its 11 million weights after one step."""
    shape = (3, 32, 32)
    trials = members(network("resnet18", shape), 2, lr=1e-3)
    step = folded_step(trials, engine)
    alone = [trial.train(range(1), 4, shape) for trial in trials]
    fused = train(step, trials, range(1), 4, shape)
    torch.testing.assert_close(doubles(fused), doubles(alone), rtol=1e-10, atol=0)
    assert furthest(step, trials) < 1e-10


def test_temperature_and_average() -> None:
    trials = members(network("cnn", width=4), 3, loss="infonce")
    initial, decays = [0.2, 0.5, 0.3], [0.9, 0.5, 0.0]
    plain = [LearnableTemperature(value).double() for value in initial]
    rates, options = [0.01, 0.02, 0.03], {"momentum": 0.5}
    folded = fold(trials[0].network, 3, "products")
    temperature, average = FoldedTemperature(folded.slots), FoldedAverage(folded)
    temperature.log_scale = nn.Parameter(temperature.log_scale.detach().double())
    optimizer = fold_optimizer(
        optimisation.SGD,
        [*folded.parameters(), temperature.log_scale],
        folded.slots,
        [*folded.templates, plain[0].log_scale],
    )
    loss = FoldedLoss(trials[0].loss, folded.slots, learnable_temperature=True)
    step = Step(folded, loss, optimizer, temperature, average)
    averages = [Averaged(trial.network, decay) for trial, decay in zip(trials, decays, strict=True)]
    for k, trial in enumerate(trials):
        folded.put(k, trial.network.state_dict())
        temperature.put(k, plain[k])
        average.put(k, decays[k], averages[k].state_dict())
        optimizer.put(k, options)
        optimizer.lr[k] = rates[k]
        one = optimisation.SGD([*trial.network.parameters(), *plain[k].parameters()], rates[k], **options)
        for number in range(20):
            images, labels, ids = trial.batch(number, 8, SHAPE)
            value = plain[k].applied(trial.loss)(trial.network(images), labels, ids)
            one.step(optimisation.gradients_of(one, value))
            averages[k].update()
            plain[k].clip()
    for number in range(20):
        step(*map(torch.stack, zip(*(trial.batch(number, 8, SHAPE) for trial in trials), strict=True)))
    for k, trial in enumerate(trials):
        torch.testing.assert_close(folded.take(k), dict(trial.network.state_dict()), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(average.take(k), dict(averages[k].state_dict()), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(temperature.take(k), dict(plain[k].state_dict()), rtol=1e-10, atol=0)
    assert plain[0].value != initial[0]
