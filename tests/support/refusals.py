"""Errors of bad input: each is one line."""

import os
import platform
import re
import traceback
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pytest
from places import ROOT

LINES = Path(__file__).with_suffix(".txt")
# What differs by machine, by run, or by a change of a file elsewhere.
MASKS = {
    str(ROOT): "ROOT",
    r"[^\s'\"(]*/pytest-\d+/(popen-gw\d+/)?[^\s'\",;:)/]*": "FOLDER",
    r"memory://[\w-]+": "FOLDER",
    r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b": "DIGEST",
    r"(localhost|127\.0\.0\.1):\d+": "SERVER",
    r"\(\w+\.\w+, line \d+\)": "(FILE, line N)",
    r"0x\w+": "0xADDRESS",
    r"20\d\d-\d\d-\d\d[T ]\d[\d:]+": "DATE",
    r"\S*/contrasweep-[\w-]+": "FOLDER",
    r"\d+,\d{3}(?= bytes|: it)": "N",
    r"process \d{2,} on \w+": "process PID on HOST",
    r"\b(s|sweep)\d{9,}": "STUDY",
    rf"\b{platform.node()}\b": "HOST",
    r"torch \d\S+": "torch VERSION",
    r"\b\d+\.\d+\.\d+\b": "VERSION",
    r"raysubmit_\w+": "JOB",
    r"lost in epoch \d+": "lost in epoch N",
}


def said_elsewhere(error):
    """Return the text of the first error in this chain that Python or a library raised: it may differ by release."""
    while error:
        raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
        if "/lib/python" in raised_in or raised_in.startswith("<"):
            return str(error)
        error = error.__cause__ or error.__context__
    return ""


@contextmanager
def refused(kind, *says, begins="", match=None):
    """Assert that an error of this kind is raised, in one line that has each of these texts. Yields what is caught.

    `LINES` has the whole line. After a wanted change, `CONTRASWEEP_WRITE=1 pytest -n 0` of the test adds it there.
    """
    with pytest.raises(kind, match=match) as caught:
        yield caught
    line = str(caught.value)
    assert line.startswith(begins) and "\n" not in line and all(text in line for text in says), line
    if hypothesis.currently_in_test_context():
        return
    said = said_elsewhere(caught.value)
    if len(said) > 3:  # a shorter one, such as an exit status, is found in other words too
        line = line.replace(said, "REASON")
    for pattern, word in MASKS.items():
        line = re.sub(pattern, word, line)
    known = LINES.read_text().splitlines()
    if os.environ.get("CONTRASWEEP_WRITE"):
        LINES.write_text("\n".join(sorted({*known, line})) + "\n")
    else:
        assert line in known, f"{LINES.name} has no line\n{line}"
