"""An importer."""

import numpy as np

from contrasweep.data.importers.labelled_images import content
from contrasweep.schema import checked


@checked
class Settings:
    every: int = 1
    """Keep each n-th image."""


def read(source, settings):
    """A file of arrays: x, uint8 [n h w] or [n h w c], and y, the labels from 0 on."""
    with np.load(source) as file:
        x = file["x"][:: settings.every]
        y = file["y"][:: settings.every]
    return content({"train": (x, y)}, tuple(map(str, range(y.max() + 1))), str(source))


read.settings = Settings
