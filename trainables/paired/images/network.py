"""The encoder of paired images: a ResNet that shows its four stages, and the network built on it."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from contrasweep.errors import SpecError
from trainables.paired.images import colours
from trainables.paired.images.settings import Settings
from trainables.paired.latent import chosen, rank
from trainables.paired.network import BRANCH_DROPOUT, Joint

DEPTHS: dict[str, tuple[str, tuple[int, int, int, int]]] = {
    "resnet10": ("BasicBlock", (1, 1, 1, 1)),
    "resnet18": ("BasicBlock", (2, 2, 2, 2)),
    "resnet34": ("BasicBlock", (3, 4, 6, 3)),
    "resnet50": ("Bottleneck", (3, 4, 6, 3)),
}
"""Backbone -> torchvision's residual block and how many of them each stage has."""

INPUT_DROPOUT = 0.2
"""The share of the colour statistics that is dropped before the branch reads them."""


class Stages(nn.Module):
    """A ResNet that gives the outputs of its four stages after ReLU, with torchvision's names of parameters, so
    that torchvision's weights load. `dims` are the stages' channels."""

    def __init__(self, settings: Settings, channels: int, side: int) -> None:
        from torchvision.models import resnet  # costs more than a second, so only those who need it pay

        super().__init__()
        kind, depths = DEPTHS[settings.backbone]
        self.block, width = getattr(resnet, kind), settings.width
        if kind == "Bottleneck" and width != 64:
            raise SpecError("a bottleneck ResNet's width is fixed", place="width", value=width, hint="leave it at 64")
        self.norm: Any = nn.BatchNorm2d if settings.bn != "groupnorm" else _group_norm
        small = settings.stem == "small" or (settings.stem == "auto" and side <= 64)
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = self.norm(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        inputs = width
        for i, depth in enumerate(depths):
            setattr(self, f"layer{i + 1}", self._stage(inputs, width * 2**i, depth, 1 if i == 0 else 2))
            inputs = width * 2**i * self.block.expansion
        self.dims = tuple(width * 2**i * self.block.expansion for i in range(4))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if settings.pretrained != "none":
            self._load(settings.pretrained)

    def forward(self, images: Float[Tensor, "n c h w"]) -> list[Tensor]:
        x = self.maxpool(F.relu(self.bn1(self.conv1(images)), inplace=True))
        maps = []
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
            maps.append(x)
        return maps

    def _stage(self, inputs: int, planes: int, depth: int, stride: int) -> nn.Sequential:
        outputs = planes * self.block.expansion
        shortcut = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), self.norm(outputs))
        blocks = [self.block(inputs, planes, stride, shortcut, norm_layer=self.norm)]
        blocks += [self.block(outputs, planes, norm_layer=self.norm) for _ in range(depth - 1)]
        return nn.Sequential(*blocks)

    def _load(self, path: str) -> None:
        if not Path(path).is_file():
            raise SpecError(
                "there is no such weights file",
                place="pretrained",
                value=path,
                hint="give 'none' or the path of a torchvision state_dict",
            )
        try:
            weights = torch.load(path, map_location="cpu", weights_only=True)
            weights = weights.get("state_dict", weights)
            self.load_state_dict({name: value for name, value in weights.items() if not name.startswith("fc.")})
        except (RuntimeError, AttributeError, pickle.UnpicklingError, EOFError) as error:
            raise SpecError(
                "the weights do not fit the backbone with its stem, centre and width",
                place="pretrained",
                value=path,
                hint="give a torchvision state_dict of it; " + " ".join(str(error).split())[:300],
            ) from None


def image_model(settings: Settings, shape: tuple[int, int, int], classes: int) -> Joint:
    """The network for images of `shape` (channels, height, width), initialised from torch's global generator."""
    channels = settings.copies * shape[0]
    if settings.bn == "frozen" and settings.pretrained == "none":
        warnings.warn(
            "bn 'frozen' keeps the running statistics of the weights given, and there are none: BatchNorm does "
            "nothing here; give pretrained weights or take 'train' or 'groupnorm'",
            stacklevel=2,
        )
    encoder = Stages(settings, channels, min(shape[1:]))
    with torch.no_grad():
        encoder.eval()
        sides = [tuple(m.shape[2:]) for m in encoder(torch.zeros(1, channels, *shape[1:]))]
    size = (settings.lat_size,) * 2 if settings.lat_size else sides[2]
    if settings.beta > 0 and rank([sides[i] for i in chosen(settings.blocks)], size) < classes:
        warnings.warn(
            f"l cannot hold {classes} orthogonal classes: the maps of blocks {settings.blocks} at {shape[1]} x "
            f"{shape[2]} "
            f"pixels have fewer places than that, whatever lat_size; use larger images or the small stem",
            stacklevel=2,
        )
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
        lat_size=size,
        branch=branch,
        branch_dim=settings.colour_units,
    )


def train_mode(model: nn.Module, bn: str = "train") -> None:
    """Training mode, with BatchNorm left on its running statistics where `bn` is `frozen`."""
    model.train()
    if bn == "frozen":
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()


def _group_norm(channels: int) -> nn.GroupNorm:
    """At most 32 equal groups of 16 channels or more: independent of the batch's size."""
    groups = next(n for n in range(min(32, channels // 16), 0, -1) if channels % n == 0)
    return nn.GroupNorm(groups, channels)
