"""Signals to the command line at any moment: status 130 and one line, whatever the main thread is doing."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from command_line import python
from drivers import ray_folder, start_driver
from folders import make_files
from places import module_path
from raylets import wait_for

LINE = "contrasweep: interrupted; the same command goes on from here\n"
STUDY = "name: stopped\ndata: digits-lt\nfolds: 2\narms:\n  a: {{trainable: '{trainable}', config: {{}}}}\n"
WORDS = ("run", "study.yaml", "--storage", "runs", "--tracking", "none")
NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def write_study(folder):
    (folder / "study.yaml").write_text(STUDY.format(trainable="toy:train"))


def start_in_import(module, body, folder):
    """`contrasweep plan` of a study, once it has come to `body` in the import of `module`: a trainable or a library."""
    waits = folder / "waits"
    ready = f"def ready():\n    open({str(waits)!r}, 'w').close()\n"
    text = f"import ctypes, os, sys, time\n{ready}def wait():\n    ready()\n    time.sleep(600)\n{body}\n"
    make_files(
        folder, {f"{module}.py": text, "study.yaml": STUDY.format(trainable=f"{module}:train")}
    )
    places = {"PYTHONPATH": module_path(folder)}
    driver = start_driver("plan", "study.yaml", folder=folder, ray=folder, environment=places)
    wait_for(lambda: waits.exists() or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()
    return driver


def assert_interrupted(driver, printed=""):
    assert driver.communicate() == (printed, LINE) and driver.returncode == 130


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_in_an_import_that_swallows_every_exception(number, tmp_path):
    """Before a command begins: `typer` is what the command line imports first."""
    driver = start_in_import(
        "typer", "try:\n    wait()\nexcept BaseException:\n    pass\nwait()", tmp_path
    )
    driver.send_signal(number)
    assert_interrupted(driver)


EARLY = """
import os, sys
def hook(event, words):
    if event == "import" and words[0] == "contrasweep.defaults":  # which the package imports first
        os.kill(os.getpid(), 15)
sys.addaudithook(hook)
"""
SCRIPT = "from contrasweep.cli import program\nprogram()"


@pytest.mark.parametrize(
    "words", [["-m", "contrasweep"], ["-X", "dev", "-mcontrasweep"], ["bin/contrasweep"]]
)
def test_a_signal_while_the_package_itself_is_imported(words, tmp_path):
    make_files(tmp_path, {"bin/contrasweep": SCRIPT, "sitecustomize.py": EARLY})
    places = os.environ | {"PYTHONPATH": module_path(tmp_path)}
    done = python(*words, "list", "methods", cwd=tmp_path, env=places)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", LINE)


def test_signals_stay_those_of_a_program_that_imports_the_package(tmp_path):
    """Also of a process that the command line starts by multiprocessing, which has the arguments of its parent."""
    asks = "import signal\nimport contrasweep\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)\n"
    make_files(
        tmp_path,
        {
            "asking.py": asks,
            "starts.py": "import asking, multiprocessing, sys\n"
            "if __name__ == '__main__':\n"
            "    sys.argv[0] = 'contrasweep'\n"
            "    process = multiprocessing.get_context('spawn').Process(target=print)\n"
            "    process.start()\n"
            "    process.join()\n",
        },
    )
    done = python("starts.py", cwd=tmp_path)
    assert (done.stdout.split("\n")[:2], done.stderr) == (["set()", "set()"], "")


TURNED = "try:\n    wait()\nexcept KeyboardInterrupt:\n    raise {}('partially initialized')"
SHORT = "from contrasweep.running import signals\nsignals.UNDO_S = 1.0\n"
BODIES = {
    "an import that turns it into ImportError": TURNED.format("ImportError"),
    "an import that turns it into SystemExit": TURNED.format("SystemExit"),
    "a destructor that swallows it": "class Slow:\n    def __del__(self):\n        wait()\nSlow()\nwait()",
    "compiled code that does not come back": "lock, c = ctypes.create_string_buffer(128), ctypes.CDLL(None)\n"
    "c.pthread_mutex_lock(lock)\nready()\nc.pthread_mutex_lock(lock)",
    "what takes too long to be undone": f"{SHORT}try:\n    wait()\nfinally:\n    time.sleep(600)",
}


@pytest.mark.parametrize("case", BODIES)
def test_an_interrupt_ends_the_command_whatever_it_meets(case, tmp_path):
    driver = start_in_import("trainable", BODIES[case], tmp_path)
    driver.send_signal(signal.SIGTERM)
    assert_interrupted(driver)


def test_a_second_ctrl_c_ends_what_the_first_one_undoes(tmp_path):
    undoes = tmp_path / "undoes"
    body = (
        f"try:\n    wait()\nfinally:\n    open({str(undoes)!r}, 'w').close()\n    time.sleep(600)"
    )
    driver = start_in_import("trainable", body, tmp_path)
    driver.send_signal(signal.SIGINT)
    wait_for(undoes.exists)
    while driver.poll() is None:  # one that comes with the first is no second one
        driver.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert_interrupted(driver)


def test_a_signal_to_a_forked_child_is_the_childs(tmp_path):
    child = "    os.write(writes, b'x')\n    time.sleep(600)\n"
    parent = "os.read(reads, 1)\nos.kill(child, 15)\nprint('ended by', os.waitpid(child, 0)[1], flush=True)\nwait()"
    body = f"reads, writes = os.pipe()\nchild = os.fork()\nif not child:\n{child}{parent}"
    driver = start_in_import("trainable", body, tmp_path)
    driver.send_signal(signal.SIGTERM)
    assert_interrupted(driver, "ended by 15\n")


@pytest.mark.parametrize("words", [["schema"], ["list", "methods"], ["--help"]], ids=" ".join)
def test_a_pipe_that_nobody_reads_ends_a_command_without_a_word(words, tmp_path):
    """As behind `| head`: one that prints more than a pipe takes, one that prints less, and Typer's own text."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "contrasweep", *words]
    with open(writes, "wb") as nobody:
        done = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, b"")


def test_another_pipe_that_breaks_is_said(tmp_path):
    (tmp_path / "contrasweep_study.py").write_text("raise BrokenPipeError('of a helper')")
    done = python("-m", "contrasweep", "plan", "contrasweep_study:STUDY", cwd=tmp_path)
    assert done.returncode == 2 and "BrokenPipeError: of a helper" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_standard_output_is_not_written_to(tmp_path):
    command = [sys.executable, "-m", "contrasweep", "list", "methods"]
    done = subprocess.run(
        command, stderr=subprocess.PIPE, cwd=tmp_path, preexec_fn=lambda: os.close(1)
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("terminal", ["stdout", "stderr"])
def test_a_last_line_shows_the_cursor_again_only_where_it_is_on_a_terminal(terminal):
    ours, theirs = pty.openpty()
    code = "from contrasweep.running.signals import interruption; interruption.end_process()"
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, terminal: theirs}
    process = subprocess.Popen([sys.executable, "-c", code], **streams)
    errors = process.communicate()[1]
    shown = errors if terminal == "stdout" else os.read(ours, 4096).replace(b"\r", b"")
    assert shown.decode() == "\x1b[?25h\n" * (terminal == "stderr") + LINE
    os.close(ours), os.close(theirs)


@pytest.mark.long
def test_a_signal_at_any_moment_of_a_study(tmp_path):
    """After some eighths of the time that the command takes: 130 and one line, or 0 where it had ended."""
    write_study(tmp_path)
    began = time.monotonic()
    took = None
    ended = []
    for eighth in (8, 2, 5, 7):  # `python -m benchmarks.stops` tries many more
        words = ("run", "study.yaml", "--storage", f"runs-{eighth}", "--tracking", "none")
        with ray_folder() as ray:
            driver = start_driver(*words, folder=tmp_path, ray=ray)
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(took and took * eighth / 8)
            took = took or time.monotonic() - began
            driver.send_signal(signal.SIGHUP if eighth == 5 else signal.SIGTERM)
            errors = driver.communicate()[1]
        ended.append(driver.returncode)
        one_line = errors.endswith(LINE) and errors.count("contrasweep:") == 1
        assert driver.returncode == 0 or (driver.returncode == 130 and one_line), errors
    assert ended[0] == 0 and 130 in ended


TWICE = """
import os, signal
from contrasweep.running.signals import interruptible, interruption
for run in (1, 2):
    try:
        with interruptible():
            print("asked to stop" if interruption.requested else "runs")
            if run == 1:
                os.kill(os.getpid(), signal.SIGINT)
                signal.pause()
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_after_an_interrupt_the_next_run_of_the_same_process_is_not_asked_to_stop(tmp_path):
    """As in a notebook, whose process goes on."""
    assert python("-c", TWICE, cwd=tmp_path).stdout.split("\n")[:3] == [
        "runs",
        "interrupted",
        "runs",
    ]
