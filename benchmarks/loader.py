"""Reading images larger than memory: speed against torchvision, what a step waits, and memory; ratios within one run.

    python -m benchmarks.loader

Both sides read the same JPEG files and make two augmented views of each image, as float tensors that are normalised.
Memory is the peak of a fresh process above what it held before.
"""

import argparse
import contextlib
import datetime
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from contrasweep.data import open_dataset, resolve, stage
from contrasweep.data.manifest import Manifest
from contrasweep.trainables import augmentations, images, optimisation, seeding
from contrasweep.trainables.encoders import ENCODERS
from contrasweep.trainables.losses import build

CLASSES = 10
PIXELS = 64
BATCH = 64
VIEW = 224
"""Side of the views of photographs, which are 500 x 375 as in ImageNet."""
MEAN = [0.5] * 3
STD = [0.25] * 3


def write_jpegs(folder: Path, count: int) -> Path:
    """Write `count` JPEGs of smooth noise, whose size is about that of photographs."""
    random = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (12, 12, 3), np.uint8))
        place = folder / f"class {i % CLASSES}" / f"{i}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(place, quality=90)
    return folder


def write_photographs(folder: Path, count: int) -> Path:
    """Write `count` crops of scikit-learn's two photographs, 500 x 375 pixels each."""
    random = np.random.default_rng(0)
    both = load_sample_images().images
    for i in range(count):
        height = int(both[i % 2].shape[0] * random.uniform(0.7, 1))
        width = height * 4 // 3
        room = zip(both[i % 2].shape[:2], (height, width), strict=True)
        top, left = (int(random.integers(0, have - want + 1)) for have, want in room)
        part = Image.fromarray(both[i % 2][top : top + height, left : left + width])
        place = folder / f"class {i % 2}" / f"{i}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        part.resize((500, 375), Image.Resampling.BICUBIC).save(place, quality=90)
    return folder


def ours(manifest: Manifest, view: int = 0) -> Iterator[Any]:
    """Batches of both views as a trial has them, read from the node's cache."""
    part = images.open_images(open_dataset(manifest).split("train"), torch.device("cpu"), 0.0, view)
    policy = augmentations.AUGMENTATIONS.choose("imagenet" if view else "photos").settings
    order = torch.randperm(len(part), generator=seeding.generator(0))
    return images.batches(part, images.Normalise(part), [policy] * 2, order, BATCH, 0, 0, 1)


def theirs(folder: Path, workers: int, view: int = 0) -> Iterator[Any]:
    """Batches of both views by torchvision: ImageFolder, SupContrast's transforms and a DataLoader."""
    from torchvision import datasets, transforms

    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(view or PIXELS, scale=(0.08 if view else 0.2, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            transforms.RandomGrayscale(p=0.2),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    folder_of_views = datasets.ImageFolder(
        str(folder), lambda image: (transform(image), transform(image))
    )
    loader = torch.utils.data.DataLoader(
        folder_of_views, BATCH, shuffle=True, num_workers=workers, drop_last=True
    )
    return iter(loader)


@contextlib.contextmanager
def encoded() -> Iterator[None]:
    """While open, newly opened images stay encoded in the cache."""
    os.environ["CONTRASWEEP_DECODED_GIB"] = "0"
    try:
        yield
    finally:
        del os.environ["CONTRASWEEP_DECODED_GIB"]


def images_per_second(batches: Iterator[Any]) -> float:
    """Images a second over one epoch, without its first batch, in which workers start."""
    next(batches)
    start = time.perf_counter()
    count = 0
    for _ in batches:
        count += BATCH
    return count / (time.perf_counter() - start)


def photographs(scratch: Path, count: int) -> list[tuple[str, float, float]]:
    """Rows (loader, images a second, images a second of processor): two views of each photograph, on one core, three
    turns.
    """
    folder = write_photographs(scratch / "photographs", count)
    manifest = resolve(
        stage("image-folder", str(scratch / "large"), source=folder).uri, folds=2, storage="x"
    )
    torch.set_num_threads(1)
    names = ("contrasweep, files as they are", "torchvision ImageFolder + DataLoader, 1 worker")
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(3):
        for name in names:
            with encoded():
                batches = ours(manifest, VIEW) if name == names[0] else theirs(folder, 1, VIEW)
                start = time.perf_counter(), _processor_s()
                count = sum(BATCH for _ in batches)
                del batches  # so that the worker ends, and its time counts
                rates[name].append(
                    (count / (time.perf_counter() - start[0]), count / (_processor_s() - start[1]))
                )
    return [(name, *np.median(rates[name], 0).tolist()) for name in names]


def _processor_s() -> float:
    """Processor time of this process and of the children that have ended."""
    return sum(os.times()[:4])


def stall(manifest: Manifest, count: int, batch: int = 16) -> tuple[float, float]:
    """Seconds that training steps of ResNet-18 wait for their batches, and seconds that they compute."""
    images.VALUES_AT_ONCE["cpu"] = batch * 3 * PIXELS * PIXELS
    model = torch.nn.Sequential(
        ENCODERS.choose("resnet18").build((3, PIXELS, PIXELS)), torch.nn.Linear(512, 128)
    )
    optimizer = optimisation.SGD(model.parameters(), 0.01)
    loss = build("infonce")
    part = images.open_images(open_dataset(manifest).split("train"), torch.device("cpu"), 0.0)
    policy = augmentations.AUGMENTATIONS.choose("photos").settings
    order = torch.randperm(len(part), generator=seeding.generator(0))[: batch * (count + 1)]
    stream = images.batches(part, images.Normalise(part), [policy] * 2, order, batch, 0, 0, 1)
    waits = []
    steps = []
    for _ in range(count + 1):
        start = time.perf_counter()
        views, rows = next(stream)
        ready = time.perf_counter()
        value = loss(model(views), rows.repeat(2), rows.repeat(2))
        optimizer.step(optimisation.gradients_of(optimizer, value))
        waits.append(ready - start)
        steps.append(time.perf_counter() - ready)
    return sum(waits[1:]), sum(steps[1:])


MEMORY = """
import sys
from pathlib import Path
import numpy as np, torch
from contrasweep.data import open_dataset, resolve, stage
from contrasweep.trainables import images

def rss(kind):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(kind)) / 1024

what, source, place = sys.argv[1:]
warm = stage("digits", str(Path(place) / "warm"))  # imports, and the pools of threads
images.Normalise(images.Images(open_dataset(warm).split("train"), torch.device("cpu")))
Path("/proc/self/clear_refs").write_text("5")
before = rss("VmRSS")
if what == "stage":
    stage("mnist", str(Path(place) / "staged"), source=source)
else:
    part = open_dataset(resolve(str(Path(place) / "staged"), folds=None, storage="x")).split("train")
    opened = images.open_images(part, torch.device("cpu"), 8.0 if what == "resident" else 0.0)
    images.Normalise(opened)
    if what == "streamed":
        for rows in torch.split(torch.randperm(len(part)), 128):
            opened.take(rows)
print(rss("VmHWM") - before)
"""


def memory(scratch: Path) -> list[tuple[str, float, float]]:
    """Rows (way of reading, MiB of decoded images, peak MiB of the process)."""
    random = np.random.default_rng(0)
    rows = 146 * 2**20 // (32 * 32 * 3)  # the size at which 3.4 times was measured
    x = random.integers(0, 256, (rows, 32, 32, 3), np.uint8)
    source = scratch / "raw.npz"
    np.savez(source, x_train=x, y_train=np.arange(rows) % 10, x_test=x[:10], y_test=np.arange(10))
    measured = []
    for what in ("stage", "first", "resident", "streamed"):
        command = [
            sys.executable,
            "-c",
            MEMORY,
            "resident" if what == "first" else what,
            str(source),
            str(scratch),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured.append((what, x.nbytes / 2**20, float(done.stdout.split()[-1])))
    return measured


NAMES = {
    "stage": "staging an archive of raw images",
    "first": "first trial on a node: decode into the cache, load whole",
    "resident": "later trials: load whole",
    "streamed": "streamed: moments, then every image once",
}


def measure(scratch: Path, count: int, steps: int) -> str:
    """The report as Markdown."""
    folder = write_jpegs(scratch / "photos", count)
    manifest = stage("image-folder", str(scratch / "small"), source=folder)
    manifest = resolve(manifest.uri, folds=2, storage="x")
    torch.set_num_threads(2)
    next(iter(ours(manifest)))
    with encoded():
        next(iter(ours(manifest)))
        decoding = images_per_second(ours(manifest))
    rates = [
        ("contrasweep, streamed from the node's cache", images_per_second(ours(manifest))),
        ("contrasweep, images stay encoded in the cache", decoding),
        ("torchvision ImageFolder + DataLoader, 2 workers", images_per_second(theirs(folder, 2))),
    ]
    photos = photographs(scratch, count // 5)
    torch.set_num_threads(2)
    stalls = [("decoded in the cache", *stall(manifest, steps))]
    with encoded():
        stalls.append(("encoded in the cache", *stall(manifest, steps)))
    held = memory(scratch)
    cores = len(os.sched_getaffinity(0))
    lines = [
        "# Reading images batch by batch",
        "",
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {cores} CPU cores (load average "
        f"{os.getloadavg()[0]:.1f} while measured), Python {platform.python_version()}, torch {torch.__version__}. By "
        "`python -m benchmarks.loader`; compare within a run only.",
        "",
        f"| {count} JPEGs of {PIXELS} x {PIXELS}, two augmented views of each, batch {BATCH} | images/s | ratio |",
        "|---|---:|---:|",
        *(f"| {what} | {rate:,.0f} | {rate / rates[-1][1]:.2f} |" for what, rate in rates),
        "",
        f"| {count // 5} JPEGs of 500 x 375, two augmented views of {VIEW} pixels of each, batch {BATCH} | images/s | "
        "images a processor s | ratio |",
        "|---|---:|---:|---:|",
        *(
            f"| {what} | {rate:,.0f} | {cost:,.0f} | {cost / photos[-1][2]:.2f} |"
            for what, rate, cost in photos
        ),
        "",
        f"| a step of ResNet-18 at {PIXELS} pixels, batch 16 (32 views), 2 threads, {steps} steps | ms waiting | "
        "ms computing | waiting |",
        "|---|---:|---:|---:|",
        *(
            f"| images {where} | {1e3 * wait / steps:.1f} | {1e3 * step / steps:,.0f} | "
            f"{100 * wait / (wait + step):.2f} % |"
            for where, wait, step in stalls
        ),
        "",
        "| host memory | MiB of images | peak MiB | ratio |",
        "|---|---:|---:|---:|",
        *(
            f"| {NAMES[what]} | {size:.0f} | {peak:.0f} | {peak / size:.2f} |"
            for what, size, peak in held
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "loader.md"
    )
    options.add_argument("--images", type=int, default=3000)
    options.add_argument("--steps", type=int, default=5, help="of ResNet-18")
    chosen = options.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="contrasweep-bench-"))
    os.environ["CONTRASWEEP_CACHE"] = str(scratch / "cache")
    try:
        text = measure(scratch, chosen.images, chosen.steps)
    finally:
        shutil.rmtree(scratch)
    chosen.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
