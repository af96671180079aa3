"""One driver per study: two would train the same trials twice."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from contrasweep.storage.lease import Lease
from contrasweep.storage.records import StudyRecords


@contextmanager
def exclusive_driver(records: StudyRecords) -> Iterator[Lease]:
    """Hold the study's lease in its storage; `ContrasweepError` if another process holds it and lives."""
    lease = Lease(records, lambda text: print(text, file=sys.stderr, flush=True))
    lease.acquire()
    try:
        yield lease
    finally:
        lease.release()
