"""Encoded images to arrays, without trusting them: known formats only, size checked before a pixel is decoded."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
MAX_PIXELS = 64 * 2**20
"""An image of more is not decoded: a small file may announce gigabytes."""
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Number of channels -> Pillow's name of it."""


class BrokenImage(ValueError):
    """An image that cannot be decoded, or that is far larger than its file can be.

    `reason` is what an importer counts it under.
    """

    reason = "broken image"


class DeepImage(BrokenImage):
    """An image of more than 8 bits a channel, as in remote sensing: which values are black and white is not known."""

    reason = "more than 8 bits a channel, convert to 8 bit first"


def decode(data: bytes, shape: Sequence[int] | None = None) -> NDArray[np.uint8]:
    """Return the pixels [h w c] uint8 of an encoded image; `BrokenImage` if the bytes are no image that can be decoded.

    With `shape` [h w c] the image is scaled to cover it (bicubic, antialiased) and cut about its centre, if it is of
    another size; a height of 0 leaves its size, and c says the channels. Without it, grey images have one channel and
    all others three.
    """
    with _opened(data) as image:
        channels = shape[2] if shape else 1 if image.mode in ("1", "L") else 3
        try:
            image.load()
            pixels = image if image.mode == MODES[channels] else image.convert(MODES[channels])
        except Exception as error:  # Pillow's decoders raise whatever they stumble over
            raise BrokenImage(f"cannot be decoded ({error})") from None
    if shape and shape[0] and (pixels.height, pixels.width) != tuple(shape[:2]):
        pixels = _cover(pixels, shape[0], shape[1])
    return np.asarray(pixels, np.uint8).reshape(pixels.height, pixels.width, channels)


def scaled_down(
    pixels: NDArray[np.uint8], longest: int, data: bytes
) -> tuple[bytes, NDArray[np.uint8]]:
    """Return an image with its longer side scaled to `longest` pixels: encoded anew, and its pixels [h w c].

    `pixels` are those of the encoded image `data`. It becomes a JPEG where `data` is one, else a PNG.
    """
    height, width = (
        max(1, round(side * longest / max(pixels.shape[:2]))) for side in pixels.shape[:2]
    )
    # A side keeps one pixel at least, however thin the image.
    small = resize(pixels, height, width)
    encoded = io.BytesIO()
    with _opened(data) as image:
        kind = "JPEG" if image.format == "JPEG" else "PNG"
    picture(small).save(encoded, kind, quality=95)
    return encoded.getvalue(), small


def read(file: Path) -> NDArray[np.uint8] | str:
    """Return the decoded image, or as text the reason why it cannot be decoded, which a cache can keep as well."""
    try:
        return decode(file.read_bytes())
    except BrokenImage as error:
        return error.reason
    except OSError:
        return "missing image"


def resize(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Return pixels [h w c] as [height width c], bicubic with antialiasing, stretched if the aspect differs."""
    if pixels.shape[:2] == (height, width):
        return pixels
    resized = picture(pixels).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized, np.uint8).reshape(height, width, -1)


def picture(pixels: NDArray[np.uint8]) -> Image.Image:
    """Return pixels [h w c] as Pillow has them, which knows no axis of one channel."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def _cover(image: Image.Image, height: int, width: int) -> Image.Image:
    """Return an image, scaled until it covers height and width, without what stands out on both sides equally."""
    scale = max(height / image.height, width / image.width)
    size = max(width, round(image.width * scale)), max(height, round(image.height * scale))
    scaled = image.resize(size, Image.Resampling.BICUBIC)
    left = (size[0] - width) // 2
    top = (size[1] - height) // 2
    return scaled.crop((left, top, left + width, top + height))


def _opened(data: bytes) -> Image.Image:
    """Return an image whose header was read; `BrokenImage` where it is none or too large, `DeepImage` above 8 bits."""
    try:
        with warnings.catch_warnings():
            # Pillow warns from 89 million pixels on; here an image of fewer is an error already.
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:
        raise BrokenImage(f"is not an image ({str(error) or type(error).__name__})") from None
    if image.width * image.height > MAX_PIXELS:
        raise BrokenImage(
            f"announces {image.width} x {image.height} pixels, more than {MAX_PIXELS:,}"
        )
    if deep := _deep(image):
        raise DeepImage(
            f"has more than 8 bits a channel ({deep}): convert it to 8 bit first, by one scale for the whole dataset"
        )
    return image


def _deep(image: Image.Image) -> str:
    """Return in words how an image is stored that has more than 8 bits a channel; "" for any other.

    Pillow's mode tells it of one channel only: it opens the others as 8 bit, and how they are stored shows in a TIFF's
    tag or in a PNG's tile.
    """
    if image.mode.startswith(("I", "F")):
        return f"mode {image.mode}"
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = max(image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,)))
        return f"{bits} bits" if bits > 8 else ""
    tiles = getattr(image, "tile", ())
    stored = str(tiles[0].args) if image.format == "PNG" and tiles else ""
    return stored if stored.endswith(";16B") else ""
