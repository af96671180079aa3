"""One suite for every kind of storage: a folder, the memory of fsspec, and a bucket on a server of S3 over HTTP."""

import hashlib
import os
import pickle
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from refusals import refused

from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.storage.s3 import S3Store
from contrasweep.storage.store import LocalStore, open_store


@pytest.fixture(params=["folder", "s3", "fsspec"])
def store(request, tmp_path):
    if request.param == "fsspec":
        return open_store(f"memory://{tmp_path.name}-{uuid.uuid4().hex}/storage")
    if request.param == "folder":
        return open_store(str(tmp_path / "storage"))
    return open_store(request.getfixturevalue("s3").uri)


def test_what_is_written_is_read(store):
    assert store.write("a/b.json", b"first")
    assert store.read("a/b.json") == b"first"
    assert store.write("a/b.json", b"second")
    assert store.read("a/b.json") == b"second"
    assert store.exists("a/b.json")


def test_an_object_that_is_replaced_by_one_of_equal_length_has_another_etag(store):
    etags = []
    for content in (b"one", b"two"):
        store.write("records/a/record.json", content)
        etags.append(store.etags("records/", "record.json"))
    assert [list(found) for found in etags] == [["records/a/record.json"]] * 2
    assert etags[0] != etags[1]


@pytest.mark.parametrize("way", ["write", "if absent", "put_file"])
def test_a_file_is_on_the_disk_whole_before_its_name_is(way, tmp_path, monkeypatch):
    """A name that is on the disk before its content stands for zeros after a power cut."""
    (tmp_path / "source").write_bytes(b"content")
    events = []

    def told(owner, name, size):
        plain = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args: (events.append((name, size(*args))), plain(*args))[1]
        )

    told(os, "fsync", lambda number: os.fstat(number).st_size)
    told(os, "link", lambda source, target: source.stat().st_size)
    told(Path, "replace", lambda source, target: source.stat().st_size)
    store = open_store(str(tmp_path / "storage"))
    if way == "put_file":
        store.put_file("key", tmp_path / "source")
    else:
        store.write("key", b"content", if_absent=way == "if absent")
    assert events == [("fsync", 7), ("link" if way == "if absent" else "replace", 7)]


@pytest.mark.parametrize("key", ["with space/ä%+&?.bin", "deep/" * 20 + "leaf"])
def test_any_key_comes_back_from_the_listing_and_an_empty_object_is_one(store, key):
    store.write(key, b"")
    assert list(store.list()) == [key] and store.exists(key)
    assert store.read(key) == b""


def test_a_missing_object_is_file_not_found(store, tmp_path):
    assert not store.exists("nothing")
    with pytest.raises(FileNotFoundError):
        store.read("nothing")
    with pytest.raises(FileNotFoundError):
        store.get_file("nothing", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(FileNotFoundError):
        store.copy("nothing", "copy")
    assert not list(store.list())


def test_if_absent_keeps_the_first(store):
    assert store.write("k", b"first", if_absent=True)
    assert not store.write("k", b"second", if_absent=True)
    assert not store.write("k", b"first", if_absent=True), (
        "equal bytes by another writer are no success of ours"
    )
    assert store.read("k") == b"first"


@pytest.mark.parametrize("store", ["folder", "s3"], indirect=True)
def test_of_many_writers_if_absent_lets_one_win(store):
    barrier = threading.Barrier(8)

    def claim(i):
        barrier.wait()
        return store.write("claim", str(i).encode(), if_absent=True)

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(claim, range(8)))
    assert sum(won) == 1
    assert store.read("claim") == str(won.index(True)).encode()


def test_the_listing_is_sorted_and_by_prefix(store):
    keys = ["b", "a/2", "a/10", "a-c", "a/x/1", "ab/1"]
    for key in keys:
        store.write(key, b"")
    assert list(store.list()) == sorted(keys)
    assert list(store.list("a/")) == ["a/10", "a/2", "a/x/1"]
    assert list(store.list("a")) == ["a-c", "a/10", "a/2", "a/x/1", "ab/1"]
    assert list(store.list("none/")) == []


def test_a_listing_of_several_pages_is_whole(s3, monkeypatch):
    store = S3Store(s3.uri)
    listed = store._client.list_objects_v2
    monkeypatch.setattr(
        store._client, "list_objects_v2", lambda **place: listed(**place, MaxKeys=2)
    )
    keys = [f"records/{i}/record.json" for i in range(5)]
    for key in keys:
        store.write(key, b"")
    assert list(store.list()) == keys == list(store.etags("records/", "record.json"))


def test_delete_removes_and_forgives(store):
    store.write("k", b"1")
    store.delete("k")
    store.delete("k")
    assert not store.exists("k")


@pytest.mark.parametrize("size", [0, 1000, 17_000_001])
def test_files_travel_whole(store, tmp_path, size):
    source = tmp_path / "in"
    target = tmp_path / "out"
    source.write_bytes(os.urandom(size))
    target.write_bytes(b"old")
    store.put_file("file", source)
    store.get_file("file", target)
    assert target.read_bytes() == source.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["in", "out"]


def test_check_writable_leaves_nothing(store):
    store.check_writable()
    assert list(store.list()) == []


def test_a_store_survives_pickling(store):
    store.write("k", b"1")
    assert open_store(pickle.loads(pickle.dumps(store)).uri).read("k") == b"1"


def test_a_folder_that_is_a_file_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with refused(StorageError, "cannot be written"):
        LocalStore(tmp_path / "file").check_writable()
    with refused(StorageError, "file"):
        LocalStore(tmp_path / "file").write("k", b"")


def test_a_folder_that_cannot_be_read_is_an_error_and_never_an_empty_one(tmp_path):
    store = open_store(str(tmp_path))
    assert list(store.list("records/")) == [] and store.etags("records/", "record.json") == {}
    (tmp_path / "records").symlink_to("records")
    for ask in (
        lambda: list(store.list("records/")),
        lambda: store.etags("records/", "record.json"),
    ):
        with refused(StorageError, "records/ cannot be listed"):
            ask()


def test_a_name_that_was_given_is_ours_though_the_answer_to_it_was_lost(storage, monkeypatch):
    """As on NFS, whose client asks again and hears that the name exists."""
    link = os.link

    def lose_the_answer(source, target):
        link(source, target)
        raise FileExistsError(target)

    store = open_store(storage)
    monkeypatch.setattr(os, "link", lose_the_answer)
    assert store.write("lease", b"mine", if_absent=True)
    monkeypatch.undo()
    assert not store.write("lease", b"another's", if_absent=True) and store.read("lease") == b"mine"


def test_whatever_a_file_system_raises_is_a_line_of_what_was_tried(monkeypatch):
    class Faulty(MemoryFileSystem):
        """A file system of a client library that raises its own errors."""

        protocol = "faulty"

        def __init__(self, *arguments, **options):
            if fault == "opens":
                raise RuntimeError("no\ncredentials")
            super().__init__(*arguments, **options)

        def find(self, path, **options):
            raise FileNotFoundError(path)

        def cat_file(self, path, *arguments, **options):
            raise PermissionError("denied")

    fsspec.register_implementation("faulty", Faulty, clobber=True)
    fault = ""
    store = open_store("faulty://b/x")
    assert list(store.list()) == []
    store.write("k", b"")
    with refused(StorageError, "storage faulty://b/x: cannot read k (PermissionError: denied)"):
        store.read("k")
    fault = "opens"
    Faulty.clear_instance_cache()
    with refused(StorageError, "faulty://b/x: the storage cannot be opened (RuntimeError: no cred"):
        open_store("faulty://b/x")


def test_a_missing_bucket_is_named(s3):
    with refused(StorageError, match=r"s3://no-such-bucket/x.*bucket does not exist"):
        S3Store("s3://no-such-bucket/x").check_writable()


def test_a_server_that_is_not_there_is_named(monkeypatch, s3, caplog):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CONTRASWEEP_S3_ATTEMPTS", "3")
    monkeypatch.setattr("contrasweep.storage.s3_retry.FIRST_WAIT_S", 0.01)
    with refused(
        StorageError, match=r"could not read s3://bucket/key 3 times .*127\.0\.0\.1:9.*is up"
    ):
        S3Store("s3://bucket").read("key")
    assert [record.message.split("; ")[1][:15] for record in caplog.records] == [
        "attempt 2 of 3 ",
        "attempt 3 of 3 ",
    ]


def test_no_credentials_are_named(monkeypatch, s3, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with refused(StorageError, "check AWS_ACCESS_KEY_ID"):
        S3Store("s3://bucket").read("key")


@pytest.mark.slow
def test_another_tools_object_is_read_without_a_digest(s3):
    import boto3

    store = S3Store(s3.uri)
    boto3.session.Session().client("s3").put_object(
        Bucket=store.bucket, Key=store.prefix + "theirs", Body=b"abc"
    )
    assert store.read("theirs") == b"abc"


def test_an_object_whose_bytes_were_changed_is_never_read(s3, monkeypatch):
    import boto3

    monkeypatch.setattr("contrasweep.storage.s3_retry.FIRST_WAIT_S", 0.01)
    store = S3Store(s3.uri)
    stated = {"sha256": hashlib.sha256(b"what was written").hexdigest()}
    boto3.session.Session().client("s3").put_object(
        Bucket=store.bucket, Key=store.prefix + "k", Body=b"what there is", Metadata=stated
    )
    with refused(BrokenFileError, match=r"/k is broken .SHA-256.* 6 times.; it is damaged"):
        store.read("k")


def test_an_object_larger_than_what_is_read_is_named(store):
    store.write("big", b"x" * 100)
    assert store.read("big", 100) == b"x" * 100
    with refused(BrokenFileError, "big is broken (it has 100 bytes, and 99 are read"):
        store.read("big", 99)


def test_an_object_of_another_size_has_another_tag_where_times_are_coarse(monkeypatch):
    store = open_store(f"memory://{uuid.uuid4().hex}/storage")
    size = 1

    def find(path, detail):
        return {f"{store.root}/a": {"size": size, "mtime": 1_700_000_000, "type": "file"}}

    monkeypatch.setattr(store.fs, "find", find)
    first = list(store.entries(""))
    size = 2
    second = list(store.entries(""))
    assert first[0][0] == second[0][0] == "a" and first[0][1] != second[0][1]
