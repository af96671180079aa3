"""SICK (Marelli et al. 2014): pairs of sentences with entailment classes and relatedness, in the published SICK.txt."""

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa

from contrasweep.data import columns
from contrasweep.data.content import Content, Importer, Published
from contrasweep.errors import DataError

SPLITS = {"train": "TRAIN", "dev": "TRIAL", "test": "TEST"}
"""Split -> value of the column `SemEval_set`."""
CLASSES = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")
COLUMNS = (
    "pair_ID",
    "sentence_A",
    "sentence_B",
    "entailment_label",
    "relatedness_score",
    "SemEval_set",
)


def read(source: Path, settings: Any) -> Content:
    """Return the splits of SICK.txt, three of them; `source` is the file or its folder. There are no settings.

    `DataError` if a column is missing, or a row has a value that SICK does not have.
    """
    path = source / "SICK.txt" if source.is_dir() else source
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    missing = [name for name in COLUMNS if not rows or name not in rows[0]]
    if missing:
        raise DataError(f"{path} has no column {', '.join(missing)}; it is not SICK.txt")
    try:
        for row in rows:
            if row["SemEval_set"] not in SPLITS.values():
                raise ValueError(f"SemEval_set is {row['SemEval_set']!r}")
        splits = {
            split: [_table([row for row in rows if row["SemEval_set"] == part])]
            for split, part in SPLITS.items()
        }
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} has a row that is not SICK's ({error})") from None
    return Content("text-pair", splits, CLASSES)


def _table(rows: list[dict[str, str]]) -> pa.Table:
    """Return a table with `premise`, `hypothesis`, `label` (index in `CLASSES`), `relatedness` (1 to 5) and `pair_id`.

    `ValueError` where a cell is no number or class, `TypeError` where it is missing.
    """
    return columns.table(
        {
            "pair_id": pa.array([int(row["pair_ID"]) for row in rows], pa.int32()),
            "premise": pa.array([row["sentence_A"] for row in rows], pa.string()),
            "hypothesis": pa.array([row["sentence_B"] for row in rows], pa.string()),
            "label": pa.array([CLASSES.index(row["entailment_label"]) for row in rows], pa.int32()),
            "relatedness": pa.array(
                [float(row["relatedness_score"]) for row in rows], pa.float32()
            ),
        },
        specs={},
    )


SICK = Importer(
    read,
    "9,840 pairs of sentences, 3 entailment classes",
    "CC BY-NC-SA 3.0",
    "SICK.txt or its folder",
    published=lambda settings: Published(
        "text-pair", {"train": 4_439, "dev": 495, "test": 4_906}, CLASSES
    ),
)
