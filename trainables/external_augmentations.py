"""Augmentations of somebody else's, by dotted path: a function or class of your own, or a torchvision v2 transform.

    augmentation: {name: "torchvision.transforms.v2:RandomResizedCrop", size: 32}
    augmentation: "mypackage.views:cutout"

A function takes an image, float32 [c h w] in 0 to 1, and its settings as keywords; a class is built with the settings,
and its object takes the image. Either gives the view, of the same shape. Random numbers come from torch's global
generator, which is seeded for each image, so a view depends on neither batch size nor machine.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contrasweep.components import Component, parameters_class, signature_fields
from contrasweep.errors import SpecError
from contrasweep.imports import import_path
from contrasweep.trainables.pytorch import Tensor, torch


@dataclass(frozen=True)
class ExternalAugmentation:
    """What stands at a dotted path."""

    path: str
    target: Callable[..., Any]


@dataclass(frozen=True)
class ExternalDraws:
    """The view of each image: the transform, and the seed of the image's random numbers [n]."""

    transform: Callable[[Tensor], Any]
    seeds: Tensor

    def __getitem__(self, rows: Tensor | slice) -> "ExternalDraws":
        return ExternalDraws(self.transform, self.seeds[rows])

    def to(self, device: "torch.device") -> "ExternalDraws":
        """The same draws: seeds stay on the host."""
        return self

    def apply(self, images: Tensor) -> Tensor:
        """The view of each image [n c h w]."""
        views = []
        with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
            for image, seed in zip(images, self.seeds.tolist(), strict=True):
                torch.manual_seed(seed)
                views.append(self.transform(image))
        return torch.stack(views)


def find(path: str) -> ExternalAugmentation:
    """What stands at the path."""
    return _known(path, import_path(path, kind="augmentation"))


@functools.cache
def _known(path: str, target: Callable[..., Any]) -> ExternalAugmentation:
    return ExternalAugmentation(path, target)


@functools.cache
def settings(entry: ExternalAugmentation) -> type:
    """What can be set of it."""
    fields = signature_fields(entry.target, after=0 if inspect.isclass(entry.target) else 1)
    return parameters_class("Augmentation", fields)


def transform_of(augmentation: Component) -> Callable[[Tensor], Any]:
    """The view of one image, as the component says."""
    target: Callable[..., Any] = augmentation.entry.target
    parameters, is_class = augmentation.parameters, inspect.isclass(augmentation.entry.target)
    if not is_class:
        return functools.partial(target, **parameters)
    try:
        built: Callable[[Tensor], Any] = target(**parameters)
    except Exception as error:  # someone else's code
        raise SpecError(f"{augmentation.name} cannot be built", value=parameters, hint=f"{error}") from None
    return built


def check(augmentation: Component, shape: tuple[int, int, int]) -> None:
    """`SpecError` where an augmentation of somebody else's does not give a view of the image's shape."""
    if not isinstance(augmentation.entry, ExternalAugmentation):
        return
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((2, *shape), generator=generator)
    try:
        views = ExternalDraws(transform_of(augmentation), torch.arange(2)).apply(images)
    except SpecError as error:
        raise error.at("augmentation") from None
    except Exception as error:  # someone else's code
        raise SpecError(
            f"{augmentation.name} fails on an image {list(shape)}",
            place="augmentation",
            hint=" ".join(f"{type(error).__name__}: {error}".split()),
        ) from None
    if views.shape != images.shape or not views.is_floating_point():
        raise SpecError(
            "a view has the shape of its image, float",
            place="augmentation",
            value=f"{views.dtype} {list(views.shape[1:])} for {list(shape)}",
            hint=augmentation.name,
        )
