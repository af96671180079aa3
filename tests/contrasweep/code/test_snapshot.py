"""Snapshots hold sources and nothing else, are read without extracting, and say what differs."""

import io
import zipfile

import pytest
from folders import make_files
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from contrasweep.code import code_of, difference, pack, snapshot, unpack
from contrasweep.code.version import parsed
from contrasweep.errors import StorageError

LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "c = a", "", "# note", "d = 'x'"]), max_size=12)


@pytest.fixture
def code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    make_files(
        tmp_path,
        {
            "own/__init__.py": "",
            "own/method.py": "from own import helper\nX = 1\n",
            "own/helper.py": "Y = 'ä'\n",
            "own/.env": "PASSWORD=secret",
        },
    )
    (tmp_path / "own/data.npz").write_bytes(b"data")
    return tmp_path / "own"


def test_a_snapshot_holds_the_sources_that_count_and_is_the_same_each_time(code):
    packed = pack(code_of("own.method:train"))
    assert unpack(packed) == {
        "own/__init__.py": "",
        "own/helper.py": "Y = 'ä'\n",
        "own/method.py": "from own import helper\nX = 1\n",
    }
    (code / "method.py").touch()
    assert pack(code_of("own.method:train")) == packed


def test_a_file_with_passwords_that_a_command_is_given_counts_and_its_text_is_not_kept(
    code, monkeypatch
):
    monkeypatch.chdir(code.parent)
    (code.parent / "secrets.yaml").write_text("password: S3CR3T")
    (code.parent / "settings.yaml").symlink_to("secrets.yaml")
    (code.parent / "plain.yaml").write_text("lr: 1")
    found = code_of(
        "own.method:train", [f"file:{name}.yaml" for name in ("secrets", "settings", "plain")]
    )
    assert "file:secrets.yaml" in found.version.modules
    assert "file:settings.yaml" in found.version.modules
    kept = unpack(pack(found))
    assert "plain.yaml" in kept and not any("S3CR3T" in text for text in kept.values())


def test_more_sources_than_a_snapshot_may_hold_are_refused_with_the_size(code, monkeypatch):
    (code / "helper.py").write_text("Y = 1\n" * 1000)
    monkeypatch.setattr(snapshot, "MAX_BYTES", 5000)
    with pytest.raises(
        snapshot.TooLarge, match=r"0.0 MiB of sources in 3 modules.*largest: own/helper.py"
    ):
        pack(code_of("own.method:train"))


@pytest.mark.parametrize(
    "name", ["/etc/passwd.py", "../a.py", "a/../../b.py", "a//b.py", "a.txt", "c:\\a.py", ".env"]
)
def test_a_snapshot_with_a_name_that_is_no_modules_is_refused(name):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(name, "X = 1")
    with refused(StorageError, "no module's"):
        unpack(sink.getvalue())


def test_a_snapshot_that_unpacks_to_more_than_is_ever_written_is_not_read():
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(3):
            archive.writestr(f"a{i}.py", bytes(10 * 2**20))
    assert len(sink.getvalue()) < 2**17
    with refused(StorageError, "larger than any"):
        unpack(sink.getvalue())
    with zipfile.ZipFile(sink := io.BytesIO(), "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.py", "X = 1")
    with refused(StorageError, "packed as none"):  # Python would unpack all that it holds at once
        unpack(sink.getvalue())


@pytest.mark.slow
@given(st.binary(max_size=200))
def test_bytes_that_are_no_snapshot_are_one_error(data):
    with refused(StorageError, "cannot be read"):
        unpack(data)


def test_a_snapshot_with_a_broken_byte_is_one_error(code):
    packed = bytearray(pack(code_of("own.method:train")))
    packed[packed.index(b"own/helper.py") + len(b"own/helper.py") + 3] ^= 0xFF
    with refused(StorageError):
        unpack(bytes(packed))


def test_a_difference_names_files_and_lines():
    old = {
        "own/method.py": "a = 1\nb = 2\nc = 3\n",
        "own/same.py": "x = 1\n",
        "own/gone.py": "y = 1\n",
    }
    new = {
        "own/method.py": "a = 1\nb = 4\nc = 5\nd = 6\n",
        "own/same.py": "x = 1  # more\n",
        "own/more.py": "z = 1\n",
    }
    diff = difference(old, new, ("study", "now"))
    assert (
        str(diff)
        == "own/gone.py removed (1 line), own/method.py changed (3 lines), own/more.py added (1 line)"
    )
    assert diff.summary() == "5 lines differ in 3 modules"
    assert (
        "--- study/own/method.py\n+++ now/own/method.py\n@@ -1,3 +1,4 @@\n a = 1\n-b = 2\n"
        in diff.diff
    )
    assert "same.py" not in diff.diff
    assert str(difference(old, old)) == "no difference"


@given(LINES, LINES)
def test_a_difference_is_there_exactly_where_the_meaning_differs(old, new):
    before = "\n".join(old)
    after = "\n".join(new)
    diff = difference({"f.py": before}, {"f.py": after})
    assert bool(diff.changes) == (parsed(before.encode())[0] != parsed(after.encode())[0])
    assert all(0 < change.lines <= len(old) + len(new) for change in diff.changes)
    assert bool(diff.diff) == bool(diff.changes)


@given(LINES, st.integers(0, 12))
def test_comments_and_blank_lines_anywhere_change_no_meaning(lines, at):
    text = "\n".join(lines).encode()
    more = "\n".join([*lines[:at], "# a comment", "", *lines[at:]]).encode()
    assert parsed(text)[0] == parsed(more)[0]
