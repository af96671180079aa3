"""Where the checkout lies, and what the processes of tests import."""

import os
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]


def module_path(*folders):
    """PYTHONPATH of a process that imports from these too."""
    return os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])


def environment_without(*prefixes):
    """This process's environment but for variables that begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
