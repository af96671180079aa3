"""Random views of image batches, as tensors on the device: one resampling and one colour matrix an image.

`draw` fixes what happens to each image of an epoch, from an explicit generator on the host; `apply` does it to
any part of them. So the views depend neither on the batch size nor on the device.

Augmentations of somebody else's go by dotted path: a function or class of your own, or a torchvision v2 transform.

    augmentation: {name: "torchvision.transforms.v2:RandomResizedCrop", size: 32}
    augmentation: "mypackage.views:cutout"

A function takes an image, float32 [c h w] in 0 to 1, and its settings as keywords. A class is built with the settings,
and its object takes the image. Either gives the view, of the same shape. Random numbers come from torch's global
generator, which is seeded for each image.
"""

import functools
import inspect
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from contrasweep.components import (
    Component,
    External,
    Table,
    parameters_class,
    signature_fields,
)
from contrasweep.data.manifest import ANY_SIDE, Manifest
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_path
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables.fields import NotNegative, Positive, Share
from contrasweep.trainables.pytorch import Bool, F, Float, ImageBatch, Tensor, torch


@checked
class Policy:
    """The random changes that make a view of an image, with their strengths."""

    area: tuple[Share, Share] = (1.0, 1.0)
    """The least and the largest share of the image that a crop keeps."""
    aspect: tuple[Positive, Positive] = (3 / 4, 4 / 3)
    """The least and the largest width of a crop over its height."""
    flip: Share = 0.0
    """Probability of a mirrored view."""
    rotation: NotNegative = 0.0
    """Largest angle, in degrees."""
    jitter: tuple[NotNegative, NotNegative, NotNegative, NotNegative] = (0.0, 0.0, 0.0, 0.0)
    """Strengths of brightness, contrast, saturation and hue (in turns)."""
    jitter_share: Share = 0.0
    """Probability of the jitter, of all four together."""
    grayscale: Share = 0.0
    """Probability of a view without colours."""
    blur: Annotated[Share, OMIT_DEFAULT] = 0.0
    """Probability of a Gaussian blur, of .1 to 2 pixels."""
    solarize: Annotated[Share, OMIT_DEFAULT] = 0.0
    """Probability that values of .5 and more are inverted."""


@checked
class Auto:
    """`photos`, `imagenet` or `glyphs`, by what the dataset's manifest says of its images.

    For the rule see `resolve_augmentation`.
    """


def _preset(name: str, about: str, **defaults: Any) -> type[Policy]:
    """Return a class of policies with these defaults, to be chosen by `name`; `about` is its docstring."""
    types = typing.get_type_hints(Policy, include_extras=True)
    policy = parameters_class(
        name, {key: (types[key], value) for key, value in defaults.items()}, base=Policy
    )
    policy.__doc__ = about
    return policy


class ExternalAugmentation(External):
    """An augmentation of somebody else's: the function or class at a dotted path."""

    @functools.cached_property
    def settings(self) -> type:
        """A class with a field for each setting of the augmentation."""
        # A function takes the image first, which is no setting.
        after = 0 if inspect.isclass(self.target) else 1
        return parameters_class("Augmentation", signature_fields(self.target, after=after))


def find_external(path: str) -> ExternalAugmentation:
    """Return the augmentation at a dotted path; `SpecError` where nothing is there."""
    return ExternalAugmentation(path, import_path(path, kind="augmentation"))


BYOL = "one of the two policies of BYOL and Barlow Twins (Grill et al. 2020, table 6)"
PHOTOS = MappingProxyType({"flip": 0.5, "jitter_share": 0.8, "grayscale": 0.2})
PHOTOS_OF_SIMCLR = MappingProxyType({**PHOTOS, "jitter": (0.4, 0.4, 0.4, 0.1)})
PHOTOS_OF_BYOL = MappingProxyType({**PHOTOS, "area": (0.08, 1.0), "jitter": (0.4, 0.4, 0.2, 0.1)})
AUGMENTATIONS: Table[Any] = Table(
    "augmentation",
    {
        "auto": Auto,
        "photos": _preset(
            "photos",
            "SupContrast's for CIFAR: RandomResizedCrop(.2-1), flip, ColorJitter(.4, .4, .4, .1) p=.8, grayscale .2",
            **PHOTOS_OF_SIMCLR,
            area=(0.2, 1.0),
        ),
        "imagenet": _preset(
            "imagenet",
            "photos with crops of .08 to 1 of the image, as on ImageNet; with view_size a crop of the whole photograph",
            **PHOTOS_OF_SIMCLR,
            area=(0.08, 1.0),
        ),
        "glyphs": _preset(
            "glyphs",
            "for characters, where a mirrored or strongly cropped one is another or none",
            area=(0.6, 1.0),
            aspect=(0.8, 1.25),
            rotation=12.0,
            jitter=(0.3, 0.3, 0.0, 0.0),
            jitter_share=0.8,
        ),
        "aerial": _preset(
            "aerial",
            "for views from above, which have no up: flips are free, colour carries meaning",
            area=(0.4, 1.0),
            flip=0.5,
            rotation=180.0,
            jitter=(0.2, 0.2, 0.1, 0.0),
            jitter_share=0.8,
        ),
        "byol_first": _preset("byol_first", f"{BYOL}: blurred", **PHOTOS_OF_BYOL, blur=1.0),
        "byol_second": _preset(
            "byol_second", f"{BYOL}: solarized", **PHOTOS_OF_BYOL, blur=0.1, solarize=0.2
        ),
        "none": _preset("none", "both views are the image itself", aspect=(1.0, 1.0)),
    },
    find=find_external,
)
"""name -> a class of policies with these defaults. Adding one is a line."""


def resolve_augmentation(
    augmentation: Component, data: Manifest, column: str = "image"
) -> Component:
    """Return `augmentation`, or in place of `auto` the one that suits the images in the `column` of `data`.

    The dataset's importer may say what the images are: `source.content` in the manifest, a name of `AUGMENTATIONS` such
    as `glyphs`. Otherwise images of one channel get `glyphs`, images of different sizes `imagenet`, and all others
    `photos`. `glyphs` does not mirror images: to leave it out costs photos little, but a mirrored letter may look like
    another letter.
    """
    if augmentation.name != "auto":
        return augmentation
    # Height, width and channels; None where the manifest does not say them.
    shape = data.columns[column].get("shape") if column in data.columns else None
    name = data.source.get("content")
    if name not in AUGMENTATIONS:
        if shape is not None and shape[-1] == 1:
            name = "glyphs"
        # `ANY_SIDE` in place of a height: images differ in size, and are cropped more strongly, as on ImageNet.
        elif shape is not None and shape[0] == ANY_SIDE:
            name = "imagenet"
        else:
            name = "photos"
    return AUGMENTATIONS.choose(name)


D = TypeVar("D", bound="DrawsOfRows")


class DrawsOfRows:
    """A base class of draws whose fields are tensors with a row for each image, or None."""

    def __getitem__(self: D, rows: Tensor | slice) -> D:
        return self._each(lambda x: x[rows])

    def to(self: D, device: "torch.device") -> D:
        """Return the same draws on `device`."""
        return self._each(lambda x: x.to(device))

    def _each(self: D, change: Callable[[Tensor], Tensor]) -> D:
        """Return these draws with `change` made to each tensor; what is None stays so."""
        fields = vars(self).items()
        return type(self)(**{name: x if x is None else change(x) for name, x in fields})


@dataclass(frozen=True)
class Draws(DrawsOfRows):
    """The draws of n images.

    `affine` says where each pixel comes from, as a map of [-1, 1] coordinates. It is None where images are at most
    mirrored; `mirrored` then says which. `colour` is the colour matrix, and `contrast` the factor by which values are
    scaled about the view's mean gray. Both are None where the policy leaves colours alone. Column 0 of `effects` is the
    standard deviation of the blur in pixels (0: none). Column 1 is 1 where the view is solarized, else 0. `effects` is
    None where the policy has neither.
    """

    affine: Float[Tensor, "n 2 3"] | None
    colour: Float[Tensor, "n c c"] | None
    contrast: Float[Tensor, " n"] | None
    effects: Float[Tensor, "n 2"] | None = None
    mirrored: Bool[Tensor, " n"] | None = None


Transform = Callable[[Tensor], Any]
"""Somebody else's view of one image [c h w]."""


@dataclass(frozen=True)
class ExternalDraws:
    """The view of each image: the transform, and the seed of the image's random numbers [n]."""

    transform: Transform
    seeds: Tensor

    def __getitem__(self, rows: Tensor | slice) -> "ExternalDraws":
        return ExternalDraws(self.transform, self.seeds[rows])

    def to(self, device: "torch.device") -> "ExternalDraws":
        """Return the same draws for `device`; random seeds stay on the host."""
        return self

    def apply(self, images: Tensor) -> Tensor:
        """Return the view of each image [n c h w]."""
        views = []
        # Each image has a seed of its own, so its view does not depend on the batch. The global generator is put back.
        with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
            for image, seed in zip(images, self.seeds.tolist(), strict=True):
                torch.manual_seed(seed)
                # A copy: a transform may work in place, and the other views are of the same image.
                views.append(self.transform(image.clone()))
        return torch.stack(views)


def policy_of(augmentation: Component) -> Policy | Transform:
    """Return the policy of an augmentation of the table, or the user's own function from an image to a view.

    `draw` takes either as its `policy`.
    """
    if isinstance(augmentation.entry, ExternalAugmentation):
        return _transform_of(augmentation)
    policy: Policy = augmentation.settings
    return policy


def _transform_of(augmentation: Component) -> Transform:
    """Return a function from an image to a view: the user's function with settings, or a user's object."""
    built: Any = functools.partial(augmentation.entry.target, **augmentation.parameters)
    if inspect.isclass(augmentation.entry.target):
        with errors_named(f"{augmentation.name} cannot be built"):
            built = built()
    return built  # type: ignore[no-any-return]


def without_crop(policy: Policy | Transform) -> Policy | Transform:
    """Return the policy without its crop, for views that are crops already; a user's own transform is unchanged."""
    if isinstance(policy, Policy):
        return replace(policy, area=(1.0, 1.0), aspect=(1.0, 1.0))
    return policy


def draw(
    policy: Policy | Transform, n: int, channels: int, generator: "torch.Generator"
) -> Draws | ExternalDraws:
    """Draw the random numbers of a view for each of `n` images with `channels` channels; `apply` computes the views.

    For each image 12 numbers are drawn, for crop, flip, rotation and colours, whether or not the policy uses them. So
    with the same generator two policies get the same numbers: of two images, the same one is flipped under both. A
    policy with blur or solarisation draws 3 more after them. For a user's own transform one number is drawn for each
    image, the seed of its view.
    """
    if not isinstance(policy, Policy):
        return ExternalDraws(policy, torch.randint(2**62, (n,), generator=generator))
    # Rows of u: 0 to 3 the crop, 4 the flip, 5 the rotation, 6 whether to jitter, 7 to 10 how much, 11 grayscale.
    u = torch.rand(12, n, generator=generator)
    affine: Tensor | None = _affine(policy, u[:6])
    mirrored = None
    effects = None
    # Without crop and rotation images are at most mirrored, and nothing has to be resampled.
    if policy.area == (1, 1) and policy.aspect == (1, 1) and policy.rotation == 0:
        affine = None
        mirrored = u[4] < policy.flip
    # Drawn after `u`, and only where it is used, so that policies without these effects draw no other numbers.
    if policy.blur or policy.solarize:
        v = torch.rand(3, n, generator=generator)
        sigma = torch.where(v[0] < policy.blur, 0.1 + 1.9 * v[1], torch.zeros(()))
        effects = torch.stack([sigma, (v[2] < policy.solarize).float()], 1)
    if policy.jitter_share == 0 and policy.grayscale == 0:
        return Draws(affine, None, None, effects, mirrored)
    # Factors of 1 plus or minus their strength at most, 1 where an image is not jittered; the hue is an angle in turns.
    jittered = u[6] < policy.jitter_share
    brightness, contrast, saturation = (
        torch.where(jittered, 1 + strength * (2 * x - 1), torch.ones(()))
        for strength, x in zip(policy.jitter[:3], u[7:10], strict=True)
    )
    hue = torch.where(jittered, policy.jitter[3] * (2 * u[10] - 1), torch.zeros(()))
    # A grayscale view has no saturation at all.
    saturation = torch.where(u[11] < policy.grayscale, torch.zeros(()), saturation)
    return Draws(
        affine, _colour(brightness, saturation, hue, channels), contrast, effects, mirrored
    )


def apply(images: ImageBatch, draws: Draws | ExternalDraws) -> ImageBatch:
    """Return the drawn view of each image; values are in [0, 1] before and after.

    Colours deviate from torchvision's ColorJitter in three ways. Brightness, saturation and hue are one linear map (hue
    turns in YIQ, not HSV). Contrast comes last. Values are clamped once at the end, where torchvision clamps them after
    each of brightness, contrast, saturation and hue.
    """
    if isinstance(draws, ExternalDraws):
        return draws.apply(images)
    views = _moved(images, draws)
    if draws.colour is not None and draws.contrast is not None:
        views = torch.einsum("nij,njhw->nihw", draws.colour, views)
        # Contrast scales values about the view's mean gray. In place, since these steps wait for memory most of all.
        contrast = draws.contrast[:, None, None, None]
        mean = _gray(views).mean((2, 3), keepdim=True)
        views = views.mul_(contrast).add_(mean * (1 - contrast)).clamp_(0, 1)
    if draws.effects is None:
        return views
    # Blur, then solarisation, which inverts values of .5 and more.
    sigma, solarized = draws.effects.unbind(1)
    blurred = _blurred(views, sigma)
    return torch.where(
        (solarized[:, None, None, None] > 0) & (blurred >= 0.5), 1 - blurred, blurred
    )


def _moved(images: ImageBatch, draws: Draws) -> ImageBatch:
    """Return each image cropped, turned or mirrored as `draws` says, in new memory that later steps may overwrite."""
    if draws.affine is not None:
        grid = F.affine_grid(draws.affine, list(images.shape), align_corners=False)
        return F.grid_sample(
            images, grid, mode="bilinear", padding_mode="border", align_corners=False
        )
    if draws.mirrored is None:
        return images.clone()
    return torch.where(draws.mirrored[:, None, None, None], images.flip(3), images)


def _blurred(images: ImageBatch, sigma: Float[Tensor, " n"]) -> ImageBatch:
    """Blur each image with its own standard deviation, in pixels, cut off after 6 pixels; 0 changes nothing."""
    # A Gaussian of k = 2 reach + 1 weights for each image, as [n k]. A reflected border is smaller than the image.
    reach = min(6, images.shape[2] - 1, images.shape[3] - 1)
    distance = torch.arange(-reach, reach + 1, device=images.device)
    weights = torch.exp(-distance.square() / (2 * sigma.clamp(min=1e-3).square()[:, None]))
    weights = weights / weights.sum(1, keepdim=True)
    # The same weights for each of an image's channels, as [nc 1 k].
    kernel = weights.repeat_interleave(images.shape[1], 0)[:, None]
    # All channels of all images are groups of one convolution, along the rows and then down the columns.
    flat = F.pad(images, (reach,) * 4, mode="reflect").flatten(0, 1)[None]
    blurred_along_rows = F.conv2d(flat, kernel[:, :, None], groups=flat.shape[1])
    return F.conv2d(blurred_along_rows, kernel[..., None], groups=flat.shape[1]).view_as(images)


def check_augmentation(augmentation: Component, shape: tuple[int, int, int]) -> None:
    """Raise `SpecError` where the user's own augmentation gives no view of an image [c h w] of this `shape`."""
    if not isinstance(augmentation.entry, ExternalAugmentation):
        return
    # Two random images, with seeds of their own, as training has them.
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((2, *shape), generator=generator)
    try:
        with errors_named(f"{augmentation.name} fails on an image {list(shape)}"):
            views = ExternalDraws(_transform_of(augmentation), torch.arange(2)).apply(images)
    except SpecError as error:
        raise error.at("augmentation") from None
    if views.shape != images.shape or not views.is_floating_point():
        raise SpecError(
            "a view has the shape of its image, float",
            place="augmentation",
            value=f"{views.dtype} {list(views.shape[1:])} for {list(shape)}",
            hint=augmentation.name,
        )


def _affine(policy: Policy, u: Float[Tensor, "6 n"]) -> Float[Tensor, "n 2 3"]:
    """Return the maps from a view's coordinates to its image's, both in [-1, 1].

    The uniform draws `u` give the crop (area, aspect, place), the flip and the rotation.
    """
    # The crop's width and height as shares of the image's; its ratio is log-uniform.
    area = policy.area[0] + (policy.area[1] - policy.area[0]) * u[0]
    low, high = (math.log(a) for a in policy.aspect)
    aspect = torch.exp(low + (high - low) * u[1])
    width = (area * aspect).sqrt().clamp(max=1)
    height = (area / aspect).sqrt().clamp(max=1)
    # The crop's centre, anywhere that keeps the crop within the image; a mirrored view has a negative width.
    x = (1 - width) * (2 * u[2] - 1)
    y = (1 - height) * (2 * u[3] - 1)
    signed_width = torch.where(u[4] < policy.flip, -width, width)
    angle = math.radians(policy.rotation) * (2 * u[5] - 1)
    # Rows of [rotation x scale | centre].
    cos = torch.cos(angle)
    sin = torch.sin(angle)
    first = torch.stack([cos * signed_width, -sin * height, x], -1)
    second = torch.stack([sin * signed_width, cos * height, y], -1)
    return torch.stack([first, second], 1)


# Weights of red, green and blue in the luma, and the matrix from RGB to YIQ (ITU-R BT.601 and NTSC).
_LUMA = [0.299, 0.587, 0.114]
_TO_YIQ = [_LUMA, [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]]


def _colour(
    brightness: Tensor, saturation: Tensor, hue: Tensor, channels: int
) -> Float[Tensor, "n c c"]:
    """Return brightness x saturation x hue as one matrix for each image.

    The three are [n]: two factors, and a hue in turns. Images without three channels have brightness only.
    """
    if channels != 3:
        return brightness[:, None, None] * torch.eye(channels)
    # Hue turns the colour plane (I, Q) about the luma Y, and saturation mixes a colour with its gray.
    angle = 2 * math.pi * hue
    turn = torch.eye(3).repeat(len(hue), 1, 1)
    turn[:, 1, 1] = turn[:, 2, 2] = torch.cos(angle)
    turn[:, 1, 2], turn[:, 2, 1] = -torch.sin(angle), torch.sin(angle)
    to_yiq = torch.tensor(_TO_YIQ)
    hue_matrix: Tensor = torch.linalg.inv(to_yiq) @ turn @ to_yiq
    gray = torch.tensor(_LUMA).expand(3, 3)
    mix = saturation[:, None, None] * torch.eye(3) + (1 - saturation[:, None, None]) * gray
    return brightness[:, None, None] * (mix @ hue_matrix)


def _gray(images: ImageBatch) -> Float[Tensor, "n 1 h w"]:
    """Return the luma of images with three channels, and the mean of the channels of any others."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    gray: Tensor = torch.einsum("c,nchw->nhw", torch.tensor(_LUMA).to(images), images)[:, None]
    return gray
