"""The pixel baseline of images: the vote of nearest neighbours, the floor that a trained network has to leave.

    list(train(trial))

One report, with the scores and per-item values of the paired family's last one. So the floor stands in the same table
and is compared by the same paired test. Nothing is random: the seed changes nothing.
"""

import math
from collections.abc import Generator
from pathlib import Path

import numpy as np
import torch

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data import open_dataset
from contrasweep.data.manifest import Manifest
from contrasweep.data.reading import Part
from contrasweep.errors import DataError
from contrasweep.schema import checked
from contrasweep.trainables.evaluation.neighbours import search
from contrasweep.trainables.fields import Count
from contrasweep.trainables.images import image_shape
from contrasweep.trainables.paired.metrics import baseline_report
from contrasweep.trainables.pytorch import Matrix
from contrasweep.trial import Report, Trial


@checked
class Settings:
    """Settings of the pixel baseline."""

    neighbours: Count = 1
    """How many training images vote, weighted by their cosine."""

    def resolve(self, data: Manifest) -> "Settings":
        """Return the same settings: they do not depend on `data`. `DataError` where it has no labelled images."""
        if data.kind != "image" or not data.labelled:
            raise DataError(
                f"the pixel baseline needs labelled images; {data.name} is of kind {data.kind!r}"
            )
        image_shape(data, "image")  # refuses images that differ in size
        return self


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Classify test images by nearest neighbours in pixel space, and report once; there is nothing to resume.

    The mean training image is subtracted first. Without that all cosines would be close to 1, since pixels are never
    negative.
    """
    k = Settings(**trial.config).resolve(trial.data).neighbours
    fit, test = open_dataset(trial.data).parts(trial.fold)
    labels, fit_labels = (torch.tensor(part.labels) for part in (test, fit))
    pixels = _pixels(fit)
    mean = pixels.mean(0)
    # The vote of the k nearest training images of each test image.
    neighbours = search(pixels - mean, fit_labels, _pixels(test) - mean, labels, ks=(k,))
    yield baseline_report(trial, neighbours.votes[k], fit, test)


def _pixels(part: Part) -> Matrix:
    """Return the images of a part as rows of values in [0, 1]."""
    return torch.from_numpy(np.asarray(part.array("image"))).flatten(1).float() / 255


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory of the search: images of both parts in float32 on the host, and no GPU."""
    values = data.rows("train", "test") * math.prod(image_shape(data, "image"))
    # 5 bytes a value: 1 as it is stored, 4 in float32. There is no network: `build` and `inputs` are of an empty one.
    return Workload(
        architecture="raw pixels",
        shape=(values,),
        build=torch.nn.Identity,
        inputs=(1, 1),
        resident_bytes=5 * values,
        device="cpu",
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
# A run says which arms score below this one on a fold.
train.floor = True  # type: ignore[attr-defined]
