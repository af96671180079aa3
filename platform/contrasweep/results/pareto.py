"""What a search over several objectives, or under constraints, came to: from the records alone."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from contrasweep.schema import validate
from contrasweep.storage.record import Phase, Record, Status
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.objectives import front, value_of, violation
from contrasweep.study.space import Parameter, drawn_from


def pareto_frame(records: Iterable[Record], document: StudyDocument) -> pd.DataFrame:
    """One row a configuration that was trained to its end on all its folds: arm, number (in the order of asking), the
    means over its folds of each objective and constrained metric, `feasible` (every constraint holds), `front` (no
    feasible configuration of its arm is better in one objective and as good in the rest), and its searched settings.

    Empty where the study neither has several objectives nor constraints."""
    goals, constraints = document.goals, document.constraints
    folds = document.search.folds if document.search else 1
    ended: dict[tuple[str, int], list[Record]] = {}
    for record in records if len(goals) > 1 or constraints else []:
        if record.notes.phase == Phase.SEARCH and record.status == Status.DONE:
            ended.setdefault((record.arm, record.notes.candidate or 0), []).append(record)
    rows = []
    for (arm, number), trials in sorted(ended.items(), key=lambda item: (document.arms.index(item[0][0]), item[0][1])):
        if len(trials) < folds:
            continue
        means = {
            metric: float(np.mean([value_of(r, metric) for r in trials]))
            for metric in dict.fromkeys([*goals, *constraints])
        }
        space = validate(dict[str, Parameter], document.space(arm))
        rows.append(
            {
                "arm": arm,
                "number": number,
                **means,
                "feasible": feasible(trials, document),
                "front": False,
                **{k: v for k, v in drawn_from(space, trials[0].config).items() if k not in means},
            }
        )
    frame = pd.DataFrame(rows)
    for _, part in frame.groupby("arm") if rows else []:
        on_front = front(part[list(goals)].to_numpy(float), list(goals.values()), part["feasible"].to_numpy(bool))
        frame.loc[part.index, "front"] = on_front
    return frame


def feasible(records: Sequence[Record], document: StudyDocument) -> bool:
    """Whether the means of these records of one configuration keep to the study's constraints."""
    return all(
        violation(metric, text, float(np.mean([value_of(r, metric) for r in records]))) <= 0
        for metric, text in document.constraints.items()
    )
