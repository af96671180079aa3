"""Commands that are told of a run's events, and the delivery of one event to one of them."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from contrasweep.errors import SpecError
from contrasweep.secrets import redacted

DELIVER_S = 30.0
"""After so long a command is ended, with what it has started."""
Message = dict[str, Any]
"""An event as JSON."""


def check_declared(commands: str | list[str] | None) -> str | list[str] | None:
    """Return `commands` (one, several, or None for none) unchanged if each is a command line without secrets.

    Raises `SpecError` otherwise. A secret would be stored and shown with the study's file.
    """
    listed = [commands] if isinstance(commands, str) else commands or []
    for command in listed:
        if redacted(command) != command:
            raise SpecError(
                "a study holds no secret, and who knows this address can post there",
                hint="let the command read it from an environment variable: "
                """sh -c 'curl --json @- "$MY_HOOK"'""",
            )
        if not command.isprintable():
            raise SpecError("a command has no control characters", value=command)
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise SpecError("the words of a command", value=command, hint=str(error)) from None
        if not words:
            raise SpecError(
                "a command has words", value=command, hint='for example "notify-send contrasweep"'
            )
    return commands


def deliver(command: str, message: Mapping[str, object]) -> str:
    """Give a message as JSON to a command on its standard input, within `DELIVER_S`; return why that failed, or ""."""
    try:
        process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # its process group can then be ended as a whole
        )
    except OSError as error:
        return str(error)
    try:
        process.communicate(json.dumps(message), DELIVER_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"it took over {DELIVER_S:g} s"
    return "" if process.returncode == 0 else f"exit status {process.returncode}"
