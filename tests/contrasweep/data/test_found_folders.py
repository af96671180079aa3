"""Folders of pictures, tars and Parquet files as people have them: staged as they mean it, or refused in a line."""

import io
import json
import logging
import os
import random
import shutil
import tarfile
import unicodedata
from collections.abc import Callable
from pathlib import Path

import dataset_sources as sources
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused

from contrasweep import AblationGrid, Arm, DataError
from contrasweep.data.reading import open_dataset
from contrasweep.data.resolving import resolve
from contrasweep.data.staging import stage
from contrasweep.planning.planner import plan
from contrasweep.running.prepare import study_document

CLASSES = ("café", "dog", "owl")
Rows = dict[str, dict[str, int]]
"""Split -> class -> images."""


def good(folder):
    for split, n in (("train", 4), ("test", 2)):
        for name in CLASSES:
            for i in range(n):
                sources.png(folder / split / name / f"{i}.png", 8, 8)
    return {"train": dict.fromkeys(CLASSES, 4), "test": dict.fromkeys(CLASSES, 2)}


def renamed(train, test):
    def change(folder, rows):
        (folder / "train").rename(folder / train)
        (folder / "test").rename(folder / test)

    return change


def added(path, data=None, label="", split="train"):
    """Add a file: an image that counts for `label`, "": it does not count."""

    def change(folder, rows):
        file = Path(os.fsdecode(os.fsencode(folder) + b"/" + path.encode("latin-1")))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(sources.png_bytes() if data is None else data)
        if label:
            rows[split][label] = rows[split].get(label, 0) + 1

    return change


def outside(folder, rows):
    inner = folder.with_name("inner")
    folder.rename(inner)
    (folder / "dataset/images").parent.mkdir(parents=True)
    inner.rename(folder / "dataset/images")


def decomposed(folder, rows):
    name = unicodedata.normalize("NFD", "café")
    (folder / "test/café").rename(folder / "test" / name)


def linked(folder, rows):
    sources.png(folder.with_name("more") / "a.png", 8, 8)
    (folder / "train/dog/more").symlink_to(folder.with_name("more"))
    rows["train"]["dog"] += 1


def looped(folder, rows):
    (folder / "train/owl/loop").symlink_to(folder / "train/owl")


def emptied(folder, rows):
    (folder / "train/horse").mkdir()
    rows["train"]["horse"] = 0


def unsplit(folder, rows):
    shutil.rmtree(folder / "test")
    del rows["test"]
    for name in CLASSES:
        (folder / "train" / name).rename(folder / name)
    (folder / "train").rmdir()


def copied(folder, rows):
    shutil.copy(folder / "train/dog/0.png", folder / "train/dog/copy.png")
    rows["train"]["dog"] += 1


JPEG = io.BytesIO()
sources.Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(JPEG, "JPEG")
INSIDE: dict[str, Callable[[Path, Rows], None]] = {
    "checkpoints in a class": added("train/dog/.ipynb_checkpoints/0-checkpoint.png"),
    "checkpoints in a split": added("train/.ipynb_checkpoints/0-checkpoint.png"),
    "a Mac's zip": added("train/__MACOSX/dog/._0.png", b"\0\5\x16\7"),
    "a Mac's second file": added("train/dog/._0.png", b"\0\5\x16\7"),
    "a thumbnail folder": added("test/@eaDir/0.png"),
    "thumbnails in a class": added("test/owl/@eaDir/0.png"),
    "accents by a Mac": decomposed,
    "a file from Windows": added("train/dog/caf\xe9.png", label="dog"),
    "a class from Windows": added("train/caf\xe9/0.png", label="caf\\xe9"),
    "a GIF": added("train/dog/a.gif", b"GIF89a"),
    "a JFIF": added("train/dog/a.jfif", JPEG.getvalue(), label="dog"),
    "capitals": added("train/dog/A.PNG", label="dog"),
    "no suffix": added("train/dog/picture"),
    "notes": added("train/dog/notes.txt", b"text"),
    "an empty class": emptied,
    "a copy": copied,
    "a linked folder": linked,
    "a loop": looped,
    "a folder below a class": added("train/dog/below/deep.png", label="dog"),
    "an image beside the classes": added("train/loose.png"),
    "a cut image": added("train/dog/cut.png", sources.png_bytes()[:60]),
    "an empty file": added("test/owl/empty.png", b""),
    "a hidden class": added("train/.git/0.png"),
}
AROUND: dict[str, Callable[[Path, Rows], None]] = {
    "Training": renamed("Training", "Testing"),
    "TRAIN": renamed("TRAIN", "VAL"),
    "train and dev": renamed("train", "dev"),
    "two folders around": outside,
    "a Mac's zip around": added("__MACOSX/._train", b"\0"),
    "a table beside": added("labels.csv", b"a,b"),
    "another folder beside": added("docs/readme.txt", b"text"),
    "checkpoints around": added(".ipynb_checkpoints/x.png"),
    "classes alone": unsplit,
}


def counts(manifest):
    return {
        split: dict(zip(manifest.classes, manifest.counts[split].get("classes", ()), strict=True))
        for split in manifest.splits
    }


@pytest.mark.parametrize("name", [*INSIDE, *AROUND])
def test_a_folder_as_people_have_it_is_staged_as_they_mean_it(name, tmp_path, to):
    rows = good(tmp_path / "photos")
    (INSIDE | AROUND)[name](tmp_path / "photos", rows)
    manifest = stage("image-folder", to, source=tmp_path / "photos")
    assert counts(manifest) == {
        split: dict.fromkeys(manifest.classes, 0) | of_split for split, of_split in rows.items()
    }
    assert set(manifest.classes) == {label for of_split in rows.values() for label in of_split}


def alone(folder, rows):
    shutil.rmtree(folder / "train")


def parts(folder, rows):
    (folder / "train").rename(folder / "part1")
    (folder / "test").rename(folder / "part2")


def twice(folder, rows):
    shutil.copytree(folder / "train", folder / "Training")


def capital(folder, rows):
    (folder / "test/dog").rename(folder / "test/Dog")


def flat(folder, rows):
    for split in ("train", "test"):
        shutil.rmtree(folder / split)
        sources.png(folder / split / "0.png", 8, 8)


def unsorted(folder, rows):
    shutil.rmtree(folder / "test")
    sources.png(folder / "test/images/0.png", 8, 8)


def unreadable(folder, rows):
    (folder / "train/dog/lost.png").symlink_to("/proc/self/mem")  # an error of input, as of a disk


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (unsorted, "test has the folder 'images' alone, which is no class of train"),
        (unreadable, r"cannot be staged from .*Errno 5\]"),
        (alone, "has folders of test and none of train"),
        (parts, "part1, part2 hold folders of the same names"),
        (twice, "has two folders of train: Training and train"),
        (capital, "train has a class 'dog' and test 'Dog'"),
        (flat, "has no class folders"),
    ],
)
def test_a_folder_that_can_be_meant_in_two_ways_is_refused_in_a_line(change, says, tmp_path, to):
    change(tmp_path / "photos", good(tmp_path / "photos"))
    with refused(DataError, match=says):
        stage("image-folder", to, source=tmp_path / "photos")
    assert not (tmp_path / "to/manifest.json").exists()


def test_a_folder_that_cannot_be_read_is_named_and_not_left_out(tmp_path, to, monkeypatch):
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    good(tmp_path / "photos")
    sources.png(tmp_path / "photos/train/dog/locked/0.png")
    monkeypatch.setattr(os, "scandir", scandir)
    for importer in ("image-folder", "images", "webdataset"):
        with refused(DataError, "Permission denied"):
            stage(importer, to, source=tmp_path / "photos")


def test_a_class_may_be_called_as_a_split_is(tmp_path, to):
    for name in ("train", "car", "bus"):
        sources.png(tmp_path / "photos" / name / "0.png", 8, 8)
    manifest = stage("image-folder", to, source=tmp_path / "photos")
    assert counts(manifest) == {"train": {"bus": 1, "car": 1, "train": 1}}


def test_what_is_left_out_is_counted_by_its_kind(tmp_path, to, caplog):
    folder = tmp_path / "photos"
    rows = good(folder)
    for name in (
        "a GIF",
        "no suffix",
        "an image beside the classes",
        "checkpoints in a class",
        "thumbnails in a class",
        "a Mac's second file",
    ):
        INSIDE[name](folder, rows)
    rejected = stage("image-folder", to, source=folder).source["rejected"]
    assert {reason: entry["first"] for reason, entry in rejected.items()} == {
        "file .gif": ["dog/a.gif"],
        "file without suffix": ["dog/picture"],
        "hidden file": ["dog/._0.png"],
        "hidden folder": ["dog/.ipynb_checkpoints", "owl/@eaDir"],
        "image beside the class folders": ["loose.png"],
    }
    assert "image-folder: left out 1 (file .gif), 1 (file without suffix), " in caplog.text


@pytest.mark.slow
def test_few_images_no_images_and_copies_are_said_in_stage_plan_and_report(tmp_path, caplog):
    folder = tmp_path / "photos"
    rows = good(folder)
    emptied(folder, rows)
    copied(folder, rows)
    shutil.copy(folder / "train/dog/1.png", folder / "test/owl/leak.png")
    (folder / "train/owl/3.png").unlink()
    told = [
        "fewer training rows than 5 folds: 4 of class 0 (café), 3 of class 3 (owl)",
        "no training row at all: class 2 (horse)",
    ]
    told.append("1 across splits, 1 of another class, 1 within; folds may part them")
    with caplog.at_level(logging.WARNING):
        stage("image-folder", str(tmp_path / "st/datasets/photos"), source=folder)
    assert all(text in caplog.text for text in told)
    study = AblationGrid("s", {"a": Arm("toy:train", {"epochs": 1})}, "photos", folds=4)
    planned = plan(study, storage=str(tmp_path / "st"))
    noted = "\n".join(study_document(planned).data_notes)
    assert "fewer training rows than 4 folds: 3 of class 3 (owl)" in noted and told[1] in noted
    assert told[2] in noted


@pytest.mark.parametrize("importer", ["image-folder", "webdataset"])
def test_copies_are_kept_in_one_fold_where_that_is_asked(importer, tmp_path):
    """All importers whose warning names the setting have it."""
    folder = tmp_path / "photos"
    if importer == "image-folder":
        good(folder)
        dogs = folder / "train/dog"
        for i in range(8):
            shutil.copy(dogs / "0.png", dogs / f"copy{i}.png")
        copied = {"dog/0.png", *(f"dog/copy{i}.png" for i in range(8))}
    else:
        pictures = [sources.png_bytes() for _ in range(8)]
        tar(folder / "train-0.tar", [0, 1] * 8, pictures=[*pictures, *pictures[:1] * 8])
        copied = {f"train-0.tar/s{i}" for i in (0, *range(8, 16))}
    place = str(tmp_path / "st/datasets/photos")
    stage(importer, place, source=folder, settings={"copies": "together"})
    data = open_dataset(resolve("photos", folds=3, storage=str(tmp_path / "st")))
    held = [set(data.parts(fold)[1].column("path").to_pylist()) for fold in range(3)]
    assert sorted(len(copied & paths) for paths in held) == [0, 0, 9]


# --- tars and Parquet files ------------------------------------------------------------------------------------------


def staged(kind, folder, source, to="to", **settings):
    return stage(kind, str(folder / to), source=folder / source, settings=settings)


def tar(
    file,
    labels,
    extension="png",
    member="cls",
    pictures=(),
    prefix="",
):
    """A tar of samples with labels and `pictures` (else random ones), each behind a file of a Mac if `prefix` is so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for i, label in enumerate(labels):
            for name, data in (
                (f"s{i}.{extension}", pictures[i] if pictures else sources.png_bytes()),
                (f"s{i}.{member}", str(label).encode()),
            ):
                for begin in ("", prefix) if prefix else ("",):
                    info = tarfile.TarInfo(f"{begin}{name}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return file


@pytest.mark.parametrize(
    ("train", "test"),
    [("training-0", "testing-0"), ("Train-0", "eval-0"), ("train", "dev"), ("train/0", "test/0")],
)
def test_a_test_file_is_never_one_of_training(train, test, tmp_path):
    tar(tmp_path / f"tars/{train}.tar", [0, 1, 1])
    tar(tmp_path / f"tars/{test}.tar", [0, 1])
    manifest = staged("webdataset", tmp_path, "tars")
    assert {split: manifest.rows(split) for split in manifest.splits} == {"train": 3, "test": 2}


@pytest.mark.parametrize("change", [{"prefix": "._"}, {"extension": "jfif"}, {"extension": "JPE"}])
def test_tars_of_a_mac_and_less_usual_extensions_are_read(change, tmp_path, to):
    manifest = stage("webdataset", to, source=tar(tmp_path / "train-0.tar", [0, 1, 1], **change))
    assert manifest.counts["train"]["classes"] == [1, 2] and "rejected" not in manifest.source


def test_a_file_of_neither_split_is_named(tmp_path, caplog):
    for name in ("train-0", "test-0", "val-0", "extra-0"):
        tar(tmp_path / f"tars/{name}.tar", [0, 1])
    with caplog.at_level(logging.WARNING):
        staged("webdataset", tmp_path, "tars")
    assert "left out 2 that are neither of train nor of test: extra-0.tar, val-0.tar" in caplog.text


def test_an_extension_that_is_no_image_is_counted_and_that_of_a_label_may_have_capitals(tmp_path):
    source = tmp_path / "tars"
    tar(source / "train-0.tar", [0, 1, 1], member="CLS")
    tar(source / "train-1.tar", [0], extension="tar.png", member="tar.cls")
    for label in ("cls", "CLS", "none"):
        manifest = stage(
            "webdataset", str(tmp_path / label), source=source, settings={"label": label}
        )
        assert manifest.rows() == 3
        assert manifest.source["rejected"] == {
            "no image of at most 64 MiB": {"count": 1, "first": ["train-1.tar/s0"]}
        }


@pytest.mark.parametrize("label", ["1.7", "true", "false", "Infinity", "NaN", "null", "[1]", "-1"])
def test_a_label_in_json_that_is_no_class_number_is_refused(label, tmp_path):
    labels = [f'{{"label": {text}}}' for text in ("0", "1.0", label)]
    file = tar(tmp_path / "train-0.tar", labels, member="json")
    to = str(tmp_path / "to")
    with refused(DataError, match=r"train-0\.tar: s2 has (no )?label"):
        stage("webdataset", to, source=file, settings={"label": "json:label"})
    tar(file, labels[:2], member="json")
    assert stage("webdataset", to, source=file, settings={"label": "json:label"}).classes == (
        "0",
        "1",
    )


@pytest.mark.slow
def test_a_tar_that_is_cut_anywhere_is_refused(tmp_path):
    whole = tar(tmp_path / "tars/train-0.tar", [i % 2 for i in range(12)])
    data = whole.read_bytes()
    drawn = random.Random(11)
    last = len(data.rstrip(b"\0")) // tarfile.BLOCKSIZE * tarfile.BLOCKSIZE + 3 * tarfile.BLOCKSIZE
    cuts = [
        *range(tarfile.BLOCKSIZE, last - 1, tarfile.BLOCKSIZE),
        *(drawn.randrange(1, last) for _ in range(80)),
    ]
    for cut in cuts:
        whole.write_bytes(data[:cut])
        with refused(DataError, "train-0.tar"):
            staged("webdataset", tmp_path, "tars")
    whole.write_bytes(data[:last])
    assert staged("webdataset", tmp_path, "tars").rows("train") == 12


def test_tars_that_were_joined_are_not_read_in_part(tmp_path):
    one = tar(tmp_path / "tars/train-0.tar", [0, 1])
    one.write_bytes(2 * one.read_bytes())
    with refused(DataError, "goes on behind its end"):
        staged("webdataset", tmp_path, "tars")


@pytest.mark.parametrize("label", [10**5, 2 * 10**9, 10**18])
def test_a_label_that_no_dataset_of_this_size_has_is_refused(label, tmp_path):
    tar(tmp_path / "tars/train-0.tar", [0, 1, label])
    with refused(
        DataError, match=rf"a label is {label:,}, of 3 samples; labels are class numbers from 0"
    ):
        staged("webdataset", tmp_path, "tars")


def parquet(file, labels, names):
    file.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": sources.png_bytes(), "path": "x"} for _ in labels]
    table = pa.table({"image": images, "label": pa.array(labels, pa.int64())})
    if names is not None:
        features = {"info": {"features": {"label": {"names": names}}}}
        table = table.replace_schema_metadata({b"huggingface": json.dumps(features).encode()})
    pq.write_table(table, file)


def test_parquet_files_are_those_that_no_program_left_behind(tmp_path):
    """Spark writes a folder for a file; Jupyter and a Mac leave copies."""
    for name in ("train.parquet/part-0", ".ipynb_checkpoints/train", "._train"):
        parquet(tmp_path / f"data/{name}.parquet", [0, 1], None)
    manifest = staged("hugging-face", tmp_path, "data")
    assert manifest.rows() == 2
    assert {"hidden file", "hidden folder"} == set(manifest.source["rejected"])


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (([0, None, 1], None), None, r"train-0\.parquet/1 has no label"),
        (([None, None], None), None, r"train-0\.parquet/0 has no label"),
        (
            ([0, 1, 2], ["cat", "dog"]),
            None,
            r"train-0\.parquet/2 has label 2; there are 2 class names, from 0",
        ),
        (
            ([0, 1], ["cat", "dog"]),
            ([0, 1], ["dog", "cat"]),
            r"other class names than .*, \['dog', 'cat'\] and \['cat', 'dog'\]; stage them apart",
        ),
        (([0, 1], ["cat", "dog"]), ([0], ["cat"]), r"\['cat'\] and \['cat', 'dog'\]"),
        (([0, 2 * 10**9], None), None, "a label is 2,000,000,000, of 2 samples"),
    ],
)
def test_labels_of_parquet_files_that_are_none_are_refused(first, second, says, tmp_path):
    parquet(tmp_path / "data/train-0.parquet", *first)
    if second:
        parquet(tmp_path / "data/train-1.parquet", *second)
    with refused(DataError, match=says):
        staged("hugging-face", tmp_path, "data")


def test_labels_that_are_texts_are_no_class_numbers(tmp_path):
    parquet(tmp_path / "data/train-0.parquet", [0, 1], None)
    file = tmp_path / "data/train-0.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(1, "label", pa.array(["cat", "dog"])), file)
    with refused(DataError, match=r"\(or none\); known columns of whole numbers: none$"):
        staged("hugging-face", tmp_path, "data")


def test_a_column_that_may_say_the_split_of_each_row_is_asked_for(tmp_path):
    """As in Flickr30k of Hugging Face, one file of all splits: its test images would be trained on without a word."""
    parquet(tmp_path / "data/train-0.parquet", [0, 1], None)
    file = tmp_path / "data/train-0.parquet"
    pq.write_table(pq.read_table(file).append_column("split", pa.array(["train", "test"])), file)
    with refused(DataError, "has a column 'split': if it names the split of each row, write a"):
        staged("hugging-face", tmp_path, "data")
    assert staged("hugging-face", tmp_path, "data", split="none").rows() == 2
    pq.write_table(pq.read_table(file).drop_columns("label"), file.with_name("train-1.parquet"))
    with refused(DataError, "train-1.parquet has no column 'label', which other files of the"):
        staged("hugging-face", tmp_path, "data", split="none")


def test_a_part_without_class_names_has_those_of_the_others(tmp_path):
    parquet(tmp_path / "data/train-0.parquet", [0, 1], None)
    parquet(tmp_path / "data/train-1.parquet", [1, 1], ["cat", "dog"])
    assert counts(staged("hugging-face", tmp_path, "data")) == {"train": {"cat": 1, "dog": 3}}
