"""The encoders of image pairs: ResNets that show their four stages, and what others have.

An entry of `ENCODERS` takes the shape of its input (channels, height, width) and gives a network. The network takes
images [n c h w] to the maps of its stages [n C_i *size_i], first to last; its `dims` are their channels. Adding one
is a line.

Encoders that are not in `ENCODERS` are torchvision's and timm's by name, and your own by dotted path: a callable
`(shape, **options)` as for `trainables.contrastive`. Its module has `dims` and gives the maps of its stages, a list of
[n dims[i] h_i w_i]; or it has `dim` and gives rows of features [n dim]. l is made of the differences of four
stages, so with features alone beta is 0. Timm's convolutional networks give their last four stages.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic

from contrasweep.components import Component, Table
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables import encoders
from contrasweep.trainables.encoders import (
    TIMM_PREFIX,
    ExternalEncoder,
    Shape,
    WeightsDigest,
    WeightsFile,
    import_timm,
    is_torchvision,
)
from contrasweep.trainables.files import load_weights
from contrasweep.trainables.pytorch import Tensor, nn, torch

STAGES = 4
"""Stages of an encoder, of whose differences l is made."""
SMALL_STEM_PIXELS = 64
"""Up to this side, stem `auto` is the small one."""


@checked
class ResNetParameters:
    """The parameters of every ResNet."""

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
    """The parameters of a ResNet of basic blocks; bottleneck blocks have a fixed width."""

    width: Annotated[int, pydantic.Field(ge=8, multiple_of=4)] = 64
    """Channels of the first stage. With 4 the backward pass of torch 2.15 corrupts the heap on CPUs without AVX-512."""

    def __post_init__(self) -> None:
        # GroupNorm's groups have 16 channels or more.
        if self.bn == "groupnorm" and self.width < 16:
            raise SpecError(
                "groupnorm needs a width of 16 or more",
                place="width",
                value=self.width,
                hint="widen the network, or set bn to 'train' or 'frozen'",
            )


@dataclass(frozen=True)
class ResNet:
    """A ResNet of torchvision's residual blocks: `block` is their class, `depths` their number in each stage."""

    block: Literal["BasicBlock", "Bottleneck"]
    depths: tuple[int, int, int, int]

    @property
    def settings(self) -> type:
        """The class with the fields that can be set of it."""
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
        """Return the network for images of `shape` (channels, height, width).

        It is initialised from torch's global generator. For the parameters see `ResNetParameters`.
        """
        from contrasweep.trainables.paired_images.stages import Stages

        net = Stages(shape[0], self.block, self.depths, width=width, stem=stem, bn=bn)
        if weights or pretrained != "none":
            load_weights(net, weights or pretrained, sha256)
        return net


class ExternalStages(ExternalEncoder):
    """An encoder that is not in the table `ENCODERS`, such as torchvision's, timm's or the user's own.

    It is built by `target(shape, **options)`; `name` is what a study calls it. The module that it gives returns the
    maps of its stages, the last stage last.
    """

    def __call__(self, shape: Shape, **options: Any) -> "nn.Module":
        """Build the module, whose `dims` are the channels of its maps.

        A module without `dims`, whose output has `dim` features, counts as a single stage. `SpecError` where the module
        cannot be built, or has neither attribute.
        """
        with errors_named(f"{self.name} cannot be built for images {list(shape)}", "encoder"):
            module = self.target(shape, **options)
        # A module of maps is taken as it is, one of features as a single map of 1 x 1 pixel.
        if isinstance(module, nn.Module):
            if isinstance(getattr(module, "dims", None), Sequence):
                return module
            dim = getattr(module, "dim", None)
            if isinstance(dim, int):
                from contrasweep.trainables.paired_images.stages import OneStage

                return OneStage(module, dim)
        raise SpecError(
            "an encoder of this family is a torch module with `dims`, the channels of the maps of its stages, or "
            "`dim`, the number of its features",
            place="encoder",
            value=self.name,
            hint=f"it gives {type(module).__name__}",
        )


def find(name: str) -> ExternalStages:
    """Return the encoder that is not in the table: timm's (`timm:NAME`), torchvision's, or at a dotted path.

    `SpecError` where nothing is at the path.
    """
    if name.startswith(TIMM_PREFIX):
        return ExternalStages(name, functools.partial(_timm, name.removeprefix(TIMM_PREFIX)))
    return ExternalStages(name, encoders.find(name).target)


ENCODERS: Table[Any] = Table(
    "encoder",
    {
        "resnet10": ResNet("BasicBlock", (1, 1, 1, 1)),
        "resnet18": ResNet("BasicBlock", (2, 2, 2, 2)),
        "resnet34": ResNet("BasicBlock", (3, 4, 6, 3)),
        "resnet50": ResNet("Bottleneck", (3, 4, 6, 3)),
    },
    find=find,
    knows=lambda name: name.startswith(TIMM_PREFIX) or is_torchvision(name),
)
"""name -> (shape of the images, parameters) -> a network to the maps of its stages."""


def stage_side(side: int, stem: str, stage: int) -> int:
    """Return the side of the map of stage 1 to 4, for square images of `side` pixels and this `stem`.

    Each stride of 2 halves the side, rounded up; ImageNet's stem has two of them.
    """
    for _ in range(stage - 1 + (2 if stem == "imagenet" else 0)):
        side = -(-side // 2)
    return side


def check_encoder(encoder: Component, shape: Shape, beta: float) -> None:
    """Raise `SpecError` where the user's own encoder gives no maps, or with `beta` above 0 not the maps of four stages.

    Two black images of this `shape` go through it, on the CPU.
    """
    if not isinstance(encoder.entry, ExternalStages):
        return
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        built = encoder.build(shape).eval()
        with errors_named(f"{encoder.name} fails on images {[2, *shape]}", "encoder"):
            maps = built(torch.zeros(2, *shape))
    # The rows of features of a user's own encoder were wrapped as one map.
    if not isinstance(maps, Sequence) or [_channels(part) for part in maps] != list(built.dims):
        shapes = (
            [list(part.shape) for part in maps]
            if isinstance(maps, Sequence)
            else type(maps).__name__
        )
        raise SpecError(
            "an encoder gives a map of dims[i] channels for each stage, or a row of `dim` features",
            place="encoder",
            value=f"{shapes} for 2 images with {list(built.dims)}",
            hint=encoder.name,
        )
    if beta > 0 and len(maps) != STAGES:
        raise SpecError(
            f"l is made of the maps of {STAGES} stages, and {encoder.name} gives {len(maps)}",
            place="beta",
            value=beta,
            hint="set beta to 0",
        )


def _channels(part: Any) -> int | None:
    """Return the number of channels of `part` if it is a map [2 c h w] of two images; None for anything else."""
    fits = isinstance(part, Tensor) and part.ndim == 4 and len(part) == 2
    return int(part.shape[1]) if fits else None


def _timm(
    name: str, shape: Shape, *, weights: WeightsFile = "", sha256: WeightsDigest = ""
) -> "nn.Module":
    """Return the last stages of a network of timm."""
    from contrasweep.trainables.paired_images.stages import TimmStages

    timm = import_timm(name)
    net = timm.create_model(name, pretrained=False, features_only=True, in_chans=shape[0])
    if weights:
        load_weights(net, weights, sha256)
    info: Any = net.feature_info
    return TimmStages(net, info.channels()[-STAGES:])
