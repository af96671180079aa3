"""A dotted path that leads nowhere, or to the wrong thing: one line that says where and what was expected."""

import importlib.metadata
import sys
from types import ModuleType

import pytest
from refusals import refused

import contrasweep as cs
from contrasweep.errors import SpecError
from contrasweep.imports import import_path, install_command, is_installed

MODULES = {
    "raises_here": "import math\n\nraise ValueError('no such device')\n",
    "exits_here": "import argparse\nargparse.ArgumentParser(prog='x').parse_args(['--no-such-option'])\n",
    "misses_a_package": "import package_that_is_not_installed\n",
    "broken_here": "def train(:\n",
    "holds_a_number": "train = 3\n\ndef trains():\n    yield\n",
}


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "no_such_module:train",
            "module cannot be imported, got 'no_such_module:train'; No module named",
        ),
        ("no_such_module:train", "it is looked for in the current folder ("),
        (
            "raises_here:train",
            "raises an error when it is imported, got 'raises_here:train'; ValueError: no such device",
        ),
        ("raises_here:train", "(raises_here.py, line 3)"),
        ("exits_here:train", "SystemExit: 2 (exits_here.py, line"),
        ("exits_here:train", 'put what a script does below `if __name__ == "__main__":`'),
        (
            "misses_a_package:train",
            "No module named 'package_that_is_not_installed' (misses_a_package.py, line 1)",
        ),
        ("broken_here:train", "SyntaxError: invalid syntax (broken_here.py, line 1)"),
        (
            "holds_a_number:train",
            "a trainable is a function or class, got 'holds_a_number:train'; train is of type int",
        ),
        (
            "holds_a_number:trian",
            "no such function or class, got 'holds_a_number:trian'; did you mean 'trains'?",
        ),
    ],
)
def test_a_path_that_leads_nowhere_says_why(path, says):
    with refused(SpecError, says, begins="arms.a.trainable: "):
        import_path(path, "arms.a.trainable")


def test_the_package_says_its_version():
    assert cs.__version__ == importlib.metadata.version("contrasweep")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (
            '{"url": "file:///a%20b/c", "dir_info": {"editable": true}}',
            "pip install --editable '/a b/c[mcp]'",
        ),
        ('{"url": "file:///home/c", "dir_info": {}}', "pip install '/home/c[mcp]'"),
        (
            '{"url": "https://example.org/c.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}',
            "pip install 'contrasweep[mcp] @ git+https://example.org/c.git@ab12'",
        ),
        (
            '{"url": "file:///d/contrasweep-1-py3-none-any.whl", "archive_info": {}}',
            "pip install 'contrasweep[mcp] @ file:///d/contrasweep-1-py3-none-any.whl'",
        ),
        (None, "pip install 'contrasweep[mcp]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(tmp_path, monkeypatch, origin, command):
    folder = tmp_path / "contrasweep-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: contrasweep\nVersion: 1\n")
    if origin:
        (folder / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert install_command("mcp") == command


def test_what_no_import_system_knows_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "stub", ModuleType("stub"))  # as some tests leave one
    assert [is_installed(name) for name in ("json", "stub", "stub.part", "no.such")] == [
        True,
        False,
        False,
        False,
    ]
