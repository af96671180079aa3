"""One suite for every searcher: configurations of the space, none twice, the same for the same seed and history."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from contrasweep import SpecError
from contrasweep.canonical import dumps
from contrasweep.study.space import Choice, Float, Int, active, configurations, sample
from contrasweep.tuning.searchers import SEARCHERS, build, importance

SPACE = {
    "kind": Choice(["plain", ["a", 1]]),
    "lr": Float(1e-4, 1.0, log=True),
    "width": Int(1, 16, log=True),
    "margin": Float(0.0, 1.0, step=0.3, when={"kind": "plain"}),
    "depth": Int(2, 9, step=3),
    "soft": Choice([True, False], when={"loss": "other"}),
}
SMALL = {
    "a": Choice(["x", "y"]),
    "b": Int(1, 3),
    "c": Float(0.0, 1.0, step=0.5, when={"a": "x"}),
}  # 2 x 3, c for x only: 9 + 3
NAMES = [
    *(pytest.param(name, marks=pytest.mark.slow) if name == "gp" else name for name in SEARCHERS),
    "optuna.samplers:TPESampler",
]
OPTIONS = {"grid": {"levels": {"lr": 3, "width": 2, "margin": 2, "depth": 2}}}
pytestmark = pytest.mark.filterwarnings("ignore")


def make(name, space=SPACE, seed=0, budget=200, mode="max", **options):
    given_options = OPTIONS.get(name, {}) if space is SPACE else {}
    return build(
        name,
        space,
        fixed={"loss": "ocl"},
        seed=seed,
        budget=budget,
        mode=mode,
        **given_options | options,
    )


def score(config):
    return -abs(math.log10(config["lr"]) + 2)


def tell(searcher, i, config, sign=1):
    """Every fifth trial fails, every seventh is pruned."""
    value = None if i % 5 == 4 else sign * score(config)
    searcher.tell(config, value, pruned_at=2 if i % 7 == 6 else None)
    return config


def history(searcher, n):
    """Ask n times, one at a time."""
    return [tell(searcher, i, searcher.ask()) for i in range(n)]


@pytest.mark.parametrize("name", NAMES)
def test_asks_are_configurations_of_the_space_and_differ(name):
    configs = history(make(name), 14)
    assert len({dumps(config) for config in configs}) == 14
    for config in configs:
        assert set(config) == {
            n for n, p in SPACE.items() if active(p.when, {"loss": "ocl", **config})
        }
        assert all(SPACE[n].holds(value) for n, value in config.items())
        assert config["depth"] in (2, 5, 8)


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_of_a_study_is_taken(name):
    assert make(name, seed=2**63 - 1).ask() is not None


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides(name):
    first, again, other = (history(make(name, seed=seed), 14) for seed in (3, 3, 4))
    assert first == again
    assert first != other or name == "grid"


def resumed(name, asked, sign=1):
    """A search that has replayed what it `asked`, of which two were pruned and two failed."""
    searcher = make(name)
    for config in asked:
        searcher.replay(config)
    for i, config in enumerate(asked):
        tell(searcher, i, config, sign)
    return searcher


@pytest.mark.parametrize("name", ["grid", "random", "quasi-random"])
def test_a_search_that_learns_nothing_goes_on_as_if_never_interrupted(name):
    whole = history(make(name), 14)
    assert resumed(name, whole[:9]).ask() == whole[9]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in SEARCHERS if name not in ("grid", "random", "quasi-random")]
)
def test_a_search_that_learns_goes_on_from_its_history_and_repeats_nothing(name):
    whole = history(make(name), 20)
    following = resumed(name, whole).ask()
    assert following == resumed(name, whole).ask(), "the history decides"
    learns_again = following != resumed(name, whole, -1).ask()
    assert learns_again == (name not in ("cmaes", "nsga2")), (
        "these two learn from what they asked themselves alone"
    )
    assert dumps(following) not in {dumps(config) for config in whole}


def test_what_was_pruned_is_learned_from():
    def following(sign):
        searcher = make("tpe")
        for _ in range(20):
            config = searcher.ask()
            searcher.tell(config, sign * score(config), pruned_at=2)
        return searcher.ask()

    assert following(1) != following(-1)


def test_repeated_suggestions_change_no_configuration_of_a_resumed_search():
    def asked(count, searcher):
        for _ in range(count):
            config = searcher.ask()
            searcher.tell(config, -float(config["x"] + config["y"]))
            yield config

    space = {"x": Int(1, 8), "y": Int(1, 3)}
    whole = list(asked(14, make("tpe", space, budget=14)))
    for stop in range(1, 14):
        searcher = make("tpe", space, budget=14)
        for config in whole[:stop]:
            searcher.replay(config)
        for config in whole[:stop]:
            searcher.tell(config, -float(config["x"] + config["y"]))
        assert list(asked(14 - stop, searcher)) == whole[stop:]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_finite_space_is_asked_whole_and_once(name):
    searcher = make(name, SMALL, budget=12, **({"levels": 3} if name == "grid" else {}))
    searcher.replay({"a": "y", "b": 1, "c": 0.5})  # of a candidate's file that was changed by hand
    collected = []
    for config in iter(searcher.ask, None):
        collected.append(dumps(config))
        searcher.tell(config, 1.0)
    assert sorted(collected) == sorted(configurations(SMALL))
    assert len(collected) == 12


@pytest.mark.parametrize("name", NAMES)
def test_a_space_whose_ranges_never_exist_is_asked_whole(name):
    """It counts as infinite, and has two configurations."""
    space = {"kind": Choice(["a", "b"]), "lr": Float(0.1, 1.0, when={"loss": "other"})}
    searcher = make(name, space)
    collected = []
    for config in iter(searcher.ask, None):
        collected.append(config["kind"])
        searcher.tell(config, 1.0)
    assert sorted(collected) == ["a", "b"]


@pytest.mark.parametrize("name", NAMES)
def test_parallel_asks_wait_for_nothing_and_differ(name):
    searcher = make(name)
    configs = [searcher.ask() for _ in range(8)]
    assert len({dumps(config) for config in configs}) == 8
    for config in reversed(configs):
        searcher.tell(config, score(config))
    assert searcher.ask() not in configs


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("tpe", "max"),
        ("tpe", "min"),
        ("cmaes", "max"),
        pytest.param("gp", "min", marks=pytest.mark.slow),
    ],
)
def test_what_learns_ends_nearer_than_random(name, mode):
    """Median over seeds of the last trials' distance to the optimum of a parabola in log lr."""
    space = {"lr": Float(1e-4, 1.0, log=True), "wd": Float(1e-4, 1.0, log=True)}

    def last(searcher):
        distances = []
        for _ in range(24):
            config = searcher.ask()
            distances.append(sum(abs(math.log10(v) + 1.3) for v in config.values()))
            searcher.tell(config, distances[-1] if mode == "min" else -distances[-1])
        return float(np.median(distances[-8:]))

    seeds = range(1 if name == "gp" else 3)  # whose models take seconds
    assert np.median(
        [last(build(name, space, seed=s, mode=mode, budget=24)) for s in seeds]
    ) < np.median([last(build("random", space, seed=s, mode=mode, budget=24)) for s in seeds])


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6))
@settings(max_examples=50)
def test_optunas_form_of_a_value_is_reversible(point):
    """A configuration from anywhere can be told: replayed, it is taken as it is."""
    config = sample(SPACE, point, {"loss": "ocl"})
    searcher = make("optuna.samplers:RandomSampler")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        searcher.replay(config)
    trial = searcher.open[dumps(config)]
    assert set(trial.params) == set(config)
    assert all(
        SPACE[n].options[v] == config[n]
        for n, v in trial.params.items()
        if isinstance(SPACE[n], Choice)
    )
    assert trial.params["lr"] == config["lr"] and trial.params["width"] == config["width"]


def test_the_default_grid_is_the_largest_within_the_budget():
    searcher = build("grid", {"lr": Float(1e-3, 1.0, log=True), "t": Float(0.1, 1.0)}, budget=10)
    collected = list(iter(searcher.ask, None))
    assert len(collected) == 9
    assert sorted({c["t"] for c in collected}) == pytest.approx([0.1, 0.55, 1.0])
    assert Float(0, 1, step=0.5).grid(64) == [0, 0.5, 1]  # 64 to the power of four take hours


def test_importance_finds_what_matters():
    generator = np.random.default_rng(0)
    configs = [
        sample(SPACE, point, {"loss": "ocl"}) for point in generator.random((60, len(SPACE)))
    ]
    seen = importance([(c, score(c)) for c in configs], SPACE)
    assert next(iter(seen.shares)) == "lr" and seen.shares["lr"] > 0.5
    assert [name for name in seen.shares if seen.shares[name] > seen.noise[name]] == ["lr"]
    assert sum(seen.shares.values()) == pytest.approx(1)
    assert importance([(c, 1.0) for c in configs], SPACE).shares == {}


def test_noise_passes_its_own_floor_as_rarely_as_is_said():
    """Scores that depend on nothing: one setting in twenty is above what its shuffled scores reach. Of 20 one
    is expected; five and more have a probability of .003."""
    space = {"a": Float(0.0, 1.0), "b": Choice(["x", "y", "z"])}
    passed = 0
    generator = np.random.default_rng(7)
    for _ in range(10):
        configs = [
            {"a": generator.random(), "b": str(generator.choice(["x", "y", "z"]))}
            for _ in range(12)
        ]
        seen = importance([(c, generator.normal()) for c in configs], space)
        passed += sum(seen.shares[name] > seen.noise[name] for name in seen.shares)
    assert passed < 5


def test_a_share_that_noise_would_show_is_no_finding():
    """Of three configurations there is no share; of one setting alone the share is 1 whatever the scores are."""
    generator = np.random.default_rng(1)
    configs = [({"lr": generator.random()}, generator.normal()) for _ in range(12)]
    assert importance(configs[:3], {"lr": Float(0.0, 1.0)}).shares == {}
    seen = importance(configs, {"lr": Float(0.0, 1.0)})
    assert seen.shares == {"lr": 1.0} and seen.noise["lr"] == 1.0 and seen.configurations == 12


@pytest.mark.parametrize("settings", [2, 40])
def test_a_grid_beyond_the_budget_is_refused(settings):
    """One of 40 settings would not be listed in a lifetime."""
    space = {f"s{i}": Choice([1, 2, 3]) for i in range(settings)}
    with refused(SpecError, "budget: the grid is larger than the budget, got 8"):
        build("grid", space, budget=8)
    with refused(SpecError, "budget: a grid is larger than can be listed, got 20000"):
        build("grid", {name: Int(0, 50) for name in "abc"}, budget=None, levels=40)
