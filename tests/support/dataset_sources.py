"""A small source in the published format of every dataset: the formats are real, the content is made up unless the
name says where it comes from."""

import csv
import gzip
import io
import json
import os
import pickle
import struct
import tarfile

import numpy as np
from PIL import Image

RANDOM = np.random.RandomState(7)


def png(path, height=12, width=12):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RANDOM.randint(0, 256, (height, width, 3)).astype(np.uint8)).save(path)
    return path


def bundled(folder):
    return None


def idx(folder):
    for name, n in (("train", 50), ("t10k", 20)):
        images = RANDOM.randint(0, 256, (n, 28, 28)).astype(np.uint8)
        header = b"\0\0\x08\x03" + struct.pack(">3I", n, 28, 28)
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(header + images.tobytes())
        )
        labels = bytes(i % 10 for i in range(n))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            b"\0\0\x08\x01" + struct.pack(">I", n) + labels
        )
    return folder


def npz(folder):
    arrays = {
        f"x_{split}": RANDOM.randint(0, 256, (n, 28, 28)).astype(np.uint8)
        for split, n in (("train", 50), ("test", 20))
    }
    np.savez(folder / "d.npz", **arrays, y_train=np.arange(50) % 10, y_test=np.arange(20) % 10)
    return folder / "d.npz"


def cifar(classes, per_class):
    """The tar that torchvision downloads, its batches pickled under protocol 2 with bytes for keys, as Python 2 did."""
    n = classes * per_class
    labels = [i % classes for i in range(n)]

    def batch(key):
        return pickle.dumps(
            {
                b"data": RANDOM.randint(0, 256, (n, 3072)).astype(np.uint8),
                key: labels,
                b"batch_label": b"x",
            },
            protocol=2,
        )

    if classes == 10:
        members = {f"cifar-10-batches-py/data_batch_{i}": batch(b"labels") for i in range(1, 6)}
        members["cifar-10-batches-py/test_batch"] = batch(b"labels")
    else:
        members = {f"cifar-100-python/{name}": batch(b"fine_labels") for name in ("train", "test")}
        names = [f"class {i}".encode() for i in range(100)]
        members["cifar-100-python/meta"] = pickle.dumps({b"fine_label_names": names}, protocol=2)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def cifar10(folder):
    (folder / "cifar-10-python.tar.gz").write_bytes(cifar(10, 20))
    return folder / "cifar-10-python.tar.gz"


def cifar100(folder):
    (folder / "c100.tar.gz").write_bytes(cifar(100, 2))
    with tarfile.open(folder / "c100.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def lists(*names):
    def make(folder):
        for name in names:
            lines = [
                f"{png(folder / 'photos' / f'{name}-{i}.png', 20 + i, 30).relative_to(folder).as_posix()} {i}"
                for i in range(3)
            ]
            (folder / name).write_text("\n".join(lines) + "\n")
        return folder

    return make


def image_folder(folder):
    for split, n in (("train", 6), ("val", 2)):
        for name in ("cat", "dog"):
            for i in range(n):
                png(folder / split / name / f"{i}.png")
    (folder / "train/cat/notes.txt").write_text("no image")
    return folder


def image_captions(folder):
    for split, n in (("train", 6), ("val", 3)):
        rows = [
            (png(folder / split / f"photos/{i}.png"), f'a {side} view, "number" {i}')
            for i in range(n)
            for side in ("left", "right")
        ]
        with (folder / split / "captions.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                [("file", "caption"), *((f"photos/{path.name}", text) for path, text in rows)]
            )
    return folder


def png_bytes():
    buffer = io.BytesIO()
    Image.fromarray(RANDOM.randint(0, 256, (10, 12, 3)).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def webdataset(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for shard, n in (("train-000.tar", 6), ("train-001.tar", 5), ("val-000.tar", 4)):
        with tarfile.open(folder / shard, "w") as archive:
            for i in range(n):
                members = {"png": png_bytes(), "cls": str(i % 3).encode(), "json": b'{"Kind": 1}'}
                for extension, data in members.items():
                    case = str.upper if i % 2 else str.lower
                    info = tarfile.TarInfo(f"part/{i:04d}.{case(extension)}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    (folder / "classes.txt").write_text("cat\ndog\nowl\n")
    return folder


def hugging_face(folder):
    """As `datasets` itself writes it."""
    import datasets

    for split, n in (("train", 7), ("validation", 3)):
        rows = {
            "image": [{"bytes": png_bytes(), "path": f"{i}.png"} for i in range(n)],
            "coarse": [0] * n,
            "fine": [i % 2 for i in range(n)],
        }
        features = datasets.Features(
            {
                "image": datasets.Image(),
                "coarse": datasets.ClassLabel(names=["animal"]),
                "fine": datasets.ClassLabel(names=["cat", "dog"]),
            }
        )
        (folder / "data").mkdir(parents=True, exist_ok=True)
        data = datasets.Dataset.from_dict(rows, features=features)
        data.to_parquet(folder / f"data/{split}-00000-of-00001.parquet")
    return folder


def image_pairs(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["pre", "post", "x", "y", "size", "label", "group", "fold"])
        for tile in range(4):
            pre, post = (
                png(folder / side / f"{tile}.png", 32, 32).relative_to(folder)
                for side in ("pre", "post")
            )
            for x in (0, 16):
                writer.writerow([pre, post, x, 0, 16, x // 16, f"tile{tile}", tile % 2])
    return folder / "pairs.csv"


def ombria(folder):
    image_pairs(folder).rename(folder / "pairs_5class.csv")
    return folder


def square(x, y, side):
    return f"POLYGON (({x} {y}, {x + side} {y}, {x + side} {y + side}, {x} {y + side}, {x} {y}))"


def xbd(folder):
    for split in ("train", "test"):
        for tile in (
            *(f"{kind}_0000000{n}" for kind in ("flood", "fire") for n in (1, 2)),
            "quake_00000001",
        ):
            post = [
                ("no-damage", 10, 10, 20),
                ("destroyed", 60, 60, 30),
                ("minor-damage", 90, 5, 5),
                ("un-classified", 5, 70, 20),
                ("major-damage", 0, 100, 20),
            ]
            for moment in ("pre", "post"):
                features = [
                    {
                        "properties": {
                            "feature_type": "building",
                            "uid": f"{tile}-{i}",
                            **({"subtype": kind} if moment == "post" else {}),
                        },
                        "wkt": square(x, y, side),
                    }
                    for i, (kind, x, y, side) in enumerate(post)
                ]
                labels = folder / split / "labels"
                labels.mkdir(parents=True, exist_ok=True)
                (labels / f"{tile}_{moment}_disaster.json").write_text(
                    json.dumps({"features": {"xy": features, "lng_lat": []}, "metadata": {}})
                )
                png(folder / split / f"images/{tile}_{moment}_disaster.png", 128, 128)
    return folder


def sick(folder):
    lines = ["pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set"]
    for i in range(27):
        label = ["NEUTRAL", "ENTAILMENT", "CONTRADICTION"][i % 3]
        part = ["TRAIN", "TRIAL", "TEST"][i // 9]
        lines.append(f'{i}\ta "quoted {i}\tb\t{label}\t3.5\t{part}')
    (folder / "SICK.txt").write_text("\n".join(lines) + "\n")
    return folder


IMAGENET = "ImageNet_LT_train.txt", "ImageNet_LT_val.txt", "ImageNet_LT_test.txt"
SOURCES = {
    "digits": bundled,
    "digits-lt": bundled,
    "synthetic-pairs": bundled,
    "mnist": idx,
    "fashion-mnist": npz,
    "cifar10": cifar10,
    "cifar10-lt": cifar10,
    "cifar100": cifar100,
    "cifar100-lt": lambda folder: cifar100(folder) / "cifar-100-python",
    "imagenet-lt": lists(*IMAGENET),
    "inaturalist-lt": lists("iNaturalist18_train.txt", "iNaturalist18_val.txt"),
    "image-folder": image_folder,
    "images": image_folder,
    "image-captions": image_captions,
    "webdataset": webdataset,
    "hugging-face": hugging_face,
    "image-pairs": image_pairs,
    "hra": image_pairs,
    "ombria": ombria,
    "xbd": xbd,
    "sick": sick,
}
SETTINGS = {
    "cifar10-lt": {"imbalance_factor": 10},
    "cifar100-lt": {"imbalance_factor": 2},
    "imagenet-lt": {"size": 16},
    "inaturalist-lt": {"size": 16},
    "hugging-face": {"label": "fine"},
    "xbd": {"size": 16},
}


class Exploit:
    """Unpickling it makes a folder."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)
