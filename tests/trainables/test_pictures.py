"""What pictures of embeddings show, checked by its numbers."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from loss_batches import seeded

from contrasweep.trainables.evaluation import pictures, scores

EMBEDDINGS = torch.randn(30, 6, generator=seeded(0))
LABELS = torch.arange(30) % 3


def test_neighbours_are_the_most_similar_by_cosine_the_nearest_first():
    queries = torch.randn(5, 6, generator=seeded(1))
    cosines = F.cosine_similarity(queries[:, None], EMBEDDINGS[None], dim=2)
    expected = [sorted(range(30), key=lambda i: -float(row[i]))[:4] for row in cosines]
    assert pictures.neighbours(EMBEDDINGS, queries, 4).tolist() == expected
    assert pictures.neighbours(EMBEDDINGS[:2], queries, 4).shape == (5, 2)


def test_the_plane_has_the_largest_variance_and_a_single_dimension_gives_a_line():
    flat = pictures.plane(EMBEDDINGS)
    unit = F.normalize(EMBEDDINGS.double(), dim=1)
    values = torch.linalg.eigvalsh(torch.cov(unit.T)).flip(0)[:2].numpy()
    assert np.allclose(np.var(flat, axis=0, ddof=1), values)
    assert (pictures.plane(EMBEDDINGS[:, :1])[:, 1] == 0).all()


def test_confusions_are_counted_by_class_and_centres_are_cosines():
    predicted = LABELS.clone()
    predicted[:3] = 2
    counts = scores.confusions(predicted, LABELS, 4)
    assert counts.sum(1).tolist() == [10, 10, 10, 0]
    assert counts[0].tolist() == [9, 0, 1, 0]
    cosines = scores.centre_cosines(EMBEDDINGS, LABELS, 4)
    means = torch.stack(
        [F.normalize(EMBEDDINGS[k == LABELS].double(), dim=1).mean(0) for k in range(3)]
    )
    expected = F.cosine_similarity(means[:, None], means[None], dim=2)
    assert torch.allclose(cosines[:3, :3], expected) and cosines[3].isnan().all()


def test_a_single_test_image_is_drawn(tmp_path):
    images = torch.zeros(30, 1, 4, 4, dtype=torch.uint8)
    train, test = (
        pictures.ShownPart(EMBEDDINGS[:n], LABELS[:n], lambda rows: images[rows]) for n in (30, 1)
    )
    of = train, test, [images[:2], images[:2]], ("a", "b", "c"), tmp_path
    titled, other = (
        [file.read_bytes() for file in pictures.draw(*of, title).values()] for title in ("a", "$_$")
    )
    assert all(a != b for a, b in zip(titled, other, strict=True))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_an_image_of_any_channels_is_drawn(channels, tmp_path):
    images = torch.zeros(2, channels, 4, 4, dtype=torch.uint8)
    file = pictures.save(tmp_path / "a.png", (1, 1), partial(pictures._strip, views=[images]))
    assert file.stat().st_size > 0
