"""The command line. Every error a user can cause is one line on stderr and exit status 2."""

import os
import sys
from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Entry point of `contrasweep`. Exit: 0 all done, 1 some failed, 2 wrong input, 3 a budget is used up, 130
    interrupted (resumable)."""
    import typer

    from cluster.errors import ClusterError
    from contrasweep.cli.app import app
    from contrasweep.errors import ContrasweepError

    try:
        status = app(standalone_mode=False)
    except (ContrasweepError, ClusterError) as error:
        _fail(str(error))
    except typer.Abort:  # a question that was answered with no, or by nobody
        _fail("nothing was changed")
    except Exception as error:
        if not hasattr(error, "format_message"):  # what Click raises for wrong options, and Typer's own copy of Click
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            sys.exit(0)
        command = getattr(getattr(error, "ctx", None), "command_path", "contrasweep")
        _fail(f"{error.format_message()} (see {command} --help)")
    if status == INTERRUPTED:
        print("contrasweep: interrupted; the same command goes on from here", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)  # threads of Ray and MLflow may hang on a half-closed connection
    sys.exit(status)


def _fail(message: str) -> NoReturn:
    """Print an error as one line, and as JSON where that was asked for; exit with 2."""
    from contrasweep.cli.options import wants_json

    text = " ".join(message.split())
    if wants_json():
        import json

        print(json.dumps({"error": text}))
    print(f"contrasweep: {text}", file=sys.stderr)
    sys.exit(2)
