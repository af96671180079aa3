"""Fixtures that every area of the tests shares."""

import functools
import gc
import os
import pkgutil
import shutil
import sys
import tempfile
from pathlib import Path

import filelock
import hypothesis
import pytest
import shapes
import typer.main

# Nothing depends on time: machines are shared. The same examples in every run of CI, so that a failure there is the
# change's; new ones are found where people work.
untimed = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("here", untimed)
hypothesis.settings.register_profile("ci", untimed, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

gc.disable()  # what is imported and collected stays: see pytest_collection_finish

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two cores, two test workers
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes here import the project
sys.dont_write_bytecode = False
for name in ("COLUMNS", "LINES"):  # a test that needs a terminal of some size says which
    os.environ.pop(name, None)

# A process of tests runs hundreds of commands, and writes thousands of files: Typer's description of all commands is
# made once, and nothing waits for a disk, since no test cuts the power.
typer.main.get_command = functools.cache(typer.main.get_command)
os.fsync = os.fstat

# What other code has decoded or staged on this machine is not this code's.
CACHE = "" if "PYTEST_XDIST_WORKER" in os.environ else tempfile.mkdtemp(prefix="contrasweep-tests-")
os.environ["CONTRASWEEP_CACHE"] = CACHE or os.environ["CONTRASWEEP_CACHE"]

# Before anything imports them: types and shapes of calls in the trainables, in the processes of the tests alone.
ROOT = Path(__file__).resolve().parents[1]
shapes.install(
    [
        f"contrasweep.trainables.{module.name}"
        for module in pkgutil.iter_modules([str(ROOT / "trainables")])
    ]
)


@pytest.fixture(scope="session")
def shared():
    """The folder of real data and reference values beside the checkout; tests that need it skip without it."""
    folder = Path(os.environ.get("CONTRASWEEP_SHARED", ROOT.parent / "shared"))
    if not (folder / "goldens").is_dir():
        pytest.skip(f"reference values and real data are not at {folder} (set CONTRASWEEP_SHARED)")
    return folder


@pytest.fixture(scope="session")
def common(tmp_path_factory):
    """A folder that the processes of a test run share; what is made there is made under a lock."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "common"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def staged(shared, common):
    """staged(name): where a real dataset lies, staged and verified once for the tests of all processes."""
    from benchmarks.stage_real_data import stage_and_verify

    from contrasweep.data.resolving import default_place

    def place(name):
        line = common / f"{name}.line"
        with filelock.FileLock(common / f"{name}.lock"):
            if not line.exists():
                line.write_text(stage_and_verify(name, shared, str(common))[1])
        assert " verified in " in line.read_text(), line.read_text()
        return default_place(name, storage=str(common))

    return place


@pytest.fixture(scope="session")
def template(common):
    """An empty MLflow database: making its tables takes seconds, copying it none."""
    from contrasweep.tracking.mlflow.address import TrackingAddress
    from contrasweep.tracking.mlflow.client import new_client

    database = common / "mlflow.db"
    with filelock.FileLock(common / "mlflow.lock"):
        if not database.exists():
            new_client(TrackingAddress(f"sqlite:///{common}/new.db"))
            (common / "new.db").rename(database)
    return database


@pytest.fixture
def storage(tmp_path):
    """A storage of a test's own."""
    return str(tmp_path)


@pytest.fixture
def runs(tmp_path):
    """Another, beside a test's files."""
    return str(tmp_path / "runs")


@pytest.fixture
def mlflow_uri(template, tmp_path):
    """An MLflow database of a test's own."""
    return f"sqlite:///{shutil.copy(template, tmp_path / 'mlflow.db')}"


@pytest.fixture(scope="session")
def local_ray(tmp_path_factory):
    """What starts a Ray in this process and keeps it for later tests."""
    from local_ray import LocalRay

    local = LocalRay(tmp_path_factory.getbasetemp() / "importable")
    yield local
    local.close()


@pytest.fixture(scope="module")
def ray_core(local_ray):
    """A local Ray of one core: one trial at a time."""
    local_ray.use("cpu")


@pytest.fixture(scope="module")
def ray_session(local_ray):
    """A local Ray of two cores."""
    local_ray.use("cpus")


@pytest.fixture(scope="module")
def ray_gpu(local_ray):
    """A local Ray of four cores that was told of one T4, for 3 an hour."""
    local_ray.use("gpu")


@pytest.fixture
def unchecked_shapes():
    """For tests of what the code itself says of a wrong shape or type."""
    with shapes.unchecked():
        yield


def pytest_configure(config):
    """What these say is what tests ask for: short trainings of small networks, and one line of another's package."""
    for text in (
        "alpha is 1 in every epoch",
        "bn 'frozen' keeps the running statistics",
        "projection.dim 1 cannot hold",
        "Using a non-tuple sequence for multidimensional indexing",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{text}:UserWarning")


def pytest_collection_modifyitems(items):
    """The files that take minutes first: what comes last is waited for by all other workers. Tests on a Ray of two
    cores stand together, since another kind of Ray is another start."""
    longest = {
        "test_tutorials.py",
        "test_mcp.py",
        "test_cut_off.py",
        "test_pipelines.py",
        "test_at_once.py",
    }

    def order(item):
        return item.path.name not in longest, "ray_session" in getattr(item, "fixturenames", ())

    items.sort(key=order)


def pytest_collection_finish():
    """What is imported by now stays: the garbage collector, which takes a tenth of the time, leaves it alone."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_unconfigure():
    if CACHE:
        shutil.rmtree(CACHE, ignore_errors=True)
    gc.unfreeze()  # libraries complain at the end of what they find alive


def pytest_runtest_setup():
    from contrasweep import imports

    shapes.next_test()
    imports._storages.clear()  # each load of a study looks at every storage that its process has met
