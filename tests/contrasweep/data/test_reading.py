"""Reading, the node's cache, resolving names, and other tools on the same files."""

import json
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from command_line import python
from refusals import refused

from contrasweep.data import cache, inspecting, open_dataset, resolve, stage, staging
from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import DATASETS
from contrasweep.data.reading import shuffled
from contrasweep.data.resolving import staged_in
from contrasweep.errors import DataError, SpecError
from contrasweep.storage.record import DatasetRef


@pytest.fixture
def storage(request, runs):
    kind = getattr(request, "param", "folder")
    return runs if kind == "folder" else str(request.getfixturevalue("s3").uri)


@pytest.mark.parametrize("storage", ["folder", "s3"], indirect=True)
def test_parts_are_the_rows_they_say(storage):
    manifest = resolve("digits-lt", folds=5, storage=storage, write=True)
    assert manifest.uri.startswith(storage)
    dataset = open_dataset(manifest)
    whole = dataset.split("train")
    assert dataset.classes == manifest.classes
    seen = []
    for fold in range(5):
        train, test = dataset.parts(fold)
        assert not set(train.rows) & set(test.rows) and len(train) + len(test) == len(whole)
        for part in (train, test):
            assert np.array_equal(part.array("image"), whole.array("image")[part.rows])
            assert np.array_equal(part.labels, whole.labels[part.rows])
            assert np.array_equal(part.column("label").to_numpy(), part.labels)
        seen += test.rows.tolist()
    assert sorted(seen) == list(range(len(whole)))


def test_no_part_is_a_copy_and_writing_to_one_stays_private(tmp_path):
    manifest = resolve("digits", folds=4, storage=str(tmp_path))
    train, test = open_dataset(manifest).parts(1)
    mapped = [array for part in (train, test) for array in [part.array("image")]]
    assert all(array.base is not None and not array.flags.owndata for array in mapped)
    before = mapped[0].copy()
    mapped[0][:] = 0
    again = open_dataset(manifest).parts(1)[0].array("image")
    assert np.array_equal(again, before)


def test_folds_that_do_not_exist_are_spec_errors(tmp_path):
    storage = str(tmp_path)
    with refused(SpecError, "1397 rows cannot fill 1398 folds"):
        resolve("digits", folds=1398, storage=storage)
    dataset = open_dataset(resolve("digits", folds=5, storage=storage))
    with refused(SpecError, "has folds from 0, 5 a partition, got -1"):
        dataset.parts(-1)
    with refused(SpecError, "no folds: resolve it with folds=N"):
        open_dataset(resolve("digits", folds=None, storage=storage)).parts(0)
    with refused(DataError, "no split 'dev'; known splits: test, train"):
        dataset.split("dev")
    with refused(DataError, "no array 'pre'; known array columns: image"):
        dataset.split("test").array("pre")
    with refused(DataError, "no array 'label'; `labels` gives it"):
        dataset.split("test").array("label")


@pytest.mark.parametrize("given", [DatasetRef("digits", "0" * 16), "digits"])
def test_a_dataset_is_opened_by_its_manifest_not_by_name_nor_reference(given):
    with refused(SpecError, match=r"manifest; open_dataset\(.*resolve\('digits', folds=..., "):
        open_dataset(given)


def test_folds_change_the_digest_and_seeds_of_naming_do_not(tmp_path):
    storage = str(tmp_path)
    digests = {resolve("digits-lt", folds=folds, storage=storage).digest for folds in (None, 4, 5)}
    assert len(digests) == 3
    assert resolve("digits-lt", folds=5, storage=storage, write=True).digest in digests
    assert resolve("digits-lt?imbalance_factor=10", folds=5, storage=storage).digest in digests
    assert resolve("digits-lt?imbalance_factor=20", folds=5, storage=storage).digest not in digests


def test_a_plan_writes_nothing_into_the_storage(tmp_path, runs):
    resolve("digits", folds=5, storage=runs)
    assert not (tmp_path / "runs").exists()


def test_a_name_is_found_where_it_was_staged(tmp_path, runs, monkeypatch):
    storage = runs
    staged = stage("digits?", f"{storage}/datasets/mnist")  # a stand-in under another name
    assert resolve("mnist", folds=None, storage=storage).uri == staged.uri
    with refused(
        DataError,
        match=r"'sick' is not staged; stage it with: contrasweep data stage sick --source PATH --to "
        r"\S+/other/datasets/sick",
    ):
        resolve("sick", folds=None, storage=str(tmp_path / "other"))
    stage("digits", str(tmp_path / "lake/sick"))
    monkeypatch.setenv("CONTRASWEEP_DATA", str(tmp_path / "lake"))
    assert resolve("sick", folds=None, storage=str(tmp_path / "other")).uri == str(
        tmp_path / "lake/sick"
    )
    (tmp_path / "lake/app").mkdir()
    (tmp_path / "lake/app/manifest.json").write_text('{"name": "of another program"}')
    assert sorted((manifest.uri for manifest in staged_in(storage)), reverse=True) == [
        staged.uri,
        str(tmp_path / "lake/sick"),
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digit", "there is no dataset 'digit'; did you mean 'digits'"),
        ("./nowhere", "nowhere holds no staged dataset"),
        ("digits?size=3", "digits.size: there is no such field"),
        ("digits-lt?imbalance_factor=x", "digits-lt.imbalance_factor"),
    ],
)
def test_what_cannot_be_resolved_is_one_line_that_helps(name, message, tmp_path):
    with refused((DataError, SpecError), match=message):
        resolve(name, folds=5, storage=str(tmp_path))


# --- the digest -------------------------------------------------------------------------------------------------


def test_where_an_importers_tables_end_does_not_show(tmp_path, monkeypatch):

    monkeypatch.setattr("contrasweep.data.staging.SHARD_BYTES", 10_000)
    first = stage("digits", str(tmp_path / "a"))
    monkeypatch.setattr("contrasweep.data.importers.labelled_images.BATCH", 37)
    second = stage("digits", str(tmp_path / "b"))
    assert len(first.splits["train"]) > 5
    # Rows that are far larger than the first ones end a shard sooner.
    small = pa.table({"image": [bytes(100)] * 50})
    large = pa.table({"image": [bytes(3000)] * 60})
    shards = [
        [table.num_rows for table in staging._in_shards([small, *parts])]
        for parts in ([large], [large.slice(0, 7), large.slice(7, 8), large.slice(15)])
    ]
    assert shards == [[62, 14, 14, 14, 6]] * 2
    assert first.digest == second.digest
    assert inspecting.verify(second) == []
    parts = [
        open_dataset(manifest).split("train").array("image")
        for manifest in (first, resolve("digits", folds=None, storage="unused"))
    ]
    assert np.array_equal(*parts), "many shards read as one"


# --- the node's cache -------------------------------------------------------------------------------------------


def test_the_cache_stays_within_its_limit_and_drops_the_longest_unused(
    tmp_path, node_cache, monkeypatch
):
    used = []
    for factor in (10, 20, 30):
        open_dataset(
            stage(f"digits-lt?imbalance_factor={factor}", str(tmp_path / str(factor)))
        ).split("train")
        used.append({path.name for path in (node_cache / "splits").iterdir()} - set().union(*used))
        time.sleep(0.02)
    size = sum(cache._size(path) for path in (node_cache / "splits").iterdir())
    open_dataset(resolve(str(tmp_path / "10"), folds=None, storage="")).split(
        "train"
    )  # now 20 is the longest unused
    monkeypatch.setenv("CONTRASWEEP_CACHE_GIB", str((size + 1000) / 2**30))
    open_dataset(stage("digits-lt?imbalance_factor=40", str(tmp_path / "40"))).split("train")
    left = {path.name for path in (node_cache / "splits").iterdir()}
    assert not used[1] & left and used[0] <= left and used[2] <= left


def test_an_entry_that_somebody_opens_or_that_is_to_be_kept_is_not_evicted(tmp_path, node_cache):
    for factor in (10, 20, 30):
        name = f"digits-lt?imbalance_factor={factor}"
        open_dataset(stage(name, str(tmp_path / str(factor)))).split("train")
    opened, kept, other = (path.name for path in (node_cache / "splits").iterdir())
    with cache.locked(opened):
        removed = cache.evict(0, keep=kept)
    assert {path.name for path in (node_cache / "splits").iterdir()} == {opened, kept}
    assert removed > 0 and other not in (opened, kept)


def test_an_evicted_part_stays_readable(tmp_path, node_cache):
    part = open_dataset(resolve("digits", folds=None, storage=str(tmp_path))).split("train")
    expected = part.array("image").sum()
    assert cache.evict(0) > 0
    assert not list((node_cache / "splits").iterdir())
    assert part.array("image").sum() == expected


def _read(uri, count, results):
    from contrasweep.data import decoding

    real = decoding.decode_split

    def counted(*args):
        with count.get_lock():
            count.value += 1
        real(*args)

    decoding.decode_split = counted
    results.put(
        int(open_dataset(resolve(uri, folds=None, storage="")).split("train").array("image").sum())
    )


@pytest.mark.slow
def test_trials_that_start_at_once_decode_once(tmp_path):
    manifest = stage("digits", str(tmp_path / "d"))
    context = multiprocessing.get_context("fork")
    count = context.Value("i", 0)
    results = context.Queue()
    processes = [
        context.Process(target=_read, args=(manifest.uri, count, results)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    sums = {results.get(timeout=600) for _ in processes}
    for process in processes:
        process.join()
    assert count.value == 1 and len(sums) == 1


def test_a_cache_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    manifest = stage("digits", str(tmp_path / "d"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "file"))
    with refused(DataError, "CONTRASWEEP_CACHE"):
        open_dataset(manifest).split("train")
    monkeypatch.setenv("CONTRASWEEP_CACHE", "")
    assert cache.cache_folder() == Path.home() / ".cache/contrasweep"
    for limit in ("much", "inf", "nan"):
        monkeypatch.setenv("CONTRASWEEP_CACHE_GIB", limit)
        with refused(DataError, "CONTRASWEEP_CACHE_GIB must be a number"):
            cache.limit_bytes()


# --- order ------------------------------------------------------------------------------------------------------


def test_the_order_of_an_epoch_depends_on_seed_and_epoch_alone(tmp_path):
    part = open_dataset(resolve("digits", folds=5, storage=str(tmp_path))).parts(0)[0]
    order = np.concatenate(list(part.batches(64, seed=3, epoch=2)))
    assert sorted(order) == list(range(len(part)))
    assert np.array_equal(order, shuffled(len(part), 3, 2))
    assert not np.array_equal(order, shuffled(len(part), 3, 3))
    assert not np.array_equal(order, shuffled(len(part), 4, 2))
    assert {len(batch) for batch in part.batches(64, seed=3, epoch=2, drop_last=True)} == {64}
    assert shuffled(8, 0, 0).tolist() == [6, 3, 5, 0, 7, 2, 1, 4], "computed once, fixed for ever"


# --- other tools open the same files ------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    manifest = stage("digits", str(tmp_path / "digits"))
    images = open_dataset(manifest).split("train").array("image")
    return [str(tmp_path / "digits" / shard.file) for shard in manifest.splits["train"]], images


@pytest.mark.parametrize(
    ("tool", "read"),
    [
        (
            "datasets",
            lambda datasets, files, cache: datasets.load_dataset(
                "parquet", data_files={"train": files}, cache_dir=cache, split="train"
            )["image"],
        ),
        (
            "duckdb",
            lambda duckdb, files, _: [
                image
                for (image,) in duckdb.sql(f"select image from read_parquet({files})").fetchall()
            ],
        ),
        ("polars", lambda polars, files, _: polars.read_parquet(files)["image"].to_list()),
    ],
)
def test_other_tools_open_the_files(tool, read, files, tmp_path):
    shown = read(pytest.importorskip(tool), files[0], str(tmp_path / "cache"))
    assert np.array_equal(np.frombuffer(b"".join(shown), np.uint8).reshape(-1, 8, 8, 1), files[1])


@pytest.mark.long
def test_ray_data_opens_the_files(files, tmp_path):
    code = (
        "import ray, json, sys; ray.init(num_cpus=1, include_dashboard=False, logging_level='ERROR')\n"
        "rows = ray.data.read_parquet(json.loads(sys.argv[1])).take_all()\n"
        "print(len(rows), sum(sum(row['image']) for row in rows))"
    )
    done = python(
        "-c",
        code,
        json.dumps(files[0]),
        env={**os.environ, "RAY_DATA_DISABLE_PROGRESS_BARS": "1", "RAY_AUTH_MODE": "disabled"},
    )
    assert done.stdout.split()[-2:] == [str(len(files[1])), str(int(files[1].sum()))], done.stderr[
        -2000:
    ]


@pytest.mark.parametrize(
    ("labels", "got"),
    [([0, 1, 2], "2"), ([0, -1, 1], "-1"), ([0.0, 1.5, 1.0], "1.5"), ([0, None, 1], "nan")],
)
def test_labels_of_an_importer_that_are_no_classes_are_named(labels, got, to, monkeypatch):
    table = pa.table({"label": labels, "group": [1.0, float("nan"), float("nan")]})
    content = Content("numbers", {"train": [table]}, ("a", "b"))
    monkeypatch.setitem(DATASETS, "mine", Importer(lambda *_: content, "mine", "none"))
    with refused(DataError, match=rf"train: labels must be .* from 0 to 1, got {got}$"):
        stage("mine", to)
    table = table.set_column(0, "label", pa.array([0.0, 1.0, 1.0]))
    content = Content("numbers", {"train": [table]}, ("a", "b"))
    manifest = stage("mine", to)
    assert manifest.counts["train"] == {"classes": [1, 2], "groups": 3}
    assert open_dataset(manifest).split("train").labels.tolist() == [0, 1, 1]
