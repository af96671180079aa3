"""Functions without a module's file: notebooks, scripts, and functions that other functions made."""

import dataclasses
import functools
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import python

from contrasweep.code import code_of

NOTEBOOK = [
    "import numpy as np\ntry:\n    from helpers import scale\nfinally:\n    WIDTH = 16\nUNUSED = 1",
    "get_ipython().run_cell_magic('time', '', '''def neurons():\n    return WIDTH * OPTIONS[0]''')",
    "OPTIONS = [1]",
    "OPTIONS[0] = 3",
    "WIDTH -= 4",
    "class Settings:\n    lr = 0.05",
    "class Base:\n    def f(self):\n        return 1",
    "class Method(Base):\n    size: int = 3",
    "def logged(inner):\n    def outer(trial, resume=None):\n        yield from inner(trial)\n    return outer",
    "def train(trial, resume=None):\n    yield scale(np.zeros(neurons()), Method().size)",
    "train = logged(train)",
    "train.settings = Settings",
]
SHOW = (
    "from contrasweep.code import code_of as _c\n"
    "_v = _c(train)\nprint(_v.version.digest, sorted(_v.version.modules))"
)


def notebook(folder, cells, show=SHOW):
    """Run cells as IPython keeps them: compiled one by one, their text in `_ih` and in linecache."""
    runner = textwrap.dedent("""
        import json, linecache, sys, types
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        main._ih = [""]
        magic = lambda name, line, cell: exec(cell, main.__dict__)
        main.get_ipython = lambda: types.SimpleNamespace(run_cell_magic=magic, _ih=main._ih)
        for i, cell in enumerate(json.loads(sys.stdin.read())):
            name = f"<ipython-input-{i}>"
            linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
            main._ih.append(cell)
            exec(compile(cell, name, "exec"), main.__dict__)
    """)
    (folder / "helpers.py").write_text("def scale(x, by):\n    return x * by\n")
    import json

    done = python("-c", runner, input=json.dumps([*cells, show]), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def changed(cells, old, new):
    assert any(old in cell for cell in cells)
    return [cell.replace(old, new) for cell in cells]


@pytest.mark.slow
def test_a_notebook_function_is_its_source_and_all_of_the_notebook_that_it_refers_to(tmp_path):
    before = notebook(tmp_path, NOTEBOOK)
    assert before.endswith("['__main__', '__main__:logged.<locals>.outer', 'helpers']")
    assert (
        notebook(tmp_path, changed(NOTEBOOK, "UNUSED = 1", "UNUSED = 2  # nothing reads it"))
        == before
    )
    assert (
        notebook(tmp_path, changed(NOTEBOOK, "    return WIDTH", "    # of them\n    return WIDTH"))
        == before
    )
    for cell in ["other = 1", "max(WIDTH for WIDTH in range(9))", "if 1:\n    def f(): WIDTH = 1"]:
        assert notebook(tmp_path, [*NOTEBOOK[:5], cell, *NOTEBOOK[5:]]) == before, cell
    for old, new in [
        ("WIDTH = 16", "WIDTH = 32"),
        ("WIDTH -= 4", "WIDTH -= 5"),
        ("= 3", "= 4"),
        ("from inner(trial)", "from [*inner(trial)]"),
        ("return WIDTH", "return WIDTH + 1"),
        ("lr = 0.05", "lr = 0.2"),
        ("return 1", "return 2"),
        ("size: int = 3", "size: int = 4"),
        ("np.zeros", "np.ones"),
    ]:
        assert notebook(tmp_path, changed(NOTEBOOK, old, new)) != before, new


@pytest.mark.slow
def test_a_cell_that_is_run_again_counts_as_it_is_now(tmp_path):
    again = notebook(
        tmp_path, [*NOTEBOOK, "class Settings:\n    lr = 0.2", "train.settings = Settings"]
    )
    assert again == notebook(tmp_path, changed(NOTEBOOK, "lr = 0.05", "lr = 0.2"))
    assert again != notebook(tmp_path, NOTEBOOK)
    assert again == notebook(
        tmp_path,
        ["get_ipython()._ih.append('!ls')", *changed(NOTEBOOK, "lr = 0.05", "lr = 0.2")],
    ), "a cell that is no Python"


@pytest.mark.slow
def test_the_text_put_together_from_a_notebook_is_a_module_to_read(tmp_path):
    text = notebook(tmp_path, NOTEBOOK, SHOW + "\nprint(_v.sources['__main__'].data.decode())")
    for line in (
        "    from helpers import scale",
        "import numpy as np",
        "    WIDTH = 16",
        "class Method(Base):",
    ):
        assert line in text.splitlines()
    assert "UNUSED" not in text


@pytest.mark.slow
def test_a_function_without_any_source_counts_by_its_bytecode(tmp_path):
    def digest(value):
        code = f"def train(t):\n    yield {value}\n"
        code += "from contrasweep.code import code_of\nprint(code_of(train).version.digest)"
        return python("-", input=code, check=True, cwd=tmp_path).stdout

    digests = list(map(digest, ("t.a, 1", "t.a, 1", "t.a, 2", "t.b, 1")))
    assert digests[0] == digests[1] and len({*digests}) == 3


@pytest.mark.slow
def test_a_script_counts_as_its_file(tmp_path):
    script = tmp_path / "script.py"

    def digest(text):
        script.write_text(text)
        return python(str(script), check=True).stdout

    text = (
        "WIDTH = 16\ndef train(trial, resume=None):\n    yield WIDTH\n"
        "if __name__ == '__main__':\n    from contrasweep.code import code_of\n    print(code_of(train).version)\n"
    )
    before = digest(text)
    assert "modules={'__main__': " in before
    assert digest(text.replace("yield", "# comment\n    yield")) == before
    assert digest(text + "    'what is done with the results'\n") == before
    assert digest(text.replace("16", "32")) != before
    assert digest(text + "    WIDTH = 32\n") != before


@dataclasses.dataclass
class Made:
    """A value without a plain form, and an object whose method is a trainable."""

    width: object

    def train(self, trial, resume=None):
        yield self.width


def closed_over(width):
    def train(trial, resume=None):
        yield width

    return train


def with_default(width):
    def train(trial, resume=None, *, width=width):
        yield width

    return train


def partial(width):
    made = functools.partial(closed_over(0), width=width)
    return functools.update_wrapper(made, with_default)


@pytest.mark.parametrize(
    "made", [closed_over, with_default, partial, lambda width: Made(width).train]
)
@pytest.mark.parametrize(
    "value",
    [
        lambda width: width,
        Made,
        lambda width: [Path(str(width)), {width}],
        lambda width: {"array": np.full(2, width)},
        lambda width: SimpleNamespace(inner=closed_over(width)),
    ],
)
def test_what_a_function_was_made_with_counts(made, value):
    digests = [code_of(made(value(width))).version.digest for width in (16, 16, 32)]
    assert digests[0] == digests[1] != digests[2]


def test_the_module_of_a_function_that_was_closed_over_counts():
    modules = code_of(closed_over([textwrap.dedent, textwrap, python])).version.modules
    assert "command_line" in modules and "textwrap" not in modules
