"""The reports of one member of a cohort, from when they are made to when its own process has dealt with them."""

import shutil
from collections import deque
from pathlib import Path

from contrasweep.trainables.fusing.host.messages import Message, moved


class Outbox:
    """Messages in their order, and in `folder` copies of their files: the member may go on before they are fetched, and
    its host may die before they have been dealt with. Used under the lock of its host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waiting: deque[Message] = deque()  # to be fetched
        self._copies: list[Path] = []  # folders with the files of those that wait
        self._in_use: list[Path] = []  # folders with the files of those that were fetched last
        self._count = 0

    def put(self, message: Message) -> None:
        """Append a message, whose files are copied."""
        report = message.report
        if report is not None and (report.checkpoint or report.artifacts):
            self._count += 1
            self._copies.append(self.folder / str(self._count))
            message.report = moved(report, self._copies[-1])
        self.waiting.append(message)

    def fetch(self) -> list[Message]:
        """The messages that wait; an end by itself, after the files of the reports before it have been dealt with."""
        messages = list(self.waiting)
        if len(messages) > 1 and messages[-1].report is None:
            messages.pop()
        for _ in messages:
            self.waiting.popleft()
        self._in_use, self._copies = self._copies, []
        return messages

    def drop_fetched(self) -> None:
        """Remove the copies that belong to what was fetched last."""
        for folder in self._in_use:
            shutil.rmtree(folder, ignore_errors=True)
        self._in_use = []

    def close(self) -> None:
        """Remove all copies."""
        shutil.rmtree(self.folder, ignore_errors=True)
