"""Views of image pairs: one geometry for both images, small differences of light for each.

A pair's classes are about what changed between the images, so a view must not change it. Both images get ONE draw of
crop and dihedral (the 8 symmetries of the square); only brightness and contrast differ a little. Hue shifts and
grayscale would imitate change; strong dihedral augmentation works against C(l), whose l has places.
Single images have the views of `trainables.augmentations`.
"""

from dataclasses import dataclass
from typing import Any

from contrasweep.components import Component, Table
from contrasweep.data.manifest import Manifest
from contrasweep.schema import checked
from contrasweep.trainables import augmentations
from contrasweep.trainables.fields import AboveZero, NotNegative
from contrasweep.trainables.pytorch import Float, ImageBatch, Tensor, torch


@checked
class PairPolicy:
    """The random changes that make views of a pair, with their strengths."""

    crop_area: AboveZero = 0.5
    """The least share of the image that a crop keeps."""
    dihedral: bool = True
    """Whether the square is turned and mirrored."""
    jitter: NotNegative = 0.06
    """Standard deviation of gain and offset of the light, for pixel values from 0 to 1."""


@checked
class Auto(PairPolicy):
    """The views that suit the input: `pairs` for image pairs, and for single images what suits the dataset.

    Pairs get `pairs` with these parameters. For single images `auto` of `contrasweep.trainables.augmentations` chooses
    by the dataset's manifest, and these parameters are not used.
    """


AUGMENTATIONS: Table[Any] = Table(
    "augmentation", {**augmentations.AUGMENTATIONS, "auto": Auto, "pairs": PairPolicy}
)
"""name -> a class of policies with these defaults."""


def resolve_augmentation(
    augmentation: Component, data: Manifest, sides: tuple[str, ...]
) -> Component:
    """Return `augmentation`; `auto` is replaced by the one that suits these `sides`, columns of `data`."""
    if augmentation.name == "auto" and len(sides) == 2:
        return AUGMENTATIONS.choose({**augmentation.parameters, "name": "pairs"})
    return augmentations.resolve_augmentation(augmentation, data, sides[0])


@dataclass(frozen=True)
class PairDraws(augmentations.DrawsOfRows):
    """The draws of n pairs.

    `affine` is a map of [-1, 1] coordinates for both images (None: pixels stay where they are). `light` [n 2 2] has the
    gain and the offset (axis 2) of each image of a pair (axis 1), as deviations from 1 and 0.
    """

    affine: Float[Tensor, "n 2 3"] | None
    light: Float[Tensor, "n 2 2"]


def draw_pair(policy: PairPolicy, n: int, generator: "torch.Generator") -> PairDraws:
    """Draw the random numbers of a view for each of `n` pairs; `apply_pair` computes the views.

    For each pair 10 numbers are drawn, whatever the policy does, so that with the same generator two policies get the
    same numbers.
    """
    u = torch.rand(6, n, generator=generator)
    light = torch.randn(n, 2, 2, generator=generator)
    moves = policy.crop_area < 1 or policy.dihedral
    return PairDraws(_geometry(policy, u) if moves else None, policy.jitter * light)


def apply_pair(
    pre: ImageBatch, post: ImageBatch, draws: PairDraws
) -> tuple[ImageBatch, ImageBatch]:
    """Return the drawn view of each pair; values are in [0, 1] before and after."""
    # As the channels of one image, so that both sides move alike.
    stacked = torch.cat([pre, post], dim=1)
    if draws.affine is not None:
        stacked = augmentations.apply(stacked, augmentations.Draws(draws.affine, None, None))
    # Then the light of each side by itself: `draws.light` has gain and offset of each pair and side, here [n 2 1 1 1].
    gain, offset = (draws.light[:, :, i, None, None, None] for i in (0, 1))
    sides = stacked.chunk(2, dim=1)
    first, second = (
        (side * (1 + gain[:, i]) + offset[:, i]).clamp(0, 1) for i, side in enumerate(sides)
    )
    return first, second


def _geometry(policy: PairPolicy, u: Float[Tensor, "6 n"]) -> Float[Tensor, "n 2 3"]:
    """Return affine maps of [-1, 1] coordinates: a square crop, then one of the eight symmetries.

    Of the uniform draws `u`, 0 to 2 give the crop's area and place, 3 to 5 the mirrors and whether axes are swapped.
    """
    side = (policy.crop_area + (1 - policy.crop_area) * u[0]).sqrt()
    x = (1 - side) * (2 * u[1] - 1)
    y = (1 - side) * (2 * u[2] - 1)
    zero = torch.zeros_like(side)
    across = side
    down = side
    swapped = torch.zeros_like(side, dtype=torch.bool)
    if policy.dihedral:
        across = torch.where(u[3] < 0.5, side, -side)
        down = torch.where(u[4] < 0.5, side, -side)
        swapped = u[5] < 0.5
    # The two rows of each map: (x from x, x from y, shift), (y from x, y from y, shift).
    rows = [
        torch.where(swapped, zero, across),
        torch.where(swapped, across, zero),
        x,
        torch.where(swapped, down, zero),
        torch.where(swapped, zero, down),
        y,
    ]
    return torch.stack(rows, dim=1).reshape(-1, 2, 3)
