"""What a trial leaves beside its metrics: the tables of its embeddings, and figures drawn from them if wanted."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from contrasweep.trainables.paired import tables
from contrasweep.trainables.paired.tables import Embedded


def write(
    folder: Path, test: Embedded, train: Embedded, rows: Any, names: tuple[str, ...], *, figures: bool
) -> dict[str, Path]:
    """Write both tables (and figures) to `folder`; file name -> file, since the name is what the storage keeps."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"embeddings": folder / "embeddings.parquet", "centres": folder / "centres.parquet"}
    tables.save(tables.embeddings(test, rows), names, files["embeddings"])
    tables.save(
        pa.concat_tables([tables.centres(test, "test", len(names)), tables.centres(train, "train", len(names))]),
        names,
        files["centres"],
    )
    if figures:
        from contrasweep.trainables.paired.figures import draw  # matplotlib, only for those who want figures

        files |= draw(folder, folder)
    return {path.name: path for path in files.values()}
