"""What was decided so far: a campaign's decisions in order with their figure, and the comparisons of all studies."""

import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal

from markupsafe import Markup

from contrasweep.campaign.decision import INCUMBENT, Decision, amounts, confirmations, decision_of
from contrasweep.errors import ContrasweepError, plural
from contrasweep.live.overview import study_names
from contrasweep.reporting.figures import Dots, Lines, Series
from contrasweep.reporting.formats import render_template
from contrasweep.reporting.svg import draw
from contrasweep.results.ledger import FIRST, Asked, Ledger, campaign_names
from contrasweep.results.results import Results
from contrasweep.statistics.comparison import p_text, span
from contrasweep.statistics.referee import Confirmation, Rule
from contrasweep.storage.records import StudyRecords
from contrasweep.text_table import text_table
from contrasweep.tracking.links import read_links

# Columns of the table of a campaign.
HEAD = (
    "number",
    "candidate",
    "asked by",
    "verdict",
    "gain [interval]",
    "p",
    "level",
    "seeds",
    "trials",
    "studies",
    "why",
)


@dataclass(frozen=True)
class Line:
    """One candidate: who asked (`by`), when (`asked`, ISO 8601 in UTC) and why, and the decision (None: not yet).

    `number` is that of its entry in the ledger, `digest` that of its settings and code. `studies` are those that train
    it, each with its address in MLflow; "" where it has none.
    """

    number: int
    candidate: str
    digest: str
    by: str
    why: str
    asked: str
    decision: Decision | None
    studies: dict[str, str]


@dataclass(frozen=True)
class History:
    """The candidates and decisions of a campaign, for people and programs.

    `alpha` bounds what `error` says: the chance of any false keep (`family`), or the share of false ones of what is
    kept (`fdr`). `incumbent` is the present one's name, `next_level` what the next confirmation would get. `trials`,
    `gpu_hours` and `cost` (in the inventory's currency) are spent so far. `rows` are the candidates in the order in
    which they were asked.
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
    rows: tuple[Line, ...]

    def to_dict(self) -> dict[str, object]:
        """Return every field, for programs."""
        rows = [
            asdict(row) | {"decision": row.decision and row.decision.to_dict()} for row in self.rows
        ]
        return vars(self) | {"rows": rows}

    @property
    def summary(self) -> str:
        """The campaign in a line: its candidates and keeps, its incumbent, what is spent, and its level.

        For example `speed: 3 candidates, 1 kept; ocl is the incumbent; 36 trials, 0.4 hours of a GPU or slot; alpha
        0.05 holds for any false keep, 0.025 for the next confirmation`.
        """
        keeps = sum(bool(row.decision and row.decision.kept) for row in self.rows)
        held = "any false keep" if self.error == "family" else "false ones of what is kept"
        return (
            f"{self.campaign}: {plural(len(self.rows), 'candidate')}, {keeps} kept; {self.incumbent} is the {INCUMBENT}"
            f"; {amounts(self.trials, self.gpu_hours, self.cost)}; "
            f"alpha {self.alpha:g} holds for {held}, {self.next_level:.2g} for the next confirmation"
        )

    @cached_property
    def table(self) -> list[list[str]]:
        """The head (of `HEAD`), then a row for each candidate, as texts.

        A column that is empty in all rows is left out.
        """
        rows = list(map(_texts, self.rows))
        columns = [name for name in HEAD if any(row.get(name) for row in rows)]
        return [columns, *([row.get(name, "") for name in columns] for row in rows)]

    def lines(self, width: int) -> list[str]:
        """Return the summary and the table for a terminal of so many columns."""
        return [self.summary, "", *text_table(self.table, rule=True, width=width)]

    def to_html(self) -> bytes:
        """Return an HTML page with the figure and the table, whose studies are links where they are in MLflow."""
        # Name of a study -> its page. The texts of the table are escaped by the template, the links are not.
        links = {name: url for row in self.rows for name, url in row.studies.items() if url}
        link = Markup('<a href="{}">{}</a>')
        rows = [list[str](row) for row in self.table[1:]]
        # Names of studies become links where MLflow has them.
        for row in rows:
            at = self.table[0].index("studies")
            names = row[at].split(", ")
            row[at] = Markup(", ").join(
                link.format(links[name], name) if name in links else name for name in names
            )
        page = render_template(
            "campaign.html",
            name=self.campaign,
            summary=self.summary,
            figure=draw(self.figure),
            head=self.table[0],
            rows=rows,
        )
        return page.encode()

    @property
    def figure(self) -> Lines:
        """The gain of the incumbents over the first one, as a line of steps, with the interval of each step as a band.

        Candidates are points at their own gain, from left to right in the order in which they were asked. Gains are
        added up: a candidate's is drawn above the incumbent that it was compared with. One without a number is left
        out.
        """
        # The line so far, from left to right, and the ends of its band.
        at = [0.0]
        low = [0.0]
        high = [0.0]
        x = [0.0]
        levels = {f"the {INCUMBENT}": 0.0}  # name of an incumbent -> its height
        points = []
        for i, row in enumerate(self.rows, 1):
            decision = row.decision
            if decision is None:
                continue
            gain = decision.screened if decision.estimate is None else decision.estimate
            if gain is None:
                continue
            base = levels.get(decision.incumbent, 0.0)
            points.append((float(i), base + gain, decision))
            if decision.kept:
                levels[row.candidate] = base + gain
                ends = [
                    base + (gain if end is None else end) for end in (decision.low, decision.high)
                ]
                # twice, so that the band has steps too
                x = [*x, float(i), float(i)]
                at = [*at, at[-1], base + gain]
                low = [*low, low[-1], ends[0]]
                high = [*high, high[-1], ends[1]]
        end = float(len(self.rows) + 1)
        line = Series(INCUMBENT, 0, [*x, end], [*at, at[-1]], [*low, low[-1]], [*high, high[-1]])

        def dots(name: str, colour: int, kept: bool) -> Dots:
            """Return the candidates that were kept, or were not, as points, each with its sentence."""
            chosen = [point for point in points if point[2].kept == kept]
            x = [point[0] for point in chosen]
            y = [point[1] for point in chosen]
            return Dots(name, colour, x, y, [str(point[2]) for point in chosen])

        label = f"gain in {self.metric}"
        return Lines(
            [line],
            [dots("kept", 0, True), dots("not kept", 1, False)],
            "candidates in order",
            label,
            whole_x=True,
        )


def _texts(row: Line) -> dict[str, str]:
    """Return the texts of a row by column of `HEAD`; a column without a text is left out or ""."""
    texts = {
        "number": str(row.number),
        "candidate": row.candidate,
        "asked by": row.by,
        "studies": ", ".join(row.studies),
        "why": row.why,
    }
    decision = row.decision
    if decision is None:
        return {**texts, "verdict": "not decided"}
    gain = "" if decision.screened is None else f"{decision.screened:+.3g} in the screen"
    if decision.estimate is not None:
        low = -math.inf if decision.low is None else decision.low
        gain = span(decision.estimate, low, math.inf if decision.high is None else decision.high)
    return {
        **texts,
        "verdict": decision.verdict
        + (", kept" if decision.kept and decision.verdict != "keep" else ""),
        "gain [interval]": gain,
        "p": "" if decision.p is None else p_text(decision.p).removeprefix("= "),
        "level": "" if decision.level is None else f"{decision.level:.2g}",
        "seeds": str(decision.seeds),
        "trials": str(decision.trials),
    }


def history_of(ledger: Ledger, metric: str, rule: Rule) -> History:
    """Return what a ledger, as it was last read, says of a campaign that decides by this metric and rule."""
    rows = [
        Line(
            number=i,
            candidate=entry.candidate,
            digest=entry.digest,
            by=entry.by,
            why=entry.why,
            asked=datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds"),
            decision=decision_of(ledger, i, metric),
            studies={
                name: read_links(StudyRecords(ledger.storage, name)).study
                for name in ledger.studies_of(i)
            },
        )
        for i, entry in enumerate(ledger.entries)
        if isinstance(entry, Asked)
    ]
    incumbent = ledger.incumbent
    called = f"the first {INCUMBENT}" if incumbent == FIRST else ledger.asked(incumbent).candidate
    return History(
        campaign=ledger.campaign,
        metric=metric,
        alpha=rule.alpha,
        error=rule.error,
        incumbent=called,
        next_level=rule.granted(confirmations(ledger)),
        **asdict(ledger.spent),
        rows=tuple(rows),
    )


@dataclass(frozen=True)
class ComparisonLine:
    """A verdict of a study, on arm `a` against arm `b`.

    `at` is the day (UTC) on which the study ended, `context` the cells that it is of ("": all). `p` counts the study's
    own family and looks. `level` is what the comparison gets where all studies share one alpha (see `Comparisons`), and
    `remains` says whether the verdict would still be given then.
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

    Each is also judged as if all verdicts were one sequence of tests, with a false discovery rate of .05 (LORD++).
    """

    comparisons: tuple[ComparisonLine, ...]
    skipped: tuple[str, ...] = ()  # a sentence for each study that is left out

    def lines(self, width: int) -> list[str]:
        """Return the table for a terminal of so many columns, with what it says in a line, and what is left out."""
        decided = [row for row in self.comparisons if row.verdict != "undecided"]
        head = ("study", "ended", "comparison", "verdict", "p", "level", "remains")
        rows = [
            (
                row.study,
                row.at,
                f"{row.a} against {row.b}" + (f" ({row.context})" if row.context else ""),
                row.verdict,
                p_text(row.p).removeprefix("= "),
                f"{row.level:.2g}",
                ("yes" if row.remains else "no") if row in decided else "",
            )
            for row in self.comparisons
        ]
        summary = (
            f"{plural(len(self.comparisons), 'comparison')}, {len(decided)} decided by their own studies; "
            f"{sum(row.remains for row in decided)} remain where all are one stream (LORD++, false discoveries at "
            "most .05 of what remains)"
        )
        return [*text_table([head, *rows], rule=True, width=width), "", summary, *self.skipped]


def comparisons_of(storage: str) -> Comparisons:
    """Return the comparisons that have verdicts, of all studies of a storage, in the order in which the studies ended.

    Studies of campaigns are left out: they stand in their own ledgers. A study that cannot be read is named as skipped.
    """
    campaigns = campaign_names(storage)
    lines: list[tuple[float, Results]] = []
    skipped = []
    for name in study_names(storage):
        # Studies of a campaign: its own ledger counts them.
        if any(name.startswith(f"{campaign}.") for campaign in campaigns):
            continue
        try:
            results = Results.load(name, storage)
            ended = max((record.ended for record in results.trial_records.values()), default=0.0)
            lines.append((ended, results))
        except ContrasweepError as error:
            skipped.append(f"{name} is not counted: {error}")
    # All verdicts in their order, as if they were one stream with a false discovery rate of alpha.
    rule = Rule(error="fdr")
    past = list[Confirmation]()
    rows = list[ComparisonLine]()
    for ended, results in sorted(lines, key=lambda entry: entry[0]):
        try:
            pairs = [pair for pair in results.answer.pairs if pair.judged and pair.comparison.n > 1]
        except ContrasweepError as error:
            skipped.append(f"{results.name} is not counted: {error}")
            continue
        for pair in pairs:
            comparison = pair.comparison
            # The level follows from the comparisons before; whether p is below it counts for those that follow.
            level = rule.granted(past)
            assert comparison.judgement is not None
            p = comparison.judgement.looked_p
            past.append(Confirmation(level, p <= level, p))
            context = ", ".join(f"{factor} {value}" for factor, value in pair.context)
            rows.append(
                ComparisonLine(
                    study=results.name,
                    at=datetime.fromtimestamp(ended, UTC).date().isoformat(),
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
