"""What each sampler puts into an epoch."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasweep.trainables.contrastive.sampling import SAMPLINGS


def order(name, labels, seed=0, batch=8, per_class=4):
    return SAMPLINGS[name](labels, torch.Generator().manual_seed(seed), batch, per_class)


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(1, 20), min_size=4, max_size=7),
    per_class=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_m_per_class_has_m_rows_of_each_of_its_classes_in_every_batch(counts, per_class, seed):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    batch = 4 * per_class
    drawn = order("m_per_class", labels, seed, batch, per_class)
    assert len(drawn) == max(1, len(labels) // batch) * batch
    for rows in drawn.split(batch):
        assert Counter(Counter(labels[rows].tolist()).values()) == {per_class: 4}
    for k, count in enumerate(counts):
        times = Counter(drawn[labels[drawn] == k].tolist()).values()
        if len(times) == count:
            assert max(times) - min(times) <= 1 + per_class // count, (
                "no row again before all have been"
            )


@pytest.mark.parametrize("name", SAMPLINGS)
def test_an_epoch_is_that_of_its_seed(name):
    labels = torch.tensor([0] * 40 + [1] * 10 + [2] * 6)
    assert torch.equal(order(name, labels), order(name, labels))
    assert not torch.equal(order(name, labels), order(name, labels, seed=1))
    assert set(order(name, labels).tolist()) <= set(range(56)) and len(order(name, labels)) == 56
