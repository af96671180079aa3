"""Where trials go: by room and size of GPU, twice the share after running out of memory, and through a real Ray.

Ray counts GPUs that it is told of, so shares, types and accounts are tested without one; what a share does to CUDA's
memory is not.
"""

import json
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from made_up import nowhere, train
from ray.tune.experiment import Trial as RayTrial
from refusals import refused
from typer.testing import CliRunner

from contrasweep import AblationGrid, Arm, SpecError
from contrasweep.cli.app import app
from contrasweep.cluster.guard import CONTEXT_GIB, fraction, guard
from contrasweep.cluster.hosts import Hosts
from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.cluster.packing import Footprint
from contrasweep.live.overview import overviews
from contrasweep.live.state import RunState, read_live
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.grid import make_plan
from contrasweep.planning.learned import Learned
from contrasweep.running.driver import run
from contrasweep.running.engine.placement import Placements, bundles
from contrasweep.running.engine.tune_engine import TuneCallback
from contrasweep.storage.record import Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords

pytestmark = pytest.mark.xdist_group("gpu")  # one Ray for all of them
DATA = nowhere()
MIXED = Inventory(
    (
        Node(8, 64, 1, Gpu("T4", 14.7), cost_per_hour=1.0),
        Node(32, 256, 1, Gpu("H100", 79.2), cost_per_hour=8.0),
    )
)


def placed(inventory=MIXED, **arms):
    study = AblationGrid(
        "s",
        {name: Arm(train, resources=footprint) for name, footprint in arms.items()},
        "d",
        folds=5,
    )
    return Placements(Footprints(study, inventory, Learned())), make_plan(
        study, lambda name: DATA
    ).trials


def test_a_run_that_waits_for_a_host_counts_all_trials_that_are_to_come():
    """Not only those that were handed to Tune."""
    placements, trials = placed(a=Footprint(cpus=1))
    said = []
    run_state = RunState("s", "f1", "max", "/runs", total=5, before={"done": 1}, slots=1, began=0)
    loop = SimpleNamespace(
        accounts=SimpleNamespace(active={t.id: SimpleNamespace(trial=t) for t in trials[:2]}),
        placements=placements,
        progress=SimpleNamespace(state=run_state, waits=said.append),
        queue=SimpleNamespace(hosts=Hosts(), waiting=[]),
    )
    callback = TuneCallback(loop, None)
    callback.idle_message_at = 0.0
    callback._watch([RayTrial("x", config={"id": t.id}, stub=True) for t in trials[:2]])
    # What is too large for every host is in the queue still.
    _, (large, *_) = placed(a=Footprint(cpus=1000))
    loop.queue.waiting = [SimpleNamespace(trial=large)]
    loop.placements, _ = placed(a=Footprint(cpus=1000))
    callback.idle_message_at = callback.watch_at = 0.0
    callback._watch([])
    handed_out, queued = said
    assert handed_out.startswith(
        "no trial runs: 4 to come; the first is starting, or no host has 1 core and "
    )
    assert queued.startswith("no trial runs: 4 to come; the trial needs 1000 cores, ")


def record(trial, gpu, **fields):
    return Record.of(trial, status=Status.DONE, notes=TrialNotes(gpu_type=gpu, gpus=0.5), **fields)


def test_the_smallest_type_with_room_then_the_one_with_least_waiting():
    placements, trials = placed(a=Footprint(gpu_memory_gib=6))
    kinds = [placements.place(trial).gpu for trial in trials]
    assert kinds[:2] == ["T4", "T4"], "half a T4 each"
    assert set(kinds[2:]) == {"H100"}, "then 1/8 of the larger one, where there is room for all"


def test_where_all_is_full_trials_wait_for_the_type_with_least_before_them():
    placements, trials = placed(a=Footprint(gpus=1))
    assert sorted(placements.place(trial).gpu for trial in trials) == [
        "H100",
        "H100",
        "T4",
        "T4",
        "T4",
    ]
    assert placements.footprints.most_slots(trials) == 1


def test_a_place_is_kept_until_the_record_and_then_given_to_another():
    placements, (first, second, *_) = placed(
        Inventory((MIXED.nodes[0], MIXED.nodes[1])), a=Footprint(gpu_memory_gib=12)
    )
    assert placements.place(first).gpu == placements.place(first).gpu == "T4"
    placements.ended(record(first, "T4"))
    assert placements.place(second).gpu == "T4"


def test_what_ended_trials_took_places_the_next_ones():
    placements, (first, second, *_) = placed(a=None)
    assert placements.place(first).share == 1
    placements.ended(record(first, "T4", gpu_memory_gib=2.5))
    assert placements.place(second).share == Fraction(1, 4), "2.5 GiB x 1.25 of 14.7"


@pytest.mark.parametrize("types", [("T4", "H100"), ("T4",)])
def test_out_of_memory_gets_twice_the_share_and_at_last_infeasible(types):
    placements, (trial, *_) = placed(a=Footprint(gpu_memory_gib=6, gpu_types=types))
    placements.place(trial)
    error = "torch.OutOfMemoryError: CUDA out of memory"
    shares = []
    while (more := placements.after_error(trial, error)) is not None:
        shares.append((placements.place(trial).gpu, float(placements.place(trial).share)))
        assert more.bundles[0]["GPU"] == shares[-1][1]
    assert shares == [(name, 1.0) for name in types] and placements.infeasible == {trial.id}
    assert placements.after_error(trial, "ValueError: x") is None


def of_three_gib():
    return placed(Inventory(MIXED.nodes[:1]), a=Footprint(gpu_memory_gib=3, cpus=0.5))


def test_replicates_of_a_trial_that_ran_out_of_memory_start_with_what_it_was_given():
    placements, (first, second, third, *_) = of_three_gib()
    assert placements.place(first).share == Fraction(1, 4)
    placements.after_error(first, "CUDA out of memory")
    assert placements.place(second).share == Fraction(1, 2)
    placements.ended(record(first, "T4", gpu_memory_gib=3.9))
    assert placements.place(third).share == Fraction(1, 3), (
        "3.9 GiB x 1.25 of 14.7, once it was measured"
    )


def test_what_ran_out_of_less_does_not_take_back_what_its_replicates_were_given():
    placements, (first, second, third, *_) = of_three_gib()
    assert {placements.place(trial).share for trial in (first, second)} == {Fraction(1, 4)}
    for trial in (first, first, second):
        placements.after_error(trial, "CUDA out of memory")
    assert [placements.place(trial).share for trial in (first, second, third)] == [
        1,
        Fraction(1, 2),
        1,
    ]


def test_a_study_of_which_nothing_fits_is_one_line_about_its_smallest_trial():
    placements, trials = placed(
        vast=Footprint(gpu_memory_gib=200), huge=Footprint(gpu_memory_gib=100)
    )
    with refused(SpecError, "of the smallest one: the trial needs 100.0 GiB of GPU memory"):
        placements.footprints.check(trials)
    placements, trials = placed(
        vast=Footprint(gpu_memory_gib=200), fits=Footprint(gpu_memory_gib=6)
    )
    placements.footprints.check(trials)


def test_ray_is_asked_by_plain_values():
    placements, (trial, *_) = placed(a=Footprint(gpu_memory_gib=6, cpus=2, host_memory_gib=4))
    place = placements.place_description(trial)
    requested = bundles(json.loads(json.dumps({"place": place})))
    assert requested.bundles == [{"CPU": 2.0, "GPU": 0.5, "memory": 4.0 * 2**30}]
    assert not place["limit_host_memory"], "CUDA reserves more than a host has"


def test_what_is_learned_of_memory_keeps_processes_where_cores_are_short():
    cores = Inventory((Node(2, 16, 0),))
    placements, trials = placed(cores, a=None)

    def asked(number, **fields):
        bundles = placements.place_description(trials[number])["resources"]
        placements.ended(Record.of(trials[number], status=Status.DONE, **fields))
        return bundles

    first = asked(0, host_memory_gib=0.83)
    assert asked(1, host_memory_gib=1.3) == first == asked(2), (
        "Ray reuses a process where both ask for the same"
    )
    assert first["memory"] == 2 * 2**30, "a quarter of a core's part of the host"
    placements, trials = placed(cores, a=None)
    asked(0, host_memory_gib=7.0)
    assert asked(1)["memory"] == 8 * 2**30, "memory of which more is needed is asked for"
    placements, trials = placed(cores, a=Footprint(host_memory_gib=0.5))
    assert asked(0)["memory"] == 2**29, "what is declared is asked for as it is"


def test_out_of_memory_on_cores_gets_twice_what_was_asked_for():
    placements, (trial, *_) = placed(Inventory((Node(2, 16, 0),)), a=None)
    asked = placements.place_description(trial)["resources"]["memory"]
    again = placements.after_error(trial, "MemoryError: cannot allocate")
    assert again.bundles[0]["memory"] == 2 * asked


def test_a_share_holds_the_context_too():
    assert fraction(1.0, 80) == 1.0
    assert fraction(0.25, 80) == pytest.approx(0.25 - CONTEXT_GIB / 80)
    assert fraction(0.0625, 8) == pytest.approx(0.03125), "never less than half of the share"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_more_than_the_share_is_refused_on_a_gpu():
    total = torch.cuda.get_device_properties(0).total_memory
    with guard(gpu_share=0.25), pytest.raises(torch.OutOfMemoryError):
        torch.empty(total // 3, dtype=torch.uint8, device="cuda")
    torch.empty(total // 3, dtype=torch.uint8, device="cuda")


def toy(arms):
    return AblationGrid(name="toy", data="digits-lt", folds=3, arms=arms)


@pytest.mark.slow
def test_cells_that_fit_run_and_the_others_are_infeasible(ray_gpu, storage):
    arms = {
        "fits": Arm("toy:train", config={"epochs": 2}, resources=Footprint(gpu_memory_gib=5)),
        "vast": Arm("toy:train", config={"epochs": 2}, resources=Footprint(gpu_memory_gib=50)),
    }
    results = run(toy(arms), storage=storage, tracking="none")
    assert results.statuses == {"done": 3, "infeasible": 3}
    notes = [record.notes for record in results.trial_records.values() if record.arm == "fits"]
    assert notes == [TrialNotes(gpus=0.5, gpu_type="T4", cost_per_hour=1.5)] * 3
    error = next(record.error for record in results.trial_records.values() if record.arm == "vast")
    assert error.startswith(
        "the trial needs 50.0 GiB of GPU memory; the largest GPU, T4, has 14.7 GiB"
    )
    assert "infeasible" in results.table().to_text()


@pytest.mark.long
def test_out_of_memory_on_a_gpu_resumes_from_the_checkpoint_with_twice_the_share(
    ray_gpu, tmp_path, runs
):
    def train(trial, resume=None):
        """Runs out of memory after its second report unless it has the whole GPU."""
        import ray

        from contrasweep.trial import Report

        done = int((resume / "n").read_text()) if resume else 0
        for n in range(done + 1, 5):
            if n == 3 and ray.get_runtime_context().get_assigned_resources()["GPU"] < 1:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            folder = tmp_path / f"{trial.id}-{n}"
            folder.mkdir(exist_ok=True)
            (folder / "n").write_text(str(n))
            yield Report(n, {"accuracy": n / 10, "resumed_after": float(done)}, folder)

    arm = Arm(train, resources=Footprint(gpu_memory_gib=6))
    results = run(
        AblationGrid("grow", {"a": arm}, "digits-lt", folds=2),
        storage=runs,
        tracking="none",
    )
    assert [
        (r.status, r.notes.gpus, r.metrics["resumed_after"]) for r in results.trial_records.values()
    ] == [("done", 1.0, 2.0)] * 2
    assert all(
        [row["step"] for row in results.records.metrics(i)] == [1, 2, 3, 4]
        for i in results.trial_records
    )


@pytest.mark.long
def test_a_budget_ends_a_run_gracefully_and_a_larger_one_goes_on(ray_gpu, tmp_path, runs):
    """Through the command line: a budget for less than half of the trials' GPU-seconds, then enough."""
    (tmp_path / "study.yaml").write_text(
        "name: toy\ndata: digits-lt\nfolds: 3\nmetric: accuracy\narms:\n"
        "  a: {trainable: 'toy:train', config: {epochs: 5, pause_s: 0.4}, resources: {gpus: 0.5}}\n"
    )
    command = [
        "run",
        str(tmp_path / "study.yaml"),
        "--storage",
        runs,
        "--tracking",
        "none",
    ]
    first = CliRunner().invoke(app, [*command, "--set", f"budget_gpu_hours={1.2 / 3600}"])
    assert first.exit_code == 3
    assert "used up: budget_gpu_hours=0.000333333 (" in first.output
    assert "--set budget_gpu_hours=" in first.output
    records = StudyRecords(runs, "toy")
    before = records.finished()
    assert len(before) < 3
    (entry,) = overviews(records.storage)
    assert (entry.state, read_live(records).ended) == ("budget used up", "budget used up")
    assert CliRunner().invoke(app, [*command, "--set", "budget_gpu_hours=1"]).exit_code == 0
    (entry,) = overviews(records.storage)
    assert (entry.state, read_live(records).ended) == ("complete", "complete")
    recorded = records.read(records.finished())
    assert len(recorded) == 3 and before <= set(recorded)
    assert all([row["step"] for row in records.metrics(i)] == [1, 2, 3, 4, 5] for i in recorded)
    assert max(record.attempts for record in recorded.values()) == 2, (
        "those that the budget stopped went on"
    )
