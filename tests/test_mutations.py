"""The list of deliberate defects stays true as code moves: each text stands once, and each test file exists."""

import pytest
from benchmarks import mutations
from folders import make_files


def test_the_text_of_each_mutant_stands_in_its_file_exactly_once():
    assert mutations.misplaced() == []


def test_there_are_eighty_of_ten_areas_and_each_is_another():
    areas = {"storage", "lease", "resume", "statistics", "pairing", "pruning", "escaping"}
    areas |= {"accounts", "campaign", "tracking"}
    assert len(mutations.MUTANTS) >= 80 and {mutant.area for mutant in mutations.MUTANTS} == areas
    assert len({(mutant.file, mutant.before, mutant.after) for mutant in mutations.MUTANTS}) == len(
        mutations.MUTANTS
    )


def test_a_text_that_moved_is_named(tmp_path, monkeypatch):
    (tmp_path / "twice.py").write_text("a = 1\na = 1\n")
    found = [
        mutations.Mutant("storage", what, file, "a = 1", "a = 2", ())
        for what, file in (("two", "twice.py"), ("gone", "gone.py"))
    ]
    monkeypatch.setattr(mutations, "MUTANTS", found)
    assert mutations.misplaced(tmp_path) == [
        "twice.py: two: its text stands 2 times",
        "gone.py: gone: its text stands 0 times",
    ]


@pytest.mark.slow
def test_a_mutant_is_put_in_tested_and_taken_out(tmp_path):
    make_files(
        tmp_path,
        {
            "code.py": "def double(x):\n    return 2 * x\n",
            "test_code.py": "import runpy\n\n\ndef test_double():\n    assert ",
        },
    )
    with (tmp_path / "test_code.py").open("a") as file:
        file.write("runpy.run_path('code.py')['double'](3) == 6\n")
    caught, survives = (
        mutations.Mutant("storage", "", "code.py", "2 * x", after, ("test_code.py",))
        for after in ("3 * x", "x + x")
    )
    assert mutations.fate(tmp_path, caught) == ("caught", "test_code.py::test_double")
    assert mutations.fate(tmp_path, survives) == ("survived", "")
    assert (tmp_path / "code.py").read_text() == "def double(x):\n    return 2 * x\n"
