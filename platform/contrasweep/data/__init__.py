"""Datasets: staged once as Parquet, verified, cached once per node, shared by all trials there."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrasweep.data.reading import Dataset, Part, open_dataset
    from contrasweep.data.resolving import resolve
    from contrasweep.data.staging import stage

__all__ = ["Dataset", "Part", "open_dataset", "resolve", "stage"]

_ELSEWHERE = {
    "Dataset": "reading",
    "Part": "reading",
    "open_dataset": "reading",
    "resolve": "resolving",
    "stage": "staging",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: a trial needs the manifest's module, not pyarrow."""
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f"contrasweep.data.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module 'contrasweep.data' has no attribute {name!r}")
