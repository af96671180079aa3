"""Several studies of a storage as one: their arms side by side, paired by data, fold and seed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import combinations
from typing import TypeVar

import pandas as pd

from contrasweep.canonical import label
from contrasweep.errors import SpecError
from contrasweep.live.overview import study_names
from contrasweep.planning.grid import check_apart
from contrasweep.results.advice import Advice, Hours, Size
from contrasweep.results.answer import Answer
from contrasweep.results.building import names_of
from contrasweep.results.difference import settings_difference
from contrasweep.results.notices import MixedCode
from contrasweep.results.results import Results
from contrasweep.results.search import Best
from contrasweep.results.table import PLAIN, Table, TableStyle
from contrasweep.rows import ItemColumns, row_tuples
from contrasweep.storage.record import Record

T = TypeVar("T")
STUDY = "study"
"""The axis by which the studies themselves stand in rows or columns."""
MAX_SHOWN = 6
DIGITS = 12
"""Of a dataset's digest in a note."""
SAME = ("metric", "mode", "folds", "axes")
"""What studies must have in common, as study.json has it, so that their trials are replicates of one design."""


@dataclass(frozen=True, repr=False)
class JoinedResults(Results):
    """Several studies as one. An arm is called `STUDY/ARM`, and all of them are one family of comparisons.

    `contrasweep.load` gives them for several names. Trials are paired by the values of the axes, the fold and the seed.
    With "study" in the rows or columns of a table each study is a cell of its own, and arms are compared within it.

    A trial is called `STUDY/ID`: studies may have trials of one id with other values, such as before and after a change
    of code. What belongs to no table, such as a search, is in `parts`.
    """

    parts: tuple[Results, ...] = ()

    @classmethod
    def join(cls, parts: Sequence[Results], *, by_study: bool = False) -> "JoinedResults":
        """Join studies; `by_study` makes the study an axis, so that no arm of one meets an arm of another.

        Raises:
            SpecError: They differ in metric, folds or axes; or in their data, unless `by_study`. A name comes twice.
        """
        first, *others = parts
        check_once([part.name for part in parts])
        for part in others:
            for name in SAME:
                here, there = getattr(first.document, name), getattr(part.document, name)
                if here != there:
                    raise SpecError(
                        f"{first.name} and {part.name} have no {name} in common, so that their trials are no pairs",
                        place=STUDY,
                        value=f"{here} and {there}",
                        hint="report them one by one",
                    )
            if not by_study and _data(first) != _data(part):
                raise SpecError(
                    f"{first.name} and {part.name} have other data, so that their trials are no pairs",
                    place=STUDY,
                    value=part.name,
                    hint=f"--rows {STUDY} shows each by itself",
                )

        def arm(part: Results, name: str) -> str:
            return name if by_study else f"{part.name}/{name}"

        def keyed(of: Callable[[Results], Mapping[str, T]]) -> dict[str, T]:
            return {f"{part.name}/{trial}": value for part in parts for trial, value in of(part).items()}

        def records(part: Results) -> Mapping[str, Record]:
            return {trial: replace(r, arm=arm(part, r.arm)) for trial, r in part.trial_records.items()}

        # Of the declarations what all studies share; the strictest level; and no look, which would be one study's.
        spec = {key: first.document.spec[key] for key in ("question",) if key in first.document.spec}
        margins = {part.document.smallest_difference for part in parts}
        if len(margins) == 1:
            spec["smallest_difference"] = margins.pop()
        labels = {(name, shown) for part in parts for name, shown in part.document.labels.items()}
        spec["labels"] = {name: shown for name, shown in labels if not any(n == name and s != shown for n, s in labels)}
        axes = [STUDY] if by_study else []
        document = replace(
            first.document,
            name=" + ".join(part.name for part in parts),
            arms=tuple(dict.fromkeys(arm(part, name) for part in parts for name in part.document.arms)),
            axes=(*axes, *first.document.axes),
            datasets=tuple(dict.fromkeys(dataset for part in parts for dataset in part.document.datasets)),
            spec=spec,
            alpha=min(part.document.level for part in parts),
            reference=None,
            search=None,
            family=(),
            log=(),
        )
        planned = [
            part.planned.assign(
                trial_id=f"{part.name}/" + part.planned["trial_id"],
                arm=[arm(part, str(name)) for name in part.planned["arm"]],
                **{STUDY: part.name},
            )
            for part in parts
        ]
        whole = pd.concat(planned, ignore_index=True).drop(columns=[] if by_study else [STUDY])
        for axis in document.axes:
            check_apart(axis, whole[axis])
        return cls(
            document,
            whole,
            keyed(records),
            {},
            first.records,
            keyed(lambda part: part.etags),
            keyed(lambda part: part.run_urls),
            evaluations=keyed(lambda part: part.evaluations),
            broken=[error for part in parts for error in part.broken],
            parts=tuple(parts),
        )

    def table(
        self,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        metric: str | None = None,
        *,
        style: TableStyle = PLAIN,
    ) -> Table:
        """Return the table of all studies, as `Results.table`; "study" may stand in its rows or columns."""
        if STUDY in (*names_of(rows), *names_of(columns)) and STUDY not in self.axes:
            return JoinedResults.join(self.parts, by_study=True).table(rows, columns, metric, style=style)
        table = super().table(rows, columns, metric, style=style)
        notes = [*table.notes, *self._differences()]
        if self._looked_at:
            notes.append(
                f"exploratory: {', '.join(self._looked_at)} had several looks, or was declared anew, which the other "
                "studies were not"
            )
            table = replace(table, given_answer=self._answer(table.metric))
        return replace(table, notes=tuple(notes))

    @property
    def declared_notes(self) -> list[str]:  # type: ignore[override]
        """Sentences on what was declared anew in each of the studies after trials had ended."""
        return [f"{part.name}: {note}" for part in self.parts for note in part.declared_notes]

    def _differences(self) -> Iterable[str]:
        """A sentence for each thing in which two studies differ: what was declared, data, replicates, and settings."""
        document, declared = self.document, [part.document for part in self.parts]
        replicates = [*self.parts[0].axes, *["fold"] * bool(document.folds), "seed"]
        fields: Mapping[str, tuple[object, list[object]]] = {
            "alpha": (document.alpha, [part.level for part in declared]),
            "smallest_difference": (document.smallest_difference, [part.smallest_difference for part in declared]),
            "question": (document.question, [part.question for part in declared]),
            "reference": (None, [part.reference for part in declared]),
        }
        for name, (used, values) in fields.items():
            if set(values) != {used}:
                each = ", ".join(f"{part.name} {label(value)}" for part, value in zip(declared, values, strict=True))
                yield f"{name} is {label(used)} in this table (declared: {each})"
        if any(_data(part) != _data(self.parts[0]) for part in self.parts):
            data = {p.name: [f"{d.name}#{d.digest[:DIGITS]}" for d in p.document.datasets] for p in self.parts}
            each = ", ".join(f"{study} {' '.join(names)}" for study, names in data.items())
            yield f"the studies have other data, so that no arm of one is compared with one of another ({each})"
        for first, other in combinations(self.parts, 2):
            keys = [{tuple(map(label, row)) for row in row_tuples(p.planned, replicates)} for p in (first, other)]
            if STUDY not in self.axes and keys[0].isdisjoint(keys[1]):
                yield (
                    f"{first.name} and {other.name} have no {' and '.join(replicates)} in common, so that no arm of "
                    "one is compared with one of the other"
                )
            for arm in (arm for arm in first.document.arms if arm in other.document.arms):
                rows = settings_difference(first, arm, other, arm)
                if settings := [f"{name} {a} and {b}" for _, name, a, b in rows if name not in self.axes]:
                    rest = [f"{len(settings) - MAX_SHOWN} more"] * (len(settings) > MAX_SHOWN)
                    listed = ", ".join([*settings[:MAX_SHOWN], *rest])
                    yield f"{first.name}/{arm} and {other.name}/{arm} differ in {listed}"

    @property
    def study_notes(self) -> list[str]:
        """What a reader must know of each study, after its name."""
        return [f"{part.name}: {note}" for part in self.parts for note in part.study_notes]

    @cached_property
    def mixed_code(self) -> MixedCode:
        """Trials that ran other code than the newest of all studies, or started from networks trained again since."""
        retrained = {f"{p.name}/{t}": of for p in self.parts for t, of in p.mixed_code.retrained.items()}
        return replace(MixedCode.of(self.trial_records), retrained=retrained)

    @cached_property
    def best_settings(self) -> list[Best]:
        """The best settings of each arm of each study, as the study itself has them."""
        return [replace(best, arm=f"{part.name}/{best.arm}") for part in self.parts for best in part.best_settings]

    def advice(self, hours: Hours | None = None) -> Advice:
        """Return what would decide, as `Results.advice`; nothing where the studies have other folds and seeds."""
        if len({frozenset(map(str, row_tuples(part.planned, ["fold", "seed"]))) for part in self.parts}) > 1:
            return Advice(Size("seeds", self.planned["seed"].nunique(), 0, None), (), ())
        return super().advice(hours)

    def curves(self, trial_ids: Iterable[str] | None = None) -> pd.DataFrame:
        """Return every report of the trials, as `Results.curves`."""
        wanted = list(self.trial_records if trial_ids is None else trial_ids)

        def curves(part: Results) -> pd.DataFrame:
            prefix = f"{part.name}/"
            return part.curves(trial.removeprefix(prefix) for trial in wanted if trial.startswith(prefix))

        return self._of_parts(curves)

    def system(self) -> pd.DataFrame:
        """Return what every trial used over time, as `Results.system`."""
        return self._of_parts(lambda part: part.system())

    def _of_parts(self, of: Callable[[Results], pd.DataFrame]) -> pd.DataFrame:
        """The frames of all studies as one, with the trials' names here; what was found broken is noted."""
        frames = {part.name: of(part) for part in self.parts}
        self._leave_out(error for part in self.parts for error in part.broken)
        there = [name for name, frame in frames.items() if len(frame)] or list(frames)[:1]  # empty ones have no types
        named = [frames[name].assign(trial_id=f"{name}/" + frames[name]["trial_id"].astype("str")) for name in there]
        return pd.concat(named, ignore_index=True).astype({"trial_id": "category"})

    def _items(self, trial_id: str) -> ItemColumns:
        study, _, trial = trial_id.partition("/")
        part = next(part for part in self.parts if part.name == study)
        items = part._items(trial)
        self._leave_out(part.broken)
        return items

    @property
    def _interim(self) -> None:  # type: ignore[override]
        """None: the looks of a study are not those of several."""

    @property
    def _looked_at(self) -> list[str]:
        """The studies that were looked at as they grew, or extended or declared anew after trials had ended."""
        return [part.name for part in self.parts if part._interim is not None or part.declared_notes]

    def _decides(self, metric: str) -> bool:
        return not self._looked_at and super()._decides(metric)

    def _answer(self, metric: str) -> Answer:
        answer = super()._answer(metric)
        return answer if self._decides(metric) else replace(answer, question=None)


def load_joined(names: Sequence[str], storage: str) -> Results:
    """Return the study of one name, or several as one; a name may have `*`, `?` and `[...]`.

    A pattern does not mean studies that evaluate others: their scores stand in those.

    Raises:
        SpecError: No study has this name, one comes twice, or the studies cannot be joined.
    """
    check_once(names)
    chosen: dict[str, None] = {}
    for name in names:
        found = [known for known in study_names(storage) if fnmatchcase(known, name)]
        chosen |= dict.fromkeys(found or [name])
    loaded = [Results.load(name, storage) for name in chosen]
    parts = [part for part in loaded if part.name in names or not part.document.evaluates]
    if len(parts) == 1:
        return parts[0]
    by_study = any(_data(part) != _data(parts[0]) for part in parts)
    return JoinedResults.join(parts, by_study=by_study)


def check_single(results: Results, place: str) -> None:
    """Raise `SpecError` where these are results of several studies."""
    if isinstance(results, JoinedResults):
        raise SpecError(f"{place} takes one study", place=STUDY, value=results.name, hint="name one")


def check_once(names: Sequence[str]) -> None:
    """Raise `SpecError` where a study is named twice."""
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise SpecError("each study stands once in a table", place=STUDY, value=twice[0], hint="name it once")


def _data(results: Results) -> set[str]:
    return {dataset.digest for dataset in results.document.datasets}
