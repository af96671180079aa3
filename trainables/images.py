"""Images of a dataset's part, whole on the device as uint8, and the two augmented views of a batch."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrasweep.errors import DataError
from trainables import augmentations, seeding

CHUNK = {"cpu": 2**21, "cuda": 2**26}
"""Values of one view that are augmented at once: some batches of small images, so that the cost a call is shared."""


class Images:
    """`pixels` uint8 [n c h w] and `labels` int64 [n] on `device`, in the part's own order of rows."""

    def __init__(self, part: Any, device: torch.device) -> None:
        array = part.array("image")
        if array.ndim != 4 or array.dtype != np.uint8:
            raise DataError(f"images must be uint8 [n h w c], got {array.dtype} {list(array.shape)}")
        self.pixels = torch.tensor(array).permute(0, 3, 1, 2).contiguous().to(device)
        self.labels = torch.tensor(part.labels).to(device)
        self.grouping = part.grouping

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """channels, height, width"""
        _, c, h, w = self.pixels.shape
        return c, h, w

    def moments(self) -> tuple[Float[Tensor, "c 1 1"], Float[Tensor, "c 1 1"]]:
        """Mean and standard deviation of each channel, of values in [0, 1]; 1 for a channel that never varies."""
        values = self.pixels.transpose(0, 1).flatten(1)
        mean = torch.stack([v.double().mean() for v in values]) / 255
        std = torch.stack([v.double().std(correction=0) for v in values]) / 255
        std = torch.where(std > 0, std, torch.ones_like(std))
        return mean.float()[:, None, None], std.float()[:, None, None]


class Normalise:
    """To [0, 1] and then to mean 0 and standard deviation 1 in each channel, as measured on the training part."""

    def __init__(self, images: Images) -> None:
        self.mean, self.std = images.moments()

    def __call__(self, values: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        normal = (values - self.mean) / self.std
        return normal.contiguous(memory_format=torch.channels_last)


def batches(
    images: Images,
    normalise: Normalise,
    policy: augmentations.Policy,
    order: Int[Tensor, " m"],
    size: int,
    *key: int | None,
) -> Iterator[tuple[Float[Tensor, "b2 c h w"], Int[Tensor, " b"]]]:
    """One epoch in batches: (both views of `size` images, one view after the other; their rows).

    Views are drawn from `key` (seed, fold, epoch) for each place in `order`, so they do not depend on `size`, and a
    row that is drawn twice looks different each time. The last, smaller batch is left out (it is another in each
    epoch) unless it is the only one.
    """
    draws = [
        augmentations.draw(policy, len(order), images.shape[0], seeding.generator(*key, f"view {view}"))
        for view in (1, 2)
    ]
    size = min(size, len(order))
    step = size * max(1, CHUNK[images.pixels.device.type] // (size * images.pixels[0].numel()))
    whole = len(order) // size * size
    for start in range(0, whole, step):
        places = slice(start, min(start + step, whole))
        rows = order[places]
        pixels = images.pixels[rows.to(images.pixels.device)].float() / 255
        views = [normalise(augmentations.apply(pixels, d[places].to(pixels.device))) for d in draws]
        for i in range(0, len(rows), size):
            yield torch.cat([view[i : i + size] for view in views]), rows[i : i + size]


def epoch_order(labels: Int[Tensor, " n"], sampling: str, generator: torch.Generator) -> Int[Tensor, " n"]:
    """Rows of one epoch, on the host: `shuffled`, each row once; `class_balanced`, n draws with replacement in
    which all classes are equally likely."""
    labels = labels.cpu()
    if sampling == "shuffled":
        return torch.randperm(len(labels), generator=generator)
    weights = 1.0 / torch.bincount(labels).double()[labels]
    return torch.multinomial(weights, len(labels), replacement=True, generator=generator)
