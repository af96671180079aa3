"""Image datasets whose images are stored as the published bytes of PNG or JPEG, each decoded once as a check."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, cast

import pyarrow as pa
import pydantic

from contrasweep.data import columns, images
from contrasweep.data.content import Content, Rejected, readable
from contrasweep.data.manifest import ANY_SIDE, ColumnSpec, Folds
from contrasweep.errors import DataError
from contrasweep.schema import checked

BATCH = 256
"""The most images that are read at once, and rows of a table."""
CHANNELS = 3
"""All images are decoded to colours, also grey ones."""
SPLIT_OF_WORD = {
    **dict.fromkeys(("train", "training", "restval"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval", "evaluation"), "val"),
}
"""Word in the name of a file or folder, in small letters -> its split."""
MOST_CLASSES = 100_000
"""Without names of classes, labels may be larger than this only where there are as many samples."""
log = logging.getLogger(__name__)
Side = Annotated[int, pydantic.Field(ge=1)]
"""In pixels."""


@checked
class Settings:
    """Settings of a dataset of encoded images: their size, and whether equal images must be in the same fold.

    By default images keep their bytes and their sizes.
    """

    size: Side | None = None
    """Every image is scaled to cover a square of this side and cut about its centre, once per node."""
    longest_side: Side | None = None
    """Images with a longer side are scaled down to this when they are staged."""
    copies: Literal["apart", "together"] = "apart"
    """`together`: images that are equal byte for byte are in the same fold; `apart`: they may be in several folds."""


@dataclass(frozen=True)
class Encoded:
    """An encoded image. Either all images of a dataset have labels or none has; the same holds for captions."""

    data: bytes | Path  # its bytes, or its file
    name: str  # in the dataset
    label: int | None  # index of its class
    captions: tuple[str, ...] = ()  # texts that describe it


@dataclass
class Copies:
    """Counts of images that are equal byte for byte to an earlier one."""

    counts: Counter[str] = field(default_factory=Counter)  # with the keys of `Content.copies`
    # digest -> split, label
    seen: dict[bytes, tuple[str, int | None]] = field(default_factory=dict)

    def add(self, data: bytes, split: str, label: int | None) -> str:
        """Count the image if an equal one came before; return the digest of its bytes, 24 hexadecimal digits.

        `data` are the encoded bytes of the image. `split` and `label` decide which counts it adds to: `within` a split
        or `across splits`, and also `of another class`.
        """
        digest = hashlib.sha256(data).digest()[:12]
        if digest in self.seen:
            first_split, first_label = self.seen[digest]
            self.counts["within" if first_split == split else "across splits"] += 1
            # A copy in another class is counted a second time.
            if first_label != label:
                self.counts["of another class"] += 1
        else:
            self.seen[digest] = (split, label)
        return digest.hex()


def numbered(largest_label: int, samples: int, where: object, remedy: str) -> tuple[str, ...]:
    """Return "0", "1" and so on to `largest_label`, as the names of classes that have no other names.

    `DataError` for a label that cannot be a class number, because it exceeds both `MOST_CLASSES` and the number of
    `samples`. The error begins with `where` and ends with `remedy`.
    """
    if largest_label >= max(MOST_CLASSES, samples):
        raise DataError(
            f"{where}: a label is {largest_label:,}, of {samples:,} samples; labels are class numbers from 0: {remedy}"
        )
    return tuple(map(str, range(largest_label + 1)))


def spec(size: int | None) -> dict[str, ColumnSpec]:
    """Return the description of the column `image` for the manifest, with the shape [size size 3] of a decoded image.

    With `size` None the shape is left out; `content` adds it when it has read the images.
    """
    shape = {} if size is None else {"shape": [size, size, CHANNELS]}
    return {"image": cast(ColumnSpec, {"dtype": "uint8", "encoding": "image", **shape})}


def content(
    splits: Mapping[str, Iterable[Encoded]],
    classes: Iterable[str],
    settings: Settings,
    kind: str = "image",
    rejected: Rejected | None = None,
) -> Content:
    """Return a dataset with the columns `image` (encoded), `path`, and `label` and `captions` if images have them.

    Missing, broken and too large images are left out and counted.

    Args:
        splits: The images of each split; they are read when the tables of the content are read.
        classes: Names of the classes, by label.
        settings: The size of images, and whether equal ones form a group, which folds do not divide.
        kind: `image` or `image-text`.
        rejected: The items that the importer has left out already.
    """
    specs = spec(settings.size)
    rejected = rejected or Rejected()
    copies = Copies()
    together = settings.copies == "together"

    def tables(split: str, files: Iterable[Encoded]) -> Iterator[pa.Table]:
        """Yield tables with the images of `files` that can be decoded; images that cannot are counted in `rejected`.

        Without a `size` in the settings, the shape of the column `image` is that of the images, or `ANY_SIDE` where
        they differ.
        """
        waiting = iter(files)
        load = partial(_load, longest=settings.longest_side)
        with ThreadPoolExecutor() as pool:
            while batch := list(islice(waiting, BATCH)):
                items = []
                for file, (data, shape, problem) in zip(batch, pool.map(load, batch), strict=True):
                    if problem:
                        rejected.add(problem, file.name)
                        continue
                    # Without a `size` the shape is that of the first image, until an image has another one.
                    if not settings.size:
                        shape_so_far = specs["image"].setdefault("shape", shape)
                        if shape != shape_so_far:
                            specs["image"]["shape"] = [ANY_SIDE, ANY_SIDE, CHANNELS]
                    items.append((data, file, copies.add(data, split, file.label)))
                if items:
                    yield columns.table(_columns(items, together), specs)

    # The caller reads the tables: `specs`, `rejected` and the counts of copies are complete once it has.
    return Content(
        kind,
        {split: tables(split, files) for split, files in splits.items()},
        tuple(map(readable, classes)),
        specs,
        Folds(5, "grouped") if together else None,
        rejected=rejected,
        copies=copies.counts,
    )


def _columns(items: list[tuple[bytes, Encoded, str]], together: bool) -> dict[str, pa.Array]:
    """Return the columns `image`, `label`, `path`, `group` and `captions` of some images, by name.

    An item is (bytes of the image, the image, digest of these bytes). `label` and `captions` are left out where an
    image lacks them, because then every image of the dataset does. `group`, the digest, is there only with `together`.
    """
    images, files, digests = zip(*items, strict=True)
    labels = [file.label for file in files]
    captions = [file.captions for file in files]
    table = {"image": pa.array(images, pa.binary())}
    if None not in labels:
        table["label"] = pa.array(labels, pa.int32())
    table["path"] = pa.array([readable(file.name) for file in files], pa.string())
    if together:
        table["group"] = pa.array(digests, pa.string())
    if all(captions):
        table["captions"] = pa.array(captions, pa.list_(pa.string()))
    return table


def _load(file: Encoded, longest: int | None) -> tuple[bytes, list[int], str]:
    """Return an image's bytes, its shape [h w c], and "" or the reason why it is left out.

    An image whose longer side has more than `longest` pixels (None: no limit) is scaled down to that. `OSError` for
    a file that is there and cannot be read.
    """
    try:
        data = file.data if isinstance(file.data, bytes) else file.data.read_bytes()
        pixels = images.decode(data)
        if longest is not None and max(pixels.shape[:2]) > longest:
            data, pixels = images.scaled_down(pixels, longest, data)
        return data, [*pixels.shape[:2], CHANNELS], ""
    except images.MISSING_FILE_ERRORS:
        return b"", [], "missing image"
    except images.BrokenImage as error:
        return b"", [], error.reason


def train_and_test(
    source: Path, by_split: Mapping[str, list[Path]], paths: list[Path]
) -> dict[str, list[Path]]:
    """Return split -> paths, for `train` and, if there are any, `test`: without a test split, the paths of `val`.

    `by_split` is split -> the paths that were found for it; it has `train`. The paths in `paths` that are in neither of
    both splits are left out. A warning then names `source` and the first five of them.
    """
    test = by_split.get("test", by_split.get("val", []))
    left_out = [path.name for path in paths if path not in {*by_split["train"], *test}]
    if left_out:
        log.warning(
            "%s: left out %d that are neither of train nor of test: %s",
            source,
            len(left_out),
            ", ".join(map(readable, left_out[:5])),
        )
    chosen = {"train": by_split["train"]}
    if test:
        chosen["test"] = test
    return chosen
