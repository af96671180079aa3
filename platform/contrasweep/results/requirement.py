"""What a program requires of a difference: it holds, it surely does not, or there is too little data to say."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from contrasweep.errors import SpecError
from contrasweep.results.answer import Pair

Outcome = Literal["holds", "fails", "open"]
STATUS: dict[Outcome, int] = {"holds": 0, "fails": 5, "open": 6}
"""The exit status by the outcome of a requirement."""
FORMS = ("better", "not-worse", "equivalent")


@dataclass(frozen=True)
class Requirement:
    """What a candidate must be: `better`, `not-worse:MARGIN` or `equivalent:MARGIN`, in units of the metric.

    Whether it is met is read off the interval of candidate - reference, at the level of the verdict.
    """

    form: str
    margin: float

    @classmethod
    def parse(cls, text: str) -> "Requirement":
        """Return the requirement that `text` stands for; `SpecError` where it is of none of the three forms."""
        form, colon, margin_text = text.partition(":")
        try:
            margin = float(margin_text) if margin_text else 0.0
        except ValueError:
            margin = math.nan  # which fits no form
        # `better` has no margin, the others need one.
        fits = 0 < margin < math.inf
        if form == "better":
            fits = not colon
        if form not in FORMS or not fits:
            hint = "better, not-worse:MARGIN or equivalent:MARGIN, with a margin above 0"
            raise SpecError(
                "there is no such requirement", place="--require", value=text, hint=hint
            )
        return cls(form, margin)

    def outcome(
        self, low: float | None, high: float | None, mode: str, matters: float | None = None
    ) -> Outcome:
        """Return whether the interval `low` to `high` of candidate - reference meets the requirement.

        An end that is None is not known. With `mode` "max" larger values are better. The requirement `better` fails not
        only where the candidate is worse: it fails too where the interval shows that any gain is smaller than
        `matters`, the smallest difference of interest.
        """
        low = -math.inf if low is None else low
        high = math.inf if high is None else high
        # From here on a gain is above 0, whichever values are better.
        if mode == "min":
            low, high = -high, -low
        if self.form == "better":
            if low > 0:
                return "holds"
            if high <= 0 or (matters and high < matters):
                return "fails"
            return "open"
        # `not-worse` holds where the whole interval is above -margin, `equivalent` also below margin. They fail where
        # the whole interval is on the other side of such a bound.
        if low > -self.margin and (self.form == "not-worse" or high < self.margin):
            return "holds"
        if high < -self.margin or (self.form == "equivalent" and low > self.margin):
            return "fails"
        return "open"

    def outcome_of_all(self, pairs: Iterable[Pair]) -> Outcome:
        """Return whether all comparisons `pairs`, each of a candidate `a` with its reference `b`, meet the requirement.

        The requirement fails where any comparison fails it. It is open where a comparison has no verdict, as the
        comparison was not declared, and where there is no comparison.
        """
        outcomes: list[Outcome] = []
        for pair in pairs:
            c = pair.comparison
            outcome = self.outcome(c.low, c.high, c.mode, c.family.margin)
            outcomes.append(outcome if pair.has_verdict else "open")
        if "fails" in outcomes:
            return "fails"
        if "open" in outcomes or not outcomes:
            return "open"
        return "holds"
