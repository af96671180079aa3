"""Results are judged where nothing that trains is installed, and with little memory."""

import numpy as np
import pandas as pd
import pytest
from command_line import python

BLOCKED = """
import atexit, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in "torch torchvision ray mlflow optuna boto3 sklearn matplotlib".split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
sys.argv[0] = "contrasweep"
from contrasweep.cli import program
@atexit.register
def peak():  # of this program: `ru_maxrss` is at least that of the process that started it
    with open("/proc/self/status") as status, open("peak_kib", "w") as file:
        file.write(next(line for line in status if line.startswith("VmHWM")).split()[1])
program()
"""


def judged(folder, *words):
    """What `contrasweep judge` prints where training packages are missing, and its memory in GiB."""
    done = python("-c", BLOCKED, "judge", *words, cwd=folder)
    return done, int((folder / "peak_kib").read_text()) / 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [[], ["--json"], ["--board"], ["--format", "html"], ["--require", "better"]]
)
def test_results_are_judged_where_neither_torch_nor_ray_nor_mlflow_is_installed(tmp_path, words):
    rows = [
        (m, s, 0.8 + 0.05 * (m == "new") + 0.01 * s + 0.001 * (s % 3))
        for m in ("base", "new")
        for s in range(8)
    ]
    pd.DataFrame(rows, columns=["model", "seed", "accuracy"]).to_csv(
        tmp_path / "runs.csv", index=False
    )
    done, _ = judged(tmp_path, "runs.csv", *words)
    assert done.returncode == 0, done.stderr
    assert "new" in done.stdout


@pytest.mark.slow
def test_a_hundred_thousand_rows_of_twenty_arms_take_little_memory(tmp_path):
    rng = np.random.default_rng(0)
    n = 5000
    frame = pd.DataFrame(
        {"model": np.repeat([f"m{i:02}" for i in range(20)], n), "item": np.tile(np.arange(n), 20)}
    )
    frame["acc"] = (rng.random(len(frame)) < 0.6).astype(int)
    frame.to_csv(tmp_path / "runs.csv", index=False)
    done, gib = judged(tmp_path, "runs.csv")
    assert done.stdout.startswith("20 arms, 5000 items: paired by item; family of 190 comparisons")
    assert gib < 1
