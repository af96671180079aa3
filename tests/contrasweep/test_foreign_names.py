"""What only a storage names is neither imported nor called up: not as a trainable, a setting, data or an address."""

import shutil
import sys
from dataclasses import asdict, replace

import pytest
from answering import answering
from calm import calm_run
from command_line import contrasweep
from folders import make_files
from refusals import refused
from tracked import tracked_of

import contrasweep as cs
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running import driver
from contrasweep.running.publish import publish
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.planned import read_planned, write_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import STUDY_FILE
from contrasweep.study.trust import check_named
from contrasweep.tracking.kinds import checked_tracking
from contrasweep.tracking.links import LINKS_FILE, read_links

ARMS = {name: cs.Arm("toy:train", {"epochs": 1, "lr": lr}) for name, lr in (("a", 0.1), ("b", 0.3))}
STUDY = cs.AblationGrid("small", ARMS, "digits-lt", folds=2, metric="accuracy")
CONTRASTIVE = "contrasweep.trainables.contrastive:train"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The storage of a study that ran."""
    folder = tmp_path_factory.mktemp("good")
    calm_run(STUDY, folder)
    return folder


@pytest.fixture
def here(good, tmp_path, monkeypatch):
    """A current folder to import from, with the storage `runs` and a module that a storage might name."""
    shutil.copytree(good, tmp_path / "runs")
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\ndef load_model(*given): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("evil", None)


def records_of(folder):
    return StudyRecords(str(folder / "runs"), "small")


def forge_study(folder, **fields):
    records = records_of(folder)
    document = records.document()
    spec = {**document.spec, **fields}
    records.store.write("small/study.json", STUDY_FILE.encode(asdict(replace(document, spec=spec))))


def forge_trial(folder, trainable, config):
    """Put a trial of a foreign trainable in place of a planned one, with all that makes it whole."""
    records = records_of(folder)
    planned = plan(STUDY, storage=str(folder / "runs"))
    forged = replace(planned.trials[0], trainable=trainable, config=config)
    records.write(Record.of(forged, status=Status.DONE, metrics={"accuracy": 1.0}, step=1))
    Checkpoints(records.store, records.key(forged.id, "checkpoint")).save(
        folder / "runs/datasets", 1
    )
    frame = read_planned(records)
    write_planned(records, frame.assign(trial_id=[forged.id, *frame["trial_id"][1:]]), "")
    return planned


FORGED = [
    ("evil:train", {}),
    (CONTRASTIVE, {"encoder": {"name": "evil:Net"}}),
    ("contrasweep.commands.trainable:train", {"command": ["touch", "ran"]}),
    ("contrasweep.imports:import_path", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("trainable", "config"), FORGED)
def test_evaluate_imports_nothing_that_a_storage_names(trainable, config, here):
    make_files(here, {"runs/datasets/x": "x"})
    forge_trial(here, trainable, config)
    with refused(
        cs.SpecError,
        match=r"what only a storage names is not used.* file or module:NAME that declares",
    ):
        driver.evaluate("small", on=["digits"], storage=str(here / "runs"), tracking=None)
    assert "evil" not in sys.modules and not (here / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["evil:data", "evil:data?n=1", "s3://bucket/data"])
def test_evaluate_reads_no_dataset_of_an_address_or_a_module_that_a_storage_names(name, here):
    forge_study(here, data=name)
    with refused(cs.SpecError, "what only a storage names is not used"):
        driver.evaluate(STUDY, on=["digits"], storage=str(here / "runs"), tracking=None)
    assert "evil" not in sys.modules


@pytest.mark.slow
def test_code_of_ones_own_is_evaluated_by_the_study_that_declares_it_or_the_package_that_is_named(
    here, monkeypatch
):
    """toy has no loader, which is asked for once the code may be imported."""
    for study in (STUDY, "small"):
        with refused(cs.SpecError, "the loader's module has no such function"):
            driver.evaluate(study, on=["digits"], storage=str(here / "runs"), tracking=None)
        monkeypatch.setenv("CONTRASWEEP_CODE", "other,toy")


@pytest.mark.slow
def test_a_run_logs_no_model_by_code_that_a_storage_names(mlflow_uri, here, capsys):
    """As a storage may change between the plan and what follows the last trial."""
    make_files(here, {"runs/datasets/x": "x"})
    for trainable, config in [FORGED[0], ("toy:train", {"encoder": "evil:Net"})]:
        planned = forge_trial(here, trainable, config)
        results = Results.load("small", str(here / "runs"))
        assert results.trial_records
        assert {r.trainable for r in results.trial_records.values()} >= {trainable}
        tracked = tracked_of("small", planned.trials, metric="accuracy", storage=str(here / "runs"))
        publish(results, checked_tracking(mlflow_uri), tracked, trained=planned)
        assert "evil" not in sys.modules and not (here / "ran").exists()
    error = capsys.readouterr().err
    assert "model of arm a is not in MLflow (SpecError: config: what only a storage names" in error
    assert "name it in the study, or set CONTRASWEEP_CODE" in error


@pytest.fixture
def server():
    with answering(otherwise=(200, "")) as server:
        yield server.address, server.asked


@pytest.mark.slow
@pytest.mark.parametrize(
    "tracking", ["evil:Tracker", "runs.small.evil:X", "tensorboard:/tmp/x", ["SERVER", "evil:X"]]
)
def test_sync_opens_no_tracker_that_only_the_storage_names(tracking, here, server, monkeypatch):
    address, asked = server
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "alice")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "s3cr3t")
    (here / "runs/small/evil.py").write_text("open('ran', 'w').close()\n")
    for named in (tracking, address, f"sqlite:///{here}/other.db"):
        forge_study(here, tracking=[address, "evil:X"] if isinstance(named, list) else named)
        for words in (("sync",), ("sync", "--follow")):
            done = contrasweep(*words, "small", "--storage", "runs", folder=here)
            assert done.returncode == 2
            assert "the address that a storage names is not used" in done.stderr
    assert not asked and not (here / "ran").exists() and not (here / "other.db").exists()
    assert not {"evil", "runs.small.evil"} & sys.modules.keys()


@pytest.mark.slow
def test_sync_takes_the_address_of_the_study_that_the_user_names(here):
    forge_study(here, tracking="evil:Tracker")
    (here / "mine.py").write_text(
        "import contrasweep as cs\n"
        "STUDY = cs.AblationGrid('small', {'a': cs.Arm('toy:train')}, 'digits-lt', tracking='tensorboard:shown')\n"
    )
    done = contrasweep("sync", "mine:STUDY", "--storage", "runs", folder=here)
    assert done.returncode == 0 and "4 trials added to tensorboard:shown" in done.stdout, done
    assert "evil" not in sys.modules


@pytest.mark.slow
def test_scores_go_where_the_study_is_shown_only_if_the_user_says_that_place_too(
    here, server, capsys
):
    """What evaluate does at its end with the address in the storage's mlflow.json."""
    address, asked = server
    records = records_of(here)
    links = asdict(read_links(records)) | {"tracking": address, "runs": {"t": ""}}
    LINKS_FILE.write(records.store, "small/mlflow.json", links)
    assert driver._where_shown(records, "sqlite:///mlflow.db") is None
    assert f"contrasweep sync small --tracking {address}" in capsys.readouterr().err
    assert driver._where_shown(records, [address]) == [address] and not asked
    LINKS_FILE.write(
        records.store, "small/mlflow.json", links | {"tracking": f"sqlite:///{here}/mlflow.db"}
    )
    assert driver._where_shown(records, "sqlite:///mlflow.db") == "sqlite:///mlflow.db"


def test_words_of_a_command_and_files_and_options_among_its_settings_are_named_by_the_user():
    """A command has no colon; whoever runs `train.py` has not named `sh`, nor any other file."""
    mine = {"command": ["python", "train.py", "{lr}"], "lr": 0.1, "mode": "fast"}
    check_named({"command": mine["command"], "lr": 0.7, "mode": "cosine-decay"}, mine, "", "")
    for change in (
        {"command": ["sh", "-c", "{lr}"]},
        {"mode": "--config=evil"},
        {"mode": "runs/evil.py"},
    ):
        with refused(cs.SpecError, "what only a storage names"):
            check_named(mine | change, mine, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "storage"), [("runs", "."), ("runs/small", "..")])
def test_no_module_is_imported_that_lies_in_a_storage(folder, storage, here):
    """The current folder is one to import from, and a file of a storage there would be any package."""
    (here / folder / "study.yaml").write_text(
        "name: new\narms: {a: {trainable: 'lying:train'}}\ndata: digits-lt\n"
    )
    (here / folder / "lying.py").write_text("open('ran', 'w').close()\n")
    for words in (
        ["plan", "study.yaml"],
        ["run", "study.yaml"],
        ["evaluate", "study.yaml"],
        ["sync", "study.yaml"],
    ):
        done = contrasweep(*words, "--storage", storage, folder=here / folder)
        assert done.returncode == 2 and "a storage is no folder to import from" in done.stderr, done
    assert (
        contrasweep("report", "small", "--storage", storage, folder=here / folder).returncode == 0
    )
    assert not list(here.rglob("ran"))
