"""A search that must find something: the short form of benchmarks/search.py, really trained, the same on any
machine."""

import importlib.util

import pandas as pd
import pytest
from benchmarks.paired import compare_paired
from places import ROOT
from sweeps import sweep

from contrasweep import Arm, Float, Int

FILE = ROOT / "benchmarks/search.py"
SPACE = {"lr": Float(1e-5, 100.0, log=True), "batch_size": Int(4, 180, log=True)}
BUDGET = 180
SEEDS = 10
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("epochs")]  # measured once for all of them


@pytest.fixture(scope="module")
def epochs(tmp_path_factory):
    """Epochs until a method has what random search has after its whole budget, by method [seeds]."""
    spec = importlib.util.spec_from_file_location("benchmark_search", FILE)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    study = sweep(
        arms={"toy": Arm("toy:train", config={"epochs": 9}, space=SPACE)},
        trials_per_arm=None,
        budget={"epochs": BUDGET},
    )
    methods = {name: benchmark.METHODS[name] for name in ("random", "random + ASHA", "TPE + ASHA")}
    result = benchmark.measure(
        study, BUDGET, methods, range(SEEDS), str(tmp_path_factory.mktemp("data")), pd.DataFrame()
    )
    return result.pivot(index="seed", columns="method", values="epochs").fillna(2 * BUDGET)


@pytest.mark.parametrize("method", ["random + ASHA", "TPE + ASHA"])
def test_random_searchs_best_is_reached_with_fewer_epochs_than_random_search_spends(epochs, method):
    comparison = compare_paired([BUDGET] * SEEDS, epochs[method], mode="max")
    assert comparison.low > 0, comparison
