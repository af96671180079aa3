"""What to try next: searchers that suggest and learn, and know nothing of processes. The only user of Optuna.

    searcher = build("tpe", space, seed=0, mode="max", budget=40)
    while (config := searcher.ask()) is not None: searcher.tell(config, train(config))

What is asked depends on the seed, the number of the ask and what was told, and no configuration is asked twice.
"""

from contrasweep.tuning.searchers.named import SEARCHERS, build
from contrasweep.tuning.searchers.pedanova import Importance, importance
from contrasweep.tuning.searchers.searcher import Problem, Searcher

__all__ = ["SEARCHERS", "Importance", "Problem", "Searcher", "build", "importance"]
