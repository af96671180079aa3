"""Passwords: where they come from (the environment, a file), and how no text that we print or store has one."""

import os
import re
from pathlib import Path

from contrasweep.errors import SpecError

HIDDEN = "***"
_USERINFO = re.compile(r"(?<=://)([^/?#\s:@]*):([^/?#\s@]+)@")
_PARAMETER = re.compile(r"(?i)([?&](?:[\w-]*(?:password|passwd|secret|token))=)[^&#\s]+")
_known: set[str] = set()


def remember(secret: str) -> None:
    """Let `redacted` hide this text from now on, for example in a database's message with an address."""
    if len(secret) >= 4:  # hidden everywhere, a shorter one would blot out words
        _known.add(secret)


def redacted(text: str) -> str:
    """Return `text` without the passwords of addresses in it and without remembered secrets."""
    text = _PARAMETER.sub(rf"\1{HIDDEN}", _USERINFO.sub(rf"\1:{HIDDEN}@", text))
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def secret_from_environment(name: str) -> str:
    """The value of the variable `name`, or the content of the file that `name`_FILE names; "" where neither is set."""
    if value := os.environ.get(name):
        return value
    if not (file := os.environ.get(f"{name}_FILE")):
        return ""
    try:
        return Path(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise SpecError(
            f"the file with the password cannot be read ({why})", place=f"{name}_FILE", value=file
        ) from None


def check_arguments(arguments: list[str]) -> None:
    """Raise `SpecError` for a password in a command's arguments: every user of the machine can read those."""
    for argument in arguments:
        if redacted(argument) != argument:
            raise SpecError(
                "a password on the command line can be read by every user of this machine",
                value=redacted(argument),
                hint="leave it out of the address and set CONTRASWEEP_TRACKING_PASSWORD, or "
                "CONTRASWEEP_TRACKING_PASSWORD_FILE to a file that has it; of an MLflow server "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; of S3 the AWS_ variables",
            )
