"""Several studies of a storage as one: their arms side by side, paired by data, fold and seed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

import pandas as pd

from contrasweep.errors import SpecError
from contrasweep.live.overview import study_names
from contrasweep.results.answer import Answer
from contrasweep.results.building import names_of
from contrasweep.results.results import Results
from contrasweep.results.study_data import Over
from contrasweep.results.table import PLAIN, Table, TableStyle, label
from contrasweep.rows import ItemColumns
from contrasweep.study import dotted

STUDY = "study"
"""The axis by which the studies themselves stand in rows or columns."""
MAX_SHOWN = 6
SAME = ("metric", "mode", "folds", "alpha", "axes")
"""What studies must have in common, as study.json has it, so that their trials are replicates of one design."""


@dataclass(frozen=True, repr=False)
class JoinedResults(Results):
    """Several studies as one. An arm is called `STUDY/ARM`, and all of them are one family of comparisons.

    `contrasweep.load` gives them for several names. Trials are paired by the values of the axes, the fold and the seed.
    With "study" in the rows or columns of a table each study is a cell of its own, and arms are compared within it.
    """

    parts: tuple[Results, ...] = ()

    @classmethod
    def join(cls, parts: Sequence[Results], *, by_study: bool = False) -> "JoinedResults":
        """Join studies; `by_study` makes the study an axis, so that no arm of one meets an arm of another.

        Raises:
            SpecError: They differ in metric, folds, alpha or axes; or in their data, unless `by_study`.
        """
        first, *others = parts
        for part in others:
            for name in SAME:
                one, other = getattr(first.document, name), getattr(part.document, name)
                if one != other:
                    raise SpecError(
                        f"{first.name} and {part.name} have no {name} in common, so that their trials are no pairs",
                        place=STUDY,
                        value=f"{one} and {other}",
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

        spec = {key: first.document.spec[key] for key in ("question",) if key in first.document.spec}
        margins = {part.document.smallest_difference for part in parts}
        if len(margins) == 1:
            spec["smallest_difference"] = margins.pop()
        axes = [STUDY] if by_study else []
        document = replace(
            first.document,
            name=" + ".join(part.name for part in parts),
            arms=tuple(dict.fromkeys(arm(part, name) for part in parts for name in part.document.arms)),
            axes=(*axes, *first.document.axes),
            datasets=tuple(dict.fromkeys(dataset for part in parts for dataset in part.document.datasets)),
            spec=spec | {"labels": {name: shown for part in parts for name, shown in part.document.labels.items()}},
            reference=None,
            search=None,
        )
        planned = [
            part.planned.assign(arm=[arm(part, str(name)) for name in part.planned["arm"]], **{STUDY: part.name})
            for part in parts
        ]
        return cls(
            document,
            pd.concat(planned, ignore_index=True).drop(columns=[] if by_study else [STUDY]),
            {trial: record for part in parts for trial, record in part.trial_records.items()},
            {},
            first.records,
            {trial: etag for part in parts for trial, etag in part.etags.items()},
            {trial: url for part in parts for trial, url in part.run_urls.items()},
            broken=[error for part in parts for error in part.broken],
            parts=tuple(parts),
        )

    def table(
        self,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        metric: str | None = None,
        *,
        over: Over = "replicates",
        style: TableStyle = PLAIN,
    ) -> Table:
        """Return the table of all studies, as `Results.table`; "study" may stand in its rows or columns."""
        if STUDY in (*names_of(rows), *names_of(columns)) and STUDY not in self.axes:
            return JoinedResults.join(self.parts, by_study=True).table(rows, columns, metric, over=over, style=style)
        table = super().table(rows, columns, metric, over=over, style=style)
        notes = [*table.notes, *self._differences()]
        if self._looked_at and over == "replicates":
            notes.append(
                f"exploratory: {', '.join(self._looked_at)} had several looks, which the other studies had not"
            )
            table = replace(table, given_answer=self._answer(table.metric))
        return replace(table, notes=tuple(notes))

    def settings_difference(self, a: str, b: str) -> pd.DataFrame:
        """Return the settings in which the trials of two arms differ.

        Args:
            a: An arm, `STUDY/ARM`.
            b: Another arm.

        Returns:
            One row a setting: setting (dotted), a and b (as text; the values there are, "–" for none).
        """
        for name in (a, b):
            self.check_known("arm", name, list(self.document.arms))
        one, other = self._settings.get(a, {}), self._settings.get(b, {})
        rows = [(key, one.get(key, "–"), other.get(key, "–")) for key in dict.fromkeys([*one, *other])]
        return pd.DataFrame([row for row in rows if row[1] != row[2]], columns=["setting", "a", "b"])

    @cached_property
    def _settings(self) -> dict[str, dict[str, str]]:
        """By arm the text of each setting that is no axis: all values that its trials have."""
        seen: dict[str, dict[str, dict[str, None]]] = {}
        for arm, trial in zip(self.planned["arm"], self.planned["trial_id"], strict=True):
            if (record := self.trial_records.get(trial)) is not None:
                for path, value in dotted.flatten(record.config).items():
                    if path not in self.axes:
                        seen.setdefault(str(arm), {}).setdefault(path, {})[label(value)] = None
        return {arm: {path: ", ".join(values) for path, values in paths.items()} for arm, paths in seen.items()}

    def _differences(self) -> Iterable[str]:
        """A sentence for each arm that two studies have and that differs between them."""
        first, *others = self.parts
        for part in others:
            for arm in part.document.arms:
                if STUDY not in self.axes and arm in first.document.arms:
                    a, b = f"{first.name}/{arm}", f"{part.name}/{arm}"
                    rows = self.settings_difference(a, b).itertuples(index=False, name=None)
                    said = [f"{setting} {one} and {other}" for setting, one, other in rows]
                    if said:
                        rest = [f"{len(said) - MAX_SHOWN} more"] * (len(said) > MAX_SHOWN)
                        yield f"{a} and {b} differ in {', '.join([*said[:MAX_SHOWN], *rest])}"

    def curves(self, trial_ids: Iterable[str] | None = None) -> pd.DataFrame:
        """Return every report of the trials, as `Results.curves`."""
        return pd.concat([part.curves(trial_ids) for part in self.parts], ignore_index=True)

    def _items(self, trial_id: str) -> ItemColumns:
        part = next(part for part in self.parts if trial_id in part.trial_records)
        return part._items(trial_id)

    @property
    def _interim(self) -> None:  # type: ignore[override]
        """None: the looks of a study are not those of several."""

    @property
    def _looked_at(self) -> list[str]:
        """The studies that were looked at as they grew or extended after their end, which the others were not."""
        return [part.name for part in self.parts if part._interim is not None]

    def _decides(self, metric: str) -> bool:
        return not self._looked_at and super()._decides(metric)

    def _answer(self, metric: str) -> Answer:
        answer = super()._answer(metric)
        return answer if self._decides(metric) else replace(answer, question=None)


def load_joined(names: Sequence[str], storage: str) -> Results:
    """Return the study of one name, or several as one; a name may have `*`, `?` and `[...]`.

    A pattern does not mean studies that evaluate others: their scores stand in those.

    Raises:
        SpecError: No study has this name, or the studies cannot be joined.
    """
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


def _data(results: Results) -> set[str]:
    return {dataset.digest for dataset in results.document.datasets}
