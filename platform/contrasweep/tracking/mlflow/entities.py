"""MLflow's entities of what the platform describes."""

import json
from typing import Any

from contrasweep.tracking.mlflow.description import DescribedDataset, Point

DATASET_DIGEST_DIGITS = 12
"""The compare view prints it; the whole digest is in the dataset's profile."""


def metric_entity(point: Point) -> Any:
    """A value of a metric."""
    from mlflow.entities import Metric

    return Metric(*point)


def dataset_input(dataset: DescribedDataset) -> Any:
    """The dataset that a run was trained on."""
    from mlflow.entities import Dataset as Entity
    from mlflow.entities import DatasetInput, InputTag

    digits = dataset.digest[:DATASET_DIGEST_DIGITS]
    profile = {"digest": dataset.digest, "rows": dict(dataset.rows), "synthetic": dataset.synthetic}
    source_type = "s3" if dataset.uri.startswith("s3://") else "local"
    entity = Entity(dataset.name, digits, source_type, json.dumps({"uri": dataset.uri}), profile=json.dumps(profile))
    return DatasetInput(entity, [InputTag("mlflow.data.context", "training")])


def source_tags() -> dict[str, str]:
    """Who started a run, and by what."""
    import getpass

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a passwd entry
        user = "unknown"
    return {"mlflow.user": user, "mlflow.source.name": "contrasweep", "mlflow.source.type": "LOCAL"}
