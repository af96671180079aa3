"""Encoders of paired images that are not in the table: torchvision's and timm's by name, your own by dotted path.

An own one is a callable `(shape, **options)` as for `trainables.contrastive`. Its module either has `dims` and gives
the maps of its stages, a list of [n dims[i] h_i w_i], or has `dim` and gives rows of features [n dim]. l is made of the
differences of four stages, so with features alone beta is 0. Timm's convolutional networks give their last four stages.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from contrasweep.components import Component
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.schema import OMIT_DEFAULT
from contrasweep.trainables import external_encoders
from contrasweep.trainables import weights as weight_files
from contrasweep.trainables.external_encoders import TIMM, ExternalEncoder, Shape, import_timm
from contrasweep.trainables.pytorch import Tensor, nn, torch

STAGES = 4


@dataclass(frozen=True)
class ExternalStages(ExternalEncoder):
    """An encoder by the name it has in a study, whose module gives maps, last stage last."""

    def __call__(self, shape: Shape, **options: Any) -> "nn.Module":
        """The module, which has `dims`; `SpecError` where it cannot be built or says nothing of its output."""
        with errors_named(f"{self.name} cannot be built for images {list(shape)}", "encoder"):
            module = self.target(shape, **options)
        if isinstance(module, nn.Module) and isinstance(getattr(module, "dims", None), Sequence):
            return module
        if isinstance(module, nn.Module) and isinstance(dim := getattr(module, "dim", None), int):
            from contrasweep.trainables.paired.images.stages import OneStage

            return OneStage(module, dim)
        raise SpecError(
            "an encoder of this family is a torch module with `dims`, the channels of the maps of its stages, or "
            "`dim`, the number of its features",
            place="encoder",
            value=self.name,
            hint=f"it gives {type(module).__name__}",
        )


def find(name: str) -> ExternalStages:
    """The encoder of this name, which is not in the table."""
    if name.startswith(TIMM):
        return ExternalStages(name, functools.partial(_timm, name.removeprefix(TIMM)))
    return ExternalStages(name, external_encoders.find(name).target)


def check(encoder: Component, shape: Shape, beta: float) -> None:
    """`SpecError` where an encoder of somebody else's does not give maps for images of this `shape`, or too few for l.
    Two black images go through it, on the CPU."""
    if not isinstance(encoder.entry, ExternalStages):
        return
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        built = encoder.build(shape).eval()
        with errors_named(f"{encoder.name} fails on images {[2, *shape]}", "encoder"):
            maps = built(torch.zeros(2, *shape))
    if not isinstance(maps, Sequence) or [_channels(part) for part in maps] != list(built.dims):
        got = [list(part.shape) for part in maps] if isinstance(maps, Sequence) else type(maps).__name__
        raise SpecError(
            "an encoder gives a map of dims[i] channels for each stage, or a row of `dim` features",
            place="encoder",
            value=f"{got} for 2 images with {list(built.dims)}",
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
    fits = isinstance(part, Tensor) and part.ndim == 4 and len(part) == 2
    return int(part.shape[1]) if fits else None


def _timm(
    name: str, shape: Shape, *, weights: Annotated[str, OMIT_DEFAULT] = "", sha256: Annotated[str, OMIT_DEFAULT] = ""
) -> "nn.Module":
    from contrasweep.trainables.paired.images.stages import TimmStages

    timm = import_timm(name)
    net = timm.create_model(name, pretrained=False, features_only=True, in_chans=shape[0])
    if weights:
        weight_files.load(net, weights, sha256)
    info: Any = net.feature_info
    return TimmStages(net, info.channels()[-STAGES:])
