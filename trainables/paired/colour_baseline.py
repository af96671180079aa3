"""The colour baseline of image pairs, which a network has to beat: boosted trees on statistics of each channel.

    list(train(trial))

One report, with the scores and per-item values of a network's last one. So the baseline stands in the same table, on
the same folds, and is compared by the same paired test. The seed changes nothing: the trees draw nothing.
"""

import math
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data import open_dataset
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.schema import checked
from contrasweep.trainables.fields import Count
from contrasweep.trainables.images import image_shape
from contrasweep.trainables.paired.metrics import baseline_report
from contrasweep.trainables.pytorch import Float32
from contrasweep.trial import Report, Trial

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of a channel's values over an image's pixels that are features."""


@checked
class Settings:
    """Settings of the colour baseline."""

    input: Literal["pair", "pre", "post"] = "pair"
    """Both images of a pair, or only one of them."""
    hue: bool = False
    """Whether statistics of hue, saturation and value are read too, which RGB images have."""
    rounds: Count = 100
    """Rounds of boosting."""

    @property
    def sides(self) -> tuple[str, ...]:
        """The dataset's columns of the images that are read."""
        return ("pre", "post") if self.input == "pair" else (self.input,)

    def resolve(self, data: Manifest) -> "Settings":
        """Return the same settings: they do not depend on `data`.

        `DataError` where `data` has no image pairs, `SpecError` where the setting `hue` is on and the images are not
        RGB.
        """
        if data.kind != "image-pair":
            raise DataError(
                f"the colour baseline needs image pairs; {data.name} is of kind {data.kind!r}"
            )
        channels = image_shape(data, self.sides[0])[0]
        if self.hue and channels != 3:
            raise SpecError(
                "only RGB images have a hue",
                place="hue",
                value=True,
                hint=f"those of {data.name} have {channels} channels",
            )
        return self


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Fit the trees, score the test part, and report once. A row of a class of n_k rows has the weight 1/n_k.

    There is nothing to resume from.
    """
    # takes a second, which only this arm pays
    from sklearn.ensemble import HistGradientBoostingClassifier

    settings = Settings(**trial.config).resolve(trial.data)
    fit, test = open_dataset(trial.data).parts(trial.fold)
    # By default trees hold out some of more than 10,000 rows, drawn by the seed, and end before their last round.
    trees = HistGradientBoostingClassifier(
        max_iter=settings.rounds,
        class_weight="balanced",
        early_stopping=False,
        random_state=trial.seed,
    )
    trees.fit(_features(fit, settings), fit.labels)
    predicted = torch.tensor(trees.predict(_features(test, settings)))
    yield baseline_report(trial, predicted, fit, test)


def colours(images: NDArray[Any]) -> Float32[np.ndarray, "n f"]:
    """Return mean, deviation and five quantiles of each channel over the pixels of images [n h w c], as [n 7c]."""
    pixels = images.reshape(len(images), -1, images.shape[-1]).astype(np.float32)
    return np.concatenate(
        [pixels.mean(1), pixels.std(1), *np.quantile(pixels, QUANTILES, axis=1)],
        1,
        dtype=np.float32,
    )


def _features(part: Any, settings: Settings) -> Float32[np.ndarray, "n f"]:
    """Return the colour statistics of each row of a part [n f]: those of all its sides, one after another.

    With the setting `hue` a side has, after those of its RGB values, the statistics of its HSV values.
    """
    statistics = []
    for images in (np.asarray(part.array(side)) for side in settings.sides):
        statistics.append(colours(images))
        if settings.hue:
            from matplotlib.colors import rgb_to_hsv  # only for this

            statistics.append(colours(rgb_to_hsv(images.astype(np.float32) / 255)))
    return np.concatenate(statistics, 1)


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory of the trees' training, on the host: images of both parts, and one side in float32 too."""
    sides = len(Settings(**config).sides)
    values = data.rows("train", "test") * math.prod(image_shape(data, "pre"))
    # Bytes of a value: 1 on each side as it is stored, 4 in float32. There is no network: `build` and `inputs` are of
    # an empty one.
    return Workload(
        architecture="colour trees",
        shape=(values, sides),
        build=torch.nn.Identity,
        inputs=(1, 1),
        resident_bytes=values * (sides + 4),
        device="cpu",
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
# A run says which arms score below this one on a fold.
train.floor = True  # type: ignore[attr-defined]
