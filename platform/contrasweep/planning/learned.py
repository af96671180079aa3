"""Memory and time of finished trials, kept in the storage for the next plan or run, and what memory follows from them.

    <storage>/calibration/<study>.json     a row for each cell and type of host; a function of that study's records

Every study has a file of its own, so two drivers never write the same one, and a file that is lost or behind is made
again from the records. Readers take all studies' files together.

Model: peak = a + b (count), with the count of `cluster.memory`. a is what a process holds anyway (CUDA context, cuDNN
workspaces), b what allocation rounds up. Both are learned from measured peaks.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from contrasweep import canonical
from contrasweep.errors import StorageError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label
from contrasweep.storage.record import Count, Measure, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import Store

PRIOR = (1.974, 1.083)
"""a in GiB and b before anything is measured: what the two rows at 256 pixels of the LOCAL paper's Table 1 give, on
a GPU that the paper does not name. `MARGIN_UNMEASURED` is there because another host's differ."""
HOST_PRIOR = (0.42, 1.2)
"""The same for host memory of training on a CPU, as measured in benchmarks/results/memory.md."""
_PRIOR_SPREAD = (2.0, 0.15)  # standard deviations of that guess
_NOISE = 0.01  # standard deviation of a measured peak, relative
MARGIN_UNMEASURED = 1.25
"""The factor on a predicted peak before enough of them were measured."""
MARGIN = 1.1
"""The factor on a peak of which enough were measured."""
ENOUGH = 5
"""Measured peaks of a key from which on `MARGIN` is enough."""


@dataclass
class Calibration:
    """Measured peaks of GPU memory by key, from which the constants of peak = a + b * count follow (a, count in GiB).

    Trials of one key share a and b. A key names a type of GPU and a trainable or architecture, as in
    `H100/resnet50-fp32`. For each count only the highest peak is kept, so that many trials of one cell need one entry.
    """

    peaks: dict[str, dict[float, tuple[float, int]]] = field(default_factory=dict)
    """key -> count in GiB -> (highest peak in GiB, times measured)"""
    overflows: dict[str, dict[float, float]] = field(default_factory=dict)
    """key -> count in GiB -> GiB in which it ran out of memory"""
    prior: tuple[float, float] = PRIOR
    """a in GiB and b before anything is measured"""

    def observe(self, key: str, counted_gib: float, peak_gib: float, times: int = 1) -> None:
        """Note the highest peak, `peak_gib`, of `times` trials of this key whose count was `counted_gib`."""
        rows = self.peaks.setdefault(key, {})
        count = _rounded(counted_gib)
        highest, before = rows.get(count, (0.0, 0))
        rows[count] = (max(highest, peak_gib), before + times)

    def observe_out_of_memory(self, key: str, counted_gib: float, limit_gib: float) -> None:
        """Note that a trial of this key whose count was `counted_gib` did not fit into `limit_gib`; the most counts."""
        rows = self.overflows.setdefault(key, {})
        count = _rounded(counted_gib)
        rows[count] = max(rows.get(count, 0.0), limit_gib)

    def constants(self, key: str) -> tuple[float, float]:
        """Return a (GiB) and b of peak = a + b * count for a key.

        The fit to a key's peaks is drawn towards the fit to all other keys, which is drawn towards `prior`. Before
        anything is measured it is `prior` itself.
        """
        others = [rows for other, rows in sorted(self.peaks.items()) if other != key]
        # First the other keys, from the prior; then this key, from what they gave.
        start = self.prior
        for rows in (others, [self.peaks.get(key, {})]):
            peaks = [(counted, peak) for row in rows for counted, (peak, _) in row.items()]
            start = _fit(peaks, start)
        return start

    def predict(self, key: str, counted_gib: float) -> float:
        """Return the predicted peak in GiB, without margin.

        It is at least any peak that was measured at the same count, and `MARGIN` above what was too little there.
        """
        a, b = self.constants(key)
        measured, _ = self.peaks.get(key, {}).get(_rounded(counted_gib), (0.0, 0))
        over = self.overflows.get(key, {}).get(_rounded(counted_gib), 0.0)
        return max(a + b * counted_gib, measured, over * MARGIN)

    def margin(self, key: str) -> float:
        """Return what a prediction for this key is multiplied by: less once `ENOUGH` of its trials were measured."""
        measured = sum(times for _, times in self.peaks.get(key, {}).values())
        return MARGIN if measured >= ENOUGH else MARGIN_UNMEASURED


def _rounded(counted_gib: float) -> float:
    """Return a count in GiB to four decimals, as records keep it, so that both are one key of a table."""
    return round(counted_gib, 4)


def _fit(rows: list[tuple[float, float]], start: tuple[float, float]) -> tuple[float, float]:
    """Return a and b of peak = a + b count by least squares of the relative errors.

    `rows` are (count, peak) in GiB; without any, `start` is returned. The result is drawn to `start`: it is the mean of
    the posterior of a linear model with a normal prior about `start`, of the standard deviations `_PRIOR_SPREAD`.
    """
    if not rows:
        return start
    import numpy as np

    counted, peak = np.array(rows, dtype=float).T
    # With X = [1, count], W the inverse variances of the peaks and P those of the prior, it solves
    # (X' W X + P) (a, b) = X' W peak + P start.
    weight = 1 / (_NOISE * np.maximum(peak, 1e-3)) ** 2
    design = np.stack([np.ones_like(counted), counted], axis=1)
    certainty = np.diag(1 / np.square(_PRIOR_SPREAD))
    solved = np.linalg.solve(
        design.T @ (weight[:, None] * design) + certainty,
        design.T @ (weight * peak) + certainty @ start,
    )
    return float(solved[0]), float(solved[1])


log = logging.getLogger(__name__)
CPU = "cpu"
"""In the place of a type of GPU: a trial that had none."""
_FOLDER = "calibration/"


@stored
class Peak:
    """The highest peaks, in GiB, of `times` trials of one cell on one type of host.

    `cell` is a `cell_key`, `host` the type of GPU, or `CPU` for trials without one. 0 GiB: not measured.
    `gpu_busy` is the highest fraction of the time for which one that had a whole GPU kept it busy (0: none had).
    `architecture` and `counted_gib` are those of its `cluster.memory.Workload` ("" where the trainable has none).
    """

    cell: Label
    host: Label
    architecture: Label = ""
    counted_gib: Measure = 0.0
    gpu_memory_gib: Measure = 0.0
    host_memory_gib: Measure = 0.0
    gpu_busy: Measure = 0.0
    times: Count = 1

    @property
    def margin(self) -> float:
        """The factor on this peak that a trial is given: less once `ENOUGH` trials were measured."""
        return MARGIN if self.times >= ENOUGH else MARGIN_UNMEASURED

    def joined(self, other: "Peak") -> "Peak":
        """Return two peaks of one cell and host as one: the higher of each value, and the sum of `times`.

        Architecture and count are those of `other`, which trials of one cell share.
        """
        high = {
            name: max(getattr(self, name), getattr(other, name))
            for name in ("gpu_memory_gib", "host_memory_gib", "gpu_busy")
        }
        return replace(other, **high, times=self.times + other.times)


@stored
class StudyPeaks:
    """The content of a study's file: its rows, and the number of all records of the study when it was written."""

    records: Count
    peaks: tuple[Peak, ...]


PEAKS_FILE = JsonFile(StudyPeaks, 2, "delete it, and it is written again from the records")
"""calibration/<study>.json, written and read."""


class Learned:
    """Measured peaks of memory by cell and type of host, and the memory model's constants that follow from them.

    `cells` is cell key -> type of host -> peak. `gpu` and `host` are the models of GPU memory, and of host memory of
    trials without a GPU.
    """

    def __init__(self, peaks: Iterable[Peak] = ()) -> None:
        self.cells: dict[str, dict[str, Peak]] = {}
        self.gpu = Calibration()
        self.host = Calibration(prior=HOST_PRIOR)
        for peak in peaks:
            self.add(peak)

    def add(self, peak: Peak) -> None:
        """Join a peak with that of its cell and host, and let the memory model learn from it.

        GPU memory is learned for the type of GPU, host memory for trials without a GPU alone.
        """
        hosts = self.cells.setdefault(peak.cell, {})
        hosts[peak.host] = hosts[peak.host].joined(peak) if peak.host in hosts else peak
        # Without an architecture nothing was counted, so a peak serves its own cell alone.
        if peak.architecture:
            key = calibration_key(peak.host, peak.architecture)
            if peak.gpu_memory_gib:
                self.gpu.observe(key, peak.counted_gib, peak.gpu_memory_gib, peak.times)
            elif peak.host == CPU and peak.host_memory_gib:
                self.host.observe(key, peak.counted_gib, peak.host_memory_gib, peak.times)

    @property
    def peaks(self) -> list[Peak]:
        """All rows, in a fixed order."""
        return [hosts[host] for _, hosts in sorted(self.cells.items()) for host in sorted(hosts)]


def calibration_key(host: str, architecture: str) -> str:
    """Return the key under which trials share the constants of the memory model: `H100/resnet50-fp32`.

    `host` is the type of GPU, or `CPU`; no host's own name. `architecture` is that of the trial's `Workload`.
    """
    return f"{host}/{architecture}"


def cell_key(trainable: str, config_text: str, data_digest: str) -> str:
    """Return a digest of what trials of one cell share, 16 hexadecimal digits; the study's name is no part.

    `config_text` is the canonical text of the whole config.
    """
    return canonical.digest([trainable, config_text, data_digest], length=16)


def peak_of(record: Record) -> Peak | None:
    """Return the measured peak of a finished trial; None where it was not measured, failed or fitted no host.

    A trial that a pruner stopped counts: its memory was that of the whole training.
    """
    if not record.status.trained or not (record.gpu_memory_gib or record.host_memory_gib):
        return None
    notes = record.notes
    # How busy a shared GPU was tells of the other trials on it too.
    has_whole_gpu = (notes.gpus or 0.0) >= 1
    return Peak(
        cell=cell_key(record.trainable, canonical.dumps(record.config), record.data.digest),
        host=notes.gpu_type or CPU,
        architecture=notes.architecture or "",
        counted_gib=notes.counted_gib or 0.0,
        gpu_memory_gib=record.gpu_memory_gib or 0.0,
        host_memory_gib=record.host_memory_gib or 0.0,
        gpu_busy=(record.gpu_utilisation or 0.0) if has_whole_gpu else 0.0,
    )


def peaks_key(records: StudyRecords) -> str:
    """Return the storage key of the file with the measured peaks of a study: `calibration/<study>.json`."""
    return f"{_FOLDER}{records.study}.json"


def write(records: StudyRecords, known: Iterable[Record]) -> None:
    """Write calibration/<study>.json for later plans: the peaks of memory in `known`, all of the study's records.

    `records` says which study and where it is stored. The file is written anew, so that an earlier one is replaced.
    """
    every = list(known)
    rows = Learned(filter(None, map(peak_of, every))).peaks
    PEAKS_FILE.write(records.store, peaks_key(records), asdict(StudyPeaks(len(every), tuple(rows))))


def forget(records: StudyRecords) -> None:
    """Delete calibration/<study>.json, because trials were archived; the next run writes it again from the records."""
    records.store.delete(peaks_key(records))


def read(records: StudyRecords, finished: set[str]) -> Learned:
    """Return the measured peaks and constants of all studies in this storage.

    `finished` are the ids of this study's trials with a record. Its peaks are made anew from these records if its file
    is not there or counts another number of them: a driver was killed before it could write.
    """
    if not finished:
        return learned_of(records, ())
    key = peaks_key(records)
    file = _file(records.store, key) if records.store.exists(key) else None
    if file is not None and file.records == len(finished):
        return learned_of(records, (), file.peaks)
    return learned_of(records, records.read(sorted(finished)).values())


def learned_of(
    records: StudyRecords, known: Iterable[Record], peaks: Iterable[Peak] = ()
) -> Learned:
    """Return the peaks in the other studies' files of the storage, with those of this study.

    The latter are given: as its records `known`, or as the rows `peaks` of its own file, which is not read here.
    """
    learned = Learned(peaks)
    for key in records.store.list(_FOLDER):
        # A key with a further folder is no study's file.
        if key != peaks_key(records) and "/" not in key.removeprefix(_FOLDER):
            other = _file(records.store, key)
            for peak in other.peaks if other else ():
                learned.add(peak)
    for row in filter(None, map(peak_of, known)):
        learned.add(row)
    return learned


def _file(store: Store, key: str) -> StudyPeaks | None:
    """Return the content of a study's file; None where it is gone or broken, which costs an estimate and no plan.

    What is broken is logged as a warning.
    """
    try:
        return PEAKS_FILE.read(store, key)
    except (FileNotFoundError, StorageError) as error:
        log.warning("%s", error)
        return None
