"""OMBRIA by event: tiles go to the event that their number lies in, and each event is a fold."""

import csv

import numpy as np
import pytest
from PIL import Image

from contrasweep.data import open_dataset, stage
from contrasweep.data.importers.ombria import EVENT_STARTS
from contrasweep.errors import DataError

TILES = (1, 30, *(number for start in EVENT_STARTS for number in (start, start + 1)))
"""Two of every event, among them the last tile of the first and the first of all others."""


@pytest.fixture
def folder(tmp_path):
    for side in ("before", "after"):
        for tile in TILES:
            pixels = np.random.RandomState(tile).randint(0, 200, (8, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"S2_{side}_{tile:04d}.png")
    with (tmp_path / "pairs_5class.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["pre", "post", "label", "group", "fold"])
        for tile in TILES:
            names = [f"S2_{side}_{tile:04d}.png" for side in ("before", "after")]
            writer.writerow([*names, tile % 2, f"block-{tile // 40}", tile // 40 % 2])
    return tmp_path


def test_every_event_is_held_out_once(folder):
    manifest = stage("ombria", str(folder / "all"), source=folder, settings={"events": "all"})
    assert manifest.folds is not None and manifest.folds.count == 10
    data = open_dataset(manifest)
    for fold in range(10):
        train, held_out = data.parts(fold)
        assert held_out.column("group").to_pylist() == [f"event-{fold}"] * 2
        assert f"event-{fold}" not in train.column("group").to_pylist()


def test_the_lists_own_folds_are_the_default(folder):
    manifest = stage("ombria", str(folder / "blocks"), source=folder)
    assert manifest.folds is not None and manifest.folds.count == 2


def test_a_tile_without_a_number_is_of_no_event(folder):
    path = folder / "pairs_5class.csv"
    path.write_text(path.read_text().replace("S2_before_0030.png", "S2_before.png"))
    with pytest.raises(
        DataError, match=r"line 3: S2_before\.png has no tile number, as S2_before_0001\.png has"
    ):
        stage("ombria", str(folder / "staged"), source=folder, settings={"events": "all"})
