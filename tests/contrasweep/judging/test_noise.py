"""A/A: the same arm twice says whether seeds decide a result, how noisy it is, and what seeds can detect."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from calm import calm_run
from folders import make_files
from jsonschema import Draft202012Validator
from refusals import refused
from scipy import stats

import contrasweep as cs
from contrasweep.campaign import campaign
from contrasweep.cli.documents import dumps
from contrasweep.cli.schemas import document_schema
from contrasweep.judging.judged import noise_of
from contrasweep.planning.power import noise_in
from contrasweep.statistics.noise import Noise, read_noise
from contrasweep.storage.records import StudyRecords

RNG = np.random.default_rng(7)
SEEDS = RNG.normal(0.8, 0.02, 8)
AGAIN = SEEDS + RNG.normal(0, 0.004, 8)
STEADY = Noise("runs", ("a", "a"), "accuracy", tuple(SEEDS), tuple(SEEDS))
DRIFTING = Noise("runs", ("a", "b"), "accuracy", tuple(SEEDS), tuple(AGAIN))
FAILING = Noise("runs", ("a", "b"), "accuracy", tuple(SEEDS), tuple(AGAIN + 0.01))


def written(noise, folder):
    path = folder / "noise.json"
    path.write_text(dumps("noise", noise.to_dict()))
    return path


def test_spread_and_what_seeds_detect_are_those_of_the_formulas():
    d = np.array(SEEDS) - AGAIN
    said = DRIFTING.to_dict()
    assert said["paired_deviation"] == pytest.approx(d.std(ddof=1))
    assert said["unpaired_deviation"] == pytest.approx(
        math.hypot(SEEDS.std(ddof=1), AGAIN.std(ddof=1))
    )
    assert said["differ_by_seed"] == 8 and not said["failed"]
    paired, unpaired = DRIFTING.detectable(
        4
    )  # four seeds are judged by the t-test, whose power SciPy knows
    effect = paired / d.std(ddof=1)
    critical = stats.t.isf(0.025, 3)
    power = stats.nct.sf(critical, 3, effect * 2) + stats.nct.cdf(-critical, 3, effect * 2)
    assert power == pytest.approx(0.8, abs=1e-3)
    assert unpaired / paired == pytest.approx(said["unpaired_deviation"] / said["paired_deviation"])


def test_sixteen_seeds_find_what_they_are_said_to_detect_in_four_of_five_draws():
    least = DRIFTING.detectable(16)[1]
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(500):
        d = least + rng.normal(0, DRIFTING.unpaired.deviation, 16)
        found += stats.wilcoxon(d).pvalue <= 0.05
    assert 0.74 < found / 500 < 0.86


@pytest.mark.parametrize(
    "noise", [STEADY, DRIFTING, Noise("x", ("a", "b"), "m", (1.0, 2.0), (2.0, 3.0, 5.0), False)]
)
def test_the_document_has_its_schema_and_is_read_back(noise, tmp_path):
    path = written(noise, tmp_path)
    Draft202012Validator(document_schema("noise")).validate(json.loads(path.read_text()))
    assert read_noise(path, noise.metric) == noise


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff\x00",
        b"[" * 99999,
        b'{"schema": "noise/1"}',
        b'{"schema": "noise/2"}',
        b"[1]",
    ],
)
def test_another_file_is_no_file_of_noise(content, tmp_path):
    (tmp_path / "noise.json").write_bytes(content)
    with refused(cs.SpecError, "this is no file of noise"):
        read_noise(tmp_path / "noise.json", "accuracy")
    with refused(cs.SpecError, "cannot be read"):
        read_noise(tmp_path / "none.json", "accuracy")
    with refused(cs.SpecError, "another metric"):
        read_noise(written(STEADY, tmp_path), "loss")
    with refused(cs.SpecError, "differs surely from itself, so nothing is judged"):
        read_noise(written(FAILING, tmp_path), "accuracy")


def test_an_a_a_is_over_the_folds_of_each_seed_that_both_arms_have():
    rows = [
        (arm, fold, seed, fold + x)
        for arm, values in (("base", SEEDS), ("base2", AGAIN))
        for fold in range(3)
        for seed, x in enumerate(values)
    ]
    frame = pd.DataFrame(rows, columns=["arm", "fold", "seed", "accuracy"])
    lacks = (frame["arm"] == "base2") & (frame["fold"] == 2) & (frame["seed"] < 4)
    found = noise_of(frame[~lacks])
    means = np.where(np.arange(8) < 4, 0.5, 1.0)
    assert found.first == pytest.approx(tuple(SEEDS + means))
    assert found.second == pytest.approx(tuple(AGAIN + means)) and not found.failed


DRIFTS = """
from pathlib import Path
from contrasweep.trial import Report

def train(trial, resume=None):
    calls = Path({folder!r}) / "calls"
    before = len(calls.read_text()) if calls.exists() else 0
    calls.write_text("x" * (before + 1))
    yield Report(1, {{"accuracy": 0.7 + 0.01 * before + 0.001 * trial.seed}})
"""


@pytest.fixture
def without_ray(monkeypatch, tmp_path):
    """Train in this process, an arm that is better the more was trained before, and a steady one."""
    monkeypatch.setattr(campaign, "run", lambda study, storage, **options: calm_run(study, storage))
    (tmp_path / "drifts.py").write_text(DRIFTS.format(folder=str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_an_arm_of_a_study_and_an_incumbent_are_trained_twice(without_ray, tmp_path, runs):
    make_files(
        tmp_path,
        {
            "study.yaml": "name: s\ndata: digits-lt\nreference: drifting\naxes: {gain: [0.0]}\n"
            "arms:\n  drifting: {trainable: 'drifts:train'}\n  steady: {trainable: 'candidates:train'}\n"
            "  failing: {trainable: 'candidates:train', config: {fails: true}}\n",
            "campaign.yaml": "type: campaign\nname: c\ndata: digits-lt\nincumbent: {trainable: 'candidates:train'}\n",
            "sweep.yaml": "name: s\ndata: digits-lt\ntrials_per_arm: 2\nconfirm_on: all\n"
            "arms: {a: {trainable: 'candidates:train', space: {gain: {type: choice, options: [0, 1]}}}}\n",
        },
    )
    storage = runs
    drifting = campaign.train_twice("study.yaml", "", 6, ["axes={}"], storage)
    assert drifting.failed and drifting.to_dict()["differ_by_seed"] == 6
    assert drifting.arms == ("drifting", "drifting")
    steady = campaign.train_twice("study.yaml", "steady", 4, [], storage)
    assert steady.first == steady.second and len(set(steady.first)) == 4
    assert campaign.train_twice("campaign.yaml", "", 4, [], storage).first == steady.first
    with refused(cs.SpecError, "an A/A is of runs that have a value, got 'accuracy'"):
        campaign.train_twice("study.yaml", "failing", 2, [], storage)
    with refused(cs.SpecError, "an arm runs twice"):
        campaign.train_twice("study.yaml", "none", 4, [], storage)
    for name in ("sweep.yaml", "contrasweep.search_spaces.tuned_losses:STUDY"):
        with refused(cs.SpecError, "this is a sweep, got", "prints a grid of the best settings"):
            campaign.train_twice(name, "", 4, [], storage)


def test_a_value_whose_square_overflows_has_no_noise():
    """Its JSON had null for numbers."""
    with refused(cs.SpecError, "accuracy: noise is of values whose squares are numbers, got -1.7"):
        Noise("runs", ("a", "b"), "accuracy", (0.5, 0.6), (0.5, -1.7e308))


def test_an_a_a_trains_the_cells_that_the_study_has_of_the_arm(without_ray, tmp_path, runs):
    arms = "{a: {trainable: 'candidates:train'}, b: {trainable: 'candidates:train'}}"
    inner = "{config: {parameters: 2}, subgrids: [{axes: {gain: [0.1, 0.2]}}, {arms: [b], axes: {gain: [0.3]}}]}"
    (tmp_path / "study.yaml").write_text(
        f"name: s\ndata: digits-lt\narms: {arms}\nsubgrids: [{inner}, {{arms: [b], config: {{x: 1}}}}]\n"
    )
    storage = runs
    campaign.train_twice("study.yaml", "a", 2, [], storage)
    records = StudyRecords(storage, "s.noise-2")
    configs = [record.config for record in records.read(records.finished()).values()]
    trained = sorted((config["parameters"], config["gain"]) for config in configs)
    assert trained == [(2, 0.1), (2, 0.1), (2, 0.2), (2, 0.2)]


def test_a_plan_says_what_it_decides_by_the_file(tmp_path, runs):
    arms = {name: cs.Arm("candidates:train", {"who": name}) for name in "ab"}
    grid = cs.AblationGrid("small", arms, "digits-lt", seeds=list(range(8)))
    path = written(DRIFTING, tmp_path)
    said = cs.preview(grid, storage=runs, noise=path).to_text()
    assert f"below {DRIFTING.detectable(8)[1]:.2g} stays" in said and "noise as in" in said
    with refused(cs.SpecError, "an A/A tells the noise of one split"):
        noise_in(path, cs.AblationGrid("small", arms, "digits-lt", folds=5))


def test_a_campaign_says_that_its_a_a_failed_before_it_judges_anything(tmp_path, runs):
    seeds = {"first": 2, "step": 2, "most": 8}
    storage = runs
    candidate = cs.Arm("candidates:train", {"who": "other"})
    campaign = cs.Campaign(
        "c",
        cs.Arm("candidates:train"),
        "digits-lt",
        seeds=seeds,
        noise=str(written(FAILING, tmp_path)),
    )
    with refused(cs.SpecError, "differs surely from itself, so nothing is judged"):
        campaign.decide(candidate, "other", storage=storage, tracking=None)
    assert not (tmp_path / "runs").exists()
    written(DRIFTING, tmp_path)
    expected = campaign.outlook(candidate, "other", storage=storage)
    assert expected.detects == DRIFTING.detectable(8, 2 * expected.level)[1]
    assert any(
        "would be confirmed with a chance of about 80 %" in line for line in expected.lines()
    )
