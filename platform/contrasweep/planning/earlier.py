"""What finished trials of a storage say of the noise of a metric: for plans in its units, and for folds of one seed."""

import math
import statistics as stats
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from contrasweep.errors import StorageError
from contrasweep.storage import compact
from contrasweep.storage.planned import read_planned
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import open_store
from contrasweep.storage.study_document import StudyDocument

if TYPE_CHECKING:
    import pandas as pd

    from contrasweep.statistics.design import Contrast, Design, SeedPart

SHIPPED = "contrasweep.trainables."
"""Methods whose random draws all follow from the seed and the fold together, so that no two folds share them."""


@dataclass(frozen=True)
class EarlierNoise:
    """The paired differences of each two arms of a study that has trials, whose noise is known by them."""

    study: str
    contrasts: tuple["Contrast", ...]

    def detectable(self, design: "Design", level: float) -> float:
        """The smallest difference, in units of the metric, that `design` decides at `level` in 80 % of studies.

        It is the median over the pairs of arms.
        """
        from contrasweep.statistics.predictive import detectable_difference

        return stats.median_high(detectable_difference(one, design, level) for one in self.contrasts)

    @property
    def seed_part(self) -> "SeedPart | None":
        """The variance of a mean over the folds between seeds: the largest of its pairs; None without several seeds."""
        from contrasweep.statistics.design import SeedPart

        known = [one for one in self.contrasts if one.design.folds and one.design.seeds > 1]
        if not known:
            return None
        parts = [(one.components.seed + one.components.residual / one.n, one.design.seeds - 1.0) for one in known]
        return SeedPart(*max(parts), self.study)


def own_methods(trainables: Collection[str]) -> set[str]:
    """Those that may draw from the seed alone, and so the same in all folds."""
    return {path for path in trainables if not path.startswith(SHIPPED)}


def noise_of(
    name: str,
    planned: "pd.DataFrame",
    records: Mapping[str, Record],
    metric: str,
    folds: int | None,
    per_cell: bool = False,
) -> EarlierNoise | None:
    """Return the noise of a study's finished trials, `records` by trial id; None where they show none.

    Differences are averaged over the axes, or with `per_cell` in each cell alone.
    """
    from contrasweep.statistics.design import Design, SeedPart, contrast

    part = SeedPart() if own_methods({record.trainable for record in records.values()}) else SeedPart(0.0)
    design = Design(folds=folds, seed_part=part)
    done = {i: r.metrics[metric] for i, r in records.items() if r.status.counts and metric in r.metrics}
    frame = planned.assign(value=planned["trial_id"].map(done), fold=planned["fold"].fillna(-1))
    frame = frame.dropna(subset=["value"]).assign(cell=planned[list(planned.columns[2:-2])].astype(str).sum(axis=1))
    found = []
    for _, rows in frame.groupby("cell") if per_cell else [("", frame)]:
        wide = rows.pivot_table(index=["fold", "seed"], columns="arm", values="value")
        for a, b in combinations(wide.columns, 2):
            d = (wide[a] - wide[b]).dropna()
            labels = {name: list(d.index.get_level_values(name)) for name in ("fold", "seed")}
            if len(d) < 2 or not all(map(math.isfinite, d)):
                continue
            one = contrast(d, folds=labels["fold"] if folds else None, seeds=labels["seed"], design=design)
            if one.n > 1 and one.standard_error > 0:
                found.append(one)
    return EarlierNoise(name, tuple(found)) if found else None


def earlier_noise(
    storage: str,
    study: str,
    *,
    metric: str,
    folds: int | None,
    data: Collection[str],
    trainables: Collection[str] = (),
    per_cell: bool = False,
) -> Iterator[EarlierNoise]:
    """Yield the noise of other studies of the storage with the same metric, number of folds and datasets.

    The newest comes first. `data` are the datasets' digests. With `trainables` only studies that ran all of these.
    `per_cell` is that of `noise_of`.
    """
    store = open_store(storage)
    others: list[tuple[float, StudyRecords, StudyDocument]] = []
    for name in sorted(key.split("/")[0] for key in store.etags("", "study.json")):
        try:
            records = StudyRecords(storage, name)
            document = records.document() if name != study else None
            shared = {dataset.digest for dataset in document.datasets} & set(data) if document is not None else ()
        except StorageError:  # broken: it teaches nothing, and `verify` names it
            continue
        if document is not None and shared and (document.metric, document.folds) == (metric, folds):
            others.append((document.created, records, document))
    for _, records, document in sorted(others, key=lambda other: -other[0]):
        try:
            known = compact.read_records(records, records.etags(), [])
            if set(trainables) <= {record.trainable for record in known.values()}:
                noise = noise_of(document.name, read_planned(records), known, metric, folds, per_cell)
                if noise is not None:
                    yield noise
        except StorageError:
            continue
