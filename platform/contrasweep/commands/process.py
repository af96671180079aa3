"""The process of a command: its output is passed on as it comes, and it ends when its trial does."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from contrasweep.commands import supervisor
from contrasweep.errors import ProcessLostError
from contrasweep.terminal_text import printable

LAST_LINES = 100
"""How many of the lines that a command printed last are kept for the message of its error."""
KILLED_BY_OTHERS = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
"""Exit statuses of a command that another process has killed: of the command itself, and as a shell passes them on."""
_FIRST_RANK = re.compile(r"Root Cause \(first.*?exitcode\s*: (-\d+)", re.DOTALL)
"""Matches what `torchrun` prints of the first rank that was lost; its group is the exit code of that rank."""


class CommandFailed(RuntimeError):
    """A command ended with another status than 0; the message ends with what it printed last."""


class Process:
    """A command in a process group of its own. A supervisor ends the command when this process stops it or dies.

    `words` is the command, and `folder` the folder in which it runs. `environment` has its environment variables. Its
    output is written to `log`; None: to standard output. `pid` is the command's process id. `returncode` is None until
    `ended` has returned True, and `tail` has the last lines of the output. Raises `OSError` where the command cannot be
    started.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        log: IO[str] | None = None,
    ) -> None:
        self.words = list(words)
        self.folder = folder
        self.log = log
        self.tail: deque[str] = deque(maxlen=LAST_LINES)
        self.returncode: int | None = None
        self.lines: deque[str] = deque()  # of its output that nobody has taken yet
        self._unread = b""  # of the supervisor's messages, what was not taken yet
        # The supervisor reads the pipe `control`: when this process closes that, the supervisor ends the command. What
        # became of the command the supervisor writes to the pipe `status`.
        control_read, self._control = os.pipe()
        self._status, status_write = os.pipe()
        try:
            starter = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    supervisor.__file__,
                    str(control_read),
                    str(status_write),
                    *self.words,
                ],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=(control_read, status_write),
            )
        finally:
            # The supervisor has its own copies; open here, they would keep it from seeing this process end.
            os.close(control_read)
            os.close(status_write)
        # The starter ends as soon as the supervisor, which is no child of this process, has left it.
        assert starter.stdout is not None
        starter.wait()
        self.pid = self._started()
        self._reader = threading.Thread(target=self._pass_on, args=(starter.stdout,), daemon=True)
        self._reader.start()

    def ended(self, wait_s: float) -> bool:
        """Wait at most `wait_s` seconds for the command's end, and return whether it has ended, with a `returncode`."""
        until = time.monotonic() + wait_s
        while self.returncode is None:
            # One read may have brought both messages, that it started and how it ended.
            if b"\n" not in self._unread:
                ready, _, _ = select.select(
                    [self._status], [], [], max(until - time.monotonic(), 0.0)
                )
                if not ready:
                    return False
            message = self._message()
            # The message is `ended STATUS`. Without it the supervisor was killed, and the command with it.
            self.returncode = int(message[1]) if message else -signal.SIGKILL
        return True

    def output(self) -> Iterator[str]:
        """Yield the lines that the command has printed since the last call, each with its line end.

        Once the command has ended, these are all lines that are left.
        """
        if self.returncode is not None:
            self._reader.join(5.0)  # a grandchild may keep the pipe open
        while self.lines:
            yield self.lines.popleft()

    def check(self) -> None:
        """Raise an error where the command ended with another status than 0; to be called once it has `ended`.

        The error is `ProcessLostError` where another process killed the command, else `CommandFailed`. Its message has
        the last lines that the command printed.
        """
        status = self.returncode
        if not status:
            return
        self._reader.join(5.0)
        how = f"exit status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
        printed = "".join(f"\n{line}" for line in self.tail)
        lines = [line.strip() for line in reversed(self.tail) if re.search(r"\w", line)]
        # The newest line that looks like an exception says most; else the newest line with any word.
        error = r"(?:\[rank\d+\]: )?([\w.]+(?:Error|Exception): .*)"
        errors = [match[1] for line in lines if (match := re.match(error, line))]
        last = [*errors, *lines, "nothing"][0]
        if "No such file" in last:
            last += f"; relative paths begin at {self.folder}"
        rank = _FIRST_RANK.search(printed)
        # torchrun ends by itself where a rank was killed: how that rank ended says whether others did it.
        first = int(rank[1]) if rank else status
        kind = ProcessLostError if first in KILLED_BY_OTHERS else CommandFailed
        # A failure is shown in one line: the last one of this message.
        raise kind(
            f"the command {' '.join(self.words[:3])} ... printed:{printed}\n"
            f"ended with {how}; it printed last: {last}"
        )

    def stop(self) -> None:
        """Send SIGTERM to the command, and once it has ended SIGKILL to all processes that it has started.

        A command that does not end within `supervisor.GRACE_S` seconds gets SIGKILL itself. When this returns, none of
        its processes is left.
        """
        if self._control < 0:  # it was stopped before
            return
        # The supervisor ends the command when this pipe closes.
        os.close(self._control)
        self._control = -1
        self.ended(supervisor.GRACE_S + 5.0)
        # The pipe `status` closes as the supervisor ends, after all that the command has started.
        select.select([self._status], [], [], 5.0)
        os.close(self._status)

    def _started(self) -> int:
        """Return the process id of the command; raise `OSError`, with the system's number, where it did not start."""
        message = self._message()
        if message and message[0] == "started":
            return int(message[1])
        os.close(self._control)
        os.close(self._status)
        # The message is `refused ERRNO`, or there is none.
        number = int(message[1]) if message else 0
        why = os.strerror(number) if message else "its supervisor was killed"
        raise OSError(number, why, self.words[0])

    def _message(self) -> list[str]:
        """Wait for the supervisor's next message, and return its words: `["started", "123"]`; [] after the last."""
        while b"\n" not in self._unread:
            chunk = os.read(self._status, 4096)
            if not chunk:
                return []
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode().split()

    def _pass_on(self, output: IO[str]) -> None:
        """Keep each line of the command's output, and print it to the log; runs in a thread until the output ends."""
        with contextlib.closing(output):
            for line in output:
                text = printable(line)
                self.tail.append(text.rstrip("\n"))
                self.lines.append(text)
                print(line, end="", flush=True, file=self.log)
