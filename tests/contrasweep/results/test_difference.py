"""What differs between two studies or two arms."""

from dataclasses import replace

import pytest
from command_line import contrasweep, shown_json
from made_up import train, trained

import contrasweep as cs
from contrasweep.results.difference import study_difference
from contrasweep.storage.record import CodeRef
from contrasweep.storage.records import StudyRecords


def made(folder, name, arms, versions=None, code="", **fields):
    """A study whose trials all ended at once."""
    fields = {"data": "digits-lt", "seeds": [0, 1]} | fields
    plan = cs.plan(cs.AblationGrid(name, arms, **fields), storage=folder)
    trained(plan, folder, lambda trial: 0.5, code=CodeRef(code), versions=versions or {})


def rows(found):
    return [(row.kind, row.arms, row.name, row.a, row.b) for row in found.rows]


@pytest.fixture
def storage(runs):
    folder = runs
    shipped = {"loss": "supcon", "epochs": 3}
    made(
        folder,
        "one",
        {"x": cs.Arm("contrastive", shipped), "y": cs.Arm("toy:train")},
        {"torch": "2.6"},
        "aa",
    )
    more = shipped | {"optimizer": {"name": "adamw"}, "transfer": ["digits"]}
    arms = {
        "x": cs.Arm("contrastive", more),
        "y": cs.Arm("toy:train"),
        "z": cs.Arm("toy:train", {"epochs": 2}),
    }
    made(folder, "two", arms, {"torch": "2.7"}, "bb", seeds=[0, 1, 2])
    return folder


def test_two_studies_differ_in_settings_with_their_defaults_and_in_versions_and_code(storage):
    found = rows(study_difference("one", "two", storage))
    assert ("study", "", "seeds", "[0, 1]", "[0, 1, 2]") in found
    assert (
        "arm",
        "",
        "z",
        "–",
        "yes",
    ) in found
    assert ("version", "", "torch", "2.6", "2.7") in found
    assert ("code", "", "sources were not kept", "aa", "bb") in found
    settings = {name: (arms, a, b) for kind, arms, name, a, b in found if kind == "setting"}
    assert settings["optimizer.name"] == ("x", "sgd", "adamw"), (
        "the default of an arm that names none"
    )
    assert settings["transfer"][1] == "(default)", "what a method leaves out of a trial's identity"
    assert not {"epochs", "loss.name"} & set(settings)
    assert not any(kind == "data" for kind, *_ in found)


def test_of_an_arm_whose_code_changed_meanwhile_the_newest_is_compared(storage):
    records = StudyRecords(storage, "two")
    record = next(
        one for one in records.read(sorted(records.finished())).values() if one.arm == "x"
    )
    records.write(replace(record, ended=record.ended + 9, code=CodeRef("cc")))
    found = rows(study_difference("one:x", "two:x", storage))
    assert [(a, b) for kind, *_, a, b in found if kind == "code"] == [("aa", "cc")]


def test_a_study_does_not_differ_from_itself_and_two_arms_of_it_do(storage, tmp_path):
    assert rows(study_difference("one", "one", storage)) == []
    found = rows(study_difference("two:y", "two:z", storage))
    assert [(kind, arms, name, b) for kind, arms, name, _, b in found] == [
        ("setting", "y and z", "epochs", "2")
    ]
    shown = contrasweep("diff", "one:x", "two", "--storage", storage, folder=tmp_path)
    assert shown.returncode == 0 and "optimizer.name" in shown.stdout and "seeds" in shown.stdout, (
        shown.stderr
    )
    told = shown_json(tmp_path, "diff", "one", "one", "--storage", storage)
    assert told["rows"] == [] and told["a"] == "one"


def test_values_of_another_type_differ_though_tables_show_them_alike(tmp_path):
    folder = str(tmp_path)
    for name, config in (("one", [2, True, None, 1, 3]), ("two", ["2", "True", "–", 1.0])):
        made(folder, name, {"x": cs.Arm(train, dict(zip("abcde", config, strict=False)))})
    found = [row for row in rows(study_difference("one", "two", folder)) if row[0] == "setting"]
    assert [(name, a, b) for _, _, name, a, b in found] == [
        ("a", "2", '"2"'),
        ("b", "true", '"True"'),
        ("c", "null", '"\\u2013"'),
        ("e", "3", "(default)"),
    ]


def test_an_unknown_arm_and_studies_without_common_arms_are_one_line(storage, tmp_path):
    made(storage, "apart", {"q": cs.Arm("toy:train")})
    for words, said in (
        (("one:nothing", "two"), "no such arm"),
        (("one", "apart"), "no arm in common"),
    ):
        done = contrasweep("diff", *words, "--storage", storage, folder=tmp_path)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
