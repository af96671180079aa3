"""The command line. Every error a user can cause is one line on stderr and exit status 2."""

import atexit
import contextlib
import io
import os
import resource
import sys
import threading
from typing import Any, NoReturn

PACKAGES_OF_ALL = {
    "cmaes",
    "matplotlib",
    "mlflow",
    "optuna",
    "pandas",
    "ray",
    "scipy",
    "sklearn",
    "tensorboardX",
    "torch",
    "torchvision",
}
"""Packages that the extra `all` installs, by the names under which they are imported."""
PACKAGES_OF_JUDGE = {"optuna", "pandas", "scipy"}
"""Those that the smaller extra `judge` installs too: what reads results."""
EXTRAS = {
    **dict.fromkeys(PACKAGES_OF_ALL, "all"),
    **dict.fromkeys(PACKAGES_OF_JUDGE, "judge"),
    "mcp": "mcp",
}
"""Package, by the name under which it is imported -> the smallest extra that installs it."""
MIN_ADDRESS_SPACE = 2**30
"""Bytes of address space that compiled libraries need to be loaded; with less they raise, or hang."""

NEED_ALL = {"run", "evaluate", "decide", "sync"}
"""Commands that need the extra `all`, whichever package is missed first."""
ACTING = {"run", "evaluate", "decide", "submit"}
"""Commands whose exit status says what became of a study. All other commands are run for their output."""


class Output(io.FileIO):
    """A standard stream that never fails to write, as a full disk must not end a training whose output goes there.

    `lost` is the first error of a write; None as long as all was written. A broken pipe, which nobody reads any more,
    still raises and so ends the command.
    """

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write `data` and return how many bytes were written; where writing fails `len(data)`, as if all were written.

        Raises `BrokenPipeError` where the stream is a pipe that nobody reads any more.
        """
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.lost = self.lost or error
            return len(data)


def program() -> None:
    """Run `main`, and end the process: the entry point of `contrasweep`.

    Functions that were registered with `atexit` run. Python's own last step is skipped: it visits every object of every
    module, which takes up to two seconds. Where output was lost, a line on stderr says so.
    """
    from contrasweep.running.signals import attend, interruption

    outputs = _replace_streams()
    attend()  # installs the handlers of signals
    try:
        main()
    except KeyboardInterrupt:
        interruption.end_process()
    except SystemExit as end:
        # Two things only Python's own end does: it waits for threads that are no daemons (the main one is always
        # there), and prints an exit code that is a text.
        waited_for = [thread for thread in threading.enumerate() if not thread.daemon]
        if len(waited_for) > 1 or isinstance(end.code, str):
            raise
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError):  # nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        status = end.code or 0
        if lost := next((output.lost for output in outputs if output.lost), None):
            with contextlib.suppress(OSError):
                why = f"what was to be printed is lost, because it cannot be written ({lost.strerror})"
                os.write(2, f"contrasweep: {why}\n".encode())
            # Lost output fails a command that only prints, not one that has trained.
            if status == 0 and _command() not in ACTING:
                status = 1
        os._exit(status)


def _replace_streams() -> list[Output]:
    """Replace standard output and standard error by streams whose writes never fail, and return what these write to."""
    outputs = []
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # closed, as by `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 until the end
            continue
        # A stream that a caller has replaced already, as a test does, is left alone.
        if stream is not getattr(sys, f"__{name}__"):
            continue
        output = Output(number, "w", closefd=False)
        outputs.append(output)
        settings = {
            "encoding": stream.encoding,
            # A sign that the encoding does not have, as of a table's lines in ASCII, is a question mark.
            "errors": "replace" if stream.errors == "strict" else stream.errors,
            "line_buffering": stream.line_buffering,
        }
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(output), **settings))
    return outputs


def _command() -> str:
    """Return the first word behind `contrasweep` on the command line, the name of a command; "" for none."""
    return sys.argv[1] if len(sys.argv) > 1 else ""


def main() -> None:
    """Run the command of `sys.argv`, and raise SystemExit.

    Its code is 0 where all is done, 1 where something failed, 2 for wrong input, 3 where a budget is used up, 130 after
    an interruption (run the command again to go on).
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]  # in bytes; -1: there is none
    if 0 <= limit < MIN_ADDRESS_SPACE:
        _fail(
            f"the address space of this process is limited to {limit / 2**30:.2f} GiB, and libraries need 1 GiB "
            "to be loaded; `ulimit -v unlimited` lifts the limit"
        )
    import typer

    from contrasweep.cli.app import run_app
    from contrasweep.cluster.errors import ClusterError
    from contrasweep.errors import ContrasweepError
    from contrasweep.imports import in_one_line, install_command
    from contrasweep.running.signals import INTERRUPTED, interruption
    from contrasweep.secrets import check_arguments
    from contrasweep.terminal_text import guarded

    sys.stdout, sys.stderr = guarded(sys.stdout), guarded(sys.stderr)
    try:
        os.getcwd()
    except FileNotFoundError:  # removed, or made anew, since the shell went there
        _fail("the current folder does not exist any more; cd to one that does")
    try:
        check_arguments(sys.argv[1:])
        status = run_app()
        sys.stdout.flush()
    except BrokenPipeError as error:
        _end_unread(error)
    except (ContrasweepError, ClusterError) as error:
        _fail(str(error), error)
    except PermissionError as error:  # of a file or folder of another user
        _fail(in_one_line(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = "all" if _command() in NEED_ALL else EXTRAS[package]
        _fail(
            f"this command needs the package {package}, which is not installed here; planning, submitting and watching "
            f"do without: {install_command(extra)}"
        )
    except SystemExit as error:  # no command of ours raises it
        if _raised_in(error) == "typer":  # --show-completion, and what the shell asks at each Tab
            raise
        if isinstance(error.__context__, BrokenPipeError):  # Typer raises SystemExit in place of it
            _end_unread(error.__context__)
        # What is left is code that a study names, which called sys.exit.
        _fail(
            f"code that the study names ended the process; {in_one_line(error)}; a part must not call sys.exit"
        )
    except typer.Abort:  # a question that was answered with no, or by nobody
        _fail("nothing was changed")
    except Exception as error:
        # Errors of Click, and of Typer's own copy of Click, have this method: they are raised for wrong options.
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(f"{error.format_message()}\n")
            sys.exit(0)
        command = getattr(getattr(error, "ctx", None), "command_path", "contrasweep")
        message = error.format_message().replace("Value error, ", "")  # Pydantic's words
        _fail(f"{message} (see {command} --help)", error)
    if status == INTERRUPTED:
        interruption.end_process()
    sys.exit(status)


def _end_unread(error: BrokenPipeError) -> NoReturn:
    """Exit with 1, silently, where nobody reads standard output or standard error any more, as behind `| head`.

    Where both are still read, another pipe is broken: then `error` is printed, and the exit status is 2.
    """
    import select

    from contrasweep.imports import in_one_line

    # A closed reader is reported as an error of the descriptor, whatever events are asked for.
    printed = select.poll()
    for descriptor in (1, 2):
        printed.register(descriptor, 0)
    if not printed.poll(0):
        _fail(in_one_line(error))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # takes what is still to be flushed
    os.dup2(nowhere, 2)
    sys.exit(1)


def _raised_in(error: BaseException) -> str:
    """Return the top-level package of the function in which `error` was raised: `torch`, for example.

    "" where the error has no traceback.
    """
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace.tb_frame.f_globals["__name__"].partition(".")[0] if trace else ""


def _fail(message: str, error: Exception | None = None) -> NoReturn:
    """Print `message` as one line on stderr, with `--json` also the document `error` on stdout, and exit with 2.

    `error` is the exception, from whose parts the document takes rule, place, value and hint; None: they are empty.
    Secrets are blotted out.
    """
    from contrasweep.cli.options import wants_json
    from contrasweep.errors import clipped, error_members
    from contrasweep.secrets import redacted

    text = redacted(clipped(message, 2500))
    if wants_json():
        import json

        members = {
            name: redacted(value) if isinstance(value, str) else value
            for name, value in error_members(error).items()
        }
        print(json.dumps({"schema": "error/1", "error": text, **members, "status": 2}, indent=1))
    print(f"contrasweep: {text}", file=sys.stderr)
    sys.exit(2)
