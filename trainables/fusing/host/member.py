"""A member of a cohort in its own process: in place of the trainable, the reports that the cohort's host makes.

Nothing here imports the trainable or torch.
"""

import shutil
from collections.abc import Generator
from pathlib import Path

from contrasweep.processes import scratch_folder
from contrasweep.running.run_context import RunContext, TrialDescription
from contrasweep.storage.record import TrialNotes
from contrasweep.trainables.fusing.host.actor import HostConnection
from contrasweep.trainables.fusing.host.messages import Usage
from contrasweep.trial import Report, Trial

WAIT_S = 10.0
"""How long one call to the host waits for a report."""


class MemberMeter:
    """A member's share of its host's use, with the methods of `contrasweep.cluster.usage.Meter`."""

    def __init__(self) -> None:
        self.timeline: list[dict[str, float]] = []
        self._peaks = Usage()

    def add(self, usage: Usage) -> None:
        """Take note of figures that came with a report."""
        self._peaks = usage
        self.timeline += [dict(row) for row in usage.rows]

    def stop(self) -> None:
        """Do nothing: the host's meter goes on."""

    def to_dict(self) -> dict[str, float | None]:
        """Peaks and utilisation, under the names that records use."""
        last = self._peaks
        return {
            "peak_host_memory_gib": last.peak_host_memory_gib or None,
            "peak_gpu_memory_gib": last.peak_gpu_memory_gib,
            "gpu_utilisation": last.gpu_utilisation,
        }


class CohortMember:
    """A trial that trains in a cohort's host; satisfies `contrasweep.planning.lanes.TrainedElsewhere`.

    `notes` name the engine that the host has chosen.
    """

    def __init__(self, context: RunContext, described: TrialDescription) -> None:
        self.context, self.described = context, described
        self.notes = TrialNotes()
        self.meter = MemberMeter()
        self.peers: dict[str, dict[str, float]] = {}

    def __call__(self, trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
        """Yield the reports of `trial`, which joins a cohort on this node with the first and leaves it at the end."""
        folder = scratch_folder("member")
        try:
            yield from self._reports(HostConnection(self.context, self.described, resume, folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _reports(self, connection: HostConnection) -> Generator[Report, None, None]:
        self.notes = TrialNotes(engine=connection.engine or None)
        ended = False
        try:
            while not ended:
                for message in connection.take(WAIT_S):
                    if message.output:
                        print(message.output, end="", flush=True)
                    self.meter.add(message.usage)
                    self.peers = message.peers
                    ended = message.report is None
                    message.raise_failure()
                    if message.report is not None:
                        yield message.report
        finally:
            if not ended:
                connection.detach()
