"""The commit of the checkout that holds the code, and whether the code is what the commit has."""

import subprocess

import pytest
from folders import make_files

from contrasweep.code import code_of, version
from contrasweep.code.version import checkout_of


def git(folder, *words):
    who = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *who, "-C", str(folder), *words], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own").mkdir()
    for name, text in {
        "__init__": "",
        "method": "from own import helper\n",
        "helper": "X = 1\n",
        "apart": "",
    }.items():
        (tmp_path / f"own/{name}.py").write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def state(folder):
    own = code_of("own.method:train").version
    return own.commit == git(folder, "rev-parse", "HEAD").strip(), own.dirty


def test_the_commit_is_that_of_the_users_checkout(checkout):
    assert state(checkout) == (True, False)


def test_dirty_is_code_that_the_commit_lacks_and_nothing_else(checkout):
    make_files(checkout, {"own/apart.py": "Y = 1\n", "notes.txt": "no code"})
    assert state(checkout) == (True, False)
    (checkout / "own/helper.py").write_text("X = 1  # not committed\n")
    assert state(checkout) == (True, True)
    git(checkout, "commit", "-qam", "second")
    assert state(checkout) == (True, False)
    (checkout / "own/method.py").write_text("from own import helper, new\n")
    git(checkout, "commit", "-qam", "third")
    (checkout / "own/new.py").write_text("")
    assert state(checkout) == (True, True), "a module that git does not know"


def test_the_files_of_a_commit_are_listed_once(checkout, monkeypatch):
    assert state(checkout) == (True, False)
    asked = []
    monkeypatch.setattr(
        version, "git", lambda *words, ask=version.git: (asked.append(words[1]), ask(*words))[1]
    )
    assert state(checkout) == (True, False) and asked == ["rev-parse"]


def test_windows_line_ends_are_no_change(checkout):
    (checkout / "own/helper.py").write_bytes(b"X = 1\r\n")
    assert state(checkout) == (True, False)


def test_nothing_that_a_checkout_configures_is_run(checkout):
    mark = checkout / "ran"
    program = checkout / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    git(checkout, "config", "core.fsmonitor", str(program))
    git(checkout, "config", "core.hooksPath", str(checkout))
    git(checkout, "config", "filter.own.clean", str(program))
    git(checkout, "config", "core.pager", str(program))
    make_files(checkout, {".gitattributes": "*.py filter=own\n", "own/helper.py": "X = 2\n"})
    mark.unlink(missing_ok=True)
    assert state(checkout)[1]
    mark.unlink(missing_ok=True)
    code_of("own.method:train")
    assert not mark.exists()


def test_without_a_checkout_a_commit_or_git_there_is_no_commit(tmp_path, monkeypatch):
    file = tmp_path / "a.py"
    file.write_text("")
    for change in (
        lambda: None,
        lambda: git(tmp_path, "init", "-q"),
        lambda: monkeypatch.setenv("PATH", ""),
    ):
        change()
        assert checkout_of(str(file), {str(file): b""}) == ("", False)
