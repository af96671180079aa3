"""What was declared before results were seen stays declared: what is declared afterwards decides nothing in silence.

The sessions `anew`, `grown` and `swept` of `tests/transcripts` show each kind of change.
"""

import dataclasses

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from looks import drive_looks, noise

from contrasweep import AblationGrid, Arm, Sweep
from contrasweep.errors import SpecError
from contrasweep.results.results import Results
from contrasweep.running.declaration import FREE_FIELDS
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
    return AblationGrid("shop", arms, "digits-lt", **{"seeds": range(10), "metric": "m0"} | fields)


def values(trial):
    """Six metrics of arms of which none is better."""
    return {
        metric: 0.8 + 0.02 * noise(metric, trial.arm, trial.seed, trial.config["batch_size"])
        for metric in METRICS
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
