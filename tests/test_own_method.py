"""A stranger's method: the skeleton that `contrasweep init` writes, and the same with the installed wheel."""

import json
import subprocess
import sys

import jsonschema
import pytest
import yaml
from command_line import python
from places import ROOT, environment_without
from refusals import refused
from typer.testing import CliRunner

from contrasweep.cli.app import app
from contrasweep.cli.skeleton import FILES
from contrasweep.errors import SpecError

EXAMPLE = ROOT / "examples/own_method"


def init(*words: str) -> str:
    done = CliRunner().invoke(app, ["init", *words], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


@pytest.fixture(scope="module")
def thesis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("init") / "My-Thesis"
    init(str(folder))
    return folder


def test_init_writes_the_example_with_a_package_of_the_folders_name(thesis):
    files = {path.relative_to(thesis).as_posix() for path in thesis.rglob("*") if path.is_file()}
    assert files == {name.replace("own_method", "my_thesis") for name in FILES} | {
        "study.schema.json"
    }
    assert all("own_method" not in path.read_text() for path in thesis.rglob("*") if path.is_file())
    assert (thesis / "my_thesis/method.py").read_text() == (
        EXAMPLE / "own_method/method.py"
    ).read_text()


def test_the_schema_beside_the_study_accepts_it_and_refuses_a_misspelt_field(thesis):
    first = (thesis / "study.yaml").read_text().splitlines()[0]
    schema = json.loads((thesis / first.rpartition("$schema=")[2]).read_text())
    study = yaml.safe_load((thesis / "study.yaml").read_text())
    jsonschema.validate(study, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(study | {"metrik": "accuracy"}, schema)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["."], "FOLDER: the folder must be new or empty"),
        (
            ["json"],
            "FOLDER: there is a package of this name already, got 'json'; choose another, for example ",
        ),
        (
            ["1st"],
            "FOLDER: the folder's name is that of a package, which Python can import, got '1st'",
        ),
    ],
)
def test_init_overwrites_and_hides_nothing(words, says, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with refused(SpecError, begins=says):
        init(*words)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.long
def test_the_method_runs_from_the_wheel_outside_of_the_repository(tmp_path):
    """Build and install the wheel, write the skeleton, stage a folder of images, test the method, run its study."""
    from PIL import Image
    from sklearn.datasets import load_digits

    dist = tmp_path / "dist"
    site = tmp_path / "site"
    work = tmp_path / "work"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist],
        cwd=ROOT,
        check=True,
    )
    [wheel] = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, site], check=True)
    work.mkdir()
    digits = load_digits()
    for i in range(200):
        folder = work / f"images/digit-{digits.target[i]}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[i] * 15).astype("uint8")).save(folder / f"{i}.png")

    def run(*words, cwd):
        kept = environment_without("CONTRASWEEP_")
        environment = kept | {"PYTHONPATH": str(site), "CONTRASWEEP_CACHE": str(tmp_path / "cache")}
        done = python(*words, cwd=cwd, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert str(site) in run("-c", "import contrasweep; print(contrasweep.__file__)", cwd=work)
    run("-m", "contrasweep", "init", "mythesis", cwd=work)
    own = work / "mythesis"
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=own)
    place = str(own / "contrasweep-runs/datasets/own-digits")
    stage = ["data", "stage", "image-folder", "--source", "../images", "--to", place]
    run("-m", "contrasweep", *stage, cwd=own)
    sets = [
        "--set",
        "data=own-digits",
        "--set",
        "axes.batch_size=[32]",
        "--set",
        "arms.ours.config.epochs=2",
    ]
    printed = run("-m", "contrasweep", "run", "study.yaml", *sets, "--tracking", "none", cwd=own)
    assert "mythesis on own-digits: accuracy" in printed and "ours" in printed
    assert "accuracy" in run(str(EXAMPLE / "before.py"), "../images", "--epochs", "1", cwd=own)
