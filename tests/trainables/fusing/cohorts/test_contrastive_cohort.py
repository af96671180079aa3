"""Fused trials of `contrasweep.trainables.contrastive` report what they report alone, whoever is in the other slots."""

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from fused_reports import back_and_forth, differ, fused
from hypothesis import given, settings
from torch import nn

from contrasweep.data import resolve
from contrasweep.data.manifest import Manifest
from contrasweep.trainables import checkpoint, images
from contrasweep.trainables.contrastive import method as contrastive_method
from contrasweep.trainables.contrastive import train
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.encoders import ENCODERS
from contrasweep.trainables.fusing import folding
from contrasweep.trainables.fusing.cohorts import contrastive, probing
from contrasweep.trainables.fusing.cohorts.method import Recent
from contrasweep.trainables.fusing.cohorts.probing import candidates
from contrasweep.trainables.fusing.protocol import CannotFuse, Event, cohorts_of
from contrasweep.trial import Trial

torch.set_num_threads(1)
QUICK: dict[str, Any] = {
    "encoder": {"name": "cnn", "width": 4},
    "epochs": 2,
    "batch_size": 64,
    "learning_rate": 0.05,
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "augmentation": "glyphs",
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return resolve("digits-lt", folds=5, storage=str(tmp_path_factory.mktemp("data")), write=True)


@pytest.fixture
def float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks and their inputs in double precision, alone and fused."""
    network, normalise, joined = Settings.build_network, images.Normalise.__call__, images.Normalise.joined
    monkeypatch.setattr(Settings, "build_network", lambda *given: network(*given).double())
    monkeypatch.setattr(images.Normalise, "__call__", lambda self, values: normalise(self, values.double()))
    monkeypatch.setattr(images.Normalise, "joined", lambda self, parts: joined(self, [part.double() for part in parts]))


def trial(digits: Manifest, number: int, **config: Any) -> Trial:
    """Trials of one key, each with its own numbers, seed, fold and number of steps an epoch."""
    loss = config.pop("loss", {"name": "supcon", "temperature": 0.2 + 0.1 * number})
    sgd = {"name": "sgd", "momentum": 0.9 - 0.1 * number, "weight_decay": 1e-4 * number}
    own = {"learning_rate": 0.05 + 0.02 * number, "optimizer": sgd, "clip": 2.0 * number}
    return Trial(
        "s",
        f"arm{number}",
        "contrasweep.trainables.contrastive:train",
        QUICK | own | config | {"loss": loss},
        digits,
        number % 5,
        number,
    )


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "adamw": {"optimizer": {"name": "adamw"}, "learning_rate": 0.01},
    "average": {"ema": 0.9},
    "learned temperature": {"learnable_temperature": True},
    "orthonormal loss": {"loss": {"name": "ocl", "temperature": 0.5}},
    "views loss": {"loss": {"name": "vicreg"}},
    "parts of an epoch": {"reports_per_epoch": 2},
    "streamed images": {"resident_gib": 0, "sampling": "class_balanced"},
    "on embeddings": {
        "evaluate_on": "embeddings",
        "classifier": "probe",
        "order_seed": 3,
        "warmup_epochs": 1,
        "epochs": 2,
    },
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("variant", VARIANTS)
def test_members_report_what_they_report_alone(digits: Manifest, variant: str) -> None:
    trials = [trial(digits, number, **{"epochs": 1} | VARIANTS[variant]) for number in (0, 1)]
    assert len({cohorts_of(train).key(one) for one in trials}) == 1
    reports = fused(train, trials, slots=3)
    tolerance = 1e-7 if variant == "learned temperature" else 1e-10  # a temperature is learned in float32
    for one in trials:
        assert differ(list(train(one)), reports[one.id]) < tolerance


@pytest.mark.long  # inductor compiles for some ten seconds
@pytest.mark.usefixtures("float64")
def test_a_compiled_member_reports_what_it_reports_alone(
    digits: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negatives, which are counted in the compiled step, among the rest."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    one = trial(digits, 1, encoder="mlp", device="cpu", loss={"name": "ocl", "temperature": 0.5})
    reports = fused(train, [one], engine="products-compiled")[one.id]
    assert reports[0].metrics["negative_cosines"] > 0
    assert differ(list(train(one)), reports) < 1e-10


@pytest.mark.usefixtures("float64")
def test_dropout_draws_what_it_draws_alone(digits: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Settings.build_network

    def dropping(*given: Any) -> nn.Sequential:
        encoder, head = network(*given)
        return nn.Sequential(encoder, nn.Sequential(nn.Dropout(0.3), head))

    monkeypatch.setattr(Settings, "build_network", dropping)
    trials = [trial(digits, number) for number in (0, 1)]
    reports = fused(train, trials)
    for one in trials:
        assert differ(list(train(one)), reports[one.id]) < 1e-10
    with pytest.raises(CannotFuse, match="Dropout draws from a generator per member"):
        cohorts_of(train).open(trials[0], 2, "products-compiled")


@pytest.mark.usefixtures("float64")
def test_weights_that_are_not_trained_stay(digits: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Settings.build_network

    def frozen(*given: Any) -> nn.Sequential:
        encoder, head = network(*given)
        return nn.Sequential(encoder.requires_grad_(False), head)

    monkeypatch.setattr(Settings, "build_network", frozen)
    trials = [trial(digits, number, ema=0.9) for number in (0, 1)]
    reports = fused(train, trials)
    for one in trials:
        assert differ(list(train(one)), reports[one.id]) < 1e-10


def test_in_float32_an_epoch_differs_by_rounding(digits: Manifest) -> None:
    trials = [trial(digits, number, epochs=1) for number in (0, 1)]
    reports = fused(train, trials)
    for one in trials:
        (alone,), (together,) = list(train(one)), reports[one.id]
        assert abs(alone.metrics["loss"] - together.metrics["loss"]) < 1e-4 * alone.metrics["loss"]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_trial_goes_from_alone_to_fused_and_back(digits: Manifest, tmp_path: Path, optimizer: str) -> None:
    chosen = {"epochs": 5, "optimizer": {"name": optimizer}}
    one = trial(digits, 1, learning_rate=0.01, **chosen)
    assert differ(list(train(one)), back_and_forth(train, one, trial(digits, 0, **chosen), tmp_path)) < 1e-10
    plain, alone = (checkpoint.part(tmp_path / name, "model") for name in ("fused", "alone"))
    assert {name: value.shape for name, value in plain.items()} == {name: value.shape for name, value in alone.items()}


@pytest.mark.usefixtures("float64")
def test_a_member_that_fails_or_cannot_train_leaves_the_others_alone(digits: Manifest) -> None:
    good, lost, wrong = (trial(digits, number, epochs=2) for number in (0, 1, 2))
    cohort = cohorts_of(train).open(good, 3)
    for one in (good, lost, wrong):
        cohort.join(one, None)
    method = cohort.members[wrong.id].method
    with torch.no_grad():
        method.model[0].body[0].weight.fill_(float("nan"))  # no step of it is finite
    cohort.members[lost.id].method.begin = broken
    events: list[Event] = []
    while cohort.members:
        events += cohort.advance()
    failed = {event.trial_id: event.error for event in events if event.error is not None}
    assert isinstance(failed.pop(lost.id), OSError)
    error = failed.pop(wrong.id)
    assert isinstance(error, FloatingPointError) and "every step of epoch 1" in str(error) and not failed
    assert differ(list(train(good)), [e.report for e in events if e.trial_id == good.id and e.report]) < 1e-10


def broken(*_: Any) -> Any:
    raise OSError("the disk is gone")


def test_a_batch_that_is_not_finite_costs_its_member_what_it_costs_alone(
    digits: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (trial(digits, number, epochs=1) for number in (0, 1))
    plain, stream = list(train(other)), images.batches

    def spoiled(data: images.Images, *given: Any, **named: Any) -> Iterator[Any]:
        for number, (views, rows) in enumerate(stream(data, *given, **named)):
            yield (views * float("nan") if number == 1 and given[4] == one.seed else views), rows

    monkeypatch.setattr(images, "batches", spoiled)
    why = "not finite after 1 steps that were skipped"  # the statistics of its normalisation layers are lost
    with pytest.raises(FloatingPointError, match=why):
        list(train(one))
    cohort = cohorts_of(train).open(one, 2)
    for member in (one, other):
        cohort.join(member, None)
    failed, fine = cohort.advance()
    assert failed.trial_id == one.id and why in str(failed.error)
    assert fine.report is not None and fine.report.metrics["nonfinite_steps"] == 0
    assert differ(plain, [fine.report]) < 1e-3


def test_its_files_are_removed_when_a_member_leaves(
    digits: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one = trial(digits, 0)
    cohort = cohorts_of(train).open(one, 2)
    cohort.join(one, None)
    with pytest.raises(ValueError, match="is a member already"):
        cohort.join(one, None)
    (event,) = cohort.advance()
    assert event.report is not None and event.report.checkpoint is not None
    assert tmp_path in event.report.checkpoint.parents
    cohort.leave(one.id)
    assert list(tmp_path.iterdir()) == []
    cohort.close(), cohort.close()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"targets": "moco", "loss": "infonce"}, "targets: moco"),
        ({"resources": {"processes": 2}}, "several processes"),
        ({"chunk_rows": 32}, "chunk_rows: 32"),
        ({"optimizer": {"name": "RMSprop"}}, "optimizer"),
        ({"batch_size": 500}, "may be larger than its training part"),
    ],
)
def test_what_cannot_be_fused_says_why(digits: Manifest, config: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotFuse, match=why):
        cohorts_of(train).key(trial(digits, 0, **config))


SAME = [
    {"epochs": 7},
    {"sampling": "class_balanced"},
    {"schedule": "constant"},
    {"augmentation": "photos"},
    {"clip": 1.0},
]
OTHER = [
    {"batch_size": 32},
    {"encoder": {"name": "cnn", "width": 8}},
    {"projection": {"name": "linear"}},
    {"loss": "ocl"},
    {"loss": {"name": "supcon", "similarity": "dot"}},
    {"optimizer": "adamw"},
    {"optimizer": {"name": "sgd", "decay_on": "weights"}},
    {"autocast": True},
    {"ema": 0.5},
    {"learnable_temperature": True},
]


def test_the_key_has_what_changes_the_graph_and_nothing_else(digits: Manifest) -> None:
    key = cohorts_of(train).key(trial(digits, 0))
    assert all(cohorts_of(train).key(trial(digits, number, **config)) == key for number, config in enumerate(SAME))
    keys = [cohorts_of(train).key(trial(digits, 0, **config)) for config in OTHER]
    assert len({key, *keys}) == 1 + len(OTHER)


def test_plans_that_ask_again_do_not_fold_again(digits: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    folds = []

    def refusing(*given: Any) -> None:
        folds.append(given)
        raise folding.Unfoldable("nothing can be folded today")

    monkeypatch.setattr(contrastive, "fold", refusing)
    for number in (0, 1, 2):
        with pytest.raises(CannotFuse, match="nothing can be folded today"):
            cohorts_of(train).key(trial(digits, number, encoder={"name": "cnn", "width": 5}))
    assert len(folds) == 1


def test_weights_to_begin_with_print_nothing_when_a_plan_asks(
    digits: Manifest, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with torch.device("meta"):
        body = ENCODERS.choose("resnet18").build((1, 8, 8)).body
    torch.save(body.to_empty(device="cpu").state_dict(), tmp_path / "weights.pt")
    cohorts_of(train).key(trial(digits, 0, encoder={"name": "resnet18", "weights": str(tmp_path / "weights.pt")}))
    # What earlier tests left to the garbage collector may warn here too, of a resource.
    assert [str(warning.message) for warning in recwarn if warning.category is not ResourceWarning] == []


def test_a_cohort_names_its_engine(digits: Manifest) -> None:
    assert cohorts_of(train).open(trial(digits, 0), 1).engine == "grouped"
    assert cohorts_of(train).open(trial(digits, 0), 1, "products").engine == "products"


def test_trials_that_differ_in_the_loss_are_one_family_of_several_keys(digits: Manifest) -> None:
    lane = cohorts_of(train)
    one, other, larger = (trial(digits, 0, **own) for own in ({}, {"loss": "ocl"}, {"batch_size": 32}))
    assert len({lane.key(each) for each in (one, other, larger)}) == 3
    assert lane.family(one) == lane.family(other) != lane.family(larger)


def test_a_trial_of_another_key_is_refused_and_nothing_changes(digits: Manifest) -> None:
    cohort = cohorts_of(train).open(trial(digits, 0), 2)
    with pytest.raises(CannotFuse, match="differs from its cohort in loss, batch_size"):
        cohort.join(trial(digits, 1, batch_size=32, loss="ocl"), None)
    assert cohort.members == {}


def test_a_probe_times_the_trial_alone_and_engines(digits: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "candidates", lambda slots, *_: [("products", count) for count in slots])
    one = trial(digits, 0, **TINY, epochs=10)
    alone, *fused = cohorts_of(train).probe(one, [2, 3])
    assert (alone.engine, alone.slots) == ("unfused", 1) and alone.start_s == alone.compile_s == 0
    assert [(timing.engine, timing.slots, timing.compile_s) for timing in fused] == [
        ("products", 2, 0),
        ("products", 3, 0),
    ]
    assert all(timing.trial_s > 0 for timing in (alone, *fused)) and all(timing.start_s > 0 for timing in fused)


@pytest.mark.parametrize(("images", "timed"), [(64, 16), (24, 24)])
def test_large_networks_are_known_by_one_step_of_few_images(
    digits: Manifest, monkeypatch: pytest.MonkeyPatch, images: int, timed: int
) -> None:
    """At the rate that is pretended here for products, a step of these has no potential."""
    monkeypatch.setattr(probing, "_product_rate", lambda clock: 1.0)
    taken: list[int] = []
    step = contrastive_method.Contrastive.step
    monkeypatch.setattr(
        contrastive_method.Contrastive, "step", lambda *given: (taken.append(len(given[-1])), step(*given))[1]
    )
    (alone,) = cohorts_of(train).probe(trial(digits, 0, batch_size=images, epochs=10), [2, 4])
    assert alone.engine == "unfused" and alone.trial_s > 0 and taken == [timed]


def test_potential_of_few_images_is_not_taken_for_that_of_all(
    digits: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([1e18, 1.0])  # few images have potential, all have none
    monkeypatch.setattr(probing, "_product_rate", lambda clock: next(rates))
    (alone,) = cohorts_of(train).probe(trial(digits, 0, batch_size=64, epochs=10), [2, 4])
    assert alone.engine == "unfused" and next(rates, None) is None


def test_an_engine_that_cannot_compile_here_is_left_out(digits: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "candidates", lambda *_: [("products-compiled", 1), ("products", 2)])
    monkeypatch.setattr(folding.step, "program_of", broken)
    timings = cohorts_of(train).probe(trial(digits, 0, **TINY, epochs=10), [2])
    assert [(timing.engine, timing.slots) for timing in timings] == [("unfused", 1), ("products", 2)]


def test_a_probe_that_fails_leaves_no_files(digits: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = cohorts_of(train).open(trial(digits, 0, **TINY), 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cohort.network, "step", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        probing._fused(probing.Clock(torch.device("cpu")), trial(digits, 0, **TINY), lambda: cohort, twice=False)
    assert list(tmp_path.iterdir()) == []


def test_a_processor_compiles_one_member_and_a_gpu_the_largest_cohort() -> None:
    assert candidates([2, 4, 8], 64, "cpu") == [("products-compiled", 1)]
    assert candidates([], 256, "cpu") == [("grouped-compiled", 1)]
    assert candidates([2, 4], 64, "cpu", potential=1.5) == [], "it is near the rate of products already"
    on_gpu = candidates([2, 4], 64, "cuda")
    assert [size for name, size in on_gpu if name.endswith("compiled")] == [4, 4] and len(on_gpu) == 6


TINY = {"encoder": {"name": "mlp", "width": 4}, "batch_size": 128, "evaluate_every": 0}
SLOTS = 3


@pytest.mark.usefixtures("float64")
def test_any_order_of_joining_leaving_and_waiting_gives_the_same_reports(digits: Manifest) -> None:
    trials = [trial(digits, number, **TINY) for number in range(4)]
    alone = {one.id: [r.metrics["loss"] for r in train(one)] for one in trials}
    acts = st.one_of(
        st.tuples(st.sampled_from(["join", "leave"]), st.integers(0, 3)),
        st.tuples(st.just("advance"), st.sets(st.integers(0, 3), min_size=1)),
    )

    @settings(max_examples=15)
    @given(st.lists(acts, max_size=12))
    def model(acts: list[tuple[str, Any]]) -> None:
        cohort, steps = cohorts_of(train).open(trials[0], SLOTS), {}
        for act, which in acts:
            if act == "join" and trials[which].id not in steps and len(steps) < SLOTS:
                cohort.join(trials[which], None)
                steps[trials[which].id] = 0
            if act == "leave" and trials[which].id in steps:
                cohort.leave(trials[which].id)
                del steps[trials[which].id]
            going = {trials[k].id for k in which} & steps.keys() if act == "advance" else set()
            for event in cohort.advance(going) if going else ():
                assert event.trial_id in going and event.error is None
                if event.report is None:
                    assert steps.pop(event.trial_id) == 2
                    continue
                expected = alone[event.trial_id][steps[event.trial_id]]
                assert event.report.metrics["loss"] == pytest.approx(expected, rel=1e-10)
                steps[event.trial_id] += 1
        assert cohort.members.keys() == steps.keys()
        cohort.close()

    model()


@pytest.fixture
def in_use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The images that are open, of which none is kept."""
    monkeypatch.setattr(contrastive, "_opened", Recent(lambda _: 1, kept_bytes=0))
    return contrastive._opened._used


def test_members_share_the_images_of_a_fold_as_long_as_one_is_there(digits: Manifest, in_use: Any) -> None:
    cohort = cohorts_of(train).open(trial(digits, 0), 3)
    for number in (0, 5, 1):  # of folds 0, 0 and 1
        cohort.join(trial(digits, number), None)
    first, again, other = (member.method.train for member in cohort.members.values())
    assert first is again and first is not other and len(in_use) == 2
    del first, again, other
    cohort.leave(trial(digits, 1).id)
    gc.collect()
    assert len(in_use) == 1
    cohort.close()
    gc.collect()
    assert not in_use


class Opened:
    """A value of so many bytes."""

    def __init__(self, size: int) -> None:
        self.size = size


def recent(kept_bytes: int) -> Recent[Opened]:
    return Recent(lambda value: value.size, kept_bytes)


def refused() -> Opened:
    raise AssertionError("it is open already")


def test_small_values_stay_and_the_oldest_goes_first() -> None:
    shared = recent(10)
    for name, size in (("a", 4), ("b", 4)):
        shared.get((name,), lambda size=size: Opened(size))
    shared.get(("a",), refused)
    shared.get(("c",), lambda: Opened(4))  # a was asked for after b
    shared.get(("a",), refused)
    shared.get(("c",), refused)
    with pytest.raises(AssertionError):
        shared.get(("b",), refused)


def test_a_large_value_is_shared_while_it_is_used_and_drives_no_small_one_out() -> None:
    shared = recent(10)
    shared.get(("small",), lambda: Opened(10))
    large = shared.get(("large",), lambda: Opened(11))
    assert shared.get(("large",), refused) is large
    shared.get(("small",), refused)
    del large
    with pytest.raises(AssertionError):
        shared.get(("large",), refused)
