"""What was declared before results were seen stays declared: what is declared afterwards decides nothing in silence."""

import dataclasses
import re

import pytest
from folders import make_files
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from looks import drive_looks, noise
from refusals import refused

from contrasweep import AblationGrid, Arm, Evaluation, Replicates, Sweep
from contrasweep.cli.reports import declarations
from contrasweep.errors import SpecError
from contrasweep.planning.forecast import forecast
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.declaration import FREE_FIELDS
from contrasweep.running.prepare import check_plan
from contrasweep.statistics.family import LEVEL_DIVISOR
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import VERDICT

TRAINED = """
    arms data folds replicates type axes zipped subgrids repeats seeds excluded trials_per_arm budget
    searcher searcher_options pruner pruner_options search_folds search_seed slots confirm_seeds confirm_on
"""
# Fields that say what is trained: what changes of them costs what `redeclare` says.
METRICS = [f"m{i}" for i in range(6)]
VERDICT_WORDS = {"better", "worse", "equivalent"}


def grid(**fields):
    arms = {arm: Arm("toy:train", config={"epochs": 1}) for arm in fields.pop("arms", ("a0", "a1"))}
    return AblationGrid(
        **{
            "name": "shop",
            "arms": arms,
            "data": "digits-lt",
            "seeds": list(range(10)),
            "metric": "m0",
        }
        | fields
    )


THREE = grid(arms=("a0", "a1", "a2"))


def values(trial):
    """Six metrics of arms of which none is better."""
    return {
        metric: 0.8 + 0.02 * noise(metric, trial.arm, trial.seed, trial.config["batch_size"])
        for metric in METRICS
    }


def shift(trial):
    """The same, with m3 of arm a1 surely larger."""
    return values(trial) | {
        "m3": 0.8 + 0.1 * (trial.arm == "a1") + 0.01 * noise(trial.arm, trial.seed)
    }


def run(study, storage, value=values, **options):
    drive_looks(study, storage, value, **options)
    return Results.load(study.name, str(storage))


def document(storage):
    return StudyRecords(str(storage), "shop").document()


def decided(results):
    return [pair for pair in results.answer.pairs if pair.decided]


def test_every_field_of_a_study_is_compared_or_named_as_one_that_changes_no_verdict():
    for kind in (AblationGrid, Sweep):
        fields = {field.name for field in dataclasses.fields(kind)}
        assert fields <= {*VERDICT, *TRAINED.split(), *FREE_FIELDS}
    every = [*VERDICT, *TRAINED.split(), *FREE_FIELDS]
    assert len(set(every)) == len(every)
    assert set(every) <= {
        field.name for kind in (AblationGrid, Sweep) for field in dataclasses.fields(kind)
    }


def test_until_a_trial_has_ended_a_declaration_is_rewritten_freely(tmp_path):
    run(grid(alpha=0.4, smallest_difference=0.5), tmp_path, stop_after=0)
    mended = grid(
        alpha=0.01,
        smallest_difference=0.05,
        metric="m2",
        seeds=[1, 2, 3],
        arms=("a0", "a2"),
        reference="a2",
    )
    run(mended, tmp_path, stop_after=0)
    now = document(tmp_path)
    assert (now.alpha, now.smallest_difference, now.metric, now.arms) == (
        0.01,
        0.05,
        "m2",
        ("a0", "a2"),
    )
    assert now.log == () and run(mended, tmp_path).table().notes == ()


def test_a_study_names_the_studies_of_its_storage_that_asked_the_same_before(tmp_path):
    arms = {
        name: Arm("toy:train", config={"epochs": 1, "lr": lr})
        for name, lr in [("a", 0.1), ("b", 0.2), ("c", 0.3)]
    }

    def asks(name, *chosen, data="digits-lt"):
        named = {f"{arm}-{name}": arms[arm] for arm in chosen}
        return AblationGrid(name, named, data, seeds=[1, 2, 3], metric="m0")

    run(asks("planned", "a", "b"), tmp_path, stop_after=0)
    failing = {f"{arm}-failing": arms[arm] for arm in ("a", "b")}
    study = AblationGrid("failing", failing, "digits-lt", seeds=[1, 2, 3], metric="m0")
    run(study, tmp_path, failed=lambda trial: True)
    assert run(asks("first", "a", "b"), tmp_path).table().notes == (), (
        "no trial of the others has a value"
    )
    for other in (asks("alone", "a", "c"), asks("elsewhere", "a", "b", data="digits")):
        assert run(other, tmp_path).table().notes == ()
    make_files(tmp_path, {"broken/study.json": "{"})
    again = asks("second", "a", "b", "c")
    note = "asked before, on the same data: alone, first compared the same arms; these verdicts do not count that"
    assert run(again, tmp_path).table().notes == (note,)
    run(asks("third", "a", "b", "c"), tmp_path)
    assert run(again, tmp_path).table().notes == (note,), "it is told of what was there before it"
    assert run(again, tmp_path / "new").table().notes == ()


def test_what_changes_no_verdict_is_rewritten_at_any_time_without_an_option(tmp_path):
    run(grid(), tmp_path)
    named = grid(
        description="asks",
        labels={"a0": "Baseline"},
        tracking="none",
        notify="notify-send",
        max_failures=1,
    )
    results = run(named, tmp_path)
    assert results.document.description == "asks" and "Baseline" in str(results.table())
    assert results.document.log == () and results.table().notes == ()


EDITS = {
    "metric m0 -> m3": {"metric": "m3"},
    "mode max -> min": {"mode": "min"},
    "alpha 0.05 -> 0.4": {"alpha": 0.4},
    "reference none -> a1": {"reference": "a1"},
    "question overall -> cells": {"question": "cells"},
    "smallest_difference none -> 0.05": {"smallest_difference": 0.05},
    "evaluate + digits/knn1": {"evaluate": [Evaluation(["digits"], metrics=["digits/knn1"])]},
}


@pytest.mark.parametrize("change", EDITS)
def test_verdicts_are_of_what_was_declared_before_the_results_and_a_sentence_says_so(
    tmp_path, change, capsys
):
    before = run(grid(), tmp_path, shift)
    other = grid(**EDITS[change])
    with refused(SpecError, match=re.escape(f"another plan is in this storage ({change})")):
        run(other, tmp_path, shift)
    assert document(tmp_path) == before.document, "a refusal changes no file"
    results = run(other, tmp_path, shift, extend=True)
    assert (
        results.answer.pairs[0].comparison.to_dict() == before.answer.pairs[0].comparison.to_dict()
    )
    (note,) = results.table().notes
    name, _, was = change.partition(" ")
    assert note.startswith(
        f"declared anew after 20 of 20 trials had ended: {change}; verdicts are of {name}"
    )
    assert note.endswith(f" {was.split()[0]}") or name == "evaluate"
    assert note in capsys.readouterr().err
    assert run(other, tmp_path, shift).table().notes == (note,), (
        "the newest declaration needs no option again"
    )
    back = run(grid(), tmp_path, shift, extend=True)
    assert len(back.table().notes) == 2
    assert [entry.spec is None for entry in back.document.log] == [False] * 3


def test_another_metric_after_the_results_gives_no_verdict_word(tmp_path):
    """The first reproduction: m3 would be decided, had it been declared."""
    assert decided(run(grid(metric="m3"), tmp_path / "declared", shift))
    run(grid(), tmp_path, shift)
    results = run(grid(metric="m3"), tmp_path, shift, extend=True)
    assert results.metric == "m0" and not decided(results)
    later = results.table(metric="m3")
    assert {pair.comparison.verdict for pair in later.pairs} == {"exploratory"}
    assert "metric m0 -> m3" in str(later)


def test_a_seed_is_left_out_by_name_before_it_has_begun_and_costs_a_look_once_others_have_ended(
    tmp_path,
    storage,
):
    why = "power cut in the lab"
    said = "seed 3 is left out: power cut in the lab"
    ahead = lambda trial: {"m0": 0.8 + 0.1 * (trial.arm == "a1") + 0.01 * noise(trial.id)}  # noqa: E731
    before = run(grid(excluded={3: why}), tmp_path / "before")
    assert before.document.log == () and before.table().notes == (said,)
    assert len(before.planned) == 18
    study = run(grid(), tmp_path, ahead, stop_after=6)
    records = StudyRecords(storage, "shop")
    begun = next(trial.id for trial in plan(grid(), storage=storage).trials if trial.seed == 3)
    records.store.write(records.key(begun, "attempt.json"), b"{}")
    for seed in (0, 3):  # one has ended, one was given to a worker
        with refused(
            SpecError, match=rf"^excluded: .*before any of its trials has begun.*\b{seed}\b"
        ):
            run(grid(excluded={seed: "worse", 9: why}), tmp_path, extend=True)
    assert document(tmp_path) == study.document, "a refusal changes no file"
    results = run(grid(excluded=dict.fromkeys((7, 8, 9), why)), tmp_path, ahead, extend=True)
    comparison = results.compare("a0", "a1")
    assert comparison.n == 7 and comparison.level == 0.05 / 64
    assert comparison.p_value == pytest.approx(64 * comparison.raw_p)
    assert comparison.decision == "worse"
    notes = " ".join(results.table().notes)
    assert "after 6 of 20 trials had ended: excluded + 7, 8, 9; each counts as a look" in notes
    assert "seed 8 is left out" in notes
    assert "excluded + 7, 8, 9 (looks: 3)" in str(declarations(results.document))
    for wrong in ({77: why}, dict.fromkeys(range(10), why)):
        with refused(SpecError, begins="excluded: some of the seeds may be excluded"):
            grid(excluded=wrong)


@pytest.mark.parametrize(
    "fields",
    [
        {"seeds": [0, 1, 2, 3, 6, 8, 9]},
        {"arms": ("a0",)},
        {"axes": {"batch_size": [16]}},
        {"data": "digits"},
        {"folds": 5},
        {"replicates": Replicates(first=5, step=5, most=20), "seeds": [0]},
    ],
    ids=str,
)
def test_what_was_declared_before_trials_ended_leaves_the_table_no_more(tmp_path, fields):
    before = run(
        grid(axes={"batch_size": [16, 32]}, arms=("a0", "a1", "a2")), tmp_path, stop_after=20
    )
    files = {p: p.read_bytes() for p in tmp_path.rglob("*.json")}
    smaller = grid(**{"axes": {"batch_size": [16, 32]}, "arms": ("a0", "a1", "a2")} | fields)
    with refused(SpecError, match=r"ended replicates stay in the table|stays of its kind"):
        run(smaller, tmp_path, extend=True)
    with refused(SpecError):
        check_plan(plan(smaller, storage=str(tmp_path)), before.records, extend=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.json")} == files


def test_what_was_added_later_may_go_again_until_some_of_it_has_ended(tmp_path):
    run(grid(), tmp_path)
    larger = grid(seeds=list(range(12)))
    run(larger, tmp_path, extend=True, stop_after=0)
    assert len(run(grid(), tmp_path, extend=True).planned) == 20
    run(larger, tmp_path, extend=True, stop_after=1)
    with refused(SpecError, "ended replicates stay"):
        run(grid(), tmp_path, extend=True)


def test_an_added_arm_is_exploratory_and_the_first_arms_keep_their_family(tmp_path):
    def clear(trial):
        return {"m0": 0.8 + 0.1 * int(trial.arm[1]) + 0.001 * noise(trial.id), "m1": 0.5}

    one = run(grid(), tmp_path, clear, metric="m0").answer.pairs[0].comparison
    results = run(THREE, tmp_path, clear, metric="m0", extend=True)
    verdicts = {frozenset((p.a, p.b)): p.comparison.verdict for p in results.answer.pairs}
    assert verdicts == {
        frozenset(("a0", "a1")): "better", frozenset(("a0", "a2")): "exploratory",
        frozenset(("a1", "a2")): "exploratory",
    }  # fmt: skip
    assert results.compare("a0", "a1").p_value == one.p_value
    assert results.compare("a0", "a1").family.size == 1
    text = " ".join(str(results.table()).split())
    assert "arms + a2; comparisons with other arms than a0, a1 are exploratory" in text
    assert "a2 - a1: +0.0994" in text and "(exploratory)" in text
    best = {row[0]: cell.best for (row, _), cell in results.table(["arm"], []).cells.items()}
    assert best == {"a0": False, "a1": True, "a2": False}, (
        "an arm that is compared with none has no mark"
    )
    whole = run(THREE, tmp_path / "whole", clear, metric="m0")
    spent = run(THREE, tmp_path, clear, metric="m0", extend=True, spend=True)
    for pair, once in zip(spent.answer.pairs, whole.answer.pairs, strict=True):
        assert pair.decided and pair.comparison.family.size == 3
        assert pair.comparison.p_value == pytest.approx(4 * once.comparison.p_value)
    text, other = (" ".join(str(spent.table(metric=m)).split()) for m in ("m0", "m1"))
    assert "arms + a2; this counts as a look" in text
    assert "p are multiplied by 4" in text and "p are multiplied" not in other
    assert "this is look 2, whose p are multiplied by 4" in text
    assert run(THREE, tmp_path, clear, metric="m0", spend=True).document == spent.document


def test_no_level_is_left_for_what_was_chosen_among_all_that_was_seen(tmp_path):
    run(grid(), tmp_path, shift)
    for fields in EDITS.values():
        with refused(SpecError, "--spend: it was chosen among all that was seen"):
            run(grid(**fields), tmp_path, shift, extend=True, spend=True)
    growing = {"replicates": Replicates(first=4, step=4, most=8), "seeds": [0]}
    run(grid(**growing), tmp_path / "growing")
    with refused(SpecError, "spread over its looks, and none is left"):
        run(grid(**growing, arms=("a0", "a1", "a2")), tmp_path / "growing", extend=True, spend=True)


@pytest.mark.parametrize("more", [{}, {"seeds": list(range(12))}])
def test_cells_that_are_added_to_a_finished_table_are_one_look(more, tmp_path, storage):
    """Also where each cell gets more replicates by the same extension."""
    larger = {"axes": {"batch_size": [16, 32]}, "metric": "m3", **more}
    first = run(grid(axes={"batch_size": [16]}, metric="m3"), tmp_path, shift)
    planned = plan(grid(**larger), storage=storage)
    before = forecast(planned, storage)
    assert before.looks == 1 and "1 earlier look at the table counted" in before.to_text()
    assert forecast(plan(grid(**larger)), str(tmp_path / "fresh")).looks == 0
    results = run(grid(**larger), tmp_path, shift, extend=True)
    after = forecast(planned, storage)
    assert after.looks == 1 and first.document.plan_digest != results.document.plan_digest
    level = after.power.family.level
    assert level == before.power.family.level == results.compare("a0", "a1").level == 0.05 / 4
    fresh = run(grid(**larger), tmp_path / "fresh", shift)
    assert fresh.compare("a0", "a1").p_value < 0.01
    assert results.compare("a0", "a1").p_value == pytest.approx(
        LEVEL_DIVISOR * fresh.compare("a0", "a1").p_value
    )
    notes = " ".join(results.table().notes)
    assert ("this counts as a look" in notes) != bool(more) and ("this is look 2" in notes)


@pytest.mark.parametrize("again", ["a0", "a1"])
def test_trials_that_come_out_otherwise_when_trained_again_decide_nothing(again, tmp_path):
    study = THREE
    draw = dict.fromkeys(study.arms, 0)

    def lucky(trial):
        return (
            0.8 + 0.02 * noise(trial.arm, trial.seed, draw[trial.arm]) + 0.2 * (trial.arm == "a2")
        )

    again_trained = lambda: run(study, tmp_path, lucky, metric="m0", rerun=[again])  # noqa: E731
    first = run(study, tmp_path, lucky, metric="m0")
    same = again_trained()
    assert same.table().notes == () and len(decided(same)) == len(decided(first)) == 2, (
        "equal numbers cost nothing"
    )
    draw[again] = 1
    other = again_trained()
    words = {frozenset((p.a, p.b)): p.comparison.verdict for p in other.answer.pairs}
    assert words[frozenset({*study.arms} - {again})] == "better"
    assert list(words.values()).count("exploratory") == 2
    (note,) = other.table().notes
    assert note.startswith(
        f"10 of 30 trials (of {again}) were trained again after their results were seen"
    )
    draw[again] = 0
    assert again_trained().table().notes == (), "what was seen first is back"
    one = next(i for i, record in other.trial_records.items() if record.arm == "a2")
    for chosen in ([one], ["a2"]):
        with refused(
            SpecError, "trained again after their results were seen have no verdicts, at any level"
        ):
            run(study, tmp_path, lucky, metric="m0", rerun=chosen, spend=True)


def test_a_look_at_an_extended_study_counts_on_when_a_trial_is_trained_again(tmp_path):
    """Else one `--rerun`, of equal numbers, would give back the alpha that the look has spent."""
    run(grid(), tmp_path, shift)
    study = grid(seeds=list(range(14)))
    first = run(study, tmp_path, shift, extend=True)
    one = next(iter(first.trial_records))
    for options in ({"rerun": [one]}, {"rerun": [one], "extend": True}):
        again = run(study, tmp_path, shift, **options)
        levels = [
            [(pair.comparison.level, pair.comparison.p_value) for pair in results.answer.pairs]
            for results in (first, again)
        ]
        assert levels[0] == levels[1] and levels[0][0][0] == 0.05 / 4


def test_a_trial_that_failed_after_a_report_and_is_tried_until_it_ends_decides_nothing(tmp_path):
    from contrasweep.storage.record import Cause

    study = grid()
    results = run(
        study,
        tmp_path,
        lambda trial: 0.5 + 0.1 * (trial.arm == "a1") + 0.01 * noise(trial.id),
        metric="m0",
    )
    for cause, notes in ((Cause.HOST_LOST, 0), (Cause.METHOD, 1)):
        record = next(iter(results.trial_records.values()))
        results.records.write(
            dataclasses.replace(record, status=type(record.status).FAILED, cause=cause)
        )
        again = run(study, tmp_path, lambda _: 0.7, metric="m0", retry_failed=True)
        assert len(again.table().notes) == notes and bool(decided(again)) == (not notes)


def test_a_sweep_keeps_its_metric_and_its_confirmation_seeds(tmp_path, storage):
    from sweeps import finished, sweep

    results, _ = finished(sweep(confirm_seeds=[1000, 1001]), tmp_path)
    for fields, says in (
        ({"confirm_seeds": [1000]}, "ended replicates stay"),
        ({"metric": "loss"}, "the search was made by another"),
        ({"arms": {"long": sweep().arms["long"]}}, "ended replicates stay"),
    ):
        other = sweep(**{"confirm_seeds": [1000, 1001]} | fields)
        with refused(SpecError, match=says):
            check_plan(plan(other, storage=storage), results.records, extend=True)
    more = sweep(confirm_seeds=[1000, 1001, 1002], trials_per_arm=7, alpha=0.01)
    (line,) = check_plan(plan(more, storage=storage), results.records, extend=True)
    assert "alpha 0.05 -> 0.01; verdicts are of alpha 0.05" in line


def test_a_study_file_that_is_gone_is_told_of(tmp_path):
    run(grid(), tmp_path)
    (tmp_path / "shop/study.json").unlink()
    assert run(grid(metric="m3"), tmp_path).table().notes == ("study.json was missing",)


def test_a_run_that_is_killed_while_it_prepares_loses_no_declaration(tmp_path, monkeypatch):
    """Every write of the preparation fails once; the first declaration and the looks are there all the same."""
    run(grid(), tmp_path)
    other = grid(metric="m3", seeds=list(range(12)))
    from contrasweep.storage.store import LocalStore

    write = LocalStore.write
    left = [0]

    def failing(self, *args, **options):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return write(self, *args, **options)

    for calls in range(20):
        left[0] = calls
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "write", failing)
            try:
                run(other, tmp_path, extend=True, rerun=["a0"], stop_after=0)
            except KeyboardInterrupt:
                now = document(tmp_path)
                assert now.metric == "m0" and now.level == 0.05
                continue
        break
    assert 2 < calls < 19
    results = run(other, tmp_path)
    assert results.metric == "m0" and "verdicts are of metric m0" in str(results.table().notes)
    assert [entry.spec["metric"] for entry in results.document.log if entry.spec] == ["m0", "m3"]


CHANGES = st.one_of(
    st.fixed_dictionaries({"metric": st.sampled_from(METRICS)}),
    st.fixed_dictionaries({"mode": st.sampled_from(["max", "min"])}),
    st.fixed_dictionaries({"alpha": st.sampled_from([0.01, 0.05, 0.4])}),
    st.fixed_dictionaries({"reference": st.sampled_from([None, "a0", "a1"])}),
    st.fixed_dictionaries({"smallest_difference": st.sampled_from([None, 0.001, 0.2])}),
    st.fixed_dictionaries({"seeds": st.lists(st.integers(0, 11), min_size=2, unique=True)}),
    st.fixed_dictionaries({"seeds": st.integers(2, 12).map(lambda n: list(range(n)))}),
    st.fixed_dictionaries(
        {"seeds": st.just(list(range(12))), "excluded": st.just({11: "late", 9: "lost"})}
    ),
    st.fixed_dictionaries(
        {"arms": st.lists(st.sampled_from(["a0", "a1", "a2", "a3"]), min_size=2, unique=True)}
    ),
    st.fixed_dictionaries(
        {"axes": st.sampled_from([{}, {"batch_size": [16]}, {"batch_size": [16, 32]}])}
    ),
)
STEPS = st.tuples(
    CHANGES, st.booleans(), st.lists(st.sampled_from(["a0", "a1"]), max_size=1), st.integers(0, 2)
)


@pytest.mark.slow
@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(st.lists(STEPS, min_size=5, max_size=5), st.integers(0, 10**6))
def test_no_sequence_of_edits_gives_a_verdict_at_a_level_that_was_not_declared_unless_it_is_said(
    tmp_path_factory, steps, seed
):
    """Of equal arms: a verdict word is that of the first declaration's rule on the trials of now, or a note says what
    the looks cost; with what was declared first and no look it is at the first level."""
    storage = tmp_path_factory.mktemp("edits")
    fields = {"seeds": list(range(6))}
    draws = {}
    value = lambda trial: {  # noqa: E731
        metric: 0.8 + 0.02 * noise(seed, metric, trial.id, draws.get(trial.arm, 0))
        for metric in METRICS
    }
    first = run(grid(**fields), storage, value)
    said = {frozenset((p.a, p.b)) for p in first.answer.pairs}
    changed = False
    ended = set(first.trial_records)
    for change, spend, rerun, draw in steps:
        draws |= dict.fromkeys(rerun, draw)
        before = document(storage)
        try:
            results = run(
                grid(**fields | change), storage, value, extend=True, spend=spend, rerun=rerun
            )
        except SpecError:
            assert document(storage) == before
            continue
        fields |= change
        assert ended <= set(results.trial_records), (
            "who may leave ended trials out chooses a verdict"
        )
        ended = set(results.trial_records)
        changed |= grid(**fields) != grid(seeds=list(range(6)))
        table = results.table()
        looks = len(results._interim.log.looks) + results.document.spent if results._interim else 0
        notes = " ".join(table.notes)
        assert bool(looks) == ("p are multiplied by" in notes) and results.document.alpha <= 0.05
        for pair in results.answer.pairs:
            comparison = pair.comparison
            if comparison.verdict == "exploratory":
                assert not pair.decided and "exploratory" in notes
                continue
            assert set(comparison.verdict.replace(",", " ").split()) & {*VERDICT_WORDS, "undecided"}
            ids = [i for i, r in results.trial_records.items() if r.arm in (pair.a, pair.b)]
            assert results.trained_again.isdisjoint(ids), (
                "trials that were drawn again have no verdict"
            )
            if not results.document.spent:
                assert {pair.a, pair.b} in said
                assert (
                    comparison.alpha,
                    pair.metric,
                    comparison.mode,
                ) == (
                    0.05,
                    "m0",
                    "max",
                )
                assert comparison.family.margin is None and results.document.reference is None
                fewer = (
                    results._interim.looks_before(pair.context, pair.a, pair.b, comparison.evidence)
                    if looks
                    else 0
                )
                if comparison.decided:
                    assert comparison.evidence.p_value(comparison.level) * 2**fewer <= 0.05
            elif comparison.decided:
                assert (
                    comparison.evidence.p_value(comparison.level, comparison.mode)
                    * 2**results.document.spent
                    <= 0.05
                )
    assert document(storage).log[:1] == () or document(storage).log[0].spec["metric"] == "m0"
