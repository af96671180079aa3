"""Trials by what a person calls them: an arm, a cell, or a trial's id."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from contrasweep.errors import SpecError, choose_from
from contrasweep.planning.plan import Plan
from contrasweep.storage.record import Record
from contrasweep.study.file import parse_set

if TYPE_CHECKING:
    import pandas as pd

MIN_ID = 6
"""Digits of a trial's id that are enough, if no other begins with them."""


def selected_trials(plan: Plan, recorded: Mapping[str, Record], words: Iterable[str], place: str) -> set[str]:
    """Return the ids of the trials that `words` name.

    A word is `ARM`, `ARM/axis=value,axis=value`, `axis=value` for cells, or a trial's id or its beginning. `recorded`
    are the study's records, of a search too. Raises `SpecError` at `place` for a word that names none.
    """
    frame = plan.to_frame()
    arms = {arm: set(frame["trial_id"][frame["arm"] == arm]) for arm in plan.study.arms}
    for record in recorded.values():
        arms.setdefault(record.arm, set()).add(record.trial_id)
    ids = {*frame["trial_id"], *recorded}
    chosen: set[str] = set()
    for word in words:
        if word in arms:
            matching = arms[word]
        elif "=" in word:
            matching = _cell(frame, list(arms), plan.study.axis_names, word, place)
        else:
            matching = {i for i in ids if i.startswith(word)} if len(word) >= MIN_ID else set()
            if len(matching) > 1:
                raise SpecError("this is the beginning of several trials' ids", place=place, value=word)
        if not matching:
            hint = f"{choose_from('arms', list(arms), word)}; a cell is ARM/axis=value, a trial its id"
            raise SpecError("there is no such arm, cell or trial", place=place, value=word, hint=hint)
        chosen |= matching
    return chosen


def _cell(frame: "pd.DataFrame", arms: list[str], axes: list[str], word: str, place: str) -> set[str]:
    """`arm/axis=value,axis=value`; without an arm, of all arms."""
    import pandas as pd

    arm = next((a for a in arms if word.startswith(f"{a}/")), None)
    kept = pd.Series(True, frame.index) if arm is None else frame["arm"] == arm
    for part in word.removeprefix(f"{arm}/").split(","):
        path, value = parse_set(part)
        axis = ".".join(path)
        if axis not in axes:
            raise SpecError("there is no such axis", place=place, value=axis, hint=choose_from("axes", axes, axis))
        kept &= pd.Series([_equal(v, value) for v in frame[axis]], frame.index, dtype=bool)
    return set(frame["trial_id"][kept])


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other if isinstance(other, bool) else bool(one == other)
