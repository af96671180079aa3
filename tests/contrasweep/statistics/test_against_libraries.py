"""The same numbers from statsmodels (equivalence, corrections, components, McNemar) and online-fdr (LORD++)."""

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from online_fdr.p_values.investing.lord.plus_plus import LordPlusPlus
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from contrasweep.statistics.design import between_within, contrast
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family
from contrasweep.statistics.mcnemar import DiscordantContrast
from contrasweep.statistics.referee import Confirmation, Rule


@pytest.mark.parametrize("margin", [0.3, 0.8])
def test_equivalence_is_two_one_sided_t_tests(margin):
    d = np.random.default_rng(0).normal(0.1, 0.4, 5)  # five seeds: the t-test decides
    theirs = DescrStatsW(d).ttost_mean(-margin, margin)[0]
    assert Evidence(contrast(d)).equivalence_p(margin, 0.05) == pytest.approx(min(1, 2 * theirs))


@pytest.mark.slow
def test_corrections_of_a_family():
    p = [0.01, 0.04, 0.03, 0.3, 0.005]
    assert Family(5).adjusted(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert Family(5, margin=0.1).adjusted(p) == pytest.approx(
        multipletests(p, method="bonferroni")[1]
    )


def test_components_with_gaps_are_by_type_two_sums_of_squares():
    rng = np.random.default_rng(2)
    kept = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 1]], dtype=bool)
    f, s = np.nonzero(kept)
    f = 2 * f  # codes that nothing has count for nothing
    d = rng.normal(size=len(f))
    table = anova_lm(ols("d ~ C(f) + C(s)", pd.DataFrame({"d": d, "f": f, "s": s})).fit(), typ=2)
    components = between_within(d, f, s)
    assert components.unbiased.residual == pytest.approx(
        table["sum_sq"]["Residual"] / table["df"]["Residual"]
    )
    assert (components.seed_degrees, components.residual_degrees) == (
        table["df"]["C(s)"],
        table["df"]["Residual"],
    )


@pytest.mark.parametrize(
    ("a_alone", "b_alone", "both"), [(9, 2, 40), (30, 14, 100), (5, 0, 20), (7, 7, 7)]
)
def test_items_that_are_right_or_wrong_are_judged_by_mcnemars_exact_test(a_alone, b_alone, both):
    d = np.repeat([1.0, -1.0, 0.0], [a_alone, b_alone, both])
    theirs = mcnemar([[both, a_alone], [b_alone, 0]], exact=True).pvalue
    assert discordant(d).p_value() == pytest.approx(theirs)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize(
    "counts", [(0, 0, 100), (100, 0, 0), (0, 100, 0), (1, 0, 99), (0, 10, 90), (5, 5, 990)]
)
def test_the_interval_of_items_holds_the_bounds_that_their_one_sided_tests_do_not_reject(
    counts, alpha
):
    judged = discordant(np.repeat([1.0, -1.0, 0.0], counts))
    low, high = judged.interval(alpha)
    for p_beyond, end, inward in ((judged.p_above, low, 1e-9), (judged.p_below, high, -1e-9)):
        assert p_beyond(end + inward) > alpha / 2
        assert abs(end) == 1 or p_beyond(end - inward) < alpha / 2 * (1 + 1e-6)


def discordant(differences):
    found = contrast(differences)
    return DiscordantContrast(**{entry.name: getattr(found, entry.name) for entry in fields(found)})


def test_a_stream_of_confirmations_is_granted_the_levels_of_lord_plus_plus():
    theirs = LordPlusPlus(alpha=0.1, wealth=0.05)
    past = []
    theirs.seq.calc_gamma = lambda k: 1 / (k * (k + 1))
    rule = Rule(alpha=0.1, error="fdr")
    rng = np.random.default_rng(3)
    for p in np.where(rng.random(60) < 0.2, 0.0001, rng.random(60)):
        level = rule.granted(past)
        kept = theirs.test_one(float(p))
        assert level == pytest.approx(theirs.last_test_level)
        past.append(Confirmation(level, kept, float(p)))
    assert sum(one.kept for one in past) > 5
