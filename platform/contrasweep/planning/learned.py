"""Memory and time of finished trials, kept in the storage for the next plan or run.

    <storage>/calibration/<study>.json     a row for each cell and type of host; a function of that study's records

Every study has a file of its own, so two drivers never write the same one, and a file that is lost or behind is made
again from the records. Readers take all studies' files together.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict, replace

from contrasweep import canonical
from contrasweep.cluster.calibration import ENOUGH, HOST_PRIOR, MARGIN, MARGIN_UNMEASURED, Calibration
from contrasweep.errors import StorageError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label
from contrasweep.storage.record import Count, Measure, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import Store

log = logging.getLogger(__name__)
CPU = "cpu"
"""In the place of a type of GPU: a trial that had none."""
_FOLDER = "calibration/"


@stored
class Peak:
    """The highest peaks, in GiB, of `times` trials of one cell on one type of host.

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
        """The factor on this peak that a trial is given: less once enough trials were measured."""
        return MARGIN if self.times >= ENOUGH else MARGIN_UNMEASURED

    def joined(self, other: "Peak") -> "Peak":
        """Return both peaks as one: the higher of each value, and the sum of `times`."""
        high = {
            name: max(getattr(self, name), getattr(other, name))
            for name in ("gpu_memory_gib", "host_memory_gib", "gpu_busy")
        }
        return replace(other, **high, times=self.times + other.times)


@stored
class StudyPeaks:
    """The content of a study's file: its rows, and the number of records that they come from."""

    records: Count
    peaks: tuple[Peak, ...]


PEAKS_FILE = JsonFile(StudyPeaks, 2, "delete it, and it is written again from the records")
"""calibration/<study>.json, written and read."""


class Learned:
    """Peaks by cell and type of host, and the constants of the memory model that follow from them."""

    def __init__(self, peaks: Iterable[Peak] = ()) -> None:
        self.cells: dict[str, dict[str, Peak]] = {}
        self.gpu, self.host = Calibration(), Calibration(prior=HOST_PRIOR)
        for peak in peaks:
            self.add(peak)

    def add(self, peak: Peak) -> None:
        """Join a peak with those of its cell and host, and fit the constants of its architecture to it."""
        hosts = self.cells.setdefault(peak.cell, {})
        hosts[peak.host] = hosts[peak.host].joined(peak) if peak.host in hosts else peak
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
    """Return the key under which trials share the constants of the memory model."""
    return f"{host}/{architecture}"


def cell_key(trainable: str, config_text: str, data_digest: str) -> str:
    """Names what trials of one cell have in common, whatever the study calls it. 16 hexadecimal digits."""
    return canonical.digest([trainable, config_text, data_digest], length=16)


def peak_of(record: Record) -> Peak | None:
    """Return the row of one record; None where it has nothing to teach.

    That is a trial that did not train to an end, or was not measured.
    """
    if not record.status.trained or not (record.gpu_memory_gib or record.host_memory_gib):
        return None
    notes = record.notes
    return Peak(
        cell_key(record.trainable, canonical.dumps(record.config), record.data.digest),
        notes.gpu_type or CPU,
        notes.architecture or "",
        notes.counted_gib or 0.0,
        record.gpu_memory_gib or 0.0,
        record.host_memory_gib or 0.0,
        (record.gpu_utilisation or 0.0)
        if (notes.gpus or 0.0) >= 1
        else 0.0,  # beside others it tells too little or too much
    )


def peaks_key(records: StudyRecords) -> str:
    """Return the storage key of the file with the measured peaks of a study."""
    return f"{_FOLDER}{records.study}.json"


def write(records: StudyRecords, known: Iterable[Record]) -> None:
    """Write the study's file from its records."""
    every = list(known)
    rows = Learned(peak for peak in map(peak_of, every) if peak).peaks
    PEAKS_FILE.write(records.store, peaks_key(records), asdict(StudyPeaks(len(every), tuple(rows))))


def forget(records: StudyRecords) -> None:
    """Drop the study's file, because trials were archived; the next run writes it again from the records."""
    records.store.delete(f"{_FOLDER}{records.study}.json")


def read(records: StudyRecords, finished: set[str]) -> Learned:
    """Return what all studies in this storage have learned.

    This one's rows are made again from its records where its file does not count as many as are `finished`: its driver
    was killed before it could write.
    """
    key = peaks_key(records)
    known = _file(records.store, key) if finished and records.store.exists(key) else None
    fresh = known is not None and known.records == len(finished)
    return learned_of(
        records, [] if fresh else records.read(sorted(finished)).values(), known.peaks if known and fresh else ()
    )


def learned_of(records: StudyRecords, known: Iterable[Record], peaks: Iterable[Peak] = ()) -> Learned:
    """The other studies' files, and of this study the records `known` or the rows `peaks`."""
    learned = Learned(peaks)
    for key in records.store.list(_FOLDER):
        if key != peaks_key(records) and "/" not in key.removeprefix(_FOLDER):
            other = _file(records.store, key)
            for peak in other.peaks if other else ():
                learned.add(peak)
    for row in map(peak_of, known):
        if row is not None:
            learned.add(row)
    return learned


def _file(store: Store, key: str) -> StudyPeaks | None:
    """The content of a study's file; None where it is broken, which costs an estimate and no plan."""
    try:
        return PEAKS_FILE.read(store, key)
    except (FileNotFoundError, StorageError) as error:
        log.warning("%s", error)
        return None
