"""Git, asked so that nothing of a checkout's own configuration runs: no hook, no file system monitor, no fetch."""

import os
import subprocess
from pathlib import Path

TIMEOUT_S = 10.0
_SAFE = (
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "--no-optional-locks",
    "--no-replace-objects",
)
"""Options with which git runs nothing that a checkout configures."""
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
"""Variables with which git asks nothing, fetches nothing and answers in English."""


def git(folder: Path, *words: str) -> bytes:
    """Return what git prints in `folder`, whatever GIT_ variables say; `OSError`, `SubprocessError` where it fails.

    `words` are git's command and its arguments. It fails where it is not installed, ends with a status other than 0, or
    takes longer than `TIMEOUT_S`.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *_SAFE, "-C", str(folder), *words],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=True,
        env=variables | _QUIET,
    )
    return done.stdout
