"""The core does without what is reached by dotted path alone: in a copy without those folders, all of it works."""

import shutil
import subprocess
import sys

import pytest
from places import ROOT, environment_without

from contrasweep.cli.catalogue import TABLES

PACKAGES = ("platform", "trainables", "search_spaces", "cluster")
EXTRAS = ("trainables/review_helpfulness",)
"""Folders that the core does without."""
COMMANDS = """
import sys, contrasweep
from contrasweep.cli import main
for words in (line.split() for line in sys.stdin):
    sys.argv = ["contrasweep", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
print(contrasweep.__file__)
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A copy of the product without the extras."""
    folder = tmp_path_factory.mktemp("core")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            folder / package,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for extra in EXTRAS:
        shutil.rmtree(folder / extra)
    return folder


def environment(core):
    """Imports come from the copy; what is staged on demand goes there too."""
    paths = {"PYTHONPATH": str(core / "platform")}
    kept = environment_without("CONTRASWEEP_")
    return kept | paths | {"CONTRASWEEP_CACHE": str(core / "cache")}


def python(core, *words, given=""):
    return subprocess.run(
        [sys.executable, *words],
        cwd=core,
        env=environment(core),
        input=given,
        capture_output=True,
        text=True,
    )


def test_no_module_of_the_core_names_an_extra(core):
    names = [extra.replace("/", ".") for extra in EXTRAS]
    naming = {
        path.relative_to(core).as_posix()
        for package in PACKAGES
        for path in (core / package).rglob("*.py")
        if any(name in path.read_text() for name in names)
    }
    assert naming == set()


@pytest.mark.slow
def test_it_lists_what_there_is_and_plans_the_quickstart(core):
    commands = [
        *(f"list {kind}" for kind in (*TABLES, "studies")),
        "schema",
        "plan contrasweep.search_spaces.quickstart:STUDY",
    ]
    done = python(core, "-c", COMMANDS, given="\n".join(commands))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(core / "platform/contrasweep/__init__.py")
    assert "trials    30: 0 done, 30 to run" in done.stdout
