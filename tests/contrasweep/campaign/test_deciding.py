"""Candidates are decided by trained trials, without Ray here: screened, confirmed on fresh seeds, remembered."""

import dataclasses
import sys

import calm
import pytest
from command_line import contrasweep
from refusals import refused

from contrasweep import Arm, Campaign, Float, SpecError
from contrasweep.campaign import campaign as campaigns
from contrasweep.campaign.campaign import stored_history
from contrasweep.errors import ContrasweepError
from contrasweep.live.overview import overviews
from contrasweep.planning.budget import Spent
from contrasweep.results.ledger import Asked, Began, Decided, Granted, Ledger
from contrasweep.results.results import Results
from contrasweep.running.session import SESSION_STACK, session
from contrasweep.storage.lease import StudyHeld
from contrasweep.storage.record import Cause, Status, TrialNotes
from contrasweep.storage.records import StudyRecords


@pytest.fixture(autouse=True)
def without_ray(monkeypatch):
    """Train in this process: what is tested is what is trained, in which order, and what follows."""
    monkeypatch.setattr(
        campaigns, "run", lambda study, storage, **options: calm.calm_run(study, storage)
    )


SIMPLER = {"size": "parameters", "smallest_difference": 0.06}
SMALL = {"smallest_difference": 0.005, "seeds": {"first": 2, "step": 2, "most": 8}}


def campaign(**more):
    return Campaign("speed", arm(), "digits-lt", **SMALL | more)


def arm(**config):
    return Arm("candidates:train", config)


BETTER = arm(gain=0.05, who="better")


def decide(storage, candidate, name, **more):
    own = more.pop("campaign", None) or campaign()
    return own.decide(candidate, name, storage=str(storage), **{"tracking": None, **more})


def book(storage):
    return Ledger(str(storage), "speed").read()


def entries(storage, kind):
    return [entry for entry in book(storage).entries if isinstance(entry, kind)]


def trials(storage):
    return {path.parent.name for path in storage.glob("speed.*/records/*/record.json")}


def test_a_better_candidate_is_kept_and_is_the_next_incumbent(tmp_path, storage):
    better = decide(tmp_path, BETTER, "better", by="ada", why="larger gain")
    assert better.kept and better.verdict == "keep" and better.stage == "confirm"
    assert better.level == 0.025
    (note,) = Results.load("speed.1.confirm", str(tmp_path)).study_notes
    assert note.startswith(
        "a study of campaign speed, of which its ledger decides, by its own test"
    )
    assert better.low <= 0.05 <= better.high and better.low > 0
    same = decide(tmp_path, arm(gain=0.05, who="noise"), "noise")
    assert not same.kept and same.incumbent == "better"
    entries = book(tmp_path).entries
    fresh = next(set(e.seeds) for e in entries if isinstance(e, Granted))
    for name in ("speed.1", "speed.incumbent-0"):  # no seed that chose the candidate confirmed it
        seeds = set(Results.load(name, storage).to_frame()["seed"])
        assert seeds and not seeds & fresh
    assert next(e for e in entries if isinstance(e, Asked)).by == "ada"
    for entry in overviews(storage):
        assert 0 < sum(entry.statuses.values()) <= entry.trials, entry.study
    shown = stored_history("speed", storage)
    (line,) = shown.figure.series
    assert (line.low[-1], line.y[-1], line.high[-1]) == (better.low, better.estimate, better.high)
    assert len(line.x) == len(line.low) == len(line.high)
    studies = [name for row in shown.rows for name in row.studies]
    assert "speed.1" in studies and len(studies) >= 3
    assert all((tmp_path / name).is_dir() for name in studies)
    assert campaign().history(storage=storage).lines(300) == shown.lines(300)
    assert all(name in "\n".join(shown.lines(300)) for name in (*studies, "difference [interval]"))


@pytest.mark.parametrize(
    ("seed", "gain", "stage"),
    [(0, 0.6, "confirm"), (6, 0.2, "confirm"), (0, 0.0, "screen")],  # 6 is the first fresh one
)
def test_how_deep_any_seed_of_a_candidate_fell_is_written_with_its_decision(
    seed, gain, stage, tmp_path
):
    decide(tmp_path, Arm("more_candidates:falls", {"gain": gain, "falls": seed}), "deep")
    [decided] = entries(tmp_path, Decided)
    assert decided.stage == stage and decided.fell == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("config", [{"gain": 0.05}, {"parameters": 50}], ids=["better", "simpler"])
def test_copies_of_one_training_keep_no_candidate(config, tmp_path):
    own = Campaign("speed", Arm("candidates:train_once"), "digits-lt", size="parameters", **SMALL)
    decision = decide(tmp_path, Arm("candidates:train_once", config), "sure", campaign=own)
    assert (decision.kept, decision.verdict) == (False, "discard")
    assert "do they use their seed" in str(decision)


def test_a_candidate_that_was_decided_costs_nothing(tmp_path):
    first = decide(tmp_path, arm(who="noise"), "noise")
    trained = trials(tmp_path)
    entries = book(tmp_path).entries
    again = decide(tmp_path, arm(who="noise"), "another-name")
    assert again.remembered and (again.verdict, again.number) == (first.verdict, first.number)
    assert trials(tmp_path) == trained and book(tmp_path).entries == entries


def test_the_incumbent_itself_and_another_declaration_are_refused(tmp_path):
    with refused(SpecError, "settings and the code of the incumbent"):
        decide(tmp_path, arm(), "nothing-new")
    assert not list(tmp_path.glob("speed*"))
    with refused(SpecError, "CANDIDATE.space: a campaign searches nothing"):
        decide(tmp_path, dataclasses.replace(BETTER, config={}, space={"gain": Float(0, 1)}), "any")
    with refused(SpecError, "data: a dataset is named once"):
        Campaign("speed", arm(), ["digits-lt", "digits-lt"])
    decide(tmp_path, arm(who="noise"), "noise")
    with refused(SpecError, "alpha: a campaign of this name is declared otherwise"):
        decide(tmp_path, arm(who="other"), "other", campaign=campaign(alpha=0.1))
    assert decide(
        tmp_path, arm(who="x"), "x", campaign=campaign(description="says more", budget_trials=500)
    )


def test_a_function_that_no_later_process_finds_is_refused(tmp_path):
    def train(trial, resume=None):
        yield from ()

    with refused(
        SpecError,
        match=r"trainable: a ledger names a trainable by its module.*locals.*into a module",
    ):
        decide(tmp_path, Arm(train), "local")
    assert not list(tmp_path.glob("speed*"))


def test_a_decision_waits_for_another_process_and_ends_where_trials_are_lost_twice(
    tmp_path, monkeypatch, capsys
):
    runs = []

    def lost(study, storage, **options):
        runs.append(study.name)
        if len(runs) < 3:
            raise StudyHeld("ada has it")
        calm.calm_run(study, storage)
        records = StudyRecords(storage, study.name)
        first, *_ = records.read(sorted(records.finished())).values()
        failed = {"status": Status.FAILED, "cause": Cause.HOST_LOST, "metrics": {}}
        records.write(dataclasses.replace(first, **failed))
        return Results.load(study.name, storage)

    monkeypatch.setattr(campaigns, "run", lost)
    monkeypatch.setattr(campaigns, "WAIT_S", 0.0)
    says = "lacks 1 trial for a cause outside the method (host lost); nothing was decided; the same"
    with refused(ContrasweepError, says):
        decide(tmp_path, BETTER, "better")
    assert len(runs) == 4 and len({*runs}) == 1
    assert capsys.readouterr().err.count("ada has it; waiting for it") == 1
    assert not entries(tmp_path, Decided)


HOUR = TrialNotes(gpus=0.5, cost_per_hour=3.0)
"""What each trial takes in `priced`: an hour of half a GPU, at 3 an hour."""


@pytest.fixture
def priced(monkeypatch):
    """Trials that take an hour each, and a study that stops once its own budget is used up."""

    def run(study, storage, **_):
        calm.calm_run(study, storage)
        records = StudyRecords(storage, study.name)
        for record in records.read(sorted(records.finished())).values():
            records.write(dataclasses.replace(record, seconds=3600.0, notes=HOUR))
        spent = Spent.of(records.read(sorted(records.finished())).values())
        results = Results.load(study.name, storage)
        over = study.budget_gpu_hours is not None and spent.gpu_hours >= study.budget_gpu_hours
        return dataclasses.replace(results, stopped="used up" if over else "")

    monkeypatch.setattr(campaigns, "run", run)


def test_what_a_decision_takes_is_told_in_gpu_hours_and_money(priced, tmp_path):
    first = decide(tmp_path, arm(gain=-0.1, who="worse"), "worse")
    assert (first.trials, first.gpu_hours, first.cost) == (2, 1.0, 6.0)
    assert book(tmp_path).spent == Spent(4, 2.0, 12.0)  # the incumbent too
    expected = campaign(budget_gpu_hours=15.0).outlook(
        arm(who="next"), "next", storage=str(tmp_path)
    )
    # The incumbent lacks four of its six screening seeds.
    assert (expected.cost, expected.gpu_hours, expected.gpu_hours_left) == (78.0, 13.0, 13.0)
    assert "13 hours of a GPU or slot, a cost of 78" in "".join(expected.lines())
    assert "13 hours" in expected.lines()[-1]
    with refused(
        SpecError, match=r"budget_gpu_hours.*13 hours at most, and 8 are left.*at least 5 more"
    ):
        decide(tmp_path, arm(who="next"), "next", campaign=campaign(budget_gpu_hours=10.0))


def test_a_budget_ends_a_decision_that_takes_more_than_was_foreseen(priced, tmp_path):
    better = BETTER
    with refused(
        SpecError,
        match=r"budget_gpu_hours.*used up, and nothing is decided.*the same command goes on",
    ):
        decide(tmp_path, better, "better", campaign=campaign(budget_gpu_hours=3.4))
    assert entries(tmp_path, Decided) == []
    trained = book(tmp_path).spent  # counted although nothing was decided
    assert trained.gpu_hours == 0.5 * trained.trials >= 3.4
    with refused(SpecError, "budget_gpu_hours"):
        decide(tmp_path, arm(who="other"), "other", campaign=campaign(budget_gpu_hours=3.4))
    assert decide(tmp_path, better, "better", campaign=campaign(budget_gpu_hours=150.0)).kept


def test_more_seeds_are_within_the_budget_too(tmp_path):
    candidate = arm(gain=0.0175, who="u13")
    first = decide(tmp_path, candidate, "close")
    spent = book(tmp_path).spent.trials
    with refused(SpecError, match=r"budget_trials.*16 trials at most, and 3 are left"):
        decide(tmp_path, candidate, "close", more=7, campaign=campaign(budget_trials=spent + 3))
    expected = campaign().outlook(candidate, "close", storage=str(tmp_path), more=first.more.seeds)
    assert expected.decided is None and expected.confirmation_trials == first.more.trials
    assert expected.screening_trials == 0


def test_a_setting_that_no_trial_reads_decides_nothing(tmp_path):
    with refused(SpecError, match=r"CANDIDATE.*settings that its trials read.*gian"):
        decide(tmp_path, Arm("candidates:train_anything", {"gian": 0.1}), "misspelt")
    assert entries(tmp_path, Decided) == []


def test_more_seeds_are_trained_after_an_undecided_confirmation_and_may_decide_it(
    tmp_path, monkeypatch
):
    run = campaigns.run
    candidate = arm(gain=0.0175, who="u13")
    first = decide(tmp_path, candidate, "close")
    assert first.verdict == "undecided" and first.seeds == 8 and first.more is not None
    assert decide(tmp_path, candidate, "close", more=-1).remembered
    monkeypatch.setattr(campaigns, "run", None)
    with pytest.raises(TypeError):  # a kill after the grant
        decide(tmp_path, candidate, "close", more=first.more.seeds)
    monkeypatch.setattr(campaigns, "run", run)
    then = decide(tmp_path, candidate, "close", more=first.more.seeds)
    assert first.seeds < then.seeds <= 8 + first.more.seeds and then.level == first.level
    assert then.verdict == "keep" and then.low > 0
    assert [len(grant.seeds) for grant in entries(tmp_path, Granted)] == [8, first.more.seeds]


def test_an_undecided_candidate_is_asked_anew_where_the_incumbent_was_replaced(tmp_path, storage):
    own = campaign(alpha=0.07)
    candidate = arm(gain=0.0175, who="u13")
    assert decide(tmp_path, candidate, "close", campaign=own).verdict == "undecided"
    better = decide(tmp_path, BETTER, "better", campaign=own)
    expected = own.outlook(candidate, "close", storage=storage, more=2)
    assert (expected.screening_trials, expected.confirmation_trials) == (12, 16)
    again = decide(tmp_path, candidate, "close", campaign=own, more=2)
    assert again.incumbent == "better"
    kept, others = stored_history("speed", storage).figure.dots
    assert (kept.x, kept.y) == ([1.0], [better.estimate])
    assert (others.x, others.y) == ([2.0], [better.estimate + again.screened])


def test_a_candidate_that_only_fails_is_not_decided_and_runs_again_when_mended(
    tmp_path, monkeypatch
):
    retried = []
    calmly = campaigns.run

    def noting(study, **options):
        retried.append(options["retry_failed"])
        return calmly(study, **options)

    monkeypatch.setattr(campaigns, "run", noting)
    for _ in range(2):
        with refused(
            ContrasweepError,
            match=r"every trial of the candidate broken failed.*this candidate is broken",
        ):
            decide(tmp_path, arm(fails=True, who="broken"), "broken")
    assert retried == [False, False, False, True], "the incumbent's trials and its own, twice"
    assert entries(tmp_path, Decided | Granted) == []


def test_an_incumbent_that_only_fails_decides_nothing_and_one_that_mostly_does_is_said_to(tmp_path):
    broken = Campaign("speed", arm(fails=True), "digits-lt", seeds=SMALL["seeds"])
    with refused(
        ContrasweepError, match=r"every trial of the incumbent failed.*this candidate is broken"
    ):
        decide(tmp_path, arm(who="works"), "works", campaign=broken)
    partly = Campaign("partly", arm(fails_in="digits"), ["digits-lt", "digits"], **SMALL)
    with refused(
        ContrasweepError,
        match=r"every trial of the incumbent failed on a dataset.*incumbent data=digits seed=0:",
    ):
        decide(tmp_path, arm(who="works"), "works", campaign=partly)
    assert entries(tmp_path, Decided | Granted) == []
    assert [type(entry) for entry in Ledger(str(tmp_path), "partly").read().entries] == [
        Began,
        Asked,
    ]


def test_a_simpler_candidate_is_kept_where_it_is_not_worse(tmp_path):
    smaller = arm(who="smaller", parameters=10)
    own = campaign(**SIMPLER)
    decision = decide(tmp_path, smaller, "smaller", campaign=own)
    assert decision.verdict in ("equivalent", "keep") and decision.kept
    assert (
        "is not worse than the incumbent by more than 0.06 and is kept, being simpler"
        in decision.sentence()
    )
    assert "one-sided p of a loss of 0.06 = " in decision.sentence()
    assert not decide(tmp_path, arm(who="larger", parameters=99), "larger", campaign=own).kept


def test_where_the_incumbent_alone_fails_is_a_gain_and_what_mends_it_is_kept(tmp_path):
    later = tuple(range(7, 100))  # the first fresh seed is 6
    flaky = Campaign("speed", arm(fails_on=later), "digits-lt", **SMALL)
    decision = decide(tmp_path, arm(who="mended", gain=0.03), "mended", campaign=flaky)
    fresh = set(entries(tmp_path, Granted)[0].seeds)
    assert len(fresh & set(later)) >= 7 and decision.kept and decision.verdict == "keep"


def test_simpler_candidates_together_lose_no_more_than_matters_against_the_last_better_one(
    tmp_path,
):
    own = campaign(**SIMPLER)
    first, second = (
        decide(tmp_path, arm(who=who, gain=gain, parameters=size), who, campaign=own)
        for who, gain, size in (("smaller", -0.03, 90), ("smallest", -0.06, 80))
    )
    assert first.kept and first.verdict == "equivalent"
    assert first.estimate == pytest.approx(-0.03, abs=0.02)
    assert not second.kept and second.incumbent == "smaller"
    assert second.estimate == pytest.approx(-0.03, abs=0.02)
    assert second.reason == "it may be worse by 0.06 than the incumbent, the last better one"
    confirmed = Results.load("speed.4.confirm-1", str(tmp_path)).to_frame()
    assert set(confirmed["arm"]) == {"incumbent", "smallest", "incumbent.better"}


def test_a_size_that_only_noise_makes_smaller_keeps_nothing(tmp_path):
    own = campaign(**SIMPLER)
    own = dataclasses.replace(own, incumbent=arm(jitter=5.0))
    for who in "abcdef":
        assert not decide(tmp_path, arm(who=who, jitter=5.0), who, campaign=own).kept
    assert decide(tmp_path, arm(who="half", parameters=50, jitter=5.0), "half", campaign=own).kept


@pytest.mark.parametrize("kind", [Asked, Granted, Decided])
def test_a_kill_before_or_after_an_entry_spends_nothing_twice(kind, tmp_path, monkeypatch):
    """The same command after a kill ends as one that nothing disturbs, and trains no trial again."""
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    own = campaign(budget_trials=28)  # what one decision takes at most
    expected = decide(whole, BETTER, "better", campaign=own)
    append = Ledger.append

    def dies(before):
        def entry_that_dies(self, entry):
            if isinstance(entry, kind) and before:
                raise KeyboardInterrupt
            written = append(self, entry)
            if isinstance(entry, kind):
                raise KeyboardInterrupt
            return written

        return entry_that_dies

    for before in (True, False):
        monkeypatch.setattr(Ledger, "append", dies(before))
        with pytest.raises(KeyboardInterrupt):
            decide(killed, BETTER, "better", campaign=own)
    monkeypatch.setattr(Ledger, "append", append)
    times = {path: path.stat().st_mtime_ns for path in killed.glob("speed.*/records/*/record.json")}
    decision = decide(killed, BETTER, "better", campaign=own)
    assert (decision.verdict, decision.estimate, decision.level) == (
        expected.verdict,
        expected.estimate,
        expected.level,
    )
    assert [type(e) for e in book(killed).entries] == [type(e) for e in book(whole).entries]
    assert all(path.stat().st_mtime_ns == at for path, at in times.items())
    assert trials(killed) == trials(whole)


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        ({"trainable": "evil:train"}, "evil:train"),
        ({"trainable": "candidates:train", "config": {"net": {"name": "evil:Net"}}}, "evil:Net"),
        ({"command": ["touch", "ran"]}, "touch"),
    ],
)
def test_an_incumbent_whose_code_only_the_ledger_names_is_not_run(
    stored, named, tmp_path, monkeypatch
):
    """Whoever may write to a storage can keep any candidate in its ledger; the next decision would train it."""
    storage = tmp_path / "runs"
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    decide(storage, arm(who="noise"), "noise")
    ledger = book(storage)
    ledger.append(Asked("forged", campaigns.plain_arm(Arm(**stored)), "0" * 16))
    number = ledger.number_of("0" * 16)
    ledger.append(Granted(number, 0, 0.01, (77, 78)))
    ledger.append(Decided(number, 0, "keep", "confirm", True, 2, 0, 0.0, 0.0))
    trained = trials(storage)
    with refused(
        SpecError, match=f"incumbent: what only a storage names is not used, got '{named}'"
    ):
        decide(storage, arm(who="next"), "next")
    (tmp_path / "speed.yaml").write_text(
        "type: campaign\nname: speed\nincumbent: {trainable: 'candidates:train'}\ndata: digits-lt\n"
        "smallest_difference: 0.005\nseeds: {first: 2, step: 2, most: 8}\n"
    )
    words = [
        "speed.yaml",
        "incumbent",
        "--set",
        "config.gain=0.03",
        "--storage",
        "runs",
        "--tracking",
        "none",
    ]
    done = contrasweep("decide", *words, folder=tmp_path)
    assert done.returncode == 2 and "what only a storage names is not used" in done.stderr, done
    assert "evil" not in sys.modules and not list(tmp_path.rglob("ran"))
    assert trials(storage) == trained


def test_a_setting_that_a_command_is_not_given_decides_nothing(tmp_path, runs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import sys; print(sys.argv)")
    candidate = Arm(command=["python", "train.py", "{lr}"], config={"lr": 0.1, "loss": {"lr": 1}})
    says = r"^CANDIDATE: a candidate is judged by settings that its command is given, got 'loss.lr'"
    with refused(SpecError, match=says):
        campaign().outlook(candidate, "misspelt", storage=runs)
    (tmp_path / "train.py").write_text("import os; print(os.environ['CONTRASWEEP_TRIAL'])")
    campaign().outlook(candidate, "asks-for-all", storage=runs)


def test_a_kept_candidate_goes_on_as_incumbent_once_its_package_is_named(tmp_path, monkeypatch):
    kept = decide(tmp_path, Arm("more_candidates:train", {"gain": 0.05, "who": "better"}), "better")
    assert kept.kept
    with refused(SpecError, "got 'more_candidates:train'; set CONTRASWEEP_CODE=more_candidates if"):
        decide(tmp_path, arm(who="next"), "next")
    script = Arm(command=["python", "-c", "print('{args}')"])  # which can name it in `code`
    with refused(SpecError, "name it in the candidate's list `code`, or set CONTRASWEEP_CODE"):
        campaign().outlook(script, "script", storage=str(tmp_path))
    monkeypatch.setenv("CONTRASWEEP_CODE", "more_candidates")
    assert decide(tmp_path, arm(who="next"), "next").incumbent == "better"


@pytest.mark.parametrize("kind", [Granted, Decided])
def test_a_keep_against_an_incumbent_that_was_replaced_is_asked_again(kind, tmp_path, monkeypatch):
    append = Ledger.append
    begun = []
    done = []
    longer = campaign(seeds={"first": 2, "step": 2, "most": 12})

    def another_is_faster(self, entry):
        if isinstance(entry, kind) and not begun:
            begun.append(entry)
            done.append(decide(tmp_path, arm(gain=0.1, who="faster"), "faster", campaign=longer))
        return append(self, entry)

    monkeypatch.setattr(Ledger, "append", another_is_faster)
    decision = decide(tmp_path, arm(gain=0.2, who="best"), "best", campaign=longer)
    assert done[0].kept and decision.kept and decision.incumbent == "faster"
    (line,) = stored_history("speed", str(tmp_path)).figure.series
    base = done[0].estimate
    assert (line.low[-1] - base, line.y[-1] - base, line.high[-1] - base) == pytest.approx(
        (decision.low, decision.estimate, decision.high)
    )
    superseded = [e for e in entries(tmp_path, Decided) if e.superseded]
    assert len(superseded) == 1 and not superseded[0].kept
    assert len(book(tmp_path).confirmations) == (
        2 if kind is Granted else 3
    )  # each spent its level once


def test_one_candidate_that_two_ask_at_once_is_decided_once(tmp_path, monkeypatch):
    append = Ledger.append
    begun = []
    done = []
    candidate = arm(gain=0.1, who="both")

    def another_asks_the_same(self, entry):
        if isinstance(entry, Decided) and not begun:
            begun.append(entry)
            done.append(decide(tmp_path, candidate, "theirs"))
        return append(self, entry)

    monkeypatch.setattr(Ledger, "append", another_asks_the_same)
    decision = decide(tmp_path, candidate, "mine")
    assert decision == done[0] and decision.kept and book(tmp_path).incumbent == decision.number
    assert len(entries(tmp_path, Decided)) == 1


def test_a_ledger_that_breaks_a_rule_or_is_not_there_is_a_line(tmp_path):
    Ledger(str(tmp_path / "contrasweep-runs"), "forged").append(Began({"alpha": "much"}, 12))
    for name, said in (("forged", "campaign.json"), ("forgd", "forged")):
        done = contrasweep("ledger", name, folder=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and said in done.stderr


def test_decisions_of_a_process_share_one_ray_which_an_error_or_a_session_around_them_ends():
    closed = []
    with session(of_process=True):
        kept = SESSION_STACK.get()
        kept.callback(closed.append, "ray")
    with session() as _, session(of_process=True):
        assert SESSION_STACK.get() is not kept
    assert not closed
    with refused(SpecError), session(of_process=True):
        campaign(alpha=2)
    assert closed == ["ray"] and SESSION_STACK.get() is None
