"""Stage and verify every real dataset at hand, as a newcomer would: one line each.

python -m benchmarks.stage_real_data --shared ../shared --storage ./contrasweep-runs
"""

import argparse
import sys
import time
from pathlib import Path

from contrasweep.data import inspecting, stage
from contrasweep.data.resolving import default_place
from contrasweep.errors import ContrasweepError

SOURCES = {
    "digits": None,
    "mnist": "mnist/mnist.npz",
    "cifar10-lt": "cifar10_lt/cifar10_lt_if100.npz",
    "ombria": "ombria",
    "ombria?classes=4": "ombria",
    "sick": "sick",
    "contrasweep.trainables.review_helpfulness.datasets:CLOTHING_REVIEWS": "reviews/womens_clothing_reviews.csv.zip",
}


def stage_and_verify(name: str, shared: Path, storage: str) -> tuple[bool, str]:
    """Stage the dataset `name` from `shared`; whether all went well, and a line that says so."""
    place = SOURCES[name]
    source = None if place is None else shared / "data" / place
    if source is not None and not source.exists():
        return True, f"{name:20s} skipped: {source} is not there"
    start = time.perf_counter()
    try:
        manifest = stage(name, default_place(name, storage=storage), source=source)
        problems = inspecting.verify(manifest)
    except ContrasweepError as error:
        problems = [inspecting.Finding(name, str(error))]
    if problems:
        return False, f"{name:20s} FAILED: " + "; ".join(
            f"{found.object} {found.problem}" for found in problems
        )
    rows = ", ".join(f"{split} {manifest.rows(split):,}" for split in manifest.splits)
    return (
        True,
        f"{name:20s} verified in {time.perf_counter() - start:4.1f} s  {manifest.digest[:12]}  {rows}",
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument(
        "--shared",
        type=Path,
        default=Path("../shared"),
        help="the folder whose data/ holds the published files",
    )
    options.add_argument("--storage", default="./contrasweep-runs", help="folder or s3:// address")
    chosen = options.parse_args()
    failed = 0
    for name in SOURCES:
        good, line = stage_and_verify(name, chosen.shared, chosen.storage)
        print(line, flush=True)
        if not good:
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
