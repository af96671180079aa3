"""One driver per study: two would train the same trials twice."""

from collections.abc import Iterator
from contextlib import contextmanager

import filelock

from contrasweep.errors import ContrasweepError
from contrasweep.storage.records import StudyRecords


@contextmanager
def exclusive_driver(records: StudyRecords) -> Iterator[None]:
    """Hold the study's lock in its local storage; `ContrasweepError` if another process holds it.

    An object store has no lock: records are content-addressed, so a second driver wastes work and harms nothing.
    """
    if records.storage.startswith("s3://"):
        yield
        return
    root = records.store.root  # type: ignore[attr-defined]
    (root / records.study).mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(root / records.study / ".driver.lock", timeout=0)
    try:
        with lock:
            yield
    except filelock.Timeout:
        raise ContrasweepError(f"study {records.study} is being run by another process on {records.storage}") from None
