"""Encoders: images [n c h w] to feature vectors [n d], and the projection heads after them.

Adding one is a function and its line in the table; its keyword-only parameters are what can be set of it. All are
initialised from torch's global generator, so seed it before.
"""

from collections.abc import Callable
from typing import Annotated, Any

from contrasweep.components import Table, parameters_of
from contrasweep.config import Config
from contrasweep.schema import OMIT_DEFAULT
from contrasweep.trainables import external_encoders
from contrasweep.trainables.external_encoders import encoder_of
from contrasweep.trainables.fields import Count
from contrasweep.trainables.pytorch import nn

Shape = tuple[int, int, int]
"""channels, height, width"""


def mlp(shape: Shape, *, width: Count = 256) -> "nn.Module":
    """Two hidden layers of `width` units on the flattened image."""
    inputs = shape[0] * shape[1] * shape[2]
    layers = [nn.Flatten(), *_dense(inputs, width), *_dense(width, width)]
    return encoder_of(nn.Sequential(*layers), width)


def small_cnn(shape: Shape, *, width: Count = 16) -> "nn.Module":
    """Three 3x3 convolutions, the last two with stride 2; `width` channels in the first, four times as many features.
    The first has a stride too where images are larger than 16 pixels, so that it gives about 16."""
    stem = max(1, round(min(shape[1:]) / 16))
    layers = [*_conv(shape[0], width, stem), *_conv(width, 2 * width, 2), *_conv(2 * width, 4 * width, 2)]
    return encoder_of(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 4 * width)


def resnet(depth: int) -> Callable[..., Any]:
    """torchvision's ResNet of this depth, without weights. Images up to 64 pixels get SupContrast's small-image
    stem: a 3x3 convolution with stride 1 and no pooling, because the ImageNet stem would shrink 32 pixels to 8."""

    def build(
        shape: Shape, *, weights: Annotated[str, OMIT_DEFAULT] = "", sha256: Annotated[str, OMIT_DEFAULT] = ""
    ) -> "nn.Module":
        import torchvision  # costs more than a second, so only those who need it pay

        net = getattr(torchvision.models, f"resnet{depth}")(weights=None)
        if max(shape[1:]) <= 64:
            net.conv1 = nn.Conv2d(shape[0], 64, 3, stride=1, padding=1, bias=False)
            nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
            net.maxpool = nn.Identity()
        elif shape[0] != 3:
            net.conv1 = nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False)
        dim = net.fc.in_features
        net.fc = nn.Identity()
        return encoder_of(net, dim, weights, sha256)

    build.__doc__ = f"torchvision's ResNet-{depth}, with a 3x3 stem for images up to 64 pixels."
    return build


def _takes(entry: Any, given: Config) -> type:
    external = isinstance(entry, external_encoders.ExternalEncoder)
    return external_encoders.settings(entry) if external else parameters_of(entry)


ENCODERS: Table[Callable[..., Any]] = Table(
    "encoder",
    {"cnn": small_cnn, "mlp": mlp, "resnet18": resnet(18), "resnet34": resnet(34), "resnet50": resnet(50)},
    takes=_takes,
    find=external_encoders.find,
    knows=external_encoders.is_torchvision,
)
"""name -> (shape of the images, parameters) -> encoder. One that is not here is torchvision's by its name, timm's by
`timm:NAME`, or your own by dotted path: see `external_encoders`."""


def mlp_head(features: int, *, dim: Count = 128) -> "nn.Module":
    """SupContrast's head: linear, ReLU, linear to `dim`. No head normalises: that is the similarity's part."""
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(inplace=True), nn.Linear(features, dim))


def linear_head(features: int, *, dim: Count = 128) -> "nn.Module":
    """One linear layer to `dim`."""
    return nn.Linear(features, dim)


def no_head(features: int) -> "nn.Module":
    """The features as they are."""
    return nn.Identity()


HEADS: Table[Callable[..., Any]] = Table("projection head", {"mlp": mlp_head, "linear": linear_head, "none": no_head})
"""name -> (number of features, parameters) -> head."""


def _dense(inputs: int, outputs: int) -> "list[nn.Module]":
    return [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]


def _conv(inputs: int, outputs: int, stride: int) -> "list[nn.Module]":
    conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
