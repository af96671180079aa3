"""Datasets, searchers and pruners of somebody else's, by dotted path from a folder outside of the repository."""

import numpy as np
import pytest
from folders import importable
from refusals import refused

from contrasweep import Choice, DataError, Float, Int, SpecError
from contrasweep.data import open_dataset, resolve, stage
from contrasweep.storage.fsspec_store import FsspecStore
from contrasweep.tuning import pruners
from contrasweep.tuning.searchers import build

OWN = '''
import numpy as np
from contrasweep.data.content import Importer
from contrasweep.errors import DataError
from contrasweep.tuning.pruners import StoppingRule
from contrasweep.data.importers.labelled_images import content
from contrasweep.schema import checked

@checked
class Settings:
    rows: int = 20

def squares(source, settings):
    """Black and white squares."""
    labels = np.arange(settings.rows) % 2
    images = np.repeat(labels * 255, 16).reshape(-1, 4, 4, 1).astype(np.uint8)
    return content({"train": (images, labels)}, ("black", "white"), "squares")

squares.settings = Settings

def wrong(source, settings):
    return [1, 2]

def raises(source, settings):
    return 1 / 0

def refuses(source, settings):
    raise DataError("line 3 is no number")

def fetch(folder):
    raise OSError("no route")

FETCHED = Importer(raises, "squares", "none", source="a file of squares", fetch=fetch)

def one_argument(source):
    return None

class Backwards:
    """Every value of the first parameter, the last one first."""
    def __init__(self, problem, *, skip: int = 0):
        [(self.name, parameter)] = list(problem.space.items())[:1]
        self.left = list(parameter.options)[: len(parameter.options) - skip]
    def ask(self):
        return {self.name: self.left.pop()} if self.left else None
    def tell(self, config, value, pruned_at=None):
        pass
    def replay(self, config):
        self.left.remove(config[self.name])

class Mute:
    def __init__(self, problem): ...

class Says:
    """Suggests what it was told to."""
    def __init__(self, problem, *, config=None, broken=False):
        self.config = 1 // (not broken) and config
    def ask(self):
        return 1 / 0 if self.config == "raise" else self.config
    def tell(self, config, value, pruned_at=None): ...
    def replay(self, config): ...

class Sampler:
    """A sampler of Optuna's, as it looks from outside."""
    def __init__(self, seed): ...
    def reseed_rng(self): ...
    def before_trial(self, study, trial): ...
    def infer_relative_search_space(self, study, trial):
        return 1 / 0
    def sample_relative(self, study, trial, space): ...

class Rule(StoppingRule):
    def __init__(self, mode, budget, *, answer="maybe"):
        super().__init__(mode)
        self.answer = answer
    def should_continue(self, own, step, peers):
        return len(peers) / 0 if self.answer == "raise" else self.answer == "go on"
    def on_report(self, trial, step, value):
        return self.answer if self.answer == "maybe" else super().on_report(trial, step, value)

class Half:
    def __init__(self, mode, budget): ...

class NoRule:
    def __init__(self, mode, budget, *, rungs=()):
        rungs[0]
'''


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory):
    with importable(tmp_path_factory.mktemp("package"), own_kinds=OWN):
        yield


def test_an_own_importer_stages_what_a_study_reads(tmp_path):
    to = str(tmp_path / "datasets/squares")
    manifest = stage("own_kinds:squares", to, source=tmp_path, settings={"rows": 12})
    assert (manifest.name, manifest.rows("train"), manifest.classes) == (
        "squares",
        12,
        ("black", "white"),
    )
    train, test = open_dataset(resolve("squares", folds=2, storage=str(tmp_path))).parts(0)
    assert np.array_equal(train.array("image")[:, 0, 0, 0] // 255, train.labels) and len(test) == 6


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        (
            "own_kinds:wrong",
            DataError,
            "own_kinds:wrong must give a contrasweep.data.content.Content, not list",
        ),
        ("own_kinds:raises", DataError, "(ZeroDivisionError: division by zero)"),
        ("own_kinds:refuses", DataError, "line 3 is no number"),
        ("own_kinds:FETCHED", DataError, "FETCHED could not be downloaded (no route): fetch it"),
        ("own_kinds:one_argument", SpecError, "dataset: an importer takes a source and settings"),
        (
            "own_kinds:OWN",
            SpecError,
            "dataset: the dataset importer's module has no such function or class",
        ),
    ],
)
def test_an_importer_that_cannot_work_is_one_line(name, error, says, tmp_path):
    with refused(error, says):
        stage(name, str(tmp_path / "to"), source=None if "FETCHED" in name else tmp_path)


SPACE = {"x": Choice(["a", "b", "c"])}


def test_an_own_searcher_suggests():
    searcher = build("own_kinds:Backwards", SPACE, skip=1)
    searcher.replay({"x": "a"})
    assert [searcher.ask(), searcher.ask()] == [{"x": "b"}, None]
    numbers = {"k": np.int64(3), "t": np.float32(0.5)}
    space = {"k": Int(1, 4), "t": Float(0.0, 1.0)}
    suggested = build("own_kinds:Says", space, config=numbers).ask()
    assert suggested == numbers and [*map(type, suggested.values())] == [int, float]


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "own_kinds:Mute",
            {},
            "searcher: this is no searcher and no Optuna sampler, got 'own_kinds:Mute'",
        ),
        (
            "own_kinds:Backwards",
            {"skipp": 1},
            "searcher_options: the searcher does not take these options",
        ),
        ("own_kinds:Bckwards", {}, "searcher: the searcher's module has no such function or class"),
    ],
)
def test_a_searcher_that_cannot_work_is_one_line(name, options, says):
    with refused(SpecError, begins=says):
        build(name, SPACE, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"broken": True}, "own_kinds:Says cannot be built as a searcher; ZeroDivisionError: "),
        (
            {"config": "raise"},
            "own_kinds:Says fails in ask; ZeroDivisionError: division by zero (own_kinds.py, line ",
        ),
        (
            {"config": ["a"]},
            "own_kinds:Says.ask gives a setting for each parameter of the space, got ['a']; a dict of",
        ),
        (
            {"config": {"y": "a"}},
            "own_kinds:Says.ask gives a setting for each parameter of the space, got {'y': 'a'}",
        ),
        (
            {"config": {"x": "d"}},
            "own_kinds:Says.ask gives values of the space, got {'x': 'd'}; x is Choice(options=",
        ),
    ],
)
def test_what_an_own_searcher_suggests_must_lie_in_the_space(options, says):
    with refused(SpecError, begins=f"searcher: {says}"):
        build("own_kinds:Says", SPACE, **options).ask()


def test_a_sampler_that_fails_is_named():
    with refused(SpecError, match=r"^searcher: Sampler fails; ZeroDivisionError: .*own_kinds"):
        build("own_kinds:Sampler", SPACE).ask()


def test_conditional_parameters_are_asked_of_an_own_searcher_where_they_exist():
    space = {**SPACE, "y": Choice([1], when={"x": "b"})}
    assert build("own_kinds:Says", space, config={"x": "a"}).ask() == {"x": "a"}
    with refused(SpecError, "here x, y"):
        build("own_kinds:Says", space, config={"x": "b"}).ask()


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("NoRule", {}, "pruner: own_kinds:NoRule cannot be built as a pruner; IndexError: "),
        (
            "NoRule",
            {"rungs": 3},
            "pruner: own_kinds:NoRule cannot be built as a pruner; TypeError: 'int' object is not",
        ),
        ("Rule", {"answers": 1}, "pruner_options: the pruner does not take these options"),
        (
            "Rule",
            {},
            "pruner: own_kinds:Rule.on_report says whether the trial goes on, True or False",
        ),
        (
            "Rule",
            {"answer": "raise"},
            "pruner: own_kinds:Rule fails in on_report; ZeroDivisionError: division by zero",
        ),
        ("OWN", {}, "pruner: the pruner's module has no such function or class"),
        ("Half", {}, "pruner: the pruner lacks methods"),
    ],
)
def test_a_pruner_that_cannot_work_is_one_line(name, options, says):
    with refused(SpecError, begins=says):
        pruners.build(f"own_kinds:{name}", mode="max", budget=3, **options).try_out()


def test_an_own_pruner_decides():
    rule = pruners.build("own_kinds:Rule", mode="max", budget=3, answer="stop")
    rule.add("t", 0, 0)
    assert rule.on_report("t", 1, 0.5) is False and rule.resumable() == []
    assert not rule.is_paused("t")


def test_only_stores_that_create_in_one_step_say_so():
    assert not FsspecStore("local:///tmp/contrasweep-test-of-fsspec").has_conditional_writes()
