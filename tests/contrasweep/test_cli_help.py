"""What the command line says of itself (the version, an example for every command), and what it passes on at once."""

import importlib.metadata
import re
import shlex
import sys

import pytest
import typer

from contrasweep.cli.app import app
from contrasweep.cli.catalogue import TABLES
from contrasweep.cli.examples import EXAMPLES, GROUPS
from contrasweep.cluster.jobs import Job

COMMAND = typer.main.get_command(app)


def commands(group=COMMAND, prefix=""):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} ")
        else:
            yield f"{prefix}{name}", command


def test_the_examples_are_those_of_the_commands_that_there_are():
    assert set(EXAMPLES) == {name for name, _ in commands()}


def test_the_help_has_every_command_once_under_a_heading_and_its_sentence_whole(monkeypatch):
    """The one ellipsis is that of the usage line."""
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMAND.commands)
    monkeypatch.setenv("COLUMNS", "80")
    text = COMMAND.get_help(COMMAND.make_context("contrasweep", [], resilient_parsing=True))
    assert all(f"\n{heading}:\n" in text for heading in GROUPS)
    assert text.count("...") == 1 and max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_shows_its_examples_and_takes_them(name):
    command = dict(commands())[name]
    for line in EXAMPLES[name]:
        program, *words = shlex.split(line.partition(" > ")[0])
        assert program == "contrasweep"
        assert " ".join(words).startswith(f"{name} ") or words == [name]
        command.make_context(
            name, words[len(name.split()) :]
        )  # raises where an option or argument is not known
        assert f"  {line}" in command.get_help(
            command.make_context(name, [], resilient_parsing=True)
        )


def test_the_help_of_list_names_every_kind():
    help_ = COMMAND.commands["list"].params[0].help
    assert set(re.findall(r"[a-z]+", help_)) - {"or"} == {*TABLES, "studies"}


def test_the_version_is_that_of_the_distribution(capsys):
    assert app(["--version"], standalone_mode=False) == 0
    assert capsys.readouterr().out == f"contrasweep {importlib.metadata.version('contrasweep')}\n"


def test_what_a_followed_job_prints_is_written_at_once(tmp_path, monkeypatch):
    """Into a pipe or a file too, which Python would fill a block at a time."""
    output = tmp_path / "output"
    seen = []

    def follow(job, write):
        write("epoch 1\n")
        seen.append(output.read_text())
        return "SUCCEEDED"

    monkeypatch.setattr(Job, "follow", follow)
    with output.open("w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert (
            app(
                ["logs", "contrasweep-mine-0123abcd", "--address", "http://head:8265", "--follow"],
                standalone_mode=False,
            )
            == 0
        )
    assert seen == ["epoch 1\n"]
