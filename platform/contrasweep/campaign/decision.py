"""The decision on a candidate, and the cost of a future one: in sentences, and as mappings for programs."""

import math
from dataclasses import asdict, dataclass
from typing import Literal

from contrasweep.errors import plural
from contrasweep.results.ledger import FIRST, Ledger, Verdict
from contrasweep.statistics.comparison import span
from contrasweep.study.arm_budget import hours_text

INCUMBENT = "incumbent"
"""The name of the incumbent: as an arm of studies, and as a candidate that `--set` changes."""


@dataclass(frozen=True)
class More:
    """More fresh seeds that would decide an undecided candidate.

    `seeds` is their number, and `chance` (0 to 1) the chance that they decide. `trials`, `gpu_hours` and `cost` (in the
    inventory's currency) are those of all arms on these seeds.
    """

    seeds: int
    trials: int
    gpu_hours: float
    cost: float
    chance: float


@dataclass(frozen=True)
class Decision:
    """The decision on a candidate.

    Attributes:
        campaign: The campaign.
        candidate: The candidate's name.
        number: The number of the candidate's entry in the ledger.
        incumbent: The name of the arm that it was compared with.
        metric: The campaign's metric.
        verdict: `keep` (it is better), `equivalent` (it differs by less than the smallest difference), `discard` or
            `undecided`.
        kept: The candidate is the new incumbent.
        stage: The stage that decided: the screen, or the confirmation.
        screened: The mean difference on the screening seeds, candidate minus incumbent; None where it is not known.
        estimate: The difference on the fresh seeds alone, in units of the metric: below 0 is better where `mode` is
            min. This field and the next four are None where the screen decided.
        low: The lower end of the interval of the difference; None also where it is infinite.
        high: The upper end.
        confidence: The coverage of the interval.
        p: The one-sided p of no gain, or of a loss of `allowed`.
        level: The level of the confirmation; None where there was none.
        seeds: The number of seeds of the stage that decided.
        trials: Trials that were spent on the candidate since the decision before.
        gpu_hours: Their GPU-hours.
        cost: Their cost.
        reason: A sentence on the verdict; "" where there is none.
        allowed: How much a simpler candidate may lose; 0 for any other.
        remembered: The ledger had the decision already, and nothing was trained.
        more: What would decide an undecided candidate; None where it is decided, or this is not known.
    """

    campaign: str
    candidate: str
    number: int
    incumbent: str
    metric: str
    verdict: Verdict
    kept: bool
    stage: Literal["screen", "confirm"]
    screened: float | None
    estimate: float | None
    low: float | None
    high: float | None
    confidence: float | None
    p: float | None
    level: float | None
    seeds: int
    trials: int
    gpu_hours: float
    cost: float
    reason: str
    allowed: float = 0.0
    remembered: bool = False
    more: More | None = None

    @property
    def span(self) -> str:
        """The estimate and its interval as text, `+0.021 [+0.008, +0.034]`; "" where there is no estimate."""
        if self.estimate is None:
            return ""
        # An end of the interval that is None is infinite.
        low = -math.inf if self.low is None else self.low
        return span(self.estimate, low, math.inf if self.high is None else self.high)

    def to_dict(self) -> dict[str, object]:
        """Return every field by its name, and the decision in words as `sentence`, for programs."""
        return asdict(self) | {"sentence": self.sentence()}

    def sentence(self) -> str:
        """Return the decision in words, as one sentence without a full stop.

        For example `ocl is better than the incumbent and is kept: accuracy +0.021 [+0.008, +0.034] (98 % interval) on
        12 fresh seeds, one-sided p of no gain = 0.004 at a level of 0.025`.
        """
        # The verdict in words: these for an undecided candidate, others below.
        text = f"{self.candidate} is {self.verdict}"
        if self.verdict == "keep":
            text = f"{self.candidate} is better than {self.incumbent} and is kept"
        elif self.verdict == "equivalent" and self.kept:
            text = f"{self.candidate} is not worse than {self.incumbent} by more than {self.allowed:g} and is kept, "
            text += "being simpler"
        elif self.verdict == "equivalent":
            text = f"{self.candidate} differs from {self.incumbent} by less than matters and is not kept"
        elif self.verdict == "discard":
            text = f"{self.candidate} is discarded"
        # The stage that decided, and its numbers.
        if self.stage == "screen":
            text += f": on {self.seeds} seeds beside {self.incumbent} it shows no gain that is worth fresh seeds"
        else:
            difference = self.span or "no number, for one of them failed,"
            if self.estimate is not None and self.confidence is not None:
                difference += f" ({100 * self.confidence:.3g} % interval)"
            text += f": {self.metric} {difference} on {self.seeds} fresh seeds"
            hypothesis = f"a loss of {self.allowed:g}" if self.allowed else "no gain"
            text += f", one-sided p of {hypothesis} = {self.p:.2g} at a level of {self.level:.2g}"
        # Why, what would decide it, and that nothing was trained.
        if self.reason:
            text += f"; {self.reason}"
        if self.more is not None:
            takes = amounts(self.more.trials, self.more.gpu_hours, self.more.cost)
            text += f"; --more {self.more.seeds} ({takes}) decide it with a chance of {self.more.chance:.0%}"
        if self.remembered:
            text += " (from the ledger; nothing was trained)"
        return text

    def __str__(self) -> str:
        return self.sentence()


@dataclass(frozen=True)
class Outlook:
    """What a decision on a candidate would cost, as `--dry-run` shows it.

    Attributes:
        campaign: The campaign.
        candidate: The candidate's name.
        digest: The digest of the candidate's settings and code.
        incumbent: The name of the arm that it would be compared with.
        decided: The decision that the ledger has already; None: there is none.
        screening_trials: Trials that the screen takes, at most.
        confirmation_trials: Trials that the confirmation takes, at most.
        gpu_hours: GPU-hours of all these trials; None before the campaign's first trials.
        cost: Their cost, in the inventory's currency; None likewise.
        level: The level that the confirmation would get.
        trials_left: Trials that are left of the campaign's budget; None: it has no limit.
        gpu_hours_left: GPU-hours that are left of it; None likewise.
        detects: The gain that is confirmed with a chance of about 80 %, if runs of one seed have nothing in common.
            None where the campaign has no file of noise.
    """

    campaign: str
    candidate: str
    digest: str
    incumbent: str
    decided: Decision | None
    screening_trials: int
    confirmation_trials: int
    gpu_hours: float | None
    cost: float | None
    level: float
    trials_left: int | None
    gpu_hours_left: float | None
    detects: float | None

    def to_dict(self) -> dict[str, object]:
        """Return every field, for programs."""
        return vars(self) | {"decided": self.decided and self.decided.to_dict()}

    def lines(self) -> list[str]:
        """Return the outlook as lines of text; where there is a decision already, its sentence alone."""
        if self.decided is not None:
            return [self.decided.sentence()]
        takes = (
            f"{self.candidate} against {self.incumbent}: at most {self.screening_trials} trials to screen it and "
            f"{self.confirmation_trials} to confirm it"
        )
        expected = amounts(None, self.gpu_hours, self.cost)
        if expected:
            takes += f", about {expected}"
        if self.gpu_hours is None:
            takes += "; how long is known once one has ended"
        lines = [takes, f"its confirmation would have a level of {self.level:.2g}"]
        if self.detects:
            lines.append(
                f"a gain of {self.detects:.2g} would be confirmed with a chance of about 80 %"
            )
        what_is_left = amounts(self.trials_left, self.gpu_hours_left, None, zero=True)
        if what_is_left:
            lines.append(f"left of the budget: {what_is_left}")
        return lines


def amounts(
    trials: int | None, gpu_hours: float | None, cost: float | None, *, zero: bool = False
) -> str:
    """Return amounts in words: `12 trials, 0.3 hours of a GPU or slot, a cost of 1.2 in the inventory's currency`.

    An amount that is None is left out, and without `zero` one of 0 too. "" where all are left out.
    """
    texts = (
        (trials, plural(trials or 0, "trial")),
        (gpu_hours, f"{hours_text(gpu_hours or 0)} hours of a GPU or slot"),
        (cost, f"a cost of {cost or 0:.3g} in the inventory's currency"),
    )
    return ", ".join(text for amount, text in texts if amount is not None and (zero or amount > 0))


def candidate_name(ledger: Ledger, number: int) -> str:
    """Return how sentences name the candidate with this number: its name, or `the incumbent` for `FIRST`."""
    return f"the {INCUMBENT}" if number == FIRST else ledger.asked_for(number).candidate


def decision_of(ledger: Ledger, number: int, metric: str) -> Decision | None:
    """Return the decision on the candidate with this number from the ledger's entries; None while there is none.

    The ledger is not read again. `metric` is the campaign's.
    """
    decided = ledger.decision(number)
    if decided is None:
        return None
    grant = ledger.granted(number, decided.incumbent)
    # Most fields are those of the same names in the ledger's entry; the others follow below.
    shared = {
        name: getattr(decided, name)
        for name in Decision.__dataclass_fields__
        if hasattr(decided, name)
    }
    return Decision(
        **shared
        | {
            "campaign": ledger.campaign,
            "candidate": ledger.asked_for(number).candidate,
            "number": number,
            "incumbent": candidate_name(ledger, decided.incumbent),
            "metric": metric,
            "level": grant.level if grant and decided.stage == "confirm" else None,
        }
    )
