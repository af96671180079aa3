"""Running a study: trials through Ray Tune, records into the storage, facts to the tracker."""

import os

# Of a dead worker or node Ray prints screens to standard output, where `--json` belongs; the engine says them in a
# line.
# Read when Ray is imported.
os.environ.setdefault(
    "RAY_DEDUP_LOGS_SKIP_REGEX", "^(A worker died|Raylet is terminated|The node with node id)"
)
