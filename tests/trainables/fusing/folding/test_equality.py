"""A member of a folded step is the trial alone: weights, statistics and losses, in float64 after 50 steps."""

import functools

import pytest
import torch
from folded_members import SHAPE, Member, folded_step, furthest, members, network, train

from contrasweep.trainables import optimisation
from contrasweep.trainables.losses import LOSSES

ENCODERS_TO_FOLD = {"cnn": {"width": 4}, "mlp": {"width": 8}, "resnet18": {"divisor": 8}}
LOSSES_TO_FOLD = [(name, similarity) for name in LOSSES for similarity in (LOSSES[name].similarities or (None,))]
UNSTABLE = {"barlow_twins": 1e-4, "vicreg": 1e-3, "infonce": 1e-3, "lifted_structured": 1e-3}
"""Losses that are trained at a lower rate: at .05, and Barlow Twins at .001, differences of rounding grow by themselves
(3.6e-10 after 50 steps at .001, 1.5e-11 at .0003, 1.6e-14 at .0001, where an error of ours would not fall with it)."""


def doubles(values: list[list[float]]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("engine", ["grouped", "products"])
@pytest.mark.parametrize("encoder", ["cnn", "mlp"])
def test_an_encoder_after_fifty_steps(encoder: str, engine: str) -> None:
    trials = members(network(encoder, **ENCODERS_TO_FOLD[encoder]), 3)
    step = folded_step(trials, engine)
    alone = [trial.train(range(50), 8, SHAPE) for trial in trials]
    fused = train(step, trials, range(50), 8, SHAPE)
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
def test_an_optimizer_after_fifty_steps(name: str) -> None:
    plain, options = OPTIMIZERS[name]
    trials = members(network("cnn", width=4), 2, plain=plain, options=options, lr=0.01)
    for k, trial in enumerate(trials):
        trial.train(range(3 * k), 8, SHAPE)  # members join at different steps
        trial.clip = 0.1 * k
    step = folded_step(trials, "products")
    for trial in trials:
        trial.train(range(3, 53), 8, SHAPE)
    train(step, trials, range(3, 53), 8, SHAPE)
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
    *((encoder, loss) for encoder in ("cnn", "mlp") for loss in sorted(LOSSES)),
    *(("resnet18", loss) for loss in ("supcon", "margin_contrastive")),
]


def shape_of(encoder: str) -> tuple[int, int, int]:
    """At 8 pixels the last blocks of a ResNet-18 see one position an image, and batch norms over few values amplify
    rounding (3e-15 to 6e-9 in 50 steps of supcon at an eighth of the width); at 16 it stays below 1e-14."""
    return (1, 16, 16) if encoder == "resnet18" else SHAPE


def two(encoder: str, loss: str) -> list[Member]:
    rate = 1e-4 if encoder == "resnet18" else UNSTABLE.get(loss, 0.01)
    return members(network(encoder, shape_of(encoder), **ENCODERS_TO_FOLD[encoder]), 2, loss=loss, lr=rate)


@functools.cache
def losses_alone(encoder: str, loss: str) -> list[list[float]]:
    """They do not depend on the engine that they are compared with."""
    return [trial.train(range(50), 4, shape_of(encoder)) for trial in two(encoder, loss)]


@pytest.mark.long
@pytest.mark.parametrize("engine", ["grouped", "products"])
@pytest.mark.parametrize(("encoder", "loss"), EVERY)
def test_every_encoder_with_every_loss(encoder: str, loss: str, engine: str) -> None:
    trials = two(encoder, loss)
    fused = train(folded_step(trials, engine), trials, range(50), 4, shape_of(encoder))
    torch.testing.assert_close(doubles(fused), doubles(losses_alone(encoder, loss)), rtol=1e-10, atol=1e-12)


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
