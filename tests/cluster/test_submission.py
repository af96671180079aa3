"""Submission: what is refused before anything is queued, what travels, and jobs on a real Ray head with a token."""

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import venv
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from answering import answering, answering_bytes
from benchmarks.tracking_services import S3_ENV, s3_server
from command_line import contrasweep, python, shown_json
from dashboard import Clock
from folders import make_files
from made_up import nowhere
from places import ROOT, environment_without
from raylets import alive_nodes, free_ports, wait_for
from refusals import refused
from without_packages import HIDE

import contrasweep as cs
from contrasweep import AblationGrid, Arm, submit
from contrasweep.cli.schemas import document_schema
from contrasweep.cluster import jobs, submission
from contrasweep.cluster.errors import SubmissionError
from contrasweep.cluster.jobs import Dashboard, Job
from contrasweep.cluster.submission import compare_versions, snapshot, versions
from contrasweep.code import code_of
from contrasweep.planning.grid import make_plan
from contrasweep.running import probe
from contrasweep.running.signals import interruption
from contrasweep.running.slurm import TASK_FOLDER, Task, TaskTrial, _send, needs_driver
from contrasweep.storage.checkpoints import Retention
from contrasweep.storage.record import CodeRef
from contrasweep.storage.records import StudyRecords

PROBE = Path(probe.__file__)
WITH_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 3}
pytestmark = pytest.mark.xdist_group("submission")  # one head for all of them

# ----------------------------------------------------------------------------------------------- addresses


@pytest.fixture
def server():
    with answering() as server:
        yield server


def test_the_token_comes_from_the_environment_or_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "from-environment")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert jobs.auth_headers() == {}
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert jobs.auth_headers() == {"Authorization": "Bearer from-environment"}
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert jobs.auth_headers() == {"Authorization": "Bearer from-file"}
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    assert jobs.auth_headers() == {}


# ---------------------------------------------------------------------------------------- URIs, credentials


@pytest.mark.parametrize("uri", ["http://me:hunter2@mlflow:5000", "s3://key@bucket"])
def test_a_password_in_an_address_is_refused_and_not_repeated(uri):
    with refused(SubmissionError, "would be readable in the job") as caught:
        submission.check_uris({"tracking": uri}, remote=False)
    assert "hunter2" not in str(caught.value)


def probed(python, version, *uris, **variables):
    """What the probe says, sent as text to `python` as the cluster runs it."""
    command = [python, "-I", "-c", PROBE.read_text(), version, *uris]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd="/", env=os.environ | variables
    )
    return json.loads(done.stdout.removeprefix("PROBE "))


def test_the_probe_as_the_cluster_runs_it(server):
    nobody, mlflow, login, denied = (
        "http://127.0.0.1:1",
        *(f"{server.address}/{name}" for name in ("mlflow", "login", "denied")),
    )
    server.answers = {
        "/mlflow/health": (200, "OK"),
        "/login/health": (401, "who?"),
        "/denied/health": (403, "no"),
    }
    with s3_server("lab") as endpoint, answering_bytes() as binary:
        stores = ["s3://lab/a", "s3://labb/a", "gs://lab/a"]
        uris = [server.address, nobody, mlflow, login, denied, binary, *stores]
        variables = S3_ENV | {"AWS_ENDPOINT_URL": endpoint}
        failed = probed(sys.executable, versions()["contrasweep"], *uris, **variables)
    says = {
        server.address: "no MLflow server answers at /health (HTTP 404)",
        nobody: "127.0.0.1:1",
        denied: "no MLflow server answers at /health (HTTP 403)",
        binary: "no HTTP",
        "s3://labb/a": "the bucket does not exist",
        "gs://lab/a": "this storage needs a package",
    }
    assert failed.keys() == says.keys()
    assert all(part in failed[uri] for uri, part in says.items()), failed


def test_the_probe_uses_the_keys_that_the_cluster_has():
    """Without a key some servers say the same of any bucket."""
    without = dict.fromkeys(S3_ENV, "") | {"HOME": "/nowhere"}
    with s3_server("lab") as endpoint:
        failed = probed(sys.executable, "", "s3://lab/a", AWS_ENDPOINT_URL=endpoint, **without)
    assert f"{endpoint} denies access: check AWS_ACCESS_KEY_ID" in failed["s3://lab/a"]


def test_the_probe_asks_for_contrasweep(tmp_path):
    """Of the version that is wanted, in the cluster's own Python."""
    said = probed(sys.executable, "9.9", "http://127.0.0.1:1")
    assert said == {"contrasweep": f"{sys.executable} has {versions()['contrasweep']}"}
    venv.create(tmp_path, with_pip=False)
    bare = str(tmp_path / "bin/python")
    assert f"{bare}: No package metadata" in probed(bare, "9.9")["contrasweep"]
    assert f"{bare}: No module named 'contrasweep'" in probed(bare, "")["contrasweep"]


def test_versions_must_be_equal_on_all_nodes():
    mine = versions()
    assert {"python", "ray", "torch", "numpy", "contrasweep"} == set(mine) and mine["ray"] != "none"
    compare_versions(mine, [("a", mine), ("b", dict(mine))])
    with refused(SubmissionError, "node b has torch 1.0 and the driver"):
        compare_versions(mine, [("a", mine), ("b", mine | {"torch": "1.0"})])


# -------------------------------------------------------------------------------------------- the snapshot


def tree(root, *names):
    make_files(root, {name: name for name in names})


def found(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def sent(folder):
    """The files of `there`, to which `here` was sent."""
    snapshot(folder / "here", folder / "there")
    return found(folder / "there")


def test_this_project_fits_with_all_its_packages(tmp_path):
    snapshot(ROOT, tmp_path)
    for package in ("", "data", "trainables/losses", "search_spaces", "cluster"):
        assert (tmp_path / "platform/contrasweep" / package / "__init__.py").exists()
    assert not (tmp_path / ".git").exists() and not (tmp_path / "platform/__init__.py").exists()
    done = python(
        "-c",
        "import contrasweep.trainables as here; print(here.__file__)",
        env={"PYTHONPATH": "platform"},
        cwd=tmp_path,
    )
    assert done.stdout.strip() == str(tmp_path / "platform/contrasweep/trainables/__init__.py"), (
        done.stderr
    )


def work_tree(root, *tracked):
    """Make a git work tree of `root` that tracks these files."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for words in (["init", "-q"], ["add", "-f", "--", *tracked]):
        subprocess.run(["git", *words], cwd=root, env=environment, check=True, capture_output=True)


def test_what_git_tracks_is_sent_and_named_where_it_looks_like_a_secret(tmp_path, capsys):
    tree(tmp_path / "here", "a.py", "conf/secrets.yaml")
    (tmp_path / "here/a.py").chmod(0o755)
    work_tree(tmp_path / "here", "a.py", "conf/secrets.yaml")
    assert sent(tmp_path) == ["a.py", "conf/secrets.yaml"]
    assert os.access(tmp_path / "there/a.py", os.X_OK), "a script stays executable"
    said = capsys.readouterr().err
    assert "2 files are sent, 0.00 MiB" in said
    assert "look like secrets, so they are sent: conf/secrets.yaml\n" in said


def test_the_document_of_a_dry_run_has_its_schema(tmp_path):
    make_files(tmp_path, {"mine.py": MINE, "study.yaml": SUBMITTED})
    shown = shown_json(tmp_path, "submit", "study.yaml", "--dry-run")
    jsonschema.validate(shown, document_schema("submit"))


def test_the_configuration_of_a_checkout_and_variables_of_git_run_and_change_nothing(
    tmp_path, monkeypatch
):
    tree(tmp_path, "here/a.py", "other/b.py", "other/id_rsa")
    ran = tmp_path / "ran"
    (tmp_path / "program").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (tmp_path / "program").chmod(0o755)
    for folder in ("here", "other"):
        work_tree(tmp_path / folder, *(["a.py"] if folder == "here" else ["b.py", "id_rsa"]))
    config = tmp_path / "here/.git/config"
    program = tmp_path / "program"
    config.write_text(
        f"{config.read_text()}fsmonitor = {program}\nhooksPath = {tmp_path}\npager = {program}\n"
        f'[filter "f"]\nclean = {program}\nprocess = {program}\n'
    )
    (tmp_path / "here/.gitattributes").write_text("* filter=f\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_TRACE2", str(ran))
    assert sent(tmp_path) == ["a.py"] and not ran.exists()


# ------------------------------------------------------------------------------- following a long log


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(jobs, "time", Clock())
    return jobs.time


class Growing(Job):
    """A job that prints `per_s` characters a second and ends after `ends_s`, by a `Clock`; what was fetched when."""

    @property
    def text(self):
        size = int(min(jobs.time.now, self.ends_s) * self.per_s)
        return ("0123456789" * (size // 10 + 1))[:size]

    def status(self):
        return "SUCCEEDED" if jobs.time.now >= self.ends_s else "RUNNING"

    def logs(self):
        self.fetched.append((jobs.time.now, len(self.text)))
        return self.text

    def followed(self):
        """What was written, each character of the log once."""
        written = []
        assert self.follow(written.append) == "SUCCEEDED" and "".join(written) == self.text
        return written


def growing(per_s, ends_s):
    job = Growing("job", "head:8265")
    vars(job).update(per_s=per_s, ends_s=ends_s, fetched=[])
    return job


def test_who_interrupts_the_following_is_told_that_the_job_goes_on(server, tmp_path, monkeypatch):
    monkeypatch.setattr(interruption, "then", "")
    monkeypatch.setattr(Job, "follow", lambda job, write: write(str(interruption)) or "STOPPED")
    words = ("logs", "contrasweep-a-00000001", "--address", server.address, "--follow")
    done = contrasweep(*words, folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == f"interrupted; the job goes on: {shlex.join(['contrasweep', *words])}"


def test_a_short_log_is_shown_each_second(clock):
    assert len(growing(50, 60).followed()) == 60


def test_a_long_log_is_fetched_no_faster_than_it_may_be(clock):
    job = growing(20_000, 1000)
    job.followed()
    assert sum(size for _, size in job.fetched) < 1000 * jobs.CHARACTERS_PER_S + 2 * len(job.text)
    waits = [later - before for (before, _), (later, _) in pairwise(job.fetched)]
    assert waits[0] <= 2 and max(waits) <= jobs.MAX_WAIT_S + jobs.POLL_S
    assert job.fetched[-1][0] - 1000 <= jobs.POLL_S, "its end is seen at once"


# ----------------------------------------------------------------------------------------------- a real head


@pytest.fixture(scope="module")
def head():
    with ray_head() as address:
        yield address


@contextlib.contextmanager
def ray_head(*words, **variables):
    """`ray start --head` with two cores and a token, in a folder of its own; stopped by its process number."""
    folder = tempfile.mkdtemp(prefix="cs-")  # short: Ray puts sockets below it
    port, client_port = free_ports(2)
    environment = environment_without("RAY_") | WITH_TOKEN
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **variables,
    }
    command = [
        str(Path(sys.executable).parent / "ray"),
        "start",
        "--head",
        "--block",
        "--port=0",
        f"--dashboard-port={port}",
        f"--ray-client-server-port={client_port}",
        "--dashboard-agent-listen-port=0",
        "--num-cpus=2",
        f"--temp-dir={folder}",
        "--object-store-memory=100000000",
        "--disable-usage-stats",
        *words,
    ]
    log = Path(folder, "head.log").open("w")  # noqa: SIM115  # closed below, after the process
    process = subprocess.Popen(
        command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    address = f"http://127.0.0.1:{port}"
    patch = pytest.MonkeyPatch()
    for name, value in WITH_TOKEN.items():
        patch.setenv(name, value)
    try:
        wait_for(lambda: process.poll() is not None or alive_nodes(address) == 1)
        assert process.poll() is None, (
            f"the head did not start: {Path(folder, 'head.log').read_text()[-2000:]}"
        )
        yield address
    finally:
        patch.undo()
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_wrong_and_missing_tokens_on_a_real_head(head):
    code = "import sys; from contrasweep.cluster.jobs import Dashboard; Dashboard(sys.argv[1]).ray_version()"
    for token, says in (
        ("f" * 40, "refuses the token"),
        (None, "asks for a token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or write it"),
    ):
        environment = environment_without("RAY_AUTH")
        if token:
            environment |= WITH_TOKEN | {"RAY_AUTH_TOKEN": token}
        done = python("-c", code, head, env=environment, cwd=ROOT)
        assert done.returncode == 1 and says in done.stderr.splitlines()[-1]


SUBMITTED = """
name: from-a-client
arms:
  low: {trainable: "mine:train", config: {lr: 0.2}}
  high: {trainable: "mine:train", config: {lr: 0.4}}
data: digits-lt
seeds: [0, 1]
metric: accuracy
"""
MINE = """
import torch
from contrasweep import Report

def train(trial, resume=None):
    yield Report(1, {"accuracy": float(torch.tensor(trial.config["lr"] * (1 + 0.1 * trial.seed)))})
"""


def jobs_of(head, folder):
    """What `contrasweep jobs` prints."""
    return contrasweep("jobs", "--address", head, folder=folder).stdout


def light_client(folder, storage):
    """What runs `contrasweep` on a study in `folder`, as on a laptop without Ray and torch, and returns its output."""
    make_files(folder, {"study.yaml": SUBMITTED, "mine.py": MINE})
    code = (
        HIDE
        + "import json; from contrasweep.cli import main; sys.argv = json.loads(sys.argv[1]); main()"
    )

    def client(*words, status=0):
        words = ("contrasweep", *words, "--storage", storage)
        # Nothing is staged here, and digits-lt needs scikit-learn for that: the job stages it.
        environment = os.environ | {"CONTRASWEEP_CACHE": str(folder / "cache")}
        done = python("-c", code, json.dumps(words), cwd=folder, env=environment)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if not status else done.stderr

    return client


@pytest.mark.long
def test_a_study_goes_from_a_machine_without_ray_and_torch_to_another_and_its_table_comes_back(
    tmp_path, monkeypatch
):
    """The whole command as a laptop has it: planned, packed, sent over REST, trained on the cluster, followed. The
    cluster's node has an address that this machine does not list as its own; results go to S3."""
    with s3_server("far") as endpoint:
        for name, value in (S3_ENV | {"AWS_ENDPOINT_URL": endpoint}).items():
            monkeypatch.setenv(name, value)
        client = light_client(tmp_path, "s3://far/runs")
        with ray_head("--node-ip-address=127.0.0.2") as head:
            assert submission.is_remote(Dashboard(head))
            sends = ("submit", "study.yaml", "--address", head, "--tracking")
            refusal = client(*sends, "tensorboard:events", status=2)
            assert "contrasweep: tracking tensorboard events is a file of this machine" in refusal
            assert "the job alone checks the study's data" in refusal, "it stages the digits"
            printed = client(*sends, "none", "--follow")
            assert "high is better than low" in printed and "4/4 trials, ended" in printed
            assert "4/4 trials, ended" in client("logs", "from-a-client", "--address", head)
            ended = client("stop", "from-a-client", "--address", head, status=2)
            assert "this job has ended: SUCCEEDED" in ended
            assert re.search(r"s3://far/runs +\S.* on \S+ +SUCCEEDED", jobs_of(head, tmp_path))
        assert cs.load("from-a-client", storage="s3://far/runs").complete
        assert "4: 4 done, 0 to run" in client("plan", "study.yaml"), (
            "both know the trials by the same ids"
        )
        assert "ended: complete" in client("watch", "from-a-client")


def plain_ray_line():
    """The words of `ray job submit` as docs/cluster/submit.md has them."""
    page = (ROOT / "docs/cluster/submit.md").read_text()
    (line,) = re.findall(r"^ray job submit(?:.*\\\n)*.*$", page, re.MULTILINE)
    return shlex.split(line.replace("\\\n", " "))


def test_the_plain_ray_line_of_the_docs_leaves_no_code_behind():
    """What Ray would send is listed as Ray lists it: a pattern that leaves out the folder itself sends nothing."""
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    words = plain_ray_line()
    environment = json.loads(words[words.index("--runtime-env-json") + 1])
    excluded = _get_excludes(ROOT, environment["excludes"])
    sent = set()
    _dir_travel(ROOT, [excluded], sent.add, include_gitignore=True)
    folders = os.walk(ROOT / "platform", followlinks=True)
    sources = {
        Path(folder) / name
        for folder, _, names in folders
        for name in names
        if name.endswith(".py")
    }
    assert {"trainables", "cluster"} <= {path.parent.name for path in sources}
    assert sources <= sent
    assert not {ROOT / "data", ROOT / ".git"} & sent
    assert ROOT / "platform/contrasweep/data" in sent


@pytest.mark.slow
def test_an_address_that_the_cluster_cannot_reach_is_refused_and_nothing_is_queued(head, tmp_path):
    before = Dashboard(head).jobs()
    with refused(SubmissionError, r"http://127.0.0.1:1 cannot be used from the cluster"):
        submission.submit(
            ["true"],
            address=head,
            working_dir=tmp_path,
            uris={"storage": str(tmp_path), "tracking": "http://127.0.0.1:1"},
            probe=PROBE,
        )
    assert Dashboard(head).jobs() == before


@pytest.mark.long
def test_a_first_job_that_is_killed_because_memory_ran_out_says_so():
    every = {
        "RAY_memory_usage_threshold": "0.01",
        "RAY_memory_monitor_refresh_ms": "100",
    }  # Ray ends whatever runs
    with contextlib.ExitStack() as opened:
        # The first job must live until Ray ends it: it waits for a server whose queue is full.
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        with contextlib.suppress(TimeoutError):
            while True:
                client = socket.create_connection(server.getsockname(), timeout=1)
                opened.enter_context(client)
        head = opened.enter_context(ray_head(**every))
        with refused(SubmissionError, "memory of the cluster's head ran out") as said:
            submission.check_there(
                Dashboard(head),
                PROBE,
                [f"http://127.0.0.1:{server.getsockname()[1]}"],
                "",
                None,
                {},
            )
    assert "\n" not in str(said.value) and "see `contrasweep logs raysubmit_" in str(said.value)


@pytest.mark.slow
def test_stopping_lets_the_job_clean_up(head, tmp_path):
    marker = tmp_path / "cleaned"
    code = (
        "import signal, sys, time, pathlib\n"
        f"def end(*a): pathlib.Path({str(marker)!r}).touch(); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end); print('READY', flush=True); time.sleep(300)"
    )
    job = submission.submit(
        ["python", "-c", code], address=head, working_dir=tmp_path, uris={}, probe=PROBE
    )
    wait_for(lambda: "READY\n" in job.logs())
    assert job.stop() == "STOPPED"
    assert marker.exists()


@pytest.mark.slow
def test_a_job_is_sent_followed_listed_and_looked_for(head, tmp_path):
    make_files(tmp_path, {"package/said.txt": "from a folder below"})
    (tmp_path / "platform/contrasweep").mkdir(parents=True)  # as in a checkout of it
    (tmp_path / "platform/found.py").write_text("print('from the path of modules')")
    code = "import time; print(open('package/said.txt').read()); time.sleep(2); import found"
    job = submission.submit(
        ["python", "-c", code],
        address=head,
        working_dir=tmp_path,
        uris={},
        probe=PROBE,
        name="rest",
    )
    written = []
    assert job.follow(written.append) == "SUCCEEDED", "".join(written)
    lines = "".join(written).splitlines()  # lines of Ray's may stand between the two
    assert "".join(written) == job.logs()
    assert lines.index("from a folder below") < lines.index("from the path of modules")
    assert {"id": job.id, "study": "rest", "status": "SUCCEEDED"}.items() <= Dashboard(head).jobs()[
        0
    ].items()
    assert job.stop() == "SUCCEEDED"
    for ask in (Job("contrasweep-none", head).status, Job("contrasweep-none", head).follow):
        with refused(
            SubmissionError, "there is no job of that name or study", "contrasweep jobs --address"
        ):
            ask()


METHOD = """from contrasweep.trial import Report

WIDTH = 16

def train(trial, resume=None):
    yield Report(1, {"accuracy": WIDTH / 100})
"""


@pytest.mark.parametrize(
    "limit", [{}, {"trial_hours": 1}, {"report_minutes": 5}, {"budget_hours": 1}]
)
def test_an_array_of_slurm_has_no_driver_that_would_keep_a_limit(limit):
    study = AblationGrid("s", {"a": Arm("toy:train")}, "digits", **limit)
    assert needs_driver(study) == bool(limit)


@pytest.mark.parametrize("link", [False, True])
def test_tasks_of_slurm_lie_in_no_folder_that_others_may_write_to(link, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (place := tmp_path / ("elsewhere" if link else TASK_FOLDER)).mkdir()
    if link:
        Path(TASK_FOLDER).symlink_to(place)
    else:
        place.chmod(0o775)
    with refused(cs.SpecError, "contrasweep-slurm: tasks run what lies in a folder that you alone"):
        _send([], "s", str(tmp_path), {"time": "1"}, None)


def test_a_job_whose_code_is_not_what_was_submitted_spends_nothing(head, tmp_path, monkeypatch):
    """The laptop has one version of a method and sends a folder with another; then it sends its own."""
    here = tmp_path / "here"
    there = tmp_path / "there"
    storage = tmp_path / "storage"
    for folder, text in ((here, METHOD), (there, METHOD.replace("16", "32"))):
        folder.mkdir()
        (folder / "sent_method.py").write_text(text)
    monkeypatch.syspath_prepend(str(here))
    study = AblationGrid("sent", {"a": Arm("sent_method:train")}, "digits-lt", folds=2)
    places = {"address": head, "storage": str(storage), "tracking": "none"}
    job = submit(study, working_dir=there, **places)
    assert job.follow(lambda text: None) == "FAILED"
    assert "has other code than was submitted from" in job.logs()
    assert "module sent_method has digest" in job.logs()
    assert not (storage / "sent").exists()
    job = submit(study, working_dir=here, **places)
    assert job.follow(lambda text: None) == "SUCCEEDED", job.logs()
    records = StudyRecords(str(storage), "sent")
    recorded = records.read(records.finished()).values()
    assert [record.metrics["accuracy"] for record in recorded] == [0.16, 0.16]
    assert {record.code.digest for record in recorded} == {
        code_of("sent_method:train").version.digest
    }


def test_a_task_trains_its_other_trials_where_one_runs_out_of_memory(tmp_path, monkeypatch):
    """Each trial finds the process as the first one does, with global random states that follow from its id."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def train(trial, resume=None):
        if trial.seed == 1:
            raise MemoryError("too large a batch")
        left = os.environ.get("LEFT_BY_A_TRIAL")
        os.environ["LEFT_BY_A_TRIAL"] = "1"
        yield cs.Report(1, {"accuracy": -1.0 if left else random.random()})

    grid = AblationGrid("s", {"a": Arm(train)}, "d", seeds=[0, 1, 2], metric="accuracy")
    trials = make_plan(grid, lambda _: nowhere()).trials
    to_run = [TaskTrial(trial, train, CodeRef()) for trial in trials]
    values = []
    for storage in (str(tmp_path / "first"), str(tmp_path / "second")):
        with pytest.raises(MemoryError, match="too large a batch"):
            Task(to_run, storage, "accuracy", Retention())()
        records = StudyRecords(storage, "s")
        recorded = records.read(records.finished())
        assert recorded.keys() == {trial.id for trial in trials if trial.seed != 1}
        values.append({i: record.metrics["accuracy"] for i, record in recorded.items()})
    assert values[0] == values[1] and all(value >= 0 for value in values[0].values())
