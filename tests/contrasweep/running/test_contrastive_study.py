"""Studies of real networks through Ray: the same trials by other engines and in cohorts as by their trainable."""

from collections import defaultdict

import pytest
from killed_contrastive import REPORTS

from contrasweep import AblationGrid, Arm, Float, Sweep
from contrasweep.cluster.inventory import Inventory, Node
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.learned import Learned
from contrasweep.planning.planner import plan
from contrasweep.running.driver import run
from contrasweep.storage.store import LocalStore
from contrasweep.trainables.fusing.choices import fusion_of
from contrasweep.trainables.fusing.known_engines import KnownEngines
from contrasweep.trainables.fusing.protocol import Timing

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("running"), pytest.mark.usefixtures("ray_session")]

TRAIN = "contrasweep.trainables.contrastive:train"
SMALL = {"encoder": {"name": "cnn", "width": 4}, "batch_size": 64, "learning_rate": 0.02, "checkpoint_every": 1}
LOSS, SCORE = 0.02, 0.05
"""How far a loss (relatively) and a share of items may differ after a few epochs in float32: sums are taken in another
order, which training magnifies. Measured here: 1e-5 to 1e-3, and a few of some hundred items."""


def grid(**fields):
    arms = {
        name: Arm(TRAIN, config={**SMALL, "epochs": 3, "loss": {"name": "supcon", "temperature": temperature}})
        for name, temperature in (("sharp", 0.2), ("smooth", 0.5))
    }
    return AblationGrid(**{"name": "s", "arms": arms, "data": "digits-lt", "folds": 4, "metric": "f1_macro"} | fields)


def sweep(**fields):
    """Trials of one after the other, so that what TPE and ASHA have seen does not depend on time."""
    config = {name: value for name, value in SMALL.items() if name != "learning_rate"} | {"epochs": 4}
    arms = {"a": Arm(TRAIN, config=config, space={"learning_rate": Float(1e-3, 0.1, log=True)})}
    base = {"name": "s", "arms": arms, "data": "digits-lt", "folds": 4, "search_folds": [0], "metric": "loss"}
    search = {"mode": "min", "trials_per_arm": 8, "searcher": "tpe", "searcher_options": {"n_startup_trials": 4}}
    pruned = {"pruner": "asha", "pruner_options": {"reduction": 2, "min_step": 1}, "confirm_seeds": [1000]}
    return Sweep(**base | search | pruned | fields)


def probed(study, storage, engine, slots):
    """As if a probe had shown that this engine takes a tenth of the time."""
    planned = plan(study, storage=str(storage))
    chosen = fusion_of(
        planned, Footprints(study, Inventory((Node(2, 16),)), Learned()), (), KnownEngines(LocalStore(storage))
    )
    for key in {chosen.of(trial).key for trial in planned.sample_trials}:
        chosen.probed(key, [Timing("unfused", 1, 100.0), Timing(engine, slots, 10.0)])


def records(results):
    return results.records.read(results.records.finished())


def assert_same(results, expected):
    """The same trials in the same order with the same statuses and steps; values up to rounding that training grew."""
    here, there = records(results), records(expected)
    assert here.keys() == there.keys()
    for trial_id, record in there.items():
        same = here[trial_id]
        assert (same.status, same.step, same.notes.phase) == (record.status, record.step, record.notes.phase)
        rows, others = results.records.metrics(trial_id), expected.records.metrics(trial_id)
        assert [row["step"] for row in rows] == [row["step"] for row in others]
        assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in others], rel=LOSS)
        for name in {"accuracy", "f1_macro"} & record.metrics.keys():
            assert same.metrics[name] == pytest.approx(record.metrics[name], abs=SCORE)


def test_auto_gives_the_records_of_off(tmp_path):
    off = run(grid(cohort="off"), storage=str(tmp_path / "off"), tracking="none")
    for slots, shared_by in ((1, None), (2, 2)):
        storage = tmp_path / f"auto-{slots}"
        probed(grid(cohort="auto"), storage, "products", slots)
        results = run(grid(cohort="auto"), storage=str(storage), tracking="none")
        assert_same(results, off)
        kinds = {(record.notes.shared_by, record.notes.engine) for record in records(results).values()}
        assert kinds == {(shared_by, "products")}


def test_auto_searches_and_prunes_as_off_does(tmp_path):
    probed(sweep(cohort="auto"), tmp_path / "auto", "products", 1)
    results = run(sweep(cohort="auto"), storage=str(tmp_path / "auto"), tracking="none", max_concurrent=1)
    expected = run(sweep(cohort="off"), storage=str(tmp_path / "off"), tracking="none", max_concurrent=1)
    assert_same(results, expected)
    assert {record.status for record in records(results).values()} == {"done", "pruned"}
    assert {record.notes.engine for record in records(results).values()} == {"products"}
    assert {record.notes.engine for record in records(expected).values()} == {None}


def test_as_many_are_fused_as_the_memory_model_says_fit(tmp_path):
    """ResNet-18 at a batch of 64: 1 GiB for one, 1.9 for two, 3.3 for four and 6.3 for eight in one process."""
    arms = {"a": Arm(TRAIN, config={"encoder": "resnet18", "batch_size": 64, "epochs": 1})}
    study = AblationGrid("s", arms, "digits-lt", folds=4, seeds=[0, 1], metric="f1_macro", cohort=8)
    planned = plan(study, storage=str(tmp_path))
    trial = planned.sample_trials[0]

    def chosen(gib):
        return fusion_of(planned, Footprints(study, Inventory((Node(2, gib),)), Learned()), ()).of(trial)

    assert [chosen(gib).slots for gib in (8, 4, 2)] == [8, 4, 2]
    assert chosen(1).reason == "two of its kind do not fit the memory of a host"


def test_a_cohort_that_meets_the_limit_of_memory_goes_on_with_half_its_members(tmp_path):
    """Four members at a step are more than the process may have; two of them are not."""

    def study(cohort):
        config = {**SMALL, "encoder": {"name": "cnn", "width": 32}, "batch_size": 128, "epochs": 2, "device": "cpu"}
        arms = {"a": Arm("limited_contrastive:train", config=config)}
        return AblationGrid("s", arms, "digits-lt", folds=4, metric="f1_macro", cohort=cohort)

    results = run(study(4), storage=str(tmp_path / "limited"), tracking="none")
    assert_same(results, run(study("off"), storage=str(tmp_path / "calm"), tracking="none"))
    assert [(r.status, r.notes.shared_by) for r in records(results).values()] == [("done", 2)] * 4
    (known,) = (tmp_path / "limited" / "calibration" / "cohorts").iterdir()
    assert '"most_slots": 2' in known.read_text(), "kept for later runs"


def epochs_by_trial(file):
    """Trial id -> the epochs that were noted of it, in their order."""
    noted = defaultdict(list)
    for line in file.read_text().splitlines():
        trial_id, epoch = line.split()
        noted[trial_id].append(int(epoch))
    return noted


def test_a_killed_host_of_eight_costs_no_step_before_a_checkpoint(tmp_path):
    """SIGKILL of the process that trains eight trials, all in the middle: each goes on from its own checkpoint."""

    def study(cohort):
        arms = {"a": Arm("killed_contrastive:train", config={**SMALL, "epochs": 12})}
        return AblationGrid("s", arms, "digits-lt", folds=4, seeds=[0, 1], metric="f1_macro", cohort=cohort)

    results = run(study(8), storage=str(tmp_path / "killed"), tracking="none")
    assert_same(results, run(study("off"), storage=str(tmp_path / "calm"), tracking="none"))
    assert [(record.attempts, record.notes.shared_by) for record in records(results).values()] == [(2, 8)] * 8
    folder = tmp_path / "killed" / "datasets"
    joined, reported = epochs_by_trial(folder / "joined"), epochs_by_trial(folder / "reported")
    assert len(joined) == 8
    for trial_id, (first, again) in joined.items():
        assert first == 0 and 1 <= again <= REPORTS, "from its own checkpoint"
        assert reported[trial_id] == [*range(1, REPORTS + 1), *range(again + 1, 13)], "and on from there, once"
