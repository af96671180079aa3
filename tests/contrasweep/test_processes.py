"""Scratch of processes that were killed is cleared, and nobody else's."""

import subprocess
import sys
import tempfile
from pathlib import Path

from contrasweep.processes import process_identity, scratch_folder, sweep_scratch

MAKE = "import sys; from contrasweep.processes import *; print(scratch_folder('trial'), flush=True); sys.stdin.read()"


def test_the_scratch_of_a_killed_process_is_swept(tmp_path, storage, monkeypatch):
    monkeypatch.setenv("TMPDIR", storage)
    monkeypatch.setattr(tempfile, "tempdir", storage)
    other = subprocess.Popen(
        [sys.executable, "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    mine = scratch_folder("trial")
    (theirs / "checkpoint").write_text("a gigabyte")
    (tmp_path / "contrasweep-scratch-somebody-elses").mkdir()
    assert (sweep_scratch(), theirs.exists()) == (0, True), "its process lives"
    identity = process_identity(other.pid)
    other.kill()
    other.wait()
    assert (sweep_scratch(), theirs.exists(), mine.exists()) == (1, False, True)
    assert identity and not process_identity(other.pid)
    assert (tmp_path / "contrasweep-scratch-somebody-elses").exists()
