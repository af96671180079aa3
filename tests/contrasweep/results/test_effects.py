"""What a study's numbers depend on, through `Results` and on made-up numbers whose parts are known."""

import itertools

import numpy as np
import pandas as pd
import pytest

from contrasweep.results.effects import budget_curves, noise

RNG = np.random.default_rng(0)


def frame(seed=0.0, fold=0.0, order=0.0, rest=0.0, arm=0.0, together=0.0):
    """2 arms x 2 batch sizes x 3 orders x 12 folds x 12 seeds; each part drawn with its standard deviation."""
    parts = {name: RNG.normal(0, sd, 12) for name, sd in (("seed", seed), ("fold", fold), ("order", order))}
    rows = [
        {
            "arm": "ab"[a],
            "batch_size": 2 ** (3 + b),
            "order_seed": o,
            "fold": f,
            "seed": s,
            "value": parts["seed"][s]
            + parts["fold"][f]
            + parts["order"][o]
            + arm * a
            + together * (a == b)
            + RNG.normal(0, rest),
        }
        for a, b, o, f, s in itertools.product(range(2), range(2), range(12), range(6), range(6))
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("part", ["seed", "fold", "order"])
def test_noise_is_traced_to_where_it_comes_from(part):
    components = noise(frame(**{part: 0.1}, rest=0.01), "value", ["batch_size", "order_seed"]).set_index("source")[
        "share"
    ]
    assert list(components.index) == ["seed", "fold", "order_seed", "rest"]
    assert components["order_seed" if part == "order" else part] > 0.9


def test_nothing_is_said_where_nothing_is_replicated():
    one = frame(rest=1.0).query("seed == 0 and fold == 0 and order_seed == 0")
    assert noise(one, "value", ["batch_size"]).empty


@pytest.mark.parametrize("mode", ["max", "min"])
def test_what_a_budget_buys(mode):
    search = pd.DataFrame({"arm": ["a"] * 30, "value": RNG.normal(size=30)})
    best = search["value"].agg(mode)
    drawn = budget_curves(search, ["a", "b"], searcher="random", mode=mode)
    result = budget_curves(search, ["a", "b"], searcher="tpe", mode=mode)
    assert list(drawn["trials"]) == list(result["trials"]) == list(range(1, 31))
    assert (
        drawn["best"].iloc[0] == pytest.approx(search["value"].mean())
        and drawn["best"].iloc[-1] == result["best"].iloc[-1] == best
    )
    steps = np.diff(drawn["best"]) if mode == "max" else -np.diff(drawn["best"])
    assert (steps > 0).all() and result["low"].isna().all() and drawn["low"].notna().any()
    assert result["best"].iloc[4] == search["value"][:5].agg(mode)
