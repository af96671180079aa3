"""The network of the LOCAL family: an encoder that shows its stages, projection, z, l and classifier (figure 6)."""

import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from contrasweep.errors import SpecError
from trainables.encoders import projection_head
from trainables.paired_images import colours
from trainables.paired_images.latent import EPS, check_size, chosen, latent, rank
from trainables.paired_images.settings import Recipe, Settings

DEPTHS: dict[str, tuple[str, tuple[int, int, int, int]]] = {
    "resnet10": ("BasicBlock", (1, 1, 1, 1)),
    "resnet18": ("BasicBlock", (2, 2, 2, 2)),
    "resnet34": ("BasicBlock", (3, 4, 6, 3)),
    "resnet50": ("Bottleneck", (3, 4, 6, 3)),
}
"""Backbone -> torchvision's residual block and how many of them each stage has."""


INPUT_DROPOUT, DROPOUT, SCALE = 0.2, 0.5, 3.0
"""Of a network with a branch: what is dropped of the branch's inputs and of r, and the length of the encoder's part of
r."""


@dataclass(frozen=True)
class Outputs:
    """What a batch of n gives: `z` [n D_E] (unit where `z_norm`), `l` [n D_L] or None, `logits` [n K], `z_raw` [n]
    the norm of z before normalisation, and `e_post` [n D_E] (for single images their only embedding)."""

    z: Float[Tensor, "n d"]
    latent: Float[Tensor, "n dl"] | None
    logits: Float[Tensor, "n k"]
    z_raw: Float[Tensor, " n"]
    e_post: Float[Tensor, "n d"]


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


class Joint(nn.Module):
    """The part that every modality shares: from the encoder's maps of both sides to `Outputs`.

    `encoder` gives a list of maps [2n C_i *size_i] for a joint batch, stage 1 first; r is the last one's mean over
    its places, normalised. With a `branch`, as many more inputs [n f] follow the sides, and what it makes of them
    stands beside that in r.
    """

    def __init__(
        self,
        encoder: nn.Module,
        recipe: Recipe,
        dim: int,
        classes: int,
        *,
        paired: bool,
        lat_size: tuple[int, ...],
        branch: nn.Module | None = None,
        branch_dim: int = 0,
    ) -> None:
        super().__init__()
        dim += branch_dim
        self.encoder, self.recipe, self.paired, self.lat_size = encoder, recipe, paired, lat_size
        self.projection = projection_head("mlp", dim, recipe.projection_dim)
        self.classifier = nn.Sequential(
            nn.Linear(dim * (2 if paired else 1), recipe.classifier_hidden),
            nn.ReLU(inplace=True),
            nn.Linear(recipe.classifier_hidden, classes),
        )
        self.branch = branch
        if branch is not None:  # it fits the training part by heart without: the numbers are few, the layers wide
            self.beside = nn.Dropout(DROPOUT)
            self.classifier.insert(2, nn.Dropout(DROPOUT))
        if paired and recipe.beta > 0:
            check_size(lat_size, classes)

    def forward(self, *sides: Tensor) -> Outputs:
        """`sides` are (pre, post), or one batch of single inputs.

        Both sides go through the encoder in ONE forward: in two, each would have its own BatchNorm statistics, and
        the shift common to all pairs, which carries part of the change, would be erased.
        """
        extra: tuple[Tensor, ...] = ()
        if self.branch is not None:
            sides, extra = sides[: len(sides) // 2], sides[len(sides) // 2 :]
        maps = self.encoder(torch.cat(sides))
        r = F.normalize(maps[-1].flatten(2).float().mean(2), dim=1, eps=EPS)
        if self.branch is not None:
            r = torch.cat([self.branch(torch.cat(extra)).float(), SCALE * self.beside(r)], 1)
        with torch.autocast(r.device.type, enabled=False):  # z is a small difference of e, which rounding would drown
            e = F.normalize(
                self.projection(r if self.branch is None else F.normalize(r, dim=1, eps=EPS)), dim=1, eps=EPS
            )
        if not self.paired:
            return Outputs(e, None, self.classifier(r).float(), torch.linalg.vector_norm(e.detach(), dim=1), e)
        (r_pre, r_post), (e_pre, e_post) = r.chunk(2), e.chunk(2)
        raw = e_pre - e_post
        z = F.normalize(raw, dim=1, eps=EPS) if self.recipe.z_norm else raw
        logits = self.classifier(torch.cat([r_pre, r_post], dim=1)).float()
        return Outputs(z, self._latent(maps), logits, torch.linalg.vector_norm(raw.detach(), dim=1), e_post)

    def _latent(self, maps: list[Tensor]) -> Tensor | None:
        if self.recipe.beta == 0:
            return None
        halves = [m.chunk(2) for m in maps]
        return latent(
            [pre for pre, _ in halves],
            [post for _, post in halves],
            blocks=self.recipe.blocks,
            size=self.lat_size,
            weighting=self.recipe.lat_weighting,
        )


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
            nn.Dropout(DROPOUT),
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
