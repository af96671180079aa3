"""What a search may learn from an earlier study: its results by the code that there is now."""

from collections.abc import Collection

from contrasweep.code import CurrentCode
from contrasweep.storage.code_files import accepted
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords


def earlier_results(
    earlier: StudyRecords, trainables: Collection[str], current: CurrentCode
) -> tuple[list[Record], list[Record]]:
    """The finished trials of an earlier study with one of `trainables`: those that the current code made, or that were
    kept there by --accept-code, and those of other code."""
    kept = accepted(earlier)
    usable: list[Record] = []
    others: list[Record] = []
    for record in earlier.read(sorted(earlier.finished())).values():
        if record.status.counts and record.trainable in trainables:
            now = current.of(record.trainable, record.config).version.digest
            same = record.code.digest == now or (record.code.digest, now) in kept
            (usable if same else others).append(record)
    return usable, others
