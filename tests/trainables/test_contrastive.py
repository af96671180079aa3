"""The contrastive trainable on the real handwritten digits, as the platform would draw from it."""

import dataclasses
import random
import tempfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from refusals import refused
from to_the_bit import numbers, trained_and_resumed

from contrasweep import AblationGrid, Arm, plan
from contrasweep.data import open_dataset
from contrasweep.data.reading import Part
from contrasweep.errors import SpecError
from contrasweep.schema import resolved_config
from contrasweep.trainables import augmentations, images, seeding
from contrasweep.trainables.contrastive import method as contrastive_method
from contrasweep.trainables.contrastive import train
from contrasweep.trainables.contrastive.sampling import SAMPLINGS
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trial import Trial

torch.set_num_threads(1)
QUICK = {
    "encoder": {"name": "mlp", "width": 64},
    "epochs": 4,
    "batch_size": 64,
    "checkpoint_every": 1,
}


def method_of(trial):
    return contrastive_method.Contrastive(trial, Settings(**trial.config))


@pytest.fixture(scope="session")
def make_trial(digits):
    def make(fold=0, seed=0, data=digits, **config):
        return Trial(
            "study",
            "arm",
            "contrasweep.trainables.contrastive:train",
            QUICK | config,
            data,
            fold,
            seed,
        )

    return make


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["supcon", "sincere", "ocl", "infonce"])
def test_it_learns(make_trial, loss):
    reports = list(
        train(make_trial(loss={"name": loss, "temperature": 0.1}, encoder="cnn", epochs=10))
    )
    assert [r.step for r in reports] == list(range(1, 11))
    assert reports[-1].metrics["loss"] < reports[0].metrics["loss"]
    last = reports[-1].metrics
    assert min(last[name] for name in ("accuracy", "knn1", "knn5", "probe")) > 0.8, last
    assert all(np.isfinite(value) for r in reports for value in r.metrics.values())


@pytest.mark.slow
def test_retrieval_has_a_curve_where_it_is_always_wanted_and_no_number_differs(make_trial):
    last, always = (
        list(train(make_trial(evaluate_every=2, checkpoint_every=3, retrieval=wanted)))
        for wanted in (True, "always")
    )
    assert [report.step for report in last if report.checkpoint] == [3, 4]
    assert ["map_at_r" in report.metrics for report in last] == [False, False, False, True]
    assert ["map_at_r" in report.metrics for report in always] == [False, True, False, True]
    assert numbers(last)[-1] == numbers(always)[-1]


def test_items_name_their_groups_where_the_data_do(make_trial, monkeypatch):
    trial = make_trial(epochs=1)
    names = [f"writer {i % 7}" for i in range(len(open_dataset(trial.data).parts(trial.fold)[1]))]
    monkeypatch.setattr(Part, "grouping", {"group": names})
    assert list(train(trial))[-1].items["group"] == names


@pytest.mark.slow
def test_the_same_trial_gives_the_same_numbers_to_the_bit(make_trial):
    first = numbers(list(train(make_trial())))
    torch.manual_seed(99), random.seed(99), np.random.seed(99)
    list(train(make_trial(seed=7, loss="ocl", epochs=1)))
    assert numbers(list(train(make_trial()))) == first
    assert numbers(list(train(make_trial(seed=1)))) != first
    assert numbers(list(train(make_trial(fold=1)))) != first


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_resumed_trial_continues_to_the_bit(make_trial, tmp_path, optimizer):
    trial = make_trial(optimizer=optimizer, learning_rate=0.01, encoder={"width": 8})
    trained_and_resumed(train, trial, tmp_path, steps=range(1, 5))


def test_closing_it_leaves_nothing_behind(make_trial, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    running = train(make_trial())
    report = next(running)
    assert report.checkpoint is not None and tmp_path in report.checkpoint.parents
    running.close()
    assert list(tmp_path.iterdir()) == []


def test_replicates_are_paired_across_arms(make_trial):
    arms = [
        make_trial(loss="supcon"),
        make_trial(loss={"name": "sincere", "temperature": 0.5}, learning_rate=0.01, batch_size=32),
    ]
    runs = [method_of(trial) for trial in arms]
    for a, b in zip(*(run.model.parameters() for run in runs), strict=True):
        assert torch.equal(a, b)


def test_views_and_order_do_not_depend_on_the_batch_size(make_trial):
    data = method_of(make_trial()).train
    order = SAMPLINGS["shuffled"](data.labels, seeding.generator(0), 16, 4)
    policy = augmentations.AUGMENTATIONS["glyphs"]()
    seen = []
    for size in (7, 64):
        stream = images.batches(data, images.Normalise(data), [policy] * 2, order, size, 0, 0, 1)
        views, rows = zip(*stream, strict=True)
        assert all(len(v) == 2 * size for v in views)
        first = torch.cat([v[:size] for v in views])
        seen.append((torch.cat(rows), first))
    shared = min(len(rows) for rows, _ in seen)
    assert torch.equal(seen[0][0][:shared], seen[1][0][:shared])
    assert torch.allclose(seen[0][1][:shared], seen[1][1][:shared], atol=1e-5)


def test_an_image_drawn_twice_looks_different_each_time(make_trial):
    run = method_of(make_trial())
    views, _ = next(
        images.batches(
            run.train, run.normalise, run.policies, torch.zeros(8, dtype=torch.int64), 8, 0, 0, 1
        )
    )
    assert len(torch.unique(views, dim=0)) == 16


def test_class_balanced_batches_draw_every_class_alike():
    labels = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
    drawn = torch.bincount(labels[SAMPLINGS["class_balanced"](labels, seeding.generator(1), 16, 4)])
    assert drawn.sum() == 1000 and (drawn - 1000 / 3).abs().max() < 60
    plain = SAMPLINGS["shuffled"](labels, seeding.generator(1), 16, 4)
    assert torch.equal(plain.sort().values, torch.arange(1000))


def test_every_report_has_diagnostics(make_trial):
    for report in train(make_trial(epochs=2)):
        metrics = report.metrics
        assert metrics["valid_anchors"] == 128 and metrics["collapsed"] == 0
        assert metrics["nonfinite_steps"] == 0
        assert metrics["collapse_value"] == pytest.approx(np.log(127), abs=1e-6)
        assert {"alignment", "uniformity", "grad_norm", "collapse_distance"} <= set(metrics)


def test_a_collapsed_trial_says_so_once(make_trial, caplog):
    stuck = make_trial(
        projection="linear", learning_rate=1e-6, optimizer={"weight_decay": 0.0}, epochs=3
    )
    run = method_of(stuck)
    with torch.no_grad():
        run.model[1].weight.zero_()
        run.model[1].bias.fill_(1.0)
    metrics = [run.epoch(epoch) for epoch in (1, 2)]
    assert [m["collapsed"] for m in metrics] == [1.0, 1.0]
    assert sum("stands at its collapse value" in r.getMessage() for r in caplog.records) == 1
    assert stuck.id in caplog.text


@pytest.mark.slow
def test_encoding_in_chunks_is_recorded_and_learns_the_same(make_trial):
    whole, chunked = (
        list(train(make_trial(chunk_rows=rows, projection="linear", epochs=2))) for rows in (0, 32)
    )
    assert "gradcache_chunks" not in whole[-1].metrics
    assert chunked[-1].metrics["gradcache_chunks"] == 4
    assert chunked[-1].metrics["gradcache_exact"] == 0
    assert chunked[-1].metrics["loss"] == pytest.approx(whole[-1].metrics["loss"], rel=0.1)


@pytest.mark.parametrize("targets", ["moco", "byol", "dino"])
def test_a_momentum_encoder_normalises_by_its_batches(make_trial, targets):
    """As the network does that it follows: its statistics move away from the mean 0 that they begin with."""
    encoder = {"name": "cnn", "width": 2}
    training = method_of(make_trial(encoder=encoder, targets=targets, loss="infonce"))
    follower = training.targets.parts["momentum_encoder"]
    norms = [part for part in follower.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    training.epoch(1)
    assert norms
    assert all(part.training and part.running_mean.any() for part in norms)


@pytest.mark.slow
def test_figures_are_artifacts_of_the_last_report(make_trial):
    plain = list(train(make_trial(epochs=2)))
    for report in train(make_trial(figures="first_fold", epochs=2)):
        result = {name: path.read_bytes()[:4] for name, path in report.artifacts.items()}
    names = [
        f"similarities_{name}{part}.png"
        for name in ("cosine", "neg_arc_length")
        for part in ("", "_by_class")
    ]
    names += [
        f"{name}.png" for name in ("embeddings", "neighbours", "confusions", "centres", "views")
    ]
    assert result == dict.fromkeys(names, b"\x89PNG")
    assert report.metrics == plain[-1].metrics, "pictures change no number"
    (*_, last) = train(dataclasses.replace(make_trial(figures="first_fold", epochs=1), fold=1))
    assert not last.artifacts


@pytest.mark.parametrize(
    ("changes", "warmer"),
    [
        ({"loss": {"similarity": "dot"}}, " or raise loss.temperature"),
        ({"loss": "vicreg"}, ""),
        ({"targets": "byol"}, ""),
    ],
)
def test_a_diverging_trial_is_told_to_change_settings_that_it_has(make_trial, changes, warmer):
    with pytest.raises(
        FloatingPointError, match=rf"not finite.*: lower learning_rate \(1e\+30\){warmer}$"
    ):
        list(train(make_trial(learning_rate=1e30, epochs=3, **changes)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"autocast": True},
        {"sampling": "class_balanced"},
        {"projection": "none"},
        {"evaluate_on": "embeddings"},
        {"loss": {"similarity": "neg_arc_length"}},
        {"batch_size": 4096},
        {"batch_size": 2},
        {"warmup_epochs": 2},
    ],
)
def test_every_setting_trains(make_trial, changes):
    assert list(train(make_trial(epochs=2, **changes)))[-1].metrics["accuracy"] > 0.5


def test_the_datasets_name_decides_nothing(make_trial, digits):
    other = replace(digits, name="cifar-faces")
    named, renamed = (
        numbers(list(train(make_trial(epochs=1, data=data)))) for data in (digits, other)
    )
    assert named == renamed


def test_resolved_settings_have_nothing_left_to_decide_and_build_themselves(digits):
    settings = Settings(
        batch_size=512, epochs=100, loss={"sigma": 2, "name": f"{__name__}:scaled"}
    ).resolve(digits)
    config = resolved_config(settings)
    assert config["warmup_epochs"] == 10 and config["augmentation"]["flip"] == 0
    assert config["encoder"]["width"] == 16
    assert config["loss"]["reduction"] == "valid_anchors" and config["loss"]["sigma"] == 2
    assert not {"device", "order_seed"} & set(config)
    assert Settings(**config) == settings == settings.resolve(digits)
    assert Settings().resolve(digits).warmup_epochs == 0
    for batch_size, warmup in ((256, 0), (257, 10)):  # SupContrast's rule: batches above 256
        assert Settings(batch_size=batch_size, epochs=100).resolve(digits).warmup_epochs == warmup


def scaled(
    scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, *, sigma: float
) -> torch.Tensor:
    """A user's own loss, with a parameter of its own that has no default."""
    return (scores / sigma).exp().masked_fill(~negatives, 0).sum(1) - scores.masked_fill(
        ~positives, 0
    ).sum(1)


def test_a_loss_by_its_path_is_swept_over_its_own_parameter(digits):
    arm = Arm("contrasweep.trainables.contrastive:train", config={"loss": f"{__name__}:scaled"})
    grid = AblationGrid(
        "own", {"a": arm}, digits.uri, axes={"loss.sigma": [0.5, 2.0]}, folds=2, metric="knn1"
    )
    assert sorted(trial.config["loss"]["sigma"] for trial in plan(grid).trials) == [0.5, 0.5, 2, 2]
    with refused(
        SpecError, match=r"loss\.sigmma: loss .*scaled' has no such parameter; did you mean 'sigma'"
    ):
        plan(replace(grid, axes={"loss.sigmma": [1.0]}))


def test_the_order_of_the_data_can_vary_alone(make_trial):
    """The same seed as the trial's changes nothing; another one changes the order and not the initial weights."""
    seeds = ({}, {"order_seed": 1}, {"order_seed": 0})
    runs = [method_of(make_trial(seed=1, **given)) for given in seeds]
    starts = [torch.cat([p.detach().flatten() for p in run.model.parameters()]) for run in runs]
    assert torch.equal(starts[0], starts[1]) and torch.equal(starts[0], starts[2])
    first, same, other = (run.epoch(1)["loss"] for run in runs)
    assert first == same != other
