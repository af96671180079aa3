"""Make the storage of this version, which every later version reads: `python tests/golden/make.py`."""

import json
import shutil
from pathlib import Path

import contrasweep as cs

HERE = Path(__file__).resolve().parent
STUDIES = ("grid.yaml", "sweep.yaml")


def seen(storage: str, name: str) -> dict[str, object]:
    """What a later version has to read of a study in the storage: cells of its table, comparisons, values of trials."""
    results = cs.load(name, storage=storage)
    cells = {
        " ".join((*row, *col)): [c.mean, c.low, c.high]
        for (row, col), c in results.table().cells.items()
    }
    compared = {
        f"{p.a} {p.b}": [p.comparison.difference, p.comparison.p_value]
        for p in results.answer.pairs
    }
    trials = {
        i: record.metrics[results.metric] for i, record in sorted(results.trial_records.items())
    }
    return {"cells": cells, "compared": compared, "trials": trials}


def main() -> None:
    """Run both studies, keep their records without logs and checkpoints, and write what is seen of them."""
    folder = HERE / cs.__version__
    shutil.rmtree(folder, ignore_errors=True)
    storage = folder / "storage"
    expected = {}
    for file in STUDIES:
        results = cs.run(HERE / file, storage=str(storage), tracking="none")
        shutil.copy(HERE / file, folder / file)
        expected[results.name] = seen(str(storage), results.name)
    for path in [
        storage / "datasets",
        storage / "calibration",
        *storage.glob("*/trials"),
        *storage.glob("*/lease"),
    ]:
        shutil.rmtree(path)
    for path in storage.glob("*/live.json"):  # of this machine
        path.unlink()
    (folder / "seen.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
