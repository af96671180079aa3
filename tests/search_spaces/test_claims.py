"""The claims of papers: each row's study can decide it on data of its own, and the committed page has these rows."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from command_line import contrasweep
from docs import methods_board, papers_page
from docs.claims_ledger import CLAIMS, Claim
from docs.claims_page import (
    NOT_RUN,
    Estimate,
    Kept,
    Row,
    fresh_study,
    held,
    load_study,
    main,
    page,
    read,
)
from drivers import ray_folder, start_driver
from places import ROOT
from refusals import refused

from contrasweep import SpecError
from contrasweep.planning.planner import plan, plan_staged
from contrasweep.search_spaces import survey
from contrasweep.study.grid import AblationGrid


def claims(*words, folder):
    """`python -m docs.claims_page *words` in `folder`."""
    return contrasweep(*words, folder=folder, program=main)


PAGE = ROOT / "docs/claims.md"
TOY = """
from contrasweep import AblationGrid, Arm, Report
from docs.claims_ledger import Claim


def train(trial, resume=None):
    yield Report(1, {"accuracy": trial.config["level"] + trial.seed % 3 / 100})


STUDY = AblationGrid(
    name="toy", arms={"a": Arm(train, config={"level": 0.5}), "b": Arm(train, config={"level": 0.4}),
                      "pixels": Arm(train, config={"level": 0.1})},
    data="digits", seeds=list(range(8)), smallest_difference=0.05, reference="a",
)
CLAIMS = [Claim("A is better than B", "Somebody 2026, +.1", "toyclaims:STUDY", "a", "b", floor="pixels", on="a toy",
                fresh=8)]
"""


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_a_claim_names_arms_and_what_it_rests_on(claim, storage):
    row = read(claim, storage)
    assert row.verdict == NOT_RUN
    assert row.study.smallest_difference and claim.source and claim.tried and claim.on
    assert len({claim.arm, claim.against, claim.floor}) == 3


def test_fresh_seeds_are_seeds_that_a_study_never_used():
    for claim in CLAIMS:
        study = load_study(claim.study)
        if claim.fresh:
            fresh = fresh_study(study, claim.fresh)
            assert not set(fresh.all_seeds) & set(study.all_seeds)
            assert len(fresh.all_seeds) == claim.fresh
            assert fresh.arms == study.arms and fresh.name != study.name
            assert {other.fresh for other in CLAIMS if other.study == claim.study} == {claim.fresh}


@pytest.mark.parametrize(
    "study",
    [value for value in vars(survey).values() if isinstance(value, AblationGrid)],
    ids=lambda study: study.name,
)
def test_the_surveys_studies_decide_with_seeds_of_their_own(study, storage):
    assert min(study.all_seeds) >= 100 and study.folds is None, (
        "settings were chosen on folds, with seed 0"
    )
    assert plan(study, storage=storage).total > 0, "its data come with the packages"
    learned = [arm.config for arm in study.arms.values() if arm.trainable != survey.PIXELS]
    differ = {
        key for one in learned for key in one if any(other[key] != one[key] for other in learned)
    }
    assert differ <= {"loss", "learning_rate"}
    base = survey.LONG if learned[0]["epochs"] == 40 else survey.BASE
    assert base["learning_rate"] in {config["learning_rate"] for config in learned}


@pytest.mark.long
def test_the_command_runs_the_studies_and_writes_the_page(tmp_path):
    (tmp_path / "toyclaims.py").write_text(TOY)
    before = claims("--of", "toyclaims:CLAIMS", folder=tmp_path)
    assert "| 1 | A is better than B | **not run** | – | 0.05 | – | – |" in before.stdout
    with ray_folder() as ray:
        here = {"PYTHONPATH": str(PAGE.parents[1])}
        words = ["--of", "toyclaims:CLAIMS", "--run", "--output", "page.md", "--reports", "reports"]
        driver = start_driver(
            *words, folder=tmp_path, ray=ray, environment=here, module="docs.claims_page"
        )
        errors = driver.communicate()[1]
    assert driver.returncode == 0, errors
    text = (tmp_path / "page.md").read_text()
    decided = "| 1 | A is better than B | **held on a toy** | +0.100 [+0.100, +0.100], n 8 | 0.05 | 0.109 | – |"
    assert decided in text and "Of 1 claims: 1 held." in text
    assert "contrasweep run toyclaims:STUDY" in text
    assert "accuracy: a is better and it matters, p = 0.016; a 0.509 [" in text
    assert "; first +0.100 [" in text
    assert "| digits, the test part | 1 | 2 | 2 |" in text
    elsewhere = ["--storage", "another", "--reports", "reports"]
    kept = claims("--of", "toyclaims:CLAIMS", *elsewhere, folder=tmp_path)
    assert decided in kept.stdout, "the estimates of the page before"
    again = claims("--of", "toyclaims:CLAIMS", folder=tmp_path)
    assert [path.name for path in sorted((tmp_path / "reports").iterdir())] == [
        "estimates.json",
        "toy-fresh.md",
    ]
    report = (tmp_path / "reports/toy-fresh.md").read_text()
    assert "- a is better than b and it matters: +0.10 [+0.10, +0.10]" in report
    linked = " [Its report](reports/toy-fresh.md)."
    assert linked in text and again.stdout == text.replace(linked, ""), "of the same records"


def estimate(decision, low, high, **scores):
    return Estimate(
        decision, (low + high) / 2, low, high, 0.01, 8, scores, 16, 1.0, 0, "2026-01-01"
    )


@pytest.mark.parametrize(
    ("decision", "relevance", "better", "same"),
    [
        ("better", "above", "held", "contradicted"),
        ("better", "unclear", "held", "contradicted"),
        ("better", "below", "held, by less than matters", "held"),
        ("worse", "above", "contradicted", "contradicted"),
        ("worse", "below", "contradicted", "held"),
        ("equivalent", "below", "contradicted", "held"),
        ("undecided", "unclear", "not shown here", "not shown here"),
    ],
)
def test_a_claim_held_or_not(decision, relevance, better, same):
    assert held(decision, relevance, False) == better
    assert held(decision, relevance, True) == same


FLOOR = "not shown here: {} not surely 0.05 above the floor"
WIDE = {"a": (0.45, 1.2), "b": (0.47, 0.53)}


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize(
    ("claim", "seen", "says"),
    [
        ({}, {}, "held on toys"),
        ({}, {"ends": WIDE}, FLOOR.format("a is")),
        ({"floor": None}, {"ends": WIDE}, "held on toys"),
        ({}, {"ends": {"b": (0.1, 0.9)}}, "held on toys"),  # it may have learned nothing
        ({"arm": "b", "against": "a"}, {"decision": "worse"}, "contradicted on toys"),
        ({}, {"decision": "worse", "ends": WIDE}, FLOOR.format("b is")),
        ({"same": True}, {"low": -0.01, "high": 0.02, "ends": WIDE}, FLOOR.format("a and b are")),
        ({"construction": "so"}, {}, "held by construction on toys"),
        (
            {"under": "at .2"},
            {"low": 0.01, "high": 0.04},
            "held, by less than matters on toys, at .2",
        ),
        ({}, {"complete": False}, "running"),
    ],
)
def test_an_arm_that_is_ahead_is_surely_above_the_floor(mode, claim, seen, says):
    """By the smallest difference, of 0.05: b's mean is 0.06 above the floor's, a's 0.36."""
    sign = 1 if mode == "max" else -1
    scores = {arm: sign * mean for arm, mean in {"a": 0.8, "b": 0.5, "pixels": 0.44}.items()}
    found = replace(estimate("better", 0.25, 0.35, **scores), **seen)
    ends = {arm: tuple(sorted(sign * end for end in of_arm)) for arm, of_arm in found.ends.items()}
    study = SimpleNamespace(mode=mode, smallest_difference=0.05)
    asked = replace(Claim("x", "y", "m:S", "a", "b", floor="pixels", on="toys"), **claim)
    assert Row(asked, study, replace(found, ends=ends)).held == says


@pytest.mark.parametrize(
    ("study", "arms", "full", "says"),
    [
        ("MINING", ("semi-hard", "all"), "SETS", "full: the study survey-sets has no such arm, got 'all'"),
        ("SUPERVISED", ("ocl", "supcon"), "", "arm: the study survey-sincere has no such arm, got 'ocl'"),
    ],
)  # fmt: skip
def test_a_claim_of_an_arm_that_a_study_does_not_have_is_refused(study, arms, full, says, storage):
    of = f"{survey.__name__}:{{}}".format
    with refused(SpecError, says):
        read(Claim("x", "y", of(study), *arms, full=full and of(full)), storage)


def test_the_estimates_of_earlier_pages_are_kept(tmp_path):
    kept = Kept({"a/b/c": estimate("better", 0.02, 0.04, b=0.5)}, {"a/b/accuracy": 0.5})
    (tmp_path / "estimates.json").write_text(kept.to_json())
    assert Kept.of(tmp_path) == kept and Kept.of(tmp_path / "none") == Kept() == Kept.of(None)
    known = Kept.of(PAGE.parent / "claims").estimates
    assert all(not claim.earlier or claim.earlier in known for claim in CLAIMS)


def test_the_committed_boards_and_papers_are_what_is_kept_of_their_studies():
    for module in methods_board, papers_page:
        assert module.page() == module.PAGE.read_text()


def test_the_committed_page_is_what_the_kept_estimates_say(storage):
    folder = PAGE.parent / "claims"
    kept = Kept.of(folder)
    written = page([read(one, storage, kept) for one in CLAIMS], folder, "claims")
    hours = "- At the paper's scale: "
    shown = [
        [line for line in text.splitlines() if not line.startswith(hours)]
        for text in (written, PAGE.read_text())
    ]
    assert shown[0] == shown[1]


def test_commands_stage_what_does_not_come_with_the_packages(storage):
    for claim in CLAIMS:
        _, missing = plan_staged(load_study(claim.study), storage=storage)
        assert bool(claim.stage) == bool(missing), claim.study
        assert (
            not claim.stage
            or f"contrasweep data stage {claim.stage}\ncontrasweep run {claim.study}"
            in PAGE.read_text()
        )
