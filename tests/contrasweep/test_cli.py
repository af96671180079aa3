"""The command line as a person uses it: exit statuses, one-line errors, nothing written on bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from command_line import contrasweep, printed, python, shown_json
from folders import make_files
from places import ROOT
from store_faults import STUDY, SUPPORT, live

from contrasweep.cli.catalogue import TABLES, descriptions
from contrasweep.data import stage
from contrasweep.study.file import load_study, to_plain

QUICK = "contrasweep.search_spaces.quickstart:STUDY"


@pytest.mark.slow
def test_a_trainable_beside_the_study_file_is_found_by_the_installed_command(tmp_path):
    """Unlike `python -m`, the script does not begin with the current folder on its path."""
    make_files(
        tmp_path,
        {
            "mine.py": "def train(trial, resume=None):\n    yield\n",
            "study.yaml": "name: own\ndata: digits-lt\nfolds: 2\narms:\n  a: {trainable: 'mine:train'}\n",
        },
    )
    script = Path(sys.executable).parent / "contrasweep"
    done = subprocess.run(
        [script, "plan", "study.yaml", "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", sorted({*TABLES, "studies"} - {"readers"}))
def test_list_names_and_describes_all(kind, tmp_path):
    shown = shown_json(tmp_path, "list", kind)["entries"]
    assert shown and all(
        text and "object at 0x" not in text and "function" not in text for text in shown.values()
    ), shown


def test_list_finds_what_lies_in_the_current_folder(tmp_path, monkeypatch):
    """The installed command does not have it among the places to import from, as `python -m` does."""
    from contrasweep.cli.catalogue import settings
    from contrasweep.errors import SpecError

    (tmp_path / "listed_here.py").write_text(
        "class Rule:\n    def __init__(self, mode, budget, *, least=0.5): ...\n"
    )
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.chdir(tmp_path)
    assert [(s.name, s.default) for s in settings("pruners", "listed_here:Rule")] == [
        ("least", "0.5")
    ]
    with pytest.raises(SpecError, match="list pruners: the pruner's module cannot be imported"):
        settings("pruners", "not_listed_here:Rule")


@pytest.mark.parametrize(
    "kind", [kind for kind, table in TABLES.items() if table.startswith("contrasweep.trainables.")]
)
def test_list_names_what_trains_without_importing_what_it_trains_with(kind, tmp_path):
    """In a process of its own, beside what is listed where PyTorch is imported."""
    words = [sys.executable, "-X", "importtime", "-m", "contrasweep", "list", kind, "--json"]
    alone = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert " torch._C\n" not in alone.stderr and " contrasweep.cli.catalogue\n" in alone.stderr
    assert json.loads(alone.stdout)["entries"] == descriptions(kind)
    assert "torch" not in sys.modules or sys.modules["torch"].__file__


def test_a_list_imports_nothing_that_counts_or_reads_studies_data_or_the_network():
    words = [sys.executable, "-X", "importtime", "-m", "contrasweep", "list", "losses"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "sincere" in said.stdout and " contrasweep.cli.catalogue\n" in said.stderr
    for name in ("contrasweep.study.base", "numpy", "jaxtyping", "pyarrow.lib", "urllib.request"):
        assert f" {name}\n" not in said.stderr, name


def test_list_prints_what_the_components_of_a_method_take():
    from contrasweep.cli.catalogue import settings

    rows = {row.name: row for row in settings("methods", "contrastive")}
    assert rows["loss"].default == "'supcon'" and "sincere, ocl" in rows["loss"].help
    assert (rows["loss.temperature"].type, rows["loss.temperature"].default) == ("float", "0.1")
    assert rows["optimizer.weight_decay"].default == "0.0001"
    assert rows["encoder.width"].default == "16"
    assert rows["batch_size"].help.startswith("Images of a step") and "loss.entry" not in rows


@pytest.mark.slow
def test_the_printed_schema_knows_the_settings_of_each_method(tmp_path):
    schema = json.loads(printed(tmp_path, "schema"))
    jsonschema.Draft202012Validator.check_schema(schema)
    plain = to_plain(load_study(QUICK))
    jsonschema.validate(plain, schema)
    wrong = json.loads(json.dumps(plain))
    wrong["arms"]["ocl"]["config"]["epochs"] = "many"
    for document in (wrong, plain | {"metrik": "x"}, {"name": "a", "data": "d"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, schema)


def test_a_folder_that_was_removed_under_the_shell_is_one_line(tmp_path):
    code = "import os, sys; os.rmdir(os.getcwd()); from contrasweep.cli import main; sys.argv[1:] = ['plan', 's.yaml']"
    (gone := tmp_path / "gone").mkdir()
    done = python("-c", f"{code}; main()", cwd=gone)
    assert done.returncode == 2
    assert (
        done.stderr
        == "contrasweep: the current folder does not exist any more; cd to one that does\n"
    )


def test_a_folder_of_another_user_is_one_line(tmp_path, monkeypatch):
    def stat(*args, **kwargs):
        raise PermissionError(13, "Permission denied", "theirs/photos")

    words = ("data", "stage", "images", "--source", "theirs/photos", "--to", "staged")
    monkeypatch.setattr(Path, "exists", stat)
    done = contrasweep(*words, folder=tmp_path)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert "PermissionError: [Errno 13] Permission denied: 'theirs/photos' (" in done.stderr


PROGRAM = """
import atexit, sys, threading, time
from contrasweep.cli import program
atexit.register(print, "registered")
def wait():
    time.sleep(0.5)
    print("waited for")
threading.Thread(target=wait, daemon={daemon}).start()
sys.argv[1:] = {arguments}
program()
"""


@pytest.mark.parametrize("daemon", [True, False])
@pytest.mark.parametrize(
    ("arguments", "status", "said"), [(["list", "losses"], 0, "supcon"), (["plan", "no"], 2, "")]
)
def test_the_end_of_a_command_loses_nothing(daemon, arguments, status, said):
    """A process ends without Python's own last steps, but what was printed is there, what was registered for the end is
    done, and threads that must be waited for are."""
    done = python("-c", PROGRAM.format(daemon=daemon, arguments=arguments))
    assert done.returncode == status and said in done.stdout and "registered" in done.stdout
    assert daemon or "waited for" in done.stdout


@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line_and_a_study_keeps_its_status(tmp_path, runs):
    data = stage("digits-lt", str(tmp_path / "lake")).uri
    (tmp_path / "tmp").mkdir()
    (tmp_path / "study.yaml").write_text(STUDY.format(data=data))
    assert live(tmp_path, runs).status == 0
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    said = "contrasweep: what was to be printed is lost, because it cannot be written (No space left on device)"

    def printed_nowhere(*words):
        command = [sys.executable, "-m", "contrasweep", *words, "--storage", runs]
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                command,
                stdout=full,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=tmp_path,
                text=True,
            )
        return done.returncode, done.stderr.splitlines()

    status, lines = printed_nowhere("run", "study.yaml", "--tracking", "none")
    assert status == 0
    assert lines[0].startswith("nothing to train: every trial of life has its record")
    assert lines[-1] == said and "Traceback" not in "".join(lines)
    assert printed_nowhere("report", "life", "--json") == (1, [said]), "what it is for"
    assert printed_nowhere("run", "none.yaml")[0] == 2
    # The lines of a table are no ASCII.
    environment["PYTHONIOENCODING"] = "ascii"
    words = ("run", "study.yaml", "--tracking", "none", "--storage", runs)
    command = [sys.executable, "-m", "contrasweep", *words]
    assert "??????" in subprocess.check_output(command, env=environment, cwd=tmp_path, text=True)


def limited(size, *words, folder):
    """What a command does whose address space has a limit in bytes."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({size}, {size}))"
    return python("-c", f"{limit}; from contrasweep.cli import main; main()", *words, cwd=folder)


def test_a_limit_on_address_space_under_which_libraries_cannot_be_loaded_is_one_line(tmp_path):
    done = limited(3 * 10**8, "list", "losses", folder=tmp_path)
    says = "contrasweep: the address space of this process is limited to 0.28 GiB, and libraries need 1 GiB"
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(says)


@pytest.mark.slow
def test_a_limit_on_address_space_under_which_ray_would_abort_is_one_line(tmp_path):
    storage = tmp_path / "file"
    storage.write_text("")
    done = limited(6 * 10**9, "doctor", "--storage", "file", folder=tmp_path)
    ray, at = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert "limited to 5.6 GiB, and Ray needs 8 GiB to start; `ulimit -v" in ray
    assert f"storage {storage} cannot be written" in at
    assert done.returncode == 1 and done.stderr == ""
