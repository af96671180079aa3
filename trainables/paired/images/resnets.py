"""The encoders of images: ResNets that show their four stages. One table; adding one is a line.

An entry takes the shape of its input (channels, height, width) and gives a network from images [n c h w] to the maps of
its stages [n C_i *size_i], first to last, whose channels are its `dims`.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic

from contrasweep.components import Table, parameters_of
from contrasweep.errors import SpecError
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables import weights as weight_files
from contrasweep.trainables.external_encoders import TIMM, is_torchvision
from contrasweep.trainables.external_encoders import settings as settings_of
from contrasweep.trainables.paired.images import external
from contrasweep.trainables.paired.images.external import ExternalStages
from contrasweep.trainables.pytorch import nn

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
    ) -> "nn.Module":
        """The network for images of `shape` (channels, height, width), initialised from torch's global generator."""
        from contrasweep.trainables.paired.images.stages import Stages

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
