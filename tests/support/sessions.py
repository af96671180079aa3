"""Sessions of commands in files: each line `$ COMMAND` is played, and prints what stands below it."""

import logging
import os
import re
import shlex
import subprocess
import sys
from unittest.mock import patch

from command_line import contrasweep
from places import ROOT

# Last digits that differ by a library's version.
LONG = re.compile(r"(?<![\w.])-?\d+\.\d{9,}(?:e[-+]\d+)?")


def played(session, folder, masks, own=None):
    """Play the session of a file in a folder; return the lines of both. CONTRASWEEP_WRITE=1 writes the file anew.

    `masks` are patterns of what differs by day or machine, and what stands in their place. `own` are commands that are
    no programs: word -> function(folder, *words) -> text.
    """
    expected = session.read_text()
    lines = [line[2:] for line in expected.splitlines() if line.startswith("$ ")]
    printed = "\n".join(f"$ {line}\n{_output(line, folder, own or {})}" for line in lines)
    printed = _masked(printed, folder, masks)
    if os.environ.get("CONTRASWEEP_WRITE"):
        session.write_text(printed)
    return printed.splitlines(), expected.splitlines()


def _output(line, folder, own):
    words = shlex.split(line)
    if words[0] in own:
        text = own[words[0]](folder, *words[1:])
    else:
        if words[0] == "contrasweep":
            with patch.object(logging.root, "handlers", []):  # warnings are printed, as in a shell
                done = contrasweep(*words[1:], folder=folder)
        else:
            done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=folder)
        ended = f"exit status {done.returncode}\n" if done.returncode else ""
        text = done.stdout + done.stderr + ended
    return "".join(f"{row.rstrip()}\n" for row in text.splitlines())


def _masked(text, folder, masks):
    text = text.replace(str(folder), "FOLDER").replace(sys.executable, "PYTHON")
    text = text.replace(str(ROOT), "ROOT")
    text = LONG.sub(lambda number: f"{float(number[0]):.7g}", text)
    for digest in set(re.findall(r"/code/([0-9a-f]{16})\.json", text)):
        text = text.replace(digest, "CODE")
    for pattern, word in masks.items():
        text = re.sub(pattern, word, text)
    return text
