"""Running a study: trials through Ray Tune, records into the storage, facts to the tracker."""

import os

# On a dead worker or node Ray prints screens to standard output, where `--json` belongs; the engine says it in a line.
# Read when Ray is imported.
os.environ.setdefault(
    "RAY_DEDUP_LOGS_SKIP_REGEX", "^(A worker died|Raylet is terminated|The node with node id)"
)
