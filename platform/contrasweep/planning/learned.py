"""Memory and time of finished trials, kept in the storage for the next plan or run, and what memory follows from them.

    <storage>/calibration/<study>.json     a row for each cell and type of host; a function of that study's records

Every study has a file of its own, so two drivers never write the same one, and a file that is lost or behind is made
again from the records. Readers take all studies' files together.

Model: peak = a + b (count), with the count of `cluster.memory`. a is what a process holds anyway (CUDA context, cuDNN
workspaces), b what allocation rounds up. Both are learned from measured peaks.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from contrasweep import canonical
from contrasweep.errors import ContrasweepError, StorageError
from contrasweep.storage import compact
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label
from contrasweep.storage.record import Count, Measure, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import Store

PRIOR = (1.974, 1.083)
"""a in GiB and b before anything is measured: they follow from the two rows at 256 pixels of the LOCAL paper's Table 1,
whose GPU the paper does not name. On other hosts a and b differ, for which there is `MARGIN_UNMEASURED`."""
HOST_PRIOR = (0.42, 1.2)
"""The same for host memory of training on a CPU, as measured in benchmarks/results/memory.md."""
_PRIOR_SPREAD = (2.0, 0.15)  # standard deviations of a (GiB) and b before anything is measured
_NOISE = 0.01  # standard deviation of a measured peak, relative
MARGIN_UNMEASURED = 1.25
"""The factor on a predicted peak before enough of them were measured."""
MARGIN = 1.1
"""The factor on a peak once `ENOUGH` trials were measured."""
ENOUGH = 5
"""Number of measured trials of a key or cell from which on `MARGIN` is enough."""


@dataclass
class Calibration:
    """Measured peaks of memory, and the constants a and b of the model peak = a + b * count (in GiB).

    The count is the memory of a training step as it is counted from the network. Trials of one key share a and b. A key
    names a type of GPU (or `CPU`) and an architecture, as in `H100/resnet50-fp32`. For each count only the highest peak
    is kept, so that many trials of one cell need one entry.
    """

    peaks: dict[str, dict[float, tuple[float, int]]] = field(default_factory=dict)
    """key -> count in GiB -> (highest peak in GiB, times measured)"""
    overflows: dict[str, dict[float, float]] = field(default_factory=dict)
    """key -> count in GiB -> the most GiB in which a trial ran out of memory"""
    prior: tuple[float, float] = PRIOR
    """a in GiB and b before anything is measured"""

    def observe(self, key: str, counted_gib: float, peak_gib: float, times: int = 1) -> None:
        """Note a measured peak: `times` trials of this key had peaks of at most `peak_gib`.

        `counted_gib` is the memory that was counted for such a trial.
        """
        peaks = self.peaks.setdefault(key, {})
        count = _rounded(counted_gib)
        highest, measured = peaks.get(count, (0.0, 0))
        peaks[count] = (max(highest, peak_gib), measured + times)

    def observe_out_of_memory(self, key: str, counted_gib: float, limit_gib: float) -> None:
        """Note that a trial of this key, for which `counted_gib` was counted, ran out of memory with `limit_gib`."""
        limits = self.overflows.setdefault(key, {})
        count = _rounded(counted_gib)
        limits[count] = max(limits.get(count, 0.0), limit_gib)

    def constants(self, key: str) -> tuple[float, float]:
        """Return the constants a (in GiB) and b of the memory model for a key.

        They are fitted to the peaks of this key, with a prior: the constants that are fitted to all other keys. Those
        are fitted with `prior` as their prior. Before anything is measured both are `prior` itself.
        """
        of_key: list[tuple[float, float]] = []  # (count, peak) in GiB
        of_others: list[tuple[float, float]] = []
        for other, peaks in sorted(self.peaks.items()):
            rows = of_key if other == key else of_others
            rows += [(count, peak) for count, (peak, _) in peaks.items()]
        return _fit(of_key, _fit(of_others, self.prior))

    def predict(self, key: str, counted_gib: float) -> float:
        """Return the peak of memory in GiB, without margin, that the model predicts for the count `counted_gib`.

        `key` names the type of GPU and the architecture. The peak is at least the highest one that was measured at the
        same count. Where a trial of that count ran out of memory, it is at least `MARGIN` times the memory that the
        trial had.
        """
        a, b = self.constants(key)
        count = _rounded(counted_gib)
        measured, _ = self.peaks.get(key, {}).get(count, (0.0, 0))
        too_little = self.overflows.get(key, {}).get(count, 0.0)
        return max(a + b * counted_gib, measured, too_little * MARGIN)

    def margin(self, key: str) -> float:
        """Return the factor on a prediction for this key: smaller once `ENOUGH` of its trials were measured."""
        measured = sum(times for _, times in self.peaks.get(key, {}).values())
        return MARGIN if measured >= ENOUGH else MARGIN_UNMEASURED


def _rounded(counted_gib: float) -> float:
    """Return a count in GiB to four decimals, as records have it, so that equal counts are one key of a dict."""
    return round(counted_gib, 4)


def _fit(rows: list[tuple[float, float]], start: tuple[float, float]) -> tuple[float, float]:
    """Return the constants a and b of peak = a + b count, fitted by least squares of the relative errors.

    `rows` are (count, peak) in GiB; without any, `start` is returned. `start` is the mean of a normal prior of a and b,
    with the standard deviations `_PRIOR_SPREAD`. So few rows move the constants only a little away from it.
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
    """The highest peaks of memory of the trials of one cell on one type of host; 0 GiB: not measured."""

    cell: Label  # a `cell_key`
    host: Label  # the type of GPU, or `CPU` for trials without one
    architecture: Label = ""  # of the trials' `Workload`; "" where the trainable has none
    counted_gib: Measure = 0.0  # likewise
    gpu_memory_gib: Measure = 0.0
    host_memory_gib: Measure = 0.0
    # the highest fraction of time for which a trial kept a whole GPU busy; 0: none had one
    gpu_busy: Measure = 0.0
    times: Count = 1  # number of trials that were measured

    @property
    def margin(self) -> float:
        """The factor on this peak for the memory that a trial gets: smaller once `ENOUGH` trials were measured."""
        return MARGIN if self.times >= ENOUGH else MARGIN_UNMEASURED

    def joined(self, other: "Peak") -> "Peak":
        """Return two peaks of one cell and host as one: the higher of each value, and the sum of `times`.

        `architecture` and `counted_gib` are the same for all trials of a cell.
        """
        high = {
            name: max(getattr(self, name), getattr(other, name))
            for name in ("gpu_memory_gib", "host_memory_gib", "gpu_busy")
        }
        return replace(other, **high, times=self.times + other.times)


@stored
class StudyPeaks:
    """The content of the file calibration/<study>.json: the peaks of memory of a study's trials."""

    records: Count  # the study's records when the file was written, also those without a peak
    peaks: tuple[Peak, ...]


PEAKS_FILE = JsonFile(StudyPeaks, 2, "delete it, and it is written again from the records")
"""calibration/<study>.json, written and read."""


class Learned:
    """Measured peaks of memory by cell and type of host, and the memory model's constants that follow from them.

    `cells` is cell key -> type of host -> peak. `gpu` is the model of GPU memory, and `host` that of host memory, which
    is used for trials without a GPU. `studies` is (cell key, type of host) -> the name of another study that has
    trained trials of this cell there.
    """

    def __init__(self, peaks: Iterable[Peak] = ()) -> None:
        self.cells: dict[str, dict[str, Peak]] = {}
        self.gpu = Calibration()
        self.host = Calibration(prior=HOST_PRIOR)
        self.studies: dict[tuple[str, str], str] = {}
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
        """All peaks, by cell key and then by type of host."""
        return [hosts[host] for _, hosts in sorted(self.cells.items()) for host in sorted(hosts)]


def calibration_key(host: str, architecture: str) -> str:
    """Return the key under which trials share the constants of the memory model: `H100/resnet50-fp32`.

    `host` is the type of GPU, or `CPU`, not the name of a machine. `architecture` is that of the trial's `Workload`.
    """
    return f"{host}/{architecture}"


def cell_key(trainable: str, config_text: str, data_digest: str) -> str:
    """Return a digest, 16 hexadecimal digits, of what trials of one cell share: trainable, config and data.

    `config_text` is the canonical text of the whole config. The study's name is no part of the digest, so that equal
    trials of other studies have the same one.
    """
    return canonical.digest([trainable, config_text, data_digest], length=16)


def peak_of(record: Record) -> Peak | None:
    """Return the peaks of memory of a finished trial; None where it was not measured, failed or fitted no host.

    A trial that a pruner stopped has peaks too: it needed as much memory as a whole training.
    """
    if not record.status.trained or not (record.gpu_memory_gib or record.host_memory_gib):
        return None
    notes = record.notes
    # A shared GPU is kept busy by other trials too, so its value says nothing about this one.
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


def write(records: StudyRecords, ended: Collection[Record]) -> None:
    """Write calibration/<study>.json for later plans, in place of an earlier one: the peaks of memory in `ended`.

    `ended` has the record of each trial of the study that has ended; `records` names the study and its storage.
    """
    peaks = Learned(filter(None, map(peak_of, ended))).peaks
    content = StudyPeaks(len(ended), tuple(peaks))
    PEAKS_FILE.write(records.store, peaks_key(records), content)


def forget(records: StudyRecords) -> None:
    """Delete calibration/<study>.json, because trials were archived; the next run writes it again from the records."""
    records.store.delete(peaks_key(records))


def read(records: StudyRecords, finished: set[str]) -> Learned:
    """Return the measured peaks of all studies in this storage.

    `finished` are the ids of this study's trials with a record. The study's own peaks are read from its file. If the
    file is missing or counts another number of records, a driver was killed before it could write it. Then the peaks
    are made from the records.
    """
    key = peaks_key(records)
    file = _file(records.store, key) if records.store.exists(key) else None
    if file is not None and file.records == len(finished):
        return learned_of(records, (), file.peaks)
    return learned_of(records, records.read(sorted(finished)).values() if finished else ())


def learned_of(
    records: StudyRecords, known: Iterable[Record], peaks: Iterable[Peak] = ()
) -> Learned:
    """Return the peaks of this study, and those in the files of the storage's other studies.

    The caller gives the peaks of this study: as its records `known`, or as the content `peaks` of its file, which is
    not read here.
    """
    learned = Learned(peaks)
    for key in records.store.list(_FOLDER):
        # A file in a further folder is no study's file.
        if key != peaks_key(records) and "/" not in key.removeprefix(_FOLDER):
            other = _file(records.store, key)
            study = key.removeprefix(_FOLDER).removesuffix(".json")
            peaks_of_other = other.peaks if other else ()
            for peak in peaks_of_other:
                learned.add(peak)
                learned.studies[peak.cell, peak.host] = study
    for known_peak in filter(None, map(peak_of, known)):
        learned.add(known_peak)
    return learned


def trials_elsewhere(
    storage: str, learned: Learned, cells: Collection[tuple[str, str]]
) -> Iterator[tuple[str, Record]]:
    """Yield (cell key, record) of the trials of `cells` that other studies have trained to their end.

    `cells` are (cell key, type of host); `learned` knows which studies of the storage have trained such trials. A study
    that cannot be read is passed over.
    """
    for study in sorted({learned.studies[cell] for cell in cells & learned.studies.keys()}):
        with suppress(ContrasweepError):
            for record in compact.read_records(StudyRecords(storage, study), broken=[]).values():
                peak = peak_of(record)
                if record.status.counts and peak and (peak.cell, peak.host) in cells:
                    yield peak.cell, record


def _file(store: Store, key: str) -> StudyPeaks | None:
    """Return the content of the file `key` in calibration/; None, with a warning in the log, if it is gone or broken.

    A plan is then made with fewer measured peaks.
    """
    try:
        return PEAKS_FILE.read(store, key)
    except (FileNotFoundError, StorageError) as error:
        log.warning("%s", error)
        return None
