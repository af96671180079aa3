"""Names that results and their tables share."""

from typing import Literal

Over = Literal["replicates", "groups"]
"""What a table is over: trials, or the test items of all folds."""
OWN_COLUMNS = ("trial_id", "arm", "fold", "seed", "status", "seconds", "gpu_memory_gib")
"""The columns of a frame of trials that are neither axes nor metrics."""
