"""Samplers, views, schedules, metrics."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from contrasweep.trainables.evaluation.scores import centre_cosines
from contrasweep.trainables.paired import metrics
from contrasweep.trainables.paired.settings import SAMPLERS, PairedSettings
from contrasweep.trainables.paired_images.views import PairPolicy, apply_pair, draw_pair

LABELS = torch.tensor([0] * 50 + [1] * 17 + [2] * 4 + [3])


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", SAMPLERS)
@given(size=st.integers(2, 20), seed=st.integers(0, 50))
@settings(max_examples=15)
def test_every_sampler_gives_the_same_number_of_full_batches(name, size, seed):
    batches = SAMPLERS[name](LABELS, size, drawn(seed))
    assert batches.shape == (len(LABELS) // size, size)
    assert batches.min() >= 0 and batches.max() < len(LABELS)
    assert torch.equal(batches, SAMPLERS[name](LABELS, size, drawn(seed)))
    if name == "uniform":
        assert len(batches.unique()) == batches.numel()
    if name == "at_least_2_per_class":
        for batch in batches:
            assert torch.bincount(LABELS[batch])[LABELS[batch]].min() >= 2
            first, second = batch[: size // 2 * 2].view(-1, 2).T
            assert (first != second)[LABELS[first] < 3].all(), "only a single row is its own pair"
            assert size % 2 == 0 or LABELS[batch[0]] == LABELS[batch[-1]]


def test_class_balanced_batches_show_rare_classes_as_often():
    labels = LABELS.repeat(40)
    counts = torch.bincount(labels[SAMPLERS["class_balanced"](labels, 16, drawn())].flatten())
    assert counts.min() > 0.8 * counts.max()


@given(area=st.floats(0.3, 1.0), dihedral=st.booleans(), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_both_images_of_a_pair_get_one_geometry(area, dihedral, seed):
    images = torch.rand(5, 3, 12, 12, generator=drawn(seed))
    draws = draw_pair(PairPolicy(crop_area=area, dihedral=dihedral, jitter=0.0), 5, drawn(seed))
    pre, post = apply_pair(images, images, draws)
    assert torch.equal(pre, post)


def symmetries(image):
    turned = [torch.rot90(image, k, (1, 2)) for k in range(4)]
    return turned + [t.flip(2) for t in turned]


def test_dihedral_views_are_the_eight_symmetries_and_nothing_else():
    image = torch.rand(3, 8, 8, generator=drawn())
    views, _ = apply_pair(
        *(image.repeat(200, 1, 1, 1),) * 2,
        draw_pair(PairPolicy(crop_area=1.0, dihedral=True, jitter=0.0), 200, drawn()),
    )
    seen = set()
    for view in views:
        near = [i for i, s in enumerate(symmetries(image)) if torch.allclose(view, s, atol=1e-4)]
        assert len(near) == 1
        seen.add(near[0])
    assert seen == set(range(8))


def test_light_differs_between_the_images_and_stays_in_range():
    grey = torch.full((400, 1, 4, 4), 0.5)
    pre, post = apply_pair(
        grey, grey, draw_pair(PairPolicy(crop_area=1.0, dihedral=False, jitter=0.06), 400, drawn())
    )
    assert pre.min() >= 0 and pre.max() <= 1
    assert pre[:, 0, 0, 0].std().item() == pytest.approx(0.06 * (1 + 0.5**2) ** 0.5, rel=0.15)
    both = torch.stack([pre[:, 0, 0, 0], post[:, 0, 0, 0]])
    assert abs(torch.corrcoef(both)[0, 1].item()) < 0.15


def test_alpha_falls_inversely_to_the_epochs_by_default_as_the_paper_says():
    assert [PairedSettings().alpha_in(epoch) for epoch in range(4)] == [1, 1 / 2, 1 / 3, 1 / 4]
    assert PairedSettings(alpha_schedule="parabolic").alpha_in(25) == pytest.approx(0.75)


def test_scores_agree_with_scikit_learn_and_shots_with_the_counts():
    labels, predicted = np.random.default_rng(0).integers(4, size=(2, 300))
    counts = torch.tensor([500, 100, 20, 19])
    scores = metrics.scores(torch.tensor(predicted), torch.tensor(labels), counts)
    assert scores["f1_macro"] == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert scores["prevalence_class_3"] == pytest.approx((labels == 3).mean())
    for shot, classes in {"many": [0], "medium": [1, 2], "few": [3]}.items():
        rows = np.isin(labels, classes)
        assert scores[f"accuracy_{shot}"] == pytest.approx((labels == predicted)[rows].mean())


def test_geometry_knows_collapsed_orthogonal_and_simplex_centres():
    labels = torch.arange(4).repeat(5)
    eye = torch.eye(4)
    for centres, mean, largest in (
        (eye, 0.0, 0.0),
        (torch.ones(4, 4), 1.0, 1.0),
        (eye - 0.25, -1 / 3, 1 / 3),
    ):
        geometry = metrics.geometry(centres[labels], torch.ones(20), labels, 4)
        assert geometry["centre_cosine"] == pytest.approx(mean, abs=1e-6)
        assert geometry["centre_cosine_abs"] == pytest.approx(abs(mean), abs=1e-6)
        assert geometry["centre_cosine_max"] == pytest.approx(largest, abs=1e-6)
    missing = centre_cosines(eye[:2], torch.tensor([0, 1]), 3)
    assert missing[2].isnan().all() and missing[0, 1] == 0
