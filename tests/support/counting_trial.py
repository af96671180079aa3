"""A trainable that counts to 3, and its execution without Ray."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from contrasweep.running.worker.execution import Execution
from contrasweep.storage.record import Record
from contrasweep.trial import Report, Trial


def train(trial: Trial, resume: Path | None = None) -> Iterator[Report]:
    """Counts to 3; the last report has items and an artifact."""
    done = int((resume / "n").read_text()) if resume else 0
    with tempfile.TemporaryDirectory() as scratch:
        for n in range(done + 1, 4):
            (Path(scratch) / "n").write_text(str(n))
            last = (
                {"items": {"hits": [1.0, 0.0]}, "artifacts": {"n.txt": Path(scratch) / "n"}}
                if n == 3
                else {}
            )
            yield Report(n, {"accuracy": n / 10}, Path(scratch), **last)


def finish(execution: Execution) -> Record:
    """Train on to the record."""
    while (record := execution.advance().record) is None:
        pass
    return record
