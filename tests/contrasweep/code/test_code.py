"""Which changes of a person's code make other code, on packages written for it outside the repository."""

import sys
import textwrap
from importlib import import_module

import pytest
from command_line import python

from contrasweep.code import code_of, differing_modules

METHOD = '''
"""A method."""
import numpy as np

from mythesis import settings
from mythesis.helpers import scale


def train(trial, resume=None):
    """Train."""
    width = 16  # neurons
    yield scale(np.zeros(width), settings.Settings(**trial.config).lr)
'''
FILES = {
    "mythesis/__init__.py": "",
    "mythesis/method.py": METHOD,
    "mythesis/settings.py": "import dataclasses\n\n@dataclasses.dataclass\nclass Settings:\n    lr: float = .05\n",
    "mythesis/helpers.py": "from .deep import numbers\n\n\ndef scale(x, by):\n    return x * by * numbers.ONE\n",
    "mythesis/deep/__init__.py": "",
    "mythesis/deep/numbers.py": "ONE = 1\n",
    "mythesis/unrelated.py": "X = 1\n",
}


class Package:
    """Files of a folder that is on the path to import from."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, files):
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return self

    def replace(self, name, old, new):
        path = self.folder / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def code(self, trainable="mythesis.method:train", *paths):
        return code_of(trainable, paths)

    def digest(self, *words):
        return self.code(*words).version.digest


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Package(tmp_path).write(FILES)


def test_the_modules_that_a_trainable_reaches_count_and_nothing_else_is_run(package):
    package.write(
        {
            "mythesis/helpers.py": FILES["mythesis/helpers.py"]
            + "\nraise RuntimeError('this was run')\n"
        }
    )
    version = package.code().version
    assert list(version.modules) == [
        "mythesis",
        "mythesis.deep",
        "mythesis.deep.numbers",
        "mythesis.helpers",
        "mythesis.method",
        "mythesis.settings",
    ]
    assert list(version.distributions) == ["numpy"]
    assert "mythesis" not in sys.modules


SAME = {
    "a comment": ("mythesis/method.py", "# neurons", "# units"),
    "a comment less": ("mythesis/method.py", "  # neurons", ""),
    "blank lines": ("mythesis/method.py", "\n\n\ndef", "\n\n\n\n\n\ndef"),
    "a module's docstring": ("mythesis/method.py", '"""A method."""', ""),
    "a function's docstring": ("mythesis/method.py", '"""Train."""', '"""Train it."""'),
    "quotes, brackets and a trailing comma": (
        "mythesis/method.py",
        "np.zeros(width)",
        "(np.zeros(\n        width,\n    ))",
    ),
    "an unrelated module": ("mythesis/unrelated.py", "1", "2"),
    "what it does as a script": (
        "mythesis/method.py",
        ".lr)\n",
        ".lr)\n\nif __name__ == '__main__':\n    import mythesis.unrelated\n",
    ),
}
OTHER = {
    "a number in the trainable": ("mythesis/method.py", "16", "32"),
    "a helper two imports away": ("mythesis/deep/numbers.py", "ONE = 1", "ONE = 2"),
    "a default of the settings": ("mythesis/settings.py", ".05", ".2"),
    "a default's type": ("mythesis/deep/numbers.py", "ONE = 1", "ONE = True"),
    "a package's __init__ on the way": ("mythesis/deep/__init__.py", "", "import os\n"),
    "a text": ("mythesis/deep/numbers.py", "ONE = 1", "ONE = '1'"),
    "a string that is no docstring": ("mythesis/method.py", "width = 16", "width = 16; name = 'a'"),
    "the order of statements": (
        "mythesis/settings.py",
        "import dataclasses\n\n",
        "\nimport dataclasses as dataclasses\n",
    ),
}


@pytest.mark.parametrize("case", SAME | OTHER)
def test_what_changes_what_runs_is_other_code_and_nothing_else_is(package, case):
    before = package.digest()
    package.replace(*(SAME | OTHER)[case])
    assert (package.digest() == before) is (case in SAME)


IMPORTS = {
    "import a.b as c": "import mythesis.deep.numbers as n",
    "from a.b import c": "from mythesis.deep import numbers",
    "from . import": "from . import unrelated, deep\nfrom .deep import numbers",
    "from .. import": "from .deep.numbers import ONE",
    "in a function": "def f():\n    from mythesis.deep import numbers",
    "in try": "try:\n    import mythesis.deep.numbers\nexcept ImportError:\n    pass",
    "star": "from mythesis.deep.numbers import *",
    "import_module": "import importlib\nimportlib.import_module('mythesis.deep.numbers')",
    "import_module, relative": "from importlib import import_module\nimport_module('.deep.numbers', __package__)",
    "all that a package lists": "import mythesis.plugins",
}


@pytest.mark.parametrize("form", IMPORTS)
def test_every_form_of_import_is_followed(package, form):
    package.write(
        {
            "mythesis/method.py": f"{IMPORTS[form]}\n\n\ndef train(trial, resume=None):\n    yield\n",
            "mythesis/plugins/__init__.py": "import pkgutil\nfor m in pkgutil.iter_modules(__path__):\n"
            "    __import__(f'{__name__}.{m.name}')\n",
            "mythesis/plugins/one.py": "from mythesis.deep.numbers import ONE\n",
        }
    )
    before = package.digest()
    package.replace("mythesis/deep/numbers.py", "1", "2")
    assert package.digest() != before


def test_a_namespace_package_has_its_parts_in_two_folders(package, monkeypatch):
    package.write(
        {"one/space/inner/a.py": "from space.inner import b\n", "two/space/inner/b.py": "B = 1\n"}
    )
    monkeypatch.syspath_prepend(str(package.folder / "one"))
    monkeypatch.syspath_prepend(str(package.folder / "two"))
    version = package.code("space.inner.a:train").version
    assert list(version.modules) == ["space.inner.a", "space.inner.b"]
    package.replace("two/space/inner/b.py", "1", "2")
    assert package.digest("space.inner.a:train") != version.digest


def test_imports_that_fail_and_helpers_that_are_no_python_do_not_stop_it(package):
    package.write(
        {
            "mythesis/helpers.py": "try:\n    import no_such_package.part\nexcept ImportError:\n    pass\n"
            "from ..... import far\nfrom . import broken, nulls, none_such\nscale = 1\n",
            "mythesis/broken.py": "def f(:\n",
            "mythesis/nulls.py": b"x = 1\0\n",
        }
    )
    version = package.code().version
    assert {"mythesis.broken", "mythesis.nulls"} <= set(version.modules)
    package.replace("mythesis/broken.py", "f(:", "g(:")
    assert package.digest() != version.digest


def test_a_circle_of_imports_ends(package):
    package.replace("mythesis/deep/numbers.py", "ONE", "import mythesis.method\nONE")
    assert "mythesis.method" in package.code().version.modules


def test_dotted_paths_of_the_config_are_roots_too(package):
    version = package.code("mythesis.method:train", "mythesis.unrelated:X", "no_such:thing").version
    assert "mythesis.unrelated" in version.modules
    assert version.digest != package.digest()


def test_the_platform_counts_by_its_version_and_trainables_by_their_content(package):
    package.replace(
        "mythesis/method.py",
        "import numpy as np",
        "import contrasweep as cs\nimport numpy as np\nimport contrasweep.cluster.units",
    )
    version = package.code().version
    assert set(version.distributions) == {"contrasweep", "numpy"}
    assert not any(name.split(".")[0] in ("contrasweep", "cluster") for name in version.modules)
    assert (
        "contrasweep.trainables.losses"
        in code_of("contrasweep.trainables.contrastive:train").version.modules
    )


def test_an_installed_package_counts_by_its_version_unless_it_came_from_a_folder(
    package, monkeypatch
):
    site = package.folder / "site-packages"
    package.write(
        {
            "site-packages/bought/__init__.py": "X = 1\n",
            "site-packages/Bought_Goods-1.5.dist-info/RECORD": "METADATA,,\nbought/__init__.py,,\n",
            "site-packages/Bought_Goods-1.5.dist-info/METADATA": "Name: bought-goods\nVersion: 1.5\n",
            "site-packages/loose.py": "import bought\n",
            "mythesis/method.py": "import bought\nimport loose\n",
        }
    )
    monkeypatch.syspath_prepend(str(site))
    version = package.code().version
    assert "loose" in version.modules, "no distribution says what it is"
    assert "bought" not in version.modules
    assert version.distributions == {"bought-goods": "1.5"}
    from contrasweep.code import version as version_of

    version_of._distribution_of.cache_clear()
    package.write(
        {
            "site-packages/Bought_Goods-1.5.dist-info/direct_url.json": '{"url": "file:///x", "dir_info": {}}'
        }
    )
    assert "bought" in package.code().version.modules


def test_a_module_of_the_users_may_have_the_name_of_pythons(package):
    package.write({"wave.py": "X = 1\n", "mythesis/method.py": "import wave\n"})
    sys.modules.pop("wave", None)
    for _ in range(2):  # it is imported by then or not
        assert "wave" in package.code().version.modules
        import_module("wave")
    del sys.modules["wave"]


def test_a_study_in_the_trainables_module_is_no_code_until_something_reads_it(package):
    package.write(
        {
            "mythesis/method.py": METHOD
            + "\nimport contrasweep as cs\nGRID = cs.AblationGrid(name='a')\n"
        }
    )
    before = package.digest()
    package.replace("mythesis/method.py", "name='a'", "name='a', folds=7")
    assert package.digest() == before
    package.replace("mythesis/method.py", "width = 16", "width = GRID.folds")
    read = package.digest()
    package.replace("mythesis/method.py", "folds=7", "folds=8")
    assert package.digest() != read


def test_a_worker_says_which_modules_are_others_there(package):
    modules = package.code().version.modules
    assert differing_modules(modules) == []
    package.replace("mythesis/deep/numbers.py", "1", "2")
    (package.folder / "mythesis/settings.py").unlink()
    assert differing_modules({**modules, "__main__": "x"}) == [
        "mythesis.deep.numbers",
        "mythesis.settings",
    ]


@pytest.mark.slow
def test_the_digest_is_the_same_in_every_process(package):
    done = python(
        "-c",
        "from contrasweep.code import code_of; print(code_of('mythesis.method:train').version.digest)",
        cwd=package.folder,
        check=True,
    )
    assert done.stdout.strip() == package.digest()
