"""Networks from images to the maps of their stages: residual networks, and adapters for the user's own."""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from contrasweep.trainables.pytorch import ImageBatch


class Stages(nn.Module):
    """A ResNet that gives the outputs of its four stages after ReLU; `dims` are the stages' channels.

    The parameters have torchvision's names, so that torchvision's weights can be loaded.

    Args:
        channels: The channels of an image.
        block: The name of a class of torchvision's residual blocks.
        depths: The number of blocks in each stage.
        width: The channels of the first stage.
        stem: `small` (3x3, no pooling), or any other for ImageNet's.
        bn: `groupnorm`, or any other for BatchNorm; with `frozen`, `network.train_mode` freezes the BatchNorm.
    """

    def __init__(
        self,
        channels: int,
        block: str,
        depths: tuple[int, ...],
        *,
        width: int,
        stem: str,
        bn: str,
    ) -> None:
        # costs more than a second, so only those who need it pay
        from torchvision.models import resnet

        super().__init__()
        self.block = getattr(resnet, block)
        self.norm: Any = nn.BatchNorm2d if bn != "groupnorm" else _group_norm
        # SupContrast's stem for small images has no pooling: ImageNet's would shrink 32 pixels to 8.
        small = stem == "small"
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = self.norm(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        inputs = width
        # Each stage has twice the channels of the one before, and all but the first half its side.
        for i, depth in enumerate(depths):
            setattr(
                self, f"layer{i + 1}", self._stage(inputs, width * 2**i, depth, 1 if i == 0 else 2)
            )
            inputs = width * 2**i * self.block.expansion
        self.dims = tuple(width * 2**i * self.block.expansion for i in range(4))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: ImageBatch) -> list[Tensor]:
        """Map images [n c h w] to the outputs of the four stages, [n dims[i] h_i w_i] each."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(images)), inplace=True))
        maps = []
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
            maps.append(x)
        return maps

    def _stage(self, inputs: int, planes: int, depth: int, stride: int) -> nn.Sequential:
        """Return one stage of the ResNet, for maps of `inputs` channels: `depth` blocks, the first with the stride.

        `planes` is torchvision's width of a block, whose output has `expansion` times as many channels.
        """
        # Where the first block changes size or channels, its shortcut has to change them too.
        outputs = planes * self.block.expansion
        shortcut = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), self.norm(outputs)
            )
        blocks = [self.block(inputs, planes, stride, shortcut, norm_layer=self.norm)]
        blocks += [self.block(outputs, planes, norm_layer=self.norm) for _ in range(depth - 1)]
        return nn.Sequential(*blocks)


def _group_norm(channels: int) -> nn.GroupNorm:
    """Return a normalisation in at most 32 equal groups of 16 channels or more: independent of the batch's size."""
    most = min(32, channels // 16)
    groups = max(n for n in range(1, most + 1) if channels % n == 0)
    return nn.GroupNorm(groups, channels)


class OneStage(nn.Module):
    """An encoder of features [n dim] as one stage of maps of 1 x 1 pixel."""

    def __init__(self, body: nn.Module, dim: int) -> None:
        super().__init__()
        self.body = body
        self.dims = (dim,)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Map images [n c h w] to a list of one map [n dim 1 1]."""
        features: Tensor = self.body(images)
        return [features[:, :, None, None]]


class TimmStages(nn.Module):
    """The last stages of a network `body` of timm's: one stage for each number of channels in `dims`."""

    def __init__(self, body: nn.Module, dims: Sequence[int]) -> None:
        super().__init__()
        self.body = body
        self.dims = tuple(dims)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Map images [n c h w] to maps [n dims[i] h_i w_i], the last stage last."""
        maps: list[Tensor] = self.body(images)
        return list(maps[-len(self.dims) :])
