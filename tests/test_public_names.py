"""Every public name says what it takes and gives in its docstring, and its example runs."""

import doctest
import inspect
import re

import pytest
from made_up import declared
from places import ROOT

import contrasweep as cs
from contrasweep.code import CurrentCode
from contrasweep.results.table import Table
from contrasweep.storage.record import CodeRef, Record, Status

CONSTRUCTED_BY_US = {"Comparison", "Results", "Table"}
"""Classes that users are given; what they have is said by their attributes and methods."""
NAMES = {name: getattr(cs, name) for name in cs.__all__ if name != "__version__"} | {"Table": Table}
METHODS = {
    f"{name}.{method}": member
    for name in CONSTRUCTED_BY_US
    for method, member in inspect.getmembers(NAMES[name], inspect.isfunction)
    if not method.startswith("_")
}


class AnyOutput(doctest.OutputChecker):
    """Compares what an example prints where it says what that is."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A finished study in the current folder's storage, whose scores are made up and whose code is there now."""
    monkeypatch.chdir(tmp_path)
    arms = {
        "scl": cs.Arm("contrastive", {"loss": "supcon"}),
        "ocl": cs.Arm("contrastive", {"loss": "ocl"}),
    }
    grid = cs.AblationGrid("quickstart", arms, "digits-lt", {"batch_size": [32, 64]}, folds=5)
    plan, records = declared(cs.plan(grid), "./contrasweep-runs")
    code = CurrentCode({})
    for trial in plan.trials:
        version = code.of(trial.trainable, trial.config).version
        accuracy = (
            0.8 + 0.02 * (trial.arm == "ocl") + 0.01 * trial.fold + 0.0001 * (int(trial.id[:2], 16))
        )
        records.write(
            Record.of(
                trial,
                status=Status.DONE,
                step=20,
                metrics={"accuracy": accuracy},
                seconds=1.0,
                code=CodeRef(version.digest),
            )
        )
    return grid


@pytest.mark.parametrize("name", sorted({*NAMES, *METHODS}))
def test_a_docstring_says_what_goes_in_and_comes_out(name):
    public = NAMES.get(name) or METHODS[name]
    docstring = inspect.getdoc(public) or ""
    assert docstring.splitlines()[0].endswith(".")
    if name in CONSTRUCTED_BY_US or (
        inspect.isclass(public) and public.__init__ is Exception.__init__
    ):
        return
    signature = inspect.signature(public)
    documented = set(re.findall(r"^    (\w+): ", docstring, re.MULTILINE))
    assert {*signature.parameters} - {"self", "cls", "args", "kwargs"} <= documented
    if not inspect.isclass(public) and signature.return_annotation is not None and documented:
        assert "Returns:\n" in docstring


@pytest.mark.parametrize("name", sorted({*NAMES}))
def test_its_example_runs(name, study):
    names = {"cs": cs, "study": study, "results": cs.load("quickstart")}
    (example,) = doctest.DocTestFinder(recurse=False).find(NAMES[name], name, globs=names)
    assert example.examples
    runner = doctest.DocTestRunner(
        AnyOutput(), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    said: list[str] = []
    assert runner.run(example, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_page_of_the_api_has_every_public_name(name):
    page = (ROOT / "docs/api.md").read_text()
    assert re.search(rf"^::: contrasweep(\.\w+)*\.{name}$", page, re.MULTILINE), name
