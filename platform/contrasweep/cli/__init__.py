"""The command line. Every error a user can cause is one line on stderr and exit status 2."""

import os
import sys

INTERRUPTED = 130


def main() -> None:
    """Entry point of `contrasweep`. Exit: 0 all done, 1 some failed, 2 wrong input, 130 interrupted (resumable)."""
    from cluster.errors import ClusterError
    from contrasweep.cli.app import app
    from contrasweep.cli.options import wants_json
    from contrasweep.errors import ContrasweepError

    try:
        app()
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            print("contrasweep: interrupted; the same command goes on from here", file=sys.stderr, flush=True)
            os._exit(INTERRUPTED)  # threads of Ray and MLflow may hang on a half-closed connection
        raise
    except (ContrasweepError, ClusterError) as error:
        text = " ".join(str(error).split())
        if wants_json():
            import json

            print(json.dumps({"error": text}))
        print(f"contrasweep: {text}", file=sys.stderr)
        sys.exit(2)
