"""Interim analyses: what the log of looks keeps when a study that grows is looked at, or a fixed one is extended."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Self

import pandas as pd

from contrasweep.canonical import label
from contrasweep.planning.plan import Cell
from contrasweep.planning.planner import Plan
from contrasweep.planning.stages import Stage, cell_name, spending_time
from contrasweep.planning.sweep import SweepPlan
from contrasweep.results.building import PairEvidence
from contrasweep.results.results import Results
from contrasweep.rows import Mode
from contrasweep.statistics.comparison import Comparison
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import LEVEL_DIVISOR, Family
from contrasweep.statistics.group_sequential import Looks, Standing, judge_looks
from contrasweep.storage.interim_log import (
    EXTENDED,
    VERDICTS,
    LookAt,
    LookLog,
    LookTaken,
    read_confirmations,
    read_looks,
    write_looks,
)
from contrasweep.storage.record import Phase
from contrasweep.storage.records import StudyRecords
from contrasweep.study.metric_names import metric_range
from contrasweep.study.replicates import Replicates


def take_look(plan: Plan, stage: Stage, records: StudyRecords) -> str:
    """Judge the study's comparisons at a look, and return a sentence about the look.

    All trials before the look have ended. `stage` says how many replicates there are. The look is written to the
    study's log of looks, in the storage of `records`. The study must have declared `replicates`.
    """
    declared = plan.study.replicates
    assert declared is not None
    log = read_looks(records) or LookLog(declared.spending, declared.of)
    results = Results.load(plan.study.name, records.storage)
    pairs = judged_pairs_of(results)
    # The family of the table. Each earlier confirmation of the study divides its alpha by `LEVEL_DIVISOR`.
    family = next(
        (pair.comparison.family for pair in results.answer.pairs if pair.has_verdict), Family(0)
    )
    # The last confirmation is the present one.
    earlier = max(0, len(read_confirmations(records)) - 1)
    family = replace(family, alpha=family.alpha / LEVEL_DIVISOR**earlier)
    bounds = metric_range(results.metric)
    look, open_cells = judge_look(
        pairs, stage, log, declared, family, results.document.mode, bounds
    )
    write_looks(records, log.with_look(look))
    # The sentence: how many comparisons are decided, futile or open, and how many cells go on.
    decisions = [entry.decision for entry in look.comparisons]
    counts = Counter("decided" if word in ("better", "worse") else word for word in decisions)
    summary = ", ".join(f"{count} {word}" for word, count in counts.items())
    following = (
        f"{len(open_cells)} of {len(plan.cells)} cells go on" if open_cells else "no cell goes on"
    )
    return f"look {len(log.looks) + 1} at {stage.replicates} {declared.of}: {summary}; {following}"


def judge_look(
    pairs: Sequence[PairEvidence],
    stage: Stage,
    log: LookLog,
    declared: Replicates,
    family: Family,
    mode: Mode = "max",
    bounds: tuple[float, float] | None = None,
) -> tuple[LookTaken, list[Cell]]:
    """Return the look that is due at `stage`, and the cells that train further replicates after it.

    `pairs` are all comparisons of the `family`; `log` has the earlier looks, and `declared` says how the study grows.
    `bounds` are the least and the largest value of the metric; None where they are not known.
    """
    last = stage.time >= 1
    entries = _log_entries(
        pairs, log, planned_looks(declared, log, stage), family, mode, declared, bounds, last
    )
    # A cell goes on while any comparison with its arm is open: in this cell, or over all cells (context ()).
    open_arms = set()
    for entry in entries:
        if entry.decision == "open":
            open_arms |= {(entry.context, entry.a), (entry.context, entry.b)}
    open_cells = []
    stopped = []
    for cell in stage.open:
        contexts = ((), tuple((axis, label(value)) for axis, value in cell.axes.items()))
        if not last and any((context, cell.arm) in open_arms for context in contexts):
            open_cells.append(cell)
        else:
            stopped.append(cell_name(cell.arm, cell.axes))
    look = LookTaken(
        stage.replicates, stage.time, entries, tuple(stopped), time.time(), family.margin
    )
    return look, open_cells


def planned_looks(declared: Replicates, log: LookLog, stage: Stage) -> Looks:
    """Return all looks of the study: those that `log` has, the present one at `stage`, and `declared` further ones."""
    # Each look as its number of replicates and its time (see `Looks`).
    before = [(look.replicates, look.time) for look in log.looks]
    ahead = [(n, spending_time(declared, log, n)) for n in declared.looks if n > stage.replicates]
    all_looks = [*before, (stage.replicates, stage.time), *ahead]
    information = tuple(float(n) for n, _ in all_looks)
    return Looks(information, tuple(time for _, time in all_looks), declared.spending)


def judged_pairs_of(results: Results) -> list[PairEvidence]:
    """Return the comparisons that the study decides, with their evidence, if their arms share finished replicates.

    The sides `a` and `b` are those of the evidence, which the table may show the other way round.
    """
    # The table has the better arm first, but evidence is of its own a against b: in a turned comparison these are the
    # table's b and a.
    pairs = []
    for pair in results.answer.pairs:
        if pair.has_verdict:
            a, b = (pair.b, pair.a) if pair.comparison.turned else (pair.a, pair.b)
            pairs.append(PairEvidence(pair.context, a, b, pair.comparison.evidence))
    return pairs


@dataclass(frozen=True)
class _Tested:
    """A comparison at the present look, with what earlier looks wrote of it.

    `history` has for each earlier look its entry on the comparison, or None, and `past` is the newest entry. `p_value`
    and `equivalence_p` are those of the present look. They are None where the comparison has no new replicates since
    `past`: then it is not tested again. The test of the comparison must be able to reach the `level`.
    """

    pair: PairEvidence
    history: Sequence[LookAt | None]
    past: LookAt | None
    level: float
    p_value: float | None
    equivalence_p: float | None

    @classmethod
    def of(
        cls,
        pair: PairEvidence,
        log: LookLog,
        looks: Looks,
        family: Family,
        mode: Mode,
        inflation: float,
    ) -> Self:
        """Return the comparison `pair`, tested at the look that comes after those of `log`.

        `looks` are all looks of the study. The p-values of looks are to be multiplied by `inflation`
        (`Looks.t_inflation`), and so the level that chooses the test is divided by it.
        """
        evidence = pair.evidence
        history = log.history(pair.context, pair.a, pair.b)
        past = log.newest(pair.context, pair.a, pair.b)
        # The comparison is tested where it has more pairs of trials than at its newest look.
        fresh = past is None or evidence.gaps.planned > past.pairs
        tested_at = []
        for number, earlier in enumerate(history):
            if earlier is not None and earlier.p_value is not None:
                tested_at.append(number)
        # The test is chosen by the level of the family's first step at a look: at the present one, or else at the last
        # one that tested the comparison (there is one, as it stands in the log). A level that is divided by the
        # inflation has the effect of a p that is multiplied by it.
        look = len(log.looks) if fresh else max(tested_at)
        level = looks.level_at(family.level / inflation, look)
        p_value = evidence.p_value(level, mode) if fresh else None
        equivalence_p = None
        if fresh and family.margin is not None:
            equivalence_p = evidence.equivalence_p(family.margin, level, mode)
        return cls(pair, history, past, level, p_value, equivalence_p)

    @property
    def repeated(self) -> LookAt | None:
        """The newest entry of the log, if the present look has no new replicates and repeats this entry; else None."""
        return self.past if self.p_value is None else None

    @property
    def decided(self) -> bool:
        """Whether an earlier look decided the comparison, whose verdict then stays."""
        return self.past is not None and self.past.decision in VERDICTS

    @property
    def difference(self) -> float:
        """The estimated difference: of all data where they are tested now, else that of the newest entry."""
        if self.repeated is not None:
            return self.repeated.difference
        return self.pair.evidence.common.difference

    def p_values(self, name: Literal["p_value", "equivalence_p"]) -> list[float]:
        """Return the p-value of every look, the present one last; NaN for a look that did not test the comparison.

        `name` says which p: of no difference (`p_value`) or of equivalence (`equivalence_p`).
        """
        earlier = [None if entry is None else getattr(entry, name) for entry in self.history]
        return [math.nan if value is None else value for value in (*earlier, getattr(self, name))]

    def entry(self, standing: Standing, ready: bool, mode: Mode) -> LookAt:
        """Return the entry on this comparison that the log keeps of the present look.

        It has the decision of its `standing` after this look, but an earlier verdict stays. There is no interval where
        the comparison is not `ready` for a verdict.
        """
        evidence = self.pair.evidence
        ends = -math.inf, math.inf
        if ready:
            ends = evidence.interval(standing.level, self.level, mode)
        low, high = LookAt.ends(*ends)
        decision = standing.decision
        if self.past is not None and self.decided:
            decision = self.past.decision
        return LookAt(
            context=self.pair.context,
            a=self.pair.a,
            b=self.pair.b,
            pairs=evidence.gaps.planned if self.repeated is None else self.repeated.pairs,
            difference=self.difference,
            low=low,
            high=high,
            p_value=self.p_value,
            equivalence_p=self.equivalence_p,
            adjusted_p=standing.p_value,
            adjusted_equivalence_p=standing.equivalence_p,
            level=self.level,
            decision=decision,
        )


def _log_entries(
    pairs: Sequence[PairEvidence],
    log: LookLog,
    looks: Looks,
    family: Family,
    mode: Mode,
    declared: Replicates,
    bounds: tuple[float, float] | None,
    last: bool,
) -> tuple[LookAt, ...]:
    """Return the log's entry of every comparison at this look.

    Comparisons with new replicates are tested, and those with a verdict keep it. Before the `last` look no verdict is
    given that later trainings could overturn by collapsing. `looks` are all looks of the study; the other arguments are
    those of `judge_look`.
    """
    if not pairs:
        return ()
    # Where t statistics of more and more seeds are looked at, the chance of a false verdict exceeds alpha a little.
    # Looks over folds keep their folds, and the chance is smaller.
    of_seeds = not any(
        comparison.evidence.common.design.folds or comparison.evidence.common.design.items
        for comparison in pairs
    )
    inflation = looks.t_inflation(family.level) if of_seeds else 1.0
    tested = [_Tested.of(pair, log, looks, family, mode, inflation) for pair in pairs]
    # The judgement of the present look, which is made a second time below if some comparisons must wait.
    judged_now = partial(
        judge_looks,
        [test.p_values("p_value") for test in tested],
        [test.difference for test in tested],
        looks,
        family,
        equivalence_p=[test.p_values("equivalence_p") for test in tested],
        standard_errors=[_last_error(pair.evidence, declared) for pair in pairs],
        decided=[test.decided for test in tested],
        mode=mode,
        inflation=inflation,
    )
    standings = judged_now()
    ready = [True] * len(tested)
    if not last:
        # A comparison is ready where it was decided before, where it has no verdict, and where collapses could not
        # overturn its verdict. The family is judged again with those that must wait.
        ready = [
            test.decided
            or standing.decision not in VERDICTS
            or test.pair.evidence.may_decide_early(standing.decision, mode, family.margin, bounds)
            for test, standing in zip(tested, standings, strict=True)
        ]
        standings = judged_now(may_decide=ready)
    judged = zip(tested, standings, ready, strict=True)
    return tuple(test.entry(standing, is_ready, mode) for test, standing, is_ready in judged)


def _last_error(evidence: Evidence, declared: Replicates) -> float:
    """Return the standard error that the difference will have at the last look, by the components estimated now.

    At the last look the study has the most seeds or repeats that it `declared`.
    """
    now = evidence.common
    seeds = declared.most if declared.of == "seeds" else now.design.seeds
    repeats = declared.most if declared.of == "repeats" else now.design.repeats
    return math.sqrt(replace(now.design, seeds=seeds, repeats=repeats).variance(now.components))


UNIT = "replicates"
"""What the log of a study of fixed size counts its looks in."""


def count_look(plan: Plan, records: StudyRecords) -> None:
    """Add a look to the log of a study of fixed size that `plan` extends: the user has seen the table before.

    A look is added where all trials have ended and `plan` gives cells more replicates. Where `plan` takes an earlier
    extension back before any of its trials has ended, the look that was added for that extension is removed.

    Nothing is done for a study with `replicates`, which logs its looks itself, for a new study, and where `plan` is the
    plan that was declared last.
    """
    document = records.document()
    if plan.study.replicates is not None or document is None or document.plan_digest == plan.digest:
        return
    log = read_looks(records) or LookLog(EXTENDED, UNIT)
    results = Results.load(plan.study.name, records.storage)
    # No more replicates than at the last look, neither recorded nor planned: the extension after it is taken back.
    last_look = log.looks[-1].replicates if log.looks else 0
    planned = _planned_replicates(plan)
    taken_back = log.looks and max(_recorded_replicates(results), planned) <= last_look
    if taken_back:
        write_looks(records, replace(log, looks=log.looks[:-1]))
        return
    # A look counts once at a number of replicates, that of the largest cell, and only where all trials have ended.
    ended = results.planned["trial_id"].isin(list(results.trial_records))
    present = _largest_cell(results, results.planned)
    grows = 0 < present < planned
    already_counted = present <= last_look
    if not ended.all() or not grows or already_counted:
        return
    judged = [pair.comparison for pair in results.answer.pairs if pair.has_verdict]
    # Where nobody knows how much a seed changes, no comparison had a test, and so no look was taken.
    if any(not comparison.evidence.common.seed_unknown for comparison in judged):
        write_looks(
            records, log.with_look(look_before(judged_pairs_of(results), judged, log, present))
        )


def look_before(
    pairs: Sequence[PairEvidence], known: Sequence[Comparison], log: LookLog, replicates: int
) -> LookTaken:
    """Return an entry for the log: a look that was taken at a table with this many `replicates`, before it is extended.

    `known` has the comparison of each entry of `pairs`, with its verdict; `log` has the earlier looks.
    """
    comparisons = []
    for pair, comparison in zip(pairs, known, strict=True):
        # The arms in the order of the evidence, as `pairs` have them.
        c = comparison.reversed() if comparison.turned else comparison
        low, high = LookAt.ends(c.low, c.high)
        entry = LookAt(
            context=pair.context,
            a=pair.a,
            b=pair.b,
            pairs=pair.evidence.gaps.planned,
            difference=c.difference,
            low=low,
            high=high,
            p_value=c.raw_p,
            equivalence_p=None,  # of equivalence only the adjusted p is kept
            adjusted_p=c.p_value,
            adjusted_equivalence_p=c.equivalence_p,
            level=c.level,
            decision="open" if c.decision == "undecided" else c.decision,
        )
        comparisons.append(entry)
    # All comparisons are of one family, so the first one has the margin of all.
    margin = known[0].family.margin if known else None
    # Each look leaves the looks after it a `LEVEL_DIVISOR`-th of its level.
    spent = 1 - LEVEL_DIVISOR ** -(len(log.looks) + 1)
    return LookTaken(replicates, spent, tuple(comparisons), (), time.time(), margin)


def _recorded_replicates(results: Results) -> int:
    """Return how many replicates with a record the cell with the most of them has.

    In a sweep an arm is a cell, and the trials of its confirmation are its replicates.
    """
    if results.document.search is not None:
        records = results.all_records.values()
        arms = Counter(record.arm for record in records if record.notes.phase is Phase.CONFIRM)
        return max(arms.values(), default=0)
    ended = results.planned["trial_id"].isin(list(results.trial_records))
    return _largest_cell(results, results.planned[ended])


def _largest_cell(results: Results, trials: pd.DataFrame) -> int:
    """Return the number of these trials in the cell that has the most of them; 0 without trials."""
    sizes = trials.groupby(["arm", *results.axes], dropna=False).size()
    return int(sizes.max()) if len(sizes) else 0


def _planned_replicates(plan: Plan) -> int:
    """Return the number of trials of the plan's largest cell; for a sweep, the replicates of a confirmation."""
    if isinstance(plan, SweepPlan):
        return len(plan.replicates)
    return max((len(cell.trials) for cell in plan.cells), default=0)
