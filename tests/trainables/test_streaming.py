"""Images that are read batch by batch: the numbers of resident ones, resumed anywhere, in little memory."""

import io
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from refusals import refused
from to_the_bit import numbers, trained_and_resumed

from contrasweep.data import column_files, open_dataset, resolve, stage
from contrasweep.data.column_files import EncodedFile, EncodedWriter
from contrasweep.data.decoding import ArrayColumnWriter
from contrasweep.errors import DataError, SpecError
from contrasweep.trainables import images
from contrasweep.trainables.contrastive import memory, train
from contrasweep.trainables.images import prefetched
from contrasweep.trial import Trial

QUICK: dict[str, Any] = {
    "encoder": {"name": "mlp", "width": 32},
    "epochs": 2,
    "batch_size": 50,
    "checkpoint_every": 1,
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return resolve("digits-lt", folds=3, storage=str(tmp_path_factory.mktemp("data")), write=True)


def trial(data, **config):
    return Trial(
        "study", "arm", "contrasweep.trainables.contrastive:train", QUICK | config, data, 0, 0
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [{}, {"sampling": "class_balanced", "targets": "moco", "loss": "infonce"}]
)
def test_streamed_images_give_the_numbers_of_resident_ones(digits, config):
    resident, streamed = (
        numbers(list(train(trial(digits, **config, **more)))) for more in ({}, {"resident_gib": 0})
    )
    assert streamed == resident


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Images of many sizes, as JPEG and PNG files, scaled to 24 pixels."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for i in range(90):
        coarse = Image.fromarray(random.integers(0, 256, (4, 5, 3), np.uint8))
        place = folder / f"images/class {i % 3}/{i}.{'jpg' if i % 2 else 'png'}"
        place.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((30 + i % 7, 25 + i % 11), Image.Resampling.BICUBIC).save(place)
    stage("image-folder", str(folder / "staged"), source=folder / "images", settings={"size": 24})
    return resolve(str(folder / "staged"), folds=3, storage="unused")


def encoded(patch, folder):
    """From here on, images stay encoded in a cache of their own."""
    patch.setenv("CONTRASWEEP_CACHE", str(folder / "cache"))
    patch.setenv("CONTRASWEEP_DECODED_GIB", "0")
    return folder / "cache"


def test_images_that_stay_encoded_give_the_numbers_of_decoded_ones(photos, tmp_path, monkeypatch):
    quick = {"batch_size": 20, "retrieval": False}
    decoded = [numbers(list(train(trial(photos, **quick, resident_gib=gib)))) for gib in (8.0, 0.0)]
    cache = encoded(monkeypatch, tmp_path)
    kept = [numbers(list(train(trial(photos, **quick, resident_gib=gib)))) for gib in (8.0, 0.0)]
    assert kept == decoded and decoded[0] == decoded[1]
    assert list(cache.rglob("image.encoded")) and not list(cache.rglob("image.npy")), (
        "no decoded copy was made"
    )


def test_a_trial_on_encoded_images_resumes_to_the_bit_in_the_middle_of_an_epoch(
    photos, tmp_path, monkeypatch
):
    encoded(monkeypatch, tmp_path)
    one = trial(
        photos,
        batch_size=10,
        retrieval=False,
        resident_gib=0,
        reports_per_epoch=3,
        evaluate_every=2,
    )
    trained_and_resumed(train, one, tmp_path, steps=[2])


def test_encoded_images_are_read_as_arrays_too(photos, tmp_path, monkeypatch):
    expected = open_dataset(photos).parts(1)[0].array("image")
    rows = np.array([3, 4, 0, 0, 7])
    whole = open_dataset(photos).split("train").array("image")
    cache = encoded(monkeypatch, tmp_path)
    part, _ = open_dataset(photos).parts(1)
    assert np.array_equal(part.read("image", rows), expected[rows])
    monkeypatch.setattr(column_files, "BLOCK_BYTES", 10)
    assert np.array_equal(np.concatenate(list(part.blocks("image"))), expected)
    assert not list(cache.rglob("image.npy"))
    assert np.array_equal(part.array("image"), expected)
    for limit in ("0", "1"):  # of one cache
        monkeypatch.setenv("CONTRASWEEP_DECODED_GIB", limit)
        assert np.array_equal(open_dataset(photos).split("train").array("image"), whole)


def test_a_small_split_is_decoded_and_a_limit_that_is_no_number_is_named(
    photos, tmp_path, monkeypatch
):
    cache = encoded(monkeypatch, tmp_path)
    monkeypatch.setenv("CONTRASWEEP_DECODED_GIB", "1")
    open_dataset(photos).split("train")
    assert not list(cache.rglob("image.encoded"))
    monkeypatch.setenv("CONTRASWEEP_DECODED_GIB", "few")
    with refused(DataError, "CONTRASWEEP_DECODED_GIB must be a number of GiB, got 'few'"):
        open_dataset(photos).split("train")


def test_a_missing_image_is_named_where_it_is_decoded_or_read(tmp_path):
    writer = EncodedWriter(tmp_path / "image.npy")
    png = io.BytesIO()
    Image.new("L", (3, 2), 7).save(png, "PNG")
    rows = pa.array([png.getvalue(), None, png.getvalue()], pa.binary())
    writer.add(rows, "shard")
    writer.close()
    opened = EncodedFile(tmp_path, "image", {"shape": [2, 3, 1]})
    assert (opened.read(np.array([0, 2])) == 7).all()
    with refused(DataError, match=r"image 1 is not an image .*stage the dataset again"):
        opened.read(np.arange(3))
    spec = {"dtype": "uint8", "shape": [2, 3, 1], "encoding": "image"}
    decoded = ArrayColumnWriter(tmp_path / "decoded.npy", spec)
    decoded.add(rows[:1], "shard")
    with refused(DataError, "shard: image 1 is not an image", "stage the dataset again"):
        decoded.add(rows[1:], "shard")


def test_moments_are_those_of_the_whole_array(digits, monkeypatch):
    part, _ = open_dataset(digits).parts(1)
    device = torch.device("cpu")
    monkeypatch.setattr(images, "VALUES_AT_ONCE", {"cpu": 1000})
    values = torch.tensor(part.array("image")).permute(3, 0, 1, 2).flatten(1).double()
    expected = [(values.mean(1) / 255).float(), (values.std(1, correction=0) / 255).float()]
    for opened in (images.Images(part, device), images.StreamedImages(part, device)):
        assert [m.flatten().tolist() for m in opened.moments()] == [m.tolist() for m in expected]


@pytest.mark.slow
@pytest.mark.parametrize("resident_gib", [8.0, 0.0])
def test_a_trial_resumes_to_the_bit_in_the_middle_of_an_epoch(digits, tmp_path, resident_gib):
    one = trial(digits, reports_per_epoch=3, resident_gib=resident_gib, evaluate_every=2)
    reports = trained_and_resumed(train, one, tmp_path, steps=(2, 4))
    assert [r.step for r in reports] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_parts_of_an_epoch_take_the_steps_of_the_epoch(digits):
    """Without random numbers in the network, the same steps in the same order."""
    whole, parts = (list(train(trial(digits, reports_per_epoch=n)))[-1] for n in (1, 5))
    assert parts.step == 10 and parts.metrics["probe"] == whole.metrics["probe"]
    with refused(SpecError, r"reports_per_epoch: an epoch has 7 batches, got 8"):
        list(train(trial(digits, reports_per_epoch=8)))


def test_streamed_images_are_no_memory_of_the_device(digits):
    resident, streamed = (
        memory({"batch_size": 16, "resident_gib": gib}, digits).resident_bytes for gib in (8.0, 0.0)
    )
    rows = digits.rows("train") + digits.rows("test")
    assert streamed - resident == 3 * 2 * 16 * 64 * 4 - rows * 64


def test_a_prefetched_iterator_is_the_iterator():
    assert list(prefetched(iter(range(20)))) == list(range(20))

    def fails():
        yield 1
        raise ValueError("broken image")

    stream = prefetched(fails())
    assert next(stream) == 1
    with refused(ValueError, match="broken image"):
        next(stream)
    before = threading.active_count()
    endless = prefetched(iter(lambda: 0, 1))
    assert next(endless) == 0 and threading.active_count() == before + 1
    endless.close()
    assert threading.active_count() == before


def test_a_transform_of_the_user_runs_in_the_thread_that_trains(digits):
    threads = []

    def own(image):
        threads.append(threading.current_thread())
        return image

    streamed = images.StreamedImages(open_dataset(digits).parts(1)[0], torch.device("cpu"))
    next(images.batches(streamed, None, [own], torch.arange(4), 2, 0))
    assert set(threads) == {threading.main_thread()}


LIMITED = """
import resource, sys, threading
import torch
from contrasweep.data import resolve
from contrasweep.trial import Trial
from contrasweep.trainables import images
from contrasweep.trainables.contrastive import method as contrastive_method
from contrasweep.trainables.contrastive.settings import Settings

def held(kind):
    return sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(kind)) * 1024

torch.set_num_threads(1)
threading.stack_size(2**18)  # a stack of 8 MiB is all that is allowed, and the last thread's may not be free again yet
images.VALUES_AT_ONCE = {"cpu": 2**16}
manifest = resolve(sys.argv[1], folds=None, storage="unused")
parts = 10
config = dict(encoder={"name": "mlp", "width": 8}, epochs=1, batch_size=16, resident_gib=0, reports_per_epoch=parts)
run = contrastive_method.Contrastive(Trial("s", "a", "t", config, manifest, None, 0), Settings(**config))
before = held("RssAnon")
run.epoch(1)  # its threads and buffers are there now
resource.setrlimit(resource.RLIMIT_DATA, (held("VmData") + int(sys.argv[2]), resource.RLIM_INFINITY))
peak = 0
for part in range(2, parts + 1):
    run.epoch(part)
    peak = max(peak, held("RssAnon") - before)
print(len(run.train) * torch.Size(run.train.shape).numel(), peak)
try:
    images.Images(run.train.part, torch.device("cpu"))
    print("fits")
except (RuntimeError, MemoryError):
    print("does not fit")
"""


@pytest.mark.long
@pytest.mark.parametrize("stays_encoded", [False, True])
def test_a_dataset_of_ten_times_the_allowed_memory_is_trained_on(
    stays_encoded, tmp_path, monkeypatch
):
    """The limit is the kernel's, on what training may add to its buffers; resident images break it."""
    if stays_encoded:
        encoded(monkeypatch, tmp_path)
    allowed = 8 * 2**20
    rows = 10 * allowed // (64 * 64 * 3) + 1
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (rows, 64, 64, 3), np.uint8)
    y = random.integers(0, 10, rows)
    if stays_encoded:
        for split, count in (("train", rows), ("test", 9)):
            for i in range(count):
                place = tmp_path / "images" / split / f"class {y[i]}/{i}.png"
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(x[i]).save(place, compress_level=1)
        staged = stage("image-folder", str(tmp_path / "staged"), source=tmp_path / "images")
    else:
        np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
        staged = stage("mnist", str(tmp_path / "staged"), source=tmp_path / "mnist.npz")
    command = [sys.executable, "-c", LIMITED, staged.uri, str(allowed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    sizes, fits = done.stdout.strip().splitlines()
    size, peak = (int(number) for number in sizes.split())
    assert size >= 10 * allowed and peak < size / 2 and fits == "does not fit"
