"""Every benchmark starts; most are run by no test."""

import pytest
from command_line import python
from places import ROOT

STARTS = """
import contextlib, io, runpy, sys
from pathlib import Path
for path in sorted(Path("benchmarks").glob("*.py")) + sorted(Path("benchmarks").glob("*/__main__.py")):
    places = sys.path[:]
    sys.argv = [str(path), "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        runpy.run_module(".".join(path.with_suffix("").parts), run_name="__main__")
    sys.path[:] = places  # so that each finds by itself what it imports
    if "if __name__ ==" in path.read_text():
        print(path, said.getvalue().partition(":")[0])
"""


@pytest.mark.slow
def test_every_benchmark_is_imported_and_shows_its_options():
    """In a process that does not find what the tests are supported by."""
    done = python("-c", STARTS, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    started = dict(line.split() for line in done.stdout.splitlines())
    assert len(started) > 30 and set(started.values()) == {"usage"}, done.stdout
