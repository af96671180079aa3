"""Searchers, which suggest the next configuration and learn from results. Only this package uses Optuna.

    searcher = build("tpe", space, seed=0, mode="max", budget=40)
    while (config := searcher.ask()) is not None: searcher.tell(config, train(config))

A suggestion depends on the seed, on how many were asked for before, and on the results that were told. No configuration
is suggested twice.
"""

from contrasweep.tuning.searchers.named import SEARCHERS, build
from contrasweep.tuning.searchers.pedanova import Importance, importance
from contrasweep.tuning.searchers.searcher import Problem, Searcher

__all__ = ["SEARCHERS", "Importance", "Problem", "Searcher", "build", "importance"]
