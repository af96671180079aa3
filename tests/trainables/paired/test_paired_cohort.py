"""Fused trials on image pairs report what they report alone, whoever is in the other slots."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fused_reports import back_and_forth, differ, fused

from contrasweep.data.manifest import Manifest
from contrasweep.study import dotted
from contrasweep.trainables import checkpoint
from contrasweep.trainables.fusing.cohorts import paired, probing
from contrasweep.trainables.fusing.protocol import CannotFuse, cohorts_of
from contrasweep.trainables.paired.fitting import PairedTraining
from contrasweep.trainables.paired_images import inputs, train
from contrasweep.trial import Trial

torch.set_num_threads(1)
MakeTrial = Callable[..., Trial]
TINY: dict[str, Any] = {
    "encoder": {"name": "resnet10", "width": 8, "stem": "small"},
    "classifier": {"hidden": 8},
    "projection": {"dim": 8},
    "image_size": 8,
    "learning_rate": 3e-3,
    "evaluate_every": 2,
    "artifacts": "none",
    "epochs": 2,
}


@pytest.fixture
def float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks and their inputs in double precision, alone and fused."""
    model, normalised, statistics = inputs.image_model, inputs.normalised, inputs.ImageInputs._colour_statistics

    def of_colour(self: inputs.ImageInputs, split: str, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(side.double() for side in statistics(self, split, rows))

    for module in (inputs, paired):
        monkeypatch.setattr(module, "image_model", lambda *given: model(*given).double())
    monkeypatch.setattr(inputs, "normalised", lambda *given: tuple(side.double() for side in normalised(*given)))
    monkeypatch.setattr(inputs.ImageInputs, "_colour_statistics", of_colour)


def member(make_trial: MakeTrial, number: int, **config: Any) -> Trial:
    """Trials of one key, each with its own numbers, seed and fold."""
    own = {
        "learning_rate": 3e-3 + 1e-3 * number,
        "alpha": 1.0 - 0.2 * number,
        "alpha_schedule": ("parabolic", "linear")[number % 2],
        "beta": 0.5 + 0.3 * number,
        "wce.class_weights": ("balanced", "root")[number % 2],
        "sampler": ("uniform", "at_least_2_per_class")[number % 2],
        "optimizer": {"name": "adamw", "weight_decay": 1e-3 * number},
        "clip": 1.0 + number,
    }
    return make_trial(fold=number % 5, seed=number, **{**TINY, **own, **config})


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("loss", ["ocl", "supcon", "triplet"])
def test_after_twenty_steps_members_are_where_they_are_alone(make_trial: MakeTrial, loss: str) -> None:
    """Three slots, one of them empty; LOCAL, L-SCL, and a loss that is computed member by member. At ten times these
    rates training itself makes a difference ten times larger in every epoch, whatever it comes from."""
    sgd = [{"learning_rate": 5e-4 * (1 + number), "optimizer": {"name": "sgd"}} for number in (0, 1)]
    trials = [member(make_trial, number, loss={"name": loss}, **sgd[number]) for number in (0, 1)]
    assert len({cohorts_of(train).key(one) for one in trials}) == 1
    reports = fused(train, trials, slots=3)
    for one in trials:
        alone = list(train(one))
        assert alone[-1].metrics["steps"] >= 20
        assert differ(alone, reports[one.id]) < 1e-10


VARIANTS: dict[str, dict[str, Any]] = {
    "no l, momentum": {"beta": 0.0, "optimizer": {"name": "sgd", "momentum": 0.5}},
    "single images, frozen statistics": {"input": "pre_single", "beta": 0.0, "encoder": {"bn": "frozen"}},
    "two views, raw z": {"n_views": 2, "z_norm": False, "batch_size": 16},
    "colours, which have dropout": {"colour_units": 4, "centre": "both"},
    "stages alike, batch mean": {"latent": {"weighting": "block", "blocks": "3-4"}, "wce.reduction": "batch_mean"},
}


@pytest.mark.filterwarnings("ignore:bn 'frozen' keeps the running statistics")
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_family_is_folded(make_trial: MakeTrial, variant: str) -> None:
    trials = [member(make_trial, number, epochs=1, **VARIANTS[variant]) for number in (0, 1)]
    reports = fused(train, trials)
    for one in trials:
        assert differ(list(train(one)), reports[one.id]) < 1e-10


@pytest.mark.usefixtures("float64")
def test_batched_products_report_the_same(make_trial: MakeTrial) -> None:
    trials = [member(make_trial, number, epochs=1) for number in (0, 1)]
    reports = fused(train, trials, engine="products")
    for one in trials:
        assert differ(list(train(one)), reports[one.id]) < 1e-10


@pytest.mark.usefixtures("float64")
def test_a_trial_goes_from_alone_to_fused_and_back(make_trial: MakeTrial, tmp_path: Path) -> None:
    chosen = {"epochs": 5, "optimizer": {"name": "adamw"}}
    one = member(make_trial, 1, **chosen)
    assert differ(list(train(one)), back_and_forth(train, one, member(make_trial, 0, **chosen), tmp_path)) < 1e-10
    plain, alone = (checkpoint.part(tmp_path / name, "model") for name in ("fused", "alone"))
    assert {name: value.shape for name, value in plain.items()} == {name: value.shape for name, value in alone.items()}


def test_autocast_leaves_what_it_leaves_alone(make_trial: MakeTrial) -> None:
    """In bfloat16 but for the head, whose outputs are compared: the losses agree to its precision."""
    one = member(make_trial, 1, autocast=True, device="cpu", epochs=1)
    (alone,), (together,) = list(train(one)), fused(train, [one])[one.id]
    assert together.metrics["loss"] == pytest.approx(alone.metrics["loss"], rel=0.02)
    cohort = cohorts_of(train).open(one, 1)
    cohort.join(one, None)
    (entry,) = cohort.members.values()
    cohort.prepare(entry)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = cohort.network.network([side[None] for side in entry.draw().values[0]])
        assert torch.is_autocast_enabled("cpu"), "it is switched off for the head alone"
    assert {outputs.z.dtype, outputs.latent.dtype, outputs.logits.dtype} == {torch.float32}


SAME: list[dict[str, Any]] = [
    {"epochs": 7, "alpha": 0.2, "alpha_schedule": "const"},
    {"beta": 0.1, "wce": {"class_weights": "none"}},
    {"input": "post", "augmentation": {"name": "pairs", "jitter": 0.5}},
    {"loss": {"name": "ocl", "temperature": 0.9}, "warmup_epochs": 0, "centre": "item"},
]
OTHER: list[dict[str, Any]] = [
    {"beta": 0.0},
    {"loss": {"name": "supcon"}},
    {"loss": {"name": "ocl", "similarity": "cosine"}},
    {"batch_size": 8},
    {"n_views": 2},
    {"z_norm": False},
    {"colour_units": 4},
    {"centre": "both"},
    {"image_size": 16},
    {"latent": {"blocks": "3-4"}},
    {"encoder": {"width": 12}},
    {"encoder": {"bn": "frozen"}},
    {"projection": {"dim": 6}},
    {"classifier": {"hidden": 6}},
    {"wce": {"reduction": "batch_mean"}},
    {"optimizer": {"name": "sgd"}},
    {"autocast": True},
]


def test_the_key_has_what_changes_the_graph_and_nothing_else(make_trial: MakeTrial) -> None:
    key = cohorts_of(train).key(make_trial(**TINY))
    assert {cohorts_of(train).key(make_trial(fold=1, seed=2, **{**TINY, **config})) for config in SAME} == {key}
    assert cohorts_of(train).key(make_trial(input="pre_single", beta=0.0, **TINY)) != key
    keys = [cohorts_of(train).key(make_trial(**dotted.merge(TINY, config))) for config in OTHER]
    assert len({key, *keys}) == 1 + len(OTHER)


def test_what_cannot_be_fused_says_why(make_trial: MakeTrial, pairs: Manifest) -> None:
    with pytest.raises(CannotFuse, match="optimizer"):
        cohorts_of(train).key(make_trial(**{**TINY, "optimizer": {"name": "RMSprop"}}))
    with pytest.raises(CannotFuse, match="does not say what its classes are"):
        cohorts_of(train).key(make_trial(data=replace(pairs, classes=())))


def test_members_share_the_images_of_a_fold_and_nothing_of_their_settings(make_trial: MakeTrial) -> None:
    cohort = cohorts_of(train).open(member(make_trial, 0), 3)
    for number in (0, 5, 1):  # of folds 0, 0 and 1
        cohort.join(member(make_trial, number), None)
    first, again, other = (entry.method.inputs for entry in cohort.members.values())
    assert first.sides is again.sides and first.sides is not other.sides
    assert first.settings.learning_rate != again.settings.learning_rate


def test_large_networks_are_known_by_one_step_of_few_pairs(
    make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the rate that is pretended here for products, a step of these has no potential."""
    monkeypatch.setattr(probing, "_product_rate", lambda clock: 1.0)
    taken: list[int] = []
    step = PairedTraining.step

    def counted(fit: PairedTraining, running: Any, sides: Any, labels: torch.Tensor) -> Any:
        taken.append(len(sides[0]))
        return step(fit, running, sides, labels)

    monkeypatch.setattr(PairedTraining, "step", counted)
    (alone,) = cohorts_of(train).probe(
        member(make_trial, 0, batch_size=32, n_views=1, sampler="at_least_2_per_class"), [2]
    )
    assert alone.engine == "unfused" and alone.trial_s > 0 and taken == [probing.FEW]
