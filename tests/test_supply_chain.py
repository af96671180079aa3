"""What is installed and what is shipped: versions with hashes and without addresses, and nothing that is not named."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from command_line import python
from places import ROOT

LINKS = ("cluster", "search_spaces", "trainables")


def pins(name):
    return dict(
        re.findall(
            r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)",
            (ROOT / name).read_text(),
            flags=re.MULTILINE,
        )
    )


def test_every_direct_dependency_has_an_exact_version_and_no_line_an_address():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["all"]]
    names = {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in declared}
    assert names <= {name.lower() for name in pins("constraints.txt")}
    assert len(pins("constraints.txt")) > 100
    assert "://" not in (ROOT / "constraints.txt").read_text()


def test_an_image_holds_what_is_named_and_nothing_else():
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    shipped = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert {
        "platform",
        "cluster",
        "trainables",
        "search_spaces",
        "pyproject.toml",
        "build/requirements.txt",
    } <= shipped
    assert not shipped & {".git", ".venv", "tests", "contrasweep-runs", "."}
    assert all((ROOT / name).exists() for name in shipped - {"build/requirements.txt"})
    assert "--require-hashes" in (ROOT / "cluster/files/Dockerfile").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A wheel of this tree, an sdist, and a wheel of the unpacked sdist."""
    folder = tmp_path_factory.mktemp("built")

    def build(source, target, to):
        command = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            target,
            "--directory",
            str(folder / to),
        ]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
        (file,) = (folder / to).iterdir()
        return file

    sdist = build(ROOT, "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return {
        "wheel": build(ROOT, "wheel", "wheel"),
        "sdist": sdist,
        "from sdist": build(unpacked, "wheel", "again"),
    }


@pytest.mark.slow
def test_a_wheel_holds_each_file_once_under_one_name(built):
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = wheel.namelist()
        assert not any(info.external_attr >> 28 == 0o12 for info in wheel.infolist()), "a link"
    assert len(names) == len(set(names))
    assert {name.split("/")[0] for name in names} == {"contrasweep", "contrasweep-0.1.0.dist-info"}
    package = ROOT / "platform/contrasweep"
    sources = {
        (Path(folder) / name).relative_to(ROOT / "platform").as_posix()
        for folder, _, files in os.walk(package, followlinks=True)
        for name in files
        if not name.endswith(".pyc")
    }
    assert sources <= set(names)
    assert {f"contrasweep/{link}/__init__.py" for link in LINKS} <= sources
    added = ("contrasweep/example/", "contrasweep/SKILL.md", "contrasweep-0.1.0")
    assert "contrasweep/SKILL.md" in names
    assert all(name in sources for name in names if not name.startswith(added))


@pytest.mark.slow
def test_an_sdist_holds_files_for_links_and_its_wheel_is_the_same(built):
    with tarfile.open(built["sdist"]) as archive:
        assert not any(member.issym() or member.islnk() for member in archive)
        below = [member.name.split("/")[1] for member in archive]
    assert not set(below) & set(LINKS)
    assert built["from sdist"].read_bytes() == built["wheel"].read_bytes()


def test_a_checkout_without_links_is_told_in_one_line(tmp_path, storage):
    """As `git config core.symlinks false` leaves it: each link is a file that holds its target."""
    package = tmp_path / "contrasweep"
    left_out = shutil.ignore_patterns("__pycache__", *LINKS)
    shutil.copytree(ROOT / "platform/contrasweep", package, ignore=left_out)
    for name in LINKS:
        (package / name).write_text(f"../../{name}")
    script = tmp_path / "bin/contrasweep"
    script.parent.mkdir()
    script.write_text("from contrasweep.cli import program\nprogram()\n")
    for words in (["-m", "contrasweep", "--help"], [str(script), "--help"]):
        done = python(*words, env={"PYTHONPATH": storage}, cwd=tmp_path)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert "git config core.symlinks true && git checkout --" in done.stderr
    imported = python("-c", "import contrasweep", env={"PYTHONPATH": storage})
    assert (
        "\nImportError: contrasweep/cluster, trainables and search_spaces are symbolic links"
        in imported.stderr
    )
