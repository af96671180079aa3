"""A file of somebody else's that has the name of one of our packages is named, and breaks nothing in silence."""

import subprocess
import sys

import pytest

import contrasweep as cs
from contrasweep.imports import import_from_here

NAMES = ("cluster.py", "trainables/__init__.py", "search_spaces/mine.py")


@pytest.mark.parametrize("file", NAMES)
def test_a_script_beside_a_file_of_our_name_is_told_so(tmp_path, file):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("x = 1\n")
    (tmp_path / "script.py").write_text("import contrasweep\n")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    if file.endswith("mine.py"):  # a folder without __init__.py hides nothing: ours is found
        assert done.returncode == 0, done.stderr
        return
    assert done.stderr.splitlines()[-1].startswith("contrasweep.errors.SpecError: import: ")
    assert str(tmp_path / file.split("/")[0]) in done.stderr.splitlines()[-1]


def test_the_current_folder_is_looked_at_before_it_is_imported_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    import_from_here()
    (tmp_path / "cluster.py").write_text("x = 1\n")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    monkeypatch.delitem(sys.modules, "cluster")
    with pytest.raises(cs.SpecError, match=r"'cluster' is the name of a package of contrasweep.*rename it"):
        import_from_here()
