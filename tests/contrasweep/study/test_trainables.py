"""What an arm may name as its trainable, and what the plan says of anything else."""

import dataclasses
import functools
import sys
import types
from collections.abc import Generator, Iterator

import pytest
from refusals import refused

from contrasweep import AblationGrid, Arm
from contrasweep.errors import SpecError
from contrasweep.schema import checked
from contrasweep.study.file import study_schema
from contrasweep.study.trainables import check_trainable, unchecked_settings
from contrasweep.trial import Report


def plain(trial, resume=None):
    yield Report(1, {"accuracy": 1.0})


@functools.wraps(plain)
def wrapped(*args, **kwargs):
    return plain(*args, **kwargs)


def passes_on(trial, resume=None) -> Generator[Report, None, None]:
    return plain(trial, resume)


def passes_on_in_text(trial, resume=None) -> "Iterator[Report]":
    return plain(trial, resume)


class Method:
    def __call__(self, trial, resume=None) -> Iterator:
        return plain(trial, resume)


def with_more(trial, resume=None, *, depth=3):
    yield


GOOD = [
    plain,
    wrapped,
    functools.partial(with_more, depth=4),
    passes_on,
    passes_on_in_text,
    Method(),
    with_more,
]


@pytest.mark.parametrize("function", GOOD)
def test_generators_in_every_form_are_trainables(function):
    check_trainable(function, "arms.a.trainable")


@pytest.mark.parametrize("made", [checked, dataclasses.dataclass])
def test_a_plan_says_that_types_in_a_plain_dataclass_are_not_checked(monkeypatch, made):
    class Settings:
        lr: float = 0.1

    monkeypatch.setattr(plain, "settings", made(Settings), raising=False)
    notes = unchecked_settings(AblationGrid("g", {"a": Arm(plain, {"lr": True})}, "digits-lt"))
    assert [" plain dataclass, " in note for note in notes] == [True] * (made is not checked)


def test_a_plain_function_of_a_notebook_may_report(monkeypatch):
    call = "report"  # which this very module must not call
    cell = f"def train(trial, resume=None):\n    cs.{call}(1, {{}})"
    notebook = types.ModuleType("notebook_of_cells")
    exec(cell, vars(notebook))
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    with refused(SpecError, match=r"or calls contrasweep\.report, got 'train'"):
        check_trainable(notebook.train, "arms.a.trainable")
    notebook._ih = ["", cell]
    check_trainable(notebook.train, "arms.a.trainable")


def returns_a_number(trial, resume=None):
    return 0.9


def without_resume(trial):
    yield


def with_a_required_one_more(trial, model, resume=None):
    yield


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (
            returns_a_number,
            "a generator function, or calls contrasweep.report, got 'returns_a_number'; use `yield Report(",
        ),
        (print, 'a trainable takes a trial and the folder of a checkpoint, got "print('),
        (
            without_resume,
            "got 'without_resume(trial)'; got an unexpected keyword argument 'resume'; declare it as def",
        ),
        (with_a_required_one_more, "missing a required argument: 'model'"),
        (Method, "a trainable is a generator function, not a class, got 'Method'"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(function, says):
    with refused(SpecError, says, begins="arms.a.trainable: "):
        check_trainable(function, "arms.a.trainable")


def test_the_short_name_of_a_shipped_method_is_its_dotted_path():
    """Trials are the same by either name: the path is part of their identity."""
    assert Arm("contrastive") == Arm("contrasweep.trainables.contrastive:train")
    assert Arm("contrastive").path == "contrasweep.trainables.contrastive:train"


def test_a_wrong_short_name_says_which_there_are():
    with refused(
        SpecError,
        match=r"trainable: .* got 'contrastiv'; did you mean 'contrastive'\? known methods",
    ):
        Arm("contrastiv")


@pytest.mark.parametrize("nameless", [Method(), functools.partial(with_more, depth=4)])
def test_what_has_no_name_of_its_own_is_given_by_its_path(nameless):
    with refused(SpecError, match=r'trainable: .* is given as its dotted path "module:name"'):
        Arm(nameless)
    assert Arm(Method().__call__).path == f"{__name__}:Method.__call__"


def test_the_schema_of_a_study_file_knows_the_short_names():
    assert {"contrastive", "paired_images"} <= {
        *study_schema()["$defs"]["Arm"]["properties"]["trainable"]["examples"]
    }
