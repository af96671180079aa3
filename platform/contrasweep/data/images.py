"""Decodes images that are not trusted: in known formats only, and after a check of their size."""

import contextlib
import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, TiffImagePlugin

Pixels = NDArray[np.uint8]
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
MAX_PIXELS = 64 * 2**20
"""The most pixels of an image that is decoded: the header of a small file may state gigabytes."""
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Number of channels -> Pillow's mode."""


MISSING_FILE_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""Errors where an image has no file. Any other one, as of rights or of a disk, is raised: the image is there."""


class BrokenImage(ValueError):
    """An image that cannot be decoded, or that has too many pixels. Importers count it by its `reason`."""

    reason = "broken image"


class DeepImage(BrokenImage):
    """An image with more than 8 bits a channel, as in remote sensing. Which values are black and white is not known."""

    reason = "more than 8 bits a channel, convert to 8 bit first"


def decode(data: bytes, shape: Sequence[int] | None = None) -> Pixels:
    """Return the pixels [h w c] uint8 of an encoded image; `BrokenImage` if it cannot be decoded.

    The image is turned upright, as its EXIF data say and viewers show it.

    Without `shape` the image keeps its size; a grey image has one channel and any other three. With `shape` [h w c] it
    has c channels. An image of another size is then scaled to cover h x w (bicubic, antialiased) and cut about its
    centre; with a height of 0 it keeps its size.
    """
    with _opened(data) as image:
        channels = 1 if image.mode in ("1", "L") else 3
        if shape:
            channels = shape[2]
        try:
            image.load()
            # Upright, as the EXIF data say; an image whose EXIF data are broken stays as it is.
            with warnings.catch_warnings(), contextlib.suppress(Exception):
                warnings.simplefilter("ignore")
                ImageOps.exif_transpose(image, in_place=True)
            pixels = image if image.mode == MODES[channels] else image.convert(MODES[channels])
        except Exception as error:  # Pillow's decoders raise any kind of error
            raise BrokenImage(f"cannot be decoded ({error})") from None
    # A height of 0 stands for images of different sizes.
    if shape and shape[0] and (pixels.height, pixels.width) != tuple(shape[:2]):
        # Scaled to cover the shape, and cut equally on both sides.
        height, width = shape[:2]
        scale = max(height / pixels.height, width / pixels.width)
        size = max(width, round(pixels.width * scale)), max(height, round(pixels.height * scale))
        left = (size[0] - width) // 2
        top = (size[1] - height) // 2
        # A thin image would be scaled to gigabytes, so that it is cut before.
        if size[0] * size[1] > MAX_PIXELS:
            pixels = ImageOps.fit(pixels, (width, height), Image.Resampling.BICUBIC)
        else:
            scaled = pixels.resize(size, Image.Resampling.BICUBIC)
            pixels = scaled.crop((left, top, left + width, top + height))
    return np.asarray(pixels, np.uint8).reshape(pixels.height, pixels.width, channels)


def scaled_down(pixels: Pixels, longest: int, data: bytes) -> tuple[bytes, Pixels]:
    """Return an image scaled so that its longer side has `longest` pixels: encoded again, and its pixels [h w c].

    `pixels` are the pixels of the encoded image `data`. The result is a JPEG where `data` is one, else a PNG.
    """
    height, width = pixels.shape[:2]
    longer = max(height, width)
    # However thin the image is, a side keeps one pixel.
    height = max(1, round(height * longest / longer))
    width = max(1, round(width * longest / longer))
    small = resize(pixels, height, width)
    encoded = io.BytesIO()
    with _opened(data) as image:
        kind = "JPEG" if image.format == "JPEG" else "PNG"
    picture(small).save(encoded, kind, quality=95)
    return encoded.getvalue(), small


def read(file: Path) -> Pixels | str:
    """Return the pixels [h w c] of an image file, or as text the reason why it is missing or cannot be decoded.

    The reason is returned and not raised, because callers wrap this function in `lru_cache`, which keeps no errors.
    """
    try:
        return decode(file.read_bytes())
    except BrokenImage as error:
        return error.reason
    except MISSING_FILE_ERRORS:
        return "missing image"


def resize(pixels: Pixels, height: int, width: int) -> Pixels:
    """Return pixels [h w c] scaled to [height width c], bicubic with antialiasing; the aspect ratio may change."""
    if pixels.shape[:2] == (height, width):
        return pixels
    resized = picture(pixels).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized, np.uint8).reshape(height, width, -1)


def picture(pixels: Pixels) -> Image.Image:
    """Return pixels [h w c] as an image of Pillow."""
    # For Pillow, grey images have no axis of channels.
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def _opened(data: bytes) -> Image.Image:
    """Return an image of which the header alone was read.

    `BrokenImage` where the data are no image or have too many pixels, `DeepImage` with more than 8 bits a channel.
    """
    try:
        with warnings.catch_warnings():
            # Pillow warns of images above 89 million pixels, which are refused below.
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:
        raise BrokenImage(f"is not an image ({str(error) or type(error).__name__})") from None
    if image.width * image.height > MAX_PIXELS:
        raise BrokenImage(
            f"announces {image.width} x {image.height} pixels, more than {MAX_PIXELS:,}"
        )
    deep = _deep(image)
    if deep:
        raise DeepImage(
            f"has more than 8 bits a channel ({deep}): convert it to 8 bit first, by one scale for the whole dataset"
        )
    return image


def _deep(image: Image.Image) -> str:
    """Return in words how an image with more than 8 bits a channel is stored; "" for any other image.

    Pillow's mode tells this for one channel only, because Pillow opens images with more channels as 8 bit. A TIFF has a
    tag with its bits; of a PNG, the first tile names what is stored, as in `RGB;16B`.
    """
    if image.mode.startswith(("I", "F")):
        return f"mode {image.mode}"
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = max(image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,)))
        return f"{bits} bits" if bits > 8 else ""
    tiles = getattr(image, "tile", ())
    stored = str(tiles[0].args) if image.format == "PNG" and tiles else ""
    return stored if stored.endswith(";16B") else ""
