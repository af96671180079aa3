"""A campaign: one incumbent, a stream of candidates, one metric, and one level for the whole stream.

A candidate is first screened, and then confirmed on fresh seeds. Ordinary studies of the storage train both stages, so
reports, logs and trackers show them as any study:

    CAMPAIGN.incumbent-N    the incumbent (of entry N) on the seeds of the screen, trained once for all candidates
    CAMPAIGN.N              the candidate of entry N on the same seeds
    CAMPAIGN.N.confirm      both on fresh seeds. A simpler candidate is also compared with the last candidate that was
                            kept for being better, in the same study
    CAMPAIGN.N.confirm-M    the same against a later incumbent, of entry M

After an interruption the same call goes on: it finds its entry by the digest of the candidate, and its trials by their
records.
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
    candidate_name,
    decision_of,
)
from contrasweep.campaign.history import History, history_of
from contrasweep.code import CurrentCode
from contrasweep.commands import COMMAND_PATH
from contrasweep.config import MutableConfig
from contrasweep.defaults import STORAGE
from contrasweep.errors import (
    BrokenFileError,
    ContrasweepError,
    SpecError,
    check_known,
    choose_from,
    plural,
)
from contrasweep.planning.planner import plan
from contrasweep.results.ledger import (
    FIRST,
    OF_CAMPAIGN,
    Asked,
    Began,
    Decided,
    Granted,
    Ledger,
    campaign_names,
)
from contrasweep.results.results import Results
from contrasweep.rows import Mode
from contrasweep.running.driver import run
from contrasweep.running.failures import failure_line
from contrasweep.running.session import session
from contrasweep.schema import checked, validate
from contrasweep.shell import command_line
from contrasweep.statistics.checks import finite_or_none
from contrasweep.statistics.evidence import COPIES_HINT
from contrasweep.statistics.noise import Noise, read_noise
from contrasweep.statistics.referee import Gains, Rule, Ruling, surely_smaller
from contrasweep.statistics.resampling import constant
from contrasweep.storage.lease import StudyHeld, listening
from contrasweep.storage.names import as_label
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import Alpha
from contrasweep.study.arm import Arm
from contrasweep.study.base import Difference, Folds, Metric
from contrasweep.study.file import (
    build_study,
    built,
    load_declared,
    to_plain,
    with_commands,
    with_sets,
)
from contrasweep.study.grid import DATA_AXIS, AblationGrid, SubGrid
from contrasweep.study.metric_names import check_mode, metric_range
from contrasweep.study.replicates import Above0, Positive
from contrasweep.study.sweep import Study, Sweep
from contrasweep.study.trainables import unread_of_command
from contrasweep.study.trust import check_named

if TYPE_CHECKING:
    from contrasweep.running.prepare import Changed

ENOUGH = 0.8
"""The advised number of seeds is the first that decides with this chance."""
MOST_TIMES = 4
"""The advised number of seeds is at most so many times that of the confirmation."""
BETTER = f"{INCUMBENT}.better"
"""The arm of the last incumbent that was kept for being better, where a simpler one has followed it."""
WAIT_S = 2.0
"""Seconds between two attempts to run a study that another process runs."""


class RunOptions(TypedDict, total=False):
    """Arguments of `run` that `decide` takes too, and passes on for each study that it runs."""

    tracking: str | Sequence[str] | None
    changed: "Changed"
    max_concurrent: int | None
    cluster: Path | None


@checked
class CampaignSeeds:
    """On how many seeds a candidate is judged.

    A candidate is screened at `first`, `first + step` and `first + 2 step` seeds. Then it is confirmed on fresh seeds:
    `first + step` at the first look, and `step` more at each later look.

    Args:
        first: Seeds of the first look at a candidate.
        step: Seeds that are added at a time.
        most: Fresh seeds of a confirmation, at most.
    """

    first: Positive = 4
    step: Positive = 4
    most: Positive = 32


@checked
class Campaign:
    """A stream of candidates, each kept or discarded against one incumbent; one level bounds the errors of all.

    Args:
        name: Its name in the storage: letters, digits and `._-`, at most 60.
        incumbent: The method that candidates have to beat. A candidate that is kept is the next incumbent.
        data: The dataset, or several: a candidate is then judged by the mean over them.
        metric: The reported metric by which candidates are judged.
        mode: Whether a larger (`max`) or a smaller (`min`) value is better.
        smallest_difference: The smallest difference of interest, in units of the metric. Needed for `equivalent`.
        alpha: The level of all decisions together.
        error: What alpha bounds: the chance of any false keep (`family`), or the expected share of false ones among all
            keeps (`fdr`).
        seeds: On how many seeds a candidate is judged.
        folds: Folds that every seed trains; a seed's value is the mean over them. Default: the test split alone.
        size: A reported metric, such as `parameters` or `seconds`; a candidate with a smaller value is simpler. A
            simpler candidate is kept if it is not worse by `smallest_difference`. It is compared with the incumbent,
            and with the last candidate that was kept for being better. A size that differs by seed is tested as the
            metric is.
        noise: The file that `contrasweep noise --json` wrote for the incumbent. If its A/A test has failed, nothing is
            decided. If not, a dry run says which gain can be detected.
        budget_trials: Trials of all decisions together.
        budget_gpu_hours: GPU-hours of all decisions together; where there is no GPU, hours of training.
        description: The aim of the campaign.
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
    metric: Metric = "accuracy"
    mode: Mode = "max"
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

    @pydantic.model_validator(mode="before")
    @classmethod
    def _declares_mode(cls, declared: Any) -> Any:
        return check_mode(declared)

    def __post_init__(self) -> None:
        """Raise `SpecError` where fields break a rule together."""
        if len(set(self.datasets)) < len(self.datasets):
            raise SpecError("a dataset is named once", place="data", value=self.datasets)
        _check_fixed(self.incumbent, INCUMBENT)
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
            description=f"{OF_CAMPAIGN}{self.name}. {self.description}".rstrip(),
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
        # The incumbent's trainable is written as its path, so that a function and its path are the same declaration.
        fields = {
            name: value
            for name, value in to_plain(self).items()
            if not name.startswith(("budget", "noise", "descr"))
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

        After an interruption the same call goes on. For a candidate that was decided before nothing is trained. Ray
        runs on for the next decision, until this process or the `with contrasweep.session()` block around it ends.

        Args:
            candidate: The candidate, with all of its settings.
            name: The candidate's name.
            storage: The folder or address where the ledger and the trials lie.
            by: Who asks: a person or an agent.
            why: Why it is tried.
            more: Fresh seeds beyond `seeds.most`, for a candidate that is undecided.
            options: `tracking`, `changed`, `max_concurrent` and `cluster`, as for `contrasweep.run`.

        Returns:
            The verdict, with the estimate from the fresh seeds.

        Raises:
            ContrasweepError: Nothing is decided. The input is wrong, or the budget does not suffice; or all trials of
                an arm on a dataset failed, or the candidate's did not read one of its settings.
        """
        with session(of_process=True), listening(storage, self.name):
            return Referee(self, storage, options).decide(candidate, name, by, why, more)

    def outlook(
        self, candidate: Arm, name: str, *, storage: str = STORAGE, more: int = 0
    ) -> Outlook:
        """Return what a decision would cost, and its level; nothing is trained or written.

        Args:
            candidate: The candidate.
            name: The candidate's name.
            storage: The folder or address where the ledger lies.
            more: Fresh seeds beyond `seeds.most`, for a candidate that is undecided.

        Raises:
            ContrasweepError: The candidate cannot be planned, no result could keep it, or the budget does not suffice.
        """
        return Referee(self, storage, {}).outlook(candidate, name, more)

    def history(self, *, storage: str = STORAGE) -> History:
        """Return all candidates with their decisions, the present incumbent, and the level of the next confirmation.

        Args:
            storage: The folder or address where the ledger lies.
        """
        return history_of(Referee(self, storage, {}).ledger, self.metric, self.rule())

    def incumbent_now(self, *, storage: str = STORAGE) -> Arm:
        """Return the present incumbent: the last candidate that was kept, or the declared one.

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
    return load_declared(name, (Campaign,), partial(_built, Campaign), "CAMPAIGN")


def stored_history(name: str, storage: str) -> History:
    """Return the history of the campaign of this name, from its ledger alone.

    Raises `SpecError` where the storage has no such campaign, and `BrokenFileError` where its stored declaration breaks
    a rule.
    """
    ledger = Ledger(storage, name).read()
    if ledger.began is None:
        names = campaign_names(storage)
        hint = "a campaign begins with its first decision: contrasweep decide"
        if names:
            hint = choose_from("campaigns", names, name)
        raise SpecError(
            f"no campaign of this name is in {storage}", place="CAMPAIGN", value=name, hint=hint
        )
    try:
        campaign: Campaign = validate(Campaign, dict(ledger.began.declared))
    except SpecError as error:
        where = f"{ledger.store.uri}/{name}/campaign.json"
        raise BrokenFileError(where, str(error), "restore it from a backup") from None
    return history_of(ledger, campaign.metric, campaign.rule())


def load_candidate(name: str, incumbent: Arm, sets: Sequence[str]) -> Arm:
    """Return the arm at `module:NAME` or in a YAML file, with changed fields.

    If `name` is the word `incumbent`, the arm `incumbent` is changed instead. `sets` are the changes, as PATH=VALUE.
    """
    if name == INCUMBENT:
        return built(Arm, with_sets(with_commands(plain_arm(incumbent)), sets), name)
    return load_declared(name, (Arm,), partial(_built, Arm), "CANDIDATE", sets)


def _built(cls: type, fields: MutableConfig, file: str) -> Any:
    """Return the campaign or arm (`cls`) with these fields; `SpecError` where they declare no such thing."""
    is_campaign = INCUMBENT in fields
    if {"arms", "studies"} & fields.keys() or (cls is Arm and is_campaign):
        given = "campaign" if is_campaign else "study"
        wanted = "candidate" if cls is Arm else "campaign"
        raise SpecError(
            f"a {given} is no {wanted}",
            place=file,
            hint="a campaign has name, data and incumbent; its incumbent and each candidate are an arm, such as the "
            "best ones of a study: contrasweep report STUDY --format yaml",
        )
    return built(cls, fields, file)


@dataclass
class Referee:
    """Decides on one candidate of a campaign, and keeps the ledger in the storage.

    `options` are passed on to `run`. `candidate` is the arm that is decided on; None until it is known. Arguments
    `number` and `incumbent` of the methods are numbers of entries in the ledger; the declared incumbent has the number
    `FIRST`.

    Raises `SpecError` where the storage has a campaign of this name that was declared otherwise.
    """

    campaign: Campaign
    storage: str
    options: RunOptions
    ledger: Ledger = field(init=False)
    candidate: Arm | None = None

    def __post_init__(self) -> None:
        """Read the ledger, and compare its declaration with that of the campaign, field by field."""
        self.ledger = Ledger(self.storage, self.campaign.name).read()
        if self.ledger.began is None:
            return
        stored = self.ledger.began.declared
        declared = self.campaign.declared()
        for name in {**stored, **declared}:
            if not canonical.same(stored.get(name), declared.get(name)):
                raise SpecError(
                    "a campaign of this name is declared otherwise in this storage, and its level holds for that one",
                    place=name,
                    value=declared.get(name),
                    hint=f"there it is {stored.get(name)}; declare another campaign for another question",
                )

    def arm(self, number: int) -> Arm:
        """Return the arm of the incumbent or candidate with this number.

        A ledger is not trusted: raises `SpecError` where the arm names code that neither the declared incumbent nor the
        candidate names.
        """
        if number == FIRST:
            return self.campaign.incumbent
        stored = dict(self.ledger.asked_for(number).arm)
        users_arms = [plain_arm(self.campaign.incumbent)]
        hint = ""
        if self.candidate is not None:
            users_arms.append(plain_arm(self.candidate))
            if self.candidate.path == COMMAND_PATH:  # no other arm has `code`
                hint = "name it in the candidate's list `code`, or "
        check_named(stored, users_arms, "incumbent", hint)
        return validate(Arm, stored)  # type: ignore[no-any-return]

    def digest(self, name: str, arm: Arm) -> str:
        """Return the digest of a candidate's settings and code, 16 hexadecimal digits.

        The ledger finds a candidate by its digest. `name` is the name of the arm. Raises `SpecError` where the
        candidate cannot be planned, or its function is in no module.
        """
        # `<` is in the path of a lambda, and of a function within another one.
        if arm.path.startswith("__main__:") or "<" in arm.path:
            raise SpecError(
                "a ledger names a trainable by its module, where later processes find it",
                place="trainable",
                value=arm.path,
                hint="put the function into a module, and import it where you call decide",
            )
        # All trials of the arm have the same settings except for seed and fold, so the first one is used.
        try:
            planned = plan(self.campaign.grid({name: arm}, [0]), storage=self.storage)
        except SpecError as error:  # who asks has declared an arm, and no study with `arms`
            error.place = error.place.replace(f"arms.{name}.", f"{name}: ", 1)
            raise
        trial = planned.example_trials[0]
        code = CurrentCode(planned.study.functions).of(trial.trainable, trial.config).version.digest
        return canonical.digest(
            {"trainable": trial.trainable, "config": dict(trial.config), "code": code}, 16
        )

    def outlook(self, candidate: Arm, name: str, more_seeds: int = 0) -> Outlook:
        """Return what a decision on a candidate would cost at most.

        With `more_seeds`, it is what so many further seeds of an undecided candidate cost. Nothing is trained or
        written. Raises `SpecError` where no result could keep the candidate, where its command is not given one of its
        settings, and where the decision exceeds the budget.
        """
        noise = None
        if self.campaign.noise:
            noise = read_noise(self.campaign.noise, self.campaign.metric)
        self.candidate = candidate  # `arm` takes the code that it names for the user's
        _check_fixed(candidate, "CANDIDATE")
        # Raises, before anything is trained, where the incumbent's code is not named by the user.
        self.arm(self.ledger.incumbent)
        unread = unread_of_command(candidate)
        if unread:
            raise SpecError(
                "a candidate is judged by settings that its command is given",
                place="CANDIDATE",
                value=", ".join(unread),
                hint="mend the name, or put {args} into the command, or into `code` the file that reads "
                "CONTRASWEEP_TRIAL",
            )
        # What the ledger says of the candidate already. With more seeds an undecided candidate is decided anew.
        rule = self.campaign.rule()
        ledger = self.ledger
        digest = self.digest(name, candidate)
        number = ledger.number_of(digest)
        # A new candidate gets the next number, of which the ledger has nothing yet.
        if number is None:
            number = len(ledger.entries)
        incumbent = ledger.incumbent
        decided = self._decision_on(number)
        grant = ledger.granted(number, incumbent)
        most_seeds = rule.looks()[-1]
        seeds = grant.seeds if grant else ledger.fresh_seeds(most_seeds)
        if decided is not None and decided.verdict == "undecided" and more_seeds > 0:
            if grant and not self._has_unjudged_seeds(grant):
                seeds += ledger.fresh_seeds(self._in_whole_steps(more_seeds))
            decided = None
        # How many trials it takes at most. A confirmation that was granted goes on without a screen.
        screening = 0
        if not grant:
            screens = list(range(rule.screens()[-1]))
            if ledger.began:
                screens = ledger.screening_seeds(incumbent)
            screening = self._untrained(ledger.candidate_study(number), 1, screens)
            screening += self._untrained(ledger.screening_study(incumbent), 1, screens)
        confirmation = self._untrained(
            ledger.confirmation_study(number, incumbent), self._arm_count(incumbent), seeds
        )
        # Each trial is expected to spend as much as the campaign's trials so far, on average.
        spent = ledger.spent
        expected_spend = spent.of_trials(screening + confirmation) if spent.trials else None
        level = grant.level if grant else rule.granted(ledger.confirmations)
        # The level is one-sided, and `detectable` takes a two-sided one. Its second value is that of runs of one seed
        # that have nothing in common, which is the worst case.
        detects = None
        if noise and level:
            _, detects = noise.detectable(most_seeds, 2 * level)
        expected = Outlook(
            campaign=self.campaign.name,
            candidate=name,
            digest=digest,
            incumbent=candidate_name(ledger, incumbent),
            decided=decided,
            screening_trials=screening,
            confirmation_trials=confirmation,
            gpu_hours=expected_spend.gpu_hours if expected_spend else None,
            cost=expected_spend.cost if expected_spend else None,
            level=level,
            trials_left=self._left("trials"),
            gpu_hours_left=self._left("gpu_hours"),
            detects=detects,
        )
        if decided is None:
            self._check(expected)
        return expected

    def _untrained(self, study: str, arms: int, seeds: Sequence[int]) -> int:
        """Return how many trials `study` still has to run for so many arms on these seeds; all, if it never began.

        A trial that failed by its method counts as run. The study may also have trials of further arms, so that the
        number is set to 0 where it would be negative.
        """
        records = self.ledger.records(study)
        trained = sum(record.seed in seeds and not record.missing for record in records)
        return max(0, arms * len(seeds) * self._trials_per_seed() - trained)

    def _trials_per_seed(self) -> int:
        """Return how many trials an arm needs for one seed: one for each dataset and fold."""
        return len(self.campaign.datasets) * (self.campaign.folds or 1)

    def _arm_count(self, incumbent: int) -> int:
        """Return how many arms a confirmation against this incumbent trains at most: two or three.

        Two are the candidate and the incumbent. The third is `BETTER`, the last arm that was kept for being better,
        where simpler ones have followed it.
        """
        better_differs = self.ledger.better_than_all_before(incumbent) != incumbent
        return 3 if self.campaign.size is not None and better_differs else 2

    def _in_whole_steps(self, more_seeds: int) -> int:
        """Return `more_seeds` rounded up to whole steps; the campaign's `seeds.step` says how many seeds one has."""
        step = self.campaign.seeds.step
        return math.ceil(more_seeds / step) * step

    def decide(self, candidate: Arm, name: str, by: str, why: str, more_seeds: int) -> Decision:
        """Decide on a candidate, or go on with a decision that was begun.

        The arguments and errors are those of `Campaign.decide`, where `more_seeds` is called `more`. `by` says who
        asks, and `why` for what reason.
        """
        expected = self.outlook(candidate, name, more_seeds)
        if expected.decided is not None:
            return replace(expected.decided, remembered=True)
        if self.ledger.began is None:
            most_seeds = self.campaign.rule().screens()[-1]
            self.ledger.append(Began(self.campaign.declared(), screening=most_seeds))
            # Another process may have begun the campaign first, with other fields: compare them again.
            self.__post_init__()
        # Another process may write an entry first, which `append` then reads. Then this process tries again.
        number = self.ledger.number_of(expected.digest)
        while number is None:
            self.ledger.append(
                Asked(name, plain_arm(candidate), expected.digest, as_label(by), as_label(why))
            )
            number = self.ledger.number_of(expected.digest)
        # Training takes hours, in which another candidate may become the incumbent. Then this one is compared anew.
        while True:
            before = self.ledger.decision(number)
            decided, advice = self._decide_against(
                number, candidate, self.ledger.incumbent, more_seeds
            )
            is_written = self._write(decided, before)
            known = self._decision_on(number)
            # The advice belongs to the decision of this process, and not to one that another process wrote first.
            if known is not None:
                return replace(known, more=advice) if is_written else known
            now = candidate_name(self.ledger, self.ledger.incumbent)
            _say(f"{now} is the {INCUMBENT} by now: {name} is compared with it again")
            more_seeds = 0

    def _has_unjudged_seeds(self, grant: Granted) -> bool:
        """Return whether the confirmation has seeds that no decision has judged yet.

        That is so before the first decision, and where a process was killed after it had granted more seeds.
        """
        decided = self.ledger.decision(grant.asked)
        return decided is None or decided.seeds < len(grant.seeds)

    def _write(self, decided: Decided, before: Decided | None) -> bool:
        """Write a decision to the ledger; return False where another process has decided on the same candidate first.

        `before` is the decision that stood when this one was begun. Where the incumbent has changed since, the decision
        is written as `superseded`, which means that the candidate has no decision yet. A verdict `discard` is written
        as it is.
        """
        while True:
            # A gain over the former incumbent says nothing about the present one. A loss to it stands.
            if self.ledger.incumbent != decided.incumbent and decided.verdict != "discard":
                decided = replace(decided, superseded=True, kept=False)
            if self.ledger.append(decided):
                return True
            # Another entry came first. It may be a decision on the same candidate, for which somebody else asked too.
            if self.ledger.decision(decided.asked) not in (None, before):
                return False

    def _decide_against(
        self, number: int, arm: Arm, incumbent: int, more_seeds: int
    ) -> tuple[Decided, More | None]:
        """Screen and confirm a candidate against one incumbent; return the decision, which is not written yet.

        A candidate that was granted a confirmation earlier is not screened again.

        Args:
            number: The number of the candidate.
            arm: The candidate.
            incumbent: The number of the incumbent.
            more_seeds: Fresh seeds to add to a confirmation that was granted before; 0: none.

        Returns:
            The entry for the ledger, and for an undecided candidate how many further seeds would decide it, with their
            cost. The second is None for any other verdict.
        """
        ledger = self.ledger
        rule = self.campaign.rule()
        grant = ledger.granted(number, incumbent)
        # A candidate without a grant must pass the screen first, and then gets a level and fresh seeds. One that has a
        # grant, as it was undecided or a process was killed, goes on with its confirmation, with more seeds if asked.
        if grant is None:
            outcome, differences = self._screen(number, arm, incumbent)
            seeds = len(differences)
            if outcome != "pass":
                decided = self._decided(number, incumbent, "discard", "screen", seeds)
                screened = finite_or_none(float(np.mean(differences)))
                fell = Gains(differences).collapse_depth
                # A candidate with a flag that its script ignores is the incumbent once more.
                reason = (
                    "" if any(differences) else "all values are equal, as if both trained the same"
                )
                return replace(decided, screened=screened, fell=fell, reason=reason), None
            # Another process may write a grant for this candidate first: the level is that of the first entry.
            while grant is None:
                # No level is spent on a comparison with an arm that is the incumbent no more.
                if ledger.incumbent != incumbent:
                    return self._decided(number, incumbent, "undecided", "screen", seeds), None
                level = rule.granted(ledger.confirmations)
                fresh = ledger.fresh_seeds(rule.looks()[-1])
                ledger.append(Granted(number, incumbent, level, fresh))
                grant = ledger.granted(number, incumbent)
        elif more_seeds > 0 and not self._has_unjudged_seeds(grant):
            # Another process may write an entry first, so that `append` writes nothing. Which seeds are fresh depends
            # on that entry too, so they are chosen again.
            count = self._in_whole_steps(more_seeds)
            while not ledger.append(
                Granted(number, incumbent, grant.level, ledger.fresh_seeds(count))
            ):
                pass
            grant = ledger.granted(number, incumbent) or grant
        rule = self.campaign.rule(simpler=self._is_simpler(number, incumbent))
        differences, ruling, is_kept = self._confirm(number, arm, incumbent, rule, grant)
        # The entry. A seed collapsed if the candidate fell far behind on it. How deep it fell is taken from the fresh
        # seeds or, if none of them collapsed, from the screen.
        decided = self._decided(number, incumbent, ruling.verdict, "confirm", ruling.seeds)
        fell = Gains(differences).collapse_depth
        if not fell:
            fell = Gains(self._screened_differences(number, incumbent)).collapse_depth
        decided = replace(
            decided,
            kept=is_kept,
            estimate=finite_or_none(ruling.estimate),
            low=finite_or_none(ruling.low),
            high=finite_or_none(ruling.high),
            confidence=ruling.confidence,
            p=ruling.p,
            reason=as_label(ruling.why),
            fell=fell,
            allowed=rule.allowance,
        )
        if ruling.verdict != "undecided":
            return decided, None
        return decided, self._advice(rule, grant, differences)

    def _screen(self, number: int, arm: Arm, incumbent: int) -> tuple[str, list[float]]:
        """Screen the candidate `arm`, of this number, on more and more seeds, until the rule passes or stops it.

        Return the outcome, `pass` or `stop`, and candidate minus incumbent for each seed that was trained. Raises
        `ContrasweepError` where all trials of either failed, and `SpecError` where the candidate has a setting that no
        trial reads.
        """
        seeds = self.ledger.screening_seeds(incumbent)
        screening = self.ledger.screening_study(incumbent)
        incumbent_name = candidate_name(self.ledger, incumbent)
        candidate = self.ledger.asked_for(number).candidate
        for count in self.campaign.rule().screens():
            _say(f"{candidate}: {plural(count, 'seed')} beside {incumbent_name}")
            # The incumbent may have been trained for an earlier candidate.
            screened = seeds[:count]
            incumbent_results = self._train_with_retry(
                self._study(screening, {INCUMBENT: self.arm(incumbent)}, screened), incumbent_name
            )
            study = self._study(self.ledger.candidate_study(number), {candidate: arm}, screened)
            results = self._train_with_retry(study, f"the candidate {candidate}")
            unread = results.unused_settings
            if unread:
                raise SpecError(
                    f"a candidate is judged by settings that its trials read: {unread[0]}",
                    place="CANDIDATE",
                    value=candidate,
                    hint="mend the name of the setting, or leave it out; nothing is decided",
                )
            differences = self._differences(
                self._values(results, candidate),
                self._values(incumbent_results, INCUMBENT),
                screened,
            )
            rule = self.campaign.rule(simpler=self._is_simpler(number, incumbent))
            outcome = rule.screen(differences)
            if outcome != "more":
                break
        return outcome, differences

    def _confirm(
        self, number: int, arm: Arm, incumbent: int, rule: Rule, grant: Granted
    ) -> tuple[list[float], Ruling, bool]:
        """Train candidate and incumbent on fresh seeds, until a look decides or all granted seeds are trained.

        Args:
            number: The number of the candidate.
            arm: The candidate.
            incumbent: The number of the incumbent.
            rule: The rule, which says whether the candidate is simpler.
            grant: The level and the seeds of the confirmation.

        Returns:
            The difference candidate minus incumbent for each seed of the last look, what the rule says of these, and
            whether the candidate is kept.
        """
        # The arms of the study, which need different names. A simpler candidate is also compared with the last better
        # one, because small losses to one incumbent after another would add up.
        candidate = self.ledger.asked_for(number).candidate
        if candidate in (INCUMBENT, BETTER):
            candidate = f"{candidate}.candidate"
        arms = {INCUMBENT: self.arm(incumbent), candidate: arm}
        better = self.ledger.better_than_all_before(incumbent)
        if rule.simpler and better != incumbent:
            arms[BETTER] = self.arm(better)
        # What is known of collapses: this candidate's screen, and how deep seeds of all candidates fell. The rule
        # keeps no candidate whose gain would be lost if more of its seeds collapsed.
        screened_differences = self._screened_differences(number, incumbent)
        falls = [entry.fell for entry in self.ledger.decisions]
        falls.append(Gains(screened_differences).collapse_depth)
        # The number of seeds at each look. A grant of more seeds adds looks, in the same steps.
        counts = range(rule.looks()[0], len(grant.seeds) + 1, rule.step)
        name = self.ledger.confirmation_study(number, incumbent)
        for look, count in enumerate(counts):
            _say(f"{candidate}: {count} of at most {counts[-1]} fresh seeds")
            seeds = grant.seeds[:count]
            results = self._train(self._study(name, arms, seeds))
            values = self._values(results, candidate)
            incumbent_values = self._values(results, INCUMBENT)
            differences = self._differences(values, incumbent_values, seeds)
            confirm = partial(
                rule.confirm,
                level=grant.level,
                look=look,
                screened=screened_differences,
                falls=falls,
                depth=self._depth([values[seed] for seed in seeds]),
            )
            ruling = confirm(differences)
            # Trainings that do not use their seed are copies of each other, and would be as sure of any gain.
            copies = constant([values[seed] for seed in seeds])
            copies = copies and constant([incumbent_values[seed] for seed in seeds])
            if copies and ruling.verdict in ("keep", "equivalent"):
                why = f"it and the incumbent have one value each in all {plural(count, 'seed')}: {COPIES_HINT}"
                ruling = replace(ruling, verdict="discard", why=why)
            is_kept = ruling.verdict == "keep"
            # A simpler candidate that is not worse is kept too, unless an objection stands.
            if ruling.verdict == "equivalent" and rule.simpler:
                look_level = rule.look_level(grant.level, look)
                objection = self._size_objection(results, candidate, seeds, look_level)
                if not objection and BETTER in arms:
                    from_better = self._differences(values, self._values(results, BETTER), seeds)
                    if confirm(from_better).verdict not in ("keep", "equivalent"):
                        last = candidate_name(self.ledger, better)
                        objection = (
                            f"it may be worse by {rule.margin:g} than {last}, the last better one"
                        )
                is_kept = not objection
                # More seeds may remove an objection. After the last look the candidate is equivalent, and not kept.
                if objection:
                    ruling = replace(ruling, why=objection)
                    if count < counts[-1]:
                        ruling = replace(ruling, verdict="more")
            # The rule says `undecided` at the last of its own looks; a grant of more seeds has looks after it.
            if ruling.verdict not in ("more", "undecided"):
                break
        return differences, ruling, is_kept

    def _size_objection(
        self, results: Results, candidate: str, seeds: Sequence[int], level: float
    ) -> str:
        """Return the objection that the size of a simpler candidate is not surely smaller; "" where it surely is.

        `results` are those of the confirmation on `seeds`, in which the arm `candidate` is compared with `INCUMBENT`.
        The test has the level `level`.
        """
        size = self.campaign.size or ""
        sizes = self._values(results, candidate, size)
        incumbent_sizes = self._values(results, INCUMBENT, size)
        savings = [incumbent_sizes[seed] - sizes[seed] for seed in seeds]
        return "" if surely_smaller(savings, level) else f"its {size} is not surely smaller"

    def _depth(self, values: Sequence[float]) -> float:
        """Return how far a collapsed seed could fall below the mean of `values`: to the worst value of the metric.

        0 where the range of the metric is not known, or all values are NaN.
        """
        bounds = metric_range(self.campaign.metric)
        scores = [value for value in values if math.isfinite(value)]
        if bounds is None or not scores:
            return 0.0
        worst = bounds[0] if self.campaign.mode == "max" else bounds[1]
        return abs(float(np.mean(scores)) - worst)

    def _screen_values(
        self, number: int, incumbent: int, metric: str = ""
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Return seed -> value of the candidate, and the same of the incumbent, for the trained screening seeds.

        The values are those of `metric`; "": the campaign's metric.
        """
        results = Results.load(self.ledger.candidate_study(number), self.storage)
        incumbent_results = Results.load(self.ledger.screening_study(incumbent), self.storage)
        return (
            self._values(results, self.ledger.asked_for(number).candidate, metric),
            self._values(incumbent_results, INCUMBENT, metric),
        )

    def _screened_differences(self, number: int, incumbent: int) -> list[float]:
        """Return candidate minus incumbent for each screening seed that both have trained.

        `_differences` says how failures count.
        """
        values, incumbent_values = self._screen_values(number, incumbent)
        seeds = [
            seed
            for seed in self.ledger.screening_seeds(incumbent)
            if seed in values and seed in incumbent_values
        ]
        return self._differences(values, incumbent_values, seeds)

    def _train_with_retry(self, study: AblationGrid, who: str) -> Results:
        """Train a study of screening seeds, and return its results.

        Where all trials on a dataset have failed in an earlier run, these run again, as the user may have mended the
        cause. Raises `ContrasweepError` where all trials on a dataset fail now; `who` names the arm in its message.
        """
        results = self._train(study, retry_failed=bool(self._failure_of_all(study.name)))
        failure = self._failure_of_all(study.name)
        if failure:
            where = " on a dataset" if len(self.campaign.datasets) > 1 else ""
            raise ContrasweepError(
                f"every trial of {who} failed{where}, so nothing is decided and no level is spent; "
                f"mend it, and the same command runs it again: {failure}"
            )
        return results

    def _study(self, name: str, arms: dict[str, Arm], seeds: Sequence[int]) -> AblationGrid:
        """Return the study `name` of these arms on these seeds, and on the seeds that it has trained before."""
        # A candidate begins with few seeds again if the incumbent was replaced. Its earlier seeds stay declared.
        document = StudyRecords(self.storage, name).document()
        earlier = (document.declared.get("seeds") if document else None) or ()
        return self.campaign.grid(arms, list(dict.fromkeys([*seeds, *earlier])), name)

    def _failure_of_all(self, study: str) -> str:
        """Return a line on the first failure if all ended trials on some dataset of a study have failed; else ""."""
        of_data: dict[str, list[Record]] = {}
        for record in self.ledger.records(study):
            of_data.setdefault(record.data.digest, []).append(record)
        axes = [DATA_AXIS] if len(self.campaign.datasets) > 1 else []
        for records in of_data.values():
            if all(record.status.failed for record in records):
                # Asked again, `decide` trains failed trials again without a flag.
                return failure_line(records[0], self.storage, axes, how_again=False)
        return ""

    def _train(self, study: AblationGrid, *, retry_failed: bool = False) -> Results:
        """Train a study within the budget; trials that failed for a cause outside the method run a second time.

        With `retry_failed`, trials that failed by their method in an earlier run are trained again too. Raises
        `SpecError` where the budget is used up, and `ContrasweepError` where trials fail for a cause outside the method
        again.
        """
        for _ in range(2):
            # The study stops when the campaign's GPU-hours are used up. The study's budget also counts
            # the hours that the study has spent before, so these are added. A budget must be above 0.
            hours_left = self._left("gpu_hours")
            if hours_left is not None:
                hours_left += self.ledger.measured(study.name).gpu_hours
                study = replace(study, budget_gpu_hours=max(1e-9, hours_left))
            results = self._run(study, retry_failed)
            if results.stopped:
                raise SpecError(
                    "the campaign's budget is used up, and nothing is decided",
                    place="budget_gpu_hours",
                    value=self.campaign.budget_gpu_hours,
                    hint="raise it, and the same command goes on from here",
                )
            missing = [record for record in results.trial_records.values() if record.missing]
            if not missing:
                return results
        raise ContrasweepError(
            f"{study.name} lacks {plural(len(missing), 'trial')} for a cause outside the method "
            f"({missing[0].cause or missing[0].status}); nothing was decided; the same command runs what is missing"
        )

    def _left(self, budget: str) -> Any:
        """Return what is left of the budget `trials` or `gpu_hours`; None without a limit.

        It is below 0 where more was spent.
        """
        limit = getattr(self.campaign, f"budget_{budget}")
        return None if limit is None else limit - getattr(self.ledger.spent, budget)

    def _run(self, study: AblationGrid, retry_failed: bool) -> Results:
        """Run a study and return its results; while another process runs the same study, wait."""
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
        """Return seed -> mean of an arm's metric over datasets and folds; NaN where a trial of the seed has no value.

        `metric` "" stands for the campaign's metric.
        """
        metric = metric or self.campaign.metric
        frame = results.to_frame()
        frame = frame[frame["arm"] == arm]
        values = frame.reindex(columns=[metric])[metric].astype(float)
        # A value that is missing or infinite makes the mean of its seed NaN.
        by_seed = values.where(np.isfinite(values)).groupby(frame["seed"])
        return by_seed.agg(lambda scores: scores.mean(skipna=False)).to_dict()  # type: ignore[return-value]

    def _differences(
        self,
        candidate_values: dict[int, float],
        incumbent_values: dict[int, float],
        seeds: Sequence[int],
    ) -> list[float]:
        """Return candidate minus incumbent for each of `seeds`, in the form that `Rule` takes.

        The values are by seed; NaN is a failure. The difference is NaN where only the candidate failed, infinitely good
        where only the incumbent failed, and 0 where both failed.
        """
        largest_gain = math.inf if self.campaign.mode == "max" else -math.inf
        differences = []
        for seed in seeds:
            candidate = candidate_values[seed]
            incumbent = incumbent_values[seed]
            difference = candidate - incumbent  # NaN where the candidate failed
            if math.isnan(incumbent):
                difference = 0.0 if math.isnan(candidate) else largest_gain
            differences.append(difference)
        return differences

    def _is_simpler(self, number: int, incumbent: int) -> bool:
        """Return whether the candidate `number` is surely smaller than the `incumbent` on the screening seeds.

        What is compared is the metric that the campaign declares as `size`. False for a campaign without a `size`.
        """
        if self.campaign.size is None:
            return False
        sizes, incumbent_sizes = self._screen_values(number, incumbent, self.campaign.size)
        savings = [
            incumbent_sizes[seed] - size for seed, size in sizes.items() if seed in incumbent_sizes
        ]
        # The level of the screen or, where so few seeds cannot reach it, the smallest p that they can have.
        level = max(self.campaign.rule().screen_level, 0.5 ** len(savings))
        return surely_smaller(savings, level)

    def _decided(
        self, number: int, incumbent: int, verdict: Any, stage: Any, seeds: int
    ) -> Decided:
        """Return a new ledger entry with this verdict, the stage and number of seeds, and what the candidate has spent.

        In this entry `kept` is False and there is no estimate; the caller sets both after a confirmation.
        """
        spent = self.ledger.spent_on(number)
        return Decided(number, incumbent, verdict, stage, kept=False, seeds=seeds, **asdict(spent))

    def _decision_on(self, number: int) -> Decision | None:
        """Return the decision on a candidate in the ledger; None while there is none."""
        return decision_of(self.ledger, number, self.campaign.metric)

    def _advice(self, rule: Rule, grant: Granted, differences: Sequence[float]) -> More | None:
        """Return how many more seeds would decide an undecided candidate, and what they cost.

        It is the smallest number, in steps of `seeds.step`, that decides with a chance of `ENOUGH`. Where no number up
        to `MOST_TIMES` the seeds so far has this chance, the largest of these numbers is returned; None where a single
        step is more than that. `grant` is that of the candidate's confirmation, and `differences` are candidate minus
        incumbent for each of its seeds.
        """
        trials_per_seed = self._arm_count(grant.incumbent) * self._trials_per_seed()
        spent = self.ledger.spent
        advice = None
        for seeds in range(rule.step, MOST_TIMES * len(differences) + 1, rule.step):
            chance = rule.chance(differences, grant.level, seeds)
            spend = spent.of_trials(seeds * trials_per_seed)
            advice = More(seeds, spend.trials, spend.gpu_hours, spend.cost, chance)
            if chance >= ENOUGH:
                break
        return advice

    def _check(self, expected: Outlook) -> None:
        """Raise `SpecError` where a decision makes no sense.

        That is where the candidate is the incumbent itself, where no result could keep it, and where the decision
        exceeds the budget. Where its GPU-hours are not known, only its trials are compared with the budget.
        """
        incumbent = self.ledger.incumbent
        if incumbent == FIRST:
            incumbent_digest = self.digest(INCUMBENT, self.arm(FIRST))
        else:
            incumbent_digest = self.ledger.asked_for(incumbent).digest
        if incumbent_digest == expected.digest:
            raise SpecError(
                "the candidate has the settings and the code of the incumbent",
                place="CANDIDATE",
                value=expected.candidate,
                hint="change a setting, or put changed code into another file or function",
            )
        # The smallest p of n seeds, where each shows a gain, is 1 / 2^n. It must reach the level of the last look.
        rule = self.campaign.rule()
        looks = rule.looks()
        most_seeds = looks[-1]
        if 0.5**most_seeds > rule.look_level(expected.level, len(looks) - 1):
            raise SpecError(
                f"no result of {most_seeds} seeds reaches the level of the next confirmation, "
                f"{expected.level:.2g}",
                place="seeds.most",
                value=self.campaign.seeds.most,
                hint="declare a campaign of more seeds; 32 suffice for any",
            )
        trials_needed = expected.screening_trials + expected.confirmation_trials
        for budget, unit, needed, left in (
            ("trials", "trials", trials_needed, expected.trials_left),
            ("gpu_hours", "hours", expected.gpu_hours or 0.0, expected.gpu_hours_left),
        ):
            if left is not None and needed > left:
                raise SpecError(
                    f"a decision takes {needed:g} {unit} at most, and {max(0, left):g} are left",
                    place=f"budget_{budget}",
                    value=getattr(self.campaign, f"budget_{budget}"),
                    hint=f"at least {needed - left:g} more",
                )


KINDS: tuple[type[Study | Campaign], ...] = (AblationGrid, Sweep, Campaign)
"""What the source of `train_twice` may declare; a sweep is refused with a hint."""


def train_twice(
    name: str,
    arm: str,
    seeds: int,
    sets: Sequence[str],
    storage: str,
    max_concurrent: int | None = None,
) -> Noise:
    """Train an arm twice on the seeds 0 to `seeds` - 1, and return the values of both studies.

    The studies are `NAME.noise-1` and `NAME.noise-2`, with the arm's cells and the folds of the declared study. A
    seed's value is the mean over these. Trials that this code has trained already are not trained again.

    Args:
        name: `module:NAME` or a YAML file, of a grid or a campaign.
        arm: The arm of a grid, or `incumbent` of a campaign; "": the reference, or the only arm.
        seeds: How many seeds.
        sets: Changed fields, as `PATH=VALUE`.
        storage: The folder or address of the storage.
        max_concurrent: Trials at once, at most.

    Raises:
        ContrasweepError: As `run` raises, and where a trial has no value of the metric.
    """
    declared: Study | Campaign = load_declared(name, KINDS, _study_or_campaign, "SOURCE", sets)
    if isinstance(declared, Sweep):
        rule = (
            "noise trains an arm of a grid, or the incumbent of a campaign, twice; this is a sweep"
        )
        hint = "contrasweep report STUDY --format yaml prints a grid of the best settings"
        raise SpecError(rule, place="SOURCE", value=name, hint=hint)
    # A campaign is taken as a grid with its incumbent alone.
    if isinstance(declared, Campaign):
        declared = declared.grid({INCUMBENT: declared.incumbent}, [0])
    grid = declared
    # Where no arm is named, and several arms have no reference, the check raises: "" is no arm's name.
    only_arm = next(iter(grid.arms)) if len(grid.arms) == 1 else ""
    arm = arm or grid.reference or only_arm
    arms = dict.fromkeys(cell.arm for cell in grid.cells())
    check_known(arm, "arms", arms, "an arm runs twice", place="--same")
    # A sub-grid for each of the arm's cells, of the product and of sub-grids at any depth.
    subgrids = []
    for cell in grid.cells():
        if cell.arm == arm:
            axes = {axis: [value] for axis, value in cell.axes.items()}
            subgrids.append(SubGrid([arm], dict(cell.added), axes))
    values: list[tuple[float, ...]] = []
    with session():
        # Two studies of the same seeds. A difference between them is noise that the seed does not fix.
        for number in (1, 2):
            study = AblationGrid(
                f"{grid.name}.noise-{number}",
                {arm: grid.arms[arm]},
                grid.data,
                seeds=list(range(seeds)),
                subgrids=subgrids,
                folds=grid.folds,
                repeats=grid.repeats,
                metric=grid.metric,
                mode=grid.mode,
            )
            frame = run(
                study,
                storage=storage,
                tracking=None,
                extend=True,
                changed="rerun",
                quiet=True,
                max_concurrent=max_concurrent,
            ).to_frame()
            if grid.metric not in frame or frame[grid.metric].isna().any():
                rule = "an A/A is of runs that have a value"
                raise SpecError(
                    rule,
                    place=study.name,
                    value=grid.metric,
                    hint=command_line("status", study.name),
                )
            values.append(tuple(frame.groupby("seed")[grid.metric].mean().tolist()))
    first, second = values
    return Noise(grid.name, (arm, arm), grid.metric, first, second)


def _study_or_campaign(fields: MutableConfig, file: str) -> Study | Campaign:
    """Return the campaign that a file declares (its `type` is `campaign`, or it has an `incumbent`), else its study.

    `file` is named in the `SpecError` of a field that breaks a rule.
    """
    presumed_type = "campaign" if "incumbent" in fields else ""
    if fields.get("type", presumed_type) == "campaign":
        return built(Campaign, fields, file)
    return build_study(fields, file)


def _check_fixed(arm: Arm, place: str) -> None:
    """Raise `SpecError` where an arm searches settings; `place` is where it was given."""
    if arm.space:
        hint = "set a value in its config"
        raise SpecError("a campaign searches nothing", place=f"{place}.space", hint=hint)


def _say(line: str) -> None:
    """Print a line on the progress to standard error, because only the answer goes to standard output."""
    print(line, file=sys.stderr, flush=True)
