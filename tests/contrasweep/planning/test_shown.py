"""What a notebook shows of a plan, and the forms in which a study may be given."""

import pytest
import yaml

import contrasweep as cs
from contrasweep.errors import SpecError
from contrasweep.search_spaces.quickstart import STUDY
from contrasweep.search_spaces.tuned_losses import STUDY as SWEEP
from contrasweep.study.file import load_study, to_plain


def test_the_package_lists_its_public_names_and_nothing_else():
    names = [name for name in dir(cs) if not name.startswith("__") or name == "__version__"]
    assert sorted(names) == sorted(cs.__all__)
    assert all(getattr(cs, name) is not None for name in names)


@pytest.mark.parametrize("study", [STUDY, SWEEP], ids=["grid", "sweep"])
def test_a_plan_shows_itself_in_one_line_and_as_html(study, tmp_path):
    plan = cs.plan(study, storage=str(tmp_path))
    assert len(repr(plan)) < 120
    assert study.name in repr(plan)
    shown = plan._repr_html_()
    assert all(f"<td>{arm}</td>" in shown for arm in study.arms)
    assert shown.count("<tr") == len(plan.cells) + 1


def test_html_of_a_plan_escapes_what_the_study_says(tmp_path):
    plan = cs.plan({**to_plain(STUDY), "axes": {"augmentation": ["<b>"]}, "arms": {"x": _own()}}, storage=str(tmp_path))
    assert "<b>" not in plan._repr_html_()


def _own():
    def train(trial, resume=None):
        yield cs.Report(1, {"f1_macro": 1.0})

    return cs.Arm(train)


def test_a_study_may_be_given_by_name_by_file_or_as_a_mapping(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(to_plain(STUDY)))
    forms = ["contrasweep.search_spaces.quickstart:STUDY", file, str(file), to_plain(STUDY), load_study(str(file))]
    assert {cs.plan(form, storage=str(tmp_path)).digest for form in forms} == {
        cs.plan(STUDY, storage=str(tmp_path)).digest
    }


def test_what_is_no_study_says_what_one_is():
    with pytest.raises(SpecError, match="a study is an AblationGrid, a Sweep, module:NAME"):
        cs.plan(7)
    with pytest.raises(SpecError, match="metrik: there is no such field; did you mean 'metric'"):
        cs.plan({**to_plain(STUDY), "metrik": "f1"})
