"""The look that a study of a fixed size had, written down when it is extended: its table was there to be read."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from contrasweep.planning.plan import Plan
from contrasweep.planning.sweep import SweepPlan
from contrasweep.results.looks import Compared, compared
from contrasweep.results.results import Results
from contrasweep.statistics.comparison import Comparison
from contrasweep.storage.looks import HALVING, Decision, LookAt, LookLog, LookTaken, read_looks, write_looks
from contrasweep.storage.record import Phase
from contrasweep.storage.records import StudyRecords

UNIT = "replicates"
DECISIONS: Mapping[str, Decision] = {"better": "better", "worse": "worse", "equivalent": "equivalent"}


def count_look(plan: Plan, records: StudyRecords) -> None:
    """Write the look that whoever extends the study by `plan` had at its table: where all of its trials have ended, and
    its cells are to get more replicates. A look of an earlier extension that added none, and is withdrawn by `plan`, is
    counted no more. What has looks of its own counts them itself."""
    document = records.document()
    if plan.study.replicates is not None or document is None or document.plan_digest == plan.digest:
        return
    log = read_looks(records) or LookLog(HALVING, UNIT)
    results = Results.load(plan.study.name, records.storage)
    if log.looks and max(_recorded(results), _replicates(plan)) <= log.looks[-1].replicates:
        write_looks(records, replace(log, looks=log.looks[:-1]))
        return
    ended = results.planned["trial_id"].isin(list(results.trial_records))
    present = int(results.planned.groupby(["arm", *results.axes], dropna=False).size().max()) if len(ended) else 0
    if not ended.all() or not 0 < present < _replicates(plan) or (log.looks and log.looks[-1].replicates >= present):
        return
    known = [pair.comparison for pair in results.answer.pairs]
    if known:
        write_looks(records, log.with_look(look_before(compared(results), known, log, present)))


def look_before(pairs: Sequence[Compared], known: Sequence[Comparison], log: LookLog, replicates: int) -> LookTaken:
    """The look at a table whose `pairs` came to the comparisons `known`, after those of `log`."""
    seen = [c.reversed() if c.turned else c for c in known]
    comparisons = tuple(
        LookAt(
            one.context,
            one.a,
            one.b,
            one.evidence.gaps.planned,
            c.difference,
            *LookAt.ends(c.low, c.high),
            c.raw_p,
            None,
            c.p_value,
            c.equivalence_p,
            c.level,
            DECISIONS.get(c.verdict, "open"),
        )
        for one, c in zip(pairs, seen, strict=True)
    )
    return LookTaken(replicates, 1 - 0.5 ** (len(log.looks) + 1), comparisons, (), time.time())


def _recorded(results: Results) -> int:
    """The replicates with a record, of the cell that has most."""
    if results.document.search is not None:
        records = {**results.search_records, **results.trial_records}.values()
        return max(Counter(r.arm for r in records if r.notes.phase is Phase.CONFIRM).values(), default=0)
    there = results.planned[results.planned["trial_id"].isin(list(results.trial_records))]
    return int(there.groupby(["arm", *results.axes], dropna=False).size().max()) if len(there) else 0


def _replicates(plan: Plan) -> int:
    """Trials of a cell."""
    if isinstance(plan, SweepPlan):
        return len(plan.replicates)
    return max((len(cell.trials) for cell in plan.cells), default=0)
