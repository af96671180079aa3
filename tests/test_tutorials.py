"""The tutorials and notebooks as a reader does them: files written, commands run, outside of the repository."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from docs.site import first_look
from drivers import ray_folder
from nbclient import NotebookClient
from places import ROOT

TUTORIALS = ROOT / "docs/tutorials"
NOTEBOOKS = ROOT / "docs/notebooks"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w.]+\.(?:yaml|py))\b")


def steps_of(page):
    """Files (name, text) and commands ("", line) of a page, in its order. Blocks of output hold no command."""
    found = []
    for kind, text in BLOCK.findall((TUTORIALS / page).read_text()):
        if name := NAMED.match(text):
            found.append((name[1], text))
        elif not kind:
            found += [
                ("", line)
                for line in text.splitlines()
                if line.startswith(("contrasweep ", "python "))
            ]
    return found


def shown(page):
    """The lines of output that a page has under its commands."""
    blocks = [text for kind, text in BLOCK.findall((TUTORIALS / page).read_text()) if not kind]
    return {
        line
        for text in blocks
        if "contrasweep " not in text and "python " not in text
        for line in text.splitlines()
    }


def do(page, folder, ray, leave_out=(), fewer=()):
    """Command -> what it printed; an assertion error with its output where one fails. Of lists that end with one of
    `fewer`, the last item is left out."""
    printed = {}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": programs, "RAY_TMPDIR": str(ray)}
    for name, text in steps_of(page):
        for last in fewer:
            text = text.replace(f", {last}]", "]")
        if name:
            (folder / name).write_text(text)
        elif not text.startswith(leave_out):
            done = subprocess.run(
                text, shell=True, cwd=folder, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            printed[text] = done.stdout
    return printed


def execute(page, folder):
    """A notebook of the docs, executed in `folder`, without what its kernel says on standard error."""
    notebook = nbformat.read(NOTEBOOKS / page, as_version=4)
    NotebookClient(notebook, timeout=800, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def kinds(notebook):
    """What each cell shows: kinds of data, such as image/png."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        [" ".join(sorted(output.get("data", [output.output_type]))) for output in cell.outputs]
        for cell in cells
    ]


@pytest.mark.long
@pytest.mark.parametrize("page", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_a_notebook_shows_what_its_page_has(page, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "platform"))
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    shown = kinds(execute(page, tmp_path))
    assert shown == kinds(nbformat.read(NOTEBOOKS / page, as_version=4))
    assert any("image/png" in kind for cell in shown for kind in cell)


@pytest.mark.long
def test_from_pictures_to_a_latex_table(tmp_path):
    with ray_folder() as ray:
        printed = do(
            "pictures.md", tmp_path, ray, leave_out=("contrasweep ui",), fewer=("3", "128")
        )
    first, extended = (
        text for command, text in printed.items() if command.startswith("contrasweep run")
    )
    assert "SupCon is better than SimCLR" in first  # as the page says
    assert "SupCon is better than SimCLR" in extended and "2" in extended
    table = (tmp_path / "table.tex").read_text()
    assert "\\toprule" in table and "\\label{tab:first}" in table
    assert "<title>" in (tmp_path / "report.html").read_text()


def verdict_of_the_demo():
    """What the page on verdicts says that the report of the demo begins with."""
    page = " ".join((TUTORIALS / "verdict.md").read_text().split())
    return re.search(r"first line\*\* reads: \*(.+?)\*", page)[1]


def test_the_page_on_verdicts_and_the_report_on_the_site_say_the_same():
    report = re.sub(r"<[^>]*>", " ", html.unescape(first_look()["demo"]))
    assert verdict_of_the_demo() in " ".join(report.split())


def unlike(lines, printed):
    """Those of `lines` that no printed line says in the same words, with means that differ by at most .03 and ends of
    intervals by .05.

    Processors of other kinds round convolutions otherwise: .25 here is .26 there, and .21 of an interval was .25. p is
    not compared: .93 is .79 there.
    """
    number = re.compile(r"[-+]?\d+\.\d+")

    def scores(line):
        text = re.sub("p = [0-9.]+", "", line)
        # Ends of intervals are scaled to the tolerance of means.
        ends = [
            0.6 * float(end)
            for part in re.findall(r"\[.*?\]", text)
            for end in number.findall(part)
        ]
        return [float(mean) for mean in number.findall(re.sub(r"\[.*?\]", "", text))] + ends

    return [
        line
        for line in lines
        if not any(
            scores(other) == pytest.approx(scores(line), abs=0.03)
            for other in printed
            if number.sub("#", other) == number.sub("#", line)
        )
    ]


def kind_of_processor():
    """Its vendor and widest instructions, `AuthenticAMD AVX512`: what rounding depends on."""
    vendor = re.search(r"vendor_id\s*: (\S+)", Path("/proc/cpuinfo").read_text())
    return f"{vendor[1] if vendor else '?'} {torch.backends.cpu.get_cpu_capability()}"


@pytest.mark.nightly
def test_the_numbers_of_the_pages_are_those_of_this_commit(tmp_path):
    """To the last digit on the kind of processor that the pages name, nearly elsewhere. Pictures are of the same runs:
    where this fails, `make pictures` and the pages are due."""
    words = ["run", "contrasweep.search_spaces.demo:STUDY", "--tracking", "none"]
    command = [sys.executable, "-m", "contrasweep", *words]
    with ray_folder() as ray:
        environment = os.environ | {"RAY_TMPDIR": str(ray)}
        demo = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout
        printed = do("pictures.md", tmp_path, ray, leave_out=("contrasweep ui",))
    verdict = re.search(r"supcon is better than infonce.*? would matter", " ".join(demo.split()))[0]
    run = {line.rstrip() for line in printed["contrasweep run study.yaml"].splitlines()}
    numbers = {line for line in shown("pictures.md") if re.search(r"\[.*\]", line)}
    assert numbers
    if f"`{kind_of_processor()}`" in (TUTORIALS / "pictures.md").read_text():
        assert verdict == verdict_of_the_demo() and numbers <= run
    else:
        assert not unlike({verdict_of_the_demo()}, {verdict}) and not unlike(numbers, run)


@pytest.mark.long
def test_a_search_and_a_fair_table(tmp_path):
    with ray_folder() as ray:
        printed = do("search.md", tmp_path, ray, fewer=("13",))
    first, *_ = (text for command, text in printed.items() if command.startswith("contrasweep run"))
    assert "too few configurations" in first
    assert shown("search.md") <= {line.rstrip() for line in first.splitlines()}
    assert "arms:" in (tmp_path / "best.yaml").read_text()


@pytest.mark.long
def test_a_first_study_of_pairs(tmp_path):
    with ray_folder() as ray:
        commands = do("image-pairs.md", tmp_path, ray, leave_out=("contrasweep data stage",))
    printed = {line.rstrip() for text in commands.values() for line in text.splitlines()}
    assert not unlike(shown("image-pairs.md"), printed)


@pytest.mark.parametrize("page", sorted(path.name for path in TUTORIALS.glob("*.md")))
def test_a_page_has_files_and_commands_or_says_that_it_needs_none(page):
    assert steps_of(page) or "no computer" in (TUTORIALS / page).read_text()
