"""A campaign: one incumbent, a stream of candidates, one metric, one level for the whole stream.

A candidate is screened, and confirmed on fresh seeds, each by ordinary studies of the storage:

    CAMPAIGN.incumbent-N    the incumbent (of entry N) on the seeds that candidates are screened on, trained once
    CAMPAIGN.N              the candidate of entry N on the same seeds
    CAMPAIGN.N.confirm      both on fresh seeds; CAMPAIGN.N.confirm-M: against a later incumbent, of entry M. A simpler
                            candidate is compared with the last one that was kept for being better too

So reports, logs and trackers show them as any study. What a kill leaves is trained no second time: the same call finds
its entry by the digest of the candidate, and its trials by their records.
"""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

import numpy as np
import pydantic

from contrasweep import canonical
from contrasweep.campaign.decision import (
    INCUMBENT,
    Decision,
    More,
    Outlook,
    called,
    confirmations,
    decision_of,
)
from contrasweep.campaign.history import History, history_of
from contrasweep.code import CurrentCode
from contrasweep.config import MutableConfig
from contrasweep.defaults import STORAGE
from contrasweep.errors import BrokenFileError, ContrasweepError, SpecError, choose_from, plural
from contrasweep.planning.budget import Spent
from contrasweep.planning.planner import plan
from contrasweep.results.ledger import FIRST, Asked, Began, Decided, Granted, Ledger, campaign_names
from contrasweep.results.results import Results
from contrasweep.running.driver import run
from contrasweep.running.failures import failure_line
from contrasweep.running.session import session
from contrasweep.schema import checked, validate
from contrasweep.statistics.noise import read_noise
from contrasweep.statistics.referee import Gains, Rule, Ruling, smaller
from contrasweep.storage.lease import StudyHeld
from contrasweep.storage.names import as_label
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm import Arm
from contrasweep.study.base import Alpha, Difference, Folds, check_metric
from contrasweep.study.file import built, load_declared, to_plain, with_sets
from contrasweep.study.grid import DATA_AXIS, AblationGrid
from contrasweep.study.metric_range import metric_range
from contrasweep.study.replicates import Above0, Positive
from contrasweep.study.trust import check_named

if TYPE_CHECKING:
    from contrasweep.running.prepare import Changed

ENOUGH = 0.8
"""The chance of a decision at which no more seeds are advised."""
MOST_TIMES = 4
"""How many times the seeds of a confirmation are advised at most."""
BETTER = f"{INCUMBENT}.better"
"""The arm of the last incumbent that was kept for being better, where a simpler one has followed it."""
WAIT_S = 2.0


class RunOptions(TypedDict, total=False):
    """Arguments of `run` that a decision passes on, by the same names; those that are left out have their defaults."""

    tracking: str | Sequence[str] | None
    changed: "Changed"
    max_concurrent: int | None
    cluster: Path | None


@checked
class CampaignSeeds:
    """On how many seeds a candidate is judged.

    It is screened at `first`, `first + step` and `first + 2 step` seeds. Then it is confirmed on fresh ones, of which
    there are `first + step` at the first look, and `step` more at each later one.

    Args:
        first: Seeds of the first look at a candidate.
        step: Seeds that are added at a time.
        most: Fresh seeds of a confirmation at most.
    """

    first: Positive = 4
    step: Positive = 4
    most: Positive = 32


@checked
class Campaign:
    """A stream of candidates, each kept or discarded against one incumbent, with the error held over the stream.

    Args:
        name: Its name in the storage: letters, digits and `._-`, at most 60.
        incumbent: The method that candidates have to beat. A candidate that is kept is the next incumbent.
        data: The dataset, or several: a candidate is then judged by the mean over them.
        metric: The reported metric by which it is judged.
        mode: Whether a larger (`max`) or a smaller (`min`) value is better.
        smallest_difference: The smallest difference of interest, in units of the metric. Needed for `equivalent`.
        alpha: The level of all decisions together.
        error: What alpha bounds: the chance of any false keep (`family`), or the share of false ones of what is kept
            (`fdr`).
        seeds: On how many seeds a candidate is judged.
        folds: Folds that every seed trains; its value is their mean. Default: the test split alone.
        size: A reported metric, such as `parameters` or `seconds`, by which a candidate is simpler where it is smaller.
            A simpler one is kept where it is not worse by `smallest_difference` than the incumbent, and than the last
            one that was kept for being better. A size that differs by seed is tested as the metric is.
        noise: The file that `contrasweep noise --json` wrote of the incumbent. Where its A/A has failed nothing is
            decided, and else a dry run says what can be detected.
        budget_trials: Trials of all decisions together.
        budget_gpu_hours: GPU-hours of all decisions together; where there is no GPU, hours of training.
        description: What the campaign is after.
        type: The kind of file: `campaign`.

    Raises:
        SpecError: A field breaks a rule.

    Example:
        >>> import contrasweep as cs
        >>> speed = cs.Campaign("speed", cs.Arm("contrastive", {"loss": "supcon"}), "digits-lt")
        >>> speed.rule().looks()
        (8, 12, 16, 20, 24, 28, 32)
    """

    name: Annotated[
        str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)
    ]
    incumbent: Arm
    data: str | Annotated[list[str], pydantic.Field(min_length=1)]
    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    smallest_difference: Difference | None = None
    alpha: Alpha = 0.05
    error: Literal["family", "fdr"] = "family"
    seeds: CampaignSeeds = pydantic.Field(default_factory=CampaignSeeds)
    folds: Folds | None = None
    size: str | None = None
    noise: str | None = None
    budget_trials: Positive | None = None
    budget_gpu_hours: Above0 | None = None
    description: str = ""
    type: Literal["campaign"] = "campaign"

    def __post_init__(self) -> None:
        """Raise `SpecError` where fields break a rule together."""
        check_metric(self.metric)
        if self.incumbent.space:
            raise SpecError(
                "a campaign searches nothing",
                place="incumbent.space",
                hint="set a value in its config",
            )
        if self.size is not None and self.smallest_difference is None:
            raise SpecError(
                "a campaign with `size` declares a smallest difference, within which the simpler arm wins",
                place="smallest_difference",
                hint="for example smallest_difference: 0.01",
            )
        self.rule()  # checks the seeds

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets, as a list also where there is one."""
        return [self.data] if isinstance(self.data, str) else self.data

    def grid(self, arms: dict[str, Arm], seeds: Sequence[int], name: str = "") -> AblationGrid:
        """Return the study of these arms on the data of the campaign; it has the campaign's name where `name` is ""."""
        return AblationGrid(
            name or self.name,
            arms,
            self.datasets[0],
            {DATA_AXIS: self.datasets} if len(self.datasets) > 1 else {},
            folds=self.folds,
            metric=self.metric,
            mode=self.mode,
            seeds=list(seeds),
            description=f"Of campaign {self.name}. {self.description}".rstrip(),
            reference=INCUMBENT if INCUMBENT in arms else None,
        )

    def rule(self, *, simpler: bool = False) -> Rule:
        """Return the rule by which a candidate is kept.

        With `simpler`, the candidate need not be better, only not worse by the smallest difference.
        """
        return Rule(
            self.alpha,
            self.error,
            **vars(self.seeds),
            margin=self.smallest_difference,
            mode=self.mode,
            simpler=simpler,
        )

    def declared(self) -> MutableConfig:
        """Return the fields that may not change while the campaign goes on: all but budgets, noise and description."""
        # The incumbent's trainable is told by its path, so that a function and its path are one declaration.
        fields = {
            k: v
            for k, v in to_plain(self).items()
            if not k.startswith(("budget", "noise", "descr"))
        }
        return fields | {"incumbent": plain_arm(self.incumbent)}

    def decide(
        self,
        candidate: Arm,
        name: str,
        *,
        storage: str = STORAGE,
        by: str = "",
        why: str = "",
        more: int = 0,
        **options: Unpack[RunOptions],
    ) -> Decision:
        """Train what is needed to decide on a candidate, and return the decision.

        The same call goes on after an interruption. A candidate that was decided costs nothing. Ray goes on until this
        process ends, for the next decision; in a `with contrasweep.session()` until that ends.

        Args:
            candidate: The candidate, with all of its settings.
            name: What it is called.
            storage: The folder or address where the ledger and the trials lie.
            by: Who asks: a person or an agent.
            why: Why it is tried.
            more: Fresh seeds beyond `seeds.most`, for a candidate that is undecided.
            options: `tracking`, `changed`, `max_concurrent` and `cluster`, as for `contrasweep.run`.

        Returns:
            The verdict with the estimate of the fresh seeds.

        Raises:
            ContrasweepError: The input is wrong or the budget does not suffice, and nothing was trained; or all trials
                of the candidate failed, or did not read a setting, and nothing is decided.
        """
        with session(of_process=True):
            return Referee(self, storage, options).decide(candidate, name, by, why, more)

    def outlook(
        self, candidate: Arm, name: str, *, storage: str = STORAGE, more: int = 0
    ) -> Outlook:
        """Return what a decision would take; nothing is trained or written.

        Args:
            candidate: The candidate.
            name: What it is called.
            storage: The folder or address where the ledger lies.
            more: As for `decide`.

        Raises:
            ContrasweepError: The candidate cannot be planned or be kept, or the budget does not suffice.
        """
        return Referee(self, storage, {}).outlook(candidate, name, more)

    def history(self, *, storage: str = STORAGE) -> History:
        """Return what was decided so far: every candidate with its decision, and the incumbent and level of now.

        Args:
            storage: The folder or address where the ledger lies.
        """
        return history_of(Referee(self, storage, {}).ledger, self.metric, self.rule())

    def incumbent_now(self, *, storage: str = STORAGE) -> Arm:
        """Return the incumbent of now: the last candidate that was kept, or the declared one.

        Args:
            storage: The folder or address where the ledger lies.
        """
        referee = Referee(self, storage, {})
        return referee.arm(referee.ledger.incumbent)


def plain_arm(arm: Arm) -> MutableConfig:
    """Return an arm as the plain values of a file, its trainable by dotted path."""
    return dict(to_plain(arm)) | {"trainable": arm.path}


def load_campaign(name: str) -> Campaign:
    """Return the campaign at `module:NAME` or in a YAML file; `SpecError` where there is none, or it breaks a rule."""
    return load_declared(name, (Campaign,), partial(built, Campaign), "CAMPAIGN")


def stored_history(name: str, storage: str) -> History:
    """Return what the campaign of this name has decided so far, as its ledger declares it.

    `SpecError` where the storage has none of this name, `BrokenFileError` where its declaration breaks a rule.
    """
    ledger = Ledger(storage, name).read()
    if ledger.began is None:
        names = list(campaign_names(storage))
        hint = (
            choose_from("campaigns", names, name)
            if names
            else "it begins with its first: contrasweep decide"
        )
        raise SpecError(
            f"no campaign of this name is in {storage}", place="CAMPAIGN", value=name, hint=hint
        )
    try:
        campaign: Campaign = validate(Campaign, dict(ledger.began.declared))
    except SpecError as error:
        where = f"{ledger.store.uri}/{name}/campaign.json"
        raise BrokenFileError(where, str(error), "restore it from a backup") from None
    return history_of(ledger, campaign.metric, campaign.rule())


def load_candidate(name: str, incumbent: Arm, sets: Sequence[str] = ()) -> Arm:
    """Return the arm at `module:NAME` or in a YAML file, with the fields changed that `sets` names (PATH=VALUE).

    Where `name` is the word `incumbent` it is the arm `incumbent`, that of now, that is changed.
    """
    if name == INCUMBENT:
        return built(Arm, with_sets(plain_arm(incumbent), sets), name)
    return load_declared(name, (Arm,), partial(built, Arm), "CANDIDATE", sets)


@dataclass
class Referee:
    """A campaign with its ledger in a storage, as it decides on one candidate.

    `options` are those of `run`. `candidate` is the arm that is decided on, once it is known. Candidates and incumbents
    go by their numbers in the ledger, the declared incumbent by `FIRST`. `SpecError` where the storage has a campaign
    of this name that was declared otherwise.
    """

    campaign: Campaign
    storage: str
    options: RunOptions
    ledger: Ledger = field(init=False)
    candidate: Arm | None = None

    def __post_init__(self) -> None:
        """Read the ledger, and compare what it declares, field by field, with the campaign."""
        self.ledger = Ledger(self.storage, self.campaign.name).read()
        if self.ledger.began is None:
            return
        there = self.ledger.began.declared
        here = self.campaign.declared()
        for name in {**there, **here}:
            if not canonical.same(there.get(name), here.get(name)):
                raise SpecError(
                    "a campaign of this name is declared otherwise in this storage, and its level holds for that one",
                    place=name,
                    value=here.get(name),
                    hint=f"there it is {there.get(name)}; declare another campaign for another question",
                )

    def arm(self, number: int) -> Arm:
        """Return the incumbent or candidate with this number, as an arm.

        `SpecError` where it names code that neither the declared incumbent nor the candidate names: a ledger may name
        any.
        """
        if number == FIRST:
            return self.campaign.incumbent
        stored = dict(self.ledger.asked(number).arm)
        arms = [plain_arm(self.campaign.incumbent)]
        if self.candidate is not None:
            arms.append(plain_arm(self.candidate))
        check_named(stored, arms, "incumbent", "name it in the candidate")
        return validate(Arm, stored)  # type: ignore[no-any-return]

    def digest(self, name: str, arm: Arm) -> str:
        """Return the digest of a candidate's settings and code, 16 hexadecimal digits: by it the ledger knows it again.

        `name` is the name of the arm. Raises `SpecError` where it cannot be planned, or its function is in no module.
        """
        if arm.path.startswith("__main__:") or "<" in arm.path:
            raise SpecError(
                "a ledger names a trainable by its module, where later processes find it",
                place="trainable",
                value=arm.path,
                hint="put the function into a module, and import it where you call decide",
            )
        # All trials of the arm have the same settings but for seed and fold: one of them says which.
        planned = plan(self._study(self.campaign.name, {name: arm}, [0]), storage=self.storage)
        trial = planned.sample_trials[0]
        code = CurrentCode(planned.study.functions).of(trial.trainable, trial.config).version.digest
        return canonical.digest(
            {"trainable": trial.trainable, "config": dict(trial.config), "code": code}, 16
        )

    def outlook(self, candidate: Arm, name: str, more: int = 0) -> Outlook:
        """Return what a decision on a candidate would cost, or `more` seeds of one that is undecided.

        Nothing is trained or written. Raises `SpecError` where the decision could keep nothing, or exceeds the budget.
        """
        noise = (
            read_noise(self.campaign.noise, self.campaign.metric) if self.campaign.noise else None
        )
        self.candidate = candidate
        # Raises where the incumbent's code is not one that the user names, before anything is trained.
        self.arm(self.ledger.incumbent)
        rule = self.campaign.rule()
        most = rule.looks()[-1]
        ledger = self.ledger
        digest = self.digest(name, candidate)
        number = ledger.number_of(digest)
        incumbent = ledger.incumbent
        decided = None if number is None else self._known(number)
        grant = None if number is None else ledger.granted(number, incumbent)
        spent = ledger.spent
        a_seed = len(self.campaign.datasets) * (
            self.campaign.folds or 1
        )  # trials of an arm on one seed
        # More seeds for an undecided candidate belong to its confirmation; any other is screened before.
        if decided is not None and decided.verdict == "undecided" and more:
            decided = None
            screening = 0
            confirmation = self._compared(incumbent) * self._rounded(more) * a_seed
        else:
            # The incumbent is trained on the screening seeds once for all candidates.
            is_trained = any(
                isinstance(e, Decided) and e.incumbent == incumbent for e in ledger.entries
            )
            screening = rule.screens()[2] * a_seed * (1 if is_trained else 2)
            confirmation = self._compared(incumbent) * most * a_seed
        # Taken as if each trial spends what the campaign's trials have spent so far, on average.
        takes = spent.of_trials(screening + confirmation) if spent.trials else None
        level = grant.level if grant else rule.granted(confirmations(ledger))
        expected = Outlook(
            campaign=self.campaign.name,
            candidate=name,
            digest=digest,
            incumbent=called(ledger, incumbent),
            decided=decided,
            screening_trials=screening,
            confirmation_trials=confirmation,
            gpu_hours=takes.gpu_hours if takes else None,
            cost=takes.cost if takes else None,
            level=level,
            trials_left=self._left("trials"),
            gpu_hours_left=self._left("gpu_hours"),
            # The level is one-sided, and `detectable` takes one of two sides; at worst, as runs that share nothing.
            detects=noise.detectable(most, 2 * level)[1] if noise and level else None,
        )
        if decided is None:
            self._check(expected, takes)
        return expected

    def _compared(self, incumbent: int) -> int:
        """Return how many arms a confirmation against this incumbent trains at most: the two, perhaps `BETTER` too."""
        return 2 + (
            self.campaign.size is not None
            and self.ledger.better_than_all_before(incumbent) != incumbent
        )

    def _rounded(self, more: int) -> int:
        """Return how many seeds are added where `more` are asked for: whole steps, rounded up."""
        step = self.campaign.seeds.step
        return math.ceil(more / step) * step

    def decide(self, candidate: Arm, name: str, by: str, why: str, more: int) -> Decision:
        """Decide on a candidate, or go on with a decision that was begun.

        Arguments and errors as of `Campaign.decide`.
        """
        expected = self.outlook(candidate, name, more)
        if expected.decided is not None:
            return replace(expected.decided, remembered=True)
        if self.ledger.began is None:
            # Another process may have begun the campaign just now, otherwise declared: that is checked again.
            self.ledger.append(Began(self.campaign.declared(), self.campaign.rule().screens()[2]))
            self.__post_init__()
        # Another process may write an entry first; then this one reads it and tries again.
        while (number := self.ledger.number_of(expected.digest)) is None:
            self.ledger.append(
                Asked(name, plain_arm(candidate), expected.digest, as_label(by), as_label(why))
            )
        while True:
            incumbent = self.ledger.incumbent
            # Training takes hours, in which another candidate may become the incumbent: then this one is compared anew.
            before = self.ledger.decision(number)
            decided, advice = self._against(number, candidate, incumbent, more)
            while True:
                # A gain over the former incumbent says nothing of the present one; a loss to it stands.
                if self.ledger.incumbent != incumbent and decided.verdict != "discard":
                    decided = replace(decided, superseded=True, kept=False)
                if self.ledger.append(decided):
                    break  # else another entry was written meanwhile
                if self.ledger.decision(number) != before:
                    known = self._known(number)
                    if known is not None:
                        return known  # it was of this candidate, which somebody else asked too
            if not decided.superseded:
                found = self._known(number)
                assert found is not None
                return replace(found, more=advice)
            now = called(self.ledger, self.ledger.incumbent)
            _say(f"{now} is the {INCUMBENT} by now: {name} is compared with it again")
            more = 0

    def _against(
        self, number: int, arm: Arm, incumbent: int, more: int
    ) -> tuple[Decided, More | None]:
        """Screen and confirm a candidate against one incumbent. The verdict is returned, and not yet in the ledger.

        Args:
            number: That of the candidate.
            arm: The candidate.
            incumbent: The number of the incumbent.
            more: Fresh seeds to add to a confirmation that was granted before; 0: none.

        Returns:
            The entry for the ledger, and what would decide an undecided candidate (None for any other).
        """
        # A confirmation that was granted has passed its screen before.
        grant = self.ledger.granted(number, incumbent)
        rule = self.campaign.rule()
        if grant is None:
            seeds = self.ledger.screening_seeds(incumbent)
            for count in rule.screens():
                _say(
                    f"{self.ledger.asked(number).candidate}: {plural(count, 'seed')} beside "
                    f"{called(self.ledger, incumbent)}"
                )
                differences = self._screening(number, arm, incumbent, seeds[:count])
                rule = self.campaign.rule(simpler=self._is_simpler(number, incumbent))
                if (outcome := rule.screen(differences)) != "more":
                    break
            if outcome != "pass":
                decided = self._decided(number, incumbent, "discard", "screen", len(differences))
                screened = _finite(float(np.mean(differences)))
                fell = Gains(differences).fell
                return replace(decided, screened=screened, fell=fell), None
            # Another decision may be writing to the ledger: the level is that of the entry that came first.
            while (grant := self.ledger.granted(number, incumbent)) is None:
                # no level is spent on one that is no incumbent any more
                if self.ledger.incumbent != incumbent:
                    return self._decided(
                        number, incumbent, "undecided", "screen", len(differences)
                    ), None
                level = rule.granted(confirmations(self.ledger))
                fresh = self.ledger.fresh_seeds(rule.looks()[-1])
                self.ledger.append(Granted(number, incumbent, level, fresh))
        elif more:
            count = self._rounded(more)
            while not self.ledger.append(
                Granted(number, incumbent, grant.level, self.ledger.fresh_seeds(count))
            ):
                pass
            grant = self.ledger.granted(number, incumbent) or grant
        rule = self.campaign.rule(simpler=self._is_simpler(number, incumbent))
        differences, ruling, is_kept = self._confirm(number, arm, incumbent, rule, grant)
        decided = self._decided(number, incumbent, ruling.verdict, "confirm", ruling.seeds)
        estimate, low, high = map(_finite, (ruling.estimate, ruling.low, ruling.high))
        decided = replace(
            decided,
            kept=is_kept,
            estimate=estimate,
            low=low,
            high=high,
            confidence=ruling.confidence,
            p=ruling.p,
            reason=as_label(ruling.why),
            # How deep seeds of the candidate collapsed: on fresh seeds or, where none did, in the screen.
            fell=Gains(differences).fell
            or Gains(self._screened_differences(number, incumbent)).fell,
            allowed=(rule.simpler and rule.margin) or 0.0,
        )
        undecided = ruling.verdict == "undecided"
        return decided, self._advice(rule, grant, differences) if undecided else None

    def _confirm(
        self, number: int, arm: Arm, incumbent: int, rule: Rule, grant: Granted
    ) -> tuple[list[float], Ruling, bool]:
        """Train both on fresh seeds until a look decides, or all granted seeds are trained.

        Args:
            number: That of the candidate.
            arm: The candidate.
            incumbent: The number of the incumbent.
            rule: The rule, which says whether the candidate is simpler.
            grant: The level and the seeds, of which each look takes more.

        Returns:
            Candidate minus incumbent for each seed of the last look, its ruling, and whether the candidate is kept.
        """
        name = self.ledger.confirmation_study(number, incumbent)
        candidate = self.ledger.asked(number).candidate
        # A study has no two arms of one name.
        candidate = f"{candidate}.candidate" if candidate in (INCUMBENT, BETTER) else candidate
        # Seeds at each look; grants of more seeds make further looks, in the same steps.
        counts = range(rule.looks()[0], len(grant.seeds) + 1, rule.step)
        arms = {INCUMBENT: self.arm(incumbent), candidate: arm}
        better = self.ledger.better_than_all_before(incumbent)
        if rule.simpler and better != incumbent:
            arms[BETTER] = self.arm(better)
        screened = self._screened_differences(number, incumbent)
        falls = [entry.fell for entry in self.ledger.entries if isinstance(entry, Decided)] + [
            Gains(screened).fell
        ]
        bounds = metric_range(self.campaign.metric)
        best = self.campaign.mode == "max"
        for look, count in enumerate(counts):
            _say(f"{candidate}: {count} of at most {counts[-1]} fresh seeds")
            seeds = grant.seeds[:count]
            results = self._train(self._study(name, arms, seeds))
            values = self._values(results, candidate)
            other = self._values(results, INCUMBENT)
            differences = self._differences(values, other, seeds)
            scores = [values[seed] for seed in seeds if math.isfinite(values[seed])]
            # How far a collapse, which no seed has shown, could fall: to the end of the metric's range.
            depth = (
                abs(float(np.mean(scores)) - bounds[0 if best else 1]) if bounds and scores else 0.0
            )
            confirm = partial(
                rule.confirm,
                level=grant.level,
                look=look,
                screened=screened,
                falls=falls,
                depth=depth,
            )
            ruling = confirm(differences)
            is_kept = ruling.verdict == "keep"
            why = ""  # a simpler candidate is not kept
            # A simpler candidate is also held against the last better one: small losses would add up otherwise.
            if ruling.verdict == "equivalent" and rule.simpler:
                sizes = [
                    self._values(results, which, self.campaign.size or "")
                    for which in (INCUMBENT, candidate)
                ]
                # Its savings on the fresh seeds, tested at the level of this look.
                if not smaller(
                    [sizes[0][s] - sizes[1][s] for s in seeds], rule.look_level(grant.level, look)
                ):
                    why = f"its {self.campaign.size} is not surely smaller"
                elif BETTER in arms:
                    since = confirm(self._differences(values, self._values(results, BETTER), seeds))
                    if since.verdict not in ("keep", "equivalent"):
                        last_better = called(self.ledger, better)
                        why = f"it may be worse by {rule.margin:g} than {last_better}, the last better one"
                is_kept = not why
                # More seeds may show what is not sure yet; at the last look it stays equivalent, and is not kept.
                if why:
                    ruling = replace(
                        ruling, verdict="more" if look < len(counts) - 1 else "equivalent", why=why
                    )
            # The rule calls a look `undecided` at its last number of seeds; where more were granted, looks go on.
            if ruling.verdict not in ("more", "undecided"):
                break
        return differences, ruling, is_kept

    def _of_screen(
        self, number: int, incumbent: int, metric: str = ""
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Return seed -> value, of a candidate and of the incumbent, for all screening seeds that each has trained.

        `metric` "": the campaign's.
        """
        study = self.ledger.candidate_study(number)
        other = self.ledger.screening_study(incumbent)
        values = self._values(
            Results.load(study, self.storage), self.ledger.asked(number).candidate, metric
        )
        return values, self._values(Results.load(other, self.storage), INCUMBENT, metric)

    def _screened_differences(self, number: int, incumbent: int) -> list[float]:
        """Return candidate minus incumbent, as `_differences`, on all screening seeds that both have trained."""
        values, theirs = self._of_screen(number, incumbent)
        seeds = [
            seed
            for seed in self.ledger.screening_seeds(incumbent)
            if seed in values and seed in theirs
        ]
        return self._differences(values, theirs, seeds)

    def _screening(
        self, number: int, arm: Arm, incumbent: int, seeds: Sequence[int]
    ) -> list[float]:
        """Train both on these screening seeds, where they are not trained, and return candidate minus incumbent.

        `ContrasweepError` where all trials of either failed, `SpecError` where the candidate has a setting that no
        trial reads.
        """
        screening = self.ledger.screening_study(incumbent)
        against = self._screened(
            self._study(screening, {INCUMBENT: self.arm(incumbent)}, seeds),
            called(self.ledger, incumbent),
        )
        candidate = self.ledger.asked(number).candidate
        study = self._study(self.ledger.candidate_study(number), {candidate: arm}, seeds)
        results = self._screened(study, f"the candidate {candidate}")
        if unread := results.unused_settings:
            raise SpecError(
                f"a candidate is judged by settings that its trials read: {unread[0]}",
                place="CANDIDATE",
                value=candidate,
                hint="mend the name of the setting, or leave it out; nothing is decided",
            )
        return self._differences(
            self._values(results, candidate), self._values(against, INCUMBENT), seeds
        )

    def _screened(self, study: AblationGrid, who: str) -> Results:
        """Train a study of screening seeds; `ContrasweepError` where all of its trials fail.

        Where all have failed before, they run again: somebody may have mended what was wrong. `who` is for the message.
        """
        results = self._train(study, retry_failed=all(self._failures(study.name)))
        if all(failures := self._failures(study.name)):
            raise ContrasweepError(
                f"every trial of {who} failed, so nothing is decided and no level is spent; "
                f"mend it, and the same command runs it again: {failures[0]}"
            )
        return results

    def _study(self, name: str, arms: dict[str, Arm], seeds: Sequence[int]) -> AblationGrid:
        """Return the study `name` of these arms on these seeds, and on those that it has trained before."""
        # A candidate that meets a later incumbent begins with few seeds again; what it has trained stays declared.
        document = StudyRecords(self.storage, name).document()
        earlier = document.declared.get("seeds") if document is not None else None
        return self.campaign.grid(
            arms, [*seeds, *(seed for seed in earlier or () if seed not in seeds)], name
        )

    def _failures(self, study: str) -> list[str]:
        """Return for each ended trial of a study the line on its failure, "" where it did not fail.

        [""] without trials, so that "all have failed" is false then.
        """
        try:
            records = Results.load(study, self.storage).trial_records.values()
        except SpecError:
            return [""]
        return [
            failure_line(record, self.storage) if record.status.failed else "" for record in records
        ] or [""]

    def _train(self, study: AblationGrid, *, retry_failed: bool = False) -> Results:
        """Train a study within the budget, and once more what failed for a cause outside the method.

        With `retry_failed`, trials that failed before by their method run again too. `SpecError` where the budget is
        used up, `ContrasweepError` where trials are missing after the second time too.
        """
        for _ in range(2):
            # It stops where the campaign's GPU-hours end.
            if (left := self._left("gpu_hours")) is not None:
                # A study's own budget counts all that it has spent, also what the campaign has counted.
                left += self.ledger.measured(study.name).gpu_hours
                study = replace(study, budget_gpu_hours=max(1e-9, left))
            results = self._run(study, retry_failed)
            if results.stopped:
                raise SpecError(
                    "the campaign's budget is used up, and nothing is decided",
                    place="budget_gpu_hours",
                    value=self.campaign.budget_gpu_hours,
                    hint="raise it, and the same command goes on from here",
                )
            if not (missing := [r for r in results.trial_records.values() if r.missing]):
                break
        else:
            raise ContrasweepError(
                f"{study.name} lacks {plural(len(missing), 'trial')} for a cause outside the method "
                f"({missing[0].cause or missing[0].status}); nothing was decided; the same command runs what is missing"
            )
        return results

    def _left(self, budget: str) -> Any:
        """Return what is left of a budget, of `trials` or `gpu_hours` (below 0 where more was spent).

        It is None without a limit.
        """
        limit = getattr(self.campaign, f"budget_{budget}")
        return limit and limit - getattr(self.ledger.spent, budget)

    def _run(self, study: AblationGrid, retry_failed: bool) -> Results:
        """Run a study, or wait while another process that needs it too does so; return its results."""
        announced = False
        while True:
            try:
                return run(
                    study,
                    storage=self.storage,
                    extend=True,
                    quiet=True,
                    retry_failed=retry_failed,
                    **self.options,
                )
            except StudyHeld as held:
                if not announced:
                    _say(f"{held}; waiting for it")
                announced = True
                time.sleep(WAIT_S)

    def _values(self, results: Results, arm: str, metric: str = "") -> dict[int, float]:
        """Return seed -> mean of an arm's metric over datasets and folds.

        NaN where any of a seed's trials has no value.

        `metric` "": the campaign's.
        """
        metric = metric or self.campaign.metric
        frame = results.to_frame()
        frame = frame[frame["arm"] == arm]
        values = frame.reindex(columns=[metric])[metric].astype(float)
        by_seed = values.where(np.isfinite(values)).groupby(frame["seed"])
        return by_seed.agg(lambda scores: scores.mean(skipna=False)).to_dict()  # type: ignore[return-value]

    def _differences(
        self, first: dict[int, float], other: dict[int, float], seeds: Sequence[int]
    ) -> list[float]:
        """Return candidate minus incumbent for each of `seeds`, as `Rule` takes them.

        `first` and `other` are seed -> value of candidate and incumbent. The difference is NaN where the candidate
        alone failed, infinitely good where the incumbent alone did, and 0 where both did.
        """
        best = math.inf if self.campaign.mode == "max" else -math.inf

        def difference(candidate: float, incumbent: float) -> float:
            """Return the difference of two values; NaN minus a number is NaN by itself."""
            if math.isnan(incumbent):
                return 0.0 if math.isnan(candidate) else best
            return candidate - incumbent

        return [difference(first[seed], other[seed]) for seed in seeds]

    def _is_simpler(self, number: int, incumbent: int) -> bool:
        """Return whether the candidate's size is surely smaller on the screening seeds; False without a `size`.

        It is tested at the screen's level or, where so few seeds cannot reach that, at the least p of their number.
        """
        if self.campaign.size is None:
            return False
        sizes, theirs = self._of_screen(number, incumbent, self.campaign.size)
        savings = [theirs[seed] - sizes[seed] for seed in sizes if seed in theirs]
        return smaller(savings, max(self.campaign.rule().screen_level, 0.5 ** len(savings)))

    def _decided(
        self,
        number: int,
        incumbent: int,
        verdict: Any,
        stage: Any,
        seeds: int,
    ) -> Decided:
        """Return the ledger's entry for a verdict at this stage, on so many seeds, with what the candidate has spent.

        It keeps nothing; the caller sets what a confirmation adds.
        """
        spent = self.ledger.spent_on(number)
        return Decided(number, incumbent, verdict, stage, kept=False, seeds=seeds, **asdict(spent))

    def _known(self, number: int) -> Decision | None:
        """Return the ledger's decision on a candidate; None while there is none."""
        return decision_of(self.ledger, number, self.campaign.metric)

    def _advice(self, rule: Rule, grant: Granted, differences: Sequence[float]) -> More | None:
        """Return the fewest seeds more that decide an undecided candidate with a chance of `ENOUGH`, and their cost.

        Where no number up to `MOST_TIMES` the seeds so far does, it is the largest; None where there is none to try.
        """
        a_seed = (
            self._compared(grant.incumbent)
            * len(self.campaign.datasets)
            * (self.campaign.folds or 1)
        )
        spent = self.ledger.spent
        advice = None
        for seeds in range(rule.step, MOST_TIMES * len(differences) + 1, rule.step):
            chance = rule.chance(differences, grant.level, seeds)
            takes = spent.of_trials(seeds * a_seed)
            advice = More(seeds, takes.trials, takes.gpu_hours, takes.cost, chance)
            if chance >= ENOUGH:
                break
        return advice

    def _check(self, expected: Outlook, takes: Spent | None) -> None:
        """Raise `SpecError` for the incumbent itself, or a decision that could keep nothing or exceeds the budget.

        `takes` is what it is expected to spend (None: not known, so that only trials are compared with the budget).
        """
        incumbent = self.ledger.incumbent
        now = (
            self.ledger.asked(incumbent).digest
            if incumbent != FIRST
            else self.digest(INCUMBENT, self.arm(FIRST))
        )
        if now == expected.digest:
            raise SpecError(
                "the candidate has the settings and the code of the incumbent",
                place="CANDIDATE",
                value=expected.candidate,
                hint="change a setting, or put changed code into another file or function",
            )
        rule = self.campaign.rule()
        *_, most = looks = rule.looks()
        # The smallest p of n seeds, where each shows a gain, is 1 / 2^n.
        if 0.5**most > rule.look_level(expected.level, len(looks) - 1):
            raise SpecError(
                f"no result of {most} seeds reaches the level of the next confirmation, "
                f"{expected.level:.2g}",
                place="seeds.most",
                value=self.campaign.seeds.most,
                hint="declare a campaign of more seeds; 32 suffice for any",
            )
        trials_needed = expected.screening_trials + expected.confirmation_trials
        if expected.trials_left is not None and trials_needed > expected.trials_left:
            raise SpecError(
                f"a decision takes {plural(trials_needed, 'trial')} at most, and {expected.trials_left} are left",
                place="budget_trials",
                value=self.campaign.budget_trials,
                hint=f"at least {trials_needed - expected.trials_left} more",
            )
        hours_left = expected.gpu_hours_left
        needs = takes.gpu_hours if takes else 0.0
        if hours_left is not None and needs > hours_left:
            raise SpecError(
                f"a decision takes up to {needs:.3g}, and {max(0.0, hours_left):.3g} are left",
                place="budget_gpu_hours",
                value=self.campaign.budget_gpu_hours,
                hint=f"at least {needs - hours_left:.3g} more",
            )


def _finite(value: float) -> float | None:
    """Return a number for the ledger, which has no infinite ones and no NaN: None in their place."""
    return value if math.isfinite(value) else None


def _say(line: str) -> None:
    """Tell whoever waits what goes on; the answer alone is on standard output."""
    print(line, file=sys.stderr, flush=True)
