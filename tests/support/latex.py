"""Tables in LaTeX, as pdflatex reads them."""

import shutil
import subprocess

import pytest


def assert_compiles(latex, folder, options=""):
    """Skips where pdflatex is not installed."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed, so that the table compiles was not checked")
    head = rf"\documentclass{options}{{article}}\usepackage{{booktabs}}\begin{{document}}"
    (folder / "t.tex").write_text(rf"{head}{latex}\end{{document}}")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(words, cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
