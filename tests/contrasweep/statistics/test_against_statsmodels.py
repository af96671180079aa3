"""The same numbers from statsmodels: equivalence, corrections, variance components."""

import numpy as np
import pandas as pd
import pytest

from contrasweep.statistics.design import between_within, contrast
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


def test_components_with_gaps_are_by_type_two_sums_of_squares():
    rng = np.random.default_rng(2)
    kept = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 1]], dtype=bool)
    f, s = np.nonzero(kept)
    d = rng.normal(size=len(f))
    table = anova_lm(ols("d ~ C(f) + C(s)", pd.DataFrame({"d": d, "f": f, "s": s})).fit(), typ=2)
    components = between_within(d, f, s)
    assert components.unbiased.residual == pytest.approx(table["sum_sq"]["Residual"] / table["df"]["Residual"])
    assert (components.seed_degrees, components.residual_degrees) == (table["df"]["C(s)"], table["df"]["Residual"])
