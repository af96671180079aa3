"""The list of deliberate defects stays true as code moves: each text stands once, and each test file exists."""

from benchmarks import mutations


def test_the_text_of_each_mutant_stands_in_its_file_exactly_once():
    assert mutations.misplaced() == []


def test_there_are_eighty_of_ten_areas_and_each_is_another():
    areas = {"storage", "lease", "resume", "statistics", "pairing", "pruning", "escaping"}
    areas |= {"accounts", "campaign", "tracking"}
    assert len(mutations.MUTANTS) >= 80 and {mutant.area for mutant in mutations.MUTANTS} == areas
    assert len({(mutant.file, mutant.before, mutant.after) for mutant in mutations.MUTANTS}) == len(
        mutations.MUTANTS
    )
