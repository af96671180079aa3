"""A study in a real notebook: its kernel plans, runs and shows it."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[3]
CELLS = [
    """import contrasweep as cs
arms = {name: {"trainable": "toy:train", "config": {"lr": lr, "epochs": 3}} for name, lr in (("a", 0.1), ("b", 0.3))}
study = {"name": "nb", "arms": arms, "data": "digits-lt", "folds": 2, "metric": "accuracy"}
cs.plan(study, storage="runs")""",
    "results = cs.run(study, storage='runs', tracking=None)",
    "results",
    "results.table()",
    "results.versus('a', 'b')",
    "results.compare('a', 'b')",
]


@pytest.mark.long
def test_a_notebook_plans_runs_and_shows_a_study(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "platform", ROOT / "tests" / "support"))))
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, timeout=800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    # Ray and tqdm say on standard error that ipywidgets is missing: what is displayed has data.
    shown = [[output["data"] for output in cell.outputs if "data" in output] for cell in notebook.cells]
    assert shown[0][-1]["text/plain"].startswith("GridPlan(nb: 4 trials") and "<td>a</td>" in shown[0][-1]["text/html"]
    live = "".join(data.get("text/html", "") for data in shown[1])
    assert "nb: 4 trials" in live and "4/4 trials" in live  # its first line, and what it came to
    for data in (shown[i][-1] for i in (2, 3, 4, 5)):
        assert "<table" in data["text/html"]
    assert [len(outputs) for outputs in shown] == [1] * len(CELLS)
