"""Datasets that somebody wrote so: digests that are right, and content that is not what it says."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused

from contrasweep.canonical import file_digest
from contrasweep.data import columns, inspecting, open_dataset, stage
from contrasweep.data.columns import content_digest
from contrasweep.data.manifest import MANIFEST, Manifest, Shard
from contrasweep.errors import DataError

ROWS = 3


def forged(folder, image=None, **spec):
    """A dataset of three rows of eight numbers, as it lies in a storage; `image` and its entry are what is given."""
    folder.mkdir()
    stored = columns.from_array(np.zeros((ROWS, 8), np.uint8)) if image is None else image
    table = pa.table({"image": stored, "label": pa.array([0, 1, 0])})
    pq.write_table(table, folder / "train.parquet")
    return described(folder, content_digest(table), **spec)


def described(folder, content, **spec):
    file = folder / "train.parquet"
    shard = Shard("train.parquet", ROWS, file.stat().st_size, file_digest(file), content)
    entry = {"dtype": "uint8", "shape": [8]} | spec
    manifest = Manifest(
        "forged", str(folder), "image", {"train": (shard,)}, ("a", "b"), {"image": entry}
    )
    (folder / MANIFEST).write_text(manifest.to_json())
    return manifest


def read(manifest):
    """The images of the training split, of the manifest as it is stored."""
    again = Manifest.from_json((Path(manifest.uri) / MANIFEST).read_bytes(), manifest.uri)
    return open_dataset(again).split("train").array("image")


def test_what_nobody_forged_is_read(tmp_path):
    assert read(forged(tmp_path / "d")).tolist() == [[0] * 8] * ROWS


def test_a_shard_with_a_column_that_staging_refuses_is_a_finding(tmp_path):
    pq.write_table(pa.table({"made": [{"a": 1}] * ROWS}), tmp_path / "train.parquet")
    (finding,) = inspecting.verify(described(tmp_path, "0" * 64))
    assert "the column 'made' has the type struct" in finding.problem


@pytest.mark.parametrize(
    "dtype", ["O", "object", "|O", "V8", "S8", "M8[s]", "complex64", "{'a': 'O'}", "u1, O", "no"]
)
def test_a_column_of_objects_is_refused_before_anything_is_read(dtype, tmp_path):
    manifest = forged(tmp_path / "d", dtype=dtype)
    where = str(tmp_path / "d" / MANIFEST)
    with refused(DataError, where, "its dtype must be one of bool, uint8", dtype):
        read(manifest)


@pytest.mark.parametrize(
    ("image", "spec", "says"),
    [
        (pa.array([b"1" * 8, None, b"2" * 8], pa.binary(8)), {}, "with 1 nulls"),
        (
            pa.array([b"12345678"] * ROWS, pa.binary(8)),
            {"dtype": "float64"},
            "is stored as fixed_size_binary[8]",
        ),
        (pa.array(["text"] * ROWS), {}, "is stored as string"),
        (pa.array([[1]] * ROWS), {}, "is stored as list"),
        (pa.array([1, 2, 3]), {"list": True}, "is stored as int64"),
        (pa.array([["a"]] * ROWS), {"list": True}, "is stored as string"),
        (pa.array([1.0] * ROWS), {"encoding": "image", "shape": [2, 2, 3]}, "is stored as double"),
    ],
)
def test_a_column_that_is_stored_otherwise_names_the_shard(image, spec, says, tmp_path):
    manifest = forged(tmp_path / "d", image, **spec)
    with refused(DataError, "train.parquet, column 'image'", says, "stage the dataset again"):
        read(manifest)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1" + bytes(40) + b"PAR1", b"\x93NUMPY\x01\x00 no parquet"]
)
def test_a_shard_that_is_no_parquet_file_names_it(content, tmp_path):
    folder = tmp_path / "d"
    forged(folder)
    (folder / "train.parquet").write_bytes(content)
    manifest = described(folder, "")
    with refused(DataError, "train.parquet is no Parquet file of rows"):
        read(replace(manifest))


def archive(file, **arrays):
    ok = {"x": np.zeros((2, 28, 28), np.uint8), "y": np.zeros(2, np.int64)}
    whole = {f"{name}_{split}": array for split in ("train", "test") for name, array in ok.items()}
    np.savez(file, **{**whole, **arrays})
    return file


@pytest.mark.parametrize(
    "labels",
    [np.array(["a", "b"]), np.array([1j, 0]), np.zeros(2, "M8[s]"), np.zeros(2, [("a", "i4")])],
)
def test_labels_of_an_archive_that_are_no_numbers_are_refused(labels, tmp_path, to):
    with refused(DataError, "y_train must be an array of numbers"):
        stage("mnist", to, source=archive(tmp_path / "d.npz", y_train=labels))


@pytest.mark.parametrize("label", [0.9, float("nan")])
def test_labels_of_an_archive_that_are_not_whole_are_refused(label, tmp_path, to):
    file = archive(tmp_path / "d.npz", y_test=np.array([1.0, label]))
    with refused(DataError, "y_test must be class numbers, and some are not whole"):
        stage("mnist", to, source=file)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x_train": np.zeros((2, 28, 28))}, "train must be uint8 images"),
        ({"x_train": np.zeros((3, 28, 28), np.uint8)}, r"got uint8 [3, 28, 28, 1] and 2 labels"),
        ({"x_test": np.zeros((2, 9, 9), np.uint8)}, "test images are (9, 9, 1), those before (28"),
    ],
)
def test_images_of_an_archive_that_do_not_fit_together_are_refused(arrays, says, tmp_path, to):
    with refused(DataError, says):
        stage("mnist", to, source=archive(tmp_path / "d.npz", **arrays))


@pytest.mark.parametrize("how", ["header", "size", "method", "compressed", "bzip2"])
def test_an_archive_that_was_tampered_with_is_one_line(how, tmp_path, to):
    file = tmp_path / "d.npz"
    shape = (2**40, 2**20) if how == "size" else (2,)
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    header = "(" * 117 + "\n" if how == "header" else header
    kinds = {
        "compressed": zipfile.ZIP_DEFLATED,
        "bzip2": zipfile.ZIP_BZIP2,
    }  # which Python unpacks whole
    with zipfile.ZipFile(file, "w", kinds.get(how, zipfile.ZIP_STORED)) as out:
        out.writestr(
            "x_train.npy",
            b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.encode() + bytes(2),
        )
    data = bytearray(file.read_bytes())
    if how == "method":  # one that nobody knows, in both headers
        data[8:10] = (99).to_bytes(2, "little")
        at = data.index(b"PK\x01\x02") + 10
        data[at : at + 2] = (99).to_bytes(2, "little")
    if how == "compressed":
        data[45:60] = bytes(range(200, 215))
    file.write_bytes(data)
    with refused(DataError, "cannot be read as a NumPy archive of plain arrays"):
        stage("mnist", to, source=file)
