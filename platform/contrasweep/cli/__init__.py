"""The command line. Every error a user can cause is one line on stderr and exit status 2."""

import os
import sys


def main() -> None:
    """Entry point of `contrasweep`. Exit: 0 all done, 1 some failed, 2 wrong input, 130 interrupted (resumable)."""
    import typer

    from contrasweep.cli.app import app
    from contrasweep.cli.options import wants_json
    from contrasweep.errors import ContrasweepError

    try:
        app()
    except ContrasweepError as error:
        text = " ".join(str(error).split())
        if wants_json():
            import json

            print(json.dumps({"error": text}))
        print(f"contrasweep: {text}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("contrasweep: interrupted; the same command goes on from here", file=sys.stderr)
        sys.stderr.flush()
        os._exit(130)  # worker threads of Ray and MLflow may hang on a half-closed connection
    except BrokenPipeError:
        os._exit(0)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
