"""Images of a dataset's part, whole on the device as uint8 or read batch by batch, and the two views of a batch."""

import functools
import math
import os
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.memory import GIB
from contrasweep.data.column_files import REMEDY
from contrasweep.data.manifest import ANY_SIDE, Manifest
from contrasweep.data.reading import Part
from contrasweep.errors import DataError
from contrasweep.trainables import augmentations, seeding
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.pytorch import F, Float, ImageBatch, Int, Tensor, UInt8, torch

T = TypeVar("T")
IMAGE = "image"
"""The column of a dataset that has the images."""
EVALUATED_SHARE = 224 / 256
"""The part of the shorter side that an evaluation sees of an image that is not whole."""
SUMMED_AT_ONCE = 2**18
"""Values that are squared and summed at once."""
BATCHES_AHEAD = 2
"""Batches that are prepared before they are asked for."""
VALUES_AT_ONCE = {"cpu": 2**21, "cuda": 2**26}
"""Values of one view that are augmented at once: some batches of small images, so that the cost a call is shared."""
_END: Any = object()
"""What `prefetched` takes from its thread where there are no more items."""
Rectangle = tuple[int, int, int, int]
"""Top, left, height and width of a part of an image, in pixels."""
Box = Callable[[int, int, int], Rectangle]
"""(height, width, place in the batch) -> a part of an image."""
Rows = Int[Tensor, " k"]
Pixels = UInt8[Tensor, "k c h w"]
Moments = tuple[Float[Tensor, "c 1 1"], Float[Tensor, "c 1 1"]]
"""Mean and standard deviation of each channel."""
Viewed = tuple[Float[Tensor, "bv c h w"], Int[Tensor, " b"]]
"""The views of a batch's images, and the images' rows."""


def image_shape(data: Manifest, column: str) -> Shape:
    """Return channels, height and width of a dataset's images as staged.

    `ClusterError` where the manifest does not say the images' size, `DataError` where the images differ in size.
    """
    shape = data.columns[column].get("shape") if column in data.columns else None
    if shape is None:
        raise ClusterError(f"dataset {data.name} does not say how large its images are")
    height, width, channels = shape
    if height == ANY_SIDE:
        raise DataError(f"the images of {data.name} differ in size: {REMEDY}")
    return channels, height, width


def view_shape(data: Manifest, view_size: int) -> Shape:
    """Return channels, height and width of the views of a dataset's images.

    With a `view_size` above 0 views are squares of that side; with 0 they are whole images. `DataError` where whole
    images differ in size.
    """
    # A manifest's shape is height, width, channels.
    if view_size:
        return (data.columns[IMAGE]["shape"][2], view_size, view_size)
    return image_shape(data, IMAGE)


def crop_box(
    height: int, width: int, seed: int, area: tuple[float, float], aspect: tuple[float, float]
) -> Rectangle:
    """Return top, left, height and width in pixels of a random crop, as torchvision's RandomResizedCrop draws them.

    A try draws a share of the image's area (within `area`) and a ratio of width to height (within `aspect`,
    log-uniform). If ten tries give no crop that fits into the image, it is the largest central part with such a ratio.
    """
    draw = random.Random(seed)
    for _ in range(10):
        target = height * width * draw.uniform(*area)
        ratio = math.exp(draw.uniform(math.log(aspect[0]), math.log(aspect[1])))
        w = round(math.sqrt(target * ratio))
        h = round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            return draw.randint(0, height - h), draw.randint(0, width - w), h, w
    # Ten tries failed: the largest part with an allowed ratio, about the centre.
    w = width
    h = height
    if width / height < aspect[0]:
        h = round(width / aspect[0])
    elif width / height > aspect[1]:
        w = round(height * aspect[1])
    return (height - h) // 2, (width - w) // 2, h, w


@dataclass(frozen=True)
class Crops:
    """The random crops of one view of some images.

    `seeds` has a seed for each image; `area` and `aspect` of the `policy` say how large crops are.
    """

    seeds: list[int]
    policy: augmentations.Policy | augmentations.Transform

    def box(self, height: int, width: int, place: int) -> Rectangle:
        """Return top, left, height and width in pixels of the crop of the row at `place`, whose image has this size.

        A user's own transform may crop by itself; for it the crop is the image's centre.
        """
        if not isinstance(self.policy, augmentations.Policy):
            return centre_box(height, width)
        return crop_box(height, width, self.seeds[place], self.policy.area, self.policy.aspect)


def centre_box(height: int, width: int) -> Rectangle:
    """Return top, left, height and width in pixels of the central square that an evaluation sees.

    Its side is 224/256 of the shorter side, as of a centre crop of 224 after scaling the shorter side to 256.
    """
    side = max(1, round(EVALUATED_SHARE * min(height, width)))
    return (height - side) // 2, (width - side) // 2, side, side


def rows_to_train(data: Manifest) -> int:
    """Return on how many rows a trial trains: all training rows, or with folds all but those of one fold.

    Folds are taken to be equal in size.
    """
    rows = data.rows("train")
    return rows if data.folds is None else rows - rows // data.folds.count


def resident_bytes(data: Manifest, shape: Shape, settings: Any) -> int:
    """Return how many bytes the images of a dataset take on the device, at a byte a value, for a plan.

    `shape` is that of one image. 0 where the settings `view_size` or `resident_gib` say that images are not kept there:
    they are cropped, or take more than is allowed, and are read batch by batch.
    """
    values = data.rows("train", "test") * math.prod(shape)
    return 0 if settings.view_size or values > settings.resident_gib * GIB else values


class Images:
    """`pixels` uint8 [n c h w] and `labels` int64 [n] on `device`, in the part's own order of rows.

    Where the data have no labels (`labelled` False), each image is a class of its own.
    """

    streamed = False
    """Whether images are read batch by batch, and not kept on the device."""
    cropped = False
    """Whether `views` are crops, which augmentations then do not cut anew."""

    def __init__(self, part: Part, device: "torch.device") -> None:
        self._describe(part, device)
        self.pixels = torch.empty((len(part), *self.shape), dtype=torch.uint8, device=device)
        start = 0
        # Stored with channels last; copied block by block, so that the host never holds a second whole copy.
        for block in part.blocks(IMAGE):
            self.pixels[start : start + len(block)] = torch.from_numpy(block).permute(0, 3, 1, 2)
            start += len(block)

    def _describe(self, part: Part, device: "torch.device") -> None:
        """Set the attributes that follow from `part`: shape of an image, labels and groups of the rows.

        `DataError` where its images are not uint8 [n h w c].
        """
        file = part.file(IMAGE)
        if len(file.shape) != 4 or file.dtype != np.uint8:
            raise DataError(f"images must be uint8 [n h w c], got {file.dtype} {list(file.shape)}")
        _, h, w, c = file.shape
        self.device = device
        self.shape = (c, h, w)
        self.labelled = part.labelled
        # Without labels each image is a class of its own.
        labels = torch.tensor(part.labels) if part.labelled else torch.arange(len(part))
        self.labels = labels.to(device)
        self.grouping = part.grouping

    def __len__(self) -> int:
        return len(self.labels)

    def views(self, rows: Rows, crops: Sequence["Crops"]) -> list[Float[Tensor, "k c h w"]]:
        """Return the images of these rows in [0, 1] before augmentation: a list with one tensor for each view.

        `crops` has an entry for each view. It is not used, since images are whole here: the list has the same tensor
        for each view. `CroppedImages` cuts them.
        """
        return [self.take(rows).float().div_(255)] * len(crops)

    def take(self, rows: Rows) -> Pixels:
        """Return the images of these rows, on the device."""
        return self.pixels[rows.to(self.device)]

    def blocks(self) -> Iterator[Pixels]:
        """Yield all images in their order, on the device, as a single block."""
        yield self.pixels

    def moments(self) -> Moments:
        """Return `moments` of all images."""
        return moments(self.blocks())


class StreamedImages(Images):
    """Images that stay in the node's cache, which all trials there share, and are read batch by batch.

    They are for datasets larger than the device or the host, and give the same numbers as `Images`, to the bit.
    """

    streamed = True

    def __init__(self, part: Part, device: "torch.device") -> None:
        self._describe(part, device)
        self.part = part
        self.pinned = device.type == "cuda"
        self.moments_name = "moments"

    def take(self, rows: Rows) -> Pixels:
        """Return the images of these rows, on the device.

        For a GPU they are read into pinned memory: the GPU copies them from there while the host goes on with other
        work.
        """
        c, h, w = self.shape
        host = torch.empty((len(rows), h, w, c), dtype=torch.uint8, pin_memory=self.pinned)
        self.part.read(IMAGE, rows.cpu().numpy(), host.numpy())
        return host.to(self.device, non_blocking=True).permute(0, 3, 1, 2).contiguous()

    def blocks(self) -> Iterator[Pixels]:
        """Yield all images in their order, a block at a time, on the device."""
        # A block has as many values as two views that are augmented at once.
        step = max(1, 2 * VALUES_AT_ONCE["cpu"] // int(np.prod(self.shape)))
        for rows in torch.split(torch.arange(len(self)), step):
            yield self.take(rows)

    def moments(self) -> Moments:
        """Return `moments` of all images.

        They are computed once on a node, because this reads every image. The node's cache keeps them under
        `moments_name` for other trials.
        """
        mean, std = self.part.once_per_node(
            self.moments_name,
            lambda: np.stack([moment.cpu().numpy() for moment in moments(self.blocks())]),
        )
        return torch.tensor(mean).to(self.device), torch.tensor(std).to(self.device)


class CroppedImages(StreamedImages):
    """Images of any size, read as squares of `side` pixels.

    A view is a random crop of the whole image. An evaluation and the moments see its centre. Crops are cut on the host,
    one image at a time, so they depend neither on the batch nor on how images are kept.
    """

    cropped = True

    def __init__(self, part: Part, device: "torch.device", side: int) -> None:
        super().__init__(part, device)
        self.shape = (self.shape[0], side, side)
        self.moments_name = f"moments {side}"

    def views(self, rows: Rows, crops: Sequence["Crops"]) -> list[Float[Tensor, "k c h w"]]:
        """Return each view's random crops of these rows."""
        return [
            pixels.float().div_(255) for pixels in self._cut(rows, [crop.box for crop in crops])
        ]

    def take(self, rows: Rows) -> Pixels:
        """Return the centres of these rows' images, as an evaluation sees them."""
        return self._cut(rows, [lambda height, width, place: centre_box(height, width)])[0]

    def _cut(self, rows: Rows, boxes: Sequence[Box]) -> list[Pixels]:
        """Return for each view a tensor [k c side side] with one part of each row's image, which is decoded only once.

        `boxes` has for each view a function (height, width, place) -> (top, left, height, width) of the part. The first
        two arguments are the size of the stored image; `place` is the index of the image in `rows`.
        """
        crops_by_view = [np.empty((len(rows), *self.shape), np.uint8) for _ in boxes]
        file = self.part.file(IMAGE)
        file_rows = self.part.rows[rows.cpu().numpy()]

        def cut(i: int) -> None:
            """Cut all views of the image at place `i` of the batch."""
            pixels = file.item(int(file_rows[i]))
            height, width = pixels.shape[:2]
            for view, box in zip(crops_by_view, boxes, strict=True):
                view[i] = crop(pixels, box(height, width, i), self.shape[1])

        # In threads, because decoding and scaling release the interpreter's lock. `list` waits for all of them, and
        # raises the exception of one that failed.
        list(_cutters().map(cut, range(len(rows))))
        return [torch.from_numpy(view).to(self.device) for view in crops_by_view]


def moments(blocks: Iterable[Pixels]) -> Moments:
    """Return mean and standard deviation of each channel over all images together, of values in [0, 1].

    The images come in `blocks`. The deviation is 1 for a channel that never varies. Both come from sums of integers,
    which are the same on every device and in any order.
    """
    # For each channel: the number of values, their sum, and the sum of their squares.
    n = 0
    totals: Any = 0
    squares: Any = 0
    for block in blocks:
        for pixels in torch.split(block, max(1, SUMMED_AT_ONCE // block[0].numel())):
            values = pixels.int()
            n += values[:, 0].numel()
            totals += values.sum((0, 2, 3), dtype=torch.int64)
            squares += (values * values).sum((0, 2, 3), dtype=torch.int64)
    device = totals.device
    mean = torch.tensor([total / n for total in totals.tolist()], dtype=torch.float64) / 255
    # (n sum x^2 - (sum x)^2) / n^2 in Python's whole numbers: exact up to the division.
    variance = [
        (n * square - total**2) / n**2
        for total, square in zip(totals.tolist(), squares.tolist(), strict=True)
    ]
    std = torch.tensor(variance, dtype=torch.float64).sqrt() / 255
    std = torch.where(std > 0, std, torch.ones_like(std))
    # As [c 1 1], so that they fit images [n c h w].
    mean, std = (values.float()[:, None, None].to(device) for values in (mean, std))
    return mean, std


def crop(
    pixels: UInt8[np.ndarray, "h w c"], box: Rectangle, side: int
) -> UInt8[np.ndarray, "c side side"]:
    """Return the part `box` (top, left, height, width) of an image, scaled to a square of `side` pixels.

    It is scaled bilinearly with antialiasing. `pixels` are [h w c]; the result is [c side side].
    """
    top, left, height, width = box
    # Contiguous, so that torch starts no threads of its own beside those that cut.
    part = pixels[top : top + height, left : left + width].copy()
    square = F.interpolate(
        torch.from_numpy(part).permute(2, 0, 1)[None], (side, side), mode="bilinear", antialias=True
    )
    return square[0].numpy()


@functools.cache
def _cutters() -> ThreadPoolExecutor:
    """Return the threads that cut crops, one for each core that the process may use; they stay for all batches."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "crop")


def open_images(
    part: Part, device: "torch.device", resident_gib: float, view_size: int = 0
) -> Images:
    """Return the images of `part`: all of them on the device if they take at most `resident_gib` GiB there.

    Larger datasets are streamed from the node's cache, batch by batch. With a `view_size` above 0 images are cut to
    squares of so many pixels; see `CroppedImages`.
    """
    if view_size:
        return CroppedImages(part, device, view_size)
    # A byte a value of the decoded images.
    if len(part) * math.prod(part.file(IMAGE).shape[1:]) > resident_gib * 2**30:
        return StreamedImages(part, device)
    return Images(part, device)


class Normalise:
    """Scale images to [0, 1], then to mean 0 and standard deviation 1 in each channel of the training part."""

    def __init__(self, images: Images) -> None:
        self.mean, self.std = images.moments()

    def __call__(self, values: ImageBatch) -> ImageBatch:
        """Return images with values in [0, 1] as normalised ones, in memory with channels last."""
        return (values - self.mean).div_(self.std).contiguous(memory_format=torch.channels_last)

    def chunks(
        self, blocks: Iterable[UInt8[Tensor, "_ c h w"]], rows: int
    ) -> Iterator[Float[Tensor, "_ c h w"]]:
        """Yield stored images as normalised ones on the device, at most `rows` images at a time.

        The stored images are uint8 [n c h w], in `blocks` of any number of images.
        """
        for block in blocks:
            for pixels in torch.split(block, rows):
                yield self(pixels.to(self.mean.device).float() / 255)


class Views:
    """The random views of an epoch: for each place in `order` (rows of `images`), one view by each of `policies`.

    All random numbers are drawn at the start, from `key` (seed, fold, epoch). So a view does not depend on the batch in
    which it is asked for.
    """

    def __init__(
        self,
        images: Images,
        policies: Sequence[augmentations.Policy | augmentations.Transform],
        order: Int[Tensor, " m"],
        *key: int | None,
    ) -> None:
        self.images = images
        self.policies = policies
        self.order = order
        self.key = key
        # For each view, the seeds of its crops, which count where images are cropped while they are read.
        self.seeds = [
            torch.randint(2**62, (len(order),), generator=g) for g in self._generators("crop")
        ]
        # For each view, what its policy does to the image. A crop while reading takes the place of the policy's, whose
        # `area` and `aspect` `Crops` reads from `self.policies`.
        if images.cropped:
            policies = [augmentations.without_crop(policy) for policy in policies]
        self.draws = [
            augmentations.draw(policy, len(order), images.shape[0], g)
            for policy, g in zip(policies, self._generators("view"), strict=True)
        ]

    def __call__(self, part: slice | Rows) -> list[Float[Tensor, "k c h w"]]:
        """Return the views of the images at these places of `order`, in [0, 1], one tensor for each policy."""
        # First the pixels of each view, cropped or whole; then what its policy does to them.
        crops = [
            Crops(seeds[part].tolist(), policy)
            for seeds, policy in zip(self.seeds, self.policies, strict=True)
        ]
        pixels_of_views = self.images.views(self.order[part], crops)
        return [
            augmentations.apply(pixels, draws[part].to(pixels.device))
            for pixels, draws in zip(pixels_of_views, self.draws, strict=True)
        ]

    def _generators(self, what: str) -> Iterator["torch.Generator"]:
        """Yield a random generator for each view, so that adding a view changes none of the others.

        `what` is "crop" or "view": the crops of images that are cropped while they are read, and all other changes,
        have generators of their own.
        """
        return (
            seeding.generator(*self.key, f"{what} {view}")
            for view in range(1, len(self.policies) + 1)
        )


def batches(
    images: Images,
    normalise: Normalise | None,
    policies: Sequence[augmentations.Policy | augmentations.Transform],
    order: Int[Tensor, " m"],
    size: int,
    *key: int | None,
    batch_numbers: range | None = None,
    share: tuple[int, int] = (0, 1),
) -> Generator[Viewed]:
    """Yield an epoch in batches: the views of `size` images, all first views before all second ones, and their rows.

    Each image has a view for each of `policies`, with values in [0, 1] where `normalise` is None. Views are drawn from
    `key` (seed, fold, epoch) for each place in `order`, the epoch's rows. So they do not depend on `size`, and a row
    that comes twice looks different each time. Rows at the end that make no whole batch are left out, unless there is
    no whole batch at all.

    `batch_numbers` are the numbers of the batches to yield (None: all). `share` is (rank, processes): each batch is
    divided equally among so many processes. The part of this rank is yielded, with the same views as in the whole
    batch. Streamed images are read and augmented by a thread, ahead of the batch that is asked for.
    """
    stream = _batches(Views(images, policies, order, *key), normalise, size, batch_numbers, share)
    # A user's own transforms draw from torch's global generator, which a thread beside the training would disturb.
    ours = all(isinstance(policy, augmentations.Policy) for policy in policies)
    return prefetched(stream) if images.streamed and ours else stream


def prefetched(items: Iterator[T], ahead: int = BATCHES_AHEAD) -> Generator[T]:
    """Yield `items`; a thread computes up to `ahead` of them before they are asked for.

    An exception of `items` is raised here in place of the item that it prevents. Closing this iterator ends the thread
    as soon as the item that it computes is there.
    """
    worker = ThreadPoolExecutor(1, "prefetch")
    waiting = deque(worker.submit(next, items, _END) for _ in range(ahead))
    try:
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(worker.submit(next, items, _END))
            yield item
    finally:
        worker.shutdown(cancel_futures=True)


def _batches(
    views: Views,
    normalise: Normalise | None,
    size: int,
    batch_numbers: range | None,
    share: tuple[int, int],
) -> Generator[Viewed]:
    """Yield what `batches` describes, without a thread."""
    images = views.images
    order = views.order
    size = min(size, len(order))
    rank, processes = share
    share_size = size // processes
    numbers = batch_numbers or range(len(order) // size)
    end = numbers.stop * size
    # Images are augmented in groups of whole batches, about as many images as suit the device.
    at_once = max(1, VALUES_AT_ONCE[images.device.type] // int(np.prod(images.shape)))
    group = size * max(1, at_once // size)
    for start in range(numbers.start * size, end, group):
        # The places of the group in the epoch's order, as [batches, processes, places of a process], of which this
        # process takes its own.
        group_places = torch.arange(start, min(start + group, end))
        places = group_places.view(-1, processes, share_size)[:, rank].reshape(-1)
        # A group is augmented as one piece; but if it is a single batch that is too large, as several pieces.
        pieces = [views(piece) for piece in torch.split(places, at_once)]
        yield from _batches_of_group(pieces, order[places], share_size, normalise)


def _batches_of_group(
    pieces: Sequence[Sequence[Float[Tensor, "_ c h w"]]],
    rows: Rows,
    size: int,
    normalise: Normalise | None,
) -> Generator[Viewed]:
    """Yield (views, rows of the images) for each batch of a group of images that were augmented together.

    `rows` are those of the group. `pieces` are the group's augmented images, each piece a tensor per view. A group in a
    single piece is cut into batches of `size` images. A group in several pieces is one batch, which was too large to be
    augmented at once; the batch has all its pieces.
    """
    # For each view its tensor in each piece.
    tensors_of_views = list(zip(*pieces, strict=True))
    for start in range(0, len(rows), size):
        # A group in one piece is cut into batches. One in several pieces is a single batch: each piece is taken whole.
        in_batch = slice(start, start + size)
        batch = [tensor[in_batch] for tensors in tensors_of_views for tensor in tensors]
        if normalise is not None:
            batch = [normalise(tensor) for tensor in batch]
        yield torch.cat(batch), rows[in_batch]
