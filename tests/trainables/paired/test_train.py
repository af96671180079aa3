"""The trainable as the platform draws from it: determinism, resume, folds, inputs, artifacts; on real digit pairs."""

import random
import warnings
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from to_the_bit import numbers, trained_and_resumed
from torch.testing import assert_close

from contrasweep.data import open_dataset, resolve
from contrasweep.trainables.paired import fitting
from contrasweep.trainables.paired.figures import draw
from contrasweep.trainables.paired.fitting import PairedTraining
from contrasweep.trainables.paired.objective import class_weights
from contrasweep.trainables.paired.tables import EmbeddedPart, class_names, write
from contrasweep.trainables.paired_images import train
from contrasweep.trainables.paired_images.inputs import ImageInputs
from contrasweep.trainables.paired_images.settings import Settings

STILL = {"name": "pairs", "dihedral": False}
SYSTEMS: dict[str, dict[str, Any]] = {
    "scl": {"loss": "supcon", "beta": 0.0},
    "l-scl": {"loss": "supcon", "beta": 0.5},
    "ocl-pair": {"loss": "ocl", "beta": 0.0},
    "local": {"loss": "ocl", "beta": 0.5},
}


def inputs_of(trial):
    return ImageInputs(trial, Settings(**trial.config), torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_learns_and_reports_scores_and_geometry(make_trial, system):
    config = {"epochs": 6, "alpha": 0.5, "learning_rate": 3e-3, "augmentation": STILL}
    reports = list(train(make_trial(**SYSTEMS[system], **config)))
    assert [r.step for r in reports] == list(range(1, 7))
    first = reports[0].metrics
    last = reports[-1].metrics
    assert last["contrast_z"] < first["contrast_z"]
    wanted = {
        "accuracy",
        "f1_macro",
        "f1_class_2",
        "centre_cosine",
        "centre_cosine_max",
        "train_centre_cosine",
        "z_raw",
        "z_raw_class_0",
        "contrast_z",
        "anchors",
        "alpha",
        "steps",
        "accuracy_medium",
    }
    assert wanted <= set(last)
    assert ("contrast_l" in last) == (SYSTEMS[system]["beta"] > 0)
    assert last["steps"] == 6 * first["steps"]
    assert len(reports[-1].items["accuracy"]) > 20
    assert last["accuracy"] == pytest.approx(np.mean(reports[-1].items["accuracy"]))
    assert {len(scores) for scores in reports[-1].items.values()} == {
        len(reports[-1].items["group"])
    }


@pytest.mark.slow
def test_the_same_trial_gives_the_same_numbers_to_the_bit(make_trial):
    trial = make_trial(n_views=2)
    runs = []
    for _ in range(2):
        random.seed(random.random())
        torch.manual_seed(random.randrange(1000))
        runs.append(numbers(list(train(trial))))
    assert runs[0] == runs[1]
    assert numbers(list(train(make_trial(n_views=2, seed=1)))) != runs[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [{}, {"optimizer": "sgd", "sampler": "at_least_2_per_class", "encoder.bn": "frozen"}]
)
def test_resumed_in_mid_training_it_continues_bit_for_bit(make_trial, tmp_path, config):
    trained_and_resumed(train, make_trial(epochs=4, **config), tmp_path, steps=[2])


@pytest.mark.slow
def test_arms_of_a_replicate_start_alike(make_trial):
    """Same weights, same order, same views for every loss: with alpha 0 the arms cannot be told apart."""
    runs = [
        numbers(list(train(make_trial(loss=loss, alpha=0.0, beta=0.0))))
        for loss in ("supcon", "ocl")
    ]
    for (_, first, _), (_, second, _) in zip(*runs, strict=True):
        of_the_loss = ("contrast", "collapse", "ocl_equals_scl")
        assert {k: v for k, v in first.items() if not k.startswith(of_the_loss)} == {
            k: v for k, v in second.items() if not k.startswith(of_the_loss)
        }


def test_what_happens_to_a_row_does_not_depend_on_the_batch_size(make_trial):
    inputs = inputs_of(make_trial())
    rows = torch.arange(12)
    views = inputs.epoch(0, 0, 1, "view 1")
    whole = views(rows, slice(0, 12))
    halves = [views(rows[:6], slice(0, 6)), views(rows[6:], slice(6, 12))]
    for i in (0, 1):
        assert_close(whole[i], torch.cat([half[i] for half in halves]))


def test_pixels_and_class_weights_are_of_the_training_fold_only(make_trial, pairs):
    seen = set()
    for fold in range(5):
        trial = make_trial(fold=fold)
        inputs = inputs_of(trial)
        pixels = torch.cat(inputs.sides["train"]).double() / 255
        assert_close(inputs.mean[:, 0, 0], pixels.mean((0, 2, 3)).float())
        weights = PairedTraining(trial, inputs).objective.weights
        labels = torch.tensor(open_dataset(pairs).parts(fold)[0].labels)
        assert torch.equal(weights, class_weights("balanced", labels, 3))
        seen.add((float(inputs.mean[0]), *weights.tolist()))
    assert len(seen) == 5


@pytest.mark.slow
def test_embeddings_of_one_dimension_have_tables_too(make_trial):
    last = list(train(make_trial(epochs=1, projection={"dim": 1}, artifacts="tables")))[-1]
    assert "embeddings.parquet" in last.artifacts


def test_an_evaluation_that_is_not_finite_is_an_error(make_trial):
    trial = make_trial()
    run = PairedTraining(trial, inputs_of(trial))
    run.model.encoder.bn1.running_var.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="embeddings that are not finite after 0 steps"):
        run.test()


def test_centred_on_the_pair_the_scene_goes_and_the_shift_stays(make_trial):
    inputs = inputs_of(make_trial(centre="item"))
    rows = torch.arange(5)
    pre, post = inputs.sides_of_rows("test", rows)
    assert_close((pre + post).mean((2, 3)), torch.zeros(5, 3), atol=1e-5, rtol=0)
    raw_pre, raw_post = (side[rows].float() / 255 for side in inputs.sides["test"])
    assert_close((post - pre) * inputs.std, raw_post - raw_pre)
    assert_close(inputs._normal([raw_pre + 0.2, raw_post + 0.2])[0], pre, atol=1e-5, rtol=1e-5)


def test_centred_on_both_colours_a_network_sees_each_in_channels_of_its_own(make_trial):
    seen = {}
    for centre in ("dataset", "item", "both"):
        inputs = inputs_of(make_trial(centre=centre))
        seen[centre] = inputs.sides_of_rows("test", torch.arange(3))
        assert inputs.model()(*seen[centre]).z.shape[0] == 3
    for both, absolute, relative in zip(seen["both"], seen["dataset"], seen["item"], strict=True):
        assert torch.equal(both, torch.cat([absolute, relative], 1))


@pytest.mark.slow
@pytest.mark.parametrize("input_", ["pre", "post"])
def test_one_side_fed_twice_shows_no_difference(make_trial, input_):
    last = list(train(make_trial(input=input_, augmentation={"name": "pairs", "jitter": 0.0})))[
        -1
    ].metrics
    assert last["z_raw"] == 0.0 and not {"centre_cosine", "collapsed"} & set(last)
    assert last["nonfinite_steps"] == 0.0
    assert np.isfinite(list(last.values())).all()


@pytest.mark.slow
@pytest.mark.parametrize("input_", ["pre_single", "post_single"])
def test_one_side_as_a_single_image(make_trial, input_):
    last = list(train(make_trial(input=input_, beta=0.0, n_views=2)))[-1].metrics
    assert last["z_raw"] == pytest.approx(1.0, abs=1e-5) and last["anchors"] == 1.0


@pytest.mark.slow
def test_single_images_of_the_long_tailed_digits(storage, make_trial):
    digits = resolve("digits-lt", folds=None, storage=storage)
    config = {"input": "single", "beta": 0.0, "n_views": 2, "epochs": 2, "batch_size": 64}
    last = list(train(make_trial(fold=None, data=digits, **config)))[-1].metrics
    assert {"accuracy_many", "accuracy_few"} & set(last)
    assert len([k for k in last if k.startswith("f1_class_")]) == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {"batch_size": 2},
        {"batch_size": 3, "sampler": "at_least_2_per_class"},
        {"encoder.bn": "groupnorm", "encoder.width": 16, "wce.class_weights": "none"},
        {"sampler": "class_balanced", "n_views": 2},
        {"autocast": True},
        {"z_norm": False, "loss.temperature": 0.05},
        {"loss.reduction": "valid_anchors", "batch_size": 4},
        {"alpha": 1.0, "alpha_schedule": "const"},
    ],
)
def test_no_setting_makes_nan(make_trial, config):
    for report in train(make_trial(**({"epochs": 1} | config))):
        assert np.isfinite(list(report.metrics.values())).all()
        assert report.metrics["nonfinite_steps"] == 0


@pytest.mark.slow
def test_artifacts_are_tables_that_agree_with_the_metrics(make_trial, pairs):
    running = train(make_trial(epochs=1, artifacts="figures"))
    report = next(running)
    table = pq.read_table(report.artifacts["embeddings.parquet"])
    assert class_names(table) == ["same", "larger", "smaller"]
    rows = table.to_pandas()
    assert (rows.label == rows.predicted).mean() == pytest.approx(report.metrics["accuracy"])
    assert rows.z_raw.mean() == pytest.approx(report.metrics["z_raw"], rel=1e-5)
    assert rows.row.tolist() == open_dataset(pairs).parts(0)[1].rows.tolist()
    assert rows[["z_tsne_0", "z_tsne_1", "e_post_tsne_0", "e_post_tsne_1"]].notna().all().all()
    gram = pq.read_table(report.artifacts["centres.parquet"]).to_pandas()
    assert set(gram.part) == {"test", "train"} and len(gram) == 18
    off = gram[(gram.part == "test") & (gram.class_a != gram.class_b)]
    assert off.cosine.mean() == pytest.approx(report.metrics["centre_cosine"])
    pictures = [path for name, path in report.artifacts.items() if name.endswith(".png")]
    assert len(pictures) >= 5 and all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    running.close()
    assert not report.artifacts["embeddings.parquet"].exists()


@pytest.mark.slow
def test_a_class_may_have_a_name_that_is_no_formula(tmp_path):
    random = torch.Generator().manual_seed(0)
    z, e_post = torch.randn(2, 4, 3, generator=random)
    labels = torch.tensor([0, 1, 0, 1])
    part = EmbeddedPart(z, e_post, torch.ones(4), labels, labels)
    write(tmp_path, part, part, range(4), (r"$\frac{$", "b"))
    assert len(draw(tmp_path, tmp_path)) == 6


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "said"), [(-1.1, 1), (1.1, 0)])
def test_centres_above_the_limit_are_warned_of(make_trial, monkeypatch, limit, said):
    monkeypatch.setattr(fitting, "COLLAPSED_COSINE", limit)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(train(make_trial(epochs=1)))
    assert sum("shift common to all pairs" in str(w.message) for w in caught) == said


def test_a_diverging_trial_is_told_what_to_change(make_trial):
    with pytest.raises(FloatingPointError, match=r"not finite.* or raise loss.temperature$"):
        list(train(make_trial(learning_rate=1e30, clip=0.0, epochs=3, warmup_epochs=0)))
