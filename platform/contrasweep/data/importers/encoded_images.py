"""Image files kept as they were published: the bytes of each PNG or JPEG, checked by decoding it once."""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, cast

import pyarrow as pa
import pydantic

from contrasweep.data import columns, images
from contrasweep.data.content import Content, Rejected
from contrasweep.data.manifest import ANY_SIDE, ColumnSpec, Folds
from contrasweep.errors import DataError
from contrasweep.schema import checked

BATCH = 256
"""Images that are read at once, and rows of a table, at most."""
CHANNELS = 3
"""All images are decoded to colours, grey ones too."""
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval", "evaluation"), "val"),
}
"""The split that a word in the name of a file or folder tells, whatever its case."""
MOST_CLASSES = 100_000
"""Without names of classes, a label from here on needs as many samples."""
log = logging.getLogger(__name__)
Side = Annotated[int, pydantic.Field(ge=1)]
"""In pixels."""


@checked
class Settings:
    """How large images are. Without settings they keep their bytes, each in its own size."""

    size: Side | None = None
    """Every image is scaled to cover a square of this side and cut about its centre, once per node."""
    longest_side: Side | None = None
    """Larger images are scaled down to it as they are staged."""


@dataclass(frozen=True)
class Encoded:
    """An encoded image: its bytes or its file, its name in the dataset, and its class index (None: it has none).

    `captions` are texts that describe it; of a dataset, either all images have some or none has.
    """

    data: bytes | Path
    name: str
    label: int | None
    captions: tuple[str, ...] = ()


@dataclass
class Copies:
    """Images that are equal byte for byte to one that came before, counted by where that was.

    `counts` has the keys of `Content.copies`; `seen` is digest -> split and class of the first such image.
    """

    counts: Counter[str] = field(default_factory=Counter)
    seen: dict[bytes, tuple[str, int | None]] = field(default_factory=dict)

    def add(self, data: bytes, split: str, label: int | None) -> str:
        """Count an image of a split and class; return the digest of its bytes, 24 hexadecimal digits."""
        digest = hashlib.sha256(data).digest()[:12]
        # A copy in another class is counted twice: by its place and as of another class.
        if digest in self.seen:
            other, alike = self.seen[digest]
            self.counts["within" if other == split else "across splits"] += 1
            if alike != label:
                self.counts["of another class"] += 1
        self.seen.setdefault(digest, (split, label))
        return digest.hex()


def readable(name: str) -> str:
    """Return a file's name as text, with a backslash and two digits for each byte that is not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def numbered(most: int, samples: int, where: object, remedy: str) -> tuple[str, ...]:
    """Return numbers as names of the classes 0 to `most`, the largest label of so many samples.

    `DataError` for a label that is so large that it must be something else; it names `where` and the `remedy`.
    """
    if most >= max(MOST_CLASSES, samples):
        raise DataError(
            f"{where}: a label is {most:,}, of {samples:,} samples; labels are class numbers from 0: {remedy}"
        )
    return tuple(map(str, range(most + 1)))


def spec(size: int | None) -> dict[str, ColumnSpec]:
    """Return the spec of the column `image`: a square of side `size`; None: no shape yet, `content` fills it in."""
    shape = {} if size is None else {"shape": [size, size, CHANNELS]}
    return {"image": cast(ColumnSpec, {"dtype": "uint8", "encoding": "image", **shape})}


def content(
    splits: Mapping[str, Iterable[Encoded]],
    classes: Iterable[str],
    settings: Settings,
    kind: str = "image",
    rejected: Rejected | None = None,
    together: bool = False,
) -> Content:
    """Return the columns `image` (encoded), `label` (where images have one), `path`, and `captions` of `image-text`.

    `splits` has the images by split, which are read when the content's tables are; `classes` are names by label, `kind`
    is `image` or `image-text`. What an importer has left out already is in `rejected`. Missing, broken and oversized
    files are left out and counted by name. Without a `size`, images keep their bytes and their own sizes, but that
    those with a longer side than `longest_side` are scaled down to it. Equal files are counted, and with `together`
    they are a group each, which folds do not part.
    """
    specs = spec(settings.size)
    rejected = rejected or Rejected()
    copies = Copies()

    def tables(split: str, files: Iterable[Encoded]) -> Iterator[pa.Table]:
        """Yield readable images in tables.

        Without a `size` the column's spec gets the shape of the first image, or that sizes differ.
        """
        waiting = iter(files)
        load = partial(_load, longest=settings.longest_side)
        with ThreadPoolExecutor() as pool:
            # Decoding waits for no other image; the order stays that of the files.
            while batch := list(islice(waiting, BATCH)):
                items = []
                for file, (data, shape, problem) in zip(batch, pool.map(load, batch), strict=True):
                    if problem:
                        rejected.add(problem, readable(file.name))
                        continue
                    # The first image sets the shape; the first one that differs says that each has its own.
                    if not settings.size and specs["image"].setdefault("shape", shape) != shape:
                        specs["image"]["shape"] = [ANY_SIDE, ANY_SIDE, CHANNELS]
                    items.append((data, file, copies.add(data, split, file.label)))
                if items:
                    yield columns.table(_columns(items, together), specs)

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
    """Return the columns of these images, each with its bytes and the digest of these; `together` makes it the group.

    A column that an image lacks a value of is left out: all images of a dataset have labels, or none has.
    """
    images, files, digests = zip(*items, strict=True)
    labels = [file.label for file in files]
    captions = [file.captions for file in files]
    every = {
        "image": pa.array(images, pa.binary()),
        "label": None if None in labels else pa.array(labels, pa.int32()),
        "path": pa.array([readable(file.name) for file in files], pa.string()),
        "group": pa.array(digests, pa.string()) if together else None,
        "captions": pa.array(captions, pa.list_(pa.string())) if all(captions) else None,
    }
    return {name: column for name, column in every.items() if column is not None}


def _load(file: Encoded, longest: int | None) -> tuple[bytes, list[int], str]:
    """Return the bytes and the shape [h w c] of an image, and "" or the reason why it is left out.

    One with a side longer than `longest` pixels (None: any) is scaled down to it.
    """
    try:
        data = file.data if isinstance(file.data, bytes) else file.data.read_bytes()
        pixels = images.decode(data)
        if longest is not None and max(pixels.shape[:2]) > longest:
            data, pixels = images.scaled_down(pixels, longest, data)
        return data, [*pixels.shape[:2], CHANNELS], ""
    except OSError:
        return b"", [], "missing image"
    except images.BrokenImage as error:
        return b"", [], error.reason


def files_by_split(source: Path, suffix: str) -> dict[str, list[Path]]:
    """Return the files of each split, `train` and perhaps `test`, below `source` in the order of their names.

    `train-0.tar`, `data/Training-0.tar` and `train/0.tar` are training files; where no name says so, all are. A
    validation split is the test split unless there is one of that name. Others are left out, which is said. `DataError`
    where there is no file, or none for training.
    """
    files = [source] if source.is_file() else sorted(source.rglob(f"*{suffix}"))
    if not files:
        raise DataError(f"{source} has no {suffix} files")
    by_name: dict[str, list[Path]] = {}
    # The word nearest to the file's own name decides: parts of the path are read from the file upwards.
    for file in files:
        parts = (Path(file.name) if source.is_file() else file.relative_to(source)).parts[::-1]
        words = [word for part in parts for word in re.split(r"[^a-z]+", part.lower())]
        by_name.setdefault(next((SPLITS[word] for word in words if word in SPLITS), ""), []).append(
            file
        )
    if set(by_name) == {""}:
        return {"train": files}
    if "train" not in by_name:
        raise DataError(
            f"{source} has {suffix} files of {', '.join(sorted(filter(None, by_name)))} and none of train"
        )
    # Files of validation beside files of test are left out, and so are those that name no split.
    test = by_name.get("test", by_name.get("val", []))
    chosen = {*by_name["train"], *test}
    if left_out := [file.name for file in files if file not in chosen]:
        say_left_out(source, left_out)
    return {"train": by_name["train"], **({"test": test} if test else {})}


def say_left_out(source: Path, names: list[str]) -> None:
    """Log a warning that these files or folders of a dataset are of neither split; the first five are named."""
    first = ", ".join(map(readable, names[:5]))
    log.warning(
        "%s: left out %d that are neither of train nor of test: %s", source, len(names), first
    )
