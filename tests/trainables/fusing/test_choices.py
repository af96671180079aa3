"""Which trials are fused, how many at a time, and what a plan says of it."""

import dataclasses
from fractions import Fraction
from types import SimpleNamespace

import pytest
import toy_cohort
from joining_hosts import Driver
from typer.testing import CliRunner

from contrasweep import AblationGrid, Arm, Float, SpecError, Sweep
from contrasweep.cli.app import app
from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.hosts import Hosts
from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.grid import make_plan
from contrasweep.planning.lanes import Lanes, Ride
from contrasweep.planning.learned import Learned, peak_of
from contrasweep.planning.plan import PlanRow
from contrasweep.planning.sweep import make_sweep_plan
from contrasweep.running.engine import tune_engine
from contrasweep.running.engine.placement import Placements
from contrasweep.running.engine.tune_engine import TuneScheduler
from contrasweep.storage.record import Phase, Record, StartRef, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.trainables.fusing.choices import Fused, Unfused, fusion_of
from contrasweep.trainables.fusing.known_engines import KnownEngines
from contrasweep.trainables.fusing.lane import Fusing
from contrasweep.trainables.fusing.protocol import Timing
from contrasweep.tuning.source import FixedSource

DATA = Manifest("d", "/nowhere", "image", {"train": (Shard("a", 100, 1, "aa"),)}, folds=Folds(5))
CORES = Inventory((Node(2, 16),))
GPUS = Inventory((Node(16, 128, 2, Gpu("H100", 80.0)),))
TRAIN = "toy_cohort:train"
NO_PROBE = "its trainable cannot time its engines (its `lane` has no `probe`)"


def grid(**fields):
    return AblationGrid(**{"name": "s", "arms": {"a": Arm(TRAIN)}, "data": "d", "folds": 5} | fields)


def fusion(study, inventory=CORES, done=(), known=None):
    plan = make_plan(study, lambda name: DATA)
    return fusion_of(plan, Footprints(study, inventory, Learned()), done, known), plan.trials


def placements_of(study, inventory, chosen):
    footprints = Footprints(study, inventory, Learned())
    return Placements(footprints, Lanes(footprints, dict.fromkeys(study.arms, Fusing(chosen))))


def timings(fused_s, compile_s=0.0):
    return [Timing("unfused", 1, 10.0), Timing("products", 4, fused_s, compile_s=compile_s)]


@pytest.mark.parametrize("value", [3, 32, True, "on", "4"])
def test_a_bad_value_is_one_line(value):
    with pytest.raises(SpecError, match=r"cohort: it is auto, off, or how many trials train as one: 2, 4, 8, 16, got"):
        grid(cohort=value)


def test_a_trial_that_starts_from_a_checkpoint_trains_alone():
    chosen, trials = fusion(grid(cohort=4))
    assert isinstance(chosen.of(trials[0]), Fused)
    started = dataclasses.replace(trials[0], start=StartRef("pretrain", "0" * 16))
    assert chosen.of(started) == Unfused("it starts from another trial's checkpoint")


def test_the_field_changes_no_trial_and_no_search():
    off, fused = (make_plan(grid(cohort=cohort), lambda name: DATA) for cohort in ("off", 4))
    assert [t.id for t in off.trials] == [t.id for t in fused.trials] and off.digest == fused.digest
    sweeps = [
        make_sweep_plan(
            Sweep("s", {"a": Arm(TRAIN, space={"lr": Float(0.1, 1)})}, "d", 4, folds=5, cohort=cohort),
            lambda name: DATA,
        )
        for cohort in (None, "auto")
    ]
    assert sweeps[0].digest == sweeps[1].digest


def test_equal_shapes_have_one_key_and_others_run_alone_for_a_reason():
    arms = {
        "a": Arm(TRAIN, config={"lr": 0.1}),
        "b": Arm(TRAIN, config={"lr": 0.2}),
        "other": Arm(TRAIN, config={"batch_size": 8}),
        "sleeps": Arm(TRAIN, config={"pause_s": 1.0}),
        "plain": Arm("toy:train"),
        "off": Arm(TRAIN, cohort="off"),
    }
    chosen, trials = fusion(grid(arms=arms, cohort=4))
    of = {trial.arm: chosen.of(trial) for trial in trials}
    assert isinstance(of["a"], Fused) and of["a"] == of["b"] and of["a"].slots == 4
    assert isinstance(of["other"], Fused) and of["other"].key != of["a"].key
    assert of["sleeps"] == Unfused("it sleeps")
    assert of["plain"] == Unfused("its trainable has no `lane` of cohorts")
    assert of["off"] == Unfused()


def test_trials_of_one_key_are_handed_out_together():
    """A plan's order goes from cell to cell; two cores would hold a cohort of each key, with one member each."""
    chosen, trials = fusion(grid(axes={"batch_size": [4, 8, 16]}, cohort=2))
    order = [trial.config["batch_size"] for trial in chosen.arranged(trials)]
    assert order == [4, 4, 8, 8, 16, 16, 4, 4, 8, 8, 16, 16, 4, 8, 16]
    assert sorted(t.id for t in chosen.arranged(trials)) == sorted(t.id for t in trials)
    arms = {"a": Arm(TRAIN), "off": Arm(TRAIN, config={"lr": 0.2}, cohort="off")}
    chosen, trials = fusion(grid(arms=arms, cohort=2))
    order = [trial.arm for trial in chosen.arranged(trials)]
    assert order == ["a", "a", "off", "off", "a", "a", "off", "off", "a", "off"]


def test_a_key_may_depend_on_the_fold(monkeypatch):
    monkeypatch.setattr(toy_cohort.ToyCohorts, "key", lambda self, trial: str(trial.fold % 2))
    chosen, trials = fusion(grid(cohort=2))
    assert [trial.fold for trial in chosen.arranged(trials)] == [0, 2, 1, 3, 4]


def test_one_trial_of_its_shapes_runs_alone():
    chosen, trials = fusion(grid(folds=None, cohort=2, data="d"), done=())
    assert chosen.of(trials[0]) == Unfused("no other trial has its shapes", chosen.of(trials[0]).key)


@pytest.mark.parametrize(("folds", "slots"), [(2, 2), (3, 4), (5, 8), (9, 16), (17, 16)])
def test_a_cohort_has_no_more_slots_than_its_key_has_trials(folds, slots):
    chosen, trials = fusion(grid(folds=folds, cohort=16))
    assert chosen.of(trials[0]).slots == slots, "the next power of two"


def test_a_member_has_an_equal_part_of_what_its_cohort_gets():
    study = grid(arms={"a": Arm(TRAIN, footprint=Footprint(gpu_memory_gib=8, host_memory_gib=1.0, cpus=2))}, cohort=4)
    chosen, trials = fusion(study, GPUS)
    placements = placements_of(study, GPUS, chosen)
    place = placements.described(trials[0])
    assert place["resources"]["GPU"] == 1 / 8, "four of 8 GiB share half of 80 GiB"
    assert place["resources"]["CPU"] == 0.5
    assert place["ride"]["members"] == 4 and place["ride"]["gpu_share"] == 0.5
    assert placements.slots(trials) == 16
    assert placements.notes(trials[0]).shared_by == 4 and placements.notes(trials[0]).gpus == 1 / 8
    assert all(8 * option.share == Fraction(1) for option in chosen.options(trials[0], 4))


def test_no_more_are_fused_than_fit_the_memory():
    study = grid(arms={"a": Arm(TRAIN, footprint=Footprint(gpu_memory_gib=30))}, cohort=8)
    chosen, trials = fusion(study, GPUS)
    assert chosen.of(trials[0]).slots == 2
    big = grid(arms={"a": Arm(TRAIN, footprint=Footprint(gpu_memory_gib=60))}, cohort=8)
    chosen, trials = fusion(big, GPUS)
    assert chosen.of(trials[0]).reason == "two of its kind do not fit the memory of a host"


def test_out_of_memory_halves_the_cohort_and_a_fault_ends_it(tmp_path):
    known = KnownEngines(LocalStore(tmp_path))
    study = grid(cohort=4)
    chosen, trials = fusion(study, known=known)
    placements = placements_of(study, CORES, chosen)
    slots = []
    for error in ("CohortFault: ... MemoryError", "CohortFault: ... MemoryError"):
        placements.place(trials[0])
        assert placements.after_error(trials[0], error) is not None
        slots.append(placements.described(trials[0]).get("ride", {"members": 1})["members"])
    assert slots == [2, 1]
    assert fusion(study, known=KnownEngines(LocalStore(tmp_path)))[0].of(trials[0]) == Unfused(
        "two of its kind do not fit the memory of a host", chosen.of(trials[0]).key
    ), "the storage keeps it"
    chosen, trials = fusion(study)
    placements = placements_of(study, CORES, chosen)
    placements.place(trials[0])
    assert placements.after_error(trials[0], "ProcessLostError: killed") is None, "it is tried again as it was"
    assert placements.after_error(trials[0], "CohortFault: ... ValueError") is not None
    assert chosen.of(trials[1]).reason == "its cohort failed"


@pytest.mark.parametrize(
    ("error", "fused"),
    [
        ("CohortFault: MemoryError", 2),
        ("CohortFault: RuntimeError: could not create a primitive", 2),
        ("CohortFault: ValueError", None),
    ],
)
def test_a_trial_whose_cohort_failed_says_how_it_trains_from_then_on(error, fused, monkeypatch, tmp_path):
    study = grid(cohort=4)
    chosen, (trial, *_) = fusion(study)

    def lanes(footprints):
        return Lanes(footprints, dict.fromkeys(study.arms, Fusing(chosen)))

    run = Driver(study, FixedSource([]), Hosts(), StudyRecords(str(tmp_path), "s"), {}, lanes, CORES)
    run.placements.place(trial)
    active = run.accounts.begin(trial, TrialNotes(phase=Phase.SEARCH))
    noted = run.loop.notes(active)
    assert noted == TrialNotes(phase=Phase.SEARCH, gpus=0.0, shared_by=4, engine="auto")
    config = {"id": trial.id, "place": run.placements.described(trial), "notes": noted.to_dict()}
    tune_trial = SimpleNamespace(
        config=config, status="ERROR", error_file=None, update_resources=lambda resources: None
    )
    monkeypatch.setattr(tune_engine, "_error_text", lambda trial: error)
    TuneScheduler(run.loop).on_trial_error(None, tune_trial)
    again = TrialNotes.from_dict(config["notes"])
    assert (again.phase, again.shared_by, again.engine) == (Phase.SEARCH, fused, "auto" if fused else None)
    assert ("ride" in config["place"]) == (fused is not None)
    run.loop.begin_again()
    assert run.next() is active and run.loop.notes(active) == again, "begun again after a fault of Tune"


def test_auto_goes_by_the_probe_with_its_compilation(monkeypatch, tmp_path):
    store = LocalStore(tmp_path)
    study = grid(arms={"a": Arm(TRAIN, config={"lr": 0.1}), "b": Arm(TRAIN)}, cohort="auto")
    chosen, trials = fusion(study)
    assert chosen.of(trials[0]).reason == NO_PROBE
    monkeypatch.setattr(toy_cohort.ToyCohorts, "probe", lambda self, trial, slots: [], raising=False)
    chosen, trials = fusion(study, known=KnownEngines(store))
    alone = chosen.of(trials[0])
    assert alone.reason == "its engines have not been probed" and chosen.unprobed() == []
    chosen.ended(trials[0], 100.0)
    assert [(key, left) for key, _, left, _ in chosen.unprobed()] == [(alone.key, 900.0)]
    chosen.known.record(alone.key, timings(4.0, compile_s=10.0))
    assert chosen.unprobed() == []
    again, _ = fusion(study, known=KnownEngines(store))
    further = pytest.approx(100 / 55)
    assert again.of(trials[0]) == Fused(alone.key, 4, "products", further), "4 x 10 + 10 / 2 + 4 x 2.5 s"
    chosen.known.record(alone.key, timings(4.0, compile_s=100.0))
    assert fusion(study, known=KnownEngines(store))[0].of(trials[0]).reason == "the probe shows no gain"
    elsewhere, _ = fusion(study, known=KnownEngines(store, "H100"))
    assert elsewhere.of(trials[0]).reason == alone.reason, "another device"
    elsewhere.ended(trials[0], 100.0)
    assert [key for key, *_ in elsewhere.unprobed()] == [alone.key], "is probed too"


def two_losses(monkeypatch):
    """A study of two cohort keys of one family, and one of each key's five trials."""
    monkeypatch.setattr(toy_cohort.ToyCohorts, "probe", lambda self, trial, slots: [], raising=False)
    monkeypatch.setattr(toy_cohort.ToyCohorts, "key", lambda self, trial: trial.arm)
    monkeypatch.setattr(toy_cohort.ToyCohorts, "family", lambda self, trial: "both")
    chosen, trials = fusion(grid(arms={"a": Arm(TRAIN), "b": Arm(TRAIN)}, cohort="auto"))
    first, second = (next(trial for trial in trials if trial.arm == arm) for arm in "ab")
    assert chosen.of(first).key != chosen.of(second).key
    return chosen, first, second


def test_a_probe_holds_for_a_family_and_each_of_its_keys_pays_for_its_graph(monkeypatch):
    chosen, first, second = two_losses(monkeypatch)
    chosen.ended(first, 20.0)
    chosen.ended(second, 10.0)
    ((key, trial, left_s, saved_s),) = chosen.unprobed()
    assert saved_s == pytest.approx(120 * (1 - 1 / 1.43) - 15.0), "less the graph of the other key"
    assert (key, trial, left_s) == (chosen.of(first).key, first, 80.0 + 40.0), (
        "the one with the most left stands for both"
    )
    chosen.probed(key, [Timing("unfused", 1, 10.0), Timing("compiled", 1, 4.0, compile_s=20.0)])
    assert chosen.of(first).gain == pytest.approx(50 / 20), "the probe has compiled it"
    assert chosen.of(second).gain == pytest.approx(50 / 30), "its graph costs half"
    chosen.probed(key, [Timing("unfused", 1, 10.0), Timing("compiled", 1, 4.0, compile_s=60.0)])
    assert chosen.of(second).reason == "the probe shows no gain"


def test_a_graph_that_an_earlier_run_compiled_costs_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(toy_cohort.ToyCohorts, "probe", lambda self, trial, slots: [], raising=False)
    study, store = grid(cohort="auto"), LocalStore(tmp_path)
    chosen, trials = fusion(study, known=KnownEngines(store))
    key = chosen.of(trials[0]).key
    chosen.known.record(key, [Timing("unfused", 1, 10.0), Timing("compiled", 1, 9.0, compile_s=60.0)])
    assert chosen.of(trials[0]).reason == "the probe shows no gain"
    ended = SimpleNamespace(status=Status.DONE, seconds=9.0)
    Fusing(chosen).ended(trials[0], Ride("", 1, {"key": key, "engine": "compiled"}, TrialNotes()), ended)
    assert chosen.of(trials[0]).gain == pytest.approx(10 / 9)
    again, _ = fusion(study, known=KnownEngines(store))
    assert again.of(trials[0]).gain == pytest.approx(10 / 9), "the storage keeps it"
    elsewhere, _ = fusion(study, known=KnownEngines(store, "H100"))
    assert elsewhere.known.of(key).compiled == ("cpu",)


@pytest.mark.parametrize(("operations", "saved"), [(2e12, 0.0), (2e11, 0.75 * 80), (None, (1 - 1 / 1.43) * 80)])
def test_what_a_probe_may_save_follows_from_the_rate_of_trials_alone(monkeypatch, operations, saved):
    monkeypatch.setattr(Footprints, "operations", lambda self, trial: operations)
    chosen, first, _ = two_losses(monkeypatch)
    chosen.ended(first, 20.0)
    ((*_, saved_s),) = chosen.unprobed()
    assert saved_s == pytest.approx(saved), "of 80 s"


def test_auto_leaves_trials_for_every_core(monkeypatch):
    monkeypatch.setattr(toy_cohort.ToyCohorts, "probe", lambda self, trial, slots: [], raising=False)
    chosen, trials = fusion(grid(cohort="auto", seeds=[0, 1]))
    assert chosen.sizes(trials[0]) == [2, 4], "ten trials on two cores"
    chosen, trials = fusion(grid(cohort="auto", folds=3))
    assert chosen.sizes(trials[0]) == [], "three trials on two cores"
    assert chosen.of(trials[0]).reason == "its engines have not been probed", "one slot may pay"


def test_a_trial_alone_may_have_another_engine(monkeypatch):
    monkeypatch.setattr(toy_cohort.ToyCohorts, "probe", lambda self, trial, slots: [], raising=False)
    known, study = KnownEngines(), grid(cohort="auto")
    chosen, trials = fusion(study, known=known)
    chosen.probed(chosen.of(trials[0]).key, [*timings(8.0), Timing("compiled", 1, 4.0, compile_s=5.0)])
    assert chosen.of(trials[0]) == Fused(chosen.of(trials[0]).key, 1, "compiled", pytest.approx(50 / 20)), (
        "the probe has compiled it"
    )
    placements = placements_of(study, CORES, chosen)
    assert placements.options(trials[0]) == Footprints(study, CORES, Learned()).options(trials[0])
    assert placements.described(trials[0])["ride"]["members"] == 1
    assert placements.notes(trials[0]) == TrialNotes(gpus=0.0, engine="compiled"), "a member of no cohort"
    assert Fusing(chosen).lines([PlanRow("a", trials, trials[:1], {}, ())]) == [
        f"cohort    {chosen.of(trials[0]).key[:6]}: each trial alone, engine compiled, gain 2.5x trials per hour"
    ]
    placements.place(trials[0])
    assert placements.after_error(trials[0], "CohortFault: engine compiled failed: ...") is not None
    assert chosen.of(trials[1]).reason == "its cohort failed"
    assert "ride" not in placements.described(trials[0])


def test_a_members_record_counts_its_part_and_teaches_no_memory():
    trial = fusion(grid())[1][0]
    record = Record.of(
        trial, status=Status.DONE, notes=TrialNotes(gpus=0.0, shared_by=4), host_memory_gib=1.0, seconds=40.0
    )
    assert peak_of(record) is None and peak_of(dataclasses.replace(record, notes=TrialNotes())) is not None
    from contrasweep.planning.durations import Durations
    from contrasweep.study.arm_budget import gpu_hours

    assert Durations([record], CORES).of("a") == 10.0
    assert gpu_hours(record) == 10.0 / 3600


def test_a_plan_says_what_is_fused_and_why_the_rest_is_not(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(
        "name: s\narms: {a: {trainable: toy_cohort:train}, b: {trainable: toy:train}}\n"
        "data: digits-lt\nfolds: 5\ncohort: 4\n"
    )
    options = ["plan", str(study), "--storage", str(tmp_path / "runs")]
    shown = CliRunner().invoke(app, options)
    assert shown.exit_code == 0, shown.output
    assert "4 trials as one, engine auto, gain unknown until probed" in shown.output
    assert "alone     arm b: its trainable has no `lane` of cohorts" in shown.output
    off = CliRunner().invoke(app, [*options, "--set", "cohort=off"])
    assert "alone" not in off.output and "trains" not in off.output
