"""This machine's own Ray and a cluster elsewhere, one after the other in one process, as in a notebook."""

import os

import pytest
from command_line import python
from drivers import start_driver
from places import SUPPORT, module_path
from raylets import RayCluster

import contrasweep as cs

pytestmark = pytest.mark.long
STUDY = """
name: {name}
data: digits-lt
folds: 2
arms:
  a: {{trainable: 'toy:train', config: {{epochs: 2}}}}
"""


@pytest.fixture
def cluster(monkeypatch):
    """A cluster that asks for no token."""
    monkeypatch.setenv("PYTHONPATH", module_path(SUPPORT))
    cluster = RayCluster()
    try:
        cluster.add_node("a", "T4", cpus=2)
        cluster.wait_for_nodes(2)
        yield cluster
    finally:
        cluster.close()


def _statuses(name, folder):
    (folder / f"{name}.yaml").write_text(STUDY.format(name=name))
    records = cs.run(folder / f"{name}.yaml", storage=str(folder / "runs"), tracking=None).records
    return [str(record.status) for record in records.read(records.finished()).values()]


def test_a_local_run_a_run_on_a_cluster_and_a_local_run(cluster, tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert _statuses("here", tmp_path) == ["done", "done"]
    assert "RAY_AUTH_MODE" not in os.environ, "Ray's own has a token, and sets it"
    assert os.environ["OMP_NUM_THREADS"] == "2", "asked for"
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("RAY_ADDRESS", f"{cluster.host}:{cluster.gcs_port}")
        assert _statuses("elsewhere", tmp_path) == ["done", "done"]
    assert _statuses("here-again", tmp_path) == ["done", "done"]


def test_studies_of_a_session_share_one_ray_that_ends_with_it(tmp_path):
    """In a process of its own, since other tests may keep a Ray in this one."""
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(STUDY.format(name=name))
    code = """if True:
        import sys, ray, contrasweep as cs
        from contrasweep.running.engine import session
        started, start = [], session._start
        session._start = lambda *given: started.append(given) or start(*given)
        with cs.session():
            done = [cs.run(f"{name}.yaml", storage="runs", tracking=None).complete for name in ("first", "second")]
            print(done, len(started), ray.is_initialized())
        print(ray.is_initialized())
    """
    done = python("-c", code, cwd=tmp_path, env=os.environ | {"PYTHONPATH": module_path(SUPPORT)})
    assert done.stdout == "[True, True] 1 True\nFalse\n", done.stderr


def test_trials_that_never_begin_are_not_said_to_have_crashed(cluster, tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY.format(name="token"))
    asked = {
        "RAY_ADDRESS": f"{cluster.host}:{cluster.gcs_port}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
    }
    words = ["run", "study.yaml", "--storage", "runs", "--tracking", "none"]
    run = start_driver(*words, folder=tmp_path, ray=cluster.folder, environment=asked)
    _, errors = run.communicate()
    assert run.returncode == 1, errors
    failed = [line for line in errors.splitlines() if line.startswith("failed:")]
    assert failed and all(
        "its process never began: Ray gave it up before" in line for line in failed
    ), errors
    assert "RAY_AUTH_MODE=token is set here and the cluster asks for no token" in errors
