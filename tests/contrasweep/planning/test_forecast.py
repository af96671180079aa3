"""What `contrasweep plan` shows: memory, share, packing, time and cost, on this machine and on a declared cluster."""

import dataclasses
from types import SimpleNamespace

import pytest
from made_up import nowhere, train
from places import ROOT
from typer.testing import CliRunner

from contrasweep import AblationGrid, Arm, Float, Sweep
from contrasweep.cli.app import app
from contrasweep.cluster.packing import Footprint
from contrasweep.planning import learned
from contrasweep.planning.forecast import copy_warnings, forecast, group_warnings
from contrasweep.planning.grid import make_plan
from contrasweep.planning.power import study_power
from contrasweep.planning.sweep import make_sweep_plan
from contrasweep.storage.record import Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords

DATA = nowhere(2, columns={"image": {"dtype": "uint8", "shape": [8, 8, 1]}})
CLUSTER = """
nodes:
  - {name: small, count: 2, cpus: 16, memory_gib: 64, gpu: T4, gpus: 2, cost_per_hour: 1.0}
  - {name: large, cpus: 64, memory_gib: 512, gpu: H100, gpus: 4, cost_per_hour: 20.0}
"""


TUNED = Arm("toy:train", space={"lr": Float(0.1, 1)})


def grid(**fields):
    arms = {
        "quarter": Arm(train, resources=Footprint(gpu_memory_gib=3)),
        "large": Arm(train, resources=Footprint(gpu_memory_gib=60)),
    }
    return AblationGrid(
        **{"name": "s", "arms": arms, "data": "d", "folds": 2, "axes": {"p": [1, 2]}} | fields
    )


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path / "cluster.yaml"


def planned(study, tmp_path, cluster=None, seconds=None, notes=None):
    """The forecast, with the first trial of each cell done in `seconds` where they are given."""
    the_plan = make_plan(study, lambda name: DATA)
    records = StudyRecords(str(tmp_path / "runs"), study.name)
    for cell in the_plan.cells if seconds else ():
        trial = cell.trials[0]
        records.write(
            Record.of(
                trial,
                status=Status.DONE,
                seconds=seconds,
                started=0.0,
                ended=seconds,
                notes=TrialNotes(**notes or {}),
            )
        )
    return forecast(the_plan, str(tmp_path / "runs"), cluster)


def test_ten_times_the_trials_of_an_arm_take_ten_times_the_hours(tmp_path, cluster):
    expected = planned(grid(), tmp_path, cluster, seconds=3600.0)
    assert expected.hours_of({"large": 8}) == pytest.approx(expected.hours_of({"large": 80}) / 10)
    assert expected.hours_of({"large": 8, "other": 1}) is None


@pytest.mark.parametrize(("gpu_type", "seconds"), [(None, [100.0, 200.0]), ("H100", [None, None])])
def test_a_new_study_knows_how_long_equal_cells_took_in_another(tmp_path, gpu_type, seconds):
    """An arm of another name, too; trials on other hosts tell nothing."""
    small = Footprint(cpus=1, host_memory_gib=2)
    other = make_plan(
        grid(name="other", arms={"b": Arm(train, resources=small)}), lambda name: DATA
    )
    records = StudyRecords(str(tmp_path / "runs"), "other")
    notes = TrialNotes(gpu_type=gpu_type)
    ended = [
        Record.of(
            trial,
            status=status,
            seconds=took,
            started=0.0,
            ended=took + 20,
            host_memory_gib=1.0,
            notes=notes,
        )
        for cell in other.cells
        for trial, status, took in zip(
            cell.trials,
            [Status.DONE, Status.PRUNED],
            [100.0 * cell.axes["p"], 5.0],
            strict=True,
        )
    ]
    for record in ended:
        records.write(record)
    learned.write(records, ended)
    expected = planned(grid(arms={"a": Arm(train, resources=small)}), tmp_path)
    assert [row.seconds for row in expected.rows] == seconds
    told = "equal cells as measured in other" in expected.to_text()
    assert told == (gpu_type is None) and expected.to_dict()["measured_in"] == ["other"] * told
    if told:  # with the 20 s that a trial takes beside its training
        assert expected.makespan.gpu_hours == pytest.approx(2 * (120 + 220) / 3600)


@pytest.mark.slow
def test_where_the_trials_to_run_go(tmp_path, cluster):
    """The large ones have the H100s to themselves, or share them with quarters that would else wait for a T4."""
    estimate = planned(grid(seeds=list(range(5))), tmp_path, cluster)
    result = {(row["gpu"], row["share"]): row["trials"] for row in estimate.packing}
    assert sum(result.values()) == 40 and result["H100", "1"] == 20
    assert result["T4", "1/4"] + result.get(("H100", "1/16"), 0) == 20
    assert f"packing   {result['T4', '1/4']} trials on 1/4 T4, 16 at once" in estimate.to_text()


@pytest.mark.slow
def test_cells_that_fit_nowhere_say_why(tmp_path, cluster):
    arms = {
        "fits": Arm(train, resources=Footprint(gpu_memory_gib=3)),
        "vast": Arm(train, resources=Footprint(gpu_memory_gib=300)),
    }
    estimate = planned(grid(arms=arms), tmp_path, cluster)
    assert (
        "infeasible  arm vast: the trial needs 300.0 GiB of GPU memory; the largest GPU, H100, has 79.2 GiB "
        "(declared) (2 cells)" in estimate.to_text()
    )
    rows = estimate.to_dict()["table"]
    assert [row["infeasible"] is None for row in rows] == [True, True, False, False]
    assert [row["per_gpu"] for row in rows] == [4, 4, None, None]


@pytest.mark.slow
def test_time_gpu_hours_and_cost_by_hand(tmp_path, cluster):
    """Two trials of a whole H100 are left and two of a quarter of a T4, an hour each: all run at once."""
    estimate = planned(grid(), tmp_path, cluster, seconds=3600.0)
    as_dict = estimate.to_dict()
    assert (as_dict["to_run"], as_dict["hours"]) == (4, 1.0)
    assert as_dict["makespan"]["gpu_hours"] == pytest.approx(2 * 1 + 2 * 0.25)
    assert as_dict["makespan"]["cost"] == 22.0
    assert as_dict["makespan"]["trials_cost"] == pytest.approx(2 * 20 / 4 + 2 * 1 / 2 / 4)
    assert (
        "cost      22 for all hosts as long as it runs, 10.25 for the trials' parts of them"
        in estimate.to_text()
    )
    assert "beside the start of Ray" not in estimate.to_text()
    short = planned(grid(), tmp_path / "short", cluster, seconds=3.0)
    assert "time      3 s beside the start of Ray and its workers, simulated" in short.to_text()


@pytest.mark.slow
def test_what_trials_take_beside_training_is_part_of_the_forecast(tmp_path, runs, cluster):
    estimate = planned(grid(), tmp_path, cluster, seconds=3600.0)
    records = StudyRecords(runs, "s")
    for n, i in enumerate(records.finished()):
        # one that was interrupted has waited, too
        one = records.read_one(i)
        attempts = 1 + n % 2
        records.write(
            dataclasses.replace(one, ended=one.ended + 360 * attempts**9, attempts=attempts)
        )
    assert forecast(estimate.plan, runs, cluster).hours == pytest.approx(1.1)


@pytest.mark.slow
def test_times_from_other_hosts_are_scaled_by_speed_and_said_to_be_from_there(tmp_path, cluster):
    cluster.write_text(CLUSTER.replace("gpu: H100,", "gpu: H100, gpu_speed: 4,"))
    here = planned(grid(), tmp_path, cluster, seconds=900.0, notes={"gpu_type": "H100"})
    assert here.rows[0].seconds == 3600.0 and not any("time is" in text for text in here.warnings)
    assert {row.planned.arm: row.placements[0].gpu for row in here.rows} == {
        "quarter": "T4",
        "large": "H100",
    }
    assert here.hours == 1.0, "an hour on a T4; on an H100 a quarter of one"
    cpu = planned(grid(name="t"), tmp_path, cluster, seconds=900.0)
    assert "time is what trials took on cpu; these hosts have H100, T4" in cpu.warnings


@pytest.mark.slow
def test_a_forecast_over_budget_is_a_warning(tmp_path, cluster):
    over = planned(
        grid(budget_gpu_hours=3.0), tmp_path, cluster, seconds=3600.0, notes={"gpus": 0.5}
    )
    assert (
        "warning   budget_gpu_hours=3 will be exceeded: 2 hours of a GPU or slot spent, about 2.5 hours of a GPU or "
        "slot to go" in over.to_text()
    )
    assert over.to_dict()["budget"] == {"budget_gpu_hours": {"limit": 3.0, "spent": 2.0}}
    assert (
        "will be exceeded"
        not in planned(
            grid(budget_gpu_hours=5.0), tmp_path, cluster, seconds=3600.0, notes={"gpus": 0.5}
        ).to_text()
    )


def test_nothing_known_is_said_plainly(tmp_path, cluster):
    text = planned(grid(arms={"a": Arm(train)}), tmp_path, cluster).to_text()
    assert (
        "memory    arm a: nothing is known (its trainable has no `memory`, the arm no `resources`): a whole GPU until "
        "one was measured" in text
    )


@pytest.mark.slow
def test_the_inventory_in_the_documentation_works(storage):
    inventory = ROOT / "docs/cluster/example-inventory.yaml"
    done = CliRunner().invoke(
        app,
        [
            "plan",
            "contrasweep.search_spaces.quickstart:STUDY",
            "--cluster",
            str(inventory),
            "--storage",
            storage,
        ],
    )
    assert done.exit_code == 0 and "L4 or H100" in done.output


def test_seeds_on_one_test_split_of_groups_are_warned_of():
    floods = SimpleNamespace(name="floods", counts={"train": {"groups": 5}, "test": {"groups": 3}})
    digits = SimpleNamespace(name="digits", counts={"test": {"classes": [9]}})
    on_test = SimpleNamespace(table_folds=None, table_datasets=[floods, digits])
    assert [line.partition(";")[0] for line in group_warnings(on_test)] == [
        "floods: verdicts hold for the 3 groups of the test split"
    ]
    assert group_warnings(SimpleNamespace(table_folds=5, table_datasets=[floods])) == []


def test_arms_that_differ_in_nothing_but_their_names_are_warned_of():
    """Also where one says what the other leaves at its default."""
    arms = {
        "a": Arm("toy:train"),
        "b": Arm("toy:train", {"lr": 0.1}),
        "c": Arm("toy:train", {"lr": 0.2}),
    }
    study = AblationGrid("s", arms, "digits-lt", axes={"batch_size": [16, 32]}, folds=2)
    assert copy_warnings(make_plan(study, lambda name: DATA)) == [
        "arms a, b train the same with the same settings"
    ]
    tuned = {"a": TUNED}
    tuned |= {
        "b": tuned["a"],
        "c": Arm("toy:train", space={"lr": Float(0.1, 2)}),
        "d": Arm("toy:train", space={"lr": Float(0.1, 1, step=0.45)}),
    }
    sweep = Sweep("s", tuned, "digits", folds=2, trials_per_arm=4)
    assert copy_warnings(make_sweep_plan(sweep, lambda name: DATA)) == [
        "arms a, b train the same with the same settings"
    ]


def test_programs_have_what_a_sweep_can_decide(storage):
    sweep = Sweep("s", dict.fromkeys("ab", TUNED), "d", folds=2, trials_per_arm=4, confirm_on="all")
    expected = forecast(make_sweep_plan(sweep, lambda name: DATA), storage)
    shown = expected.to_dict()["sizes"]
    assert [(size["times"], size["trials"]) for size in shown] == [(1, expected.plan.total)]
    assert f"{shown[0]['detectable']:.2g} spreads" in expected.to_text()


def test_the_power_of_a_sweep_counts_the_folds_that_its_search_leaves():
    def power(**fields):
        arms = dict.fromkeys("ab", TUNED)
        return study_power(Sweep("s", arms, "digits", folds=5, trials_per_arm=4, **fields))

    least = [power(search_folds=list(range(n))).least for n in (1, 2, 3)]
    assert power(confirm_on="all").least < least[0] < least[1] < least[2]
    nothing = power(search_folds=[0, 1, 2, 3])
    assert nothing.sentence.endswith(": nothing") and "search fewer folds" in nothing.warnings[0]
