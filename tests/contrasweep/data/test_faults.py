"""What a server, a wire and a disk do wrong: nothing wrong is ever read, and errors name the object."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from contrasweep.data import cache, decoding, inspecting, open_dataset, resolve, stage, staging
from contrasweep.data.manifest import MANIFEST
from contrasweep.errors import DataError, StorageError
from contrasweep.storage.store import open_store

PASSING = ["500", "503", "cut", "short", "flip", "slow", "stall", "reset"]


def images(manifest):
    return np.concatenate([part.array("image") for part in open_dataset(manifest).parts(None)])


@pytest.fixture
def expected(tmp_path):
    return images(stage("digits-lt", str(tmp_path / "reference"))).copy()


@pytest.fixture
def staged(s3):
    return stage("digits-lt", f"{s3.uri}/datasets/digits-lt")


@pytest.mark.slow
@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_is_survived_while_reading(
    fault, staged, expected, faults, monkeypatch, tmp_path, caplog
):
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "other-node"))
    if fault == "stall":
        monkeypatch.setenv("CONTRASWEEP_S3_TIMEOUT_S", "1")
    faults.on("GET", "parquet", fault)
    assert np.array_equal(images(staged), expected)
    assert len(faults.done) == 2, "each of the two shards met it"
    retries = [
        record
        for record in caplog.records
        if "; attempt 2 " in record.message and "parquet" in record.message
    ]
    assert len(retries) == (0 if fault == "slow" else 2)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["500", "503", "cut", "short", "flip", "reset"])
def test_a_fault_that_stays_is_an_error_that_names_the_object(
    fault, staged, faults, monkeypatch, tmp_path
):
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "other-node"))
    monkeypatch.setenv("CONTRASWEEP_S3_ATTEMPTS", "3")
    faults.on("GET", "parquet", fault, "...")
    with refused(
        StorageError,
        match=r"s3://test-\w+/runs/datasets/digits-lt/train-00000-\w+\.parquet (3 times|is broken \([^)]* 3 times\))",
    ):
        images(staged)
    assert not list((tmp_path / "other-node/splits").glob("*")), "nothing half-read is left"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["500", "503", "reset", "lost"])
def test_a_fault_that_passes_is_survived_while_staging(fault, s3, expected, faults):
    faults.on("PUT", "digits-lt", fault)
    manifest = stage("digits-lt", f"{s3.uri}/datasets/digits-lt")
    assert len(faults.done) >= 3, "both shards and the manifest met it"
    assert inspecting.verify(manifest) == []
    assert np.array_equal(images(manifest), expected)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["500", "503", "cut", "short", "flip", "reset", "lost"])
def test_a_large_file_survives_faults_of_its_parts(fault, s3, faults, tmp_path):
    (tmp_path / "in").write_bytes(os.urandom(20_000_000))
    store = open_store(s3.uri)
    faults.on("PUT", "large", fault if fault in ("500", "503", "reset", "lost") else "500")
    store.put_file("large", tmp_path / "in")
    uploads = len(faults.done)
    faults.on("GET", "large", fault)
    store.get_file("large", tmp_path / "out")
    assert uploads >= 2 and len(faults.done) > uploads, "parts met it both ways"
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


@pytest.mark.parametrize("change", ["truncated", "corrupted", "replaced", "lost"])
def test_a_shard_that_was_changed_in_the_store_is_never_read(change, staged):
    store = open_store(staged.uri)
    shard = staged.splits["train"][0].file
    data = store.read(shard)
    changed = {
        "truncated": data[:-100],
        "corrupted": data[:500] + b"\0\0\0\0" + data[504:],
        "replaced": store.read(staged.splits["test"][0].file),
        "lost": b"",
    }[change]
    if changed:
        store.write(shard, changed)  # with a digest of its own, so only the manifest can tell
    else:
        store.delete(shard)
    with refused(
        DataError, match=f"{shard}.*its manifest (says|lists it: stage the dataset again)"
    ):
        images(staged)
    assert [finding.object for finding in inspecting.verify(staged)] == [f"{staged.uri}/{shard}"]
    stage("digits-lt", staged.uri)
    assert inspecting.verify(staged) == [], "staging again mends it"


def test_a_shard_of_other_rows_than_the_manifest_says_is_named(staged):
    shard = staged.splits["train"][0]
    forged = replace(staged, splits={**staged.splits, "train": (replace(shard, rows=10**15),)})
    with refused(
        DataError,
        match=f"{shard.file} has 544 rows, its manifest says 1,000,000,000,000,000; stage",
    ):
        images(forged)
    (finding,) = inspecting.verify(forged)
    assert finding.problem.startswith("holds other rows than its manifest says")


def test_a_changed_manifest_is_refused(staged):
    store = open_store(staged.uri)
    fields = json.loads(store.read(MANIFEST))
    fields["classes"] = fields["classes"][::-1]
    store.write(MANIFEST, json.dumps(fields).encode())
    with refused(DataError, f"manifest.json states digest {staged.digest[:12]} but"):
        resolve(staged.uri, folds=None, storage="unused")


def test_two_nodes_that_stage_the_same_dataset_at_once_agree(s3):
    with ThreadPoolExecutor(4) as pool:
        manifests = list(pool.map(lambda _: stage("digits", f"{s3.uri}/datasets/digits"), range(4)))
    assert len({manifest.digest for manifest in manifests}) == 1
    assert inspecting.verify(manifests[0]) == []
    assert len(list(open_store(manifests[0].uri).list())) == 3


def test_of_two_that_stage_different_datasets_in_one_place_one_wins_whole(s3):
    def attempt(factor):
        try:
            return stage(f"digits-lt?imbalance_factor={factor}", f"{s3.uri}/datasets/x")
        except DataError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(attempt, [10, 50]))
    lost = [result for result in results if isinstance(result, DataError)]
    assert len(lost) == 1 and "already holds dataset" in str(lost[0])
    assert inspecting.verify(resolve(f"{s3.uri}/datasets/x", folds=None, storage="unused")) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [cache.ENTRY, cache.SEAL, "image.npy"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "deep"])
def test_what_is_no_plain_file_of_the_cache_is_not_read(
    kind, name, node_cache, expected, staged, tmp_path
):
    images(staged)
    built = {file: file.stat().st_ino for file in (node_cache / "splits").glob("*/image.npy")}
    for file in (node_cache / "splits").glob(f"*/{name}"):
        content = file.rename(tmp_path / file.parent.name)
        {
            "link": lambda at, content=content: at.symlink_to(content),
            "pipe": os.mkfifo,
            "folder": Path.mkdir,
            "deep": lambda at: at.write_text("[" * 10**5),
        }[kind](file)
    assert np.array_equal(images(staged), expected)
    if name == cache.SEAL and kind != "folder":
        assert built == {file: file.stat().st_ino for file in built}, "the images are whole"


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_an_entry_is_replaced(node_cache, expected, staged):
    images(staged)
    for folder in list((node_cache / "splits").glob("[!.]*")):
        shutil.rmtree(folder)
        os.mkfifo(folder)
        os.mkfifo(folder.with_name(f".building-{folder.name}"))
    assert np.array_equal(images(staged), expected)


@pytest.mark.parametrize(
    "damage", ["flip", "truncate", "delete", "empty entry", "old seal", "seal of the future"]
)
def test_a_damaged_cache_is_built_again(damage, node_cache, expected, staged, caplog):
    images(staged)
    for file in (node_cache / "splits").glob("*/image.npy"):
        file.chmod(0o644)
        times = file.stat().st_atime_ns, file.stat().st_mtime_ns
        if damage == "flip" or "seal" in damage:
            with file.open("r+b") as opened:
                opened.seek(2000)
                opened.write(b"\xff\xff\xff")
        elif damage == "truncate":
            os.truncate(file, 1000)
        elif damage == "delete":
            file.unlink()
        else:
            (file.parent / cache.ENTRY).write_text("")
        if damage == "flip":
            os.utime(file, ns=times)  # a change that leaves no trace in size and mtime
        if "seal" in damage:  # a bit that the disk lost: the files are those that were sealed
            seal = json.loads((file.parent / cache.SEAL).read_text())
            seal |= {"time": time.time() + (3600 if "future" in damage else -cache.REVERIFY_S)}
            seal["files"] = {name: cache._identity(file.parent / name) for name in seal["files"]}
            (file.parent / cache.SEAL).write_text(json.dumps(seal))
    assert np.array_equal(images(staged), expected)
    assert "damaged" in caplog.text


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.ENOSPC, DataError, r"no space for digits-lt.*GiB free.*CONTRASWEEP_CACHE"),
        (errno.EIO, OSError, "Input/output error"),
    ],
)
def test_a_full_disk_says_what_to_do_another_fault_what_it_is_and_no_half_entry_is_left(
    number, kind, said, staged, monkeypatch, node_cache
):
    def faulty(*args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(decoding, "decode_split", faulty)
    with pytest.raises(kind, match=said):
        images(staged)
    assert [path.name for path in node_cache.glob("splits/*")] == []


def test_a_full_temporary_disk_is_not_blamed_on_the_source(monkeypatch, tmp_path):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staging.pq, "write_table", full)
    with refused(DataError, match=r"no space to stage digits in .*contrasweep-stage-.*TMPDIR"):
        stage("digits", str(tmp_path / "staged"))


def test_a_full_disk_first_drops_what_is_longest_unused(staged, monkeypatch, expected, tmp_path):
    images(stage("digits", str(tmp_path / "old")))
    real = decoding.decode_split
    calls = []

    def once_full(*args):
        calls.append(1)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*args)

    monkeypatch.setattr(decoding, "decode_split", once_full)
    assert np.array_equal(images(staged), expected)


def _die_while_decoding(uri, ready):
    def hang(manifest, split, folder, encoded):
        (folder / "image.npy").write_bytes(b"half")
        ready.set()
        time.sleep(60)

    decoding.decode_split = hang
    images(resolve(uri, folds=None, storage="unused"))


@pytest.mark.slow
def test_killed_while_decoding_leaves_no_lock_and_no_half_entry(tmp_path, expected, node_cache):
    manifest = stage("digits-lt", str(tmp_path / "local"))
    cache.evict(0)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_die_while_decoding, args=(manifest.uri, ready))
    process.start()
    assert ready.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert np.array_equal(images(manifest), expected)
    assert not list((node_cache / "splits").glob(".building-*"))
