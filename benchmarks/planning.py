"""The processor time of a plan of 100,000 trials: with all settings resolved, and in another checkout beside it.

    python benchmarks/planning.py [--base CHECKOUT] [--runs 5]

10,000 cells of ten replicates, of a trainable with twelve settings, and the digest of the plan (so every trial's id).
Each run is a process of its own; the two checkouts take turns, so that whatever else the machine does meets both.
The ratio is of the fastest runs.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def seconds() -> float:
    """Plan the grid once, with the checkout that is imported."""
    from contrasweep import AblationGrid, Arm
    from contrasweep.data.manifest import Folds, Manifest, Shard
    from contrasweep.planning.grid import make_plan
    from contrasweep.schema import checked

    @checked
    class Settings:
        lr: float = 0.1
        batch: int = 128
        epochs: int = 20
        momentum: float = 0.9
        weight_decay: float = 1e-4
        encoder: str = "cnn"
        width: int = 64
        loss: str = "supcon"
        temperature: float = 0.2
        schedule: str = "cosine"
        warmup: int = 0
        device: str = "auto"

    def train(trial, resume=None):  # type: ignore[no-untyped-def]
        yield

    train.settings = Settings  # type: ignore[attr-defined]
    data = Manifest("d", "/nowhere", "image", {"train": (Shard("a", 1000, 1, "aa"),)}, folds=Folds(5))
    study = AblationGrid(
        name="large",
        arms={"a": Arm(train, config={"loss": "ocl"}), "b": Arm(train)},
        axes={"lr": [i / 1000 for i in range(1, 101)], "batch": list(range(1, 51))},
        data="d",
        folds=5,
        seeds=[0, 1],
    )
    began = time.process_time()
    plan = make_plan(study, lambda name: data)
    assert len(plan.trials) == 100_000 and plan.digest
    return time.process_time() - began


def in_checkout(root: Path) -> float:
    environment = {**os.environ, "PYTHONPATH": str(root / "platform")}
    done = subprocess.run(
        [sys.executable, __file__, "--once"], env=environment, capture_output=True, text=True, check=True, cwd=root
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="a checkout to compare with")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(seconds())
        return
    here, base = [], []
    for _ in range(options.runs):
        here.append(in_checkout(ROOT))
        if options.base:
            base.append(in_checkout(options.base))
    print(f"here {min(here):.2f} s" + (f", base {min(base):.2f} s, ratio {min(here) / min(base):.2f}" if base else ""))


if __name__ == "__main__":
    main()
