"""What a researcher declares: an `AblationGrid` (a full table) or a `Sweep` (a search per arm, then a confirmation).

Python objects and YAML have the same fields; both are checked as they are made, before anything is spent.
"""

from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Sweep

Study = AblationGrid | Sweep
