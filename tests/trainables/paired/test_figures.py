"""The figures of a study: what the bands are, and that each figure is drawn to its file."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contrasweep.trainables.paired import figures
from contrasweep.trainables.paired.tables import class_names

FRAME = pd.DataFrame(
    [
        ("local", 32, 0, "done", 0.5),
        ("local", 8, 0, "done", 0.4),
        ("local", 8, 1, "done", 0.8),
        ("local", 8, 2, "pending", np.nan),
        ("scl", 8, 0, "done", 0.3),
    ],
    columns=["arm", "batch_size", "fold", "status", "accuracy"],
)


@pytest.mark.parametrize(
    ("band", "low", "high"), [("min-max", 0.4, 0.8), ("std", 0.6 - 0.2 * 2**0.5, 0.6 + 0.2 * 2**0.5)]
)
def test_bands_are_of_the_finished_replicates(band: str, low: float, high: float) -> None:
    bands = figures.bands(FRAME, "batch_size", band=band)
    assert bands.loc[("local", 8)].tolist() == pytest.approx([0.6, low, high])
    assert bands.loc["local"].index.tolist() == [8, 32]


@pytest.mark.slow
def test_scores_against_an_axis_are_drawn(tmp_path: Path) -> None:
    drawn = figures.scores_against(FRAME, "batch_size", tmp_path / "new" / "batch.png")
    other = figures.scores_against(FRAME.assign(accuracy=0.1), "batch_size", tmp_path / "other.png")
    assert drawn.read_bytes().startswith(b"\x89PNG") and drawn.read_bytes() != other.read_bytes()


def test_f1_is_pooled_over_the_folds_of_an_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1 of both folds' rows together, not the mean of their F1."""
    folders = []
    for fold, predicted in enumerate(([0, 0, 1], [1, 1, 1])):
        table = pa.table({"label": [0, 0, 1], "predicted": predicted}).replace_schema_metadata(
            {"classes": '["dry", "wet"]'}
        )
        folders.append(tmp_path / str(fold))
        folders[-1].mkdir()
        pq.write_table(table, folders[-1] / "embeddings.parquet")
    assert class_names(pq.read_table(folders[0] / "embeddings.parquet")) == ["dry", "wet"]
    seen = []
    monkeypatch.setattr(figures, "classification", lambda *given: seen.append(given) or {"f1_macro": 0.0})
    drawn = figures.pooled_f1({"local": folders}, tmp_path / "f1.png")
    ((predicted, labels, classes),) = seen
    assert (predicted.tolist(), labels.tolist(), classes) == ([0, 0, 1, 1, 1, 1], [0, 0, 1, 0, 0, 1], 2)
    assert drawn.read_bytes().startswith(b"\x89PNG")
