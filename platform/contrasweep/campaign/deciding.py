"""How a candidate is decided: it is screened, and confirmed on fresh seeds, each by ordinary studies of the storage.

    CAMPAIGN.incumbent-N    the incumbent (of entry N) on the seeds that candidates are screened on, trained once
    CAMPAIGN.N              the candidate of entry N on the same seeds
    CAMPAIGN.N.confirm      both on fresh seeds; CAMPAIGN.N.confirm-M: against a later incumbent, of entry M

So reports, logs and trackers show them as any study. What a kill leaves is trained no second time: the same call finds
its entry by the digest of the candidate, and its trials by their records.
"""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from contrasweep import canonical
from contrasweep.campaign.campaign import INCUMBENT, Campaign, plain_arm
from contrasweep.code import CurrentCode
from contrasweep.errors import ContrasweepError, SpecError
from contrasweep.planning.durations import duration
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.driver import run
from contrasweep.running.failures import failure_line
from contrasweep.running.session import session
from contrasweep.schema import validate
from contrasweep.statistics.comparison import span
from contrasweep.statistics.referee import Confirmation, Rule, Ruling
from contrasweep.storage.lease import StudyHeld
from contrasweep.storage.ledger import FIRST, Asked, Began, Decided, Granted, Ledger
from contrasweep.storage.names import as_label
from contrasweep.study.arm import Arm
from contrasweep.study.grid import DATA_AXIS, AblationGrid

ENOUGH = 0.8
"""The chance of a decision at which no more seeds are advised."""
MOST_TIMES = 4
"""How many times the seeds of a confirmation are advised at most."""
WAIT_S = 2.0


@dataclass(frozen=True)
class More:
    """What would decide an undecided candidate: `seeds` more, with the chance that they do, and what they take."""

    seeds: int
    trials: int
    hours: float
    chance: float


@dataclass(frozen=True)
class Decision:
    """What was decided of a candidate.

    `number` is that of its entry in the ledger, `incumbent` what it was compared with. `screened` is the mean gain on
    the screening seeds, by which it was chosen to be confirmed or not. `estimate` is the gain on fresh
    seeds alone, in the metric's units (candidate minus incumbent), `low` to `high` its interval of coverage
    `confidence`; None where the screen decided. `remembered`: the ledger had it, and nothing was trained.
    """

    campaign: str
    candidate: str
    number: int
    incumbent: str
    metric: str
    verdict: str
    kept: bool
    stage: str
    screened: float | None
    estimate: float | None
    low: float | None
    high: float | None
    confidence: float | None
    p: float | None
    level: float | None
    seeds: int
    trials: int
    hours: float
    reason: str
    remembered: bool = False
    more: More | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return every field and the sentence, for programs."""
        return asdict(self) | {"sentence": self.sentence()}

    def sentence(self) -> str:
        """Return the decision in words."""
        said = {
            "keep": f"is better than {self.incumbent} and is kept",
            "equivalent": f"is as good as {self.incumbent} and is {'kept, being simpler' if self.kept else 'not kept'}",
            "discard": "is discarded",
            "undecided": "is undecided",
        }[self.verdict]
        text = f"{self.candidate} {said}"
        if self.estimate is None:
            text += f": on {self.seeds} seeds beside {self.incumbent} it shows no gain that is worth fresh seeds"
        else:
            ends = [-math.inf if self.low is None else self.low, math.inf if self.high is None else self.high]
            text += f": {self.metric} {span(self.estimate, *ends)} on {self.seeds} fresh seeds"
            text += f", one-sided p = {self.p:.2g} at a level of {self.level:.2g}"
        text += f"; {self.reason}" * bool(self.reason)
        if self.more is not None:
            hours = f", {duration(self.more.hours)}" if self.more.hours else ""
            text += f"; --more {self.more.seeds} ({self.more.trials} trials{hours}) decide it with a chance of "
            text += f"{self.more.chance:.0%}"
        return text + (" (from the ledger; nothing was trained)" if self.remembered else "")

    def __str__(self) -> str:
        return self.sentence()


@dataclass(frozen=True)
class Outlook:
    """What a decision would take: `--dry-run`. Hours are None where no trial of the campaign was timed."""

    campaign: str
    candidate: str
    digest: str
    incumbent: str
    decided: Decision | None
    screening_trials: int
    confirmation_trials: int
    hours: float | None
    level: float
    trials_left: int | None
    hours_left: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return every field, for programs."""
        return vars(self) | {"decided": self.decided and self.decided.to_dict()}

    def lines(self) -> list[str]:
        """Return the outlook in words."""
        if self.decided is not None:
            return [self.decided.sentence()]
        hours = "" if self.hours is None else f", at most {duration(self.hours)} of training"
        left = [f"{self.trials_left} trials"] * (self.trials_left is not None)
        left += [] if self.hours_left is None else [duration(self.hours_left)]
        return [
            f"{self.candidate} against {self.incumbent}: at most {self.screening_trials} trials to screen it and "
            f"{self.confirmation_trials} to confirm it{hours}",
            f"its confirmation would have a level of {self.level:.2g}",
            *(f"left of the budget: {' and '.join(left)}" for _ in left[:1]),
        ]


def called(ledger: Ledger, number: int) -> str:
    """What a candidate or an incumbent is called in sentences."""
    return f"the {INCUMBENT}" if number == FIRST else ledger.asked(number).candidate


def confirmations(ledger: Ledger) -> list[Confirmation]:
    """All confirmations of a campaign, as `Rule.granted` takes them."""
    return [Confirmation(*one) for one in ledger.confirmations]


def decision_of(ledger: Ledger, number: int, metric: str) -> Decision | None:
    """Return what a ledger says of the candidate with this number; None while it is not decided."""
    decided = ledger.decision(number)
    if decided is None:
        return None
    grant = ledger.granted(number, decided.incumbent)
    return Decision(
        ledger.campaign,
        ledger.asked(number).candidate,
        number,
        called(ledger, decided.incumbent),
        metric,
        decided.verdict,
        decided.kept,
        decided.stage,
        decided.screened,
        decided.estimate,
        decided.low,
        decided.high,
        decided.confidence,
        decided.p,
        grant.level if grant and decided.stage == "confirm" else None,
        decided.seeds,
        decided.trials,
        decided.hours,
        decided.reason,
    )


def decide(
    campaign: Campaign, candidate: Arm, name: str, *, storage: str, by: str, why: str, more: int, **options: Any
) -> Decision:
    """Decide on a candidate; see `Campaign.decide`. `options` are those of `run`."""
    referee = Referee(campaign, storage, options)
    with session():
        return referee.decide(candidate, name, by, why, more)


def outlook(campaign: Campaign, candidate: Arm, name: str, *, storage: str) -> Outlook:
    """Return what a decision would take; nothing is trained or written."""
    return Referee(campaign, storage, {}).outlook(candidate, name)


def incumbent_of(campaign: Campaign, storage: str) -> Arm:
    """Return the incumbent of now."""
    referee = Referee(campaign, storage, {})
    return referee.arm(referee.ledger.incumbent)


@dataclass
class Referee:
    """A campaign with its ledger in a storage."""

    campaign: Campaign
    storage: str
    options: dict[str, Any]
    ledger: Ledger = field(init=False)
    trials: int = 0
    hours: float = 0.0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.storage, self.campaign.name).read()
        began, declared = self.ledger.began, self.campaign.declared()
        if began is not None and canonical.dumps(began.declared) != canonical.dumps(declared):
            differ = [k for k in {**began.declared, **declared} if began.declared.get(k) != declared.get(k)]
            raise SpecError(
                "a campaign of this name is declared otherwise in this storage, and its level holds for that one",
                place=differ[0],
                value=declared.get(differ[0]),
                hint=f"there it is {began.declared.get(differ[0])}; declare another campaign for another question",
            )

    def arm(self, number: int) -> Arm:
        """The incumbent or candidate with this number."""
        if number == FIRST:
            return self.campaign.incumbent
        arm: Arm = validate(Arm, dict(self.ledger.asked(number).arm))
        return arm

    def digest(self, name: str, arm: Arm) -> str:
        """The digest of a candidate's settings and code. Raises `SpecError` where it cannot be planned."""
        planned = plan(self._study(self.campaign.name, {name: arm}, [0]), storage=self.storage)
        trial = planned.sample_trials[0]
        code = CurrentCode(planned.study.functions).of(trial.trainable, trial.config).version.digest
        return canonical.digest({"trainable": trial.trainable, "config": dict(trial.config), "code": code}, 16)

    def outlook(self, candidate: Arm, name: str) -> Outlook:
        """What a decision would take."""
        rule, ledger, digest = self.campaign.rule(), self.ledger, self.digest(name, candidate)
        number, incumbent = ledger.number_of(digest), ledger.incumbent
        decided = None if number is None else self._known(number)
        grant = None if number is None else ledger.granted(number, incumbent)
        trials, hours = ledger.spent
        a_seed = len(self.campaign.datasets) * (self.campaign.folds or 1)
        shared = 0 if any(isinstance(e, Decided) and e.incumbent == incumbent for e in ledger.entries) else 1
        screening, confirmation = rule.screens()[2] * a_seed * (1 + shared), 2 * rule.looks()[-1] * a_seed
        budget = self.campaign
        return Outlook(
            budget.name,
            name,
            digest,
            called(self.ledger, incumbent),
            decided,
            screening,
            confirmation,
            (screening + confirmation) * hours / trials if trials else None,
            grant.level if grant else rule.granted(confirmations(ledger)),
            None if budget.budget_trials is None else budget.budget_trials - trials,
            None if budget.budget_hours is None else budget.budget_hours - hours,
        )

    def decide(self, candidate: Arm, name: str, by: str, why: str, more: int) -> Decision:
        """Decide on a candidate, or go on with a decision that was begun."""
        expected = self.outlook(candidate, name)
        known = expected.decided
        if known is not None and not (more and known.verdict == "undecided"):
            return replace(known, remembered=True)
        incumbent = self.ledger.incumbent
        now = self.ledger.asked(incumbent).digest if incumbent != FIRST else self.digest(INCUMBENT, self.arm(FIRST))
        if now == expected.digest:
            raise SpecError(
                "the candidate has the settings and the code of the incumbent",
                place="CANDIDATE",
                value=name,
                hint="change a setting, or put changed code into another file or function",
            )
        self._check_budget(expected)
        if self.ledger.began is None:
            self.ledger.append(Began(self.campaign.declared(), self.campaign.rule().screens()[2]))
            self.__post_init__()
        while (number := self.ledger.number_of(expected.digest)) is None:
            self.ledger.append(Asked(name, plain_arm(candidate), expected.digest, as_label(by), as_label(why)))
        arm = candidate
        while True:
            incumbent = self.ledger.incumbent
            decided, ruling = self._against(number, arm, incumbent, more)
            while not self.ledger.append(decided):  # another decision was written meanwhile
                if self.ledger.incumbent != incumbent and decided.verdict != "discard":
                    decided = replace(decided, superseded=True, kept=False)
            if not decided.superseded:
                found = self._known(number)
                assert found is not None
                return found if ruling is None or found.verdict != "undecided" else self._advised(found, ruling)
            now = called(self.ledger, self.ledger.incumbent)
            _say(f"{now} is the {INCUMBENT} by now: {name} is compared with it again")
            more = 0

    def _against(self, number: int, arm: Arm, incumbent: int, more: int) -> tuple[Decided, "_Confirmed | None"]:
        """Screen and confirm a candidate against one incumbent."""
        self.trials, self.hours = 0, 0.0
        grant = self.ledger.granted(number, incumbent)
        rule = self.campaign.rule()
        if grant is None:
            seeds = self.ledger.screening_seeds(incumbent)
            for count in rule.screens():
                _say(f"{self.ledger.asked(number).candidate}: {count} seeds beside {called(self.ledger, incumbent)}")
                differences = self._screening(number, arm, incumbent, seeds[:count])
                rule = self.campaign.rule(simpler=self._is_simpler(number, incumbent))
                if (outcome := rule.screen(differences)) != "more":
                    break
            if outcome != "pass":
                screened = _finite(float(np.mean(differences)))
                return replace(
                    self._decided(number, incumbent, "discard", "screen", len(differences)), screened=screened
                ), None
            while (grant := self.ledger.granted(number, incumbent)) is None:
                level, fresh = rule.granted(confirmations(self.ledger)), self.ledger.fresh_seeds(rule.looks()[-1])
                self.ledger.append(Granted(number, incumbent, level, fresh))
        elif more:
            count = math.ceil(more / rule.step) * rule.step
            while not self.ledger.append(Granted(number, incumbent, grant.level, self.ledger.fresh_seeds(count))):
                pass
            grant = self.ledger.granted(number, incumbent) or grant
        rule = self.campaign.rule(simpler=self._is_simpler(number, incumbent))
        confirmed = self._confirm(number, arm, incumbent, rule, grant)
        ruling = confirmed.ruling
        kept = ruling.verdict == "keep" or (ruling.verdict == "equivalent" and rule.simpler)
        return self._decided(number, incumbent, ruling.verdict, "confirm", ruling.seeds, ruling, kept), confirmed

    def _confirm(self, number: int, arm: Arm, incumbent: int, rule: Rule, grant: Granted) -> "_Confirmed":
        """Train both on fresh seeds until a look decides."""
        name = f"{self.campaign.name}.{number}.confirm" + f"-{incumbent}" * (incumbent != FIRST)
        candidate = self.ledger.asked(number).candidate
        candidate = f"{candidate}.candidate" if candidate == INCUMBENT else candidate
        counts = range(rule.looks()[0], len(grant.seeds) + 1, rule.step)
        for look, count in enumerate(counts):
            _say(f"{candidate}: {count} of at most {counts[-1]} fresh seeds")
            study = self._study(name, {INCUMBENT: self.arm(incumbent), candidate: arm}, grant.seeds[:count])
            results = self._train(study)
            one, other = self._values(results, candidate), self._values(results, INCUMBENT)
            differences = self._differences(one, other, grant.seeds[:count])
            ruling = rule.confirm(differences, grant.level, look)
            if ruling.verdict != "more":
                break
        return _Confirmed(rule, grant, differences, ruling)

    def _screening(self, number: int, arm: Arm, incumbent: int, seeds: Sequence[int]) -> list[float]:
        """The candidate minus the incumbent on the first screening seeds."""
        against = self._train(self._study(self._screened(incumbent), {INCUMBENT: self.arm(incumbent)}, seeds))
        candidate = self.ledger.asked(number).candidate
        study = self._study(f"{self.campaign.name}.{number}", {candidate: arm}, seeds)
        results = self._train(study, retry_failed=all(self._failures(study.name)))
        if all(failures := self._failures(study.name)):
            raise ContrasweepError(
                f"every trial of the candidate {candidate} failed, so nothing is decided and no level is spent; "
                f"mend it, and the same command runs it again: {failures[0]}"
            )
        return self._differences(self._values(results, candidate), self._values(against, INCUMBENT), seeds)

    def _screened(self, incumbent: int) -> str:
        return f"{self.campaign.name}.{INCUMBENT}-{incumbent}"

    def _study(self, name: str, arms: dict[str, Arm], seeds: Sequence[int]) -> AblationGrid:
        campaign = self.campaign
        axes = {DATA_AXIS: campaign.datasets} if len(campaign.datasets) > 1 else {}
        return AblationGrid(
            name,
            arms,
            campaign.datasets[0],
            axes,
            folds=campaign.folds,
            metric=campaign.metric,
            mode=campaign.mode,
            seeds=list(seeds),
            description=campaign.description,
            reference=INCUMBENT if INCUMBENT in arms else None,
        )

    def _failures(self, study: str) -> list[str]:
        """A line for each failed trial of a study, an empty one for any other."""
        try:
            records = Results.load(study, self.storage).trial_records.values()
        except SpecError:
            return [""]
        return [failure_line(record, self.storage) if record.status.failed else "" for record in records] or [""]

    def _train(self, study: AblationGrid, *, retry_failed: bool = False) -> Results:
        """Train a study, and once more what failed for a cause outside the method; count what it took."""
        before = self._measured(study.name)
        for _ in range(2):
            results = self._run(study, retry_failed)
            if results.stopped:
                raise ContrasweepError(f"{study.name} was stopped ({results.stopped}); the same command goes on")
            if not (missing := [r for r in results.trial_records.values() if r.missing]):
                break
        else:
            raise ContrasweepError(
                f"{len(missing)} trials of {study.name} are missing for a cause outside the method "
                f"({missing[0].cause or missing[0].status}); nothing was decided, and the same command runs them again"
            )
        after = self._measured(study.name)
        self.trials, self.hours = self.trials + after[0] - before[0], self.hours + after[1] - before[1]
        return results

    def _run(self, study: AblationGrid, retry_failed: bool) -> Results:
        """Run a study, or wait while another process that needs it too does so."""
        told = False
        while True:
            try:
                return run(
                    study, storage=self.storage, extend=True, quiet=True, retry_failed=retry_failed, **self.options
                )
            except StudyHeld as held:
                if not told:
                    _say(f"{held}; waiting for it")
                told = True
                time.sleep(WAIT_S)

    def _measured(self, study: str) -> tuple[int, float]:
        """How many trials of a study have ended, and their hours of training."""
        try:
            records = Results.load(study, self.storage).trial_records.values()
        except SpecError:
            return 0, 0.0
        return len(records), sum(record.seconds or 0.0 for record in records) / 3600

    def _values(self, results: Results, arm: str, metric: str = "") -> dict[int, float]:
        """By seed the mean of an arm over datasets and folds; NaN where a trial failed."""
        metric = metric or self.campaign.metric
        frame = results.to_frame()
        frame = frame[frame["arm"] == arm]
        if metric not in frame:
            return dict.fromkeys(map(int, frame["seed"]), math.nan)
        values = frame[metric].where(np.isfinite(frame[metric].astype(float)))
        by_seed = values.groupby(frame["seed"]).agg(lambda one: one.mean(skipna=False))
        return dict(zip(map(int, by_seed.index), map(float, by_seed), strict=True))

    def _differences(self, one: dict[int, float], other: dict[int, float], seeds: Sequence[int]) -> list[float]:
        """The candidate minus the incumbent by seed, as `Rule` takes them: a failure of one is its worst loss."""
        best = math.inf if self.campaign.mode == "max" else -math.inf

        def difference(candidate: float, incumbent: float) -> float:
            if math.isnan(incumbent):
                return 0.0 if math.isnan(candidate) else best
            return candidate - incumbent

        return [difference(one[seed], other[seed]) for seed in seeds]

    def _is_simpler(self, number: int, incumbent: int) -> bool:
        """Whether the candidate's size is smaller on the screening seeds."""
        if self.campaign.size is None:
            return False
        candidate = self.ledger.asked(number).candidate
        sizes = []
        for study, arm in ((f"{self.campaign.name}.{number}", candidate), (self._screened(incumbent), INCUMBENT)):
            values = [*self._values(Results.load(study, self.storage), arm, self.campaign.size).values()]
            sizes.append(float(np.median(values)) if values else math.nan)
        return sizes[0] < sizes[1]

    def _decided(
        self,
        number: int,
        incumbent: int,
        verdict: Any,
        stage: Any,
        seeds: int,
        ruling: Ruling | None = None,
        kept: bool = False,
    ) -> Decided:
        decided = Decided(number, incumbent, verdict, stage, kept, seeds, self.trials, self.hours)
        if ruling is None:
            return decided
        estimate, low, high = map(_finite, (ruling.estimate, ruling.low, ruling.high))
        return replace(
            decided,
            estimate=estimate,
            low=low,
            high=high,
            confidence=ruling.confidence,
            p=ruling.p,
            reason=as_label(ruling.why),
        )

    def _known(self, number: int) -> Decision | None:
        return decision_of(self.ledger, number, self.campaign.metric)

    def _advised(self, decision: Decision, confirmed: "_Confirmed") -> Decision:
        """The decision with what would decide it."""
        rule, there = confirmed.rule, len(confirmed.differences)
        a_seed = 2 * len(self.campaign.datasets) * (self.campaign.folds or 1)
        trials, hours = self.ledger.spent
        for seeds in range(rule.step, MOST_TIMES * there + 1, rule.step):
            chance = rule.chance(confirmed.differences, confirmed.grant.level, seeds)
            if chance >= ENOUGH or seeds + rule.step > MOST_TIMES * there:
                more = More(seeds, seeds * a_seed, seeds * a_seed * hours / max(1, trials), chance)
                return replace(decision, more=more)
        return decision

    def _check_budget(self, expected: Outlook) -> None:
        """Raise `SpecError` where the decision could take more than is left, or keep nothing; nothing was spent."""
        rule, last = self.campaign.rule(), len(self.campaign.rule().looks()) - 1
        if 0.5 ** rule.looks()[last] > rule.look_level(expected.level, last):
            raise SpecError(
                f"no result of {rule.looks()[last]} seeds reaches the level of the next confirmation, "
                f"{expected.level:.2g}",
                place="seeds.most",
                value=self.campaign.seeds.most,
                hint="declare a campaign of more seeds; 32 suffice for any",
            )
        needed = expected.screening_trials + expected.confirmation_trials
        if expected.trials_left is not None and needed > expected.trials_left:
            raise SpecError(
                f"a decision takes {needed} trials at most, and {expected.trials_left} are left",
                place="budget_trials",
                value=self.campaign.budget_trials,
                hint=f"at least {needed - expected.trials_left} more",
            )
        if expected.hours_left is not None and (expected.hours or 0.0) > expected.hours_left:
            raise SpecError(
                f"a decision takes {duration(expected.hours or 0.0)} at most, and "
                f"{duration(max(0.0, expected.hours_left))} are left",
                place="budget_hours",
                value=self.campaign.budget_hours,
            )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _say(line: str) -> None:
    """Tell whoever waits what goes on; the answer alone is on standard output."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class _Confirmed:
    """A confirmation as far as it went."""

    rule: Rule
    grant: Granted
    differences: Sequence[float]
    ruling: Ruling
