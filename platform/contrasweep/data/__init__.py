"""Datasets: staged once as Parquet, verified, cached once per node, shared by all trials there."""

from typing import TYPE_CHECKING

from contrasweep.lazy import importer

if TYPE_CHECKING:
    from contrasweep.data.reading import Dataset, Part, open_dataset
    from contrasweep.data.resolving import resolve
    from contrasweep.data.staging import stage

__all__ = ["Dataset", "Part", "open_dataset", "resolve", "stage"]

__getattr__ = importer(  # a trial needs the manifest's module, not pyarrow
    __name__,
    {
        "Dataset": "reading",
        "Part": "reading",
        "open_dataset": "reading",
        "resolve": "resolving",
        "stage": "staging",
    },
)
