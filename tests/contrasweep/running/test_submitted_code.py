"""Code that reaches a cluster, or a worker, as another than the study was planned with."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from folders import make_files
from refusals import refused

from contrasweep import AblationGrid, Arm
from contrasweep.code import code_of
from contrasweep.errors import ContrasweepError, DataError, SpecError, StorageError
from contrasweep.imports import import_path
from contrasweep.planning.planner import plan
from contrasweep.running import submit as submitting
from contrasweep.running.driver import run
from contrasweep.running.prepare import study_document
from contrasweep.running.study_code import OtherCodeHere, check_submitted, checked_packages
from contrasweep.storage.code_files import write_code
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.file import load_study

STUDY = AblationGrid(
    "s",
    {"a": Arm("thesis_method:train", config={"loss": "thesis_loss:loss"})},
    "digits-lt",
    folds=3,
)


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "code"
    folder.mkdir()
    make_files(
        folder,
        {
            "thesis_method.py": "import numpy\nWIDTH = 16\ndef train(trial, resume=None):\n    yield\n",
            "thesis_loss.py": "def loss(s):\n    return s\n",
        },
    )
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_a_job_runs_the_code_that_was_submitted_or_stops(package, tmp_path, monkeypatch):
    sent = {}

    def submission(words, *, files, uris, **options):
        sent.update(words=words, uris=uris)
        sent["code"] = Path(
            shutil.copy(files[submitting.CODE_FILE], tmp_path / "submitted-code.json")
        )
        return "job"

    monkeypatch.setattr(submitting.submission, "submit", submission)
    submitting.submit(
        STUDY,
        address="http://head:8265",
        storage=str(tmp_path),
        tracking="http://mlflow:5000,tensorboard:/events",
        changed="accept",
        max_concurrent=2,
        extend=True,
        spend=True,
        retry_failed=True,
        rerun=["a"],
    )
    assert sent["words"][sent["words"].index("--submitted-code") + 1] == submitting.CODE_FILE
    tracking = "--tracking http://mlflow:5000,tensorboard:/events"
    assert tracking in " ".join(sent["words"])
    assert {name: uri for name, uri in sent["uris"].items() if name != "storage"} == {
        "tracking": "http://mlflow:5000",
        "tracking tensorboard": "/events",
    }
    flags = "--max-concurrent 2 --accept-code --extend --spend --retry-failed --rerun a"
    assert " ".join(sent["words"]).endswith(flags)
    check_submitted(STUDY, sent["code"])
    (package / "thesis_method.py").write_text(
        "# a comment\n" + (package / "thesis_method.py").read_text()
    )
    check_submitted(STUDY, sent["code"])
    (package / "thesis_loss.py").write_text("def loss(s):\n    return -s\n")
    with refused(
        ContrasweepError,
        match=r"module thesis_loss has digest \w{16} here, \w{16} there; submit from",
    ):
        check_submitted(STUDY, sent["code"])
    (package / "thesis_loss.py").unlink()
    with refused(ContrasweepError, "thesis_loss has digest none (there is no such module) here"):
        check_submitted(STUDY, sent["code"])


def test_what_a_run_would_refuse_is_not_submitted(
    package, tmp_path, storage, records, monkeypatch, capsys
):
    sent = []
    monkeypatch.setattr(
        submitting.submission, "submit", lambda words, **options: sent.append(words) or "job"
    )
    places = {"address": "http://head:8265", "tracking": "none"}
    with refused(
        DataError,
        match=f"no dataset 'birds'; .*looked in {tmp_path}/datasets/birds; .*datasets: none",
    ):
        submitting.submit(dataclasses.replace(STUDY, data="birds"), storage=storage, **places)
    records.claim(StudyDocument(name="s", metric="accuracy", plan_digest="another"))
    (trial, *_) = plan(STUDY, storage=storage).trials
    records.write(
        Record.of(trial, status=Status.DONE, rows=[{"step": 1, "time": 0.0, "accuracy": 0.5}])
    )
    with refused(SpecError, "another plan is in this storage"):
        submitting.submit(STUDY, storage=storage, **places)
    assert sent == []
    submitting.submit(STUDY, storage=storage, extend=True, **places)
    monkeypatch.setattr(submitting, "plan", refuse)
    submitting.submit(STUDY, storage=storage, **places)
    assert len(sent) == 2
    assert (
        "the job alone checks the study's data and name: no credentials" in capsys.readouterr().err
    )


def test_numbers_of_numpy_are_written_and_a_function_as_trainable_is_refused(
    package, tmp_path, records
):
    axes = {"lr": [np.float64(0.1), np.float32(0.5)], "width": np.arange(1, 3), "on": [np.True_]}
    study = dataclasses.replace(STUDY, axes={axis: list(values) for axis, values in axes.items()})
    records.claim(study_document(plan(study)))
    plain = {"lr": [0.1, 0.5], "width": [1, 2], "on": [True]}
    assert records.document().spec["axes"] == plain
    files = submitting._write_job_files(study, None, tmp_path)
    assert load_study(str(files[submitting.STUDY_FILE])).axes == plain
    study = dataclasses.replace(STUDY, arms={"a": Arm(import_path("thesis_method:train"))})
    with refused(SpecError, match=r'names a trainable by its path.*"thesis_method:train"'):
        submitting._write_job_files(study, None, tmp_path)


def refuse(study, *, storage):
    raise StorageError("no credentials")


def test_a_file_that_was_not_submitted_is_refused(tmp_path):
    for content in ("", "[]", "{}"):
        (tmp_path / "file").write_text(content)
        with refused(SpecError, "no file of submitted code"):
            check_submitted(STUDY, tmp_path / "file")


def test_a_worker_with_other_code_says_both_versions_and_one_with_the_same_its_packages(
    package, tmp_path
):
    records = StudyRecords(str(tmp_path / "storage"), "s")
    code = code_of("thesis_method:train")
    write_code(records, code)
    assert list(checked_packages(records.storage, "s", code.version.digest)) == ["numpy"]
    checked_packages.cache_clear()
    (package / "thesis_method.py").write_text("WIDTH = 32\n")
    ours = code.version.modules["thesis_method"]
    theirs = code_of("thesis_method:train").version.modules["thesis_method"]
    with refused(
        OtherCodeHere, f"module thesis_method has digest {theirs}, the study's has {ours}"
    ):
        checked_packages(records.storage, "s", code.version.digest)
    assert checked_packages(records.storage, "s", "") == {}, (
        "nothing is known of code that was not kept"
    )


@pytest.mark.slow
@pytest.mark.xdist_group("running")
def test_a_trainable_may_add_to_the_path_of_imports_itself(
    local_ray, ray_core, tmp_path, runs, monkeypatch
):
    """Its driver has imported it, and finds what it imports; a worker finds that once it has."""
    (tmp_path / "beside_it.py").write_text("VALUE = 0.5\n")
    (local_ray.importable / "adds_to_path.py").write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport beside_it\nfrom contrasweep import Report\n"
        "def train(trial, resume=None):\n    yield Report(1, {'accuracy': beside_it.VALUE})\n"
    )
    monkeypatch.syspath_prepend(str(local_ray.importable))
    study = AblationGrid(
        "adds", {"a": Arm("adds_to_path:train")}, "digits-lt", folds=2, metric="accuracy"
    )
    assert run(study, storage=runs, tracking="none").statuses == {"done": 2}


@pytest.mark.slow
@pytest.mark.xdist_group("running")
def test_a_run_ends_where_a_worker_of_ray_imports_other_code(
    local_ray, ray_core, tmp_path, runs, monkeypatch
):
    """The driver finds one version of a module, Ray's workers another; nothing is trained."""
    here = tmp_path / "here"
    there = local_ray.importable
    here.mkdir()
    for folder, width in ((here, 16), (there, 32)):
        text = (
            f"WIDTH = {width}\ndef train(trial, resume=None):\n"
            "    raise AssertionError('it was trained')\n    yield\n"
        )
        (folder / "split_method.py").write_text(text)
    monkeypatch.syspath_prepend(str(here))
    study = AblationGrid("split", {"a": Arm("split_method:train")}, "digits-lt", folds=2)
    code = code_of("split_method:train").version
    try:
        with refused(
            ContrasweepError,
            "imports other code than the study runs: module split_method has digest",
            f"the study's has {code.modules['split_method']}",
        ):
            run(study, storage=runs, tracking="none")
    finally:
        (there / "split_method.py").unlink()
    assert StudyRecords(runs, "split").finished() == set()


def test_a_job_gets_the_study_with_arms_and_axes_in_their_declared_order(tmp_path):
    arms = {"zeta": Arm("toy:train"), "alpha": Arm("toy:train")}
    study = AblationGrid("s", arms, "digits", axes={"lr": [0.1, 1], "batch_size": [8, 16]})
    sent = load_study(
        str(submitting._write_job_files(study, None, tmp_path)[submitting.STUDY_FILE])
    )
    assert (list(sent.arms), list(sent.axes)) == (["zeta", "alpha"], ["lr", "batch_size"])
