"""Settings of paired images, and of single ones of the same family."""

from typing import Annotated, Literal

import pydantic

from contrasweep.errors import SpecError
from contrasweep.schema import checked
from trainables import augmentations
from trainables.exporting import Centre
from trainables.paired.settings import MaybeCount, NotNegative, Recipe


@checked
class Settings(Recipe):
    """Settings of paired images and, for the paper's Tables 6 and 7, of single ones.

    `input`: `pair`; `pre` or `post` (the same model fed one side twice: what knowing the change is worth);
    `single` for single images, `pre_single` or `post_single` for one side of pairs as if they were single (then
    z = e, the classifier sees r, and there is no l: beta must be 0).
    Network: `backbone`; `width` channels of its first stage; `stem`: `imagenet` (7x7, stride 2, max-pool), `small`
    (3x3, stride 1), or `auto`, which is small up to 64 pixels; `bn`: `train`, `frozen` (running statistics), or
    `groupnorm`; `pretrained`: `none` or the path of a torchvision state_dict; `lat_size` is the side of l's map
    (0: stage 3's); D_L is its square.
    `colour_units`: width of a layer that reads colour statistics of each image, its output beside the encoder's in r
    (0: none; see `trainables.paired.images.colours`).
    Views: `image_size` in pixels (0: as staged); `centre`, the colour that is subtracted: the training part's mean
    (`dataset`), the pair's own over both sides (`item`), which takes away the scene and leaves the change, or `both`,
    each in channels of its own. Pairs: `crop_area` the least share kept, `dihedral`, `jitter` the standard deviation of
    the light. Single images: the policy `augmentation`.
    """

    input: Literal["pair", "pre", "post", "single", "pre_single", "post_single"] = "pair"
    backbone: Literal["resnet10", "resnet18", "resnet34", "resnet50"] = "resnet18"
    width: Annotated[int, pydantic.Field(ge=4, multiple_of=4)] = 64
    stem: Literal["auto", "imagenet", "small"] = "auto"
    bn: Literal["train", "frozen", "groupnorm"] = "train"
    pretrained: str = "none"
    lat_size: MaybeCount = 0
    colour_units: MaybeCount = 0
    image_size: MaybeCount = 0
    centre: Centre = "dataset"
    crop_area: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.5
    dihedral: bool = True
    jitter: NotNegative = 0.06
    augmentation: str = "auto"

    def __post_init__(self) -> None:
        Recipe.__post_init__(self)
        if not self.paired and self.beta > 0:
            raise SpecError("single images have no l", place="beta", value=self.beta, hint="set beta to 0")
        if self.bn == "groupnorm" and self.width < 16:
            # and torch 2.15's backward pass corrupts the heap for 4 channels on the CPU
            raise SpecError(
                "groupnorm needs a width of 16 or more",
                place="width",
                value=self.width,
                hint="widen the network, or set bn to 'train' or 'frozen'",
            )
        augmentations.AUGMENTATIONS.choose(self.augmentation)

    @property
    def paired(self) -> bool:
        return self.input in ("pair", "pre", "post")

    @property
    def copies(self) -> int:
        """How often each channel of an image goes into the network: about each of the colours subtracted."""
        return 2 if self.centre == "both" else 1
