"""The package of examples/installed_parts, built and installed: its parts go by names, records have its version."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from drivers import ray_folder
from places import ROOT

EXAMPLE = ROOT / "examples/installed_parts"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(*words): what `contrasweep *words` prints where the package is installed, in a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(EXAMPLE, folder / "source")
    build = ["hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run([sys.executable, "-m", *build], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder / "site-packages", "zip")
    shutil.rmtree(source)
    here = folder / "work"
    here.mkdir()
    environment = os.environ | {"PYTHONPATH": str(folder / "site-packages")}

    def run(*words, status=0, folder=here, environment=environment):
        command = [sys.executable, "-m", "contrasweep", *words]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    run.folder = here
    run.environment = environment
    with ray_folder() as ray:
        environment["RAY_TMPDIR"] = str(ray)
        yield run


STUDY = {"data": "digits-lt", "metric": "accuracy", "seeds": [0, 1]}
EXPECTED = {
    "losses": ("huber", "contrasweep_huber.parts:huber, of contrasweep-huber 0.3.0"),
    "methods": ("nearest-mean", "contrasweep_huber.parts:nearest_mean, of contrasweep-huber 0.3.0"),
    "datasets": ("two-dots", "contrasweep_huber.parts:two_dots, of contrasweep-huber 0.3.0"),
    "readers": ("huber_*.txt", "contrasweep_huber.parts:read, of contrasweep-huber 0.3.0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXPECTED)
def test_list_shows_an_installed_part_with_its_package_beside_the_shipped_ones(run, kind):
    entries = json.loads(run("list", kind, "--json"))["entries"]
    assert EXPECTED[kind] in entries.items() and len(entries) > 3


@pytest.mark.slow
def test_a_name_is_its_dotted_path_in_the_plan_and_a_wrong_one_is_refused_with_the_known_ones(run):
    arms = {
        "short": {
            "trainable": "contrastive",
            "config": {"loss": {"name": "huber", "width": 0.2}, "epochs": 1},
        },
        "long": {
            "trainable": "contrastive",
            "config": {
                "loss": {"name": "contrasweep_huber.parts:huber", "width": 0.2},
                "epochs": 1,
            },
        },
        "own": {"trainable": "nearest-mean"},
    }
    (run.folder / "names.yaml").write_text(yaml.safe_dump({"name": "names", "arms": arms, **STUDY}))
    code = (
        "import contrasweep as cs; trials = {t.arm: t for t in cs.plan('names.yaml').trials};"
        "assert trials['short'].config == trials['long'].config, trials;"
        "assert trials['own'].trainable == 'contrasweep_huber.parts:nearest_mean'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=run.folder,
        env=run.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "width" in run("list", "losses", "huber")
    refused = run("plan", "names.yaml", "--set", "arms.short.config.loss=hubert", status=2)
    assert "there is no such loss" in refused and "huber" in refused and refused.count("\n") == 1


@pytest.mark.slow
def test_judge_reads_files_by_an_installed_reader(run):
    for arm in ("a", "b"):
        for seed in range(6):
            place = run.folder / "made" / arm / f"seed{seed}"
            place.mkdir(parents=True)
            (place / "huber_1.txt").write_text(
                f"accuracy {0.5 + 0.1 * (arm == 'a') + 0.01 * seed}\nloss 1\n"
            )
    printed = run("judge", "made", "--metric", "accuracy", "--mode", "max", "--pair", "seed")
    assert "a" in printed and "better" in printed


@pytest.mark.slow
def test_parts_that_only_lie_in_the_current_folder_are_not_taken(run, tmp_path):
    """A folder with metadata of a package is not an installation: it may be what somebody else has sent."""
    for path in Path(run.environment["PYTHONPATH"]).iterdir():
        shutil.copytree(path, tmp_path / path.name) if path.is_dir() else shutil.copy(
            path, tmp_path
        )
    environment = run.environment | {"PYTHONPATH": str(tmp_path)}
    assert "huber" not in run("list", "losses", folder=tmp_path, environment=environment)


@pytest.mark.long
def test_a_trials_record_has_the_name_and_version_of_the_package(run):
    run("data", "stage", "two-dots", "--source", str(EXAMPLE / "pyproject.toml"), "--to", "dots")
    study = {
        "name": "dots",
        "arms": {"mean": {"trainable": "nearest-mean"}},
        **STUDY,
        "data": "./dots",
        "folds": 4,
    }
    (run.folder / "dots.yaml").write_text(yaml.safe_dump(study))
    run("run", "dots.yaml", "--storage", "runs", "--tracking", "none")
    records = [
        json.loads(path.read_text())
        for path in (run.folder / "runs/dots/records").glob("*/record.json")
    ]
    assert len(records) == 8
    assert {record["versions"]["contrasweep-huber"] for record in records} == {"0.3.0"}
    assert {record["metrics"]["accuracy"] for record in records} == {1.0}
