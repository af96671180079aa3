"""The claims of papers: each row's study can decide it on data of its own, and the committed page has these rows."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import contrasweep
from drivers import ray_folder, start_driver

from contrasweep import SpecError
from contrasweep.planning.planner import plan
from contrasweep.search_spaces import survey
from contrasweep.search_spaces.claims import CLAIMS, Claim
from contrasweep.search_spaces.claims.ledger import DIGITS, RAW_PIXELS
from contrasweep.search_spaces.claims.page import (
    INVENTORY,
    NOT_RUN,
    Row,
    _elsewhere,
    chosen,
    page,
    paper_scale_cost,
    read,
)
from contrasweep.study.file import load_study
from contrasweep.study.grid import AblationGrid

PAGE = Path(__file__).resolve().parents[2] / "docs" / "claims.md"
TOY = """
from contrasweep import AblationGrid, Arm, Report
from contrasweep.search_spaces.claims import Claim


def train(trial, resume=None):
    yield Report(1, {"accuracy": trial.config["level"] + trial.seed % 3 / 100})


STUDY = AblationGrid(
    name="toy", arms={"a": Arm(train, config={"level": 0.5}), "b": Arm(train, config={"level": 0.4}),
                      "pixels": Arm(train, config={"level": 0.1})},
    data="digits", seeds=list(range(8)), smallest_difference=0.05, reference="a",
)
CLAIMS = [Claim("A is better than B", "Somebody 2026, +.1", "toyclaims:STUDY", "a", "b", floor="pixels", full="x:Y")]
WRONG = [3]
"""


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_a_claim_names_arms_and_what_it_rests_on(claim: Claim, tmp_path: Path) -> None:
    row = read(claim, str(tmp_path))
    assert row.verdict == NOT_RUN
    assert row.study.smallest_difference and claim.source and claim.tried
    assert claim.arm != claim.against and claim.floor not in (claim.arm, claim.against)
    load_study(claim.full)


@pytest.mark.parametrize(
    "study", [value for value in vars(survey).values() if isinstance(value, AblationGrid)], ids=lambda study: study.name
)
def test_the_surveys_studies_decide_with_seeds_of_their_own(study: AblationGrid, tmp_path: Path) -> None:
    assert min(study.all_seeds) >= 100 and study.folds is None, "settings were chosen on folds, with seed 0"
    assert plan(study, storage=str(tmp_path)).total > 0, "its data come with the packages"
    learned = [arm.config for arm in study.arms.values() if arm.trainable != survey.PIXELS]
    differ = {key for one in learned for key in one if any(other[key] != one[key] for other in learned)}
    assert differ <= {"loss", "learning_rate"}


def test_the_page_has_every_claim_with_its_smallest_difference() -> None:
    text = PAGE.read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    smallest = [f"{load_study(claim.study).smallest_difference:g}" for claim in CLAIMS]
    assert [(row[0].removeprefix("| "), row[3]) for row in rows] == [
        (claim.says, least) for claim, least in zip(CLAIMS, smallest, strict=True)
    ]
    decided = [row for row in rows if re.match(r"\*\*(better|worse|equivalent)\*\*", row[1])]
    assert len(decided) >= 2 / 3 * len(rows)
    for claim in CLAIMS:
        assert f"contrasweep run {claim.study}" in text


@pytest.mark.long
def test_the_command_runs_the_studies_and_writes_the_page(tmp_path: Path) -> None:
    (tmp_path / "toyclaims.py").write_text(TOY)
    before = contrasweep("claims", "--of", "toyclaims:CLAIMS", folder=tmp_path)
    assert "| A is better than B | not run | – | 0.05 | – | – | – |" in before.stdout
    with ray_folder() as ray:
        words = ["--of", "toyclaims:CLAIMS", "--run", "--output", "page.md", "--reports", "reports"]
        driver = start_driver("claims", *words, folder=tmp_path, ray=ray)
        errors = driver.communicate(timeout=270)[1]
    assert driver.returncode == 0, errors
    text = (tmp_path / "page.md").read_text()
    assert "| A is better than B | **better** | +0.100 [+0.100, +0.100] | 0.05 | 8 | 0.109 | – |" in text
    assert "Of 1 claims: 1 better." in text and "contrasweep run toyclaims:STUDY" in text
    again = contrasweep("claims", "--of", "toyclaims:CLAIMS", folder=tmp_path)
    assert "- a is better than b and it matters: +0.10 [+0.10, +0.10]" in (tmp_path / "reports" / "toy.md").read_text()
    linked = "[Its report](reports/toy.md): table, verdicts, looks."
    assert again.stdout.splitlines() == [line for line in text.splitlines() if line != linked], "of the same records"
    assert linked in text


def test_a_study_whose_data_are_not_there_keeps_none_from_being_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTRASWEEP_DATA", raising=False)
    (tmp_path / "toyclaims.py").write_text(TOY.replace('data="digits"', 'data="sick"'))
    done = contrasweep("claims", "--of", "toyclaims:CLAIMS", "--run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "toyclaims:STUDY is not run: dataset 'sick' is not staged; stage it with: contrasweep" in done.stderr
    assert "| A is better than B | not run |" in done.stdout


def test_what_is_no_list_of_claims_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "toyclaims.py").write_text(TOY)
    done = contrasweep("claims", "--of", "toyclaims:WRONG", folder=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "claims are a list of contrasweep.search_spaces.claims.Claim" in done.stderr


@pytest.mark.parametrize(("mode", "below"), [("max", True), ("min", False)])
def test_arms_below_the_floor_are_said_to_be(mode: str, below: bool) -> None:
    claim = Claim("x", "y", "m:S", "a", "b", floor="pixels")
    row = Row(claim, SimpleNamespace(mode=mode), None, {"a": 0.4, "b": 0.5, "pixels": 0.6})
    assert row.below_floor is below and bool(row.remarks) is below
    assert not replace(row, scores={"a": 0.4, "b": 0.5}).below_floor


def test_a_claim_of_an_arm_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"arm: the study survey-sincere has no such arm, got 'ocl'; its arms: sincere"):
        read(Claim("x", "y", "contrasweep.search_spaces.survey:SUPERVISED", "ocl", "supcon"), str(tmp_path))


def test_a_floor_of_another_study_is_of_the_same_data(tmp_path: Path) -> None:
    claim = Claim("x", "y", "contrasweep.search_spaces.survey:SUPERVISED", "sincere", "supcon")
    for name, says in {
        "contrasweep.search_spaces.floods:EVENTS/colour": "it has the arms .*; survey-sincere is on digits-lt",
        f"{DIGITS}/colour": "on digits-lt it has the arms scl, ocl, cross-entropy, raw-pixels",
    }.items():
        with pytest.raises(SpecError, match=says):
            _elsewhere("floor", name, load_study(claim.study), str(tmp_path))
    assert _elsewhere("floor", RAW_PIXELS, load_study(claim.study), str(tmp_path)) == {}, "not run"


def test_claims_are_chosen_by_the_names_of_their_studies() -> None:
    mining = [claim for claim in CLAIMS if claim.study == "contrasweep.search_spaces.survey:MINING"]
    assert len(mining) == 2
    for name in ("MINING", "survey-mining", "contrasweep.search_spaces.survey:MINING"):
        assert chosen(CLAIMS, [name]) == mining
    both = chosen(CLAIMS, ["local-centres", "MINING"])
    assert [claim.study.partition(":")[2] for claim in both] == ["MINING", "MINING", "CENTRES"], "in the list's order"
    assert chosen(CLAIMS, []) == CLAIMS
    with pytest.raises(SpecError, match=r"NAME: no claim is asked by .*, got 'survey-mine'; did you mean 'survey-min"):
        chosen(CLAIMS, ["survey-mine"])


def test_the_inventory_of_the_page_is_there() -> None:
    assert (PAGE.parents[1] / INVENTORY).is_file()


def test_a_page_counts_its_verdicts(tmp_path: Path) -> None:
    assert f"Of {len(CLAIMS)} claims: {len(CLAIMS)} not run." in page([read(one, str(tmp_path)) for one in CLAIMS])


def test_the_page_says_what_a_paper_takes_on_given_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTRASWEEP_DATA", raising=False)
    inventory = PAGE.parents[1] / INVENTORY
    done = contrasweep("claims", "SIMILARITY", "--cluster", str(inventory), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "At the paper's scale: 20 trials on 8 L4, 8 H100, at least about " in done.stdout
    left_out = paper_scale_cost("contrasweep.search_spaces.local:TABLE_2_SMALL", str(tmp_path), inventory)
    assert left_out.startswith("not planned; ") and "on ombria, whose size is not known" in left_out
