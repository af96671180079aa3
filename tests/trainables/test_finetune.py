"""Fine-tuning and linear probes of digits: what is trained, from which weights, on which labels."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from to_the_bit import trained_and_resumed
from torch.testing import assert_close

import contrasweep as cs
from contrasweep.data import resolve
from contrasweep.storage.record import StartRef
from contrasweep.trainables import checkpoint, contrastive
from contrasweep.trainables.encoders import ENCODERS
from contrasweep.trainables.finetune import Settings, load_model, memory, train
from contrasweep.trainables.finetune.method import Finetune, labelled_rows, layers
from contrasweep.trial import Trial

torch.set_num_threads(1)
CNN = {"name": "cnn", "width": 8}
QUICK: dict[str, Any] = {
    "encoder": CNN,
    "epochs": 3,
    "batch_size": 64,
    "checkpoint_every": 1,
    "augmentation": "none",
}
PATHS = {
    "finetune": "contrasweep.trainables.finetune:train",
    "contrastive": "contrasweep.trainables.contrastive:train",
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return resolve("digits-lt", folds=2, storage=str(tmp_path_factory.mktemp("data")), write=True)


@pytest.fixture(scope="module")
def pretrained(digits, tmp_path_factory):
    """The checkpoint of a contrastive trial with averaged weights."""
    config = {"encoder": CNN, "epochs": 1, "ema": 0.5, "evaluate_every": 0}
    running = contrastive.train(Trial("pretrain", "a", PATHS["contrastive"], config, digits, 0))
    saved = next(running).checkpoint
    assert saved is not None
    return Path(shutil.copytree(saved, tmp_path_factory.mktemp("pretrained") / "checkpoint"))


@pytest.fixture
def averaged(pretrained):
    """The averaged weights of its encoder."""
    kept = checkpoint.part(pretrained, "average").items()
    return {name[2:]: value for name, value in kept if name.startswith("0.")}


def trial(data, start=None, seed=0, **config):
    source = StartRef("pretrain", "f" * 16) if start else None
    return Trial("study", "arm", PATHS["finetune"], QUICK | config, data, 0, seed, source, start)


def built(data, start=None, **config):
    given = trial(data, start, **config)
    return Finetune(given, Settings(**given.config))


def weights(method):
    return {name: value.clone() for name, value in method.model[0].state_dict().items()}


def test_it_starts_from_the_averaged_encoder_of_the_checkpoint(digits, pretrained, averaged):
    found = weights(built(digits, pretrained))
    assert_close(found, averaged, rtol=0, atol=0)
    assert not all(
        torch.equal(found[name], value) for name, value in weights(built(digits)).items()
    )


def test_a_contrastive_trial_starts_from_it_with_its_copies(digits, pretrained, averaged):
    from contrasweep.trainables.contrastive.method import build

    config = {"encoder": CNN, "loss": "infonce", "targets": "byol"}
    source = StartRef("pretrain", "f" * 16)
    method = build(Trial("s", "a", PATHS["contrastive"], config, digits, 0, 0, source, pretrained))
    assert_close(weights(method), averaged, rtol=0, atol=0)
    copies = [part for part in method.targets.parts.values() if isinstance(part, torch.nn.Module)]
    assert any(
        torch.equal(value, averaged["body.0.weight"])
        for c in copies
        for k, value in c.state_dict().items()
        if "body.0" in k
    )


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("augmentation", ["none", "glyphs"])
def test_a_frozen_encoder_stays_to_the_bit_and_another_moves(
    digits, pretrained, frozen, augmentation
):
    method = built(digits, pretrained, frozen=frozen, augmentation=augmentation)
    before = weights(method)
    head = [p.clone() for p in method.model[1].parameters()]
    method.epoch(1)
    same = [torch.equal(value, before[name]) for name, value in weights(method).items()]
    assert all(same) if frozen else not any(same)
    assert not any(
        torch.equal(p, q) for p, q in zip(method.model[1].parameters(), head, strict=True)
    )


@pytest.mark.parametrize(
    "config", [{}, {"frozen": True}, {"layer_decay": 0.5}, {"label_fraction": 0.1}]
)
def test_a_resumed_trial_gives_the_same_reports(digits, pretrained, tmp_path, config):
    one = trial(digits, pretrained, **config)
    again = replace(one, start_folder=None)  # what it started from is not needed
    reports = trained_and_resumed(train, one, tmp_path, again)
    assert {"accuracy", "f1_macro"} <= reports[-1].metrics.keys()
    assert set(reports[-1].items) == {"accuracy"}
    assert reports[-1].items["accuracy"].mean() == pytest.approx(reports[-1].metrics["accuracy"])


def test_a_fraction_of_labels_is_of_each_class_alike_and_follows_from_the_seed(digits):
    labels = torch.tensor([0] * 100 + [1] * 40 + [2] * 3)
    draw = [labelled_rows(labels, 0.1, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert [torch.bincount(labels[rows]).tolist() for rows in draw] == [[10, 4, 1]] * 3
    assert torch.equal(draw[0], draw[1]) and not torch.equal(draw[0], draw[2])
    arms = [built(digits, label_fraction=0.1, frozen=frozen).rows for frozen in (True, False)]
    assert torch.equal(*arms) and len(set(arms[0].tolist())) == len(arms[0])
    assert torch.equal(built(digits).rows, torch.arange(len(built(digits).train)))


def test_a_warm_up_leaves_an_epoch_for_the_cosine(digits):
    """A warm-up as long as the training led to where the cosine ends, a thousandth of the rate."""
    schedule = built(digits, warmup_epochs=3, learning_rate=0.4).schedule
    assert max(map(schedule.at, range(schedule.steps))) > 0.1


@pytest.mark.parametrize(("name", "count"), [("cnn", 3), ("mlp", 2), ("resnet18", 9)])
def test_layers_are_the_blocks_of_an_encoder_in_order(name, count):
    encoder = ENCODERS.choose(name).build((3, 32, 32))
    found = layers(encoder)
    assert len(found) == count
    assert [id(p) for group in found for p in group] == [id(p) for p in encoder.parameters()]


def test_own_parameters_of_wrappers_and_of_sequences_are_in_a_layer():
    """Such as tokens of a transformer: what is in no layer would never be trained."""
    tail = torch.nn.Sequential(torch.nn.Linear(2, 2))
    tail.scale = torch.nn.Parameter(torch.ones(2))
    body = torch.nn.Sequential(torch.nn.Linear(2, 2), tail)
    wrapper = torch.nn.Module()
    wrapper.body, wrapper.token = body, torch.nn.Parameter(torch.zeros(2))
    first, second = layers(wrapper)
    assert [id(p) for p in first] == [id(p) for p in (wrapper.token, *body[0].parameters())]
    assert {id(p) for p in second} == {id(p) for p in tail.parameters()}


def test_the_rate_of_a_layer_falls_with_its_distance_from_the_classifier(digits):
    method = built(digits, layer_decay=0.5, learning_rate=0.4)
    method.optimizer.lr = 0.4
    rates = [optimizer.lr for optimizer in method.optimizer.optimizers]
    assert rates == pytest.approx([0.4, 0.2, 0.1, 0.05])
    assert [id(p) for p in method.optimizer.parameters[:2]] == [
        id(p) for p in method.model[1].parameters()
    ]


def test_another_encoder_is_named_with_its_first_tensor(digits, pretrained):
    says = r"encoder: the encoder in the checkpoint has \d+ of \d+ tensors in other shapes, got 'body.0.weight \[16,"
    with refused(
        cs.SpecError, match=rf"{says} 1, 3, 3\]'; there it is \[8, 1, 3, 3\]: take the same encoder"
    ):
        built(digits, pretrained, encoder={"name": "cnn", "width": 16})
    with refused(cs.SpecError, "got 'body.0.weight none'; there it is [8, 1, 3, 3]"):
        checkpoint.load_encoder(pretrained, torch.nn.Identity())


class Trap:
    def __reduce__(self):
        return Path.touch, (Path("sprung"),)


def test_a_hostile_or_foreign_checkpoint_runs_nothing_and_is_one_line(
    digits, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for content in ({"parts": {"model": Trap()}}, {"weights": 1}, {"parts": {"other": {}}}, [1]):
        torch.save(content, tmp_path / checkpoint.FILE)
        with refused(cs.SpecError, match="the checkpoint to start from holds no encoder"):
            built(digits, tmp_path)
    (tmp_path / checkpoint.FILE).unlink()
    with refused(cs.SpecError, "the trial to start from kept no weights"):
        built(digits, tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_its_network_and_its_memory_are_known(digits, pretrained):
    running = train(trial(digits, pretrained))
    saved = next(running).checkpoint
    assert saved is not None
    model = load_model(saved, trial(digits))
    assert model(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape == (2, 32)
    frozen, trained = (memory(QUICK | {"frozen": frozen}, digits) for frozen in (True, False))
    assert frozen.count().saved < trained.count().saved and frozen.steps == trained.steps


def test_a_plan_takes_the_encoder_of_the_source_and_refuses_another(storage):
    def study(**config):
        return cs.AblationGrid(
            "probe",
            {"a": cs.Arm("finetune", config, start=cs.Start("pre", "a"))},
            "digits-lt",
            folds=2,
        )

    pretraining = cs.AblationGrid(
        "pre", {"a": cs.Arm("contrastive", {"encoder": CNN})}, "digits-lt", folds=2
    )
    before = [cs.plan(pretraining)]
    trials = cs.plan(study(frozen=True), before=before, storage=storage).trials
    assert [trial.config["encoder"] for trial in trials] == [CNN, CNN]
    with refused(
        cs.SpecError,
        match=r"arms\.a\.config\.encoder: .* has the encoder .* leave it out: pre/a has",
    ):
        cs.plan(study(encoder="mlp"), before=before, storage=storage)
