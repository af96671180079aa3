"""All decisions of a campaign in order, with a figure, and all comparisons of a storage's studies."""

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal, NamedTuple

from contrasweep.campaign.decision import INCUMBENT, Decision, amounts, decision_of
from contrasweep.errors import ContrasweepError, plural
from contrasweep.reporting.figures import Dots, Lines, Series
from contrasweep.reporting.formats import render_template
from contrasweep.reporting.svg import draw
from contrasweep.results.answer import Pair
from contrasweep.results.ledger import FIRST, Asked, Ledger, campaign_names
from contrasweep.results.results import Results
from contrasweep.statistics.comparison import p_text
from contrasweep.statistics.referee import Confirmation, Rule
from contrasweep.storage.records import study_names
from contrasweep.text_table import text_table

# Columns of the table of a campaign.
HEAD = (
    "entry",
    "candidate",
    "asked by",
    "verdict",
    "difference [interval]",
    "p",
    "level",
    "seeds",
    "trials",
    "studies",
    "why",
)


@dataclass(frozen=True)
class CandidateRow:
    """One candidate of a campaign and its decision.

    Attributes:
        number: The number of its entry in the ledger.
        candidate: Its name.
        digest: The digest of its settings and code.
        by: Who asked for it.
        why: Why it is tried.
        asked: When, as ISO 8601 in UTC.
        decision: The decision; None: there is none yet.
        studies: The names of the studies that train it.
    """

    number: int
    candidate: str
    digest: str
    by: str
    why: str
    asked: str
    decision: Decision | None
    studies: list[str]


class Point(NamedTuple):
    """A candidate in the figure: `x` is its place in the order, `y` its difference to the first incumbent."""

    x: float
    y: float
    decision: Decision


@dataclass(frozen=True)
class History:
    """The candidates and decisions of a campaign, for people and programs.

    Attributes:
        campaign: The campaign.
        metric: Its metric.
        alpha: Its level.
        error: What alpha bounds: the chance of any false keep (`family`), or the expected share of false ones among all
            keeps (`fdr`).
        incumbent: The name of the present incumbent.
        next_level: The level that the next confirmation would get.
        trials: Trials that were spent so far.
        gpu_hours: GPU-hours that were spent so far.
        cost: Their cost, in the inventory's currency.
        rows: The candidates, in the order in which they were asked for.
    """

    campaign: str
    metric: str
    alpha: float
    error: Literal["family", "fdr"]
    incumbent: str
    next_level: float
    trials: int
    gpu_hours: float
    cost: float
    rows: tuple[CandidateRow, ...]

    def to_dict(self) -> dict[str, object]:
        """Return every field, for programs."""
        rows = [
            asdict(row) | {"decision": row.decision and row.decision.to_dict()} for row in self.rows
        ]
        return vars(self) | {"rows": rows}

    @property
    def summary(self) -> str:
        """The campaign as one line: candidates, keeps, incumbent, what was spent, and level.

        For example `speed: 3 candidates, 1 kept; ocl is the incumbent; 36 trials, 0.4 hours of a GPU or slot; alpha
        0.05 holds for any false keep, 0.025 for the next confirmation`.
        """
        keeps = sum(bool(row.decision and row.decision.kept) for row in self.rows)
        bounded = "any false keep" if self.error == "family" else "false ones of what is kept"
        spent = amounts(self.trials, self.gpu_hours, self.cost) or "nothing spent"
        return (
            f"{self.campaign}: {plural(len(self.rows), 'candidate')}, {keeps} kept; {self.incumbent} is the {INCUMBENT}"
            f"; {spent}; alpha {self.alpha:g} holds for {bounded}, {self.next_level:.2g} for the next confirmation"
        )

    @cached_property
    def table(self) -> list[list[str]]:
        """The table as texts: the head, and a row for each candidate.

        The columns are those of `HEAD`, without columns that are empty in all rows.
        """
        texts = list(map(_texts, self.rows))
        columns = [name for name in HEAD if any(row.get(name) for row in texts)]
        rows = [columns]
        for row in texts:
            rows.append([row.get(name, "") for name in columns])
        return rows

    def lines(self, width: int) -> list[str]:
        """Return the lines of the summary and the table, for a terminal of `width` columns."""
        return [self.summary, "", *text_table(self.table, rule=True, width=width)]

    def to_html(self) -> bytes:
        """Return an HTML page with the figure and the table."""
        head, *rows = self.table
        page = render_template(
            "campaign.html",
            name=self.campaign,
            summary=self.summary,
            figure=draw(self.figure),
            head=head,
            rows=rows,
        )
        return page.encode()

    @property
    def figure(self) -> Lines:
        """The difference of the incumbents to the first one, as a line of steps with the interval of each as a band.

        Candidates are points, from left to right: in the order in which they were asked for, but after the incumbents
        that they were compared with. The height of a candidate is its difference plus the height of that incumbent.
        One without a difference is left out.
        """
        # The line so far, from left to right, and the lower and upper end of its band.
        x = [0.0]
        y = [0.0]
        low = [0.0]
        high = [0.0]
        heights = {f"the {INCUMBENT}": 0.0}  # of incumbents, by name
        points = []
        undrawn = [row.decision for row in self.rows if row.decision]
        for order in range(1, len(undrawn) + 1):
            # The next candidate whose incumbent is drawn; else the first.
            drawable = [decision for decision in undrawn if decision.incumbent in heights]
            decision = (drawable or undrawn)[0]
            undrawn.remove(decision)
            difference = decision.screened if decision.estimate is None else decision.estimate
            if difference is None:
                continue
            base = heights.get(decision.incumbent, 0.0)
            height = base + difference
            points.append(Point(float(order), height, decision))
            # A step of the line takes two points: the former height, and the new one. An end of the interval that is
            # not known is drawn at the height.
            if decision.kept:
                heights[decision.candidate] = height
                x += [float(order), float(order)]
                y += [y[-1], height]
                low += [low[-1], height if decision.low is None else base + decision.low]
                high += [high[-1], height if decision.high is None else base + decision.high]
        end = float(len(self.rows) + 1)
        line = Series(
            INCUMBENT,
            colour=0,
            x=[*x, end],
            y=[*y, y[-1]],
            low=[*low, low[-1]],
            high=[*high, high[-1]],
        )

        def dots(name: str, colour: int, kept: bool) -> Dots:
            """Return the candidates that were kept (or with `kept` False those that were not) as points of one colour.

            `name` is their name in the figure, and `colour` the number of the colour. A pointer over a point shows its
            decision as a sentence.
            """
            chosen = [point for point in points if point.decision.kept == kept]
            return Dots(
                name,
                colour,
                x=[point.x for point in chosen],
                y=[point.y for point in chosen],
                titles=[str(point.decision) for point in chosen],
            )

        return Lines(
            [line],
            [dots("kept", 0, True), dots("not kept", 1, False)],
            "candidates in order",
            f"{self.metric} - first {INCUMBENT}'s",
        )


def _texts(row: CandidateRow) -> dict[str, str]:
    """Return the texts of a candidate's row: column of `HEAD` -> text. A column that is left out is empty."""
    texts = {
        "entry": str(row.number),
        "candidate": row.candidate,
        "asked by": row.by,
        "studies": ", ".join(row.studies),
        "why": row.why,
    }
    decision = row.decision
    if decision is None:
        return {**texts, "verdict": "not decided"}
    screened = "" if decision.screened is None else f"{decision.screened:+.3g} in the screen"
    kept = ", kept" if decision.kept and decision.verdict != "keep" else ""
    return {
        **texts,
        "verdict": f"{decision.verdict}{kept}",
        "difference [interval]": decision.span or screened,
        "p": "" if decision.p is None else p_text(decision.p).removeprefix("= "),
        "level": "" if decision.level is None else f"{decision.level:.2g}",
        "seeds": str(decision.seeds),
        "trials": str(decision.trials),
    }


def history_of(ledger: Ledger, metric: str, rule: Rule) -> History:
    """Return the history of a campaign from the entries of its ledger, which is not read again.

    `metric` and `rule` are those by which the campaign decides.
    """
    rows = [
        CandidateRow(
            number=i,
            candidate=entry.candidate,
            digest=entry.digest,
            by=entry.by,
            why=entry.why,
            asked=datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds"),
            decision=decision_of(ledger, i, metric),
            studies=ledger.studies_of(i),
        )
        for i, entry in enumerate(ledger.entries)
        if isinstance(entry, Asked)
    ]
    incumbent = f"the first {INCUMBENT}"
    if ledger.incumbent != FIRST:
        incumbent = ledger.asked_for(ledger.incumbent).candidate
    return History(
        campaign=ledger.campaign,
        metric=metric,
        alpha=rule.alpha,
        error=rule.error,
        incumbent=incumbent,
        next_level=rule.granted(ledger.confirmations),
        **asdict(ledger.spent),
        rows=tuple(rows),
    )


@dataclass(frozen=True)
class ComparisonLine:
    """A verdict of a study, on arm `a` against arm `b`.

    `at` is the day (UTC) on which the study ended. `context` names the cells that are compared ("": all). `p` is
    adjusted for the comparisons and looks of its own study. `level` is what the comparison gets if all studies share
    one alpha (see `Comparisons`), and `remains` says whether the verdict stands at this level.
    """

    study: str
    at: str
    a: str
    b: str
    metric: str
    context: str
    verdict: str
    p: float
    level: float
    remains: bool


@dataclass(frozen=True)
class Comparisons:
    """All verdicts of a storage's studies, in the order in which the studies ended.

    Each verdict is also judged as one test of a single sequence of tests, with a false discovery rate of .05 (LORD++).
    """

    comparisons: tuple[ComparisonLine, ...]
    skipped: tuple[str, ...]  # a sentence for each study that is left out

    def lines(self, width: int) -> list[str]:
        """Return the lines of the table for a terminal of `width` columns, a summary, and the skipped studies."""
        rows = [("study", "ended", "comparison", "verdict", "p", "level", "remains")]
        decided = 0
        remaining = 0
        for row in self.comparisons:
            context = f" ({row.context})" if row.context else ""
            # Only a verdict can remain; an undecided comparison has an empty cell.
            remains = ""
            if row.verdict != "undecided":
                remains = "yes" if row.remains else "no"
                decided += 1
                remaining += row.remains
            rows.append(
                (
                    row.study,
                    row.at,
                    f"{row.a} against {row.b}{context}",
                    row.verdict,
                    p_text(row.p).removeprefix("= "),
                    f"{row.level:.2g}",
                    remains,
                )
            )
        summary = (
            f"{plural(len(self.comparisons), 'comparison')}, {decided} decided by their own studies; "
            f"{remaining} remain where all are one stream (LORD++, false discoveries at most .05 of what remains)"
        )
        return [*text_table(rows, rule=True, width=width), "", summary, *self.skipped]


def comparisons_of(storage: str) -> Comparisons:
    """Return all comparisons with a verdict of the studies in a storage, in the order in which the studies ended.

    The studies that a campaign has trained are left out, because the campaign's ledger counts its own decisions. A
    study that cannot be read is named in `Comparisons.skipped`.
    """
    # The studies of a campaign NAME are NAME.incumbent-1, NAME.2, NAME.2.confirm and NAME.2.confirm-1.
    campaigns = "|".join(map(re.escape, campaign_names(storage)))
    of_campaign = re.compile(rf"({campaigns})\.(incumbent-\d+|\d+(\.confirm(-\d+)?)?)")
    ends: dict[str, float] = {}  # study -> when it ended
    verdicts: dict[str, list[Pair]] = {}  # study -> its comparisons with a verdict
    skipped = []
    for name in study_names(storage):
        if of_campaign.fullmatch(name):
            continue
        try:
            results = Results.load(name, storage)
            verdicts[name] = [
                pair for pair in results.answer.pairs if pair.has_verdict and pair.comparison.n > 1
            ]
            records = results.trial_records.values()
            ends[name] = max((record.ended for record in records), default=0.0)
        except ContrasweepError as error:
            skipped.append(f"{name} is not counted: {error}")
    # Judge all verdicts in their order, as one stream with a false discovery rate of alpha.
    rule = Rule(error="fdr")
    past = list[Confirmation]()
    rows = list[ComparisonLine]()
    for study in sorted(ends, key=lambda study: ends[study]):
        for pair in verdicts[study]:
            comparison = pair.comparison
            # The level follows from the earlier comparisons, and whether p reaches it counts for the later ones.
            level = rule.granted(past)
            assert comparison.judgement is not None
            p = comparison.judgement.looked_p
            past.append(Confirmation(level, p <= level, p))
            context = ", ".join(f"{factor} {value}" for factor, value in pair.context)
            rows.append(
                ComparisonLine(
                    study=study,
                    at=datetime.fromtimestamp(ends[study], UTC).date().isoformat(),
                    a=pair.a,
                    b=pair.b,
                    metric=pair.metric,
                    context=context,
                    verdict=comparison.verdict,
                    p=p,
                    level=level,
                    remains=p <= level and comparison.decided,
                )
            )
    return Comparisons(tuple(rows), tuple(skipped))
