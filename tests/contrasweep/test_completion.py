"""What Tab completes to in bash, asked as bash asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument

PROGRAM = Path(sys.executable).with_name("contrasweep")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a study file and the default storage, which has one study of two arms."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "shoes.yaml").touch()
    records = StudyRecords(str(folder / "contrasweep-runs"), "shapes")
    records.claim(StudyDocument("shapes", "accuracy", arms=("supcon", "sincere")))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["pla"], ["plan"]),
        (["report", "sh"], ["shapes", "shoes.yaml"]),
        (["plan", "sh"], ["shoes.yaml"]),
        (["compare", "shapes", ""], ["supcon", "sincere"]),
        (["compare", "other", ""], []),
        (["list", "se"], ["searchers"]),
        (["report", "--capt"], ["--caption"]),
    ],
    ids=" ".join,
)
def test_bash_completes_commands_studies_arms_and_kinds(folder, words, replies):
    asked = " ".join(f"'{word}'" for word in words)
    script = f"""
        source <("$PROGRAM" --show-completion bash) || exit 3
        COMP_WORDS=(contrasweep {asked}); COMP_CWORD={len(words)}
        _contrasweep_completion "$PROGRAM"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    answer = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PROGRAM": str(PROGRAM)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.stderr == ""
    assert answer.stdout.split() == replies


@pytest.mark.slow
def test_completion_is_shown_and_installed_without_a_complaint(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path)}
    for option in ("--show-completion", "--install-completion"):
        # The shell is the one that started the program: a bash that has something left to do, not the shell of `make`.
        words = ["bash", "-c", '"$0" "$1"; exit $?', PROGRAM, option]
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, ""), option
    assert "contrasweep" in (tmp_path / ".bashrc").read_text()
