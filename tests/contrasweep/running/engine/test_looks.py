"""Studies that are looked at as they grow: what gets more replicates, and that no look goes uncounted."""

import itertools
import json
from dataclasses import replace

import pytest
from looks import drive_looks, noise
from refusals import refused
from sweeps import sweep

from contrasweep import AblationGrid, Arm, Replicates, SpecError, StorageError
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.engine.interim_source import InterimSource
from contrasweep.statistics.group_sequential import Looks
from contrasweep.storage.interim_log import read_looks
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_study

MEANS = {"a": 0.2, "b": 0.2, "c": 0.26}


def grid(**fields):
    base = {
        "name": "looked-at",
        "arms": {arm: Arm("toy:train", config={"epochs": 1}) for arm in MEANS},
        "axes": {"batch_size": [16, 32]},
        "data": "digits-lt",
        "replicates": Replicates(first=5, step=5, most=30),
    }
    return AblationGrid(**base | fields)


def value(trial):
    return MEANS[trial.arm] + 0.03 * noise(
        trial.arm, trial.config.get("batch_size"), trial.fold, trial.seed
    )


def log_of(storage, name="looked-at"):
    log = read_looks(StudyRecords(str(storage), name))
    assert log is not None
    return log


def stands(log):
    return {"".join(sorted((one.a, one.b))): one.decision for one in log.looks[-1].comparisons}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The study run without trouble: its folder, what was said and how many trials it took."""
    storage = tmp_path_factory.mktemp("calm")
    return (storage, *drive_looks(grid(), storage, value))


def test_what_is_decided_gets_no_more_replicates(calm):
    storage, said, ended = calm
    log = log_of(storage)
    assert stands(log)["ac"] == stands(log)["bc"] == "worse"
    assert ended < 6 * 30 and len(said) == len(log.looks) > 1
    frame = Results.load("looked-at", str(storage)).to_frame()
    counts = frame.groupby("arm").size()
    assert counts["c"] < counts["a"] == counts["b"]
    assert set(frame["status"]) == {"done"} and len(frame) == ended
    assert said[0].startswith("look 1 at 5 seeds: ") and said[0].endswith("6 of 6 cells go on")
    assert said[-1].endswith("no cell goes on")


def test_what_gets_no_more_replicates_is_not_tested_again(calm):
    """At a later look, whose level is larger, the same data could be decided otherwise."""
    looks = log_of(calm[0]).looks
    stopped = 0
    for before, after in itertools.pairwise(looks):
        past = {entry.key: entry for entry in before.comparisons}
        for entry in after.comparisons:
            if entry.pairs == past[entry.key].pairs:
                stopped += 1
                assert entry.p_value is None and entry.decision == past[entry.key].decision
    assert stopped


def test_a_trial_that_a_look_has_counted_does_not_run_again(calm):
    """It did not fit a host, and a larger host has joined since."""
    planned = plan(grid(), storage=str(calm[0]))
    records = StudyRecords(str(calm[0]), "looked-at")
    source = InterimSource(planned, planned.source(records, records.finished()), records, print)
    assert source.over and source.inner.retry("any") and not source.retry("any")


def test_the_table_says_what_the_looks_decided(calm):
    storage, _, _ = calm
    results = Results.load("looked-at", str(storage))
    log = log_of(storage)
    text = results.table().to_text(100)
    for one in log.looks[-1].comparisons:
        said = results.compare(one.a, one.b)
        assert said.verdict == (
            one.decision if one.decision in ("better", "worse") else "undecided"
        )
        assert said.p_value == one.adjusted_p
    first = min(log.looks[0].comparisons, key=lambda one: one.p_value)
    planned = Looks(tuple(range(5, 31, 5)), tuple(n / 30 for n in range(5, 31, 5)))
    p = planned.repeated_p(first.p_value, 0) * planned.t_inflation(0.05 / 3)
    assert first.adjusted_p == pytest.approx(3 * p), "of three comparisons of seeds at six looks"
    assert "c is better than a" in text and "c is better than b" in text
    assert "every interval and p allows for them" in text
    assert f"judged at {len(log.looks)} looks" in text


def test_between_looks_there_are_estimates_and_no_verdicts(tmp_path):
    drive_looks(grid(), tmp_path, value, stop_after=29)
    results = Results.load("looked-at", str(tmp_path))
    assert results.compare("c", "a").difference > 0.04 and results.compare("c", "a").raw_p < 0.05
    assert {pair.comparison.verdict for pair in results.answer.pairs} == {"undecided"}
    text = results.table().to_text(100)
    assert "better" not in text.replace("larger is better", "") and "had no look yet" in text


@pytest.mark.parametrize("kill", [17, 30, 47])  # 30: before the first look
def test_killed_anywhere_it_takes_the_same_looks(calm, tmp_path, kill):
    storage, said, ended = calm
    first, done = drive_looks(grid(), tmp_path, value, stop_after=kill)
    second, rest = drive_looks(grid(), tmp_path, value)
    assert first + second == said and done + rest == ended
    looks = [
        [(look.replicates, look.comparisons) for look in log_of(s).looks]
        for s in (storage, tmp_path)
    ]
    assert looks[0] == looks[1]
    assert drive_looks(grid(), tmp_path, value) == ([], 0)


def test_a_longer_study_goes_on_with_what_is_left_of_alpha(tmp_path):
    drive_looks(grid(), tmp_path, value, stop_after=40)
    before = log_of(tmp_path).looks
    longer = grid(replicates=Replicates(first=5, step=5, most=60))
    with refused(SpecError, "--extend"):
        drive_looks(longer, tmp_path, value)
    shorter = grid(replicates=Replicates(first=2, step=2, most=4))
    with refused(SpecError, "a look was taken at as many replicates already"):
        drive_looks(shorter, tmp_path, value, extend=True)
    drive_looks(longer, tmp_path, value, extend=True, stop_after=40)
    looks = log_of(tmp_path).looks
    assert looks[: len(before)] == before and len(looks) > len(before)
    assert looks[0].time == pytest.approx(5 / 30)
    assert looks[1].time == pytest.approx(5 / 30 + 25 / 30 * 5 / 55)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"replicates": Replicates(first=5, step=5, most=60)},
            "replicates.most: all of alpha is spent",
        ),
        (
            {"replicates": None, "seeds": list(range(40))},
            "replicates: this study is looked at as it grows",
        ),
        (
            {"replicates": Replicates(first=5, step=5, most=30, spending="power")},
            "spent alpha otherwise",
        ),
    ],
)
def test_no_look_can_be_had_without_counting(tmp_path, fields, says):
    few = grid(
        replicates=Replicates(first=5, step=25, most=30), arms={a: grid().arms[a] for a in "ab"}
    )
    drive_looks(few, tmp_path, lambda trial: 0.5 + 0.03 * noise(trial.id))
    assert log_of(tmp_path).looks[-1].time == 1
    with refused(SpecError, match=says):
        drive_looks(
            AblationGrid(
                **{**{f: getattr(few, f) for f in ("name", "arms", "axes", "data")}, **fields}
            ),
            tmp_path,
            value,
            extend=True,
        )


def test_trials_that_are_made_anew_begin_the_looks_anew(calm, tmp_path):
    drive_looks(grid(), tmp_path, value, stop_after=40)
    drive_looks(grid(), tmp_path, value, rerun=["c"], stop_after=3)
    log = log_of(tmp_path)
    assert log.looks == () and len(log.earlier) == 1
    drive_looks(grid(), tmp_path, value, stop_after=30)
    text = Results.load("looked-at", str(tmp_path)).table().to_text(200)
    assert "1 earlier look had trials that were trained again since" in text
    assert log.with_look(*log.earlier).begun_anew().earlier == log.earlier * 2, "none is forgotten"


def test_failures_are_no_end_of_a_stage_and_help_nobody(tmp_path):
    said, ended = drive_looks(
        grid(), tmp_path, value, failed=lambda t: t.arm == "c" and t.seed % 2 == 0
    )
    assert "better" not in stands(log_of(tmp_path)).values() and len(said) > 1 and ended <= 180
    looks = log_of(tmp_path).looks
    drive_looks(grid(), tmp_path, value, retry_failed=True, stop_after=0)
    assert log_of(tmp_path).looks == looks, "a trial that failed has shown nothing"


def test_repeats_of_the_folds_are_added_and_the_first_partition_stays(tmp_path, storage):
    fields = {"axes": {}, "folds": 3}
    more = grid(**fields, replicates=Replicates(first=2, step=1, most=4, of="repeats"))
    fixed = grid(**fields, replicates=None)
    ids = [[t.id for t in plan(study, storage=storage).trials] for study in (fixed, more)]
    assert ids[1][: len(ids[0])] == ids[0] and len(ids[1]) == 4 * len(ids[0])
    drive_looks(more, tmp_path, value)
    folds = Results.load("looked-at", storage).to_frame()["fold"]
    assert set(folds) >= set(range(6)) and log_of(tmp_path).unit == "repeats"


def test_looks_over_folds_need_no_factor_of_t(tmp_path):
    looks = Replicates(first=2, step=2, most=6)
    drive_looks(grid(axes={}, folds=5, replicates=looks), tmp_path, value)
    last = min(log_of(tmp_path).looks[-1].comparisons, key=lambda one: one.p_value)
    told = Looks((2, 4, 6), (1 / 3, 2 / 3, 1)).repeated_p(last.p_value, 2)
    assert last.adjusted_p == pytest.approx(3 * told), "of three comparisons"


def test_a_sweep_confirms_with_looks(tmp_path):
    def value(trial):
        return 0.5 + 0.1 * (trial.arm == "long") + 0.01 * noise(trial.id)

    study = sweep(replicates=Replicates(first=4, step=4, most=12), confirm_on="all")
    said, _ = drive_looks(study, tmp_path, value)
    frame = Results.load(study.name, str(tmp_path)).to_frame()
    assert said[-1].endswith("no cell goes on")
    assert stands(log_of(tmp_path, study.name)) == {"longshort": "worse"}
    assert 2 * 3 * 4 <= len(frame) < 2 * 3 * 12 and frame["seed"].min() == 1000
    assert drive_looks(study, tmp_path, value) == ([], 0)
    drive_looks(replace(study, trials_per_arm=7), tmp_path, value, extend=True)
    log = log_of(tmp_path, study.name)
    assert len(log.earlier) == len(said), "looks at other configurations are none at these"


def test_a_log_that_was_tampered_with_is_refused(calm, tmp_path):
    drive_looks(grid(), tmp_path, value, stop_after=40)
    file = tmp_path / "looked-at/looks.json"
    text = file.read_text()
    members = json.loads(text)
    del members["digest"]
    early = {**members, "looks": [{**members["looks"][0], "time": 7.0}]}
    for broken in (
        text.replace('"futile"', '"better"').replace('"open"', '"better"'),
        "{",
        "[]",
        json.dumps(early),
    ):
        file.write_text(broken)
        with refused(StorageError, "looks.json"):
            drive_looks(grid(), tmp_path, value)


@pytest.mark.parametrize(
    ("replicates", "says"),
    [
        (
            "{first: 1, step: 5, most: 4}",
            "replicates.first: input should be greater than or equal to 2",
        ),
        (
            "{first: 2, step: 1, most: 4, of: repeats}",
            "replicates.of: there are no folds to repeat",
        ),
    ],
)
def test_wrong_replicates_are_one_line(replicates, says):
    with refused(SpecError, match=says):
        plan(
            load_study(
                "contrasweep.search_spaces.quickstart:STUDY",
                [f"replicates={replicates}", "folds=null"],
            ),
            storage="runs",
        )
