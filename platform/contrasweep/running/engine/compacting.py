"""Compact a study while it runs, so that its first report need not read a few files of every trial."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from contrasweep.errors import ContrasweepError
from contrasweep.storage.compact import PART_TRIALS, compact_finished
from contrasweep.storage.records import StudyRecords

log = logging.getLogger(__name__)
INTERRUPT_TIMEOUT_S = 5.0  # how long an interrupted run waits for files that are being read


class Compactor:
    """Compacts the finished trials of a study in a thread of its own, a part whenever enough of them have ended."""

    def __init__(self, records: StudyRecords) -> None:
        self._records = records
        self._ended = 0  # trials since the last part
        self._due, self._stop, self._closing = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._work, name="compact", daemon=True)
        self._thread.start()

    def trial_ended(self) -> None:
        """Count one more trial with a record; does not wait."""
        self._ended += 1
        if self._ended >= PART_TRIALS:
            self._ended = 0
            self._due.set()

    def close(self) -> None:
        """Compact what is not compacted yet, and return when that is done."""
        self._closing = True
        self._due.set()
        self._thread.join()

    def abandon(self) -> None:
        """Begin nothing more, and write no more parts than the one being written."""
        self._closing = True
        self._stop.set()
        self._due.set()
        self._thread.join(INTERRUPT_TIMEOUT_S)

    def _work(self) -> None:
        while not self._stop.is_set():
            self._due.wait()
            self._due.clear()
            closing = self._closing
            try:
                compact_finished(self._records, self._stop)
            except ContrasweepError as error:  # reports are slower without, and say what is broken
                log.warning("the study's files were not compacted: %s", error)
            if closing:
                return


@contextmanager
def compacting(records: StudyRecords) -> Iterator[Compactor]:
    """Yield a `Compactor`; at the end it compacts all ended trials, unless an exception ends the block."""
    compactor = Compactor(records)
    try:
        yield compactor
    except BaseException:
        compactor.abandon()
        raise
    compactor.close()
