"""One retry for all that an S3 server and the wire do: what passes costs nothing, what stays is one error in time."""

import pytest
from refusals import refused

from contrasweep.canonical import file_digest
from contrasweep.errors import StorageDenied, StorageError
from contrasweep.storage import s3, s3_retry
from contrasweep.storage.s3 import S3Store


@pytest.fixture
def store(s3, faults):
    store = S3Store(s3.uri)
    store.write("there", b"content")
    return store


@pytest.mark.parametrize("fault", ["cut", "reset", "short", "500", "429"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_fault_in_the_answer_that_there_is_no_object_is_no_other_answer(
    fault, method, store, faults
):
    faults.on(method, "missing", fault, fault)
    if method == "HEAD":
        assert not store.exists("missing")
    else:
        with pytest.raises(FileNotFoundError):
            store.read("missing")
    assert faults.done


@pytest.mark.slow
@pytest.mark.parametrize("key", ["there", "missing"])
def test_a_body_of_a_byte_now_and_then_ends_at_the_deadline(key, s3, store, faults, monkeypatch):
    monkeypatch.setenv("CONTRASWEEP_S3_TIMEOUT_S", "1")
    monkeypatch.setenv("CONTRASWEEP_S3_DEADLINE_S", "2")
    faults.on("GET", key, "drip", "...")
    with refused(
        StorageError,
        match=rf"could not read .*{key}( \d times)? \(no whole answer within 1 s\); check that",
    ):
        S3Store(s3.uri, patient=True).read(key)


def test_a_setting_that_is_no_number_and_a_bucket_that_there_can_not_be_are_named(
    s3, store, monkeypatch
):
    with refused(StorageError, "check the address and AWS_ENDPOINT_URL"):
        S3Store("s3://no bucket/x").read("k")
    monkeypatch.setenv("CONTRASWEEP_S3_ATTEMPTS", "few")
    with refused(StorageError, "CONTRASWEEP_S3_ATTEMPTS must be a whole number, got 'few'"):
        S3Store(s3.uri).read("there")


def test_one_dripping_answer_is_asked_for_again(s3, store, faults, monkeypatch):
    monkeypatch.setenv("CONTRASWEEP_S3_TIMEOUT_S", "1")
    faults.on("GET", "there", "drip")
    assert S3Store(s3.uri).read("there") == b"content"


@pytest.mark.parametrize(
    ("method", "verb", "call"),
    [
        ("GET", "read", lambda store: store.read("new")),
        ("PUT", "write", lambda store: store.write("new", b"x")),
        ("PUT", "copy", lambda store: store.copy("new", "new")),
        ("DELETE", "delete", lambda store: store.delete("new")),
    ],
)
def test_a_refusal_is_final_after_a_second_and_not_logged(
    method, verb, call, store, faults, caplog
):
    faults.on(method, "new", "403", "...")
    with refused(
        StorageDenied,
        match=rf"could not {verb} .*new 4 times \(403 AccessDenied\); .* denies access",
    ):
        call(store)
    assert len(faults.done) == s3_retry.DENIED_ATTEMPTS
    assert not caplog.records


def test_a_server_without_conditional_writes_is_asked_what_is_there(store, faults):
    faults.on("PUT", "there|new", "501")
    assert [store.write(key, b"x", if_absent=True) for key in ("there", "new")] == [False, True]
    assert [store.read(key) for key in ("there", "new")] == [b"content", b"x"]


def test_an_answer_on_conditions_to_a_call_without_one_is_one_line(store, faults):
    faults.on("GET", "there", "501")
    with refused(StorageError, "could not read"):
        store.read("there")


def test_a_refusal_that_passes_is_survived(store, faults):
    faults.on("PUT", "new", "403", "403")
    assert store.write("new", b"x")
    assert store.read("new") == b"x"


def test_a_server_that_was_there_is_waited_for(store, faults, monkeypatch):
    """Far more often than a server that never answered is asked."""
    monkeypatch.setattr(s3_retry, "MAX_WAIT_S", 0.02)
    faults.on("GET", "there", *["reset"] * 20)
    assert store.read("there") == b"content"
    assert len(faults.done) == 20


@pytest.mark.parametrize("limit", ["ATTEMPTS", "TIMEOUT_S", "DEADLINE_S"])
def test_a_limit_below_one_is_one(limit, store, monkeypatch):
    monkeypatch.setenv(f"CONTRASWEEP_S3_{limit}", "-1")
    assert S3Store(store.uri).read("there") == b"content"


def test_tries_that_are_asked_for_are_counted(s3, faults, monkeypatch):
    monkeypatch.setenv("CONTRASWEEP_S3_ATTEMPTS", "3")
    faults.on("GET", "there", "reset", "...")
    with refused(StorageError, "3 times"):
        S3Store(s3.uri, patient=True).read("there")
    assert len(faults.done) == 3


def test_a_full_disk_here_is_no_fault_of_the_server(store, tmp_path):
    (tmp_path / "file").write_text("")
    with refused(
        StorageError, match=r"could not read .*there \(.*Not a directory.*a file of this machine"
    ):
        store.get_file("there", tmp_path / "file/to")


@pytest.mark.slow
def test_an_object_that_no_server_copies_at_once_is_copied_in_parts(store, faults, tmp_path):
    """AWS copies up to 5 GiB at once: a larger checkpoint could not be archived, and its study not run any more."""
    (tmp_path / "large").write_bytes(bytes(17 * 2**20))
    store.put_file("large", tmp_path / "large")
    faults.on("PUT", "copied$", "400", "...")
    store.copy("large", "copied")
    assert len(faults.done) == 1
    store.get_file("copied", tmp_path / "copied")
    assert s3._digest(store._head("copied")) == file_digest(tmp_path / "large"), "it has its digest"


@pytest.mark.parametrize(("fault", "ours"), [("lost", True), ("reset", False)])
def test_what_is_there_after_a_second_try_is_ours_only_if_we_wrote_it(
    fault, ours, s3, store, faults, monkeypatch
):
    """Both tries of a writer meet `412`: after its own write whose answer was lost, and after that of another."""
    faults.on("PUT", "claim", fault)
    if not ours:
        again = s3_retry.Retry._again

        def another_writes(retry, *args):
            monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
            return S3Store(s3.uri).write("claim", b"theirs", if_absent=True) and again(retry, *args)

        monkeypatch.setattr(s3_retry.Retry, "_again", another_writes)
    assert store.write("claim", b"ours", if_absent=True) is ours
    assert faults.done and store.read("claim") == (b"ours" if ours else b"theirs")
