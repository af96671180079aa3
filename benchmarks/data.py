"""How fast and how small reading is, against what people use instead; ratios within one run.

    python benchmarks/data.py --mnist ../shared/data/mnist/mnist.npz

Every figure is the median of several repeats on warm files, with one torch thread; memory is the proportional set size
(a page shared by 8 processes counts an eighth in each) of the pages mapped from the node's cache plus the copies on the
heap.
"""

import argparse
import datetime
import multiprocessing
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from contrasweep.data import Part, cache, open_dataset, resolve, stage

REPEATS, BATCH, PNGS = 7, 256, 3000


def seconds(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def reading(manifest: Any, scratch: Path) -> list[tuple[str, float, float]]:
    """(what, MB/s, samples/s) of getting all training images as one array and looking at every byte."""
    import datasets
    import pyarrow.parquet as pq

    files = [f"{manifest.uri}/{shard.file}" for shard in manifest.splits["train"]]
    rows, size = manifest.rows("train"), manifest.rows("train") * 28 * 28
    loaded = datasets.load_dataset("parquet", data_files={"train": files}, cache_dir=str(scratch / "hf"), split="train")

    def ours() -> int:
        return int(open_dataset(manifest).split("train").array("image").sum())

    def arrow() -> int:
        column = pq.read_table(files, columns=["image"])["image"].combine_chunks()
        return int(np.frombuffer(column.buffers()[1], np.uint8).sum())

    def hugging_face() -> int:
        return int(np.frombuffer(b"".join(loaded["image"]), np.uint8).sum())

    assert ours() == arrow() == hugging_face()
    first = seconds_once(lambda: (cache.evict(0), ours()))
    found = [
        ("contrasweep, first trial on a node (fetch, check, decode)", first),
        ("contrasweep, every later trial", seconds(ours)),
        ("pyarrow.parquet.read_table", seconds(arrow)),
        ("datasets, all rows of a column", seconds(hugging_face, 3)),
    ]
    # torch and torchvision are imported where they are used: the processes of `memory` import this file too
    return [(what, size / taken / 1e6, rows / taken) for what, taken in found]


def seconds_once(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def epochs(part: Part, scratch: Path) -> list[tuple[str, float]]:
    """Samples/s of one shuffled epoch as float tensors, against ImageFolder and DataLoader on the same images as
    PNG."""
    import torch
    from PIL import Image
    from torchvision import datasets, transforms

    images, labels = part.array("image")[:PNGS], part.labels[:PNGS]
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        (scratch / "png" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0]).save(scratch / "png" / str(label) / f"{i}.png")
    folder = datasets.ImageFolder(
        str(scratch / "png"), transforms.Compose([transforms.Grayscale(), transforms.ToTensor()])
    )

    def ours() -> None:
        for rows in part.batches(BATCH, seed=0, epoch=0):
            torch.from_numpy(part.array("image")[rows]).permute(0, 3, 1, 2).float().div_(255).sum()

    def theirs(workers: int) -> Callable[[], None]:
        loader = torch.utils.data.DataLoader(folder, BATCH, shuffle=True, num_workers=workers)
        return lambda: [batch.sum() for batch, _ in loader] and None

    return [
        ("contrasweep, batches of the mapped array", len(part) / seconds(ours, 3)),
        ("torchvision ImageFolder + DataLoader, in process", PNGS / seconds(theirs(0), 3)),
        ("torchvision ImageFolder + DataLoader, 2 workers", PNGS / seconds(theirs(2), 3)),
    ]


def stall(part: Part) -> tuple[float, float]:
    """Milliseconds that a step of a small convolutional network waits for its batch, and that it computes."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, 2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, 2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(10),
    )
    waits, steps = [], []
    for rows in list(part.batches(BATCH, seed=0, epoch=1))[:60]:
        start = time.perf_counter()
        batch = torch.from_numpy(part.array("image")[rows]).permute(0, 3, 1, 2).float().div_(255)
        target = torch.from_numpy(part.labels[rows])
        middle = time.perf_counter()
        torch.nn.functional.cross_entropy(net(batch), target).backward()
        waits.append(middle - start)
        steps.append(time.perf_counter() - middle)
    return 1e3 * float(np.median(waits)), 1e3 * float(np.median(steps))


def _trial(uri: str, fold: int, folds: int | None, ready: Any, done: Any, out: Any) -> None:
    train, test = open_dataset(resolve(uri, folds=folds, storage="unused")).parts(fold if folds else None)
    for part in (train, test):
        part.array("image").sum()
    ready.wait()
    out.put(_mapped_pss(str(cache.cache_folder())))
    done.wait()


def _mapped_pss(prefix: str) -> int:
    """Bytes of this process's share of the pages mapped from files below `prefix`."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line.split(" ", 1)[0].endswith(":"):
            inside = prefix in line
        elif inside and line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    return total


def memory(uri: str, trials: int, folds: int | None, same_fold: bool) -> float:
    """MiB of data that `trials` processes hold at once."""
    context = multiprocessing.get_context("spawn")
    ready, done, out = context.Barrier(trials), context.Event(), context.Queue()
    processes = [
        context.Process(target=_trial, args=(uri, 0 if same_fold or not folds else i % folds, folds, ready, done, out))
        for i in range(trials)
    ]
    for process in processes:
        process.start()
    total = sum(out.get(timeout=300) for _ in processes)
    done.set()
    for process in processes:
        process.join()
    return total / 2**20


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--mnist", type=Path, required=True)
    options.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "data.md")
    chosen = options.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="contrasweep-bench-"))
    os.environ["CONTRASWEEP_CACHE"] = str(scratch / "cache")
    try:
        text = measure(chosen.mnist, scratch)
    finally:
        shutil.rmtree(scratch)
    chosen.output.write_text(text)
    print(text)


def measure(mnist: Path, scratch: Path) -> str:
    uri = str(scratch / "mnist")
    start = time.perf_counter()
    manifest = stage("mnist", uri, source=mnist)
    staging_s = time.perf_counter() - start
    raw = sum(manifest.rows(split) for split in manifest.splits) * 784 / 1e6
    read = reading(manifest, scratch)
    part = open_dataset(manifest).split("train")
    epoch = epochs(part, scratch)
    wait, step = stall(part)
    del part  # this process must not share the pages that are counted below
    memory(uri, 1, 5, True)  # lays out the folds, which is not what a trial holds
    copy = raw * 1e6 / 2**20
    held = {
        (trials, folds, same): memory(uri, trials, folds, same)
        for trials, folds, same in ((1, None, True), (8, None, True), (1, 5, True), (8, 5, True), (8, 5, False))
    }
    cores = len(os.sched_getaffinity(0))
    lines = [
        "# Reading and staging data",
        "",
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {cores} CPU cores (load average "
        f"{os.getloadavg()[0]:.1f} while measured), "
        f"Python {platform.python_version()}. MNIST, {raw:.1f} MB of raw images. By `python benchmarks/data.py`; "
        f"compare within a run only.",
        "",
        f"Staging (read npz, write Parquet, digests): {staging_s:.2f} s, {raw / staging_s:.0f} MB/s of raw images.",
        "",
        "| all training images as one array, every byte read | MB/s | M samples/s | ratio to read_table |",
        "|---|---:|---:|---:|",
        *(f"| {what} | {mb:.0f} | {rows / 1e6:.2f} | {mb / read[2][1]:.2f} |" for what, mb, rows in read),
        "",
        "| one shuffled epoch as float tensors | samples/s | ratio |",
        "|---|---:|---:|",
        *(f"| {what} | {rate:,.0f} | {rate / epoch[0][1]:.3f} |" for what, rate in epoch),
        "",
        f"Input of a training step (small convolutional network, batch {BATCH}): {wait:.2f} ms waiting, {step:.2f} ms "
        f"computing, "
        f"{100 * wait / (wait + step):.1f} % of a step.",
        "",
        "| trials on a node | MiB of data held, all processes | copies |",
        "|---|---:|---:|",
        *(
            f"| {trials}, {'train and test split' if folds is None else f'{folds} folds'}"
            f"{'' if folds is None else ', the same fold' if same else ', all folds at once'}"
            f" | {mib:.1f} | {mib / (copy if folds is None else copy * 6 / 7):.2f} |"
            for (trials, folds, same), mib in held.items()
        ),
        "",
        "With folds the training split is laid out once as a ring in which every part of every fold is one stretch, "
        "so trials of all folds at once "
        "share 2 - 1/folds copies and no trial holds one of its own.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
