"""Summaries of similarities by class, against counts by hand."""

import numpy as np
import torch
from benchmarks.similarities_by_class import summaries

from contrasweep.trainables.evaluation.neighbours import search

LABELS = torch.tensor([0, 0, 1, 1, 2])
ANGLES = torch.tensor([0.0, 10.0, 40.0, 55.0, 180.0])


def replicate(shift):
    """Images at these angles, and training images of classes 0, 1 and 2 at 0, 50 and 180 degrees, turned by `shift`."""
    index, queries = torch.tensor([0.0, 50.0, 180.0]) + shift, ANGLES
    points = [torch.stack((torch.cos(a), torch.sin(a)), 1) for a in (torch.deg2rad(index), torch.deg2rad(queries))]
    return search(points[0], torch.arange(3), points[1], LABELS, ks=(1,))


def cosine(*degrees: float) -> float:
    """Mean cosine of these angles, which for two is the median."""
    return float(np.cos(np.deg2rad(degrees)).mean())


def test_a_class_has_the_medians_of_each_replicate_and_the_class_nearest_most_often():
    found = summaries([replicate(0.0), replicate(-30.0)], LABELS.numpy())
    np.testing.assert_allclose(found[0].target, [cosine(0, 10), cosine(30, 40)], atol=1e-6)
    np.testing.assert_allclose(found[0].noise, [cosine(50, 40), cosine(20, 10)], atol=1e-6)
    np.testing.assert_allclose(found[1].target, [cosine(10, 5), cosine(20, 35)], atol=1e-6)
    assert found[0].knn1.tolist() == [1.0, 0.0]
    assert {label: of.nearest for label, of in found.items()} == {0: 1, 1: 0, 2: 0}
    assert (found[1].nearest_share, found[2].nearest_share) == (1.0, 0.5)


def test_the_nearest_class_is_counted_over_all_items_and_replicates():
    turned = [replicate(0.0), replicate(0.0), replicate(150.0)]
    own = np.concatenate([near.noise_label[LABELS == 1].numpy() for near in turned])
    found = summaries(turned, LABELS.numpy())[1]
    assert sorted(own.tolist()) == [0, 0, 0, 0, 2, 2]
    assert (found.nearest, found.nearest_share) == (0, 4 / 6)
