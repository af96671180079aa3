"""A process like that of a machine that only plans, submits and watches: no torch, Ray, pandas, SciPy or Optuna."""

HIDDEN = (
    "torch",
    "torchvision",
    "ray",
    "scipy",
    "pandas",
    "sklearn",
    "mlflow",
    "optuna",
    "matplotlib",
    "cmaes",
)
READING = ("optuna", "pandas", "scipy")
"""Those that the extra `judge` installs."""


def hide(names):
    """Run first in a process, in which these packages are then not installed."""
    return f"""
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {tuple(names)!r} else PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


HIDE = hide(HIDDEN)
