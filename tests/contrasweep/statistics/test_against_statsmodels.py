"""The same numbers from statsmodels: equivalence, corrections, variance components."""

import numpy as np
import pandas as pd
import pytest

from contrasweep.statistics.design import between_within, contrast, crossed
from contrasweep.statistics.family import Family

pytest.importorskip("statsmodels")
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW


@pytest.mark.parametrize("margin", [0.3, 0.8])
def test_equivalence_is_two_one_sided_t_tests(margin):
    d = np.random.default_rng(0).normal(0.1, 0.4, 5)  # five seeds: the t-test decides
    theirs = DescrStatsW(d).ttost_mean(-margin, margin)[0]
    assert contrast(d).equivalence_p(margin) == pytest.approx(theirs)


@pytest.mark.slow
def test_corrections_of_a_family():
    p = [0.001, 0.04, 0.02, 0.3, 0.011]
    assert Family(5).adjusted(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert Family(5, margin=0.1).adjusted(p) == pytest.approx(multipletests(p, method="bonferroni")[1])


def test_components_are_those_of_the_two_way_analysis_of_variance():
    rng = np.random.default_rng(1)
    d = 2 * rng.normal(size=(6, 1)) + 2 * rng.normal(size=(1, 4)) + rng.normal(size=(6, 4))
    f, s = np.repeat(range(6), 4), np.tile(range(4), 6)
    table = anova_lm(ols("d ~ C(f) + C(s)", pd.DataFrame({"d": d.ravel(), "f": f, "s": s})).fit(), typ=2)
    squares = table["sum_sq"] / table["df"]
    fold, seed, rest = squares["C(f)"], squares["C(s)"], squares["Residual"]
    components = between_within(d.ravel(), f, s).unbiased
    assert (components.fold, components.seed, components.residual) == pytest.approx(
        ((fold - rest) / 4, (seed - rest) / 6, rest)
    )
    assert crossed(d).variance == pytest.approx((fold + seed - rest) / 24)


def test_components_with_gaps_are_by_type_two_sums_of_squares():
    rng = np.random.default_rng(2)
    kept = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 1]], dtype=bool)
    f, s = np.nonzero(kept)
    d = rng.normal(size=len(f))
    table = anova_lm(ols("d ~ C(f) + C(s)", pd.DataFrame({"d": d, "f": f, "s": s})).fit(), typ=2)
    components = between_within(d, f, s)
    assert components.unbiased.residual == pytest.approx(table["sum_sq"]["Residual"] / table["df"]["Residual"])
    assert (components.seed_degrees, components.residual_degrees) == (table["df"]["C(s)"], table["df"]["Residual"])
