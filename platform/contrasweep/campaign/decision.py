"""What was decided of a candidate, and what a decision would take: in sentences, and as mappings for programs."""

import math
from dataclasses import asdict, dataclass
from typing import Literal

from contrasweep.errors import plural
from contrasweep.results.ledger import FIRST, Ledger, Verdict
from contrasweep.statistics.comparison import span
from contrasweep.statistics.referee import Confirmation
from contrasweep.study.arm_budget import hours_text

INCUMBENT = "incumbent"
"""What the incumbent is called: as an arm, and as a candidate that `--set` changes."""


@dataclass(frozen=True)
class More:
    """How many fresh `seeds` more would decide an undecided candidate, with which `chance` (0 to 1), and their price.

    `trials`, `gpu_hours` and `cost` (in the inventory's currency) are those of all arms on these seeds.
    """

    seeds: int
    trials: int
    gpu_hours: float
    cost: float
    chance: float


@dataclass(frozen=True)
class Decision:
    """What was decided of a candidate.

    `number` is that of its entry in the ledger, `incumbent` what it was compared with. `screened` is the mean gain on
    the screening seeds, by which it was chosen to be confirmed or not (None: it gave none). `kept`: the
    candidate is the incumbent now, as its `verdict` says. `estimate` is the gain on fresh seeds alone, in the metric's
    units (candidate minus incumbent), `low` to `high` its interval of coverage `confidence`, and `p` the one-sided p of
    no gain; these four are None where the screen decided. A simpler candidate may lose `allowed`: its `p` is that of a
    loss of as much. `level` is what the confirmation was granted (None: it was not confirmed). `seeds` are those
    of the `stage` that decided: the screen, or the confirmation. `trials`, `gpu_hours` and `cost` are what was spent on
    the candidate since the decision before. `reason` is a sentence on the verdict, "" where there is none.
    `remembered`: the ledger had it, and nothing was trained. `more` is what would decide an undecided one (None: it is
    decided, or that is not known).
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

    def to_dict(self) -> dict[str, object]:
        """Return every field by its name, and the decision in words as `sentence`, for programs."""
        return asdict(self) | {"sentence": self.sentence()}

    def sentence(self) -> str:
        """Return the decision in words, as one sentence without a full stop.

        For example `ocl is better than the incumbent and is kept: accuracy +0.021 [+0.008, +0.034] on 12 fresh seeds,
        one-sided p of no gain = 0.004 at a level of 0.025`.
        """
        words = {
            "keep": f"is better than {self.incumbent} and is kept",
            "equivalent": f"is not worse than {self.incumbent} by more than {self.allowed:g} and is kept, being simpler"
            if self.kept
            else f"differs from {self.incumbent} by less than matters and is not kept",
            "discard": "is discarded",
            "undecided": "is undecided",
        }[self.verdict]
        text = f"{self.candidate} {words}"
        if self.stage == "screen":
            text += f": on {self.seeds} seeds beside {self.incumbent} it shows no gain that is worth fresh seeds"
        else:
            # A confirmation has a gain with its interval; an end that is not known is infinite.
            ends = [
                -math.inf if self.low is None else self.low,
                math.inf if self.high is None else self.high,
            ]
            gain = (
                "no number, for one of them failed,"
                if self.estimate is None
                else span(self.estimate, *ends)
            )
            text += f": {self.metric} {gain} on {self.seeds} fresh seeds"
            of = f"a loss of {self.allowed:g}" if self.allowed else "no gain"
            text += f", one-sided p of {of} = {self.p:.2g} at a level of {self.level:.2g}"
        text += f"; {self.reason}" if self.reason else ""
        if self.more is not None:
            takes = amounts(self.more.trials, self.more.gpu_hours, self.more.cost)
            text += f"; --more {self.more.seeds} ({takes}) decide it with a chance of {self.more.chance:.0%}"
        return text + (" (from the ledger; nothing was trained)" if self.remembered else "")

    def __str__(self) -> str:
        return self.sentence()


@dataclass(frozen=True)
class Outlook:
    """What a decision on a candidate would cost, as `--dry-run` shows it.

    `digest` is that of the candidate's settings and code, `incumbent` what it would be compared with. `decided` is the
    decision that the ledger has already (None: none). `screening_trials` and `confirmation_trials` are the most that it
    takes. `level` is what the confirmation would get. `trials_left` and `gpu_hours_left` are of the campaign's budget
    (None: it has no limit). GPU-hours and cost are None before the campaign's first trials. A gain of `detects` is
    confirmed with a chance of about 80 %, if runs of one seed have nothing in common (None: no file of noise is
    declared).
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
    detects: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return every field, for programs."""
        return vars(self) | {"decided": self.decided and self.decided.to_dict()}

    def lines(self) -> list[str]:
        """Return the outlook in words, a line each; the decision alone where there is one."""
        if self.decided is not None:
            return [self.decided.sentence()]
        takes = amounts(None, self.gpu_hours, self.cost)
        what_is_left = amounts(self.trials_left, self.gpu_hours_left, None, zero=True)
        lines = [
            f"{self.candidate} against {self.incumbent}: at most {self.screening_trials} trials to screen it and "
            f"{self.confirmation_trials} to confirm it" + (f", about {takes}" if takes else ""),
            f"its confirmation would have a level of {self.level:.2g}",
        ]
        if self.detects:
            lines.append(
                f"a gain of {self.detects:.2g} would be confirmed with a chance of about 80 %"
            )
        if what_is_left:
            lines.append(f"left of the budget: {what_is_left}")
        return lines


def amounts(
    trials: int | None, gpu_hours: float | None, cost: float | None, *, zero: bool = False
) -> str:
    """Return amounts in words: `12 trials, 0.3 hours of a GPU or slot, a cost of 1.2 in the inventory's currency`.

    What is None is left out, and so is what is 0, unless `zero`. "" where all are left out.
    """
    texts = (
        (trials, plural(trials or 0, "trial")),
        (gpu_hours, f"{hours_text(gpu_hours or 0)} hours of a GPU or slot"),
        (cost, f"a cost of {cost or 0:.3g} in the inventory's currency"),
    )
    return ", ".join(text for amount, text in texts if amount is not None and (zero or amount > 0))


def called(ledger: Ledger, number: int) -> str:
    """Return the name of the candidate with this number in sentences.

    `the incumbent` for the declared one (`FIRST`).
    """
    return f"the {INCUMBENT}" if number == FIRST else ledger.asked(number).candidate


def confirmations(ledger: Ledger) -> list[Confirmation]:
    """Return all confirmations of a campaign, in the order of their grants, as `Rule.granted` takes them."""
    return [Confirmation(*entry) for entry in ledger.confirmations]


def decision_of(ledger: Ledger, number: int, metric: str) -> Decision | None:
    """Return what a ledger, as it was last read, says of the candidate with this number; None while it is not decided.

    `metric` is the campaign's.
    """
    decided = ledger.decision(number)
    if decided is None:
        return None
    grant = ledger.granted(number, decided.incumbent)
    # Most fields have the same name in both; the others are told below.
    shared = {
        name: getattr(decided, name)
        for name in Decision.__dataclass_fields__
        if hasattr(decided, name)
    }
    return Decision(
        **shared
        | {
            "campaign": ledger.campaign,
            "candidate": ledger.asked(number).candidate,
            "number": number,
            "incumbent": called(ledger, decided.incumbent),
            "metric": metric,
            "level": grant.level if grant and decided.stage == "confirm" else None,
        }
    )
