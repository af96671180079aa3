"""The encoders of images: ResNets that show their four stages. One table; adding one is a line.

An entry takes the shape of its input (channels, height, width) and gives a network from images [n c h w] to the maps of
its stages [n C_i *size_i], first to last, whose channels are its `dims`.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from contrasweep.components import Table, parameters_of
from contrasweep.errors import SpecError
from contrasweep.schema import OMIT_DEFAULT, checked
from trainables import weights as weight_files
from trainables.external_encoders import TIMM, is_torchvision
from trainables.external_encoders import settings as settings_of
from trainables.paired.images import external
from trainables.paired.images.external import ExternalStages

SMALL_STEM_PIXELS = 64
"""Up to this side, stem `auto` is the small one."""


@checked
class ResNetParameters:
    """What every ResNet takes."""

    stem: Literal["auto", "imagenet", "small"] = "auto"
    """`imagenet` (7x7, stride 2, max-pool), `small` (3x3, stride 1), or `auto`, which is small up to 64 pixels."""
    bn: Literal["train", "frozen", "groupnorm"] = "train"
    """BatchNorm of the batch (`train`), on its running statistics (`frozen`), or GroupNorm instead (`groupnorm`)."""
    pretrained: str = "none"
    """`none`, or the path of a torchvision state_dict."""
    weights: Annotated[str, OMIT_DEFAULT] = ""
    """The same, known by its digest, which is part of the trial's id: another file at the path is refused."""
    sha256: Annotated[str, OMIT_DEFAULT] = ""
    """The digest of `weights`; filled in by the plan."""


@checked
class BasicResNetParameters(ResNetParameters):
    """What a ResNet of basic blocks takes; those of bottleneck blocks have a fixed width."""

    width: Annotated[int, pydantic.Field(ge=4, multiple_of=4)] = 64
    """Channels of the first stage."""

    def __post_init__(self) -> None:
        if self.bn == "groupnorm" and self.width < 16:
            # and torch 2.15's backward pass corrupts the heap for 4 channels on the CPU
            raise SpecError(
                "groupnorm needs a width of 16 or more",
                place="width",
                value=self.width,
                hint="widen the network, or set bn to 'train' or 'frozen'",
            )


@dataclass(frozen=True)
class ResNet:
    """A ResNet of torchvision's residual blocks of this class, `depths` of them in each stage."""

    block: Literal["BasicBlock", "Bottleneck"]
    depths: tuple[int, int, int, int]

    @property
    def parameters(self) -> type:
        """The class of its parameters."""
        return BasicResNetParameters if self.block == "BasicBlock" else ResNetParameters

    def __call__(
        self,
        shape: tuple[int, int, int],
        *,
        width: int = 64,
        stem: str,
        bn: str,
        pretrained: str,
        weights: str = "",
        sha256: str = "",
    ) -> "Stages":
        """The network for images of `shape` (channels, height, width), initialised from torch's global generator."""
        net = Stages(shape[0], self.block, self.depths, width=width, stem=stem, bn=bn, pretrained=pretrained)
        if weights:
            weight_files.load(net, weights, sha256)
        return net


ENCODERS: Table[Any] = Table(
    "encoder",
    {
        "resnet10": ResNet("BasicBlock", (1, 1, 1, 1)),
        "resnet18": ResNet("BasicBlock", (2, 2, 2, 2)),
        "resnet34": ResNet("BasicBlock", (3, 4, 6, 3)),
        "resnet50": ResNet("Bottleneck", (3, 4, 6, 3)),
    },
    takes=lambda entry, given: _takes(entry),
    find=external.find,
    knows=lambda name: name.startswith(TIMM) or is_torchvision(name),
)


def _takes(entry: Any) -> type:
    if isinstance(entry, ResNet):
        return entry.parameters
    return settings_of(entry) if isinstance(entry, ExternalStages) else parameters_of(entry)


def stage_side(side: int, stem: str, stage: int) -> int:
    """The side of the map of stage 1 to 4, for square images of `side` pixels: each stride 2 halves it, rounded up."""
    for _ in range(stage - 1 + (2 if stem == "imagenet" else 0)):
        side = -(-side // 2)
    return side


class Stages(nn.Module):
    """A ResNet that gives the outputs of its four stages after ReLU, with torchvision's names of parameters, so
    that torchvision's weights load. `dims` are the stages' channels."""

    def __init__(
        self, channels: int, block: str, depths: tuple[int, ...], *, width: int, stem: str, bn: str, pretrained: str
    ) -> None:
        from torchvision.models import resnet  # costs more than a second, so only those who need it pay

        super().__init__()
        self.block = getattr(resnet, block)
        self.norm: Any = nn.BatchNorm2d if bn != "groupnorm" else _group_norm
        small = stem == "small"
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
        if pretrained != "none":
            self._load(pretrained)

    def forward(self, images: Float[Tensor, "n c h w"]) -> list[Tensor]:
        """Images [n c h w] to the outputs of the four stages, [n dims[i] h_i w_i] each."""
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
                place="encoder.pretrained",
                value=path,
                hint="give 'none' or the path of a torchvision state_dict",
            )
        try:
            weights = torch.load(path, map_location="cpu", weights_only=True)
            weights = weights.get("state_dict", weights)
            self.load_state_dict({name: value for name, value in weights.items() if not name.startswith("fc.")})
        except (RuntimeError, AttributeError, pickle.UnpicklingError, EOFError) as error:
            raise SpecError(
                "the weights do not fit the encoder with its stem, centre and width",
                place="encoder.pretrained",
                value=path,
                hint="give a torchvision state_dict of it; " + " ".join(str(error).split())[:300],
            ) from None


def _group_norm(channels: int) -> nn.GroupNorm:
    """At most 32 equal groups of 16 channels or more: independent of the batch's size."""
    groups = next(n for n in range(min(32, channels // 16), 0, -1) if channels % n == 0)
    return nn.GroupNorm(groups, channels)
