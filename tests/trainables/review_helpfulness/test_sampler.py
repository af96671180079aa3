"""Groups: what may be in them, how often, and that they repeat."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasweep.trainables.review_helpfulness.sampler import GroupSampler, pair_candidates

labels = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@settings(max_examples=60)
@given(labels, st.integers(0, 2))
def test_candidates_are_the_rule_written_out(truth, interval):
    levels = sorted(set(truth), reverse=True)
    kept = levels[: max(0, len(levels) - 1 - interval)]
    result = pair_candidates(truth, interval)
    assert [truth[p] for p, _ in result] == sorted([v for v in truth if v in kept], reverse=True)
    for positive, negatives in result:
        assert negatives.tolist() == [
            i for i, v in enumerate(truth) if v < truth[positive] - interval
        ]
        assert len(negatives)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=4, max_size=30),
    st.integers(0, 99),
)
def test_groups_stay_in_their_product(rows, seed):
    products, truth = np.array(rows).T
    sampler = GroupSampler(truth, products, interval=1, num_negatives=3)
    groups = sampler.epoch(seed)
    assert groups.shape == (len(sampler), 4)
    assert (products[groups] == products[groups[:, :1]]).all()
    assert (truth[groups[:, 1:]] < truth[groups[:, :1]] - 1).all()
    assert len(set(groups[:, 0].tolist())) == len(groups)
    assert np.array_equal(groups, sampler.epoch(seed))
    batches = list(sampler.batches(seed, 2))
    assert all(len(b) == 2 for b in batches[:-1])
    assert np.array_equal(np.concatenate([*batches, np.empty((0, 4), int)]), groups)


def test_rare_labels_are_drawn_more_often():
    """Labels 4, 1, 0, 0, 0: weights 1 - 1/5 for the 1 and 1 - 3/5 for each 0, so the 1 has .8 of 2.0."""
    sampler = GroupSampler([4, 1, 0, 0, 0], [0] * 5, interval=1, num_negatives=2000)
    assert [c.positive for c in sampler.candidates] == [0]
    drawn = sampler.epoch(0)[0, 1:]
    assert abs((drawn == 1).mean() - 0.4) < 0.04
    assert abs((drawn == 4).mean() - 0.2) < 0.04


def test_an_epoch_can_be_shortened_and_changes():
    truth = np.tile([4, 2, 0], 20)
    products = np.repeat(np.arange(20), 3)
    sampler = GroupSampler(truth, products, interval=0, num_negatives=1, max_groups=7)
    first = sampler.epoch(1)
    second = sampler.epoch(2)
    assert len(sampler) == len(first) == len(second) == 7
    assert not np.array_equal(first, second)
