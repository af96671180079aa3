"""What a plan shows of fused trials: a column of its table, and a line for each way in which trials run."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from contrasweep.planning.plan import PlanRow
from contrasweep.trainables.fusing.choices import Choice, Fused, Fusion, slots_text

SHORT_KEY = 6
"""Digits of a cohort key that people are shown."""


def with_fusion(rows: Sequence[PlanRow], fusion: Fusion) -> tuple[PlanRow, ...]:
    """The rows, with how their trials train where any of the study's may be fused."""
    return tuple(_with(row, choices_of(row, fusion)) for row in rows) if fusion.used else tuple(rows)


def choices_of(row: PlanRow, fusion: Fusion) -> list[Choice]:
    """How the trials of a row run, each way once."""
    return list(dict.fromkeys(fusion.of(trial) for trial in row.samples))


def fusion_lines(rows: Iterable[PlanRow], fusion: Fusion) -> list[str]:
    """A line for each cohort key and for each reason to run alone, with the number of cells."""
    if not fusion.used:
        return []
    cells: dict[str, int] = {}
    for row in rows:
        for choice in choices_of(row, fusion):
            cells[_line(choice, row.arm)] = cells.get(_line(choice, row.arm), 0) + 1
    return [line + (f" ({count} cells)" if count > 1 else "") for line, count in cells.items()]


def _line(choice: Choice, arm: str) -> str:
    if not isinstance(choice, Fused):
        return f"alone     arm {arm}: {choice.reason or 'cohort is off'}"
    gain = "unknown until probed" if choice.gain is None else f"{choice.gain:.1f}x trials per hour"
    return f"cohort    {choice.key[:SHORT_KEY]}: {slots_text(choice.slots)}, engine {choice.engine}, gain {gain}"


def _with(row: PlanRow, choices: list[Choice]) -> PlanRow:
    shown = ", ".join(dict.fromkeys(map(_short, choices)))
    fused = [choice for choice in choices if isinstance(choice, Fused)]
    facts = {
        "cohorts": [{"key": c.key, "slots": c.slots, "engine": c.engine, "gain": c.gain} for c in fused],
        "alone": next((c.reason or "cohort is off" for c in choices if not isinstance(c, Fused)), None),
    }
    return replace(row, facts={**row.facts, **facts}, last=(*row.last, ("trains", shown)))


def _short(choice: Choice) -> str:
    if not isinstance(choice, Fused):
        return "alone"
    return f"{f'{choice.slots} as one' if choice.slots > 1 else choice.engine} ({choice.key[:SHORT_KEY]})"
