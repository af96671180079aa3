"""A look at a study that grows: its family is judged by what there is, and the log says what follows."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from contrasweep.config import Config
from contrasweep.planning.looks import Planned, Stage, cell_name, spending_time
from contrasweep.planning.plan import Cell
from contrasweep.results.cells import label
from contrasweep.results.results import Results
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family
from contrasweep.statistics.group_sequential import judge_looks
from contrasweep.statistics.spending import Looks
from contrasweep.storage.looks import VERDICTS, LookAt, LookLog, LookTaken, read_looks, write_looks
from contrasweep.storage.records import StudyRecords
from contrasweep.study.replicates import Replicates

Context = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Compared:
    """A comparison of the family, and what there is on it."""

    context: Context
    a: str
    b: str
    evidence: Evidence

    @property
    def key(self) -> tuple[Context, frozenset[str]]:
        """Which comparison it is, from either side."""
        return self.context, frozenset((self.a, self.b))


def take_look(plan: Planned, stage: Stage, records: StudyRecords) -> str:
    """Judge the family of a study whose trials up to `stage` have all ended, write the log, and say in a line what came
    of it."""
    declared = plan.study.replicates
    assert declared is not None
    log = read_looks(records) or LookLog(declared.spending, declared.of)
    results = Results.load(plan.study.name, records.storage)
    pairs = compared(results)
    family = results.answer.pairs[0].comparison.family if pairs else Family(0)
    look, open_cells = judge_look(pairs, stage, log, declared, family, results.document.mode)
    write_looks(records, log.with_look(look))
    counts = Counter(_SAID[one.decision] for one in look.comparisons)
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    following = f"{len(open_cells)} of {len(plan.cells)} cells go on" if open_cells else "no cell goes on"
    return f"look {len(log.looks) + 1} at {stage.replicates} {declared.of}: {said}; {following}"


def judge_look(
    pairs: Sequence[Compared],
    stage: Stage,
    log: LookLog,
    declared: Replicates,
    family: Family,
    mode: Literal["max", "min"] = "max",
) -> tuple[LookTaken, list[Cell]]:
    """The look that is due at `stage`, after those of `log`, and the cells that go on."""
    after = _judged(pairs, log, planned_looks(declared, log, stage), family, mode, declared)
    wanted = {(one.context, arm) for one in after if one.decision == "open" for arm in (one.a, one.b)}
    open_cells = [c for c in stage.open if {((), c.arm), (_context(c.axes), c.arm)} & wanted and stage.time < 1]
    names = {cell_name(c.arm, c.axes) for c in open_cells}
    stopped = tuple(name for c in stage.open if (name := cell_name(c.arm, c.axes)) not in names)
    return LookTaken(stage.replicates, stage.time, after, stopped, time.time()), open_cells


_SAID = {"better": "decided", "worse": "decided", "equivalent": "equivalent", "futile": "futile", "open": "open"}


def planned_looks(declared: Replicates, log: LookLog, stage: Stage) -> Looks:
    """The looks so far, this one, and those to come."""
    before = [(look.replicates, look.time) for look in log.looks]
    ahead = [(n, spending_time(declared, log, n)) for n in declared.looks if n > stage.replicates]
    every = [*before, (stage.replicates, stage.time), *ahead]
    return Looks(tuple(float(n) for n, _ in every), tuple(t for _, t in every), declared.spending)


def compared(results: Results) -> list[Compared]:
    """The comparisons that the study decides, as far as they have replicates in common."""
    return [
        Compared(p.context, p.b, p.a, p.comparison.evidence)
        if p.comparison.turned
        else Compared(p.context, p.a, p.b, p.comparison.evidence)
        for p in results.answer.pairs
    ]


def _judged(
    family_pairs: Sequence[Compared],
    log: LookLog,
    looks: Looks,
    family: Family,
    mode: Literal["max", "min"],
    declared: Replicates,
) -> tuple[LookAt, ...]:
    """Every comparison after this look. What has new replicates is tested, decided or not; what has a verdict keeps
    it."""
    if not family_pairs:
        return ()
    now = len(log.looks)
    inflation = looks.t_inflation(family.level) if _of_seeds(family_pairs) else 1.0
    histories = [log.history(c.key) for c in family_pairs]
    before = [log.latest.get(c.key) for c in family_pairs]
    tested = [
        past is None or c.evidence.gaps.planned > past.pairs for c, past in zip(family_pairs, before, strict=True)
    ]
    when = [
        now if t else max(k for k, one in enumerate(past) if one is not None and one.p_value is not None)
        for t, past in zip(tested, histories, strict=True)
    ]
    # The level of the first step chooses each comparison's test, at the look that its data are of.
    levels = [looks.level_at(family.level / inflation, look) for look in when]
    margin = family.margin
    p_values = [
        c.evidence.p_value(level, mode) if t else None for c, t, level in zip(family_pairs, tested, levels, strict=True)
    ]
    same = [
        c.evidence.equivalence_p(margin, level, mode) if t and margin is not None else None
        for c, t, level in zip(family_pairs, tested, levels, strict=True)
    ]
    differences = [
        c.evidence.common.difference if t or past is None else past.difference
        for c, t, past in zip(family_pairs, tested, before, strict=True)
    ]
    decided = [past is not None and past.decision in VERDICTS for past in before]
    standings = judge_looks(
        [[*(_number(one, "p_value") for one in past), _nan(p)] for past, p in zip(histories, p_values, strict=True)],
        differences,
        looks,
        family,
        equivalence_p=[
            [*(_number(one, "equivalence_p") for one in past), _nan(p)] for past, p in zip(histories, same, strict=True)
        ],
        standard_errors=[_last_error(c.evidence, declared) for c in family_pairs],
        decided=decided,
        mode=mode,
        inflation=inflation,
    )
    return tuple(
        LookAt(
            c.context,
            c.a,
            c.b,
            c.evidence.gaps.planned if t or past is None else past.pairs,
            difference,
            *LookAt.ends(*c.evidence.interval(standing.level, level, mode)),
            p,
            p_same,
            standing.p_value,
            standing.equivalence_p,
            level,
            past.decision if past is not None and done else standing.decision,
        )
        for c, t, past, done, difference, p, p_same, level, standing in zip(
            family_pairs, tested, before, decided, differences, p_values, same, levels, standings, strict=True
        )
    )


def _of_seeds(pairs: Sequence[Compared]) -> bool:
    """Whether the replicates are seeds alone. The folds' t statistics keep their folds, and err less for it."""
    return not any(c.evidence.common.design.folds or c.evidence.common.design.items for c in pairs)


def _last_error(evidence: Evidence, declared: Replicates) -> float:
    """The standard error that the difference will have at the last look, by the components estimated now."""
    now = evidence.common
    seeds = declared.most if declared.of == "seeds" else now.design.seeds
    repeats = declared.most if declared.of == "repeats" else now.design.repeats
    return math.sqrt(replace(now.design, seeds=seeds, repeats=repeats).variance(now.components))


def _context(axes: Config) -> Context:
    return tuple((axis, label(value)) for axis, value in axes.items())


def _number(one: LookAt | None, name: str) -> float:
    return math.nan if one is None else _nan(getattr(one, name))


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
