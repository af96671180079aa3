"""Counts of memory that a plan keeps on disk: read by the next one, and never when they are not exactly its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from contrasweep import AblationGrid, Arm
from contrasweep.cluster.inventory import Inventory, Node
from contrasweep.cluster.memory import Work, Workload
from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.planning import estimate_cache
from contrasweep.planning.estimate_cache import Estimate
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.grid import make_plan
from contrasweep.planning.learned import Learned

ROOT = Path(__file__).resolve().parents[3]
IMPORTED = str(ROOT / "platform")
DATA = Manifest("d", "/nowhere", "labelled-image", {"train": (Shard("a", 40, 1, "aa"),)}, ("x", "y"), {}, Folds(5))
BUILT = []


def training(trial, resume=None):
    yield


def memory(config, data):
    def build():
        BUILT.append(config["width"])
        if config["width"] == 13:
            raise ValueError("no such width")
        return nn.Linear(2, config["width"])

    shape = object() if config.get("opaque") else config["width"]
    return Workload("linear fp32", shape, build, (2, 2), device="cpu")


training.memory = memory


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    BUILT.clear()
    return tmp_path / "cache" / "counts"


def noted(function=training, data=DATA, **config):
    """The count of a trial in GiB, as a new plan finds it."""
    grid = AblationGrid("s", {"a": Arm(function, config={"width": 4} | config)}, "d", folds=5)
    trial = make_plan(grid, lambda name: data).cells[0].trials[0]
    return Footprints(grid, Inventory((Node(8, 32),)), Learned()).notes(trial).counted_gib


def test_the_next_plan_reads_what_one_has_counted(cache):
    first = noted()
    assert BUILT == [4] and len(list(cache.iterdir())) == 1
    assert noted() == first and BUILT == [4]
    assert noted(width=8) is not None and BUILT == [4, 8]


def test_another_config_data_code_or_version_is_counted_anew(monkeypatch):
    noted()
    noted(note="another config of the same shape")
    other = Manifest("d", "/nowhere", "labelled-image", {"train": (Shard("b", 41, 1, "bb"),)}, ("x",), {}, Folds(5))
    noted(data=other)
    assert len(BUILT) == 3
    monkeypatch.setattr(estimate_cache, "installed_version", lambda name: "0.0")
    noted()
    monkeypatch.setattr(estimate_cache, "_counting", lambda: "counted otherwise")
    noted()
    assert len(BUILT) == 5


@pytest.mark.parametrize("config", [{"opaque": True}, {"weights": "."}])
def test_what_plain_values_cannot_name_is_counted_every_time(config, cache):
    """A shape of objects, and a config that names a folder: neither says all that the count depends on."""
    assert noted(**config) == noted(**config) is not None
    assert len(BUILT) == 2 and not cache.exists()


def test_a_closure_as_memory_is_counted_every_time(monkeypatch, cache):
    def made(factor):
        return lambda config, data: memory({**config, "width": factor * config["width"]}, data)

    for factor in (1, 2):
        monkeypatch.setattr(training, "memory", made(factor))
        noted()
    assert BUILT == [4, 8] and not cache.exists()


def test_an_interactive_python_keeps_no_counts(monkeypatch, cache):
    """It may have imported a module before it was edited, and the code's digest is of the file as it is now."""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert noted() == noted() and BUILT == [4, 4] and not cache.exists()


def test_what_cannot_be_counted_is_not_kept(cache):
    assert noted(width=13) is None and noted(width=13) is None
    assert BUILT == [13, 13] and not cache.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\x00", b"[]", b"null", b"[" * 100_000, b'{"gib": 1.0}', b'{"key": "another", "gib": 1.0}', b"large"],
)
def test_a_broken_or_foreign_file_is_ignored_and_replaced(content, cache):
    first = noted()
    (file,) = cache.iterdir()
    kept = file.read_bytes()
    file.write_bytes(b" " * (estimate_cache.MAX_BYTES + 1) if content == b"large" else content)
    assert noted() == first and BUILT == [4, 4]
    assert file.read_bytes() == kept


@pytest.mark.parametrize("gib", ["NaN", "Infinity", "-1.0", '"1.0"', "true", "null"])
def test_a_kept_count_that_is_no_amount_is_ignored(gib, cache):
    counted = Estimate(1.5, Work(2.0, 3.0, 4.0))
    estimate_cache.write("a key", counted)
    assert estimate_cache.read("a key") == counted
    (file,) = cache.iterdir()
    whole = file.read_text()
    for number in ("1.5", "2.0", "3.0", "4.0"):
        file.write_text(whole.replace(f": {number}", f": {gib}"))
        assert estimate_cache.read("a key") is None, number
    file.write_text('{"key": "a key", "gib": 1.5}')  # of a version that counted no work
    assert estimate_cache.read("a key") is None


def test_a_folder_in_the_place_of_a_file_and_a_cache_that_is_a_file_cost_time_only(cache, monkeypatch):
    first = noted()
    (file,) = cache.iterdir()
    file.unlink()
    file.mkdir()
    assert noted() == first and [path.name for path in cache.iterdir()] == [file.name]
    (cache.parent / "plain").write_text("")
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(cache.parent / "plain"))
    assert noted() == first and BUILT == [4, 4, 4]


def test_the_number_of_files_is_bounded(cache, monkeypatch):
    monkeypatch.setattr(estimate_cache, "MAX_COUNTS", 8)
    for number in range(30):
        estimate_cache.write(f"key {number}", Estimate(float(number)))
        assert len(list(cache.iterdir())) <= 8
    assert any(estimate_cache.read(f"key {number}") == Estimate(float(number)) for number in range(30))


def test_processes_that_write_and_read_at_once_see_whole_counts_only(cache):
    """Each of two processes replaces the same counts again and again; whatever is read of them is whole."""
    code = """
import json
from contrasweep.planning import estimate_cache
seen = []
for turn in range(100):
    for number in range(3):
        counted = estimate_cache.Estimate(number + 0.5)
        estimate_cache.write(f"key {number}", counted)
        seen.append(estimate_cache.read(f"key {number}") == counted)
print(json.dumps([len(seen), all(seen)]))
"""
    environment = {**os.environ, "PYTHONPATH": IMPORTED}
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [json.loads(process.communicate()[0]) for process in running] == [[300, True]] * 2
    assert len(list(cache.iterdir())) == 3


def test_a_second_plan_prints_the_same_and_imports_no_more_than_it_needs(tmp_path, cache):
    """In processes of their own: the first counts, the second reads."""
    code = f"""
import sys
from contrasweep.cli import main
sys.argv = ["contrasweep", "plan", "contrasweep.search_spaces.quickstart:STUDY"]
sys.argv += ["--storage", {str(tmp_path / "runs")!r}]
sys.argv += ["--set", "arms.ocl.config.encoder.width=24"]  # which the table of counts has not
try:
    main()
finally:
    heavy = {{"torch", "pandas", "ray", "mlflow", "optuna", "scipy.stats", "scipy.optimize"}}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": IMPORTED}
    done = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    assert done[0].stdout == done[1].stdout != ""
    assert list(cache.iterdir())
    assert done[1].stderr.splitlines()[-1] == "[]"
