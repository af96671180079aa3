"""What stored files say is shown on a terminal, and never obeyed by it."""

import contextlib
import os
import pty
import sys

from rich.console import Console

from contrasweep.cli import main
from contrasweep.errors import BrokenFileError, SpecError
from contrasweep.live.displays import Terminal, display_here
from contrasweep.storage.records import LOG, StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.terminal_text import guarded, printable, unguarded

HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b]52;c;cm0gLXJm\x07 \x9b31m \u202egnp.exe \x00 loss .3\r\nloss .2\rdone\n"
SHOWN = "\\x1b]0;title\\x07\\x1b[2J\\x1b]52;c;cm0gLXJm\\x07 \\x9b31m \\u202egnp.exe \\x00 loss .3\nloss .2\ndone\n"


@contextlib.contextmanager
def terminal(monkeypatch):
    """Standard output and error as a terminal's; what it was sent, once the `with` has ended."""
    ours, theirs = pty.openpty()
    sent = []
    with open(theirs, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        yield sent
        stream.flush()
        sent.append(os.read(ours, 100_000).decode().replace("\r\n", "\n"))
    os.close(ours)


def test_control_characters_are_shown_and_colours_are_left_out():
    assert printable(HOSTILE) == SHOWN
    assert printable("\x1b[32mgreen\x1b[0m Müller\u00a0\u4e2d\u6587 \U0001f600\t1\n") == (
        "green Müller\u00a0\u4e2d\u6587 \U0001f600\t1\n"
    )


def test_an_error_is_one_line_that_moves_no_cursor():
    for error in (
        SpecError(HOSTILE, place=HOSTILE, value=HOSTILE, hint=HOSTILE),
        BrokenFileError("record.json", HOSTILE, "delete it"),
    ):
        assert str(error).isprintable() and "loss .2 done" in str(error)


def test_a_hostile_log_does_not_reach_the_terminal(tmp_path, storage, monkeypatch):
    records = StudyRecords(storage, "study")
    records.claim(StudyDocument(name="study", metric="accuracy"))
    (tmp_path / "study/trials/abc").mkdir(parents=True)
    (tmp_path / "study/trials/abc" / LOG).write_bytes(HOSTILE.encode())
    monkeypatch.setattr(
        sys, "argv", ["contrasweep", "logs", records.study, "abc", "--storage", storage]
    )
    with terminal(monkeypatch) as sent, contextlib.suppress(SystemExit):
        main()
    assert SHOWN in sent[0]
    assert "\x1b" not in sent[0] and "\x07" not in sent[0]


def test_a_run_is_drawn_on_a_terminal_and_obeys_no_message(monkeypatch):
    with terminal(monkeypatch) as sent:
        sys.stderr = guarded(sys.stderr)
        assert guarded(sys.stderr) is sys.stderr
        display = display_here()
        assert isinstance(display, Terminal)
        assert isinstance(display.console, Console)
        assert display.console.file is unguarded(sys.stderr)
        display.say(f"failed: {HOSTILE}")
    assert "\\x1b]0;title\\x07\\x1b[2J" in sent[0]
    assert "\x1b[2J" not in sent[0] and "\x1b]" not in sent[0]
