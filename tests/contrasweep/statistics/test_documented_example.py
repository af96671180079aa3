"""The example by hand of docs/results.md: every number of it."""

import numpy as np
import pandas as pd
import pytest

from contrasweep.statistics.comparison import judged_comparisons
from contrasweep.statistics.design import Design, between_within, contrast
from contrasweep.statistics.evidence import Evidence, paired_evidence
from contrasweep.statistics.family import Family

D = np.array([[0.02, 0.03, 0.00, 0.03, 0.04], [0.03, 0.01, 0.02, 0.04, 0.03]]).T
FOLDS = np.repeat(range(5), 2)
SEEDS = np.tile(range(2), 5)


ALONE = Family(1)


def said(found, family=ALONE):
    return judged_comparisons([Evidence(found)], family, "max")[0].sentence("a", "b")


def test_one_seed():
    comparison = contrast(D[:, 0], folds=range(5))
    assert D[:, 0].var(ddof=1) == pytest.approx(0.000230)
    assert comparison.standard_error == pytest.approx(0.0102, abs=5e-5) and comparison.degrees == 4
    assert comparison.difference / comparison.standard_error == pytest.approx(2.36, abs=5e-3)
    assert said(comparison) == "a against b is undecided: +0.024 [-0.004, +0.052], p = 0.078"
    assert comparison.p_below(0.06) == pytest.approx(0.012, abs=5e-4)
    assert said(comparison, Family(1, margin=0.06)).startswith("a and b are equivalent")


def test_two_seeds():
    parts = between_within(D.ravel(), FOLDS, SEEDS)
    assert parts.unbiased.fold == pytest.approx(0.000045)
    assert parts.unbiased.residual == pytest.approx(0.000135)
    assert parts.unbiased.seed == 0 and parts.cautious.fold == pytest.approx(0.00006525)
    comparison = contrast(
        D.ravel(), folds=FOLDS.tolist(), seeds=SEEDS.tolist(), design=Design(folds=5)
    )
    assert comparison.standard_error**2 == pytest.approx(0.0000429, abs=5e-8)
    assert comparison.degrees == 4
    assert said(comparison) == "a is better than b: +0.025 [+0.007, +0.043], p = 0.019"


def test_three_comparisons_and_a_gap():
    assert Family(3).adjusted([0.019, 0.03, 0.4]) == pytest.approx([0.057, 0.06, 0.4])
    assert Family(3).share([0.019, 0.03, 0.4], 0) == pytest.approx(0.05 / 3)
    assert [Family(3).share([0.01, 0.01, 0.04], i) for i in range(3)] == pytest.approx(
        [0.05 / 3, 0.05 / 3, 0.05]
    )
    two = contrast(D.ravel(), folds=FOLDS.tolist(), seeds=SEEDS.tolist(), design=Design(folds=5))
    low, high = two.interval(0.05 / 3)
    assert (high - low) / 2 == pytest.approx(0.0259, abs=5e-5) and low < 0
    rows = pd.DataFrame(
        {
            "cell": 0,
            "fold": range(5),
            "seed": 0,
            "a": D[:, 0],
            "b": 0.0,
            "failed_a": [0, 0, 1, 0, 0],
            "failed_b": False,
        }
    )
    evidence = paired_evidence(
        rows.assign(a=rows["a"].mask(rows["failed_a"] == 1)), Design(folds=5)
    )
    assert sorted(evidence.a_loses.values)[0] == pytest.approx(-0.04) and evidence.common.n == 4
    (comparison,) = judged_comparisons([evidence], Family(1), "max")
    assert judged_comparisons([Evidence(evidence.common)], Family(1), "max")[0].verdict == "better"
    assert comparison.sentence("a", "b").endswith("; a failed in 1 of 5")
