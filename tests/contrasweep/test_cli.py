"""The command line as a person uses it: exit statuses, one-line errors, nothing written on bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from command_line import contrasweep, printed, python, refusal, shown_json
from folders import make_files
from places import ROOT
from store_faults import STUDY, SUPPORT, live

from contrasweep.cli.catalogue import TABLES, descriptions
from contrasweep.data import stage
from contrasweep.planning.planner import plan
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.file import load_study, to_plain

QUICK = "contrasweep.search_spaces.quickstart:STUDY"


BAD = {
    "unknown field": (
        ["--set", "metrik=f1"],
        "metrik: there is no such field; did you mean 'metric'?",
    ),
    "wrong type": (["--set", "folds=five"], "folds: input should be a valid integer"),
    "unknown loss": (
        ["--set", "arms.ocl.config.loss=oclx"],
        "arms.ocl.config.loss.name: there is no such loss, got 'oclx'; did you mean 'ocl'?",
    ),
    "unknown setting": (
        ["--set", "arms.ocl.config.epoch=3"],
        "arms.ocl.config.epoch: there is no such field; did you mean 'epochs'?",
    ),
    "empty axis": (
        ["--set", "axes.batch_size=[]"],
        "axes.batch_size: list should have at least 1 item",
    ),
    "folds above rows": (["--set", "folds=10000"], "folds: 544 rows cannot fill 10000 folds"),
    "missing dataset": (
        ["--set", "data=mnist"],
        "dataset 'mnist' is not staged; stage it with: contrasweep data stage mnist",
    ),
    "unknown dataset": (
        ["--set", "data=digitz"],
        "there is no dataset 'digitz'; did you mean 'digits'?",
    ),
    "unwritable storage": (["--storage", "/proc/x"], "storage /proc/x cannot be written"),
    "unknown storage": (
        ["--storage", "gz://b/x"],
        "gz://b/x: storage must be a folder, an s3:// address, or one",
    ),
    "storage of one process": (
        ["--storage", "memory://b/x"],
        "memory://b/x is seen by this process alone",
    ),
    "folder as tracking store": (["--tracking", "./mlruns"], "a folder is no tracking store"),
    "malformed --set": (["--set", "folds"], "--set: --set takes path=value, got 'folds'"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_input_is_one_line_and_writes_nothing(case, tmp_path):
    words, says = BAD[case]
    assert says in refusal(tmp_path, "run", QUICK, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_bad_input_ends_the_process_itself_with_one_line(tmp_path):
    words, says = BAD["unknown field"]
    done = python("-m", "contrasweep", "run", QUICK, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("contrasweep: ") and says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run"], "Missing argument 'STUDY'"),
        (["plan", QUICK, "--nothing-of-the-kind"], "No such option: --nothing-of-the-kind (see"),
        (["ruin"], "No such command 'ruin'"),
        (["run", QUICK, "--max-concurrent", "0"], "Invalid value for '--max-concurrent'"),
        (["list", "metods"], "did you mean 'methods'?"),
        (["list", "studies", "json"], "list studies: there are no entries, got 'json'"),
        (["plan", "quickstart"], "got 'quickstart'; for example contrasweep.search_spaces"),
        (
            ["plan", "contrasweep.search_spaces.quickstart:STUDI"],
            "no such study in this module, got 'STUDI'; did you mean 'STUDY'? known studies: STUDY",
        ),
        (["ui", "--port", "-1"], "Invalid value for '--port'"),
        (["report", QUICK], "there is no such study in this storage, got 'quickstart'"),
        (["list", "metrics"], "docs/methods.md has a method's scores"),
        (
            ["list", "losses", "oclx"],
            "list losses: there is no such loss, got 'oclx'; did you mean 'ocl'?",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_is_one_line(words, says, tmp_path):
    assert says in refusal(tmp_path, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_plan_of_another_study_of_this_name_is_refused_as_the_run_would_be(tmp_path, runs):
    storage = StudyRecords(runs, "quickstart")
    storage.claim(StudyDocument(name="quickstart", metric="accuracy", plan_digest="another"))
    (trial, *_) = plan(load_study(QUICK), storage=storage.storage).trials
    storage.write(
        Record.of(trial, status=Status.DONE, rows=[{"step": 1, "time": 0.0, "accuracy": 0.5}])
    )
    done = contrasweep("plan", QUICK, "--storage", "runs", folder=tmp_path)
    assert done.returncode == 2
    assert "1 done, 29 to run" in done.stdout, "what would run is shown all the same"
    assert "another plan is in this storage" in done.stderr and "--extend" in done.stderr
    assert (
        contrasweep("plan", QUICK, "--storage", "runs", "--extend", folder=tmp_path).returncode == 0
    )


def test_data_commands_and_their_errors_name_the_storage_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTRASWEEP_STORAGE", str(tmp_path / "there"))
    assert contrasweep("data", "stage", "digits", folder=tmp_path).returncode == 0
    assert (tmp_path / "there/datasets/digits/manifest.json").exists()
    assert printed(tmp_path, "data", "list", "--json").count('"name": "digits"') == 1
    unknown = refusal(tmp_path, "plan", QUICK, "--set", "data=birds")
    assert "there is no dataset 'birds'" in unknown
    assert f"looked in {tmp_path}/there/datasets/birds; staged there: digits" in unknown


def test_an_error_in_a_file_names_file_and_field(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "name: s\ndata: digits\narms:\n  a: {trainable: 'contrasweep.trainables.contrastive:train', cfg: {}}\n"
    )
    done = contrasweep("plan", "s.yaml", folder=tmp_path)
    assert (done.returncode, done.stderr.split(";")[0]) == (
        2,
        "contrasweep: s.yaml: arms.a.cfg: there is no such field",
    )
    (tmp_path / "t.yaml").write_text("name: [")
    assert "t.yaml: the study file is not YAML" in refusal(tmp_path, "plan", "t.yaml")


def test_plan_shows_cells_and_warns_of_five_folds(tmp_path):
    done = printed(tmp_path, "plan", QUICK)
    assert "trials    30: 0 done, 30 to run" in done
    assert "decides   overall, 3 comparisons" in done
    assert "only large differences are decided; 12 seeds a fold would decide one spread" in done
    assert list(tmp_path.iterdir()) == []
    shown = shown_json(tmp_path, "plan", QUICK, "--set", "seeds=[0,1]")
    assert (shown["cells"], shown["trials"], shown["to_run"]) == (6, 60, 60)


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


@pytest.mark.parametrize(
    "kind",
    [
        "methods",
        "losses",
        "similarities",
        "datasets",
        "encoders",
        "augmentations",
        "optimizers",
        "heads",
        "studies",
    ],
)
def test_list_names_and_describes_all(kind, tmp_path):
    shown = shown_json(tmp_path, "list", kind)["entries"]
    assert shown and all(
        text and "object at 0x" not in text and "function" not in text for text in shown.values()
    ), shown


OWN_METHOD = """
from contrasweep.schema import checked

@checked
class Head:
    dim: int = 128
    \"\"\"Width of the projection.\"\"\"

@checked
class Settings:
    learning_rate: float
    \"\"\"Step size of the optimiser,
    per batch.\"\"\"
    head: Head = Head()

def train(trial, resume=None):
    yield

train.settings = Settings
"""


def test_list_prints_the_settings_of_a_method_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_METHOD)
    done = contrasweep("list", "methods", "mine:train", folder=tmp_path)
    assert done.stdout.splitlines() == [
        "learning_rate  float, required",
        "               Step size of the optimiser, per batch.",
        "head.dim       int, default 128",
        "               Width of the projection.",
    ]
    rows = shown_json(tmp_path, "list", "methods", "mine:train")["settings"]
    assert [row["name"] for row in rows] == ["learning_rate", "head.dim"]


def test_list_takes_a_function_of_optuna_as_an_arm_names_it(tmp_path):
    (tmp_path / "tried.py").write_text("def objective(trial, width=8): ...\n")
    (row,) = shown_json(tmp_path, "list", "methods", "optuna:tried:objective")["settings"]
    assert (row["name"], row["default"]) == ("width", "8")
    unknown = contrasweep("list", "methods", "tune:tried:train", folder=tmp_path)
    assert "no such function or class, got 'tried:train'; known names: objective" in unknown.stderr


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


OWN_PACKAGE = """
import numpy as np
from contrasweep import AblationGrid, Arm
from contrasweep.data.content import Importer
from contrasweep.schema import checked

@checked
class Settings:
    every: int = 1
    \"\"\"Keep each n-th image.\"\"\"

def read(source, settings): ...

read.settings = Settings
IMAGES = Importer(read, "own images", "mine", settings=Settings)
STUDY = AblationGrid(name="x", description="Mine", arms={"a": Arm("mine:train")}, data="mine:IMAGES")
"""


@pytest.mark.parametrize("name", ["read", "IMAGES"])
def test_list_prints_the_settings_of_a_dataset_of_ones_own(name, tmp_path):
    (tmp_path / "mine.py").write_text(OWN_PACKAGE)
    done = contrasweep("list", "datasets", f"mine:{name}", folder=tmp_path)
    assert done.stdout.splitlines() == ["every  int, default 1", "       Keep each n-th image."], (
        done.stderr
    )


def test_list_names_the_studies_of_a_package_of_ones_own(tmp_path):
    make_files(tmp_path, {"mine/__init__.py": "", "mine/studies.py": OWN_PACKAGE})
    for name in ("mine", "mine.studies"):
        assert printed(tmp_path, "list", "studies", name).split() == [
            "mine.studies:STUDY",
            "Mine",
        ]
    wrong = contrasweep("list", "studies", "mine.no_such", folder=tmp_path)
    assert wrong.returncode == 2
    assert "list studies: the study's module cannot be imported" in wrong.stderr


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
    for words in (("report", "life"), ("ledger",)):
        program = [sys.executable, "-m", "contrasweep", *words, "--json", "-o", "out.json"]
        subprocess.check_call([*program, "--storage", runs], env=environment, cwd=tmp_path)
        assert json.loads((tmp_path / "out.json").read_text())["schema"].partition("/")[0] in (
            "report",
            "comparisons",
        )
    # The lines of a table are no ASCII.
    environment["PYTHONIOENCODING"] = "ascii"
    words = ("run", "study.yaml", "--tracking", "none", "--storage", runs)
    command = [sys.executable, "-m", "contrasweep", *words]
    assert "??????" in subprocess.check_output(command, env=environment, cwd=tmp_path, text=True)


def test_a_limit_on_address_space_under_which_libraries_cannot_be_loaded_is_one_line(tmp_path):
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({3 * 10**8}, {3 * 10**8}))"
    words = [
        sys.executable,
        "-c",
        f"{limit}; from contrasweep.cli import main; main()",
        "list",
        "losses",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    says = "contrasweep: the address space of this process is limited to 0.28 GiB, and libraries need 1 GiB"
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (
        2,
        "",
        1,
    )
    assert done.stderr.startswith(says)


@pytest.mark.slow
def test_a_limit_on_address_space_under_which_ray_would_abort_is_one_line(tmp_path):
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({6 * 10**9}, {6 * 10**9}))"
    words = [sys.executable, "-c", f"{limit}; from contrasweep.cli import main; main()", "doctor"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if "  ray  " in line]
    assert line.startswith("FAIL")
    assert "limited to 5.6 GiB, and Ray needs 8 GiB to start; `ulimit -v" in line
    assert done.returncode == 1 and done.stderr == ""
