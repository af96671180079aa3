"""One suite for every dataset that can be staged, on a small source in its published format."""

import gzip
import io
import json
import os
import pickle
import random
import shutil
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import dataset_sources as sources
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from refusals import refused
from staged_data import check_staged

from contrasweep.data import images, inspecting, open_dataset, resolve, safety, stage
from contrasweep.data.importers import DATASETS, labelled_images, xbd
from contrasweep.data.importers.sick import COLUMNS
from contrasweep.data.manifest import MANIFEST
from contrasweep.errors import DataError, SpecError

REVIEWS = [
    f"contrasweep.trainables.review_helpfulness.datasets:{name}_REVIEWS"
    for name in ("CLOTHING", "MCR")
]
"""Datasets that are named by their paths, as those of anybody's package are."""


def staged(name, folder, to="staged", **settings):
    place = folder / "source"
    if not place.exists():
        place.mkdir()
        result = sources.SOURCES[name](place)
        (folder / "place").write_text(str(result) if result else "")
    where = (folder / "place").read_text() or None
    return stage(
        name,
        str(folder / to),
        source=where,
        settings={**sources.SETTINGS.get(name, {}), **settings},
    )


def test_every_dataset_has_a_source_here():
    assert set(sources.SOURCES) == set(DATASETS)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(DATASETS))
def test_a_staged_dataset_is_whole_repeatable_and_readable(name, tmp_path):
    manifest = staged(name, tmp_path)
    check_staged(manifest, labelled=name not in ("images", "image-captions"))
    assert staged(name, tmp_path, "again").digest == manifest.digest


@pytest.mark.parametrize("name", [*DATASETS, *REVIEWS])
def test_a_source_that_is_not_one_is_a_data_error(name, tmp_path, to):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"not a dataset")
    for source in ("empty", "file", "missing"):
        with refused(DataError, match=str(tmp_path)):
            stage(name, to, source=tmp_path / source)
    assert not (tmp_path / "to" / MANIFEST).exists()


@pytest.mark.parametrize("name", [*DATASETS, *REVIEWS])
def test_an_unknown_setting_is_a_spec_error(name, tmp_path, to):
    with refused(SpecError, match=rf"{name}.*no_such"):
        stage(name, to, source=tmp_path, settings={"no_such": 1})


def test_a_dataset_that_cannot_be_downloaded_says_what_to_fetch(to):
    with refused(
        DataError, "sick cannot be downloaded: pass --source PATH, where PATH is SICK.txt"
    ):
        stage("sick", to)


@pytest.mark.parametrize("large", [False, True])
def test_captions_of_parquet_are_texts_or_lists_of_any_size(large, tmp_path, to):
    """pandas 3 and Polars write texts, bytes and lists of any size."""
    captions = [["a dog", "an animal"], ["a cat"]]
    table = pa.table(
        {"photo": [sources.png_bytes(), sources.png_bytes()], "texts": captions, "label": [0] * 2}
    )
    if large:
        kinds = [pa.large_binary(), pa.large_list(pa.large_string()), pa.int64()]
        table = table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))
    pq.write_table(table, tmp_path / "train-0.parquet")
    manifest = stage("hugging-face", to, source=tmp_path, settings={"caption": "texts"})
    assert open_dataset(manifest).split("train").column("captions").to_pylist() == captions


# --- what each format means -------------------------------------------------------------------------------------


def test_the_long_tail_profile_is_the_published_one():
    assert labelled_images.long_tail(5000, 10, 100) == [
        5000,
        2997,
        1796,
        1077,
        645,
        387,
        232,
        139,
        83,
        50,
    ]
    assert sum(labelled_images.long_tail(500, 100, 100)) == 10_847


def test_the_long_tail_is_what_numpys_legacy_seed_0_picks():
    labels = np.arange(1000) % 10
    np.random.seed(0)
    expected = []
    for c, n in enumerate(labelled_images.long_tail(100, 10, 50)):
        members = np.where(labels == c)[0]
        np.random.shuffle(members)
        expected.extend(members[:n])
    assert labelled_images.long_tailed(labels, 10, 50).tolist() == expected


def test_a_source_that_is_already_long_tailed_is_kept_or_refused():
    labels = np.repeat(np.arange(10), labelled_images.long_tail(500, 10, 100))
    assert labelled_images.long_tailed(labels, 10, 100).tolist() == list(range(len(labels)))
    with refused(SpecError, match=r"too few images.*class 1 has 299 of 387.*balanced"):
        labelled_images.long_tailed(labels, 10, 10)


def test_lists_may_lie_elsewhere_than_their_images(tmp_path):
    beside = staged("imagenet-lt", tmp_path)
    (tmp_path / "lists").mkdir()
    for path in (tmp_path / "source").glob("*.txt"):
        path.rename(tmp_path / "lists" / path.name)
    apart = staged("imagenet-lt", tmp_path, "again", lists=str(tmp_path / "lists"))
    assert apart.splits == beside.splits


@pytest.mark.parametrize("row", ["7\tcut off", "7\ta\tb\tNEUTRAL\t3.0\tDEV"])
def test_a_row_of_sick_that_is_of_no_split_is_refused(row, tmp_path, to):
    good = "\t".join(COLUMNS) + "\n1\ta\tb\tNEUTRAL\t3.0\tTRAIN\n"
    (tmp_path / "SICK.txt").write_text(good, encoding="utf-8-sig")
    assert stage("sick", str(tmp_path / "good"), source=tmp_path).rows() == 1
    (tmp_path / "SICK.txt").write_text(good + row)
    with refused(DataError, "SICK.txt has a row that is not SICK's (SemEval_set is"):
        stage("sick", to, source=tmp_path)


def test_bundled_digits_are_scikit_learns(storage):
    from sklearn.datasets import load_digits

    train, test = open_dataset(resolve("digits", folds=None, storage=storage)).parts(None)
    assert len(train) == 1397 and np.bincount(test.labels).tolist() == [40] * 10
    values = np.concatenate([part.array("image") for part in (train, test)]).reshape(-1, 64)
    published = load_digits().data
    assert sorted(np.round(values.astype(float) * 16 / 255).tolist()) == sorted(published.tolist())


def test_a_bundled_dataset_is_staged_again_only_where_the_cache_has_no_whole_file(
    node_cache, tmp_path, storage, monkeypatch
):
    first = resolve("digits", folds=None, storage=storage)
    with monkeypatch.context() as patched:
        patched.setattr("contrasweep.data.staging.stage", None)
        assert resolve("digits", folds=None, storage=storage) == first
    shards = sorted(node_cache.glob("bundled/digits-*/*.parquet"))
    for damaged in (
        lambda shard: (shard.unlink(), shard.mkdir(), (shard / "x").touch()),
        lambda shard: os.truncate(shard, 9),
        lambda shard: (shard.unlink(), os.mkfifo(shard)),
        lambda shard: shard.symlink_to(shard.rename(tmp_path / "elsewhere")),
    ):
        damaged(shards[0])
        assert resolve("digits", folds=None, storage=storage).digest == first.digest
        assert not shards[0].is_symlink()
        assert inspecting.verify(first) == []


@pytest.mark.slow
def test_cifar_images_are_upright_and_in_colour(tmp_path):
    image = open_dataset(staged("cifar10", tmp_path)).split("test").array("image")[3]
    with tarfile.open((tmp_path / "place").read_text()) as archive:
        raw = pickle.load(archive.extractfile("cifar-10-batches-py/test_batch"))[b"data"][3]
    assert np.array_equal(image[..., 1], raw[1024:2048].reshape(32, 32))


def test_xbd_keeps_classified_buildings_of_a_size(tmp_path):
    manifest = staged("xbd", tmp_path)
    assert manifest.counts["train"] == {"classes": [5, 0, 5, 5], "groups": 5}
    rejected = manifest.source["rejected"]
    assert {reason: entry["count"] for reason, entry in rejected.items()} == {
        "box smaller than 8 px": 10,
        "subtype un-classified": 10,
    }
    assert staged("xbd", tmp_path, "by-disaster", group="disaster").counts["train"]["groups"] == 3


def test_xbd_draws_the_papers_counts_from_buildings_with_images(tmp_path, monkeypatch):
    sources.xbd(tmp_path / "xbd")
    (tmp_path / "xbd/train/images/fire_00000001_post_disaster.png").unlink()
    monkeypatch.setattr(xbd, "PAPER_COUNTS", (4, 7, 2, 1))

    def drawn(to, seed):
        settings = {"size": 16, "match_paper_counts": True, "seed": seed}
        return stage("xbd", str(tmp_path / to), source=tmp_path / "xbd", settings=settings)

    manifest = drawn("a", 0)
    assert manifest.counts["train"]["classes"] == [4, 0, 2, 1], (
        "of class 0 all four that have images"
    )
    rejected = manifest.source["rejected"]
    assert rejected["missing image (post)"]["count"] == 3
    assert rejected["beyond the paper's 2 of major-damage"]["count"] == 2
    assert rejected["beyond the paper's 1 of destroyed"]["count"] == 3
    assert manifest.counts["test"]["classes"] == [5, 0, 5, 5], "the test split is left whole"
    tiles = {
        seed: open_dataset(drawn(f"s{seed}", seed)).split("train").column("tile").to_pylist()
        for seed in range(4)
    }
    assert tiles[0] == open_dataset(manifest).split("train").column("tile").to_pylist()
    assert len({tuple(entry) for entry in tiles.values()}) > 1


def test_what_an_xbd_file_has_beside_whole_buildings_is_left_out(tmp_path, to):
    """Two buildings without a uid are not the same building. The tiles of tier3 train if asked."""
    sources.xbd(tmp_path / "xbd")
    places = {"line": "POLYGON ((1 1, 9 9))", "away": sources.square(500, 500, 30), "": "", 7: ""}
    for side in ("pre", "post"):
        path = tmp_path / f"xbd/train/labels/fire_00000001_{side}_disaster.json"
        shown = json.loads(path.read_text())
        features = shown["features"]["xy"]
        features.append({"properties": {"feature_type": "road"}})
        for uid, wkt in places.items():
            building = {"feature_type": "building", "uid": uid, "subtype": "destroyed"}
            features.append({"properties": building, "wkt": wkt})
        if side == "pre":
            features[0]["properties"].pop("uid")
        path.write_text(json.dumps(shown))
    shutil.copytree(tmp_path / "xbd/train", tmp_path / "xbd/tier3")
    settings = {"size": 16, "tier3": True}
    manifest = stage("xbd", to, source=tmp_path / "xbd", settings=settings)
    assert manifest.counts["train"]["classes"] == [8, 0, 10, 10]
    rejected = {why: entry["count"] for why, entry in manifest.source["rejected"].items()}
    assert rejected == {
        "box outside the tile": 2,
        "box smaller than 8 px": 17,
        "not in the image before": 2,
        "subtype un-classified": 15,
        "without uid": 4,
    }


def test_xbd_crops_are_square_about_the_building():
    assert xbd.crop_box((100, 100, 120, 110), 0.0, 1024, 1024) == (100, 95, 120, 115)
    assert xbd.crop_box((100, 100, 120, 110), 0.5, 1024, 1024) == (90, 85, 130, 125)
    assert xbd.crop_box((0, 1000, 20, 1020), 0.5, 1024, 1024) == (0, 990, 30, 1024)
    assert xbd.crop_box((100.4, 100.4, 120.6, 110.6), 0, 1024, 1024) == (100, 95, 121, 116)


def test_xbd_reads_the_published_labels(shared):
    features = xbd._features(shared / "data/xbd_sample/joplin-tornado_00000050_post_disaster.json")
    boxes = [xbd.bounds(feature["wkt"]) for feature in features]
    assert len(boxes) == len(features) > 10
    assert all(
        box is not None and 0 <= box[0] < box[2] <= 1024 and 0 <= box[1] < box[3] <= 1024
        for box in boxes
    )
    assert {feature["properties"]["subtype"] for feature in features} <= {
        *xbd.CLASSES,
        "un-classified",
    }


# --- nothing executes data, and what is broken is named -----------------------------------------------------------


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: {b"data": x}, lambda x: np.array([x], dtype=object)]
)
def test_a_pickle_that_would_run_something_is_refused(wrap, tmp_path, to):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    forged = pickle.dumps(wrap(sources.Exploit(tmp_path / "executed")))
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (folder / name).write_bytes(forged)
    with refused(
        DataError,
        "data_batch_1 is not a pickle of plain arrays and is not loaded (it asks for posix.mkdir)",
    ):
        stage("cifar10", to, source=tmp_path)
    assert not (tmp_path / "executed").exists()


def test_an_array_of_objects_is_refused():
    with refused(DataError, "array of Python objects"):
        safety.unpickle(pickle.dumps([np.array([1, "a"], dtype=object)]), "forged")


@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles_of_every_protocol_are_read(protocol):
    value = {
        b"data": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "names": ["a", b"b"],
        "n": np.int64(3),
    }
    read = safety.unpickle(pickle.dumps(value, protocol=protocol), "plain")
    assert np.array_equal(read[b"data"], value[b"data"])
    assert next(value for key, value in read.items() if key != b"data") in (
        ["a", b"b"],
        [b"a", b"b"],
    )


def test_an_npz_of_objects_is_refused(tmp_path, to):
    np.savez(
        tmp_path / "d.npz", x_train=np.array([sources.Exploit(tmp_path / "executed")], dtype=object)
    )
    with refused(DataError, "plain arrays"):
        stage("mnist", to, source=tmp_path / "d.npz")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/root", "C:\\x", "..\\up"])
def test_a_name_that_leaves_the_folder_is_refused(name, tmp_path, to):
    with refused(DataError, "points outside"):
        safety.check_member(name, "archive")
    (tmp_path / "pairs.csv").write_text(f"pre,post,label\n{name},{name},0\n")
    with refused(DataError, "points outside"):
        stage("image-pairs", to, source=tmp_path / "pairs.csv")


def test_a_zip_bomb_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.csv", b"0" * 2**20)
    with (
        zipfile.ZipFile(tmp_path / "bomb.zip") as archive,
        refused(DataError, "expands beyond 1,000 bytes"),
    ):
        safety.read_member(archive, "x.csv", 1000)


def test_an_archive_of_arrays_is_read_once_and_others_than_a_datasets_are_named(tmp_path, to):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros((64, 2**16), np.uint8))
    tracemalloc.start()
    read = labelled_images.read_npz(path)["x"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read.shape == (64, 2**16) and peak < 1.5 * read.nbytes
    with refused(DataError, "has no x_train, y_train, x_test, y_test; it holds x"):
        stage("mnist", to, source=path)


@pytest.mark.parametrize("at", [0, 3, 12, 21, -1])
def test_a_damaged_file_of_a_library_is_one_line(tmp_path, to, at):
    """gzip, zlib, lzma and NumPy each raise errors of their own."""
    packed = bytearray(gzip.compress(b"\0\0\x08\x01\0\0\0\x40" + bytes(range(64))))
    packed[at] ^= 0x55
    for split in ("train", "t10k"):
        for part in ("images-idx3", "labels-idx1"):
            (tmp_path / f"{split}-{part}-ubyte.gz").write_bytes(packed)
    with refused(DataError, match=r"^mnist cannot be staged from .* \(\w+: .*line \d+\)"):
        stage("mnist", to, source=tmp_path)
    assert not (tmp_path / "to").exists()


def png(width, height, bits, kind, data):
    """A PNG with this header (`kind`: its colour type) and these pixels, whether they fit or not."""
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(data), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )


def test_broken_images_and_bombs_are_counted_by_name_and_left_out(tmp_path, to):
    (tmp_path / "source").mkdir()
    source = sources.image_folder(tmp_path / "source")
    cats = tmp_path / "source/train/cat"
    (cats / "bomb.png").write_bytes(png(60_000, 60_000, 8, 2, b"\0" * 100))
    (cats / "large.png").write_bytes(png(10_000, 10_000, 8, 2, b"\0" * 100))
    whole = (cats / "0.png").read_bytes()
    (cats / "cut.png").write_bytes(whole[: len(whole) // 2])
    (cats / "text.png").write_text("not an image")
    (cats / "empty.png").write_bytes(b"")
    manifest = stage("image-folder", to, source=source)
    assert manifest.counts["train"]["classes"] == [6, 6]
    assert manifest.source["rejected"] == {
        "broken image": {
            "count": 5,
            "first": [f"cat/{name}.png" for name in ("bomb", "cut", "empty", "large", "text")],
        }
    }
    assert inspecting.show(manifest)["source"]["rejected"]["broken image"]["count"] == 5


def test_images_of_several_sizes_are_staged_as_they_are(tmp_path, to):
    sources.image_folder(tmp_path)
    tall = tmp_path / "train/dog/tall.png"
    sources.png(tall, 40, 20)
    manifest = stage("image-folder", to, source=tmp_path)
    part = open_dataset(manifest).split("train")
    row = part.column("path").to_pylist().index("dog/tall.png")
    assert manifest.columns["image"]["shape"] == [0, 0, 3]
    assert (part.file("image").item(row) == np.asarray(Image.open(tall).convert("RGB"))).all()
    with refused(
        DataError, match=r"these images differ in size, so they are no array: .*view_size"
    ):
        part.array("image")
    smaller = open_dataset(
        stage(
            "image-folder", str(tmp_path / "less"), source=tmp_path, settings={"longest_side": 20}
        )
    ).split("train")
    assert smaller.file("image").item(row).shape == (20, 10, 3)
    manifest = stage("image-folder", str(tmp_path / "cut"), source=tmp_path, settings={"size": 10})
    assert open_dataset(manifest).split("train").array("image").shape == (13, 10, 10, 3)


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_without_a_class_is_refused(label):
    part = np.zeros((2, 4, 4), np.uint8), np.array([0, label])
    with refused(DataError, f"train has a label outside 0 to 1: {min(0, label)}"):
        labelled_images.content({"train": part}, ("a", "b"), "x.npz")


def test_a_truncated_idx_file_is_named(tmp_path, to):
    sources.idx(tmp_path)
    path = tmp_path / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-5])
    with refused(
        DataError, "train-labels-idx1-ubyte is truncated: its header announces (50,), it holds 45"
    ):
        stage("mnist", to, source=tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "content", "settings", "says"),
    [
        ("mnist", "t10k-labels-idx1-ubyte", b"PK", {}, "is not an idx file of unsigned bytes"),
        ("imagenet-lt", "ImageNet_LT_val.txt", b"\na.png cat\n", {}, "txt:2: must be a path and a"),
        (
            "xbd",
            "train/labels/fire_00000001_post_disaster.json",
            b"{}",
            {},
            "is not an xBD label file",
        ),
        (
            "xbd",
            "train/labels/fire_00000001_pre_disaster.json",
            b'{"features": {"xy": [{"properties": {}}, {"properties": 1}]}}',
            {},
            "TypeError('a feature without properties')",
        ),
    ],
)
def test_a_file_that_is_not_in_the_published_format_is_named(
    name, file, content, settings, says, tmp_path
):
    (tmp_path / "source").mkdir()
    place = sources.SOURCES[name](tmp_path / "source")
    (place / file).write_bytes(content)
    with refused(DataError, says):
        stage(
            name,
            str(tmp_path / "to"),
            source=place,
            settings=sources.SETTINGS.get(name, {}) | settings,
        )


def test_batches_of_cifar_in_another_layout_are_named(tmp_path, to):
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        batch = {b"data": np.zeros((2, 9), np.uint8), b"labels": [0, 1]}
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch))
    with refused(DataError, "train is not in CIFAR's published layout (ValueError"):
        stage("cifar10", to, source=tmp_path)


def test_a_listed_image_that_is_missing_is_counted_and_left_out(tmp_path):
    (tmp_path / "source").mkdir()
    sources.SOURCES["imagenet-lt"](tmp_path / "source")
    (tmp_path / "source/photos/ImageNet_LT_train.txt-0.png").unlink()
    manifest = stage("imagenet-lt", str(tmp_path / "to"), source=tmp_path / "source")
    assert manifest.source["rejected"]["missing image"]["count"] == 1


def test_a_pickle_that_asks_for_a_codec_is_refused():
    with refused(DataError, "it asks for the codec rot13"):
        safety.unpickle(b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "forged")


def png16(kind, channels):
    """A PNG of 16 bits a channel, 8 x 8: Pillow writes only grey ones."""
    row = b"\0" + (np.arange(8 * channels) * 1000).astype(">u2").tobytes()
    return png(8, 8, 16, kind, row * 8)


def deep_images():

    result = {
        f"png-{kind}": png16(kind, channels) for kind, channels in ((0, 1), (2, 3), (4, 2), (6, 4))
    }
    for dtype in ("uint16", "int32", "float32"):
        Image.fromarray(np.ones((8, 8), dtype)).save(file := io.BytesIO(), "TIFF")
        result[f"tiff-{dtype}"] = file.getvalue()
    return result


@pytest.mark.parametrize("name", list(deep_images()))
def test_an_image_of_more_than_8_bits_a_channel_is_refused(name):
    """Pillow clips some of them and takes the high byte of others; what they mean is the owner's to say."""
    with pytest.raises(
        images.BrokenImage,
        match=r"has more than 8 bits a channel \(.*\): convert it to 8 bit first",
    ):
        images.decode(deep_images()[name])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_photograph_is_as_viewers_show_it(kind, tmp_path):
    """A camera that was turned says so in the EXIF data; crops of pairs are counted on the upright image."""
    pixels = np.zeros((24, 16, 3), np.uint8)
    pixels[:8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter to the right shows it upright
    lying = Image.fromarray(np.rot90(pixels).copy())
    lying.save(
        file := io.BytesIO(), kind, exif=exif, **({"quality": 100} if kind == "JPEG" else {})
    )
    upright = images.decode(file.getvalue())
    assert upright.shape == (24, 16, 3)
    assert np.abs(upright.astype(int) - pixels).max() < 40
    # Broken EXIF data, which Pillow writes to all but a TIFF, are no reason to leave a photograph out.
    if kind != "TIFF":
        lying.save(broken := io.BytesIO(), kind, exif=b"Exif\0\0no EXIF data")
        assert images.decode(broken.getvalue()).shape == (16, 24, 3)
    _, small = images.scaled_down(upright, 12, file.getvalue())
    assert small.shape == (12, 8, 3) and small[:3].min() > 200 and small[6:].max() < 50


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (kind, mode)
        for kind in ("PNG", "TIFF", "WEBP")
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA")
    ]
    + [("BMP", mode) for mode in ("1", "L", "P", "RGB")],
)
def test_images_of_8_bits_or_fewer_a_channel_are_read(kind, mode):

    Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode).save(file := io.BytesIO(), kind)
    assert np.unique(images.decode(file.getvalue())).tolist() == [255]


def test_a_png_that_ends_before_its_pixels_is_broken():
    Image.new("RGB", (8, 8)).save(file := io.BytesIO(), "PNG")
    header, _, _ = file.getvalue().partition(b"IDAT")
    with pytest.raises(images.BrokenImage, match="cannot be decoded"):
        images.decode(header[:-4] + b"\0\0\0\0IEND\xaeB`\x82")


def test_an_image_of_another_shape_is_cut_about_its_centre():
    tall = np.random.default_rng(0).integers(256, size=(20, 8, 3), dtype=np.uint8)
    for whole, middle in ((tall, tall[6:14]), (tall.swapaxes(0, 1), tall[6:14].swapaxes(0, 1))):
        Image.fromarray(whole).save(file := io.BytesIO(), "PNG")
        assert np.array_equal(images.decode(file.getvalue(), [8, 8, 3]), middle)
    # Scaled to cover the square, this one would have 224 x 3,758,096,384 pixels.
    Image.new("1", (1, 2**24)).save(file := io.BytesIO(), "PNG")
    assert not images.decode(file.getvalue(), [224, 224, 3]).any()


def test_deep_images_are_counted_with_what_to_do(tmp_path, to):
    reason = "more than 8 bits a channel, convert to 8 bit first"
    sources.image_folder(tmp_path / "folder")
    (tmp_path / "folder/train/cat/deep.png").write_bytes(png16(0, 1))
    manifest = stage("image-folder", to, source=tmp_path / "folder")
    assert manifest.source["rejected"] == {reason: {"count": 1, "first": ["cat/deep.png"]}}
    path = sources.image_pairs(tmp_path / "pairs")
    for image in (tmp_path / "pairs/pre").iterdir():
        image.write_bytes(png16(0, 1))
    with refused(DataError, match=rf"gave no rows of the split train; left out: .*{reason}"):
        stage("image-pairs", str(tmp_path / "to4"), source=path)


@pytest.mark.parametrize(
    ("place", "value", "rule"),
    [
        ("xbd.context", -0.6, "greater than or equal to 0"),
        ("xbd.seed", 2**32, "less than 4294967296"),
        ("image-folder.size", 0, "greater than or equal to 1"),
    ],
)
def test_settings_have_bounds(place, value, rule, tmp_path):
    name, setting = place.split(".")
    with refused(SpecError, match=rf"{place}: .*{rule}, got {value}"):
        staged(name, tmp_path, **{setting: value})


# --- WebDataset and Hugging Face -------------------------------------------------------------------------------------


def test_images_of_parquet_are_those_that_hugging_face_reads(tmp_path):
    import datasets

    manifest = staged("hugging-face", tmp_path)
    assert manifest.classes == ("cat", "dog") and set(manifest.splits) == {"train", "test"}
    train = open_dataset(manifest).split("train")
    place = str(tmp_path / "source/data")
    theirs = datasets.load_dataset("parquet", data_dir=place, cache_dir=str(tmp_path))["train"]
    pictures = [np.asarray(datasets.Image().decode_example(row)) for row in theirs["image"]]
    assert np.array_equal(train.array("image"), np.stack(pictures))
    assert train.labels.tolist() == theirs["fine"]


def test_samples_of_tars_have_their_label_and_their_place(tmp_path):
    manifest = staged("webdataset", tmp_path)
    assert manifest.classes == ("cat", "dog", "owl") and set(manifest.splits) == {"train", "test"}
    train = open_dataset(manifest).split("train")
    assert train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    assert train.column("path").to_pylist()[6] == "train-001.tar/part/0000"


@pytest.mark.parametrize("name", ["webdataset", "hugging-face"])
def test_images_of_archives_need_no_labels(name, tmp_path):
    without = staged(name, tmp_path, label="none")
    part = open_dataset(without).split("train")
    assert without.classes == () and not part.labelled
    with refused(DataError, "has no labels; columns: "):
        part.labels  # noqa: B018
    with refused(DataError, "split 'train' has no column 'roi' of several items per row"):
        part.ragged("roi")


@pytest.mark.slow
def test_a_tar_that_is_cut_anywhere_is_refused(tmp_path, to):
    whole = sources.webdataset(tmp_path / "tars") / "train-000.tar"
    data = whole.read_bytes()
    drawn = random.Random(11)
    last = len(data.rstrip(b"\0")) // tarfile.BLOCKSIZE * tarfile.BLOCKSIZE + 3 * tarfile.BLOCKSIZE
    cuts = [
        *range(tarfile.BLOCKSIZE, last - 1, tarfile.BLOCKSIZE),
        *(drawn.randrange(1, last) for _ in range(80)),
    ]
    for cut in cuts:
        whole.write_bytes(data[:cut])
        with pytest.raises(DataError, match=r"train-000\.tar"):  # a reason by the bytes
            stage("webdataset", to, source=whole)
    whole.write_bytes(data[:last])
    assert stage("webdataset", to, source=whole).rows("train") == 6


def test_a_folder_that_cannot_be_read_is_named_and_not_left_out(tmp_path, to, monkeypatch):
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    sources.png(sources.image_folder(tmp_path / "photos") / "train/dog/locked/0.png")
    monkeypatch.setattr(os, "scandir", scandir)
    for importer in ("image-folder", "images", "webdataset"):
        with refused(DataError, "Permission denied"):
            stage(importer, to, source=tmp_path / "photos")


def test_neither_image_of_a_synthetic_pair_tells_its_label_alone(tmp_path):
    """The share that is blue after is the lakes' and the flood's; less the share before, the label's share."""
    pairs = open_dataset(staged("synthetic-pairs", tmp_path, pairs=100, size=16)).split("train")
    labels = np.asarray(pairs.column("label"))
    water = {side: _blue(pairs.array(side)) for side in ("pre", "post")}
    flooded = water["post"] - water["pre"]
    assert np.bincount(labels).tolist() == [20] * 5
    np.testing.assert_allclose(flooded, 0.1 * labels, atol=1 / 256 + 1e-9)
    by_class = {side: [shares[labels == k] for k in range(5)] for side, shares in water.items()}
    assert all(np.ptp(by_class["post"][k]) > 0.25 for k in range(5)), (
        "classes overlap on the second image"
    )
    assert abs(np.corrcoef(labels, water["pre"])[0, 1]) < 0.3


def _blue(images):
    values = np.asarray(images).astype(int)
    return (values[..., 2] > values[..., 1]).mean((1, 2))
