"""The code of trials in the storage: once per digest, read back as it was."""

import os

import pytest
from refusals import refused

from contrasweep.code import code_of
from contrasweep.errors import StorageError
from contrasweep.storage.code_files import (
    VERSION_FILE,
    accept,
    accepted,
    code_bytes,
    read_sources,
    read_version,
    write_code,
)
from contrasweep.storage.records import StudyRecords


@pytest.fixture
def records(tmp_path):
    return StudyRecords(str(tmp_path / "storage"), "s")


@pytest.fixture
def code(tmp_path, monkeypatch):
    (tmp_path / "own_method.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return code_of("own_method:train")


def test_code_is_kept_once_and_read_as_it_was(records, code):
    assert write_code(records, code) == ""
    digest = code.version.digest
    first = records.store.root.joinpath(f"s/code/{digest}.zip").stat()
    assert write_code(records, code) == ""
    assert (
        records.store.root.joinpath(f"s/code/{digest}.zip").stat().st_mtime_ns == first.st_mtime_ns
    )
    assert read_version(records, digest) == code.version
    assert read_sources(records, digest) == {"own_method.py": "X = 1\n"}


def test_sources_that_are_too_large_are_said_and_their_digests_kept(records, code, monkeypatch):
    monkeypatch.setattr("contrasweep.code.snapshot.MAX_BYTES", 3)
    assert "its digest is recorded, its text is not" in write_code(records, code)
    assert read_sources(records, code.version.digest) is None
    assert read_version(records, code.version.digest) == code.version


@pytest.mark.parametrize("digest", ["", "0123456789abcdef", "../../../etc/passwd"])
def test_code_that_was_not_kept_is_none(records, digest):
    assert read_version(records, digest) is None
    assert read_sources(records, digest) is None


def test_broken_files_are_one_error_that_names_them(records, code):
    write_code(records, code)
    digest = code.version.digest
    for name, read in ((f"{digest}.json", read_version), (f"{digest}.zip", read_sources)):
        records.store.write(f"s/code/{name}", b"[")
        with refused(StorageError):
            read(records, digest)
    os.truncate(records.store.root / f"s/code/{digest}.zip", 2**40)
    with refused(StorageError, "zip is broken (it has 1,099,511,627,776 bytes, and"):
        read_sources(records, digest)
    VERSION_FILE.write(records.store, f"s/code/{'0' * 16}.json", code.version)
    with refused(StorageError, f"{'0' * 16}.json is broken (it is of code {digest[:16]}"):
        read_version(records, "0" * 16)
    with refused(StorageError, "is not there: trials name this code"):
        code_bytes(records, "1" * 16)


def test_accepted_changes_add_up(records):
    assert accepted(records) == set()
    accept(records, [("a", "b")])
    accept(records, [("", "b"), ("a", "b")])
    assert accepted(records) == {("a", "b"), ("", "b")}
