"""The house itself: imports run one way, one module per engine, docstrings, nothing shadows the standard library."""

import ast
import functools
import graphlib
import importlib
import json
import os
import platform
import re
from collections import Counter

import grimp
import pytest
from command_line import python
from drivers import ray_folder
from places import ROOT
from size import sizes

from contrasweep.storage.record import Status

SOURCES = [
    *(ROOT / "platform/contrasweep").rglob("*.py"),
    *(p for d in ("trainables", "search_spaces", "cluster") for p in (ROOT / d).rglob("*.py")),
]
ALLOWED = {  # the only places that may import each engine
    "optuna": ("platform/contrasweep/tuning/searchers/",),
    "mlflow": ("platform/contrasweep/tracking/mlflow/",),
    "boto3": ("platform/contrasweep/storage/s3.py",),
    "botocore": ("platform/contrasweep/storage/s3.py", "platform/contrasweep/storage/s3_retry.py"),
    "s3transfer": ("platform/contrasweep/storage/s3.py",),
    "ray": (
        "platform/contrasweep/running",
        "platform/contrasweep/commands/functions.py",
        "cluster/",
    ),
}
INTERNALS = {  # the only modules that may touch what an engine does not promise
    "ray": ("platform/contrasweep/running/engine/ray_internals.py",),
    "torch": ("trainables/torch_internals.py", "cluster/torch_internals.py"),
}
PRIVATE_MODULES = {
    "ray": re.compile(r"ray\.(\w+\.)*_[a-z]"),
    "torch": re.compile(r"torch\.(_[a-z]|utils\._python_dispatch)"),
}
PRIVATE_ATTRIBUTES = {
    "ray": {
        "run_metadata",
        "temporary_state",
        "_default_result_or_future",
        "_preempted",
        "preempted",
        "_actor_id",
        "tag_callbacks",
        "class_cache",
        "ENV_VARS_TO_PROPAGATE",
        "_on_trial_reset",
        "_trial_to_actor",
    },
    "torch": {"_cdata", "_overloadpacket", "_no_grad_trunc_normal_"},
}
WAY = {"modules": 85, "returns": 140}
"""Of the quickstart, from the command to the first trial; only lower numbers are written here."""
MORE = 1.01
LESS = 0.95
"""How far the size of a part may be from what tests/size.json says."""


@functools.cache
def imported(path):
    """Top-level packages that a file imports, wherever in it."""
    collected = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            collected |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            collected.add(node.module.split(".")[0])
    return collected


def test_import_platform_at_the_root_is_the_standard_library():
    done = python("-c", "import platform; print(platform.system())", cwd=ROOT, check=True)
    assert done.stdout.strip() == platform.system()


@pytest.mark.xdist_group("house")
def test_tests_of_a_group_stay_on_one_worker(request):
    """By the group at the end of their ids; without it each worker would start servers and clusters of its own."""
    assert request.node.nodeid.endswith("@house") == getattr(
        request.config.option, "loadgroup", False
    )


@functools.cache
def names_used(path):
    """Dotted names that a file imports or reads an attribute by."""
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            used |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            used.add(ast.unparse(node))
    return used


@pytest.mark.parametrize("engine", sorted(INTERNALS))
def test_what_an_engine_does_not_promise_is_used_in_its_own_modules_alone(engine):
    def is_private(name):
        hidden = PRIVATE_MODULES[engine].match(name) is not None
        return hidden or not PRIVATE_ATTRIBUTES[engine].isdisjoint(name.split(".")[1:])

    private = {
        path.relative_to(ROOT).as_posix(): names
        for path in SOURCES
        if (names := sorted(name for name in names_used(path) if is_private(name)))
    }
    assert set(private) - set(INTERNALS[engine]) == set(), private


@pytest.mark.parametrize("engine", sorted(ALLOWED))
def test_an_engine_is_imported_in_its_own_place_only(engine):
    users = {p.relative_to(ROOT).as_posix() for p in SOURCES if engine in imported(p)}
    assert {user for user in users if not user.startswith(ALLOWED[engine])} == set()


def test_hosts_know_nothing_of_studies():
    graph = grimp.build_graph("contrasweep", exclude_type_checking_imports=False, cache_dir=None)
    hosts = {module for module in graph.modules if f"{module}.".startswith("contrasweep.cluster.")}
    assert len(hosts) > 10
    assert set().union(*map(graph.find_modules_directly_imported_by, hosts)) <= hosts


def test_a_package_of_ours_has_one_name():
    """The folders at the top of the repository are imported as parts of `contrasweep`, through links that git keeps."""
    for name in ("trainables", "search_spaces", "cluster"):
        link = ROOT / "platform/contrasweep" / name
        assert link.is_symlink() and link.resolve() == ROOT / name
    assert [
        path for path in SOURCES if imported(path) & {"trainables", "search_spaces", "cluster"}
    ] == []


def test_no_modules_import_each_other_in_a_circle():
    """Nor through others, within a function or for types alone: such modules are one module in several files."""
    graph = grimp.build_graph("contrasweep", exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the circle


def test_no_part_grows_without_a_word():
    """tests/size.json has the tokens of each part. A little more or less passes, for work that lands side by side."""
    stated = json.loads((ROOT / "tests/size.json").read_text())
    now = sizes()
    wrong = [
        f"{part} has {now[part]:,} tokens and tests/size.json says {size:,}: "
        + (
            "delete as much as you add; or write the larger number there, and say in the commit's message what it "
            "deletes or what nobody else can do"
            if now[part] > size
            else "write the smaller number there, so that it stays small"
        )
        for part, size in stated.items()
        if not LESS * size <= now[part] <= MORE * size
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_the_way_of_a_study_stays_short(tmp_path):
    """From the command to the first trial, traced: modules of ours that are entered, and returns to one left before."""
    study = ("contrasweep.search_spaces.quickstart:STUDY", "--storage", "runs")
    python(
        "-m", "contrasweep", "plan", *study, cwd=tmp_path, check=True
    )  # its data are in this node's cache then
    # Quiet: on a slow machine lines of progress are due before the first trial, and each is a way of its own.
    words = ["run", *study, "--tracking", "none", "--quiet"]
    with ray_folder() as ray:
        environment = os.environ | {"RAY_TMPDIR": str(ray), "OMP_NUM_THREADS": "1"}
        done = python(ROOT / "tests/support/traced_way.py", *words, cwd=tmp_path, env=environment)
    found = re.search(r"modules entered (\d+), returns (\d+)", done.stdout)
    assert found is not None, done.stderr
    assert int(found[1]) <= WAY["modules"] and int(found[2]) <= WAY["returns"], (
        f"{found[0]}, of {WAY} at most: call what you need where its module is entered already, or pass it as a value; "
        "tests/support/traced_way.py prints the way"
    )


def public_definitions(path):
    """Place and docstring of each public function, class and method of a file; those of private classes are private."""
    bodies = [ast.parse(path.read_text()).body]
    while bodies:
        for node in bodies.pop():
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and node.name[0] != "_"
            ):
                if any(
                    ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list
                ):
                    continue  # the implementation says what all of them do
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", ast.get_docstring(node)
                if isinstance(node, ast.ClassDef):
                    bodies.append(node.body)


def test_all_that_is_public_has_a_docstring():
    docstrings = dict(definition for path in SOURCES for definition in public_definitions(path))
    assert len(docstrings) > 1000  # otherwise the search for them is at fault
    assert [place for place, docstring in docstrings.items() if not docstring] == []


def test_a_folder_holds_at_most_twenty_modules():
    """So many are found by looking; a longer list needs a search."""
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in SOURCES)
    assert {folder for folder, count in sizes.items() if count > 20} == set()


COMPARED = re.compile(r"(==|!=|\bis|\bnot|\bin) \(?Status\.|[=!]= ['\"]done['\"]")


def test_a_status_is_asked_and_not_compared():
    """What is done with a trial of a status is a property of `Status`: another status is one more line there."""
    own = "platform/contrasweep/storage/record.py"
    places = [
        path.relative_to(ROOT).as_posix() for path in SOURCES if COMPARED.search(path.read_text())
    ]
    assert places == [own]
    named = re.compile(rf"(['\"]|\.s-)({'|'.join(status.value for status in Status)})\b")
    pages = (ROOT / "platform/contrasweep").glob("*/templates/**/*.*")
    assert [path.name for path in pages if named.search(path.read_text())] == []


COUNTED = re.compile(
    r"(?<!of )(?<!to )(?<!/)\{(?![A-Z_]+[:}])([^{}]+)\} (?:(?:more|fresh|finished|pending) )?(?:trial|seed|candidate|"
    r"arm|cell|configuration|comparison|item|task|GPU|slot|look|network|epoch)s\b"
)
SEVERAL = {
    "len(fitting) or 'no'",
    "self.screening_trials",
    "self.seeds",
    "d.seeds",
    "enough",
    "seeds",
    "n",
    "counts[-1]",
    "design.seeds",
    "len(summary.datasets)",
    "self.most",
    "cells:,",
    "of",
}
"""Counts that are never 1, or are asked for it before."""


def test_a_count_in_a_message_agrees_with_its_noun():
    texts = [
        path.read_text() for path in SOURCES if "cluster" not in path.parts
    ]  # it imports nothing of ours
    assert {count for text in texts for count in COUNTED.findall(text)} <= SEVERAL, (
        "say it by plural()"
    )


OWN_PATH = re.compile(r"['\"](contrasweep(?:\.\w+)+):(\w+)['\"]")


@pytest.mark.slow
def test_every_dotted_path_that_is_written_down_leads_somewhere():
    """No type checker sees these: they are text."""
    named = {match.groups() for path in SOURCES for match in OWN_PATH.finditer(path.read_text())}
    assert len(named) > 20  # otherwise the search for them is at fault
    assert [
        f"{m}:{n}" for m, n in sorted(named) if not hasattr(importlib.import_module(m), n)
    ] == []


UNTYPED = re.compile(r"(Mapping|dict)\[str, Any\]")
ALIAS = re.compile(r"[A-Z]\w* = (Mapping|dict)\[str, Any\]")
UNTYPED_LINES: dict[str, int] = {}  # with the reason


def test_mappings_of_anything_have_a_name_that_says_what_they_are():
    """Bare ones hide facts that are reached by string: a type of its own, or an alias that says whose fields it has."""
    bare = Counter()
    for path in SOURCES:
        lines = path.read_text().splitlines()
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            if UNTYPED.search(line) and not (ALIAS.fullmatch(line) and following.startswith('"""')):
                bare[path.relative_to(ROOT).as_posix()] += 1
    assert bare == UNTYPED_LINES


def test_a_plan_needs_no_engine():
    code = (
        "import sys, contrasweep.planning.grid, contrasweep.results.results, contrasweep.tracking.sync; "
        "print([m for m in ('ray', 'mlflow', 'optuna', 'torch', 'boto3') if m in sys.modules])"
    )
    assert python("-c", code, check=True).stdout.strip() == "[]"
