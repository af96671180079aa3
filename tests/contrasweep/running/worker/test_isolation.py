"""Trials of one process: none finds what another has changed, and a process that cannot be put back ends."""

import concurrent.futures
import functools
import json
import os
import random
import sys
import threading
from pathlib import Path

import leaving
import pytest
from command_line import python
from folders import make_files

from contrasweep import AblationGrid, Arm
from contrasweep.running.driver import run
from contrasweep.running.worker.isolation import Isolation

CALM = "00c0ffee00c0ffee"
OTHER = "fedcba9876543210"


def begin(isolation, trial_id, trainable="leaving:calm", load=lambda: leaving.calm):
    return isolation.begin(trial_id, trainable, load)


@pytest.fixture
def isolation(monkeypatch):
    """Of this process, which is put back afterwards."""
    before = list(sys.meta_path)
    monkeypatch.chdir(".")
    isolation = Isolation()
    yield isolation
    isolation.end()
    sys.meta_path[:] = before


@pytest.mark.parametrize("change", leaving.PUT_BACK, ids=lambda change: change.__name__)
def test_what_a_trial_changes_is_put_back_before_the_next(isolation, change):
    def numbers(*before):
        begin(isolation, CALM)
        for call in before:
            call()
        return leaving.observed() | {"module": 0.0}

    alone = numbers()
    generator = (
        leaving.GENERATOR.bit_generator.state
    )  # what the last one drew is a change of its own
    begin(isolation, OTHER)
    change()
    leaving.GENERATOR.bit_generator.state = generator
    assert isolation.end("leaving:calm") == ""
    assert os.getcwd()
    assert numbers() == alone
    assert numbers(change) != alone


def test_a_trial_that_seeds_nothing_draws_the_same_numbers_whenever_it_begins(isolation):
    def drawn(trial_id):
        begin(isolation, trial_id)
        numbers = leaving.observed()
        return [numbers[name] for name in ("python", "numpy", "torch")]

    assert drawn(CALM) == drawn(CALM) != drawn(OTHER)


def in_a_process(lines):
    """What lines of Python print, in a process of their own."""
    place = str(Path(leaving.__file__).parent)
    imports = (
        "from contrasweep.cluster.usage import children\n"
        "from contrasweep.running.worker.isolation import Isolation"
    )
    done = python("-c", f"import sys; sys.path.insert(0, {place!r})\n{imports}\n" + lines)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_cannot_be_put_back_is_named():
    lines = f"""
import json, os, leaving
for name, change in [(change.__name__, change) for change in leaving.LEFT]:
    if not os.fork():
        isolation, said = Isolation(), []
        for changed in (lambda: None, change):
            isolation.begin("{CALM}", "leaving:calm", lambda: leaving.calm)
            changed()
            said.append(isolation.end("leaving:calm"))
        for process in children(os.getpid()):
            os.kill(process, 9)
        os.write(1, (json.dumps([name, *said]) + chr(10)).encode())
        os._exit(0)
    os.wait()
"""
    said = [json.loads(line) for line in in_a_process(lines).splitlines()]
    assert said == [[change.__name__, "", text] for change, text in leaving.LEFT.items()]


@pytest.mark.slow
def test_a_library_that_a_trial_is_the_first_to_import_is_found_as_it_was_imported():
    """Its defaults come back, and it draws what it draws where another trial has imported it before."""
    lines = f"""
import sys
isolation = Isolation()
assert "torch" not in sys.modules
for trial_id in ("{CALM}", "{OTHER}", "{CALM}"):
    isolation.begin(trial_id, "m:f", lambda: None)
    import torch
    print(torch.rand(1).item(), torch.get_default_dtype(), torch.get_num_threads())
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(torch.get_num_threads() + 1)
    assert isolation.end("m:f") == ""
"""
    first, other, again = in_a_process(lines).splitlines()
    assert first == again != other and first.split()[1:] == other.split()[1:]


@pytest.mark.slow
def test_what_a_module_sets_as_it_is_imported_holds_for_its_trials_alone(tmp_path):
    """An arm of another module gets a new process: what both import would set nothing a second time."""
    make_files(
        tmp_path,
        {
            "doubles.py": "import torch\ntorch.set_default_dtype(torch.float64)\n",
            "singles.py": "import torch\n",
        },
    )
    lines = f"""
import importlib; sys.path.insert(0, {str(tmp_path)!r})
isolation = Isolation()
for module, following in [("singles", "doubles"), ("doubles", "singles"), ("singles", "doubles"), ("doubles", "third")]:
    isolation.begin("{CALM}", module + ":f", lambda: importlib.import_module(module))
    import torch
    print(torch.get_default_dtype(), isolation.end(following + ":f"))
"""
    printed = [line.split(" ", 1) for line in in_a_process(lines).splitlines()]
    assert [dtype for dtype, _ in printed] == ["torch.float32", "torch.float64"] * 2
    assert [left for _, left in printed[:3]] == ["", "", ""]
    assert printed[3][1].startswith("changed the default dtype of torch by an import")


@pytest.mark.slow
def test_what_libraries_do_to_an_enum_of_the_user_s_is_no_change_of_a_trial(tmp_path):
    """Torch marks the methods that each Enum has of Python's, and Python keeps combinations of flags."""
    kinds = "class Kind(str, enum.Enum):\n    A = 'a'\n\nclass Flag(enum.IntFlag):\n    A = 1\n    B = 2\n"
    (tmp_path / "kinds.py").write_text(f"import enum\n\n{kinds}\ndef own():\n    pass\n")
    lines = f"""
import importlib; sys.path.insert(0, {str(tmp_path)!r})
isolation = Isolation()
isolation.begin("{CALM}", "kinds:f", lambda: importlib.import_module("kinds"))
import kinds, torch
assert kinds.Kind.__str__.__dict__, "torch leaves them alone by now"
kinds.Flag.A | kinds.Flag.B
print(isolation.end("kinds:f"))
kinds.own.calls = 1
print(isolation.end("kinds:f"))
"""
    assert in_a_process(lines).splitlines() == ["", "changed own in the module kinds"]


def test_threads_that_a_library_keeps_and_caches_are_no_trial_s(isolation):
    @functools.cache
    def cached(value):
        return value

    begin(isolation, CALM)
    cached(1)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(cached, range(9)))
    threading.Thread(target=cached, args=(2,)).start()
    assert isolation.end("leaving:calm") == ""


@pytest.mark.long
@pytest.mark.xdist_group("running")
@pytest.mark.usefixtures("ray_core")
def test_calm_arms_report_the_same_among_others_and_alone(tmp_path, capfd):
    """In one slot, beside fifteen that change the process; those that cannot be put back end their worker."""
    alone = {}
    for arm in leaving.CALM:
        results = run(
            leaving.study([arm], reference=None), storage=str(tmp_path / arm), tracking="none"
        )
        alone |= leaving.calm_records(results)
    capfd.readouterr()
    order = random.Random(1).sample([*leaving.CALM, *leaving.MISBEHAVING], 17)
    results = run(leaving.study(order), storage=str(tmp_path / "mixed"), tracking="none")
    assert results.statuses == {"done": 17} and leaving.calm_records(results) == alone
    said = capfd.readouterr().err
    for arm in order[:-1]:
        text = leaving.LEFT.get(getattr(leaving, arm.replace("-", "_"), None))
        assert (f"arm {arm} {text}; its worker is replaced" in said) == (text is not None)


@pytest.mark.long
@pytest.mark.xdist_group("running")
@pytest.mark.usefixtures("ray_core")
def test_each_trial_has_a_process_of_its_own_where_the_study_says_so(tmp_path):
    def processes(**fields):
        several = AblationGrid(
            "processes", {"a": Arm("leaving:process")}, "digits", seeds=[0, 1, 2], **fields
        )
        results = run(several, storage=str(tmp_path / str(fields)), tracking="none")
        return {record.metrics["accuracy"] for record in results.trial_records.values()}, set(
            results.trial_records
        )

    (shared, ids), (own, same_ids) = processes(), processes(process="own")
    assert (len(shared), len(own)) == (1, 3) and ids == same_ids
