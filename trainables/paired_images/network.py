"""The network of paired images: an encoder, and a branch of colour statistics where it is wanted."""

import warnings

import torch
from torch import nn

from contrasweep.trainables.paired.network import (
    BRANCH_DROPOUT,
    Joint,
    largest_rank_of_l,
    stages_of,
)
from contrasweep.trainables.paired_images import colours
from contrasweep.trainables.paired_images.settings import Settings

INPUT_DROPOUT = 0.2
"""The share of the colour statistics that is dropped before the branch reads them."""


def image_model(settings: Settings, shape: tuple[int, int, int], classes: int) -> Joint:
    """Build the network of resolved `settings` for images of `shape` (channels, height, width) and so many classes.

    It warns where settings make no sense together. It is initialised from torch's global generator.
    """
    channels = settings.copies * shape[0]
    parameters = settings.encoder.parameters
    if parameters.get("bn") == "frozen" and parameters.get("pretrained") == "none":
        warnings.warn(
            "bn 'frozen' keeps the running statistics of the weights given, and there are none: BatchNorm does "
            "nothing here; give pretrained weights or take 'train' or 'groupnorm'",
            stacklevel=2,
        )
    encoder = settings.encoder.build((channels, *shape[1:]))
    # One black image through the encoder tells the sizes of its maps, by which l is made.
    with torch.no_grad():
        encoder.eval()
        sizes = [tuple(m.shape[2:]) for m in encoder(torch.zeros(1, channels, *shape[1:]))]
    # l is a square of `latent.size`, or as large as the third stage's map (2), or the last one's where there are fewer.
    latent_size = sizes[min(2, len(sizes) - 1)]
    if settings.latent.size:
        latent_size = (settings.latent.size, settings.latent.size)
    # l needs a dimension for each class. Encoders with fewer stages have beta 0.
    if settings.beta > 0:
        chosen_sizes = [sizes[i] for i in stages_of(settings.latent.blocks)]
        if largest_rank_of_l(chosen_sizes, latent_size) < classes:
            warnings.warn(
                f"l cannot hold {classes} orthogonal classes: the maps of blocks {settings.latent.blocks} at "
                f"{shape[1]} x {shape[2]} pixels have fewer places than that, whatever latent.size; use larger images "
                "or the small stem",
                stacklevel=2,
            )
    # The branch reads colour statistics beside the images.
    branch = None
    if settings.colour_units:
        branch = nn.Sequential(
            nn.Dropout(INPUT_DROPOUT),
            nn.Linear(colours.count(shape[0]), settings.colour_units),
            nn.ReLU(inplace=True),
            nn.Dropout(BRANCH_DROPOUT),
        )
    return Joint(
        encoder,
        settings,
        encoder.dims[-1],
        classes,
        paired=settings.paired,
        latent_size=latent_size,
        branch=branch,
        branch_dim=settings.colour_units,
    )


def train_mode(model: nn.Module, bn: str = "train") -> None:
    """Put the network into training mode; with `bn` = `frozen`, BatchNorm keeps its running statistics."""
    model.train()
    if bn == "frozen":
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
