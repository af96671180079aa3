"""The views of images that this family has: those of pairs, and `trainables.augmentations` for single images."""

from typing import Any

from contrasweep.components import Component, Table
from contrasweep.data.manifest import Manifest
from contrasweep.schema import checked
from contrasweep.trainables import augmentations
from contrasweep.trainables.paired.images.views import PairPolicy


@checked
class Auto(PairPolicy):
    """`pairs` with these parameters for pairs; for single images what their dataset's manifest says (see
    `contrasweep.trainables.augmentations`), whatever these parameters are."""


AUGMENTATIONS: Table[Any] = Table("augmentation", {**augmentations.AUGMENTATIONS, "auto": Auto, "pairs": PairPolicy})
"""name -> a class of policies with these defaults."""


def resolved(augmentation: Component, data: Manifest, sides: tuple[str, ...]) -> Component:
    """`augmentation`, where it is `auto` the one that suits these sides of `data`."""
    if augmentation.name == "auto" and len(sides) == 2:
        return AUGMENTATIONS.choose({**augmentation.parameters, "name": "pairs"})
    return augmentations.resolved(augmentation, data, sides[0])
