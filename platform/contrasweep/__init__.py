"""Declare a table of contrastive-learning runs; get it back with intervals and paired tests.

import contrasweep as cs
grid = cs.AblationGrid(name=..., arms={...: cs.Arm(...)}, axes={...}, data="digits-lt", folds=5)
cs.plan(grid)             # what would run
results = cs.run(grid)    # run or resume
results.table()           # the table; results.compare("ocl", "scl")
"""

import sys

if sys.orig_argv:  # [] where Python is part of another program
    # The words of the command line without Python's own: the first one is a script's path, or the module behind -m.
    _words = sys.orig_argv[-len(sys.argv) :]
    if _words[0].rpartition("/")[2] in ("contrasweep", "-mcontrasweep"):
        import signal  # signals wait until `attend` has set its handlers

        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))

from pathlib import Path
from typing import TYPE_CHECKING

from contrasweep.defaults import STORAGE
from contrasweep.errors import ContrasweepError, DataError, SpecError, StorageError
from contrasweep.lazy import importer

if TYPE_CHECKING:
    from contrasweep.campaign.campaign import Campaign
    from contrasweep.commands.functions import report
    from contrasweep.judging.judged import Judged, judge
    from contrasweep.planning.planner import plan
    from contrasweep.results.results import Results
    from contrasweep.results.table import TableStyle
    from contrasweep.running.driver import run
    from contrasweep.running.preview import preview
    from contrasweep.running.session import session
    from contrasweep.running.submit import submit
    from contrasweep.statistics.comparison import Comparison
    from contrasweep.study.arm import Arm, Start
    from contrasweep.study.evaluation import Evaluation
    from contrasweep.study.grid import AblationGrid, SubGrid
    from contrasweep.study.replicates import Replicates
    from contrasweep.study.space import Choice, Float, Int
    from contrasweep.study.sweep import Sweep
    from contrasweep.trial import Report, Trial
    from contrasweep.version import __version__

# a checkout without symbolic links
if not (Path(__file__).parent / "cluster" / "__init__.py").is_file():
    # a program says one line
    _error = SystemExit if Path(sys.argv[0]).name in ("-m", "contrasweep") else ImportError
    raise _error(
        "contrasweep/cluster, trainables and search_spaces are symbolic links that this checkout lacks; make them: "
        "git config core.symlinks true && git checkout -- platform/contrasweep"
    )

__all__ = [
    "AblationGrid",
    "Arm",
    "Campaign",
    "Choice",
    "Comparison",
    "ContrasweepError",
    "DataError",
    "Evaluation",
    "Float",
    "Int",
    "Judged",
    "Replicates",
    "Report",
    "Results",
    "SpecError",
    "Start",
    "StorageError",
    "SubGrid",
    "Sweep",
    "TableStyle",
    "Trial",
    "__version__",
    "judge",
    "load",
    "plan",
    "preview",
    "report",
    "run",
    "session",
    "submit",
]

__getattr__ = importer(
    __name__,
    {
        "__version__": "version",
        "data": "data",
        "Comparison": "statistics.comparison",
        "Judged": "judging.judged",
        "judge": "judging.judged",
        "Report": "trial",
        "report": "commands.functions",
        "Trial": "trial",
        "Results": "results.results",
        "TableStyle": "results.table",
        "submit": "running.submit",
        "plan": "planning.planner",
        "preview": "running.preview",
        "run": "running.driver",
        "session": "running.session",
        "Arm": "study.arm",
        "Start": "study.arm",
        "Campaign": "campaign.campaign",
        "SubGrid": "study.grid",
        "AblationGrid": "study.grid",
        "Evaluation": "study.evaluation",
        "Replicates": "study.replicates",
        "Choice": "study.space",
        "Float": "study.space",
        "Int": "study.space",
        "Sweep": "study.sweep",
    },
)


def load(name: str, *, storage: str = STORAGE) -> "Results":
    """Return the results of a study as they lie in a storage; its code and data are not needed.

    Args:
        name: The name of one study; `judge` compares several.
        storage: The folder or the address (`s3://...`) of the storage.

    Returns:
        The results so far; the study may still run.

    Raises:
        SpecError: There is no study of this name in the storage.
        StorageError: The storage cannot be read, or a file of it is broken.

    Example:
        >>> import contrasweep as cs
        >>> results = cs.load("quickstart", storage="./contrasweep-runs")
        >>> results.name
        'quickstart'
    """
    from contrasweep.results.results import Results

    if not isinstance(name, str):
        hint = "load each, and give cs.judge their frames (docs/results.md)"
        raise SpecError("a study is loaded by its name", place="name", value=name, hint=hint)
    return Results.load(name, storage)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
